"""Families: the shipping code on unknown strides, for every member of a finite list.

A family has two functions.  ``run(x, member)`` builds the inputs from the unknowns of ``x`` and calls the library; a
refusal is an answer too.  ``judge(member, answer)`` says what must hold of the answer, as formulas over the unknowns.
A mutant is the same pair with a function of the library replaced.  On ints (``x`` hands out numbers) the same judge
evaluates small members exhaustively and replays counterexamples; tables of ints are computed by numpy.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.tile import TileLayout
from verify.explore import Formula, all_of, any_of, explore, holds, negate, zero
from verify.laws.core import Law, Mutant, Settings, conjunction
from verify.verdict import Proved, Refuted, Verdict

__all__ = [
    "Given",
    "Labelled",
    "Patch",
    "agreement",
    "attempt",
    "fails_first_at",
    "family",
    "layout_of",
    "mistaken",
    "no_layout",
    "patched",
    "show",
    "spelt",
    "table",
    "the_layout",
]

#: (labels, obligation) pairs; the labels of the first that fails enter the counterexample.
Labelled: TypeAlias = Iterable[tuple[Mapping[str, Any], Formula]]


class Patch(NamedTuple):
    """A mistake: a function of the library and what replaces it, wherever it is imported or in one place alone.

    That place is a module, or a class for its methods.
    """

    right: Any
    wrong: Any
    only: ModuleType | type | None = None

    def places(self) -> Iterator[tuple[ModuleType | type, str]]:
        """Every module (or the class) and name under which the library's code finds the function."""
        found: list[ModuleType | type] = (
            [self.only] if self.only else [m for n, m in sys.modules.items() if n.split(".")[0] == "layoutalg"]
        )
        for module in found:
            yield from ((module, name) for name, value in vars(module).items() if value is self.right)


class Given:
    """Hands out given numbers where an explorer hands out unknowns."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values, self.asked = values, dict[str, int]()

    def unknown(self, name: str) -> int:
        """Return the number of this name, 0 where none is given."""
        self.asked[name] = self.values.get(name, 0)
        return self.asked[name]


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the call gives, or the refusal that it raises."""
    try:
        return function(*args, **kwargs)
    except NotExpressibleError as refusal:
        return refusal


def layout_of(x: Any, extents: Sequence[int], axes: Sequence[str], *, prefix: str = "s") -> TileLayout:
    """Return the layout with these extents and axes and the unknown strides s0, s1, ... (or another prefix)."""
    return TileLayout.from_iters(
        shard=[(e, x.unknown(f"{prefix}{k}"), a) for k, (e, a) in enumerate(zip(extents, axes, strict=True))]
    )


