"""Whether a term only moves bytes: for each of its bytes, which byte of which loaded value it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

__all__ = ["Byte", "Choice", "Moved", "Reader", "Row", "bytes_and_conditions", "bytes_of"]


@dataclass(frozen=True, slots=True)
class Byte:
    """Byte ``index`` (0 is the lowest) of a loaded value, by the name of its constant."""

    name: str
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two bytes, by a condition."""

    condition: Any
    yes: Moved
    no: Moved


Moved = int | Byte | Choice | None
"""A byte: a constant, a moved byte, a choice between bytes, or ``None`` for anything else."""

Row = tuple[Moved, ...]


def bytes_of(term: Any) -> Row:
    """The bytes of a term, lowest first; see :func:`bytes_and_conditions`."""
    return bytes_and_conditions(term)[0]


def bytes_and_conditions(term: Any) -> tuple[Row, tuple[Any, ...]]:
    """The bytes of a term, lowest first, right under conditions on shift amounts that are not constants.

    >>> x, y = z3.BitVecs("x y", 16)
    >>> bytes_of(z3.Concat(x, z3.BitVecVal(0, 16)) | z3.ZeroExt(16, y & 0xFF))
    (Byte(name='y', index=0), 0, Byte(name='x', index=0), Byte(name='x', index=1))
    >>> bytes_of(x + y)
    (None, None)
    >>> bytes_and_conditions(x << y)[1]
    (y & 7 == 0,)
    """
    reader = Reader()
    return reader.row(term), reader.conditions(term)


class Reader:
    """Reads terms and remembers what it has read."""

    def __init__(self) -> None:
        self.known: dict[int, Row] = {}
        self._needs: dict[int, tuple[Any, ...]] = {}
        self._kept: list[Any] = []
        self._open: dict[int, Any] = {}

    def row(self, term: Any) -> Row:
        key = int(term.get_id())
        if key not in self.known:
            self._kept.append(term)  # or its number would be used again
            outer, self._open = self._open, {}
            self.known[key] = self.read(term)
            self._needs[key] = tuple(self._open.values())
            self._open = outer
        for condition in self._needs[key]:
            self._open[int(condition.get_id())] = condition
        return self.known[key]

    def conditions(self, term: Any) -> tuple[Any, ...]:
        """What must hold of shift amounts for the bytes of a term, once read, to be right."""
        return self._needs[int(term.get_id())]

    def read(self, term: Any) -> Row:
        count = int(term.size()) // 8
        if term.size() % 8:
            return (None,) * (count + 1)
        if z3.is_bv_value(term):
            return tuple(int(term.as_long()).to_bytes(count, "little"))
        kind = term.decl().kind()
        if kind == z3.Z3_OP_UNINTERPRETED and term.num_args() == 0:
            return tuple(Byte(term.decl().name(), index) for index in range(count))
        match kind:
            case z3.Z3_OP_CONCAT:
                return self.concatenated(term)
            case z3.Z3_OP_EXTRACT:
                high, low = term.params()
                inner = term.arg(0)
                if low % 8 == 0 and inner.size() % 8 == 0:
                    return self.row(inner)[low // 8 : (high + 1) // 8]
            case z3.Z3_OP_ZERO_EXT:
                if term.arg(0).size() % 8 == 0:
                    return (*self.row(term.arg(0)), *[0] * (count - term.arg(0).size() // 8))
            case z3.Z3_OP_ITE:
                pairs = zip(self.row(term.arg(1)), self.row(term.arg(2)), strict=True)
                return tuple(_choice(term.arg(0), yes, no) for yes, no in pairs)
            case z3.Z3_OP_BAND | z3.Z3_OP_BOR | z3.Z3_OP_BXOR | z3.Z3_OP_BADD:
                return self.combined(kind, [self.row(child) for child in term.children()])
            case z3.Z3_OP_BSHL | z3.Z3_OP_BLSHR:
                return self.shifted(term, left=kind == z3.Z3_OP_BSHL)
            case z3.Z3_OP_BNOT:
                return tuple(255 - byte if isinstance(byte, int) else None for byte in self.row(term.arg(0)))
        return (None,) * count

    def concatenated(self, term: Any) -> Row:
        """Parts, lowest last; parts that are no whole bytes may still join to whole bytes of one value."""
        found: list[Moved] = []
        for part in reversed(_joined(term)):
            if part.size() % 8:
                return (None,) * (int(term.size()) // 8)
            found.extend(self.row(part))
        return tuple(found)

    def combined(self, kind: int, rows: list[Row]) -> Row:
        """Bytes under and, or, exclusive or, sum: decided where all but one of them are neutral."""
        result: list[Moved] = []
        for column in zip(*rows, strict=True):
            neutral = 255 if kind == z3.Z3_OP_BAND else 0
            absorbing = {z3.Z3_OP_BAND: 0, z3.Z3_OP_BOR: 255}.get(kind)
            rest = [byte for byte in column if byte != neutral]
            if absorbing is not None and absorbing in column:
                result.append(absorbing)
            elif not rest:
                result.append(neutral)
            else:
                result.append(rest[0] if len(rest) == 1 else None)
        if kind == z3.Z3_OP_BADD and None in result:
            # A carry may leave the byte where two meet.
            first = result.index(None)
            result[first:] = [None] * (len(result) - first)
        return tuple(result)

    def shifted(self, term: Any, *, left: bool) -> Row:
        row, amount = self.row(term.arg(0)), term.arg(1)
        if z3.is_bv_value(amount):
            bits = int(amount.as_long())
            return (None,) * len(row) if bits % 8 else _moved_by(row, bits // 8, left=left)
        whole = amount & 7 == 0
        self._kept.append(whole)
        self._open[int(whole.get_id())] = whole
        result: Row = (0,) * len(row)
        for places in range(len(row)):
            moved = _moved_by(row, places, left=left)
            here = amount == 8 * places
            result = tuple(_choice(here, yes, no) for yes, no in zip(moved, result, strict=True))
        return result


def _moved_by(row: Row, places: int, *, left: bool) -> Row:
    places = min(places, len(row))
    zeros = (0,) * places
    return (*zeros, *row[: len(row) - places]) if left else (*row[places:], *zeros)


def _joined(term: Any) -> list[Any]:
    """Parts of a concatenation, neighbours from one value joined: simplifiers split at any bit."""
    parts: list[Any] = []
    for part in term.children():
        before = parts[-1] if parts else None
        if before is not None and (before.size() % 8 or part.size() % 8):
            joined = z3.simplify(z3.Concat(before, part))
            if joined.decl().kind() != z3.Z3_OP_CONCAT:
                parts[-1] = joined
                continue
        parts.append(part)
    return parts


def _choice(condition: Any, yes: Moved, no: Moved) -> Moved:
    if yes is None or no is None:
        return None
    return yes if yes == no and not isinstance(yes, Choice) else Choice(condition, yes, no)
