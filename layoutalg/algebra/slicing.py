"""Slicing: restrict a layout to a box, and say exactly when that is a layout again.

Take one dimension with canonical digits, innermost extent E and stride S, and the interval [b, b+n).  Write
``b = u*E + d``.  Within a block of E the values run with step S.  Crossing from block u to u+1 steps by
``V(u+1) - V(u) - (E-1)*S``, V being the map of the outer digits; in a canonical list this equals S only where a
carry goes further up and the strides happen to agree (a *smooth* crossing), never twice in a row.

The innermost iter of the answer is its longest run from the start, so the answer is forced:

* d = 0 and E divides n: slice the outer digits to n/E and keep ``(E: S)`` (*peel*);
* inside one block, d + n <= E: ``(n: S)``;
* the first crossing is smooth: the run is 2E-d long.  One run: ``(n: S)``.  Two runs of it need the third crossing
  smooth as well: ``(2: jump, 2E-d: S)``;
* the first crossing is a break, d > 0: the run is c = E-d long.  Two runs: ``(2: jump, c: S)`` (*two halves*).  More
  only for 2d = E and outer values in one progression of step g: ``(q: g, 2: g - d*S, d: S)`` (*half shift*).

In every other case a run would have to break inside a block, so no layout exists.  Nothing is tabulated: every test
looks at O(rank) digits.  Dimensions are independent: the box of a grouped layout is a layout exactly when each
dimension's interval is (a run that breaks at multiples of e only cannot fit a dimension that is no multiple of e).

A shape whose boundaries the layout does not have is first simplified: full inner dimensions and single outer indices
merge with their neighbours, inner dimensions that group are sliced alone, and whole inner digits are taken off.  What
still does not group is the business of :mod:`layoutalg.algebra.ragged`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.grouping import Shape, group_iters, show_iters, show_shape
from layoutalg.algebra.ragged import Box, affine_digits, read_box, take_off_whole_digits
from layoutalg.decide import Number, as_number, at_most, certainly_equal, exact_quotient
from layoutalg.errors import NotExpressibleError, RegionError, UndecidedError
from layoutalg.index import Affine, bounds, divide, flatten
from layoutalg.iters import (
    Iter,
    Iters,
    Vector,
    combine,
    is_multiple_of_axis,
    show_vector,
    vector_at,
    vector_step,
    vectors_equal,
)

__all__ = ["Interval", "Region", "check_region", "slice_iters", "slice_plain"]


class Interval(NamedTuple):
    """``[begin, begin + length)`` of one dimension; begin may hold parameters or symbols, length symbols."""

    begin: Number
    length: Number

    def __str__(self) -> str:
        return f"[{self.begin}, {self.begin + self.length})"


Region = tuple[Interval, ...]


class _NoRunError(Exception):
    """No layout has the interval's values: the index within the interval that shows it, and why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index, self.reason = index, reason


def check_region(region: object, shape: Shape) -> Region:
    """Return a checked box: one ``(begin, end)`` or single index per dimension, not empty and inside the shape.

    Raises:
        RegionError: wrong rank, empty, out of bounds for some parameter value, or a length that is no constant.

    >>> check_region([(1, 3), 4], (4, 8))
    (Interval(begin=1, length=2), Interval(begin=4, length=1))
    """
    if isinstance(region, (str, bytes)) or not isinstance(region, Sequence):
        raise RegionError(f"a region is one (begin, end) or index per dimension, not {region!r}", region=region)
    if len(region) != len(shape):
        raise RegionError(f"region has {len(region)} dimensions, the shape {shape} has {len(shape)}", shape=shape)
    found: list[Interval] = []
    for dim, (entry, extent) in enumerate(zip(region, shape, strict=True)):
        if type(entry) is tuple and len(entry) == 2:
            begin, end = entry
            if type(begin) is type(end) is type(extent) is int and 0 <= begin < end <= extent:
                found.append(Interval(begin, end - begin))
                continue
        found.append(_check_interval(entry, extent, dim, shape))
    return tuple(found)


def _check_interval(entry: object, extent: Number, dim: int, shape: Shape) -> Interval:
    if isinstance(entry, Interval):
        begin, end = entry.begin, entry.begin + entry.length
    elif isinstance(entry, (tuple, list)):
        if len(entry) != 2:
            raise RegionError(f"region[{dim}] = {entry!r} must be (begin, end) or one index", dim=dim)
        begin, end = (as_number(x, f"region[{dim}]") for x in entry)
    else:
        begin = as_number(entry, f"region[{dim}]")
        end = begin + 1
    count = end - begin
    if isinstance(count, Affine):
        raise RegionError(f"region[{dim}] = [{begin}, {end}) has the length {count}, which is no constant", dim=dim)
    if not at_most(1, count):
        raise RegionError(f"region[{dim}] = [{begin}, {end}) is empty", dim=dim, begin=begin, end=end)
    if not _is_inside(begin, end, extent, shape):
        raise RegionError(f"region[{dim}] = [{begin}, {end}) leaves [0, {extent})", dim=dim, begin=begin, end=end)
    return Interval(begin, count)


