"""Shared memory of one block: which bytes every thread touches, evaluated for all threads.

Addresses in shared memory must depend on the thread index alone.  Then they are a table, and everything about them is
decided by looking: bounds, alignment, who meets whom, and which store a load reads.  Conditions may depend on more;
whether two accesses can really happen together is left to the caller.

Addresses in a loop that stages data are the same in every step, so one step shows who meets whom in one step and in the
next, and which store a load reads: one of its own step, else one of the step before, else, in step 0, one before the
loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verify.ptx.errors import PtxError
from verify.ptx.parametric.events import Access, Run, When
from verify.ptx.parametric.facts import Facts
from verify.ptx.parametric.order import Order
from verify.ptx.parametric.poly import Poly
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program

__all__ = ["Meeting", "SharedMemory", "Source", "Spot"]

_STEPS: Final = 64  # steps of a loop that a witness may look back
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
    """Two threads of a block that touch one byte through accesses that nothing orders, one of them a write.

    Attributes:
        when: in which steps of a loop they do, the first access being the earlier one.
        barriers: what would order them: conditions of barriers between, under any of which they are ordered.
        warps: the threads are of one warp, and barriers of it may order them, too.
    """

    first: Access
    first_thread: int
    second: Access
    second_thread: int
    byte: int
    when: When
    barriers: tuple[Any, ...] = ()
    warps: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where some threads' load of an element finds what was stored.

    Attributes:
        store: the access that stored it last; ``None`` where nobody did.
        byte: the element's first byte in it.
        readers, writers: the threads, and for each of them the one that stored.
        when: in which steps of a loop it was stored and is loaded.
    """

    store: Access | None
    byte: int
    readers: Ints
    writers: Ints
    when: When


