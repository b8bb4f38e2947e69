"""What one ``tcgen05.ld`` or ``tcgen05.st`` moves, as layouts: the images of every shape, repeat and packing.

A warp names a base address, and the instruction moves a fixed picture of (row, column) words between tensor memory,
from the base on, and the registers of its 32 lanes.  With ``l`` the lane and ``r`` the register:

    32x32b    (l, r)
    16x64b    (l // 4 + 8 * (l % 2),            l // 2 % 2 + 2 * r)
    16x128b   (l // 4 + 8 * (r % 2),            l % 4 + 4 * (r // 2))
    16x256b   (l // 4 + 8 * (r // 2 % 2),       r % 2 + 2 * (l % 4) + 8 * (r // 4))
    16x32bx2  (l % 16, r), lanes 16 to 31 from a second base: the first plus an immediate

(PTX ISA 9.7.16.2.3.1 and 9.7.16.8).  ``pack::16b`` and ``unpack::16b`` keep the register side; word (row, column)
then stands for the low halves of the cells at columns 2 * column and 2 * column + 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "LANES",
    "MAX_REGISTERS",
    "SHAPES",
    "TmemInstruction",
    "allocated_columns",
    "instruction_for",
    "slab_of",
    "split_offset",
]

LANES: Final = 128
COLUMNS: Final = 512  # 32-bit cells per lane (PTX ISA 9.7.16.1)
SLAB: Final = 32  # lanes that warp w % 4 may access (PTX ISA 9.7.16.8.1)
MAX_REGISTERS: Final = 128
_REPEATS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_OPCODE: Final = re.compile(
    r"tcgen05\.(?P<op>ld|st)\.sync\.aligned\.(?P<shape>\w+)\.x(?P<repeat>\d+)"
    r"(?:\.(?P<pack>pack|unpack)::16b)?\.b32"
)

# Digits of the register image, outermost first: (extent, stride, on the lane?), extent 0 is the repeat count.
_Digits = tuple[tuple[int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """One shape: rows, columns and registers per lane of its ``.x1`` form, and the digits of its register image."""

    rows: int
    pitch: int
    words: int
    row_digits: _Digits
    column_digits: _Digits

    @property
    def repeats(self) -> tuple[int, ...]:
        return tuple(n for n in _REPEATS if n * self.words <= MAX_REGISTERS)


SHAPES: Mapping[str, _Shape] = MappingProxyType(
    {
        "32x32b": _Shape(32, 1, 1, ((32, 1, True),), ((0, 1, False),)),
        "16x64b": _Shape(16, 2, 1, ((2, 1, True), (8, 4, True)), ((0, 1, False), (2, 2, True))),
        "16x128b": _Shape(16, 4, 2, ((2, 1, False), (8, 4, True)), ((0, 2, False), (4, 1, True))),
        "16x256b": _Shape(
            16, 8, 4, ((2, 2, False), (8, 4, True)), ((0, 4, False), (4, 1, True), (2, 1, False))
        ),
        "16x32bx2": _Shape(16, 1, 1, ((16, 1, True),), ((0, 1, False),)),
    }
)  # fmt: skip
"""Every shape by its name in the opcode."""

TWO_ADDRESSES: Final = "16x32bx2"


@dataclass(frozen=True, slots=True)
class TmemInstruction:
    """One form of ``tcgen05.ld``/``tcgen05.st``: shape, repeat count, packing and split offset.

    Args:
        shape: a name of :data:`SHAPES`.
        repeat: N of ``.xN``.
        packed: ``pack::16b`` (load) or ``unpack::16b`` (store).
        split: ``imm_half_splitoff``, the second base minus the first; only for ``16x32bx2``.

    Raises:
        RangeError: no such form; names the legal ones.

    >>> TmemInstruction("16x256b", 2).opcode("ld")
    'tcgen05.ld.sync.aligned.16x256b.x2.b32'
    >>> TmemInstruction("16x256b", 64)
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: 16x256b has no .x64; legal are .x1 .x2 .x4 .x8 .x16 .x32
    """

    shape: str
    repeat: int
    packed: bool = False
    split: int = 0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise RangeError(f"tcgen05 has no shape {self.shape!r}; legal are {', '.join(SHAPES)}", shape=self.shape)
        legal = SHAPES[self.shape].repeats
        if type(self.repeat) is not int or self.repeat not in legal:
            raise RangeError(
                f"{self.shape} has no .x{self.repeat}; legal are {' '.join(f'.x{n}' for n in legal)}",
                repeat=self.repeat,
                legal=legal,
            )
        if type(self.packed) is not bool:
            raise RangeError(f"packed is True or False, not {self.packed!r}", packed=self.packed)
        _check_split(self.shape, self.split)

    @classmethod
    def parse(cls, opcode: str, *, split: int | None = None) -> tuple[str, TmemInstruction]:
        """Read an opcode; returns the direction, ``"ld"`` or ``"st"``, and the instruction.

        Args:
            opcode: the whole opcode, as PTX spells it.
            split: ``imm_half_splitoff``; needed for ``16x32bx2`` and for nothing else.

        Raises:
            RangeError: not an opcode of this family.

        >>> TmemInstruction.parse("tcgen05.st.sync.aligned.32x32b.x64.unpack::16b.b32")
        ('st', TmemInstruction(shape='32x32b', repeat=64, packed=True, split=0))
        """
        found = _OPCODE.fullmatch(opcode)
        if found is None:
            raise RangeError(
                f"{opcode!r} is no tcgen05 load or store; they read "
                "tcgen05.ld.sync.aligned.SHAPE.xN[.pack::16b].b32 or "
                "tcgen05.st.sync.aligned.SHAPE.xN[.unpack::16b].b32",
                opcode=opcode,
            )
        want = {"ld": "pack", "st": "unpack"}[found["op"]]
        if found["pack"] not in (None, want):
            raise RangeError(f"tcgen05.{found['op']} takes {want}::16b, not {found['pack']}::16b", opcode=opcode)
        if (split is not None) != (found["shape"] == TWO_ADDRESSES):
            raise RangeError(
                f"imm_half_splitoff belongs to {TWO_ADDRESSES}, which needs it, and to no other shape", opcode=opcode
            )
        return found["op"], cls(found["shape"], int(found["repeat"]), found["pack"] is not None, split or 0)

    def opcode(self, direction: str) -> str:
        """Spell the opcode for ``"ld"`` or ``"st"``.

        >>> TmemInstruction("16x64b", 2).opcode("ld")
        'tcgen05.ld.sync.aligned.16x64b.x2.b32'
        """
        if direction not in ("ld", "st"):
            raise RangeError(f"direction is 'ld' or 'st', not {direction!r}", direction=direction)
        pack = f".{'pack' if direction == 'ld' else 'unpack'}::16b" if self.packed else ""
        return f"tcgen05.{direction}.sync.aligned.{self.shape}.x{self.repeat}{pack}.b32"

    @property
    def form(self) -> _Shape:
        """The shape's constants."""
        return SHAPES[self.shape]

    @property
    def registers(self) -> int:
        """32-bit registers per lane."""
        return self.form.words * self.repeat

    @property
    def rows(self) -> int:
        """Lanes of tensor memory that one access spans."""
        return self.form.rows

    @property
    def columns(self) -> int:
        """32-bit columns that one access spans.

        >>> TmemInstruction("16x64b", 4).columns, TmemInstruction("16x64b", 4, packed=True).columns
        (8, 16)
        """
        return self.pitch * self.repeat

    @property
    def pitch(self) -> int:
        """32-bit columns from one repeat to the next."""
        return self.form.pitch * (2 if self.packed else 1)

    def image_shape(self, dtype: object = "uint32") -> tuple[int, ...]:
        """Extents that both images are indexed with: ``(row, column)``, then the elements of a word if several.

        ``16x32bx2`` has the access first on the register side; see :meth:`register_image`.

        >>> TmemInstruction("16x64b", 4).image_shape(), TmemInstruction("16x64b", 4).image_shape("f16")
        ((16, 8), (16, 8, 2))
        """
        per = self._per_word(dtype)
        return (self.rows, self.form.pitch * self.repeat, *((per,) if per > 1 else ()))

    def register_image(self, dtype: object = "uint32") -> TileLayout:
        """Return who holds word (row, column): a layout over ``laneid`` and ``m``, in elements of ``dtype``.

        Of ``16x32bx2`` the index is (access, row, column).

        Raises:
            RangeError: elements that no whole number of fits a 32-bit word; packed words hold 16-bit elements.

        >>> print(TmemInstruction("16x64b", 4).register_image())
        S[(2,8,4,2):(1@laneid,4@laneid,1,2@laneid)]
        """
        per = self._per_word(dtype)
        digits = (*self.form.row_digits, *self.form.column_digits)
        if self.shape == TWO_ADDRESSES:
            digits = ((2, 16, True), *digits)
        shard: list[tuple[int, int, str]] = [
            (extent or self.repeat, stride if on_lane else stride * per, "laneid" if on_lane else "m")
            for extent, stride, on_lane in digits
        ]
        return TileLayout.from_iters(shard=[*shard, *([(per, 1, "m")] if per > 1 else [])])

    def tmem_images(self, dtype: object = "uint32") -> tuple[TileLayout, ...]:
        """Return where word (row, column) lives, from the base: one layout over ``TLane`` and ``TCol`` per access.

        ``TCol`` counts elements, so a cell of 32 bits is two 16-bit elements.

        Raises:
            RangeError: as :meth:`register_image`.

        >>> print(*TmemInstruction("16x64b", 2, packed=True).tmem_images("bf16"))
        S[(16,4,2):(1@TLane,4@TCol,2@TCol)]
        >>> print(*TmemInstruction("16x32bx2", 2, split=(16 << 16) + 8).tmem_images(), sep=" | ")
        S[(16,2):(1@TLane,1@TCol)] | S[(16,2):(1@TLane,1@TCol)] + 8@TCol + 16@TLane
        """
        per = self._per_word(dtype)
        words = self.form.pitch * self.repeat
        step = 2 if self.packed else 1
        shard = [(self.rows, 1, "TLane"), (words, per * step, "TCol"), *([(per, step, "TCol")] if per > 1 else [])]
        first = TileLayout.from_iters(shard=shard)
        if self.shape != TWO_ADDRESSES:
            return (first,)
        lanes, columns = self.split_parts
        offset = {axis: value for axis, value in (("TLane", lanes), ("TCol", columns * per)) if value}
        return first, TileLayout.from_iters(shard=shard, offset=offset)

    @property
    def split_parts(self) -> tuple[int, int]:
        """The split offset as (lanes, 32-bit columns); columns may be negative where lanes are not.

        >>> TmemInstruction("16x32bx2", 1, split=(16 << 16) - 4).split_parts
        (16, -4)
        """
        column = (self.split + 0x8000) % 0x10000 - 0x8000
        return (self.split - column) >> 16, column

    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and 32-bit column of every register word, from the (first) base, as two (32, registers) arrays.

        Of a packed word this is the cell of its low half; the other half is one column further.

        >>> rows, columns = TmemInstruction("16x64b", 2).cells()
        >>> rows[:4, 0].tolist(), columns[2].tolist()
        ([0, 8, 0, 8], [1, 3])
        """
        import numpy as np

        per = 2 if self.packed else 1
        kind = "uint16" if self.packed else "uint32"
        held = self.register_image(kind).table()
        places = [image.table() for image in self.tmem_images(kind)]
        row, column = (
            np.concatenate([place.get(axis, np.zeros(1, np.int64)) for place in places]) for axis in ("TLane", "TCol")
        )
        first = slice(None, None, per)  # the low half of every word
        lane, register = held["laneid"][first], held["m"][first] // per
        rows, columns = (np.zeros((32, self.registers), dtype=np.int64) for _ in range(2))
        rows[lane, register] = row[first]
        columns[lane, register] = column[first] // per
        return rows, columns

    def _per_word(self, dtype: object) -> int:
        element = dtype_of(dtype)
        if self.packed and element.bits != 16:
            raise RangeError(
                f"pack::16b and unpack::16b move 16-bit elements, not {element.name} of {element.bits}; "
                "legal are int16, uint16, float16, bfloat16",
                dtype=element.name,
            )
        if 32 % element.bits:
            raise RangeError(
                f"a tcgen05 word of 32 bits holds no whole number of {element.name} ({element.bits} bits); legal "
                "widths are 4, 8, 16 and 32 (of wider elements, give the image of their 32-bit parts)",
                dtype=element.name,
            )
        return 32 // element.bits


def _check_split(shape: str, split: object) -> None:
    if type(split) is not int:
        raise RangeError(f"imm_half_splitoff is an int, not {split!r}", split=split)
    if shape != TWO_ADDRESSES:
        if split:
            raise RangeError(f"{shape} has one address; imm_half_splitoff belongs to {TWO_ADDRESSES}", split=split)
        return
    column = (split + 0x8000) % 0x10000 - 0x8000
    lane = (split - column) >> 16
    # The assembler takes any constant, so the bound is ours: the second half must be able to share the slab.
    if split < 0 or lane not in (0, 16) or abs(column) >= COLUMNS:
        raise RangeError(
            f"imm_half_splitoff = {split:#x} moves the second half by {lane} lanes and {column} columns; legal are "
            f"0 or 16 lanes (of one slab of 32) and fewer than {COLUMNS} columns, and no negative sum",
            split=split,
        )


def split_offset(lanes: int, columns: int) -> int:
    """Return the ``imm_half_splitoff`` that moves the second half by lanes and 32-bit columns.

    >>> hex(split_offset(16, 8))
    '0x100008'
    """
    split = (lanes << 16) + columns
    _check_split(TWO_ADDRESSES, split)
    return split


def instruction_for(
    shape: str, tile: tuple[int, int], dtype: object = "uint32", *, packed: bool = False
) -> TmemInstruction:
    """Return the instruction whose image is a whole (rows, columns) tile of elements, one per shape and repeat.

    Args:
        shape: a name of :data:`SHAPES`.
        tile: rows in lanes, columns in elements of ``dtype``.
        dtype: element type.
        packed: one element per cell in tensor memory, two per register.

    Raises:
        RangeError: no repeat count has this tile; names the rows and columns that are legal.

    >>> instruction_for("16x128b", (16, 32), "f16").repeat
    4
    >>> instruction_for("16x256b", (32, 8))
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: 16x256b of uint32 has no tile (32, 8); legal: 16 rows, 8, 16, 32, 64, 128, 256 columns
    """
    element: Dtype = dtype_of(dtype)
    probe = TmemInstruction(shape, 1, packed)
    width = SHAPES[shape].pitch * probe._per_word(element)
    legal = {n * width: n for n in SHAPES[shape].repeats}
    rows, columns = tile
    if rows != probe.rows or columns not in legal:
        raise RangeError(
            f"{shape} of {element.name} has no tile {tuple(tile)}; legal: {probe.rows} rows, "
            f"{', '.join(map(str, legal))} columns",
            tile=tuple(tile),
            rows=probe.rows,
            columns=tuple(legal),
        )
    return TmemInstruction(shape, legal[columns], packed)


def slab_of(warp: int) -> tuple[int, int]:
    """Return the lanes ``[begin, end)`` that a warp of the block may access.

    >>> slab_of(6)
    (64, 96)
    """
    begin = SLAB * (warp % 4)
    return begin, begin + SLAB


def allocated_columns(columns: int) -> int:
    """Round a number of 32-bit columns up to one that ``tcgen05.alloc`` grants: a power of two from 32 to 512.

    Raises:
        RangeError: more than there are.

    >>> [allocated_columns(n) for n in (1, 48, 320)]
    [32, 64, 512]
    """
    if not 1 <= columns <= COLUMNS:
        raise RangeError(f"{columns} columns cannot be allocated; a block has {COLUMNS}", columns=columns)
    return max(32, 1 << (columns - 1).bit_length())


def describe_cell(lane: Any, column: Any) -> str:
    """Name a cell for a message."""
    return f"lane {int(lane)}, column {int(column)}"
