"""The way back from sums and tilings: the other part, for all strides of the whole.

The known part of a tiling has fixed strides, since W multiplies the outer's; the whole is any layout over the shape.
A refusal is right where the rest (the whole less the known part) depends on the known part's index, is no multiple of
W, or is no layout.  Replicas are judged by listing sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from layoutalg.algebra import summands
from layoutalg.errors import NotExpressibleError
from layoutalg.tile import TileLayout
from verify.explore import Formula, all_of, any_of, equal_to, negate, nonzero
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.tiling import Sum, reach

__all__ = ["LAWS"]

Place = dict[str, Any]


def _less(a: Place, b: Place) -> Place:
    return {axis: a.get(axis, 0) - b.get(axis, 0) for axis in {**a, **b}}


def _times(place: Place, scale: Place) -> Place:
    return {axis: scale.get(axis, 1) * value for axis, value in place.items()}


def _rest(member: Sum, whole: list[Place], known: list[Place], *, outer: bool) -> tuple[list[Place], Formula]:
    """The other part's values, read where the known part's index first meets them, and that all others agree."""
    rest: dict[int, Place] = {}
    same: list[Formula] = []
    for n, (o, i) in enumerate(member.pairs()):
        mine, other = (o, i) if outer else (i, o)
        value = _less(whole[n], known[mine])
        if other in rest:
            same.append(equal_to(rest[other], value))
        rest.setdefault(other, value)
    return [rest[k] for k in range(len(rest))], all_of(same)


def _judge_rest(rest: list[Place], same: Formula, scale: Place, found: Any) -> Labelled:
    if isinstance(found, NotExpressibleError):
        torn = [nonzero(value % scale[axis]) for place in rest for axis, value in place.items() if axis in scale]
        yield {"refused": str(found)}, any_of([negate(same), *torn, no_layout(rest)])
        return
    yield {"sum": str(found)}, same
    values = table(found)
    yield {"size": len(values)}, len(values) == len(rest)
    for k, (a, b) in enumerate(zip(rest, values, strict=False)):
        yield {"index": k}, equal_to(a, _times(b, scale))


def _whole(x: Any, member: Sum) -> Any:
    return layout_of(x, *spelt(member.outer)) + x.unknown("a")


def _interleaved(member: Sum) -> list[int]:
    return [e for pair in zip(member.outer_shape, member.inner_shape, strict=True) for e in pair]


def _run_right(x: Any, member: Sum) -> Any:
    total, left = _whole(x, member), layout_of(x, *spelt(member.inner), prefix="t")
    return total, left, attempt(left.direct_sum_right_of, total, _interleaved(member), member.outer_shape)


def _judge_right(member: Sum, answer: Any) -> Labelled:
    total, left, found = answer
    rest, same = _rest(member, table(total), table(left), outer=True)
    return _judge_rest(rest, same, {}, found)


def _run_outer(x: Any, member: Sum) -> Any:
    total, inner = _whole(x, member), TileLayout.parse(member.inner)
    return total, inner, attempt(inner.tile_outer_of, total, member.domain, member.inner_shape)


def _judge_outer(member: Sum, answer: Any) -> Labelled:
    total, inner, found = answer
    rest, same = _rest(member, table(total), table(inner), outer=False)
    return _judge_rest(rest, same, reach(table(inner)), found)


def _run_inner(x: Any, member: Sum) -> Any:
    total, outer = _whole(x, member), TileLayout.parse(member.inner)
    return total, outer, attempt(outer.tile_inner_of, total, member.domain, member.outer_shape)


def _judge_inner(member: Sum, answer: Any) -> Labelled:
    """The inner layout is the whole at the first outer index, less W times that index's place."""
    total, outer, found = answer
    whole, known = table(total), table(outer)
    first = [whole[n] for n, (o, _) in enumerate(member.pairs()) if o == 0]
    scale = reach(first)
    scaled = [_times(place, scale) for place in known]
    rest, same = _rest(member, whole, scaled, outer=True)
    return _judge_rest(rest, same, {}, found)


