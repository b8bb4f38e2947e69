"""Execute one unknown thread of a kernel whose parameters and grid are unknown, on the words of the third domain.

The result is the list of memory accesses in program order, each with the conditions under which it happens.  Loops
whose conditions are constants are unrolled; where paths part they are executed under their conditions and merged where
they meet, register by register when it is read.  What has no meaning here is refused with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from verify.ptx.bytewise import Byte
from verify.ptx.errors import PtxError
from verify.ptx.ops_base import BlockBarrier, Branch, Compute, Exit, Load, Store, WarpBarrier
from verify.ptx.parametric import loops
from verify.ptx.parametric.facts import PRODUCT, Facts, constants
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word, Words
from verify.ptx.program import Constant, Memory, ParamRef, Program, Register, Special, Step, Symbol, Target

__all__ = ["Access", "execute"]

Conditions = tuple[Pred, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store of the thread.

    Attributes:
        number: position in the list of all accesses.
        conditions: when it happens; all of them hold.
        address: a number that the address equals modulo ``2**width``.
        size: bytes.
        values: the words that are stored, or those that stand for what is loaded.
        block_epoch, warp_epoch: barriers passed before.
    """

    number: int
    step: Step
    write: bool
    space: str
    conditions: Conditions
    address: Poly
    width: int
    size: int
    values: tuple[Word, ...]
    block_epoch: int
    warp_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class _Merge:
    """A register that depends on the way to here; ``None`` where it was not written."""

    condition: Pred
    yes: Word | Pred | _Merge | None
    no: Word | Pred | _Merge | None


@dataclass(slots=True)
class _Path:
    conditions: Conditions
    registers: dict[str, Word | Pred | _Merge | None] = field(default_factory=dict)


def execute(
    program: Program, words: Words, *, specials: Mapping[str, Word], params: Mapping[int, Word], max_steps: int = 50_000
) -> tuple[Access, ...]:
    """Execute a kernel for an unknown thread.

    Args:
        words: the domain; its facts know the atoms of specials and parameters.
        specials: a word per special register.
        params: a word per parameter position.
        max_steps: steps after which a loop counts as too long.

    Raises:
        PtxError: an operation without a meaning here, or a loop whose end depends on unknowns.
    """
    return _Execution(program, words, specials, params).run(max_steps)


