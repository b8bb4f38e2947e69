"""The numbers of a permute that planning needs: where every element is read and written, in bytes.

A :class:`Task` is what remains of a request once layouts have been evaluated.  Forms that only look at banks plan on
it, and a task whose elements travel in company can be *packed*: neighbours on both sides become one wider element.

>>> task = Task(4, np.arange(64) * 4, np.arange(64) * 4)
>>> packed, members = task.packed(4)
>>> packed.width, packed.source[:3].tolist(), members[1].tolist()
(16, [0, 16, 32], [4, 5, 6, 7])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.permute.problem import Layout, Problem

__all__ = [
    "LANES",
    "ROW_BYTES",
    "WIDEST",
    "Ints",
    "Task",
    "clashes",
    "conflicts",
    "group_lanes",
    "lower_bound",
    "task_of",
]

Ints: TypeAlias = NDArray[np.int64]

LANES = 32
ROW_BYTES = 128  # one wavefront delivers at most 32 words of 4 bytes
#: Base pointers are at least so aligned, so a lane moves up to 16 bytes at once.
WIDEST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Byte addresses against the base pointers, at the first stage.

    Args:
        width: bytes of an element: 1, 2, 4, 8 or 16.
        source: where each element is read.
        destination: where each element is written.
        source_moves: by how many bytes the stages move the source, each distance once, ascending.
        destination_moves: the same for the destination.
    """

    width: int
    source: Ints
    destination: Ints
    source_moves: tuple[int, ...] = (0,)
    destination_moves: tuple[int, ...] = (0,)

    @property
    def size(self) -> int:
        """Number of elements."""
        return len(self.source)

    @property
    def banks(self) -> int:
        """Banks, pairs or quads of banks: how many elements one wavefront can deliver at most, at 4 bytes and more."""
        return ROW_BYTES // max(self.width, 4)

    @property
    def bounds(self) -> tuple[int, int]:
        """Lower bounds of both phases in wavefronts."""
        return (
            worst_bound(self.source, self.width, self.source_moves),
            worst_bound(self.destination, self.width, self.destination_moves),
        )

    def units(self, which: str) -> Ints:
        """Number of the bank unit (word, pair, quad) that holds each element on one side."""
        unit = max(self.width, 4)
        return (self.source if which == "source" else self.destination) // unit

    def is_aligned(self, side: str, width: int) -> bool:
        """Say whether stages move a side by multiples of a width."""
        moves = self.source_moves if side == "source" else self.destination_moves
        return all(move % width == 0 for move in moves)

    def packed(self, count: int) -> tuple[Task, Ints] | None:
        """Join ``count`` neighbours to one element where they are neighbours, aligned and in order, on both sides.

        Returns:
            The task of the wider elements in the order of their first members, and the members [wide][position]; None
            where some element has no such company.
        """
        width = self.width * count
        if width > WIDEST or self.size % count:
            return None
        if not (self.is_aligned("source", width) and self.is_aligned("destination", width)):
            return None
        order = np.argsort(self.source, kind="stable").reshape(-1, count)
        steps = np.arange(count) * self.width
        for places in (self.source[order], self.destination[order]):
            if (places[:, 0] % width).any() or (places != places[:, :1] + steps).any():
                return None
        order = order[np.argsort(order.min(axis=1), kind="stable")]
        wide = Task(
            width, self.source[order[:, 0]], self.destination[order[:, 0]], self.source_moves, self.destination_moves
        )
        return wide, order


def task_of(problem: Problem) -> Task:
    """Evaluate the layouts of a request."""
    width = problem.width

    def moves(layout: Layout) -> tuple[int, ...]:
        return tuple(sorted({shift * width for shift in problem.stage_shifts(layout)}))

    return Task(
        width,
        problem.coordinates(problem.source) * width,
        problem.coordinates(problem.destination) * width,
        moves(problem.source),
        moves(problem.destination),
    )


def group_lanes(width: int) -> int:
    """Lanes that are served together: 32 up to 4 bytes a lane, 16 at 8, 8 at 16."""
    return min(LANES, ROW_BYTES // max(width, 4))


def worst_bound(places: Ints, width: int, moves: tuple[int, ...]) -> int:
    """Return the lower bound of the worst stage."""
    # Moves by whole units rotate the banks and change nothing.
    unit = max(width, 4)
    return max(lower_bound(places + rest, width) for rest in {move % unit for move in moves})


def lower_bound(places: Ints, width: int) -> int:
    """Return the fewest wavefronts that can touch these byte addresses: the most units that one bank holds.

    A unit is a 4-byte word, a bank pair for 8-byte and a quad for 16-byte elements, since those are served by halves
    and quarters of a warp; a wavefront delivers one unit of each bank.

    >>> lower_bound(np.arange(64) * 4, 4), lower_bound(np.arange(32) * 128, 4)
    (2, 32)
    """
    unit = max(width, 4)
    units = places // unit
    if width < 4:
        units = np.unique(units)
    return int(np.bincount(units % (ROW_BYTES // unit)).max())


def clashes(units: Ints, banks: int, lanes: int) -> NDArray[np.bool_]:
    """Say for each row of 32 units (-1 for idle) whether lanes served together want different units of one bank.

    Args:
        units: [row][lane].
        banks: number of banks of that unit.
        lanes: how many lanes are served together.

    >>> clashes(np.array([np.arange(32), np.arange(32) * 2]), 32, 32).tolist()
    [False, True]
    """
    rows = units.reshape(units.shape[0], LANES // lanes, lanes)
    spread = np.int64(units.max(initial=0)) + 2
    keys = np.sort(np.where(rows < 0, -1, rows % banks * spread + rows), axis=-1)
    before, after = keys[..., :-1], keys[..., 1:]
    clash = (before != after) & (before // spread == after // spread) & (before >= 0)
    found: NDArray[np.bool_] = clash.any(axis=(-1, -2))
    return found


def conflicts(task: Task, side: str, slots: Ints) -> int:
    """Count the instructions of a schedule [slot][lane] (-1 for idle) with bank conflicts on one side."""
    units = task.units(side)
    low = int(units.min()) // task.banks * task.banks
    held = np.where(slots >= 0, units[np.maximum(slots, 0)] - low, -1)
    return int(clashes(held, task.banks, group_lanes(task.width)).sum())
