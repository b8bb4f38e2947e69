"""Run the library's own code on unknown integers, along every path that it can take.

A :class:`Form` is ``c0 + c1*x1 + ...`` over unknown integers.  When the code asks whether two such numbers are equal
(through :mod:`layoutalg.decide`), the :class:`Explorer` finds out which answers are possible, gives one, and runs the
code again from the start for the other.  Extents are ints, so every question is linear and the solver decides it: the
paths together cover **all** integers, degenerate coincidences included, which one generic run would miss.

At the end of a path an obligation is proved under the answers given along it.  Where the solver cannot tell whether an
answer is possible, it counts as possible, so that nothing is skipped.

>>> def body(x):
...     s, t = x.unknown("s"), x.unknown("t")
...     return [({}, zero(s - t) if equal(s, t) else nonzero(s - t))]
>>> from layoutalg.decide import equal
>>> print(explore(body, scope="all s, t"))
Proved
>>> explore(lambda x: [({}, nonzero(x.unknown("s") * 2 - 6))], scope="all s").counterexample
{'s': 3}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, Final, TypeAlias

import z3

from layoutalg.decide import Term
from verify.solve import BUDGET
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = [
    "Atom",
    "Explorer",
    "Form",
    "Formula",
    "all_of",
    "any_of",
    "equal_to",
    "explore",
    "negate",
    "nonzero",
    "zero",
]

_MAX_PATHS: Final = 20_000


class Form(Term):
    """A linear form over unknown integers; constant forms are ints, never of this class."""

    __slots__ = ("const", "explorer", "terms")

    def __init__(self, terms: Mapping[str, int], const: int, explorer: Explorer) -> None:
        self.terms, self.const, self.explorer = terms, const, explorer

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return Form(self.terms, self.const + other, self.explorer)
        if not isinstance(other, Form):
            return NotImplemented
        terms = dict(self.terms)
        for name, c in other.terms.items():
            total = terms.get(name, 0) + c
            if total:
                terms[name] = total
            else:
                del terms[name]
        const = self.const + other.const
        return Form(terms, const, self.explorer) if terms else const

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Any:
        if type(factor) is not int:
            return NotImplemented
        if factor == 0:
            return 0
        return Form({name: c * factor for name, c in self.terms.items()}, self.const * factor, self.explorer)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __divmod__(self, divisor: Any) -> tuple[Any, Any]:
        if type(divisor) is not int or divisor < 1:
            raise TypeError(f"{self} divided by {divisor}: forms are divided by positive ints")
        return self.explorer.divide(self, divisor)

    def __floordiv__(self, divisor: Any) -> Any:
        return divmod(self, divisor)[0]

    def __mod__(self, divisor: Any) -> Any:
        return divmod(self, divisor)[1]

    def equals(self, other: Any) -> bool:
        return self.explorer.decide("==", self - other)

    def is_at_most(self, other: Any) -> bool:
        return self.explorer.decide("<=", self - other)

    def is_at_least(self, other: Any) -> bool:
        return self.explorer.decide("<=", -(self - other))

    def quotient(self, divisor: Any) -> Any:
        if type(divisor) is int:
            if divisor == 0:
                return None
            sign = 1 if divisor > 0 else -1
            q, r = divmod(self * sign, divisor * sign)
            return q if (not isinstance(r, Form) and r == 0) or (isinstance(r, Form) and r.equals(0)) else None
        return _ratio(self, divisor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Form)) and self.equals(other)

    def __lt__(self, other: Any) -> bool:
        return self.is_at_most(other - 1)

    def __le__(self, other: Any) -> bool:
        return self.is_at_most(other)

    def __gt__(self, other: Any) -> bool:
        return self.is_at_least(other + 1)

    def __ge__(self, other: Any) -> bool:
        return self.is_at_least(other)

    def __bool__(self) -> bool:
        return not self.equals(0)

    # A hash cannot follow equality of unknowns; code that hashes strides is caught here.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [name if c == 1 else f"{c}*{name}" for name, c in self.terms.items()]
        return " + ".join([*parts, *([str(self.const)] if self.const else [])])

    def key(self) -> tuple[Any, ...]:
        """Coefficients by name and the constant, divided by what is common to the coefficients and the constant."""
        items = sorted(self.terms.items())
        common = gcd(*self.terms.values(), self.const)
        return tuple((name, c // common) for name, c in items), self.const // common


def _ratio(a: Form, b: Form) -> int | None:
    """Return k with a = k*b where one form is a multiple of the other's direction; other questions are not linear.

    The divisor is not 0: code that divides by a stride has asked whether it is.
    """
    name = next(iter(b.terms))
    over, under = a.terms.get(name, 0), b.terms[name]
    cross = a * under - b * over
    if over == 0 or not (type(cross) is int and cross == 0):
        raise TypeError(f"whether {b} divides {a} is no linear question")
    k, rest = divmod(over, under)
    return k if rest == 0 else None


# -- obligations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Atom:
    """``form == 0``, ``form != 0`` or ``form <= 0``."""

    relation: str
    form: Form


#: True, False, an atom, or ("and" | "or", parts).
Formula: TypeAlias = "bool | Atom | tuple[str, tuple[Formula, ...]]"


def zero(form: Any) -> Formula:
    """The statement ``form == 0``."""
    return Atom("==", form) if isinstance(form, Form) else form == 0


def nonzero(form: Any) -> Formula:
    """The statement ``form != 0``."""
    return Atom("!=", form) if isinstance(form, Form) else form != 0


def equal_to(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> Formula:
    """The statement that two sparse vectors agree."""
    return all_of(zero(a.get(axis, 0) - b.get(axis, 0)) for axis in {**a, **b})


def all_of(parts: Iterable[Formula]) -> Formula:
    """Conjunction."""
    kept = []
    for part in parts:
        if part is False:
            return False
        if part is not True:
            kept.append(part)
    return ("and", tuple(kept)) if kept else True


def any_of(parts: Iterable[Formula]) -> Formula:
    """Disjunction."""
    kept = []
    for part in parts:
        if part is True:
            return True
        if part is not False:
            kept.append(part)
    return ("or", tuple(kept)) if kept else False


def negate(formula: Formula) -> Formula:
    """Negation."""
    if isinstance(formula, bool):
        return not formula
    if isinstance(formula, Atom):
        if formula.relation == "<=":
            return Atom("<=", formula.form * -1 + 1)
        return Atom("!=" if formula.relation == "==" else "==", formula.form)
    kind, parts = formula
    return ("or" if kind == "and" else "and", tuple(map(negate, parts)))


# -- paths ---------------------------------------------------------------------------------------------------------


class Explorer:
    """The path that is being run: its answers, and the solver that knows them."""

    def __init__(self, *, budget: int = BUDGET, seed: int = 0) -> None:
        self._context = z3.Context()
        self._solver = z3.SimpleSolver(ctx=self._context)
        self._solver.set("random_seed", seed)
        self._solver.set("rlimit", budget)
        self._trail: list[_Entry] = []
        self._position = 0
        self._known: dict[tuple[Any, ...], bool] = {}
        self._variables: dict[str, Any] = {}
        self._products: dict[tuple[str, int], Any] = {}
        self._atoms: dict[tuple[Any, ...], Any] = {}
        self.undecided = 0

    def unknown(self, name: str) -> Form:
        """Return the unknown integer of this name."""
        return Form({name: 1}, 0, self)

    def decide(self, relation: str, form: Any) -> bool:
        """Answer ``form == 0`` or ``form <= 0``, one way on this path and the other way, if possible, on another."""
        if not isinstance(form, Form):
            return bool(form == 0 if relation == "==" else form <= 0)
        key = (relation, form.key())
        if key not in self._known:
            self._known[key] = self._next(key, Atom(relation, form))
        return self._known[key]

    def divide(self, form: Form, divisor: int) -> tuple[Any, Any]:
        """Return quotient and remainder, as new unknowns where they are not clear from the coefficients."""
        if all(c % divisor == 0 for c in form.terms.values()):
            const, r = divmod(form.const, divisor)
            return Form({name: c // divisor for name, c in form.terms.items()}, const, self), r
        name = f"({form} div {divisor})"
        q = self.unknown(name)
        rest = form - q * divisor
        inside = all_of([Atom("<=", rest * -1), Atom("<=", rest - (divisor - 1))])
        key = ("define", name)
        if key not in self._known:
            self._known[key] = self._define(key, inside)
        return q, rest

    def _next(self, key: tuple[Any, ...], atom: Atom) -> bool:
        if self._position < len(self._trail):
            entry = self._trail[self._position]
            if entry.key != key:
                raise AssertionError(f"the code asked {key} where it had asked {entry.key}: it is not deterministic")
            self._position += 1
            return entry.answer
        yes, no = self._possible(atom), self._possible(negate(atom))
        if not yes and not no:
            raise AssertionError("a path that cannot be taken was taken")
        answer = yes
        self._trail.append(_Entry(key, answer, other=yes and no, atom=atom))
        self._position += 1
        if yes and no:
            self._push(atom)
        return answer

    def _define(self, key: tuple[Any, ...], fact: Formula) -> bool:
        if self._position < len(self._trail):
            if self._trail[self._position].key != key:
                raise AssertionError(f"the code divided {key} where it had not: it is not deterministic")
        else:
            self._trail.append(_Entry(key, True, other=False, atom=None))
            self._push(fact)
        self._position += 1
        return True

    def _push(self, fact: Formula) -> None:
        self._solver.push()
        self._solver.add(self.translate(fact))

    def _possible(self, fact: Formula) -> bool:
        self._solver.push()
        self._solver.add(self.translate(fact))
        outcome = self._solver.check()
        self._solver.pop()
        return bool(outcome != z3.unsat)

    def back(self) -> bool:
        """Go to the next path; False when all have been run."""
        while self._trail:
            entry = self._trail.pop()
            if entry.pushed:
                self._solver.pop()
            if entry.other and entry.atom is not None:
                self._trail.append(_Entry(entry.key, False, other=False, atom=entry.atom, pushed=True))
                self._push(negate(entry.atom))
                break
        self._position, self._known = 0, {}
        return bool(self._trail)

    def refute(self, obligation: Formula) -> dict[str, int] | None:
        """Return values on this path for which the obligation fails, or None when there are none.

        Quotients that the code took are among them, under names in brackets.
        """
        if obligation is True:
            return None
        self._solver.push()
        self._solver.add(self.translate(negate(obligation)))
        outcome = self._solver.check()
        model = self._solver.model() if outcome == z3.sat else None
        self._solver.pop()
        if outcome == z3.unknown:
            self.undecided += 1
        if model is None:
            return None
        values = {name: model.eval(variable, model_completion=True) for name, variable in self._variables.items()}
        return {name: value.as_long() for name, value in sorted(values.items())}

    def translate(self, formula: Formula) -> Any:
        """Return the Z3 form of a formula; atoms are built once, for building them costs more than solving."""
        if isinstance(formula, bool):
            return z3.BoolVal(formula, self._context)
        if isinstance(formula, Atom):
            key = (formula.relation, formula.form.key())
            if key not in self._atoms:
                total = self._sum(formula.form)
                made = total <= 0 if formula.relation == "<=" else total == 0
                self._atoms[key] = z3.Not(made) if formula.relation == "!=" else made
            return self._atoms[key]
        kind, parts = formula
        translated = {made.get_id(): made for made in map(self.translate, parts)}
        return z3.And(*translated.values()) if kind == "and" else z3.Or(*translated.values())

    def _sum(self, form: Form) -> Any:
        parts = [self._product(name, c) for name, c in sorted(form.terms.items())]
        if form.const:
            parts.append(z3.IntVal(form.const, self._context))
        return parts[0] if len(parts) == 1 else z3.Sum(parts)

    def _product(self, name: str, c: int) -> Any:
        if name not in self._variables:
            self._variables[name] = z3.Int(name, self._context)
        if (name, c) not in self._products:
            self._products[name, c] = self._variables[name] if c == 1 else c * self._variables[name]
        return self._products[name, c]

    @property
    def effort(self) -> int:
        """The solver's resource count so far."""
        statistics = self._solver.statistics()
        return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118


