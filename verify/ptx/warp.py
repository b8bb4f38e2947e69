"""Instructions that a warp executes together, and asynchronous copies and barrier objects in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.accesses import Accesses
from verify.ptx.machine import Group, Machine
from verify.ptx.memory import Place, Region
from verify.ptx.ops_base import (
    AsyncCopy,
    AsyncCopyCommit,
    AsyncCopyWait,
    BarrierArrive,
    BarrierInit,
    BarrierTryWait,
    Elect,
    Shuffle,
)
from verify.ptx.program import Constant, Register, Step

__all__ = ["AsyncCopies", "BarrierObjects", "WarpInstructions"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


class WarpInstructions:
    """Handlers of ``elect.sync`` and ``shfl.sync``."""

    def __init__(self, machine: Machine, *, elect_last: bool) -> None:
        self.machine, self.elect_last = machine, elect_last
        machine.handlers[Elect] = self.elect
        machine.handlers[Shuffle] = self.shuffle

    def elect(self, step: Step, group: Group) -> None:
        """Choose one lane of every warp."""
        machine = self.machine
        lane_register, predicate, members = step.operands
        machine.check_membership(step, members, group)
        warps = group.mask.reshape(-1, 32)
        chosen = 31 - np.argmax(warps[:, ::-1], axis=1) if self.elect_last else np.argmax(warps, axis=1)
        leaders = np.repeat(chosen.astype(np.uint32), 32)
        assert isinstance(predicate, Register)
        machine.write(predicate, leaders == np.arange(len(leaders), dtype=np.uint32) % 32, group)
        if isinstance(lane_register, Register):
            machine.write(lane_register, leaders, group)

    def shuffle(self, step: Step, group: Group) -> None:
        """Read a register of another lane of the warp."""
        machine, effect = self.machine, step.operation.effect
        assert isinstance(effect, Shuffle)
        result, predicate, source, amount, clamp, members = step.operands
        machine.check_membership(step, members, group)
        size = machine.lanes.size
        lane = np.arange(size) % 32
        value = np.broadcast_to(machine.value(source, 32, step, group), size)
        b = np.broadcast_to(machine.value(amount, 32, step, group), size).astype(np.int64) & 31
        c = np.broadcast_to(machine.value(clamp, 32, step, group), size).astype(np.int64)
        segment, limit = c >> 8 & 31, c & 31
        highest, lowest = lane & segment | limit & ~segment, lane & segment
        match effect.mode:
            case "up":
                target = lane - b
                valid = target >= highest
            case "down":
                target = lane + b
                valid = target <= highest
            case "bfly":
                target = lane ^ b
                valid = target <= highest
            case _:
                target = lowest | b & ~segment
                valid = target <= highest
        target = np.where(valid, target, lane)
        chosen = np.arange(size) - lane + target
        idle = group.mask & ~group.mask[np.where(group.mask, chosen, 0)]
        if idle.any():
            raise machine.finding("divergent-warp", "a lane that takes no part is read", step, int(np.argmax(idle)))
        assert isinstance(result, Register)
        machine.write(result, value[np.where(group.mask, chosen, 0)], group)
        if isinstance(predicate, Register):
            machine.write(predicate, valid, group)


@dataclass(slots=True)
class _Copy:
    """Copies that one instruction started: per lane the destination, the data and the number of the copy group."""

    region: Region
    lanes: NDArray[np.int64]
    positions: NDArray[np.int64]
    data: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    left: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.left = np.ones(len(self.lanes), dtype=bool)


class AsyncCopies:
    """Handlers of ``cp.async``: data land, and may be touched, only after the thread has waited for its group.

    The destination is closed to everybody from the start of a copy to the wait of its thread, whose stamp the
    written bytes then carry; other threads need a barrier after that.
    """

    def __init__(self, machine: Machine, accesses: Accesses) -> None:
        self.machine, self.accesses = machine, accesses
        self.committed = np.zeros(machine.lanes.size, dtype=np.int64)
        self.copies: list[_Copy] = []
        machine.handlers[AsyncCopy] = self.start
        machine.handlers[AsyncCopyCommit] = self.commit
        machine.handlers[AsyncCopyWait] = self.wait

    def start(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, AsyncCopy)
        target, source, size_operand = step.operands
        assert isinstance(size_operand, Constant)
        size = size_operand.value
        if size not in effect.sizes:
            raise self.machine.refuse(f"a copy of {size} bytes", step)
        data = self._read(source, size, step, group)
        addresses = self.accesses.addresses(target, step, group)
        for place in self.accesses.locate("shared", addresses, size, step, group):
            self.accesses.record(place, size, step, group, addresses, write=True)
            shadow = place.region.shadow
            assert shadow is not None
            shadow.mark(place.region.cells(place.positions, size), True)
            lanes = group.rows[place.rows]
            self.copies.append(_Copy(place.region, lanes, place.positions, data[place.rows], self.committed[lanes]))

    def _read(self, source: object, size: int, step: Step, group: Group) -> NDArray[np.uint8]:
        addresses = self.accesses.addresses(source, step, group)
        places = self.accesses.locate("global", addresses, size, step, group)
        self.accesses.count("global", size, addresses, step, group, places)
        data = np.zeros((len(addresses), size), dtype=np.uint8)
        for place in places:
            if place.region.mode != "r":
                raise self.machine.refuse(f"a copy from {place.region.name}, which the kernel may write", step)
            data[place.rows] = place.region.bytes[place.positions[:, None] + np.arange(size)]
        return data

    def commit(self, _step: Step, group: Group) -> None:
        self.committed[group.mask] += 1

    def wait(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, AsyncCopyWait)
        # wait_all also waits for copies that no commit has closed.
        below = self.committed + 1
        if not effect.everything:
            allowed = step.operands[0]
            assert isinstance(allowed, Constant)
            below = self.committed - allowed.value
        for copy in self.copies:
            done = copy.left & group.mask[copy.lanes] & (copy.numbers < below[copy.lanes])
            if done.any():
                self._land(copy, done, step)
        self.copies = [copy for copy in self.copies if copy.left.any()]

    def _land(self, copy: _Copy, done: Mask, step: Step) -> None:
        size = copy.data.shape[1]
        positions, lanes = copy.positions[done], copy.lanes[done]
        cells = copy.region.cells(positions, size)
        shadow = copy.region.shadow
        assert shadow is not None
        shadow.mark(cells, False)
        clash = shadow.write(cells, self.machine.stamps[lanes])
        if clash is not None:
            raise self.machine.finding(clash.kind, "a copy lands where others write", step, int(lanes[clash.row]))
        copy.region.bytes[positions[:, None] + np.arange(size)] = copy.data[done]
        copy.left &= ~done


@dataclass(slots=True)
class _Object:
    """One mbarrier per block at a fixed place of a shared variable."""

    ready: Mask
    phase: NDArray[np.int64]
    arrived: Mask


class BarrierObjects:
    """Handlers of ``mbarrier``, for the use as a barrier of the whole block.

    Supported: the expected count is the number of threads of the block, and a thread touches no shared memory
    between its arrival and its wait.  Then a completed phase orders what a block barrier would order.
    """

    def __init__(self, machine: Machine, accesses: Accesses) -> None:
        self.machine, self.accesses = machine, accesses
        self.objects: dict[tuple[str, int], _Object] = {}
        self.open = np.zeros(machine.lanes.size, dtype=np.int64)
        self.used = False
        machine.handlers[BarrierInit] = self.init
        machine.handlers[BarrierArrive] = self.arrive
        machine.handlers[BarrierTryWait] = self.try_wait
        machine.polls.append(self.poll)
        machine.barrier_hooks.append(self.forbid_between)
        machine.record_hooks.append(self.forbid_between)

    def forbid_between(self, step: Step, group: Group) -> None:
        """Refuse what would need more than block-wide ordering."""
        if self.used and (self.open[group.mask] > 0).any():
            raise self.machine.refuse("an access or barrier between an mbarrier arrival and its wait", step)

    def find(self, step: Step, position: int, group: Group) -> list[tuple[_Object, Mask, Place, NDArray[np.uint64]]]:
        """The objects that the lanes name, each with its lanes."""
        addresses = self.accesses.addresses(step.operands[position], step, group)
        found = []
        for place in self.accesses.locate("shared", addresses, 8, step, group):
            rows = np.arange(len(addresses))[place.rows]
            offsets = place.positions % place.region.stride
            for offset in np.unique(offsets).tolist():
                chosen = offsets == offset
                mask = np.zeros(self.machine.lanes.size, dtype=bool)
                mask[group.rows[rows[chosen]]] = True
                blocks = self.machine.lanes.count
                fresh = _Object(
                    np.zeros(blocks, dtype=bool),
                    np.zeros(blocks, dtype=np.int64),
                    np.zeros(self.machine.lanes.size, dtype=bool),
                )
                barrier = self.objects.setdefault((place.region.name, offset), fresh)
                part = Place(place.region, rows[chosen], place.positions[chosen])
                found.append((barrier, mask, part, addresses))
        return found

    def init(self, step: Step, group: Group) -> None:
        self.used = True
        count = np.broadcast_to(self.machine.value(step.operands[1], 32, step, group), self.machine.lanes.size)
        if (count[group.mask] != self.machine.lanes.launch.threads).any():
            raise self.machine.refuse("an mbarrier for fewer or more threads than the block has", step)
        for barrier, mask, place, addresses in self.find(step, 0, group):
            blocks = self.machine.lanes.block[mask]
            if barrier.ready[blocks].any():
                raise self.machine.refuse("an mbarrier initialised twice", step)
            self.accesses.record(place, 8, step, group, addresses, write=True)
            shadow = place.region.shadow
            assert shadow is not None
            shadow.mark(place.region.cells(place.positions, 8), True)
            barrier.ready[blocks] = True

    def ordered(self, barrier: _Object, mask: Mask, step: Step, place: Place) -> None:
        """The object must have been initialised before, in the order of barriers."""
        blocks = self.machine.lanes.block
        fresh = mask & ~barrier.ready[blocks]
        if fresh.any():
            lane = int(np.argmax(fresh))
            raise self.machine.finding("uninitialised-memory", "the mbarrier was never initialised", step, lane)
        shadow = place.region.shadow
        assert shadow is not None
        cells = place.region.cells(place.positions, 8)
        shadow.mark(cells, False)
        lanes = np.flatnonzero(mask)
        clash = shadow.read(cells, self.machine.stamps[lanes])
        shadow.mark(cells, True)
        if clash is not None:
            lane = int(lanes[clash.row])
            raise self.machine.finding("race", "no barrier after the initialisation of the mbarrier", step, lane)

    def arrive(self, step: Step, group: Group) -> None:
        lanes = self.machine.lanes
        for barrier, mask, place, _ in self.find(step, 1, group):
            self.ordered(barrier, mask, step, place)
            if (barrier.arrived & mask).any() or (self.open[mask] > 0).any():
                raise self.machine.refuse("a thread arrives twice before it waits", step)
            barrier.arrived |= mask
            self.open[mask] += 1
            complete = self.machine.complete(barrier.arrived, lanes.launch.padded)
            blocks = np.unique(lanes.block[complete & barrier.arrived])
            barrier.phase[blocks] += 1
            barrier.arrived &= ~complete
        state, _ = step.operands
        if isinstance(state, Register):
            # The state is opaque; nothing that is supported can use it.
            self.machine.write(state, np.zeros(1, dtype=np.uint64), group)

    def try_wait(self, step: Step, group: Group) -> None:
        machine = self.machine
        parity = np.broadcast_to(machine.value(step.operands[2], 32, step, group), machine.lanes.size)
        predicate = step.operands[0]
        assert isinstance(predicate, Register)
        waiting = np.zeros(machine.lanes.size, dtype=bool)
        for barrier, mask, place, _ in self.find(step, 1, group):
            self.ordered(barrier, mask, step, place)
            over = barrier.phase[machine.lanes.block] & 1 != parity & 1
            waiting |= mask & ~over
        passed = group.mask & ~waiting
        if passed.any():
            released = Group(passed, machine.lanes)
            machine.pass_barrier(step, passed & (self.open > 0))
            self.open[passed] = 0
            machine.write(predicate, np.array([True]), released)
        if waiting.any():
            machine.parked[machine.at] = waiting | machine.parked.get(machine.at, np.zeros_like(waiting))

    def poll(self) -> None:
        """Let lanes that wait on a phase look again, if any phase has completed."""
        for at, mask in list(self.machine.parked.items()):
            step = self.machine.program.steps[at]
            if isinstance(step.operation.effect, BarrierTryWait) and mask.any():
                group = Group(mask, self.machine.lanes)
                ready = np.zeros_like(mask)
                parity = np.broadcast_to(self.machine.value(step.operands[2], 32, step, group), self.machine.lanes.size)
                for barrier, lanes, _, _ in self.find(step, 1, group):
                    ready |= lanes & (barrier.phase[self.machine.lanes.block] & 1 != parity & 1)
                self.machine.parked[at] = mask & ~ready
                self.machine.add(at, ready)
