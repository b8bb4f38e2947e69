"""Composition, complement, inverses, division and product: the algebra of CuTe, complete for integers.

These operations read a layout as a function from indices to addresses.  The order of digits is that of this library:
row-major, the last iter fastest.  CuTe writes the same function with its modes reversed (its first mode is fastest), so
``(4,8):(1,4)`` there is ``S[(8,4):(4,1)]`` here, and ``interop.cute`` converts.  A concatenation that CuTe writes
(B, C) is ``(C, B)`` here: the part that is fastest stands last.

    compose(A, B)(i)      = A(B(i)), A's slowest digit going on beyond its extent
    complement(A, n)      = the increasing c with disjoint image(A) + c, from 0 until they cover [0, n)
    right_inverse(A) = R:   A(R(i)) = i for i in [0, size R), as many as possible
    left_inverse(A)  = L:   L(A(i)) = i for every i
    logical_divide(A, B)  = A after (B, complement(B, size A)):  within a tile, then which tile
    logical_product(A, B) = A, then compose(complement(A, size A * cosize B), B)

*How they are decided.*  Split each digit of B at A's place values.  If every piece divides and no sum of pieces carries
in A, A is linear on them and the composition is read off at any size.  Otherwise the values decide: the recogniser
reads the layout off their table, or shows the first index at which there is none.  The same pairing of a digit rule
with an exact answer by values holds for the others; a question too large for both is an UndecidedError.

Example: A = S[(4,6):(1,8)] is the column-major (4, 6) tensor with pitch 8; its second column is
``compose(A, S[4:6] + 1)``, which is S[4:1] + 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.addresses import as_index, check_concrete, cosize, memory_axis, start_of
from layoutalg.algebra.canonical import canonical_shard, merge_progressions, sumset
from layoutalg.algebra.inverses import left_inverse, right_inverse
from layoutalg.algebra.recognise import recognise_values
from layoutalg.algebra.slicing import Interval, slice_iters
from layoutalg.axis import Axis, m
from layoutalg.decide import as_number
from layoutalg.errors import NotExpressibleError, RangeError, UndecidedError
from layoutalg.iters import Iter, Iters, Vector, size_of
from layoutalg.tile import TileLayout, _make

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "complement", "compose", "cosize", "left_inverse", "logical_divide", "logical_product", "right_inverse",
]  # fmt: skip

#: Compositions and complements that no digit rule decides are tabulated up to this many values.
MAX_TABLE = 1 << 22


def compose(a: TileLayout, b: TileLayout) -> TileLayout:
    """Return the layout with values ``A(B(i))``.

    Law (verify.laws.compose): at every i, A's slowest digit extended without bound; it refuses only where no layout
    has these values.  Offsets and replicas of A stay; B is an index, so it has neither replicas nor negative values.

    Raises:
        AxisError: B lives on several axes, or on one that is no memory axis.
        RangeError: B has replicas or reaches below 0.
        NotExpressibleError: no layout has these values; ``index`` is the first that shows it.
        UndecidedError: symbols, or a composition of over ``MAX_TABLE`` values that carries between A's digits.

    >>> print(compose(TileLayout.parse("S[(4,6):(1,8)]"), TileLayout.parse("S[4:6] + 1")))
    S[4:1] + 8
    """
    shard, start = as_index(b, "compose")
    check_concrete(a, "compose")
    outer = canonical_shard(a.shard)
    found = _by_digits(outer, shard, start)
    if found is None:
        size = int(size_of(shard))
        if size > MAX_TABLE:
            raise UndecidedError(
                f"compose: {b} carries between the digits of {a} and has {size} values; such compositions are decided "
                f"up to {MAX_TABLE}"
            )
        try:
            found = recognise_values(_values(outer, _table(shard, start)))
        except NotExpressibleError as error:
            raise NotExpressibleError(f"compose: {a} after {b} is no layout: {error}", index=error.index) from error
    offset = {Axis.get(name): value for name, value in a.offset.items()}
    for axis, value in found[1].items():
        if value:
            offset[axis] = offset.get(axis, 0) + value
    return _make(canonical_shard(found[0]), a.replica, offset)


def _table(shard: Iters, start: int) -> NDArray[np.int64]:
    from layoutalg.algebra.evaluate import table_of_iters

    table = table_of_iters(shard, {m: start}, (m,))[m]
    return table


def _values(a: Iters, index: NDArray[np.int64]) -> dict[Axis, NDArray[Any]]:
    """Return D(index) per axis, the outermost digit going on beyond its extent."""
    from layoutalg.algebra.evaluate import evaluate_exactly

    if not a:
        return {m: index * 0}
    inner = size_of(a[1:])
    outermost = a[0]._replace(extent=max(a[0].extent, int(index.max()) // inner + 1))
    return evaluate_exactly((outermost, *a[1:]), index)


def _by_digits(a: Iters, b: Iters, start: int) -> tuple[Iters, Vector] | None:
    """Compose where every digit of B divides at A's place values and no sum of them carries; else None."""
    if not a:
        return tuple(Iter(e, 0, m) for e, _, _ in b), {}
    places = [int(size_of(a[k + 1 :])) for k in range(len(a))]
    load = [0] * len(a)  # the largest digit of A that is reached, on top of the start
    low = [0] * len(a)
    offset: Vector = {}
    rest = start
    for k, place in enumerate(places):
        digit, rest = divmod(rest, place)
        load[k] = low[k] = digit
        offset[a[k].axis] = offset.get(a[k].axis, 0) + digit * a[k].stride
    result: list[Iter] = []
    for extent, stride, _ in b:
        pieces = _pieces(a, places, extent, stride)
        if pieces is None:
            return None
        for k, count, step in pieces:
            load[k] += max(0, (count - 1) * step)
            low[k] += min(0, (count - 1) * step)
            result.append(Iter(count, step * a[k].stride, a[k].axis))
    if any(load[k] >= a[k].extent for k in range(1, len(a))) or any(x < 0 for x in low):
        return None
    return tuple(result), offset


