"""Numbers that Z3 reasons about, usable wherever the algebra uses numbers.

**Digits.** Quotients by unknown extents defeat solvers, so laws over all extents never divide: they *generate* an
index from its digits, ``n = (u*f + c)*e + d`` with ``0 <= c < f`` and ``0 <= d < e``.  ``Div`` and ``Mod`` are
functions that the solver knows nothing about; all that it learns comes from the lemma instances of
:func:`lemma_divmod`, :func:`lemma_range` and :func:`lemma_positive`, each of which is itself a law, proved against
Z3's own division (``verify.laws.index``).  :func:`digits` supplies every instance that an index gives rise to.

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

from collections.abc import Sequence
from typing import Any, Final

import z3

from layoutalg.decide import Term
from layoutalg.index import Affine
from layoutalg.iters import vector_at
from layoutalg.tile import TileLayout

__all__ = [
    "WIDTH",
    "BitTerm",
    "Div",
    "Mod",
    "digits",
    "lemma_divmod",
    "lemma_positive",
    "lemma_range",
    "lookup",
    "memory_address",
    "normal",
]

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


# -- digits --------------------------------------------------------------------------------------------------------

Div: Final = z3.Function("Div", z3.IntSort(), z3.IntSort(), z3.IntSort())
Mod: Final = z3.Function("Mod", z3.IntSort(), z3.IntSort(), z3.IntSort())


def normal(value: Any) -> Any:
    """Return a sum of monomials, so that equal polynomials become one term and applications of Div meet."""
    return z3.simplify(value, som=True) if isinstance(value, z3.ExprRef) else value


def lemma_divmod(q: Any, e: Any, r: Any) -> z3.BoolRef:
    """An instance of: ``e >= 1`` and ``0 <= r < e`` imply that q*e + r has the quotient q and the remainder r."""
    n, e = normal(q * e + r), normal(e)
    return z3.Implies(z3.And(e >= 1, r >= 0, r < e), z3.And(Div(n, e) == q, Mod(n, e) == r))


def lemma_range(u: Any, f: Any, c: Any, e: Any) -> z3.BoolRef:
    """An instance of: ``0 <= u < f`` and ``0 <= c < e`` imply ``0 <= u*e + c < f*e``."""
    n, size = normal(u * e + c), normal(f * e)
    return z3.Implies(z3.And(u >= 0, u < f, c >= 0, c < e), z3.And(n >= 0, n < size))


def lemma_positive(a: Any, b: Any) -> z3.BoolRef:
    """An instance of: ``a >= 1`` and ``b >= 1`` imply ``a*b >= 1``."""
    return z3.Implies(z3.And(a >= 1, b >= 1), normal(a * b) >= 1)


def digits(u: Any, pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, list[z3.BoolRef]]:
    """Return the index with outermost digit u (any integer) and the given ``(digit, extent)`` pairs within, and lemmas.

    For digits i..j-1 with value v and size s, and every start k <= i: when v lies in [0, s), the digits k..j-1 divided
    by s are the digits k..i-1 and leave v.  That v lies there, and that s >= 1, the other two lemmas say.

    >>> n, lemmas = digits(z3.Int("u"), [(z3.Int("c"), z3.Int("f")), (z3.Int("d"), z3.Int("e"))])
    >>> z3.simplify(n - ((z3.Int("u") * z3.Int("f") + z3.Int("c")) * z3.Int("e") + z3.Int("d")), som=True), len(lemmas)
    (0, 6)
    """
    values, extents = [u, *(v for v, _ in pairs)], [None, *(e for _, e in pairs)]

    def value(i: int, j: int) -> Any:
        total: Any = values[i] if i < j else 0
        for k in range(i + 1, j):
            total = total * extents[k] + values[k]
        return normal(total)

    def size(i: int, j: int) -> Any:
        total: Any = extents[i]
        for k in range(i + 1, j):
            total = total * extents[k]
        return normal(total)

    lemmas: list[z3.BoolRef] = []
    count = len(values)
    for j in range(2, count + 1):
        for i in range(1, j):
            if j - i > 1:
                lemmas.append(lemma_positive(size(i, j - 1), extents[j - 1]))
                lemmas.append(lemma_range(value(i, j - 1), size(i, j - 1), values[j - 1], extents[j - 1]))
            lemmas.extend(lemma_divmod(value(k, i), size(i, j), value(i, j)) for k in range(i))
    return value(0, count), lemmas
