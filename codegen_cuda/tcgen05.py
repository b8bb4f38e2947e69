"""The tensor-memory instructions that kernels of this package write by hand, as checked statements (PTX ISA 9.7.16).

Tensor memory has no pointers: a buffer there is columns from ``allocated_addr``, and these statements are the only way
in and out.  ``tcgen05.alloc`` writes the address of what it reserved into shared memory, for every thread to read.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.body import Asm, Statement, Sync
from codegen_cuda.buffers import Buffer, Element
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Literal, Value
from codegen_cuda.words import SharedAddress, cast
from layoutalg.hardware.dtypes import dtype
from layoutalg.hardware.tcgen05 import TWO_ADDRESSES, TmemInstruction
from layoutalg.tile import TileLayout

__all__ = [
    "tcgen05_address",
    "tcgen05_alloc",
    "tcgen05_barrier",
    "tcgen05_dealloc",
    "tcgen05_fence",
    "tcgen05_load",
    "tcgen05_move",
    "tcgen05_relinquish",
    "tcgen05_store",
    "tcgen05_wait",
]

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_WORD = dtype("uint32")
_ROWS = TileLayout.from_iters(shard=[(128, 1, "TLane")])


def tcgen05_alloc(slot: Buffer, columns: int, *, cta_group: int = 1) -> Asm:
    """Reserve columns; the whole warp issues it, and the address arrives in the slot.

    Args:
        slot: a uint32 in shared memory.
        columns: a power of two from 32 to 512.
        cta_group: 1, or 2 for a pair of blocks.

    Raises:
        PlanError: another number of columns, group or kind of slot.
    """
    _check(columns, cta_group)
    if not slot.scope.startswith("shared") or slot.dtype.name != "uint32":
        raise PlanError(f"the slot of tcgen05.alloc is a uint32 in shared memory, not {slot.dtype} in {slot.scope}")
    text = f"tcgen05.alloc.cta_group::{cta_group}.sync.aligned.shared::cta.b32 [%0], %1;"
    inputs = (("r", SharedAddress(slot.ptr_to([0]))), ("r", Literal(columns, _WORD)))
    return Asm(text, inputs=inputs, collective="warp", cta_group=cta_group)


def tcgen05_dealloc(address: Value, columns: int, *, cta_group: int = 1) -> Asm:
    """Free what one allocation reserved: its very address and number of columns."""
    _check(columns, cta_group)
    text = f"tcgen05.dealloc.cta_group::{cta_group}.sync.aligned.b32 %0, %1;"
    inputs = (("r", address), ("r", Literal(columns, _WORD)))
    return Asm(text, inputs=inputs, collective="warp", cta_group=cta_group)


def tcgen05_relinquish(cta_group: int = 1) -> Asm:
    """Give back the permit to allocate; no allocation may follow."""
    _check(32, cta_group)
    text = f"tcgen05.relinquish_alloc_permit.cta_group::{cta_group}.sync.aligned;"
    return Asm(text, collective="warp", cta_group=cta_group)


def tcgen05_fence(which: str) -> Asm:
    """Order tensor-memory accesses ``"before"`` or ``"after"`` a barrier of threads."""
    if which not in ("before", "after"):
        raise PlanError(f"a tcgen05 fence stands 'before' or 'after' a barrier, not {which!r}")
    return Asm(f"tcgen05.fence::{which}_thread_sync;")


def tcgen05_barrier() -> tuple[Statement, ...]:
    """Return a barrier of the block that orders tensor-memory accesses of different threads (9.7.16.6)."""
    return (tcgen05_fence("before"), Sync(), tcgen05_fence("after"))


def tcgen05_wait(what: str) -> Asm:
    """Wait for the warp's loads (``"ld"``) or stores (``"st"``)."""
    if what not in ("ld", "st"):
        raise PlanError(f"tcgen05.wait is for 'ld' or 'st', not {what!r}")
    return Asm(f"tcgen05.wait::{what}.sync.aligned;", collective="warp")


def tcgen05_load(registers: Buffer, tile: Buffer, *, base: Value, warp: Expr, column: int = 0) -> Asm:
    """Load a row of each lane: register k of lane l is column ``column + k`` of row ``32 * (warp % 4) + l``.

    Args:
        registers: ``n`` elements of 32 bits in scope ``local``, n a power of two up to 128.
        tile: 32-bit elements in tensor memory in datapath A or D.
        base: the address that the allocation returned.
        warp: the warp's index.
        column: first column within the tile.

    Raises:
        PlanError: any of these is something else, or columns leave the tile.
    """
    address = _address(registers, tile, base, warp, column)
    count = registers.shape[0]
    return tcgen05_move("ld", TmemInstruction("32x32b", count), [registers[k] for k in range(count)], address)