def _pieces(a: Iters, places: Sequence[int], extent: int, stride: int) -> list[tuple[int, int, int]] | None:
    """Split a digit of B into (digit of A, extent, step) pieces, outermost first; None where it does not divide."""
    if stride == 0:
        return [(0, extent, 0)]
    sign, stride = (1, stride) if stride > 0 else (-1, -stride)
    pieces: list[tuple[int, int, int]] = []
    for k in range(len(a) - 1, -1, -1):
        if k and stride % (places[k] * a[k].extent) == 0:
            continue
        step, rest = divmod(stride, places[k])
        if rest:
            return None
        if k == 0 or (extent - 1) * step < a[k].extent:
            return [(k, extent, sign * step), *pieces]
        count, uneven = divmod(a[k].extent, step)
        if uneven or extent % count:
            return None
        if count > 1:
            pieces.insert(0, (k, count, sign * step))
        extent, stride = extent // count, stride * count
    return pieces


def complement(a: TileLayout, cotarget: int) -> TileLayout:
    """Return the increasing translates c for which the images ``A + c`` are disjoint, from 0 until they cover
    ``[0, cotarget)``, as a layout.

    Each c is the least address that the earlier images left free, so the list is forced.

    Raises:
        AxisError: A lives on several axes or on a thread axis.
        RangeError: a cotarget below 1, or an image that does not start at 0.
        NotExpressibleError: an address that no further image can cover, or translates that are no layout.

    >>> print(complement(TileLayout.parse("S[4:2]"), 24))
    S[(3,2):(8,1)]
    """
    goal = as_number(cotarget, "the cotarget of a complement")
    axis, steps = _progressions(a, "complement")
    if type(goal) is not int or goal < 1:
        raise RangeError(f"complement: cotarget {goal} is below 1", cotarget=goal)
    gaps = _nested_gaps(steps)
    try:
        if gaps is not None:
            shard = _first_translates(gaps, goal)
        else:
            shard, _ = recognise_values({m: _greedy_translates(steps, goal, a, "complement")})
    except NotExpressibleError as error:
        raise NotExpressibleError(
            f"complement: the translates of {a} that cover [0, {goal}) are no layout: {error}", index=error.index
        ) from error
    return _make(canonical_shard(tuple(it._replace(axis=axis) for it in shard)), (), {})


def _progressions(a: TileLayout, what: str) -> tuple[Axis, list[tuple[int, int]]]:
    """Return the memory axis of a layout and the ``(stride, extent)`` of its image, which must start at 0."""
    check_concrete(a, what)
    axis = memory_axis(a, what)
    image, low = merge_progressions(it for it in (*a.shard, *a.replica) if it.axis is axis)
    start = start_of(a, axis, what) + low.get(axis, 0)
    if start != 0:
        raise RangeError(f"{what}: the image of {a} starts at {start}, not at 0; move it there first", start=start)
    return axis, [(int(s), int(e)) for s, e in image.get(axis, [])]


