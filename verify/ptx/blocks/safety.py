"""Bounds and alignment of every access of every block, and conditions that must hold, read off class by class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from verify.ptx.blocks.moved import Located
from verify.ptx.blocks.operations import Terms
from verify.ptx.blocks.partition import Ints
from verify.ptx.program import Step

__all__ = ["first_hazard", "first_stray"]


def first_stray(terms: Terms, located: Iterable[Located], moves: list[Ints]) -> tuple[dict[str, Any], int, int] | None:
    """Return the first access that leaves its memory or is not aligned: its facts, the block and the thread.

    Args:
        terms: the settled classes.
        located: the accesses.
        moves: the blocks' parts of offsets.
    """
    for access in located:
        change = np.zeros(1, dtype=np.int64) if access.move < 0 else moves[access.move]
        found = _stray(terms, access, change)
        if found is not None:
            step = access.place.access.step
            row, thread, at = found
            block = _worst(terms, row, change, at, access)
            facts = {
                "PTX line": step.line,
                "instruction": step.text,
                "byte": at + int(change[block if len(change) > 1 else 0]),
                "bytes there are": access.place.size,
            }
            return facts, block, thread
    return None


def _stray(terms: Terms, access: Located, change: Ints) -> tuple[int, int, int] | None:
    """Class, thread and offset at the representative of an access that goes wrong in some block."""
    size, count = access.place.access.size, len(terms.classes)
    columns = max(access.guard.shape[1], access.offset.shape[1])
    guard = np.broadcast_to(access.guard, (count, columns))
    offset: Ints = np.broadcast_to(access.offset, (count, columns))
    if len(change) == 1:
        least = greatest = np.zeros(count, dtype=np.int64)
        odd = np.zeros(count, dtype=bool)
    else:
        least, greatest = terms.classes.extremes(change)
        odd = terms.classes.extremes(change & (size - 1))[1] != 0
    # The representative itself and the differences come first, so that no sum below can wrap.
    wrong = (offset < 0) | (offset > access.place.size - size) | (greatest > access.place.size)[:, None]
    wrong |= (offset + least[:, None] < 0) | (offset + greatest[:, None] > access.place.size - size)
    wrong |= (offset & (size - 1) != 0) | odd[:, None] | (access.place.align % size != 0)
    wrong &= guard
    if not wrong.any():
        return None
    row, thread = np.argwhere(wrong)[0].tolist()
    return row, thread, int(offset[row, thread])


def _worst(terms: Terms, row: int, change: Ints, at: int, access: Located) -> int:
    """A block of the class in which the access goes wrong."""
    blocks = terms.classes.members(row)
    if len(change) == 1:
        return int(blocks[0])
    places = at + change[blocks]
    size = access.place.access.size
    wrong = (places < 0) | (places > access.place.size - size) | (places & (size - 1) != 0)
    return int(blocks[int(np.argmax(wrong))])


def first_hazard(terms: Terms, hazards: Iterable[tuple[Any, Step, str]]) -> tuple[dict[str, Any], int, int] | None:
    """Return the first condition that some thread of some block does not fulfil: its facts, block and thread."""
    for condition, step, words in hazards:
        holds = terms.truth(condition)
        if not holds.all():
            row, thread = np.argwhere(~holds)[0].tolist()
            facts = {"PTX line": step.line, "instruction": step.text, "does not hold": words}
            return facts, int(terms.classes.first[row if len(holds) > 1 else 0]), thread
    return None
