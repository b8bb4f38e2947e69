"""Loads and stores: alignment, bounds, rights, records and data, in this order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.domain_numpy import NUMPY
from verify.ptx.machine import Group, Machine
from verify.ptx.memory import Place, Region
from verify.ptx.ops_base import Load, Store
from verify.ptx.program import Memory, Register, Step
from verify.ptx.shadow import Clash

__all__ = ["Accesses"]

Array = NDArray[Any]
Addresses = NDArray[np.uint64]


class Accesses:
    """Handlers of ld and st."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.handlers[Load] = self.load
        machine.handlers[Store] = self.store

    # --- addresses --------------------------------------------------------------------------------------------

    def addresses(self, operand: object, step: Step, group: Group) -> Addresses:
        """The address of every lane of the group, as 64-bit numbers; 32-bit addresses wrap at 32 bits."""
        assert isinstance(operand, Memory)
        width = operand.base.width if isinstance(operand.base, Register) else 64
        base = self.machine.value(operand.base, width, step, group)
        return group.pick(NUMPY.add(base, NUMPY.const(operand.offset, width)).astype(np.uint64))

    def locate(self, space: str, addresses: Addresses, size: int, step: Step, group: Group) -> list[Place]:
        """The places of aligned addresses that lie wholly in one region each."""
        wrong = addresses & np.uint64(size - 1) != 0
        if wrong.any():
            row = int(np.argmax(wrong))
            message = f"an access of {size} bytes must be aligned to {size}"
            raise self.fault("misaligned", message, step, group, row, addresses)
        rows = {name: group.pick(values) for name, values in self.machine.rows.items()}
        places, lost = self.machine.memory.places(space, addresses, size, rows)
        if lost >= 0:
            where = self.machine.memory.nearest(space, int(addresses[lost]))
            raise self.fault("out-of-bounds", f"{size} bytes at {where}", step, group, lost, addresses)
        return places

    def fault(
        self, kind: str, message: str, step: Step, group: Group, row: int, addresses: Addresses, other: str = ""
    ) -> Exception:
        lane = int(group.rows[row])
        return self.machine.finding(kind, message, step, lane, address=int(addresses[row]), other=other)

    def count(self, space: str, size: int, addresses: Addresses, step: Step, group: Group, places: list[Place]) -> None:
        """Add the access to the statistics of shared or global memory."""
        machine = self.machine
        if len(addresses) == machine.lanes.size:
            full = addresses
        else:
            full = np.zeros(machine.lanes.size, dtype=np.uint64)
            full[group.rows] = addresses
        if space == "shared":
            padded = machine.lanes.launch.padded
            machine.statistics.shared(step, size, full, group.mask, machine.stamps, padded)
        elif space == "global" or (not space and all(p.region in machine.memory.spaces["global"] for p in places)):
            tables = {v.name for v in machine.program.variables if v.space == "global"}
            follow = any(p.region.name not in tables for p in places)
            machine.statistics.global_(step, size, full, group.mask, machine.stamps, follow=follow)

    # --- records ----------------------------------------------------------------------------------------------

    def record(self, place: Place, size: int, step: Step, group: Group, addresses: Addresses, *, write: bool) -> None:
        """Enter an access into the records of its region."""
        region = place.region
        if region.shadow is None:
            return
        for hook in self.machine.record_hooks:
            hook(step, group)
        cells = region.cells(place.positions, size)
        stamps = group.pick(self.machine.stamps)[place.rows]
        clash = region.shadow.write(cells, stamps) if write else region.shadow.read(cells, stamps)
        if clash is not None:
            raise self.clash(clash, place, step, group, addresses, write=write)

    def clash(
        self, clash: Clash, place: Place, step: Step, group: Group, addresses: Addresses, *, write: bool
    ) -> Exception:
        row = int(np.arange(len(addresses))[place.rows][clash.row])
        region = place.region
        byte = int(region.cells(place.positions[clash.row : clash.row + 1], region.granule)[0, 0]) + clash.column
        where = f"byte {byte * region.granule % region.stride} of {region.name}"
        if clash.kind == "race":
            block, thread = self.machine.lanes.describe(clash.who)
            deed = "is written" if write else "is read"
            message = f"{where} {deed} with no barrier after another thread {clash.role} it"
            return self.fault("race", message, step, group, row, addresses, f"block {block}, thread {thread}")
        if clash.kind == "pending":
            message = f"{where} belongs to an asynchronous copy under way or to a barrier object"
            return self.fault("pending", message, step, group, row, addresses)
        return self.fault(clash.kind, f"{where} was never written", step, group, row, addresses)

    # --- instructions -----------------------------------------------------------------------------------------

    def load(self, step: Step, group: Group) -> None:
        """``ld``: read elements into registers."""
        effect = step.operation.effect
        assert isinstance(effect, Load)
        size = effect.width // 8
        addresses = self.addresses(step.operands[-1], step, group)
        places = self.locate(effect.space, addresses, size * effect.count, step, group)
        self.count(effect.space, size * effect.count, addresses, step, group, places)
        columns = [np.zeros(len(addresses), dtype=f"u{size}") for _ in range(effect.count)]
        for place in places:
            if effect.read_only and place.region.mode != "r":
                message = f"{place.region.name} may change while ld.global.nc reads it"
                first = int(np.arange(len(addresses))[place.rows][0])
                raise self.fault("read-only", message, step, group, first, addresses)
            self.record(place, size * effect.count, step, group, addresses, write=False)
            for index, column in enumerate(columns):
                column[place.rows] = place.region.gather(place.positions + index * size, effect.width)
        self.tell(step, group, addresses, size, columns)
        for (register, _), column in zip(self.machine.results(step), columns, strict=True):
            if register is not None:
                value = self.machine.widened(column, register, signed=effect.signed)
                self.machine.write(register, self.spread(value, group), group)

    def spread(self, values: Array, group: Group) -> Array:
        """Values of the group's lanes as an array over all lanes."""
        if group.whole:
            return values
        full = np.zeros(self.machine.lanes.size, dtype=values.dtype)
        full[group.rows] = values
        return full

    def store(self, step: Step, group: Group) -> None:
        """``st``: write registers into memory."""
        effect = step.operation.effect
        assert isinstance(effect, Store)
        size = effect.width // 8
        addresses = self.addresses(step.operands[0], step, group)
        values = [
            group.pick(self.machine.narrowed(operand, effect.width, step, group)) for operand in step.operands[1:]
        ]
        for hook in self.machine.store_hooks:
            hook(step, group)
        places = self.locate(effect.space, addresses, size * effect.count, step, group)
        self.count(effect.space, size * effect.count, addresses, step, group, places)
        for place in places:
            self.writable(place.region, step, group, addresses, place)
            self.record(place, size * effect.count, step, group, addresses, write=True)
            for index, value in enumerate(values):
                place.region.scatter(place.positions + index * size, value[place.rows], effect.width)
        self.tell(step, group, addresses, size, values)

    def tell(self, step: Step, group: Group, addresses: Addresses, size: int, values: list[Array]) -> None:
        """Tell whoever watches the machine."""
        if self.machine.observers:
            places = addresses[:, None] + np.arange(len(values), dtype=np.uint64) * np.uint64(size)
            self.machine.tell(step, group.rows, places, values)

    def writable(self, region: Region, step: Step, group: Group, addresses: Addresses, place: Place) -> None:
        if region.mode == "r":
            row = int(np.arange(len(addresses))[place.rows][0])
            raise self.fault("read-only", f"{region.name} must not be written", step, group, row, addresses)
