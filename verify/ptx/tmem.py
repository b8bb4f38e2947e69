"""Tensor memory: 128 lanes x 512 columns x 32 bits per block (PTX ISA 9.7.16), and the instructions on it.

What is checked, beyond the values: columns are allocated, a warp stays in its slab of 32 lanes, addresses are the
same in the whole warp, loads see completed stores (``wait::st``), stores and deallocation see completed loads
(``wait::ld``), warps that share cells have a barrier between them, half cells that nobody defined are not read,
allocation follows its rules and everything is freed.  The order of accesses is tracked per warp, not per thread:
the instructions are warp-wide and their waits, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.accesses import Accesses
from verify.ptx.machine import Group, Machine
from verify.ptx.ops_base import (
    TmemAlloc,
    TmemDealloc,
    TmemFence,
    TmemLoad,
    TmemRelinquish,
    TmemStore,
    TmemWait,
)
from verify.ptx.ops_tmem import WORDS
from verify.ptx.program import Constant, Memory, Register, Step
from verify.ptx.shadow import Clash, Shadow

__all__ = ["COLUMNS", "LANES", "TensorMemory", "footprint"]

LANES = 128
COLUMNS = 512
_CELLS = LANES * COLUMNS
_LOW, _BOTH = 1, 3

Array = NDArray[Any]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def footprint(shape: str, repeat: int) -> tuple[Ints, Ints]:
    """Row and column, from the base address, of the word that each thread holds in each register.

    Returns two arrays, 32 threads x registers.  Of ``16x32bx2`` the threads from 16 on count from the second base.

    >>> rows, columns = footprint("16x64b", 2)
    >>> rows[:4, 0].tolist(), columns[2].tolist()
    ([0, 8, 0, 8], [1, 3])
    """
    thread = np.arange(32)[:, None]
    register = np.arange(WORDS[shape] * repeat)[None, :]
    zero = np.zeros((32, register.size), dtype=np.int64)
    match shape:
        case "32x32b":
            return thread + zero, register + zero
        case "16x64b":
            return thread // 4 + 8 * (thread % 2) + zero, thread // 2 % 2 + 2 * register
        case "16x128b":
            return thread // 4 + 8 * (register % 2), thread % 4 + 4 * (register // 2)
        case "16x256b":
            return thread // 4 + 8 * (register // 2 % 2), register % 2 + 2 * (thread % 4) + 8 * (register // 4)
        case "16x32bx2":
            return thread % 16 + zero, register + zero
        case _:
            raise AssertionError(shape)


@dataclass(slots=True)
class _Flight:
    """Accesses under way: one row of cells per warp."""

    warps: Ints
    cells: Ints


@dataclass(slots=True)
class _Block:
    """Allocations of one block: first column to (number of columns)."""

    allocations: dict[int, int] = field(default_factory=dict)
    last: int = COLUMNS
    warp: int = -1
    relinquished: bool = False


@dataclass(frozen=True, slots=True)
class _Access:
    """Cells of one instruction: ``cells`` is warps x 32 threads x registers x (1, or 2 when packed)."""

    warps: Ints
    cells: Ints


class TensorMemory:
    """Handlers of the tcgen05 instructions."""

    def __init__(self, machine: Machine, accesses: Accesses, *, relative_lanes: bool, first_column: int) -> None:
        self.machine, self.accesses = machine, accesses
        self.relative_lanes, self.first_column = relative_lanes, first_column
        lanes = machine.lanes
        self.warps_per_block = lanes.launch.padded // 32
        warps = lanes.count * self.warps_per_block
        self.blocks = [_Block() for _ in range(lanes.count)]
        self.owner = np.full((lanes.count, COLUMNS), -1, dtype=np.int64)
        self.data = np.full(lanes.count * _CELLS, 0xCDCDCDCD, dtype=np.uint32)
        self.defined = np.zeros(lanes.count * _CELLS, dtype=np.uint8)
        self.shadow = Shadow(lanes.count * _CELLS, lanes.launch.padded, defined=True)
        self.reading = np.zeros(lanes.count * _CELLS, dtype=bool)
        self.stores: list[_Flight] = []
        self.loads: list[_Flight] = []
        self.clock = 0
        self.waited = np.zeros(warps, dtype=np.int64)
        self.unfenced = np.zeros(warps, dtype=bool)
        self.unordered = np.zeros(warps, dtype=bool)
        self._register()

    def _register(self) -> None:
        handlers = self.machine.handlers
        handlers[TmemAlloc], handlers[TmemDealloc] = self.alloc, self.dealloc
        handlers[TmemRelinquish], handlers[TmemFence] = self.relinquish, self.fence
        handlers[TmemLoad], handlers[TmemStore], handlers[TmemWait] = self.load, self.store, self.wait
        self.machine.barrier_hooks.append(self.at_barrier)
        self.machine.store_hooks.append(self.check_stored)
        self.machine.end_hooks.append(self.at_end)

    # --- warps ------------------------------------------------------------------------------------------------

    def warps(self, step: Step, group: Group) -> Ints:
        """The warps of a group, all of them whole."""
        warps: Ints = np.flatnonzero(group.mask.reshape(-1, 32).any(axis=1))
        if self.machine.lanes.launch.threads % 32:
            raise self.machine.refuse("tensor memory with a partial warp", step)
        for hook in self.machine.record_hooks:
            hook(step, group)
        return warps

    def stamps(self, warps: Ints) -> Ints:
        """Stamps of whole warps: those of their first lanes."""
        return self.machine.stamps[32 * warps]

    def uniform(self, operand: object, step: Step, group: Group, warps: Ints, what: str) -> Ints:
        """One value per warp, after checking that its lanes agree."""
        value = np.broadcast_to(self.machine.value(operand, 32, step, group), self.machine.lanes.size)
        return self._agreed(value, step, warps, what)

    def _agreed(self, value: Array, step: Step, warps: Ints, what: str) -> Ints:
        table = value.reshape(-1, 32)[warps].astype(np.int64)
        uneven = table != table[:, :1]
        if uneven.any():
            row, lane = np.unravel_index(int(np.argmax(uneven)), uneven.shape)
            message = f"the {what} differs within a warp"
            raise self.fault("tmem-divergent", message, step, int(warps[row]), lane=int(lane))
        return table[:, 0]

    def fault(
        self,
        kind: str,
        message: str,
        step: Step,
        warp: int,
        *,
        address: int | None = None,
        lane: int = 0,
        other: str = "",
    ) -> Exception:
        return self.machine.finding(kind, message, step, 32 * warp + lane, address=address, other=other)

    def slab(self, warps: Ints) -> Ints:
        """First lane that each warp may access."""
        return 32 * (warps % self.warps_per_block % 4)

    # --- allocation -------------------------------------------------------------------------------------------

    def alloc(self, step: Step, group: Group) -> None:
        warps = self.warps(step, group)
        target, size_operand = step.operands
        sizes = self.uniform(size_operand, step, group, warps, "number of columns")
        addresses = self.accesses.addresses(target, step, group)
        full = np.zeros(self.machine.lanes.size, dtype=np.uint64)
        full[group.rows] = addresses
        self._agreed(full, step, warps, "address to write to")
        columns = np.array([self._allocate(warp, size, step) for warp, size in zip(warps, sizes, strict=True)])
        leaders = np.zeros_like(group.mask)
        leaders[32 * warps] = True
        first = Group(leaders, self.machine.lanes)
        for place in self.accesses.locate("shared", full[first.rows], 4, step, first):
            self.accesses.record(place, 4, step, first, full[first.rows], write=True)
            place.region.scatter(place.positions, columns[place.rows].astype(np.uint32), 32)

    def _allocate(self, warp: int, size: int, step: Step) -> int:
        number = warp // self.warps_per_block
        block = self.blocks[number]
        problem = ""
        if size not in (32, 64, 128, 256, 512):
            problem = f"{size} columns; a power of two from 32 to 512 is needed"
        elif block.relinquished:
            problem = "allocation after the permit was relinquished"
        elif size > block.last:
            problem = f"{size} columns after an allocation of {block.last}: sizes must not increase"
        elif block.warp not in (-1, warp):
            problem = "several warps of a block allocate"
        if problem:
            raise self.fault("tmem-alloc", problem, step, warp)
        taken = self.owner[number] >= 0
        starts = [*range(self.first_column, COLUMNS - size + 1, 32), *range(0, COLUMNS - size + 1, 32)]
        column = next((start for start in starts if not taken[start : start + size].any()), -1)
        if column < 0:
            raise self.fault("tmem-alloc", f"{size} columns are not free: the allocation waits for ever", step, warp)
        self.owner[number, column : column + size] = column
        block.allocations[column], block.last, block.warp = size, size, warp
        cells = self._columns(number, column, size)
        self.defined[cells] = 0
        self._enter(
            self.shadow.write(cells[None, :], self.stamps(np.array([warp]))), step, np.array([warp]), cells[None]
        )
        return column

    def _columns(self, block: int, column: int, size: int) -> Ints:
        lanes = np.arange(LANES)[:, None] * COLUMNS
        return (block * _CELLS + lanes + column + np.arange(size)).reshape(-1)

    def dealloc(self, step: Step, group: Group) -> None:
        warps = self.warps(step, group)
        addresses = self.uniform(step.operands[0], step, group, warps, "address")
        sizes = self.uniform(step.operands[1], step, group, warps, "number of columns")
        self.order(step, warps)
        for warp, address, size in zip(warps.tolist(), addresses.tolist(), sizes.tolist(), strict=True):
            number = warp // self.warps_per_block
            if self.blocks[number].allocations.get(address) != size:
                message = f"no allocation of {size} columns at this address"
                raise self.fault("tmem-dealloc", message, step, warp, address=address)
            cells = self._columns(number, address, size)[None, :]
            one = np.array([warp])
            self.idle(cells, step, one)
            self._enter(self.shadow.write(cells, self.stamps(one)), step, one, cells)
            del self.blocks[number].allocations[address]
            self.owner[number, address : address + size] = -1

    def relinquish(self, step: Step, group: Group) -> None:
        for warp in self.warps(step, group).tolist():
            self.blocks[warp // self.warps_per_block].relinquished = True

    def at_end(self) -> None:
        """Everything must have been freed."""
        for number, block in enumerate(self.blocks):
            for column, size in block.allocations.items():
                step = next(s for s in self.machine.program.steps if isinstance(s.operation.effect, TmemAlloc))
                message = f"{size} columns at {column} are never freed"
                raise self.fault("tmem-leak", message, step, block.warp, address=column, lane=0 * number)

    # --- access -----------------------------------------------------------------------------------------------

    def locate(self, operand: object, offset: object, step: Step, group: Group, warps: Ints) -> _Access:
        """The cells of a load or store, after checking slab, columns and allocation."""
        effect = step.operation.effect
        assert isinstance(effect, TmemLoad | TmemStore)
        assert isinstance(operand, Memory)
        address = self.uniform(operand.base, step, group, warps, "address") + operand.offset
        second = address
        if offset is not None:
            assert isinstance(offset, Constant)
            second = address + offset.value
        rows, columns = footprint(effect.shape, effect.repeat)
        bases = np.where(np.arange(32) < 16, address[:, None], second[:, None]) % (1 << 32)
        lane, column = bases >> 16, bases & 0xFFFF
        lane = self.absolute(lane, effect.shape, step, warps, bases)
        parts = (2 * columns[..., None] + np.arange(2)) if effect.packed else columns[..., None]
        lanes = lane[:, :, None, None] + rows[..., None] + 0 * parts
        column_of = column[:, :, None, None] + parts
        self.bounds(lanes, column_of, step, warps, bases)
        block = (warps // self.warps_per_block)[:, None, None, None]
        return _Access(warps, block * _CELLS + lanes * COLUMNS + column_of)

    def absolute(self, lane: Ints, shape: str, step: Step, warps: Ints, bases: Ints) -> Ints:
        """The lane field as a lane of the whole memory."""
        slab = self.slab(warps)[:, None]
        if self.relative_lanes:
            lane = np.where(lane < 32, lane + slab, lane)
        step_of = 32 if shape == "32x32b" else 16
        wrong = lane % step_of != 0
        if wrong.any():
            row, thread = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            message = f"lane {lane[row, thread]} is no multiple of {step_of}"
            raise self.fault(
                "tmem-slab", message, step, int(warps[row]), address=int(bases[row, thread]), lane=int(thread)
            )
        return lane

    def bounds(self, lanes: Ints, columns: Ints, step: Step, warps: Ints, bases: Ints) -> None:
        slab = self.slab(warps)[:, None, None, None]
        outside = (lanes < slab) | (lanes >= slab + 32)
        block = (warps // self.warps_per_block)[:, None, None, None]
        owner = np.where(columns < COLUMNS, self.owner[block, np.minimum(columns, COLUMNS - 1)], -1)
        free = (owner < 0) | (owner != owner.reshape(len(warps), -1)[:, 0][:, None, None, None])
        for kind, wrong in (("tmem-slab", outside), ("tmem-unallocated", free)):
            if not wrong.any():
                continue
            row, thread, register, part = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            at = (row, thread, register, part)
            if kind == "tmem-slab":
                message = f"lane {lanes[at]} is outside the lanes {int(slab[row, 0, 0, 0])} to +31 of this warp"
            else:
                message = f"column {columns[at]} does not belong to one allocation with the rest"
            raise self.fault(kind, message, step, int(warps[row]), address=int(bases[row, thread]), lane=int(thread))

    def order(self, step: Step, warps: Ints) -> None:
        """Warn about an access after a barrier without the fence that makes others' accesses visible."""
        if self.machine.lanes.launch.threads > 32 and self.unordered[warps].any():
            self.machine.warn(step, "no tcgen05.fence::after_thread_sync between the barrier and this")
        self.unordered[warps] = False

    def idle(self, cells: Ints, step: Step, warps: Ints) -> None:
        """No load may still be reading these cells."""
        busy = self.reading[cells]
        if busy.any():
            row = int(np.argmax(busy.any(axis=1)))
            message = "cells are overwritten or freed while a load may still read them (wait::ld is missing)"
            raise self.fault("tmem-pending", message, step, int(warps[row]))

    def _enter(self, clash: Clash | None, step: Step, warps: Ints, cells: Ints) -> None:
        if clash is None:
            return
        cell = int(cells[clash.row].reshape(-1)[clash.column]) % _CELLS
        where = f"lane {cell // COLUMNS}, column {cell % COLUMNS}"
        address = (cell // COLUMNS << 16) + cell % COLUMNS
        warp = int(warps[clash.row])
        if clash.kind == "pending":
            message = f"{where} has a store under way (wait::st is missing)"
            raise self.fault("tmem-pending", message, step, warp, address=address)
        block, thread = self.machine.lanes.describe(clash.who)
        message = f"{where} is used with no barrier after another warp {clash.role} it"
        other = f"block {block}, the warp of thread {thread}"
        raise self.fault("race", message, step, warp, address=address, other=other)

    def load(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, TmemLoad)
        warps = self.warps(step, group)
        count = step.operation.slots[0].count
        offset = step.operands[count + 1] if effect.shape == "16x32bx2" else None
        access = self.locate(step.operands[count], offset, step, group, warps)
        self.order(step, warps)
        flat = access.cells.reshape(len(warps), -1)
        self._enter(self.shadow.read(flat, self.stamps(warps)), step, warps, flat)
        need = _LOW if effect.packed else _BOTH
        missing = self.defined[access.cells] & need != need
        if missing.any():
            row, thread, _, _ = np.unravel_index(int(np.argmax(missing)), missing.shape)
            cell = int(access.cells[missing][0]) % _CELLS
            half = "" if effect.packed else " (or its upper half)"
            message = f"lane {cell // COLUMNS}, column {cell % COLUMNS}{half} was never defined"
            address = (cell // COLUMNS << 16) + cell % COLUMNS
            raise self.fault("uninitialised-tmem", message, step, int(warps[row]), address=address, lane=int(thread))
        self.reading[flat] = True
        self.loads.append(_Flight(warps, flat))
        self.clock += 1
        self.unfenced[warps] = True
        words = self.data[access.cells]
        value = words[..., 0]
        if effect.packed:
            value = (words[..., 0] & np.uint32(0xFFFF)) | (words[..., 1] << np.uint32(16))
        self.tell(step, access, value)
        self._keep(value, step, group)

    def _keep(self, value: Array, step: Step, group: Group) -> None:
        """Put the loaded words, warps x threads x registers, into the result registers."""
        for index in range(value.shape[2]):
            register = step.operands[index]
            if isinstance(register, Register):
                self.machine.write(register, self.accesses.spread(value[:, :, index].reshape(-1), group), group)
                self.machine.taint(register, self.clock, group)

    def store(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, TmemStore)
        warps = self.warps(step, group)
        bx2 = effect.shape == "16x32bx2"
        values = step.operands[2:] if bx2 else step.operands[1:]
        self.check_stored(step, group)
        access = self.locate(step.operands[0], step.operands[1] if bx2 else None, step, group, warps)
        self.order(step, warps)
        flat = access.cells.reshape(len(warps), -1)
        if bx2 and any(len(np.unique(row)) < len(row) for row in flat):
            raise self.fault("race", "the two halves of the store overlap", step, int(warps[0]))
        self.idle(flat, step, warps)
        self._enter(self.shadow.write(flat, self.stamps(warps)), step, warps, flat)
        self.shadow.mark(flat, True)
        self.stores.append(_Flight(warps, flat))
        self.unfenced[warps] = True
        columns = [group.pick(self.machine.value(value, 32, step, group)).reshape(-1, 32) for value in values]
        table = np.stack(columns, axis=-1)
        if effect.packed:
            self.data[access.cells[..., 0]] = table & np.uint32(0xFFFF)
            self.data[access.cells[..., 1]] = table >> np.uint32(16)
            self.defined[access.cells] = _LOW
        else:
            self.data[access.cells[..., 0]] = table
            self.defined[access.cells] = _BOTH
        self.tell(step, access, table)

    def tell(self, step: Step, access: _Access, values: Array) -> None:
        """Tell whoever watches the machine; ``values`` is warps x threads x registers."""
        if self.machine.observers:
            rows = (32 * access.warps[:, None] + np.arange(32)).reshape(-1)
            words = values.reshape(len(rows), -1)
            self.machine.tell(step, rows, access.cells.reshape(len(rows), -1), list(words.T))

    # --- waiting ----------------------------------------------------------------------------------------------

    def wait(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, TmemWait)
        warps = self.warps(step, group)
        self.machine.tell_order(step, group)
        flights = self.stores if effect.stores else self.loads
        kept = []
        for flight in flights:
            done = np.isin(flight.warps, warps)
            if done.any():
                self._land(flight.cells[done], self.stamps(flight.warps[done]), stores=effect.stores)
            if not done.all():
                kept.append(_Flight(flight.warps[~done], flight.cells[~done]))
        if effect.stores:
            self.stores = kept
        else:
            self.loads = kept
            self.waited[warps] = self.clock

    def _land(self, cells: Ints, stamps: Ints, *, stores: bool) -> None:
        """An access is over: it counts as happening now, when its thread has waited for it."""
        if stores:
            self.shadow.mark(cells, False)
            self.shadow.writes[cells] = stamps[:, None]
        else:
            self.reading[cells] = False
            self.shadow.read(cells, stamps)

    def check_stored(self, step: Step, group: Group) -> None:
        """Registers that a load filled must be waited for before they are stored anywhere.

        Register dependence alone is respected by the hardware, but a compiler may move arithmetic across an opaque
        wait; a store is where the order must show.
        """
        for operand in step.operands:
            if not isinstance(operand, Register):
                continue
            ticket = self.machine.tainted(operand)
            if ticket is None:
                continue
            late = group.mask & (ticket > np.repeat(self.waited, 32))
            if late.any():
                lane = int(np.argmax(late))
                message = f"{operand.name} comes from a tensor-memory load that nobody waited for (wait::ld)"
                raise self.machine.finding("tmem-pending", message, step, lane)

    def fence(self, step: Step, group: Group) -> None:
        effect = step.operation.effect
        assert isinstance(effect, TmemFence)
        self.machine.tell_order(step, group)
        warps = np.flatnonzero(group.mask.reshape(-1, 32).any(axis=1))
        (self.unfenced if effect.before else self.unordered)[warps] = False

    def at_barrier(self, step: Step, group: Group) -> None:
        """Warn about accesses before a barrier that no fence makes visible to others."""
        warps = np.flatnonzero(group.mask.reshape(-1, 32).any(axis=1))
        if self.machine.lanes.launch.threads > 32 and self.unfenced[warps].any():
            self.machine.warn(step, "no tcgen05.fence::before_thread_sync before this barrier")
        self.unfenced[warps] = False
        self.unordered[warps] = True
