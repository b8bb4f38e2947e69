"""Plans for 1- and 2-byte elements whose words are torn apart: jobs of lanes, dealt to classes.

The search (:mod:`codegen_cuda.permute.jobs`) proposes cuts, the deal (:mod:`codegen_cuda.permute.balancing`) looks for
classes that fit the banks, colouring (:mod:`codegen_cuda.permute.classes`) makes instructions of them, which is what is
counted.  Work is bounded by steps, and by a second of the thread's own time, so that a busy machine plans no worse; a
plan says where the clock decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_cuda.permute.balancing import Room, balance
from codegen_cuda.permute.classes import instructions
from codegen_cuda.permute.jobs import Cut, Job, Pieces, Search
from codegen_cuda.permute.lanes import count_operations
from codegen_cuda.permute.plan import Moves, Plan, list_plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import LANES, Ints, Task

__all__ = ["SECONDS", "plan_scattered"]

#: The search stops after so long.
SECONDS = 1.0
#: Shares of that time: for proposing cuts, and for dealing one.
_CUTTING, _DEALING = 0.35, 0.2
_CUTS, _TRIALS = 6, 10
_MOST_ELEMENTS, _SMALL = 16384, 512
_MOST_INDEX = 0xFFFE


def plan_scattered(problem: Problem, task: Task) -> Plan | None:
    """Return the best plan found; None for several warps, too many elements, no whole words, or too few registers."""
    start = time.thread_time()
    reach = max(int(places.max() - places.min()) // task.width for places in (task.source, task.destination))
    if problem.warps > 1 or task.size > _MOST_ELEMENTS or reach > _MOST_INDEX:
        return None
    best: _Found | None = None
    # Small requests leave lanes idle that may as well write half words.
    for widest in (4, 2) if task.width == 1 and task.size <= _SMALL else (4,):
        search = Search(task, start + SECONDS * _CUTTING, widest=widest)
        if max((*search.source.widths, *search.destination.widths)) > task.width:
            best = _look(problem, search, start, best)
    return None if best is None else _plan(problem, task, best)


@dataclass(frozen=True, slots=True)
class _Found:
    """The best classes so far, and the search whose pieces they name."""

    classes: list[_Built]
    search: Search

    @property
    def cost(self) -> int:
        """Wavefronts: every instruction costs one."""
        return sum(built.cost for built in self.classes)

    @property
    def registers(self) -> int:
        """Registers per lane: what is to be written, and one class's reads at a time."""
        return sum(len(built.writes) for built in self.classes) + max(len(built.reads) for built in self.classes)


def _look(problem: Problem, search: Search, start: float, best: _Found | None) -> _Found | None:
    """Try the cuts of one search, the most hopeful first."""
    for trial in _trials(search):
        if best is not None and trial.hope >= best.cost:
            continue
        now = time.thread_time()
        if now > start + SECONDS * (1 - _DEALING) and best is not None:
            search.stopped = best.search.stopped = True
            break
        search.deadline = start + SECONDS
        found = _Found(trial.deal(search, now + SECONDS * _DEALING), search)
        if found.registers <= problem.max_registers and (best is None or found.cost < best.cost):
            best = found
    return best


@dataclass(frozen=True, slots=True)
class _Built:
    """A class with its instructions, each a width and a piece per lane."""

    jobs: Sequence[Job]
    reads: list[tuple[int, list[int]]]
    writes: list[tuple[int, list[int]]]

    @property
    def cost(self) -> int:
        """Wavefronts."""
        return len(self.reads) + len(self.writes)


