"""Replicas: sets of translations, their merging, and the span of an image.

The set of a list of progressions is their sumset.  Turning a negative stride round and merging two progressions keep
it; both are steps.  That equal layouts have equal sets rests on a hand lemma: a finite set has one translation onto
another, since the least element goes to the least.  The canonical factorisation of a set is found by search and
checked exhaustively.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement, permutations, product
from math import prod
from typing import Any

from layoutalg.algebra import canonical, equality
from layoutalg.algebra.canonical import canonical_replica, merge_progressions
from layoutalg.axis import m
from layoutalg.decide import Number, exact_quotient
from layoutalg.iters import Iter, Iters
from layoutalg.tile import TileLayout
from verify.explore import Formula, all_of, any_of, nonzero, zero
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Labelled, Patch, family
from verify.laws.step import World, step, steps_of

__all__ = ["LAWS", "least_list", "sums"]

ALL = "all strides, all extents >= 1"


def sums(iters: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Return the sum of every choice of digits of ``(extent, stride)`` pairs.

    >>> sums([(2, 10), (3, 1)])
    [0, 1, 2, 10, 11, 12]
    """
    total: list[Any] = [0]
    for extent, stride in iters:
        total = [x + d * stride for x in total for d in range(extent)]
    return total


def _merged(v: Any) -> tuple[Any, Any]:
    e, f, k = v["e"], v["f"], v["k"]
    return v["m"] in set(sums([(e, 1), (f, k)])), v["m"] in range(e + (f - 1) * k)


@step(ALL, mutants={"gaps of one more allowed, k <= e + 1": _merged})
def merge(w: World) -> Any:
    """For 1 <= k <= e: {0..e-1} + {0..f-1}*k = {0..e-1+(f-1)*k}, hence with any stride s on both.

    Both inclusions; the witness of m is j = min(m div k, f-1), i = m - j*k.
    """
    e, f, k = w.extent("e"), w.extent("f"), w.extent("k")
    w.assume(k <= (e + 1 if w.wrong else e))
    i, j = w.digit("i", e), w.digit("j", f)
    inside = i + j * k < e + (f - 1) * k
    top, r = w.integer("q"), w.digit("r", k)  # m = q*k + r
    m_ = w.integer("m") if w.wrong else top * k + r
    if w.wrong:
        w.assume(m_ == top * k + r)
    last = w.choose(top <= f - 1, top, f - 1)
    rest = m_ - last * k
    known = w.all(m_ >= 0, m_ < e + (f - 1) * k)
    return w.all(inside, w.implies(known, w.all(rest >= 0, rest < e, last >= 0, last < f)))


def _turned(v: Any) -> tuple[Any, Any]:
    e, s = v["e"], v["s"]
    return set(sums([(e, s)])), {e * s + x for x in sums([(e, -s)])}


@step(ALL, mutants={"moved by e*s instead of (e-1)*s": _turned})
def turn(w: World) -> Any:
    """{0..e-1}*s = (e-1)*s + {0..e-1}*(-s): digit i goes to e-1-i."""
    e, s = w.extent("e"), w.integer("s")
    i = w.digit("i", e)
    other = e - 1 - i
    moved = (e if w.wrong else e - 1) * s
    return w.all(other >= 0, other < e, i * s == moved + other * (-s))


def _spanned(v: Any) -> tuple[Any, Any]:
    values = [x + v["c"] * v["s"] for x in (v["x"],)]
    return min(values) >= v["lo"], True


@step(ALL, mutants={"signs ignored": _spanned})
def span_step(w: World) -> Any:
    """Adding an iter (e : s) to values within [lo, hi] gives values within [lo + min(0, (e-1)s), hi + max(0, (e-1)s)],
    and both ends are reached from lo and hi."""
    e, s = w.extent("e"), w.integer("s")
    lo, hi, x = w.integer("lo"), w.integer("hi"), w.integer("x")
    c = w.digit("c", e)
    w.assume(w.all(lo <= x, x <= hi))
    end = (e - 1) * s
    low = lo if w.wrong else lo + w.choose(end <= 0, end, end * 0)
    high = hi + w.choose(end >= 0, end, end * 0)
    reached = w.any(low == lo, low == lo + end)
    return w.all(low <= x + c * s, x + c * s <= high, reached, w.any(high == hi, high == hi + end))


# -- the shipping code ---------------------------------------------------------------------------------------------

Member = tuple[tuple[int, int], ...]


def _run_merge(x: Any, member: Member) -> Any:
    s = x.unknown("s")
    iters = [Iter(e, s * k, m) for e, k in member]
    pairs, offset = canonical.merge_progressions(iters)
    return iters, [(e, t) for t, e in pairs.get(m, [])], offset.get(m, 0)


def _judge_merge(_member: Member, answer: Any) -> Labelled:
    iters, pairs, start = answer
    before = sums((it.extent, it.stride) for it in iters)
    after = [start + x for x in sums(pairs)]
    yield {"set": "lost"}, _within(before, after)
    yield {"set": "gained"}, _within(after, before)
    yield {"strides": pairs}, all_of(nonzero(t) for _, t in pairs)


def _within(some: list[Any], others: list[Any]) -> Formula:
    return all_of(any_of(zero(a - b) for b in others) for a in some)


def _join_anyway(fine: Any, coarse: Any) -> Any:
    (s, e), (t, f) = fine, coarse
    k = exact_quotient(t, s)
    return None if k is None or k < 1 or k > e + 1 else (s, e + (f - 1) * k)


def _no_turn(iters: Any) -> Any:
    right, offset = _right_merge(iters)
    return right, {axis: value * 0 for axis, value in offset.items()}


