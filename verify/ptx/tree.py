"""The syntax tree of PTX text: what was written, before names are looked up.

Values are frozen and hold tuples; two texts that differ only in layout and comments give equal trees, apart from
the line numbers, which are left out of comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "Address",
    "Block",
    "Directive",
    "Entry",
    "Immediate",
    "Instruction",
    "Label",
    "Location",
    "Module",
    "Name",
    "Offset",
    "Operand",
    "Pair",
    "Param",
    "Predicate",
    "RegisterDeclaration",
    "Section",
    "Sink",
    "SourceFile",
    "Statement",
    "Variable",
    "Vector",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A register, special register (``%tid.x``), variable, parameter or label, not yet told apart."""

    text: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant; ``bits`` is 0 for an integer, 32 or 64 for the bit pattern of a ``0f`` or ``0d`` number."""

    value: int
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is thrown away."""


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    items: tuple[Name | Immediate | Sink, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: a result and a predicate."""

    first: Name | Sink
    second: Name | Sink


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``; ``offset`` is in bytes and may be negative."""

    base: Name | Immediate
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """``symbol+imm``: the address of a variable, moved by bytes."""

    base: Name
    offset: int


Operand = Name | Immediate | Sink | Vector | Pair | Address | Offset


@dataclass(frozen=True, slots=True)
class Predicate:
    """``@name`` or ``@!name``."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """``.loc file line column``: the CUDA line that the following instructions come from."""

    file: int
    line: int
    column: int
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``opcode`` with all its modifiers, as written."""

    opcode: str
    operands: tuple[Operand, ...] = ()
    predicate: Predicate | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Label:
    """``name:``."""

    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """``.reg .b32 %r<61>`` (``count`` 61: ``%r0`` to ``%r60``) or ``.reg .pred p`` (``count`` ``None``)."""

    type: str
    name: str
    count: int | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """An array in a state space.

    Attributes:
        space: ``shared``, ``global``, ``const`` or ``local``.
        type: element type without its dot, such as ``b8``.
        count: number of elements; ``None`` for the open array of dynamic shared memory.
        scalar: declared without brackets.
        align: alignment in bytes, as written; 0 where the text leaves it to the element type.
        init: element values as unsigned integers, shorter than ``count`` where zeros follow.
        linkage: ``extern``, ``visible`` or ````.
    """

    space: str
    type: str
    name: str
    count: int | None
    scalar: bool = False
    align: int = 0
    init: tuple[int, ...] | None = None
    linkage: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive that only carries data: ``.pragma``, ``.maxntid``, ``.version`` ... with its arguments."""

    name: str
    arguments: tuple[str, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """``.file index "name"``."""

    index: int
    name: str
    rest: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Section:
    """``.section name { ... }``: debugging data, kept as text and never looked into."""

    name: str
    text: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """``{ ... }``: a scope with its own registers and labels."""

    statements: tuple[Statement, ...]
    line: int = field(default=0, compare=False)


Statement = Instruction | Label | RegisterDeclaration | Variable | Directive | Location | Block


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter; ``count`` is ``None`` for a scalar, a number of elements for an array of bytes."""

    type: str
    name: str
    count: int | None = None
    align: int = 0
    pointer: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel.

    Attributes:
        limits: performance and launch directives between the parameters and the body, ``.reqntid`` and the like.
    """

    name: str
    params: tuple[Param, ...]
    limits: tuple[Directive, ...]
    body: Block
    linkage: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    """A whole PTX text.

    Attributes:
        version: ``(9, 0)``.
        target: ``sm_100a``.
    """

    version: tuple[int, int]
    target: str
    files: tuple[SourceFile, ...] = ()
    variables: tuple[Variable, ...] = ()
    entries: tuple[Entry, ...] = ()
    sections: tuple[Section, ...] = ()
    file: str = field(default="<ptx>", compare=False)

    def entry(self, name: str | None = None) -> Entry:
        """The kernel of that name, or the only one.

        Raises:
            PtxError: there is no such kernel, or several and no name was given.
        """
        from verify.ptx.errors import PtxError

        found = [entry for entry in self.entries if name is None or entry.name == name]
        if len(found) != 1:
            names = ", ".join(entry.name for entry in self.entries) or "none"
            wanted = "exactly one kernel" if name is None else f"a kernel named {name!r}"
            raise PtxError(f"expected {wanted}; the module has: {names}", file=self.file)
        return found[0]
