"""How single statements are spelt in C."""

from __future__ import annotations

from codegen_cuda.access import c_type
from codegen_cuda.body import Asm, Do, Let, LetPointer, Statement, Store, Sync
from codegen_cuda.buffers import Buffer
from codegen_cuda.expr import Expr
from codegen_cuda.values import Value, checked_text
from layoutalg.hardware.dtypes import Dtype

__all__ = ["array_length", "spell"]


def spell(statement: Statement, writes: frozenset[str] = frozenset()) -> str:
    """Return the spelling of a statement that holds no others; ``writes`` names the pointers written through."""
    match statement:
        case Store(target, value):
            return f"{target} = {value};"
        case Let(name, value):
            shown = checked_text(value, bare=True) if isinstance(value, Expr) else value.text()
            return f"const {_kind(value)} {name} = {shown};"
        case LetPointer(pointer, source, offset):
            kind = c_type(pointer.dtype)
            origin = source.name if source.dtype.name == "uint8" else f"(unsigned char*){source.name}"
            start = f"({origin} + {checked_text(offset)})" if offset != Expr.of(0) else source.name
            kind = kind if pointer.name in writes else f"const {kind}"
            return f"{kind}* const {pointer.name} = ({kind}*){start};"
        case Sync(group):
            return "__syncthreads();" if group == "block" else "__syncwarp();"
        case Do(call):
            return f"{call};"
        case Asm():
            return _asm(statement)
        case Buffer():
            return _declaration(statement)
    raise AssertionError(statement)


def _kind(value: Expr | Value) -> str:
    return "int" if isinstance(value, Expr) else c_type(value.type)


def _asm(asm: Asm) -> str:
    outputs = ", ".join(f'"={_constraint(out.type)}"({out})' for out in asm.outputs)
    inputs = ", ".join(f'"{constraint}"({value})' for constraint, value in asm.inputs)
    outputs, inputs = (f" {operands}" if operands else "" for operands in (outputs, inputs))
    return f'asm volatile("{asm.text}" :{outputs} :{inputs} : "memory");'


def _constraint(kind: Dtype) -> str:
    return "f" if kind.name == "float32" else "r"


def _declaration(buffer: Buffer) -> str:
    pointer = buffer.data
    kind = c_type(pointer.dtype)
    natural = pointer.dtype.bytes if pointer.dtype.carrier else 1
    aligned = f"__align__({pointer.align}) " if pointer.align > natural else ""
    if buffer.scope == "shared.dyn":
        return f"extern __shared__ {aligned}{kind} {pointer.name}[];"
    return f"{'__shared__ ' if buffer.scope == 'shared' else ''}{aligned}{kind} {pointer.name}[{array_length(buffer)}];"


def array_length(buffer: Buffer) -> int:
    """Return how many elements the array of an allocation has; bytes, for elements narrower than one."""
    pointer = buffer.data
    return -(-(pointer.size or 0) // (pointer.dtype.bytes if pointer.dtype.carrier else 1))
