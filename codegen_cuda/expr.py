"""Index arithmetic for generated C: integer expressions that know their ranges.

An expression is a linear form ``const + sum(coefficient * atom)``.  An atom is a variable with a range, a product, or a
quotient, remainder or bit operation that could not be resolved.  Division and remainder by a constant are resolved as
far as ranges and divisibility allow, so the layout's own digit code, run on these expressions, prints what a person
would write:

>>> i, j = Expr.var("i", 0, 3), Expr.var("j", 0, 7)
>>> print(i * 8 + j, (i * 8 + j) // 8, (i * 8 + j) % 8, (i * 8 + j) // 2, sep=" | ")
i * 8 + j | i | j | i * 4 + (j >> 1)

The rules are laws about integers, proved in ``verify.laws.index_arithmetic`` under the names in brackets; every return
of a simplifying method names those that it stands on.

* floor((k*B + r) / k) = B + floor(r / k), and (k*B + r) mod k = r mod k [multiple_leaves];
* 0 <= r < k: floor(r / k) = 0, r mod k = r [small_vanishes];
* 0 <= r < g: floor((g*B + r) / (g*q)) = floor(B / q), (g*B + r) mod (g*q) = g*(B mod q) + r [digit_splits];
* a = s (mod k): floor((a + r) / k) = (a - s)/k + floor((s + r) / k), (a + r) mod k = (s + r) mod k [residue_is_enough];
* floor(floor(x / a) / b) = floor(x / (a*b)) [quotients_nest]; k divides m: (x mod m) mod k = x mod k
  [remainders_nest]; k divides c*m: (c*(x mod m) + r) mod k = (c*x + r) mod k [scaled_remainder];
* k*floor(x / k) + x mod k = x [digits_recombine];
* no bit in common: x ^ y = x + y [disjoint_bits_add]; x ^ x = 0 [equal_words_cancel]; bits of a constant beyond those
  of x are added [far_bits_add];
* x & m = x, 0 or x mod 2^n by the bits x may have [mask_keeps], [mask_clears], [low_mask_is_remainder], and of a sum
  of words with disjoint bits, the sum of what is left of each [mask_distributes];
* ranges: order survives multiplication [products_keep_order] and division [quotients_keep_order];
* divisibility: residues add [residues_add] and give low bits [low_bits_of_a_residue], divisors multiply
  [multiples_multiply];
* bits: below a bound [reach_of_a_bound], of sums of words with disjoint bits [bits_of_a_sum], of ``^`` and ``&``
  [bits_of_operations], of quotients by powers of two [bits_of_a_quotient];
* C: a shift is such a quotient [shift_is_quotient]; ``/`` and ``%`` round towards zero, which is the same where the
  dividend is not negative [truncation_is_floor], and nothing else is divided.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from layoutalg.errors import RangeError

__all__ = ["Expr"]


@dataclass(frozen=True, slots=True)
class Atom:
    """A variable, or an operation on one expression and one constant (or ``other``); ``low <= value <= high``.

    ``value = start (mod step)`` is what else is known of a variable or a product.
    """

    op: str
    name: str
    operand: Expr | None
    constant: int
    low: int
    high: int
    step: int = 1
    start: int = 0
    other: Expr | None = None

    def text(self) -> str:
        """Print as C, in parentheses unless a variable."""
        if self.operand is None:
            return self.name
        inner = self.operand.text(nested=True)
        if self.other is not None:
            return f"({inner} {self.op} {self.other.text(nested=True)})"
        if self.op == "^":
            return f"({self.constant} ^ {inner})"
        if self.op == "/" and _is_power(self.constant):
            return f"({inner} >> {self.constant.bit_length() - 1})"  # [shift_is_quotient]
        if self.op == "%" and _is_power(self.constant):
            return f"({inner} & {self.constant - 1})"  # [low_mask_is_remainder]
        return f"({inner} {self.op} {self.constant})"  # [truncation_is_floor]

    def congruence(self) -> tuple[int, int]:
        """Return ``(modulus, residue)`` with ``value = residue (mod modulus)``."""
        if self.operand is None or self.op == "*":
            return self.step, self.start
        if self.op == "%":
            modulus, residue = self.operand.congruence()
            common = math.gcd(modulus, self.constant)
            return common, residue % common  # [residues_add]
        bits = self.possible_bits()
        return (bits & -bits, 0) if bits > 0 else (1, 0)  # [mask_clears]

    def possible_bits(self) -> int:
        """Return a mask of the bits that may be set; -1 where the value may be negative."""
        if self.low < 0:
            return -1
        reach = (1 << self.high.bit_length()) - 1
        if self.operand is None or self.op == "*":
            zeros = (self.step & -self.step) - 1
            return reach & ~zeros | self.start & zeros  # [reach_of_a_bound] [low_bits_of_a_residue]
        inner = self.operand.possible_bits()
        if self.other is not None:
            return reach & (inner | self.other.possible_bits())  # [bits_of_operations]
        if self.op in "/%" and not _is_power(self.constant):
            return reach  # [reach_of_a_bound]
        return reach & {
            "/": inner // self.constant,  # [bits_of_a_quotient]
            "%": inner & (self.constant - 1),  # [low_mask_is_remainder]
            "&": inner & self.constant,  # [bits_of_operations]
            "^": inner | self.constant,  # [bits_of_operations]
        }.get(self.op, -1)


@dataclass(frozen=True, slots=True)
class Expr:
    """``const + sum(coefficient * atom)``; build from :meth:`var` and ints with ``+ - * // % ^ & >>``."""

    const: int
    terms: tuple[tuple[Atom, int], ...]

    @classmethod
    def var(cls, name: str, low: int, high: int, *, step: int = 1, start: int = 0) -> Expr:
        """Return a variable with ``low <= value <= high`` and ``value = start (mod step)``.

        >>> n = Expr.var("n", 0, 96, step=8)
        >>> print(n % 8, (n + 9) % 8, (n + Expr.var("j", 0, 7)) // 8)
        0 1 (n >> 3)
        """
        return cls(0, ((Atom("var", name, None, 0, low, high, step, start % step), 1),))

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
        return low, high  # [products_keep_order]

    def congruence(self) -> tuple[int, int]:
        """Return the strongest known ``(modulus, residue)``; modulus 0 for a constant.

        >>> (Expr.var("i", 0, 3) * 8 + 4).congruence()
        (8, 4)
        """
        modulus, residue = 0, self.const
        for atom, c in self.terms:
            step, start = atom.congruence()
            modulus, residue = math.gcd(modulus, c * step), residue + c * start
        return modulus, residue % modulus if modulus else residue  # [residues_add]

    def is_multiple_of(self, k: int) -> bool:
        """Say whether k is known to divide the value."""
        modulus, residue = self.congruence()
        return modulus % k == 0 and residue % k == 0

    def possible_bits(self) -> int:
        """Return a mask of the bits that may be set; -1 where the value may be negative.

        >>> bin((Expr.var("i", 0, 3) * 8 + Expr.var("j", 0, 1)).possible_bits())
        '0b11001'
        """
        low, high = self.bounds()
        if low < 0:
            return -1
        modulus, residue = self.congruence()
        zeros = (modulus & -modulus) - 1
        reach = ((1 << high.bit_length()) - 1) & ~zeros | residue & zeros if modulus else self.const
        parts = [self.const]
        for atom, c in self.terms:
            if c < 0 or not _is_power(c) or atom.low < 0:
                return reach  # [reach_of_a_bound] [low_bits_of_a_residue]
            parts.append(atom.possible_bits() * c)
        union = 0
        for part in parts:
            if union & part:  # a carry may reach any bit
                return reach  # [reach_of_a_bound] [low_bits_of_a_residue]
            union |= part
        return reach & union  # [bits_of_a_sum]

    def within(self, low: int, high: int) -> Expr:
        """Return the same value, known to lie in ``[low, high]`` as well: the caller has seen to that.

        Raises:
            RangeError: it never does, or the expression is not a single variable.
        """
        single = self._single()
        if single is None or single.operand is not None:
            raise RangeError(f"{self} is no variable: bind it with let, and narrow that")
        if single.high < low or single.low > high:
            raise RangeError(f"{self} lies in [{single.low}, {single.high}], never in [{low}, {high}]")
        return Expr(0, ((replace(single, low=max(low, single.low), high=min(high, single.high)), 1),))

    def __add__(self, other: int | Expr) -> Expr:
        other = Expr.of(other)
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        result = Expr(self.const + other.const, tuple((a, c) for a, c in terms.items() if c))
        return result._recombined() if self.terms and other.terms else result

    def _recombined(self) -> Expr:
        """Replace ``k * (x div k) + x mod k`` by x."""
        terms = dict(self.terms)
        for atom, c in self.terms:
            if atom.op == "%" and atom.operand is not None:
                quotient = next(iter(_quotient_of(atom.operand, atom.constant)), None)
                if quotient is not None and terms.get(quotient) == c * atom.constant:
                    rest = Expr(self.const, tuple((a, d) for a, d in self.terms if a not in (atom, quotient)))
                    return rest + atom.operand * c  # [digits_recombine]
        return self

    __radd__ = __add__

    def __mul__(self, factor: int | Expr) -> Expr:
        if isinstance(factor, Expr) and not self.terms:
            return factor * self.const
        factor = factor.const if isinstance(factor, Expr) and not factor.terms else factor
        if type(factor) is not int:
            return self._product(factor)
        return Expr(self.const * factor, tuple((a, c * factor) for a, c in self.terms) if factor else ())

    __rmul__ = __mul__

    def _product(self, other: object) -> Expr:
        if not isinstance(other, Expr):
            raise RangeError(f"({self}) * {other!r}: index arithmetic multiplies by ints and expressions")
        (low, high), (least, most) = self.bounds(), other.bounds()
        if low < 0 or least < 0:
            raise RangeError(f"({self}) * ({other}) has a factor that may be negative, and no simple range then")
        step = math.gcd(*self.congruence()) * math.gcd(*other.congruence())
        atom = Atom("*", "", self, 0, low * least, high * most, step, 0, other)
        return Expr(0, ((atom, 1),))  # [products_keep_order] [multiples_multiply]

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: int | Expr) -> Expr:
        return self + Expr.of(other) * -1

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __floordiv__(self, k: int) -> Expr:
        """floor(self / k): multiples of k leave the quotient, a rest within [0, k) vanishes."""
        whole, rest = self._split(k)
        if self._needs_whole(rest, k):
            return self._quotient(k)  # [quotients_keep_order]
        return whole + rest._quotient(k)  # [multiple_leaves]

    def __mod__(self, k: int) -> Expr:
        """self mod k: multiples of k vanish, a rest within [0, k) stays as it is."""
        rest = self._split(k)[1]
        return (self if self._needs_whole(rest, k) else rest)._remainder(k)  # [multiple_leaves]

    def __divmod__(self, k: int) -> tuple[Expr, Expr]:
        return self // k, self % k

    def _needs_whole(self, rest: Expr, k: int) -> bool:
        """Say whether only the whole is known not to be negative, as 7 - j is and 1 - j is not."""
        return rest.bounds()[0] < 0 <= self.bounds()[0] and rest._digit(k) is None

    def _split(self, k: int) -> tuple[Expr, Expr]:
        """Write self as ``k * whole + rest`` with every multiple of k in whole."""
        if k < 1:
            raise RangeError(f"index arithmetic divides by positive constants, not {k}")
        whole = Expr(self.const // k, tuple((a, c // k) for a, c in self.terms if c % k == 0))
        return whole, Expr(self.const % k, tuple((a, c) for a, c in self.terms if c % k))

    def _quotient(self, k: int) -> Expr:
        low, high = self.bounds()
        if low >= 0 and high < k:
            return Expr(0, ())  # [small_vanishes]
        if (parts := self._digit(k)) is not None:
            return parts[1] // (k // parts[0])  # [digit_splits]
        single = self._single()
        if single is not None and single.op == "/" and single.operand is not None:
            return single.operand // (single.constant * k)  # [quotients_nest]
        for atom, c in self.terms if len(self.terms) > 1 or self.const else ():
            step, start = atom.congruence()
            if c > 0 and atom.low >= 0 and c * step % k == 0:
                part = Expr(0, ((atom, c),))
                return part // k - c * start // k + (self - part + c * start) // k  # [residue_is_enough]
        return self._atom("/", k, low // k, high // k)  # [quotients_keep_order]

    def _remainder(self, k: int) -> Expr:
        low, high = self.bounds()
        if low >= 0 and high < k:
            return self  # [small_vanishes]
        for atom, c in self.terms:
            part = Expr(0, ((atom, c),))
            step, start = atom.congruence()
            if c * step % k == 0:
                return (self - part + c * start) % k  # [residue_is_enough]
            if atom.op == "%" and atom.operand is not None and c * atom.constant % k == 0:
                return (self - part + atom.operand * c) % k  # [scaled_remainder] [remainders_nest]
        if (parts := self._digit(k)) is not None:
            g, large, small = parts
            return large % (k // g) * g + small  # [digit_splits]
        return self._atom("%", k, 0, k - 1)

    def _digit(self, k: int) -> tuple[int, Expr, Expr] | None:
        """Return ``(g, large, small)`` with self = g * large + small, g a divisor of k and 0 <= small < g."""
        for g in sorted({math.gcd(c, k) for _, c in self.terms}, reverse=True):
            small = Expr(self.const % g, tuple((a, c) for a, c in self.terms if c % g))
            low, high = small.bounds()
            if g > 1 and low >= 0 and high < g:
                return g, Expr(self.const // g, tuple((a, c // g) for a, c in self.terms if c % g == 0)), small
        return None

    def __xor__(self, other: int | Expr) -> Expr:
        """Bitwise exclusive or of non-negative numbers; bits of a constant beyond the operand's are added.

        >>> x, y = Expr.var("x", 0, 3), Expr.var("y", 0, 7)
        >>> print(x ^ 5, x ^ y, (y * 4) ^ x, sep=" | ")
        (1 ^ x) + 4 | (x ^ y) | y * 4 + x
        """
        if isinstance(other, Expr) and other.terms:
            return self._xor(other)
        constant = other.const if isinstance(other, Expr) else other
        reach = (1 << self.bounds()[1].bit_length()) - 1
        inner, outer = constant & reach, constant & ~reach
        if not self.terms or not inner:
            return Expr(self.const ^ constant, ()) if not self.terms else self + outer  # [far_bits_add]
        return self._atom("^", inner, 0, reach) + outer  # [far_bits_add]

    def _xor(self, other: Expr) -> Expr:
        if not self.terms:
            return other ^ self.const
        if self == other:
            return Expr(0, ())  # [equal_words_cancel]
        mine, theirs = self.possible_bits(), other.possible_bits()
        if mine < 0 or theirs < 0:
            raise RangeError(f"{self} ^ {other} may be negative, and has no bound then")
        if not mine & theirs:
            return self + other  # [disjoint_bits_add]
        return self.exclusive(other)

    __rxor__ = __xor__

    def exclusive(self, other: Expr) -> Expr:
        """Bitwise exclusive or of non-negative numbers; kept as written even where no bits meet.

        >>> x = Expr.var("x", 0, 3)
        >>> print((x * 4).exclusive(x))
        ((x * 4) ^ x)
        """
        mine, theirs = self.possible_bits(), other.possible_bits()
        if mine < 0 or theirs < 0:
            raise RangeError(f"{self} ^ {other} may be negative, and has no bound then")
        reach = (1 << max(mine, theirs).bit_length()) - 1
        return Expr(0, ((Atom("^", "", self, 0, 0, reach, other=other), 1),))  # [bits_of_operations]

    def __and__(self, mask: int) -> Expr:
        """Bitwise and; kept as written even where the range makes it redundant."""
        if not self.terms:
            return Expr(self.const & mask, ())
        return self._atom("&", mask, 0, min(mask, self.bounds()[1]))  # [bits_of_operations]

    def masked(self, mask: int) -> Expr:
        """Bitwise and, simplified by the bits that the value may have.

        >>> x = Expr.var("x", 0, 15)
        >>> print(x.masked(15), x.masked(48), (x * 2 + 64).masked(63), x.masked(5), sep=" | ")
        x | 0 | x * 2 | (x & 5)
        """
        bits = self.possible_bits()
        if bits >= 0 and not bits & ~mask:
            return self  # [mask_keeps]
        if bits >= 0 and not bits & mask:
            return Expr(0, ())  # [mask_clears]
        if mask > 0 and _is_power(mask + 1):
            return self % (mask + 1)  # [low_mask_is_remainder]
        if (parts := self._apart()) is not None and (len(parts) > 1 or self.const):
            rest = [part.masked(mask) for part in parts]
            return sum(rest, Expr(self.const & mask, ()))  # [mask_distributes]
        return self & mask

    def _apart(self) -> list[Expr] | None:
        """Return the terms if no two of them, nor the constant, may have a bit in common."""
        parts, union = [Expr(0, (term,)) for term in self.terms], self.const
        for part in parts:
            bits = part.possible_bits()
            if bits < 0 or bits & union:
                return None
            union |= bits
        return parts

    def __rshift__(self, bits: int) -> Expr:
        """Shift right, the quotient by a power of two."""
        return self // (1 << bits)  # [shift_is_quotient]

    def __lshift__(self, bits: int) -> Expr:
        """Shift left, the product with a power of two."""
        return self * (1 << bits)

    def _atom(self, op: str, constant: int, low: int, high: int) -> Expr:
        if self.bounds()[0] < 0:
            raise RangeError(f"{self} may be negative, and C's {op} differs from the layout's there")
        return Expr(0, ((Atom(op, "", self, constant, low, high), 1),))

    def _single(self) -> Atom | None:
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def descending(self) -> Expr:
        """Return the same sum with the largest coefficients first, the order in which people write addresses.

        >>> print((Expr.var("i", 0, 3) + Expr.var("j", 0, 7) * 4).descending())
        j * 4 + i
        """
        return Expr(self.const, tuple(sorted(self.terms, key=lambda term: -abs(term[1]))))

    def variables(self) -> frozenset[str]:
        """Return the names of the variables that occur."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom.name} if atom.operand is None else atom.operand.variables()
            names |= atom.other.variables() if atom.other is not None else frozenset()
        return frozenset(names)

    def operations(self) -> int:
        """Count the operations that evaluating the text takes; a division that is no shift counts as four.

        >>> i = Expr.var("i", 0, 31)
        >>> (i * 4 + 1).operations(), (i // 3).operations(), i.operations()
        (2, 4, 0)
        """
        total = max(0, len(self.terms) + (self.const != 0) - 1)
        for atom, c in self.terms:
            total += c not in (1, -1)
            if atom.operand is not None:
                total += 4 if atom.op in "/%" and not _is_power(atom.constant) else 1
                total += atom.operand.operations() + (atom.other.operations() if atom.other is not None else 0)
        return total

    def evaluate(self, values: Callable[[str], int]) -> int:
        """Evaluate with the given values of variables, the oracle of the tests."""
        total = self.const
        for atom, c in self.terms:
            if atom.operand is None:
                total += c * values(atom.name)
            else:
                right = atom.constant if atom.other is None else atom.other.evaluate(values)
                total += c * _OPS[atom.op](atom.operand.evaluate(values), right)
        return total

    def bare(self) -> str:
        """Print as C where nothing stands beside it: without the parentheses of a single operation.

        >>> (Expr.var("i", 0, 31) >> 2).bare()
        'i >> 2'
        """
        single = self._single()
        return self.text() if single is None or single.operand is None else single.text()[1:-1]

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
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "^": operator.xor,
    "&": operator.and_,
}


def _quotient_of(operand: Expr, k: int) -> tuple[Atom, ...]:
    """Return the atom that ``operand div k`` is, if it is one."""
    try:
        whole = operand // k
    except RangeError:
        return ()
    single = whole._single()
    return () if single is None else (single,)


def _is_power(k: int) -> bool:
    return k & (k - 1) == 0
