"""The XOR form: lane l handles element ``l + 32*j`` in slot r, with ``j = r ^ ((l >> (5-k)) & (2**k - 1))``.

Without the XOR, slot r reads 32 consecutive elements of the source order, and a transposed destination puts many of
them on one bank.  The XOR lets each group of ``2**(5-k)`` lanes walk its slots in another order, so that in one
instruction the groups write different columns.  The smallest k for which both phases are free of bank conflicts is
taken; what "free" means is decided by the measured bank rule, sub-word broadcast and wide accesses included.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import address, count_operations, lane_variable, require_plain, slot_variable
from codegen_cuda.permute.plan import LANES, Plan, make_plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import conflicts, task_of

__all__ = ["plan_xor", "xor_elements"]

_LANE_BITS = 5


def plan_xor(problem: Problem) -> Plan:
    """Return the plan with the smallest k, or refuse.

    Raises:
        PlanError: rule ``volume``: the elements are no multiple of 32 (a limit of this form only); rule ``xor``: no k
            makes both phases free of bank conflicts; rule ``form``: a swizzle that C cannot spell.
    """
    require_plain(problem, "xor")
    if problem.size % (LANES * problem.warps):
        raise PlanError(
            f"permute_layout: the xor form gives every lane the same number of elements, and {problem.size} is no "
            f"multiple of {LANES * problem.warps}; other forms handle tails (plan='auto')",
            rule="volume",
            size=problem.size,
        )
    task, slots, lanes = task_of(problem), problem.size // LANES, np.arange(LANES)
    tried: list[str] = []
    for k in range(_LANE_BITS + 1):
        if slots % (1 << k):
            break
        shift, mask = _LANE_BITS - k, (1 << k) - 1
        order = np.arange(slots)[:, None] ^ ((lanes >> shift) & mask)
        details = {"k": k, "shift": shift, "mask": mask}
        counts = [conflicts(task, side, lanes + LANES * order) for side in ("source", "destination")]
        if not any(counts):
            operations = _cost(problem, details)
            return make_plan("xor", lanes + LANES * order, problem, details, task=task, operations=operations)
        tried.append(f"k={k}: {counts[0]} + {counts[1]}")
    raise PlanError(
        f"permute_layout: no XOR of lane bits makes both phases free of bank conflicts "
        f"(instructions with conflicts, read + write: {'; '.join(tried)}); other forms may (plan='auto')",
        rule="xor",
        tried=tuple(tried),
    )


def xor_elements(problem: Problem, details: dict[str, int]) -> Callable[[int], Expr]:
    """Return the flat index of the element in register r as an expression of the lane (and the warp)."""
    lane = lane_variable()
    shift, mask = details["shift"], details["mask"]
    # Shifting first and masking after is the reference's spelling; the mask is redundant for lanes below 32.
    group = (lane >> shift) & mask
    return lambda r: lane + (slot_variable(problem, r) if mask == 0 else group ^ slot_variable(problem, r)) * LANES


def _cost(problem: Problem, details: dict[str, int]) -> int:
    element = xor_elements(problem, details)
    sides = (problem.source, problem.destination)
    return count_operations(lambda r: [address(side, element(r)) for side in sides], _registers(problem))


def _registers(problem: Problem) -> int:
    """Return the number of registers, which all lanes fill."""
    return problem.size // (LANES * problem.warps)
