"""Values as bits: conversions, the words of a vector, and bytes put together.

>>> from codegen_cuda.values import Name
>>> v = Name("v", word_type(16))
>>> low = cast("u8", field(v, 0))
>>> print(low, record(field(v, 1), field(v, 0)), byte_perm(field(v, 0), field(v, 3), 0x5410), sep=" | ")
(unsigned char)v.x | uint2{v.y, v.x} | __byte_perm(v.x, v.w, 21520u)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codegen_cuda.access import Reference, c_type, word_type
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Index, Op, Value, as_value, read
from layoutalg.hardware.dtypes import Dtype, dtype

__all__ = ["Cast", "Field", "Intrinsic", "Record", "SharedAddress", "byte_perm", "cast", "field", "record"]

_FIELDS = "xyzw"
_WORD = dtype("uint32")


@dataclass(frozen=True, slots=True)
class Cast(Value):
    """A conversion between integers, as C does it."""

    kind: Dtype
    value: Value

    @property
    def type(self) -> Dtype:
        return self.kind

    def text(self) -> str:
        inner = f"({self.value})" if isinstance(self.value, Op) else self.value.text()
        return f"({c_type(self.kind)}){inner}"


@dataclass(frozen=True, slots=True)
class Field(Value):
    """One 32-bit word of a vector of words."""

    value: Value
    number: int

    @property
    def type(self) -> Dtype:
        return _WORD

    def text(self) -> str:
        return f"{self.value}.{_FIELDS[self.number]}"


@dataclass(frozen=True, slots=True)
class Record(Value):
    """A vector of words, put together."""

    words: tuple[Value, ...]

    @property
    def type(self) -> Dtype:
        return word_type(4 * len(self.words))

    def text(self) -> str:
        return f"{c_type(self.type)}{{{', '.join(map(str, self.words))}}}"


@dataclass(frozen=True, slots=True)
class Intrinsic(Value):
    """A function that the compiler itself knows."""

    function: str
    args: tuple[Value, ...]
    kind: Dtype

    @property
    def type(self) -> Dtype:
        return self.kind

    def text(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class SharedAddress(Value):
    """The address in shared memory behind a pointer, which instructions take."""

    pointer: Reference

    @property
    def type(self) -> Dtype:
        return _WORD

    def text(self) -> str:
        return f"({c_type(_WORD)})__cvta_generic_to_shared({self.pointer})"


def cast(kind: str | Dtype, value: Any) -> Value:
    """Convert an integer or an index expression; what has the type already passes through.

    Raises:
        PlanError: one of the two types is no integer.
    """
    wanted, given = dtype(kind), read(value)
    source: Value = Index(Expr.of(given)) if isinstance(given, Expr | int) else given
    if source.type == wanted:
        return source
    for side in (wanted, source.type):
        if side.kind not in ("int", "uint") or not side.carrier:
            raise PlanError(
                f"{source} of {source.type} is not converted to {wanted}: only integers are", dtype=side.name
            )
    return Cast(wanted, source)


def field(value: Any, number: int) -> Value:
    """Return one 32-bit word of a value that consists of such words; a single word is its own.

    Raises:
        PlanError: no such word.
    """
    source: Value = read(value)
    words = source.type.bits // 32
    if not 0 <= number < words:
        raise PlanError(f"{source} of {source.type} has {words} words, no word {number}", number=number)
    if words == 1:
        return source
    if not c_type(source.type).startswith("uint"):
        raise PlanError(f"{source} of {source.type} has no words to take: declare it as a vector of words")
    return Field(source, number)


def record(*words: Any) -> Value:
    """Put 1, 2 or 4 words together; a single one is its own.

    Raises:
        PlanError: another number of words, or not words of uint32.
    """
    if len(words) not in (1, 2, 4):
        raise PlanError(f"a vector has 1, 2 or 4 words, not {len(words)}")
    parts = tuple(as_value(word, _WORD) for word in words)
    return parts[0] if len(parts) == 1 else Record(parts)


def byte_perm(first: Any, second: Any, selector: Any) -> Value:
    """Return the word of four bytes of two words: nibble k of the selector says which of the eight byte k is."""
    return Intrinsic("__byte_perm", tuple(as_value(x, _WORD) for x in (first, second, selector)), _WORD)