_right_merge = merge_progressions
_LOOSE = Patch(canonical._join, _join_anyway)
_UNMOVED = Patch(merge_progressions, _no_turn)


def _lists() -> Iterator[Iters]:
    """Every list of up to two progressions, some of three, of small strides and extents."""
    progressions = list(product((2, 3, 4), (-3, -1, 1, 2, 3, 4, 6)))
    for count in (1, 2):
        for chosen in combinations_with_replacement(progressions, count):
            yield tuple(Iter(e, s, m) for e, s in chosen)
    for chosen in permutations([(2, 1), (3, 2), (2, 3), (4, 5)], 3):
        yield tuple(Iter(e, s, m) for e, s in chosen)


def _judge_factor(iters: Iters, answer: tuple[Iters, dict[Any, Number]]) -> bool:
    found, offset = answer
    goal = set(sums((it.extent, it.stride) for it in iters))
    low = min(goal)
    shape = frozenset(x - low for x in goal)
    pairs = tuple((it.stride, it.extent) for it in found)
    if offset.get(m, 0) != low or frozenset(sums((e, s) for s, e in pairs)) != shape:
        return False
    return pairs == least_list(shape)


def least_list(shape: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """The fewest progressions with this sum, then the least list: every list of strides of the set is tried."""
    if len(shape) == 1:
        return ()
    top = max(shape)
    options = [(s, e) for s in sorted(shape - {0}) for e in range(2, top // s + 2)]
    for count in range(1, len(shape)):
        for chosen in combinations_with_replacement(options, count):
            fits = sum(s * (e - 1) for s, e in chosen) == top and prod(e for _, e in chosen) >= len(shape)
            if fits and frozenset(sums((e, s) for s, e in chosen)) == shape:
                return chosen
    raise AssertionError("a sum of progressions has a list")


Two = tuple[TileLayout, TileLayout]


def _two() -> Iterator[Two]:
    """Pairs of layouts with replicas and offsets: one map or two, one set or two, written in many ways."""
    several = ((2, 1), (2, 2)), ((2, 3), (6, 2)), ((3, 2), (4, 3)), ((1, 5), (2, 0))
    replicas = ((), ((2, 1),), ((2, -1),), ((4, 1),), *several)
    written = [
        TileLayout.from_iters(shard=shard, replica=[(e, s, "m") for e, s in replica], offset={"m": o, "laneid": p})
        for shard in ([(4, 2, "m")], [(2, 4, "m"), (2, 2, "m")], [(2, 4, "m"), (2, 2, "laneid")])
        for replica in replicas
        for o, p in ((0, 0), (1, 0), (0, 1))
    ]
    yield from product(written, repeat=2)


def _run_two(member: Two) -> Any:
    a, b = member
    return a.equivalent(b), a.difference(b), a.canonicalize() == b.canonicalize()


def _sets(layout: TileLayout) -> list[set[tuple[int, int]]]:
    return [{(x.get("m", 0), x.get("laneid", 0)) for x in layout.places(n)} for n in range(layout.size)]


def _judge_two(member: Two, answer: Any) -> bool:
    equivalent, difference, same_form = answer
    first = next((n for n, (x, y) in enumerate(zip(*map(_sets, member), strict=True)) if x != y), None)
    return bool(
        equivalent == same_form == (difference is None) == (first is None)
        and (difference is None or difference[0] == first)
    )


def _compared_as_lists(a: Any, b: Any, _axis: Any) -> bool:
    return bool(a == b)


def _offsets_ignored(_layout: TileLayout, moved: Any) -> Any:
    return dict(moved)


def _unsearched(elements: frozenset[int]) -> Any:
    found = _right_factor(elements)
    return found[::-1]


_right_factor = canonical.factor_sumset


def _laws() -> Iterator[Law]:
    factors = (-2, -1, 1, 2, 3, 4)
    members: list[Member] = [((e, 1), (f, k)) for e in (1, 2, 3, 4) for f in (2, 3) for k in factors]
    members += [((2, k), (e, 1), (2, j)) for e in (2, 3) for k in (2, 4) for j in (-1, 3)]
    yield family(
        "replica.merge_progressions",
        "merge_progressions keeps the set of translations: offset plus the sums of the merged progressions.",
        scope="two and three progressions with strides k*s, extents to 4, |k| to 4; all s",
        members=members,
        run=_run_merge,
        judge=_judge_merge,
        mutants={"gaps of one more allowed": [_LOOSE], "a negative stride turned without moving": [_UNMOVED]},
    )
    yield exhaustive(
        "replica.canonical_replica",
        "canonical_replica writes the same set with the fewest progressions, and of those lists the least.",
        scope="every list of up to two progressions with extents to 4 and strides in -3..6, some of three",
        members=_lists,
        run=canonical_replica,
        judge=_judge_factor,
        mutants={
            "the list in falling order": [Patch(canonical.factor_sumset, _unsearched)],
            "gaps of one more allowed": [_LOOSE],
        },
    )
    yield exhaustive(
        "replica.equivalent",
        "equivalent says whether two layouts have equal sets of places at every index, difference names the first "
        "index where they do not, and canonical forms are structurally equal exactly when the layouts are equivalent.",
        scope="every pair of 72 layouts of one size: three shards, eight lists of replicas, three offsets",
        members=_two,
        run=_run_two,
        judge=_judge_two,
        mutants={
            "replicas compared as lists": [Patch(equality._same_progressions, _compared_as_lists)],
            "offsets not compared": [Patch(equality._start, _offsets_ignored)],
        },
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
