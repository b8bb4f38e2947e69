"""Kernel bodies: a tuple of statements, each a value, so that two kernels that mean the same compare equal.

There is no language here: Python builds the statements, loops that are to be written out are Python loops, and
:func:`codegen_cuda.emit.emit` prints the C.  A scalar is a one-element buffer, read and set by name; a
``let`` is immutable, so what is known of its value (bounds, divisibility) is known of its name:

>>> tx = thread_id("tx", 128)
>>> base = let("base", tx.var * 4)
>>> base.var.bounds(), base.var.congruence(), compare(base.var + 3, "<", 512).decide()
((0, 508), (4, 0), True)
>>> phase = local_scalar("phase", "int32")
>>> phase.set(0) == Store(alloc_local("phase", (1,), "int32")[0], 0), compare(phase, "<", 4).decide()
(True, None)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from codegen_cuda.access import Pointer, Reference, Vector, Whole, element_type
from codegen_cuda.buffers import Buffer, Element, alloc, alloc_local
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.tables import Table
from codegen_cuda.values import (
    Combination,
    Condition,
    Index,
    Name,
    Value,
    all_of,
    any_of,
    as_index,
    as_value,
    compare,
    read,
)
from layoutalg.hardware.dtypes import Dtype, dtype

__all__ = [
    "Asm",
    "Body",
    "Call",
    "Do",
    "For",
    "Function",
    "If",
    "Let",
    "LetPointer",
    "Scalar",
    "ScalarParam",
    "Statement",
    "Store",
    "Sync",
    "Table",
    "While",
    "all_of",
    "alloc_scalar",
    "any_of",
    "block_id",
    "compare",
    "let",
    "let_pointer",
    "local_scalar",
    "loop",
    "shared_scalar",
    "thread_id",
]


@dataclass(frozen=True, slots=True)
class Store:
    """``target = value``; numbers take on the target's type."""

    target: Element | Vector
    value: Value

    def __init__(self, target: Element | Vector, value: Any) -> None:
        if isinstance(target, Element) and not target.type.carrier:
            raise PlanError(
                f"{target.buffer.name}: a store of one {target.type} would overwrite its neighbours; vstore whole bytes"
            )
        stored = as_value(value, target.type)
        lanes = stored.lanes if isinstance(stored, Vector) else 1
        if lanes != (target.lanes if isinstance(target, Vector) else 1):
            raise PlanError(f"{target} = {stored}: a vector of {lanes} elements does not fit")
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "value", stored)


@dataclass(frozen=True, slots=True)
class Let:
    """An immutable binding; :attr:`var` is what to use."""

    name: str
    value: Expr | Value

    @property
    def var(self) -> Any:
        """The name, as an index expression that knows what its value does, or as a value of its type."""
        if isinstance(self.value, Value):
            return Name(self.name, self.value.type)
        low, high = self.value.bounds()
        modulus, residue = self.value.congruence()
        return Expr.var(self.name, low, high, step=modulus or 1, start=residue if modulus else 0)


@dataclass(frozen=True, slots=True)
class LetPointer:
    """A pointer expression, bound: ``pointer = source + byte_offset``."""

    pointer: Pointer
    source: Pointer
    byte_offset: Expr


@dataclass(frozen=True, slots=True)
class For:
    """``var`` runs over ``extent`` values from ``begin`` on; ``unroll`` asks the compiler to write them out."""

    var: Expr
    extent: int
    body: tuple[Statement, ...]
    unroll: bool = True
    begin: int = 0


