"""Layouts that matrix instructions give tensor memory: 128 lanes of 512 columns of 32 bits (PTX ISA 9.7.16)."""

from __future__ import annotations

from layoutalg.errors import RangeError
from layoutalg.tile import TileLayout

__all__ = ["tmem_datapath_layout"]

# Rows of the tile, and how many runs of columns are laid side by side over the lanes.
_DATAPATHS = {"A": (128, 1), "B": (64, 2), "C": (64, 1), "D": (128, 1), "E": (64, 2), "F": (64, 1), "G": (32, 4)}
_HALVES = ("C", "F")


def tmem_datapath_layout(letter: str, rows: int, cols: int, sub_slab: int = 0) -> TileLayout:
    """Return where an accumulator tile (rows, cols) lives, by the letter of its datapath.

    A, D: element (r, c) at lane r, column c.  B, E: lane r + 64 * (c // (cols/2)), column c mod cols/2.
    C, F: lane 32 * (r // 16) + 16 * sub_slab + r % 16, column c.
    G: lane r + 32 * (c // (cols/4)), column c mod cols/4.

    Args:
        letter: ``"A"`` to ``"G"``.
        rows: 128 for A and D, 64 for B, C, E and F, 32 for G.
        cols: in elements; even for B and E, a multiple of 4 for G.
        sub_slab: which 16 lanes of every 32, for C and F.

    Raises:
        RangeError: no such datapath, or rows, columns or a sub-slab that it does not have.

    >>> print(tmem_datapath_layout("B", 64, 128))
    S[(64,2,64):(1@TLane,64@TLane,1@TCol)]
    """
    if letter not in _DATAPATHS:
        raise RangeError(f"datapath {letter!r} is none of {', '.join(_DATAPATHS)}", letter=letter)
    tile, runs = _DATAPATHS[letter]
    if rows != tile:
        raise RangeError(f"datapath {letter} has {tile} rows, not {rows}", rows=rows)
    if type(cols) is not int or cols < 1 or cols % runs:
        raise RangeError(f"datapath {letter} needs a positive multiple of {runs} columns, not {cols}", cols=cols)
    if sub_slab not in ((0, 1) if letter in _HALVES else (0,)):
        raise RangeError(f"datapath {letter} has no sub-slab {sub_slab}; C and F have 0 and 1", sub_slab=sub_slab)
    shard: list[tuple[int, int, str]]
    if letter in _HALVES:
        shard = [(4, 32, "TLane"), (16, 1, "TLane"), (cols, 1, "TCol")]
        return TileLayout.from_iters(shard=shard, offset={"TLane": 16} if sub_slab else {})
    if runs == 1:
        return TileLayout.from_iters(shard=[(rows, 1, "TLane"), (cols, 1, "TCol")])
    return TileLayout.from_iters(shard=[(rows, 1, "TLane"), (runs, rows, "TLane"), (cols // runs, 1, "TCol")])
