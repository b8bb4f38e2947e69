"""The device function of a plan: its instructions as statements, and the wait for them.

The address is absolute: lane in bits 31:16, column in bits 15:0, so a warp adds its slab (``warp % 4`` times 32 lanes)
itself.  Waits and fences are emitted as the PTX ISA's cross-thread patterns ask for them (9.7.16.6).
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.body import Asm, Function, If, ScalarParam, Statement, any_of, compare, let
from codegen_cuda.buffers import Buffer, alloc
from codegen_cuda.expr import Expr
from codegen_cuda.tcgen05 import tcgen05_address, tcgen05_move, tcgen05_wait
from codegen_cuda.tmem.plan import TmemPlan, Transfer
from codegen_cuda.values import Name, Value
from layoutalg.hardware.dtypes import dtype
from layoutalg.hardware.tcgen05 import SLAB

__all__ = ["device_function", "move", "on_warps", "registers"]

_BASE = Name("base", dtype("uint32"))
_SLAB = Name("slab", dtype("uint32"))


def registers(count: int) -> Buffer:
    """Return the array ``r`` of 32-bit registers."""
    return alloc("r", (count,), "uint32", scope="local", pointer="r")


def move(transfer: Transfer, direction: str, array: Buffer, address: Value) -> Asm:
    """Return the statement of one instruction on ``array``.

    >>> from codegen_cuda.spelling import spell
    >>> from layoutalg.hardware.tcgen05 import TmemInstruction
    >>> print(spell(move(Transfer(0, TmemInstruction("16x64b", 1), 0, 0, (5,)), "ld", registers(6), _BASE)))
    asm volatile("tcgen05.ld.sync.aligned.16x64b.x1.b32 {%0}, [%1];" : "=r"(r[5]) : "r"(base) : "memory");
    """
    return tcgen05_move(direction, transfer.instruction, [array[r] for r in transfer.registers], address)


def on_warps(warp: Expr, warps: Sequence[int], statements: Sequence[Statement]) -> If:
    """Return a branch that some warps take; from warp 0 on and all four of a group, one comparison says it."""
    if len(warps) >= 4 and tuple(warps) == tuple(range(len(warps))):
        return If(compare(warp, "<", len(warps)), tuple(statements))
    return If(any_of(*(compare(warp, "==", w) for w in warps)), tuple(statements))


def device_function(plan: TmemPlan, name: str) -> Function:
    """Return ``NAME(r, base, warp)``: the plan's instructions and the wait for them."""
    array, warp = registers(plan.registers), ScalarParam("warp", 0, 31)
    body = [*_instructions(plan, array, warp.var), tcgen05_wait(plan.problem.direction)]
    return Function(name, (array, _BASE, warp), body)


def _instructions(plan: TmemPlan, array: Buffer, warp: Expr) -> list[Statement]:
    """One sequence for all warps that issue the same, in terms of their slabs; branches where they differ."""
    groups: dict[tuple[Transfer, ...], list[int]] = {}
    for number in plan.warps:
        own = (t for t in plan.transfers if t.warp == number)
        key = tuple(Transfer(0, t.instruction, t.lane - SLAB * (number % 4), t.column, t.registers) for t in own)
        groups.setdefault(key, []).append(number)
    # One warp's slab is known where the kernel is made.
    which = Expr.of(plan.warps[0]) if plan.problem.scope == "warp" else warp
    statements: list[Statement] = [let("slab", tcgen05_address(_BASE, which))]
    for key, warps in groups.items():
        moves = [
            move(t, plan.problem.direction, array, tcgen05_address(_SLAB, Expr.of(0), lane=t.lane, column=t.column))
            for t in key
        ]
        own_warps = any_of(*(compare(warp, "==", w) for w in warps))
        statements += moves if len(groups) == 1 else [If(own_warps, tuple(moves))]
    return statements
