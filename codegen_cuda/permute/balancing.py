"""Dealing jobs to classes so that no bank is fuller than the largest job of its class.

Local search: while some class has overfull banks, one of the jobs that fill them changes places with the job of another
class (or an idle lane) that helps most; jobs that moved stay put for a few steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.permute.classes import bank_of
from codegen_cuda.permute.colouring import colour_edges, even_out, split_nodes
from codegen_cuda.permute.jobs import Job, Pieces
from codegen_cuda.permute.task import LANES, Ints

__all__ = ["Room", "balance"]

_BANKS = 32
_STEPS = 400
_REST = 6
_EXACT = 8
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """What a class offers.

    Args:
        lanes: how many jobs it takes.
        reads: how often it may read of one bank.
        writes: how often it may write to one bank.
    """

    lanes: int
    reads: int
    writes: int


def balance(
    jobs: Sequence[Job], rooms: Sequence[Room], source: Pieces, destination: Pieces, deadline: float
) -> list[list[Job]]:
    """Deal jobs to classes so that banks are fuller than allowed as rarely as the search achieves.

    Args:
        jobs: in an order in which consecutive ones may share a class.
        rooms: the classes; together they take all jobs.
        source: pieces that are read.
        destination: pieces that are written.
        deadline: when to stop, on the clock of :func:`time.thread_time`.
    """
    if len(rooms) < 2:
        return [list(jobs)]
    starts = [_in_order(rooms), *(_coloured(jobs, rooms, source, destination, lanes) for lanes in (LANES, LANES // 2))]
    deals = [_Deal(jobs, rooms, where, source, destination) for where in starts]
    return min(deals, key=_Deal.penalty).improve(deadline)


def _in_order(rooms: Sequence[Room]) -> list[int]:
    return [k for k, room in enumerate(rooms) for _ in range(room.lanes)]


def _coloured(jobs: Sequence[Job], rooms: Sequence[Room], source: Pieces, destination: Pieces, lanes: int) -> list[int]:
    """Deal by colouring the banks of the jobs' first pieces.

    The further pieces of a job often lie at one distance from the first, and are then dealt as evenly.  Parts of
    classes, of so many lanes, are coloured, since the last class is often a half one.
    """
    parts = [k for k, room in enumerate(rooms) for _ in range(-(-room.lanes // lanes))]
    ends = [
        split_nodes([bank_of(pieces, min(part)) for part in chosen], len(parts))
        for pieces, chosen in ((source, [job.reads for job in jobs]), (destination, [job.writes for job in jobs]))
    ]
    colours = even_out(ends[0], ends[1], colour_edges(ends[0], ends[1], len(parts)), len(parts), lanes)
    where = [parts[colour] for colour in colours]
    room = [r.lanes for r in rooms]
    for k in where:
        room[k] -= 1
    for j, k in enumerate(where):
        if room[k] < 0:
            other = max(range(len(rooms)), key=room.__getitem__)
            room[k] += 1
            room[other] -= 1
            where[j] = other
    return where


class _Deal:
    """Which class each job is in, idle lanes being jobs that want nothing."""

    def __init__(
        self, jobs: Sequence[Job], rooms: Sequence[Room], where: Sequence[int], source: Pieces, destination: Pieces
    ) -> None:
        self.jobs = list(jobs)
        used = [list(where[: len(jobs)]).count(k) for k in range(len(rooms))]
        idle = [k for k, room in enumerate(rooms) for _ in range(room.lanes - used[k])]
        self.where = np.array([*where[: len(jobs)], *idle])
        self.wants = np.zeros((len(self.where), 2 * _BANKS), dtype=np.int64)
        for row, job in zip(self.wants, self.jobs, strict=False):
            for side, (pieces, chosen) in enumerate(((source, job.reads), (destination, job.writes))):
                for piece in chosen:
                    row[side * _BANKS + bank_of(pieces, piece)] += 1
        self.cap = np.array([[room.reads] * _BANKS + [room.writes] * _BANKS for room in rooms])
        self.load = np.stack([self.wants[self.where == k].sum(axis=0) for k in range(len(rooms))])

    def penalty(self) -> int:
        """By how much banks are overfull, squared and summed."""
        return int(_penalty(self.load, self.cap).sum())

    def improve(self, deadline: float) -> list[list[Job]]:
        """Exchange jobs while that may help; return the best deal that was met."""
        best, kept = self.penalty(), self.where.copy()
        until = np.zeros(len(self.where), dtype=np.int64)
        for step in range(_STEPS):
            if best == 0 or time.thread_time() > deadline:
                break
            a, b = self._exchange(until > step)
            here, there = self.where[a], self.where[b]
            self.load[here] += self.wants[b] - self.wants[a]
            self.load[there] += self.wants[a] - self.wants[b]
            self.where[a], self.where[b] = there, here
            until[[a, b]] = step + _REST
            found = self.penalty()
            if found < best:
                best, kept = found, self.where.copy()
        dealt: list[list[Job]] = [[] for _ in self.load]
        for job, k in zip(self.jobs, kept.tolist(), strict=False):
            dealt[k].append(job)
        return dealt

    def _exchange(self, resting: NDArray[np.bool_]) -> tuple[int, int]:
        """Return the two jobs whose exchange lowers the penalty most, one of them on an overfull bank."""
        over = self.load - self.cap
        more = np.maximum(over + 1, 0) ** 2 - np.maximum(over, 0) ** 2
        less = np.maximum(over - 1, 0) ** 2 - np.maximum(over, 0) ** 2
        joins = self.wants @ more.T
        leaves = (self.wants * less[self.where]).sum(axis=1)
        guilty = np.flatnonzero(leaves < 0)
        change = joins[guilty][:, self.where] + joins[:, self.where[guilty]].T + leaves[guilty][:, None] + leaves
        change = change + _FAR * (self.where[guilty][:, None] == self.where)
        change += _FAR // 4 * (resting[guilty][:, None] | resting)
        # Banks that both jobs want were counted as if only one moved, so the best few are computed exactly.
        flat = np.argpartition(change, min(_EXACT, change.size - 1), axis=None)[:_EXACT]
        pairs = [(int(guilty[k // len(self.where)]), int(k % len(self.where))) for k in flat.tolist()]
        estimates = change.reshape(-1)[flat].tolist()
        return min(zip(pairs, estimates, strict=True), key=lambda item: (item[1] >= _FAR // 8, self._exact(*item[0])))[
            0
        ]

    def _exact(self, a: int, b: int) -> int:
        here, there = self.where[a], self.where[b]
        move = self.wants[b] - self.wants[a]
        rows = np.stack([self.load[here] + move, self.load[there] - move])
        return int(
            (
                _penalty(rows, self.cap[[here, there]]) - _penalty(self.load[[here, there]], self.cap[[here, there]])
            ).sum()
        )


def _penalty(load: Ints, cap: Ints) -> Ints:
    squares: Ints = (np.maximum(load - cap, 0) ** 2).sum(axis=-1)
    return squares
