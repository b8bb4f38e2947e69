"""Checks of a kernel that need the whole of it.

Names are declared before use; one dynamic arena; static shared memory within its limit; barriers where all threads come
by; warp-wide instructions under conditions that are the same in a whole warp; one ``cta_group``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeAlias

from codegen_cuda.access import Pointer, Reference, Whole
from codegen_cuda.body import (
    Asm,
    Body,
    Call,
    Do,
    For,
    Function,
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
from codegen_cuda.buffers import Buffer
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Atom, Expr
from codegen_cuda.spelling import spell
from codegen_cuda.values import Combination, Condition, Index, Name, Value
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.machine import DEFAULT_MACHINE

__all__ = ["check", "names_in", "written"]

_BUILTIN = ("threadIdx.x", "blockIdx.x")
# Names of C++ that a kernel's author is likely to hit; the compiler refuses the others.
_RESERVED = re.compile(
    "auto|bool|break|case|char|class|const|continue|default|delete|do|double|else|enum|extern|float|for|goto|if|inline|"
    "int|long|new|operator|private|public|register|return|short|signed|sizeof|static|struct|switch|template|this|"
    "typedef|union|unsigned|using|virtual|void|volatile|while"
)
# An identifier that is no field, no function and no type in a cast.
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?![(*{])")


def check(body: Body) -> tuple[str | Function, ...]:
    """Check a kernel; return the device functions that it calls.

    Raises:
        PlanError: what fails, and where.
    """
    _check_storage(body)
    names = {p.data.name if isinstance(p, Buffer) else p.name for p in body.params}
    if len(names) < len(body.params):
        raise PlanError(f"{body.name}: two parameters share a name", names=tuple(sorted(names)))
    functions = _functions_of(body)
    outside = {*_BUILTIN, *(table.name for table in body.tables)}
    for name in (body.name, *names, *(table.name for table in body.tables)):
        _check_identifier(name)
    _check_names(body.statements, names | outside)
    for function in functions:
        if isinstance(function, Function):
            own = [p.data.name if isinstance(p, Buffer) else str(getattr(p, "name", p)) for p in function.params]
            for name in (function.name, *own):
                _check_identifier(name)
            _check_names(function.statements, {*outside, *own})
    _check_convergence(body.statements, {}, guards=())
    return functions


def _check_storage(body: Body) -> None:
    everything = walk(body.statements)
    arenas = [s.name for s in everything if isinstance(s, Buffer) and s.scope == "shared.dyn"]
    if len(arenas) > 1:
        raise PlanError(
            f"{body.name} allocates dynamic shared memory {len(arenas)} times ({', '.join(arenas)}), and all such "
            "arrays start at one address: allocate one arena and declare views into it, or use SharedPool",
            arenas=tuple(arenas),
        )
    dynamic, limit = body.dynamic_shared_bytes, DEFAULT_MACHINE.shared_bytes_per_block
    if dynamic > limit:
        raise PlanError(f"{body.name} asks for {dynamic} bytes of dynamic shared memory; a block has {limit}")
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


def _functions_of(body: Body) -> tuple[str | Function, ...]:
    """Return the device functions that a kernel calls, those that others call first.

    Raises:
        PlanError: two of one name.
    """
    found: dict[str, str | Function] = {}
    _collect(body.statements, found)
    return tuple(dict.fromkeys(found.values()))


def _collect(statements: Sequence[Statement], found: dict[str, str | Function]) -> None:
    for call in (part for part in _parts(statements) if isinstance(part, Call)):
        if isinstance(call.source, Function) and call.function not in found:
            _collect(call.source.statements, found)
        if found.setdefault(call.function, call.source) != call.source:
            raise PlanError(f"two sources for {call.function}", function=call.function)


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
        missing = sorted(name for name in names_in(list(own.values())) if name not in known)
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
    return f"a guard on {shown}" if shown is not None else spell(statement)


def names_in(values: Sequence[Any]) -> set[str]:
    """Return the names of pointers and of variables that occur; texts of memory reads bring their pointer with them."""
    found: set[str] = set()
    for part in _parts(values):
        if isinstance(part, Pointer) or (isinstance(part, Atom) and part.op == "var"):
            found.add(part.name)
        elif isinstance(part, Name) and part.spelling.isidentifier():
            found.add(part.spelling)
        elif isinstance(part, Atom) and part.op == "load":
            found |= {name for name in _IDENTIFIER.findall(part.name) if not _RESERVED.fullmatch(name)}
    return found


def _parts(value: Any) -> Iterator[Any]:
    """Every value inside a value, a statement or a tuple of them, bodies of functions left out.

    Storage of tensor memory has no pointer to name.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        kind: Any = type(item)
        if kind is tuple or kind is list:
            stack += item[::-1]
        elif kind is Buffer:
            stack += () if item.scope == "tmem" else (item.elem_offset, item.data)
        elif kind is not Expr or item.terms:
            yield item
            inner = [getattr(item, name) for name in _field_names(kind)]
            stack += [x for x in inner if type(x) not in _LEAVES]


