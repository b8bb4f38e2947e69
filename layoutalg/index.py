"""Coordinates, flat indices and named parameters.

Row-major order is the only order here: the last coordinate is the fastest.  A point of a (4, 8) tensor at (i, j)
has flat index ``8*i + j``, and splitting 13 over (4, 8) gives the digits (1, 5).  :func:`flatten` and :func:`split`
only use ``+ * // %``, so the same code runs on ints, numpy arrays, sympy expressions, solver terms and generated C.

A :class:`Param` is a named integer with a range, such as a pipeline stage; :class:`Affine` is
``c0 + c1*name + ...`` over them.  Offsets and slice begins may be affine.

>>> s = Param("s", 0, 2)
>>> 128 * s + 3
128*s[0:2] + 3
>>> (128 * s + 3).bounds()
(3, 131)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from layoutalg.decide import Number, Term, as_number
from layoutalg.errors import NotExpressibleError, RangeError, UndecidedError

__all__ = [
    "Affine",
    "Param",
    "bounds",
    "bounds_of_sum",
    "divide",
    "divide_affine",
    "flatten",
    "split",
    "split_off",
    "substitute",
]


def flatten(coord: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the row-major flat index of a coordinate: ``(...(x0*e1 + x1)*e2 + ...)``.

    >>> flatten((1, 5), (4, 8))
    13
    """
    flat: Any = 0
    for x, extent in zip(coord, shape, strict=True):
        flat = flat * extent + x
    return flat