@dataclass(frozen=True, slots=True)
class While:
    """Repeat while the condition holds."""

    condition: Condition | Combination
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """A guard; one that the ranges decide is not emitted."""

    condition: Condition | Combination
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier of the ``block`` or the ``warp``."""

    group: str = "block"

    def __post_init__(self) -> None:
        if self.group not in ("block", "warp"):
            raise PlanError(f"a barrier joins the 'block' or the 'warp', not {self.group!r}")


@dataclass(frozen=True, slots=True)
class Call(Value):
    """A call of a device function, which comes as source or as a :class:`Function`."""

    function: str
    args: tuple[Reference | Whole | Value, ...]
    source: str | Function
    kind: Dtype | None

    def __init__(self, function: str, *args: Any, source: str | Function, returns: str | None = None) -> None:
        if isinstance(source, str) and not re.search(rf"\b{re.escape(function)}\s*\(", source):
            raise PlanError(f"the source of {function!r} does not define it", function=function)
        for name, value in (("function", function), ("args", tuple(map(_argument, args))), ("source", source)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "kind", dtype(returns) if returns is not None else None)

    @property
    def type(self) -> Dtype:
        if self.kind is None:
            raise PlanError(f"{self.function} returns nothing: say returns=, or put the call into Do(...)")
        return self.kind

    def text(self) -> str:
        return f"{self.function}({', '.join(arg.text() for arg in self.args)})"


@dataclass(frozen=True, slots=True)
class Do:
    """A call for its effect."""

    call: Call


@dataclass(frozen=True, slots=True)
class Function:
    """A device function to paste and to call, inlined wherever it is called.

    Args:
        name: its C identifier.
        params: buffers (registers by reference, others by their pointer), integers with ranges, values by name.
        statements: what it does.

    >>> r, x = alloc_local("r", (4,), "u32"), ScalarParam("x", 0, 3)
    >>> clear = Function("clear", (r, x), (Store(r[x.var], 0),))
    >>> print(clear.call(r, 2).call)
    clear(r_ptr, 2)
    """

    name: str
    params: tuple[Buffer | ScalarParam | Name, ...]
    statements: tuple[Statement, ...]

    def __init__(self, name: str, params: Sequence[Buffer | ScalarParam | Name], statements: Sequence[Any]) -> None:
        for field, value in (("name", name), ("params", tuple(params)), ("statements", _flat(statements))):
            object.__setattr__(self, field, value)

    @property
    def source(self) -> str:
        """The CUDA C++, to paste."""
        from codegen_cuda.emit import emit_function

        return emit_function(self)

    def call(self, *args: Any) -> Do:
        """Return the statement that calls it.

        Raises:
            PlanError: an argument that its parameter does not take.
        """
        if len(args) != len(self.params):
            raise PlanError(f"{self.name} takes {len(self.params)} arguments, not {len(args)}", function=self.name)
        return Do(Call(self.name, *map(_passed, self.params, args), source=self))


def _passed(param: Buffer | ScalarParam | Name, given: Any) -> Whole | Value:
    """Return an argument, checked against its parameter."""
    if isinstance(param, Name):
        return as_value(given, param.kind)
    if isinstance(param, ScalarParam):
        index = as_index(given)
        low, high = index.bounds()
        if low < param.low or high > param.high:
            raise PlanError(f"{param.name} lies in [{param.low}, {param.high}], and {index} in [{low}, {high}]")
        return Index(index)
    same = isinstance(given, Buffer) and given.scope.partition(".")[0] == param.scope.partition(".")[0]
    if not same or given.dtype != param.dtype:
        raise PlanError(f"{param.name} is a buffer of {param.dtype} in scope {param.scope}, not {given}")
    if given.data.align % param.data.align or not (given.elem_offset * given.dtype.bytes).is_multiple_of(
        param.data.align
    ):
        raise PlanError(f"{given.name} does not start at a multiple of {param.data.align} bytes, as {param.name} does")
    if param.scope == "local" and given.data.size != param.data.size:
        raise PlanError(f"{param.name} has {param.data.size} bytes of registers, {given.name} {given.data.size}")
    return Whole(given)


@dataclass(frozen=True, slots=True)
class Asm:
    """One inline PTX instruction.

    Attributes:
        text: the instruction with ``%0`` and so on, outputs first.
        outputs: registers that it writes.
        inputs: constraint and value of each operand that it reads.
        collective: ``"warp"`` for instructions that a whole warp must issue together.
        cta_group: which kind of tensor-memory allocation it belongs to, 0 for none.
    """

    text: str
    outputs: tuple[Element, ...] = ()
    inputs: tuple[tuple[str, Value], ...] = ()
    collective: str = ""
    cta_group: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A mutable scalar: sugar for a one-element buffer, and equal to it in every statement."""

    buffer: Buffer

    @property
    def element(self) -> Element:
        """The one element."""
        return Element(self.buffer, (Expr.of(0),))

    def set(self, value: Any) -> Store:
        """Return the assignment."""
        return Store(self.element, value)

    def __add__(self, other: Any) -> Value:
        return self.element.__add__(other)

    def __radd__(self, other: Any) -> Value:
        return self.element.__radd__(other)

    def __sub__(self, other: Any) -> Value:
        return self.element.__sub__(other)

    def __rsub__(self, other: Any) -> Value:
        return self.element.__rsub__(other)

    def __mul__(self, other: Any) -> Value:
        return self.element.__mul__(other)

    def __rmul__(self, other: Any) -> Value:
        return self.element.__rmul__(other)

    def __and__(self, other: Any) -> Value:
        return self.element.__and__(other)

    def __or__(self, other: Any) -> Value:
        return self.element.__or__(other)

    def __xor__(self, other: Any) -> Value:
        return self.element.__xor__(other)

    def __lshift__(self, other: Any) -> Value:
        return self.element.__lshift__(other)

    def __rshift__(self, other: Any) -> Value:
        return self.element.__rshift__(other)

    def __neg__(self) -> Value:
        return -self.element


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """An ``int`` parameter of the kernel with ``low <= value <= high``, which the caller guarantees."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def var(self) -> Expr:
        """The parameter as an index expression."""
        return Expr.var(self.name, self.low, self.high, step=self.step)


Statement: TypeAlias = Store | Let | LetPointer | For | While | If | Sync | Do | Asm | Buffer


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel: parameters, launch shape, statements.

    Args:
        name: of the ``.entry``.
        params: buffers of global memory and scalar parameters, in order.
        statements: what it does; scalars and lists among them are taken apart.
        threads: threads of a block.
        blocks: blocks of the grid.
        tables: numbers that it looks up.
        comment: lines to put before the code.
    """

    name: str
    params: tuple[Buffer | ScalarParam, ...]
    statements: tuple[Statement, ...]
    threads: int
    blocks: int
    tables: tuple[Table, ...]
    comment: tuple[str, ...]

    def __init__(
        self,
        name: str,
        params: Sequence[Buffer | ScalarParam],
        statements: Sequence[Any],
        *,
        threads: int,
        blocks: int = 1,
        tables: Sequence[Table] = (),
        comment: Sequence[str] = (),
    ) -> None:
        values = (name, tuple(params), _flat(statements), threads, blocks, tuple(tables), tuple(comment))
        names = ("name", "params", "statements", "threads", "blocks", "tables", "comment")
        for field, value in zip(names, values, strict=True):
            object.__setattr__(self, field, value)

    @property
    def source(self) -> str:
        """The CUDA C++."""
        from codegen_cuda.emit import emit

        return emit(self)

    @property
    def dynamic_shared_bytes(self) -> int:
        """Dynamic shared memory that a launch must ask for: the size of the arena."""
        return sum(s.data.size or 0 for s in walk(self.statements) if isinstance(s, Buffer) and s.scope == "shared.dyn")


