"""The register layout that one shape gives a tensor-memory layout: its image, repeated over columns and halves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem.problem import Ints, check_dtype
from layoutalg.algebra.grouping import check_shape
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import m, tid_in_wg
from layoutalg.hardware.tcgen05 import SHAPES, SLAB, TWO_ADDRESSES, TmemInstruction
from layoutalg.tile import TileLayout

__all__ = ["register_layout_for", "whole_slabs"]


def register_layout_for(
    tmem_layout: TileLayout, shape: Sequence[int] | None, dtype: object, instruction: str
) -> TileLayout:
    """Return who holds each element if the shape's image is repeated from the leftmost column on.

    Where both halves of a slab are in use, a 16-row shape takes the upper half first, then the lower.  16-bit elements
    of which one lies in each cell are taken as packed.

    Args:
        tmem_layout: over ``TLane`` and ``TCol``, in elements; only its base places count.
        shape: logical extents, or None for the iters of the layout.
        dtype: element type.
        instruction: a name of :data:`layoutalg.hardware.tcgen05.SHAPES`.

    Raises:
        PlanError: the shape does not divide elements of this width between lanes.
        NotExpressibleError: no layout says who holds what.

    >>> tmem = TileLayout.parse("S[(4,16,32):(32@TLane,1@TLane,1@TCol)]")
    >>> print(register_layout_for(tmem, (64, 32), "f32", "16x256b"))
    S[(4,2,8,4,4,2):(32@tid_in_wg,2,4@tid_in_wg,4,1@tid_in_wg,1)]
    """
    element = check_dtype(dtype)
    if instruction not in SHAPES or (element.bits > 32 and instruction not in ("32x32b", "16x256b")):
        raise PlanError(f"tmem: {instruction} does not keep elements of {element.bits} bits together", rule="shape")
    check_shape(shape if shape is not None else [it.extent for it in tmem_layout.shard], tmem_layout.size)
    table = tmem_layout.table()
    zero = np.zeros(int(tmem_layout.size), dtype=np.int64)
    lane, bit = table.get("TLane", zero), table.get("TCol", zero) * element.bits
    column, part = bit // 32, bit % 32 // min(element.bits, 32)
    packed = element.bits == 16 and not part.any()
    column = column - int(column.min())
    if packed:
        part, column = column % 2, column // 2
    thread, word = _owners(instruction, lane, column)
    iters, offset = recognise_values({tid_in_wg: thread, m: word * 32 // element.bits + part})
    shard = [(it.extent, it.stride, it.axis.name) for it in iters]
    return TileLayout.from_iters(shard=shard, offset={axis.name: value for axis, value in offset.items()})


def _owners(instruction: str, lane: Ints, column: Ints) -> tuple[Ints, Ints]:
    """Thread of the warpgroup and register word of each cell."""
    form = SHAPES[instruction]
    if instruction in ("32x32b", TWO_ADDRESSES):
        return lane, column
    rows, columns = TmemInstruction(instruction, 1).cells()
    holder = np.zeros((form.rows, form.pitch), dtype=np.int64)
    register = np.zeros_like(holder)
    holder[rows, columns] = np.arange(32)[:, None]
    register[rows, columns] = np.arange(rows.shape[1])[None, :]
    half = lane % SLAB // 16
    half = half - int(half.min())
    repeat, inner = column // form.pitch, column % form.pitch
    per_half = (int(repeat.max()) + 1) * form.words
    row = lane % 16
    return lane // SLAB * 32 + holder[row, inner], half * per_half + repeat * form.words + register[row, inner]


def whole_slabs(tmem_layout: TileLayout) -> bool:
    """Say whether all 32 lanes of every slab that is touched are in use, as the 32-row shape needs.

    >>> whole_slabs(TileLayout.parse("S[(4,16,8):(32@TLane,1@TLane,1@TCol)]"))
    False
    """
    lanes = np.unique(tmem_layout.table().get("TLane", np.zeros(1, np.int64)))
    return bool(lanes.size == np.unique(lanes // SLAB).size * SLAB)
