"""The vector form: 8 or 16 bytes of a lane at once, where memory is contiguous on one side or both.

A wavefront moves the same 128 bytes whatever the width, so wide accesses save instructions, not wavefronts.  Two ways:

* linear pairs: lanes and registers are chosen for the widths (:mod:`codegen_cuda.permute.linear`); a lane reads whole
  rows of a small block and writes whole columns of it, and registers are merely renamed;
* elements that travel in company: neighbours on both sides are packed to one wider element, which any form then moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.blocks import plan_blocks
from codegen_cuda.permute.linear import linear_sides
from codegen_cuda.permute.packing import plan_packed
from codegen_cuda.permute.plan import Plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import WIDEST, task_of

__all__ = ["plan_vector"]


def plan_vector(problem: Problem) -> Plan:
    """Return the cheapest plan with wide accesses, or refuse.

    Raises:
        PlanError: rule ``vector``: no side is contiguous and aligned over 8 bytes.
    """
    plans = list(_plans(problem))
    if not plans:
        raise PlanError(
            "permute_layout: the vector form needs 8 or 16 aligned bytes of one side that lie together, as a linear "
            "pair or as neighbours on both sides; other forms serve it (plan='auto')",
            rule="vector",
        )
    return min(plans, key=lambda plan: plan.cost)


def _plans(problem: Problem) -> Iterator[Plan]:
    task = task_of(problem)
    sides = linear_sides(task)
    if sides is not None:
        widths = [w for w in (1, 2, 4, 8, 16) if w >= problem.width]
        wide = [(read, write) for read in widths for write in widths if max(read, write) > max(problem.width, 4)]
        plan = plan_blocks("vector", problem, task, sides, wide)
        if plan is not None:
            yield plan
        return
    for count in (16, 8, 4, 2):
        if max(8, 2 * problem.width) <= count * problem.width <= WIDEST:
            plan = plan_packed("vector", problem, task, count)
            if plan is not None:
                yield plan
                return