# -- replicas ------------------------------------------------------------------------------------------------------


class Completion(NamedTuple):
    """A sum of two elements over replicas, and the known part: which replicas has the other part?"""

    total: TileLayout
    known: TileLayout
    outer: bool


_SETS = ((), ((2, 1),), ((3, 1),), ((2, 2),), ((4, 1),), ((5, 1),), ((2, 3),), ((2, 1), (2, 3)), ((3, 2),))


def _completions() -> Iterator[Completion]:
    for whole, part, outer in product(_SETS, _SETS, (True, False)):
        replica = [(e, s, "m") for e, s in whole]
        total = TileLayout.from_iters(shard=[(2, 100, "m"), (2, 20, "m")], replica=replica, offset={"m": 3})
        known = TileLayout.from_iters(shard=[(2, 100 if outer else 20, "m")], replica=[(e, s, "m") for e, s in part])
        yield Completion(total, known, outer)


def _run_completion(member: Completion) -> Any:
    total, known, outer = member
    if outer:
        return attempt(known.direct_sum_right_of, total, (2, 2), (2,))
    return attempt(known.direct_sum_left_of, total, (2, 2), (2,))


def _translations(layout: TileLayout) -> set[int]:
    return {place["m"] for place in layout.places(0)}


def _judge_completion(member: Completion, answer: Any) -> bool:
    """The answer's set completes the sum with the fewest places; a refusal means that no sum of progressions does."""
    goal, part = _translations(member.total), _translations(member.known)
    completing = [c for c in _small_sets() if {p + q + 3 for p in part for q in c} == goal]
    if isinstance(answer, NotExpressibleError):
        return not completing
    found = _translations(answer)
    stride = 20 if member.outer else 100
    right = {p + q for p in part for q in found} == goal and len(found) == min(map(len, completing))
    return right and [(it.extent, it.stride) for it in answer.shard] == [(2, stride)]


def _small_sets() -> list[frozenset[int]]:
    """Every sum of up to three progressions within 0..7, by listing."""
    progressions = [frozenset(range(0, e * s, s)) for s in range(1, 8) for e in range(2, 8) if (e - 1) * s <= 7]
    sets = {frozenset({0})}
    for _ in range(3):
        sets |= {frozenset(x + y for x in some for y in more) for some in sets for more in progressions}
    return sorted((s for s in sets if max(s) <= 7), key=lambda s: (len(s), sorted(s)))


_right_divide = summands._divide
_right_split = summands._split
_right_spans = summands._inner_spans
_right_complete = summands._complete


