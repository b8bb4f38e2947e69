"""Race records against their definition: every pair of accesses of one cell, compared one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

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


@st.composite
def histories(draw):
    """Barriers and accesses of few threads to few cells, in execution order."""
    threads = [0, 1, 33, PADDED, PADDED + 32]
    events = []
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["read", "write", "read", "write", "block", "warp"]))
        if kind in ("read", "write"):
            chosen = draw(st.lists(st.sampled_from(threads), min_size=1, max_size=3, unique=True))
            events.append((kind, [(thread, draw(st.integers(0, 1))) for thread in chosen]))
        else:
            events.append((kind, draw(st.integers(0, BLOCKS - 1 if kind == "block" else 2 * BLOCKS - 1))))
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


@given(histories())
@settings(max_examples=400, deadline=None)
def test_the_records_find_the_first_race_exactly_where_the_definition_does(events):
    expected = first_race(events)
    event("race" if expected >= 0 else "no race")
    assert first_race_by_shadow(events) == expected


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
