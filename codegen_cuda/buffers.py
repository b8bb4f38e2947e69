"""``Buffer``: a typed, shaped, laid-out view of memory.  Indexing one is address arithmetic, nothing else.

    address(buffer[x]) = data + elem_offset + layout.apply(x)["m"]        (in elements)

``data`` is an immutable pointer.  :func:`alloc` makes a buffer with storage of its own, :func:`declare` one over a
pointer that exists; :func:`match` is a parameter of the kernel.  The same access compiles to different arithmetic:

>>> from layoutalg import S, TileLayout
>>> i, j = Expr.var("i", 0, 3), Expr.var("j", 0, 7)
>>> A = match("B", (4, 8), "float32")
>>> columns = match("B", (4, 8), "float32", layout=TileLayout(S[(4, 8):(1, 4)]))
>>> shifted = match("B", (4, 8), "float32", elem_offset=64)
>>> padded = match("B", (4, 8), "float32", layout=TileLayout(S[(4, 8):(16, 1)]))
>>> print(A[i, j], columns[i, j], shifted[i, j], padded[i, j], sep=", ")
B_ptr[i * 8 + j], B_ptr[j * 4 + i], B_ptr[i * 8 + j + 64], B_ptr[i * 16 + j]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from codegen_cuda.access import Pointer, Reference, Vector, element_type, vector_of
from codegen_cuda.addresses import Layout, address_of, check_columns, dense, span_of
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.regions import region_of
from codegen_cuda.values import Value, as_index, checked_text
from layoutalg.errors import RangeError, RegionError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.tile import TileLayout

__all__ = ["SCOPES", "Buffer", "Element", "alloc", "alloc_local", "alloc_shared", "declare", "match"]

SCOPES: Final = ("global", "shared", "shared.dyn", "local", "tmem")
_SHARED_ALIGN: Final = 16
_ORIGIN: Final = Expr(0, ())
Coordinate: TypeAlias = int | Expr | Value


@dataclass(frozen=True, slots=True)
class Buffer:
    """Metadata over a pointer; build with :func:`match`, :func:`alloc` or :func:`declare`.

    Attributes:
        name: for messages, and the stem of ``data``'s name where the buffer brings its own.
        dtype: element type.
        shape: logical extents.
        layout: where each element lives, in elements of ``dtype``.
        scope: one of :data:`SCOPES`.
        data: the pointer that offsets count from.
        elem_offset: offset of the layout's origin, in elements.
        allocated_addr: first column of tensor memory, where the scope is ``tmem``.
        owns: whether declaring the buffer makes its storage.
    """

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    layout: Layout
    scope: str
    data: Pointer
    elem_offset: Expr = _ORIGIN
    allocated_addr: int | None = None
    owns: bool = False

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise RangeError(f"scope {self.scope!r} is none of {', '.join(SCOPES)}", scope=self.scope)
        if not self.shape or any(type(e) is not int or e < 1 for e in self.shape):
            raise RangeError(f"{self.name}: a shape is a tuple of positive ints, not {self.shape}", shape=self.shape)
        if math.prod(self.shape) != self.layout.size:
            raise RegionError(
                f"{self.name}: shape {self.shape} has {math.prod(self.shape)} elements, {self.layout} has "
                f"{self.layout.size}",
                shape=self.shape,
            )
        if self.scope == "tmem":
            check_columns(self.name, self.layout, self.dtype, self.allocated_addr)
        else:
            self._check_storage()

    def _check_storage(self) -> None:
        if self.allocated_addr is not None:
            raise PlanError(f"{self.name}: allocated_addr is a column of tensor memory, and this lies in {self.scope}")
        low, high = self.elem_offset.bounds()
        last = (high + self.span) * self.dtype.bits
        if low < 0 or (self.data.size is not None and last > 8 * self.data.size):
            there = "what lies" if self.data.size is None else f"the {self.data.size} bytes"
            raise RegionError(
                f"{self.name}: elements [{low}, {high + self.span}) of {self.dtype} leave {there} behind "
                f"{self.data.name}",
                buffer=self.name,
            )

    def __str__(self) -> str:
        where = f" at column {self.allocated_addr}" if self.allocated_addr is not None else ""
        return f"{self.name}: {self.shape} {self.dtype} in {self.scope}{where}, {self.layout}"

    @property
    def align(self) -> int:
        """Alignment in bytes of the pointer."""
        return self.data.align

    @property
    def span(self) -> int:
        """Elements of storage, from the origin of the layout to its last element."""
        return span_of(self.layout)

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, *coord: Coordinate) -> Expr:
        """Return the offset of an element from ``data``, in elements.

        Raises:
            RegionError: wrong rank, or a coordinate that may leave its extent.
            PlanError: tensor memory, or a layout over threads (use :meth:`local`).
        """
        self._check_addressable()
        expr = address_of(self.layout, self.shape, [as_index(x) for x in coord], name=self.name)
        return (expr + self.elem_offset).descending()

    def _check_addressable(self) -> None:
        if self.scope == "tmem":
            raise PlanError(
                f"{self.name} lies in tensor memory, which has no addresses to load from: use tcgen05 ld and st",
                buffer=self.name,
            )

    def bit_address(self, *coord: Coordinate) -> Expr:
        """Return the offset of an element from ``data`` in bits."""
        return self.address(*coord) * self.dtype.bits

    def __getitem__(self, key: Any) -> Any:
        """Return an element for coordinates, a :class:`codegen_cuda.regions.BufferRegion` for slices.

        Raises:
            PlanError: an element of tensor memory.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, slice) for k in keys):
            return region_of(self, keys)
        self._check_addressable()
        return Element(self, tuple(as_index(k) for k in keys))

    def at(self, offset: Coordinate) -> Element:
        """Return the element that lies ``offset`` elements of storage from the layout's origin.

        For offsets that other arithmetic than the layout's own has found, such as a schedule that is looked up; whoever
        made them answers for their range.

        >>> print(match("A", (4, 8), "f32", elem_offset=64).at(Expr.var("x", -8, 7) * 2 - 1))
        A_ptr[x * 2 + 63]
        """
        self._check_addressable()
        return Element(self, (as_index(offset),), placed=True)

    def ptr_to(self, coord: Sequence[Coordinate]) -> Reference:
        """Return a pointer to an element, for an intrinsic or a device function.

        Raises:
            PlanError: an element narrower than a byte that may not start a byte.

        >>> print(match("A", (128,), "f32").ptr_to([Expr.var("tx", 0, 127)]))
        &A_ptr[tx]
        """
        return Reference(self.data, self.dtype, self._units(self.address(*coord)), writes=True)

    def access_ptr(self, mask: str, *, offset: Coordinate = 0, extent: int | None = None) -> Reference:
        """Return a pointer for passing a run of storage, which its user only reads (``r``), writes (``w``) or both.

        Args:
            mask: ``"r"``, ``"w"`` or ``"rw"``; a kernel parameter that nobody writes is declared ``const``.
            offset: first element of the run, counted in storage from the layout's origin.
            extent: elements of the run; to the end without one.

        Raises:
            RegionError: the run leaves the buffer.
        """
        self._check_addressable()
        if mask not in ("r", "w", "rw"):
            raise RangeError(f"an access mask is 'r', 'w' or 'rw', not {mask!r}", mask=mask)
        start = as_index(offset)
        low, high = start.bounds()
        count = self.span - high if extent is None else extent
        if low < 0 or count < 1 or high + count > self.span:
            raise RegionError(
                f"{self.name}: elements [{start}, {start} + {count}) leave [0, {self.span})", buffer=self.name
            )
        return Reference(self.data, self.dtype, self._units(start + self.elem_offset), writes="w" in mask, count=count)

    def vload(self, coord: Sequence[Coordinate], *, dtype: str) -> Vector:
        """Return a wide load of consecutive elements along the last dimension, such as ``dtype="float32x4"``.

        Raises:
            PlanError: the elements are not consecutive in memory, or their address may not be aligned to the width.

        >>> print(match("A", (512,), "f32", align=16).vload([Expr.var("tx", 0, 127) * 4], dtype="float32x4"))
        *(float4*)(A_ptr + tx * 4)
        """
        return vector_of(self, [as_index(x) for x in coord], dtype)

    def vstore(self, coord: Sequence[Coordinate], value: Vector) -> Any:
        """Return the statement that stores a vector; checked as :meth:`vload` is."""
        from codegen_cuda.body import Store

        return Store(vector_of(self, [as_index(x) for x in coord], f"{value.type.name}x{value.lanes}"), value)

    def _units(self, elements: Expr) -> Expr:
        """Turn an offset in elements into one in carriers: the element itself, or a byte of narrower ones."""
        if self.dtype.carrier:
            return elements
        bits = elements * self.dtype.bits
        if not bits.is_multiple_of(8):
            raise PlanError(
                f"{self.name}: bit {bits} may lie inside a byte, and a pointer counts bytes: {self.dtype} is "
                f"{self.dtype.bits} bits wide, take an index that is a multiple of {8 // math.gcd(8, self.dtype.bits)}",
                buffer=self.name,
            )
        return bits // 8

    # -- other views of the same storage ---------------------------------------------------------------------------

    def view(self, *shape: int, layout: Layout | None = None) -> Buffer:
        """Return the same storage under another shape, and another layout if one is given.

        Raises:
            RegionError: another number of elements, or a layout that leaves the storage.

        >>> tx = Expr.var("tx", 0, 63)
        >>> print(match("A", (256,), "f32").view(64, 4)[tx, 3])
        A_ptr[tx * 4 + 3]
        """
        if layout is not None and span_of(layout) > self.span:
            raise RegionError(f"{self.name}: {layout} spans {span_of(layout)} elements of a storage of {self.span}")
        return replace(self, shape=shape, layout=layout if layout is not None else self.layout, owns=False)

    def permute(self, *dims: int) -> Buffer:
        """Return a view with its dimensions reordered.

        >>> i, j = Expr.var("i", 0, 3), Expr.var("j", 0, 63)
        >>> print(match("A", (64, 4), "f32").permute(1, 0)[i, j])
        A_ptr[j * 4 + i]
        """
        layout = self.layout.permute(*dims, shape=self.shape)
        return replace(self, shape=tuple(self.shape[d] for d in dims), layout=layout, owns=False)

    def local(self, *shape: int, layout: Layout | None = None) -> Buffer:
        """Return the calling thread's registers of a layout over threads: its memory part, thread axes dropped.

        Args:
            shape: extents to index the registers with; those of the memory part without any.
            layout: another layout of the registers.

        Raises:
            PlanError: the buffer is not in registers.

        >>> R = alloc("R", (32, 8), "f32", scope="local", layout=TileLayout.parse("S[(32,8):(1@laneid,1)]"))
        >>> print(R.local(8)[3])
        R_ptr[3]
        """
        if self.scope != "local" or not isinstance(self.layout, TileLayout):
            raise PlanError(f"{self.name} is in scope {self.scope}: only registers have a thread's own part")
        kept = [(it.extent, it.stride, "m") for it in self.layout.shard if it.axis.kind == "memory"]
        own = TileLayout.from_iters(shard=kept, offset={"m": self.layout.offset.get("m", 0)})
        extents = shape or tuple(extent for extent, _, _ in kept) or (1,)
        return replace(self, shape=extents, layout=layout if layout is not None else own, owns=False)


