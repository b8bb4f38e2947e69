"""From a :class:`codegen_cuda.body.Body` to header-free CUDA C++, with the checks that need the whole kernel.

Checked: names are declared before use; one dynamic arena; static shared memory within its limit; barriers where all
threads come by; warp-wide instructions under conditions that are the same in a whole warp; one ``cta_group``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from codegen_cuda.access import Pointer, Reference, c_type
from codegen_cuda.body import (
    Asm,
    Body,
    Call,
    Do,
    For,
    If,
    Let,
    LetPointer,
    ScalarParam,
    Statement,
    Store,
    Sync,
    While,
    walk,
)
from codegen_cuda.buffers import Buffer, Element
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Atom, Expr
from codegen_cuda.values import Condition, Name, Value, checked_text
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.machine import DEFAULT_MACHINE

__all__ = ["LAUNCH_SHAPE", "emit"]

# __block_size__ puts the exact block shape into the PTX; compilers have it from compute capability 9.0 on.
LAUNCH_SHAPE = """\
#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
"""
_BUILTIN = ("threadIdx.x", "blockIdx.x")
_INDENT = "    "
# Names of C++ that a kernel's author is likely to hit; the compiler refuses the others.
_RESERVED = re.compile(
    "auto|bool|break|case|char|class|const|continue|default|delete|do|double|else|enum|extern|float|for|goto|if|inline|"
    "int|long|new|operator|private|public|register|return|short|signed|sizeof|static|struct|switch|template|this|"
    "typedef|union|unsigned|using|virtual|void|volatile|while"
)


def emit(body: Body) -> str:
    """Return the CUDA source of a kernel.

    Raises:
        PlanError: one of the checks fails.

    >>> from codegen_cuda.body import thread_id
    >>> from codegen_cuda.buffers import match
    >>> A, tx = match("A", (32,), "f32"), thread_id("tx", 32)
    >>> print(emit(Body("twice", [A], [tx, Store(A[tx.var], A[tx.var] * 2)], threads=32)).split("#endif")[1].strip())
    extern "C" __global__ void LAUNCH_SHAPE(32) twice(float* __restrict__ A_ptr) {
        const int tx = threadIdx.x;
        A_ptr[tx] = A_ptr[tx] * 2.0f;
    }
    """
    _check(body)
    written = _written(body)
    params = ", ".join(_parameter(p, written) for p in body.params)
    lines = [
        *_functions(body),
        LAUNCH_SHAPE + f'extern "C" __global__ void LAUNCH_SHAPE({body.threads}) {body.name}({params}) {{',
        *_block(body.statements, 1),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _parameter(param: Buffer | ScalarParam, written: set[str]) -> str:
    if isinstance(param, ScalarParam):
        return f"int {param.name}"
    const = "" if param.data.name in written else "const "
    return f"{const}{c_type(param.data.dtype)}* __restrict__ {param.data.name}"


def _functions(body: Body) -> list[str]:
    sources: dict[str, str] = {}
    for call in (part for part in _parts(body.statements) if isinstance(part, Call)):
        if sources.setdefault(call.function, call.source) != call.source:
            raise PlanError(f"{body.name}: two sources for {call.function}", function=call.function)
    return list(dict.fromkeys(source.rstrip() + "\n" for source in sources.values()))


def _block(statements: Sequence[Statement], depth: int) -> list[str]:
    return [line for statement in statements for line in _lines(statement, depth)]


def _lines(statement: Statement, depth: int) -> list[str]:
    pad = _INDENT * depth
    match statement:
        case If(condition, body, orelse):
            decided = condition.decide()
            if decided is not None:
                return _block(body if decided else orelse, depth)
            tail = [f"{pad}}} else {{", *_block(orelse, depth + 1)] if orelse else []
            return [f"{pad}if ({condition}) {{", *_block(body, depth + 1), *tail, f"{pad}}}"]
        case For(var, extent, body, unroll):
            head = f"for (int {var} = 0; {var} < {extent}; ++{var}) {{"
            pragma = f"{pad}#pragma unroll{'' if unroll else ' 1'}"
            return [pragma, f"{pad}{head}", *_block(body, depth + 1), f"{pad}}}"]
        case While(condition, body):
            return [f"{pad}while ({condition}) {{", *_block(body, depth + 1), f"{pad}}}"]
        case _:
            return [pad + _simple(statement)]


def _simple(statement: Statement) -> str:
    match statement:
        case Store(target, value):
            return f"{target} = {value};"
        case Let(name, value):
            shown = checked_text(value) if isinstance(value, Expr) else value.text()
            return f"const {_kind(value)} {name} = {shown};"
        case LetPointer(pointer, source, offset):
            kind = c_type(pointer.dtype)
            origin = source.name if source.dtype.name == "uint8" else f"(unsigned char*){source.name}"
            start = f"({origin} + {checked_text(offset)})" if offset != Expr.of(0) else source.name
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
    count = -(-(pointer.size or 0) // natural)
    if buffer.scope == "shared.dyn":
        return f"extern __shared__ {aligned}{kind} {pointer.name}[];"
    return f"{'__shared__ ' if buffer.scope == 'shared' else ''}{aligned}{kind} {pointer.name}[{count}];"


# -- checks --------------------------------------------------------------------------------------------------------


def _check(body: Body) -> None:
    everything = walk(body.statements)
    arenas = [s.name for s in everything if isinstance(s, Buffer) and s.scope == "shared.dyn"]
    if len(arenas) > 1:
        raise PlanError(
            f"{body.name} allocates dynamic shared memory {len(arenas)} times ({', '.join(arenas)}), and all such "
            "arrays start at one address: allocate one arena and declare views into it, or use SharedPool",
            arenas=tuple(arenas),
        )
    static = sum(s.data.size or 0 for s in everything if isinstance(s, Buffer) and s.scope == "shared")
    if static > DEFAULT_MACHINE.static_shared_bytes:
        raise PlanError(
            f"{body.name} declares {static} bytes of static shared memory; the limit is "
            f"{DEFAULT_MACHINE.static_shared_bytes}: use a SharedPool, whose memory is dynamic",
            bytes=static,
        )
    groups = {s.cta_group for s in everything if isinstance(s, Asm) and s.cta_group}
    if len(groups) > 1:
        raise PlanError(f"{body.name} allocates tensor memory for cta_group 1 and 2; a kernel has one", groups=groups)
    names = {p.data.name if isinstance(p, Buffer) else p.name for p in body.params}
    if len(names) < len(body.params):
        raise PlanError(f"{body.name}: two parameters share a name", names=tuple(sorted(names)))
    for name in (body.name, *names):
        _check_identifier(name)
    _check_names(body.statements, names | set(_BUILTIN))
    _check_convergence(body.statements, {}, conditions=())


def _check_names(statements: Sequence[Statement], outside: set[str]) -> None:
    known = set(outside)
    for statement in statements:
        own = {f.name: getattr(statement, f.name) for f in fields(statement)}
        nested = [own.pop("body", ()), own.pop("orelse", ())]
        inner = set(known)
        if isinstance(statement, Buffer):
            if not statement.owns:
                raise PlanError(f"{statement.name} is a view of {statement.data.name}; only allocations are declared")
            own = {}
        if isinstance(statement, For):
            inner |= own.pop("var").variables()
            _check_identifier(str(statement.var))
        if isinstance(statement, LetPointer):
            own.pop("pointer")
        missing = sorted(name for name in _names(list(own.values())) if name not in known)
        if missing:
            raise PlanError(f"{_shown(statement)} uses {', '.join(missing)} before a declaration", names=missing)
        for part in nested:
            _check_names(part, inner)
        if isinstance(statement, Buffer | LetPointer | Let):
            name = getattr(statement, "name", "")
            name = statement.data.name if isinstance(statement, Buffer) else name
            name = statement.pointer.name if isinstance(statement, LetPointer) else name
            _check_identifier(name)
            if name in known:
                raise PlanError(f"{name} is declared twice", name=name)
            known.add(name)


def _check_identifier(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or _RESERVED.fullmatch(name):
        raise PlanError(f"{name!r} cannot be the name of something in C", name=name)


def _shown(statement: Statement) -> str:
    shown = getattr(statement, "condition", None)
    return f"a guard on {shown}" if shown is not None else _simple(statement)


def _names(values: Sequence[Any]) -> set[str]:
    """Names of pointers and of variables that occur; texts of memory reads bring their pointer with them."""
    found: set[str] = set()
    for part in _parts(values):
        if isinstance(part, Pointer) or (isinstance(part, Atom) and part.op == "var"):
            found.add(part.name)
        elif isinstance(part, Name) and part.spelling.isidentifier():
            found.add(part.spelling)
        elif isinstance(part, Atom) and part.op == "load":
            found.add(part.name.strip("(").partition("[")[0])
    return {name for name in found if not name.startswith("(")}


def _parts(value: Any) -> Iterator[Any]:
    """Every value inside a value, a statement or a tuple of them; storage of tensor memory has no pointer to name."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Buffer):
        if value.scope != "tmem":
            yield from _parts((value.data, value.elem_offset))
    elif is_dataclass(value) and not isinstance(value, Dtype):
        yield value
        for item in fields(value):
            yield from _parts(getattr(value, item.name))


