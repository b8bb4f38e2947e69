"""Header-free CUDA for a plan: a device function to paste, and the statements around it.

The address is absolute: lane in bits 31:16, column in bits 15:0, so a warp adds its slab (``warp % 4`` times 32 lanes)
itself.  Waits and fences are emitted as the PTX ISA's cross-thread patterns ask for them (9.7.16.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from codegen_cuda.tmem.plan import TmemPlan, Transfer
from layoutalg.hardware.tcgen05 import SLAB, TWO_ADDRESSES

__all__ = ["allocate", "barrier", "deallocate", "device_function", "statement", "wait"]


def statement(transfer: Transfer, direction: str, array: str, address: str, names: Iterable[int] | None = None) -> str:
    """Return the inline assembly of one instruction on ``array``.

    >>> from layoutalg.hardware.tcgen05 import TmemInstruction
    >>> print(statement(Transfer(0, TmemInstruction("16x64b", 2), 0, 0, (5, 4)), "ld", "r", "base"))
    asm volatile("tcgen05.ld.sync.aligned.16x64b.x2.b32 {%0, %1}, [%2];" : "=r"(r[5]), "=r"(r[4]) : "r"(base));
    """
    instruction = transfer.instruction
    registers = list(transfer.registers if names is None else names)
    count = len(registers)
    opcode = instruction.opcode(direction)
    split = f", {instruction.split}" if instruction.shape == TWO_ADDRESSES else ""
    if direction == "ld":
        vector = ", ".join(f"%{i}" for i in range(count))
        outputs = ", ".join(f'"=r"({array}[{r}])' for r in registers)
        return f'asm volatile("{opcode} {{{vector}}}, [%{count}]{split};" : {outputs} : "r"({address}));'
    vector = ", ".join(f"%{i + 1}" for i in range(count))
    inputs = ", ".join(f'"r"({array}[{r}])' for r in registers)
    return f'asm volatile("{opcode} [%0]{split}, {{{vector}}};" :: "r"({address}), {inputs} : "memory");'


def wait(direction: str) -> str:
    """Return the wait for this warp's loads or stores."""
    return f'asm volatile("tcgen05.wait::{direction}.sync.aligned;" ::: "memory");'


def barrier() -> list[str]:
    """Return a block barrier that orders tensor-memory accesses of different threads."""
    return [
        'asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");',
        "__syncthreads();",
        'asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
    ]


def allocate(columns: int) -> list[str]:
    """Return statements that define ``base``: warp 0 allocates, and the address goes through shared memory."""
    return [
        "__shared__ unsigned slot;",
        "if (warp == 0) {",
        "    const unsigned where = (unsigned)__cvta_generic_to_shared(&slot);",
        '    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"',
        f'                 :: "r"(where), "r"({columns}u) : "memory");',
        '    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");',
        "}",
        *barrier(),
        "const unsigned base = *(volatile unsigned*)&slot;",
    ]


def deallocate(columns: int) -> list[str]:
    """Return statements that free the columns once every warp is done with them."""
    return [
        *barrier(),
        "if (warp == 0)",
        '    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"',
        f'                 :: "r"(base), "r"({columns}u) : "memory");',
    ]


def device_function(plan: TmemPlan, name: str) -> str:
    """Return ``NAME(r, base, warp)``: the plan's instructions and the wait for them."""
    direction = plan.problem.direction
    const = "const " if direction == "st" else ""
    lines = [
        f"__device__ __forceinline__ void {name}({const}unsigned (&r)[{plan.registers}], unsigned base, int warp) {{",
        *("    " + line for line in _body(plan)),
        f"    {wait(direction)}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _body(plan: TmemPlan) -> list[str]:
    """One sequence for all warps that issue the same, in terms of their slabs; branches where they differ."""
    groups: dict[tuple[Transfer, ...], list[int]] = {}
    for warp in plan.warps:
        own = (t for t in plan.transfers if t.warp == warp)
        key = tuple(Transfer(0, t.instruction, t.lane - SLAB * (warp % 4), t.column, t.registers) for t in own)
        groups.setdefault(key, []).append(warp)
    lines = ["const unsigned slab = base + ((unsigned)(warp & 3) << 21);"]
    if plan.problem.scope == "warp":
        lanes = SLAB * (plan.warps[0] % 4)
        lines = ["(void)warp;", f"const unsigned slab = base{f' + {lanes << 16:#x}u' if lanes else ''};"]
    for key, warps in groups.items():
        body = [statement(t, plan.problem.direction, "r", _address(t)) for t in key]
        if len(groups) == 1:
            lines += body
        else:
            test = " || ".join(f"warp == {w}" for w in warps)
            lines += [f"if ({test}) {{", *("    " + line for line in body), "}"]
    return lines


def _address(transfer: Transfer) -> str:
    offset = (transfer.lane << 16) + transfer.column
    return f"slab + {offset:#x}u" if offset else "slab"
