"""Reordering dimensions, and digits that move nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from layoutalg.algebra import packing
from layoutalg.algebra.permuting import permute_groups
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter
from verify.explore import equal_to
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS"]

ALL = "all strides and coordinates, all extents >= 1"


def _extents_kept(v: Any) -> tuple[Any, Any]:
    before = places([(v["f"], v["t"]), (v["e"], v["s"])], (v["u"] * v["f"] + v["x"]) * v["e"] + v["y"])
    after = places([(v["f"], v["s"]), (v["e"], v["t"])], (v["u"] * v["e"] + v["y"]) * v["f"] + v["x"])
    return before, after


@step(ALL, mutants={"strides swapped, extents not": _extents_kept})
def transpose(w: World) -> Any:
    """(e : s)(f : t) at (y, x) is (f : t)(e : s) at (x, y): swapping neighbours, which generates every permutation."""
    f, e, t, s, u = w.extent("f"), w.extent("e"), w.integer("t"), w.integer("s"), w.integer("u")
    x, y = w.digit("x", f), w.digit("y", e)
    n, swapped = w.digits(u, (x, f), (y, e)), w.digits(u, (y, e), (x, f))
    other = [(f, s), (e, t)] if w.wrong else [(e, s), (f, t)]
    return w.same(w.values([(f, t), (e, s)], n), w.values(other, swapped))


def _ones(v: Any) -> tuple[Any, Any]:
    n = (v["u"] * v["b"] + v["x"]) * v["e"] + v["y"]
    return places([(v["e"], v["s"])], v["u"] * v["e"] + v["y"]), places([(v["b"], 1), (v["e"], v["s"])], n)


@step(ALL, mutants={"stride 1 instead of 0": _ones})
def broadcast_digit(w: World) -> Any:
    """A digit (b : 0) between an outer list and (e : s) changes no place: B(u, x, y) = L(u, y)."""
    b, e, s, u = w.extent("b"), w.extent("e"), w.integer("s"), w.integer("u")
    x, y = w.digit("x", b), w.digit("y", e)
    n = w.digits(u, (x, b), (y, e))
    w.know("divmod", u, e, y)
    return w.same(w.values([(b, 1 if w.wrong else 0), (e, s)], n), w.values([(e, s)], u * e + y))


# -- families ------------------------------------------------------------------------------------------------------

Member = tuple[str, tuple[int, ...], tuple[int, ...]]


def _run(x: Any, member: Member) -> Any:
    layout = layout_of(x, *spelt(member[0]))
    return layout, attempt(layout.permute, *member[2], shape=member[1])


def _judge(member: Member, answer: Any) -> Labelled:
    layout, found = answer
    _, shape, order = member
    values = table(layout)
    wanted = []
    for y in product(*(range(shape[d]) for d in order)):
        x = [0] * len(shape)
        for value, d in zip(y, order, strict=True):
            x[d] = value
        wanted.append(values[flatten(x, shape)])
    if isinstance(found, NotExpressibleError):
        boundaries = [math.prod(shape[k:]) for k in range(len(shape) + 1)]
        yield {"refused": str(found)}, no_layout(values, boundaries=boundaries)
        return
    for n, (a, b) in enumerate(zip(wanted, table(found), strict=True)):
        yield {"index": n}, equal_to(a, b)


def _members() -> Iterator[Member]:
    for text, shape in (("2x3:mm", (2, 3)), ("2x2x3:mml", (4, 3)), ("2x2x3:mmm", (2, 2, 3)), ("6x2:mm", (2, 3, 2))):
        yield from ((text, shape, order) for order in permutations(range(len(shape))))


def _run_parts(x: Any, member: Member) -> Any:
    """Iters reordered one by one, and in groups; a member is a list, the separators of groups, and their order."""
    layout = layout_of(x, *spelt(member[0])) + x.unknown("a")
    _, seps, order = member
    alone = layout.permute_iters([k for d in order for k in range(seps[d], seps[d + 1])])
    return layout, alone, layout.permute_groups(seps, order)


def _judge_parts(member: Member, answer: Any) -> Labelled:
    layout, *both = answer
    _, seps, order = member
    extents = [it.extent for it in layout.shard]
    moved = [k for d in order for k in range(seps[d], seps[d + 1])]
    values = table(layout)
    for found in both:
        yield {"extents": found.shard}, [it.extent for it in found.shard] == [extents[k] for k in moved]
        for n, y in enumerate(product(*(range(extents[k]) for k in moved))):
            x = [0] * len(extents)
            for digit, k in zip(y, moved, strict=True):
                x[k] = digit
            yield {"index": n}, equal_to(table_at(found, n), values[flatten(x, extents)])


def _run_broadcast(x: Any, member: tuple[str, int, int]) -> Any:
    layout = layout_of(x, *spelt(member[0]))
    return layout, layout.broadcast(member[1], member[2])


def _judge_broadcast(member: tuple[str, int, int], answer: Any) -> Labelled:
    layout, found = answer
    text, count, position = member
    extents = spelt(text)[0]
    shape = [*extents]
    at = position % (len(shape) + 1)
    shape.insert(at, count)
    values = table(layout)
    for n, x in enumerate(product(*map(range, shape))):
        short = [v for k, v in enumerate(x) if k != at]
        yield {"index": n}, equal_to(table_at(found, n), values[flatten(short, extents)])


def table_at(layout: Any, n: int) -> dict[str, Any]:
    """Return the base place of one index."""
    return dict(layout.apply(n))


def _inverse(iters: Any, seps: Any, order: Any) -> Any:
    back = [0] * len(order)
    for k, d in enumerate(order):
        back[d] = k
    return permute_groups(iters, seps, back)


def _moving(layout: Any, n: Any, position: Any, axis: Any) -> Any:
    parts = _right_broadcast(layout, n, position, axis)
    shard = tuple(Iter(it.extent, 1, it.axis) if k == position else it for k, it in enumerate(parts.shard))
    return parts._replace(shard=shard)


_right_broadcast = packing.broadcast


def _laws() -> Iterator[Law]:
    yield family(
        "permuting.permute",
        "permute(order, shape) has at (x[order[0]], x[order[1]], ...) the place of x; it refuses only where no list "
        "has the shape's boundaries.",
        scope="shapes to rank 3 over lists to 12 elements, every permutation; all strides",
        members=_members(),
        run=_run,
        judge=_judge,
        mutants={"the inverse permutation": [Patch(permute_groups, _inverse)]},
    )
    yield family(
        "permuting.permute_iters_and_groups",
        "permute_iters and permute_groups move digits with their iters: at the reordered digits lies the place of x.",
        scope="lists to rank 4 on one and two axes, every order of their groups; all strides and offsets",
        members=[
            (text, seps, order)
            for text, seps in (("2x3:mm", (0, 1, 2)), ("2x3x2:mlm", (0, 1, 3)), ("2x2x3x2:mmlm", (0, 1, 3, 3, 4)))
            for order in permutations(range(len(seps) - 1))
        ],
        run=_run_parts,
        judge=_judge_parts,
        values=(0, 1, -2),
        mutants={"the inverse permutation": [Patch(permute_groups, _inverse)]},
    )
    yield family(
        "permuting.broadcast",
        "broadcast(n, position) inserts a digit that changes no place.",
        scope="lists to rank 3, every position; all strides",
        members=[(text, n, k) for text in ("3:m", "2x3:mm", "2x2x2:mlm") for n in (1, 3) for k in range(-2, 2)],
        run=_run_broadcast,
        judge=_judge_broadcast,
        mutants={"a digit of stride 1": [Patch(_right_broadcast, _moving)]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
