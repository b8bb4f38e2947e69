"""Wrong implementations by somebody who did not write the laws: plausible slips, one function of the library each.

``MISTAKES[law][name]`` are replacements of functions; the law must refute them like the mutants that it names itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from layoutalg import f2
from layoutalg.algebra import (
    axes,
    canonical,
    compose,
    equality,
    grouping,
    inverses,
    packing,
    permuting,
    recognise,
    slicing,
    summands,
    tiling,
)
from layoutalg.axis import Axis, m
from layoutalg.decide import at_most, certainly_equal, equal, exact_quotient
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import Iter, combine, is_multiple_of_axis, size_of, vector_step
from layoutalg.tile import TileLayout
from verify.laws.family import Patch

__all__ = ["MISTAKES"]

# -- slicing -------------------------------------------------------------------------------------------------------


def _second_crossing_unchecked(outer: Any, u: Any, d: int, count: int, inner: Iter) -> Any:
    extent, stride, axis = inner
    run = 2 * extent - d
    if count <= run:
        return (Iter(count, stride, axis),)
    if count != 2 * run:
        raise slicing._NoRunError(run, "not two runs")
    jump = combine(vector_step(outer, u), vector_step(outer, u + 1), {axis: -d * stride})
    return slicing._one_axis(2, jump, run), Iter(run, stride, axis)


def _smooth_for_ever(_outer: Any, _u: Any, _d: int, count: int, inner: Iter) -> Any:
    return (inner._replace(extent=count),)


_right_broken = slicing._broken


def _half_shift_anywhere(outer: Any, u: Any, d: int, count: int, inner: Iter) -> Any:
    """A half shift whatever d is, and whether or not the blocks are evenly spaced."""
    extent, stride, axis = inner
    blocks, rest = divmod(count, extent - d)
    if rest or d == 0 or blocks == 2 or blocks % 2:
        return _right_broken(outer, u, d, count, inner)
    jump = combine(vector_step(outer, u), {axis: -d * stride})
    pitch = slicing._one_axis(blocks // 2, vector_step(outer, u), extent)
    return pitch, slicing._one_axis(2, jump, extent - d), Iter(extent - d, stride, axis)


def _halves_without_the_way_back(outer: Any, u: Any, d: int, count: int, inner: Iter) -> Any:
    c = inner.extent - d
    if d and count == 2 * c:
        return slicing._one_axis(2, vector_step(outer, u), c), inner._replace(extent=c)
    return _right_broken(outer, u, d, count, inner)


def _whole_extent_back(iters: Any, index: Any) -> Any:
    """A carry takes a digit back by E*S in the place of (E-1)*S."""
    step: dict[Axis, Any] = {}
    for extent, stride, axis in reversed(iters[1:]):
        index, digit = divmod(index, extent)
        if digit + 1 < extent:
            step[axis] = step.get(axis, 0) + stride
            return step
        step[axis] = step.get(axis, 0) - extent * stride
    step[iters[0].axis] = step.get(iters[0].axis, 0) + iters[0].stride
    return step


def _no_zero_step(vector: Any) -> Any:
    found = is_multiple_of_axis(vector)
    return None if found is None or certainly_equal(found[0], 0) else found


_right_merge = slicing._merge_dimensions


def _outer_index_forgotten(shape: Any, region: Any) -> Any:
    extents, box = _right_merge(shape, region)
    if len(extents) == len(shape) or box[-1].length > shape[-1]:
        return extents, box
    return extents, (*box[:-1], box[-1]._replace(begin=box[-1].begin % shape[-1]))


# -- grouping, canonical form, equality ----------------------------------------------------------------------------

_right_group = grouping.group_iters


def _stride_of_the_whole(iters: Any, shape: Any) -> Any:
    """Both parts of a split iter keep its stride."""
    found, seps = _right_group(iters, shape)
    wholes = {it.extent for it in iters}
    return tuple(it if it.extent in wholes else it._replace(stride=iters[0].stride) for it in found), seps


def _first_of_equal_boundaries(places: Any, marks: Any, starts: Any) -> Any:
    return tuple(starts[marks.index(place)] for place in places)


def _joins_outwards(iters: Any, **_: Any) -> Any:
    """The inner stride compared with what the outer iter spans, in the place of the other way round."""
    merged: list[Iter] = []
    for it in reversed(iters):
        if certainly_equal(it.extent, 1):
            continue
        one = Iter(it.extent, 0, m) if it.axis is not m and certainly_equal(it.stride, 0) else it
        if merged and merged[-1].axis is one.axis and equal(merged[-1].stride, one.extent * one.stride):
            merged[-1] = Iter(one.extent * merged[-1].extent, one.stride, one.axis)
            continue
        merged.append(one)
    return tuple(reversed(merged))


def _axes_not_compared(a: Any, b: Any) -> Any:
    unit: Any = 1
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if not equal(x.stride, y.stride):
            return unit
        if not equal(x.extent, y.extent):
            return unit * min(x.extent, y.extent)
        unit = unit * x.extent
    return None


# -- tilings, sums, packing ----------------------------------------------------------------------------------------


def _one_step_too_far(layout: Any) -> Any:
    reach: dict[Axis, Any] = {axis: 1 for axis in layout.axes}
    for extent, stride, axis in (*layout.shard, *layout.replica):
        reach[axis] = reach[axis] + extent * (stride if at_most(0, stride) else -stride)
    return reach


def _shard_alone(layout: Any) -> Any:
    return _right_spans(TileLayout.from_iters(shard=layout.shard, offset=layout.offset)) | {
        axis: 1 for axis in layout.axes if axis not in {it.axis for it in layout.shard}
    }


_right_spans = tiling.spans
_right_sum = tiling._sum
_right_other = summands._other_part
_right_unpack = packing.unpack


def _inner_offset_lost(outer: Any, outer_shape: Any, inner: Any, inner_shape: Any, what: str) -> Any:
    bare = TileLayout.from_iters(shard=inner.shard, replica=inner.replica)
    return _right_sum(outer, outer_shape, bare, inner_shape, what)


def _units_kept(outer_shape: Any, inner_shape: Any) -> Any:
    """Neighbours of one side are not merged, so boundaries are asked for that nobody needs."""
    pairs = zip(outer_shape, inner_shape, strict=True)
    return [(side, extent) for pair in pairs for side, extent in zip((True, False), pair, strict=True)]


def _known_offset_ignored(total: Any, known: Any, factors: Any, what: str) -> Any:
    return _right_other(total, known._replace(offset={}), factors, what)


def _extents_compared(found: Any, known: Any, _places: Any, what: str, _name: str) -> None:
    forms = [[it.extent for it in canonical.canonical_shard(iters)] for iters in (found, known)]
    if forms[0] != forms[1]:
        raise NotExpressibleError(what, index=0)


def _rounded(a: Any, b: Any) -> Any:
    return a // b


def _neighbours_outermost(layout: Any, n: Any, axis: Any) -> Any:
    found = _right_unpack(layout, n, axis)
    wide = tuple(it._replace(stride=it.stride * n) if it.axis is m else it for it in layout.shard)
    return found._replace(shard=(Iter(n, 1, m), *wide))


def _any_run(shard: Any, count: Any, _axis: Any, layout: Any) -> Any:
    """The innermost iter is taken for n neighbours whatever its stride."""
    if count == 1:
        return shard
    *outer, (extent, stride, axis) = shard
    rest = exact_quotient(extent, count)
    if rest is None:
        raise NotExpressibleError(f"pack: {layout}")
    return (*outer, *([] if rest == 1 else [Iter(rest, stride * count, axis)]))


# -- permuting, recognising, composing, threads, bits --------------------------------------------------------------


def _reversed_inside(iters: Any, seps: Any, order: Any) -> Any:
    return tuple(it for d in order for it in reversed(iters[seps[d] : seps[d + 1]]))


def _first_64(column: Any, step: int) -> int | None:
    return next((k for k in range(1, min(64, len(column))) if column[k] - column[k - 1] != step), None)


def _whole_blocks_only(column: Any, length: int) -> int | None:
    return _right_column(column[: column.size - column.size % length], length)


def _wrapping(column: Any) -> Any:
    return column if column.dtype == object else column - column.min()


_right_column = recognise._broken_column
_right_pieces = compose._pieces
_right_values = compose._values
_right_weights = axes._weights


def _no_end_of_a(a: Any, index: Any) -> Any:
    return _right_values(a, index % int(size_of(a))) if a else _right_values(a, index)


def _overlapping(steps: Any, goal: int, *_: Any) -> Any:
    """Translates that leave no gap, whether or not they meet."""
    image, taken, chosen = sorted(canonical.sumset(steps)), set[int](), []
    for address in range(goal):
        if address not in taken:
            chosen.append(address)
            taken |= {address + x for x in image}
    return _array(chosen)


def _array(values: list[int]) -> Any:
    import numpy as np

    return np.array(values)


def _gaps_skipped(iters: Any, axis: Any) -> Any:
    reached, digits = 1, []
    for stride, extent, place in inverses._placed(iters):
        if stride == reached:
            digits.append(Iter(extent, place, axis))
            reached *= extent
    return tuple(reversed(digits))


def _strides_need_not_divide(iters: Any, axis: Any) -> Any:
    placed, digits, below, worth = inverses._placed(iters), list[Iter](), 1, 0
    if any(stride < 0 for stride, _, _ in placed):
        return None
    for stride, _, place in placed:
        digits.append(Iter(max(1, stride // below), worth, axis))
        below, worth = stride, place
    return tuple(reversed([*digits, Iter(placed[-1][1] if placed else 1, worth, axis)]))


def _gives_up(_search: Any) -> Any:
    raise NotExpressibleError("what does not nest is not searched", index=0)


def _coarsest_lightest(way: Any) -> Any:
    return dict(zip(way, sorted(_right_weights(way).values()), strict=True))


def _offset_alone(layout: Any, axis: Any) -> Any:
    return (layout.offset.get(axis.name, 0),) * 2


def _zero_columns(linear: Any) -> Any:
    return tuple(1 << bit for bit, column in enumerate(linear.columns) if not column)


_MAP: Final = f2.F2Map
_HALF = {"a half shift anywhere": [Patch(_right_broken, _half_shift_anywhere)]}

MISTAKES: Final[Mapping[str, Mapping[str, Sequence[Patch]]]] = MappingProxyType(
    {
        "slicing.intervals_2x3x2": {
            "the second smooth crossing not checked": [Patch(slicing._smooth, _second_crossing_unchecked)]
        },
        "slicing.intervals_2x2x2": {
            "a smooth crossing goes on for ever": [Patch(slicing._smooth, _smooth_for_ever)],
            "a carry takes a digit back by E*S": [Patch(vector_step, _whole_extent_back)],
        },
        "slicing.intervals_of_two_iters": {
            **_HALF,
            "two halves without the way back": [Patch(_right_broken, _halves_without_the_way_back)],
            "steps of zero refused": [Patch(is_multiple_of_axis, _no_zero_step)],
        },
        "slicing.intervals_4x2x2": _HALF,
        "slicing.boxes_of_two_dimensions": {
            "the outer index forgotten in merging": [Patch(_right_merge, _outer_index_forgotten)]
        },
        "grouping.group": {"a split keeps the whole iter's stride": [Patch(_right_group, _stride_of_the_whole)]},
        "grouping.group_many": {
            "repeated boundaries all at the first": [Patch(grouping._seps_of, _first_of_equal_boundaries)]
        },
        "canonical.form_to_rank_2": {
            "the outer iter continued by the inner": [Patch(canonical.canonical_shard, _joins_outwards)]
        },
        "canonical.difference": {"axes not compared": [Patch(equality.first_difference, _axes_not_compared)]},
        "tiling.tile": {
            "a span of e*|s|": [Patch(_right_spans, _one_step_too_far)],
            "the inner offset lost": [Patch(_right_sum, _inner_offset_lost)],
        },
        "tiling.direct_sum": {"boundaries that nobody needs": [Patch(tiling.merge_interleaved, _units_kept)]},
        "tiling.direct_sum_left_of": {
            "the known part compared by extents": [Patch(summands._check_known, _extents_compared)]
        },
        "summands.tile_outer_of": {
            "the known part's offset ignored": [Patch(_right_other, _known_offset_ignored)],
            "every quotient rounded": [Patch(exact_quotient, _rounded, summands)],
        },
        "sets.operations": {"the span of the shard alone": [Patch(_right_spans, _shard_alone)]},
        "packing.unpack": {"the neighbours outermost": [Patch(_right_unpack, _neighbours_outermost)]},
        "packing.pack": {"any stride taken for neighbours": [Patch(packing._outer_of_run, _any_run)]},
        "permuting.permute": {"groups reversed inside": [Patch(permuting.permute_groups, _reversed_inside)]},
        "recognise.recognise_values": {
            "the first 64 values looked at": [Patch(recognise._first_break, _first_64)],
            "a last block that is not whole ignored": [Patch(_right_column, _whole_blocks_only)],
            "differences that wrap at 64 bits": [Patch(recognise._from_zero, _wrapping)],
        },
        "compose.compose": {
            "negative strides taken positive": [
                Patch(_right_pieces, lambda a, p, extent, stride: _right_pieces(a, p, extent, abs(stride)))
            ],
            "A ends at its size": [Patch(_right_values, _no_end_of_a)],
        },
        "compose.complement": {"copies may meet": [Patch(compose._greedy_translates, _overlapping)]},
        "compose.right_inverse": {
            "addresses in between skipped": [Patch(inverses._right_by_digits, _gaps_skipped)],
            "no search beyond digits": [Patch(inverses._RightSearch.best, _gives_up, inverses._RightSearch)],
        },
        "compose.left_inverse": {
            "strides need not divide": [Patch(inverses._left_by_digits, _strides_need_not_divide)],
            "no search beyond digits": [Patch(inverses._LeftSearch.solve, _gives_up, inverses._LeftSearch)],
        },
        "axes.fuse_axes": {
            "the coarsest part the lightest": [Patch(_right_weights, _coarsest_lightest)],
            "replicas may leave their warp": [Patch(axes._replica_reach, _offset_alone)],
        },
        "bits.linear_maps": {"zero columns for the kernel": [Patch(_MAP.kernel, _zero_columns, _MAP)]},
    }
)
