"""The symbolic domain: solver bit-vectors, for one thread whose index and parameters are unknown."""

from __future__ import annotations

from typing import Any

import z3

__all__ = ["Z3", "Z3Domain"]


class Z3Domain:
    """Implements :class:`verify.ptx.domain.Domain` on solver terms.

    Floating-point operations are uninterpreted: a kernel that moves data is right whatever they mean, and nothing
    can be concluded from what they compute.

    >>> d = Z3Domain()
    >>> z3.simplify(d.mul_high(d.const(-1, 64), d.const(-1, 64)))
    18446744073709551614
    """

    def const(self, value: int, width: int) -> Any:
        return z3.BitVecVal(value, width)

    def width(self, a: Any) -> int:
        return int(a.size())

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def mul_high(self, a: Any, b: Any) -> Any:
        width = a.size()
        return z3.Extract(2 * width - 1, width, z3.ZeroExt(width, a) * z3.ZeroExt(width, b))

    def udiv(self, a: Any, b: Any) -> Any:
        return z3.UDiv(a, b)

    def urem(self, a: Any, b: Any) -> Any:
        return z3.URem(a, b)

    def sdiv(self, a: Any, b: Any) -> Any:
        return a / b

    def srem(self, a: Any, b: Any) -> Any:
        return z3.SRem(a, b)

    def and_(self, a: Any, b: Any) -> Any:
        return a & b

    def or_(self, a: Any, b: Any) -> Any:
        return a | b

    def xor(self, a: Any, b: Any) -> Any:
        return a ^ b

    def not_(self, a: Any) -> Any:
        return ~a

    def shl(self, a: Any, amount: Any) -> Any:
        return a << amount

    def lshr(self, a: Any, amount: Any) -> Any:
        return z3.LShR(a, amount)

    def ashr(self, a: Any, amount: Any) -> Any:
        return a >> amount

    def zext(self, a: Any, width: int) -> Any:
        return a if width == a.size() else z3.ZeroExt(width - a.size(), a)

    def sext(self, a: Any, width: int) -> Any:
        return a if width == a.size() else z3.SignExt(width - a.size(), a)

    def trunc(self, a: Any, width: int) -> Any:
        return a if width == a.size() else z3.Extract(width - 1, 0, a)

    def eq(self, a: Any, b: Any) -> Any:
        return a == b

    def ult(self, a: Any, b: Any) -> Any:
        return z3.ULT(a, b)

    def ule(self, a: Any, b: Any) -> Any:
        return z3.ULE(a, b)

    def slt(self, a: Any, b: Any) -> Any:
        return a < b

    def sle(self, a: Any, b: Any) -> Any:
        return a <= b

    def bool_const(self, value: bool) -> Any:
        return z3.BoolVal(value)

    def bool_and(self, p: Any, q: Any) -> Any:
        return z3.And(p, q)

    def bool_or(self, p: Any, q: Any) -> Any:
        return z3.Or(p, q)

    def bool_xor(self, p: Any, q: Any) -> Any:
        return z3.Xor(p, q)

    def bool_not(self, p: Any) -> Any:
        return z3.Not(p)

    def ite(self, p: Any, a: Any, b: Any) -> Any:
        return z3.If(p, a, b)

    def floating(self, name: str, *operands: Any) -> Any:
        sorts = [operand.sort() for operand in operands]
        return z3.Function(name, *sorts, sorts[0])(*operands)


Z3 = Z3Domain()