@dataclass(frozen=True, slots=True)
class Element(Value):
    """One element of a buffer, to be read or stored to.

    Attributes:
        coord: its coordinate, or where it is ``placed``, its offset in storage.
    """

    buffer: Buffer
    coord: tuple[Expr, ...]
    placed: bool = False

    @property
    def type(self) -> Dtype:
        return self.buffer.dtype

    def text(self) -> str:
        buffer = self.buffer
        address = self.coord[0] + buffer.elem_offset if self.placed else buffer.address(*self.coord)
        base = buffer.data.base(buffer.dtype)
        if buffer.dtype.carrier:
            return f"{base}[{checked_text(address, bare=True)}]"
        bits = address * buffer.dtype.bits
        if 8 % buffer.dtype.bits:
            raise PlanError(f"{buffer.name}: an element of {buffer.dtype} may straddle two bytes; use vload")
        shift, mask = bits % 8, (1 << buffer.dtype.bits) - 1
        moved = f"{base}[{checked_text(bits // 8, bare=True)}]"
        if shift != _ORIGIN:
            moved += f" >> {shift.text(nested=bool(shift.terms))}"
        return f"({moved} & {mask})"


def match(
    name: str,
    shape: Sequence[int],
    dtype: str | Dtype,
    *,
    layout: Layout | None = None,
    elem_offset: Coordinate = 0,
    byte_offset: int | None = None,
    align: int | None = None,
    pointer: str | None = None,
) -> Buffer:
    """Declare a parameter of the kernel: global memory behind a pointer that the caller passes.

    Args:
        name: for messages.
        pointer: the pointer's identifier; ``NAME_ptr`` without it.
        shape, dtype: extents and element type.
        layout: dense row-major without one.
        elem_offset, byte_offset: where the layout starts, one of the two.
        align: bytes that the caller guarantees; the element's natural alignment without it.
    """
    kind = element_type(dtype)
    data = Pointer(pointer or f"{name}_ptr", kind, "global", _alignment(kind, "global", align))
    return declare(name, shape, dtype, data=data, layout=layout, elem_offset=elem_offset, byte_offset=byte_offset)


