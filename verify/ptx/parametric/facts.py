"""What is known of the atoms: ranges, definitions, tables over the threads of a block; and the solver asked about them.

Products of atoms are constants that the solver knows nothing about.  It learns instances of two lemmas, which
:func:`lemmas` proves:

* **monotone**: ``a <= b`` and ``s >= 0`` imply ``a*s <= b*s``;
* **radix**: ``s >= 1``, ``-s < d < s`` and ``k*s + d == 0`` imply ``k == 0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import z3
from numpy.typing import NDArray

from layoutalg.errors import LayoutError, UndecidedError
from verify.ptx.parametric.poly import Poly
from verify.solve import prove
from verify.verdict import Obligation, Proved, Verdict

__all__ = ["PRODUCT", "Atom", "Environment", "Facts", "Table", "Values", "atoms_of", "constants", "lemmas"]

Table = NDArray[Any]
Environment = dict[str, int]
"""Numbers for sizes, block and thread index; ``thread`` is the number of the thread in its block."""
Values = Mapping[str, Poly]
"""Polynomials that are put in the place of atoms."""

_BUDGET: Final = 1_000_000
_LARGE: Final = 1 << 62  # sums below this stay within 64 bits
PRODUCT: Final = "$"
"""What joins the names in a product of atoms."""


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """A named integer.

    Attributes:
        low, high: bounds, both inclusive.
        table: its value for every thread of a block, if it depends on the thread index alone.
        definition: how to compute it from the other atoms, if it is derived.
        uniform: all threads of a block see the same value.
        made_of: the atoms that it is derived from, through others too.
        anew: the same derivation with other polynomials in the place of atoms.
    """

    name: str
    low: int
    high: int
    table: Table | None = None
    definition: Callable[[Environment], int] | None = None
    uniform: bool = False
    made_of: frozenset[str] = frozenset()
    anew: Callable[[Values], Poly] | None = None


class Facts:
    """Atoms and hypotheses; implements :class:`verify.ptx.parametric.poly.Judge`.

    Attributes:
        given: what holds for all atoms.
        path: what else holds here; it changes while a kernel is executed.
        sizes: the unknowns of the claim.

    >>> facts = Facts()
    >>> n, i = facts.atom("n", 1, 1000), facts.atom("i", 0, 999)
    >>> facts.path = (facts.term(i) < facts.term(n),)
    >>> facts.is_at_least(n * n - n * i, 1), facts.divide(i + 7 * n, n)
    (True, (7, 1*i))
    """

    def __init__(self) -> None:
        self.atoms: dict[str, Atom] = {}
        self.given: list[Any] = []
        self.path: tuple[Any, ...] = ()
        self.sizes: list[Poly] = []
        self.effort = 0
        self.queries = 0
        self._derived: dict[Any, Poly] = {}
        self._known: dict[Any, tuple[bool, Any]] = {}

    # --- atoms ------------------------------------------------------------------------------------------------

    def atom(
        self,
        name: str,
        low: int,
        high: int,
        *,
        table: Table | None = None,
        definition: Callable[[Environment], int] | None = None,
        uniform: bool = False,
    ) -> Poly:
        """Add an atom.

        Raises:
            LayoutError: there is one of this name.
        """
        if name in self.atoms or name == "thread":
            raise LayoutError(f"{name} is the name of something else in a proof; call it otherwise", name=name)
        self.atoms[name] = Atom(name, low, high, table, definition, uniform)
        return Poly({(name,): 1}, self)

    def number(self, value: int) -> Poly:
        """A constant."""
        return Poly({(): value}, self)

    def fresh(self, what: str) -> str:
        """A name that no atom has."""
        return f"{what}!{len(self.atoms)}"

    def of_table(self, table: Table) -> Poly:
        """A value that depends on the thread index alone: ``first + step*atom``, so that what divides it is seen.

        >>> facts = Facts()
        >>> facts.of_table(np.array([8, 24, 40])), facts.of_table(np.array([0, 2, 4]))
        (8 + 16*thread!0, 2*thread!0)
        """
        values = table.astype(np.int64)
        first, last = int(values.min()), int(values.max())
        if last - first >= _LARGE:  # 64-bit patterns, not numbers that anybody adds up
            return self.atom(self.fresh("thread"), first, last, table=values)
        step = int(np.gcd.reduce(values - first))
        if step == 0:
            return self.number(first)
        values = (values - first) // step
        key = ("table", values.tobytes())
        if key not in self._derived:
            self._derived[key] = self.atom(self.fresh("thread"), 0, int(values.max()), table=values)
        return self._derived[key] * step + first

    def bounds(self, value: Poly) -> tuple[int, int]:
        """Bounds by interval arithmetic."""
        low = high = 0
        for monomial, c in value.terms.items():
            ends = [c]
            for name in monomial:
                atom = self.atoms[name]
                ends = [end * bound for end in ends for bound in (atom.low, atom.high)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def table(self, value: Poly) -> Table | None:
        """The value for every thread, if it depends on the thread index alone and is of moderate size."""
        reach = 0
        for monomial, c in value.terms.items():
            reach += abs(c) * math.prod(max(abs(self.atoms[n].low), abs(self.atoms[n].high)) for n in monomial)
        if reach >= _LARGE:
            return None
        total = np.zeros(1, dtype=np.int64)
        for monomial, c in value.terms.items():
            product = np.full(1, c, dtype=np.int64)
            for name in monomial:
                table = self.atoms[name].table
                if table is None:
                    return None
                product = product * table
            total = total + product
        return total

    def is_uniform(self, value: Any) -> bool:
        """Whether all threads of a block see the same value, of a polynomial or of a condition."""
        names = value.atoms if isinstance(value, Poly) else atoms_of(value)
        return all(self.atoms[name].uniform for name in names)

    def at(self, value: Poly, environment: Environment) -> int:
        """The value for given numbers."""
        total = 0
        for monomial, c in value.terms.items():
            for name in monomial:
                c *= self.atom_at(name, environment)
            total += c
        return total

    def atom_at(self, name: str, environment: Environment) -> int:
        """An atom's value for given numbers, derived where it is derived."""
        if name not in environment:
            atom = self.atoms[name]
            if atom.table is not None:
                environment[name] = int(atom.table[environment["thread"] % len(atom.table)])
            elif atom.definition is not None:
                environment[name] = atom.definition(environment)
            else:
                raise KeyError(name)
        return environment[name]

    # --- division ---------------------------------------------------------------------------------------------

    def divide(self, value: Poly, divisor: Poly) -> tuple[Poly, Poly]:
        """Quotient and remainder, rounded down.

        Raises:
            UndecidedError: it is not proved that the divisor is positive.
        """
        by = divisor.constant
        if not self.is_at_least(divisor, 1):
            raise UndecidedError(f"{divisor}, which something is divided by, is not proved to be at least 1")
        if by is not None:
            whole = Poly({m: c // by for m, c in value.terms.items()}, self)
            rest = Poly({m: c % by for m, c in value.terms.items()}, self)
        elif len(divisor.terms) == 1:
            ((monomial, coefficient),) = divisor.terms.items()
            whole, rest = value.split(monomial, coefficient)
        else:
            whole, rest = self.number(0), value
        if self.is_at_least(rest, 0) and self.is_at_least(divisor - rest, 1):
            return whole, rest
        quotient = self._quotient(rest, divisor)
        return whole + quotient, rest - quotient * divisor

    def _quotient(self, value: Poly, divisor: Poly) -> Poly:
        key = ("quotient", value, divisor)
        if key not in self._derived:
            name = self.fresh("quotient")
            least_divisor, most_divisor = self.bounds(divisor)
            least, most = max(least_divisor, 1), max(most_divisor, 1)
            corners = [end // by for end in self.bounds(value) for by in (least, most)]
            table = None
            if divisor.constant is not None and (numbers := self.table(value)) is not None:
                table = numbers // divisor.constant

            def definition(environment: Environment) -> int:
                by = self.at(divisor, environment)
                if by < 1:  # nobody divides there, and nothing is known of the quotient
                    raise KeyError(name)
                return self.at(value, environment) // by

            uniform = self.is_uniform(value) and self.is_uniform(divisor)
            bounds = min(corners), max(corners)
            found = self.atom(name, *bounds, table=table, definition=definition, uniform=uniform)
            self._derivation(
                name,
                value.atoms | divisor.atoms,
                lambda values: self.divide(self.substitute(value, values), self.substitute(divisor, values))[0],
            )
            rest = value - found * divisor
            facts = [self.term(rest) >= 0, self.term(divisor - rest) >= 1]
            if least_divisor < 1:  # it is positive on the path to here, not everywhere
                facts = [z3.Implies(self.term(divisor) >= 1, fact) for fact in facts]
            self.given += facts
            self._derived[key] = found
        return self._derived[key]

    def choice(self, condition: Any, yes: Poly, no: Poly) -> Poly:
        """``yes`` where the condition holds, otherwise ``no``."""
        key = ("choice", condition.get_id(), yes, no)
        if key not in self._derived:
            (a, b), (c, d) = self.bounds(yes), self.bounds(no)

            def definition(environment: Environment) -> int:
                return self.at(yes if self.holds(condition, environment) else no, environment)

            names = atoms_of(condition)
            uniform = self.is_uniform(condition) and self.is_uniform(yes) and self.is_uniform(no)
            name = self.fresh("choice")
            found = self.atom(name, min(a, c), max(b, d), definition=definition, uniform=uniform)
            self._derivation(
                name,
                names | yes.atoms | no.atoms,
                lambda values: self.choice(
                    self.substituted(condition, values), self.substitute(yes, values), self.substitute(no, values)
                ),
            )
            self.given.append(self.term(found) == z3.If(condition, self.term(yes), self.term(no)))
            self._derived[key] = found
        return self._derived[key]

    def wrapped(self, value: Poly, width: int, *, signed: bool) -> Poly:
        """The value of these bits read as a number: ``value`` less a multiple of 2^width."""
        shift = 1 << (width - 1) if signed else 0
        return self.divide(value + shift, self.number(1 << width))[1] - shift

    # --- other atoms in the place of atoms ----------------------------------------------------------------------

    def _derivation(self, name: str, parts: Iterable[str], anew: Callable[[Values], Poly]) -> None:
        """Note how an atom was derived."""
        made_of = frozenset(base for part in parts for base in (part, *self.atoms[part].made_of))
        self.atoms[name] = replace(self.atoms[name], made_of=made_of, anew=anew)

    def _is_opaque(self, name: str) -> bool:
        """Whether nothing is known of an atom, not even what it is derived from."""
        atom = self.atoms[name]
        return "!" in name and atom.table is None and atom.anew is None

    def substitute(self, value: Poly, values: Values) -> Poly:
        """Put polynomials in the place of atoms, also in what is derived from these.

        What is derived anew holds everywhere: the path is that of one thread in one trip, and does not count.

        Raises:
            UndecidedError: it holds an atom of which nothing is known, and so not what that would become.

        >>> facts = Facts()
        >>> n, i = facts.atom("n", 1, 1000, uniform=True), facts.atom("i", 0, 999)
        >>> half = (i + n) // 2
        >>> facts.substitute(half, {"i": i + 2}) - half
        1
        """
        known = dict(values)
        path, self.path = self.path, ()
        try:
            for name in value.atoms - values.keys():
                atom = self.atoms[name]
                if atom.anew is not None:
                    if any(map(self._is_opaque, atom.made_of)):
                        raise UndecidedError(f"{name} is not known in other trips")
                    if not values.keys().isdisjoint(atom.made_of):
                        known[name] = atom.anew(values)
                elif self._is_opaque(name):
                    raise UndecidedError(f"{name} is not known in other trips")
        finally:
            self.path = path
        return value.substitute(known)

    def substituted(self, condition: Any, values: Values) -> Any:
        """A condition with polynomials in the place of atoms.

        Raises:
            UndecidedError: as for :meth:`substitute`.
        """
        pairs = []
        for name in constants(condition):
            product = Poly({tuple(name.split(PRODUCT)): 1}, self)
            other = self.substitute(product, values)
            if other != product:
                pairs.append((z3.Int(name), self.term(other)))
        return z3.substitute(condition, *pairs) if pairs else condition

    # --- solver -----------------------------------------------------------------------------------------------

    def term(self, value: Poly) -> Any:
        """The solver's term; a product of atoms is a constant of its own."""
        total: Any = z3.IntVal(0)
        for monomial, c in value.terms.items():
            total = total + c * z3.Int(PRODUCT.join(monomial)) if monomial else total + c
        return total

    def is_at_least(self, value: Poly, least: int) -> bool | None:
        """Whether the value is at least this here: proved, or ``None``."""
        if self.bounds(value)[0] >= least:
            return True
        if self.bounds(value)[1] < least:
            return False
        key = (value, least, tuple(fact.get_id() for fact in self.path), len(self.given))
        if key not in self._known:
            # The path is kept: a formula that is gone leaves its number to others.
            self._known[key] = (self.prove(self.term(value) >= least, (value,)).ok, self.path)
        return self._known[key][0] or None

    def prove(self, goal: Any, about: Iterable[Poly] = (), *, extra: Sequence[Any] = (), scope: str = "") -> Verdict:
        """Prove a goal here; ``about`` are the polynomials whose products it needs to know something of."""
        if z3.is_true(z3.simplify(goal)):
            return Proved(scope)
        products = [fact for value in about for fact in self.products(value)]
        given = self.relevant([goal, *self.path, *extra, *products])
        verdict = prove(goal, given=given, scope=scope, budget=_BUDGET)
        self.effort += verdict.effort
        self.queries += 1
        return verdict

    def relevant(self, formulas: Sequence[Any]) -> list[Any]:
        """Hypotheses that bear on the first formula: those that share atoms with it, directly or through others."""
        pool = [(fact, constants(fact)) for fact in (*self.given, *formulas[1:])]
        names = set(constants(formulas[0]))
        chosen: list[Any] = []
        ranges: set[str] = set()
        while True:
            near = [item for item in pool if item[1] & names]
            for name in names - ranges:
                chosen += self.range_of(name)
            ranges |= names
            if not near:
                return chosen
            pool = [item for item in pool if not item[1] & names]
            for fact, shared in near:
                chosen.append(fact)
                names |= shared
            names |= {part for name in names for part in name.split(PRODUCT)}

    def range_of(self, name: str) -> list[Any]:
        """The bounds of an atom; of a product, by interval arithmetic."""
        low, high = self.bounds(Poly({tuple(name.split(PRODUCT)): 1}, self))
        return [z3.Int(name) >= low, z3.Int(name) <= high]

    def products(self, value: Poly) -> list[Any]:
        """Instances of the lemma on monotone products for every factor of the products in a polynomial."""
        found: list[Any] = []
        factors = {name for monomial in value.terms if len(monomial) > 1 for name in monomial}
        for factor in sorted(factors):
            inside, _ = Poly({m: c for m, c in value.terms.items() if len(m) > 1}, self).split((factor,), 1)
            common = math.gcd(*inside.terms.values())
            inside = Poly({m: c // common for m, c in inside.terms.items()}, self)
            scale = Poly({(factor,): 1}, self)
            for cofactor in (inside, -inside):
                limits = [self.number(limit) for limit in (*self.bounds(cofactor), 0, 1)]
                limits += [size - 1 for size in self.sizes]
                found += [fact for limit in limits for fact in self._monotone(cofactor, limit, scale)]
            found += self.products(inside)
        return found

    def _monotone(self, a: Poly, b: Poly, s: Poly) -> Iterator[Any]:
        """The lemma both ways round."""
        for low, high in ((a, b), (b, a)):
            premise = z3.And(self.term(low) <= self.term(high), self.term(s) >= 0)
            yield z3.Implies(premise, self.term(low * s) <= self.term(high * s))

    def holds(self, condition: Any, environment: Environment) -> bool:
        """A condition's truth for given numbers."""
        pairs = []
        for name in constants(condition):
            number = 1
            for part in name.split(PRODUCT):
                number *= self.atom_at(part, environment)
            pairs.append((z3.Int(name), z3.IntVal(number)))
        return bool(z3.is_true(z3.simplify(z3.substitute(condition, *pairs) if pairs else condition)))


class _Holder:
    """Keeps a term alive as long as something is known of it, or its number would be used again."""

    def __init__(self, term: Any) -> None:
        self.term = term

    def __hash__(self) -> int:
        return int(self.term.get_id())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and self.term.get_id() == other.term.get_id()


def constants(term: Any) -> frozenset[str]:
    """Names of the constants in a formula."""
    return _names(_Holder(term))


def atoms_of(term: Any) -> frozenset[str]:
    """Names of the atoms in a formula; those of products one by one."""
    return frozenset(part for name in constants(term) for part in name.split(PRODUCT))


@cache
def _names(holder: _Holder) -> frozenset[str]:
    seen: set[int] = set()
    names: set[str] = set()
    stack = [holder.term]
    while stack:
        node = stack.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if node.num_args() == 0 and node.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            names.add(node.decl().name())
        stack.extend(node.children())
    return frozenset(names)


@cache
def lemmas() -> tuple[Obligation, ...]:
    """Prove the two lemmas whose instances the solver is given.

    >>> all(lemma.verdict.ok for lemma in lemmas())
    True
    """
    a, b, s, d, k = z3.Ints("a b s d k")
    return (
        Obligation(
            "lemma: products are monotone",
            prove(a * s <= b * s, given=[a <= b, s >= 0], scope="all integers"),
        ),
        Obligation(
            "lemma: digits below the stride are unique",
            prove(k == 0, given=[s >= 1, d > -s, d < s, k * s + d == 0], scope="all integers"),
        ),
    )