@dataclass(slots=True)
class _Entry:
    """One question on the path; ``other`` says that the opposite answer is possible and still to be run."""

    key: tuple[Any, ...]
    answer: bool
    other: bool
    atom: Atom | None
    pushed: bool = False

    def __post_init__(self) -> None:
        self.pushed = self.pushed or self.other or self.atom is None


def explore(
    body: Callable[[Explorer], Iterable[tuple[Mapping[str, Any], Formula]]],
    *,
    scope: str,
    budget: int = BUDGET,
    seed: int = 0,
) -> Verdict:
    """Run ``body`` along every path and prove what it returns there.

    Args:
        body: takes the explorer, runs the code, returns ``(labels, obligation)`` pairs; the labels (an index, for
            example) of the first that fails are added to the counterexample.
        scope: the statement's scope in words.
        budget: resource limit of each of the solver's checks.
        seed: the solver's random seed.
    """
    explorer = Explorer(budget=budget, seed=seed)
    paths = 0
    while True:
        paths += 1
        labelled = list(body(explorer))
        whole = all_of(formula for _, formula in labelled)
        values = explorer.refute(whole)
        if values is not None:
            given = {name: value for name, value in values.items() if not name.startswith("(")}
            return Refuted(scope, {**given, **_first_failing(labelled, values)}, explorer.effort)
        if not explorer.back():
            break
        if paths >= _MAX_PATHS:
            return Unknown(scope, f"over {_MAX_PATHS} paths", explorer.effort)
    if explorer.undecided:
        return Unknown(scope, f"{explorer.undecided} of {paths} paths undecided", explorer.effort)
    return Proved(f"{scope}; {paths} paths", explorer.effort)


def _first_failing(
    labelled: Iterable[tuple[Mapping[str, Any], Formula]], values: Mapping[str, int]
) -> Mapping[str, Any]:
    return next((labels for labels, formula in labelled if not holds(formula, values)), {})


def holds(formula: Formula, values: Mapping[str, int]) -> bool:
    """Evaluate a formula at given values of its unknowns."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, Atom):
        total = formula.form.const + sum(c * values[name] for name, c in formula.form.terms.items())
        return {"==": total == 0, "!=": total != 0, "<=": total <= 0}[formula.relation]
    kind, parts = formula
    return all(holds(p, values) for p in parts) if kind == "and" else any(holds(p, values) for p in parts)
