"""The way back from a tiling or a direct sum: given the whole and one part, the other part.

A sum has the boundaries of its parts (see :mod:`layoutalg.algebra.tiling`), so its digits split into those of the two:
the known part's must be what they should, the other's are the answer (divided by W, for the outer of a tiling).

``S[(2,4):(8,1)]`` over (8,), for example, is a tiling of ``S[4:1]``, which spans 4: its outer digit (2:8) is 4 times
the outer layout, ``S[2:2]``.

What remains is one question per axis: given finite sets A and B, which sum of progressions C has ``B + W*C = A``?  Its
least element is forced.  Where replicas leave a choice the answer has the fewest places, then the fewest iters, then
the least list of strides and extents: {0..4} is {0,1,2} plus {0,2}, and plus {0,1,2}; the former has two places.

For the inner factor of a tiling, W depends on the answer; the reach r of its replicas follows from the ends of the
sets: ``reach(A) = r + (1 + r + reach(D)) * reach(Outer)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from layoutalg.algebra.canonical import canonical_shard, factor_sumset, merge_progressions, sumset
from layoutalg.algebra.equality import first_difference
from layoutalg.algebra.grouping import Shape, check_shape, group_iters, show_iters, show_shape
from layoutalg.algebra.tiling import Parts, check_layout, merge_interleaved, scaled, spans
from layoutalg.axis import Axis
from layoutalg.decide import Number, as_number, at_most, certainly_equal, equal, exact_quotient
from layoutalg.errors import NotExpressibleError, RegionError, UndecidedError
from layoutalg.iters import Iter, Iters

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = ["interleaved_shapes", "sum_part", "tile_inner", "tile_outer"]

#: Candidate sums of progressions looked at before the search for a missing replica gives up.
MAX_NODES = 200_000


class _Split(NamedTuple):
    """A sum's digits by side, with the number of elements within each iter of the sum."""

    outer: list[tuple[Iter, Number]]
    inner: list[tuple[Iter, Number]]

    def iters(self, *, outer: bool) -> Iters:
        return tuple(it for it, _ in (self.outer if outer else self.inner))


def _split(total: TileLayout, total_shape: Shape, part_shape: Shape, *, outer: bool, what: str) -> _Split:
    """Distribute the digits of a sum over its two parts; ``outer`` says which of them has the given shape."""
    other: list[Number] = []
    for whole, part in zip(total_shape, part_shape, strict=True):
        quotient = exact_quotient(whole, part)
        if quotient is None:
            raise RegionError(
                f"{what}: {show_shape(part_shape)} does not divide {show_shape(total_shape)}: {part} and {whole}",
                shape=total_shape,
                part_shape=part_shape,
            )
        other.append(quotient)
    shapes = (part_shape, tuple(other)) if outer else (tuple(other), part_shape)
    merged = merge_interleaved(*shapes)
    try:
        grouped, seps = group_iters(canonical_shard(total.shard), tuple(extent for _, extent in merged))
    except NotExpressibleError as error:
        raise NotExpressibleError(
            f"{what}: {total} has no boundary between its parts, so it is no such sum. {error}", **error.facts
        ) from error
    split = _Split([], [])
    for (is_outer, _), (begin, end) in zip(merged, itertools.pairwise(seps), strict=True):
        side = split.outer if is_outer else split.inner
        inner: Number = 1
        for it in grouped[end:]:
            inner = inner * it.extent
        block: list[tuple[Iter, Number]] = []
        for it in reversed(grouped[begin:end]):
            block.append((it, inner))
            inner = inner * it.extent
        side.extend(reversed(block))
    return split


def _check_known(found: Iters, known: Iters, places: Sequence[tuple[Iter, Number]], what: str, name: str) -> None:
    """The known part's digits in the sum must be the known part's map."""
    index = first_difference(canonical_shard(found), canonical_shard(known))
    if index is None:
        return
    at = index
    total: Number = 0
    for it, inner in reversed(places):
        total = total + at % it.extent * inner
        at = at // it.extent
    raise NotExpressibleError(
        f"{what}: index {index} of the {name} part moves by {show_iters(canonical_shard(found))} in the sum, "
        f"not by {show_iters(canonical_shard(known))} (index {total} of the sum)",
        index=total,
        part=name,
    )


