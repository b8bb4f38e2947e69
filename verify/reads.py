"""Deciding that sums of layout reads agree at every point of a box, at any size.

A *claim* is about unknown integers with ranges (the coordinates of a box, the parameters of an offset): several layouts
are read at linear indices, their places are scaled and added, and on every axis the sum must be zero.

    slice:  Y at r  minus  L at begin + r  = 0          for 0 <= r < count

Digits of an index are integers c with ``sum c_k * E_k = index`` and ``0 <= c_k < e_k``; they exist and are unique
(``verify.laws.index``), so a claim is linear integer arithmetic without any division.  Three steps keep it small:

* *Common digits.*  While every read has the same unknown x as its lowest part, ``x + multiple of g``, and every
  innermost extent is a multiple of g, x splits into ``x'*g + rho`` and each read loses the digit rho.  Two ways to
  write one map fall apart into digits here, whatever their size.  Digits within the common divisor of an index's
  coefficients are constants, and leave first; terms that stay below a digit boundary are read apart.
* *Known quotients.*  Where the outer index can take few values, the places it leads to are written out.
* What remains goes to the solver with one equation ``index = q*e + c`` per digit.

Symbolic strides are polynomials in their symbols: a sum is zero for all values exactly when the integer coefficient of
every monomial is.  Symbolic extents are outside this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import gcd
from typing import Any, Final, TypeAlias

import z3

from layoutalg.axis import Axis
from layoutalg.index import Affine
from layoutalg.iters import Iters
from verify.solve import BUDGET, prove
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["Claim", "Linear", "Read", "Symbolic", "constant", "decide", "number_terms", "offset_terms", "variable"]

#: Outer indices with at most this many values have their places written out.
_FEW: Final = 16


class Symbolic(Exception):
    """A number that this module cannot use, such as a symbolic extent; the text says which."""


# -- linear forms --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Linear:
    """``const + sum(coefficient * unknown)``."""

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    def __add__(self, other: Linear) -> Linear:
        total = dict(self.terms)
        for name, c in other.terms:
            total[name] = total.get(name, 0) + c
        return Linear(tuple(sorted((n, c) for n, c in total.items() if c)), self.const + other.const)

    def __mul__(self, factor: int) -> Linear:
        return Linear(tuple((n, c * factor) for n, c in self.terms if factor), self.const * factor)

    def __sub__(self, other: Linear) -> Linear:
        return self + other * -1

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Least and greatest value, each unknown taken on its own."""
        low = high = self.const
        for name, c in self.terms:
            ends = c * ranges[name][0], c * ranges[name][1]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def at(self, values: Mapping[str, int]) -> int:
        """The value at given unknowns."""
        return self.const + sum(c * values[name] for name, c in self.terms)

    def z3(self) -> Any:
        """The Z3 term."""
        return z3.Sum([z3.IntVal(self.const), *(c * z3.Int(name) for name, c in self.terms)])


def constant(value: int) -> Linear:
    """The form without unknowns."""
    return Linear((), value)


def variable(name: str) -> Linear:
    """The unknown itself."""
    return Linear(((name, 1),))


#: (axis name, monomial of the symbols, "" for none) -> coefficient.
Place: TypeAlias = dict[tuple[str, str], Linear]
#: Extent of each digit, innermost first, and where one step of it leads.
_Digits: TypeAlias = list[tuple[int, dict[tuple[str, str], int]]]


def number_terms(value: Any, what: str) -> dict[str, int]:
    """Return the integer coefficient of every monomial of a stride: ``{"": n}`` for an int.

    Raises:
        Symbolic: no polynomial with integer coefficients.
    """
    if type(value) is int:
        return {"": value} if value else {}
    if type(value).__module__.partition(".")[0] == "sympy":
        import sympy

        terms = sympy.expand(value).as_coefficients_dict()
        if all(c.is_Integer for c in terms.values()) and sympy.expand(value).is_polynomial():
            return {"" if monomial == 1 else str(monomial): int(c) for monomial, c in terms.items()}
    raise Symbolic(f"{what} {value} is no polynomial with integer coefficients")


def offset_terms(value: Any, what: str) -> dict[str, Linear]:
    """Return the coefficient of every monomial of an offset; named parameters are unknowns."""
    if isinstance(value, Affine):
        total = constant(value.const)
        for param, c in value.terms:
            total = total + variable(param.name) * c
        return {"": total}
    return {monomial: constant(c) for monomial, c in number_terms(value, what).items()}


