"""Follow every byte of every thread through memory: which input byte ends at which place.

Offsets and conditions are solver terms over thread and block indices; they are evaluated for each thread, by
substitution.  Accesses happen in program order, all threads together; where two threads touch one byte, one of them
writing, with no barrier between, following stops.  Without such races every schedule gives the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from verify.ptx.bytewise import Byte, Choice, Moved, Row
from verify.ptx.ops_base import TmemLoad, TmemStore
from verify.ptx.program import Constant
from verify.ptx.symexec import Access
from verify.ptx.tmem import COLUMNS, footprint

__all__ = ["Origin", "Place", "RaceError", "UndefinedByteError", "follow", "instances"]

Dim = tuple[int, int, int]

Origin = tuple[str, int] | int | None
"""Where a byte comes from: a region and a byte number, a constant, or nowhere."""


class UndefinedByteError(Exception):
    """A byte that nobody defined reaches global memory."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"line {line} stores an undefined byte")


class RaceError(Exception):
    """Two threads touch one byte, one of them writing, and nothing orders them."""

    def __init__(self, first: _Event, second: _Event, where: str) -> None:
        self.first, self.second, self.where = first, second, where
        super().__init__(f"{first.access.step.text} and {second.access.step.text} meet at {where}")


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """An access as an offset into a region: a buffer, a shared variable or an allocation of tensor memory.

    Attributes:
        offset: 64-bit term in bytes (in tensor memory a lane and a column).
        size: bytes of the region.
        align: alignment of the region's base that is known.
    """

    access: Access
    region: str
    offset: Any
    size: int
    align: int


def follow(
    places: Sequence[Place], indices: Mapping[str, Any], sources: Sequence[list[Row]], *, block: Dim, grid: Dim
) -> dict[tuple[str, int], Origin]:
    """The origin of every byte of every region that is written.

    Args:
        places: accesses in program order.
        indices: the unknown indices by name.
        sources: per access and value, the bytes that are moved.
        block, grid: launch shape.

    Raises:
        RaceError: two threads race in global or shared memory.
        UndefinedByteError: an undefined byte is stored to global memory.
    """
    every = list(instances(indices, block, grid))
    memory = _Memory([pairs for _, _, pairs in every])
    for place, rows in zip(places, sources, strict=True):
        for number, (block_number, thread, _) in enumerate(every):
            if z3.is_true(memory.value(place.access.guard, number)):
                at = memory.value(place.offset, number).as_long()
                region = place.region if place.access.space == "global" else f"{place.region}@{block_number}"
                addresses = _addresses(place.access, at, thread)
                if place.access.space != "tmem":
                    memory.order(_Event(place.access, block_number, thread), region, addresses)
                memory.access(number, place.access, region, addresses, rows)
    return memory.bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Event:
    """An access by one thread."""

    access: Access
    block: int
    thread: int

    def before(self, other: _Event) -> bool:
        """Whether program order or a barrier puts this event, which happened earlier, before the other one."""
        if self.block != other.block:
            return False
        if self.thread == other.thread or self.access.block_epoch < other.access.block_epoch:
            return True
        return self.thread // 32 == other.thread // 32 and self.access.warp_epoch < other.access.warp_epoch


def instances(indices: Mapping[str, Any], block: Dim, grid: Dim) -> Iterator[tuple[int, int, list[tuple[Any, Any]]]]:
    """Every thread: number of its block, its own number, and values of the indices."""
    blocks = itertools.product(*(range(n) for n in reversed(grid)))
    for number, (bz, by, bx) in enumerate(blocks):
        threads = itertools.product(*(range(n) for n in reversed(block)))
        for thread, (tz, ty, tx) in enumerate(threads):
            values = {"tid.x": tx, "tid.y": ty, "tid.z": tz, "ctaid.x": bx, "ctaid.y": by, "ctaid.z": bz}
            yield number, thread, [(index, z3.BitVecVal(values[n], index.size())) for n, index in indices.items()]