def _divide(pairs: Sequence[tuple[Iter, Number]], factors: Mapping[Axis, Number], what: str) -> Iters:
    """Divide every stride by its axis's factor."""
    result: list[Iter] = []
    for (extent, stride, axis), inner in pairs:
        factor = factors.get(axis, 1)
        quotient = exact_quotient(stride, factor)
        if quotient is None:
            raise NotExpressibleError(
                f"{what}: index {inner} of the tiled layout moves by {stride}@{axis}, and the inner image spans "
                f"{factor} there; outer strides are multiples of that",
                index=inner,
                axis=axis.name,
            )
        result.append(Iter(extent, quotient, axis))
    return tuple(result)


def tile_outer(tiled: TileLayout, tiled_shape: object, inner: TileLayout, inner_shape: object) -> Parts:
    """Return the outer layout with ``tile(outer, inner) = tiled``.

    Raises:
        NotExpressibleError: there is none.

    >>> from layoutalg.tile import TileLayout
    >>> tile_outer(TileLayout.parse("S[(2,4):(8,1)]"), (8,), TileLayout.parse("S[4:1] + 4"), (4,))
    Parts(shard=(2:2,), replica=(), offset={m: -1})
    """
    what = "tile_outer_of"
    shapes = _part_shapes(tiled, tiled_shape, inner, inner_shape)
    split = _split(tiled, *shapes, outer=False, what=what)
    _check_known(split.iters(outer=False), inner.shard, split.inner, what, "inner")
    factors = spans(inner)
    replica, offset = _other_part(tiled, scaled(inner, {}), factors, what)
    return Parts(canonical_shard(_divide(split.outer, factors, what)), replica, offset)


def tile_inner(tiled: TileLayout, tiled_shape: object, outer: TileLayout, outer_shape: object) -> Parts:
    """Return the inner layout with ``tile(outer, inner) = tiled``.

    Raises:
        NotExpressibleError: there is none.

    >>> from layoutalg.tile import TileLayout
    >>> tile_inner(TileLayout.parse("S[8:1]"), (8,), TileLayout.parse("S[2:1]"), (2,))
    Parts(shard=(4:1,), replica=(), offset={})
    """
    what = "tile_inner_of"
    shapes = _part_shapes(tiled, tiled_shape, outer, outer_shape)
    split = _split(tiled, *shapes, outer=True, what=what)
    shard = canonical_shard(split.iters(outer=False))
    factors = _inner_spans(tiled, shard, outer, what)
    known = scaled(outer, factors)
    _check_known(split.iters(outer=True), known.shard, split.outer, what, "outer")
    replica, offset = _other_part(tiled, known, {}, what)
    return Parts(shard, replica, offset)


def _inner_spans(tiled: TileLayout, shard: Iters, outer: TileLayout, what: str) -> dict[Axis, Number]:
    """Return the span of the inner image, its replicas' reach taken from the ends of the sets."""
    total, part, known = (_reach(iters) for iters in (tiled.replica, outer.replica, shard))
    factors: dict[Axis, Number] = {}
    for axis in {**dict.fromkeys(tiled.axes), **dict.fromkeys(outer.axes)}:
        o, d = part.get(axis, 0), known.get(axis, 0)
        rest = total.get(axis, 0) - (1 + d) * o
        reach = exact_quotient(rest, 1 + o) if at_most(0, rest) else None
        if reach is None:
            raise NotExpressibleError(
                f"{what}: the replicas of {tiled} on {axis} reach {total.get(axis, 0)}, and no inner layout makes "
                f"the outer replicas, reaching {o}, do that",
                axis=axis.name,
                index=0,
            )
        factors[axis] = 1 + d + reach
    return factors


