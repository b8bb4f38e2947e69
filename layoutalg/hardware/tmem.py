"""Layouts of tensor memory, 128 lanes of 512 columns of 32 bits (PTX ISA 9.7.16), and of the registers that meet it.

``TLane`` counts lanes and ``TCol`` elements of the layout's dtype, so a 16-bit element in a 32-bit cell of its own
moves by 2.  A matrix instruction spreads its tile over the lanes in one of a few ways, the *datapaths* A to G.
"""

from __future__ import annotations

from collections.abc import Sequence

from layoutalg.decide import as_number
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.hardware.tcgen05 import COLUMNS, SHAPES, TmemInstruction
from layoutalg.tile import TileLayout

__all__ = ["tcgen05_atom_layout", "tmem_datapath_layout", "tmem_mma_operand_layout"]

_Triples = list[tuple[int, int, str]]

# Datapath of tcgen05.mma by (M, cta_group, ws): how the rows of one CTA lie on the lanes.
_INSTRUCTIONS = {
    (256, 2, False): "A",
    (128, 2, False): "B",
    (128, 1, False): "D",
    (128, 1, True): "D",
    (64, 1, True): "E",
    (64, 1, False): "F",
}

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
    if not isinstance(letter, str) or letter not in _DATAPATHS:
        raise RangeError(f"datapath {letter!r} is none of {', '.join(_DATAPATHS)}", letter=letter)
    tile, runs = _DATAPATHS[letter]
    if as_number(rows, "rows of a datapath") != tile:
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


def _extents(shape: object, what: str) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise RangeError(f"{what} must be a sequence of extents, not {shape!r}")
    extents = tuple(as_number(extent, f"an extent of the {what}") for extent in shape)
    if not extents or not all(type(extent) is int and extent >= 1 for extent in extents):
        raise RangeError(f"{what} {extents} needs positive extents", shape=extents)
    return extents


def tmem_mma_operand_layout(
    operand: str,
    shape: Sequence[int],
    dtype: object,
    *,
    M: int,  # noqa: N803 - the instruction's own name of its number of rows
    cta_group: int = 1,
    ws: bool = False,
    group: Sequence[int] | None = None,
) -> TileLayout:
    """Return where an operand of ``tcgen05.mma`` lives in the tensor memory of one CTA.

    The accumulator D has one element per 32-bit cell, so its columns step by 32 / bits; an A operand is packed.  With
    h halves side by side on the lanes (datapaths B and E), columns are split as (N), (2, n), (a, 2, b) or the halves
    come first (2, rows, n).

    Args:
        operand: ``"A"`` (the left factor, in tensor memory) or ``"D"`` (the accumulator).
        shape: of the operand in one CTA, rows M / cta_group.
        dtype: element type of the operand; 16 or 32 bits for D.
        M: rows of the instruction: 64 or 128, or 128 or 256 with two CTAs.
        cta_group: CTAs that take part, 1 or 2.
        ws: the weight-stationary form, M = 64 or 128 in one CTA.
        group: how the columns of a D operand (rows, N) split into (a, 2, b), columns counted packed.

    Raises:
        RangeError: no such instruction, or a shape that it does not have.

    >>> print(tmem_mma_operand_layout("D", (64, 64), "float16", M=64))
    S[(4,16,64):(32@TLane,1@TLane,2@TCol)]
    """
    datapath = _INSTRUCTIONS.get((M, cta_group, ws)) if type(M) is int and type(ws) is bool else None
    if datapath is None:
        known = ", ".join(f"M={m} cta_group={c}{' ws' if w else ''}" for m, c, w in _INSTRUCTIONS)
        raise RangeError(
            f"tcgen05.mma has no M={M} with cta_group={cta_group}, ws={ws}; known are {known}. The tile of M=32 is "
            f"tmem_datapath_layout('G', 32, cols)",
            M=M,
        )
    if operand not in ("A", "D"):
        raise RangeError(f"operand {operand!r} is neither 'A' nor 'D'", operand=operand)
    element = dtype_of(dtype)
    extents = _extents(shape, "operand shape")
    rows = M // cta_group
    if operand == "A":
        shard, replica, per_cell = *_left_operand(extents, rows, datapath), 1
    else:
        per_cell = _cells_per_element(element)
        shard, replica = _accumulator(extents, rows, datapath, group=group, step=per_cell if group is None else 1), []
    columns = 1 + sum((extent - 1) * stride for extent, stride, axis in shard if axis == "TCol")
    if columns * element.bits > COLUMNS * 32:
        raise RangeError(f"operand {operand} {extents} of {element} needs over {COLUMNS} columns", shape=extents)
    return TileLayout.from_iters(shard=shard, replica=replica)


def _cells_per_element(element: Dtype) -> int:
    if element.bits not in (16, 32):
        raise RangeError(f"an accumulator has 16- or 32-bit elements, not {element}", dtype=element.name)
    return 32 // element.bits


def _left_operand(extents: tuple[int, ...], rows: int, datapath: str) -> tuple[_Triples, _Triples]:
    """The A operand: rows on lanes, columns packed; where 64 rows fill 128 lanes, twice or halves side by side."""
    halves = datapath in ("B", "E")
    if halves and len(extents) == 3 and extents[:2] == (2, rows):
        return [(2, 64, "TLane"), (rows, 1, "TLane"), (extents[2], 1, "TCol")], []
    if len(extents) == 2 and extents[0] == rows and datapath != "E":
        return [(rows, 1, "TLane"), (extents[1], 1, "TCol")], [(2, 64, "TLane")] if datapath == "B" else []
    wanted = [f"({rows}, K)"] if datapath != "E" else []
    wanted += [f"(2, {rows}, K)"] if halves else []
    raise RangeError(f"operand A of datapath {datapath} has shape {' or '.join(wanted)}, not {extents}", shape=extents)


