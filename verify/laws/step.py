"""Steps: laws over all extents, written once and read in three worlds.

A law is a function of a :class:`World` that declares its unknowns, assumes its hypotheses and returns its conclusion.

* :class:`Proof`: unknowns are Z3 integers, quotients are the unknown functions Div and Mod, and the only facts about
  them are the lemma instances of :mod:`verify.term`.  A proof here is a proof for all integers.
* :class:`Model`: quotients are Z3's own and extents small, which finds readable counterexamples of wrong laws.
* :class:`Grid`: unknowns are numpy arrays; the law is evaluated at every member of a small box of values.

Numbers of the first two are :class:`Num`, on which the library's own ``vector_at``, ``split`` and ``flatten`` run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import z3

from layoutalg.axis import F, m
from layoutalg.decide import Term
from layoutalg.errors import UndecidedError
from layoutalg.iters import Iter, vector_at
from verify.laws.core import Law, Mutant, Replay, Settings, conjunction
from verify.solve import prove
from verify.term import Div, Mod, digits, lemma_divmod, lemma_positive, lemma_range, normal
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["Grid", "Model", "Num", "Proof", "World", "places", "step", "steps_of"]

#: Extents tried for the counterexample of a mutant: the smaller, the easier to read.
_SMALL: Final = (3, 8)
_GRID_LIMIT: Final = 1 << 18


class Num(Term):
    """A Z3 integer as a number of the algebra; its quotients are those of its world."""

    __slots__ = ("expr", "world")

    def __init__(self, expr: Any, world: _Solver) -> None:
        self.expr, self.world = expr, world

    def _with(self, expr: Any) -> Num:
        return self.world.number(expr)

    def __add__(self, other: Any) -> Num:
        return self._with(self.expr + _expr(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Num:
        return self._with(self.expr - _expr(other))

    def __rsub__(self, other: Any) -> Num:
        return self._with(_expr(other) - self.expr)

    def __mul__(self, other: Any) -> Num:
        return self._with(self.expr * _expr(other))

    __rmul__ = __mul__

    def __neg__(self) -> Num:
        return self._with(-self.expr)

    def __floordiv__(self, other: Any) -> Num:
        return self._with(self.world.div(self.expr, _expr(other)))

    def __mod__(self, other: Any) -> Num:
        return self._with(self.world.mod(self.expr, _expr(other)))

    def __divmod__(self, other: Any) -> tuple[Num, Num]:
        return self // other, self % other

    def __eq__(self, other: object) -> Any:
        return self.expr == _expr(other)

    def __ne__(self, other: object) -> Any:
        return self.expr != _expr(other)

    def __lt__(self, other: Any) -> Any:
        return self.expr < _expr(other)

    def __le__(self, other: Any) -> Any:
        return self.expr <= _expr(other)

    def __gt__(self, other: Any) -> Any:
        return self.expr > _expr(other)

    def __ge__(self, other: Any) -> Any:
        return self.expr >= _expr(other)

    __hash__ = None  # type: ignore[assignment]

    def equals(self, other: Any) -> bool:
        difference = normal(self.expr - _expr(other))
        if z3.is_int_value(difference):
            return bool(difference.as_long() == 0)
        return self.world.decide(difference == 0)


def _expr(value: Any) -> Any:
    return value.expr if isinstance(value, Num) else value


class World:
    """What a law may say; ``wrong`` names the mutant that is being tried, empty for the law itself."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def integer(self, name: str) -> Any:
        """An unknown integer."""
        raise NotImplementedError

    def extent(self, name: str) -> Any:
        """An unknown integer of at least 1."""
        raise NotImplementedError

    def digit(self, name: str, extent: Any) -> Any:
        """An unknown integer in ``[0, extent)``."""
        raise NotImplementedError

    def map(self, name: str) -> Callable[[Any], Any]:
        """An unknown map of an index: the place that some outer digits give it on one axis."""
        raise NotImplementedError

    def assume(self, condition: Any) -> None:
        """Add a hypothesis."""
        raise NotImplementedError

    def digits(self, u: Any, *pairs: tuple[Any, Any]) -> Any:
        """The index with these digits, ``u`` outermost, each further one with its extent."""
        n = u
        for value, extent in pairs:
            n = n * extent + value
        return n

    def know(self, lemma: str, *values: Any) -> None:
        """Use an instance of a lemma: ``"divmod"`` (q, e, r), ``"range"`` (u, f, c, e) or ``"positive"`` (a, b)."""

    def division(self, n: Any, e: Any) -> tuple[Any, Any]:
        """Quotient and remainder as Z3 and numpy themselves define them, for the laws about Div and Mod."""
        return n // e, n % e

    def all(self, *conditions: Any) -> Any:
        """Conjunction."""
        raise NotImplementedError

    def any(self, *conditions: Any) -> Any:
        """Disjunction."""
        raise NotImplementedError

    def no(self, condition: Any) -> Any:
        """Negation."""
        raise NotImplementedError

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        """``yes`` where the condition holds, else ``no``."""
        raise NotImplementedError

    def implies(self, condition: Any, then: Any) -> Any:
        """Implication."""
        return self.any(self.no(condition), then)

    def values(self, iters: Sequence[tuple[Any, Any]], n: Any) -> tuple[Any, Any]:
        """The library's ``vector_at`` of ``(extent, stride)`` pairs under one more, outermost digit.

        That digit lies on an axis of its own with stride 1, so that its value stands for whatever outer iters do.
        """
        found = vector_at((Iter(1, 1, F), *(Iter(e, s, m) for e, s in iters)), n)
        return found[F], found.get(m, 0)

    def same(self, a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
        """Both components agree."""
        return self.all(a[0] == b[0], a[1] == b[1])


class _Solver(World):
    """What the two Z3 worlds share."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__(wrong)
        self.given: list[Any] = []

    def number(self, expr: Any) -> Num:
        """A number of this world."""
        return Num(expr, self)

    def div(self, n: Any, e: Any) -> Any:
        raise NotImplementedError

    def mod(self, n: Any, e: Any) -> Any:
        raise NotImplementedError

    def decide(self, condition: Any) -> bool:
        """Answer a question that the library's code asks about unknowns; a plain step asks none."""
        raise UndecidedError(f"a step asks no questions, but {condition} was asked")

    def division(self, n: Any, e: Any) -> tuple[Any, Any]:
        return self.number(n.expr / e.expr), self.number(n.expr % e.expr)

    def integer(self, name: str) -> Any:
        return self.number(z3.Int(name))

    def extent(self, name: str) -> Any:
        value = z3.Int(name)
        self.given.append(value >= 1)
        return self.number(value)

    def digit(self, name: str, extent: Any) -> Any:
        value = z3.Int(name)
        self.given.extend([value >= 0, value < _expr(extent)])
        return self.number(value)

    def assume(self, condition: Any) -> None:
        self.given.append(condition)

    def all(self, *conditions: Any) -> Any:
        return z3.And(*conditions)

    def any(self, *conditions: Any) -> Any:
        return z3.Or(*conditions)

    def no(self, condition: Any) -> Any:
        return z3.Not(condition)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return self.number(z3.If(condition, _expr(yes), _expr(no)))


class Proof(_Solver):
    """All integers; Div and Mod are known by their lemmas alone."""

    def div(self, n: Any, e: Any) -> Any:
        return Div(normal(n), normal(e))

    def mod(self, n: Any, e: Any) -> Any:
        return Mod(normal(n), normal(e))

    def map(self, name: str) -> Callable[[Any], Any]:
        function = z3.Function(name, z3.IntSort(), z3.IntSort())
        return lambda x: self.number(function(normal(_expr(x))))

    def digits(self, u: Any, *pairs: tuple[Any, Any]) -> Any:
        n, lemmas = digits(_expr(u), [(_expr(v), _expr(e)) for v, e in pairs])
        self.given.extend(lemmas)
        return self.number(n)

    def know(self, lemma: str, *values: Any) -> None:
        self.given.append(_LEMMAS[lemma](*(_expr(v) for v in values)))


_LEMMAS: Final[dict[str, Callable[..., Any]]] = {
    "divmod": lemma_divmod,
    "range": lemma_range,
    "positive": lemma_positive,
}


class Model(_Solver):
    """Small extents and real quotients; an unknown map is a layout of two digits."""

    def __init__(self, wrong: str, largest: int) -> None:
        super().__init__(wrong)
        self.largest = largest

    def div(self, n: Any, e: Any) -> Any:
        return n / e

    def mod(self, n: Any, e: Any) -> Any:
        return n % e

    def integer(self, name: str) -> Any:
        found = super().integer(name)
        self.given.extend([found.expr >= -(self.largest**2), found.expr <= self.largest**2])
        return found

    def extent(self, name: str) -> Any:
        found = super().extent(name)
        self.given.append(found.expr <= self.largest)
        return found

    def map(self, name: str) -> Callable[[Any], Any]:
        inner = self.extent(f"{name}_extent")
        far, near = self.integer(f"{name}_outer"), self.integer(f"{name}_inner")
        return lambda x: (x // inner) * far + (x % inner) * near


class Grid(World):
    """Every member of a small box of values, as numpy arrays; a fixed random part of it where the box is large."""

    def __init__(self, law: Callable[[Any], Any]) -> None:
        super().__init__("")
        self.domains: dict[str, tuple[int, int]] = {}
        self.columns: dict[str, Any] = {}
        self.mask: Any = True
        self.extents: list[Any] = []
        law(self)
        self.size = math.prod(high - low for low, high in self.domains.values())
        self.columns = self._columns()
        self.mask, self.extents = np.ones(min(self.size, _GRID_LIMIT), dtype=bool), []
        self.conclusion = np.broadcast_to(np.asarray(law(self)), self.mask.shape)

    def _columns(self) -> dict[str, Any]:
        if self.size <= _GRID_LIMIT:
            axes = np.meshgrid(*(np.arange(*domain) for domain in self.domains.values()), indexing="ij")
            return {name: axis.reshape(-1) for name, axis in zip(self.domains, axes, strict=True)}
        random = np.random.default_rng(0)
        return {name: random.integers(*domain, size=_GRID_LIMIT) for name, domain in self.domains.items()}

    def _unknown(self, name: str, low: int, high: int) -> Any:
        self.domains[name] = (low, high)
        return self.columns.get(name, np.ones(1, dtype=np.int64))

    def integer(self, name: str) -> Any:
        return self._unknown(name, -2, 4)

    def extent(self, name: str) -> Any:
        found = self._unknown(name, 1, 4)
        self.extents.append(found)
        return found

    def digit(self, name: str, extent: Any) -> Any:
        found = self._unknown(name, 0, 4)
        self.assume(found < extent)
        return found

    def map(self, name: str) -> Callable[[Any], Any]:
        inner = self._unknown(f"{name}_extent", 1, 4)
        far, near = self._unknown(f"{name}_outer", -2, 3), self._unknown(f"{name}_inner", -2, 3)
        return lambda x: (x // inner) * far + (x % inner) * near

    def assume(self, condition: Any) -> None:
        self.mask = self.mask & condition

    def all(self, *conditions: Any) -> Any:
        return reduce(np.logical_and, conditions)

    def any(self, *conditions: Any) -> Any:
        return reduce(np.logical_or, conditions)

    def no(self, condition: Any) -> Any:
        return np.logical_not(condition)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def verdict(self) -> Verdict:
        """Whether the law holds at every member that satisfies its hypotheses; some must, with all extents >= 2."""
        wrong = np.flatnonzero(self.mask & ~self.conclusion)
        members = int(np.count_nonzero(self.mask))
        scope = f"{members} members evaluated"
        if wrong.size:
            return Refuted(scope, {name: int(column[wrong[0]]) for name, column in self.columns.items()})
        full = reduce(np.logical_and, (e >= 2 for e in self.extents), self.mask)
        if not np.any(full):
            return Unknown(scope, "no member has all extents at least 2: the hypotheses may contradict each other")
        return Proved(scope)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as written: the law in the worlds, its cases, and the replays of its mutants."""

    function: Callable[..., Any]
    cases: tuple[Mapping[str, Any], ...]

    def prove(self, settings: Settings, scope: str) -> Verdict:
        found = []
        for case in self.cases:
            world = Proof()
            goal = self.function(world, **case)
            found.append(prove(goal, given=world.given, scope=scope, budget=settings.budget, seed=settings.seed))
        return conjunction(scope, found)

    def refute(self, wrong: str, settings: Settings) -> Verdict:
        """Look for a small counterexample of the law with the mistake in it."""
        found: list[Verdict] = []
        for largest in _SMALL:
            for case in self.cases:
                world = Model(wrong, largest)
                goal = self.function(world, **case)
                scope = f"extents up to {largest}"
                verdict = prove(goal, given=world.given, scope=scope, budget=settings.budget, seed=settings.seed)
                if isinstance(verdict, Refuted):
                    return Refuted(scope, {**verdict.counterexample, **case}, verdict.effort)
                found.append(verdict)
        return conjunction("no counterexample with small extents", found)

    def evaluate(self) -> Verdict:
        found = [Grid(lambda w, case=case: self.function(w, **case)).verdict() for case in self.cases]  # type: ignore[misc]
        bad = next((v for v in found if not v.ok), None)
        members = sum(int(v.scope.split()[0]) for v in found)
        return bad if bad is not None else Proved(f"{members} members evaluated")


_STEPS: dict[str, Law] = {}


def step(
    scope: str, *, mutants: Mapping[str, Replay], cases: Sequence[Mapping[str, Any]] = ({},)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a law of a function ``(world, **case) -> conclusion``; its docstring is the statement.

    Args:
        scope: the values it is proved for, in words.
        mutants: name -> replay; the function asks ``world.wrong`` which mistake to make.
        cases: keyword arguments of the function; the law is their conjunction.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        written = _Step(function, tuple(cases))
        _STEPS[name] = Law(
            name=name,
            statement=" ".join((function.__doc__ or "").split()),
            scope=scope,
            kind="step",
            check=lambda settings: written.prove(settings, scope),
            mutants=tuple(
                Mutant(wrong, lambda settings, wrong=wrong: written.refute(wrong, settings), replay)  # type: ignore[misc]
                for wrong, replay in mutants.items()
            ),
            evaluate=written.evaluate,
        )
        return function

    return register


def places(iters: Sequence[tuple[int, int]], n: int) -> tuple[int, int]:
    """Return the library's answer for ints: the outermost digit, and the place of the given iters on one axis.

    >>> places([(3, 10), (2, 1)], 9)
    (1, 11)
    """
    return World().values(iters, n)


def steps_of(module: str) -> tuple[Law, ...]:
    """Return the steps that a module defines, in order; ``module`` is its ``__name__``."""
    prefix = module.rpartition(".")[2] + "."
    return tuple(law for name, law in _STEPS.items() if name.startswith(prefix))