def _reach(iters: Iters) -> dict[Axis, Number]:
    reach: dict[Axis, Number] = {}
    for extent, stride, axis in iters:
        reach[axis] = reach.get(axis, 0) + (extent - 1) * (stride if at_most(0, stride) else -stride)
    return reach


def sum_part(
    total: TileLayout, total_shape: object, known: TileLayout, known_shape: object, *, left: bool, what: str
) -> Parts:
    """Return the other summand of a direct sum; ``left`` says that the known one is the left.

    Raises:
        NotExpressibleError: there is none.

    >>> from layoutalg.tile import TileLayout
    >>> total, right = TileLayout.parse("S[(2,4):(100,1)] + 7"), TileLayout.parse("S[4:1]")
    >>> sum_part(total, (2, 4), right, (1, 4), left=False, what="direct_sum_left_of")
    Parts(shard=(2:100,), replica=(), offset={m: 7})
    """
    shapes = _part_shapes(total, total_shape, known, known_shape)
    split = _split(total, *shapes, outer=left, what=what)
    places = split.outer if left else split.inner
    _check_known(split.iters(outer=left), known.shard, places, what, "left" if left else "right")
    replica, offset = _other_part(total, scaled(known, {}), {}, what)
    return Parts(canonical_shard(split.iters(outer=not left)), replica, offset)


def interleaved_shapes(shape: object, part_shape: object, *, left: bool) -> tuple[Shape, Shape]:
    """Turn the interleaved shape ``[A0, B0, A1, B1, ...]`` into the shapes of the sum and of one part, padded.

    Raises:
        RegionError: the part's shape is not the even (left) or odd (right) entries.

    >>> interleaved_shapes((2, 1, 2, 5), (1, 5), left=False)
    ((2, 1, 2, 5), (1, 1, 1, 5))
    """
    whole, part = (
        tuple(as_number(e, "extent of the shape") for e in given)
        if isinstance(given, Sequence) and not isinstance(given, (str, bytes))
        else ()
        for given in (shape, part_shape)
    )
    mine = whole[0 if left else 1 :: 2]
    if len(whole) % 2 or len(part) != len(mine) or not all(equal(a, b) for a, b in zip(part, mine, strict=True)):
        raise RegionError(
            f"the interleaved shape {shape!r} alternates the extents of the left and the right part; its "
            f"{'left' if left else 'right'} part is {show_shape(mine)}, not {part_shape!r}",
            shape=shape,
            part_shape=part_shape,
        )
    padded = [x if (position % 2 == 0) is left else 1 for position, x in enumerate(whole)]
    return whole, tuple(padded)


def _part_shapes(total: TileLayout, total_shape: object, part: TileLayout, part_shape: object) -> tuple[Shape, Shape]:
    check_layout(total, "the way back from a sum")
    whole = check_shape(total_shape, total.size, "shape of the sum")
    own = check_shape(part_shape, part.size, "shape of the part")
    if len(whole) != len(own):
        raise RegionError(f"shapes {show_shape(whole)} and {show_shape(own)} differ in rank; pad with 1", shape=whole)
    return whole, own


def _other_part(
    total: TileLayout, known: Parts, factors: Mapping[Axis, Number], what: str
) -> tuple[Iters, dict[Axis, Number]]:
    """Return replica and offset of the part with ``known + factor * part = total``, as sets, axis by axis.

    Raises:
        NotExpressibleError: an axis on which no sum of progressions does it.
    """
    whole, whole_low = merge_progressions(total.replica)
    part, part_low = merge_progressions(known.replica)
    offset: dict[Axis, Number] = {}
    replica: list[Iter] = []
    start = {Axis.get(name): value for name, value in total.offset.items()}
    for axis in sorted({*whole, *part, *start, *known.offset, *whole_low, *part_low}, key=lambda a: a.name):
        factor = factors.get(axis, 1)
        moved = start.get(axis, 0) + whole_low.get(axis, 0)
        moved = moved - known.offset.get(axis, 0) - part_low.get(axis, 0)
        low = exact_quotient(moved, factor)
        if low is None:
            raise NotExpressibleError(
                f"{what}: the sum lies {moved} further on {axis} than the known part, no multiple of {factor}",
                axis=axis.name,
                index=0,
            )
        if not certainly_equal(low, 0):
            offset[axis] = low
        pairs = _missing(whole.get(axis, []), part.get(axis, []), factor, axis, what)
        replica.extend(Iter(extent, stride, axis) for stride, extent in pairs)
    return tuple(replica), offset


