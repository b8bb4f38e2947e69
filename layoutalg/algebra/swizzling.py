"""What is not simply done before the swizzle: tiling a swizzled layout, and comparing two of them.

A swizzled layout is sigma(tile(n)), sigma being a bijection of addresses.  Whatever only chooses, orders or groups
elements is done to the tile, before sigma: a slice keeps its begin as an offset inside.  Two questions are different,
because they add to the *swizzled* address.

*Moving.*  sigma repeats its pattern every ``period`` P addresses, so ``sigma(x) + k*P = sigma(x + k*P)``, and no other
distance passes through sigma for every x.  Sw<1,0,1> has P = 4 and maps 0 1 2 3 to 0 1 3 2; moved by 2 that would be
2 3 5 4, which it gives at the addresses 3 2 5 4: no progression, so no layout.

*Tiling* repeats the pattern at multiples of the image's span W.  Where all those distances are multiples of P, the tile
itself is tiled.  Otherwise the result, if there is one, is the tile with the values ``sigma^-1(sigma(tile(i)) + W*o)``,
and the recogniser decides whether some layout has them.

*Equality.*  Under one sigma the tiles decide.  Under two, the values do, point by point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.tiling import tile_shapes
from layoutalg.axis import Axis, m
from layoutalg.errors import AxisError, NotExpressibleError, RangeError, UndecidedError
from layoutalg.index import Affine, bounds
from layoutalg.swizzle import Swizzle
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from layoutalg.swizzled import Permutation, SwizzledLayout

__all__ = [
    "check_sign",
    "first_difference",
    "is_multiple",
    "memory_axis",
    "recast",
    "recognised",
    "scale_on_axis",
    "show_difference",
    "tile_swizzled",
    "zeros",
]

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

    >>> from layoutalg.swizzled import SwizzledLayout
    >>> row = SwizzledLayout.parse("Sw<1,0,1> o S[4:1]")
    >>> print(tile_swizzled(row, TileLayout.parse("S[2:1]"), outer_shape=(2,), inner_shape=(4,)))
    Sw<1,0,1> o S[8:1]
    """
    from layoutalg.swizzled import SwizzledLayout

    scaled = scale_on_axis(outer, layout.axis, layout.span())
    steps = [it.stride for it in (*scaled.shard, *scaled.replica) if it.extent > 1]
    if all(step % layout.swizzle.period == 0 for step in (*steps, *scaled.offset.values())):
        # Under an injective map, values that no tile has are values that no swizzled tile has.
        return SwizzledLayout(layout.swizzle, layout.inner.direct_sum(scaled, outer_shape, inner_shape))
    tile_shapes(outer_shape, outer.size, inner_shape, layout.size)
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

    >>> import numpy as np
    >>> print(recognised(np.array([1, 3, 5]), m))
    S[3:2] + 1
    """
    from layoutalg.algebra.recognise import recognise_values

    iters, offset = recognise_values({axis: values})
    return TileLayout.from_iters(
        shard=[(it.extent, it.stride, it.axis.name) for it in iters], offset={a.name: v for a, v in offset.items()}
    )


def show_difference(a: SwizzledLayout, b: SwizzledLayout | TileLayout, index: int) -> str:
    """Both places of one index, in words.

    >>> from layoutalg.swizzled import SwizzledLayout
    >>> show_difference(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]"), TileLayout.parse("S[4:1]"), 2)
    'index 2: m = 3 against m = 2'
    """
    return f"index {index}: {_show(a.places(index))} against {_show(b.places(index))}"


def _show(places: Sequence[Mapping[str, Any]]) -> str:
    texts = [", ".join(f"{axis} = {value}" for axis, value in place.items()) for place in places]
    return texts[0] if len(texts) == 1 else "{" + "; ".join(texts) + "}"


def first_difference(a: SwizzledLayout, b: SwizzledLayout | TileLayout) -> tuple[int, str] | None:
    """The first index at which two layouts of one size differ, point by point, and both places in words.

    Raises:
        UndecidedError: parameters, or more than 2^22 points.

    >>> from layoutalg.swizzled import SwizzledLayout
    >>> first_difference(SwizzledLayout.parse("Sw<1,0,1> o S[2:1]"), TileLayout.parse("S[2:1]")) is None
    True
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


def _moving_axes(layout: TileLayout) -> dict[Axis, None]:
    """The axes on which something happens, in order."""
    iters = [it.axis for it in (*layout.shard, *layout.replica) if not _is_zero(it.stride)]
    return dict.fromkeys([*iters, *(Axis.get(name) for name, value in layout.offset.items() if not _is_zero(value))])


def memory_axis(layout: TileLayout) -> Axis:
    """The one memory axis that a tile lives on.

    Raises:
        AxisError: several axes, or one that is no memory.

    >>> memory_axis(TileLayout.parse("S[4:1@TCol]"))
    TCol
    """
    axes = list(_moving_axes(layout))
    if len(axes) > 1 or any(axis.kind != "memory" for axis in axes):
        names = ", ".join(f"{axis.name} ({axis.kind})" for axis in axes)
        raise AxisError(
            f"a swizzle permutes the addresses of one memory axis, but {layout} lives on {names}; "
            "swizzle the part .storage() keeps",
            axes=tuple(axis.name for axis in axes),
        )
    return axes[0] if axes else m


def check_sign(layout: TileLayout, swizzle: Permutation) -> None:
    """Refuse a tile that reaches a negative offset.

    Raises:
        RangeError: it does.
        UndecidedError: symbols.

    >>> check_sign(TileLayout.parse("S[4:-1]"), Swizzle(1, 0, 1))
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: Sw<1,0,1> o S[4:-1] reaches offset -3; ...
    """
    low = 0
    for it in (*layout.shard, *layout.replica):
        if type(it.extent) is not int or type(it.stride) is not int:
            raise UndecidedError(f"{swizzle} o {layout}: a swizzle needs numbers, and {it} is symbolic")
        low += min(0, (it.extent - 1) * it.stride)
    low += sum(bounds(value)[0] for value in layout.offset.values())
    if low < 0:
        raise RangeError(
            f"{swizzle} o {layout} reaches offset {low}; swizzled addresses start at 0, so add {-low} to the tile",
            lowest=low,
        )


def _is_zero(value: Any) -> bool:
    return type(value) is int and value == 0


def is_multiple(value: Any, period: int) -> bool:
    """Whether a number is a multiple of the period for all values of its parameters.

    >>> is_multiple(12, 4), is_multiple(6, 4)
    (True, False)
    """
    if isinstance(value, Affine):
        return value.const % period == 0 and all(coefficient % period == 0 for _, coefficient in value.terms)
    return bool(value % period == 0)


def zeros(size: int, shape: Sequence[int] | None) -> NDArray[np.int64]:
    """The table of a tile that never moves.

    >>> zeros(4, (2, 2)).tolist()
    [[0, 0], [0, 0]]
    """
    import numpy as np

    return np.zeros(size if shape is None else tuple(shape), np.int64)


def recast(swizzle: Permutation, from_bits: int, to_bits: int) -> Permutation:
    """The same permutation on elements of another width.

    Raises:
        NotExpressibleError: no swizzle of those elements does it.

    >>> recast(Swizzle(3, 4, 3), 8, 16)
    Swizzle(bits=3, base=3, shift=3)
    """
    if isinstance(swizzle, Swizzle):
        return swizzle.recast(from_bits, to_bits)
    raise NotExpressibleError(f"width changes are defined for swizzles, not for {swizzle}")
