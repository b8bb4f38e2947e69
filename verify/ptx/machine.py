"""The machine: registers of all lanes, divergence by lowest program counter, and meeting points.

Lanes at the same step form a group.  The group with the lowest step runs until it branches apart, meets another
group, or waits; for structured code this reconverges at the earliest point.  It is one legal schedule; that no other
one gives a different result is what the race records (:mod:`verify.ptx.shadow`) establish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.domain_numpy import NUMPY, UNSIGNED
from verify.ptx.errors import Finding, FindingError, PtxError
from verify.ptx.launch import Lanes
from verify.ptx.memory import Memory
from verify.ptx.ops_base import (
    BlockBarrier,
    Branch,
    Compute,
    Elect,
    Exit,
    Kind,
    Load,
    Shuffle,
    TmemAlloc,
    TmemDealloc,
    TmemLoad,
    TmemRelinquish,
    TmemStore,
    TmemWait,
    Trap,
    WarpBarrier,
)
from verify.ptx.program import Constant, ParamRef, Program, Register, Special, Step, Symbol, Target
from verify.ptx.shadow import WARP_STEP, next_block_epoch
from verify.ptx.statistics import Statistics

__all__ = ["Group", "Machine", "Observer"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]

Observer = Callable[[Step, NDArray[np.int64], Array, Array], None]

_WARP_WIDE = WarpBarrier | Elect | Shuffle | TmemAlloc | TmemDealloc | TmemRelinquish | TmemLoad | TmemStore | TmemWait


class Group:
    """Lanes that execute a step together; ``every`` says that these are all lanes there are."""

    __slots__ = ("_rows", "_warps", "every", "mask", "whole")

    def __init__(self, mask: Mask, lanes: Lanes) -> None:
        self.mask = mask
        self.whole = bool(mask.all())
        self.every = self.whole or bool((mask == lanes.exists).all())
        self._rows: NDArray[np.int64] | None = None
        self._warps: int | None = None

    @property
    def warps(self) -> int:
        """Warps with at least one of these lanes."""
        if self._warps is None:
            self._warps = int(self.mask.reshape(-1, 32).any(axis=1).sum())
        return self._warps

    @property
    def rows(self) -> NDArray[np.int64]:
        """The lanes by number."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.mask)
        return self._rows

    def pick(self, values: Array) -> Array:
        """The entries of these lanes; a value that all lanes share is repeated."""
        if len(values) == 1:
            return np.broadcast_to(values, len(self.mask) if self.whole else len(self.rows))
        return values if self.whole else values[self.rows]