def _rounded(pairs: Any, factors: Any, _what: str) -> Any:
    return tuple(it._replace(stride=it.stride // factors.get(it.axis, 1)) for it, _ in pairs)


def _other_side(total: Any, total_shape: Any, part_shape: Any, *, outer: bool, what: str) -> Any:
    found = _right_split(total, total_shape, part_shape, outer=outer, what=what)
    return found._replace(outer=found.inner, inner=found.outer)


def _size_for_span(_tiled: Any, shard: Any, outer: Any, _what: str) -> Any:
    return dict.fromkeys(outer.axes, math.prod(it.extent for it in shard))


def _largest(total: Any, part: Any, factor: int) -> Any:
    """Every translation that fits, if they are a progression: more places than needed."""
    fitting = sorted(c for c in range(max(total) + 1) if all(p + factor * c in total for p in part))
    if len(fitting) > 1 and fitting == list(range(0, fitting[-1] + 1, fitting[1])):
        return [(fitting[1], len(fitting))]
    return _right_complete(total, part, factor)


def _laws() -> Iterator[Law]:
    unchecked = [Patch(summands._check_known, lambda *_: None)]
    yield family(
        "summands.direct_sum_right_of",
        "direct_sum_right_of returns the layout that, added to the left part, gives the total; where it refuses, the "
        "total is no such sum.",
        scope="totals up to 12 elements, left parts up to 4, on one and two axes; all strides of both",
        members=[
            Sum("2x2:mm", (2,), "2:m", (2,)), Sum("4:m", (2,), "2:m", (2,)), Sum("2x3:mm", (2,), "2:m", (3,)),
            Sum("2x2x2:mmm", (4,), "2x2:mm", (2,)), Sum("2x2x2:mlm", (2, 1), "2:m", (2, 2)),
            Sum("3x4:mm", (1, 2), "2:m", (3, 2)), Sum("6x2:mm", (3, 1), "3:m", (2, 2)),
            Sum("2x2:ml", (2,), "2:l", (2,)),
        ],
        run=_run_right,
        judge=_judge_right,
        mutants={
            "the known part not compared": unchecked,
            "left and right taken for each other": [Patch(_right_split, _other_side)],
        },
    )  # fmt: skip
    yield family(
        "summands.tile_outer_of",
        "tile_outer_of returns the layout Out with Inner(y) + W*Out(x) = T; where it refuses, T is no such tiling.",
        scope="tilings up to 12 elements on one and two axes, six inner layouts; all strides and offsets of the tiling",
        members=[
            Sum("2x2:mm", (2,), "S[2:1]", (2,)), Sum("4:m", (2,), "S[2:1]", (2,)), Sum("2x3:mm", (2,), "S[3:-2]", (3,)),
            Sum("2x2x2:mmm", (2,), "S[(2,2):(3,1)] + 5", (4,)), Sum("2x2x2:mlm", (2, 2), "S[2:2]", (1, 2)),
            Sum("3x4:mm", (3, 2), "S[2:1]", (1, 2)), Sum("2x2x2:mml", (4,), "S[2:1@laneid]", (2,)),
            Sum("2x2x2:lmm", (2, 1), "S[(2,2):(2,1)]", (2, 2)),
        ],
        run=_run_outer,
        judge=_judge_outer,
        mutants={
            "strides divided with rounding": [Patch(_right_divide, _rounded)],
            "the inner part not compared": unchecked,
        },
    )  # fmt: skip
    yield family(
        "summands.tile_inner_of",
        "tile_inner_of returns the layout I with I(y) + W*Outer(x) = T, W the span of I; where it refuses, there is "
        "none.",
        scope="tilings up to 12 elements on one and two axes, six outer layouts; all strides and offsets of the tiling",
        members=[
            Sum("2x2:mm", (2,), "S[2:1]", (2,)), Sum("4:m", (2,), "S[2:1]", (2,)), Sum("2x3:mm", (2,), "S[2:-1]", (3,)),
            Sum("2x2x2:mmm", (4,), "S[(2,2):(1,2)]", (2,)), Sum("2x2x2:mlm", (2, 1), "S[2:1] + 2", (2, 2)),
            Sum("3x4:mm", (1, 2), "S[2:2]", (3, 2)), Sum("2x2:lm", (2,), "S[2:1@laneid]", (2,)),
            Sum("2x2:mm", (2,), "S[2:0]", (2,)), Sum("2x2:mm", (2,), "S[2:1@warpid]", (2,)),
        ],
        run=_run_inner,
        judge=_judge_inner,
        mutants={
            "the number of elements for the span": [Patch(_right_spans, _size_for_span)],
            "the outer part not compared": unchecked,
        },
    )  # fmt: skip
    yield exhaustive(
        "summands.replicas_completed",
        "Where the known part has replicas, the other part's complete them to the total's with the fewest places; a "
        "refusal means that no sum of progressions does.",
        scope="nine sets of replicas within 0..7 for the total and for either part",
        members=_completions,
        run=_run_completion,
        judge=_judge_completion,
        mutants={
            "every translation that fits": [Patch(_right_complete, _largest), Patch(summands._dense, lambda *_: None)],
            "the total's replicas kept": [Patch(summands._missing, lambda total, *_: total)],
        },
    )


LAWS: tuple[Law, ...] = tuple(_laws())
