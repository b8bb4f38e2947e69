"""Symbolic execution of one thread: its index, its block and the kernel's parameters are unknown.

The result is the list of memory accesses in program order, each with the condition under which it happens and with
address and values as solver terms.  Loops are followed as long as their conditions are constants (or decided by the
ranges of the unknowns); where paths part they are executed under their conditions and merged where they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import z3

from verify.ptx.domain_z3 import Z3
from verify.ptx.errors import PtxError
from verify.ptx.guesses import Guesses, is_contradiction
from verify.ptx.names import FreeNames
from verify.ptx.ops_base import (
    BlockBarrier,
    Branch,
    Compute,
    Exit,
    Load,
    Store,
    TmemAlloc,
    TmemDealloc,
    TmemFence,
    TmemLoad,
    TmemRelinquish,
    TmemStore,
    TmemWait,
    WarpBarrier,
)
from verify.ptx.parse import WIDTHS
from verify.ptx.partings import START, Marks, Partings
from verify.ptx.program import (
    Constant,
    Memory,
    ParamRef,
    Program,
    Register,
    Special,
    Step,
    Symbol,
    Target,
)
from verify.ptx.symwarp import WarpEffects
from verify.ptx.tree import Variable

__all__ = ["Access", "Thread", "execute", "linear_index"]

_MAX_STEPS = 50_000
_MAX_TABLE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store of the thread.

    Attributes:
        guard: when it happens.
        address: 64-bit term.
        size: bytes.
        values: per element the stored term, or the constant that stands for the loaded one.
        block_epoch, warp_epoch: barriers passed before.
    """

    step: Step
    write: bool
    space: str
    guard: Any
    address: Any
    size: int
    values: tuple[Any, ...]
    block_epoch: int
    warp_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Thread:
    """What a thread does.

    Attributes:
        accesses: loads and stores in program order, apart from tables and parameters.
        given: ranges of the unknowns.
        hazards: conditions that must hold for results to be defined, with the step and the words.
        indices: the unknown thread and block indices, ``tid.x`` and so on, as constants of as many bits as needed.
        tensor_bases: the unknown addresses of tensor-memory allocations.
        exchanges: regions that shuffles go through: base and bytes.
    """

    accesses: tuple[Access, ...]
    given: tuple[Any, ...]
    hazards: tuple[tuple[Any, Step, str], ...]
    indices: Mapping[str, Any]
    tensor_bases: tuple[Any, ...]
    exchanges: tuple[tuple[Any, int], ...] = ()


@dataclass(slots=True)
class Path:
    """Registers on the way to a step, and the condition under which the thread comes here."""

    condition: Any
    registers: dict[str, Any]
    marks: Marks = START


def linear_index(specials: Mapping[str, Any], block: tuple[int, int, int]) -> Any:
    """Number of the thread in its block."""
    x, y, _ = block
    return specials["%tid.x"] + x * (specials["%tid.y"] + y * specials["%tid.z"])


def execute(
    program: Program,
    *,
    block: tuple[int, int, int],
    grid: tuple[int, int, int],
    params: Mapping[int, Any],
    given: tuple[Any, ...],
    max_steps: int = _MAX_STEPS,
) -> Thread:
    """Execute a kernel for an unknown thread.

    Args:
        params: term per parameter position.
        given: facts about the parameters.
        max_steps: steps after which a loop counts as too long.

    Raises:
        PtxError: an operation that has no symbolic meaning here, or a loop that the ranges do not bound.
    """
    return Execution(program, block, grid, params, given).run(max_steps)


