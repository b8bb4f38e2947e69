"""Instructions for a class of jobs: when each lane reads and writes which piece.

The order in which a lane reads its pieces is free, and so is the order in which it writes.  A read is an edge between a
lane and a bank; edges of one colour touch every lane and every bank at most once and make up one instruction of one
wavefront, and as many colours suffice as the busiest lane or the fullest bank has edges.  Where banks are the fuller
ones, lanes that want the same word may read it together: a bank delivers a word to any number of lanes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from codegen_cuda.permute.colouring import colour_edges
from codegen_cuda.permute.jobs import Job, Pieces
from codegen_cuda.permute.task import LANES, ROW_BYTES

__all__ = ["bank_of", "instructions"]

#: One instruction: the piece of every lane, -1 for idle.
Row = list[int]

_TRIES = 4


def bank_of(pieces: Pieces, piece: int) -> int:
    """Return the bank that holds a piece."""
    return pieces.addresses[piece] % ROW_BYTES // 4


def instructions(jobs: Sequence[Job], pieces: Pieces, *, reads: bool) -> list[tuple[int, Row]]:
    """Return the instructions of one phase of a class, as width and piece per lane.

    Args:
        jobs: one per lane.
        pieces: of that side.
        reads: which phase; only reads may share a word.
    """
    wanted = [job.reads if reads else job.writes for job in jobs]
    found: list[tuple[int, Row]] = []
    for width in (4, 2, 1):
        lanes = [[p for p in some if pieces.widths[p] == width] for some in wanted]
        if any(lanes):
            found += [(width, row) for row in _rows(lanes, pieces, share=reads)]
    return found


def _rows(lanes: Sequence[Sequence[int]], pieces: Pieces, *, share: bool) -> list[Row]:
    edges = [(lane, p) for lane, some in enumerate(lanes) for p in some]
    banks = [bank_of(pieces, p) for _, p in edges]
    busiest = max(len(some) for some in lanes)
    fullest = max(banks.count(bank) for bank in set(banks))
    if fullest <= busiest or not share:
        colours = colour_edges([lane for lane, _ in edges], banks, max(busiest, fullest))
        rows = [[-1] * LANES for _ in range(max(busiest, fullest))]
        for (lane, p), colour in zip(edges, colours, strict=True):
            rows[colour][lane] = p
        return rows
    return _shared_rows(lanes, pieces, busiest, fullest)


def _shared_rows(lanes: Sequence[Sequence[int]], pieces: Pieces, busiest: int, fullest: int) -> list[Row]:
    """Let lanes that want the same piece read it together, as far as that saves instructions."""
    wanted: dict[int, list[int]] = {}
    for lane, some in enumerate(lanes):
        for p in some:
            wanted.setdefault(p, []).append(lane)
    distinct: dict[int, int] = {}
    for p in wanted:
        distinct[bank_of(pieces, p)] = distinct.get(bank_of(pieces, p), 0) + 1
    rng = random.Random(0)
    for count in range(max(busiest, *distinct.values()), fullest):
        for attempt in range(_TRIES):
            rows = _greedy(wanted, pieces, count, rng, shuffled=attempt > 0)
            if rows is not None:
                return rows
    edges = [(lane, p) for lane, some in enumerate(lanes) for p in some]
    colours = colour_edges([lane for lane, _ in edges], [bank_of(pieces, p) for _, p in edges], fullest)
    rows = [[-1] * LANES for _ in range(fullest)]
    for (lane, p), colour in zip(edges, colours, strict=True):
        rows[colour][lane] = p
    return rows


def _greedy(
    wanted: dict[int, list[int]], pieces: Pieces, count: int, rng: random.Random, *, shuffled: bool
) -> list[Row] | None:
    """Place pieces one after another, those of crowded banks and busy lanes first; None where one does not fit."""
    everything = (1 << count) - 1
    lane_free = [everything] * LANES
    bank_free: dict[int, int] = {}
    rows = [[-1] * LANES for _ in range(count)]
    left = {p: set(some) for p, some in wanted.items()}
    slack: dict[int, int] = {}
    for p in wanted:
        bank = bank_of(pieces, p)
        bank_free[bank] = everything
        slack[bank] = slack.get(bank, 0) + 1
    order = sorted(wanted, key=lambda p: (-len(wanted[p]), -slack[bank_of(pieces, p)], rng.random() if shuffled else p))
    for p in order:
        bank = bank_of(pieces, p)
        while left[p]:
            best = (0, -1)
            for colour in range(count):
                if bank_free[bank] >> colour & 1:
                    fits = sum(lane_free[lane] >> colour & 1 for lane in left[p])
                    best = max(best, (fits, -colour - 1), key=lambda b: b[0])
            if best[0] == 0:
                return None
            colour = -best[1] - 1
            taken = {lane for lane in left[p] if lane_free[lane] >> colour & 1}
            for lane in taken:
                rows[colour][lane] = p
                lane_free[lane] &= ~(1 << colour)
            bank_free[bank] &= ~(1 << colour)
            left[p] -= taken
    return rows
