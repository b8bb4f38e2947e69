"""The third domain: registers as integers that are exact up to multiples of 2^width, predicates as conditions on them.

A :class:`Word` holds a polynomial that its bits equal modulo 2^width.  Sums, products and left shifts need no more.
Where an instruction reads the bits as a number (a comparison, a widening, a right shift, a division), the polynomial
must lie in the range of that number: either this is proved, or the word is reduced modulo 2^width explicitly, so that
what wraps is never mistaken for what does not.  Words that depend on the thread index alone also carry their value
for every thread of a block, computed by the concrete domain; words that are moved data carry where their bytes come
from (:mod:`verify.ptx.bytewise`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import z3

from verify.ptx.bytewise import Choice, Moved, Row
from verify.ptx.domain_numpy import NUMPY
from verify.ptx.parametric.facts import Facts, Table
from verify.ptx.parametric.poly import Poly

__all__ = ["Lemma", "Pred", "Word", "Words"]


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A bit-vector.

    Attributes:
        value: a number that it equals modulo ``2**width``.
        table: its bits for every thread of a block, if they depend on the thread index alone.
        row: where its bytes come from, lowest first, if they are moved or constant.
    """

    width: int
    value: Poly
    table: Table | None = None
    row: Row | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pred:
    """A truth value: a condition on atoms, and its value for every thread if nothing else matters.

    Attributes:
        differs: the polynomial that the condition says is not zero, if that is all it says.
        equals: the same for one that is zero.
    """

    condition: Any
    table: Table | None = None
    differs: Poly | None = None
    equals: Poly | None = None

    @property
    def known(self) -> bool | None:
        """Its value where it is the same for all."""
        if z3.is_true(self.condition) or z3.is_false(self.condition):
            return bool(z3.is_true(self.condition))
        if self.table is not None and (self.table == self.table[0]).all():
            return bool(self.table[0])
        return None


@dataclass(frozen=True, slots=True)
class Lemma:
    """A place where the bits of a word were read as a number, and whether they are the number that was computed."""

    line: int
    text: str
    width: int
    signed: bool
    proved: bool


