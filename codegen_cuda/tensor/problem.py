"""What a whole-tensor permute is asked to do, brought to one form: a nest of loops over two strided buffers.

Source and destination are layouts over the same logical index.  Their canonical forms are refined to common digits,
the digits sorted as the destination stores them, and whatever is then contiguous on both sides counts as one digit.
What is left is the shortest loop nest for the request; every strategy starts from it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from codegen_cuda.errors import PlanError
from layoutalg.algebra.grouping import check_shape, group_iters, group_many_iters
from layoutalg.axis import m
from layoutalg.claim import Buffer, Move, Side
from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.hardware.dtypes import Dtype, dtype
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout

__all__ = ["ALIGN", "Dim", "TensorProblem", "fuse", "layouts_of_permutation", "pose_tensor", "strided_layout"]

#: Alignment in bytes that buffers have unless the request says less; the widest access of a thread.
ALIGN: Final = 16
MAX_RANK: Final = 8
_ADDRESS_LIMIT: Final = 1 << 46
_ENUMERATED: Final = 1 << 20
_BACKWARDS: Final = (
    "has a negative stride; what both sides walk backwards can be given forwards on both, anything else needs a copy "
    "that runs forwards first (x.copy() in NumPy and CuPy, x.flip in PyTorch)"
)


@dataclass(frozen=True, slots=True)
class Dim:
    """One loop: its extent, and how far one step moves in the source and in the destination, in elements."""

    extent: int
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class TensorProblem:
    """A checked request.

    Args:
        dims: the fused loops, outermost in the destination first; none of extent 1.
        dtype: element type.
        source: the layout that is read, over ``shape``.
        destination: the layout that is written, over ``shape``.
        shape: logical extents, in the source's order.
        perm: output dimension k is input dimension ``perm[k]``, where the request was a permutation.
        src_align: alignment of the source pointer in bytes.
        dst_align: alignment of the destination pointer in bytes.
    """

    dims: tuple[Dim, ...]
    dtype: Dtype
    source: TileLayout
    destination: TileLayout
    shape: tuple[int, ...]
    perm: tuple[int, ...] | None
    src_align: int = ALIGN
    dst_align: int = ALIGN

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return self.dtype.bytes

    @property
    def size(self) -> int:
        """Number of elements moved."""
        return math.prod([d.extent for d in self.dims])

    @property
    def bytes_moved(self) -> int:
        """Bytes that must be read plus bytes that must be written; over the memory's bandwidth, the floor."""
        return 2 * self.size * self.width

    def span(self, side: str) -> int:
        """Elements from the first to the last one that a side (``"src"`` or ``"dst"``) touches, both included."""
        return 1 + sum((d.extent - 1) * (d.src if side == "src" else d.dst) for d in self.dims)

    def buffers(self) -> tuple[Buffer, Buffer]:
        """Return the two buffer parameters of the claim."""
        firsts = (_offset(self.source), _offset(self.destination))
        return (
            Buffer("src", "input", self.dtype.name, firsts[0], self.span("src"), self.src_align),
            Buffer("dst", "output", self.dtype.name, firsts[1], self.span("dst"), self.dst_align),
        )

    def strides(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Return the strides of the source's and the destination's array, in elements; None where none has them.

        >>> rows, columns = layouts_of_permutation((2, 3), (1, 0))
        >>> pose_tensor(rows, columns, shape=(2, 3), dtype_name="u8", perm=(1, 0)).strides()
        ((3, 1), (2, 1))
        """
        read, written = (_strides(layout, self.shape) for layout in (self.source, self.destination))
        if self.perm is not None and written is not None:
            written = tuple(written[p] for p in self.perm)
        return read, written

    def move(self) -> Move:
        """Return the request as a claim states it."""
        region = ",".join(f"0:{extent}" for extent in self.shape) or "0:1"
        shape = self.shape or (1,)
        return Move("src", Side(str(self.source), shape, region), "dst", Side(str(self.destination), shape, region))


def pose_tensor(
    source: TileLayout,
    destination: TileLayout,
    *,
    shape: Sequence[int],
    dtype_name: Any,
    perm: tuple[int, ...] | None = None,
    align: tuple[int, int] = (ALIGN, ALIGN),
) -> TensorProblem:
    """Check a request and fuse its dimensions.

    Args:
        source: where each element is read, on axis ``m``, in elements; zero strides repeat an element.
        destination: where each element is written; no two may share a place.
        shape: logical extents of both.
        dtype_name: element type.
        perm: the permutation that the layouts came from, for names.
        align: alignment in bytes of coordinate 0 of the source and of the destination.

    Raises:
        PlanError: names the rule that the request breaks.

    >>> rows, columns = TileLayout.parse("S[(6,4):(4,1)]"), TileLayout.parse("S[(6,4):(1,6)]")
    >>> pose_tensor(rows, columns, shape=(2, 3, 4), dtype_name="f32").dims
    (Dim(extent=4, src=1, dst=6), Dim(extent=6, src=4, dst=1))
    """
    element = _element(dtype_name)
    for layout, side in ((source, "source"), (destination, "destination")):
        if not isinstance(layout, TileLayout):
            raise PlanError(f"permute_tensor: the {side} {layout} is no TileLayout, which alone strides", rule="form")
    extents = _extents(shape, source, destination)
    for layout, side in ((source, "source"), (destination, "destination")):
        _check_side(layout, side)
    dims = fuse(source, destination)
    _check_injective(dims, destination)
    if not isinstance(align, Sequence) or len(align) != 2 or not all(type(a) is int for a in align):
        raise PlanError(f"permute_tensor: align = {align!r} must be two numbers of bytes", rule="alignment")
    # A pointer points at the layout's first element, which lies an offset after coordinate 0.
    aligns = (
        math.gcd(_alignment(a, element), _offset(layout) * element.bytes)
        for a, layout in zip(align, (source, destination), strict=True)
    )
    problem = TensorProblem(dims, element, source, destination, extents, perm, *aligns)
    for side in ("src", "dst"):
        if problem.span(side) * element.bytes >= _ADDRESS_LIMIT:
            raise PlanError(
                f"permute_tensor: the {side} buffer spans {problem.span(side) * element.bytes} bytes, more than an "
                "address space holds",
                rule="size",
            )
    return problem


def layouts_of_permutation(shape: Sequence[int], perm: Sequence[int]) -> tuple[TileLayout, TileLayout]:
    """Return the dense layouts of a permutation: output dimension k is input dimension ``perm[k]``.

    Raises:
        PlanError: not a permutation of the dimensions, or a shape that no tensor has.

    >>> print(*layouts_of_permutation((2, 3), (1, 0)))
    S[(2,3):(3,1)] S[(2,3):(1,2)]
    """
    extents = _shape(shape)
    order = tuple(perm) if isinstance(perm, Sequence) and not isinstance(perm, str) else perm
    good = isinstance(order, tuple) and all(isinstance(p, int) and not isinstance(p, bool) for p in order)
    if not good or sorted(order) != list(range(len(extents))):
        raise PlanError(
            f"permute_tensor: perm = {perm!r} must name each of the {len(extents)} dimensions of {extents} once, "
            f"as 0..{len(extents) - 1} in some order",
            rule="perm",
            perm=perm,
        )
    written = [0] * len(extents)
    stride = 1
    for dim in reversed(order):
        written[dim] = stride
        stride *= extents[dim]
    return strided_layout(extents, _dense(extents)), strided_layout(extents, written)


def strided_layout(extents: Sequence[int], strides: Sequence[int]) -> TileLayout:
    """Return the layout with one digit per dimension; without dimensions, that of one element."""
    pairs = list(zip(extents, strides, strict=True)) or [(1, 1)]
    return TileLayout.from_iters(shard=[(extent, stride, "m") for extent, stride in pairs])


def fuse(source: TileLayout, destination: TileLayout) -> tuple[Dim, ...]:
    """Return the shortest loop nest over both layouts, sorted by destination stride, outermost first.

    Law: running the nest visits every (source, destination) pair of places that the layouts give to one index.

    Raises:
        PlanError: the digits of the two layouts do not nest, so that no loop nest walks both.

    >>> fuse(TileLayout.parse("S[(2,3,4):(12,4,1)]"), TileLayout.parse("S[(2,3,4):(12,4,1)]"))
    (Dim(extent=24, src=1, dst=1),)
    """
    while True:
        read, written = _common_digits(source, destination)
        pairs = [(r, w) for r, w in zip(read, written, strict=True) if r.extent != 1]
        ordered = sorted(pairs, key=lambda p: (-p[1].stride, -p[0].stride))
        dims = tuple(Dim(int(r.extent), int(r.stride), int(w.stride)) for r, w in ordered)
        if ordered == pairs:
            return dims
        extents = [d.extent for d in dims]
        source = strided_layout(extents, [d.src for d in dims])
        destination = strided_layout(extents, [d.dst for d in dims])


def _common_digits(source: TileLayout, destination: TileLayout) -> tuple[tuple[Iter, ...], tuple[Iter, ...]]:
    """The canonical digits of both layouts, each split where the other has a boundary."""
    read, written = source.canonicalize().shard, destination.canonicalize().shard
    try:
        digits, _ = group_many_iters(read, [tuple(i.extent for i in side) for side in (read, written)])
        others, _ = group_iters(written, tuple(i.extent for i in digits if i.extent != 1))
    except NotExpressibleError as error:
        raise PlanError(
            f"permute_tensor: no loop nest walks both layouts, since the digits of {source} and {destination} do not "
            f"nest ({error}); give layouts whose digits divide one another",
            rule="digits",
        ) from error
    return tuple(i for i in digits if i.extent != 1), tuple(i for i in others if i.extent != 1)


def _dense(extents: Sequence[int]) -> list[int]:
    return [math.prod(extents[k + 1 :]) for k in range(len(extents))]


def _element(name: Any) -> Dtype:
    try:
        element = dtype(name)
        width = element.bytes
    except LayoutError as error:
        raise PlanError(f"permute_tensor: {error}", rule="dtype", dtype=name) from error
    if width not in (1, 2, 4, 8, 16):
        raise PlanError(f"permute_tensor: elements of {width} bytes; 1, 2, 4, 8 or 16 work", rule="dtype", dtype=name)
    return element


def _alignment(value: int, element: Dtype) -> int:
    if value <= 0 or value % element.bytes:
        raise PlanError(
            f"permute_tensor: a pointer aligned to {value} bytes cannot hold {element.name}, which needs "
            f"{element.bytes}",
            rule="alignment",
            align=value,
        )
    return min(value & -value, ALIGN)


def _shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise PlanError(f"permute_tensor: shape must be a sequence of extents, not {shape!r}", rule="shape")
    extents = tuple(int(e) if isinstance(e, np.integer) else e for e in shape)
    if not all(type(e) is int and e >= 1 for e in extents):
        raise PlanError(f"permute_tensor: shape {extents} must hold integers of at least 1", rule="shape", shape=shape)
    if len(extents) > MAX_RANK:
        raise PlanError(f"permute_tensor: rank {len(extents)} is over {MAX_RANK}", rule="rank", shape=extents)
    return extents


def _extents(shape: Any, source: TileLayout, destination: TileLayout) -> tuple[int, ...]:
    extents = _shape(shape)
    for layout, side in ((source, "source"), (destination, "destination")):
        try:
            check_shape(extents or (1,), layout.size)
        except LayoutError as error:
            raise PlanError(f"permute_tensor: {side}: {error}", rule="shape", shape=extents) from error
    return extents


def _check_side(layout: TileLayout, side: str) -> None:
    problems = [
        (bool(layout.replica), "replica", "has replicas; a copy has one place per element"),
        (any(i.axis is not m for i in layout.shard) or set(layout.offset) - {"m"}, "axis", "leaves axis m"),
        (layout.params != (), "offset", "has a parameter in its offset; substitute a number"),
        (any(i.extent != 1 and int(i.stride) < 0 for i in layout.shard), "stride", _BACKWARDS),
    ]
    for wrong, rule, words in problems:
        if wrong:
            raise PlanError(f"permute_tensor: the {side} {layout} {words}", rule=rule, side=side)


def _check_injective(dims: tuple[Dim, ...], destination: TileLayout) -> None:
    """Refuse destinations that write a place twice: strides that nest never do, others are looked at one by one."""
    reach = 0
    nested = True
    for d in reversed(dims):
        nested = nested and d.dst > reach
        reach += (d.extent - 1) * d.dst
    if nested:
        return
    size = math.prod(d.extent for d in dims)
    if size <= _ENUMERATED and all(d.dst for d in dims):
        places = np.zeros(1, dtype=np.int64)
        for d in dims:
            places = (places[:, None] + np.arange(d.extent) * d.dst).reshape(-1)
        if len(np.unique(places)) == size:
            return
    raise PlanError(
        f"permute_tensor: the destination {destination} may put two elements at one place; each stride must exceed "
        "the reach of the smaller ones",
        rule="injective",
    )


def _offset(layout: TileLayout) -> int:
    return int(layout.offset.get("m", 0))


def _strides(layout: TileLayout, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """One stride per dimension, or None where a dimension takes several."""
    try:
        grouped, seps = layout.group(shape or (1,))
    except NotExpressibleError:
        return None
    parts = [[i for i in grouped.shard[begin:end] if i.extent != 1] for begin, end in itertools.pairwise(seps)]
    if any(len(part) > 1 for part in parts):
        return None
    return tuple(int(part[0].stride) if part else 1 for part in parts)[: len(shape)]
