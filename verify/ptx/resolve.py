"""From a syntax tree to a program: scopes flattened, names looked up, instructions matched with the table.

Everything that the table does not know stops here, with its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from verify.ptx.errors import PtxError
from verify.ptx.ops import lookup, suggestion
from verify.ptx.ops_base import BarrierTryWait, Branch, Exit, Kind, Load, Operation, Slot, Store, Trap
from verify.ptx.parse import WIDTHS
from verify.ptx.printer import print_instruction
from verify.ptx.program import (
    SPECIALS,
    Constant,
    Guard,
    Memory,
    ParamRef,
    Program,
    Register,
    Special,
    Step,
    Symbol,
    Target,
    Value,
)
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
    RegisterDeclaration,
    Sink,
    Variable,
    Vector,
)

__all__ = ["load"]


def load(module: Module, entry: str | None = None) -> Program:
    """Look up the names of a kernel and match its instructions with the table.

    Raises:
        PtxError: an unknown name, operation, operand form; a width that does not fit; a jump out of scope.

    >>> from verify.ptx.parse import parse
    >>> module = parse('''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry k() { .reg .b32 %r<2>; mov.u32 %r1, %tid.x; ret; }''')
    >>> load(module).steps[0].operands
    (Register(name='%r1', width=32), Special(name='%tid.x'))
    """
    kernel = module.entry(entry)
    return _Loader(module, kernel).program()


@dataclass(slots=True)
class _Scope:
    """Names that one pair of braces declares; registers come by name or by prefix and count."""

    suffix: str
    parent: _Scope | None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    variables: dict[str, Variable] = field(default_factory=dict)

    def chain(self) -> Iterator[_Scope]:
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def register(self, name: str) -> Register | None:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        for scope in self.chain():
            if name in scope.registers:
                return scope.registers[name]
            if prefix in scope.ranges and digits and len(digits) < 10 and str(int(digits)) == digits:
                count, width = scope.ranges[prefix]
                if int(digits) < count:
                    return Register(name + scope.suffix, width)
        return None

    def variable(self, name: str) -> Variable | None:
        return next((scope.variables[name] for scope in self.chain() if name in scope.variables), None)

    def label(self, name: str) -> str | None:
        return next((name + scope.suffix for scope in self.chain() if name in scope.labels), None)


class _MismatchError(Exception):
    """An operand does not fit its slot."""


class _Loader:
    """Flattens one kernel."""

    def __init__(self, module: Module, entry: Entry) -> None:
        self.module, self.entry = module, entry
        self.files = {file.index: file.name for file in module.files}
        self.pending: list[tuple[Instruction, _Scope, tuple[str, int] | None]] = []
        self.labels: dict[str, int] = {}
        self.variables: list[Variable] = []
        self.scopes = 0
        self.source: tuple[str, int] | None = None

    def fail(self, reason: str, line: int) -> PtxError:
        return PtxError(reason, file=self.module.file, line=line)

    def program(self) -> Program:
        outer = _Scope("", None)
        for variable in self.module.variables:
            self.declare(variable, outer)
        self.block(self.entry.body, _Scope("", outer))
        steps = tuple(self.step(*item) for item in self.pending)
        if not steps or steps[-1].guard is not None or not isinstance(steps[-1].operation.effect, Exit | Branch | Trap):
            raise self.fail("control can run off the end of the kernel", self.entry.line)
        program = Program(
            self.entry.name,
            self.entry.params,
            steps,
            tuple(self.variables),
            self.shape("reqntid"),
            self.maximum(),
            self.module.target,
            self.module.file,
        )
        _check_waits(program)
        return program

    def limit(self, name: str) -> tuple[int, ...] | None:
        found = [directive for directive in self.entry.limits if directive.name == name]
        if len(found) > 1:
            raise self.fail(f".{name} is given twice", found[1].line)
        return tuple(int(text) for text in found[0].arguments) if found else None

    def shape(self, name: str) -> tuple[int, int, int] | None:
        values = self.limit(name)
        if values is None:
            return None
        x, y, z = (*values, 1, 1)[:3]
        return (x, y, z)

    def maximum(self) -> int | None:
        shape = self.shape("maxntid")
        return None if shape is None else shape[0] * shape[1] * shape[2]

    # --- scopes -----------------------------------------------------------------------------------------------

    def block(self, block: Block, scope: _Scope) -> None:
        for statement in block.statements:
            if isinstance(statement, Label):
                if statement.name in scope.labels:
                    raise self.fail(f"label {statement.name!r} is defined twice", statement.line)
                scope.labels.add(statement.name)
        for statement in block.statements:
            match statement:
                case RegisterDeclaration():
                    self.register(statement, scope)
                case Variable():
                    self.declare(statement, scope)
                case Location(file, line):
                    self.source = (self.files[file], line) if file in self.files and line else None
                case Label(name):
                    self.labels[name + scope.suffix] = len(self.pending)
                case Instruction():
                    self.pending.append((statement, scope, self.source))
                case Block():
                    self.scopes += 1
                    self.block(statement, _Scope(f"@{self.scopes}", scope))
                case Directive():
                    pass

    def declare(self, variable: Variable, scope: _Scope) -> None:
        if any(known.name == variable.name for known in self.variables):
            raise self.fail(f"variable {variable.name!r} is declared twice", variable.line)
        scope.variables[variable.name] = variable
        self.variables.append(variable)

    def register(self, declared: RegisterDeclaration, scope: _Scope) -> None:
        width = WIDTHS[declared.type]
        if width == 8:
            raise self.fail(f"register {declared.name!r}: 8-bit registers are not supported", declared.line)
        if declared.name in scope.registers or declared.name in scope.ranges:
            raise self.fail(f"register {declared.name!r} is declared twice", declared.line)
        if declared.count is None:
            scope.registers[declared.name] = Register(declared.name + scope.suffix, width)
        else:
            scope.ranges[declared.name] = (declared.count, width)

    # --- instructions -----------------------------------------------------------------------------------------

    def step(self, instruction: Instruction, scope: _Scope, source: tuple[str, int] | None) -> Step:
        rows = lookup(instruction.opcode)
        text = print_instruction(instruction)
        if not rows:
            hint = suggestion(instruction.opcode)
            raise self.fail(f"no meaning is given to {instruction.opcode!r}{hint}", instruction.line)
        problems: list[str] = []
        for operation in rows:
            try:
                operands = tuple(self.operands(operation, instruction, scope))
            except _MismatchError as mismatch:
                problems.append(str(mismatch))
                continue
            return Step(operation, operands, self.guard(instruction, scope), instruction.line, source, text)
        raise self.fail(f"{text[:200]}: {' / '.join(dict.fromkeys(problems))}", instruction.line)

    def guard(self, instruction: Instruction, scope: _Scope) -> Guard | None:
        if instruction.predicate is None:
            return None
        register = scope.register(instruction.predicate.name)
        if register is None or register.width != 1:
            raise self.fail(f"{instruction.predicate.name!r} is not a predicate", instruction.line)
        return Guard(register, instruction.predicate.negated)

    def operands(self, operation: Operation, instruction: Instruction, scope: _Scope) -> Iterator[Value]:
        if len(instruction.operands) != len(operation.slots):
            raise _MismatchError(f"{len(operation.slots)} operands are needed, {len(instruction.operands)} given")
        for position, (slot, operand) in enumerate(zip(operation.slots, instruction.operands, strict=True), start=1):
            try:
                yield from self.fit(slot, operand, operation, scope)
            except _MismatchError as mismatch:
                wanted = slot.kind.value + (f" of {slot.width} bits" if slot.width > 1 else "")
                detail = f" ({mismatch})" if str(mismatch) else ""
                raise _MismatchError(f"operand {position} must be {wanted}{detail}") from None

    def fit(self, slot: Slot, operand: Operand, operation: Operation, scope: _Scope) -> Iterator[Value]:
        match slot.kind, operand:
            case ((Kind.RESULT | Kind.PREDICATE_RESULT), Name(name)):
                yield self.sized(name, slot, scope)
            case Kind.VALUE, (Name() | Immediate()):
                yield self.value(operand, slot, scope)
            case Kind.PREDICATE, Name(name):
                yield self.sized(name, slot, scope)
            case Kind.PREDICATE, Immediate(value, 0) if value in (0, 1, -1):
                yield Constant(int(value != 0))
            case Kind.CONSTANT, Immediate(value, 0):
                yield Constant(_pattern(value, slot.width))
            case Kind.RESULTS, Vector(items):
                yield from self.vector(items, slot, scope, sinks=True)
            case Kind.VALUES, Vector(items):
                yield from self.vector(items, slot, scope, sinks=False)
            case Kind.ADDRESS, Address():
                yield self.address(operand, slot, operation, scope)
            case Kind.PARAMETER, Address(Name(name), offset):
                yield self.parameter(name, offset, operation)
            case Kind.LABEL, Name(name):
                yield self.target(name, scope)
            case Kind.SPECIAL, Name(name) if name in SPECIALS:
                yield Special(name)
            case Kind.SYMBOL, (Name() | Offset()):
                yield self.symbol(operand, slot, scope)
            case Kind.ELECTED, Pair(first, Name(second)):
                yield None if isinstance(first, Sink) else self.sized(first.text, Slot(Kind.RESULT), scope)
                yield self.sized(second, Slot(Kind.PREDICATE_RESULT, 1), scope)
            case Kind.SHUFFLED, Name(name):
                yield self.sized(name, Slot(Kind.RESULT), scope)
                yield None
            case Kind.SHUFFLED, Pair(Name(name), second):
                yield self.sized(name, Slot(Kind.RESULT), scope)
                predicate = Slot(Kind.PREDICATE_RESULT, 1)
                yield None if isinstance(second, Sink) else self.sized(second.text, predicate, scope)
            case _:
                raise _MismatchError

    def sized(self, name: str, slot: Slot, scope: _Scope) -> Register:
        register = scope.register(name)
        if register is None:
            raise _MismatchError(f"{name!r} is not a register")
        fits = register.width > slot.width if slot.wider else False
        if register.width != slot.width and not (fits and slot.width > 1):
            raise _MismatchError(f"{name!r} has {register.width} bits")
        return register

    def value(self, operand: Name | Immediate, slot: Slot, scope: _Scope) -> Register | Constant:
        if isinstance(operand, Name):
            return self.sized(operand.text, slot, scope)
        if operand.bits and operand.bits != slot.width:
            raise _MismatchError(f"a {operand.bits}-bit floating-point constant")
        return Constant(_pattern(operand.value, slot.width))

    def vector(
        self, items: tuple[Name | Immediate | Sink, ...], slot: Slot, scope: _Scope, *, sinks: bool
    ) -> Iterator[Register | Constant | None]:
        if len(items) != slot.count:
            raise _MismatchError(f"{slot.count} elements are needed, {len(items)} given")
        names = [item.text for item in items if isinstance(item, Name)]
        if sinks and len(set(names)) != len(names):
            raise _MismatchError("one register twice in a result vector")
        for item in items:
            if isinstance(item, Sink) and sinks:
                yield None
            elif isinstance(item, Name) or (isinstance(item, Immediate) and not sinks):
                yield self.value(item, slot, scope)
            else:
                raise _MismatchError

    def address(self, operand: Address, slot: Slot, operation: Operation, scope: _Scope) -> Memory:
        if isinstance(operand.base, Immediate):
            raise _MismatchError("absolute addresses are not supported")
        register = scope.register(operand.base.text)
        if register is not None:
            if register.width != slot.width and (slot.width, register.width) != (32, 64):
                raise _MismatchError(f"{operand.base.text!r} has {register.width} bits")
            return Memory(register, operand.offset)
        variable = scope.variable(operand.base.text)
        if variable is None:
            raise _MismatchError(f"{operand.base.text!r} is neither a register nor a variable")
        effect = operation.effect
        space = effect.space if isinstance(effect, Load | Store) else "shared" if slot.width == 32 else "global"
        if variable.space != space:
            raise _MismatchError(f"{variable.name!r} lies in .{variable.space}, the access is to .{space or 'generic'}")
        return Memory(Symbol(variable.name), operand.offset)

    def parameter(self, name: str, offset: int, operation: Operation) -> ParamRef:
        for index, param in enumerate(self.entry.params):
            if param.name != name:
                continue
            size = param.count or WIDTHS[param.type] // 8
            width = operation.effect.width // 8 if isinstance(operation.effect, Load) else 0
            if offset < 0 or offset + width > size or offset % width:
                raise _MismatchError(f"bytes {offset} to {offset + width - 1} of the {size} bytes of {name!r}")
            return ParamRef(index, offset)
        raise _MismatchError(f"{name!r} is not a parameter")

    def target(self, name: str, scope: _Scope) -> Target:
        unique = scope.label(name)
        if unique is None:
            raise _MismatchError(f"{name!r} is not a label in scope")
        step = self.labels[unique]
        if step >= len(self.pending):
            raise _MismatchError(f"{name!r} stands at the end of the kernel, where there is nothing to execute")
        return Target(step)

    def symbol(self, operand: Name | Offset, slot: Slot, scope: _Scope) -> Symbol:
        name, offset = (operand.text, 0) if isinstance(operand, Name) else (operand.base.text, operand.offset)
        variable = scope.variable(name)
        if variable is None or scope.register(name) is not None:
            raise _MismatchError(f"{name!r} is not a variable")
        if slot.width == 32 and variable.space != "shared":
            raise _MismatchError(f"the address of {name!r} in .{variable.space} has 64 bits")
        return Symbol(name, offset)


def _pattern(value: int, width: int) -> int:
    if not -(1 << (width - 1)) <= value < 1 << width:
        raise _MismatchError(f"{value} does not fit {width} bits")
    return value % (1 << width)


def _check_waits(program: Program) -> None:
    """A ``try_wait`` may give up early, so its result must lead straight back to it when false."""
    for index, step in enumerate(program.steps):
        if isinstance(step.operation.effect, BarrierTryWait):
            at = _follow(program, index, step)
            if at != index or step.guard is not None:
                raise PtxError(
                    f"{step.text}: only a loop that repeats the wait until it succeeds is supported",
                    file=program.file,
                    line=step.line,
                )


def _follow(program: Program, index: int, wait: Step) -> int:
    """Where control goes from a failed wait, over branches alone; -1 when anything else is executed."""
    at = index + 1
    for _ in range(8):
        step = program.steps[at] if at < len(program.steps) else None
        if step is None or not isinstance(step.operation.effect, Branch):
            return -1
        target = step.operands[0]
        assert isinstance(target, Target)
        taken = True
        if step.guard is not None:
            if step.guard.register != wait.operands[0]:
                return -1
            taken = step.guard.negated
        at = target.step if taken else at + 1
        if at == index:
            return index
    return -1