def _is_inside(begin: Number, end: Number, extent: Number, shape: Shape) -> bool:
    """Decide 0 <= begin and end <= extent; a symbolic index that no size knows is inside unless it cannot be."""
    if type(extent) is int and isinstance(begin, (int, Affine)):
        return bounds(begin)[0] >= 0 and bounds(end)[1] <= extent
    try:
        return at_most(0, begin) and at_most(end, extent)
    except UndecidedError:
        from layoutalg.symbolic import is_index

        if not is_index(begin, shape):
            raise
        return True


def slice_plain(iters: Iters, shape: object, region: object) -> tuple[Iters, Vector] | None:
    """Slice where each dimension is one iter and all numbers are ints, the common case; None where that is not so.

    The same answer as :func:`slice_iters`, whose checks and general rules take over for everything else.

    >>> from layoutalg.iters import make_iter
    >>> slice_plain((make_iter(4, 8), make_iter(8, 1)), (4, 8), ((1, 3), 5))
    ((2:8, 1:1), {m: 13})
    """
    if type(shape) is not tuple or type(region) is not tuple or not len(iters) == len(shape) == len(region):
        return None
    result: list[Iter] = []
    offset: Vector = {}
    for (extent, stride, axis), wanted, entry in zip(iters, shape, region, strict=True):
        if type(entry) is tuple and len(entry) == 2:
            begin, end = entry
        elif type(entry) is int:
            begin, end = entry, entry + 1
        else:
            return None
        if not type(extent) is type(stride) is type(wanted) is type(begin) is type(end) is int:
            return None
        if wanted != extent or not 0 <= begin < end <= extent:
            return None
        result.append(Iter(end - begin, stride, axis))
        if begin and stride:
            offset[axis] = offset.get(axis, 0) + begin * stride
    return tuple(result), offset


def slice_iters(iters: Iters, shape: Shape, region: Region) -> tuple[Iters, Vector]:
    """Return shard and offset of the box of a canonical shard, ``Y(r) = L(begin + r)``.

    Law (verify.laws.slicing): right at every index of the box; refuses only where no layout has these values.

    Raises:
        NotExpressibleError: ``index`` is the first index of the box at which every layout fails; with parameters or
            symbols, the index that the rule names.
        UndecidedError: dimensions that the layout does not group by fall into over 2^15 parts on each of which the
            values are a sum of digits.

    >>> from layoutalg.iters import make_iter
    >>> slice_iters((make_iter(4, 10), make_iter(4, 1)), (16,), (Interval(2, 8),))
    ((2:10, 2:8, 2:1), {m: 2})
    """
    extents, box = _merge_dimensions(shape, region)
    grouped, seps, whole, why = _group_from_the_end(iters, extents)
    parts: list[Iters] = []
    offset: Vector = {}
    inner: Number = 1
    for dim in range(len(extents) - 1, whole - 1, -1):
        part = canonical_shard(grouped[seps[dim - len(extents) - 1] : seps[dim - len(extents)]])
        begin, count = box[dim]
        try:
            sliced, start = _interval(part, begin, count)
        except _NoRunError as stop:
            index = stop.index * inner
            if _is_concrete(iters, region):
                index = _first_failure(iters, extents, box)
            raise _refusal(iters, shape, region, stop.reason, index) from None
        except NotExpressibleError as error:
            raise _parameter_refusal(region, error) from error
        parts.insert(0, sliced)
        offset = combine(offset, start)
        inner *= count
    if why is not None:
        outer = canonical_shard(grouped[: seps[1]])
        sliced, start = _slice_ragged(outer, extents[:whole], box[:whole], inner, why)
        parts.insert(0, sliced)
        offset = combine(offset, start)
    return tuple(it for part in parts for it in part), offset


def _group_from_the_end(iters: Iters, shape: Shape) -> tuple[Iters, tuple[int, ...], int, NotExpressibleError | None]:
    """Group by the shape, or by as many of its last dimensions as have boundaries.

    Returns the iters and separators, how many leading dimensions form the first group, and why they do (None where
    every dimension is a group of its own).
    """
    try:
        return *group_iters(iters, shape), 0, None
    except NotExpressibleError as error:
        whole = error.facts["dim"] + 1
        return *group_iters(iters, (math.prod(shape[:whole]), *shape[whole:])), whole, error