def _check_convergence(
    statements: Sequence[Statement], lets: dict[str, Expr], *, conditions: tuple[Condition, ...]
) -> None:
    known = dict(lets)
    for statement in statements:
        if isinstance(statement, Let) and isinstance(statement.value, Expr):
            known[statement.name] = statement.value
        under = conditions
        if isinstance(statement, If | While):
            under = (*conditions, statement.condition) if statement.condition.decide() is None else conditions
        for part in ("body", "orelse"):
            _check_convergence(getattr(statement, part, ()), known, conditions=under)
        block = isinstance(statement, Sync) and statement.group == "block"
        warp = isinstance(statement, Asm) and statement.collective == "warp"
        for condition in conditions if block or warp else ():
            group = 0 if block else 32
            if not all(_is_uniform(side, known, group) for side in (condition.left, condition.right)):
                whole = "whole block" if block else "whole warp"
                raise PlanError(
                    f"{_simple(statement)} stands under ({condition}), which may differ between the threads of a warp "
                    f"or block; the {whole} must come by: compare an index that is tx divided by 32"
                    if warp
                    else f"{_simple(statement)} stands under ({condition}), and the {whole} must come by",
                    condition=str(condition),
                )


def _is_uniform(side: Expr | Value, lets: dict[str, Expr], group: int) -> bool:
    """Say whether all threads of a group (0: the block) have the same value, by how it is computed."""
    if isinstance(side, Value):
        return False
    return all(_is_uniform_atom(atom, lets, group) for atom, _ in side.terms)


