"""A syntax tree back to PTX text, in one canonical form."""

from __future__ import annotations

from collections.abc import Iterator

from verify.ptx.tree import (
    Address,
    Block,
    Directive,
    Entry,
    Immediate,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Offset,
    Operand,
    Pair,
    Param,
    RegisterDeclaration,
    Sink,
    Statement,
    Variable,
    Vector,
)

__all__ = ["print_instruction", "print_module"]


def print_module(module: Module) -> str:
    """Write a module as PTX text, which :func:`verify.ptx.parse.parse` reads back to an equal tree."""
    return "\n".join(_module(module)) + "\n"


def print_instruction(instruction: Instruction) -> str:
    """Write one instruction without its semicolon.

    >>> from verify.ptx.tree import Address, Name
    >>> print_instruction(Instruction("ld.shared.b32", (Name("%r1"), Address(Name("%r2"), -4))))
    'ld.shared.b32 %r1, [%r2+-4]'
    """
    guard = ""
    if instruction.predicate is not None:
        guard = f"@{'!' if instruction.predicate.negated else ''}{instruction.predicate.name} "
    operands = ", ".join(_operand(operand) for operand in instruction.operands)
    return f"{guard}{instruction.opcode}{' ' if operands else ''}{operands}"


def _module(module: Module) -> Iterator[str]:
    yield f".version {module.version[0]}.{module.version[1]}"
    yield f".target {module.target}"
    yield ".address_size 64"
    for file in module.files:
        yield f'.file {file.index} "{file.name}"' + (f", {file.rest}" if file.rest else "")
    for variable in module.variables:
        yield _variable(variable)
    for entry in module.entries:
        yield from _entry(entry)
    for section in module.sections:
        yield f".section {section.name}\n{{\n{section.text}\n}}"


def _entry(entry: Entry) -> Iterator[str]:
    yield f"{_dotted(entry.linkage)}.entry {entry.name}("
    yield ",\n".join(f"\t{_param(param)}" for param in entry.params)
    yield ")"
    for limit in entry.limits:
        yield f".{limit.name} {', '.join(limit.arguments)}"
    yield from _block(entry.body, "")


def _block(block: Block, indent: str) -> Iterator[str]:
    yield f"{indent}{{"
    for statement in block.statements:
        if isinstance(statement, Block):
            yield from _block(statement, indent + "\t")
        else:
            yield f"{indent}\t{_statement(statement)}"
    yield f"{indent}}}"


def _statement(statement: Statement) -> str:
    match statement:
        case Instruction():
            return f"{print_instruction(statement)};"
        case Label(name):
            return f"{name}:"
        case RegisterDeclaration(type_, name, count):
            return f".reg .{type_} {name}{'' if count is None else f'<{count}>'};"
        case Variable():
            return _variable(statement)
        case Directive(_, (text,)):
            return f'.pragma "{text}";'
        case Location(file, line, column, rest):
            return f".loc {file} {line} {column}{', ' + rest if rest else ''}"
        case _:
            raise AssertionError(f"no statement: {statement!r}")


def _variable(variable: Variable) -> str:
    align = f".align {variable.align} " if variable.align else ""
    size = "" if variable.scalar else "[]" if variable.count is None else f"[{variable.count}]"
    init = ""
    if variable.init is not None:
        values = ", ".join(str(value) for value in variable.init)
        init = f" = {values}" if variable.scalar else f" = {{{values}}}"
    return f"{_dotted(variable.linkage)}.{variable.space} {align}.{variable.type} {variable.name}{size}{init};"


def _param(param: Param) -> str:
    align = f".align {param.align} " if param.align else ""
    pointer = ""
    if param.pointer:
        pointer = ".ptr " + "".join(f".{word} " for word in param.pointer)
    size = "" if param.count is None else f"[{param.count}]"
    return f".param {align}.{param.type} {pointer}{param.name}{size}"


def _dotted(linkage: str) -> str:
    return f".{linkage} " if linkage else ""


def _operand(operand: Operand) -> str:
    match operand:
        case Name(text):
            return text
        case Immediate(value, 32):
            return f"0f{value:08X}"
        case Immediate(value, 64):
            return f"0d{value:016X}"
        case Immediate(value):
            return str(value)
        case Sink():
            return "_"
        case Vector(items):
            return "{" + ", ".join(_operand(item) for item in items) + "}"
        case Pair(first, second):
            return f"{_operand(first)}|{_operand(second)}"
        case Address(base, offset):
            return f"[{_operand(base)}{f'+{offset}' if offset else ''}]"
        case Offset(base, offset):
            return f"{_operand(base)}+{offset}"
