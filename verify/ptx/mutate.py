"""Small wrong changes to a kernel, one at a time and at every place: the checker must refuse each of them.

A mutant that the checker accepts satisfies the claim; whoever counts mutants must then show independently that it is
equivalent.  The operators are those that index arithmetic, synchronisation and guards go wrong by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from verify.ptx.ops import lookup
from verify.ptx.ops_base import (
    BlockBarrier,
    Compute,
    Load,
    Store,
    TmemAlloc,
    TmemDealloc,
    TmemFence,
    TmemLoad,
    TmemStore,
    TmemWait,
    WarpBarrier,
)
from verify.ptx.tree import Address, Block, Entry, Immediate, Instruction, Module, Name, Operand, Statement, Vector

__all__ = ["OPERATORS", "Mutant", "mutants"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed kernel.

    Attributes:
        operator: which kind of change.
        line: line of the changed instruction.
        change: what was there and what is there now.
    """

    operator: str
    line: int
    change: str
    module: Module


def mutants(module: Module, entry: str | None = None) -> Iterator[Mutant]:
    """Every mutant of a kernel: each operator at each instruction that it applies to, and tables changed.

    >>> from verify.ptx.parse import parse
    >>> module = parse('''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry k() { .reg .b32 %r<3>; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; bar.sync 0; ret; }''')
    >>> for mutant in mutants(module):
    ...     print(mutant.operator, "|", mutant.change)
    changed constant | shl.b32 %r2, %r1, 2 -> shl.b32 %r2, %r1, 3
    off by one | shl.b32 %r2, %r1, 2 -> shl.b32 %r2, %r1, 1
    other operation | shl.b32 %r2, %r1, 2 -> shr.u32 %r2, %r1, 2
    swapped registers | shl.b32 %r2, %r1, 2 -> shl.b32 %r2, 2, %r1
    dropped barrier | bar.sync 0 -> nothing
    """
    kernel = module.entry(entry)
    body = _flat(kernel.body)
    for position, statement in enumerate(body):
        if not isinstance(statement, Instruction):
            continue
        for name, operator in OPERATORS.items():
            for changed in operator(body, position):
                if changed is not body and changed != body:
                    yield _mutant(module, kernel, name, statement, body, changed)
    yield from _changed_tables(module)


def _changed_tables(module: Module) -> Iterator[Mutant]:
    """One element of an initialised table of the module changed; of tables of over 128 elements about 32, evenly."""
    for number, variable in enumerate(module.variables):
        values = variable.init or ()
        for index in range(0, len(values), 1 if len(values) <= 128 else len(values) // 32 + 1):
            value = values[index]
            init = (*values[:index], value ^ 1, *values[index + 1 :])
            tables = (*module.variables[:number], replace(variable, init=init), *module.variables[number + 1 :])
            change = f"{variable.name}[{index}] = {value} -> {value ^ 1}"
            yield Mutant("changed constant", variable.line, change, replace(module, variables=tables))


def _flat(block: Block) -> tuple[Statement, ...]:
    """The statements of a kernel; inner scopes stay as they are and are not changed."""
    return block.statements


def _mutant(
    module: Module,
    kernel: Entry,
    operator: str,
    statement: Instruction,
    body: tuple[Statement, ...],
    changed: tuple[Statement, ...],
) -> Mutant:
    from verify.ptx.printer import print_instruction

    entry = replace(kernel, body=replace(kernel.body, statements=changed))
    entries = tuple(entry if other is kernel else other for other in module.entries)
    same = next((i for i, (a, b) in enumerate(zip(body, changed, strict=False)) if a is not b), len(changed))
    now = "nothing" if len(changed) < len(body) else "elsewhere"
    if len(changed) == len(body) and body[same + 1 :] == changed[same + 1 :]:
        now = print_instruction(_at(changed, same))
    elif len(changed) > len(body):
        now = "; ".join(print_instruction(_at(changed, i)) for i in (same - 1, same))
    return Mutant(
        operator, statement.line, f"{print_instruction(statement)} -> {now}", replace(module, entries=entries)
    )


Body = tuple[Statement, ...]
Operator = Callable[[Body, int], Iterator[Body]]


def _at(body: Body, position: int) -> Instruction:
    statement = body[position]
    assert isinstance(statement, Instruction)
    return statement


def _effect(instruction: Instruction) -> object:
    rows = lookup(instruction.opcode)
    return rows[0].effect if rows else None


def _with(body: Body, position: int, *statements: Statement) -> Body:
    return (*body[:position], *statements, *body[position + 1 :])


def _operand(body: Body, position: int, index: int, operand: Operand) -> Body:
    instruction = _at(body, position)
    operands = (*instruction.operands[:index], operand, *instruction.operands[index + 1 :])
    return _with(body, position, replace(instruction, operands=operands))


def _constants(body: Body, position: int, change: Callable[[int], int]) -> Iterator[Body]:
    instruction = _at(body, position)
    if isinstance(_effect(instruction), BlockBarrier | WarpBarrier):
        return
    for index, operand in enumerate(instruction.operands):
        if isinstance(operand, Immediate) and not operand.bits:
            yield _operand(body, position, index, Immediate(change(operand.value)))


def _changed_constant(body: Body, position: int) -> Iterator[Body]:
    yield from _constants(body, position, lambda value: value ^ 1)


def _off_by_one(body: Body, position: int) -> Iterator[Body]:
    yield from _constants(body, position, lambda value: value - 1 if value & 1 == 0 else value + 1)
    instruction = _at(body, position)
    name, _, rest = instruction.opcode.partition(".")
    if name == "setp":
        operator, _, type_ = rest.partition(".")
        other = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}[operator]
        changed = f"setp.{other}.{type_}"
        if lookup(changed):
            yield _with(body, position, replace(instruction, opcode=changed))