class _Execution:
    def __init__(
        self, program: Program, words: Words, specials: Mapping[str, Word], params: Mapping[int, Word]
    ) -> None:
        self.program, self.words, self.specials, self.params = program, words, specials, params
        self.facts: Facts = words.facts
        self.accesses: list[Access] = []
        self.ready: dict[int, _Path] = {}
        self.epochs = (0, 0)
        self.headers = loops.headers(program)
        self.loops: dict[int, loops.Loop] = {}

    def fail(self, reason: str, step: Step) -> PtxError:
        return PtxError(f"{reason}: {step.text}", file=self.program.file, line=step.line)

    # --- paths ------------------------------------------------------------------------------------------------

    def run(self, max_steps: int) -> tuple[Access, ...]:
        self.ready = {0: _Path(())}
        left = max_steps
        while self.ready:
            at = min(self.ready)
            path = self.ready.pop(at)
            while True:
                left -= 1
                step = self.program.steps[at]
                if left < 0:
                    raise self.fail("too many steps", step)
                if at in self.headers and at not in self.loops:
                    self.loops[at] = loops.Loop(
                        dict(path.registers), path.conditions, len(self.accesses), self.epochs, frozenset(self.ready)
                    )
                following = self.step(at, step, path)
                if following is None:
                    break
                at = following
                if self.ready and at >= min(self.ready):
                    self.add(at, path)
                    break
        return tuple(self.accesses)

    def add(self, at: int, path: _Path) -> None:
        """Let a path go on from a step, merging it with another one that waits there."""
        other = self.ready.get(at)
        if other is None:
            self.ready[at] = path
            return
        common = 0
        for mine, its in zip(path.conditions, other.conditions, strict=False):
            if mine is not its:
                break
            common += 1
        mine, its = (self.all_of(p.conditions[common:]) for p in (path, other))
        merged: dict[str, Word | Pred | _Merge | None] = {}
        for name in {**other.registers, **path.registers}:
            first, second = path.registers.get(name), other.registers.get(name)
            merged[name] = first if first is second else _Merge(mine, first, second)
        either = self.words.bool_or(mine, its)
        conditions = path.conditions[:common]
        if either.known is None and not self.implied(either.condition, conditions):
            conditions = (*conditions, either)
        self.ready[at] = _Path(conditions, merged)

    def all_of(self, conditions: Conditions) -> Pred:
        total = self.words.bool_const(True)
        for condition in conditions:
            total = self.words.bool_and(total, condition)
        return total

    def implied(self, condition: Any, conditions: Conditions) -> bool:
        """Whether what is known implies a condition."""
        self.facts.path = tuple(c.condition for c in conditions)
        return self.facts.prove(condition).ok

    def step(self, at: int, step: Step, path: _Path) -> int | None:
        effect = step.operation.effect
        words = self.words
        words.line, words.text = step.line, step.text
        self.facts.path = tuple(c.condition for c in path.conditions)
        guard = words.bool_const(True)
        if step.guard is not None:
            guard = self.truth(step.guard.register, step, path)
            guard = words.bool_not(guard) if step.guard.negated else guard
        if isinstance(effect, Branch | Exit):
            return self.turn(at, step, guard, path)
        if guard.known is False:
            return at + 1
        if isinstance(effect, BlockBarrier | WarpBarrier):
            self.barrier(step, guard, path)
        elif isinstance(effect, Compute):
            self.compute(step, effect, guard, path)
        elif isinstance(effect, Load) and effect.space == "param":
            self.load_param(step, effect, guard, path)
        elif isinstance(effect, Load | Store):
            self.access(step, effect, guard, path)
        else:
            raise self.fail("not supported for unknown sizes", step)
        return at + 1

    def turn(self, at: int, step: Step, guard: Pred, path: _Path) -> int | None:
        """A branch or an end: follow, or part under the condition."""
        target = None if isinstance(step.operation.effect, Exit) else step.operands[0]
        taken = guard.known
        if taken is None and self.implied(guard.condition, path.conditions):
            taken = True
        if taken is None and self.implied(z3.Not(guard.condition), path.conditions):
            taken = False
        if taken is False:
            return at + 1
        if taken:
            return target.step if isinstance(target, Target) else None
        rest = (*path.conditions, self.words.bool_not(guard))
        if not isinstance(target, Target):
            path.conditions = rest
            return at + 1
        if target.step <= at:
            try:
                return self.repeat(self.loops[target.step], guard, target.step, at, path)
            except loops.LoopError as error:
                raise self.fail(f"a loop whose number of trips depends on unknowns: {error}", step) from None
        self.add(target.step, _Path((*path.conditions, guard), dict(path.registers)))
        self.add(at + 1, _Path(rest, path.registers))
        return None

    def repeat(self, loop: loops.Loop, guard: Pred, first: int, at: int, path: _Path) -> int | None:
        """The end of a trip: of the first one, of an unknown one to learn when the loop goes on, of a final one."""
        shared = any(access.space != "global" for access in self.accesses[loop.accesses :])
        if self.epochs != loop.epochs or shared or frozenset(self.ready) != loop.waiting:
            raise loops.LoopError("it has barriers, uses shared memory, or has several ways out")
        facts = self.facts
        if loop.trip is None:
            loops.measure(loop, path.registers, facts)
            self.again(loop, (), first)
            return None
        loops.check_step(loop, path.registers)
        trip = facts.term(loop.trip)
        if loop.again is None:
            loop.again = guard.condition
            before = loops.at_trip(facts, loop, guard.condition, loop.trip - 1)
            last = loops.at_trip(facts, loop, guard.condition, facts.number(loop.most))
            self.facts.path = tuple(c.condition for c in loop.conditions)
            products = [fact for name in constants(before) for fact in self.about(name)]
            if not facts.prove(z3.Implies(z3.And(trip >= 1, guard.condition), before), extra=products).ok:
                raise loops.LoopError("it is not proved that the trips before a trip happen")
            if not facts.prove(z3.Not(last), extra=products).ok:
                raise loops.LoopError("it is not proved that it ends")
            self.again(loop, (Pred(z3.Or(trip == 0, before)),), first)
            return None
        if loop.again.get_id() != guard.condition.get_id():
            raise loops.LoopError("when it goes on differs between trips")
        # What the loop leaves in its registers is not followed.
        kept = {name: value for name, value in loop.registers.items() if name not in loop.growth}
        path.conditions, path.registers = loop.conditions, kept
        return at + 1

    def about(self, name: str) -> list[Any]:
        """What the solver should know of a product."""
        return self.facts.products(Poly({tuple(name.split(PRODUCT)): 1}, self.facts))

    def again(self, loop: loops.Loop, conditions: Conditions, first: int) -> None:
        """Execute a loop once more, for an unknown trip."""
        assert loop.trip is not None
        del self.accesses[loop.accesses :]
        for inner in [at for at in self.loops if at > first]:
            del self.loops[inner]
        self.add(first, _Path((*loop.conditions, *conditions), loops.begin_trip(loop, loop.trip)))

    def barrier(self, step: Step, guard: Pred, path: _Path) -> None:
        """A barrier orders only when everybody comes."""
        if path.conditions or guard.known is not True:
            raise self.fail("a barrier that some threads may not reach", step)
        block, warp = self.epochs
        if isinstance(step.operation.effect, BlockBarrier):
            if step.operands[0] != Constant(0):
                raise self.fail("only barrier 0 is supported", step)
            self.epochs = (block + 1, 0)
            return
        members = self.value(step.operands[0], 32, step, path)
        if members.value.constant is None or members.value.constant % (1 << 32) != 0xFFFFFFFF:
            raise self.fail("only the full member mask is supported", step)
        self.epochs = (block, warp + 1)

    # --- registers --------------------------------------------------------------------------------------------

    def value(self, operand: object, width: int, step: Step, path: _Path) -> Word:
        match operand:
            case Register():
                found = self.register(operand, step, path)
                assert isinstance(found, Word)
                return found
            case Constant(value):
                return self.words.const(value, width)
            case Special(name):
                if name not in self.specials:
                    raise self.fail(f"{name} is not supported for unknown sizes", step)
                return self.specials[name]
            case Symbol(name, offset):
                return self.words.word(width, self.symbol(name, step) + offset)
            case _:
                raise AssertionError(operand)

    def symbol(self, name: str, step: Step) -> Poly:
        if self.program.variable(name).space != "shared":
            raise self.fail("tables in global or constant memory are not supported for unknown sizes", step)
        return Poly({(f"&{name}",): 1}, self.facts)

    def truth(self, operand: object, step: Step, path: _Path) -> Pred:
        if isinstance(operand, Constant):
            return self.words.bool_const(bool(operand.value))
        assert isinstance(operand, Register)
        found = self.register(operand, step, path)
        assert isinstance(found, Pred)
        return found

    def register(self, register: Register, step: Step, path: _Path) -> Word | Pred:
        if register.name not in path.registers:
            raise self.fail(f"{register.name} is read before it is written", step)
        found = self.resolved(path.registers[register.name], register)
        path.registers[register.name] = found
        return found

    def resolved(self, found: Word | Pred | _Merge | None, register: Register) -> Word | Pred:
        if isinstance(found, _Merge):
            yes, no = self.resolved(found.yes, register), self.resolved(found.no, register)
            return self.chosen(found.condition, yes, no)
        if found is not None:
            return found
        if register.width == 1:
            return Pred(self.facts.term(self.facts.atom(self.facts.fresh("undefined"), 0, 1)) >= 1)
        row = tuple(Byte("undefined!", index) for index in range(register.width // 8))
        return self.words.opaque(register.width, "undefined", row)

    def chosen(self, condition: Pred, yes: Word | Pred, no: Word | Pred) -> Word | Pred:
        words = self.words
        if isinstance(yes, Word) and isinstance(no, Word):
            return words.ite(condition, yes, no)
        assert isinstance(yes, Pred)
        assert isinstance(no, Pred)
        return words.bool_or(words.bool_and(condition, yes), words.bool_and(words.bool_not(condition), no))

    def write(self, register: Register, value: Word | Pred, guard: Pred, path: _Path) -> None:
        if guard.known is not True:
            path.registers[register.name] = _Merge(guard, value, path.registers.get(register.name))
        else:
            path.registers[register.name] = value

    def compute(self, step: Step, effect: Compute, guard: Pred, path: _Path) -> None:
        words = self.words
        inputs: list[Word | Pred] = []
        operands = iter(step.operands)
        for position, slot in enumerate(step.operation.slots):
            for _ in range(slot.count):
                operand = next(operands)
                if position and slot.width == 1:
                    inputs.append(self.truth(operand, step, path))
                elif position:
                    inputs.append(words.trunc(self.value(operand, slot.width, step, path), slot.width))
        if effect.requires is not None:
            needed = effect.requires(words, *inputs)
            if needed.known is not True and not self.implied(needed.condition, (*path.conditions, guard)):
                raise self.fail(f"{effect.hazard} cannot be excluded", step)
        result = effect.meaning(words, *inputs)
        parts = result if isinstance(result, tuple) else (result,)
        for part, register in zip(parts, step.operands[: step.operation.slots[0].count], strict=True):
            if isinstance(register, Register):
                self.write(register, self.widened(part, register, signed=effect.signed), guard, path)

    def widened(self, value: Word | Pred, register: Register, *, signed: bool) -> Word | Pred:
        if isinstance(value, Pred):
            return value
        return self.words.sext(value, register.width) if signed else self.words.zext(value, register.width)

    # --- memory -----------------------------------------------------------------------------------------------

    def load_param(self, step: Step, effect: Load, guard: Pred, path: _Path) -> None:
        register, reference = step.operands
        assert isinstance(register, Register)
        assert isinstance(reference, ParamRef)
        word = self.params[reference.index]
        if reference.offset or effect.width != word.width:
            raise self.fail("part of a parameter", step)
        self.write(register, self.widened(word, register, signed=effect.signed), guard, path)

    def access(self, step: Step, effect: Load | Store, guard: Pred, path: _Path) -> None:
        if effect.space not in ("global", "shared"):
            raise self.fail(f"{effect.space or 'generic'} memory is not supported for unknown sizes", step)
        loads = isinstance(effect, Load)
        operand = step.operands[-1] if loads else step.operands[0]
        assert isinstance(operand, Memory)
        width = operand.base.width if isinstance(operand.base, Register) else 32
        address = self.value(operand.base, width, step, path).value + operand.offset
        if isinstance(effect, Load):
            name = f"data!{len(self.accesses)}"
            size = effect.width // 8
            rows = [tuple(Byte(name, size * at + i) for i in range(size)) for at in range(effect.count)]
            values = tuple(self.words.opaque(effect.width, "data", row) for row in rows)
            for value, register in zip(values, step.operands[: effect.count], strict=True):
                if isinstance(register, Register):
                    self.write(register, self.widened(value, register, signed=effect.signed), guard, path)
        else:
            given = (self.value(operand, effect.width, step, path) for operand in step.operands[1:])
            values = tuple(self.words.trunc(value, effect.width) for value in given)
        conditions = path.conditions if guard.known else (*path.conditions, guard)
        size = effect.width // 8 * effect.count
        number = len(self.accesses)
        self.accesses.append(
            Access(number, step, not loads, effect.space, conditions, address, width, size, values, *self.epochs)
        )