def _accumulator(
    extents: tuple[int, ...], rows: int, datapath: str, *, group: Sequence[int] | None, step: int
) -> _Triples:
    """The D operand; ``step`` is how far one column moves on TCol."""
    columns = extents[1:]
    if datapath not in ("B", "E"):
        if group is not None:
            raise RangeError(f"datapath {datapath} does not split columns, so it has no group", group=tuple(group))
        if len(extents) != 2 or extents[0] != rows:
            raise RangeError(f"operand D of datapath {datapath} has shape ({rows}, N), not {extents}", shape=extents)
        lanes: _Triples = [(4, 32, "TLane"), (16, 1, "TLane")] if datapath == "F" else [(rows, 1, "TLane")]
        return [*lanes, (columns[0], step, "TCol")]
    if extents[0] == 2 and len(extents) == 3 and extents[1] == rows and group is None:
        return [(2, 64, "TLane"), (rows, 1, "TLane"), (extents[2], step, "TCol")]
    if extents[0] == rows and len(columns) == 1:
        columns = _split_columns(columns[0], group)
    elif group is not None:
        raise RangeError(f"group splits the columns of ({rows}, N), not of {extents}", shape=extents)
    if extents[0] != rows or len(columns) not in (2, 3) or columns[-2] != 2:
        raise RangeError(
            f"operand D of datapath {datapath} has shape ({rows}, N), ({rows}, 2, n), ({rows}, a, 2, b) or "
            f"(2, {rows}, n), not {extents}",
            shape=extents,
        )
    blocks: _Triples = [(columns[0], columns[2] * step, "TCol")] if len(columns) == 3 else []
    return [(rows, 1, "TLane"), *blocks, (2, 64, "TLane"), (columns[-1], step, "TCol")]


def _split_columns(columns: int, group: Sequence[int] | None) -> tuple[int, ...]:
    if group is None:
        if columns % 2:
            raise RangeError(f"{columns} columns have no two halves", columns=columns)
        return (2, columns // 2)
    split = _extents(group, "group")
    if len(split) != 3 or split[1] != 2 or split[0] * split[1] * split[2] != columns:
        raise RangeError(f"group {split} is no (a, 2, b) with {columns} columns", group=split)
    return split


def tcgen05_atom_layout(shape: str, tile: Sequence[int], dtype: object) -> TileLayout:
    """Return who holds element (row, column) of a tile that a warpgroup moves with one ``tcgen05.ld`` or ``.st`` form.

    Warp w of the warpgroup has rows 32*w and on (of 128) or 16*w and on (of 64).  With 128 rows, the shapes of 16
    rows take two instructions per warp, whose registers follow one another.  ``32x32b`` with 64 rows is the tile of
    datapath B: the second half of the columns belongs to threads 64 and up.

    Args:
        shape: ``32x32b``, ``16x64b``, ``16x128b`` or ``16x256b``.
        tile: (rows, columns) in elements; rows 64 or 128.
        dtype: an element type of 16 or 32 bits.

    Raises:
        RangeError: no such form; names the legal repeat counts.

    >>> print(tcgen05_atom_layout("16x64b", (64, 4), "float32"))
    S[(4,2,8,2,2):(1@wid_in_wg,1@laneid,4@laneid,1,2@laneid)]
    """
    extents = _extents(tile, "tile")
    element = dtype_of(dtype)
    if not isinstance(shape, str) or shape not in SHAPES or shape == "16x32bx2":
        raise RangeError(f"no register atom {shape!r}; legal are 32x32b, 16x64b, 16x128b, 16x256b", shape=shape)
    if element.bits not in (16, 32):
        raise RangeError(f"register atoms have 16- or 32-bit elements, not {element}", dtype=element.name)
    if len(extents) != 2 or extents[0] not in (64, 128):
        raise RangeError(f"a register atom of a warpgroup has 64 or 128 rows and some columns, not {extents}")
    rows, columns = extents
    halves = 2 if (shape, rows) == ("32x32b", 64) else 1
    if halves == 2 and element.bits != 32:
        raise RangeError(f"32x32b over 64 rows has 32-bit elements, not {element}", dtype=element.name)
    repeat, rest = divmod(columns * element.bits, 32 * SHAPES[shape].pitch * halves)
    if rest or repeat < 1:
        unit = 32 * SHAPES[shape].pitch * halves // element.bits
        raise RangeError(f"{shape} moves multiples of {unit} columns of {element}, not {columns}", columns=columns)
    instruction = TmemInstruction(shape, repeat)
    if shape == "32x32b":
        held = repeat * 32 // element.bits
        split: _Triples = [(2, 64, "tid_in_wg")] if halves == 2 else []
        return TileLayout.from_iters(shard=[(rows, 1, "tid_in_wg"), *split, (held, 1, "m")])
    image = instruction.register_image(element)
    second: _Triples = [(2, instruction.registers * 32 // element.bits, "m")] if rows == 128 else []
    return TileLayout.from_iters(shard=[(4, 1, "wid_in_wg"), *second, *image.shard])
