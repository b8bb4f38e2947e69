"""No two blocks write the same element: boxes around what they write meet rarely, and then elements are compared."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verify.ptx.blocks.partition import Ints

__all__ = ["TooManyMeetingsError", "Written", "first_clash"]

_MOST_PAIRS: Final = 1 << 22
_MOST_COMPARED: Final = 1 << 28


class TooManyMeetingsError(Exception):
    """Boxes around what blocks write meet too often to compare them all."""


class Written:
    """What the blocks of one class write: the representative's elements, and how far each block is from it.

    Attributes:
        blocks: numbers of the blocks.
        shift: per digit and block, how far the block's elements are from the representative's.
        places: the places in the output of the representative's elements, sorted.
        low, high: the least and greatest digit of the representative's elements.
        moves: how far each block's places are from the representative's.
    """

    def __init__(self, blocks: Ints, shift: Ints, places: Ints, extremes: tuple[Ints, Ints], moves: Ints) -> None:
        self.blocks, self.shift, self.places, self.moves = blocks, shift, places, moves
        self.low, self.high = extremes


def first_clash(classes: list[Written]) -> tuple[int, int, int] | None:
    """Return two blocks that write the same place of the output, and the place, if there are such.

    Blocks of two classes overlap alike wherever they lie equally far apart, so that each distance is compared once.

    Raises:
        TooManyMeetingsError: too many comparisons.
    """
    if not classes or not len(classes[0].low):
        return None
    low = np.concatenate([c.low[:, None] + c.shift for c in classes], axis=1)
    high = np.concatenate([c.high[:, None] + c.shift for c in classes], axis=1)
    kind = np.concatenate([np.full(len(c.blocks), n) for n, c in enumerate(classes)])
    number = np.concatenate([c.blocks for c in classes])
    move = np.concatenate([c.moves for c in classes])
    one, two = _meeting(low, high)
    apart = move[two] - move[one]
    keys = np.stack([kind[one], kind[two], apart], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    effort = 0
    for pair in first.tolist():
        a, b = classes[int(kind[one[pair]])], classes[int(kind[two[pair]])]
        effort += len(a.places) + len(b.places)
        if effort > _MOST_COMPARED:
            raise TooManyMeetingsError("blocks overlap in too many ways to compare what they write")
        both = np.intersect1d(a.places, b.places + apart[pair], assume_unique=True)
        if len(both):
            return int(number[one[pair]]), int(number[two[pair]]), int(both[0] + move[one[pair]])
    return None


def _meeting(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All pairs of boxes that meet: they share a cell of a grid whose cells are as large as the largest box."""
    count = low.shape[1]
    size = (high - low).max(axis=1) + 1
    first, last = low // size[:, None], high // size[:, None]
    spans = last.max(axis=1) - first.min(axis=1) + 2
    keys, owners = [], []
    for ends in itertools.product((0, 1), repeat=len(low)):
        used = np.ones(count, dtype=bool)
        key = np.zeros(count, dtype=np.int64)
        for row, end in enumerate(ends):
            used &= (last[row] != first[row]) if end else True
            key = key * spans[row] + ((last[row] if end else first[row]) - first[row].min())
        if used.any():
            keys.append(key[used])
            owners.append(np.flatnonzero(used))
    return _sharing(np.concatenate(keys), np.concatenate(owners), low, high)


def _sharing(keys: Ints, owners: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Pairs of owners with one key whose boxes meet, each pair once."""
    order = np.argsort(keys, kind="stable")
    keys, owners = keys[order], owners[order]
    found: list[NDArray[np.int64]] = []
    total = 0
    for distance in range(1, len(keys)):
        same = np.flatnonzero(keys[distance:] == keys[:-distance])
        if not len(same):
            break
        one, two = owners[same], owners[same + distance]
        meet = ((low[:, one] <= high[:, two]) & (low[:, two] <= high[:, one])).all(axis=0)
        found.append(np.stack([np.minimum(one, two)[meet], np.maximum(one, two)[meet]]))
        total += len(same)
        if total > _MOST_PAIRS:
            raise TooManyMeetingsError("blocks overlap too often to compare what they write")
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    pairs = np.unique(np.concatenate(found, axis=1), axis=1)
    return pairs[0], pairs[1]