def _is_uniform_atom(atom: Atom, lets: dict[str, Expr], group: int) -> bool:
    if atom.op == "load" or atom.name == "threadIdx.x":
        return False
    if atom.operand is None:
        return atom.name not in lets or _is_uniform(lets[atom.name], lets, group)
    if group and atom.op == "/" and atom.constant % group == 0 and _is_thread(atom.operand, lets):
        return True
    return _is_uniform(atom.operand, lets, group) and (atom.other is None or _is_uniform(atom.other, lets, group))


def _is_thread(expr: Expr, lets: dict[str, Expr]) -> bool:
    if len(expr.terms) != 1 or expr.const or expr.terms[0][1] != 1:
        return False
    name = expr.terms[0][0].name
    return name == "threadIdx.x" or (name in lets and _is_thread(lets[name], lets))


def _written(body: Body) -> set[str]:
    """Names of the pointers that something may write through."""
    found: set[str] = set()
    for statement in walk(body.statements):
        if isinstance(statement, Store):
            found.add(statement.target.buffer.data.name)
        elif isinstance(statement, LetPointer):
            found.add(statement.source.name)
        for part in _parts(statement):
            if isinstance(part, Reference) and part.writes:
                found.add(part.data.name)
            elif isinstance(part, Asm):
                found |= {out.buffer.data.name for out in part.outputs if isinstance(out, Element)}
    return found