def _plain(value: Any, what: str) -> int:
    if type(value) is not int:
        raise Symbolic(f"{what} {value} is symbolic; digits of unknown extent are not decided here")
    return value


# -- claims --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """The shard of a layout at an index, every axis multiplied and perhaps renamed.

    Args:
        iters: outermost first.
        index: linear in the claim's unknowns; within ``[0, size)``.
        scale: axis -> (axis of the sum, factor); other axes keep their name with ``factor``.
        factor: multiplies every axis that ``scale`` does not name.
        endless: the outermost digit goes on beyond its extent.
    """

    iters: Iters
    index: Linear
    scale: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    factor: int = 1
    endless: bool = False

    def digits(self) -> _Digits:
        """Extent and places per digit, innermost first."""
        found: _Digits = []
        for extent, stride, axis in reversed(self.iters):
            if type(extent) is int and extent == 1 and not (self.endless and len(found) == len(self.iters) - 1):
                continue
            found.append((_plain(extent, "extent"), self.place(axis, stride)))
        return found

    def place(self, axis: Axis, stride: Any) -> dict[tuple[str, str], int]:
        """Where one step of a digit leads."""
        name, factor = self.scale.get(axis.name, (axis.name, self.factor))
        terms = number_terms(stride, "stride")
        return {(name, monomial): c * factor for monomial, c in terms.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """``sum of reads + rest = 0`` on every axis, for all values of the unknowns.

    Args:
        ranges: unknown -> (first, last); the coordinates and parameters.
        order: the flat index of the box, whose least value is looked for when the claim is wrong.
        reads: layouts at indices.
        rest: what is added besides.
        within: instead, the sum on these axes lies in [first, end); other axes do not matter.
        before: only points of the box with a flat index below this.
    """

    ranges: Mapping[str, tuple[int, int]]
    order: Linear
    reads: tuple[Read, ...]
    rest: Place = field(default_factory=dict)
    within: Mapping[str, tuple[int, int]] | None = None
    before: int | None = None


class _Problem:
    """A claim on its way to the solver: unknowns, facts about them, and the sum so far."""

    def __init__(self, claim: Claim) -> None:
        self.ranges = dict(claim.ranges)
        self.facts: list[Any] = []
        self.total: Place = dict(claim.rest)
        self.within = claim.within
        self.known: dict[str, Linear] = {name: variable(name) for name in claim.ranges}
        self.reads = [(read.digits(), read.index, read.endless) for read in claim.reads]
        self.names = (f"_{n}" for n in count())
        for name, (low, high) in claim.ranges.items():
            if low == high:
                self._fix(name, low)

    def add(self, place: Mapping[tuple[str, str], int], digit: Linear) -> None:
        for key, c in place.items():
            self.total[key] = self.total.get(key, Linear()) + digit * c

    def fresh(self, low: int, high: int) -> str:
        name = next(self.names)
        self.ranges[name] = (low, high)
        return name

    # Common digits.

    def split(self) -> None:
        """Split common lowest digits off as long as there are any."""
        while self._split_one():
            pass

    def _strip(self) -> None:
        """Take off the digits that are constants: those within the common divisor of an index's coefficients."""
        for position, (digits, index, endless) in enumerate(self.reads):
            while index.terms and digits:
                extent, place = digits[0]
                g = gcd(extent, *(c for _, c in index.terms))
                if g == 1 and extent > 1:
                    break
                whole, rest = divmod(index.const, g)
                self.add(place, constant(rest))
                index = Linear(tuple((name, c // g) for name, c in index.terms), whole)
                head = (extent // g, {key: c * g for key, c in place.items()})
                digits = [head, *digits[1:]] if extent > g or (endless and len(digits) == 1) else digits[1:]
                if g == 1:
                    break
            self.reads[position] = (digits, index, endless)

    def _separate(self) -> None:
        """Read the parts of an index apart where its lower terms stay below a digit boundary (law concatenate)."""
        waiting, done = list(self.reads), []
        while waiting:
            digits, index, endless = waiting.pop()
            parts = _apart(digits, index, self.ranges, endless=endless)
            if parts is None:
                done.append((digits, index, endless))
            else:
                done.append((*parts[0], False))
                waiting.append((*parts[1], endless))
        self.reads = done

    def _split_one(self) -> bool:
        self._strip()
        self._separate()
        self.reads = [read for read in self.reads if read[0]]
        for x in dict.fromkeys(name for _, index, _ in self.reads for name, _ in index.terms):
            low, high = self.ranges[x]
            reads = [read for read in self.reads if x in dict(read[1].terms)]
            if low != 0 or any(dict(index.terms)[x] != 1 for _, index, _ in reads):
                continue
            g = 0
            for digits, index, _ in reads:
                g = gcd(g, digits[0][0], index.const, *(c for name, c in index.terms if name != x))
            if g > 1:
                self._divide(x, g, high)
                return True
        return False

    def _divide(self, x: str, g: int, high: int) -> None:
        rho, outer = self.fresh(0, min(g - 1, high)), self.fresh(0, high // g)
        whole = variable(outer) * g + variable(rho)
        if (high + 1) % g:
            self.facts.append(whole.z3() <= high)
        self.known = {name: _replace(form, x, whole) for name, form in self.known.items()}
        self.total = {key: _replace(form, x, whole) for key, form in self.total.items()}
        rewritten = []
        for digits, index, endless in self.reads:
            if x not in dict(index.terms):
                rewritten.append((digits, index, endless))
                continue
            extent, place = digits[0]
            self.add(place, variable(rho))
            rest = _replace(index, x, whole) - variable(rho)
            inner = Linear(tuple((name, c // g) for name, c in rest.terms), rest.const // g)
            head = (extent // g, {key: c * g for key, c in place.items()})
            last = len(digits) == 1
            kept = [head, *digits[1:]] if extent > g or (last and endless) else digits[1:]
            rewritten.append((kept, inner, endless))
        self.reads = rewritten
        if high // g == 0:
            self._fix(outer, 0)

    def _fix(self, name: str, value: int) -> None:
        """An unknown that has one value only is that value."""
        by = constant(value)
        self.known = {n: _replace(form, name, by) for n, form in self.known.items()}
        self.total = {key: _replace(form, name, by) for key, form in self.total.items()}
        self.reads = [(digits, _replace(index, name, by), endless) for digits, index, endless in self.reads]

    # What remains.

    def finish(self) -> None:
        """Write the digits that are left as unknowns with one equation each."""
        for digits, index, endless in self.reads:
            self._read(digits, index, endless)

    def _read(self, digits: _Digits, index: Linear, endless: bool) -> None:
        while digits:
            low, high = index.bounds(self.ranges)
            if high - low < _FEW:
                self._cases(digits, index, (low, high), endless)
                return
            extent, place = digits[0]
            if len(digits) == 1:
                self.add(place, index)
                return
            c, q = self.fresh(0, extent - 1), self.fresh(low // extent, high // extent)
            self.facts.append(index.z3() == (variable(q) * extent + variable(c)).z3())
            self.add(place, variable(c))
            digits, index = digits[1:], variable(q)

    def _cases(self, digits: _Digits, index: Linear, ends: tuple[int, int], endless: bool) -> None:
        size = 1
        for extent, _ in digits:
            size *= extent
        # Bounds are taken unknown by unknown, so a few values may lie outside the layout; no index takes them.
        inside = range(max(0, ends[0]), ends[1] + 1 if endless else min(ends[1] + 1, size))
        options = [(n, _evaluate(digits, n)) for n in inside]
        keys = sorted({key for _, place in options for key in place})
        if ends[0] == ends[1]:
            for key, value in options[0][1].items():
                self.total[key] = self.total.get(key, Linear()) + constant(value)
            return
        names = {}
        for key in keys:
            values = [place.get(key, 0) for _, place in options]
            names[key] = self.fresh(min(values), max(values))
            self.total[key] = self.total.get(key, Linear()) + variable(names[key])
        rows = [
            z3.And(index.z3() == n, *(z3.Int(names[key]) == place.get(key, 0) for key in keys)) for n, place in options
        ]
        self.facts.append(z3.Or(*rows))

    def hypotheses(self) -> list[Any]:
        """Ranges and facts."""
        ranges = [z3.And(z3.Int(name) >= low, z3.Int(name) <= high) for name, (low, high) in self.ranges.items()]
        return [*ranges, *self.facts]

    def goal(self) -> Any:
        """The sum is zero, or within its interval."""
        if self.within is not None:
            sums = [(self.total.get((axis, ""), Linear()).z3(), *ends) for axis, ends in self.within.items()]
            return z3.And(True, *(z3.And(total >= low, total < end) for total, low, end in sums))
        return z3.And(True, *(form.z3() == 0 for form in self.total.values() if form.terms or form.const))


def _apart(
    digits: _Digits, index: Linear, ranges: Mapping[str, tuple[int, int]], *, endless: bool
) -> tuple[tuple[_Digits, Linear], tuple[_Digits, Linear]] | None:
    """Cut a read at a boundary z into (inner digits, low part) and (outer digits, high part); None where none fits."""
    terms = sorted(index.terms, key=lambda term: abs(term[1]))
    for k in range(1, len(terms)):
        g = gcd(*(c for _, c in terms[k:]))
        z, inner, outer = _boundary(digits, g)
        if endless and not outer:  # the last digit goes on: what is beyond its extent stays a digit
            extent, place = digits[-1]
            outer = [(1, {key: c * extent for key, c in place.items()})]
        low = Linear(tuple(sorted(terms[:k])), index.const % z)
        least, most = low.bounds(ranges)
        if z > 1 and least >= 0 and most < z:
            high = Linear(tuple(sorted((name, c // z) for name, c in terms[k:])), index.const // z)
            return (inner, low), (outer, high)
    return None


def _boundary(digits: _Digits, g: int) -> tuple[int, _Digits, _Digits]:
    """Return the largest digit boundary that divides g, and the digits within and outside."""
    z, inner, outer = 1, [], list(digits)
    while outer:
        extent, place = outer[0]
        step = gcd(extent, g // z)
        if step > 1 or extent == 1:
            inner.append((step, place))
            z *= step
        if step < extent:
            outer[0] = (extent // step, {key: c * step for key, c in place.items()})
            break
        outer.pop(0)
    return z, inner, outer


def _replace(form: Linear, name: str, by: Linear) -> Linear:
    c = dict(form.terms).get(name, 0)
    return form + by * c - variable(name) * c if c else form


def _evaluate(digits: Iterable[tuple[int, dict[tuple[str, str], int]]], n: int) -> dict[tuple[str, str], int]:
    """The place of an int index, the last digit not reduced."""
    rows = list(digits)
    total: dict[tuple[str, str], int] = {}
    for position, (extent, place) in enumerate(rows):
        n, c = (0, n) if position == len(rows) - 1 else divmod(n, extent)
        for key, value in place.items():
            total[key] = total.get(key, 0) + c * value
    return total


def decide(claim: Claim, *, scope: str, budget: int = BUDGET, seed: int = 0, first: bool = True) -> Verdict:
    """Prove a claim for all values of its unknowns, or give the first index of the box where it is wrong.

    The counterexample has the claim's unknowns and ``index``; some index, not the first, without ``first``.
    """
    try:
        problem = _Problem(claim)
        problem.split()
        problem.finish()
    except Symbolic as reason:
        return Unknown(scope, str(reason))
    given, goal = problem.hypotheses(), problem.goal()
    order = claim.order
    for name, form in problem.known.items():
        order = _replace(order, name, form)
    if claim.before is not None:
        given.append(order.z3() < claim.before)
    verdict = prove(goal, given=given, scope=scope, budget=budget, seed=seed)
    effort = verdict.effort
    if not isinstance(verdict, Refuted):
        return verdict

    def point(counterexample: Mapping[str, Any]) -> dict[str, int]:
        values = {name: int(counterexample.get(name, problem.ranges[name][0])) for name in problem.ranges}
        return {name: form.at(values) for name, form in problem.known.items()}

    found = point(verdict.counterexample)
    low, high = 0, claim.order.at(found)
    while first and low < high:  # no smaller index is wrong
        middle = (low + high) // 2
        again = prove(goal, given=[*given, order.z3() <= middle], scope=scope, budget=budget, seed=seed)
        effort += again.effort
        if isinstance(again, Unknown):
            return Unknown(scope, f"wrong at {found}, but not known to be the first: {again.reason}", effort)
        if isinstance(again, Proved):
            low = middle + 1
        else:
            found = point(again.counterexample)
            high = claim.order.at(found)
    return Refuted(scope, {**found, "index": high}, effort)
