"""Who touched which byte, and when: initialisation and races, exactly, for one execution.

Two accesses to the same cell by different threads, one of them a write, are a race unless a barrier orders them.
Every access carries a *stamp*, one 64-bit number: block epoch (15 bits), warp epoch (16 bits), thread (32 bits).  A
block barrier raises the block epoch of its threads and clears the warp epoch; a warp barrier raises the warp epoch.
Two accesses of one block are ordered when their block epochs differ, or when they come from one warp and their warp
epochs differ.  Accesses of different blocks are never ordered.

Per cell the last write suffices: an earlier write is ordered before it, or was reported.  Of the reads a summary
suffices, in four states: one thread; several threads of one warp in one warp epoch; several warps; several blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK_STEP", "WARP_STEP", "Clash", "Shadow", "next_block_epoch"]

WARP_STEP = 1 << 32
BLOCK_STEP = 1 << 48
_THREAD = WARP_STEP - 1
_ONE, _WARP, _WARPS, _BLOCKS = range(4)

Stamps = NDArray[np.int64]
Cells = NDArray[np.int64]


def next_block_epoch(stamps: Stamps) -> Stamps:
    """The stamps after a block barrier."""
    return ((stamps >> 48) + 1 << 48) | (stamps & _THREAD)


@dataclass(frozen=True, slots=True)
class Clash:
    """What is wrong with an access: ``row`` is the position of its lane among those that took part.

    Attributes:
        kind: ``race``, ``uninitialised-memory`` or ``pending``.
        who: number of the other thread in a race, -1 without one.
        role: what the other party did.
    """

    kind: str
    row: int
    column: int
    who: int = -1
    role: str = ""


class Shadow:
    """Records for an array of cells.

    Args:
        cells: number of cells.
        padded: lanes per block; threads are numbered through the grid in these steps.
        defined: the memory has contents before the kernel starts.
    """

    def __init__(self, cells: int, padded: int, *, defined: bool) -> None:
        self.padded = padded
        self.defined = defined
        self.writes: Stamps = np.full(cells, -1, dtype=np.int64)
        self.reads: Stamps | None = None
        self.state: NDArray[np.uint8] | None = None
        self.busy: NDArray[np.bool_] | None = None

    def written(self) -> NDArray[np.bool_]:
        """Which cells the kernel wrote."""
        return self.writes >= 0

    def mark(self, cells: Cells, busy: bool) -> None:
        """Close cells to every access, or open them again: a copy is under way, or a barrier object lives there."""
        if self.busy is None:
            self.busy = np.zeros(len(self.writes), dtype=bool)
        self.busy[cells] = busy

    def read(self, cells: Cells, stamps: Stamps) -> Clash | None:
        """Record reads: ``cells`` is lanes x cells per lane, ``stamps`` one per lane."""
        previous = self.writes[cells]
        stamps = stamps[:, None]
        clash = self._pending(cells)
        if clash is None and not self.defined:
            clash = _first("uninitialised-memory", previous < 0)
        if clash is None:
            clash = self._race(previous, stamps, "wrote")
        if clash is None:
            self._remember(cells, stamps)
        return clash

    def write(self, cells: Cells, stamps: Stamps) -> Clash | None:
        """Record writes; lanes of one instruction that write the same cell race, whatever they write."""
        stamps = stamps[:, None]
        clash = self._pending(cells)
        if clash is None:
            clash = self._race(self.writes[cells], stamps, "wrote")
        if clash is None and self.reads is not None:
            clash = self._race_with_readers(cells, stamps)
        if clash is not None:
            return clash
        self.writes[cells] = stamps
        last = self.writes[cells]
        return _first("race", last != stamps, last, "wrote")

    def _pending(self, cells: Cells) -> Clash | None:
        return None if self.busy is None else _first("pending", self.busy[cells])

    def _race(self, previous: Stamps, stamps: Stamps, role: str) -> Clash | None:
        return _first("race", self._unordered(previous, stamps) & (previous >= 0), previous, role)

    def _unordered(self, previous: Stamps, stamps: Stamps) -> NDArray[np.bool_]:
        """Different threads, and neither barrier between them."""
        apart = previous ^ stamps
        threads = apart & _THREAD
        unordered = (threads != 0) & (apart < BLOCK_STEP) & ((threads >= 32) | (apart < 32))
        if (threads >= 32).any():
            unordered |= self._block(previous) != self._block(stamps)
        return np.asarray(unordered)

    def _block(self, stamps: Stamps) -> NDArray[np.int64]:
        return (stamps & _THREAD) // self.padded

    def _race_with_readers(self, cells: Cells, stamps: Stamps) -> Clash | None:
        assert self.reads is not None
        assert self.state is not None
        reads, state = self.reads[cells], self.state[cells]
        apart = reads ^ stamps
        same_block = self._block(reads) == self._block(stamps)
        same_epoch = same_block & (apart < BLOCK_STEP)
        same_warp = (apart & _THREAD) < 32
        wrong = self._unordered(reads, stamps) | (state == _BLOCKS) | ((state == _WARPS) & same_epoch)
        wrong |= (state == _WARP) & same_warp & (apart < WARP_STEP)
        return _first("race", wrong & (reads >= 0), reads, "read")

    def _remember(self, cells: Cells, stamps: Stamps) -> None:
        """Merge reads into the summary, first with what it holds, then with one another."""
        if self.reads is None or self.state is None:
            self.reads = np.full(len(self.writes), -1, dtype=np.int64)
            self.state = np.zeros(len(self.writes), dtype=np.uint8)
        stamps = np.broadcast_to(stamps, cells.shape)
        old = self.reads[cells]
        kept = self._joined(old, stamps)
        kept[old < 0] = _ONE
        same_epoch = (old >= 0) & ((old ^ stamps) < BLOCK_STEP)
        sticky = self.state[cells]
        kept = np.where((sticky == _BLOCKS) | ((sticky == _WARPS) & same_epoch), np.maximum(sticky, kept), kept)
        kept = np.where((sticky == _WARP) & same_epoch & (old >> 32 == stamps >> 32), np.maximum(sticky, kept), kept)
        self.state[cells] = kept
        self.reads[cells] = stamps
        last = self.reads[cells]
        shared = self._joined(last, stamps)
        for state in (_WARP, _WARPS, _BLOCKS):
            chosen = cells[shared == state]
            self.state[chosen] = np.maximum(self.state[chosen], state)

    def _joined(self, a: Stamps, b: Stamps) -> NDArray[np.uint8]:
        """The state of a cell that two threads read."""
        apart = a ^ b
        threads = apart & _THREAD
        state = np.zeros(apart.shape, dtype=np.uint8)
        state[(threads != 0) & (threads < 32) & (apart < WARP_STEP)] = _WARP
        far = threads >= 32
        if far.any():
            state[far & (apart < BLOCK_STEP)] = _WARPS
            state[far & (self._block(a) != self._block(b))] = _BLOCKS
        return state


def _first(kind: str, wrong: NDArray[Any], stamps: Stamps | None = None, role: str = "") -> Clash | None:
    if not wrong.any():
        return None
    row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    who = -1 if stamps is None else int(np.broadcast_to(stamps, wrong.shape)[row, column]) & _THREAD
    return Clash(kind, int(row), int(column), who, role)
