"""What an instruction may compute with: bit-vectors and truth values of an abstract domain.

The meaning of every instruction is written once over this interface (:mod:`verify.ptx.ops_integer` and its
siblings) and interpreted twice: over numpy arrays of all threads (:mod:`verify.ptx.domain_numpy`) and over solver
terms (:mod:`verify.ptx.domain_z3`).  Operations follow SMT-LIB: a shift by the width or more gives zero (or the
sign), division truncates towards zero, everything wraps.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Bits", "Bool", "Domain"]

Bits = Any
"""A bit-vector of the domain."""

Bool = Any
"""A truth value of the domain."""


class Domain(Protocol):
    """Bit-vectors of 8, 16, 32 and 64 bits, and truth values."""

    def const(self, value: int, width: int) -> Bits:
        """The constant ``value mod 2**width``."""

    def width(self, a: Bits) -> int:
        """Bits of ``a``."""

    def add(self, a: Bits, b: Bits) -> Bits: ...

    def sub(self, a: Bits, b: Bits) -> Bits: ...

    def mul(self, a: Bits, b: Bits) -> Bits: ...

    def mul_high(self, a: Bits, b: Bits) -> Bits:
        """Upper half of the unsigned product."""

    def udiv(self, a: Bits, b: Bits) -> Bits: ...

    def urem(self, a: Bits, b: Bits) -> Bits: ...

    def sdiv(self, a: Bits, b: Bits) -> Bits: ...

    def srem(self, a: Bits, b: Bits) -> Bits: ...

    def and_(self, a: Bits, b: Bits) -> Bits: ...

    def or_(self, a: Bits, b: Bits) -> Bits: ...

    def xor(self, a: Bits, b: Bits) -> Bits: ...

    def not_(self, a: Bits) -> Bits: ...

    def shl(self, a: Bits, amount: Bits) -> Bits: ...

    def lshr(self, a: Bits, amount: Bits) -> Bits: ...

    def ashr(self, a: Bits, amount: Bits) -> Bits: ...

    def zext(self, a: Bits, width: int) -> Bits:
        """Zero-extend to ``width``."""

    def sext(self, a: Bits, width: int) -> Bits:
        """Sign-extend to ``width``."""

    def trunc(self, a: Bits, width: int) -> Bits:
        """The low ``width`` bits."""

    def eq(self, a: Bits, b: Bits) -> Bool: ...

    def ult(self, a: Bits, b: Bits) -> Bool: ...

    def ule(self, a: Bits, b: Bits) -> Bool: ...

    def slt(self, a: Bits, b: Bits) -> Bool: ...

    def sle(self, a: Bits, b: Bits) -> Bool: ...

    def bool_const(self, value: bool) -> Bool: ...

    def bool_and(self, p: Bool, q: Bool) -> Bool: ...

    def bool_or(self, p: Bool, q: Bool) -> Bool: ...

    def bool_xor(self, p: Bool, q: Bool) -> Bool: ...

    def bool_not(self, p: Bool) -> Bool: ...

    def ite(self, p: Bool, a: Bits, b: Bits) -> Bits:
        """``a`` where ``p`` holds, otherwise ``b``."""

    def floating(self, name: str, *operands: Bits) -> Bits:
        """An IEEE operation on bit patterns, by the name that :mod:`verify.ptx.ops_float` gives it."""