def _merge_dimensions(shape: Shape, region: Region) -> tuple[Shape, Region]:
    """Merge a dimension with its outer neighbour when the inner one is full or the outer one a single index."""
    extents: list[Number] = []
    box: list[Interval] = []
    for extent, interval in zip(shape, region, strict=True):
        if extents:
            outer = box[-1]
            full = certainly_equal(interval.length, extent) and certainly_equal(interval.begin, 0)
            if full or certainly_equal(outer.length, 1):
                begin = outer.begin * extent + interval.begin
                count = outer.length * extent if full else interval.length
                extents[-1], box[-1] = extents[-1] * extent, Interval(begin, count)
                continue
        extents.append(extent)
        box.append(interval)
    return tuple(extents), tuple(box)


def _interval(iters: Iters, begin: Number, count: Number) -> tuple[Iters, Vector]:
    """Slice one dimension: the iters of ``[begin, begin + count)`` and the place of its start."""
    if certainly_equal(count, 1):
        return (), vector_at(iters, begin)
    extent, stride, axis = iters[-1]
    if len(iters) == 1:
        return (Iter(count, stride, axis),), {axis: begin * stride}
    u, d = divide(begin, extent)
    outer = iters[:-1]
    if certainly_equal(d, 0):
        blocks = _blocks(count, extent)
        if blocks is not None:
            sliced, start = _peel(outer, u, blocks, extent)
            return (*sliced, iters[-1]), start
    start = combine(vector_at(outer, u), {axis: d * stride})
    if at_most(d + count, extent):
        return (Iter(count, stride, axis),), start
    if not all(type(value) is int for value in (d, count, extent)):
        raise UndecidedError(
            f"slice: [{begin}, {begin + count}) runs across blocks of {extent} elements; whether its parts form one "
            f"layout depends on the values of the symbols. State the sizes as multiples of {extent}, or slice apart",
            question=("<=", d + count, extent),
        )
    first = vector_step(outer, u)
    if vectors_equal(first, {axis: extent * stride}):
        return _smooth(outer, u, d, count, iters[-1]), start
    return _broken(outer, u, d, count, iters[-1]), start


def _blocks(count: Number, extent: Number) -> Number | None:
    """Return count / extent if exact; with symbols only where that is known."""
    try:
        return exact_quotient(count, extent)
    except UndecidedError:
        return None


def _peel(outer: Iters, u: Number, count: Number, extent: Number) -> tuple[Iters, Vector]:
    try:
        return _interval(outer, u, count)
    except _NoRunError as stop:
        raise _NoRunError(stop.index * extent, stop.reason) from None


def _smooth(outer: Iters, u: Number, d: int, count: int, inner: Iter) -> Iters:
    """The first crossing steps by S too, so the first run ends at the second crossing."""
    extent, stride, axis = inner
    run = 2 * extent - d
    if count <= run:
        return (Iter(count, stride, axis),)
    if count % run:
        raise _NoRunError(run, f"the first run has {run} elements, which do not divide {count}")
    if count != 2 * run or not vectors_equal(vector_step(outer, u + 2), {axis: extent * stride}):
        raise _NoRunError(run + extent, f"the first run has {run} elements, a later one breaks after {extent}")
    jump = combine(vector_step(outer, u), vector_step(outer, u + 1), {axis: -d * stride})
    return (_one_axis(2, jump, run), Iter(run, stride, axis))


def _broken(outer: Iters, u: Number, d: int, count: int, inner: Iter) -> Iters:
    """The first crossing is a break after c = E - d elements; d > 0 unless E does not divide the count."""
    extent, stride, axis = inner
    c = extent - d
    if count % c or d == 0:
        raise _NoRunError(c, f"the first run has {c} elements, which do not divide {count}")
    jump = combine(vector_step(outer, u), {axis: -d * stride})
    blocks = count // c
    head = _one_axis(2, jump, c)
    if blocks == 2:
        return (head, Iter(c, stride, axis))
    if blocks % 2:
        raise _NoRunError(2 * c, f"pairs of runs of {c} elements do not divide {count}")
    if 2 * d != extent:
        crossing = c + extent
        inside = 2 * c > extent and not vectors_equal(vector_step(outer, u + 1), {axis: extent * stride})
        raise _NoRunError(crossing if inside else 3 * c, f"runs of {c} elements do not repeat in steps of one size")
    half = blocks // 2
    pitch = _one_axis(half, vector_step(outer, u), extent)
    reach = _run_length(outer, u, half + 1)
    if reach <= half:
        raise _NoRunError(c + (reach - 1) * extent, "the half-shifted blocks are not evenly spaced")
    return (pitch, head, Iter(c, stride, axis))


