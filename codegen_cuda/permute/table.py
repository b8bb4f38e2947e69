"""The table form: any pair of layouts, with a schedule that is looked up.

An element is an edge between the bank it is read from and the bank it is written to.  Elements of one colour touch
every bank at most once on both sides and make up one *group*: what is served together, 32 lanes up to 4 bytes, 16 lanes
at 8 and 8 at 16 bytes, so that one, two or four groups make an instruction.  With K colours, K at least the number of
elements in the fullest bank, both phases cost K.

Where one side is fuller than the other, or both are fuller than the number of elements asks for, banks are split into
pieces of at most K elements and K colours suffice: a phase costs at most ``K * ceil(fullest / K)``.  A few K are tried.
"""

from __future__ import annotations

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.colouring import colour_edges, even_out, split_nodes
from codegen_cuda.permute.plan import LANES, Plan, make_plan, measure
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Ints, Task, group_lanes, task_of

__all__ = ["plan_table", "table_slots"]

_TRIES = 4
#: Estimated instructions: taking two offsets out of a word, and a share of a 16-byte load from global memory.
_PER_SLOT, _SETUP = 8, 8
#: More colourings than one are worth their time up to this many elements.
_PATIENCE = 6144


def plan_table(problem: Problem) -> Plan:
    """Return the cheapest coloured schedule.

    Raises:
        PlanError: rule ``registers``: even the shortest schedule needs more than allowed.
    """
    task = task_of(problem)
    most = problem.max_registers * 4 * problem.warps // problem.width
    slots = table_slots(task, most)
    details = {"groups": int((slots >= 0).reshape(len(slots), -1, group_lanes(task.width)).any(axis=2).sum())}
    operations = _SETUP + _PER_SLOT * -(-len(slots) // problem.warps)
    return make_plan("table", slots, problem, details, task=task, operations=operations)


def table_slots(task: Task, most_slots: int) -> Ints:
    """Return the best schedule found, [slot][lane].

    Args:
        task: what to move.
        most_slots: how many slots the registers hold.

    Raises:
        PlanError: rule ``registers``: not even the shortest fits.
    """
    lanes = group_lanes(task.width)
    per_slot = LANES // lanes
    fewest = -(-task.size // lanes)
    most = most_slots * per_slot
    if fewest > most:
        raise PlanError(
            f"permute_layout: {task.size} elements of {task.width} bytes need {-(-fewest // per_slot)} slots per lane, "
            f"the limit is {most_slots}",
            rule="registers",
        )
    best: tuple[tuple[int, int], Ints] | None = None
    for groups in _group_counts(task, fewest, most):
        slots = _schedule(task, groups, lanes)
        moves = [(task.width, slots[:, :, None])]
        cost = sum(measure(op, moves, task).wavefronts for op in ("ld.shared", "st.shared"))
        if best is None or (cost, len(slots)) < best[0]:
            best = (cost, len(slots)), slots
        if cost == sum(task.bounds):
            break
    assert best is not None
    return best[1]


def _degrees(task: Task) -> tuple[int, int]:
    """Return how many elements the fullest bank has on each side."""
    return tuple(int(np.bincount(task.units(side) % task.banks).max()) for side in ("source", "destination"))  # type: ignore[return-value]


def _group_counts(task: Task, fewest: int, most: int) -> list[int]:
    """Return numbers of groups worth trying, the most promising first."""
    a, b = _degrees(task)
    full = min(max(a, b, fewest), most)

    def least(k: int) -> tuple[int, int, int]:
        optimistic = max(a, k) + max(b, k)
        certain = k * -(-a // k) + k * -(-b // k)
        return certain + 2 * optimistic, optimistic, k

    counts = sorted(range(fewest, full + 1), key=least)
    return counts[: _TRIES if task.size <= _PATIENCE else 1]


def _schedule(task: Task, groups: int, lanes: int) -> Ints:
    """Colour with a number of groups, and lay groups out over lanes, full ones first."""
    ends = [(task.units(side) % task.banks).tolist() for side in ("source", "destination")]
    pieces = [split_nodes(end, groups) for end in ends]
    # Edges of last, smaller pieces come first: low colours take them, and other groups stay free of second visits.
    order = sorted(range(task.size), key=lambda e: -_lateness(pieces, e))
    left, right = ([piece[e] for e in order] for piece in pieces)
    colours = colour_edges(left, right, groups)
    colours = even_out(left, right, colours, groups, lanes)
    members: list[list[int]] = [[] for _ in range(groups)]
    for edge, colour in zip(order, colours, strict=True):
        members[colour].append(edge)
    filled = sorted((sorted(group) for group in members if group), key=len, reverse=True)
    per_slot = LANES // lanes
    slots = np.full((-(-len(filled) // per_slot), LANES), -1, dtype=np.int64)
    for number, group in enumerate(filled):
        start = number % per_slot * lanes
        slots[number // per_slot, start : start + len(group)] = group
    return slots


def _lateness(pieces: list[list[int]], edge: int) -> int:
    return pieces[0][edge] + pieces[1][edge]
