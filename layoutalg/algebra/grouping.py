"""Regrouping: rewrite the digits of a layout so that they follow the dimensions of a shape.

A layout's digits need not line up with a tensor's dimensions.  ``(32:1)`` is a (4, 8) tensor after splitting its one
digit into ``(4:8, 8:1)``.  A digit of extent ``a*b`` and stride ``s`` splits into ``(a: b*s, b: s)``, and nothing else,
so a boundary at B elements from the end exists exactly when B is the product of some innermost extents times a
divisor of the next one.  On the canonical form (fewest, longest digits) that test is also complete: merging digits
keeps every boundary that the finer list could offer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from layoutalg.axis import m
from layoutalg.decide import Number, as_number, at_most, certainly_equal, equal, exact_quotient
from layoutalg.errors import NotExpressibleError, RegionError, UndecidedError
from layoutalg.iters import Iter, Iters, size_of

__all__ = [
    "Shape",
    "check_shape",
    "group_iters",
    "group_many_iters",
    "regroup_iters",
    "show_iters",
    "show_shape",
    "split_at",
]

Shape = tuple[Number, ...]


def check_shape(shape: object, size: Number, what: str = "shape") -> Shape:
    """Return the shape as a tuple of numbers of the right product.

    Raises:
        RegionError: not a sequence of extents of at least 1, or the wrong number of elements.

    >>> check_shape([4, 8], 32)
    (4, 8)
    """
    if type(shape) is tuple or type(shape) is list:
        total = 1
        for extent in shape:
            if type(extent) is not int or extent < 1:
                break
            total *= extent
        else:
            if type(size) is int and total == size:
                return tuple(shape)
    return _check_any_shape(shape, size, what)


def _check_any_shape(shape: object, size: Number, what: str) -> Shape:
    """Check a shape that is no plain tuple of ints of the right product."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise RegionError(f"{what} must be a sequence of extents, not {shape!r}", shape=shape)
    extents = tuple(e if type(e) is int else as_number(e, f"extent of the {what}") for e in shape)
    for extent in extents:
        if not at_most(1, extent):
            raise RegionError(
                f"{what} {show_shape(extents)} has the extent {extent}; extents are at least 1", shape=extents
            )
    total: Number = 1
    for extent in extents:
        total = total * extent
    if not equal(total, size):
        raise RegionError(
            f"{what} {show_shape(extents)} has {total} elements, the layout {size}",
            shape=extents,
            elements=total,
            size=size,
        )
    return extents


def group_iters(iters: Iters, shape: Shape) -> tuple[Iters, tuple[int, ...]]:
    """Split canonical iters so that ``seps[d]:seps[d+1]`` multiply to ``shape[d]``.

    Law (verify.laws.grouping): the map is unchanged; it succeeds exactly when some list of iters groups so.

    Raises:
        NotExpressibleError: a boundary of the shape falls inside an iter where that does not divide.

    >>> from layoutalg.iters import make_iter
    >>> group_iters((make_iter(32, 1),), (4, 8))
    ((4:8, 8:1), (0, 1, 2))
    """
    remaining = list(iters)
    result: list[Iter] = []  # innermost first
    counts: list[int] = []
    for dim in range(len(shape) - 1, -1, -1):
        before, need = len(result), shape[dim]
        while need != 1 if type(need) is int else not certainly_equal(need, 1):
            if not remaining:
                raise RegionError(f"shape {show_shape(shape)} has more elements than the layout", shape=shape)
            it = remaining.pop()
            rest, outer = _quotients(need, it[0])
            if rest is not None:
                result.append(it)
                need = rest
                continue
            if outer is None:
                raise _no_boundary(iters, shape, dim, it, need)
            remaining.append(Iter(outer, it[1] * need, it[2]))
            result.append(Iter(need, it[1], it[2]))
            need = 1
        counts.append(len(result) - before)
    if remaining and not all(certainly_equal(it.extent, 1) for it in remaining):
        raise RegionError(f"shape {show_shape(shape)} has fewer elements than the layout", shape=shape)
    seps = [0]
    for count in reversed(counts):
        seps.append(seps[-1] + count)
    return tuple(reversed(result)), tuple(seps)


def _quotients(need: Number, extent: Number) -> tuple[Number | None, Number | None]:
    """Return need / extent, else extent / need; raise UndecidedError only if neither is known to be exact."""
    if type(need) is type(extent) is int:
        if need % extent == 0:
            return need // extent, None
        return None, None if extent % need else extent // need
    try:
        rest = exact_quotient(need, extent)
    except UndecidedError:
        outer = exact_quotient(extent, need)
        if outer is None:
            raise
        return None, outer
    return rest, (exact_quotient(extent, need) if rest is None else None)


def regroup_iters(iters: Iters, extents: Shape) -> Iters:
    """Rewrite canonical iters as exactly one iter per extent (unit extents become ``1:0``).

    Law (verify.laws.grouping): the map is unchanged; iter k has extent ``extents[k]``.

    Raises:
        NotExpressibleError: some extent would need two iters, or a boundary that no iter has.

    >>> from layoutalg.iters import make_iter
    >>> regroup_iters((make_iter(32, 1),), (2, 1, 16))
    (2:16, 1:0, 16:1)
    """
    grouped, seps = group_iters(iters, extents)
    result: list[Iter] = []
    for dim, (begin, end) in enumerate(itertools.pairwise(seps)):
        part = grouped[begin:end]
        if len(part) > 1:
            raise NotExpressibleError(
                f"regroup: extent {extents[dim]} at position {dim} of {show_shape(extents)} needs "
                f"{len(part)} iters, {', '.join(map(str, part))}: they do not form one progression. "
                f"Regroup to {show_shape(tuple(it.extent for it in grouped))} instead",
                dim=dim,
                parts=part,
            )
        result.append(part[0] if part else Iter(1, 0, m))
    return tuple(result)


