"""Regrouping: the map stays, and a refusal means that no list of iters has the boundaries of the shape.

The step splits one iter where a boundary falls into it.  Completeness is the family's: where ``group`` refuses, every
order of prime digits with the wanted boundaries is denied.  That merging loses no boundary, so that working on the
canonical form is enough, is a step as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from layoutalg.algebra import grouping
from layoutalg.algebra.canonical import canonical_shard
from layoutalg.axis import m
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout
from verify.explore import equal_to, negate
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table, the_layout
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS"]

ALL = "all indices and strides, all extents >= 1"


def _replay_group(v: Any) -> tuple[Any, Any]:
    a, b, e, s, t = v["a"], v["b"], v["e"], v["s"], v["t"]
    n = v["X"] * (b * e) + v["y"] * e + v["d"]
    outer, inner = places([(a, b * s)], v["X"]), places([(b, s), (e, t)], v["y"] * e + v["d"])
    return places([(a * b + v["rest"], s), (e, t)], n), (outer[0], outer[1] + inner[1])


@step(ALL, mutants={"b does not divide the extent": _replay_group})
def group_step(w: World) -> Any:
    """A dimension of z = b*e elements ends inside (ab : s), which splits.

    With n = X*z + y the place is (a : b*s)(X) + (b : s)(e : t)(y).
    """
    a, b, e = w.extent("a"), w.extent("b"), w.extent("e")
    s, t, u = w.integer("s"), w.integer("t"), w.integer("u")
    x, y, d = w.digit("x", a), w.digit("y", b), w.digit("d", e)
    whole = a * b
    if w.wrong:
        rest = w.digit("rest", b)
        outer = w.integer("X")
        n = (outer * b + y) * e + d
        whole = whole + rest
    else:
        n = w.digits(u, (x, a), (y, b), (d, e))
        w.digits(0, (y, b), (d, e))
        outer = u * a + x
        w.know("divmod", u * a + x, b * e, y * e + d)
        w.know("divmod", u, a, x)
        w.know("divmod", u, a * b, x * b + y)  # the digit of (ab : s) in n div e
    far, near = w.values([(a, b * s)], outer), w.values([(b, s), (e, t)], y * e + d)
    return w.same(w.values([(whole, s), (e, t)], n), (far[0], far[1] + near[1]))


def _replay_boundary(v: Any) -> tuple[Any, Any]:
    merged = (Iter(v["f"] * v["e"], 1, m),)
    finer = v["f"] % (v["b"] // math.gcd(v["b"], v["e"])) == 0 and (v["e"] % v["b"] == 0 or v["b"] % v["e"] == 0)
    return grouping.split_at(merged, v["b"]) is not None, finer


@step("all extents >= 1", mutants={"merging adds no boundary": _replay_boundary})
def merging_keeps_boundaries(w: World) -> Any:
    """A boundary that (f)(e) offers, at b | e or at e*b with b | f, divides fe: the merged iter offers it too."""
    f, e, b, k = (w.extent(name) for name in ("f", "e", "b", "k"))
    if w.wrong:  # the converse: what divides fe divides e, or e divides it
        w.assume(f * e == b * k)
        return w.any(e % b == 0, b % e == 0)
    inside = w.implies(e == b * k, f * e == b * (f * k))
    return w.all(inside, w.implies(f == b * k, f * e == (e * b) * k))


# -- families ------------------------------------------------------------------------------------------------------

Member = tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]


def shapes_of(size: int, rank: int) -> Iterator[tuple[int, ...]]:
    """Ordered factorisations of a size into at most ``rank`` factors of at least 2."""
    if size > 1:
        yield (size,)
    if rank > 1:
        for first in range(2, size):
            if size % first == 0:
                yield from ((first, *rest) for rest in shapes_of(size // first, rank - 1))


def _members(*layouts: str, rank: int = 3) -> Iterator[Member]:
    for text in layouts:
        extents, names = spelt(text)
        for shape in shapes_of(math.prod(extents), rank):
            yield extents, names, shape
        yield extents, names, (1, math.prod(extents), 1)


def _run_group(x: Any, member: Member) -> Any:
    layout = layout_of(x, member[0], member[1])
    return layout, attempt(layout.group, member[2])


def _boundaries(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[k:]) for k in range(len(shape) + 1)]


def _same_map(a: TileLayout, b: TileLayout) -> Labelled:
    for n, (x, y) in enumerate(zip(table(a), table(b), strict=True)):
        yield {"index": n}, equal_to(x, y)


def _judge_group(member: Member, answer: Any) -> Labelled:
    layout, found = answer
    shape = member[2]
    if isinstance(found, NotExpressibleError):
        yield {"refused": str(found)}, no_layout(table(layout), boundaries=_boundaries(shape))
        return
    grouped, seps = found
    products = tuple(math.prod(it.extent for it in grouped.shard[b:e]) for b, e in pairwise(seps))
    yield {"products": products}, products == shape and seps[0] == 0 and seps[-1] == len(grouped.shard)
    yield from _same_map(layout, grouped)


def _run_regroup(x: Any, member: Member) -> Any:
    layout = layout_of(x, member[0], member[1])
    return layout, attempt(layout.regroup, member[2])


def _judge_regroup(member: Member, answer: Any) -> Labelled:
    layout, found = answer
    if isinstance(found, NotExpressibleError):
        yield {"refused": str(found)}, negate(the_layout(table(layout), member[2][::-1]))
        return
    yield {"extents": found.shard}, tuple(it.extent for it in found.shard) == member[2]
    yield from _same_map(layout, found)


def _run_many(x: Any, member: tuple[Any, ...]) -> Any:
    layout = layout_of(x, member[0], member[1])
    return layout, attempt(layout.group_many, member[2])


def _judge_many(member: tuple[Any, ...], answer: Any) -> Labelled:
    layout, found = answer
    if isinstance(found, NotExpressibleError):
        wanted = [place for shape in member[2] for place in _boundaries(shape)]
        yield {"refused": str(found)}, no_layout(table(layout), boundaries=wanted)
        return
    grouped, all_seps = found
    for shape, seps in zip(member[2], all_seps, strict=True):
        products = tuple(math.prod(it.extent for it in grouped.shard[b:e]) for b, e in pairwise(seps))
        yield {"products": products}, products == shape and seps[0] == 0 and seps[-1] == len(grouped.shard)
    yield from _same_map(layout, grouped)


def _group_with_outer_stride(iters: Any, shape: Any) -> Any:
    found, seps = _right_group(iters, shape)
    wrong = [Iter(it.extent, it.stride if k == 0 else it.stride * 2, it.axis) for k, it in enumerate(found)]
    return tuple(wrong), seps


_right_group = grouping.group_iters


def _uncanonical(iters: Any, **_: Any) -> Any:
    return tuple(it for it in iters if it.extent != 1)


_DOUBLED = Patch(_right_group, _group_with_outer_stride)
_AS_WRITTEN = Patch(canonical_shard, _uncanonical)


def _laws() -> Iterator[Law]:
    lists = ("4:m", "6:m", "2x2:mm", "2x3:mm", "3x2:mm", "2x2x2:mmm", "4x3:mm", "2x3x2:mmm", "2x3x2:mlm", "6x2:ml")
    yield family(
        "grouping.group",
        "group(shape) keeps the map, its parts multiply to the shape, and it refuses only where no list of iters has "
        "the shape's boundaries.",
        scope="lists up to 12 elements and rank 3, every shape up to rank 3; all strides",
        members=list(_members(*lists)),
        run=_run_group,
        judge=_judge_group,
        mutants={
            "iters grouped as written, not merged first": [_AS_WRITTEN],
            "outer strides kept when splitting": [_DOUBLED],
        },
    )
    yield family(
        "grouping.regroup",
        "regroup(extents) has exactly these extents and the same map, or no list of such extents has the map.",
        scope="lists up to 12 elements and rank 3, every shape up to rank 3; all strides",
        members=list(_members(*lists)),
        run=_run_regroup,
        judge=_judge_regroup,
        mutants={"iters grouped as written, not merged first": [_AS_WRITTEN]},
    )
    yield family(
        "grouping.group_many",
        "group_many(shapes) is one list that follows every shape, or no list has all the boundaries.",
        scope="pairs of shapes of lists up to 12 elements; all strides",
        members=[
            (extents, axes, (shape, other))
            for extents, axes, shape in _members("2x2x2:mmm", "6x2:ml", "3x2:mm")
            for other in ((math.prod(extents),), *shapes_of(math.prod(extents), 2), (2, 1, math.prod(extents) // 2))
        ],
        run=_run_many,
        judge=_judge_many,
        mutants={"iters grouped as written, not merged first": [_AS_WRITTEN]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