def tcgen05_store(tile: Buffer, registers: Buffer, *, base: Value, warp: Expr, column: int = 0) -> Asm:
    """Store a row of each lane, the inverse of :func:`tcgen05_load`."""
    address = _address(registers, tile, base, warp, column)
    count = registers.shape[0]
    return tcgen05_move("st", TmemInstruction("32x32b", count), [registers[k] for k in range(count)], address)


def tcgen05_move(direction: str, instruction: TmemInstruction, registers: Sequence[Element], address: Value) -> Asm:
    """Return a load (``"ld"``) or store (``"st"``) of any form, as a whole warp issues it.

    Args:
        instruction: shape, repeat, packing, split.
        registers: of 32 bits each, in the order of the instruction.
        address: of the warp's first cell, see :func:`tcgen05_address`.

    Raises:
        PlanError: not as many registers as the instruction has.
    """
    count = len(registers)
    if count != instruction.registers or any(r.type.bits != 32 for r in registers):
        raise PlanError(
            f"{instruction.opcode(direction)} has {instruction.registers} registers of 32 bits, not {count}"
        )
    opcode = instruction.opcode(direction)
    split = f", {instruction.split}" if instruction.shape == TWO_ADDRESSES else ""
    load = direction == "ld"
    listed = ", ".join(f"%{k + (not load)}" for k in range(count))
    if load:
        text = f"{opcode} {{{listed}}}, [%{count}]{split};"
        return Asm(text, outputs=tuple(registers), inputs=(("r", address),), collective="warp")
    text = f"{opcode} [%0]{split}, {{{listed}}};"
    inputs = (("r", address), *(("f" if r.type.name == "float32" else "r", r) for r in registers))
    return Asm(text, inputs=inputs, collective="warp")


def tcgen05_address(base: Value, warp: Expr, *, lane: int = 0, column: int = 0) -> Value:
    """Return the address of a cell in a warp's slab: lane in bits 31:16, column in bits 15:0 (9.7.16.2.1).

    The address is absolute, so a warp adds its slab, ``warp % 4`` times 32 lanes, itself.

    >>> from codegen_cuda.values import Name
    >>> base, warp = Name("base", dtype("uint32")), Expr.var("warp", 0, 7)
    >>> print(tcgen05_address(base, warp), tcgen05_address(base, Expr.of(2), lane=16, column=5), sep=", ")
    base + ((unsigned int)(warp & 3) << 21), base + 5242885u
    """
    slab = warp % 4
    offset = (lane << 16) + column
    if slab.terms:
        base = base + (cast("uint32", slab) << 21)
    else:
        offset += slab.const << 21
    return base + offset if offset else base


def _address(registers: Buffer, tile: Buffer, base: Value, warp: Expr, column: int) -> Value:
    if tile.scope != "tmem" or tile.dtype.bits != 32 or registers.dtype != tile.dtype:
        raise PlanError(
            f"{tile.name} must hold 32-bit elements in tensor memory, and {registers.name} the same in scope local"
        )
    if registers.scope != "local" or len(registers.shape) != 1 or registers.shape[0] not in _COUNTS:
        raise PlanError(f"{registers.name}: registers are a local buffer of 1 to 128 elements, a power of two")
    rows = TileLayout.from_iters(shard=[(tile.shape[0], 1, "TLane"), (tile.shape[1], 1, "TCol")])
    if len(tile.shape) != 2 or tile.shape[0] != _ROWS.size or not tile.layout.equivalent(rows):
        raise PlanError(f"{tile.name}: {tile.layout} is not one row a lane; tmem_copy solves for other layouts")
    if column < 0 or column + registers.shape[0] > tile.shape[1]:
        raise PlanError(
            f"{tile.name}: columns [{column}, {column + registers.shape[0]}) leave [0, {tile.shape[1]})", column=column
        )
    return tcgen05_address(base, warp, column=(tile.allocated_addr or 0) + column)


def _check(columns: int, cta_group: int) -> None:
    if columns not in (32, 64, 128, 256, 512):
        raise PlanError(f"tcgen05 allocates a power of two from 32 to 512 columns, not {columns}", columns=columns)
    if cta_group not in (1, 2):
        raise PlanError(f"cta_group is 1 or 2, not {cta_group}", cta_group=cta_group)