class Execution:
    def __init__(
        self,
        program: Program,
        block: tuple[int, int, int],
        grid: tuple[int, int, int],
        params: Mapping[int, Any],
        given: tuple[Any, ...],
    ) -> None:
        self.program, self.block, self.grid, self.params = program, block, grid, params
        self.given = list(given)
        self.specials: dict[str, Any] = {}
        self.accesses: list[Access] = []
        self.hazards: list[tuple[Any, Step, str]] = []
        self.ready: dict[int, Path] = {}
        self.epochs = (0, 0)
        self.fresh = 0
        self.slots: dict[int, tuple[Any, Any]] = {}
        self.free_names = FreeNames()
        self.warp = WarpEffects(self)
        self._unknowns()
        self.guesses = Guesses(block, grid)
        self.partings = Partings()
        self.decider = z3.SolverFor("QF_BV")
        self.decider.set("rlimit", 2_000_000)
        self.decider.add(*self.given)

    def _unknowns(self) -> None:
        for name, shape in (("tid", self.block), ("ctaid", self.grid)):
            for axis, extent in zip("xyz", shape, strict=True):
                register = f"{name}.{axis}"
                # As few bits as the extent needs: the simplifier then sees that the others are zero.
                bits = (extent - 1).bit_length()
                term = z3.ZeroExt(32 - bits, z3.BitVec(register, bits)) if bits else z3.BitVecVal(0, 32)
                self.specials[f"%{register}"] = term
                if bits and extent < 1 << bits:
                    self.given.append(z3.ULT(term, z3.BitVecVal(extent, 32)))
                self.specials[f"%n{register}"] = z3.BitVecVal(extent, 32)
        self.thread_number = z3.simplify(linear_index(self.specials, self.block))
        self.specials["%laneid"] = z3.simplify(self.thread_number & 31)

    def fail(self, reason: str, step: Step) -> PtxError:
        return PtxError(f"{reason}: {step.text}", file=self.program.file, line=step.line)

    # --- paths ------------------------------------------------------------------------------------------------

    def run(self, max_steps: int) -> Thread:
        self.ready = {0: Path(z3.BoolVal(True), {})}
        left = max_steps
        while self.ready:
            at = min(self.ready)
            path = self.ready.pop(at)
            while path is not None:
                left -= 1
                step = self.program.steps[at]
                if left < 0:
                    raise self.fail("too many steps", step)
                following = self.step(at, step, path)
                if following is None:
                    break
                at = following
                if self.ready and at >= min(self.ready):
                    self.add(at, path)
                    break
        indices = {name: term.arg(0) for name, term in self.specials.items() if term.num_args() == 1}
        shown = {name[1:]: index for name, index in indices.items() if z3.is_const(index)}
        bases = tuple(base for _, base in self.slots.values())
        exchanges = tuple(self.warp.exchanges)
        return Thread(tuple(self.accesses), tuple(self.given), tuple(self.hazards), shown, bases, exchanges)

    def add(self, at: int, path: Path) -> None:
        """Let a path go on from a step, merging it with another one that waits there."""
        other = self.ready.get(at)
        if other is None:
            self.ready[at] = path
            return
        merged: dict[str, Any] = {}
        for name in {**other.registers, **path.registers}:
            first, second = other.registers.get(name), path.registers.get(name)
            if first is None or second is None:
                present = first if second is None else second
                first = self.unknown(present, "undefined") if first is None else first
                second = self.unknown(present, "undefined") if second is None else second
            same = first.get_id() == second.get_id()
            merged[name] = first if same else z3.simplify(z3.If(other.condition, first, second))
        marks, condition = self.partings.join((other.marks, other.condition), (path.marks, path.condition))
        self.ready[at] = Path(condition if self.possible(z3.Not(condition)) else z3.BoolVal(True), merged, marks)

    def unknown(self, like: Any, what: str) -> Any:
        """A constant of which nothing is known."""
        self.fresh += 1
        name = f"{what}!{self.fresh}"
        return z3.Bool(name) if z3.is_bool(like) else z3.BitVec(name, like.size())

    def step(self, at: int, step: Step, path: Path) -> int | None:
        effect = step.operation.effect
        guard = z3.BoolVal(True)
        if step.guard is not None:
            guard = self.register(step.guard.register, step, path)
            guard = z3.simplify(z3.Not(guard)) if step.guard.negated else guard
        if isinstance(effect, Branch | Exit):
            return self.turn(at, step, guard, path)
        if isinstance(effect, BlockBarrier | WarpBarrier):
            self.barrier(step, guard, path)
        elif isinstance(effect, Compute):
            self.compute(step, effect, guard, path)
        elif isinstance(effect, Load):
            self.load(step, effect, guard, path)
        elif isinstance(effect, Store):
            self.store(step, effect, guard, path)
        elif isinstance(effect, TmemAlloc):
            self.allocate(step, guard, path)
        elif isinstance(effect, TmemLoad | TmemStore):
            self.transfer(step, effect, guard, path)
        elif self.warp.handles(effect):
            self.warp.do(step, guard, path)
        elif not isinstance(effect, TmemDealloc | TmemRelinquish | TmemWait | TmemFence):
            raise self.fail("not supported in symbolic execution", step)
        return at + 1

    def turn(self, at: int, step: Step, guard: Any, path: Path) -> int | None:
        """A branch or an end: follow, or part under the condition."""
        ends = isinstance(step.operation.effect, Exit)
        target = -1
        if not ends:
            assert isinstance(step.operands[0], Target)
            target = step.operands[0].step
        taken = self.decide(z3.And(path.condition, guard), z3.And(path.condition, z3.Not(guard)), guard)
        if taken is None:
            if not ends and target <= at:
                raise self.fail("a loop whose end depends on unknowns", step)
            (yes, taken_under), (no, passed_under) = self.partings.part(path.marks, path.condition, guard)
            if ends:
                path.marks, path.condition = no, passed_under
                return at + 1
            self.add(target, Path(taken_under, dict(path.registers), yes))
            self.add(at + 1, Path(passed_under, path.registers, no))
            return None
        if not taken:
            return at + 1
        return None if ends else target

    def decide(self, yes: Any, no: Any, guard: Any) -> bool | None:
        """Whether a branch is always or never taken."""
        if z3.is_true(guard) or z3.is_false(guard):
            return bool(z3.is_true(guard))
        if not self.possible(no):
            return True
        if not self.possible(yes):
            return False
        return None

    def possible(self, condition: Any) -> bool:
        """Whether the ranges allow a condition; what cannot be decided is possible."""
        if self.guesses.fulfil(condition):
            return True
        if is_contradiction(condition):
            return False
        return bool(self.decider.check(condition) != z3.unsat)

    def barrier(self, step: Step, guard: Any, path: Path) -> None:
        """A barrier orders only when everybody comes."""
        if self.possible(z3.Not(z3.And(path.condition, guard))):
            raise self.fail("a barrier that some threads may not reach", step)
        if isinstance(step.operation.effect, BlockBarrier):
            if step.operands[0] != Constant(0):
                raise self.fail("only barrier 0 is supported", step)
            self.epochs = (self.epochs[0] + 1, 0)
            self.warp.pass_barrier(path)
            return
        members = self.value(step.operands[0], 32, step, path)
        if not z3.is_bv_value(members) or members.as_long() != 0xFFFFFFFF:
            raise self.fail("only the full member mask is supported", step)
        self.pass_warp_barrier(path)

    def pass_warp_barrier(self, path: Path) -> None:
        """The warp has met."""
        self.epochs = (self.epochs[0], self.epochs[1] + 1)
        self.warp.pass_barrier(path)

    # --- values -----------------------------------------------------------------------------------------------

    def value(self, operand: object, width: int, step: Step, path: Path) -> Any:
        match operand:
            case Register():
                return self.register(operand, step, path)
            case Constant(value):
                return z3.BoolVal(bool(value)) if width == 1 else z3.BitVecVal(value, width)
            case Special(name):
                return self.specials[name]
            case Symbol(name, offset):
                return z3.simplify(self.symbol(name, width) + offset)
            case _:
                raise AssertionError(operand)

    def symbol(self, name: str, width: int) -> Any:
        """The unknown address of a variable: shared ones fit 32 bits."""
        variable = self.program.variable(name)
        base = z3.BitVec(f"&{name}", 32 if variable.space == "shared" else 64)
        return Z3.zext(base, width) if base.size() < width else base

    def register(self, register: Register, step: Step, path: Path) -> Any:
        if register.name not in path.registers:
            raise self.fail(f"{register.name} may be read before it is written", step)
        return path.registers[register.name]

    def write(self, register: Register, value: Any, guard: Any, path: Path) -> None:
        """Set a register where the guard holds."""
        if not z3.is_true(guard):
            old = path.registers.get(register.name)
            value = z3.If(guard, value, self.unknown(value, "undefined") if old is None else old)
        path.registers[register.name] = z3.simplify(value)

    def compute(self, step: Step, effect: Compute, guard: Any, path: Path) -> None:
        inputs: list[Any] = []
        operands = iter(step.operands)
        for position, slot in enumerate(step.operation.slots):
            for _ in range(slot.count):
                operand = next(operands)
                if position:
                    value = self.value(operand, slot.width, step, path)
                    inputs.append(Z3.trunc(value, slot.width) if slot.width > 1 else value)
        if effect.requires is not None:
            condition = z3.Implies(z3.And(path.condition, guard), effect.requires(Z3, *inputs))
            self.hazards.append((condition, step, effect.hazard))
        result = effect.meaning(Z3, *inputs)
        parts = result if isinstance(result, tuple) else (result,)
        for part, register in zip(parts, step.operands[: step.operation.slots[0].count], strict=True):
            if isinstance(register, Register):
                self.write(register, self.widened(part, register, signed=effect.signed), guard, path)

    def widened(self, value: Any, register: Register, *, signed: bool) -> Any:
        if register.width == 1:
            return value
        return Z3.sext(value, register.width) if signed else Z3.zext(value, register.width)

    # --- memory -----------------------------------------------------------------------------------------------

    def load(self, step: Step, effect: Load, guard: Any, path: Path) -> None:
        if effect.space == "param":
            register, reference = step.operands
            assert isinstance(register, Register)
            assert isinstance(reference, ParamRef)
            term = self.params[reference.index]
            low = 8 * reference.offset
            value = z3.Extract(low + effect.width - 1, low, term)
            self.write(register, self.widened(value, register, signed=effect.signed), guard, path)
            return
        address = self.address(step.operands[-1], step, path)
        table = self.table(address, effect)
        size = effect.width // 8
        if table is not None:
            values = [self.look_up(table, address, index * size, size, step) for index in range(effect.count)]
        else:
            like = z3.BitVec("like", effect.width)
            values = [self.unknown(like, "data") for _ in range(effect.count)]
            slot = self.slots.get(int(address.get_id())) if effect.space == "shared" else None
            if slot is not None and (effect.count, effect.width) == (1, 32):
                values = [slot[1]]
            self.record(step, effect, guard, path, address, tuple(values))
        for value, register in zip(values, step.operands[: effect.count], strict=True):
            if isinstance(register, Register):
                self.write(register, self.widened(value, register, signed=effect.signed), guard, path)

    def store(self, step: Step, effect: Store, guard: Any, path: Path) -> None:
        address = self.address(step.operands[0], step, path)
        values = tuple(
            z3.simplify(Z3.trunc(self.value(operand, effect.width, step, path), effect.width))
            for operand in step.operands[1:]
        )
        self.record(step, effect, guard, path, address, values)

    def record(
        self, step: Step, effect: Load | Store, guard: Any, path: Path, address: Any, values: tuple[Any, ...]
    ) -> None:
        if effect.space not in ("global", "shared"):
            raise self.fail(f"{effect.space or 'generic'} memory is not supported in symbolic execution", step)
        size = effect.width // 8 * effect.count
        self.add_access(step, effect.space, guard, path, (address, size, values), write=isinstance(effect, Store))

    def add_access(
        self, step: Step, space: str, guard: Any, path: Path, what: tuple[Any, int, tuple[Any, ...]], *, write: bool
    ) -> None:
        """Note an access; ``what`` is its address, size and values."""
        condition = z3.simplify(z3.And(path.condition, guard))
        self.accesses.append(Access(step, write, space, condition, *what, *self.epochs))

    # --- tensor memory ----------------------------------------------------------------------------------------

    def allocate(self, step: Step, guard: Any, path: Path) -> None:
        """Columns are allocated: their address is an unknown that stands in shared memory from now on."""
        address = self.address(step.operands[0], step, path)
        if int(address.get_id()) in self.slots or len(self.free_names(address)) != 1:
            raise self.fail("several allocations through one word, or a computed address", step)
        base = z3.BitVec(f"^{len(self.slots)}", 32)
        self.slots[int(address.get_id())] = (address, base)
        # The warp writes one word; which of its threads does so makes no difference.
        first = z3.And(guard, self.specials["%laneid"] == 0)
        self.add_access(step, "shared", first, path, (address, 4, (base,)), write=True)

    def transfer(self, step: Step, effect: TmemLoad | TmemStore, guard: Any, path: Path) -> None:
        """Words between registers and tensor memory; which cells, the shape says."""
        loads = isinstance(effect, TmemLoad)
        count = step.operation.slots[0 if loads else -1].count
        place = step.operands[count] if loads else step.operands[0]
        registers = step.operands[:count] if loads else step.operands[-count:]
        address = self.address(place, step, path)
        if loads:
            values = [self.unknown(z3.BitVec("like", 32), "data") for _ in range(count)]
            for value, register in zip(values, registers, strict=True):
                if isinstance(register, Register):
                    self.write(register, value, guard, path)
        else:
            values = [self.value(register, 32, step, path) for register in registers]
        self.add_access(step, "tmem", guard, path, (address, 4 * count, tuple(values)), write=not loads)

    def address(self, operand: object, step: Step, path: Path) -> Any:
        assert isinstance(operand, Memory)
        width = operand.base.width if isinstance(operand.base, Register) else 64
        base = self.value(operand.base, width, step, path)
        return z3.simplify(Z3.zext(base + operand.offset, 64))

    def table(self, address: Any, effect: Load) -> Variable | None:
        """The constant table that an address points into, if it does."""
        for name in self.free_names(address):
            if name.startswith("&"):
                variable = self.program.variable(name[1:])
                if variable.space == effect.space and variable.space in ("global", "const"):
                    return variable
        return None

    def look_up(self, variable: Variable, address: Any, at: int, size: int, step: Step) -> Any:
        """An element of a table, as a tree of choices over the bits of its index."""
        offset = z3.simplify(address - self.symbol(variable.name, 64) + at)
        unit = WIDTHS[variable.type] // 8
        data = b"".join(value.to_bytes(unit, "little") for value in variable.init or ())
        total = (variable.count or 0) * unit
        data = data.ljust(total, b"\0")
        if total > _MAX_TABLE or any(name.startswith("&") for name in self.free_names(offset)):
            raise self.fail(f"table {variable.name} cannot be followed", step)
        inside = z3.And(z3.ULE(offset, z3.BitVecVal(total - size, 64)), z3.URem(offset, z3.BitVecVal(size, 64)) == 0)
        self.hazards.append((inside, step, f"an element of {variable.name} inside it and aligned"))
        values = [int.from_bytes(data[i : i + size], "little") for i in range(0, total - size + 1, size)]
        index = z3.simplify(z3.LShR(offset, z3.BitVecVal(size.bit_length() - 1, 64)))
        return z3.simplify(_choose(values, index, max(len(values) - 1, 1).bit_length(), 8 * size))


def _choose(values: list[int], index: Any, bits: int, width: int) -> Any:
    """``values[index]``; beyond the end anything."""
    if bits == 0 or len(set(values)) == 1:
        return z3.BitVecVal(values[0] if values else 0, width)
    half = 1 << (bits - 1)
    bit = z3.simplify(z3.Extract(bits - 1, bits - 1, index))
    low, high = values[:half], values[half:]
    if z3.is_bv_value(bit):
        return _choose(high or low if bit.as_long() else low, index, bits - 1, width)
    if not high:
        return _choose(low, index, bits - 1, width)
    return z3.If(bit == 1, _choose(high, index, bits - 1, width), _choose(low, index, bits - 1, width))
