"""A kernel ready to be interpreted: a flat list of steps over unique names (built by :mod:`verify.ptx.resolve`)."""

from __future__ import annotations

from dataclasses import dataclass

from verify.ptx.ops_base import Operation
from verify.ptx.tree import Param, Variable

__all__ = [
    "SPECIALS",
    "Constant",
    "Guard",
    "Memory",
    "ParamRef",
    "Program",
    "Register",
    "Special",
    "Step",
    "Symbol",
    "Target",
    "Value",
]

SPECIALS = (*(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"), "%laneid")
"""Special registers with a meaning.  ``%warpid`` is not among them: the ISA leaves its value open."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register by its unique name; ``width`` 1 is a predicate."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An unsigned bit pattern."""

    value: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, plus bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register."""

    name: str


@dataclass(frozen=True, slots=True)
class ParamRef:
    """Bytes of the kernel parameter at a position."""

    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]``."""

    base: Register | Symbol
    offset: int


@dataclass(frozen=True, slots=True)
class Target:
    """The step that a branch goes to."""

    step: int


Value = Register | Constant | Symbol | Special | ParamRef | Memory | Target | None
"""A resolved operand; ``None`` is a result thrown away."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The step happens where ``register`` holds, or does not when ``negated``."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: ``operands`` follow the slots of its operation, vectors being spread out.

    Attributes:
        source: ``(file, line)`` of the CUDA text, where known.
        text: the instruction as PTX, for messages.
    """

    operation: Operation
    operands: tuple[Value, ...]
    guard: Guard | None
    line: int
    source: tuple[str, int] | None
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel as a list of steps.

    Attributes:
        required_block: block shape that ``.reqntid`` fixes, or ``None``.
        maximum_block: bound by ``.maxntid`` on the number of threads, or ``None``.
        variables: variables in scope, by unique name.
    """

    name: str
    params: tuple[Param, ...]
    steps: tuple[Step, ...]
    variables: tuple[Variable, ...]
    required_block: tuple[int, int, int] | None
    maximum_block: int | None
    target: str
    file: str

    def variable(self, name: str) -> Variable:
        """The variable of that name."""
        return next(variable for variable in self.variables if variable.name == name)
