"""The GF(2) form: any pair of layouts that is linear on the bits of the index, without a table.

Lane l and slot r hold element ``L(l) ^ rho_r``: lanes span a subspace that maps injectively onto the banks of both
sides as far as the sides reach, slots a complement (:mod:`codegen_cuda.permute.linear`).  Both phases then cost exactly
their lower bounds, also where these differ.
"""

from __future__ import annotations

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.linear import Blocks, LinearSide, apply, choose_blocks, images, linear_sides
from codegen_cuda.permute.plan import Plan, make_plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Ints, Task, task_of

__all__ = ["gf2_slots", "plan_gf2", "split_address"]


def plan_gf2(problem: Problem) -> Plan:
    """Return the plan that linear algebra gives, or refuse.

    Raises:
        PlanError: rule ``gf2``: a side is not linear on index bits.
    """
    task = task_of(problem)
    found = gf2_slots(task, problem.warps)
    if found is None:
        raise PlanError(
            f"permute_layout: the gf2 form needs 2^n elements, two at least, and addresses that are linear on the bits "
            f"of the index; {problem.source} to {problem.destination} is not; other forms serve it (plan='auto')",
            rule="gf2",
        )
    slots, blocks, sides = found
    details = {"lanes": blocks.lanes, "slots": (*blocks.warps, *blocks.outer)}
    return make_plan("gf2", slots, problem, details, task=task, operations=operations(blocks, sides))


def gf2_slots(task: Task, warps: int) -> tuple[Ints, Blocks, tuple[LinearSide, LinearSide]] | None:
    """Return the schedule [slot][lane], how it was chosen, and both linear maps; None where the task is not linear."""
    sides = linear_sides(task)
    if sides is None:
        return None
    blocks = choose_blocks(task, sides, task.width, task.width, warps=warps)
    if blocks is None:
        return None
    return blocks.elements("source", sides[0], task.width)[:, :, 0], blocks, sides


def split_address(blocks: Blocks, linear: LinearSide, side: str) -> tuple[int, list[tuple[int, int]]]:
    """Split the address of every instruction as ``(p ^ x) + immediate``, p being the lane's (and warp's) part.

    Returns:
        The bits that p may have, and ``(x, immediate)`` per register row of one warp, in bytes, all multiples of the
        access's width; the origin is not included.
    """
    size = blocks.read if side == "source" else blocks.write
    thread = [apply(linear.columns, v) // size * size for v in (*blocks.lanes, *blocks.warps)]
    reach = int(np.bitwise_or.reduce(np.array([0, *thread])))
    rows = images(blocks.rows(side)[len(blocks.warps) :])
    fixed = [(apply(linear.columns, int(row)) ^ linear.constant) // size * size for row in rows]
    return reach, [(value & reach, value & ~reach) for value in fixed]


def operations(blocks: Blocks, sides: tuple[LinearSide, LinearSide]) -> int:
    """Estimate the instructions per lane that addresses take: the lane's part once, then each exclusive or."""
    total = 0
    for side, linear, size in zip(("source", "destination"), sides, (blocks.read, blocks.write), strict=True):
        _, parts = split_address(blocks, linear, side)
        shifts = {
            bit - target
            for bit, vector in enumerate((*blocks.lanes, *blocks.warps))
            for target in range(40)
            if apply(linear.columns, vector) // size >> target & 1
        }
        total += 2 * len(shifts) + 2 * len({x for x, _ in parts if x})
    return total
