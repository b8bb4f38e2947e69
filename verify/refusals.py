"""Certify a refusal: no layout has the values that were asked for.

A layout with the values could be split into digits of prime extent, innermost first in some order of the prime factors
of its size, and then each stride is forced: it is one value of the table less the first.  So for every order there is
one candidate, and the refusal is right exactly when every candidate is wrong somewhere.  Small tables are compared
point by point, large ones by :func:`verify.reads.decide`.  Where the refusal names an index, it must be the first that
no candidate reaches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from layoutalg.errors import NotExpressibleError
from layoutalg.index import Affine
from layoutalg.tile import TileLayout
from verify.goals import Goal
from verify.reads import Claim, Linear, Read, Symbolic, decide, variable
from verify.sides import Side
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["certify_refusal"]

_MAX_ORDERS: Final = 2_000
_MAX_POINTS: Final = 1 << 14

Value = dict[str, int]


def certify_refusal(
    op: str,
    goal_of: Callable[..., Goal],
    inputs: Sequence[Any],
    error: NotExpressibleError,
    *,
    options: Mapping[str, Any],
    budget: int,
) -> Verdict:
    """Prove that a refused request has no answer, or return the answer that it has.

    Raises:
        Symbolic: numbers that are not decided here.
    """
    scope = f"{op}({', '.join(map(str, [*inputs, *options.values()]))}): no layout has these values"
    if op == "pack":
        return _pack(scope, *inputs, budget=budget, **options)
    if op == "fuse_axes":
        return _range(scope, goal_of(None, *inputs, **options), error, budget=budget)
    if op not in ("slice", "group", "group_many", "regroup", "permute", "tile", "direct_sum", "compose", "split_axis"):
        return Unknown(scope, f"refusals of {op} are not certified")
    goal = goal_of(None, *inputs, **options)
    values = _Values(goal, _parts(op, inputs, options))
    index = error.index if op in ("slice", "compose", "split_axis") else None
    return _no_layout(scope, values, goal, index, budget=budget)


class _Values:
    """The table that was asked for: the right side of a goal at any index of the result."""

    def __init__(self, goal: Goal, split: Callable[[Value], Value] | None = None) -> None:
        if any(name.isidentifier() and not _is_coordinate(name) for name in goal.ranges):
            raise Symbolic("a refusal with named parameters")
        self.goal, self.split, self.size = goal, split, goal.size
        self.coordinates = _places(goal)

    def at(self, n: int) -> Value:
        values: dict[str, int] = {}
        for name, (weight, extent) in self.coordinates.items():
            values[name] = n // weight % extent
        total = _evaluate(self.goal.right, values)
        return self.split(total) if self.split else total


def _is_coordinate(name: str) -> bool:
    return name == "n" or (name[0] in "xoid" and name[1:].isdigit())


def _places(goal: Goal) -> dict[str, tuple[int, int]]:
    """Weight and extent of every coordinate in the flat index."""
    weights = dict(goal.order.terms)
    found = {name: (weights.get(name, 1), high + 1) for name, (_, high) in goal.ranges.items()}
    if any(name not in weights and extent > 1 for name, (_, extent) in found.items()):
        raise Symbolic("a coordinate that the flat index does not have")
    return found


def _evaluate(side: Side, values: Mapping[str, int]) -> Value:
    total: Value = {}
    for (axis, monomial), form in side.offset.items():
        if monomial:
            raise Symbolic(f"offset in {monomial}")
        total[axis] = total.get(axis, 0) + form.at(values)
    for read in side.reads:
        n = read.index.at(values)
        for position, it in enumerate(reversed(read.iters)):
            if type(it.extent) is not int or type(it.stride) is not int:
                raise Symbolic(f"iter {it} is symbolic")
            last = position == len(read.iters) - 1
            n, c = (0, n) if last else divmod(n, it.extent)
            for (axis, _), step in read.place(it.axis, it.stride).items():
                total[axis] = total.get(axis, 0) + c * step
    return total


def _parts(op: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[[Value], Value] | None:
    """For a split axis: quotient and remainder of its value, coarsest part first."""
    if op != "split_axis":
        return None
    from verify.goals import _RANGES, _WEIGHTS

    layout, axis, into = [*inputs, *options.values()][:3]
    whole = str(getattr(axis, "name", axis))
    if any(it.axis.name == whole for it in layout.replica):
        raise Symbolic("a refused split with replicas")
    parts = sorted((str(getattr(p, "name", p)) for p in into), key=lambda p: _WEIGHTS[whole][p])

    def split(value: Value) -> Value:
        rest, found = value.get(whole, 0), {a: v for a, v in value.items() if a != whole}
        for part in parts[:-1]:
            rest, found[part] = divmod(rest, _RANGES[part])
        return {**found, parts[-1]: rest}

    return split


# -- candidates ----------------------------------------------------------------------------------------------------


def _orders(goal: Goal) -> Iterator[tuple[int, ...]]:
    """Digit extents, innermost first, that a layout with the required boundaries or extents could have."""
    if goal.extents:
        yield tuple(e for e in reversed(goal.extents) if e > 1)
        return
    marks = sorted({1, goal.size, *goal.boundaries})
    if any(b % a for a, b in itertools.pairwise(marks)):
        return
    blocks = [_prime_orders(b // a) for a, b in itertools.pairwise(marks)]
    if math.prod(len(block) for block in blocks) > _MAX_ORDERS:
        raise Symbolic(f"over {_MAX_ORDERS} orders of prime digits")
    for chosen in itertools.product(*blocks):
        yield tuple(p for block in chosen for p in block)


def _prime_orders(n: int) -> list[tuple[int, ...]]:
    factors, p = [], 2
    while n > 1:
        if p * p > n:
            p = n
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    if math.factorial(len(factors)) // math.prod(math.factorial(factors.count(q)) for q in set(factors)) > _MAX_ORDERS:
        raise Symbolic(f"over {_MAX_ORDERS} orders of prime digits")
    return _arrangements(tuple(factors))


def _arrangements(factors: tuple[int, ...]) -> list[tuple[int, ...]]:
    if not factors:
        return [()]
    found: list[tuple[int, ...]] = []
    for p in sorted(set(factors)):
        rest = list(factors)
        rest.remove(p)
        found.extend((p, *tail) for tail in _arrangements(tuple(rest)))
    return found


def _candidate(values: _Values, order: Sequence[int]) -> tuple[TileLayout, int]:
    """The only layout with these digits that can have the values, and where a step on two axes first occurs."""
    start = values.at(0)
    shard: list[tuple[int, int, str]] = []
    unit, limit = 1, values.size
    for extent in order:
        there = values.at(unit)
        step = {a: there.get(a, 0) - start.get(a, 0) for a in {**there, **start}}
        moving = [(a, s) for a, s in step.items() if s]
        if len(moving) > 1:
            limit = min(limit, unit)
        axis, stride = moving[0] if moving else ("m", 0)
        shard.insert(0, (extent, stride, axis))
        unit *= extent
    return TileLayout.from_iters(shard=shard, offset={a: v for a, v in start.items() if v}), limit


def _reach(values: _Values, order: Sequence[int], budget: int) -> tuple[int, TileLayout, int]:
    """First index at which the candidate of an order is wrong (the size if none), the candidate, and the effort."""
    candidate, limit = _candidate(values, order)
    if values.size <= _MAX_POINTS:
        for n in range(limit):
            found, wanted = candidate.apply(n), values.at(n)
            if any(found.get(a, 0) != wanted.get(a, 0) for a in {**found, **wanted}):
                return n, candidate, 0
        return limit, candidate, 0
    if values.split is not None:
        raise Symbolic(f"a refused split of {values.size} values")
    goal = values.goal
    side = Side().read(candidate, goal.order)
    reads = (*side.reads, *(_negate(read) for read in goal.right.reads))
    rest = {key: form for key, form in side.offset.items()}
    for key, form in goal.right.offset.items():
        rest[key] = rest.get(key, Linear()) - form
    verdict = decide(Claim(goal.ranges, goal.order, reads, rest), scope="candidate", budget=budget)
    if isinstance(verdict, Unknown):
        raise Symbolic(verdict.reason)
    index = values.size if isinstance(verdict, Proved) else int(verdict.counterexample["index"])
    return min(limit, index), candidate, verdict.effort


def _negate(read: Read) -> Read:
    scale = {axis: (name, -factor) for axis, (name, factor) in read.scale.items()}
    return Read(read.iters, read.index, scale, -read.factor, read.endless)


def _no_layout(scope: str, values: _Values, goal: Goal, index: Any, *, budget: int) -> Verdict:
    effort, first = 0, 0
    for order in _orders(goal):
        reach, candidate, spent = _reach(values, order, budget)
        effort += spent
        if reach == values.size:
            return Refuted(scope, {"answer": str(candidate), "digits": order[::-1]}, effort)
        first = max(first, reach)
    if index is not None and index != first and not goal.boundaries:
        return Refuted(scope, {"index": index, "first index that no layout reaches": first}, effort)
    return Proved(scope, effort)


# -- other reasons -------------------------------------------------------------------------------------------------


def _range(scope: str, goal: Goal, error: NotExpressibleError, *, budget: int) -> Verdict:
    """A fusion is refused because an inner value leaves its range, first at the index of the refusal."""
    first: int | None = None
    effort = 0
    for side, axis, begin, end in goal.within:
        low, high = side.ends(axis)
        claim = Claim(goal.ranges, goal.order, tuple(side.reads), side.offset, within={axis: (begin - low, end - high)})
        verdict = decide(claim, scope=scope, budget=budget)
        effort += verdict.effort
        if isinstance(verdict, Unknown):
            return verdict
        if isinstance(verdict, Refuted):
            index = int(verdict.counterexample["index"])
            first = index if first is None else min(first, index)
    if first is None:
        return Refuted(scope, {"fails": "every inner value is in its range"}, effort)
    if error.index is not None and error.index != first:
        return Refuted(scope, {"index": error.index, "first index out of range": first}, effort)
    return Proved(scope, effort)


def _pack(scope: str, layout: TileLayout, n: int, axis: Any = "m", *, budget: int) -> Verdict:
    """No P has n*P(k) + j = L(k*n + j): elements are no neighbours, places no multiples, or P is no layout."""
    name, size = str(getattr(axis, "name", axis)), layout.size
    if type(size) is not int or any(isinstance(v, Affine) for v in layout.offset.values()):
        raise Symbolic("a refused pack of a symbolic layout")
    if size % n:
        return Proved(f"{scope}; {n} does not divide {size}")
    k, j = variable("k"), variable("j")
    ranges = {"k": (0, size // n - 1), "j": (0, n - 1)}
    together = Claim(
        ranges,
        k * n + j,
        (Read(layout.shard, k * n + j), Read(layout.shard, k * n, factor=-1)),
        {(name, ""): j * -1},
    )
    verdict = decide(together, scope=scope, budget=budget)
    if not isinstance(verdict, Proved):
        return Proved(scope, verdict.effort) if isinstance(verdict, Refuted) else verdict
    heads = Goal({"n": (0, size // n - 1)}, variable("n"), Side(), Side().read(layout, variable("n") * n))
    own = [(e, s) for e, s, a in layout.replica if a.name == name]
    values = _Values(heads)
    for order in _orders(heads):
        reach, candidate, _ = _reach(values, order, budget)
        if reach < values.size:
            continue
        steps = [s for e, s, a in (*candidate.shard, *layout.replica) if a.name == name and e > 1]
        start = candidate.offset.get(name, 0) + sum((e - 1) * min(0, s) for e, s in own)
        if start % n == 0 and all(s % n == 0 for s in steps):
            return Refuted(scope, {"answer": f"{candidate} in units of {n}"}, verdict.effort)
    return Proved(scope, verdict.effort)
