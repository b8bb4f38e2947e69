"""Words on which the shipping swizzle formula runs: by their bits, at any size, or as 64-bit vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

__all__ = ["Amount", "Mask", "Vector64", "Word"]


class Word:
    """A word of any size, given by its bits; bits with negative numbers are 0."""

    def __init__(self, bit: Callable[[Any], Any]) -> None:
        self.bit = bit

    def __xor__(self, other: Word) -> Word:
        return Word(lambda i: z3.Xor(self.bit(i), other.bit(i)))

    def __and__(self, other: Word) -> Word:
        return Word(lambda i: z3.And(self.bit(i), other.bit(i)))

    def __rshift__(self, amount: Any) -> Word:
        return Word(lambda i: z3.And(i >= 0, self.bit(i + _size(amount))))

    def __lshift__(self, amount: Any) -> Word:
        return Word(lambda i: self.bit(i - _size(amount)))


class Mask(Word):
    """A power of two: bit ``log`` alone; one less has the bits below it."""

    def __init__(self, log: Any) -> None:
        super().__init__(lambda i: i == log)
        self.log = log

    def __sub__(self, one: int) -> Word:
        assert one == 1
        return Word(lambda i: z3.And(i >= 0, i < self.log))


class Vector64:
    """A 64-bit word; shifts to the right are logical, as addresses are never negative."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    @classmethod
    def power(cls, log: Any) -> Vector64:
        """Return ``1 << log``."""
        return cls(z3.BitVecVal(1, 64) << log)

    def __xor__(self, other: Vector64) -> Vector64:
        return Vector64(self.expr ^ other.expr)

    def __and__(self, other: Vector64) -> Vector64:
        return Vector64(self.expr & other.expr)

    def __sub__(self, other: int) -> Vector64:
        return Vector64(self.expr - other)

    def __rshift__(self, amount: Any) -> Vector64:
        return Vector64(z3.LShR(self.expr, _size(amount)))

    def __lshift__(self, amount: Any) -> Vector64:
        return Vector64(self.expr << _size(amount))

    def __eq__(self, other: object) -> Any:
        return self.expr == other.expr if isinstance(other, Vector64) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Amount:
    """A number of bits of unknown size and known sign, where the formula expects an int; ``kind`` makes 1 << it."""

    def __init__(self, size: Any, kind: Any, sign: int = 1) -> None:
        self.size, self.kind, self.sign = size, kind, sign

    def __neg__(self) -> Amount:
        return Amount(self.size, self.kind, -self.sign)

    def __gt__(self, other: int) -> bool:
        return self.sign > other

    def __bool__(self) -> bool:
        return True  # B = 0 changes nothing in the formula, and the shipping code treats it apart

    def __rlshift__(self, one: int) -> Any:
        assert one == 1
        return self.kind.power(self.size) if self.kind is Vector64 else self.kind(self.size)


def _size(amount: Any) -> Any:
    return amount.size if isinstance(amount, Amount) else amount
