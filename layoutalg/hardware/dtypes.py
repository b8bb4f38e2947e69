"""The element types of the library: one table, shared by the algebra, the bank model and the code generator.

A dtype here is a name, a width in bits and a spelling for generated C.  The arithmetic of the values never matters
to a layout, so types that C only knows through a header (half, bfloat16, the 8-bit floats) are carried by an
unsigned integer of the same width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from layoutalg.errors import RangeError

__all__ = ["ALIASES", "DTYPES", "Dtype", "dtype"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type: its name, its width and how generated C carries one element.

    Args:
        name: canonical name; numpy's where numpy has the type.
        bits: width of one element in bits.
        kind: ``bool``, ``int``, ``uint``, ``float`` or ``complex``.
        numpy: the name numpy knows the type by, or ``None`` where numpy has no such type.
        carrier: the C type of one element, spelled without any header; empty for elements narrower than a byte.

    >>> dtype("bf16")
    Dtype(name='bfloat16', bits=16, kind='float', numpy=None, carrier='unsigned short')
    >>> dtype("float32").bytes
    4
    """

    name: str
    bits: int
    kind: str
    numpy: str | None
    carrier: str

    @property
    def bytes(self) -> int:
        """Width of one element in bytes.

        Raises:
            RangeError: the element is not a whole number of bytes.

        >>> dtype("u8").bytes
        1
        """
        if self.bits % 8:
            raise RangeError(
                f"{self.name} is {self.bits} bits wide, which is no whole number of bytes; pack elements first",
                dtype=self.name,
                bits=self.bits,
            )
        return self.bits // 8

    @property
    def c_type(self) -> str:
        """The C type that carries one element in generated code.

        Raises:
            RangeError: the element is narrower than a byte, so no C object holds exactly one.

        >>> dtype("int64").c_type
        'long long'
        """
        if not self.carrier:
            raise RangeError(
                f"{self.name} is {self.bits} bits wide; no C object holds one element, pack several into a byte",
                dtype=self.name,
                bits=self.bits,
            )
        return self.carrier

    def __str__(self) -> str:
        return self.name


_TABLE = (
    Dtype("bool", 8, "bool", "bool", "bool"),
    Dtype("int8", 8, "int", "int8", "signed char"),
    Dtype("int16", 16, "int", "int16", "short"),
    Dtype("int32", 32, "int", "int32", "int"),
    Dtype("int64", 64, "int", "int64", "long long"),
    Dtype("uint8", 8, "uint", "uint8", "unsigned char"),
    Dtype("uint16", 16, "uint", "uint16", "unsigned short"),
    Dtype("uint32", 32, "uint", "uint32", "unsigned int"),
    Dtype("uint64", 64, "uint", "uint64", "unsigned long long"),
    Dtype("float16", 16, "float", "float16", "unsigned short"),
    Dtype("float32", 32, "float", "float32", "float"),
    Dtype("float64", 64, "float", "float64", "double"),
    Dtype("complex64", 64, "complex", "complex64", "float2"),
    Dtype("complex128", 128, "complex", "complex128", "double2"),
    Dtype("bfloat16", 16, "float", None, "unsigned short"),
    Dtype("float8_e4m3fn", 8, "float", None, "unsigned char"),
    Dtype("float8_e5m2", 8, "float", None, "unsigned char"),
    Dtype("float8_e8m0fnu", 8, "float", None, "unsigned char"),
    Dtype("float6_e2m3fn", 6, "float", None, ""),
    Dtype("float6_e3m2fn", 6, "float", None, ""),
    Dtype("float4_e2m1fn", 4, "float", None, ""),
    Dtype("int4", 4, "int", None, ""),
    Dtype("uint4", 4, "uint", None, ""),
)

DTYPES: Mapping[str, Dtype] = MappingProxyType({entry.name: entry for entry in _TABLE})
"""Every element type by its canonical name."""

_INTEGERS = {
    f"{short}{bits}": f"{long}{bits}"
    for short, long in (("i", "int"), ("s", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}

# Absent on purpose: "float", "i4" and "f4", which mean different types to C, to numpy and to kernel writers.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **_INTEGERS,
        "bool_": "bool",
        "half": "float16",
        "double": "float64",
        "f16": "float16",
        "f32": "float32",
        "f64": "float64",
        "fp16": "float16",
        "fp32": "float32",
        "fp64": "float64",
        "tf32": "float32",
        "bf16": "bfloat16",
        "c64": "complex64",
        "c128": "complex128",
        "e4m3": "float8_e4m3fn",
        "e5m2": "float8_e5m2",
        "e8m0": "float8_e8m0fnu",
        "e2m3": "float6_e2m3fn",
        "e3m2": "float6_e3m2fn",
        "e2m1": "float4_e2m1fn",
    }
)
"""Shorter names in use among kernel writers, and the canonical name of each."""


def dtype(name: object) -> Dtype:
    """Look up an element type by name, alias, numpy dtype or a framework's dtype object.

    Args:
        name: a :class:`Dtype`, a name such as ``"float16"`` or ``"f16"``, or any object that carries such a name
            (``numpy.dtype``, ``numpy.float16``, ``torch.bfloat16``).

    Raises:
        RangeError: no such type; names the nearest ones.

    >>> print(dtype("half"), dtype("u8").bits)
    float16 8
    >>> dtype("flaot64")
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: unknown dtype 'flaot64'; did you mean float64?
    """
    if isinstance(name, Dtype):
        return name
    text = name if isinstance(name, str) else _name_of(name)
    found = DTYPES.get(text) or DTYPES.get(ALIASES.get(text, ""))
    if found is not None:
        return found
    from difflib import get_close_matches  # only misspelt names pay for it

    near = get_close_matches(text, [*DTYPES, *ALIASES], n=3, cutoff=0.75)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(DTYPES)}"
    raise RangeError(f"unknown dtype {text!r}; {hint}", dtype=text, nearest=tuple(near))


def _name_of(carrier: object) -> str:
    for attribute in ("name", "__name__"):
        text = getattr(carrier, attribute, None)
        if isinstance(text, str):
            return text
    return str(carrier).rpartition(".")[2]
