"""Polynomials with integer coefficients over named atoms, as numbers of the algebra.

A layout whose extents and strides are polynomials evaluates coordinates that are polynomials: ``TileLayout.apply`` runs
on them as on ints.  Questions that it asks on the way (is this extent at least 1, is that remainder below the divisor)
go to the :class:`Judge`, which proves them or says that it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from layoutalg.decide import Term
from layoutalg.errors import UndecidedError

__all__ = ["Judge", "Monomial", "Poly"]

Monomial = tuple[str, ...]
"""Atoms in order, repeated for powers; empty for the constant."""


class Judge(Protocol):
    """Whoever knows facts about the atoms."""

    def is_at_least(self, value: Poly, least: int) -> bool | None:
        """Whether the value is at least this for all admissible atoms: proved, refuted, or ``None``."""

    def divide(self, value: Poly, divisor: Poly) -> tuple[Poly, Poly]:
        """Quotient and remainder, rounded down."""


class Poly(Term):
    """An immutable polynomial; mixes with ints.

    Attributes:
        terms: coefficient per monomial, none of them zero.
    """

    __slots__ = ("_hash", "judge", "terms")

    terms: Mapping[Monomial, int]
    judge: Judge
    _hash: int | None

    def __init__(self, terms: Mapping[Monomial, int], judge: Judge) -> None:
        self.terms = {monomial: c for monomial, c in terms.items() if c}
        self.judge = judge
        self._hash = None

    def lift(self, value: int | Poly) -> Poly:
        """A number as a polynomial."""
        return value if isinstance(value, Poly) else Poly({(): value}, self.judge)

    @property
    def constant(self) -> int | None:
        """The value, if no atom occurs."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    @property
    def atoms(self) -> frozenset[str]:
        """Names that occur."""
        return frozenset(name for monomial in self.terms for name in monomial)

    def __add__(self, other: Any) -> Poly:
        if not isinstance(other, int | Poly):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, c in self.lift(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + c
        return Poly(terms, self.judge)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Poly:
        if not isinstance(other, int | Poly):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in self.lift(other).terms.items():
                monomial = tuple(sorted(left + right))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Poly(terms, self.judge)

    __rmul__ = __mul__

    def __neg__(self) -> Poly:
        return self * -1

    def __sub__(self, other: Any) -> Poly:
        return self + -other if isinstance(other, int | Poly) else NotImplemented

    def __rsub__(self, other: Any) -> Poly:
        return (-self).__add__(other)

    def __floordiv__(self, divisor: Any) -> Poly:
        return self.judge.divide(self, self.lift(divisor))[0]

    def __rfloordiv__(self, value: int) -> Poly:
        return self.judge.divide(self.lift(value), self)[0]

    def __mod__(self, divisor: Any) -> Poly:
        return self.judge.divide(self, self.lift(divisor))[1]

    def __rmod__(self, value: int) -> Poly:
        return self.judge.divide(self.lift(value), self)[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | Poly) and self.terms == self.lift(other).terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        parts = ["*".join([str(c), *monomial]) for monomial, c in sorted(self.terms.items())]
        return " + ".join(parts) or "0"

    # --- questions of the algebra -----------------------------------------------------------------------------

    def equals(self, other: Any) -> bool:
        """Decide equality for all values of the atoms."""
        difference = self - other
        if not difference.terms:
            return True
        judge = self.judge
        if judge.is_at_least(difference, 1) or judge.is_at_least(-difference, 1):
            return False
        raise UndecidedError(f"{self} == {other} depends on the sizes")

    def is_at_most(self, other: Any) -> bool:
        """Decide ``self <= other`` for all values of the atoms."""
        return (self.lift(other) - self).is_at_least(0)

    def is_at_least(self, other: Any) -> bool:
        """Decide ``self >= other`` for all values of the atoms."""
        judge, difference = self.judge, self - other
        if judge.is_at_least(difference, 0):
            return True
        if judge.is_at_least(-difference, 1):
            return False
        raise UndecidedError(f"{self} >= {other} depends on the sizes")

    def quotient(self, divisor: Any) -> Any:
        """Return ``self / divisor`` when the coefficients divide, else ``None``."""
        by = self.lift(divisor)
        if by.constant:
            if any(c % by.constant for c in self.terms.values()):
                return None
            return Poly({monomial: c // by.constant for monomial, c in self.terms.items()}, self.judge)
        return self.lift(1) if self == by else None

    # --- parts ------------------------------------------------------------------------------------------------

    def split(self, monomial: Monomial, coefficient: int) -> tuple[Poly, Poly]:
        """Write the polynomial as ``q*(coefficient*monomial) + r``, with every monomial that is divisible in q.

        >>> from verify.ptx.parametric.facts import Facts
        >>> facts = Facts()
        >>> i, j, n = (facts.atom(name, 0, 100) for name in "ijn")
        >>> (4 * i * n + 8 * n + j).split(("n",), 4)
        (2 + 1*i, 1*j)
        """
        inside: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for term, c in self.terms.items():
            left = _without(term, monomial)
            if left is not None and c % coefficient == 0:
                inside[left] = c // coefficient
            else:
                rest[term] = c
        return Poly(inside, self.judge), Poly(rest, self.judge)

    def substitute(self, values: Mapping[str, Poly]) -> Poly:
        """Replace atoms by polynomials."""
        total = Poly({}, self.judge)
        for monomial, c in self.terms.items():
            product = self.lift(c)
            for name in monomial:
                product = product * (values[name] if name in values else Poly({(name,): 1}, self.judge))
            total = total + product
        return total


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in part:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)
