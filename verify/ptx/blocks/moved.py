"""Which input byte every stored byte is, for a few classes of blocks at once: bytes followed through shared memory.

Accesses happen in program order, all threads of a block together.  Between two barriers every place of shared memory
may have one thread that writes it, or any that only read it; then every schedule gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verify.ptx.blocks.operations import Terms
from verify.ptx.blocks.partition import Ints
from verify.ptx.bytewise import Byte, Choice, Moved, Row
from verify.ptx.follow import Place

__all__ = ["NOWHERE", "PLACES", "Located", "MeetingError", "Stored", "follow_rows", "locate"]

#: Tag of a byte that nobody defined; constants c have the tags -2 - c.
NOWHERE: Final = -1
#: Tags of input bytes are ``load * PLACES + byte``, with the number of the load's block part.
PLACES: Final = 1 << 46


#: In the record of who touched a place of shared memory since the last barrier.
_NOBODY: Final = -1
_SEVERAL: Final = -2
_THREADS: Final = 1024


class MeetingError(Exception):
    """Two threads of a block touch one byte of shared memory, one of them writing, with no barrier between.

    Attributes:
        row: class of the block, among those followed.
        facts: what meets where.
    """

    def __init__(self, row: int, facts: dict[str, Any]) -> None:
        self.row, self.facts = row, facts
        super().__init__(str(facts))


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """An access for every thread of every class.

    Attributes:
        guard: whether it happens, by class and thread.
        offset: at the class's representative, in bytes.
        move: number of the block's part of the offset; -1 in shared memory.
    """

    place: Place
    guard: NDArray[np.bool_]
    offset: Ints
    move: int


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Bytes stored to global memory: class (from the first of the chunk), place and origin of each, and the thread."""

    access: Located
    rows: Ints
    threads: Ints
    at: Ints
    tags: Ints

    def of_row(self, row: int) -> Stored:
        """What one class stores."""
        begin, end = np.searchsorted(self.rows, [row, row + 1]).tolist()
        part = slice(begin, end)
        return Stored(self.access, self.rows[part], self.threads[part], self.at[part], self.tags[part])


def locate(
    terms: Terms, places: list[Place], sources: list[list[Row]], hazards: list[Any], moves: list[Ints]
) -> list[Located]:
    """Evaluate guards and offsets, and settle all classes before anything is read off them.

    Args:
        terms: is refined.
        places: the accesses.
        sources: the stored bytes, whose choices count too.
        hazards: further conditions to be evaluated.
        moves: collects the blocks' parts of the offsets in global memory.
    """
    conditions = [*_conditions(sources), *hazards]
    while True:
        epoch = terms.classes.epoch
        for condition in conditions:
            terms.parts(condition)
        found = [_offset(terms, place) for place in places]
        if terms.classes.epoch == epoch:
            break
    located = []
    for place, (offset, change) in zip(places, found, strict=True):
        guard = terms.truth(place.access.guard)
        number = -1 if place.access.space == "shared" else _numbered(moves, change, len(terms.classes.of))
        located.append(Located(place, guard, offset.view(np.int64), number))
    return located


def _conditions(sources: list[list[Row]]) -> Iterator[Any]:
    """Every condition by which a stored byte is chosen, once."""
    seen: dict[int, Choice] = {}
    stack = [byte for rows in sources for row in rows for byte in row]
    while stack:
        byte = stack.pop()
        if isinstance(byte, Choice) and id(byte) not in seen:
            seen[id(byte)] = byte
            stack += [byte.yes, byte.no]
            yield byte.condition


def _offset(terms: Terms, place: Place) -> tuple[Any, Ints | None]:
    offset, live = terms.parts(place.offset), terms.parts(place.access.guard)
    if place.access.space == "shared":
        return terms.rows(terms.fixed(offset, live)), None
    return terms.numbers(offset, live)


def _numbered(moves: list[Ints], change: Ints | None, count: int) -> int:
    change = np.zeros(count, dtype=np.int64) if change is None else change
    for number, other in enumerate(moves):
        if np.array_equal(other, change):
            return number
    moves.append(change)
    return len(moves) - 1


def follow_rows(
    terms: Terms, located: list[Located], sources: list[list[Row]], rows: range, threads: int
) -> Iterator[Stored]:
    """Yield what each store to global memory stores, by the classes with these numbers, in program order.

    Raises:
        MeetingError: threads of one block race in shared memory.
    """
    memory = _Memory(terms, rows, threads)
    for access, values in zip(located, sources, strict=True):
        if access.place.access.write:
            stored = memory.store(access, values)
            if stored is not None:
                yield stored
        else:
            memory.load(access)