def _nested_gaps(steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Return the free digits (stride, extent) between nested progressions, the last without end (extent 0)."""
    gaps: list[tuple[int, int]] = []
    covered = 1
    for stride, extent in steps:
        if stride % covered:
            return None
        if stride > covered:
            gaps.append((covered, stride // covered))
        covered = stride * extent
    return [*gaps, (covered, 0)]


def _first_translates(gaps: Sequence[tuple[int, int]], goal: int) -> Iters:
    """Return the translates below the goal, the first ones of the endless complement of a nested image."""
    finer = [math.prod(extent for _, extent in gaps[:k]) for k in range(len(gaps))]
    count = _count_below(gaps, finer, goal)
    last = (gaps[-1][0], -(-count // finer[-1]))
    iters = tuple(Iter(extent, stride, m) for stride, extent in reversed([*gaps[:-1], last]))
    shard, _ = slice_iters(canonical_shard(iters), (last[1] * finer[-1],), (Interval(0, count),))
    return shard


def _count_below(gaps: Sequence[tuple[int, int]], finer: Sequence[int], goal: int) -> int:
    """Count the translates below the goal, digit by digit from the coarsest."""
    count = 0
    for (stride, extent), unit in zip(reversed(gaps), reversed(finer), strict=True):
        digit, goal = divmod(goal, stride)
        if extent and digit >= extent:
            return count + extent * unit
        count += digit * unit
    return count + (goal > 0)


def _greedy_translates(steps: Sequence[tuple[int, int]], goal: int, a: TileLayout, what: str) -> NDArray[np.int64]:
    """Cover [0, goal) address by address; an image that does not nest can do that only for small goals."""
    import numpy as np

    image = np.array(sorted(sumset(steps)))
    if goal > MAX_TABLE:
        raise UndecidedError(f"{what}: {a} does not nest; such images are decided up to cotarget {MAX_TABLE}")
    taken = np.zeros(goal + int(image[-1]) + 1, dtype=bool)
    translates: list[int] = []
    for address in range(goal):
        if taken[address]:
            continue
        if taken[image + address].any():
            raise NotExpressibleError(
                f"address {address} stays free, and an image that starts there meets an earlier one", index=address
            )
        taken[image + address] = True
        translates.append(address)
    return np.array(translates)


def logical_divide(a: TileLayout, b: TileLayout) -> TileLayout:
    """Divide A into tiles B: the index within a tile is the fast part, the tile's number the slow one.

    Law: ``logical_divide(A, B) = compose(A, (complement(B, size A), B))``, row-major.

    Raises:
        NotExpressibleError: B has no complement in A, or a composition that is no layout.

    Columns 0, 2, 4, ... first, of a (4, 8) row-major tensor:

    >>> print(logical_divide(TileLayout.parse("S[4,8]"), TileLayout.parse("S[4:2]")))
    S[(4,2,4):(8,1,2)]
    """
    check_concrete(a, "logical_divide")
    rest = complement(b, int(a.size))
    tiler = _make(rest.shard + b.shard, (), {})
    return compose(a, tiler)


def logical_product(a: TileLayout, b: TileLayout) -> TileLayout:
    """Repeat A as B says: A's index is the fast part, the copy's number the slow one.

    Law: ``logical_product(A, B) = (compose(C, B), A)``, row-major, C listing the translates of A that the complement
    lists, as far as B needs them; that list need not end where a layout does.

    Raises:
        NotExpressibleError: A has no complement, or a composition that is no layout.

    >>> print(logical_product(TileLayout.parse("S[4:2]"), TileLayout.parse("S[3:1]")))
    Traceback (most recent call last):
        ...
    layoutalg.errors.NotExpressibleError: compose: S[(2,2):(8,1)] after S[3:1] is no layout: ...
    >>> print(logical_product(TileLayout.parse("S[4:2]"), TileLayout.parse("S[4:1]")))
    S[(2,2,4):(8,1,2)]
    """
    copies = _copies(a, b)
    offset = {Axis.get(name): value for name, value in a.offset.items()}
    for name, value in copies.offset.items():
        offset[Axis.get(name)] = offset.get(Axis.get(name), 0) + value
    return _make(canonical_shard(copies.shard + a.shard), a.replica, offset)


def _copies(a: TileLayout, b: TileLayout) -> TileLayout:
    """Return the translates of A that B numbers."""
    axis, steps = _progressions(a, "logical_product")
    gaps, needed = _nested_gaps(steps), cosize(b)
    if gaps is not None:
        finer = math.prod(extent for _, extent in gaps[:-1])
        ends = (gaps[-1][0], -(-needed // finer))
        return compose(_make(tuple(Iter(e, s, axis) for s, e in reversed([*gaps[:-1], ends])), (), {}), b)
    shard, start = as_index(b, "logical_product")
    try:
        translates = _greedy_translates(steps, int(a.size) * needed, a, "logical_product")
        found, offset = recognise_values({axis: translates[_table(shard, start)]})
    except NotExpressibleError as error:
        raise NotExpressibleError(
            f"logical_product: the copies of {a} that {b} numbers are no layout: {error}", index=error.index
        ) from error
    return _make(found, (), offset)
