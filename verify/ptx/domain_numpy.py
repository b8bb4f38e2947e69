"""The concrete domain: numpy arrays of unsigned integers, one entry per thread.

A value has shape ``(threads,)``, or ``(1,)`` where all threads agree; the two mix freely.  Truth values are arrays
of ``bool``.  The width of a value is its dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx import floats

__all__ = ["NUMPY", "UNSIGNED", "NumpyDomain"]

UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

Array = NDArray[Any]


def _width(a: Array) -> int:
    return 8 * a.dtype.itemsize


def _signed(a: Array) -> Array:
    return a.view(_SIGNED[_width(a)])


class NumpyDomain:
    """Implements :class:`verify.ptx.domain.Domain` on arrays.

    >>> d = NumpyDomain()
    >>> d.sub(d.const(0, 16), d.const(1, 16)).tolist(), d.shl(d.const(1, 32), d.const(32, 32)).tolist()
    ([65535], [0])
    """

    def const(self, value: int, width: int) -> Array:
        return np.array([value % (1 << width)], dtype=UNSIGNED[width])

    def width(self, a: Array) -> int:
        return _width(a)

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def sub(self, a: Array, b: Array) -> Array:
        return a - b

    def mul(self, a: Array, b: Array) -> Array:
        return a * b

    def mul_high(self, a: Array, b: Array) -> Array:
        width = _width(a)
        if width < 64:
            wide = UNSIGNED[2 * width]
            return self.trunc((a.astype(wide) * b.astype(wide)) >> wide(width), width)
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        a_hi, a_lo, b_hi, b_lo = a >> half, a & low, b >> half, b & low
        middle = a_hi * b_lo + ((a_lo * b_lo) >> half)
        carry = a_lo * b_hi + (middle & low)
        return np.asarray(a_hi * b_hi + (middle >> half) + (carry >> half))

    def udiv(self, a: Array, b: Array) -> Array:
        zero = b == 0
        return np.where(zero, ~np.zeros_like(a), a // np.where(zero, np.ones_like(b), b))

    def urem(self, a: Array, b: Array) -> Array:
        zero = b == 0
        return np.where(zero, a, a % np.where(zero, np.ones_like(b), b))

    def sdiv(self, a: Array, b: Array) -> Array:
        quotient = self.udiv(self._magnitude(a), self._magnitude(b))
        return np.where((_signed(a) < 0) != (_signed(b) < 0), self._negate(quotient), quotient)

    def srem(self, a: Array, b: Array) -> Array:
        rest = self.urem(self._magnitude(a), self._magnitude(b))
        return np.where(_signed(a) < 0, self._negate(rest), rest)

    def _negate(self, a: Array) -> Array:
        return np.asarray(np.zeros_like(a) - a)

    def _magnitude(self, a: Array) -> Array:
        return np.where(_signed(a) < 0, self._negate(a), a)

    def and_(self, a: Array, b: Array) -> Array:
        return a & b

    def or_(self, a: Array, b: Array) -> Array:
        return a | b

    def xor(self, a: Array, b: Array) -> Array:
        return a ^ b

    def not_(self, a: Array) -> Array:
        return ~a

    def shl(self, a: Array, amount: Array) -> Array:
        width = _width(a)
        if amount.size == 1:
            return np.asarray(a << amount) if int(amount[0]) < width else np.zeros_like(a)
        return np.where(amount < width, a << np.minimum(amount, amount.dtype.type(width - 1)), np.zeros_like(a))

    def lshr(self, a: Array, amount: Array) -> Array:
        width = _width(a)
        if amount.size == 1:
            return np.asarray(a >> amount) if int(amount[0]) < width else np.zeros_like(a)
        return np.where(amount < width, a >> np.minimum(amount, amount.dtype.type(width - 1)), np.zeros_like(a))

    def ashr(self, a: Array, amount: Array) -> Array:
        width = _width(a)
        clamped = np.minimum(amount, amount.dtype.type(width - 1))
        return (_signed(a) >> _signed(clamped)).view(a.dtype)

    def zext(self, a: Array, width: int) -> Array:
        return a.astype(UNSIGNED[width])

    def sext(self, a: Array, width: int) -> Array:
        return _signed(a).astype(_SIGNED[width]).view(UNSIGNED[width])

    def trunc(self, a: Array, width: int) -> Array:
        return a.astype(UNSIGNED[width])

    def eq(self, a: Array, b: Array) -> Array:
        return np.asarray(a == b)

    def ult(self, a: Array, b: Array) -> Array:
        return np.asarray(a < b)

    def ule(self, a: Array, b: Array) -> Array:
        return np.asarray(a <= b)

    def slt(self, a: Array, b: Array) -> Array:
        return np.asarray(_signed(a) < _signed(b))

    def sle(self, a: Array, b: Array) -> Array:
        return np.asarray(_signed(a) <= _signed(b))

    def bool_const(self, value: bool) -> Array:
        return np.array([value])

    def bool_and(self, p: Array, q: Array) -> Array:
        return p & q

    def bool_or(self, p: Array, q: Array) -> Array:
        return p | q

    def bool_xor(self, p: Array, q: Array) -> Array:
        return p ^ q

    def bool_not(self, p: Array) -> Array:
        return ~p

    def ite(self, p: Array, a: Array, b: Array) -> Array:
        return np.where(p, a, b)

    def floating(self, name: str, *operands: Array) -> Array:
        return floats.OPERATIONS[name](*operands)


NUMPY = NumpyDomain()