class Words:
    """Implements :class:`verify.ptx.domain.Domain` on words; ``line`` and ``text`` name the current instruction."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.line, self.text = 0, ""
        self.lemmas: dict[tuple[Any, ...], Lemma] = {}

    # --- making words -----------------------------------------------------------------------------------------

    def word(self, width: int, value: Poly, table: Table | None = None, row: Row | None = None) -> Word:
        """A word; what its table says is preferred to what its polynomial says."""
        half = 1 << (width - 1)
        value = Poly({m: (c + half) % (2 * half) - half for m, c in value.terms.items()}, self.facts)
        if row is not None and (all(byte is None for byte in row) or 8 * len(row) != width):
            row = None
        if table is None and value.constant is not None:
            table = NUMPY.const(value.constant % (2 * half), width)
        return Word(width, value, table, row)

    def of_table(self, table: Table) -> Word:
        """A word that depends on the thread index alone."""
        return self.word(8 * table.dtype.itemsize, self.facts.of_table(_signed_if_wide(table)), table)

    def opaque(self, width: int, what: str, row: Row | None = None) -> Word:
        """A word of which nothing is known; its name tells what it is."""
        return Word(width, self.facts.atom(self.facts.fresh(what), 0, (1 << width) - 1), None, row)

    def const(self, value: int, width: int) -> Word:
        table = NUMPY.const(value, width)
        row = tuple(int(table[0]).to_bytes(width // 8, "little"))
        return self.word(width, self.facts.number(int(table[0])), table, row)

    def width(self, a: Word) -> int:
        return a.width

    # --- reading bits as numbers ------------------------------------------------------------------------------

    def number(self, a: Word, *, signed: bool = False) -> Poly:
        """The number that the bits spell."""
        low, high = (-(1 << (a.width - 1)), (1 << (a.width - 1)) - 1) if signed else (0, (1 << a.width) - 1)
        facts = self.facts
        if a.table is not None:
            numbers = a.table.view(f"i{a.width // 8}") if signed else _signed_if_wide(a.table)
            spelled = facts.table(a.value)
            wide = not signed and a.width == 64 and bool((numbers < 0).any())
            if spelled is not None and not wide and (spelled == numbers.astype(np.int64)).all():
                return a.value
            if wide:
                return self.opaque(64, "wide").value if len(set(numbers)) > 1 else facts.number(int(a.table[0]))
            return facts.of_table(numbers)
        least, most = facts.bounds(a.value)
        if low <= least and most <= high:
            return a.value
        if not signed and most < 0 and least >= -(1 << a.width):  # a constant offset that was read as negative
            return a.value + (1 << a.width)
        proved = bool(facts.is_at_least(a.value, low) and facts.is_at_least(high - a.value, 0))
        key = (self.line, a.value, a.width, signed)
        self.lemmas.setdefault(key, Lemma(self.line, self.text, a.width, signed, proved))
        return a.value if proved else facts.wrapped(a.value, a.width, signed=signed)

    def _tables(self, name: str, *operands: Word) -> Table | None:
        """The concrete domain's answer, if all operands depend on the thread index alone."""
        tables = [operand.table for operand in operands]
        if any(table is None for table in tables):
            return None
        found: Table = getattr(NUMPY, name)(*tables)
        return found

    # --- arithmetic -------------------------------------------------------------------------------------------

    def add(self, a: Word, b: Word) -> Word:
        for one, other in ((a, b), (b, a)):
            if one.value.constant == 0:
                return other
        return self.word(a.width, a.value + b.value, self._tables("add", a, b))

    def sub(self, a: Word, b: Word) -> Word:
        return self.word(a.width, a.value - b.value, self._tables("sub", a, b))

    def mul(self, a: Word, b: Word) -> Word:
        for one, other in ((a, b), (b, a)):
            if one.value.constant == 1:
                return other
        return self.word(a.width, a.value * b.value, self._tables("mul", a, b))

    def mul_high(self, a: Word, b: Word) -> Word:
        table = self._tables("mul_high", a, b)
        if table is not None:
            return self.of_table(table)
        return self.word(a.width, (self.number(a) * self.number(b)) // (1 << a.width))

    def _divided(self, name: str, a: Word, b: Word, *, signed: bool, part: int) -> Word:
        table = self._tables(name, a, b)
        if table is not None:
            return self.of_table(table)
        top, bottom = self.number(a, signed=signed), self.number(b, signed=signed)
        if self.facts.is_at_least(top, 0) and self.facts.is_at_least(bottom, 1):
            return self.word(a.width, self.facts.divide(top, bottom)[part])
        return self.opaque(a.width, name)

    def udiv(self, a: Word, b: Word) -> Word:
        return self._divided("udiv", a, b, signed=False, part=0)

    def urem(self, a: Word, b: Word) -> Word:
        return self._divided("urem", a, b, signed=False, part=1)

    def sdiv(self, a: Word, b: Word) -> Word:
        return self._divided("sdiv", a, b, signed=True, part=0)

    def srem(self, a: Word, b: Word) -> Word:
        return self._divided("srem", a, b, signed=True, part=1)

    # --- bits -------------------------------------------------------------------------------------------------

    def and_(self, a: Word, b: Word) -> Word:
        table = self._tables("and_", a, b)
        if table is not None:
            return self.of_table(table)
        for one, mask in ((a, b), (b, a)):
            bits = mask.value.constant
            if bits is not None:
                return self._masked(one, bits % (1 << a.width))
        return self.opaque(a.width, "and")

    def _masked(self, a: Word, mask: int) -> Word:
        """``a & mask``: a remainder for ones at the bottom, a multiple for ones at the top, else their difference."""
        row = None
        if a.row is not None:
            pairs = zip(a.row, mask.to_bytes(a.width // 8, "little"), strict=True)
            row = tuple(0 if bits == 0 else byte if bits == 255 else None for byte, bits in pairs)
        zeros = (1 << a.width) - 1 - mask
        if mask & (mask + 1) == 0:
            return self.word(a.width, self.number(a) % (mask + 1), row=row)
        if zeros & (zeros + 1) == 0:
            number = self.number(a)
            return self.word(a.width, number - number % (zeros + 1), row=row)
        unit = mask & -mask
        if (mask + unit) & mask == 0:  # multiples of 2^width make no difference to the remainders
            return self.word(a.width, a.value % (mask + unit) - a.value % unit, row=row)
        return self.opaque(a.width, "and", row)

    def or_(self, a: Word, b: Word) -> Word:
        return self._joined("or_", a, b)

    def xor(self, a: Word, b: Word) -> Word:
        return self._joined("xor", a, b)

    def _joined(self, name: str, a: Word, b: Word) -> Word:
        """Or, exclusive or: a sum where no bit is set on both sides."""
        row = _combined(a.row, b.row)
        if row is not None:
            return self.opaque(a.width, "data", row)
        for one, other in ((a, b), (b, a)):
            if one.value.constant == 0:
                return other
        table = self._tables(name, a, b)
        if table is not None:
            overlap = self._tables("and_", a, b)
            if overlap is not None and not overlap.any():
                return self.word(a.width, a.value + b.value, table)
            return self.of_table(table)
        for high, low in ((a, b), (b, a)):
            unit = min((c & -c for c in high.value.terms.values()), default=0)
            if unit and self.facts.bounds(low.value)[0] >= 0 and self.facts.is_at_least(unit - 1 - low.value, 0):
                return self.word(a.width, a.value + b.value)
        return self.opaque(a.width, name.strip("_"))

    def not_(self, a: Word) -> Word:
        return self.word(a.width, -a.value - 1, self._tables("not_", a))

    def _amount(self, a: Word) -> int | None:
        constant = a.value.constant
        return None if constant is None else constant % (1 << a.width)

    def shl(self, a: Word, amount: Word) -> Word:
        table, bits = self._tables("shl", a, amount), self._amount(amount)
        if bits is None:
            return self.opaque(a.width, "shift") if table is None else self.of_table(table)
        if bits >= a.width:
            return self.const(0, a.width)
        row = a.row if bits == 0 else None
        if a.row is not None and bits % 8 == 0:
            row = ((0,) * (bits // 8) + a.row)[: a.width // 8]
        return self.word(a.width, a.value * (1 << bits), table, row)

    def lshr(self, a: Word, amount: Word) -> Word:
        table, bits = self._tables("lshr", a, amount), self._amount(amount)
        if bits is None:
            return self.opaque(a.width, "shift") if table is None else self.of_table(table)
        if bits >= a.width:
            return self.const(0, a.width)
        row = None
        if a.row is not None and bits % 8 == 0:
            row = a.row[bits // 8 :] + (0,) * (bits // 8)
            if table is None:
                return self.opaque(a.width, "data", row)
        return self.word(a.width, self.number(a) // (1 << bits), table, row)

    def ashr(self, a: Word, amount: Word) -> Word:
        table, bits = self._tables("ashr", a, amount), self._amount(amount)
        if bits is None:
            return self.opaque(a.width, "shift") if table is None else self.of_table(table)
        return self.word(a.width, self.number(a, signed=True) // (1 << min(bits, a.width - 1)), table)

    def zext(self, a: Word, width: int) -> Word:
        if width == a.width:
            return a
        row = None if a.row is None else a.row + (0,) * ((width - a.width) // 8)
        table = None if a.table is None else NUMPY.zext(a.table, width)
        if a.row is not None and table is None:  # data: what number they spell does not matter
            return self.opaque(width, "data", row)
        return self.word(width, self.number(a), table, row)

    def sext(self, a: Word, width: int) -> Word:
        if width == a.width:
            return a
        table = None if a.table is None else NUMPY.sext(a.table, width)
        return self.word(width, self.number(a, signed=True), table)

    def trunc(self, a: Word, width: int) -> Word:
        if width == a.width:
            return a
        table = None if a.table is None else NUMPY.trunc(a.table, width)
        return self.word(width, a.value, table, None if a.row is None else a.row[: width // 8])

    # --- truth ------------------------------------------------------------------------------------------------

    def _compared(self, name: str, a: Word, b: Word, *, signed: bool, least: int) -> Pred:
        """``b - a >= least`` between numbers."""
        table = self._tables(name, a, b)
        difference = self.number(b, signed=signed) - self.number(a, signed=signed)
        low, high = self.facts.bounds(difference)
        if low >= least or high < least:
            return self.bool_const(low >= least)
        return Pred(self.facts.term(difference) >= least, table)

    def eq(self, a: Word, b: Word) -> Pred:
        table = self._tables("eq", a, b)
        difference = self.word(a.width, a.value - b.value).value
        low, high = self.facts.bounds(difference)
        if max(-low, high) >= 1 << a.width:  # otherwise only zero is a multiple of 2^width
            difference = self.number(a) - self.number(b)
            low, high = self.facts.bounds(difference)
        if low > 0 or high < 0 or low == high == 0:
            return self.bool_const(low == high == 0)
        return Pred(self.facts.term(difference) == 0, table, equals=difference)

    def ult(self, a: Word, b: Word) -> Pred:
        return self._compared("ult", a, b, signed=False, least=1)

    def ule(self, a: Word, b: Word) -> Pred:
        return self._compared("ule", a, b, signed=False, least=0)

    def slt(self, a: Word, b: Word) -> Pred:
        return self._compared("slt", a, b, signed=True, least=1)

    def sle(self, a: Word, b: Word) -> Pred:
        return self._compared("sle", a, b, signed=True, least=0)

    def bool_const(self, value: bool) -> Pred:
        return Pred(z3.BoolVal(value), np.array([value]))

    def _connected(self, name: str, condition: Any, *operands: Pred) -> Pred:
        tables = [operand.table for operand in operands]
        table = None if any(t is None for t in tables) else getattr(NUMPY, name)(*tables)
        return Pred(z3.simplify(condition), table)

    def bool_and(self, p: Pred, q: Pred) -> Pred:
        return self._connected("bool_and", z3.And(p.condition, q.condition), p, q)

    def bool_or(self, p: Pred, q: Pred) -> Pred:
        return self._connected("bool_or", z3.Or(p.condition, q.condition), p, q)

    def bool_xor(self, p: Pred, q: Pred) -> Pred:
        return self._connected("bool_xor", z3.Xor(p.condition, q.condition), p, q)

    def bool_not(self, p: Pred) -> Pred:
        opposite = self._connected("bool_not", z3.Not(p.condition), p)
        return replace(opposite, differs=p.equals, equals=p.differs)

    def ite(self, p: Pred, a: Word, b: Word) -> Word:
        known = p.known
        if known is not None:
            return a if known else b
        row = None
        if a.row is not None and b.row is not None:
            row = tuple(_choice(p.condition, yes, no) for yes, no in zip(a.row, b.row, strict=True))
            if a.table is None or b.table is None:
                return self.opaque(a.width, "data", row)
        if p.table is not None and a.table is not None and b.table is not None:
            return self.of_table(NUMPY.ite(p.table, a.table, b.table))
        return self.word(a.width, self.facts.choice(p.condition, self.number(a), self.number(b)), None, row)

    def floating(self, name: str, *operands: Word) -> Word:
        return self.opaque(operands[0].width, name)


def _choice(condition: Any, yes: Moved, no: Moved) -> Moved:
    if yes is None or no is None:
        return None
    return yes if yes == no and not isinstance(yes, Choice) else Choice(condition, yes, no)


def _combined(a: Row | None, b: Row | None) -> Row | None:
    """Bytes of data under or, exclusive or: decided where one of the two is zero; ``None`` for plain numbers."""
    if a is None or b is None or all(isinstance(byte, int) for byte in (*a, *b)):
        return None
    return tuple(y if x == 0 else x if y == 0 else None for x, y in zip(a, b, strict=True))


def _signed_if_wide(table: Table) -> Table:
    """Unsigned numbers; of 64 bits only those that fit a signed number (others are read as negative)."""
    return table.astype(np.int64)