def _run_length(iters: Iters, begin: Number, limit: int) -> int:
    """Return how many values from begin (at most limit, at least 2) form one progression."""
    if len(iters) == 1:
        return limit
    extent, stride, axis = iters[-1]
    u, d = divide(begin, extent)
    if d + limit <= extent:
        return limit
    if vectors_equal(vector_step(iters[:-1], u), {axis: extent * stride}):
        return min(limit, int(2 * extent - d))
    return max(2, int(extent - d))


def _one_axis(extent: int, vector: Vector, index: int) -> Iter:
    """Make an iter of a step vector, which must lie on one axis."""
    found = is_multiple_of_axis(vector)
    if found is None:
        raise _NoRunError(index, f"the step there is {show_vector(vector)}, and one iter has one axis")
    return Iter(extent, *found)


def _slice_ragged(
    iters: Iters, shape: Shape, region: Region, inner: int, why: NotExpressibleError
) -> tuple[Iters, Vector]:
    """Slice dimensions that the layout does not group by; a point of them is ``inner`` elements of the box."""
    asked = f"slice: {show_region(region)} of {show_iters(iters)} as {show_shape(shape)}"
    if not all(type(x) is int for x in (*(it.extent for it in iters), *shape, *(x for i in region for x in i))):
        raise NotExpressibleError(
            f"{asked} has a symbolic begin or extent, and the layout does not follow the shape's dimensions. {why}",
            region=region,
        ) from why
    box = _box(iters, shape, region)
    start = vector_at(iters, flatten(box.begin, shape))
    rest, full = take_off_whole_digits(box)
    if not _is_concrete(iters, region):
        digits = affine_digits(rest)
        if digits is None:
            raise UndecidedError(
                f"{asked}: the values are no sum of digits for all strides; numbers would decide. {why}", region=region
            ) from why
        return (*digits, *full), start
    point = inner * math.prod(it.extent for it in full)
    try:
        return (*read_box(rest), *full), start
    except NotExpressibleError as error:
        index = error.index * point
        reason = f"every layout that agrees before index {index} of the box fails there"
        raise NotExpressibleError(f"{asked} is no layout: {reason}", index=index, region=region) from error
    except UndecidedError as error:
        raise UndecidedError(f"{asked} fits no regrouping: {error}. {why}", region=region) from why


def _first_failure(iters: Iters, shape: Shape, region: Region) -> int:
    """Return the first index at which every layout fails, of a box that a rule has shown to be none."""
    try:
        read_box(_box(iters, shape, region))
    except NotExpressibleError as error:
        return int(error.index)
    raise AssertionError(f"the rules refuse {show_region(region)} of {show_iters(iters)}, which is a layout")


def _box(iters: Iters, shape: Shape, region: Region) -> Box:
    return Box(iters, shape, tuple(i.begin for i in region), tuple(i.length for i in region))


def _refusal(iters: Iters, shape: Shape, region: Region, reason: str, index: Number) -> NotExpressibleError:
    return NotExpressibleError(
        f"slice: {show_region(region)} of {show_iters(iters)} as {show_shape(shape)} is no layout: {reason} "
        f"(first seen at index {index} of the box). Slice the two sides of that index apart",
        index=index,
        region=region,
        reason=reason,
    )


def _parameter_refusal(region: Region, error: NotExpressibleError) -> NotExpressibleError:
    """Say which dimension of the region holds the parameter that the result would not be affine in."""
    name = error.facts["param"]
    dim, interval = next((k, i) for k, i in enumerate(region) if name in _parameters(i.begin))
    return NotExpressibleError(
        f"slice: region[{dim}] = {interval}: {error}. Multiply the parameter, or make the inner dimensions full",
        **{**error.facts, "dim": dim},
    )


def _parameters(begin: Number) -> set[str]:
    return {param.name for param, _ in begin.terms} if isinstance(begin, Affine) else set()


def _is_concrete(iters: Iters, region: Region) -> bool:
    numbers = [x for it in iters for x in it[:2]] + [x for interval in region for x in interval]
    return all(type(x) is int for x in numbers)


def show_region(region: Region) -> str:
    """Spell a region as the product of its intervals.

    >>> show_region((Interval(0, 2), Interval(4, 1)))
    '[0, 2) x [4, 5)'
    """
    return " x ".join(map(str, region))