def _build(classes: Iterable[Sequence[Job]], search: Search) -> list[_Built]:
    return [
        _Built(
            jobs,
            instructions(jobs, search.source, reads=True),
            instructions(jobs, search.destination, reads=False),
        )
        for jobs in classes
        if jobs
    ]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A cut with classes of one kind.

    Args:
        hope: wavefronts if banks allow it.
        cut: the jobs.
        classes: number of equally filled classes; 0 for full ones and a rest that is cut anew.
    """

    hope: int
    cut: Cut
    classes: int

    def deal(self, search: Search, deadline: float) -> list[_Built]:
        """Return classes of jobs, as far as possible free of full banks."""
        sides = search.source, search.destination
        if self.classes:
            rooms = [Room(LANES, *_size(self.cut.jobs))] * self.classes
            return _build(balance(self.cut.jobs, rooms, *sides, deadline), search)
        full = [self.cut.jobs[k * LANES : (k + 1) * LANES] for k in range(self.cut.full)]
        rooms = [Room(LANES, *_size(jobs)) for jobs in full]
        left = len(self.cut.jobs) - LANES * self.cut.full
        if left:
            sizes = [_size(jobs) for jobs in self.cut.rest]
            rooms.append(Room(left, sum(r for r, _ in sizes), sum(w for _, w in sizes)))
        dealt = balance(self.cut.jobs, rooms, *sides, deadline)
        rest = dealt.pop() if left else []
        anew = search.recut(sorted(d for job in rest for d in job.writes)) if rest else ()
        choices = [_build(classes, search) for classes in ([rest], anew)]
        return _build(dealt, search) + min(choices, key=lambda built: sum(one.cost for one in built))


def _trials(search: Search) -> Iterator[_Trial]:
    """Yield trials: equally filled classes first, since they leave the deal some freedom."""
    cuts: dict[frozenset[tuple[int, ...]], Cut] = {}
    for cut in search.cuts():
        cuts.setdefault(frozenset(job.writes for job in cut.jobs), cut)
    chosen = list(cuts.values())
    even = []
    for cut in chosen:
        count, size = -(-len(cut.jobs) // LANES), sum(_size(cut.jobs))
        even += [_Trial(count * size, cut, count), _Trial((count + 1) * size, cut, count + 1)]
    yield from sorted(even, key=lambda trial: trial.hope)[:_TRIALS]
    yield from (_Trial(cut.cost, cut, 0) for cut in chosen[:_CUTS])


def _size(jobs: Sequence[Job]) -> tuple[int, int]:
    return max(len(job.reads) for job in jobs), max(len(job.writes) for job in jobs)


def _plan(problem: Problem, task: Task, best: _Found) -> Plan:
    search = best.search
    sides = {
        "source": (search.source, _held(search.source)),
        "destination": (search.destination, _held(search.destination)),
    }
    reads: list[Moves] = []
    writes: list[Moves] = []
    for built in best.classes:
        wanted = [set(job.writes) for job in built.jobs]
        for side, rows, moves in (("source", built.reads, reads), ("destination", built.writes, writes)):
            for width, row in rows:
                moves.append((width, _spell(task, side, *sides[side], width, row, wanted, search)))
    sizes = [_size(built.jobs) for built in best.classes]
    details = {
        "jobs": tuple(len(built.jobs) for built in best.classes),
        "reads": tuple(r for r, _ in sizes),
        "writes": tuple(w for _, w in sizes),
        "search": "stopped by the clock" if search.stopped else "complete",
    }
    operations = count_operations(reads, writes)
    return list_plan(
        "words", reads, writes, problem, details, task=task, operations=operations, registers=best.registers
    )


def _held(pieces: Pieces) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in pieces.widths]
    for element, piece in enumerate(pieces.owner.tolist()):
        members[piece].append(element)
    return members


def _spell(
    task: Task,
    side: str,
    pieces: Pieces,
    held: Sequence[Sequence[int]],
    width: int,
    row: Sequence[int],
    wanted: Sequence[set[int]],
    search: Search,
) -> Ints:
    """Return the elements [0][lane][position] of one instruction: those that the lane's own job needs."""
    places = task.source if side == "source" else task.destination
    table = np.full((1, LANES, width // task.width), -1, dtype=np.int64)
    for lane, piece in enumerate(row):
        if piece < 0:
            continue
        for element in held[piece]:
            if int(search.destination.owner[element]) in wanted[lane]:
                table[0, lane, (int(places[element]) - pieces.addresses[piece]) // task.width] = element
    return table