def _other_operation(body: Body, position: int) -> Iterator[Body]:
    instruction = _at(body, position)
    name, _, rest = instruction.opcode.partition(".")
    others = {
        "add": f"sub.{rest}",
        "sub": f"add.{rest}",
        "xor": f"or.{rest}",
        "or": f"xor.{rest}",
        "and": f"or.{rest}",
        "shl": f"shr.u{rest[1:]}",
        "shr": f"shl.b{rest[1:]}",
        "mad": instruction.opcode.replace("mad.lo", "mul.lo"),
        "min": f"max.{rest}",
        "max": f"min.{rest}",
    }
    changed = others.get(name, "")
    if name == "mad":
        yield _with(body, position, replace(instruction, opcode=changed, operands=instruction.operands[:3]))
    elif lookup(changed):
        yield _with(body, position, replace(instruction, opcode=changed))


def _dropped_barrier(body: Body, position: int) -> Iterator[Body]:
    """A barrier, or for tensor memory a wait or a fence, is left out."""
    if isinstance(_effect(_at(body, position)), BlockBarrier | WarpBarrier | TmemWait | TmemFence):
        yield _with(body, position)


def _dropped_guard(body: Body, position: int) -> Iterator[Body]:
    instruction = _at(body, position)
    if instruction.predicate is None:
        return
    if instruction.opcode.startswith("bra"):
        yield _with(body, position)
    yield _with(body, position, replace(instruction, predicate=None))


def _wrong_predicate(body: Body, position: int) -> Iterator[Body]:
    instruction = _at(body, position)
    if instruction.predicate is not None:
        guard = replace(instruction.predicate, negated=not instruction.predicate.negated)
        yield _with(body, position, replace(instruction, predicate=guard))


#: Instructions whose sources must not be exchanged.
_ORDERED = ("sub", "shl", "shr", "div", "rem", "prmt", "shf", "selp", "setp", "bfi")


def _is_ordered(opcode: str) -> bool:
    """Whether exchanging two sources changes the result and gives PTX: amounts of 64-bit shifts have 32 bits."""
    return opcode.split(".")[0] in _ORDERED and not (opcode.startswith("sh") and opcode.endswith("64"))


def _swapped_registers(body: Body, position: int) -> Iterator[Body]:
    """Two source registers exchanged; the value of a store taken from the next store."""
    instruction = _at(body, position)
    effect = _effect(instruction)
    operands = instruction.operands
    if isinstance(effect, Compute) and len(operands) >= 3 and _is_ordered(instruction.opcode):
        swapped = (operands[0], operands[2], operands[1], *operands[3:])
        yield _with(body, position, replace(instruction, operands=swapped))
    if instruction.opcode.startswith("mad.lo"):
        yield _with(body, position, replace(instruction, operands=(*operands[:2], operands[3], operands[2])))
    for index, operand in enumerate(operands):
        if isinstance(operand, Vector) and len(operand.items) > 1:
            yield _operand(body, position, index, Vector((operand.items[1], operand.items[0], *operand.items[2:])))
    if isinstance(effect, Store):
        following = _next(body, position, Store)
        if following is not None and isinstance(operands[1], Name):
            other = _at(body, following)
            if isinstance(other.operands[1], Name) and other.opcode == instruction.opcode:
                yield _operand(body, position, 1, other.operands[1])


def _next(body: Body, position: int, effect: type) -> int | None:
    for index in range(position + 1, len(body)):
        statement = body[index]
        if isinstance(statement, Instruction) and isinstance(_effect(statement), effect):
            return index
    return None


def _shifted_base(body: Body, position: int) -> Iterator[Body]:
    """An address one access further, one back, one byte off; in tensor memory one column, half a slab or a slab."""
    instruction = _at(body, position)
    effect = _effect(instruction)
    if isinstance(effect, TmemLoad | TmemStore):
        steps = [1, -1, 16 << 16, 32 << 16]
    elif isinstance(effect, Load | Store) and effect.space != "param":
        size = effect.width // 8 * effect.count
        steps = [size, -size, *([1] if size > 1 else [])]
    else:
        return
    for index, operand in enumerate(instruction.operands):
        if isinstance(operand, Address):
            for step in steps:
                yield _operand(body, position, index, replace(operand, offset=operand.offset + step))


