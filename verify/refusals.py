"""Certify a refusal: no layout has the values that were asked for.

A layout with the values could be split into digits of prime extent, innermost first in some order of the prime factors
of its size, and then each stride is forced: it is one value of the table less the first.  The search below grows
beginnings of the table digit by digit; the refusal is right exactly when the whole table is not reached.  Short
beginnings are compared point by point, long ones by :func:`verify.reads.decide`.  Where the refusal names an index, it
must be the first that no layout of this size reaches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from layoutalg.errors import NotExpressibleError
from layoutalg.index import Affine
from layoutalg.tile import TileLayout
from verify.goals import Goal, greedy_translates
from verify.reads import Claim, Read, Symbolic, decide, variable
from verify.sides import Side, add_places
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["certify_refusal"]

#: Beginnings of a table up to this long are compared point by point.
_MAX_POINTS: Final = 1 << 12

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
    if op == "complement":
        return _translates(scope, *inputs, budget=budget, **options)
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
        self.listed: list[int] | None = None

    @classmethod
    def of(cls, values: list[int]) -> _Values:
        """A table that is given as it is, on axis m."""
        table = cls(Goal({"n": (0, len(values) - 1)}, variable("n"), Side(), Side()))
        table.listed = values
        return table

    def at(self, n: int) -> Value:
        if self.listed is not None:
            return {"m": self.listed[n]}
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


# -- which tables are layouts --------------------------------------------------------------------------------------


class _Search:
    """Which beginnings [0, u) of the table are layouts, growing by one digit at a time.

    If the values below u are a layout, a further digit of extent p fits exactly when the values below u*p are the
    former repeated p times, each time moved by the same step on one axis.  That depends on u and p alone, not on the
    digits below, so there are only as many questions as divisors of the size.
    """

    def __init__(self, values: _Values, goal: Goal, budget: int) -> None:
        self.values, self.goal, self.budget = values, goal, budget
        self.size, self.effort = values.size, 0
        self.start = values.at(0)
        #: u -> the iters, outermost first, of one layout of the values below u.
        self.reached: dict[int, tuple[tuple[int, int, str], ...]] = {1: ()}
        self.failed: list[tuple[int, int]] = []  # (u, p) that does not fit

    def run(self) -> None:
        """Find every u that is reached, and every digit that fails there."""
        waiting = [1]
        while waiting:
            u = waiting.pop()
            for p in self._next(u):
                if u * p in self.reached:
                    continue
                if self._fits(u, p):
                    self.reached[u * p] = ((p, *self._step(u)[0]), *self.reached[u])
                    waiting.append(u * p)
                else:
                    self.failed.append((u, p))

    def _next(self, u: int) -> list[int]:
        """Extents of the next digit: primes, or what the request prescribes; no required boundary is jumped over."""
        if self.goal.extents:
            units = list(itertools.accumulate(reversed(self.goal.extents), lambda a, b: a * b, initial=1))
            return [v // w for w, v in itertools.pairwise(units) if w == u and v > w]
        rest = self.size // u
        marks = [b for b in self.goal.boundaries if b > u]
        return [p for p in _primes(rest) if all(b % (u * p) == 0 for b in marks)]

    def _step(self, u: int) -> tuple[tuple[int, str], bool]:
        """The step of a digit of unit u, and whether it lies on one axis."""
        there = self.values.at(u)
        step = {a: there.get(a, 0) - self.start.get(a, 0) for a in {**there, **self.start}}
        moving = [(s, a) for a, s in step.items() if s]
        return (moving[0] if moving else (0, "m")), len(moving) <= 1

    def candidate(self, u: int, p: int) -> TileLayout:
        """The only layout of the first u*p values."""
        return self.layout(((p, *self._step(u)[0]), *self.reached[u]))

    def layout(self, shard: tuple[tuple[int, int, str], ...]) -> TileLayout:
        """These iters from the table's first value on."""
        return TileLayout.from_iters(shard=shard, offset={a: v for a, v in self.start.items() if v})

    def _fits(self, u: int, p: int) -> bool:
        if not self._step(u)[1]:
            return False
        verdict = self.compare(u, p, u * p)
        if isinstance(verdict, Unknown):
            raise Symbolic(f"digits of {p} above {u} elements: {verdict.reason}")
        return verdict.ok

    def compare(self, u: int, p: int, before: int) -> Verdict:
        """Decide whether the candidate has all values below an index of at most u*p."""
        candidate = self.candidate(u, p)
        if before <= _MAX_POINTS or self.values.listed is not None:
            for n in range(before):
                found, wanted = candidate.apply(n), self.values.at(n)
                if any(found.get(a, 0) != wanted.get(a, 0) for a in {**found, **wanted}):
                    return Refuted("candidate", {"index": n})
            return Proved("candidate")
        if self.values.split is not None:
            raise Symbolic(f"a refused split of {self.size} values")
        side = Side().read(candidate, self.goal.order, endless=True)
        reads = (*side.reads, *(_negate(read) for read in self.goal.right.reads))
        rest = add_places(side.offset, self.goal.right.offset, -1)
        weights = dict(self.goal.order.terms)
        ranges = {
            name: (low, min(high, (before - 1) // weights[name]) if weights.get(name) else high)
            for name, (low, high) in self.goal.ranges.items()
        }
        claim = Claim(ranges, self.goal.order, reads, rest, before=before)
        verdict = decide(claim, scope="candidate", budget=self.budget, first=False)
        self.effort += verdict.effort
        return verdict

    def wrong_by(self, u: int, p: int, index: int) -> bool:
        """Whether the digit (u, p) fails at an index of at most ``index``."""
        if not self._step(u)[1]:
            return u <= index
        if index >= u * p - 1:
            return True
        verdict = self.compare(u, p, index + 1)
        if isinstance(verdict, Unknown):
            raise Symbolic(verdict.reason)
        return not verdict.ok


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        if p * p > n:
            p = n
        if n % p == 0:
            found.append(p)
            while n % p == 0:
                n //= p
        p += 1
    return found


def _negate(read: Read) -> Read:
    scale = {axis: (name, -factor) for axis, (name, factor) in read.scale.items()}
    return Read(read.iters, read.index, scale, -read.factor, read.endless)


def _no_layout(scope: str, values: _Values, goal: Goal, index: Any, *, budget: int) -> Verdict:
    search = _Search(values, goal, budget)
    search.run()
    if values.size in search.reached:
        answer = search.layout(search.reached[values.size])
        return Refuted(scope, {"answer": str(answer)}, search.effort)
    if type(index) is not int or goal.boundaries:
        return Proved(scope, search.effort)
    # The first index that shows it: every digit fails up to there, and some does not before.
    late = [(u, p) for u, p in search.failed if u > index or not search.wrong_by(u, p, index)]
    if late:
        further = str(search.layout(search.reached[late[0][0]]))
        return Refuted(scope, {"index": index, "a layout reaches further": further}, search.effort)
    if all(search.wrong_by(u, p, index - 1) for u, p in search.failed):
        return Refuted(scope, {"index": index, "no layout reaches": index}, search.effort)
    return Proved(scope, search.effort)


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


def _translates(scope: str, a: TileLayout, cotarget: int, *, budget: int) -> Verdict:
    """The greedy translates of a complement meet each other, or are no layout."""
    translates, disjoint = greedy_translates(a, cotarget)
    if not disjoint:
        return Proved(f"{scope}; an address stays free whose image would meet an earlier one")
    values = _Values.of(translates)
    return _no_layout(scope, values, values.goal, None, budget=budget)


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
    search = _Search(_Values(heads), heads, budget)
    search.run()
    effort = verdict.effort + search.effort
    if size // n not in search.reached:
        return Proved(scope, effort)
    shard = search.reached[size // n]
    steps = [s for _, s, a in shard if a == name] + [s for e, s in own if e > 1]
    start = search.start.get(name, 0) + sum((e - 1) * min(0, s) for e, s in own)
    if start % n or any(s % n for s in steps):
        return Proved(scope, effort)
    return Refuted(scope, {"answer": f"{TileLayout.from_iters(shard=shard)} in units of {n}"}, effort)
