"""Which instruction registers can carry a register word: patterns of cells over the 32 lanes.

An instruction register is a vector of 32 cells.  Each shape has one or two such patterns (the rows 8 apart), up to the
base, and a base is fixed by the cell of lane 0; so for every word of every warp the patterns that fit are found by
comparing 32 cells.  ``16x32bx2`` has two bases, fixed by lanes 0 and 16.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.tmem.problem import LANE, Ints, TmemProblem, Words
from layoutalg.errors import RangeError
from layoutalg.hardware.tcgen05 import SHAPES, SLAB, TWO_ADDRESSES, TmemInstruction, split_offset

__all__ = ["Fit", "cells_of", "find_fits", "pattern"]

#: Shapes in order of preference where several serve equally.
ORDER: Final = ("32x32b", "16x256b", "16x128b", "16x64b", TWO_ADDRESSES)


class Fit(NamedTuple):
    """A register word that one register of an instruction can carry.

    ``lane`` and ``column`` are the base of the ``.x1`` instruction whose pattern starts in this word; of ``16x256b``
    the word may also be the second of its pair, from a base one column (two, when packed) to the left.
    """

    warp: int
    word: int
    shape: str
    packed: bool
    lane: int
    column: int
    half: int
    split: int


@functools.cache
def pattern(shape: str, packed: bool, half: int, split: int = 0) -> Ints:
    """Cell codes over the lanes of the first register in the given half of the rows, from the base."""
    rows, columns = TmemInstruction(shape, 1, packed, split).cells()
    register = {"16x128b": 1, "16x256b": 2}.get(shape, 0) * half
    codes: Ints = LANE * rows[:, register] + columns[:, register]
    codes.setflags(write=False)
    return codes


def halves(shape: str) -> int:
    """Row patterns of a shape."""
    return 2 if SHAPES[shape].words > 1 else 1


def cells_of(fit: Fit) -> Ints:
    """Cell codes that the fit covers: 32, or 64 when packed; lanes first, low halves first."""
    codes = pattern(fit.shape, fit.packed, fit.half, fit.split) + LANE * fit.lane + fit.column
    return np.concatenate([codes, codes + 1]) if fit.packed else codes


def candidate_cells(problem: TmemProblem, words: Words, *, packed: bool) -> Ints:
    """Cells that may serve each register word, ``[warp, lane, word, replica]``, -1 where none does.

    Plain: all parts of the word lie in one cell, in the same order.  Packed: the two halves are the low halves of
    neighbouring cells, and no element lives in their upper halves (a store would leave those undefined).
    """
    held = words.held
    full = np.all(held >= 0, axis=-1, keepdims=True)
    first: Ints = words.places[np.maximum(held[..., 0], 0)]
    step = 32 if packed else problem.bits
    fits: NDArray[np.bool_] = full & (first % 32 == 0)
    for part in range(1, held.shape[-1]):
        others = words.places[np.maximum(held[..., part], 0)]
        fits &= (others[..., None, :] == (first + part * step)[..., :, None]).any(axis=-1)
    if packed and problem.direction == "st":
        upper = words.places[words.places % 32 >= 16] // 32
        fits &= ~(np.isin(first // 32, upper) | np.isin(first // 32 + 1, upper))
    return np.where(fits, first // 32, -1)


def find_fits(problem: TmemProblem, words: Words) -> list[Fit]:
    """Return every fit of every register word of every warp."""
    found: dict[Fit, None] = {}
    for packed in (False, True) if problem.bits == 16 else (False,):
        cells = candidate_cells(problem, words, packed=packed)
        if not (cells >= 0).any():
            continue
        for shape in ORDER:
            fits = _two_address_fits if shape == TWO_ADDRESSES else _one_address_fits
            for fit in fits(words, cells, shape, packed):
                found[fit] = None
    return list(found)


def _one_address_fits(words: Words, cells: Ints, shape: str, packed: bool) -> Iterator[Fit]:
    rows = SHAPES[shape].rows
    for half in range(halves(shape)):
        offsets = pattern(shape, packed, half)
        for k in range(cells.shape[-1]):
            base = cells[:, 0, :, k] - offsets[0]
            want = base[:, None, :] + offsets[None, :, None]
            good = (cells[:, 0, :, k] >= 0) & (base >= 0) & (cells == want[..., None]).any(axis=-1).all(axis=1)
            for index, word in np.argwhere(good).tolist():
                lane, column = divmod(int(base[index, word]), LANE)
                if lane % rows == 0 and _in_slab(words.warps[index], lane, rows):
                    yield Fit(words.warps[index], word, shape, packed, lane, column, half, 0)


def _two_address_fits(words: Words, cells: Ints, shape: str, packed: bool) -> Iterator[Fit]:
    row = LANE * np.arange(16)
    count = cells.shape[-1]
    for k in range(count):
        low = cells[:, 0, :, k]
        fits_low = _run_fits(cells[:, :16], low, row)
        for k2 in range(count):
            high = cells[:, 16, :, k2]
            for index, word in np.argwhere(fits_low & _run_fits(cells[:, 16:], high, row)).tolist():
                lane, column = divmod(int(low[index, word]), LANE)
                lane2, column2 = divmod(int(high[index, word]), LANE)
                warp = words.warps[index]
                if lane % 16 or lane2 % 16 or not (_in_slab(warp, lane, 16) and _in_slab(warp, lane2, 16)):
                    continue
                try:
                    split = split_offset(lane2 - lane, column2 - column)
                except RangeError:
                    continue
                yield Fit(warp, word, shape, packed, lane, column, 0, split)


def _run_fits(cells: Ints, base: Ints, offsets: Ints) -> Ints:
    want = base[:, None, :] + offsets[None, :, None]
    good: Ints = (base >= 0) & (cells == want[..., None]).any(axis=-1).all(axis=1)
    return good


def _in_slab(warp: int, lane: int, rows: int) -> bool:
    begin = SLAB * (warp % 4)
    return begin <= lane and lane + rows <= begin + SLAB
