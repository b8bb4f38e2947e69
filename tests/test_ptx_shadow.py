"""Race records against their definition: every pair of accesses of one cell, compared one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from verify.ptx.shadow import WARP_STEP, Shadow, next_block_epoch

PADDED = 64  # two warps a block
BLOCKS = 2


def ordered(first, second) -> bool:
    """By definition: same thread; or a block barrier, or for one warp a warp barrier, between two accesses."""
    (thread, block_epoch, warp_epoch), (other, other_block_epoch, other_warp_epoch) = first, second
    if thread == other:
        return True
    if thread // PADDED != other // PADDED:
        return False
    same_warp = thread // 32 == other // 32
    return block_epoch < other_block_epoch or (same_warp and warp_epoch < other_warp_epoch)


def history(rng):
    """Barriers and accesses of few threads to few cells, in execution order."""
    threads = [0, 1, 33, PADDED, PADDED + 32]
    events = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.choice(["read", "write", "read", "write", "block", "warp"])
        if kind in ("read", "write"):
            chosen = rng.sample(threads, rng.randint(1, 3))
            events.append((kind, [(thread, rng.randint(0, 1)) for thread in chosen]))
        else:
            events.append((kind, rng.randrange(BLOCKS if kind == "block" else 2 * BLOCKS)))
    return events


def first_race(events) -> int:
    """Index of the first event that races with an earlier one or within itself; -1 without one."""
    block_epoch, warp_epoch, past = [0] * BLOCKS, [0] * (2 * BLOCKS), []
    for index, (kind, what) in enumerate(events):
        if kind == "block":
            block_epoch[what] += 1
        elif kind == "warp":
            warp_epoch[what] += 1
        else:
            for thread, cell in what:
                access = (thread, block_epoch[thread // PADDED], warp_epoch[thread // 32])
                for other, other_cell, other_write in past:
                    if cell == other_cell and (kind == "write" or other_write) and not ordered(other, access):
                        return index
                past.append((access, cell, kind == "write"))
    return -1


def first_race_by_shadow(events) -> int:
    shadow = Shadow(2, PADDED, defined=True)
    stamps = np.arange(BLOCKS * PADDED)
    for index, (kind, what) in enumerate(events):
        if kind == "block":
            part = slice(PADDED * what, PADDED * (what + 1))
            stamps[part] = next_block_epoch(stamps[part])
        elif kind == "warp":
            stamps[32 * what : 32 * (what + 1)] += WARP_STEP
        else:
            rows = sorted(what)
            cells = np.array([[cell] for _, cell in rows])
            used = stamps[[thread for thread, _ in rows]]
            if (shadow.write if kind == "write" else shadow.read)(cells, used) is not None:
                return index
    return -1


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_records_find_the_first_race_exactly_where_the_definition_does(count):
    """Random histories: drawing them is most of the work, so they come from a plain generator."""
    rng = random.Random(count)
    races = set()
    for _ in range(count):
        events = history(rng)
        expected = first_race(events)
        races.add(min(expected, 3))
        assert first_race_by_shadow(events) == expected, events
    assert races == {-1, 0, 1, 2, 3}


def test_undefined_cells_must_be_written_first():
    shadow = Shadow(4, PADDED, defined=False)
    one = np.array([0])
    clash = shadow.read(np.array([[0, 1]]), one)
    assert clash is not None
    assert (clash.kind, clash.row, clash.column) == ("uninitialised-memory", 0, 0)
    assert shadow.write(np.array([[0, 1]]), one) is None
    assert shadow.read(np.array([[0, 1]]), one) is None
    assert shadow.written().tolist() == [True, True, False, False]


def test_closed_cells_take_no_access():
    shadow = Shadow(4, PADDED, defined=True)
    shadow.mark(np.array([2]), True)
    for access in (shadow.read, shadow.write):
        clash = access(np.array([[1, 2]]), np.array([0]))
        assert clash is not None
        assert (clash.kind, clash.column) == ("pending", 1)
    shadow.mark(np.array([2]), False)
    assert shadow.write(np.array([[1, 2]]), np.array([0])) is None
