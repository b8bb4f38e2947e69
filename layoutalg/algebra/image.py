"""Which places a layout reaches: span, image, injectivity, bijectivity, contiguity.

Every iter moves one axis, so the axes are independent: the places of a layout are the product, over the axes, of the
sums ``offset + {digits} + {replicas}`` on that axis.  Each question is asked axis by axis, on the strides:

* the *span* is one more than the sum of ``(e - 1)*|s|``;
* the *image* on an axis is a sum of progressions, one progression where they merge;
* two indices meet on an axis exactly when ``sum d_k*s_k = 0`` for digit differences ``|d_k| < e_k`` that are not all
  zero on the shard.  A search over the differences from the largest stride down decides it: what remains to be
  cancelled must stay within reach of the smaller strides and be a multiple of their common divisor, so almost nothing
  is looked at.  ``(2:3, 4:1)`` meets itself (3 = 3*1), ``(2:4, 4:1)`` cannot.

Nothing is enumerated except an image that is no progression, and sets of replicas that no single progression writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.canonical import merge_progressions, sumset
from layoutalg.axis import Axis
from layoutalg.decide import Number, as_number, at_most, equal
from layoutalg.errors import RegionError, UndecidedError
from layoutalg.index import Affine

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = ["first_collision", "image", "is_bijective_onto", "is_contiguous", "is_injective", "span"]

#: Differences looked at before the search for a collision gives up.
MAX_NODES = 200_000


def span(layout: TileLayout, axis: str | Axis) -> Number:
    """Return max - min + 1 of the places on an axis.

    >>> from layoutalg.tile import TileLayout
    >>> span(TileLayout.parse("S[4:-1] + R[2:10]"), "m")
    14
    """
    on = Axis.get(axis)
    total: Number = 1
    for extent, stride, at in (*layout.shard, *layout.replica):
        if at is on:
            total = total + (extent - 1) * (stride if at_most(0, stride) else -stride)
    return total


def image(layout: TileLayout, axis: str | Axis) -> Sequence[int]:
    """Return the values on an axis in increasing order: a ``range`` where they are one progression, else a tuple.

    Raises:
        UndecidedError: several progressions whose sum is too large to list, symbols, or a parameter in the offset.

    >>> from layoutalg.tile import TileLayout
    >>> image(TileLayout.parse("S[(4,8):(8,1)] + 3"), "m")
    range(3, 35)
    >>> image(TileLayout.parse("S[(2,2):(5,1)]"), "m")
    (0, 1, 5, 6)
    """
    on = Axis.get(axis)
    pairs, low = merge_progressions(it for it in (*layout.shard, *layout.replica) if it.axis is on)
    start = layout.offset.get(on.name, 0) + low.get(on, 0)
    if type(start) is not int:
        raise UndecidedError(f"the image on {on} starts at {start}; substitute its parameters first")
    moves = pairs.get(on, [])
    if len(moves) > 1 or not all(type(x) is int for pair in moves for x in pair):
        return tuple(sorted(start + x for x in sumset(moves, on.name)))
    stride, extent = moves[0] if moves else (1, 1)
    return range(start, start + (extent - 1) * stride + 1, stride)


def is_injective(layout: TileLayout) -> bool:
    """Decide whether distinct indices have disjoint sets of places.

    Law (verify.laws.image): true exactly when :func:`first_collision` finds nothing.

    Raises:
        UndecidedError: symbols, or a search of over ``MAX_NODES`` steps.

    >>> from layoutalg.tile import TileLayout
    >>> is_injective(TileLayout.parse("S[(2,4):(4,1)]")), is_injective(TileLayout.parse("S[(2,4):(3,1)]"))
    (True, False)
    """
    return _collision(layout) is None


def first_collision(layout: TileLayout) -> tuple[int, int] | None:
    """Return two indices with a common place, or None.

    >>> from layoutalg.tile import TileLayout
    >>> first_collision(TileLayout.parse("S[(2,4):(3,1)]"))
    (3, 4)
    """
    found = _collision(layout)
    if found is None:
        return None
    low, high = 0, 0
    for difference, it in zip(found, layout.shard, strict=True):
        low = low * it.extent + max(0, -difference)
        high = high * it.extent + max(0, difference)
    return (low, high) if low < high else (high, low)


def _collision(layout: TileLayout) -> list[int] | None:
    """Return digit differences, not all zero, between two indices with a common place."""
    for it in (*layout.shard, *layout.replica):
        if not (type(it.extent) is int and type(it.stride) is int):
            raise UndecidedError(f"whether {layout} is injective is decided for numbers, and {it} is symbolic")
    for axis in layout.axes:
        moving = [k for k, it in enumerate(layout.shard) if it.axis is axis and it.extent > 1]
        pairs, _ = merge_progressions(it for it in layout.replica if it.axis is axis)
        replicas = [(int(s), int(e)) for s, e in pairs.get(axis, [])]
        shard = [(int(layout.shard[k].stride), int(layout.shard[k].extent)) for k in moving]
        found = _relation(shard, replicas, str(axis))
        if found is not None:
            result = [0] * len(layout.shard)
            for k, difference in zip(moving, found, strict=True):
                result[k] = difference
            return result
    return None


def _relation(shard: list[tuple[int, int]], replicas: list[tuple[int, int]], axis: str) -> list[int] | None:
    """Return shard differences |d| < extent, not all zero, that replica differences cancel: sum d*s = 0."""
    terms = [(abs(s), e, s < 0, k) for k, (s, e) in enumerate(shard)]
    for stride, extent, _, k in terms:
        if stride == 0 and extent > 1:
            return [int(j == k) for j in range(len(shard))]
    terms += [(s, e, False, -1) for s, e in replicas]
    terms.sort(reverse=True)
    # Reach and common divisor of the strides from each position on.
    reach = [0] * (len(terms) + 1)
    divisor = [0] * (len(terms) + 1)
    for position in range(len(terms) - 1, -1, -1):
        stride, extent, _, _ = terms[position]
        reach[position] = reach[position + 1] + (extent - 1) * stride
        divisor[position] = math.gcd(divisor[position + 1], stride)
    chosen = [0] * len(shard)
    budget = MAX_NODES

    def search(position: int, rest: int, moved: bool) -> bool:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise UndecidedError(f"whether two indices meet on {axis} took over {MAX_NODES} steps to decide")
        if position == len(terms):
            return rest == 0 and moved
        stride, extent, negative, k = terms[position]
        room = reach[position + 1]
        first = max(-(extent - 1), -((rest + room) // stride))
        last = min(extent - 1, (room - rest) // stride)
        if k >= 0 and not moved:
            first = max(first, 0)  # the differences of a pair have two signs, and one of them will do
        for d in _congruent(first, last, stride=stride, rest=rest, divisor=divisor[position + 1]):
            if k >= 0:
                chosen[k] = -d if negative else d
            if search(position + 1, rest + d * stride, moved or (k >= 0 and d != 0)):
                return True
            if k >= 0:
                chosen[k] = 0
        return False

    return chosen if search(0, 0, False) else None


def _congruent(first: int, last: int, *, stride: int, rest: int, divisor: int) -> range:
    """Return the d from first to last for which the divisor (0 means only 0) divides ``rest + d*stride``."""
    if divisor == 0:
        d, uneven = divmod(-rest, stride)
        return range(d, d + 1) if not uneven and first <= d <= last else range(0)
    common = math.gcd(stride, divisor)
    if rest % common:
        return range(0)
    step = divisor // common
    start = -(rest // common) * pow(stride // common, -1, step) % step if step > 1 else 0
    return range(first + (start - first) % step, last + 1, step)


def is_bijective_onto(layout: TileLayout, box: Mapping[str, Sequence[Any]]) -> bool:
    """Decide whether every place of a box belongs to exactly one index, and every place is in the box.

    Args:
        box: ``{axis: (begin, end)}``; an axis that is not named must be 0 everywhere.

    Raises:
        RegionError: an interval that is empty or no pair.
        UndecidedError: as for :func:`is_injective`, or an offset with parameters.

    >>> from layoutalg.tile import TileLayout
    >>> frag = TileLayout.parse("S[(8,4,2):(4@laneid,1@laneid,1)]")
    >>> is_bijective_onto(frag, {"laneid": (0, 32), "m": (0, 2)})
    True
    """
    if not isinstance(box, Mapping):
        raise RegionError(f"is_bijective_onto: the box is {{axis: (begin, end)}}, not {box!r}", box=box)
    wanted: dict[Axis, tuple[int, int]] = {}
    for name, ends in box.items():
        if isinstance(ends, str) or not isinstance(ends, Sequence) or len(ends) != 2:
            raise RegionError(f"is_bijective_onto: {name} needs (begin, end), not {ends!r}", axis=str(name))
        begin, end = (as_number(x, f"the interval on {name}") for x in ends)
        if not end > begin:
            raise RegionError(f"is_bijective_onto: [{begin}, {end}) on {name} is empty", axis=str(name))
        wanted[Axis.get(name)] = (begin, end)
    for axis in {**dict.fromkeys(wanted), **dict.fromkeys(layout.axes)}:
        begin, end = wanted.get(axis, (0, 1))
        if not _fills(layout, axis, begin, end):
            return False
    return is_injective(layout)


def _fills(layout: TileLayout, axis: Axis, begin: int, end: int) -> bool:
    """Decide whether the values on the axis, if distinct, are [begin, end): the ends fit and the count does."""
    _, low = merge_progressions(it for it in (*layout.shard, *layout.replica) if it.axis is axis)
    start = layout.offset.get(axis.name, 0) + low.get(axis, 0)
    if isinstance(start, Affine):
        raise UndecidedError(f"the values on {axis} start at {start}; substitute its parameters first")
    return equal(start, begin) and equal(span(layout, axis), end - begin) and _is_dense(layout, axis)


def _is_dense(layout: TileLayout, axis: Axis) -> bool:
    """Decide whether there are as many combinations of digits and replicas on the axis as values in its span."""
    count: Number = 1
    for it in layout.shard:
        count = count * it.extent if it.axis is axis else count
    pairs, _ = merge_progressions(it for it in layout.replica if it.axis is axis)
    own = pairs.get(axis, [])
    count = count * (own[0][1] if len(own) == 1 else len(sumset(own, axis.name)))
    return equal(count, span(layout, axis))


def is_contiguous(layout: TileLayout) -> bool:
    """Decide whether the places fill a box without gap, each belonging to one index.

    Raises:
        UndecidedError: as for :func:`is_injective`.

    >>> from layoutalg.tile import TileLayout
    >>> [is_contiguous(TileLayout.parse(text)) for text in ("S[(2,4):(1,2)] + 5", "S[4:2]", "S[(4,2):(1,0)]")]
    [True, False, False]
    """
    return all(_is_dense(layout, axis) for axis in layout.axes) and is_injective(layout)
