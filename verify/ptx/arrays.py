"""The meaning of solver terms on numpy arrays: one entry per choice of values for the unknowns.

A bit-vector of up to 64 bits is an array of ``uint64`` below ``2**width``, a wider one an array of Python integers, a
truth value an array of ``bool``.  Operations mean what SMT-LIB says; one that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import z3
from numpy.typing import NDArray

from verify.ptx.names import bottom_up

__all__ = ["Array", "UnsupportedTermError", "Valuation", "bits_of", "masked", "operate"]

Array = NDArray[Any]
_WORD = 64


class UnsupportedTermError(Exception):
    """A term has no meaning on arrays here."""


def bits_of(term: Any) -> int:
    """Width of a bit-vector, 0 for a truth value."""
    return int(term.size()) if z3.is_bv(term) else 0


def masked(values: Array, width: int) -> Array:
    """Values modulo ``2**width``, in the dtype of that width."""
    if width > _WORD:
        return np.asarray(values.astype(object) & ((1 << width) - 1))
    if values.dtype == object:
        return np.asarray((values & ((1 << width) - 1)).astype(np.uint64))
    return np.asarray(values if width == _WORD else values & np.uint64((1 << width) - 1))


def _number(value: int, width: int) -> Any:
    return value if width > _WORD else np.uint64(value)


def _signed(a: Array, width: int) -> Array:
    """Signed meaning, as int64 (or Python integers)."""
    if width > _WORD:
        return np.asarray(np.where(a >= 1 << (width - 1), a - (1 << width), a))
    shift = np.uint64(_WORD - width)
    return np.asarray((a << shift).view(np.int64) >> np.int64(_WORD - width))


def _unsigned(a: Array, width: int) -> Array:
    return masked(a if a.dtype == object else a.view(np.uint64), width)


def _shifted(a: Array, amount: Array, width: int, *, left: bool) -> Array:
    limit = _number(width - 1, width)
    inside = amount <= limit
    by = np.where(inside, amount, _number(0, width))
    moved = a << by if left else a >> by
    return masked(np.where(inside, moved, _number(0, width)), width)


def _arithmetic_shift(a: Array, amount: Array, width: int) -> Array:
    if width > _WORD:
        raise UnsupportedTermError("an arithmetic shift of more than 64 bits")
    by = np.minimum(amount, np.uint64(width - 1)).astype(np.int64)
    return _unsigned(_signed(a, width) >> by, width)


def _divided(a: Array, b: Array, width: int) -> tuple[Array, Array]:
    """Quotient and rest; by zero all ones and the dividend."""
    zero = b == 0
    divisor = np.where(zero, _number(1, width), b)
    return np.where(zero, _number((1 << width) - 1, width), a // divisor), np.where(zero, a, a % divisor)


def _signed_divided(a: Array, b: Array, width: int) -> tuple[Array, Array]:
    """Truncated towards zero, through magnitudes."""
    low, divisor = _signed(a, width) < 0, _signed(b, width) < 0
    quotient, rest = _divided(np.where(low, _negated(a, width), a), np.where(divisor, _negated(b, width), b), width)
    return (
        np.where(low != divisor, _negated(quotient, width), quotient),
        np.where(low, _negated(rest, width), rest),
    )


def _negated(a: Array, width: int) -> Array:
    return masked(_number(0, width) - a, width) if width > _WORD else masked(np.zeros_like(a) - a, width)


def _concatenated(args: list[Array], widths: list[int], width: int) -> Array:
    total = masked(args[0], width)
    for part, size in zip(args[1:], widths[1:], strict=True):
        total = (total << _number(size, width)) | masked(part, width)
    return masked(total, width)


def _fold(operation: Callable[[Array, Array], Array]) -> Callable[[list[Array], int], Array]:
    def folded(args: list[Array], width: int) -> Array:
        total = args[0]
        for other in args[1:]:
            total = operation(total, other)
        return masked(total, width) if width else total

    return folded


_FOLDS: Mapping[int, Callable[[list[Array], int], Array]] = {
    z3.Z3_OP_BADD: _fold(lambda a, b: a + b),
    z3.Z3_OP_BSUB: _fold(lambda a, b: a - b),
    z3.Z3_OP_BMUL: _fold(lambda a, b: a * b),
    z3.Z3_OP_BAND: _fold(lambda a, b: a & b),
    z3.Z3_OP_BOR: _fold(lambda a, b: a | b),
    z3.Z3_OP_BXOR: _fold(lambda a, b: a ^ b),
    z3.Z3_OP_AND: _fold(lambda a, b: a & b),
    z3.Z3_OP_OR: _fold(lambda a, b: a | b),
    z3.Z3_OP_XOR: _fold(lambda a, b: a ^ b),
}
_BINARY: Mapping[int, Callable[[Array, Array, int], Array]] = {
    z3.Z3_OP_BUDIV: lambda a, b, w: _divided(a, b, w)[0],
    z3.Z3_OP_BUDIV_I: lambda a, b, w: _divided(a, b, w)[0],
    z3.Z3_OP_BUREM: lambda a, b, w: _divided(a, b, w)[1],
    z3.Z3_OP_BUREM_I: lambda a, b, w: _divided(a, b, w)[1],
    z3.Z3_OP_BSDIV: lambda a, b, w: _signed_divided(a, b, w)[0],
    z3.Z3_OP_BSDIV_I: lambda a, b, w: _signed_divided(a, b, w)[0],
    z3.Z3_OP_BSREM: lambda a, b, w: _signed_divided(a, b, w)[1],
    z3.Z3_OP_BSREM_I: lambda a, b, w: _signed_divided(a, b, w)[1],
    z3.Z3_OP_BSHL: lambda a, b, w: _shifted(a, b, w, left=True),
    z3.Z3_OP_BLSHR: lambda a, b, w: _shifted(a, b, w, left=False),
    z3.Z3_OP_BASHR: _arithmetic_shift,
}
_COMPARISONS: Mapping[int, Callable[[Array, Array], Array]] = {
    z3.Z3_OP_EQ: lambda a, b: a == b,
    z3.Z3_OP_DISTINCT: lambda a, b: a != b,
    z3.Z3_OP_ULEQ: lambda a, b: a <= b,
    z3.Z3_OP_ULT: lambda a, b: a < b,
    z3.Z3_OP_UGEQ: lambda a, b: a >= b,
    z3.Z3_OP_UGT: lambda a, b: a > b,
    z3.Z3_OP_SLEQ: lambda a, b: a <= b,
    z3.Z3_OP_SLT: lambda a, b: a < b,
    z3.Z3_OP_SGEQ: lambda a, b: a >= b,
    z3.Z3_OP_SGT: lambda a, b: a > b,
    z3.Z3_OP_IMPLIES: lambda a, b: ~a | b,
}
_SIGNED = frozenset({z3.Z3_OP_SLEQ, z3.Z3_OP_SLT, z3.Z3_OP_SGEQ, z3.Z3_OP_SGT})


def operate(term: Any, args: list[Array]) -> Array:
    """The value of a term whose arguments have these values.

    Raises:
        UnsupportedTermError: the operation is not in the table.

    >>> x = z3.BitVec("x", 8)
    >>> operate(x + 250, [np.array([3, 9], dtype=np.uint64), np.array([250], dtype=np.uint64)]).tolist()
    [253, 3]
    """
    kind, width = term.decl().kind(), bits_of(term)
    widths = [bits_of(child) for child in term.children()]
    if kind in _FOLDS:
        return _FOLDS[kind](args, width)
    if kind in _BINARY:
        return _BINARY[kind](args[0], args[1], width)
    if kind in _COMPARISONS:
        if len(args) != 2:
            raise UnsupportedTermError(f"a comparison of {len(args)} terms")
        pair = [_signed(a, w) for a, w in zip(args, widths, strict=True)] if kind in _SIGNED else args
        return np.asarray(_COMPARISONS[kind](*pair))
    match kind:
        case z3.Z3_OP_BNUM:
            return np.array([term.as_long()], dtype=np.uint64 if width <= _WORD else object)
        case z3.Z3_OP_TRUE | z3.Z3_OP_FALSE:
            return np.array([kind == z3.Z3_OP_TRUE])
        case z3.Z3_OP_NOT:
            return np.asarray(~args[0])
        case z3.Z3_OP_BNOT:
            return masked(args[0] ^ _number((1 << width) - 1, width), width)
        case z3.Z3_OP_BNEG:
            return _negated(args[0], width)
        case z3.Z3_OP_ITE:
            return np.where(args[0], args[1], args[2])
        case z3.Z3_OP_CONCAT:
            return _concatenated(args, widths, width)
        case z3.Z3_OP_EXTRACT:
            low = term.params()[1]
            return masked(args[0] >> _number(low, widths[0]), width)
        case z3.Z3_OP_ZERO_EXT:
            return masked(args[0], width)
        case z3.Z3_OP_SIGN_EXT:
            signed = _signed(args[0], widths[0])
            return masked(signed.astype(object), width) if width > _WORD else _unsigned(signed, width)
    raise UnsupportedTermError(f"no meaning on arrays for {term.decl().name()}")


class Valuation:
    """Values of the unknowns, and of every term that was asked for.

    >>> x = z3.BitVec("x", 8)
    >>> Valuation({"x": np.arange(4, dtype=np.uint64)}).value(z3.ULT(x, 2)).tolist()
    [True, True, False, False]
    """

    def __init__(self, unknowns: Mapping[str, Array]) -> None:
        self.unknowns = unknowns
        self._known: dict[int, tuple[Any, Array]] = {}

    def value(self, term: Any) -> Array:
        """Return a term's values.

        Raises:
            UnsupportedTermError: an unknown that has no values here, or an operation that is not in the table.
        """
        return bottom_up(term, self._known, self._value)

    def _value(self, node: Any, children: list[Any]) -> Array:
        if node.decl().kind() != z3.Z3_OP_UNINTERPRETED:
            return operate(node, [self._known[child.get_id()][1] for child in children])
        name = node.decl().name()
        if children or name not in self.unknowns:
            raise UnsupportedTermError(f"nothing is known of {name}")
        return self.unknowns[name]
