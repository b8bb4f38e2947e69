"""What is not simply done before the swizzle: tiling a swizzled layout, and comparing two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.axis import Axis
from layoutalg.errors import AxisError, NotExpressibleError, UndecidedError
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from layoutalg.swizzled import SwizzledLayout

__all__ = ["first_difference", "recognised", "scale_on_axis", "show_difference", "tile_swizzled"]

_ENUMERATION_LIMIT = 1 << 22


def tile_swizzled(
    layout: SwizzledLayout, outer: TileLayout, *, outer_shape: Sequence[int], inner_shape: Sequence[int]
) -> SwizzledLayout:
    """Return the layout with value ``L(i) + W * Out(o)``, W the span of L's image.

    Law: with T the result, ``sigma(T(x)) == sigma(tile(i)) + W * Out(o)``.  Multiples of the period pass through
    sigma, so when W * Out has only such strides the tile itself is tiled.  Otherwise T must be the tile whose values
    are ``sigma^-1(sigma(tile(i)) + W * Out(o))``, and the recogniser decides whether there is one.

    Raises:
        AxisError: the outer layout leaves the axis of the tile.
        NotExpressibleError: no tile has these values under this swizzle.
    """
    from layoutalg.swizzled import SwizzledLayout

    scaled = scale_on_axis(outer, layout.axis, layout.span())
    summed = layout.inner.direct_sum(scaled, outer_shape, inner_shape)
    steps = [it.stride for it in (*scaled.shard, *scaled.replica) if it.extent > 1]
    if all(step % layout.swizzle.period == 0 for step in (*steps, *scaled.offset.values())):
        return SwizzledLayout(layout.swizzle, summed)
    if layout.inner.replica or outer.replica:
        raise NotExpressibleError(
            f"tile: {layout} spans {layout.span()}, no multiple of the period {layout.swizzle.period}, and replicas "
            "would be swizzled apart; pad the tile to the period",
            period=layout.swizzle.period,
        )
    return _by_values(layout, scaled, outer_shape=outer_shape, inner_shape=inner_shape)


def scale_on_axis(layout: TileLayout, axis: Axis, factor: int) -> TileLayout:
    """Return the layout with every stride and offset times a factor.

    Raises:
        AxisError: it moves on another axis.

    >>> from layoutalg.axis import m
    >>> print(scale_on_axis(TileLayout.parse("S[2:1] + 3"), m, 8))
    S[2:8] + 24
    """
    moving = {it.axis for it in (*layout.shard, *layout.replica) if it.stride}
    moving |= {Axis.get(name) for name, value in layout.offset.items() if value}
    if moving - {axis}:
        names = ", ".join(sorted(a.name for a in moving - {axis}))
        raise AxisError(f"tile: a swizzled layout stays on {axis}, but the outer layout {layout} moves on {names}")
    return TileLayout.from_iters(
        shard=[(it.extent, it.stride * factor, axis.name) for it in layout.shard],
        replica=[(it.extent, it.stride * factor, axis.name) for it in layout.replica],
        offset={axis.name: layout.offset.get(axis.name, 0) * factor},
    )


def _by_values(
    layout: SwizzledLayout, scaled: TileLayout, *, outer_shape: Sequence[int], inner_shape: Sequence[int]
) -> SwizzledLayout:
    import numpy as np

    from layoutalg.f2 import F2Map
    from layoutalg.swizzle import Swizzle
    from layoutalg.swizzled import SwizzledLayout

    # One array dimension per entry of [o0, i0, o1, i1, ...].
    rank = len(outer_shape)
    outer_dims = [n for e in outer_shape for n in (e, 1)]
    inner_dims = [n for e in inner_shape for n in (1, e)]
    axis, size = layout.axis, int(np.prod(outer_shape))
    far = scaled.table().get(axis.name, np.zeros(size, np.int64)).reshape(outer_dims)
    near = layout.table()[axis.name].reshape(inner_dims)
    assert far.ndim == near.ndim == 2 * rank
    values = (far + near).reshape(-1)
    if values.min() < 0:
        raise NotExpressibleError(f"tile: {layout} under {scaled} reaches {int(values.min())}, below 0")
    sigma = layout.swizzle if isinstance(layout.swizzle, F2Map) else F2Map.from_swizzle(layout.swizzle)
    undo = layout.swizzle if isinstance(layout.swizzle, Swizzle) and layout.swizzle.is_involution else sigma.inverse()
    try:
        return SwizzledLayout(layout.swizzle, recognised(undo.apply(values), axis))
    except NotExpressibleError as error:
        raise NotExpressibleError(
            f"tile: {layout} repeated every {layout.span()} elements, where its pattern has period "
            f"{layout.swizzle.period}: no tile has these values under {layout.swizzle} (first at index {error.index})",
            index=error.index,
            period=layout.swizzle.period,
        ) from None


def recognised(values: NDArray[np.int64], axis: Axis) -> TileLayout:
    """The plain layout of a table of values on one axis.

    Raises:
        NotExpressibleError: there is none.
    """
    from layoutalg.algebra.recognise import recognise_values

    iters, offset = recognise_values({axis: values})
    return TileLayout.from_iters(
        shard=[(it.extent, it.stride, it.axis.name) for it in iters], offset={a.name: v for a, v in offset.items()}
    )


def show_difference(a: SwizzledLayout, b: SwizzledLayout | TileLayout, index: int) -> str:
    """Both places of one index, in words."""
    return f"index {index}: {_show(a.places(index))} against {_show(b.places(index))}"


def _show(places: Sequence[Mapping[str, Any]]) -> str:
    texts = [", ".join(f"{axis} = {value}" for axis, value in place.items()) for place in places]
    return texts[0] if len(texts) == 1 else "{" + "; ".join(texts) + "}"


def first_difference(a: SwizzledLayout, b: SwizzledLayout | TileLayout) -> tuple[int, str] | None:
    """The first index at which two layouts of one size differ, point by point, and both places in words.

    Raises:
        UndecidedError: parameters, or more than 2^22 points.
    """
    import numpy as np

    from layoutalg.swizzled import SwizzledLayout

    if a.params or b.params:
        raise UndecidedError(f"{a} against {b}: substitute the parameters first")
    if a.size > _ENUMERATION_LIMIT:
        raise UndecidedError(f"{a} against {b}: {a.size} points under different swizzles are too many to compare")
    replicas = b.inner.replica if isinstance(b, SwizzledLayout) else b.replica
    if a.inner.replica or replicas:
        for index in range(a.size):
            left, right = a.places(index), b.places(index)
            if {_place(p) for p in left} != {_place(p) for p in right}:
                return index, show_difference(a, b, index)
        return None
    left_table, right_table = a.table(), b.table()
    zero = np.zeros(a.size, np.int64)
    wrong = zero != 0
    for name in {*left_table, *right_table}:
        wrong |= left_table.get(name, zero) != right_table.get(name, zero)
    if not wrong.any():
        return None
    index = int(wrong.argmax())
    return index, show_difference(a, b, index)


def _place(place: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset((axis, value) for axis, value in place.items() if value)
