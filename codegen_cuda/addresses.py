"""From a coordinate to an offset: a layout's own digits, computed on index expressions.

Each dimension's digits come from its own coordinate, so a row-major access needs no division at all, and what has to be
divided is divided once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from layoutalg.errors import NotExpressibleError, RegionError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.tcgen05 import COLUMNS, LANES
from layoutalg.index import Affine, flatten
from layoutalg.iters import vector_at
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["Layout", "address_of", "as_param", "check_columns", "dense", "reach", "span_of", "swizzled"]

Layout: TypeAlias = TileLayout | SwizzledLayout


def dense(shape: Sequence[int]) -> TileLayout:
    """Return the row-major layout of a shape.

    >>> print(dense((4, 8)))
    S[(4,8):(8,1)]
    """
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(shape, strides, strict=True)])


def address_of(layout: Layout, shape: tuple[int, ...], coord: Sequence[Expr], *, name: str = "") -> Expr:
    """Return the element offset ``layout.apply(coord, shape=shape)["m"]`` as an expression.

    Args:
        coord: one expression per dimension.  A value loaded from memory counts as being in range, since an access is
            only defined there; everything else must be known to be.

    Raises:
        RegionError: wrong rank, or a coordinate that may leave its extent.
        PlanError: a layout that is not on memory alone, or a permutation of bits that is no :class:`Swizzle`.

    >>> i, j = Expr.var("i", 0, 63), Expr.var("j", 0, 63)
    >>> print(address_of(SwizzledLayout.parse("Sw<3,3,3> o S[64,64]"), (64, 64), [i, j]))
    i * 64 + ((j >> 3) ^ (i & 7)) * 8 + (j & 7)
    """
    if len(coord) != len(shape):
        raise RegionError(f"{name}: {len(coord)} coordinates for shape {shape}: give one per dimension")
    inside = [_inside(x, e, d, name) for d, (x, e) in enumerate(zip(coord, shape, strict=True))]
    if isinstance(layout, SwizzledLayout):
        if not isinstance(layout.swizzle, Swizzle):
            raise PlanError(f"{name}: {layout.swizzle} is no Swizzle, and no short C computes it", buffer=name)
        return swizzled(layout.swizzle, _offset_of(layout.inner, shape, inside, name))
    return _offset_of(layout, shape, inside, name)


def swizzled(swizzle: Swizzle, x: Expr) -> Expr:
    """Return ``x ^ ((x & mask) >> shift)`` in digits.

    >>> print(swizzled(Swizzle(1, 0, 1), Expr.var("x", 0, 3)))
    (x >> 1) * 2 + ((x & 1) ^ (x >> 1))
    """
    if swizzle.is_identity:
        return x
    size, distance = 1 << swizzle.bits, abs(swizzle.shift)
    low, high = swizzle.base, swizzle.base + distance
    target, origin = (low, high) if swizzle.shift > 0 else (high, low)
    changed = ((x >> target) % size) ^ ((x >> origin) % size)
    below = x % (1 << target)
    return (x >> (target + swizzle.bits)) * (size << target) + changed * (1 << target) + below


def span_of(layout: Layout) -> int:
    """Return the number of elements from the origin to the last one that the layout reaches.

    Raises:
        RegionError: it reaches below its origin.

    >>> span_of(TileLayout.parse("S[(4,8):(16,1)]"))
    56
    """
    if isinstance(layout, SwizzledLayout) and not layout.params:
        return max(layout.image()) + 1
    tile = layout.inner if isinstance(layout, SwizzledLayout) else layout
    offset = tile.offset.get("m", 0)
    low, high = offset.bounds() if isinstance(offset, Affine) else (offset, offset)
    for it in (*tile.shard, *tile.replica):
        if it.axis.name == "m":
            reach = (it.extent - 1) * it.stride
            low, high = low + min(reach, 0), high + max(reach, 0)
    if low < 0:
        raise RegionError(f"{layout} reaches element {low}, before its origin", low=low)
    if isinstance(layout, SwizzledLayout):
        period = layout.swizzle.period
        return int(-(-(high + 1) // period) * period)
    return int(high + 1)


def reach(layout: TileLayout, axis: str) -> int:
    """Return one more than the largest coordinate that a layout has on an axis.

    >>> reach(TileLayout.parse("S[(32,4):(1@TLane,2@TCol)] + 8@TCol"), "TCol")
    15
    """
    offset: Any = layout.offset.get(axis, 0)
    iters = [it for it in (*layout.shard, *layout.replica) if it.axis.name == axis]
    return int(offset + sum((it.extent - 1) * it.stride for it in iters) + 1)


def check_columns(name: str, layout: Layout, kind: Dtype, column: int | None) -> None:
    """Check that a layout, from a column of tensor memory on, stays inside it.

    Raises:
        PlanError: no column, axes other than ``TLane`` and ``TCol``, or cells that are not there.
    """
    if column is None:
        raise PlanError(
            f"{name}: a buffer in tensor memory needs allocated_addr, its first column: use TmemPool.alloc, or "
            "declare(..., scope='tmem', allocated_addr=...)",
            buffer=name,
        )
    if not isinstance(layout, TileLayout) or {axis.name for axis in layout.axes} - {"TLane", "TCol"}:
        raise PlanError(f"{name}: {layout} is no layout of tensor memory, whose axes are TLane and TCol", buffer=name)
    lanes, end = reach(layout, "TLane"), column + -(-reach(layout, "TCol") * kind.bits // 32)
    if column < 0 or end > COLUMNS or lanes > LANES:
        raise PlanError(
            f"{name}: {layout} of {kind} from column {column} on needs {lanes} lanes and columns up to {end}; tensor "
            f"memory has {LANES} and {COLUMNS}",
            buffer=name,
        )


def as_param(offset: Any) -> Expr:
    """Return a layout's offset, which may hold parameters, as an expression."""
    if not isinstance(offset, Affine):
        return Expr.of(int(offset))
    total = Expr.of(offset.const)
    for param, c in offset.terms:
        total = total + Expr.var(param.name, param.begin, param.end - 1) * c
    return total


def _offset_of(layout: TileLayout, shape: tuple[int, ...], coord: Sequence[Expr], name: str) -> Expr:
    foreign = [axis.name for axis in layout.axes if axis.name != "m"]
    if foreign:
        raise PlanError(
            f"{name}: {layout} also lives on {', '.join(foreign)}, and an address has one coordinate: local() gives a "
            "thread's own part",
            buffer=name,
        )
    total = as_param(layout.offset.get("m", 0))
    try:
        grouped, seps = layout.group(shape)
    except NotExpressibleError:  # no iters per dimension: digits of the flat index
        digits = [(layout.shard, flatten(coord, shape))]
    else:
        digits = [(grouped.shard[a:b], x) for a, b, x in zip(seps[:-1], seps[1:], coord, strict=True)]
    for iters, index in digits:
        for value in vector_at(iters, index).values():
            total = total + value
    return total


def _inside(x: Expr, extent: int, dim: int, name: str) -> Expr:
    low, high = x.bounds()
    if low >= 0 and high < extent:
        return x
    single = x.terms[0][0] if len(x.terms) == 1 and x.const == 0 and x.terms[0][1] == 1 else None
    if single is not None and single.op == "load":
        return x.within(0, extent - 1)
    raise RegionError(
        f"{name}: coordinate {x} of dimension {dim} lies in [{low}, {high}], which leaves [0, {extent}); guard it and "
        "narrow it with within(), or correct it",
        dim=dim,
        low=low,
        high=high,
    )
