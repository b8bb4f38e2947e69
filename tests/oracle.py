"""Brute force that shares no code with the library: plain triples in, every question answered by trying everything.

A layout here is a :class:`Plain`: ``(extent, stride, axis name)`` triples, outermost first, and an offset.  A place is
a frozen set of ``(axis, value)`` pairs without zeros, so that an absent axis is coordinate 0.  Whether a table of
values *is* a layout is asked of every order of the prime factors of its length: any layout can be split into digits of
prime extent, and then each stride is forced by one value of the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

Triple = tuple[int, int, str]
Place = frozenset[tuple[str, int]]
Sum = tuple[tuple[tuple[int, int], ...], frozenset[int]]


@dataclass(frozen=True)
class Plain:
    """A layout as numbers."""

    shard: tuple[Triple, ...]
    replica: tuple[Triple, ...] = ()
    offset: tuple[tuple[str, int], ...] = ()

    @property
    def size(self) -> int:
        return prod(e for e, _, _ in self.shard)

    @property
    def axes(self) -> list[str]:
        return sorted({a for _, _, a in self.shard + self.replica} | {a for a, _ in self.offset})


def plain(layout: Any) -> Plain:
    """Read the numbers off a library layout; nothing of it is called."""
    return Plain(
        tuple((int(e), int(s), a.name) for e, s, a in layout.shard),
        tuple((int(e), int(s), a.name) for e, s, a in layout.replica),
        tuple((a, int(v)) for a, v in layout.offset.items()),
    )


def from_json(value: Mapping[str, Any]) -> Plain:
    """Read the encoding of the recorded vectors."""
    triples = [tuple((e, s, a) for e, s, a in value[part]) for part in ("shard", "replica")]
    return Plain(triples[0], triples[1], tuple(value["offset"].items()))


# -- values --------------------------------------------------------------------------------------------------------


def place(values: Mapping[str, int]) -> Place:
    return frozenset((axis, value) for axis, value in values.items() if value)


def plus(a: Place, b: Place, factor: int = 1) -> Place:
    total = dict(a)
    for axis, value in b:
        total[axis] = total.get(axis, 0) + factor * value
    return place(total)


def minus(a: Place, b: Place) -> Place:
    return plus(a, b, -1)


def digits(n: int, extents: Sequence[int]) -> list[int]:
    """Digit k is floor(n / product of the extents after k) mod e_k, straight from the definition."""
    return [n // prod(extents[k + 1 :]) % e for k, e in enumerate(extents)]


def shard_value(layout: Plain, n: int) -> Place:
    """D(n)."""
    total: dict[str, int] = {}
    for c, (_, s, a) in zip(digits(n, [e for e, _, _ in layout.shard]), layout.shard, strict=True):
        total[a] = total.get(a, 0) + c * s
    return place(total)


def base(layout: Plain, n: int) -> Place:
    """D(n) + O."""
    return plus(shard_value(layout, n), place(dict(layout.offset)))


@cache
def replicas(layout: Plain) -> frozenset[Place]:
    """Every translation of R."""
    found = set()
    for choice in itertools.product(*(range(e) for e, _, _ in layout.replica)):
        total: dict[str, int] = {}
        for c, (_, s, a) in zip(choice, layout.replica, strict=True):
            total[a] = total.get(a, 0) + c * s
        found.add(place(total))
    return frozenset(found)


def places(layout: Plain, n: int) -> frozenset[Place]:
    """L(n), the set."""
    start = base(layout, n)
    return frozenset(plus(start, r) for r in replicas(layout))


def table(layout: Plain) -> list[Place]:
    """D(n) + O of every index."""
    return [base(layout, n) for n in range(layout.size)]


def sets(layout: Plain) -> list[frozenset[Place]]:
    """L(n) of every index."""
    return [places(layout, n) for n in range(layout.size)]


def flat(coord: Sequence[int], shape: Sequence[int]) -> int:
    return sum(x * prod(shape[k + 1 :]) for k, x in enumerate(coord))


def coordinates(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Row-major order."""
    return itertools.product(*map(range, shape))


def box_indices(shape: Sequence[int], region: Sequence[tuple[int, int]]) -> list[int]:
    """The flat indices of a box, in row-major order of the box."""
    return [flat(x, shape) for x in itertools.product(*(range(b, e) for b, e in region))]


def first_difference(a: Plain, b: Plain) -> int | None:
    """The first index whose sets differ; sizes must agree."""
    assert a.size == b.size
    return next((n for n in range(a.size) if places(a, n) != places(b, n)), None)


def same(a: Plain, b: Plain) -> bool:
    return a.size == b.size and first_difference(a, b) is None


# -- which tables are layouts --------------------------------------------------------------------------------------


def prime_factors(n: int) -> list[int]:
    factors, p = [], 2
    while n > 1:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return factors


@cache
def prime_orders(n: int) -> tuple[tuple[int, ...], ...]:
    """Every order of the prime factors of n, innermost first."""
    return tuple(sorted(set(itertools.permutations(prime_factors(n)))))


