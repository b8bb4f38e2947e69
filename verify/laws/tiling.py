"""Tiling and direct sums: two layouts over one interleaved domain, and the way back.

One step covers both, for a tiling is the sum with W times the outer layout; it adds one dimension to what lies outside,
so that induction over the dimensions gives the rest.  The families run the shipping code with the strides of both
layouts unknown (of the outer alone for tilings, whose W multiplies spans and strides); a refusal there means that no
layout has the values of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from layoutalg.algebra import summands, tiling
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter
from layoutalg.notation import row_major
from layoutalg.tile import TileLayout
from verify.explore import Formula, all_of, any_of, equal_to, negate
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS", "Sum", "reach"]

ALL = "all strides, scales and coordinates, all extents >= 1"


def _inner_first(v: Any) -> tuple[Any, Any]:
    n = ((v["o"] * v["I0"] + v["j"]) * v["O1"] + v["p"]) * v["I1"] + v["q"]
    outer, inner = places([(v["O1"], v["A"])], v["o"] * v["O1"] + v["p"]), v["j"] * v["B0"] + v["q"] * v["B1"]
    got = places([(v["I0"], v["B0"]), (v["I1"], v["B1"]), (v["O1"], v["W"] * v["A"])], n)
    return (outer[0], inner + v["W"] * outer[1]), got


@step(ALL, mutants={"inner digits outside the outer ones": _inner_first})
def interleaved_sum(w: World) -> Any:
    """At coordinates (o*I0 + j, p*I1 + q) the list (I0 : B0)(O1 : W*A)(I1 : B1) under o has the inner place of (j, q)
    plus W times the outer place of (o, p)."""
    i0, o1, i1 = w.extent("I0"), w.extent("O1"), w.extent("I1")
    b0, a, b1, scale = (w.integer(name) for name in ("B0", "A", "B1", "W"))
    o, j, p, q = w.integer("o"), w.digit("j", i0), w.digit("p", o1), w.digit("q", i1)
    n = w.digits(o, (j, i0), (p, o1), (q, i1))
    w.know("divmod", j, i1, q)
    w.know("divmod", o, o1, p)
    inner = w.values([(i1, b1)], j * i1 + q)
    outer = w.values([(o1, a)], o * o1 + p)
    expected = (outer[0], inner[0] * b0 + inner[1] + scale * outer[1])
    if w.wrong:
        return w.same(w.values([(i0, b0), (i1, b1), (o1, scale * a)], n), expected)
    return w.same(w.values([(i0, b0), (o1, scale * a), (i1, b1)], n), expected)


def _overlap(v: Any) -> tuple[Any, Any]:
    whole = v["x1"] + v["W"] * v["o1"]
    return {divmod(whole - v["lo"], v["W"] + 1)}, {(v["o1"], v["x1"] - v["lo"]), (v["o2"], v["x2"] - v["lo"])}


@step(ALL, mutants={"W one less than the span": _overlap})
def tiles_are_disjoint(w: World) -> Any:
    """With inner values in [lo, lo + W) a place of a tiling determines the outer and the inner value: copies do not
    overlap."""
    width, lo = w.extent("W"), w.integer("lo")
    x1, x2, o1, o2 = (w.integer(name) for name in ("x1", "x2", "o1", "o2"))
    span = width + 1 if w.wrong else width
    for x in (x1, x2):
        w.assume(w.all(lo <= x, x < lo + span))
    w.assume(x1 + width * o1 == x2 + width * o2)
    return w.all(x1 == x2, o1 == o2)


# -- families ------------------------------------------------------------------------------------------------------


class Sum(NamedTuple):
    """Two layouts with shapes of one rank; ``inner`` names fixed strides, or none for unknown ones."""

    outer: str
    outer_shape: tuple[int, ...]
    inner: str
    inner_shape: tuple[int, ...]

    @property
    def domain(self) -> tuple[int, ...]:
        """Shape of the sum."""
        return tuple(a * b for a, b in zip(self.outer_shape, self.inner_shape, strict=True))

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Outer and inner index of every element of the sum, in row-major order."""
        for x in product(*map(range, self.domain)):
            o = flatten([v // i for v, i in zip(x, self.inner_shape, strict=True)], self.outer_shape)
            i = flatten([v % i for v, i in zip(x, self.inner_shape, strict=True)], self.inner_shape)
            yield o, i


def _plus(a: dict[str, Any], b: dict[str, Any], scale: Any = None) -> dict[str, Any]:
    return {x: a.get(x, 0) + b.get(x, 0) * (scale.get(x, 1) if scale else 1) for x in {**a, **b}}


def _expected(member: Sum, outer: TileLayout, inner: TileLayout, scale: Any = None) -> list[dict[str, Any]]:
    far, near = table(outer), table(inner)
    return [_plus(near[i], far[o], scale) for o, i in member.pairs()]


def _judge_values(wanted: list[dict[str, Any]], found: Any) -> Labelled:
    if isinstance(found, NotExpressibleError):
        yield {"refused": str(found)}, no_layout(wanted)
        return
    for n, (a, b) in enumerate(zip(wanted, table(found), strict=True)):
        yield {"index": n}, equal_to(a, b)


def _run_sum(x: Any, member: Sum) -> Any:
    left = layout_of(x, *spelt(member.outer)) + x.unknown("a")
    right = layout_of(x, *spelt(member.inner), prefix="t")
    return left, right, attempt(right.direct_sum, left, member.outer_shape, member.inner_shape)


def _judge_sum(member: Sum, answer: Any) -> Labelled:
    left, right, found = answer
    return _judge_values(_expected(member, left, right), found)


def _run_tile(x: Any, member: Sum) -> Any:
    outer = layout_of(x, *spelt(member.outer)) + x.unknown("a")
    inner = TileLayout.parse(member.inner)
    return outer, inner, attempt(inner.tile, outer, member.outer_shape, member.inner_shape)


def _judge_tile(member: Sum, answer: Any) -> Labelled:
    outer, inner, found = answer
    values = inner.table()
    scale = {axis: int(column.max() - column.min()) + 1 for axis, column in values.items()}
    return _judge_values(_expected(member, outer, inner, scale), found)


def _run_any_inner(x: Any, member: Sum) -> Any:
    inner = layout_of(x, *spelt(member.inner)) + x.unknown("a")
    outer = TileLayout.parse(member.outer)
    return outer, inner, attempt(inner.tile, outer, member.outer_shape, member.inner_shape)


def _judge_any_inner(member: Sum, answer: Any) -> Labelled:
    outer, inner, found = answer
    return _judge_values(_expected(member, outer, inner, reach(table(inner))), found)


def reach(values: list[dict[str, Any]]) -> dict[str, Any]:
    """Return max - min + 1 of the values on every axis, by comparing them one by one."""
    found: dict[str, Any] = {}
    for axis in {axis: None for value in values for axis in value}:
        column = [value.get(axis, 0) for value in values]
        low = high = column[0]
        for x in column[1:]:
            low, high = (x if x < low else low), (x if x > high else high)
        found[axis] = high - low + 1
    return found


def _run_to(x: Any, member: Sum) -> Any:
    inner = layout_of(x, *spelt(member.inner))
    return inner, attempt(inner.tile_to, member.domain, member.inner_shape)


def _judge_to(member: Sum, answer: Any) -> Labelled:
    """Copy number o of the inner layout, counted in row-major order, lies W*o further on."""
    inner, found = answer
    near = table(inner)
    scale = reach(near)
    return _judge_values([_plus(near[i], {"m": scale.get("m", 1) * o}) for o, i in member.pairs()], found)


def _run_part(x: Any, member: Sum) -> Any:
    """The left part of an unknown layout over the domain, given an unknown right part."""
    interleaved = [e for pair in zip(member.outer_shape, member.inner_shape, strict=True) for e in pair]
    total = layout_of(x, *spelt(member.outer)) + x.unknown("a")
    right = layout_of(x, *spelt(member.inner), prefix="t")
    return total, right, attempt(right.direct_sum_left_of, total, interleaved, member.inner_shape)


def _judge_part(member: Sum, answer: Any) -> Labelled:
    total, right, found = answer
    whole, part = table(total), table(right)
    count = math.prod(member.outer_shape)
    known: dict[int, dict[str, Any]] = {}
    parts: list[Formula] = []
    for n, (o, i) in enumerate(member.pairs()):
        rest = _plus(whole[n], part[i], dict.fromkeys({**whole[n], **part[i]}, -1))
        if o in known:
            parts.append(equal_to(known[o], rest))
        known.setdefault(o, rest)
    left = [known[o] for o in range(count)]
    if isinstance(found, NotExpressibleError):
        yield {"refused": str(found)}, any_of([negate(all_of(parts)), no_layout(left)])
        return
    yield {"sum": str(found)}, all_of(parts)
    for o, (a, b) in enumerate(zip(left, table(found), strict=True)):
        yield {"index": o}, equal_to(a, b)


_right_scaled = tiling.scaled
_right_merge = tiling.merge_interleaved


def _offset_unscaled(layout: TileLayout, factors: Any) -> Any:
    found = _right_scaled(layout, factors)
    return found._replace(offset=_right_scaled(layout, {}).offset)


def _swapped(outer_shape: Any, inner_shape: Any) -> Any:
    return [(not side, extent) for side, extent in _right_merge(inner_shape, outer_shape)]


def _signless(layout: TileLayout) -> Any:
    reach: dict[Any, Any] = {axis: 1 for axis in layout.axes}
    for extent, stride, axis in layout.shard:
        reach[axis] = reach[axis] + (extent - 1) * stride
    return reach


def _columns_first(extents: Any) -> Any:
    """Copies counted with the first dimension fastest."""
    return tuple(
        Iter(it.extent, stride, it.axis)
        for it, stride in zip(row_major(extents), [math.prod(extents[:k]) for k in range(len(extents))], strict=True)
    )


_OFFSET = Patch(_right_scaled, _offset_unscaled, tiling)
_ORDER = Patch(_right_merge, _swapped, tiling)
_SIGNS = Patch(tiling.spans, _signless)
_UNCHECKED = Patch(summands._check_known, lambda *_: None)


def _laws() -> Iterator[Law]:
    yield family(
        "tiling.direct_sum",
        "direct_sum has the value Left(x) + Right(y) at every x, y of the interleaved domain; where it refuses, no "
        "layout has these values.",
        scope="lists up to 6 elements over shapes of rank 1 and 2, on one and two axes; all strides of both",
        members=[
            Sum("2:m", (2,), "3:m", (3,)), Sum("2x2:mm", (4,), "2:m", (2,)), Sum("2:l", (1, 2), "2x2:mm", (2, 2)),
            Sum("2x2:mm", (2, 2), "2:m", (1, 2)), Sum("2x2:mm", (2, 2), "2x2:mm", (2, 2)),
            Sum("2:m", (2, 1), "4:m", (2, 2)), Sum("3x2:mm", (2, 3), "2:m", (2, 1)),
            Sum("2x2:ml", (2, 2), "2:l", (2, 1)), Sum("6:m", (2, 3), "2:m", (1, 2)),
            Sum("3x2:mm", (2, 3), "2:m", (1, 2)),
        ],
        run=_run_sum,
        judge=_judge_sum,
        mutants={"inner digits outside the outer ones": [_ORDER]},
    )  # fmt: skip
    yield family(
        "tiling.tile",
        "tile has the value Inner(y) + W * Outer(x), W the span of the inner image per axis; offsets are scaled too.",
        scope="seven inner layouts with fixed strides, negative ones included; all strides and offsets of the outer",
        members=[
            Sum(outer, outer_shape, inner, inner_shape)
            for inner, inner_shape in (
                ("S[4:1]", (2, 2)), ("S[4:-1]", (2, 2)), ("S[(2,2):(3,1)]", (2, 2)), ("S[(2,2):(-3,1)] + 4", (2, 2)),
                ("S[(2,2):(1@laneid,2)]", (2, 2)), ("S[4:0]", (4, 1)), ("S[(2,2):(5,1@warpid)]", (1, 4)),
            )
            for outer, outer_shape in (("2:m", (2, 1)), ("2x2:mm", (2, 2)), ("3x2:lm", (3, 2)), ("2x2:mm", (4, 1)))
        ],
        run=_run_tile,
        judge=_judge_tile,
        mutants={"the outer offset not scaled": [_OFFSET], "the span of a negative stride taken negative": [_SIGNS]},
    )  # fmt: skip
    yield family(
        "tiling.tile_any_inner",
        "tile has the value Inner(y) + W * Outer(x) for every inner layout too, W = max - min + 1 of its values.",
        scope="six outer layouts of fixed strides; inner lists to rank 3 on one and two axes, all strides and offsets",
        members=[
            Sum(outer, outer_shape, inner, inner_shape)
            for outer, outer_shape in (
                ("S[2:1]", (2, 1)), ("S[(2,2):(1,2)] + 3", (2, 2)), ("S[4:-1]", (1, 4)), ("S[2:1@laneid]", (2, 1)),
                ("S[4:0]", (2, 2)), ("S[2:3@warpid]", (1, 2)),
            )
            for inner, inner_shape in (("2:m", (2, 1)), ("2x2:mm", (2, 2)), ("2x2x2:mlm", (4, 2)), ("2x3:ml", (6, 1)))
        ],
        run=_run_any_inner,
        judge=_judge_any_inner,
        mutants={"the span of a negative stride taken negative": [_SIGNS]},
    )  # fmt: skip
    yield family(
        "tiling.tile_to",
        "tile_to puts copy number o, counted in row-major order, W*o further on, W the span of the inner image.",
        scope="inner lists to rank 3 on one and two axes, shapes of rank 1 to 3; all strides",
        members=[
            Sum("", outer_shape, inner, inner_shape)
            for inner, outer_shape, inner_shape in (
                ("3:m", (4,), (3,)), ("2x2:mm", (2, 3), (2, 2)), ("2x2x2:mlm", (2, 2), (4, 2)),
                ("2x3:ml", (1, 4), (2, 3)), ("4:m", (2, 2, 2), (2, 1, 2)), ("2x2:ll", (3, 2), (2, 2)),
            )
        ],
        run=_run_to,
        judge=_judge_to,
        mutants={
            "copies in column-major order": [Patch(row_major, _columns_first)],
            "copies one element apart": [Patch(tiling.spans, lambda layout: dict.fromkeys(layout.axes, 1))],
        },
    )  # fmt: skip
    yield family(
        "tiling.direct_sum_left_of",
        "direct_sum_left_of returns the layout that, added to the right part, gives the total; where it refuses, the "
        "total is no such sum.",
        scope="totals up to 12 elements, right parts up to 4, on one and two axes; all strides of both",
        members=[
            Sum("2x2:mm", (2,), "2:m", (2,)), Sum("4:m", (2,), "2:m", (2,)), Sum("2x3:mm", (2,), "3:m", (3,)),
            Sum("2x2x2:mmm", (2,), "2x2:mm", (4,)), Sum("2x2x2:mlm", (2, 2), "2:m", (1, 2)),
            Sum("3x4:mm", (3, 2), "2:m", (1, 2)),
            Sum("6x2:mm", (2, 2), "3:m", (3, 1)), Sum("2x2:ml", (2,), "2:m", (2,)),
        ],
        run=_run_part,
        judge=_judge_part,
        mutants={"the known part not compared": [_UNCHECKED]},
    )  # fmt: skip


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