def spelt(text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Read extents and axes from "2x3:ml", m for memory, l for lanes, w for warps.

    >>> spelt("2x3:ml")
    ((2, 3), ('m', 'laneid'))
    """
    extents, axes = text.split(":")
    names = {"m": "m", "l": "laneid", "w": "warpid"}
    return tuple(int(e) for e in extents.split("x")), tuple(names[a] for a in axes)


def table(layout: TileLayout) -> list[dict[str, Any]]:
    """Return D(n) + O for every index, by numpy where all numbers are ints."""
    iters, size = layout.shard, layout.size
    if all(type(it.stride) is int for it in iters) and all(type(v) is int for v in layout.offset.values()):
        columns = {name: column.tolist() for name, column in layout.table().items()}
        return [{name: column[n] for name, column in columns.items()} for n in range(size)]
    return [layout.apply(n) for n in range(size)]


@cache
def _prime_orders(size: int) -> tuple[tuple[int, ...], ...]:
    """Every order of the prime factors, innermost first."""
    factors, p, rest = [], 2, size
    while rest > 1:
        while rest % p == 0:
            factors.append(p)
            rest //= p
        p += 1
    return tuple(sorted(set(itertools.permutations(factors))))


def _boundaries(order: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(order, lambda a, b: a * b, initial=1))


def the_layout(values: Sequence[Mapping[str, Any]], order: Sequence[int], *, first: int | None = None) -> Formula:
    """The statement that a layout with these digit extents, innermost first, has the values, or the ``first`` ones.

    Its strides are forced: one value of the table each.  A stride lies on one axis.
    """
    count = len(values) if first is None else first
    start, order = values[0], [extent for extent in order if extent > 1]
    axes = sorted({axis for value in values for axis in value})

    def step(n: int, axis: str) -> Any:
        return values[n].get(axis, 0) - start.get(axis, 0)

    parts: list[Formula] = []
    digits_of = [(unit, extent) for unit, extent in zip(_boundaries(order)[:-1], order, strict=True) if unit < count]
    for unit, _ in digits_of:
        parts.extend(any_of([zero(step(unit, a)), zero(step(unit, b))]) for a, b in itertools.combinations(axes, 2))
    for n in range(count):
        digits = [(n // unit % extent, unit) for unit, extent in digits_of]
        for axis in axes:
            expected = sum((c * step(unit, axis) for c, unit in digits if c), start=0)
            parts.append(zero(step(n, axis) - expected))
    return all_of(parts)


def fails_first_at(values: Sequence[Mapping[str, Any]], index: int) -> Formula:
    """The statement that some layout of this many values has those before the index, and none has that one as well."""
    orders = _prime_orders(len(values))
    return all_of(
        [
            any_of(the_layout(values, order, first=index) for order in orders),
            *(negate(the_layout(values, order, first=index + 1)) for order in orders),
        ]
    )


def agreement(values: Sequence[Mapping[str, int]]) -> int:
    """Return the first index that no layout of this many values reaches; as many as there are values if one fits."""
    return max(_reach(values, order) for order in _prime_orders(len(values)))


def _reach(values: Sequence[Mapping[str, int]], order: Sequence[int]) -> int:
    units = _boundaries(order)[:-1]
    axes = sorted({axis for value in values for axis in value})
    steps = [{a: values[unit].get(a, 0) - values[0].get(a, 0) for a in axes} for unit in units]
    for n, value in enumerate(values):
        digits = [n // unit % extent for unit, extent in zip(units, order, strict=True)]
        if any(c and sum(x != 0 for x in step.values()) > 1 for c, step in zip(digits, steps, strict=True)):
            return n
        for a in axes:
            moved = sum(c * step[a] for c, step in zip(digits, steps, strict=True))
            if value.get(a, 0) - values[0].get(a, 0) != moved:
                return n
    return len(values)


def no_layout(values: Sequence[Mapping[str, Any]], *, boundaries: Iterable[int] = ()) -> Formula:
    """The statement that no layout has these values (and a digit boundary at each of ``boundaries``).

    Any layout can be split into digits of prime extent, so it is enough to deny each order of the prime factors.
    """
    wanted = set(boundaries)
    return all_of(
        negate(the_layout(values, order)) for order in _prime_orders(len(values)) if wanted <= set(_boundaries(order))
    )


def mistaken(run: Callable[[], Any], patches: Sequence[Patch]) -> tuple[AssertionError | None, Any]:
    """Return what a run gives with the mistakes in place; an assertion of the library that they break comes first."""
    with patched(patches):
        try:
            return None, run()
        except AssertionError as fault:
            return fault, None


def show(answer: Any) -> str:
    """Spell an answer of the library: its repr, or the refusal."""
    if isinstance(answer, (LayoutError, AssertionError)):
        return f"{type(answer).__name__}: {answer}"
    return repr(answer)


@dataclass(frozen=True, slots=True)
class _Family:
    run: Callable[[Any, Any], Any]
    judge: Callable[[Any, Any], Labelled]
    members: tuple[Any, ...]
    values: tuple[int, ...]
    limit: int

    def _body(self, member: Any, x: Any) -> Labelled:
        return self.judge(member, self.run(x, member))

    def prove(self, settings: Settings, scope: str, patches: Sequence[Patch] = ()) -> Verdict:
        found: list[Verdict] = []
        paths = 0
        with patched(patches):
            for member in self.members:
                verdict = explore(
                    partial(self._body, member),
                    scope=f"{member}",
                    budget=settings.budget,
                    seed=settings.seed,
                )
                if isinstance(verdict, Refuted):
                    effort = sum(v.effort for v in found) + verdict.effort
                    return Refuted(scope, {**verdict.counterexample, "member": member}, effort)
                found.append(verdict)
                paths += _paths(verdict)
        return conjunction(f"{scope}; {len(self.members)} members, {paths} paths", found)

    def replay(self, counterexample: Mapping[str, Any], patches: Sequence[Patch]) -> tuple[str, str]:
        """Return the library's answer and the mutant's; raise unless the judge accepts the first, not the second."""
        member, x = counterexample["member"], Given(counterexample)
        right = self.run(x, member)
        fault, wrong = mistaken(lambda: self.run(x, member), patches)
        if not self._accepts(member, right) or (fault is None and self._accepts(member, wrong)):
            raise AssertionError(f"the counterexample does not repeat: {show(right)} and {show(wrong)}")
        return show(right), show(fault or wrong)

    def _accepts(self, member: Any, answer: Any) -> bool:
        return all(holds(formula, {}) for _, formula in self.judge(member, answer))

    def evaluate(self, *, thorough: bool = False) -> Verdict:
        """Judge the answers for choices of small strides: all of them, or some hundred spread over all choices."""
        count = 0
        for member in self.members:
            probe = Given({})
            self.run(probe, member)
            names = list(probe.asked)
            choices = len(self.values) ** len(names)
            share = choices if thorough else max(1, self.limit // len(self.members))
            for number in range(0, choices, max(1, choices // share)):
                values = {
                    name: self.values[number // len(self.values) ** k % len(self.values)]
                    for k, name in enumerate(names)
                }
                count += 1
                if not self._accepts(member, self.run(Given(values), member)):
                    return Refuted("small strides", {**values, "member": member})
        return Proved(f"{count} members evaluated")


def _paths(verdict: Verdict) -> int:
    return int(verdict.scope.rpartition("; ")[2].split()[0]) if isinstance(verdict, Proved) else 0


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Run the block with the mistakes in place."""
    with ExitStack() as stack:
        for patch in patches:
            places = list(patch.places())
            if not places:
                raise AssertionError(f"{patch.right} is not a function of the library: the mutant changes nothing")
            for module, name in places:
                stack.enter_context(mock.patch.object(module, name, patch.wrong))
        yield


def family(
    name: str,
    statement: str,
    *,
    scope: str,
    members: Iterable[Any],
    run: Callable[[Any, Any], Any],
    judge: Callable[[Any, Any], Labelled],
    mutants: Mapping[str, Sequence[Patch]],
    values: Sequence[int] = (0, 1, -1, 2, 4),
    limit: int = 500,
) -> Law:
    """Return the law of a family.

    Args:
        name: ``file.law``.
        statement: what holds.
        scope: the members in words.
        members: finite list; each must have a readable ``repr``.
        run: ``(unknowns, member) -> answer``.
        judge: ``(member, answer) -> (labels, obligation) pairs``.
        mutants: name -> replacements of functions of the library.
        values: strides tried in the evaluation on ints.
        limit: cases of that evaluation, unless it is thorough.
    """
    written = _Family(run, judge, tuple(members), tuple(values), limit)

    def mutant_of(wrong: str, patches: Sequence[Patch]) -> Mutant:
        return Mutant(
            wrong,
            lambda settings: written.prove(settings, scope, patches),
            lambda counterexample: written.replay(counterexample, patches),
        )

    return Law(
        name=name,
        statement=statement,
        scope=scope,
        kind="family",
        check=lambda settings: written.prove(settings, scope),
        mutants=tuple(itertools.starmap(mutant_of, mutants.items())),
        evaluate=written.evaluate,
        mutant_of=mutant_of,
    )