_LEAVES: Final = frozenset({str, int, float, bool, type(None), Dtype, Function})


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass, last first."""
    return tuple(field.name for field in reversed(fields(kind))) if is_dataclass(kind) else ()


#: What each name stands for, and in which scope that was written.
_Scope: TypeAlias = "Mapping[str, tuple[Expr | Value, _Scope]]"
_Guard: TypeAlias = Condition | Combination


def _check_convergence(
    statements: Sequence[Statement], scope: _Scope, *, guards: tuple[tuple[_Guard, _Scope], ...]
) -> None:
    known = dict(scope)
    for statement in statements:
        if isinstance(statement, Let):
            known[statement.name] = (statement.value, known)
        under = guards
        if isinstance(statement, If | While) and statement.condition.decide() is None:
            under = (*guards, (statement.condition, known))
        for part in ("body", "orelse"):
            _check_convergence(getattr(statement, part, ()), known, guards=under)
        if isinstance(statement, Do) and isinstance(statement.call.source, Function):
            inside = _call_scope(statement.call, statement.call.source, known)
            _check_convergence(statement.call.source.statements, inside, guards=guards)
        block = isinstance(statement, Sync) and statement.group == "block"
        warp = isinstance(statement, Asm) and statement.collective == "warp"
        for condition, where in guards if block or warp else ():
            if not all(_is_uniform(side, where, 0 if block else 32) for side in condition.sides()):
                raise _divergent(statement, condition, warp=warp)


def _call_scope(call: Call, function: Function, known: _Scope) -> _Scope:
    """Return what a function's parameters stand for: what is passed, in the caller's scope."""
    return {
        param.name if isinstance(param, ScalarParam) else param.spelling: (
            given.expr if isinstance(given, Index) else given,
            known,
        )
        for param, given in zip(function.params, call.args, strict=True)
        if isinstance(param, ScalarParam | Name) and isinstance(given, Value)
    }


def _divergent(statement: Statement, condition: _Guard, *, warp: bool) -> PlanError:
    return PlanError(
        f"{spell(statement)} stands under ({condition}), which may differ between the threads of a warp or block; the "
        "whole warp must come by: compare an index that is tx divided by 32"
        if warp
        else f"{spell(statement)} stands under ({condition}), and the whole block must come by",
        condition=str(condition),
    )


def _is_uniform(side: Expr | Value, scope: _Scope, group: int) -> bool:
    """Say whether all threads of a group (0: the block) have the same value, by how it is computed."""
    if isinstance(side, Value):
        return False
    return all(_is_uniform_atom(atom, scope, group) for atom, _ in side.terms)


def _is_uniform_atom(atom: Atom, scope: _Scope, group: int) -> bool:
    if atom.op == "load" or atom.name == "threadIdx.x":
        return False
    if atom.operand is None:
        return atom.name not in scope or _is_uniform(*scope[atom.name], group)
    if group and atom.op == "/" and atom.constant % group == 0 and _is_thread(atom.operand, scope):
        return True
    return _is_uniform(atom.operand, scope, group) and (atom.other is None or _is_uniform(atom.other, scope, group))


def _is_thread(expr: Expr | Value, scope: _Scope) -> bool:
    if isinstance(expr, Value) or len(expr.terms) != 1 or expr.const or expr.terms[0][1] != 1:
        return False
    name = expr.terms[0][0].name
    return name == "threadIdx.x" or (name in scope and _is_thread(*scope[name]))


def written(statements: Sequence[Statement]) -> frozenset[str]:
    """Return the names of the pointers that something may write through."""
    found: set[str] = set()
    for part in _parts(statements):
        if isinstance(part, Store):
            found.add(part.target.buffer.data.name)
        elif isinstance(part, Reference) and part.writes:
            found.add(part.data.name)
        elif isinstance(part, Asm):
            found |= {out.buffer.data.name for out in part.outputs}
        elif isinstance(part, Call) and isinstance(part.source, Function):
            inside = written(part.source.statements)
            for param, given in zip(part.source.params, part.args, strict=True):
                if isinstance(param, Buffer) and isinstance(given, Whole) and param.data.name in inside:
                    found.add(given.buffer.data.name)
    for statement in reversed(walk(statements)):  # what is written through a binding is written through its source
        if isinstance(statement, LetPointer) and statement.pointer.name in found:
            found.add(statement.source.name)
    return frozenset(found)
