"""IEEE-754 round-to-nearest-even arithmetic on bit patterns, as numpy arrays.

Sums and fused products are computed in double precision with rounding to odd, so that the second rounding, to the
target format, is the only one that counts.  NaN results are the canonical NaN of the PTX ISA (``0x7fffffff``,
``0x7fff``); subnormals are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OPERATIONS"]

Array = NDArray[Any]


def _sum_to_odd(a: Array, b: Array) -> Array:
    """``a + b`` in double precision, an inexact result having its last bit set towards the lost part."""
    total = a + b
    rounded_b = total - a
    lost = (a - (total - rounded_b)) + (b - rounded_b)
    inexact = np.isfinite(total) & (lost != 0)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    return np.where(inexact & even, np.nextafter(total, towards), total)


def _binary32(bits: Array) -> Array:
    return bits.view(np.float32).astype(np.float64)


def _to_binary32(value: Array) -> Array:
    return np.where(np.isnan(value), np.uint32(0x7FFFFFFF), value.astype(np.float32).view(np.uint32))


def _binary16(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float64)


def _to_binary16(value: Array) -> Array:
    return np.where(np.isnan(value), np.uint16(0x7FFF), value.astype(np.float16).view(np.uint16))


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """Overflow, underflow and invalid operations are results here, not events."""

    def wrapped(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*np.broadcast_arrays(*(np.ascontiguousarray(operand) for operand in operands)))

    return wrapped


def _halves(function: Callable[..., Array]) -> Callable[..., Array]:
    """Apply a binary16 operation to both halves of 32-bit patterns."""

    def wrapped(*operands: Array) -> Array:
        low = function(*(np.ascontiguousarray(a & np.uint32(0xFFFF)).astype(np.uint16) for a in operands))
        high = function(*((a >> np.uint32(16)).astype(np.uint16) for a in operands))
        return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))

    return wrapped


def _add32(a: Array, b: Array) -> Array:
    return _to_binary32(_sum_to_odd(_binary32(a), _binary32(b)))


def _sub32(a: Array, b: Array) -> Array:
    return _to_binary32(_sum_to_odd(_binary32(a), -_binary32(b)))


def _mul32(a: Array, b: Array) -> Array:
    return _to_binary32(_binary32(a) * _binary32(b))


def _fma32(a: Array, b: Array, c: Array) -> Array:
    return _to_binary32(_sum_to_odd(_binary32(a) * _binary32(b), _binary32(c)))


def _add16(a: Array, b: Array) -> Array:
    return _to_binary16(_binary16(a) + _binary16(b))


def _sub16(a: Array, b: Array) -> Array:
    return _to_binary16(_binary16(a) - _binary16(b))


def _mul16(a: Array, b: Array) -> Array:
    return _to_binary16(_binary16(a) * _binary16(b))


def _fma16(a: Array, b: Array, c: Array) -> Array:
    return _to_binary16(_sum_to_odd(_binary16(a) * _binary16(b), _binary16(c)))


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add.rn.f32": _quiet(_add32),
    "sub.rn.f32": _quiet(_sub32),
    "mul.rn.f32": _quiet(_mul32),
    "fma.rn.f32": _quiet(_fma32),
    "add.rn.f16x2": _halves(_quiet(_add16)),
    "sub.rn.f16x2": _halves(_quiet(_sub16)),
    "mul.rn.f16x2": _halves(_quiet(_mul16)),
    "fma.rn.f16x2": _halves(_quiet(_fma16)),
}
"""Operation name to its meaning on bit patterns (32 bits; two halves for ``f16x2``)."""