_Pairs = list[tuple[Number, Number]]


def _missing(total: _Pairs, part: _Pairs, factor: Number, axis: Axis, what: str) -> _Pairs:
    """Return the progressions C with part + factor*C = total, all three starting at 0."""
    refusal = NotExpressibleError(
        f"{what}: no sum of progressions on {axis} completes the replicas {_show(part)} to {_show(total)}"
        + (f" in steps of {factor}" if not certainly_equal(factor, 1) else ""),
        axis=axis.name,
        index=0,
    )
    if not part:
        scaled = [(exact_quotient(stride, factor), extent) for stride, extent in total]
        if any(stride is None for stride, _ in scaled):
            raise refusal
        return factor_sumset(sumset(scaled, axis.name)) if len(scaled) > 1 else scaled
    if total == part:
        return []
    dense = _dense(total, part, factor)
    if dense is not None:
        return dense
    if type(factor) is not int:
        raise UndecidedError(f"{what}: the replicas on {axis} are compared in steps of {factor}, which is no number")
    found = _complete(sumset(total, axis.name), sumset(part, axis.name), factor)
    if found is None:
        raise refusal
    return found


def _dense(total: _Pairs, part: _Pairs, factor: Number) -> _Pairs | None:
    """Cover one progression by whole copies of a shorter one of the same step, which no fewer places can do."""
    if len(total) != 1 or len(part) != 1:
        return None
    (step, long), (same, short) = total[0], part[0]
    if not all(type(x) is int for x in (step, long, same, short, factor)) or step != same or long % short:
        return None
    stride, rest = divmod(step * short, factor)
    return [(stride, long // short)] if not rest else None


def _show(pairs: _Pairs) -> str:
    return "R(" + ",".join(f"{e}:{s}" for s, e in pairs) + ")"


def _complete(total: frozenset[int], part: frozenset[int], factor: int) -> _Pairs | None:
    """Search the sums of progressions C with part + factor*C = total: fewest places, fewest iters, least list.

    C lies inside ``{c : part + factor*c inside total}`` and ends where the ends of the sets say.
    """
    top, rest = divmod(max(total) - max(part), factor)
    inside = frozenset(c for c in range(top + 1) if all(p + factor * c in total for p in part)) if top >= 0 else ()
    if rest or top not in inside or 0 not in inside:
        return None
    covers = {c: frozenset(p + factor * c for p in part) for c in inside}
    best: tuple[int, int, _Pairs] | None = None
    budget = MAX_NODES
    stack: list[tuple[_Pairs, frozenset[int]]] = [([], frozenset({0}))]
    while stack:
        chosen, have = stack.pop()
        budget -= 1
        if budget < 0:
            raise UndecidedError(f"the search for the replicas between two sets took over {MAX_NODES} steps")
        if best is not None and len(have) > best[0]:
            continue
        if max(have) == top and frozenset().union(*(covers[c] for c in have)) == total:
            rank = (len(have), len(chosen), chosen)
            best = rank if best is None or rank < best else best
        least = int(chosen[-1][0]) if chosen else 1
        for stride in sorted(x for x in inside if x >= least):
            more = have
            for extent in range(2, (top - max(have)) // stride + 2):
                more = more | {x + (extent - 1) * stride for x in have}
                if not more <= frozenset(inside):
                    break
                stack.append(([*chosen, (stride, extent)], more))
    return None if best is None else best[2]