def _agreement(values: Sequence[Place], order: Sequence[int]) -> tuple[int, tuple[Triple, ...]]:
    """How far a layout with these digit extents can follow the values, and its iters, outermost first."""
    iters: list[Triple] = []
    unit = 1
    for extent in order:
        step = minus(values[unit], values[0])
        if len(step) > 1:
            iters.append((extent, 0, "two axes"))
        else:
            axis, stride = next(iter(step), ("m", 0))
            iters.append((extent, stride, axis))
        unit *= extent
    iters.reverse()
    candidate = Plain(tuple(iters))
    for n, value in enumerate(values):
        moving = digits(n, [e for e, _, _ in iters])
        if any(c and a == "two axes" for c, (_, _, a) in zip(moving, iters, strict=True)):
            return n, ()
        if plus(values[0], shard_value(candidate, n)) != value:
            return n, ()
    return len(values), candidate.shard


def layout_of(values: Sequence[Place]) -> Plain | None:
    """Some layout with these values, or None."""
    for order in prime_orders(len(values)):
        reach, iters = _agreement(values, order)
        if reach == len(values):
            return Plain(iters, (), tuple(values[0]))
    return None


def first_failure(values: Sequence[Place]) -> int | None:
    """The first index that no layout of that many values reaches: some agrees before it, none up to and with it."""
    reach = max(_agreement(values, order)[0] for order in prime_orders(len(values)))
    return None if reach == len(values) else reach


def layout_of_sets(values: Sequence[frozenset[Place]]) -> Plain | None:
    """Some layout whose sets these are, or None: all sets are translates of the first, which is a sum on each axis."""
    axes = sorted({a for group in values for p in group for a, _ in p})
    bases = [_least_of(group, axes) for group in values]
    shape = {minus(p, bases[0]) for p in values[0]}
    if any({minus(p, b) for p in group} != shape for group, b in zip(values, bases, strict=True)):
        return None
    replica = replica_of(shape)
    if replica is None:
        return None
    found = layout_of(bases)
    return None if found is None else Plain(found.shard, tuple(replica), found.offset)


def _least_of(group: Iterable[Place], axes: Sequence[str]) -> Place:
    return min(group, key=lambda p: [dict(p).get(a, 0) for a in axes])


# -- replicas ------------------------------------------------------------------------------------------------------