class SharedMemory:
    """The shared accesses of a kernel.

    Raises:
        PtxError: an address depends on more than the thread index, or part of an element is accessed.
    """

    def __init__(self, program: Program, facts: Facts, run: Run, *, threads: int, dynamic: int, width: int) -> None:
        self.program, self.facts, self.threads, self.dynamic, self.width = program, facts, threads, dynamic, width
        self.run = run
        if sum(variable.count is None for variable in program.variables if variable.space == "shared") > 1:
            raise PtxError("several names for the dynamic shared memory, which is one", file=program.file)
        self.order = Order(facts, run)
        self.spots = {a.number: self._spot(a) for a in run.accesses if a.space == "shared"}

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
        offsets = np.broadcast_to(table, self.threads)
        if access.width == 32:  # addresses wrap; an offset just below the variable is a negative number
            offsets = (offsets + (1 << 31)) % (1 << 32) - (1 << 31)
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
        for first in self.spots.values():
            for second in self.spots.values():
                if first.variable == second.variable and (first.access.write or second.access.write):
                    yield from self._across(first, second)

    def _across(self, first: Spot, second: Spot) -> Iterator[Meeting]:
        """Meetings across conditional barriers and from one step of a loop to the next."""
        a, b = first.access, second.access
        if a.block_epoch < b.block_epoch:
            between = self.order.between(a, b)
            if between is not None:
                yield from self._apart(first, second, self.run.when(a, b), between)
        if self.run.zone(a) == self.run.zone(b) == 1:
            between = self.order.carried(a, b)
            if between is not None:
                yield from self._apart(first, second, When.PREVIOUS, between)

    def _apart(self, first: Spot, second: Spot, when: When, barriers: tuple[Any, ...]) -> Iterator[Meeting]:
        mine, its = self._touched(0, first), self._touched(0, second)
        common = np.intersect1d(mine[:, 0], its[:, 0])
        if not common.size or self.order.apart(first.access, second.access, when, barriers):
            return
        warps = any(access.warp_epoch for access in self.run.accesses)
        for byte in common.tolist():
            for thread in mine[mine[:, 0] == byte, 1].tolist():
                for other in its[its[:, 0] == byte, 1].tolist():
                    if thread != other:
                        together = warps and thread // 32 == other // 32
                        yield Meeting(first.access, thread, second.access, other, byte, when, barriers, together)

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
                pair = ((access, thread), (other, other_thread))
                (a, mine), (b, its) = pair if access.number <= other.number else (pair[1], pair[0])
                yield Meeting(a, mine, b, its, byte, self.run.when(a, b))

    # --- who wrote what a load reads --------------------------------------------------------------------------

    def sources(self, load: Access, at: int, width: int) -> Iterator[Source]:
        """Where every thread's load of an element finds what was stored.

        Args:
            load: the load.
            at: the element's first byte in it.
            width: bytes of an element.

        The last barrier interval before the load in which the element is written counts; stores of the same interval
        that a warp barrier orders before count, too.
        """
        zone = self.run.zone(load)
        own = self._latest(load, (at, width), self._stores(load, zone), here=True)
        rest = own[0] < 0
        yield from self._found(own, When.SAME, ~rest)
        if zone == 0:
            yield from self._found(own, When.SAME, rest)
            return
        before = self._stores(load, 0)
        old = self._latest(load, (at, width), before)
        loop = self._latest(load, (at, width), self._stores(load, 1, all_steps=True))
        touched = rest & (loop[0] >= 0)
        yield from self._found(loop, When.PREVIOUS if zone == 1 else When.LEFT, touched)
        if zone == 1:
            first = self._latest(load, (at, width), before, here=True)
            yield from self._found(first, When.FIRST, touched)
        yield from self._found(old, When.SAME, rest & ~touched)

    def _found(self, latest: tuple[Ints, Ints, Ints], when: When, readers: Mask) -> Iterator[Source]:
        source, thread, byte = latest
        for number, at in np.unique(np.stack([source, byte], axis=1)[readers], axis=0).tolist():
            some = np.flatnonzero(readers & (source == number) & (byte == at))
            yield Source(self.spots[number].access if number >= 0 else None, at, some, thread[some], when)

    def _stores(self, load: Access, zone: int, *, all_steps: bool = False) -> list[Spot]:
        """Stores to a load's variable in a zone, in order: those before it, or all of a step."""
        variable = self.spots[load.number].variable
        stores = [s for s in self.spots.values() if s.access.write and s.variable == variable]
        stores = [s for s in stores if self.run.zone(s.access) == zone and (all_steps or self._before(s.access, load))]
        return sorted(stores, key=lambda s: (s.access.block_epoch, s.access.warp_epoch, s.access.number))

    def _latest(
        self, load: Access, part: tuple[int, int], stores: list[Spot], *, here: bool = False
    ) -> tuple[Ints, Ints, Ints]:
        """Per thread the last store of its element: number of the access (-1 for none), thread, byte in it.

        Args:
            here: no step of a loop lies between, so that in one barrier interval not all threads are ordered.
        """
        at, width = part
        spot = self.spots[load.number]
        wanted = spot.offsets + at
        source, thread, byte = (np.full(self.threads, -1, dtype=np.int64) for _ in range(3))
        for store in stores:
            for begin in range(0, store.access.size, width):
                known = np.full(max(spot.room, 1), -1, dtype=np.int64)
                writers = np.flatnonzero(store.active)
                places = store.offsets[writers] + begin
                inside = (places >= 0) & (places + width <= spot.room)
                known[places[inside]] = writers[inside]
                readable = (wanted >= 0) & (wanted < spot.room)
                found = np.where(readable, known[np.where(readable, wanted, 0)], -1)
                hit = found >= 0
                if here and store.access.block_epoch == load.block_epoch:
                    hit &= self._ordered(store.access, load, found)
                source[hit], thread[hit], byte[hit] = store.access.number, found[hit], begin
        return source, thread, byte

    def history(
        self, load: Access, at: int, width: int, reader: tuple[int, int]
    ) -> Iterator[tuple[Access, int, int, int]]:
        """Stores that may have put an element there that one thread loads, the last one first.

        Args:
            reader: the thread, and the number of the loop's step.

        Returns:
            Store, thread, the element's first byte in the store, steps before.

        Raises:
            KeyError: it is behind the loop, or too many steps back.
        """
        thread, steps = reader
        zone = self.run.zone(load)
        wanted = int(self.spots[load.number].offsets[thread]) + at
        for store in reversed(self._stores(load, zone)):
            same = store.access.block_epoch == load.block_epoch
            for writer, begin in self._writers(store, wanted, width):
                if not same or bool(self._ordered(store.access, load, np.full(self.threads, writer))[thread]):
                    yield store.access, writer, begin, 0
        if zone == 0:
            return
        loop = self._stores(load, 1, all_steps=True)
        loop = [store for store in loop if any(True for _ in self._writers(store, wanted, width))]
        if loop and (zone == 2 or steps > _STEPS):
            raise KeyError("what a loop leaves in shared memory")
        for back in range(1, steps + 1 if loop else 1):
            for store in reversed(loop):
                for writer, begin in self._writers(store, wanted, width):
                    yield store.access, writer, begin, back
        for store in reversed(self._stores(load, 0)):
            for writer, begin in self._writers(store, wanted, width):
                yield store.access, writer, begin, 0

    def _writers(self, store: Spot, wanted: int, width: int) -> Iterator[tuple[int, int]]:
        """Threads of a store that write an element, and its first byte in the store."""
        for begin in range(0, store.access.size, width):
            for writer in np.flatnonzero(store.active & (store.offsets + begin == wanted)).tolist():
                yield writer, begin

    def _before(self, store: Access, load: Access) -> bool:
        return store.block_epoch < load.block_epoch or (
            store.block_epoch == load.block_epoch and store.number < load.number
        )

    def _ordered(self, store: Access, load: Access, writer: Ints) -> Mask:
        """Within one barrier interval: the same thread, or the same warp after a warp barrier."""
        own = np.arange(self.threads)
        same_warp = (own // 32 == writer // 32) & (store.warp_epoch < load.warp_epoch)
        return np.asarray((own == writer) | same_warp)
