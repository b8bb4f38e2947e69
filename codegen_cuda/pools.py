"""Pools: the one dynamic arena of a kernel, and its tensor memory, handed out piece by piece.

A pool is a builder: it hands out buffers until :meth:`SharedPool.commit` says how large the whole became.

>>> pool = SharedPool("smem")
>>> As = pool.alloc("As", (64, 32), "float16", align=128)
>>> Cs = pool.alloc_mma("Cs", (64, 64), "float16")
>>> print(Cs.layout, pool.size)
Sw<3,3,3> o S[(64,1,64):(64,4096,1)] 12288
>>> statements = pool.commit()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_cuda.access import Pointer, element_type
from codegen_cuda.addresses import Layout, dense, reach, span_of
from codegen_cuda.body import If, LetPointer, Statement, compare, let
from codegen_cuda.buffers import Buffer, alloc, declare
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.tcgen05 import tcgen05_alloc, tcgen05_barrier, tcgen05_dealloc, tcgen05_relinquish
from codegen_cuda.values import Name, Value
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype, dtype
from layoutalg.hardware.machine import DEFAULT_MACHINE
from layoutalg.hardware.mma import mma_shared_layout
from layoutalg.hardware.tmem import tmem_datapath_layout
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["Piece", "SharedPool", "TmemPool", "mma_layout", "mma_swizzle_mode"]

_MAX_ALIGN = 1024
_COLUMNS = 512
_VECTOR_BITS = 128
_ROWS = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """What one buffer has of a pool: bytes (or columns) ``[begin, end)``."""

    name: str
    begin: int
    end: int


class SharedPool:
    """A bump allocator over the kernel's one dynamic arena.

    Args:
        name: the arena's name.
    """

    def __init__(self, name: str = "smem") -> None:
        self.name, self.cursor, self.size, self.align = name, 0, 0, 16
        self.pieces: list[Piece] = []
        self._bindings: list[tuple[Pointer, int]] = []
        self._committed = False

    def alloc(
        self, name: str, shape: Sequence[int], kind: str, *, align: int | None = None, layout: Layout | None = None
    ) -> Buffer:
        """Hand out the next piece.

        Args:
            align: of its first byte, a power of two up to 1024; 16 or the element's own without one.

        Raises:
            PlanError: the pool is committed, or the arena passes what a block can have.

        >>> pool = SharedPool()
        >>> pool.alloc("a", (3,), "f32").align, pool.alloc("b", (4,), "f32", align=128).align
        (16, 128)
        >>> pool.pieces
        [Piece(name='a', begin=0, end=12), Piece(name='b', begin=128, end=144)]
        """
        self._open()
        element = element_type(kind)
        least = max(16, element.bytes if element.carrier else 1)
        aligned = least if align is None else align
        if aligned < 1 or aligned & (aligned - 1) or aligned > _MAX_ALIGN:
            raise RangeError(f"{name}: align = {aligned} is no power of two up to {_MAX_ALIGN} bytes", align=aligned)
        chosen = layout if layout is not None else dense(shape)
        begin = -(-self.cursor // aligned) * aligned
        size = -(-span_of(chosen) * element.bits // 8)
        limit = DEFAULT_MACHINE.shared_bytes_per_block
        if begin + size > limit:
            raise PlanError(f"{name}: bytes [{begin}, {begin + size}) pass the {limit} of a block", begin=begin)
        pointer = Pointer(f"{name}_ptr", element, "shared.dyn", aligned, size)
        buffer = declare(name, shape, kind, data=pointer, layout=chosen)
        self.pieces.append(Piece(name, begin, begin + size))
        self._bindings.append((pointer, begin))
        self.cursor, self.align = begin + size, max(self.align, aligned)
        self.size = max(self.size, self.cursor)
        return buffer

    def alloc_mma(self, name: str, shape: Sequence[int], kind: str, *, mode: int | None = None) -> Buffer:
        """Hand out a tile in the layout that matrix instructions read, with the widest swizzle that its rows admit.

        Args:
            mode: 0 (no swizzle) to 3 (128 bytes); inferred without one.
        """
        element = element_type(kind)
        chosen = mma_swizzle_mode(shape, element) if mode is None else mode
        layout = mma_layout(shape, element, mode=chosen)
        align = layout.base_alignment(element) if isinstance(layout, SwizzledLayout) else 128
        return self.alloc(name, shape, kind, align=max(align, 128), layout=layout)

    def move_base_to(self, offset: int) -> None:
        """Move the cursor, back to use memory again, or forth to leave some out.

        Raises:
            RangeError: a negative offset.
        """
        self._open()
        if offset < 0:
            raise RangeError(f"the cursor of a pool is not negative: {offset}", offset=offset)
        self.cursor = offset

    def overlaps(self) -> tuple[tuple[str, str, int, int], ...]:
        """Return every pair of buffers that share bytes, with the first and the end of those.

        >>> pool = SharedPool()
        >>> _ = pool.alloc("a", (8,), "f32"); pool.move_base_to(16); _ = pool.alloc("b", (8,), "f32")
        >>> pool.overlaps()
        (('a', 'b', 16, 32),)
        """
        found = []
        for k, second in enumerate(self.pieces):
            for first in self.pieces[:k]:
                begin, end = max(first.begin, second.begin), min(first.end, second.end)
                if begin < end:
                    found.append((first.name, second.name, begin, end))
        return tuple(found)

    def commit(self) -> tuple[Statement, ...]:
        """Fix the size, and return the statements that declare the arena and bind every buffer's pointer.

        Raises:
            PlanError: committed before, or nothing was handed out.
        """
        self._open()
        if not self.size:
            raise PlanError(f"pool {self.name} handed nothing out; a kernel without dynamic memory needs no pool")
        self._committed = True
        arena = alloc(self.name, (self.size,), "uint8", scope="shared.dyn", align=self.align)
        return (arena, *(LetPointer(p, arena.data, Expr.of(begin)) for p, begin in self._bindings))

    def _open(self) -> None:
        if self._committed:
            raise PlanError(f"pool {self.name} is committed: its size is fixed, and its pointers are bound")


def mma_swizzle_mode(shape: Sequence[int], element: Dtype) -> int:
    """Return the widest swizzle whose atom of 8 rows of 16, 32, 64 or 128 bytes divides the tile.

    Raises:
        PlanError: not even rows of 16 bytes divide it.

    >>> [mma_swizzle_mode((64, n), dtype("f16")) for n in (64, 32, 16, 8)]
    [3, 2, 1, 0]
    """
    for mode in (3, 2, 1, 0):
        if len(shape) >= 2 and shape[-1] % _row(element, mode) == 0 and (mode == 0 or shape[-2] % _ROWS == 0):
            return mode
    raise PlanError(f"a tile {tuple(shape)} of {element} has no rows of whole 16-byte vectors", shape=tuple(shape))


def mma_layout(shape: Sequence[int], element: Dtype, *, mode: int) -> Layout:
    """Return the layout of a tile in shared memory as matrix instructions read it.

    Columns of atoms one after another: rows of ``16 << mode`` bytes, all rows of a column of atoms, then the next.

    Raises:
        PlanError: the atom does not divide the tile.
        RangeError: no such mode, or elements of another width than 4, 8, 16 or 32 bits.

    >>> print(mma_layout((64, 128), dtype("f16"), mode=2))
    Sw<2,3,3> o S[(64,4,32):(32,2048,1)]
    """
    known = mode in (0, 1, 2, 3)
    if known and (len(shape) < 2 or shape[-1] % _row(element, mode) or (mode and shape[-2] % _ROWS)):
        raise PlanError(
            f"the atom of swizzle mode {mode}, {_ROWS if mode else 1} rows of {_row(element, mode)} {element}, does "
            f"not divide {tuple(shape)}",
            shape=tuple(shape),
            mode=mode,
        )
    return mma_shared_layout(element, mode, tuple(shape))


def _row(element: Dtype, mode: int) -> int:
    return (_VECTOR_BITS << mode) // element.bits


class TmemPool:
    """Columns of tensor memory, reserved once for the whole kernel and handed out one after another.

    Args:
        pool: the kernel's shared pool, which gives the slot that the hardware writes the base address to, unless
            ``tmem_addr`` is given.
        total_cols: columns to reserve; without it, what is used, rounded up to a power of two of at least 32.
        cta_group: 1, or 2 for pairs of blocks.
        tmem_addr: a one-element uint32 buffer in shared memory.
        warp: index expression of the warp, ``tx // 32``.
        alloc_warp: the warp that allocates and frees.

    >>> from codegen_cuda.body import thread_id
    >>> shared, tx = SharedPool(), thread_id("tx", 128)
    >>> tmem = TmemPool(shared, warp=tx.var // 32)
    >>> tmem.alloc("acc", (128, 96), "f32").allocated_addr, tmem.alloc("p", (128, 64), "f16").allocated_addr
    (0, 96)
    >>> tmem.reserved
    128
    """

    def __init__(
        self,
        pool: SharedPool | None,
        *,
        warp: Expr,
        total_cols: int | None = None,
        cta_group: int = 1,
        tmem_addr: Buffer | None = None,
        alloc_warp: int = 0,
    ) -> None:
        if total_cols is not None and (total_cols not in (32, 64, 128, 256, 512)):
            raise RangeError(f"total_cols = {total_cols} is no power of two from 32 to {_COLUMNS}", cols=total_cols)
        if tmem_addr is None and pool is None:
            raise PlanError("the base address of tensor memory arrives in shared memory: give a pool, or tmem_addr")
        self.slot = tmem_addr or pool.alloc("tmem_addr", (1,), "uint32")  # type: ignore[union-attr]
        self.warp, self.total_cols, self.cta_group, self.alloc_warp = warp, total_cols, cta_group, alloc_warp
        self.cursor, self.used = 0, 0
        self.pieces: list[Piece] = []
        self._state = "open"

    def alloc(
        self, name: str, shape: Sequence[int], kind: str, *, layout: TileLayout | None = None, align: int = 1
    ) -> Buffer:
        """Hand out the next columns.

        Args:
            layout: over ``TLane`` and ``TCol``; datapath D for 128 rows without one.
            align: the first column is a multiple of it.

        Raises:
            PlanError: no columns left, or the pool is committed.
        """
        self._expect("open")
        element = element_type(kind)
        chosen = layout if layout is not None else self._datapath(name, shape)
        columns = -(-(reach(chosen, "TCol") * element.bits) // 32)
        if reach(chosen, "TLane") > 128:
            raise PlanError(f"{name}: {chosen} reaches lane {reach(chosen, 'TLane') - 1} of 128")
        begin = -(-self.cursor // align) * align
        limit = self.total_cols or _COLUMNS
        if begin + columns > limit:
            raise PlanError(
                f"{name}: columns [{begin}, {begin + columns}) pass the {limit} that there are",
                begin=begin,
                limit=limit,
            )
        self.cursor = begin + columns
        self.used = max(self.used, self.cursor)
        self.pieces.append(Piece(name, begin, self.cursor))
        return declare(name, shape, kind, data=None, scope="tmem", layout=chosen, allocated_addr=begin)

    @property
    def reserved(self) -> int:
        """Columns that the allocation asks for."""
        return self.total_cols or max(32, 1 << (self.used - 1).bit_length())

    @property
    def base(self) -> Value:
        """The base address, after the statements of :meth:`commit`."""
        return Name("tmem_base", dtype("uint32"))

    def commit(self) -> tuple[Statement, ...]:
        """Return the allocation: one warp asks, and after a barrier every thread reads the address.

        The permit is given back at once, as the kernel allocates no more.
        """
        self._expect("open")
        if not self.used:
            raise PlanError("a pool of tensor memory that handed nothing out allocates nothing")
        self._state = "committed"
        own = (tcgen05_alloc(self.slot, self.reserved, cta_group=self.cta_group), tcgen05_relinquish(self.cta_group))
        return (self._one_warp(*own), *tcgen05_barrier(), let("tmem_base", self.slot[0], "uint32"))

    def dealloc(self) -> tuple[Statement, ...]:
        """Return the deallocation: after a barrier, the same warp frees the same columns."""
        self._expect("committed")
        self._state = "freed"
        return (*tcgen05_barrier(), self._one_warp(tcgen05_dealloc(self.base, self.reserved, cta_group=self.cta_group)))

    def _one_warp(self, *statements: Statement) -> If:
        return If(compare(self.warp, "==", self.alloc_warp), statements)

    def _datapath(self, name: str, shape: Sequence[int]) -> TileLayout:
        if len(shape) != 2 or shape[0] != 128:
            raise PlanError(f"{name}: only 128 rows have a layout of their own (datapath D); give layout= for {shape}")
        return tmem_datapath_layout("D", shape[0], shape[1])

    def _expect(self, state: str) -> None:
        if self._state != state:
            raise PlanError(f"this pool of tensor memory is {self._state}, not {state}", state=self._state)
