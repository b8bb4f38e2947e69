"""Fusing and splitting thread axes: one thread, counted in different ways.

A thread of a block is its lane within a warp and the warp's number; four warps are a warpgroup.  So

    tid_in_wg = 32*wid_in_wg + laneid      warpid = 4*wgid + wid_in_wg
    tx        = 32*warpid    + laneid      = 128*wgid + tid_in_wg

A :class:`~layoutalg.axis.Axis` says what it counts and within what; an *inner* axis (laneid, wid_in_wg, tid_in_wg) has
a fixed number of values, and the sums above are one-to-one only while its values stay in range.

``fuse_axes(into)`` multiplies every stride, replica and offset on a part by the part's weight and puts it on the whole:
``S[(2,4):(1@wgid,1@wid_in_wg)]`` fused into warpid is ``S[(2,4):(4,1)] = S[8:1@warpid]``.  It is refused when an inner
value leaves its range, which would make it a different thread of the wrong warp.

``split_axis(axis, into)`` goes back.  An iter whose stride is a multiple of the inner extent belongs to the outer part;
one that stays within the inner extent belongs to the inner part; one that runs across it is cut at the multiple, where
it must fit exactly.  What then remains is to see that no sum of inner digits carries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from layoutalg.algebra.canonical import canonical_shard, find_sumset, merge_progressions, sumset
from layoutalg.axis import Axis
from layoutalg.decide import Number, certainly_equal
from layoutalg.errors import AxisError, NotExpressibleError, UndecidedError
from layoutalg.index import Affine, bounds
from layoutalg.iters import Iter, Iters, vector_at

if TYPE_CHECKING:
    from layoutalg.algebra.tiling import Parts
    from layoutalg.tile import TileLayout

__all__ = ["fuse", "parts_of", "split"]

#: Every way to count the threads of a whole, coarsest part first; a part's weight is the product of the later extents.
_WAYS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "warpid": (("wgid", "wid_in_wg"),),
    "tid_in_wg": (("wid_in_wg", "laneid"),),
    "tx": (("wgid", "wid_in_wg", "laneid"), ("warpid", "laneid"), ("wgid", "tid_in_wg")),
}
#: A split map is tabulated to find the index of a failure up to this many points.
_MAX_TABLE: Final = 1 << 16


def parts_of(axis: Axis) -> tuple[tuple[Axis, ...], ...]:
    """Return every way to write the axis as a sum of finer ones, each coarsest first.

    Raises:
        AxisError: the axis is not counted by finer ones.

    >>> parts_of(Axis.get("warpid"))
    ((wgid, wid_in_wg),)
    """
    ways = _WAYS.get(axis.name)
    if ways is None:
        raise AxisError(f"{axis.name} is not made of finer axes; these are: {', '.join(_WAYS)}", axis=axis.name)
    return tuple(tuple(Axis.get(name) for name in way) for way in ways)


def _weights(way: Sequence[Axis]) -> dict[Axis, int]:
    """Return the weight of every part: the number of threads (or warps) that one step of it counts."""
    weights: dict[Axis, int] = {}
    weight = 1
    for axis in reversed(way):
        weights[axis] = weight
        weight *= axis.extent or 1
    return weights


def fuse(layout: TileLayout, into: str | Axis) -> Parts:
    """Count the threads of a layout on one axis.

    Law (verify.laws.axes): the new coordinate is the weighted sum of the old ones, at every place.

    Raises:
        AxisError: the axis is no sum of others, or the layout counts its threads in two ways at once.
        NotExpressibleError: an inner value leaves its range; ``index`` is the first element where it does.

    >>> from layoutalg.tile import TileLayout
    >>> fuse(TileLayout.parse("S[8:1@laneid] + 1@warpid + 2@laneid"), "tx")
    Parts(shard=(8:1@tx,), replica=(), offset={tx: 34})
    """
    from layoutalg.algebra.tiling import Parts

    whole = Axis.get(into)
    weights = _weights(_way_of(layout, whole))
    _check_ranges(layout, [axis for axis in layout.axes if axis in weights and axis.extent], f"fuse_axes into {whole}")

    def moved(iters: Iters) -> Iters:
        return tuple(Iter(e, s * weights[a], whole) if a in weights else Iter(e, s, a) for e, s, a in iters)

    offset: dict[Axis, Number] = {}
    for name, value in layout.offset.items():
        axis = Axis.get(name)
        to, scaled = (whole, value * weights[axis]) if axis in weights else (axis, value)
        offset[to] = offset.get(to, 0) + scaled
    return Parts(canonical_shard(moved(layout.shard)), moved(layout.replica), offset)


def _way_of(layout: TileLayout, whole: Axis) -> tuple[Axis, ...]:
    """Return the way to count that the layout uses, none where there is nothing to fuse.

    A mixture, in which one thread has two names, is refused: before and after, the axes must be some of one way.
    """
    ways = parts_of(whole)
    tx = Axis.get("tx")
    systems = [{tx}, *map(set, parts_of(tx))]
    used = [axis for axis in layout.axes if any(axis in system for system in systems)]
    if not any(axis in way for axis in used for way in ways):
        return ()
    if any(system.issuperset(used) for system in systems):
        for way in ways:
            after = {*used, whole} - set(way)
            if not after.isdisjoint(used) and whole is tx:
                continue
            if any(system.issuperset(after) for system in systems):
                return way
    choices = " or ".join(" + ".join(axis.name for axis in way) for way in ways)
    raise AxisError(
        f"fuse_axes: {whole} = {choices}, but {layout} uses {', '.join(axis.name for axis in used)}; "
        f"fuse or split the others first",
        axis=whole.name,
        used=tuple(axis.name for axis in used),
    )


def _check_ranges(layout: TileLayout, axes: Sequence[Axis], what: str) -> None:
    """Every value on an inner axis lies in [0, extent); else say where one first does not."""
    found = [first for axis in axes if (first := _first_outside(layout, axis, what)) is not None]
    if found:
        index, value, axis = min(found, key=lambda first: first[0])
        raise NotExpressibleError(
            f"{what}: {axis.name} is {value} at index {index}, outside [0, {axis.extent})",
            index=index,
            axis=axis.name,
            value=value,
        )


def _first_outside(layout: TileLayout, axis: Axis, what: str) -> tuple[int, int, Axis] | None:
    """Return the first index with a value outside the axis's range, and that value."""
    low, high = _replica_reach(layout, axis)
    iters = [(int(it.extent), int(it.stride), it.axis is axis) for it in _concrete(layout.shard, what)]
    over = _first_index(iters, (axis.extent or 0) - high)
    under = _first_index([(e, -s, on) for e, s, on in iters], low + 1)
    if over is None and under is None:
        return None
    index = min(x for x in (over, under) if x is not None)
    value = vector_at(layout.shard, index).get(axis, 0) + (high if over == index else low)
    return index, value, axis


