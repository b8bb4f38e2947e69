"""The tensor-memory instructions that kernels of this package write by hand, as checked statements (PTX ISA 9.7.16).

Tensor memory has no pointers: a buffer there is columns from ``allocated_addr``, and these statements are the only way
in and out.  ``tcgen05.alloc`` writes the address of what it reserved into shared memory, for every thread to read.
"""

from __future__ import annotations

from codegen_cuda.body import Asm
from codegen_cuda.buffers import Buffer
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Name, Value
from layoutalg.hardware.dtypes import dtype
from layoutalg.tile import TileLayout

__all__ = [
    "tcgen05_alloc",
    "tcgen05_dealloc",
    "tcgen05_fence",
    "tcgen05_load",
    "tcgen05_relinquish",
    "tcgen05_store",
    "tcgen05_wait",
]

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
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
    pointer = Name(f"(unsigned)__cvta_generic_to_shared({slot.ptr_to([0])})", dtype("uint32"))
    text = f"tcgen05.alloc.cta_group::{cta_group}.sync.aligned.shared::cta.b32 [%0], {columns};"
    return Asm(text, inputs=(("r", pointer),), collective="warp", cta_group=cta_group)


def tcgen05_dealloc(address: Value, columns: int, *, cta_group: int = 1) -> Asm:
    """Free what one allocation reserved: its very address and number of columns."""
    _check(columns, cta_group)
    text = f"tcgen05.dealloc.cta_group::{cta_group}.sync.aligned.b32 %0, {columns};"
    return Asm(text, inputs=(("r", address),), collective="warp", cta_group=cta_group)


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
    listed = ", ".join(f"%{k}" for k in range(count))
    text = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{listed}}}, [%{count}];"
    outputs = tuple(registers[k] for k in range(count))
    return Asm(text, outputs=outputs, inputs=(("r", address),), collective="warp")


def tcgen05_store(tile: Buffer, registers: Buffer, *, base: Value, warp: Expr, column: int = 0) -> Asm:
    """Store a row of each lane, the inverse of :func:`tcgen05_load`."""
    address = _address(registers, tile, base, warp, column)
    count = registers.shape[0]
    constraint = "f" if registers.dtype.name == "float32" else "r"
    listed = ", ".join(f"%{k + 1}" for k in range(count))
    text = f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%0], {{{listed}}};"
    inputs = (("r", address), *((constraint, registers[k]) for k in range(count)))
    return Asm(text, inputs=inputs, collective="warp")


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
    lane = f" + (({warp.text(nested=True)} & 3) << 21)"
    start = (tile.allocated_addr or 0) + column
    return Name(f"{base}{lane}" + (f" + {start}" if start else ""), dtype("uint32"))


def _check(columns: int, cta_group: int) -> None:
    if columns not in (32, 64, 128, 256, 512):
        raise PlanError(f"tcgen05 allocates a power of two from 32 to 512 columns, not {columns}", columns=columns)
    if cta_group not in (1, 2):
        raise PlanError(f"cta_group is 1 or 2, not {cta_group}", cta_group=cta_group)
