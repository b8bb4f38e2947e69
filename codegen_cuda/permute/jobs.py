"""Cutting a permute of 1- and 2-byte elements into jobs of lanes: which lane makes which words of the destination.

A *piece* is what one access moves: a whole word wherever the words around are whole, else less.  A job is a set of
destination pieces that one lane makes; it reads the source pieces that feed them.  A class is what 32 lanes do
side by side: reading costs as many wavefronts as its largest job has source pieces, writing as many as it has
destination pieces, unless banks are fuller.  Words whose bytes travel between few words make jobs that read no more
than they write; the search looks for few classes of small jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_cuda.permute.task import LANES, Ints, Task

__all__ = ["Cut", "Job", "Pieces", "Search", "class_cost", "pieces_of"]

_WORD = 4


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What single accesses of one side can move.

    Args:
        addresses: of each piece, in bytes.
        widths: of each piece, in bytes.
        owner: per element, its piece.
    """

    addresses: tuple[int, ...]
    widths: tuple[int, ...]
    owner: Ints


def pieces_of(task: Task, side: str, widest: int = _WORD) -> Pieces:
    """Cut one side into pieces of up to ``widest`` bytes.

    A destination piece consists of elements only.  A source piece may contain gaps, which are read for nothing, but it
    does not reach beyond the elements.
    """
    places = task.source if side == "source" else task.destination
    widths = [w for w in (4, 2, 1) if task.width <= w <= widest and task.is_aligned(side, w)]
    low, high = int(places.min()), int(places.max()) + task.width
    owner = np.full(task.size, -1, dtype=np.int64)
    addresses: list[int] = []
    sizes: list[int] = []
    for width in widths:
        rest = np.flatnonzero(owner < 0)
        if not len(rest):
            break
        starts, index, counts = np.unique(places[rest] // width * width, return_inverse=True, return_counts=True)
        fits = (counts == width // task.width) if side == "destination" else (starts >= low) & (starts + width <= high)
        number = np.cumsum(fits) - 1 + len(addresses)
        owner[rest] = np.where(fits[index], number[index], -1)
        addresses += starts[fits].tolist()
        sizes += [width] * int(fits.sum())
    return Pieces(tuple(addresses), tuple(sizes), owner)


@dataclass(frozen=True, slots=True)
class Job:
    """What one lane does.

    Args:
        reads: source pieces.
        writes: destination pieces.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut the work: full classes of equal jobs, and a rest that is cut finer.

    Args:
        cost: wavefronts, if banks are no fuller than jobs are large.
        jobs: all jobs, those for full classes first.
        full: number of full classes.
        rest: the rest's classes as they would be cut, empty where there is none.
    """

    cost: int
    jobs: tuple[Job, ...]
    full: int
    rest: tuple[tuple[Job, ...], ...]


class Search:
    """Looks for ways to cut the work into few classes of small jobs.

    Args:
        task: what to move.
        deadline: when to stop looking, on the clock of :func:`time.thread_time`.
        widest: bytes of the widest write.
    """

    def __init__(self, task: Task, deadline: float, *, widest: int = _WORD) -> None:
        self.source, self.destination = pieces_of(task, "source"), pieces_of(task, "destination", widest)
        self.deadline, self.stopped = deadline, False
        feeds: list[set[int]] = [set() for _ in self.destination.widths]
        fed: list[set[int]] = [set() for _ in self.source.widths]
        for s, d in zip(self.source.owner.tolist(), self.destination.owner.tolist(), strict=True):
            feeds[d].add(s)
            fed[s].add(d)
        #: per destination piece the source pieces it needs, and the other way round
        self.feeds = [tuple(sorted(found)) for found in feeds]
        self.fed = [tuple(sorted(found)) for found in fed]

    def cuts(self) -> list[Cut]:
        """Return cuts, the cheapest first."""
        found = self._cuts(range(len(self.feeds)), depth=1)
        return sorted(found, key=lambda cut: (cut.cost, len(cut.jobs)))

    def recut(self, pieces: Sequence[int], *, depth: int = 1) -> tuple[tuple[Job, ...], ...]:
        """Return the classes of the cheapest cut of some destination pieces."""
        best = min(self._cuts(pieces, depth), key=lambda cut: cut.cost)
        full = [best.jobs[i * LANES : (i + 1) * LANES] for i in range(best.full)]
        return (*full, *best.rest)

    def _cuts(self, pieces: Sequence[int], depth: int) -> list[Cut]:
        """Cut some destination pieces; ``depth`` says how often a rest may be cut anew."""
        found = [self._cut([Job(self.feeds[d], (d,)) for d in pieces], depth)]
        most = -(-len(pieces) // LANES)
        for size in sorted(
            {*range(2, min(most, 8) + 2), *(-(-most // k) + extra for k in (1, 2, 3) for extra in (0, 1))}
        ):
            for reads in self._limits(pieces, size):
                if time.thread_time() > self.deadline:
                    self.stopped = True
                    return found
                found.append(self._cut(self.cluster(pieces, size, reads), depth))
        return found

    def _limits(self, pieces: Sequence[int], size: int) -> Sequence[int]:
        """Return how many source pieces a job of this size may read: from few up to what it takes unbounded."""
        free = self.cluster(pieces, size, 4 * size)
        needs = sorted(len(job.reads) for job in free)
        least = max(len(self.feeds[d]) for d in pieces)
        return sorted(
            {max(least, n) for n in (needs[len(needs) // 4], needs[len(needs) // 2], needs[-1] - 1, needs[-1])}
        )

    def _cut(self, jobs: Sequence[Job], depth: int) -> Cut:
        """Form full classes of the best jobs; leave the rest as it is or cut it anew, whichever costs less."""
        ordered = sorted(jobs, key=lambda job: (len(job.reads) - len(job.writes), -len(job.writes)))
        full = len(jobs) // LANES
        chunks = [ordered[i * LANES : (i + 1) * LANES] for i in range(full)]
        cost = sum(class_cost(chunk) for chunk in chunks)
        left = ordered[full * LANES :]
        if not left:
            return Cut(cost, tuple(ordered), full, ())
        rest: tuple[tuple[Job, ...], ...] = (tuple(left),)
        if depth and (full or class_cost(left) > 2):
            anew = self.recut(sorted(d for job in left for d in job.writes), depth=depth - 1)
            rest = min(rest, anew, key=lambda classes: sum(map(class_cost, classes)))
        return Cut(cost + sum(map(class_cost, rest)), tuple(ordered), full, rest)

    def cluster(self, pieces: Sequence[int], size: int, reads: int) -> list[Job]:
        """Grow jobs of up to ``size`` destination pieces that need up to ``reads`` source pieces.

        Each time the piece is added that needs the fewest new source pieces and shares the most.
        """
        free = set(pieces)
        jobs: list[Job] = []
        for start in pieces:
            if start not in free:
                continue
            free.discard(start)
            job, needs = [start], set(self.feeds[start])
            shared: dict[int, int] = {}
            self._meet(needs, free, shared)
            while len(job) < size:
                room = reads - len(needs)
                best = None
                for d, common in shared.items():
                    new = len(self.feeds[d]) - common
                    if new <= room and (best is None or (new, -common, d) < best):
                        best = (new, -common, d)
                if best is None:
                    break
                d = best[2]
                free.discard(d)
                del shared[d]
                job.append(d)
                fresh = {s for s in self.feeds[d] if s not in needs}
                needs |= fresh
                self._meet(fresh, free, shared)
            jobs.append(Job(tuple(sorted(needs)), tuple(job)))
        return jobs

    def _meet(self, sources: Iterable[int], free: set[int], shared: dict[int, int]) -> None:
        """Count for free destination pieces how many of their source pieces the job has."""
        for s in sources:
            for d in self.fed[s]:
                if d in free:
                    shared[d] = shared.get(d, 0) + 1


def class_cost(jobs: Sequence[Job]) -> int:
    """Wavefronts of a class if banks are no fuller than its largest job."""
    return max(len(job.reads) for job in jobs) + max(len(job.writes) for job in jobs)