def _replica_reach(layout: TileLayout, axis: Axis) -> tuple[int, int]:
    """Return the least and the greatest of O + R on the axis, over all values of the parameters."""
    low, high = bounds(layout.offset.get(axis.name, 0))
    for extent, stride, on in _concrete(layout.replica, "fuse_axes"):
        if on is axis:
            low, high = low + min(0, (extent - 1) * stride), high + max(0, (extent - 1) * stride)
    return low, high


def _concrete(iters: Iters, what: str) -> Iters:
    if not all(type(x) is int for it in iters for x in it[:2]):
        raise UndecidedError(f"{what}: whether threads stay in range is decided for numbers, not for {iters}")
    return iters


def _first_index(iters: Sequence[tuple[int, int, bool]], goal: int) -> int | None:
    """Return the first index whose sum over the marked digits is at least the goal.

    Digit by digit from the outermost: the least digit after which the rest can still reach the goal.
    """
    rest = sum((e - 1) * s for e, s, on in iters if on and s > 0)
    if rest < goal:
        return None
    index = total = 0
    for extent, stride, on in iters:
        digit = 0
        if on and stride > 0:
            rest -= (extent - 1) * stride
            digit = min(extent - 1, max(0, -((rest + total - goal) // stride)))
            total += digit * stride
        index = index * extent + digit
    return index


def split(layout: TileLayout, axis: str | Axis, into: Sequence[str | Axis]) -> Parts:
    """Count the threads of one axis by finer ones.

    Law (verify.laws.axes): the weighted sum of the new coordinates is the old one, and inner ones stay in range.

    Args:
        axis: ``tx``, ``warpid`` or ``tid_in_wg``.
        into: the finer axes, in any order, such as ``("warpid", "laneid")``.

    Raises:
        AxisError: the finer axes do not make up the axis, or the layout uses one of them already.
        NotExpressibleError: no layout has these values; ``index`` shows it.

    >>> from layoutalg.tile import TileLayout
    >>> split(TileLayout.parse("S[128:1@tx] + 32@tx"), "tx", ("warpid", "laneid"))
    Parts(shard=(4:1@warpid, 32:1@laneid), replica=(), offset={warpid: 1})
    """
    from layoutalg.algebra.tiling import Parts

    whole = Axis.get(axis)
    way = _chosen_way(layout, whole, into)
    parts = Parts(
        canonical_shard(layout.shard), layout.replica, {Axis.get(name): value for name, value in layout.offset.items()}
    )
    rest = whole
    for position in range(len(way) - 1, 0, -1):
        outer = way[0] if position == 1 else rest
        parts = _split_once(parts, rest, outer, way[position], layout)
        rest = outer
    return parts


def _chosen_way(layout: TileLayout, whole: Axis, into: Sequence[str | Axis]) -> tuple[Axis, ...]:
    ways = parts_of(whole)
    if isinstance(into, (str, Axis)) or not isinstance(into, Sequence):
        raise AxisError(
            f"split_axis: into is a sequence of axes such as {tuple(a.name for a in ways[0])}, not {into!r}"
        )
    chosen = {Axis.get(name) for name in into}
    way = next((way for way in ways if set(way) == chosen), None)
    if way is None or len(chosen) != len(into):
        choices = " or ".join(" + ".join(a.name for a in way) for way in ways)
        raise AxisError(f"split_axis: {whole} = {choices}, not {' + '.join(str(a) for a in into)}", axis=whole.name)
    twice = [a.name for a in layout.axes if a in chosen]
    if twice and whole in layout.axes:
        raise AxisError(f"split_axis: {layout} uses {', '.join(twice)} beside {whole} already", axis=whole.name)
    return way


def _split_once(parts: Parts, whole: Axis, outer: Axis, inner: Axis, layout: TileLayout) -> Parts:
    """Write ``whole = k*outer + inner`` with k the inner extent; outer may be the whole axis again, for the rest."""
    from layoutalg.algebra.tiling import Parts

    k = inner.extent or 1
    what = f"split_axis {whole} into {outer} + {inner}"
    quotient, rest = _divide_offset(parts.offset.get(whole, 0), k)
    shard = _cut(_concrete(parts.shard, what), whole, outer, inner)
    replica = _cut(_concrete(parts.replica, what), whole, outer, inner)
    low, high = bounds(rest)
    for extent, stride, axis in (*shard, *replica):
        if axis is inner:
            low, high = low + min(0, (extent - 1) * stride), high + max(0, (extent - 1) * stride)
    offset = {a: v for a, v in parts.offset.items() if a is not whole}
    if low < 0 or high >= k:
        if type(rest) is not int or type(quotient) is not int:
            raise NotExpressibleError(f"{what}: {inner} runs from {low} to {high} for some value of {rest}", index=0)
        shard, replica, start = _split_by_table(parts, whole, outer, inner, layout)
        offset |= start
    else:
        offset |= {axis: value for axis, value in ((outer, quotient), (inner, rest)) if not certainly_equal(value, 0)}
    return Parts(canonical_shard(shard), replica, offset)


def _divide_offset(value: Number, k: int) -> tuple[Number, Number]:
    """Return quotient and remainder of an offset; of an affine one, term by term."""
    if not isinstance(value, Affine):
        return value // k, value % k
    quotient, rest = divmod(value.const, k)
    total: tuple[Number, Number] = (quotient, rest)
    for param, c in value.terms:
        times, left = (c // k, 0) if c % k == 0 else (0, c)
        total = total[0] + times * param, total[1] + left * param
    return total


def _cut(iters: Iters, whole: Axis, outer: Axis, inner: Axis) -> Iters:
    """Send every iter of the whole axis to the part it belongs to; one that runs across k is cut there."""
    k = inner.extent or 1
    result: list[Iter] = []
    for extent, stride, axis in iters:
        run = k // math.gcd(k, stride)
        if axis is not whole:
            result.append(Iter(extent, stride, axis))
        elif run == 1:
            result.append(Iter(extent, stride // k, outer))
        elif extent > run and extent % run == 0 and abs(stride) < k:
            result += [Iter(extent // run, run * stride // k, outer), Iter(run, stride, inner)]
        else:
            result.append(Iter(extent, stride, inner))
    return tuple(result)


def _split_by_table(
    parts: Parts, whole: Axis, outer: Axis, inner: Axis, layout: TileLayout
) -> tuple[Iters, Iters, dict[Axis, Number]]:
    """Decide a split whose digits carry from its values: shard, replica and offset on the two axes."""
    import numpy as np

    from layoutalg.algebra.evaluate import table_of_iters
    from layoutalg.algebra.recognise import recognise_values

    k = inner.extent or 1
    what = f"split_axis {whole} into {outer} + {inner} in {layout}"
    others = tuple(it for it in parts.replica if it.axis is not whole)
    pairs, low = merge_progressions(it for it in parts.replica if it.axis is whole)
    moves = np.array(sorted(sumset(pairs.get(whole, []), whole.name)))
    size = math.prod(it.extent for it in parts.shard)
    if size * moves.size > _MAX_TABLE:
        raise UndecidedError(f"{what} carries between the axes; such maps are decided up to {_MAX_TABLE} places")
    table = table_of_iters(parts.shard, {}, tuple({it.axis: None for it in parts.shard} | {whole: None}))
    values = table.pop(whole)[:, None] + (parts.offset.get(whole, 0) + low.get(whole, 0) + moves)
    columns = {outer: values // k, inner: values % k}
    for column in columns.values():
        wrong = np.flatnonzero((column - column[:, :1] != column[:1] - column[0, 0]).any(axis=1))
        if wrong.size:
            raise NotExpressibleError(
                f"{what}: the replicas of index {int(wrong[0])} lie apart differently from those of index 0",
                index=int(wrong[0]),
            )
    replica, start = _replicas_of({axis: column[0] for axis, column in columns.items()}, what)
    if outer in table:
        raise NotExpressibleError(f"{what}: {outer} occurs beside {whole}")
    try:
        shard, first = recognise_values({**table, **{axis: column[:, 0] for axis, column in columns.items()}})
    except NotExpressibleError as error:
        raise NotExpressibleError(f"{what}: {error}", index=error.index) from error
    offset = {axis: first.get(axis, 0) + start[axis] for axis in (outer, inner)}
    return shard, others + replica, {axis: value for axis, value in offset.items() if value}


def _replicas_of(columns: dict[Axis, Any], what: str) -> tuple[Iters, dict[Axis, int]]:
    """Read the replicas of the first element, which must be every combination of the moves on either axis."""
    iters: list[Iter] = []
    start: dict[Axis, int] = {}
    count = 1
    for axis, column in columns.items():
        moves = {int(x) for x in column}
        start[axis] = min(moves) - int(column[0])
        pairs = find_sumset(frozenset(x - min(moves) for x in moves))
        if pairs is None:
            raise NotExpressibleError(f"{what}: the replicas on {axis} are no sum of progressions", index=0)
        count *= len(moves)
        iters.extend(Iter(extent, stride, axis) for stride, extent in pairs)
    if count != len(set(zip(*(map(int, column) for column in columns.values()), strict=True))):
        raise NotExpressibleError(f"{what}: the replicas move on both axes at once", index=0)
    return tuple(iters), start
