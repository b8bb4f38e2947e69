"""Pointers, and the two ways to use them that are not single elements: references and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Value, checked_text
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype, dtype

if TYPE_CHECKING:
    from codegen_cuda.buffers import Buffer

__all__ = ["Pointer", "Reference", "Vector", "Whole", "c_type", "element_type", "vector_of", "word_type"]

# One type per width, for elements whose carrier has no vector type of that width.
_WIDE: Final = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "uint2", 128: "uint4"}
_OWN: Final = {"float": "float", "double": "double", "int": "int", "unsigned int": "uint"}


def word_type(width_bytes: int) -> Dtype:
    """Return the element type that moves so many bits at once, whatever they mean.

    >>> [word_type(width).carrier for width in (1, 2, 4, 8, 16)]
    ['unsigned char', 'unsigned short', 'unsigned int', 'uint2', 'uint4']
    """
    if width_bytes <= 4:
        return dtype(f"uint{8 * width_bytes}")
    lanes = width_bytes // 4
    return Dtype(f"uint32x{lanes}", 8 * width_bytes, "vector", None, f"uint{lanes}")


def element_type(name: object) -> Dtype:
    """Return an element type by name: those of :func:`layoutalg.hardware.dtypes.dtype`, and vectors of words.

    >>> element_type("uint32x4").carrier, element_type("bf16").bits
    ('uint4', 16)
    """
    return word_type({"uint32x2": 8, "uint32x4": 16}[name]) if name in ("uint32x2", "uint32x4") else dtype(name)


def c_type(kind: Dtype) -> str:
    """Return the type that a pointer to such elements points to; bytes, for elements narrower than one."""
    return kind.carrier or "unsigned char"


@dataclass(frozen=True, slots=True)
class Pointer:
    """An immutable pointer.

    Args:
        name: its C identifier.
        dtype: what it points to.
        scope: the memory space.
        align: alignment in bytes.
        size: bytes behind it, ``None`` where only the caller knows.
    """

    name: str
    dtype: Dtype
    scope: str
    align: int
    size: int | None = None

    def base(self, kind: Dtype) -> str:
        """Return the spelling of this pointer as one to elements of a type."""
        same = c_type(self.dtype) == c_type(kind)
        return self.name if same else f"(({c_type(kind)}*){self.name})"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Reference:
    """The address of an element, as an argument of a function.

    Attributes:
        offset: in elements of ``dtype``, or in bytes where those are narrower.
        writes: whether whoever gets it may write.
        count: elements that it may touch, ``None`` if that was not said.
        whole: the pointer itself, not the address of an element.
    """

    data: Pointer
    dtype: Dtype
    offset: Expr
    writes: bool
    count: int | None = None
    whole: bool = False

    def text(self) -> str:
        """Return the spelling in C."""
        if self.whole:
            return self.data.base(self.dtype)
        return f"&{self.data.base(self.dtype)}[{checked_text(self.offset, bare=True)}]"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, slots=True)
class Whole:
    """A buffer as an argument: its array, or the pointer to its first element."""

    buffer: Buffer

    def text(self) -> str:
        """Return the spelling in C."""
        base = self.buffer.data.base(self.buffer.dtype)
        return base if self.buffer.elem_offset == Expr.of(0) else f"{base} + {self.buffer.elem_offset}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, slots=True)
class Vector(Value):
    """Several consecutive elements as one wide access."""

    buffer: Buffer
    offset: Expr
    lanes: int

    @property
    def type(self) -> Dtype:
        return self.buffer.dtype

    def text(self) -> str:
        base = self.buffer.data.base(self.buffer.dtype)
        offset = self.offset if self.buffer.dtype.carrier else self.offset * self.buffer.dtype.bits // 8
        shown = checked_text(offset)
        place = base if shown == "0" else f"({base} + {shown})"
        return f"*({_vector_type(self.type, self.lanes)}*){place}"


def _vector_type(kind: Dtype, lanes: int) -> str:
    own = _OWN.get(kind.carrier)
    if own is None or lanes not in (1, 2, 4):
        return _WIDE[kind.bits * lanes]
    return kind.carrier if lanes == 1 else f"{own}{lanes}"


def vector_of(buffer: Buffer, coord: Sequence[Expr], spec: str) -> Vector:
    """Return a checked wide access that starts at a coordinate and runs along the last dimension.

    Raises:
        RangeError: not a vector type of the buffer's elements, or wider than 16 bytes.
        PlanError: elements that are not consecutive, or an address that may not be aligned.
    """
    lanes = _lanes(buffer, spec)
    first = buffer.address(*coord)
    for k in range(1, lanes):
        step = buffer.address(*coord[:-1], coord[-1] + k) - first
        if step != Expr.of(k):
            raise PlanError(
                f"{buffer.name}: {spec} needs {lanes} consecutive elements, but element {k} of the vector lies {step} "
                f"from its first in {buffer.layout}",
                buffer=buffer.name,
                element=k,
            )
    width = lanes * buffer.dtype.bits // 8
    if buffer.data.align % width or not (first * buffer.dtype.bits).is_multiple_of(8 * width):
        modulus, residue = (first * buffer.dtype.bits).congruence()
        bits = math.gcd(modulus, residue, 8 * buffer.data.align)
        known = bits // 8 if bits % 8 == 0 else f"{bits} bits"
        raise PlanError(
            f"{buffer.name}: {spec} is {width} bytes wide, and {buffer.data.name} + {first} is only known to be "
            f"aligned to {known}: raise align=, or index by multiples of {lanes}",
            buffer=buffer.name,
            width=width,
            known=known,
        )
    return Vector(buffer, first, lanes)


def _lanes(buffer: Buffer, spec: str) -> int:
    kind, _, count = spec.rpartition("x")
    if not count.isdigit() or not kind:
        raise RangeError(f"a vector type is an element type, 'x' and a number, such as float32x4, not {spec!r}")
    lanes = int(count)
    if element_type(kind) != buffer.dtype:
        raise RangeError(f"{buffer.name} holds {buffer.dtype}, not {kind}; declare a view of another type")
    if lanes * buffer.dtype.bits not in _WIDE:
        raise RangeError(f"{spec} is {lanes * buffer.dtype.bits} bits wide; accesses have 8, 16, 32, 64 or 128")
    return lanes