def walk(statements: Sequence[Statement]) -> list[Statement]:
    """Return all statements, nested ones after the one that holds them."""
    found: list[Statement] = []
    for statement in statements:
        found.append(statement)
        found += walk(getattr(statement, "body", ()))
        found += walk(getattr(statement, "orelse", ()))
    return found


def let(name: str, value: Any, kind: str | None = None) -> Let:
    """Bind a value to a name.

    >>> m = ScalarParam("m", 1, 1000)
    >>> let("half", m.var * 2).var.congruence()
    (2, 0)
    """
    value = read(value)
    if kind is not None and dtype(kind).name != "int32":
        return Let(name, as_value(value, dtype(kind)))
    return Let(name, value if isinstance(value, Value) and not isinstance(value, Index) else as_index(value))


def let_pointer(name: str, kind: str | Dtype, source: Pointer, *, byte_offset: int | Expr = 0) -> LetPointer:
    """Bind a pointer expression, so that buffers can be declared over it.

    Raises:
        PlanError: the offset may break the alignment of the elements, or leaves what is behind the source.
    """
    offset, element = as_index(byte_offset), element_type(kind)
    modulus, residue = offset.congruence()
    align = math.gcd(source.align, modulus, residue)
    natural = element.bytes if element.carrier else 1
    low, high = offset.bounds()
    if align % natural:
        raise PlanError(f"{name}: {source.name} + {offset} bytes is aligned to {align}, {element} needs {natural}")
    if source.size is not None and (low < 0 or high >= source.size):
        raise PlanError(f"{name}: {source.name} + {offset} leaves the {source.size} bytes behind {source.name}")
    size = None if source.size is None else source.size - high
    return LetPointer(Pointer(name, element, source.scope, align & -align, size), source, offset)


def thread_id(name: str, threads: int) -> Let:
    """Bind the index of the thread in its block."""
    return Let(name, Expr.var("threadIdx.x", 0, threads - 1))


def block_id(name: str, blocks: int) -> Let:
    """Bind the index of the block."""
    return Let(name, Expr.var("blockIdx.x", 0, blocks - 1))


def loop(name: str, extent: int, body: Any, *, unroll: bool = True, begin: int = 0) -> For:
    """Return a loop of ``extent`` turns from ``begin`` on; ``body`` makes the statements from the variable.

    >>> loop("k", 4, lambda k: [Sync("warp")]).var.bounds()
    (0, 3)
    """
    var = Expr.var(name, begin, begin + extent - 1)
    return For(var, extent, _flat(body(var)), unroll, begin)


def alloc_scalar(name: str, kind: str, *, scope: str) -> Scalar:
    """Allocate a mutable scalar in a scope."""
    return Scalar(alloc(name, (1,), kind, scope=scope))


def local_scalar(name: str, kind: str) -> Scalar:
    """Allocate a mutable scalar of each thread."""
    return Scalar(alloc_local(name, (1,), kind))


def shared_scalar(name: str, kind: str) -> Scalar:
    """Allocate a mutable scalar of the block."""
    return alloc_scalar(name, kind, scope="shared")


def _argument(x: Any) -> Reference | Whole | Value:
    x = read(x)
    if isinstance(x, Pointer):
        return Reference(x, x.dtype, Expr.of(0), writes=True, whole=True)
    return x if isinstance(x, Reference | Whole | Value) else Index(as_index(x))


def _flat(statements: Any) -> tuple[Statement, ...]:
    if isinstance(statements, Scalar):
        return (statements.buffer,)
    if isinstance(statements, list | tuple):
        return tuple(inner for statement in statements for inner in _flat(statement))
    if isinstance(statements, While | For):
        return (replace(statements, body=_flat(statements.body)),)
    if isinstance(statements, If):
        return (replace(statements, body=_flat(statements.body), orelse=_flat(statements.orelse)),)
    if isinstance(statements, Statement):
        return (statements,)
    raise PlanError(f"{statements!r} is no statement; a Call for its effect goes into Do(...)")
