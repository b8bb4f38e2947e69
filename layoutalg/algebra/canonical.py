"""The canonical form: one way to write each layout, so that equality of maps is equality of values.

**The shard.** ``(4:8, 8:1)`` and ``(32:1)`` are the same map: when an iter's stride equals the extent times the
stride of its inner neighbour on the same axis, the two digits count as one.  Dropping unit iters, moving zero
strides to axis ``m`` and merging neighbours until nothing merges leaves a unique list.  *Why unique:* the last
extent is the length of the longest run n -> n*s from the start, which the map determines; the rest is the map of
the run starts, and so on outward.  (Were the merged run longer than the last extent, the neighbour would have merged.)

**The replica.** A replica is a set of translations, a sumset of progressions.  Iters on different axes are
independent.  On one axis strides are made positive (the difference goes to the offset), and
``{0..e-1}*s + {0..f-1}*t`` with ``s | t`` and ``t <= e*s`` is one progression.  Several lists can still give the same
set: ``R(2:3, 6:2)`` and ``R(3:2, 4:3)``.  The canonical one has the fewest iters and is then the least list of
(stride, extent) in increasing stride, found by search on the explicit set.

**Equality.** A finite set has only one translation onto another, so a layout determines both its shard's map and the
set offset + replicas.  Equality compares these, and needs no factorisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from layoutalg.axis import Axis, m
from layoutalg.decide import Number, at_most, certainly_equal, equal, exact_quotient, joins
from layoutalg.errors import UndecidedError
from layoutalg.iters import Iter, Iters, Vector

__all__ = ["canonical_replica", "canonical_shard", "factor_sumset", "find_sumset", "merge_progressions", "sumset"]

#: Sets of replica translations are enumerated up to this many elements per axis.
MAX_SET = 1 << 16
#: Partial factorisations looked at before the search for the fewest iters gives up.
MAX_NODES = 200_000


def canonical_shard(iters: Iters, *, strict: bool = False) -> Iters:
    """Return the unique shortest list with the same map; the same tuple when nothing changes.

    Law (verify.laws.canonical): D is the same map, and equal maps give equal lists.

    With symbols the list is the shortest that is right for all their values; ``strict`` raises UndecidedError where
    the values decide whether two neighbours merge, otherwise they stay apart.

    >>> from layoutalg.iters import make_iter
    >>> canonical_shard((make_iter(4, 8), make_iter(1, 5), make_iter(8, 1)))
    (32:1,)
    """
    kept: list[Iter] = []  # innermost first
    last: Iter | None = None  # the iter that neighbours are merged into: its numbers are in inner_*
    inner_extent: Number = 0
    inner_stride: Number = 0
    inner_axis: Axis | None = None
    changed = grown = False
    for it in reversed(iters):
        extent, stride, axis = it
        if extent == 1 if type(extent) is int else certainly_equal(extent, 1):
            changed = True
            continue
        if axis is not m and (stride == 0 if type(stride) is int else certainly_equal(stride, 0)):
            axis, changed = m, True
            it = Iter(extent, 0, m)
        if axis is inner_axis and (
            stride == inner_extent * inner_stride
            if type(stride) is type(inner_extent) is type(inner_stride) is int
            else _joins(stride, inner_extent, inner_stride, extent, strict=strict)
        ):
            inner_extent = extent * inner_extent
            changed = grown = True
            continue
        if last is not None:
            kept.append(Iter(inner_extent, inner_stride, last[2]) if grown else last)
        last, inner_extent, inner_stride, inner_axis, grown = it, extent, stride, axis, False
    if not changed:
        return iters
    if last is not None:
        kept.append(Iter(inner_extent, inner_stride, last[2]) if grown else last)
    return tuple(reversed(kept))


def _joins(stride: Number, inner_extent: Number, inner_stride: Number, extent: Number, *, strict: bool) -> bool:
    try:
        return joins(stride, inner_extent, inner_stride, extent)
    except UndecidedError:
        if strict:
            raise
        return False


def merge_progressions(iters: Iterable[Iter]) -> tuple[dict[Axis, list[tuple[Number, Number]]], Vector]:
    """Return per axis the merged ``(stride, extent)`` pairs in increasing stride, and the offset that turning
    negative strides round leaves behind.

    Law (verify.laws.replica): with k >= 1 and k <= e, ``{0..e-1}*s + {0..f-1}*(k*s) = {0..e-1+(f-1)*k}*s``.

    >>> from layoutalg.iters import make_iter
    >>> merge_progressions([make_iter(4, 1), make_iter(2, -4)])
    ({m: [(1, 8)]}, {m: -4})
    """
    per_axis: dict[Axis, list[tuple[Number, Number]]] = {}
    offset: Vector = {}
    for extent, stride, axis in iters:
        if certainly_equal(extent, 1) or equal(stride, 0):
            continue
        if at_most(stride, 0):
            offset[axis] = offset.get(axis, 0) + (extent - 1) * stride
            stride = -stride
        per_axis.setdefault(axis, []).append((stride, extent))
    return {axis: _merge(pairs) for axis, pairs in per_axis.items()}, offset


def _merge(pairs: list[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    """Merge progressions on one axis until no pair merges, in increasing stride where strides are ints."""
    if all(type(stride) is int for stride, _ in pairs):
        pairs = sorted(pairs)
    position = 0
    while position < len(pairs):
        for other in range(len(pairs)):
            joined = _join(pairs[position], pairs[other]) if other != position else None
            if joined is not None:
                pairs = [p for k, p in enumerate(pairs) if k not in (position, other)]
                pairs.insert(min(position, other), joined)
                position = -1
                break
        position += 1
    return pairs


def _join(fine: tuple[Number, Number], coarse: tuple[Number, Number]) -> tuple[Number, Number] | None:
    (s, e), (t, f) = fine, coarse
    try:
        k = exact_quotient(t, s)
        if k is None or not at_most(1, k) or not at_most(k, e):
            return None
    except UndecidedError:
        return None  # two progressions that are not known to be one stay two
    return s, e + (f - 1) * k


def canonical_replica(iters: Iters) -> tuple[Iters, Vector]:
    """Return the canonical replica list (axes by name, then increasing stride) and the offset moved out of it.

    Raises:
        UndecidedError: several progressions remain on one axis and their set is too large to factor.

    >>> from layoutalg.iters import make_iter
    >>> canonical_replica((make_iter(2, 3), make_iter(6, 2)))
    ((3:2, 4:3), {})
    """
    if not iters:
        return iters, {}
    per_axis, offset = merge_progressions(iters)
    result: list[Iter] = []
    for axis in sorted(per_axis, key=lambda a: a.name):
        pairs = per_axis[axis]
        if len(pairs) > 1:
            pairs = factor_sumset(sumset(pairs, axis.name))
        result.extend(Iter(extent, stride, axis) for stride, extent in pairs)
    return tuple(result), offset


def sumset(pairs: Sequence[tuple[Number, Number]], what: str = "the axis") -> frozenset[int]:
    """Return the explicit set of a sum of progressions ``(stride, extent)``.

    Raises:
        UndecidedError: a stride or extent is symbolic, or the set may exceed ``MAX_SET`` elements.

    >>> sorted(sumset([(2, 3), (3, 2)]))
    [0, 2, 3, 4, 5, 7]
    """
    total = {0}
    for stride, extent in pairs:
        if type(stride) is not int or type(extent) is not int:
            raise UndecidedError(f"the sum of progressions {_show(pairs)} on {what} is symbolic and cannot be listed")
        if len(total) * extent > 16 * MAX_SET:
            raise UndecidedError(f"the sum of progressions {_show(pairs)} on {what} is too large to list ({MAX_SET})")
        total = {x + k * stride for x in total for k in range(extent)}
        if len(total) > MAX_SET:
            raise UndecidedError(f"the sum of progressions {_show(pairs)} on {what} has over {MAX_SET} elements")
    return frozenset(total)


def _show(pairs: Sequence[tuple[Number, Number]]) -> str:
    return "(" + ",".join(f"{e}:{s}" for s, e in pairs) + ")"


def factor_sumset(elements: frozenset[int]) -> list[tuple[Number, Number]]:
    """Write a sum of progressions with least element 0 in its canonical way; see :func:`find_sumset`.

    >>> factor_sumset(frozenset({0, 2, 3, 4, 5, 7}))
    [(2, 3), (3, 2)]
    """
    found = find_sumset(elements)
    assert found is not None, "a set of replicas is a sum of the progressions that made it"
    return found


def find_sumset(elements: frozenset[int]) -> list[tuple[Number, Number]] | None:
    """Write a set with least element 0 as a sum of progressions, or return None where there is none.

    The fewest progressions, then the least list of (stride, extent) in increasing stride.

    Raises:
        UndecidedError: the search exceeds its budget of nodes.

    >>> find_sumset(frozenset({0, 1, 3})) is None
    True
    """
    if len(elements) == 1:
        return []
    budget = [MAX_NODES]
    for count in range(1, len(elements)):
        found = next(_factorisations(elements, frozenset({0}), count, 1, budget), None)
        if found is not None:
            return found
    return None


def _factorisations(
    goal: frozenset[int], have: frozenset[int], count: int, least: int, budget: list[int]
) -> Iterator[list[tuple[Number, Number]]]:
    """Yield every way to reach goal from have with count more progressions, least list first."""
    top = max(goal) - max(have)
    if count == 1:
        for stride, extent in _closing(goal, have, top, least):
            yield [(stride, extent)]
        return
    for stride in sorted(x for x in goal if x >= least):
        grown, extent = have, 1
        while True:
            extent += 1
            grown = grown | {x + (extent - 1) * stride for x in have}
            budget[0] -= 1
            if budget[0] < 0:
                raise UndecidedError(f"factoring a set of {len(goal)} elements took over {MAX_NODES} steps")
            if not grown <= goal:
                break
            for rest in _factorisations(goal, frozenset(grown), count - 1, stride, budget):
                yield [(stride, extent), *rest]
        if have == {0}:
            return  # the least positive element is the least stride of every factorisation


def _closing(goal: frozenset[int], have: frozenset[int], top: int, least: int) -> Iterator[tuple[int, int]]:
    for stride in sorted(x for x in goal if x >= least and top > 0 and top % x == 0):
        extent = top // stride + 1
        if (
            all(k * stride in goal for k in range(extent))
            and {x + k * stride for x in have for k in range(extent)} == goal
        ):
            yield stride, extent
