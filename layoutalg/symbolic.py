"""Sizes that are not known yet: sympy expressions in positive integer symbols.

Strides, offsets and extents may be sympy expressions.  Write ``32*q`` to state that a size is a multiple of 32:
divisibility is read off the expression, never guessed.  A question that the assumptions do not settle raises
:class:`~layoutalg.errors.UndecidedError` with the fact that was missing.

This module alone imports sympy, and only when a symbolic number occurs.

>>> n = symbol("n")
>>> sym_equal(2 * n, n + n), sym_at_most(1, n), sym_quotient(32 * n, 8)
(True, True, 4*n)
"""

from __future__ import annotations

from typing import Any

import sympy

from layoutalg.decide import Number
from layoutalg.errors import RangeError, UndecidedError

__all__ = ["sym_at_most", "sym_equal", "sym_number", "sym_quotient", "symbol"]


def symbol(name: str) -> Any:
    """Return the positive integer symbol of this name."""
    return sympy.Symbol(name, integer=True, positive=True)


def sym_number(value: Any) -> Number:
    """Return a sympy integer expression as a number of the algebra, an int where it is constant.

    Raises:
        RangeError: it is not known to be an integer.
    """
    if getattr(value, "is_integer", None) is not True:
        raise RangeError(
            f"{value} is not known to be an integer: use symbols with integer=True, such as symbol({str(value)!r})"
        )
    return int(value) if value.is_Integer else value


def sym_equal(a: Number, b: Number) -> bool:
    """Decide a == b from the assumptions, or raise UndecidedError."""
    difference = sympy.expand(a - b)
    if difference.is_zero is None:
        difference = sympy.factor(difference)
    if difference.is_zero is None:
        raise UndecidedError(f"it is not known whether {a} == {b}", question=("==", a, b))
    return bool(difference.is_zero)


def sym_at_most(a: Number, b: Number) -> bool:
    """Decide a <= b from the assumptions, or raise UndecidedError."""
    difference = sympy.expand(b - a)
    known = difference.is_nonnegative
    if known is None and difference.subs({s: s + 1 for s in difference.free_symbols}).expand().is_nonnegative:
        known = True  # positive integers are at least 1
    if known is None:
        raise UndecidedError(f"it is not known whether {a} <= {b}", question=("<=", a, b))
    return bool(known)


def sym_quotient(a: Number, b: Number) -> Number | None:
    """Return a / b when that is an integer for all values of the symbols; None when it is not for some.

    Raises:
        UndecidedError: the quotient is an integer for some values only; the message states what was missing.
    """
    quotient = sympy.cancel(sympy.sympify(a) / b)
    if quotient.is_integer:
        return sym_number(quotient)
    numerator, denominator = sympy.fraction(quotient)
    if quotient.is_integer is False or (numerator.is_Integer and denominator.is_Integer):
        return None
    if numerator.is_Integer and not denominator.is_Integer:
        raise UndecidedError(f"it is not known whether {b} divides {a}", question=("divides", b, a))
    raise UndecidedError(
        f"it is not known whether {b} divides {a}; state divisibility by writing a size as a multiple, such as 32*q",
        question=("divides", b, a),
    )
