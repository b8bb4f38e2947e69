"""Execute one unknown thread of a kernel whose parameters and grid are unknown, on the words of the third domain.

The result is the list of memory accesses in program order, each with the conditions under which it happens.  Loops
whose conditions are constants are unrolled; where paths part they are executed under their conditions and merged where
they meet, register by register when it is read.  What has no meaning here is refused with its line.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import z3

from verify.ptx.bytewise import Byte
from verify.ptx.errors import PtxError
from verify.ptx.ops_base import BlockBarrier, Branch, Compute, Exit, Load, Store, WarpBarrier
from verify.ptx.parametric import loops
from verify.ptx.parametric.events import Access, Conditions, Run, Stage
from verify.ptx.parametric.facts import Facts
from verify.ptx.parametric.loops import Loop, LoopError, PeriodError, Phase
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word, Words
from verify.ptx.program import Constant, Memory, ParamRef, Program, Register, Special, Step, Symbol, Target

__all__ = ["execute"]

_QUESTIONS: Final = 3000
"""Questions to the solver after which a loop counts as too long, like one of too many steps."""
_UNKNOWN: Final = "a loop whose number of trips depends on unknowns"


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
) -> Run:
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


class _StepError(PtxError):
    """A loop that may be understood if more of its trips are one step."""


class _LoopRefusedError(PtxError):
    """A loop that is not understood however many of its trips are one step."""


class _Execution:
    def __init__(
        self, program: Program, words: Words, specials: Mapping[str, Word], params: Mapping[int, Word]
    ) -> None:
        self.program, self.words, self.specials, self.params = program, words, specials, params
        self.facts: Facts = words.facts
        self.accesses: list[Access] = []
        self.ready: dict[int, _Path] = {}
        self.epochs = (0, 0)
        self.barriers: list[Conditions] = []
        self.headers = loops.headers(program)
        self.loops: dict[int, Loop] = {}
        self.staged: int | None = None
        self.stage: Stage | None = None

    def fail(self, reason: str, step: Step) -> PtxError:
        return PtxError(f"{reason}: {step.text}", file=self.program.file, line=step.line)

    # --- paths ------------------------------------------------------------------------------------------------

    def run(self, max_steps: int) -> Run:
        self.ready = {0: _Path(())}
        left, asked = max_steps, self.facts.queries
        while self.ready:
            at = min(self.ready)
            path = self.ready.pop(at)
            while True:
                left -= 1
                step = self.program.steps[at]
                if left < 0 or self.facts.queries > asked + _QUESTIONS:
                    raise self.fail("too many steps", step)
                if at in self.headers:
                    self.enter(at, step, path)
                try:
                    following = self.step(at, step, path)
                except PtxError as error:
                    self.longer_steps(error)
                    break
                if following is None:
                    break
                at = following
                if self.ready and at >= min(self.ready):
                    self.add(at, path)
                    break
        for at, loop in self.loops.items():
            if loop.under_way:
                raise self.fail(f"{_UNKNOWN}: its end is not reached", self.program.steps[at])
        return Run(tuple(self.accesses), tuple(self.barriers), self.stage)

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
        if isinstance(target, Target) and target.step <= at:
            loop = self.loops.get(target.step)
            if loop is None:
                raise self.fail("a loop that is entered in the middle", step)
            if taken is None or (loop.staged and loop.phase is not Phase.DONE):
                try:
                    return self.repeat(loop, guard, (target.step, at), path)
                except LoopError as error:
                    kind = _StepError if isinstance(error, PeriodError) else _LoopRefusedError
                    reason = f"{_UNKNOWN}: {error}: {step.text}"
                    raise kind(reason, file=self.program.file, line=step.line) from None
        if taken is False:
            return at + 1
        if taken:
            return target.step if isinstance(target, Target) else None
        rest = (*path.conditions, self.words.bool_not(guard))
        if not isinstance(target, Target):
            path.conditions = rest
            return at + 1
        self.add(target.step, _Path((*path.conditions, guard), dict(path.registers)))
        self.add(at + 1, _Path(rest, path.registers))
        return None

    # --- loops ------------------------------------------------------------------------------------------------

    def enter(self, at: int, step: Step, path: _Path) -> None:
        """Note how a loop begins."""
        if at in self.loops and self.loops[at].phase is Phase.DONE:
            if self.loops[at].staged:
                raise self.fail("a loop with barriers or shared memory is begun a second time", step)
            del self.loops[at]
        if at not in self.loops:
            begun = dict(path.registers)
            loop = Loop(begun, path.conditions, len(self.accesses), self.epochs, dict(self.ready), path.conditions)
            loop.restart(1)
            loop.effort = self.facts.effort
            self.loops[at] = loop

    def repeat(self, loop: Loop, guard: Pred, ends: tuple[int, int], path: _Path) -> int | None:
        """The end of a trip; ``ends`` are the loop's first step and its last."""
        first, at = ends
        if loop.phase is Phase.DONE:
            raise LoopError("it goes back from several places")
        self.check_trip(loop, guard, first, path)
        loop.turn += 1
        if loop.phase is Phase.LEARN:
            loop.guards.append(guard)
        if loop.phase is Phase.FINAL:
            if loop.guards[loop.turn - 1].condition.get_id() != guard.condition.get_id():
                raise LoopError("when it goes on differs between trips")
            guard = loop.goes_on[loop.turn - 1]
            loop.steady = {name for name in loop.steady if path.registers.get(name) is loop.registers.get(name)}
        if loop.turn < loop.period:
            loop.begins.append(len(self.accesses))
            path.conditions = loop.path = (*path.conditions, guard)
            return first
        if loop.phase is Phase.MEASURE:
            loops.measure(loop, path.registers, self.facts)
            self.again(loop, first, Phase.LEARN)
            return None
        loops.check_step(loop, path.registers)
        if loop.phase is Phase.LEARN:
            try:
                happens = loops.going_on(loop, self.facts)
            except LoopError:
                if not loop.bounds:
                    raise
                loop.guards = []
                loops.next_bound(loop, self.facts)
                self.again(loop, first, Phase.LEARN)
                return None
            loop.steady = set(loop.registers)
            self.again(loop, first, Phase.FINAL, happens)
            return None
        loop.phase = Phase.DONE
        if loop.staged:
            self.stage = self.staged_by(loop, (*path.conditions, guard))
        # What the loop leaves in its registers is not followed.
        path.conditions, path.registers = loop.conditions, {name: loop.registers[name] for name in loop.steady}
        return at + 1

    def check_trip(self, loop: Loop, guard: Pred, first: int, path: _Path) -> None:
        """Whoever begins a trip comes to its end, and threads that meet at barriers go round together."""
        waiting = loop.waiting
        stayed = len(path.conditions) == len(loop.path) and all(map(operator.is_, path.conditions, loop.path))
        alone = self.ready.keys() == waiting.keys() and all(self.ready[at] is waiting[at] for at in waiting)
        if not stayed or not alone:
            raise LoopError("it has several ways out")
        if not loop.staged:
            shared = any(access.space != "global" for access in self.accesses[loop.accesses :])
            if self.epochs == loop.epochs and not shared:
                return
            if self.staged is not None:
                raise LoopError("a second loop with barriers or shared memory")
            loop.staged, self.staged = True, first
            if loop.phase is not Phase.MEASURE:
                raise PeriodError("it has barriers or uses shared memory in some trips only")
        if any(inner.trip is not None for at, inner in self.loops.items() if at > first):
            raise LoopError("a loop of unknown length inside one with barriers or shared memory")
        if not all(self.facts.is_uniform(c.condition) for c in (*loop.conditions, guard)):
            raise PeriodError("it has barriers or uses shared memory, and threads of a block may go round differently")

    def check_place(self, step: Step, address: Poly) -> None:
        """While a loop that stages data is learned: an address in shared memory is the same in every step."""
        loop = None if self.staged is None else self.loops[self.staged]
        if loop is None or loop.phase is not Phase.LEARN:
            return
        bases = Poly({(name,): 1 for name in address.atoms if name.startswith("&")}, self.facts)
        if self.facts.table(address - bases) is None:
            reason = f"a shared address depends on more than the thread index and the trip modulo {loop.period}"
            raise _StepError(f"{reason}: {step.text}", file=self.program.file, line=step.line)

    def again(self, loop: Loop, first: int, phase: Phase, happens: Pred | None = None) -> None:
        """Execute a loop once more, for an unknown step."""
        assert loop.trip is not None
        self.rewind(loop, first)
        loop.phase, loop.turn, loop.begins = phase, 0, [loop.accesses]
        loop.path = loop.conditions if happens is None else (*loop.conditions, happens)
        self.add(first, _Path(loop.path, loops.begin_trip(loop, loop.trip)))

    def rewind(self, loop: Loop, first: int) -> None:
        """Forget what a loop did."""
        del self.accesses[loop.accesses :]
        del self.barriers[loop.epochs[0] :]
        self.epochs = loop.epochs
        self.ready = dict(loop.waiting)
        for inner in [at for at in self.loops if at > first]:
            del self.loops[inner]

    def longer_steps(self, error: PtxError) -> None:
        """Where a step of a loop that stages data went wrong, try one of more trips."""
        loop = None if self.staged is None else self.loops[self.staged]
        if loop is None or isinstance(error, _LoopRefusedError) or loop.period >= loops.PERIODS:
            raise error
        measured = loop.phase is Phase.MEASURE and isinstance(error, _StepError)
        if not measured and loop.phase is not Phase.LEARN:
            raise error
        if self.facts.effort - loop.effort > loops.EFFORT:
            raise error
        assert self.staged is not None
        self.rewind(loop, self.staged)
        loop.restart(loop.period + 1)
        loop.path = loop.conditions
        self.ready[self.staged] = _Path(loop.conditions, dict(loop.entry))

    def staged_by(self, loop: Loop, end: Conditions) -> Stage:
        """The step of a loop that stages data; ``end`` holds when another one follows."""
        assert loop.trip is not None
        self.facts.path = tuple(c.condition for c in end)
        firm = set()
        for number in range(loop.epochs[0], self.epochs[0]):
            wanted = [c.condition for c in self.barriers[number] if not any(c is known for known in end)]
            if not wanted or self.facts.prove(z3.And(*wanted)).ok:
                firm.add(number)
        accesses, barriers = (loop.accesses, len(self.accesses)), (loop.epochs[0], self.epochs[0])
        again = z3.And(*(guard.condition for guard in loop.goes_on))
        return Stage(accesses, barriers, loop.trip, tuple(loop.begins), frozenset(firm), again)

    def barrier(self, step: Step, guard: Pred, path: _Path) -> None:
        """A barrier orders only when everybody comes: its conditions are those of the whole block."""
        conditions = path.conditions if guard.known else (*path.conditions, guard)
        block, warp = self.epochs
        if not all(self.facts.is_uniform(c.condition) for c in conditions):
            raise self.fail("a barrier that some threads may not reach", step)
        if isinstance(step.operation.effect, BlockBarrier):
            if step.operands[0] != Constant(0):
                raise self.fail("only barrier 0 is supported", step)
            self.barriers.append(conditions)
            self.epochs = (block + 1, 0)
            return
        if conditions:
            raise self.fail("a warp barrier that depends on unknowns", step)
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
        if effect.space == "shared":
            self.check_place(step, address)
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
