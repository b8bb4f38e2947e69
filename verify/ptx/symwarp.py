"""Asynchronous copies and shuffles in symbolic execution, as accesses to memory that everything else understands.

* A ``cp.async`` reads its source when it starts and writes its destination when the thread waits for its group.  Until
  then the destination belongs to nobody: at the start, and again after every barrier that is passed meanwhile, an
  undefined value is written.  So whoever touches the destination too early races, or reads what is undefined.
* A shuffle is a store of every lane to a word of its own and, after a barrier of the warp, a load of the word of the
  lane that the instruction names.  The words are a region that no program sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import z3

from verify.ptx.ops_base import AsyncCopy, AsyncCopyCommit, AsyncCopyWait, Effect, Shuffle
from verify.ptx.program import Constant, Register, Step

if TYPE_CHECKING:
    from verify.ptx.symexec import Execution, Path

__all__ = ["WarpEffects", "partners"]

_EXCHANGE: Final = "&shfl"


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """A copy under way: when it was started, where it lands, what it brings and which group it belongs to."""

    step: Step
    condition: Any
    address: Any
    size: int
    values: tuple[Any, ...]
    group: int


def partners(mode: str, amount: int, clamp: int) -> list[tuple[int, bool]]:
    """Per lane the lane that a shuffle reads, and whether that one is in range (else it reads itself).

    >>> partners("bfly", 1, 31)[:4]
    [(1, True), (0, True), (3, True), (2, True)]
    >>> partners("up", 1, 0)[:2]
    [(0, False), (0, True)]
    """
    segment, limit, amount = clamp >> 8 & 31, clamp & 31, amount & 31
    found = []
    for lane in range(32):
        last = lane & segment | limit & ~segment
        target = {"up": lane - amount, "down": lane + amount, "bfly": lane ^ amount}.get(mode)
        if target is None:
            target = lane & segment | amount & ~segment
        valid = target >= last if mode == "up" else target <= last
        found.append((target if valid else lane, valid))
    return found


class WarpEffects:
    """The effects of these instructions on an execution."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.pending: list[_Copy] = []
        self.committed = 0
        self.exchanges: list[tuple[Any, int]] = []
        """Regions of the shuffles: base and bytes."""

    def handles(self, effect: Effect) -> bool:
        """Whether an instruction is one of these."""
        return isinstance(effect, AsyncCopy | AsyncCopyCommit | AsyncCopyWait | Shuffle)

    def do(self, step: Step, guard: Any, path: Path) -> None:
        """Execute one of these."""
        effect = step.operation.effect
        if isinstance(effect, AsyncCopy):
            self.start(step, effect, guard, path)
            return
        if self.execution.possible(z3.Not(z3.And(path.condition, guard))):
            raise self.execution.fail("some threads may not come to", step)
        if isinstance(effect, AsyncCopyCommit):
            self.committed += 1
        elif isinstance(effect, AsyncCopyWait):
            self.wait(step, effect, path)
        else:
            assert isinstance(effect, Shuffle)
            self.shuffle(step, effect, path)

    # --- asynchronous copies ----------------------------------------------------------------------------------

    def start(self, step: Step, effect: AsyncCopy, guard: Any, path: Path) -> None:
        """Read the source; the destination is undefined from now on."""
        execution = self.execution
        target, source, size = step.operands
        if not isinstance(size, Constant) or size.value not in effect.sizes:
            raise execution.fail("a copy of that size", step)
        values = tuple(execution.unknown(z3.BitVec("like", 32), "data") for _ in range(size.value // 4))
        read = (execution.address(source, step, path), size.value, values)
        execution.add_access(step, "global", guard, path, read, write=False)
        address = execution.address(target, step, path)
        condition = z3.simplify(z3.And(path.condition, guard))
        copy = _Copy(step, condition, address, size.value, values, self.committed)
        self.pending.append(copy)
        self._write(copy, path, defined=False)

    def _write(self, copy: _Copy, path: Path, *, defined: bool) -> None:
        values = copy.values
        if not defined:
            values = tuple(self.execution.unknown(value, "undefined") for value in values)
        what = (copy.address, copy.size, values)
        self.execution.add_access(copy.step, "shared", copy.condition, path, what, write=True)

    def wait(self, step: Step, effect: AsyncCopyWait, path: Path) -> None:
        """Let copies land; of a group that is not closed, only where everything is waited for."""
        below = self.committed + 1
        if not effect.everything:
            allowed = step.operands[0]
            assert isinstance(allowed, Constant)
            below = self.committed - allowed.value
        for copy in [copy for copy in self.pending if copy.group < below]:
            self._write(copy, path, defined=True)
        self.pending = [copy for copy in self.pending if copy.group >= below]

    def pass_barrier(self, path: Path) -> None:
        """What is still under way is still nobody's."""
        for copy in self.pending:
            self._write(copy, path, defined=False)

    # --- shuffles ---------------------------------------------------------------------------------------------

    def shuffle(self, step: Step, effect: Shuffle, path: Path) -> None:
        """Exchange words between the lanes of a warp, by a pattern of constants."""
        execution = self.execution
        result, predicate, source, amount, clamp, members = step.operands
        terms = [z3.simplify(execution.value(operand, 32, step, path)) for operand in (amount, clamp, members)]
        if not all(z3.is_bv_value(term) for term in terms):
            raise execution.fail("a shuffle whose pattern is no constant", step)
        numbers = [int(term.as_long()) for term in terms]
        threads = execution.block[0] * execution.block[1] * execution.block[2]
        if numbers[2] != 0xFFFFFFFF or threads % 32:
            raise execution.fail("a shuffle of part of a warp", step)
        pattern = partners(effect.mode, numbers[0], numbers[1])
        base = z3.BitVec(f"{_EXCHANGE}!{len(self.exchanges)}", 32)
        self.exchanges.append((base, 4 * threads))
        lane = execution.specials["%laneid"]
        thread = execution.thread_number
        target = thread - lane + _looked_up([place for place, _ in pattern], lane)
        stored = execution.value(source, 32, step, path)
        if not any(name.startswith("data!") for name in execution.free_names(stored)):
            raise execution.fail("a shuffle of something computed", step)
        self._exchange(step, path, (base, thread, stored), write=True)
        execution.pass_warp_barrier(path)
        assert isinstance(result, Register)
        read = execution.unknown(z3.BitVec("like", 32), "data")
        self._exchange(step, path, (base, target, read), write=False)
        true = z3.BoolVal(True)
        execution.write(result, read, true, path)
        if isinstance(predicate, Register):
            valid = _looked_up([int(good) for _, good in pattern], lane) == 1
            execution.write(predicate, z3.simplify(valid), true, path)

    def _exchange(self, step: Step, path: Path, what: tuple[Any, Any, Any], *, write: bool) -> None:
        base, thread, value = what
        address = z3.simplify(z3.ZeroExt(32, base + 4 * thread))
        access = (address, 4, (z3.simplify(value),))
        self.execution.add_access(step, "shared", z3.BoolVal(True), path, access, write=write)


def _looked_up(values: list[int], lane: Any) -> Any:
    """``values[lane]``, as a tree of choices over the bits of the lane."""
    if len(set(values)) == 1:
        return z3.BitVecVal(values[0], 32)
    half = len(values) // 2
    bit = z3.Extract(half.bit_length() - 1, half.bit_length() - 1, lane) == 1
    return z3.If(bit, _looked_up(values[half:], lane), _looked_up(values[:half], lane))