def sums(top: int, inside: frozenset[int] | None = None, most: int = 99) -> Iterator[Sum]:
    """Every list of progressions ``(stride, extent)``, strides not falling, whose sum ends at most at ``top``.

    ``inside`` keeps those whose set lies inside it, ``most`` those of so many progressions at most.  Yields the list
    and its set.
    """

    def grow(chosen: tuple[tuple[int, int], ...], have: frozenset[int], least: int) -> Iterator[Sum]:
        yield chosen, have
        if len(chosen) == most:
            return
        room = top - max(have)
        for stride in range(least, room + 1):
            for extent in range(2, room // stride + 2):
                more = frozenset(x + k * stride for x in have for k in range(extent))
                if inside is None or more <= inside:
                    yield from grow((*chosen, (stride, extent)), more, stride)

    yield from grow((), frozenset({0}), 1)


def canonical_sum(elements: frozenset[int]) -> tuple[tuple[int, int], ...] | None:
    """The fewest progressions with this set (least element 0), then the least list; None if it is no sum."""
    for count in range(len(elements)):
        found = [chosen for chosen, have in sums(max(elements), elements, count) if have == elements]
        if found:
            return min(found)
    return None


def replica_of(shape: set[Place]) -> list[Triple] | None:
    """Iters whose set of translations this is (its least place being zero), or None."""
    axes = sorted({a for p in shape for a, _ in p})
    columns = {axis: {dict(p).get(axis, 0) for p in shape} for axis in axes}
    if prod(len(column) for column in columns.values()) != len(shape):
        return None
    iters: list[Triple] = []
    for axis, column in columns.items():
        low = min(column)
        chosen = canonical_sum(frozenset(x - low for x in column))
        if chosen is None or low:
            return None
        iters.extend((extent, stride, axis) for stride, extent in chosen)
    return iters


def missing_summand(total: frozenset[int], part: frozenset[int], scale: int = 1) -> tuple[int, list[Any]] | None:
    """The offset c and progressions C with part + scale*(c + C) = total: fewest places, fewest iters, least list."""
    offset, rest = divmod(min(total) - min(part), scale)
    if rest:
        return None
    room = (max(total) - max(part) - scale * offset) // scale
    inside = frozenset(c for c in range(room + 1) if all(p + scale * (offset + c) in total for p in part))
    best: tuple[Any, ...] | None = None
    for most in range(len(inside)):  # progressions; each adds a place
        if best is not None and most + 1 > best[0]:
            break
        for chosen, have in sums(room, inside, most):
            if len(chosen) == most and {p + scale * (offset + c) for p in part for c in have} == total:
                rank = (len(have), len(chosen), chosen)
                best = rank if best is None or rank < best else best
    return None if best is None else (offset, list(best[2]))


def axis_set(layout: Plain, axis: str) -> frozenset[int]:
    """The values of O + R on one axis."""
    start = dict(layout.offset).get(axis, 0)
    return frozenset(start + dict(r).get(axis, 0) for r in replicas(layout))


# -- images --------------------------------------------------------------------------------------------------------


def image(layout: Plain, axis: str) -> frozenset[int]:
    return frozenset(dict(p).get(axis, 0) for group in sets(layout) for p in group)


def span(layout: Plain, axis: str) -> int:
    values = image(layout, axis)
    return max(values) - min(values) + 1


def is_injective(layout: Plain) -> bool:
    """Distinct indices have disjoint sets of places."""
    seen: set[Place] = set()
    for group in sets(layout):
        if seen & group:
            return False
        seen |= group
    return True


# -- tilings and sums ----------------------------------------------------------------------------------------------


def interleaved(
    outer: Plain, outer_shape: Sequence[int], inner: Plain, inner_shape: Sequence[int], scale: Mapping[str, int]
) -> list[frozenset[Place]]:
    """The sets of I(i) + W * Out(o) over the domain o0*i0, o1*i1, ... in row-major order."""
    shape = [o * i for o, i in zip(outer_shape, inner_shape, strict=True)]
    result = []
    for x in coordinates(shape):
        o, i = parts_of(x, inner_shape, outer_shape)
        result.append(
            frozenset(
                plus(p, place({a: v * scale.get(a, 1) for a, v in q}))
                for p in places(inner, i)
                for q in places(outer, o)
            )
        )
    return result


def tiled(outer: Plain, outer_shape: Sequence[int], inner: Plain, inner_shape: Sequence[int]) -> list[frozenset[Place]]:
    """What ``inner.tile(outer, ...)`` means, straight from the definition."""
    axes = sorted(set(outer.axes) | set(inner.axes))
    return interleaved(outer, outer_shape, inner, inner_shape, {a: span(inner, a) for a in axes})


def parts_of(x: Sequence[int], inner_shape: Sequence[int], outer_shape: Sequence[int]) -> tuple[int, int]:
    """Flat outer and inner index of a coordinate of the interleaved domain."""
    outer = flat([v // i for v, i in zip(x, inner_shape, strict=True)], outer_shape)
    inner = flat([v % i for v, i in zip(x, inner_shape, strict=True)], inner_shape)
    return outer, inner


def other_part(
    total: Plain,
    shapes: tuple[Sequence[int], Sequence[int]],
    known: Plain,
    *,
    known_is_outer: bool,
    scale: Mapping[str, int],
    known_scale: Mapping[str, int],
) -> Plain | None:
    """The part X with ``known_scale * known + scale * X = total`` at every pair of indices, or None.

    ``shapes`` are the outer and the inner one.  Least places determine X's map; X's replicas are searched for.
    """
    outer_shape, inner_shape = shapes
    domain = [o * i for o, i in zip(outer_shape, inner_shape, strict=True)]
    axes = sorted(set(total.axes) | set(known.axes))
    found: dict[int, Place] = {}
    for x in coordinates(domain):
        o, i = parts_of(x, inner_shape, outer_shape)
        other, mine = (i, o) if known_is_outer else (o, i)
        least_known = place({a: v * known_scale.get(a, 1) for a, v in _least_of(places(known, mine), axes)})
        rest = minus(_least_of(places(total, flat(x, domain)), axes), least_known)
        if any(v % scale.get(a, 1) for a, v in rest):
            return None
        value = place({a: v // scale.get(a, 1) for a, v in rest})
        if found.setdefault(other, value) != value:
            return None
    moved = layout_of([found[n] for n in range(len(found))])
    if moved is None:
        return None
    replica: list[Triple] = []
    for axis in axes:
        whole, part = axis_set(total, axis), frozenset(v * known_scale.get(axis, 1) for v in axis_set(known, axis))
        whole, part = frozenset(v - min(whole) for v in whole), frozenset(v - min(part) for v in part)
        answer = missing_summand(whole, part, scale.get(axis, 1))
        if answer is None:
            return None
        replica.extend((extent, stride, axis) for stride, extent in answer[1])
    return Plain(moved.shard, tuple(replica), moved.offset)


def outer_factor(total: Plain, shapes: tuple[Sequence[int], Sequence[int]], inner: Plain) -> Plain | None:
    """The outer layout with ``inner.tile(outer) = total``, or None."""
    scale = {axis: span(inner, axis) for axis in {*total.axes, *inner.axes}}
    return other_part(total, shapes, inner, known_is_outer=False, scale=scale, known_scale={})


def inner_factors(total: Plain, shapes: tuple[Sequence[int], Sequence[int]], outer: Plain) -> list[Plain]:
    """Every inner layout (up to the choice of replicas) with ``inner.tile(outer) = total``.

    Its span is not known beforehand, but spans multiply: on every axis, that of the whole is that of the inner layout
    times that of the outer one.
    """
    scale: dict[str, int] = {}
    for axis in sorted({*outer.axes, *total.axes}):
        scale[axis], rest = divmod(span(total, axis), span(outer, axis))
        if rest:
            return []
    answer = other_part(total, shapes, outer, known_is_outer=True, scale={}, known_scale=scale)
    return [answer] if answer is not None and all(span(answer, a) == w for a, w in scale.items()) else []