class _Memory:
    """Tags of all bytes in shared memory and in loaded values."""

    def __init__(self, terms: Terms, rows: range, threads: int) -> None:
        self.terms, self.rows, self.threads = terms, rows, threads
        self.shared: dict[str, Ints] = {}
        self.loaded: dict[str, Ints] = {}
        self.epoch = 0
        self.accesses: list[Located] = []
        self.writers: dict[str, Ints] = {}
        self.readers: dict[str, Ints] = {}
        self._choices: dict[int, tuple[Any, Ints]] = {}

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of these classes and all threads."""
        part = values if len(values) == 1 else values[self.rows.start : self.rows.stop]
        return np.broadcast_to(part, (len(self.rows), self.threads))

    def load(self, located: Located) -> None:
        access, guard, offset = located.place.access, self.spread(located.guard), self.spread(located.offset)
        done = 0
        for value in access.values:
            at = offset[:, :, None] + np.arange(done, done + value.size() // 8)
            done += value.size() // 8
            if access.space == "global":
                tags = at + located.move * PLACES
            else:
                memory = self.memory(located.place)
                at = np.where(guard[:, :, None], at, 0)
                tags = np.take_along_axis(memory, at.reshape(len(self.rows), -1), axis=1).reshape(at.shape)
                if len(touching := np.nonzero(guard)[0]):
                    self.meet(located, touching, np.nonzero(guard)[1], at[guard])
            self.loaded[value.decl().name()] = np.where(guard[:, :, None], tags, NOWHERE)

    def memory(self, place: Place) -> Ints:
        if place.region not in self.shared:
            self.shared[place.region] = np.full((len(self.rows), max(place.size, 1)), NOWHERE, dtype=np.int64)
        return self.shared[place.region]

    def store(self, located: Located, values: list[Row]) -> Stored | None:
        access = located.place.access
        rows, threads = np.nonzero(self.spread(located.guard))
        if not len(rows):
            return None
        offset = self.spread(located.offset)[rows, threads]
        tags = np.stack([self.tag(byte)[rows, threads] for row in values for byte in row], axis=1)
        at = offset[:, None] + np.arange(tags.shape[1])
        if access.space == "global":
            return Stored(located, rows, threads, at, tags)
        self.meet(located, rows, threads, at)
        self.memory(located.place)[rows[:, None], at] = tags
        return None

    def tag(self, byte: Moved) -> Ints:
        """The tag of a byte for every class and thread."""
        match byte:
            case int():
                return np.full((len(self.rows), self.threads), -2 - byte, dtype=np.int64)
            case Byte(name, index):
                if name in self.loaded:
                    return self.loaded[name][:, :, index]
            case Choice(condition, yes, no):
                if id(byte) not in self._choices:
                    chosen = self.spread(self.terms.truth(condition))
                    self._choices[id(byte)] = (byte, np.where(chosen, self.tag(yes), self.tag(no)))
                return self._choices[id(byte)][1]
        return np.full((len(self.rows), self.threads), NOWHERE, dtype=np.int64)

    # --- races ------------------------------------------------------------------------------------------------

    def record(self, records: dict[str, Ints], place: Place) -> Ints:
        """Per class and byte of a variable: the thread that touched it since the last barrier, and its access."""
        if place.access.block_epoch != self.epoch:
            self.epoch = place.access.block_epoch
            self.writers.clear()
            self.readers.clear()
        if place.region not in records:
            records[place.region] = np.full((len(self.rows), max(place.size, 1)), _NOBODY, dtype=np.int64)
        return records[place.region]

    def meet(self, located: Located, rows: Ints, threads: Ints, at: Ints) -> None:
        """Compare an access with those since the last barrier, and with itself in other threads."""
        writers, readers = (self.record(records, located.place) for records in (self.writers, self.readers))
        self.accesses.append(located)
        mine = np.broadcast_to(threads[:, None] + len(self.accesses) * _THREADS, at.shape)
        meeting = _Meeting(self.accesses, located, rows, mine, at)
        where = (rows[:, None], at)
        if located.place.access.write:
            meeting.refuse(readers[where])
            meeting.refuse(writers[where])
            writers[where] = mine
            meeting.refuse(writers[where])
            return
        meeting.refuse(writers[where])
        past = readers[where]
        alone = (past == _NOBODY) | (past % _THREADS == mine % _THREADS)
        readers[where] = np.where((past != _SEVERAL) & alone, mine, _SEVERAL)
        shared = (readers[where] != mine) & (past != _SEVERAL)
        readers[rows[:, None].repeat(at.shape[1], 1)[shared], at[shared]] = _SEVERAL


@dataclass(frozen=True, slots=True, eq=False)
class _Meeting:
    """An access to shared memory: per thread that makes it, class, thread (and access) and bytes."""

    accesses: list[Located]
    located: Located
    rows: Ints
    mine: Ints
    at: Ints

    def refuse(self, past: Ints) -> None:
        """Name the first byte that another thread touched before, if there is one."""
        other = (past % _THREADS != self.mine % _THREADS) | (past == _SEVERAL)
        wrong = other & (past != _NOBODY)
        if not wrong.any():
            return
        index, byte = np.argwhere(wrong)[0].tolist()
        facts = {
            "first": self.words(int(past[index, byte])),
            "second": self.words(int(self.mine[index, byte])),
            "where": f"{self.located.place.region.lstrip('&')}, byte {int(self.at[index, byte])}",
        }
        raise MeetingError(int(self.rows[index]), facts)

    def words(self, who: int) -> str:
        """An access, and the number of its thread."""
        if who == _SEVERAL:
            return "loads by several threads"
        step = self.accesses[who // _THREADS - 1].place.access.step
        return f"{step.text} (line {step.line}) by thread {who % _THREADS}"
