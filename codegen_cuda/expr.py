"""Index arithmetic for generated C: integer expressions that know their ranges.

An expression is a linear form ``const + sum(coefficient * atom)``.  An atom is a variable with a range, or a quotient,
remainder or bit operation that could not be resolved.  Division and remainder by a constant are resolved as far as
ranges and divisibility allow, so the layout's own digit code, run on these expressions, prints what a person would
write:

>>> i, j = Expr.var("i", 0, 3), Expr.var("j", 0, 7)
>>> print(i * 8 + j, (i * 8 + j) // 8, (i * 8 + j) % 8, (i * 8 + j) // 2, sep=" | ")
i * 8 + j | i | j | i * 4 + (j >> 1)

C divides towards zero and Python floors; the two agree where the dividend is not negative, and nothing else is divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Expr"]


@dataclass(frozen=True, slots=True)
class Atom:
    """A variable, or an operation on one expression and one constant; ``low <= value <= high``."""

    op: str
    name: str
    operand: Expr | None
    constant: int
    low: int
    high: int

    def text(self) -> str:
        """Print as C, in parentheses unless a variable."""
        if self.operand is None:
            return self.name
        inner = self.operand.text(nested=True)
        if self.op == "^":
            return f"({self.constant} ^ {inner})"
        if self.op == "/" and _is_power(self.constant):
            return f"({inner} >> {self.constant.bit_length() - 1})"
        if self.op == "%" and _is_power(self.constant):
            return f"({inner} & {self.constant - 1})"
        return f"({inner} {self.op} {self.constant})"


@dataclass(frozen=True, slots=True)
class Expr:
    """``const + sum(coefficient * atom)``; build from :meth:`var` and ints with ``+ - * // % ^ & >>``."""

    const: int
    terms: tuple[tuple[Atom, int], ...]

    @classmethod
    def var(cls, name: str, low: int, high: int) -> Expr:
        """Return a variable with ``low <= value <= high``."""
        return cls(0, ((Atom("var", name, None, 0, low, high), 1),))

    @classmethod
    def of(cls, value: int | Expr) -> Expr:
        """Return a constant as an expression; an expression passes through."""
        return value if isinstance(value, Expr) else cls(value, ())

    def bounds(self) -> tuple[int, int]:
        """Return a lower and an upper bound of the value.

        >>> (Expr.var("i", 0, 3) * -2 + 1).bounds()
        (-5, 1)
        """
        low = high = self.const
        for atom, c in self.terms:
            ends = (atom.low * c, atom.high * c)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __add__(self, other: int | Expr) -> Expr:
        other = Expr.of(other)
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return Expr(self.const + other.const, tuple((a, c) for a, c in terms.items() if c))

    __radd__ = __add__

    def __mul__(self, factor: int) -> Expr:
        return Expr(self.const * factor, tuple((a, c * factor) for a, c in self.terms) if factor else ())

    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: int | Expr) -> Expr:
        return self + Expr.of(other) * -1

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __floordiv__(self, k: int) -> Expr:
        """floor(self / k): multiples of k leave the quotient, a rest within [0, k) vanishes."""
        whole, rest = self._split(k)
        return whole + rest._quotient(k)

    def __mod__(self, k: int) -> Expr:
        """self mod k: multiples of k vanish, a rest within [0, k) stays as it is."""
        return self._split(k)[1]._remainder(k)

    def __divmod__(self, k: int) -> tuple[Expr, Expr]:
        return self // k, self % k

    def _split(self, k: int) -> tuple[Expr, Expr]:
        """Write self as ``k * whole + rest`` with every multiple of k in whole."""
        if k < 1:
            raise ValueError(f"index arithmetic divides by positive constants, not {k}")
        whole = Expr(self.const // k, tuple((a, c // k) for a, c in self.terms if c % k == 0))
        rest = Expr(self.const % k, tuple((a, c) for a, c in self.terms if c % k))
        return whole, rest

    def _quotient(self, k: int) -> Expr:
        low, high = self.bounds()
        if low >= 0 and high < k:
            return Expr(0, ())
        g = math.gcd(k, *(c for _, c in self.terms))
        if g > 1:  # floor((g*B + r) / (g*q)) = floor((B + floor(r/g)) / q)
            return Expr(self.const // g, tuple((a, c // g) for a, c in self.terms)) // (k // g)
        single = self._single()
        if single is not None and single.op == "/" and single.operand is not None:
            return single.operand // (single.constant * k)
        return self._atom("/", k, low // k, high // k)

    def _remainder(self, k: int) -> Expr:
        low, high = self.bounds()
        if low >= 0 and high < k:
            return self
        g = math.gcd(k, *(c for _, c in self.terms))
        if g > 1:  # (g*B + r) mod (g*q) = g * ((B + floor(r/g)) mod q) + r mod g
            inner = Expr(self.const // g, tuple((a, c // g) for a, c in self.terms)) % (k // g)
            return inner * g + self.const % g
        return self._atom("%", k, 0, k - 1)

    def __xor__(self, constant: int) -> Expr:
        """Bitwise exclusive or of non-negative numbers; bits of the constant beyond the operand's are added.

        >>> print(Expr.var("x", 0, 3) ^ 5)
        (1 ^ x) + 4
        """
        reach = (1 << self.bounds()[1].bit_length()) - 1
        inner, outer = constant & reach, constant & ~reach
        if not self.terms or not inner:
            return Expr(self.const ^ constant, ()) if not self.terms else self + outer
        return self._atom("^", inner, 0, reach) + outer

    __rxor__ = __xor__

    def __and__(self, mask: int) -> Expr:
        """Bitwise and; kept as written even where the range makes it redundant."""
        if not self.terms:
            return Expr(self.const & mask, ())
        return self._atom("&", mask, 0, min(mask, self.bounds()[1]))

    def __rshift__(self, bits: int) -> Expr:
        """Shift right, the quotient by a power of two."""
        return self // (1 << bits)

    def _atom(self, op: str, constant: int, low: int, high: int) -> Expr:
        if self.bounds()[0] < 0:
            raise ValueError(f"{self} may be negative, and C's {op} differs from the layout's there")
        return Expr(0, ((Atom(op, "", self, constant, low, high), 1),))

    def _single(self) -> Atom | None:
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def variables(self) -> frozenset[str]:
        """Return the names of the variables that occur."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom.name} if atom.operand is None else atom.operand.variables()
        return frozenset(names)

    def count(self, op: str) -> int:
        """Count the operations of one kind, ``"/"`` or ``"%"`` (those not by powers of two), ``"^"``, ``"&"``."""
        total = 0
        for atom, _ in self.terms:
            if atom.operand is not None:
                total += atom.op == op and not (op in "/%" and _is_power(atom.constant))
                total += atom.operand.count(op)
        return total

    def evaluate(self, values: Callable[[str], int]) -> int:
        """Evaluate with the given values of variables, the oracle of the tests."""
        total = self.const
        for atom, c in self.terms:
            inner = (
                values(atom.name)
                if atom.operand is None
                else _OPS[atom.op](atom.operand.evaluate(values), atom.constant)
            )
            total += c * inner
        return total

    def text(self, *, nested: bool = False) -> str:
        """Print as C; ``nested`` puts parentheses around anything but a single atom."""
        parts: list[str] = []
        for atom, c in self.terms:
            body = atom.text() if abs(c) == 1 else f"{atom.text()} * {abs(c)}"
            parts.append(body if not parts and c > 0 else f"{'-' if c < 0 else '+'} {body}" if parts else f"-{body}")
        if self.const or not parts:
            sign = "-" if self.const < 0 else "+"
            parts.append(f"{sign} {abs(self.const)}" if parts else str(self.const))
        text = " ".join(parts)
        return f"({text})" if nested and (len(self.terms) != 1 or self.const or self.terms[0][1] != 1) else text

    def __str__(self) -> str:
        return self.text()


_OPS: Final[dict[str, Callable[[int, int], int]]] = {
    "/": lambda a, k: a // k,
    "%": lambda a, k: a % k,
    "^": lambda a, k: a ^ k,
    "&": lambda a, k: a & k,
}


def _is_power(k: int) -> bool:
    return k & (k - 1) == 0