def _wrong_width(body: Body, position: int) -> Iterator[Body]:
    """Half the bits of an element, or half the elements; of tensor memory half the columns, or halves of words."""
    instruction = _at(body, position)
    effect = _effect(instruction)
    if isinstance(effect, TmemLoad | TmemStore):
        yield from _other_transfer(body, position, effect)
    if not isinstance(effect, Load | Store) or effect.space == "param":
        return
    head, _, type_ = instruction.opcode.rpartition(".")
    narrower = {"b32": "b16", "u32": "u16", "f32": "u16", "b64": "b32", "u64": "u32", "b16": "b8", "u16": "u8"}
    if effect.count == 1 and type_ in narrower:
        yield _with(body, position, replace(instruction, opcode=f"{head}.{narrower[type_]}"))
    for index, operand in enumerate(instruction.operands):
        if isinstance(operand, Vector) and effect.count > 1:
            half = effect.count // 2
            kept: Operand = Vector(operand.items[:half]) if half > 1 else operand.items[0]
            opcode = instruction.opcode.replace(f".v{effect.count}", f".v{half}" if half > 1 else "")
            shorter = _operand(body, position, index, kept)
            yield _with(shorter, position, replace(_at(shorter, position), opcode=opcode))


def _other_transfer(body: Body, position: int, effect: TmemLoad | TmemStore) -> Iterator[Body]:
    instruction = _at(body, position)
    pack = ".pack::16b" if isinstance(effect, TmemLoad) else ".unpack::16b"
    plain = instruction.opcode.replace(pack, "")
    other = plain if effect.packed else plain.removesuffix(".b32") + f"{pack}.b32"
    yield _with(body, position, replace(instruction, opcode=other))
    for index, operand in enumerate(instruction.operands):
        if isinstance(operand, Vector) and effect.repeat > 1:
            half = effect.repeat // 2
            opcode = instruction.opcode.replace(f".x{effect.repeat}.", f".x{half}.")
            shorter = _operand(body, position, index, Vector(operand.items[: len(operand.items) // 2]))
            yield _with(shorter, position, replace(_at(shorter, position), opcode=opcode))


def _dropped_access(body: Body, position: int) -> Iterator[Body]:
    """An access, an allocation or its end is left out."""
    effect = _effect(_at(body, position))
    if isinstance(effect, TmemLoad | TmemStore | TmemAlloc | TmemDealloc) or (
        isinstance(effect, Load | Store) and effect.space != "param"
    ):
        yield _with(body, position)


def _moved_store(body: Body, position: int) -> Iterator[Body]:
    """A store (or the end of an allocation) taken past the next barrier or wait, or before the previous one."""
    instruction = _at(body, position)
    if not isinstance(_effect(instruction), Store | TmemStore | TmemDealloc):
        return
    barriers = [
        index
        for index, statement in enumerate(body)
        if isinstance(statement, Instruction) and isinstance(_effect(statement), BlockBarrier | WarpBarrier | TmemWait)
    ]
    after = next((index for index in barriers if index > position), None)
    before = next((index for index in reversed(barriers) if index < position), None)
    if after is not None:
        yield (*body[:position], *body[position + 1 : after + 1], instruction, *body[after + 1 :])
    if before is not None:
        yield (*body[:before], instruction, *body[before:position], *body[position + 1 :])


def _repeated_write(body: Body, position: int) -> Iterator[Body]:
    """A second store of the same value, one access further; a second allocation or end of one."""
    instruction = _at(body, position)
    effect = _effect(instruction)
    if isinstance(effect, TmemAlloc | TmemDealloc):
        yield _with(body, position, instruction, instruction)
    if not isinstance(effect, Store | TmemStore):
        return
    address = instruction.operands[0]
    assert isinstance(address, Address)
    size = effect.width // 8 * effect.count if isinstance(effect, Store) else effect.repeat
    further = replace(address, offset=address.offset + size)
    extra = replace(instruction, operands=(further, *instruction.operands[1:]))
    yield _with(body, position, instruction, extra)


OPERATORS: dict[str, Operator] = {
    "changed constant": _changed_constant,
    "off by one": _off_by_one,
    "other operation": _other_operation,
    "dropped barrier": _dropped_barrier,
    "dropped guard": _dropped_guard,
    "wrong predicate": _wrong_predicate,
    "swapped registers": _swapped_registers,
    "shifted base": _shifted_base,
    "wrong width": _wrong_width,
    "dropped access": _dropped_access,
    "moved store": _moved_store,
    "repeated write": _repeated_write,
}
"""The operators by name; each gives the bodies that it makes of an instruction."""