def group_many_iters(iters: Iters, shapes: Sequence[Shape]) -> tuple[Iters, tuple[tuple[int, ...], ...]]:
    """Split canonical iters to the common refinement of several shapes, with the seps of each.

    Two shapes that put boundaries at the same place get a unit iter per extra unit extent, so that every shape's
    ``seps`` index one list.

    Raises:
        NotExpressibleError: the boundaries of the shapes do not nest, or one shape does not group.
        UndecidedError: a shape has symbols.

    >>> from layoutalg.iters import make_iter
    >>> group_many_iters((make_iter(32, 1),), [(4, 8), (16, 2)])
    ((4:8, 4:2, 2:1), ((0, 1, 3), (0, 2, 3)))
    """
    boundaries = [_boundaries(shape) for shape in shapes]
    if not all(type(place) is int for places in boundaries for place in places):
        raise UndecidedError("group_many orders the boundaries of its shapes, so it needs numbers; group takes symbols")
    needed: dict[int, int] = {}
    for places in boundaries:
        for place in set(places):
            needed[place] = max(needed.get(place, 0), places.count(place))
    size = size_of(iters)
    marks = sorted((place for place, count in needed.items() for _ in range(count)), reverse=True)
    refined: list[Number] = []
    for outer, inner in itertools.pairwise(marks):
        if outer % inner:
            raise NotExpressibleError(
                f"group_many: boundaries {outer} and {inner} (elements from the end) of "
                f"{' and '.join(show_shape(s) for s in shapes)} do not nest in {size} elements",
                boundaries=(outer, inner),
            )
        refined.append(outer // inner)
    grouped, seps = group_iters(iters, tuple(refined))
    flat, starts = _with_units(grouped, seps, refined)
    return flat, tuple(_seps_of(places, marks, starts) for places in boundaries)


def _boundaries(shape: Shape) -> list[int]:
    """Return the products of the extents from each position to the end, size first and 1 last."""
    places = [1]
    for extent in reversed(shape):
        places.append(places[-1] * extent)
    return places[::-1]


def _with_units(grouped: Iters, seps: tuple[int, ...], refined: list[Number]) -> tuple[Iters, list[int]]:
    """Give each refined extent its iters, a unit iter where it is 1; return where each extent starts."""
    flat: list[Iter] = []
    starts = [0]
    for begin, end, extent in zip(seps, seps[1:], refined, strict=False):
        flat.extend(grouped[begin:end] if extent != 1 else (Iter(1, 0, m),))
        starts.append(len(flat))
    return tuple(flat), starts


def _seps_of(places: list[int], marks: list[int], starts: list[int]) -> tuple[int, ...]:
    """Find each boundary of one shape among the marks, repeated ones one after another, the ends at the ends."""
    seps: list[int] = []
    at = 0
    for position, place in enumerate(places):
        at = marks.index(place, at)
        if position == len(places) - 1:
            at = len(marks) - 1
        seps.append(starts[at])
        at += 1
    return tuple(seps)


def split_at(iters: Iters, inner_size: int) -> tuple[Iters, Iters] | None:
    """Cut a list of iters into an outer and an inner part of the given size, or None where no boundary is.

    >>> split_at((Iter(2, 10, m), Iter(4, 1, m)), 2), split_at((Iter(2, 10, m), Iter(4, 1, m)), 3)
    (((2:10, 2:2), (2:1,)), None)
    """
    inner: list[Iter] = []
    outer = list(iters)
    while inner_size != 1:
        if not outer:
            return None
        extent, stride, axis = outer.pop()
        if inner_size % extent == 0:
            inner.append(Iter(extent, stride, axis))
            inner_size //= extent
        elif extent % inner_size == 0:
            inner.append(Iter(inner_size, stride, axis))
            outer.append(Iter(extent // inner_size, stride * inner_size, axis))
            break
        else:
            return None
    return tuple(outer), tuple(reversed(inner))


def _no_boundary(iters: Iters, shape: Shape, dim: int, at: Iter, need: Number) -> NotExpressibleError:
    inner: Number = 1
    for extent in shape[dim:]:
        inner = inner * extent
    return NotExpressibleError(
        f"group: shape {show_shape(shape)} needs a boundary {inner} elements from the end (before dimension {dim}), "
        f"but that falls inside iter {at} of {show_iters(iters)}: {need} and {at.extent} do not divide "
        f"one another. Boundaries at multiples of the inner extents times divisors of {at.extent} exist",
        dim=dim,
        boundary=inner,
        inner=at,
    )


def show_iters(iters: Iters) -> str:
    """Spell iters as in the notation, such as ``S[(2,3):(10,1)]``; used in messages.

    >>> show_iters((Iter(2, 10, m), Iter(3, 1, m)))
    'S(2:10,3:1)'
    """
    return "S(" + ",".join(map(str, iters)) + ")"


def show_shape(shape: Sequence[Number]) -> str:
    """Spell a shape as a Python tuple.

    >>> show_shape((4,)), show_shape((4, 8))
    ('(4,)', '(4, 8)')
    """
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