def _addresses(access: Access, at: int, thread: int) -> list[list[int]]:
    """Per value the addresses of its bytes."""
    effect = access.step.operation.effect
    if isinstance(effect, TmemLoad | TmemStore):
        return _cells(access, effect, at, thread % 32)
    found = []
    for value in access.values:
        size = value.size() // 8
        found.append(list(range(at, at + size)))
        at += size
    return found


def _cells(access: Access, effect: TmemLoad | TmemStore, at: int, lane: int) -> list[list[int]]:
    """Tensor memory as bytes, four per cell, row by row: per register the bytes of its cell, or of two half cells."""
    if effect.shape == "16x32bx2" and lane >= 16:
        operands = access.step.operands
        count = len(access.values)
        second = operands[count + 1] if isinstance(effect, TmemLoad) else operands[1]
        assert isinstance(second, Constant)
        at = (at + second.value) % (1 << 32)
    rows, columns = footprint(effect.shape, effect.repeat)
    found = []
    for row, column in zip(rows[lane].tolist(), columns[lane].tolist(), strict=True):
        first = 4 * (((at >> 16) + row) * COLUMNS + (at & 0xFFFF))
        if effect.packed:
            found.append([first + 8 * column + byte for byte in (0, 1, 4, 5)])
        else:
            found.append([first + 4 * column + byte for byte in range(4)])
    return found


class _Memory:
    """Bytes of all regions by origin, and what each thread's loads found."""

    def __init__(self, instances: list[list[tuple[Any, Any]]]) -> None:
        self.instances = instances
        self.bytes: dict[tuple[str, int], Origin] = {}
        self.loaded: dict[tuple[int, str, int], Origin] = {}
        self.writers: dict[tuple[str, int], _Event] = {}
        self.readers: dict[tuple[str, int], list[_Event]] = {}
        self._values: dict[tuple[int, int], Any] = {}
        self._kept: list[Any] = []

    def value(self, term: Any, thread: int) -> Any:
        """A term's value for one thread; conditions come again for every byte, so values are kept."""
        key = (int(term.get_id()), thread)
        if key not in self._values:
            pairs = self.instances[thread]
            self._kept.append(term)  # or its number would be used again
            self._values[key] = z3.simplify(z3.substitute(term, *pairs) if pairs else term)
        return self._values[key]

    def order(self, event: _Event, region: str, addresses: list[list[int]]) -> None:
        """Compare with the last write, and a write with the reads since then; all others are ordered before these."""
        for at in itertools.chain(*addresses):
            key = (region, at)
            past = [self.writers[key]] if key in self.writers else []
            if event.access.write:
                past += self.readers.pop(key, [])
            for other in past:
                if not other.before(event):
                    raise RaceError(other, event, f"{region.lstrip('*&')}, byte {at}")
            if event.access.write:
                self.writers[key] = event
            else:
                self.readers.setdefault(key, []).append(event)

    def access(self, thread: int, access: Access, region: str, addresses: list[list[int]], sources: list[Row]) -> None:
        for value, places, row in zip(access.values, addresses, sources, strict=True):
            if not access.write:
                name = value.decl().name()
                for index, at in enumerate(places):
                    origin = (region, at) if access.space == "global" else self.bytes.get((region, at))
                    self.loaded[thread, name, index] = origin
                continue
            for at, byte in zip(places, row, strict=True):
                origin = self.resolve(thread, byte)
                if origin is None and access.space == "global":
                    raise UndefinedByteError(access.step.line)
                self.bytes[region, at] = origin
        effect = access.step.operation.effect
        if isinstance(effect, TmemStore) and effect.packed:
            # The upper half of a cell is undefined after its lower half was stored alone.
            for places in addresses:
                for at in places:
                    self.bytes[region, at + 2] = None

    def resolve(self, thread: int, byte: Moved) -> Origin:
        match byte:
            case Byte(name, index):
                return (name, index) if name.startswith("^") else self.loaded.get((thread, name, index))
            case Choice(condition, yes, no):
                return self.resolve(thread, yes if z3.is_true(self.value(condition, thread)) else no)
            case _:
                return byte
