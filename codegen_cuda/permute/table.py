"""The table form: any pair of layouts, with a schedule that is looked up.

An element is an edge between the bank it is read from and the bank it is written to.  Elements of one colour touch
every bank at most once on both sides and make up one *group*: what is served together, 32 lanes up to 4 bytes, 16 lanes
at 8 and 8 at 16 bytes, so that one, two or four groups make an instruction.  With K colours, K at least the number of
elements in the fullest bank, both phases cost K.

Where one side is fuller than the other, or both are fuller than the number of elements asks for, banks are split into
pieces of at most K elements and K colours suffice: a phase costs at most ``K * ceil(fullest / K)``.  To pay no more
than ``fullest``, the groups that visit full banks once more are taken out first (:mod:`codegen_cuda.permute.peeling`);
where lanes allow it, both phases then cost their bounds.  A few K are tried.
"""

from __future__ import annotations

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.colouring import colour_edges, even_out, split_nodes
from codegen_cuda.permute.peeling import Flow
from codegen_cuda.permute.plan import LANES, Plan, make_plan, measure
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Ints, Task, group_lanes, task_of

__all__ = ["plan_table", "table_slots"]

_TRIES = 4
#: Narrow elements, which whole words serve better, try fewer: of each kind of attempt so many.
_NARROW_TRIES = 3, 2
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
    graph = _Graph(task, lanes)
    # A wavefront moves one element of a lane, however many of narrow ones share a word.
    least = sum(max(bound, fewest) for bound in task.bounds)
    best: tuple[tuple[int, int], Ints] | None = None
    for groups, peel in graph.attempts(fewest, most):
        slots = graph.schedule(groups, peel=peel)
        if slots is None:
            continue
        moves = [(task.width, slots[:, :, None])]
        cost = sum(measure(op, moves, task).wavefronts for op in ("ld.shared", "st.shared"))
        if best is None or (cost, len(slots)) < best[0]:
            best = (cost, len(slots)), slots
        if cost == least:
            break
    assert best is not None
    return best[1]


class _Graph:
    """The multigraph of a task: elements are edges between banks."""

    def __init__(self, task: Task, lanes: int) -> None:
        self.size, self.banks, self.lanes, self.is_narrow = task.size, task.banks, lanes, task.width < 4
        self.ends = tuple((task.units(side) % task.banks).tolist() for side in ("source", "destination"))
        self.degrees = tuple(int(np.bincount(end).max()) for end in self.ends)

    def attempts(self, fewest: int, most: int) -> list[tuple[int, bool]]:
        """Return numbers of groups worth trying, and whether to peel, the most promising first."""
        a, b = self.degrees
        if a == b == fewest or self.size > _PATIENCE:
            return [(min(max(a, b), most), False)] if max(a, b) <= most else [(fewest, True), (fewest, False)]
        low, high = min(a, b, most), min(max(a, b), most)
        peeled = sorted({fewest, low, (fewest + low) // 2, low + (high - low) // 4, (low + high) // 2})

        def certain(k: int) -> tuple[int, int]:
            return k * -(-a // k) + k * -(-b // k), k

        plain = sorted(range(fewest, high + 1), key=certain)[:_TRIES]
        if self.is_narrow:
            peeled, plain = peeled[: _NARROW_TRIES[0]], plain[: _NARROW_TRIES[1]]
        return [(k, True) for k in peeled] + [(k, False) for k in plain]

    def schedule(self, groups: int, *, peel: bool) -> Ints | None:
        """Colour with a number of groups, and lay groups out over lanes, full ones first; None where peeling fails."""
        left = list(range(self.size))
        members: list[list[int]] = []
        if peel:
            found = self._peel(groups)
            if found is None:
                return None
            members, left = found
        if left:
            members += self._colour(left, groups - len(members))
        filled = sorted((sorted(group) for group in members if group), key=len, reverse=True)
        per_slot = LANES // self.lanes
        slots = np.full((-(-len(filled) // per_slot), LANES), -1, dtype=np.int64)
        for number, group in enumerate(filled):
            start = number % per_slot * self.lanes
            slots[number // per_slot, start : start + len(group)] = group
        return slots

    def _colour(self, edges: list[int], groups: int) -> list[list[int]]:
        """Split banks into pieces of as many elements as there are groups, and colour."""
        pieces = [split_nodes([end[e] for e in edges], groups) for end in self.ends]
        # Edges of last, smaller pieces come first: low colours take them, and other groups stay free of second visits.
        order = sorted(range(len(edges)), key=lambda k: -(pieces[0][k] + pieces[1][k]))
        left, right = ([piece[k] for k in order] for piece in pieces)
        colours = even_out(left, right, colour_edges(left, right, groups), groups, self.lanes)
        members: list[list[int]] = [[] for _ in range(groups)]
        for k, colour in zip(order, colours, strict=True):
            members[colour].append(edges[k])
        return members

    def _peel(self, groups: int) -> tuple[list[list[int]], list[int]] | None:
        """Take out the groups that visit full banks once more than the others do."""
        quotas = [divmod(degree, groups) for degree in self.degrees]
        caps = [[q + 1] * r + [q] * (groups - r) for q, r in quotas]
        counts = np.zeros((self.banks, self.banks), dtype=np.int64)
        np.add.at(counts, self.ends, 1)
        stock: dict[tuple[int, int], list[int]] = {}
        for e, pair in enumerate(zip(*self.ends, strict=True)):
            stock.setdefault(pair, []).append(e)
        members, left = [], self.size
        rest = list(self.degrees)
        for g in range(max(r for _, r in quotas)):
            most = caps[0][g], caps[1][g]
            rest = [r - m for r, m in zip(rest, most, strict=True)]
            needs = [np.maximum(0, counts.sum(axis=1 - side) - r).tolist() for side, r in enumerate(rest)]
            least = max(0, left - (groups - g - 1) * self.lanes)
            found = Flow(counts.tolist(), (needs[0], needs[1]), most, self.lanes, least).run()
            if found is None:
                return None
            taken = np.array(found)
            group = [stock[u, v].pop() for u, v in np.argwhere(taken).tolist() for _ in range(found[u][v])]
            counts -= taken
            members.append(group)
            left -= len(group)
        return members, sorted(e for edges in stock.values() for e in edges)
