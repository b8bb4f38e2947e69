"""Where a compiler can join narrow accesses of a lane to wider ones, which then cost less than the plan says.

Compilers see that ``src[p]`` and ``src[p + 1]`` are neighbours and load both at once where alignment allows it.  At 4
bytes and more that changes no count of wavefronts; two bytes of one word are then served together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.permute.plan import Access, Plan, addresses_of
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.task import Ints

__all__ = ["may_join"]

_WORD = 4


def may_join(problem: Problem, plan: Plan, layout: Layout, listed: tuple[Access, ...]) -> bool:
    """Say whether two accesses of a lane narrower than a word are neighbours in all lanes, by arithmetic.

    Args:
        problem: the request.
        plan: its plan.
        layout: the side that the phase touches.
        listed: the phase's instructions, none where it goes slot by slot.
    """
    if "table" in (plan.form, plan.details.get("as")) or "jobs" in plan.details:
        return False  # looked up: nothing is known of the addresses
    places = problem.coordinates(layout) * problem.width
    slots = [(problem.width, tuple((element,) for element in row)) for row in plan.slots]
    accesses = [(a.width, a.elements) for a in listed] or slots
    for width in {width for width, _ in accesses if width < _WORD}:
        for warp in range(plan.warps):
            mine = [e for number, (w, e) in enumerate(accesses) if w == width and number % plan.warps == warp]
            if not mine:
                continue
            table: Ints = np.array(mine)
            starts, _ = addresses_of(table, places, problem.width)
            used: NDArray[np.bool_] = np.max(table, axis=2) >= 0
            both = used[:, None] & used[None, :]
            after = (starts[None, :] - starts[:, None] == width) | ~both
            if (after.all(axis=2) & both.any(axis=2)).any():
                return True
    return False