class Machine:
    """State of a group of blocks while a kernel runs."""

    def __init__(
        self, program: Program, lanes: Lanes, memory: Memory, params: tuple[bytes, ...], statistics: Statistics
    ) -> None:
        self.program, self.lanes, self.memory, self.params = program, lanes, memory, params
        self.statistics = statistics
        self.values: dict[str, Array] = {}
        self.defined: dict[str, Mask | None] = {}
        self.stamps: NDArray[np.int64] = lanes.who.astype(np.int64)
        self.exited: Mask = np.zeros(lanes.size, dtype=bool)
        self.ready: dict[int, Mask] = {}
        self.parked: dict[int, Mask] = {}
        self.handlers: dict[type, Callable[[Step, Group], None]] = {}
        self.polls: list[Callable[[], None]] = []
        """Called when nothing can run: they may free lanes that wait for something other than one another."""
        self.barrier_hooks: list[Callable[[Step, Group], None]] = []
        """Called before a block barrier is passed."""
        self.store_hooks: list[Callable[[Step, Group], None]] = []
        """Called before registers are stored."""
        self.record_hooks: list[Callable[[Step, Group], None]] = []
        """Called before an access to memory that others may write, or read what this thread writes."""
        self.end_hooks: list[Callable[[], None]] = []
        self.observers: list[Observer] = []
        """Told of every access: its step, and per lane the stamp, the places and the values of its elements."""
        self.warnings: dict[str, None] = {}
        self.taints: dict[str, NDArray[np.int64]] = {}
        self.at = 0
        self.rows = {"shared": lanes.block, "local": np.arange(lanes.size)}

    # --- findings ---------------------------------------------------------------------------------------------

    def finding(
        self, kind: str, message: str, step: Step, lane: int, *, address: int | None = None, other: str = ""
    ) -> FindingError:
        """A finding with this lane as its witness."""
        block, thread = self.lanes.where(lane)
        found = Finding(kind, f"{message}: {step.text}", step.line, step.source, block, thread, address, other)
        return FindingError(found, file=self.program.file)

    def refuse(self, reason: str, step: Step) -> PtxError:
        """An error: the step is understood, but not what it is used for."""
        return PtxError(f"{reason}: {step.text}", file=self.program.file, line=step.line)

    def tell(self, step: Step, rows: NDArray[np.int64], places: Array, values: Sequence[Array] | Array) -> None:
        """Tell the observers of an access: ``places`` is lanes x elements, ``values`` one array per element."""
        for observer in self.observers:
            observer(step, self.stamps[rows], places, np.stack(list(values), axis=1))

    def tell_order(self, step: Step, group: Group) -> None:
        """Tell the observers of a wait or a fence, which have no places."""
        nothing = np.zeros((len(group.rows), 0), dtype=np.int64)
        for observer in self.observers:
            observer(step, self.stamps[group.rows], nothing, nothing)

    def warn(self, step: Step, message: str) -> None:
        """Note a doubtful point."""
        self.warnings[f"line {step.line}: {message}: {step.text}"] = None

    # --- registers --------------------------------------------------------------------------------------------

    def value(self, operand: object, width: int, step: Step, group: Group) -> Array:
        """An operand's value for all lanes (or one entry where they agree)."""
        match operand:
            case Register():
                return self.register(operand, step, group)
            case Constant(value):
                return NUMPY.bool_const(bool(value)) if width == 1 else NUMPY.const(value, width)
            case Special(name):
                return self.lanes.special(name)
            case Symbol(name, offset):
                return NUMPY.const(self.memory.symbol(name, offset), width)
            case _:
                raise AssertionError(f"no value: {operand!r}")

    def register(self, register: Register, step: Step, group: Group) -> Array:
        """A register's value, every lane of the group having written it."""
        defined = self.defined.get(register.name, False)
        if defined is not None:
            missing = group.mask if defined is False else group.mask & ~defined
            if missing.any():
                lane = int(np.argmax(missing))
                raise self.finding("uninitialised-register", f"{register.name} was never written", step, lane)
        return self.values[register.name]

    def write(self, register: Register, value: Array, group: Group) -> None:
        """Set a register in the lanes of the group."""
        name = register.name
        if name in self.taints:
            self.taint(register, 0, group)
        if group.every:
            self.values[name], self.defined[name] = value, None
            return
        old = self.values.get(name)
        if old is None:
            self.values[name] = np.broadcast_to(value, self.lanes.size).copy()
            self.defined[name] = group.mask
            return
        self.values[name] = np.where(group.mask, value, old)
        defined = self.defined[name]
        self.defined[name] = None if defined is None else defined | group.mask

    def taint(self, register: Register, ticket: int | NDArray[np.int64], group: Group) -> None:
        """Note that a register's value hangs on an asynchronous load with this number; 0 means on none."""
        old = self.taints.get(register.name, np.zeros(self.lanes.size, dtype=np.int64))
        self.taints[register.name] = np.where(group.mask, ticket, old)

    def tainted(self, register: Register) -> NDArray[np.int64] | None:
        """The number of the latest load that a register hangs on, per lane."""
        return self.taints.get(register.name)

    # --- scheduling -------------------------------------------------------------------------------------------

    def run(self, max_steps: int) -> None:
        """Execute until every lane has ended.

        Raises:
            FindingError: the first defect met.
        """
        self.ready = {0: self.lanes.exists.copy()}
        left = max_steps
        while True:
            while self.ready:
                at = min(self.ready)
                left -= self.advance(at, self.ready.pop(at), left)
            for poll in self.polls:
                poll()
            if not self.ready:
                break
        self.check_ended()

    def advance(self, at: int, mask: Mask, left: int) -> int:
        """Run one group from a step until it splits, merges, waits or ends; gives the number of steps."""
        group = Group(mask, self.lanes)
        count = 0
        while True:
            if self.ready and at >= min(self.ready):
                self.add(at, group.mask)
                return count
            count += 1
            step = self.program.steps[at]
            if count > left:
                raise self.finding("step-limit", "the kernel does not end", step, int(group.rows[0]))
            active = self.guarded(step, group)
            following = self.execute(at, step, active, group)
            if following is None:
                return count
            at, group = following

    def guarded(self, step: Step, group: Group) -> Group:
        """The lanes whose guard holds."""
        if step.guard is None:
            return group
        predicate = self.register(step.guard.register, step, group)
        mask = group.mask & (~predicate if step.guard.negated else predicate)
        return Group(mask, self.lanes)

    def execute(self, at: int, step: Step, active: Group, group: Group) -> tuple[int, Group] | None:
        """Do one step; gives where the group goes on, or ``None`` when it is scheduled anew."""
        effect = step.operation.effect
        if isinstance(effect, Branch):
            return self.branch(at, step, active, group)
        if not active.warps:
            return at + 1, group
        self.at = at
        self.statistics.executed(step, active.warps)
        if isinstance(effect, Exit):
            return self.exit(at, active, group)
        if isinstance(effect, Trap):
            raise self.finding("trap", "the kernel aborts", step, int(active.rows[0]))
        if isinstance(effect, BlockBarrier | _WARP_WIDE):
            return self.meet(at, step, active, group)
        if isinstance(effect, Compute):
            self.compute(step, effect, active)
        elif isinstance(effect, Load) and effect.space == "param":
            self.load_param(step, effect, active)
        else:
            self.handlers[type(effect)](step, active)
        if self.parked.get(at) is not None and (self.parked[at] & active.mask).any():
            self.add(at + 1, group.mask & ~self.parked[at])
            return None
        return at + 1, group

    def branch(self, at: int, step: Step, active: Group, group: Group) -> tuple[int, Group] | None:
        target = step.operands[0]
        assert isinstance(target, Target)
        taken = int(active.rows.size)
        if taken == group.rows.size:
            return target.step, group
        if taken == 0:
            return at + 1, group
        if step.operation.name == "bra.uni":
            raise self.finding("divergent-warp", "a branch promised to be uniform diverges", step, int(active.rows[0]))
        self.add(target.step, active.mask)
        self.add(at + 1, group.mask & ~active.mask)
        return None

    def exit(self, at: int, active: Group, group: Group) -> tuple[int, Group] | None:
        self.exited |= active.mask
        rest = group.mask & ~active.mask
        if rest.any():
            self.add(at + 1, rest)
        return None

    def add(self, at: int, mask: Mask) -> None:
        """Make lanes ready to run from a step."""
        if mask.any():
            self.ready[at] = self.ready[at] | mask if at in self.ready else mask

    # --- meeting points ---------------------------------------------------------------------------------------

    def meet(self, at: int, step: Step, active: Group, group: Group) -> tuple[int, Group] | None:
        """A step that whole warps (or blocks) take together: who is not complete waits."""
        present = active.mask | self.parked[at] if at in self.parked else active.mask
        size = self.lanes.launch.padded if isinstance(step.operation.effect, BlockBarrier) else 32
        if isinstance(step.operation.effect, BlockBarrier):
            complete = self.complete_blocks(at, present)
        else:
            complete = self.complete(present, size)
        arrived = present & complete
        if arrived.any():
            self.collective(step, Group(arrived, self.lanes))
        if active is group and bool((arrived == group.mask).all()) and at not in self.parked:
            return at + 1, group
        waiting = present & ~complete
        self.parked.pop(at, None)
        if waiting.any():
            self.parked[at] = waiting
        self.add(at + 1, arrived | (group.mask & ~active.mask))
        return None

    def complete(self, mask: Mask, size: int) -> Mask:
        """Lanes whose warp (or block) is wholly in the mask."""
        if mask.all():
            return mask
        whole = (mask | ~self.lanes.exists).reshape(-1, size).all(axis=1)
        return np.repeat(whole, size)

    def complete_blocks(self, at: int, present: Mask) -> Mask:
        """Lanes of blocks all of whose warps stand whole at some block barrier; frees those at other barriers."""
        barriers = {
            other: mask
            for other, mask in self.parked.items()
            if other != at and isinstance(self.program.steps[other].operation.effect, BlockBarrier)
        }
        if not barriers:
            return self.complete(present, self.lanes.launch.padded)
        standing = self.complete(present, 32) & present
        for mask in barriers.values():
            standing = standing | (self.complete(mask, 32) & mask)
        complete = self.complete(standing, self.lanes.launch.padded)
        for other, mask in barriers.items():
            freed = mask & complete
            if freed.any():
                self.collective(self.program.steps[other], Group(freed, self.lanes))
                self.parked[other] = mask & ~complete
                self.add(other + 1, freed)
        return complete

    def collective(self, step: Step, group: Group) -> None:
        """What happens when lanes have met."""
        effect = step.operation.effect
        if isinstance(effect, BlockBarrier):
            if step.operands[0] != Constant(0):
                raise self.refuse("only barrier 0 is supported", step)
            for hook in self.barrier_hooks:
                hook(step, group)
            self.pass_barrier(step, group.mask)
        elif isinstance(effect, WarpBarrier):
            self.check_membership(step, step.operands[0], group)
            self.stamps = np.where(group.mask, self.stamps + WARP_STEP, self.stamps)
        else:
            self.handlers[type(effect)](step, group)

    def pass_barrier(self, step: Step, mask: Mask) -> None:
        """Order what these lanes did before what they do next, block-wide."""
        self.stamps = np.where(mask, next_block_epoch(self.stamps), self.stamps)
        if int(self.stamps.min()) < 0:
            raise self.refuse("more than 2^15 block barriers", step)

    def check_membership(self, step: Step, operand: object, group: Group) -> None:
        """The mask of a warp instruction must name exactly the lanes there are (naming more is allowed)."""
        mask = np.broadcast_to(self.value(operand, 32, step, group), self.lanes.size)
        named = mask >> (np.arange(self.lanes.size) % 32).astype(np.uint32) & np.uint32(1)
        missing = group.mask & (named == 0)
        if missing.any():
            raise self.finding("divergent-warp", "a lane is not in its own member mask", step, int(np.argmax(missing)))
        warps = np.where(group.mask, mask, 0).reshape(-1, 32)
        least = np.where(group.mask, mask, np.uint32(0xFFFFFFFF)).reshape(-1, 32).min(axis=1)
        uneven = group.mask.reshape(-1, 32).any(axis=1) & (warps.max(axis=1) != least)
        if uneven.any():
            lane = 32 * int(np.argmax(uneven))
            raise self.finding("divergent-warp", "the lanes of a warp give different member masks", step, lane)

    def check_ended(self) -> None:
        """Every lane must have ended; a lane that still waits is a witness of a lost meeting."""
        waiting = {at: mask for at, mask in self.parked.items() if mask.any()}
        if not waiting:
            assert bool((self.exited == self.lanes.exists).all())
            for hook in self.end_hooks:
                hook()
            return
        at = min(waiting)
        step = self.program.steps[at]
        lane = int(np.argmax(waiting[at]))
        block_wide = isinstance(step.operation.effect, BlockBarrier)
        size = self.lanes.launch.padded if block_wide else 32
        first = lane - lane % size
        absent = self.lanes.exists[first : first + size] & ~waiting[at][first : first + size]
        other = ""
        if absent.any():
            missing = first + int(np.argmax(absent))
            other = f"thread {self.lanes.where(missing)[1]} {self.whereabouts(missing)}"
        kind = "divergent-barrier" if block_wide else "divergent-warp"
        if isinstance(step.operation.effect, _WARP_WIDE | BlockBarrier):
            raise self.finding(kind, "a thread waits for others that never come", step, lane, other=other)
        raise self.finding("deadlock", "a thread waits for something that never happens", step, lane)

    def whereabouts(self, lane: int) -> str:
        """What a lane does that did not come to a meeting."""
        if self.exited[lane]:
            return "has ended"
        for at, mask in self.parked.items():
            if mask[lane]:
                return f"waits at line {self.program.steps[at].line}"
        return "is elsewhere"

    # --- pure instructions ------------------------------------------------------------------------------------

    def inputs(self, step: Step, group: Group) -> list[Array]:
        """Values of the operands after the result, in the widths of their slots."""
        values: list[Array] = []
        operands = iter(step.operands)
        for position, slot in enumerate(step.operation.slots):
            for _ in range(slot.count):
                operand = next(operands)
                if position:
                    values.append(self.narrowed(operand, slot.width, step, group))
        return values

    def narrowed(self, operand: object, width: int, step: Step, group: Group) -> Array:
        """A value in the width of its slot: of a wider register the low bits."""
        value = self.value(operand, width, step, group)
        if width > 1 and NUMPY.width(value) > width:
            return NUMPY.trunc(value, width)
        return value

    def compute(self, step: Step, effect: Compute, group: Group) -> None:
        """Evaluate the meaning of the operation for all lanes; only those of the group keep it."""
        inputs = self.inputs(step, group)
        if effect.requires is not None:
            wrong = group.mask & ~effect.requires(NUMPY, *inputs)
            if wrong.any():
                raise self.finding("undefined-result", effect.hazard, step, int(np.argmax(wrong)))
        result = effect.meaning(NUMPY, *inputs)
        slot = step.operation.slots[0]
        parts = result if isinstance(result, tuple) else (result,)
        ticket = self.latest(step.operands[slot.count :])
        for part, register in zip(parts, step.operands[: slot.count], strict=True):
            if isinstance(register, Register):
                self.write(register, self.widened(part, register, signed=effect.signed), group)
                if ticket is not None:
                    self.taint(register, ticket, group)

    def latest(self, operands: tuple[object, ...]) -> NDArray[np.int64] | None:
        """The number of the latest asynchronous load that any of these operands hangs on."""
        names = [operand.name for operand in operands if isinstance(operand, Register)]
        tickets = [self.taints[name] for name in names if name in self.taints]
        return np.asarray(np.maximum.reduce(tickets)) if tickets else None

    def widened(self, value: Array, register: Register, *, signed: bool) -> Array:
        """A result in the width of its register."""
        if register.width == 1 or NUMPY.width(value) == register.width:
            return value
        return NUMPY.sext(value, register.width) if signed else NUMPY.zext(value, register.width)

    def load_param(self, step: Step, effect: Load, group: Group) -> None:
        register, reference = step.operands
        assert isinstance(register, Register)
        assert isinstance(reference, ParamRef)
        data = self.params[reference.index][reference.offset : reference.offset + effect.width // 8]
        value = np.frombuffer(data, dtype=UNSIGNED[effect.width])
        self.write(register, self.widened(value, register, signed=effect.signed), group)

    def results(self, step: Step) -> list[tuple[Register | None, int]]:
        """Result registers, with the width of their slots (``None`` where thrown away)."""
        found: list[tuple[Register | None, int]] = []
        operands = iter(step.operands)
        for slot in step.operation.slots:
            for _ in range(slot.count):
                operand = next(operands)
                if slot.kind in (Kind.RESULT, Kind.RESULTS, Kind.PREDICATE_RESULT):
                    assert operand is None or isinstance(operand, Register)
                    found.append((operand, slot.width))
        return found
