"""Shared-memory tiles that matrix instructions read: rows of 16-byte chunks, permuted by the hardware's XOR.

Swizzle mode k (0 to 3) has rows of 16 * 2^k bytes: a tile (rows, columns) is cut into column blocks of that width,
which lie one after another, each with its rows densely one below the other.  From mode 1 on the chunk's number is
XORed with the row's, modulo 8: Swizzle<k, 4, 3> on bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from layoutalg.decide import as_number
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["MODES", "mma_shared_layout"]

#: Bytes of one row of a column block, by swizzle mode.
MODES = (16, 32, 64, 128)
_CHUNK_BITS = 128
_ROWS = 8  # rows that the XOR tells apart


def mma_shared_layout(dtype: object, mode: int, shape: Sequence[int]) -> TileLayout | SwizzledLayout:
    """Return the layout of a shared-memory tile in one of the four swizzle modes of the matrix instructions.

    Args:
        dtype: element type, of 4, 8, 16 or 32 bits.
        mode: 0 (no swizzle), 1, 2 or 3: rows of 16, 32, 64 or 128 bytes.
        shape: (..., rows, columns); leading extents repeat the tile.

    Raises:
        RangeError: no such mode, columns that do not fill whole rows, or fewer than 8 rows where they are permuted.

    Without a swizzle, columns that fill no whole chunks stay row-major.

    >>> print(mma_shared_layout("float16", 3, (64, 128)))
    Sw<3,3,3> o S[(64,2,64):(64,4096,1)]
    """
    element = dtype_of(dtype)
    if element.bits not in (4, 8, 16, 32):
        raise RangeError(f"shared tiles have elements of 4, 8, 16 or 32 bits, not {element}", dtype=element.name)
    if type(mode) is not int or not 0 <= mode < len(MODES):
        raise RangeError(f"swizzle mode {mode!r} is none of 0, 1, 2, 3", mode=mode)
    extents = _extents(shape)
    rows, columns = extents[-2:]
    width = MODES[mode] * 8 // element.bits
    if columns % width and mode == 0:
        return TileLayout.from_iters(shard=[(e, prod(extents[k + 1 :]), "m") for k, e in enumerate(extents)])
    if columns % width or (mode and rows % _ROWS):
        raise RangeError(
            f"mma_shared_layout: swizzle mode {mode} cuts {element} tiles into blocks of {_ROWS} rows and {width} "
            f"columns ({MODES[mode]} bytes); ({rows}, {columns}) is no multiple",
            shape=extents,
            rows=_ROWS,
            columns=width,
        )
    leading = [(extent, prod(extents[k + 1 :]), "m") for k, extent in enumerate(extents[:-2])]
    tile = TileLayout.from_iters(
        shard=[*leading, (rows, width, "m"), (columns // width, rows * width, "m"), (width, 1, "m")]
    )
    return SwizzledLayout(Swizzle(mode, (_CHUNK_BITS // element.bits).bit_length() - 1, 3), tile) if mode else tile


def _extents(shape: object) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) < 2:
        raise RangeError(f"mma_shared_layout: shape is (..., rows, columns), not {shape!r}")
    extents = tuple(as_number(extent, "an extent of the tile") for extent in shape)
    if not all(type(extent) is int and extent >= 1 for extent in extents):
        raise RangeError(f"mma_shared_layout: shape {extents} needs positive extents", shape=extents)
    return extents
