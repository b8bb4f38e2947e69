"""Tiling and direct sums: two layouts over one interleaved domain, and the way back to either of them.

Take an *outer* layout over shape (o0, o1) and an *inner* one over (i0, i1).  Their interleaved domain has shape
(o0*i0, o1*i1): coordinate 0 is ``x0*i0 + y0``, where x belongs to the outer and y to the inner layout.  On it,

    tile(x, y)       = Inner(y) + W * Outer(x)      W per axis: the span of Inner's image there (1 if it has none)
    direct_sum(x, y) = Right(y) + Left(x)           unscaled

so tiling puts copies of the inner image side by side.  A (2, 4) tile of two 4x4 row-major blocks, for example:

    inner S[(4,4):(4,1)] spans 16, outer S[2:1] over (1, 2):   S[(4,2,4):(4,16,1)], a (4, 8) tensor.

*When is the sum a layout?*  Drop unit extents from the list o0, i0, o1, i1, ... and merge what then lies side by
side and belongs to the same layout.  If both layouts group by their merged extents, interleave the groups.  If one
does not, no layout has these values: a boundary that both neighbours move across independently is a boundary of every
layout with these values, because a run that crosses it once would cross it at every step of the other neighbour.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.grouping import Shape, check_shape, group_iters, show_iters, show_shape
from layoutalg.axis import Axis
from layoutalg.decide import Number, as_number, at_most, certainly_equal, exact_quotient
from layoutalg.errors import LayoutError, NotExpressibleError, RegionError
from layoutalg.iters import Iter, Iters

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = [
    "Parts", "check_layout", "direct_sum", "merge_interleaved", "scaled", "spans", "tile", "tile_shapes", "tile_to",
]  # fmt: skip


class Parts(NamedTuple):
    """Shard, replica and offset of a layout under construction."""

    shard: Iters
    replica: Iters
    offset: dict[Axis, Number]


def check_layout(value: object, what: str) -> None:
    """Refuse an operand that is no plain layout.

    Raises:
        LayoutError: something else, a swizzled layout included.

    >>> check_layout("S[4:1]", "tile")
    Traceback (most recent call last):
        ...
    layoutalg.errors.LayoutError: tile takes a TileLayout, not 'S[4:1]'; texts: TileLayout.parse
    """
    from layoutalg.tile import TileLayout

    if not isinstance(value, TileLayout):
        raise LayoutError(f"{what} takes a TileLayout, not {value!r}; texts: TileLayout.parse")


def tile_shapes(outer_shape: object, outer: Number, inner_shape: object, inner: Number) -> tuple[Shape, Shape]:
    """Return both shapes, checked against the sizes of their layouts and against one another.

    Raises:
        RegionError: a shape of the wrong size, or shapes of different rank.

    >>> tile_shapes((1, 2), 2, (4, 4), 16)
    ((1, 2), (4, 4))
    """
    checked = check_shape(outer_shape, outer, "outer shape"), check_shape(inner_shape, inner, "inner shape")
    if len(checked[0]) != len(checked[1]):
        raise RegionError(
            f"outer shape {show_shape(checked[0])} and inner shape {show_shape(checked[1])} differ in rank; "
            f"pad the shorter one with 1",
            outer_shape=checked[0],
            inner_shape=checked[1],
        )
    return checked


def merge_interleaved(outer_shape: Shape, inner_shape: Shape) -> list[tuple[bool, Number]]:
    """Return the interleaved extents without units, neighbours of one side merged; True marks the outer side.

    >>> merge_interleaved((2, 1, 3), (1, 4, 5))
    [(True, 2), (False, 4), (True, 3), (False, 5)]
    """
    merged: list[tuple[bool, Number]] = []
    for pair in zip(outer_shape, inner_shape, strict=True):
        for is_outer, extent in zip((True, False), pair, strict=True):
            if certainly_equal(extent, 1):
                continue
            if merged and merged[-1][0] is is_outer:
                merged[-1] = (is_outer, merged[-1][1] * extent)
            else:
                merged.append((is_outer, extent))
    return merged


def _interleave(outer: Iters, outer_shape: Shape, inner: Iters, inner_shape: Shape, what: str) -> Iters:
    """Return the iters of the sum of two shards over the interleaved domain."""
    merged = merge_interleaved(outer_shape, inner_shape)
    groups: dict[bool, Iterator[Iters]] = {}
    for is_outer, iters, name in ((True, outer, "outer"), (False, inner, "inner")):
        extents = tuple(extent for side, extent in merged if side is is_outer)
        try:
            grouped, seps = group_iters(canonical_shard(iters), extents)
        except NotExpressibleError as error:
            raise NotExpressibleError(
                f"{what}: the {name} layout {show_iters(iters)} does not follow its dimensions, "
                f"{show_shape(extents)} where the other layout moves in between. {error}",
                part=name,
                **error.facts,
            ) from error
        groups[is_outer] = iter([grouped[a:b] for a, b in itertools.pairwise(seps)])
    return tuple(it for is_outer, _ in merged for it in next(groups[is_outer]))


def spans(layout: TileLayout) -> dict[Axis, Number]:
    """Return the span of the image on every axis that occurs.

    >>> from layoutalg.tile import TileLayout
    >>> spans(TileLayout.parse("S[4:-1] + R[2:100@laneid]"))
    {m: 4, laneid: 101}
    """
    reach: dict[Axis, Number] = {axis: 1 for axis in layout.axes}
    for extent, stride, axis in (*layout.shard, *layout.replica):
        reach[axis] = reach[axis] + (extent - 1) * (stride if at_most(0, stride) else -stride)
    return reach


def tile(outer: TileLayout, outer_shape: object, inner: TileLayout, inner_shape: object) -> Parts:
    """Return ``Inner(y) + W * Outer(x)``.

    Law (verify.laws.tiling): at every x, y; it refuses only where no layout has these values.

    >>> from layoutalg.tile import TileLayout
    >>> tile(TileLayout.parse("S[2:1]"), (1, 2), TileLayout.parse("S[4,4]"), (4, 4)).shard
    (4:4, 2:16, 4:1)
    """
    check_layout(outer, "tile")
    shapes = tile_shapes(outer_shape, outer.size, inner_shape, inner.size)
    return _sum(scaled(outer, spans(inner)), shapes[0], inner, shapes[1], "tile")


def direct_sum(left: TileLayout, left_shape: object, right: TileLayout, right_shape: object) -> Parts:
    """Return ``Left(x) + Right(y)``.

    Law (verify.laws.tiling): at every x, y; it refuses only where no layout has these values.

    >>> from layoutalg.tile import TileLayout
    >>> direct_sum(TileLayout.parse("S[2:100]"), (1, 2), TileLayout.parse("S[4,4]"), (4, 4)).shard
    (4:4, 2:100, 4:1)
    """
    check_layout(left, "direct_sum")
    shapes = tile_shapes(left_shape, left.size, right_shape, right.size)
    return _sum(scaled(left, {}), shapes[0], right, shapes[1], "direct_sum")


def tile_to(inner: TileLayout, to: object, current: object) -> Parts:
    """Return copies of ``inner``, of shape ``current``, in row-major order up to shape ``to``.

    Raises:
        RegionError: the rank differs, or ``current`` does not divide ``to``.

    >>> from layoutalg.tile import TileLayout
    >>> tile_to(TileLayout.parse("S[4,4]"), (4, 8), (4, 4)).shard
    (4:4, 2:16, 4:1)
    """
    from layoutalg.notation import row_major
    from layoutalg.tile import _make

    shape = check_shape(current, inner.size, "current shape")
    extents = [as_number(e, "extent of the target shape") for e in to] if _is_extents(to) else []
    goal = check_shape(to, math.prod(extents), "target shape")
    if len(goal) != len(shape):
        raise RegionError(f"tile_to: {show_shape(goal)} and {show_shape(shape)} differ in rank", to=goal, current=shape)
    copies: list[Number] = []
    for whole, part in zip(goal, shape, strict=True):
        quotient = exact_quotient(whole, part)
        if quotient is None:
            raise RegionError(
                f"tile_to: {part} does not divide {whole}, so copies of {show_shape(shape)} do not fill "
                f"{show_shape(goal)}",
                to=goal,
                current=shape,
            )
        copies.append(quotient)
    return tile(_make(row_major(copies), (), {}), tuple(copies), inner, shape)


def _is_extents(shape: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(shape, Sequence) and not isinstance(shape, (str, bytes))


def scaled(layout: TileLayout, factors: Mapping[Axis, Number]) -> Parts:
    """Return the parts of a layout, everything on an axis multiplied by its factor.

    >>> from layoutalg.axis import m
    >>> from layoutalg.tile import TileLayout
    >>> scaled(TileLayout.parse("S[2:1] + 3"), {m: 4})
    Parts(shard=(2:4,), replica=(), offset={m: 12})
    """

    def scale(iters: Iters) -> Iters:
        return tuple(Iter(e, s * factors.get(a, 1), a) for e, s, a in iters)

    offset = {axis: value * factors.get(axis, 1) for axis, value in layout._offset}
    return Parts(scale(layout.shard), scale(layout.replica), offset)


def _sum(outer: Parts, outer_shape: Shape, inner: TileLayout, inner_shape: Shape, what: str) -> Parts:
    offset = dict(inner._offset)
    for axis, value in outer.offset.items():
        offset[axis] = offset.get(axis, 0) + value
    shard = _interleave(outer.shard, outer_shape, inner.shard, inner_shape, what)
    kept = {axis: value for axis, value in offset.items() if not certainly_equal(value, 0)}
    return Parts(canonical_shard(shard), inner.replica + outer.replica, kept)