def split(flat: Any, shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the row-major digits of a flat index, the inverse of :func:`flatten` on ``[0, prod(shape))``.

    The outermost digit is not reduced, so an index beyond the shape shows there.

    >>> split(13, (4, 8))
    (1, 5)
    """
    digits: list[Any] = []
    for extent in reversed(shape[1:]):
        digits.append(flat % extent)
        flat = flat // extent
    if shape:
        digits.append(flat)
    return tuple(reversed(digits))


class Affine(Term):
    """``const + sum(coefficient * param)``: immutable, hashable, and decided for all values of its parameters.

    Build one from a :class:`Param` with ``+``, ``-`` and ``*``; an expression without parameters is an int.
    """

    __slots__ = ("const", "terms")

    const: int
    terms: tuple[tuple[Param, int], ...]

    def __init__(self, const: int, terms: tuple[tuple[Param, int], ...]) -> None:
        object.__setattr__(self, "const", const)
        object.__setattr__(self, "terms", terms)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot set {key}")

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest value, both attained.

        >>> (3 * Param("s", 0, 4) - 1).bounds()
        (-1, 8)
        """
        low = high = self.const
        for param, c in self.terms:
            ends = (c * param.begin, c * (param.end - 1))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def substitute(self, values: Mapping[str, int]) -> Number:
        """Replace parameters by ints; those not named stay.

        >>> (128 * Param("s", 0, 2) + 3).substitute({"s": 1})
        131
        """
        total: Number = self.const
        for param, c in self.terms:
            if param.name in values:
                value = as_number(values[param.name], param.name)
                if type(value) is not int:
                    raise RangeError(f"{param.name} is replaced by a number, not by {value}", value=value)
                if not param.begin <= value < param.end:
                    raise RangeError(
                        f"{param.name} = {value} is outside its range [{param.begin}, {param.end})", value=value
                    )
                total = total + c * value
            else:
                total = total + c * param
        return total

    def equals(self, other: Number) -> bool:
        difference = self - other
        if type(difference) is int:
            return difference == 0
        low, high = difference.bounds()
        if low == high:
            return bool(low == 0)
        if low > 0 or high < 0 or difference.const % math.gcd(*(c for _, c in difference.terms)):
            return False
        raise UndecidedError(f"{self} == {other} depends on the value of the parameters")

    def is_at_most(self, other: Number) -> bool:
        low, high = bounds(self - other)
        if (low <= 0) != (high <= 0):
            raise UndecidedError(f"{self} <= {other} depends on the value of the parameters")
        return high <= 0

    def is_at_least(self, other: Number) -> bool:
        low, high = bounds(self - other)
        if (low >= 0) != (high >= 0):
            raise UndecidedError(f"{self} >= {other} depends on the value of the parameters")
        return low >= 0

    def quotient(self, divisor: Number) -> Number | None:
        if type(divisor) is not int:
            return 1 if self.equals(divisor) else None
        if self.const % divisor or any(c % divisor for _, c in self.terms):
            return None
        return _affine(self.const // divisor, {p: c // divisor for p, c in self.terms})

    def __add__(self, other: Any) -> Number:
        if type(other) is int:
            return Affine(self.const + other, self.terms)
        if isinstance(other, Affine):
            terms = dict(self.terms)
            for param, c in other.terms:
                terms[param] = terms.get(param, 0) + c
            return _affine(self.const + other.const, terms)
        return NotImplemented

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Number:
        if type(factor) is int:
            return _affine(self.const * factor, {p: c * factor for p, c in self.terms})
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Number:
        return divide_affine(self, divisor)[0]

    def __mod__(self, divisor: int) -> Number:
        return divide_affine(self, divisor)[1]

    def __divmod__(self, divisor: int) -> tuple[Number, Number]:
        return divide_affine(self, divisor)

    def __neg__(self) -> Number:
        return self * -1

    def __sub__(self, other: Any) -> Number:
        return self + -other if isinstance(other, (int, Affine)) else NotImplemented

    def __rsub__(self, other: Any) -> Number:
        return -self + other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and (self.const, self.terms) == (other.const, other.terms)

    def __hash__(self) -> int:
        return hash((self.const, self.terms))

    def __repr__(self) -> str:
        parts = [str(p) if c == 1 else f"{c}*{p}" for p, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        return " + ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Affine, (self.const, self.terms))


class Param(Affine):
    """A named integer with ``begin <= value < end``, such as a pipeline stage.

    >>> Param("s", 0, 2)
    s[0:2]
    """

    __slots__ = ("begin", "end", "name")

    name: str
    begin: int
    end: int

    def __init__(self, name: str, begin: int, end: int) -> None:
        begin, end = as_number(begin, "begin of a parameter"), as_number(end, "end of a parameter")
        if not (isinstance(name, str) and name.isidentifier()):
            raise RangeError(f"parameter name {name!r} is not an identifier", name=name)
        if type(begin) is not int or type(end) is not int or end <= begin:
            raise RangeError(f"parameter {name} has the empty range [{begin}, {end})", name=name)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "end", end)
        super().__init__(0, ((self, 1),))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Param):
            return (self.name, self.begin, self.end) == (other.name, other.begin, other.end)
        return isinstance(other, Affine) and other.const == 0 and other.terms == self.terms

    def __hash__(self) -> int:
        return hash((self.name, self.begin, self.end))

    def __repr__(self) -> str:
        return f"{self.name}[{self.begin}:{self.end}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Param, (self.name, self.begin, self.end))


def _affine(const: int, terms: Mapping[Param, int]) -> Number:
    kept = tuple(sorted(((p, c) for p, c in terms.items() if c), key=lambda item: item[0].name))
    if not kept:
        return const
    names = [p.name for p, _ in kept]
    if len(set(names)) != len(names):
        raise RangeError(f"one parameter name with two ranges in one expression: {', '.join(map(str, kept))}")
    if const == 0 and len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    return Affine(const, kept)


def bounds(value: Number) -> tuple[int, int]:
    """Return the least and greatest value of an int or an affine expression.

    Raises:
        UndecidedError: the value is some other symbolic number.

    >>> bounds(4), bounds(3 * Param("s", 0, 4) - 1)
    ((4, 4), (-1, 8))
    """
    if type(value) is int:
        return value, value
    if isinstance(value, Affine):
        return value.bounds()
    raise UndecidedError(f"the range of {value} is not known: integers and affine parameters have one")


def bounds_of_sum(values: Sequence[Number]) -> tuple[int, int]:
    """Return the bounds of a sum, parameters shared between the summands counted once.

    >>> s = Param("s", 0, 4)
    >>> bounds_of_sum([s, -1 * s, 2])
    (2, 2)
    """
    return bounds(sum(values, start=0))


def divide_affine(value: Number, divisor: int) -> tuple[Number, Number]:
    """Return quotient and remainder when the remainder is the same for all parameter values.

    Raises:
        NotExpressibleError: the remainder depends on a parameter.

    >>> divide_affine(8 * Param("s", 0, 4) + 5, 8)
    (s[0:4], 5)
    """
    if not isinstance(value, Affine):
        return value // divisor, value % divisor
    for param, c in value.terms:
        if c % divisor:
            raise NotExpressibleError(
                f"{value} modulo {divisor} depends on {param.name}: its coefficient {c} is no multiple of {divisor}",
                value=value,
                divisor=divisor,
                param=param.name,
            )
    rest = value.const % divisor
    return _affine(value.const // divisor, {p: c // divisor for p, c in value.terms}), rest


def divide(value: Number, divisor: Number) -> tuple[Number, Number]:
    """Return quotient and remainder of an index by an extent: ints, terms, affine or sympy expressions.

    Raises:
        NotExpressibleError: the remainder depends on a parameter.
        UndecidedError: a symbolic remainder is not known.

    >>> divide(13, 8)
    (1, 5)
    """
    if isinstance(value, Affine) and type(divisor) is int:
        return divide_affine(value, divisor)
    if all(isinstance(number, (int, Term)) for number in (value, divisor)):
        return value // divisor, value % divisor
    from layoutalg.symbolic import sym_divmod

    return sym_divmod(value, divisor)


def split_off(index: Number, extent: Number) -> tuple[Number, Number]:
    """Return ``index // extent`` and ``index % extent``, a sympy expression by its terms where they allow it.

    >>> split_off(13, 8)
    (1, 5)
    """
    if type(index).__module__.partition(".")[0] == "sympy" or type(extent).__module__.partition(".")[0] == "sympy":
        try:
            return divide(index, extent)
        except UndecidedError:
            pass
    return index // extent, index % extent


def substitute(value: Number, values: Mapping[str, int]) -> Number:
    """Replace parameters in an int or affine expression.

    >>> substitute(4, {"s": 1}), substitute(8 * Param("s", 0, 2), {"s": 1})
    (4, 8)
    """
    return value.substitute(values) if isinstance(value, Affine) else value
