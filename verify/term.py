"""Numbers that Z3 reasons about, usable wherever the algebra uses numbers.

:class:`BitTerm` wraps a bit-vector so that the library's own ``apply`` runs on it: ``+ - *`` and, by positive
constants, ``// %``.  Division is unsigned: an index is never negative, and a coordinate, which may be negative, is
never divided.

>>> import z3
>>> lane = BitTerm.of("lane")
>>> (lane * 4 + 3).expr
lane*4 + 3
>>> z3.simplify((lane // 8).expr)
Concat(0, Extract(31, 3, lane))
"""

from __future__ import annotations

from typing import Any, Final

import z3

from layoutalg.decide import Term
from layoutalg.index import Affine
from layoutalg.iters import vector_at
from layoutalg.tile import TileLayout

__all__ = ["WIDTH", "BitTerm", "lookup", "memory_address"]

#: Bits of a coordinate in proofs about shared memory, whose addresses are 32 bits wide.
WIDTH: Final = 32


class BitTerm(Term):
    """A 32-bit vector as a number of the algebra."""

    __slots__ = ("expr",)

    def __init__(self, expr: z3.BitVecRef) -> None:
        self.expr = expr

    @classmethod
    def of(cls, name: str) -> BitTerm:
        """Return a fresh unknown of this name."""
        return cls(z3.BitVec(name, WIDTH))

    def __add__(self, other: Any) -> BitTerm:
        return BitTerm(self.expr + _expr(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> BitTerm:
        return BitTerm(self.expr - _expr(other))

    def __rsub__(self, other: Any) -> BitTerm:
        return BitTerm(_expr(other) - self.expr)

    def __mul__(self, other: Any) -> BitTerm:
        return BitTerm(self.expr * _expr(other))

    __rmul__ = __mul__

    def __neg__(self) -> BitTerm:
        return BitTerm(-self.expr)

    def __floordiv__(self, divisor: int) -> BitTerm:
        if divisor & (divisor - 1) == 0:
            return BitTerm(z3.LShR(self.expr, divisor.bit_length() - 1))
        return BitTerm(z3.UDiv(self.expr, z3.BitVecVal(divisor, WIDTH)))

    def __mod__(self, divisor: int) -> BitTerm:
        if divisor & (divisor - 1) == 0:
            return BitTerm(self.expr & (divisor - 1))
        return BitTerm(z3.URem(self.expr, z3.BitVecVal(divisor, WIDTH)))


def _expr(value: Any) -> z3.BitVecRef:
    return value.expr if isinstance(value, BitTerm) else z3.BitVecVal(value, WIDTH)


def memory_address(layout: TileLayout, index: BitTerm, params: dict[str, BitTerm]) -> z3.BitVecRef:
    """Return the layout's ``m`` coordinate at a symbolic index, parameters of the offset replaced by unknowns."""
    place: Any = 0
    for axis, value in vector_at(layout.shard, index).items():
        if axis.name == "m":
            place = place + value
    offset = layout.offset.get("m", 0)
    if isinstance(offset, Affine):
        place = place + offset.const
        for param, coefficient in offset.terms:
            place = place + params[param.name] * coefficient
    else:
        place = place + offset
    return _expr(place)


def lookup(values: list[int], index: z3.BitVecRef) -> z3.BitVecRef:
    """Return ``values[index]`` as a tree of choices on the bits of the index.

    >>> z3.simplify(lookup([5, 6, 7, 8], z3.BitVecVal(2, WIDTH)))
    7
    """
    if len(set(values)) == 1:
        return z3.BitVecVal(values[0], WIDTH)
    bit = (len(values) - 1).bit_length() - 1
    low, high = values[: 1 << bit], values[1 << bit :]
    chosen: z3.BitVecRef = z3.If(z3.Extract(bit, bit, index) == 1, lookup(high, index), lookup(low, index))
    return chosen