def alloc(
    name: str,
    shape: Sequence[int],
    dtype: str | Dtype,
    *,
    scope: str = "global",
    layout: Layout | None = None,
    align: int | None = None,
    pointer: str | None = None,
) -> Buffer:
    """Allocate: a buffer with storage of its own, which the body declares where the buffer is listed.

    Raises:
        PlanError: a scope that the kernel cannot allocate in: global memory, and tensor memory, which is reserved by
            tcgen05.alloc and viewed with ``allocated_addr``.

    >>> alloc("r", (4,), "f32", scope="local").align, alloc("s", (4,), "f32", scope="shared").align
    (4, 16)
    """
    if scope == "tmem":
        raise PlanError(
            f"{name}: tensor memory is reserved by tcgen05.alloc, not by a declaration: use TmemPool.alloc, or "
            "declare a view with allocated_addr"
        )
    if scope == "global":
        raise PlanError(f"{name}: a kernel allocates no global memory; take a parameter with match()")
    kind = element_type(dtype)
    chosen = layout if layout is not None else dense(shape)
    size = -(-span_of(chosen) * kind.bits // 8)
    data = Pointer(pointer or f"{name}_ptr", kind, scope, _alignment(kind, scope, align), size)
    return Buffer(name, kind, tuple(shape), chosen, scope, data, owns=True)


def alloc_shared(
    name: str, shape: Sequence[int], dtype: str | Dtype, *, layout: Layout | None = None, align: int | None = None
) -> Buffer:
    """Allocate static shared memory."""
    return alloc(name, shape, dtype, scope="shared", layout=layout, align=align)


def alloc_local(
    name: str, shape: Sequence[int], dtype: str | Dtype, *, layout: Layout | None = None, align: int | None = None
) -> Buffer:
    """Allocate registers of each thread, naturally aligned unless vectors of them are moved at once."""
    return alloc(name, shape, dtype, scope="local", layout=layout, align=align)


def declare(
    name: str,
    shape: Sequence[int],
    dtype: str | Dtype,
    *,
    data: Pointer | None,
    scope: str | None = None,
    layout: Layout | None = None,
    elem_offset: Coordinate = 0,
    byte_offset: int | None = None,
    allocated_addr: int | None = None,
    align: int | None = None,
) -> Buffer:
    """Declare a view over a pointer that exists; no storage is made.

    Args:
        data: another buffer's ``data``, or the pointer of :func:`codegen_cuda.body.let_pointer`; for tensor memory
            ``None``, as its addresses come from ``allocated_addr``.
        scope: the pointer's own without one.
        allocated_addr: first column, for tensor memory.
        align: bytes that the pointer must be aligned to; where storage is made, that it is.

    Raises:
        PlanError: a scope that is not the pointer's, offsets that disagree, less alignment, or tensor memory without
            an address.
    """
    kind = element_type(dtype)
    if data is None and scope != "tmem":
        return alloc(name, shape, dtype, scope=scope or "global", layout=layout, align=align)
    pointer = data if data is not None else Pointer(f"{name}_ptr", kind, "tmem", 4)
    if not isinstance(pointer, Pointer):
        raise PlanError(f"{name}: data is a Pointer, not {pointer!r}; bind an expression with let_pointer first")
    if scope is not None and scope != pointer.scope:
        raise PlanError(f"{name}: scope {scope!r}, but {pointer.name} points to {pointer.scope}")
    if align is not None and pointer.align % align:
        raise PlanError(f"{name}: {pointer.name} is aligned to {pointer.align} bytes, not to {align}", align=align)
    offset = _offset(name, kind, as_index(elem_offset), byte_offset)
    chosen = layout if layout is not None else dense(shape)
    period = getattr(chosen, "base_alignment", None)
    if period is not None and not (offset * kind.bits).is_multiple_of(8 * period(kind)):
        raise PlanError(f"{name}: {chosen} starts at multiples of {period(kind)} bytes, not at element {offset}")
    return Buffer(name, kind, tuple(shape), chosen, pointer.scope, pointer, offset, allocated_addr)


def _offset(name: str, kind: Dtype, elements: Expr, byte_offset: int | None) -> Expr:
    if byte_offset is None:
        return elements
    if elements != Expr(0, ()):
        raise PlanError(f"{name}: give elem_offset or byte_offset, not both")
    if byte_offset * 8 % kind.bits:
        raise PlanError(f"{name}: byte {byte_offset} is no whole number of {kind} elements", byte_offset=byte_offset)
    return Expr.of(byte_offset * 8 // kind.bits)


def _alignment(kind: Dtype, scope: str, align: int | None) -> int:
    natural = kind.bytes if kind.carrier else 1
    least = max(natural, _SHARED_ALIGN) if scope.startswith("shared") else natural
    if align is None:
        return least
    if align < natural or align & (align - 1):
        raise RangeError(f"align = {align} must be a power of two of at least {natural} bytes for {kind}", align=align)
    return align
