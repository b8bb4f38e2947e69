"""The words form: 1- and 2-byte elements moved as whole words, their bytes sorted by ``prmt`` in between.

Element-wise access moves 32 or 64 bytes with an instruction; whole words move 128, which is what a wavefront can carry.
For linear pairs a lane reads whole source words and writes whole destination words as long as
``n - 5 >= dim(S + D)``; below that, narrower accesses on one side or both cost least.  For other pairs the words that
travel together are searched for (:mod:`codegen_cuda.permute.scattered`).
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.blocks import plan_blocks
from codegen_cuda.permute.linear import linear_sides
from codegen_cuda.permute.packing import plan_packed
from codegen_cuda.permute.plan import Plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.scattered import plan_scattered
from codegen_cuda.permute.task import task_of

__all__ = ["plan_words"]


def plan_words(problem: Problem) -> Plan:
    """Return the cheapest plan that moves several elements of a word at once, or refuse.

    Raises:
        PlanError: rule ``words``: elements of a word or more, or a pair that offers no words.
    """
    if problem.width >= 4:
        raise PlanError(
            f"permute_layout: the words form is for 1- and 2-byte elements, and {problem.dtype.name} has "
            f"{problem.width}; other forms serve it (plan='auto')",
            rule="words",
        )
    plans = list(_plans(problem))
    if not plans:
        raise PlanError(
            f"permute_layout: the words form found no elements to join within {problem.max_registers} registers, "
            f"{problem.warps} warps and aligned words; other forms serve it (plan='auto')",
            rule="words",
        )
    return min(plans, key=lambda plan: plan.cost)


def _plans(problem: Problem) -> Iterator[Plan]:
    task = task_of(problem)
    sides = linear_sides(task)
    if sides is not None:
        widths = [w for w in (1, 2, 4) if w >= problem.width]
        joined = [(read, write) for read in widths for write in widths if max(read, write) > problem.width]
        plan = plan_blocks("words", problem, task, sides, joined)
        if plan is not None:
            yield plan
        return
    for count in (4, 2):
        if count * problem.width <= 4:
            plan = plan_packed("words", problem, task, count)
            if plan is not None:
                yield plan
                if count * problem.width == 4:
                    return
    scattered = plan_scattered(problem, task)
    if scattered is not None:
        yield scattered
