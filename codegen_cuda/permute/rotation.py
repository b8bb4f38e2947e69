"""The rotation form: lane l handles position ``l + 32*j`` in slot r, with ``j = (r + c * (l div g)) mod P``.

P is the number of slots, any number; positions count in logical, source or destination order, and those beyond the last
element are idle, in whichever slot they fall.  It is the XOR form with addition in the place of exclusive or: it needs
no power of two, and no table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import address, count_operations, lane_variable, require_plain, slot_variable
from codegen_cuda.permute.orders import Order, orders
from codegen_cuda.permute.plan import LANES, Plan, make_plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Ints, Task, clashes, group_lanes, task_of

__all__ = ["plan_rotation", "rotation_order", "rotation_positions"]

_GROUPS = (32, 16, 8, 4, 2, 1, 3, 5, 6, 10, 12, 20, 24)
#: Candidates are looked at together; more than this many elements in all would be slow, so fewer steps are tried.
_BUDGET = 1 << 19


def plan_rotation(problem: Problem) -> Plan:
    """Return the first rotation without bank conflicts, powers of two as groups first, or refuse.

    Raises:
        PlanError: rule ``rotation``: no order, group and step makes both phases free of bank conflicts; rule ``form``:
            a swizzle that C cannot spell.
    """
    require_plain(problem, "rotation")
    if problem.size == 1:
        raise PlanError(
            "permute_layout: the rotation form needs two elements: a single one has a constant address, and compilers "
            "let all lanes access that; the table form serves it (plan='auto')",
            rule="rotation",
        )
    task = task_of(problem)
    slots = -(-problem.size // LANES)
    for order in orders(problem.source, problem.destination):
        element = order.element.table()["m"]
        found = _search(task, element, slots)
        if found is not None:
            details = {"order": order.name, "group": found[0], "step": found[1], "slots": slots}
            table = np.where(found[2] < problem.size, element[np.minimum(found[2], problem.size - 1)], -1)
            return make_plan("rotation", table, problem, details, task=task, operations=_cost(problem, order, details))
    raise PlanError(
        "permute_layout: no rotation of the slots by groups of lanes makes both phases free of bank conflicts, in "
        "logical, source or destination order; other forms may (plan='auto')",
        rule="rotation",
    )


def _search(task: Task, element: Ints, slots: int) -> tuple[int, int, Ints] | None:
    """Return group, step and positions [slot][lane] of the first rotation without conflicts, if there is one."""
    lanes = np.arange(LANES)
    steps = min(slots, max(2, _BUDGET // (len(_GROUPS) * LANES * slots)))
    pairs = [(LANES, 0)] + [(g, c) for c in range(1, steps) for g in _GROUPS[1:]]
    turn = np.array([c * (lanes // g) for g, c in pairs])
    alive = np.arange(len(pairs))
    base = {side: task.units(side).min() // task.banks * task.banks for side in ("source", "destination")}
    for r in range(slots):
        position = lanes + LANES * ((r + turn[alive]) % slots)
        active = position < task.size
        held = element[np.minimum(position, task.size - 1)]
        for side in ("source", "destination"):
            units = np.where(active, task.units(side)[held] - base[side], -1)
            free = ~clashes(units, task.banks, group_lanes(task.width))
            alive, active, held = alive[free], active[free], held[free]
        if not len(alive):
            return None
    group, step = pairs[int(alive[0])]
    return group, step, lanes + LANES * ((np.arange(slots)[:, None] + step * (lanes // group)) % slots)


def rotation_order(problem: Problem, details: dict[str, Any]) -> Order:
    """Return the order that a plan counts in."""
    return next(o for o in orders(problem.source, problem.destination) if o.name == details["order"])


def rotation_positions(problem: Problem, details: dict[str, Any]) -> Callable[[int], Expr]:
    """Return the position that register r handles as an expression of the lane (and the warp)."""
    lane = lane_variable()
    turn = lane // details["group"] * details["step"]
    return lambda r: lane + (turn + slot_variable(problem, r)) % details["slots"] * LANES


def _cost(problem: Problem, order: Order, details: dict[str, Any]) -> int:
    position = rotation_positions(problem, details)
    sides = (order.source, order.destination)
    slots = -(-details["slots"] // problem.warps)
    return count_operations(lambda r: [address(side, position(r)) for side in sides], slots)
