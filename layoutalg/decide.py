"""The one place where the algebra asks whether a fact holds.

Algorithms branch on facts such as "this stride equals extent times that stride".  Every such question goes
through :func:`equal` and :func:`at_most`.  Plain ints answer at once.  A :class:`Term` answers for itself: an affine
parameter compares coefficients, a solver term forks the path so that a proof covers both outcomes.  A sympy
expression is decided from its assumptions, or raises :class:`~layoutalg.errors.UndecidedError`.

So the code that ships is the code that is proved, not a transcription of it.

>>> equal(8, 4 * 2), at_most(3, 2), exact_quotient(12, 4)
(True, False, 3)
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Number",
    "Term",
    "as_number",
    "at_most",
    "certainly_equal",
    "equal",
    "exact_quotient",
    "is_symbolic",
    "joins",
]

#: An int, a :class:`Term` or a sympy expression; the algebra only uses ``+ - *``, ``// %`` and the questions below.
Number = Any


class Term:
    """Base class of numbers that are not ints: they answer the algebra's questions themselves."""

    __slots__ = ()

    def equals(self, other: Number) -> bool:
        """Decide ``self == other`` for all admitted values, or raise UndecidedError."""
        raise NotImplementedError

    def is_at_most(self, other: Number) -> bool:
        """Decide ``self <= other`` for all admitted values, or raise UndecidedError."""
        raise NotImplementedError

    def is_at_least(self, other: Number) -> bool:
        """Decide ``self >= other`` for all admitted values, or raise UndecidedError."""
        raise NotImplementedError

    def quotient(self, divisor: Number) -> Number | None:
        """Return ``self / divisor`` when that is exact for all admitted values, else None."""
        raise NotImplementedError


def equal(a: Number, b: Number) -> bool:
    """Decide ``a == b``.

    >>> equal(12, 3 * 4)
    True
    """
    if type(a) is int and type(b) is int:
        return a == b
    if isinstance(a, Term):
        return a.equals(b)
    if isinstance(b, Term):
        return b.equals(a)
    from layoutalg.symbolic import sym_equal

    return sym_equal(a, b)


def certainly_equal(a: Number, b: Number) -> bool:
    """Say whether ``a == b`` is known to hold; an undecided question counts as no.

    For questions where no is always a sound answer, such as whether an iter may be dropped.

    >>> certainly_equal(1, 1), certainly_equal(2, 1)
    (True, False)
    """
    if type(a) is int and type(b) is int:
        return a == b
    from layoutalg.errors import UndecidedError

    try:
        return equal(a, b)
    except UndecidedError:
        return False


def joins(stride: Number, inner_extent: Number, inner_stride: Number, extent: Number) -> bool:
    """Decide whether an iter continues its inner neighbour's progression: ``stride == inner_extent * inner_stride``.

    Symbolic extents count as at least 2 here: at extent 1 there is nothing to join, and either answer is right.

    >>> joins(8, 8, 1, 4), joins(16, 8, 1, 4)
    (True, False)
    """
    if type(stride) is int and type(inner_extent) is int and type(inner_stride) is int:
        return stride == inner_extent * inner_stride
    if any(isinstance(value, Term) for value in (stride, inner_extent, inner_stride, extent)):
        return equal(stride, inner_extent * inner_stride)
    from layoutalg.symbolic import sym_joins

    return sym_joins(stride, inner_extent, inner_stride, extent)


def at_most(a: Number, b: Number) -> bool:
    """Decide ``a <= b``.

    >>> at_most(3, 2)
    False
    """
    if type(a) is int and type(b) is int:
        return a <= b
    if isinstance(a, Term):
        return a.is_at_most(b)
    if isinstance(b, Term):
        return b.is_at_least(a)
    from layoutalg.symbolic import sym_at_most

    return sym_at_most(a, b)


def exact_quotient(a: Number, b: Number) -> Number | None:
    """Return ``a / b`` if b divides a, else None; the internal form of a divisibility question.

    >>> exact_quotient(12, 5) is None
    True
    """
    if type(a) is int and type(b) is int:
        quotient, rest = divmod(a, b)
        return quotient if rest == 0 else None
    if isinstance(a, Term):
        return a.quotient(b)
    if isinstance(b, Term):
        return 0 if type(a) is int and a == 0 else (1 if b.equals(a) else None)
    from layoutalg.symbolic import sym_quotient

    return sym_quotient(a, b)


def is_symbolic(value: object) -> bool:
    """Say whether value is a number of the algebra that is not an int.

    >>> is_symbolic(4)
    False
    """
    return isinstance(value, Term) or type(value).__module__.partition(".")[0] == "sympy"


def as_number(value: object, what: str) -> Number:
    """Return an int (numpy integers included) or a symbolic number; refuse bools, floats and the rest.

    Args:
        value: the candidate.
        what: how the caller names it in the message, such as ``"extent"``.

    Raises:
        RangeError: it is no integer.

    >>> as_number(True, "stride")
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: stride must be an integer, not True (bool)
    """
    if type(value) is int or isinstance(value, Term):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if type(value).__module__.partition(".")[0] == "numpy" and getattr(value, "dtype", None) is not None:
        if getattr(value, "shape", None) == () and value.dtype.kind in "iu":  # type: ignore[attr-defined]
            return int(value)  # type: ignore[call-overload]
    elif is_symbolic(value):
        from layoutalg.symbolic import sym_number

        return sym_number(value)
    from layoutalg.errors import RangeError

    raise RangeError(f"{what} must be an integer, not {value!r} ({type(value).__name__})", what=what, value=value)
