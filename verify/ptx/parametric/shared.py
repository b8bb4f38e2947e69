"""Shared memory of one block: which bytes every thread touches, evaluated for all threads.

Addresses in shared memory must depend on the thread index alone.  Then they are a table, and everything about them is
decided by looking: bounds, alignment, who meets whom, and which store a load reads.  Conditions may depend on more;
whether two accesses can really happen together is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.ptx.errors import PtxError
from verify.ptx.parametric.execute import Access
from verify.ptx.parametric.facts import Facts
from verify.ptx.parametric.poly import Poly
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program

__all__ = ["Meeting", "SharedMemory", "Spot"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """A shared access for all threads of a block.

    Attributes:
        offsets: first byte in the variable, per thread.
        active: threads for which the conditions on the thread index hold.
        room: bytes of the variable.
        align: alignment of the variable.
    """

    access: Access
    variable: str
    offsets: Ints
    active: Mask
    room: int
    align: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two threads of a block that touch one byte through accesses that nothing orders, one of them a write."""

    first: Access
    first_thread: int
    second: Access
    second_thread: int
    byte: int


class SharedMemory:
    """The shared accesses of a kernel.

    Raises:
        PtxError: an address depends on more than the thread index, or part of an element is accessed.
    """

    def __init__(
        self, program: Program, facts: Facts, accesses: tuple[Access, ...], *, threads: int, dynamic: int, width: int
    ) -> None:
        self.program, self.facts, self.threads, self.dynamic, self.width = program, facts, threads, dynamic, width
        if sum(variable.count is None for variable in program.variables if variable.space == "shared") > 1:
            raise PtxError("several names for the dynamic shared memory, which is one", file=program.file)
        self.spots = {a.number: self._spot(a) for a in accesses if a.space == "shared"}

    def _spot(self, access: Access) -> Spot:
        names = sorted(name for name in access.address.atoms if name.startswith("&"))
        base = self.facts.atoms.get(names[0]) if len(names) == 1 else None
        offset = access.address - Poly({(names[0],): 1}, self.facts) if base is not None else access.address
        table = self.facts.table(offset)
        if access.size % self.width:
            # Elements are followed whole, so that a store of a half cannot pass for a store of the whole.
            reason = f"part of an element of {self.width} bytes is accessed: {access.step.text}"
            raise PtxError(reason, file=self.program.file, line=access.step.line)
        if base is None or table is None:
            strange = sorted(n for n in offset.atoms if self.facts.atoms[n].table is None)
            made_of = ", ".join(strange) or "no variable"
            reason = f"a shared address depends on {made_of}"
            raise PtxError(
                f"{reason}; only the thread index is supported: {access.step.text}",
                file=self.program.file,
                line=access.step.line,
            )
        variable = self.program.variable(names[0][1:])
        unit = WIDTHS[variable.type] // 8
        room = self.dynamic if variable.count is None else variable.count * unit
        # Addresses wrap at 32 bits; an offset just below the variable is a negative number.
        offsets = (np.broadcast_to(table, self.threads) + (1 << 31)) % (1 << 32) - (1 << 31)
        active = np.ones(self.threads, dtype=bool)
        for condition in access.conditions:
            if condition.table is not None:
                active &= condition.table
        return Spot(access, variable.name, offsets, active, room, max(variable.align, unit))

    # --- bounds -----------------------------------------------------------------------------------------------

    def outside(self) -> Iterator[tuple[Access, int, str]]:
        """Accesses that leave their variable or are misaligned, with a thread and the fact."""
        for spot in self.spots.values():
            size = spot.access.size
            wrong = (spot.offsets < 0) | (spot.offsets + size > spot.room)
            for thread in np.flatnonzero(wrong & spot.active).tolist():
                at = int(spot.offsets[thread])
                yield spot.access, thread, f"bytes {at}..{at + size - 1} of {spot.variable}, which has {spot.room}"
            askew = (spot.offsets % size != 0) | bool(spot.align % size)
            for thread in np.flatnonzero(askew & spot.active).tolist():
                at = int(spot.offsets[thread])
                yield spot.access, thread, f"{size} bytes at offset {at} of {spot.variable}, aligned to {spot.align}"

    # --- races ------------------------------------------------------------------------------------------------

    def meetings(self) -> Iterator[Meeting]:
        """Pairs of threads that touch one byte with no barrier between, one of them writing."""
        epochs = {(spot.variable, spot.access.block_epoch) for spot in self.spots.values()}
        for variable, epoch in sorted(epochs):
            group = [s for s in self.spots.values() if (s.variable, s.access.block_epoch) == (variable, epoch)]
            yield from self._meetings(group)

    def _meetings(self, group: list[Spot]) -> Iterator[Meeting]:
        rows = [self._touched(index, spot) for index, spot in enumerate(group)]
        table = np.concatenate(rows)
        table = table[np.argsort(table[:, 0], kind="stable")]
        starts = np.flatnonzero(np.r_[True, table[1:, 0] != table[:-1, 0]])
        written = np.maximum.reduceat(table[:, 3], starts) > 0
        several = np.minimum.reduceat(table[:, 1], starts) != np.maximum.reduceat(table[:, 1], starts)
        ends = np.r_[starts[1:], len(table)]
        for begin, end in zip(starts[written & several].tolist(), ends[written & several].tolist(), strict=True):
            yield from self._pairs(group, table[begin:end])

    def _touched(self, index: int, spot: Spot) -> Ints:
        """Rows of byte, thread, access and whether it writes."""
        threads = np.flatnonzero(spot.active)
        size = spot.access.size
        found = np.empty((len(threads) * size, 4), dtype=np.int64)
        found[:, 0] = (spot.offsets[threads][:, None] + np.arange(size)).reshape(-1)
        found[:, 1] = np.repeat(threads, size)
        found[:, 2] = index
        found[:, 3] = spot.access.write
        return found

    def _pairs(self, group: list[Spot], rows: Ints) -> Iterator[Meeting]:
        entries = [(int(thread), group[int(index)].access, int(byte)) for byte, thread, index, _ in rows]
        for at, (thread, access, byte) in enumerate(entries):
            for other_thread, other, _ in entries[at + 1 :]:
                if thread == other_thread or not (access.write or other.write):
                    continue
                if thread // 32 == other_thread // 32 and access.warp_epoch != other.warp_epoch:
                    continue
                yield Meeting(access, thread, other, other_thread, byte)

    # --- who wrote what a load reads --------------------------------------------------------------------------

    def writers(self, load: Access, at: int, width: int) -> tuple[Ints, Ints, Ints]:
        """Per thread the store that an element comes from: number of the access (-1 for none), thread, byte in it.

        Args:
            load: the load.
            at: the element's first byte in it.
            width: bytes of an element.

        The last barrier interval before the load in which the element is written counts; stores of the same interval
        that a warp barrier orders before count, too.
        """
        spot = self.spots[load.number]
        wanted = spot.offsets + at
        source, thread, byte = (np.full(self.threads, -1, dtype=np.int64) for _ in range(3))
        stores = [s for s in self.spots.values() if s.access.write and s.variable == spot.variable]
        stores = [s for s in stores if self._before(s.access, load)]
        for store in sorted(stores, key=lambda s: (s.access.block_epoch, s.access.warp_epoch, s.access.number)):
            for begin in range(0, store.access.size, width):
                known = np.full(max(spot.room, 1), -1, dtype=np.int64)
                writers = np.flatnonzero(store.active)
                places = store.offsets[writers] + begin
                inside = (places >= 0) & (places + width <= spot.room)
                known[places[inside]] = writers[inside]
                readable = (wanted >= 0) & (wanted < spot.room)
                found = np.where(readable, known[np.where(readable, wanted, 0)], -1)
                hit = found >= 0
                if store.access.block_epoch == load.block_epoch:
                    hit &= self._ordered(store.access, load, found)
                source[hit], thread[hit], byte[hit] = store.access.number, found[hit], begin
        return source, thread, byte

    def _before(self, store: Access, load: Access) -> bool:
        return store.block_epoch < load.block_epoch or (
            store.block_epoch == load.block_epoch and store.number < load.number
        )

    def _ordered(self, store: Access, load: Access, writer: Ints) -> Mask:
        """Within one barrier interval: the same thread, or the same warp after a warp barrier."""
        own = np.arange(self.threads)
        same_warp = (own // 32 == writer // 32) & (store.warp_epoch < load.warp_epoch)
        return np.asarray((own == writer) | same_warp)
