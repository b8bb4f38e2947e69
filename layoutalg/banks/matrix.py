"""The matrix rows behind a fragment: what ``ldmatrix`` and ``stmatrix`` are given.

One matrix is 8 rows of 16 bytes.  Lane l receives, in one 32-bit register, the 4 bytes at byte 4*(l mod 4) of row
l div 4.  Transposed (16-bit elements only), it receives elements (2*(l mod 4), l div 4) and (2*(l mod 4) + 1, l div 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.banks.access import FULL_MASK, name_lanes
from layoutalg.banks.fragment import Holding
from layoutalg.errors import NotExpressibleError, RangeError
from layoutalg.hardware.dtypes import Dtype

__all__ = ["matrix_rows"]

Ints = npt.NDArray[np.int64]
_LANES = np.arange(32)


def matrix_rows(
    positions: Ints, holding: Holding, dtype: Dtype, *, op: str, matrices: int | None, transpose: bool | None
) -> tuple[Any, Any, Any, Any]:
    """Warps, slots, row addresses and masks of the matrix instructions that move a fragment.

    Args:
        positions: bit position of each element by [warp, register, lane]; -1 in idle slots.
        holding: the fragment.
        dtype: element type, at most 32 bits wide.
        op: ``ldmatrix`` or ``stmatrix``.
        matrices: per instruction; as many as fit when left out.
        transpose: tried both ways when left out.

    Raises:
        NotExpressibleError: the fragment's words are no rows of 16 aligned bytes.
        RangeError: idle lanes, or a number of words that ``matrices`` does not divide.
    """
    per_word = 32 // dtype.bits
    if 32 % dtype.bits:
        raise RangeError(f"{op}: elements of {dtype.bits} bits do not fill 32-bit registers")
    if (positions < 0).any():
        warp, slot, lane = np.argwhere(positions < 0)[0]
        raise RangeError(
            f"{op} is executed by whole warps, but lane {lane} of warp {holding.warps[warp]} holds nothing in slot "
            f"{holding.registers[slot]}"
        )
    if positions.shape[1] % per_word:
        raise RangeError(f"{op}: {positions.shape[1]} slots of {dtype} are no whole 32-bit registers")
    # [warp, word, element of the word, lane]
    words = positions.reshape(len(holding.warps), -1, per_word, 32)
    if transpose and dtype.bits != 16:
        raise RangeError(f"{op} transposes 16-bit elements only, not {dtype}")
    tries = (False, True) if transpose is None and dtype.bits == 16 else (bool(transpose),)
    reasons = []
    for way in tries:
        rows, why = _rows(words, dtype, transposed=way, holding=holding)
        if not why:
            return _lists(rows, holding, per_word, _sizes(words.shape[1], op=op, matrices=matrices))
        reasons.append(f"{'transposed' if way else 'as rows'}: {why}")
    raise NotExpressibleError(f"{op} does not move this fragment; {'; '.join(reasons)}", op=op)


def _rows(words: Ints, dtype: Dtype, *, transposed: bool, holding: Holding) -> tuple[Ints, str]:
    """Byte address of each matrix row by [warp, word, row]; or why there is none."""
    bits, count = dtype.bits, words.shape[2]
    if transposed:
        # Row r starts with the element that lane r div 2 holds in half r mod 2.
        starts = words[:, :, _LANES[:8] % 2, _LANES[:8] // 2]
        row = 2 * (_LANES % 4) + np.arange(2)[:, None]
        inside = np.broadcast_to(16 * (_LANES // 4), (2, 32))
    else:
        starts = words[:, :, 0, 4 * np.arange(8)]
        row = np.broadcast_to(_LANES // 4, (count, 32))
        inside = 32 * (_LANES % 4) + bits * np.arange(count)[:, None]
    wrong = words != starts[:, :, row] + inside
    wrong |= (starts % 128 != 0)[:, :, row]
    if not wrong.any():
        return starts // 8, ""
    warp, word = (int(x) for x in np.argwhere(wrong)[0][:2])
    lanes = np.flatnonzero(wrong[warp, word].any(axis=0)).tolist()
    slots = ", ".join(str(holding.registers[word * count + k]) for k in range(count))
    return starts, f"slots {slots} of {name_lanes(lanes)} of warp {holding.warps[warp]} are in no aligned 16-byte row"


def _sizes(words: int, *, op: str, matrices: int | None) -> list[int]:
    """How many matrices each instruction of a warp moves."""
    if matrices is None:
        four, rest = divmod(words, 4)
        return [4] * four + [2] * (rest // 2) + [1] * (rest % 2)
    if matrices not in (1, 2, 4):
        raise RangeError(f"{op} moves 1, 2 or 4 matrices, not {matrices}")
    if words % matrices:
        raise RangeError(f"{op}: {words} matrices per warp do not divide into instructions of {matrices}")
    return [matrices] * (words // matrices)


def _lists(rows: Ints, holding: Holding, per_word: int, sizes: Sequence[int]) -> tuple[Any, Any, Any, Any]:
    warps: list[int] = []
    registers: list[tuple[int, ...]] = []
    addresses: list[Ints] = []
    for at, warp in enumerate(holding.warps):
        first = 0
        for size in sizes:
            warps.append(warp)
            registers.append(holding.registers[first * per_word : (first + size) * per_word])
            addresses.append(rows[at, first : first + size].reshape(-1))
            first += size
    return tuple(warps), tuple(registers), tuple(addresses), (FULL_MASK,) * len(warps)
