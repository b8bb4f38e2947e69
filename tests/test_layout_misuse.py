"""Arguments of the wrong type raise the library's own errors, never a stray TypeError or AttributeError."""

from __future__ import annotations

import numpy as np
import pytest

from layoutalg import (
    AxisError,
    LayoutError,
    Param,
    RangeError,
    RegionError,
    S,
    Swizzle,
    SwizzledLayout,
    TileLayout,
)
from layoutalg.algebra.compose import complement, compose, left_inverse
from layoutalg.algebra.recognise import recognise
from layoutalg.hardware.mma import mma_shared_layout
from layoutalg.hardware.tmem import tcgen05_atom_layout, tmem_datapath_layout, tmem_mma_operand_layout
from layoutalg.hardware.trainium import trainium_layout

L = TileLayout(S[4, 8])
SWIZZLED = SwizzledLayout(Swizzle(1, 0, 1), S[4:1])

MISUSE = [
    (lambda: L.tile("x", (1,), (32,)), LayoutError, "tile takes a TileLayout, not 'x'"),
    (lambda: L.direct_sum(None, (1,), (32,)), LayoutError, "direct_sum takes a TileLayout, not None"),
    (lambda: L.tile(SWIZZLED, (4,), (32,)), LayoutError, "tile takes a TileLayout"),
    (lambda: L.tile_inner_of(SWIZZLED, (4,), (4,)), LayoutError, "takes a TileLayout"),
    (lambda: L.tile_outer_of(L, None, (4, 8)), RegionError, "must be a sequence"),
    (lambda: L.direct_sum_left_of(L, None, None), RegionError, "must be a sequence|alternates|has 1 elements"),
    (lambda: L.fuse_axes(3), AxisError, "named by a str or an Axis"),
    (lambda: L.split_axis("tx", 5), AxisError, "sequence of axes"),
    (lambda: L.span("mm"), AxisError, "unknown axis 'mm'"),
    (lambda: L.image(None), AxisError, "named by a str or an Axis"),
    (lambda: L.is_bijective_onto([("m", (0, 32))]), RegionError, "the box is"),
    (lambda: L.group(np.array([4, 8])), RegionError, "must be a sequence"),
    (lambda: L.group_many(3), RegionError, "a list of shapes"),
    (lambda: L.group_many((4, 8)), RegionError, "must be a sequence"),
    (lambda: L.slice((4, 8), (slice(0, 2), slice(1, 3))), RangeError, "must be an integer"),
    (lambda: L.slice((4, 8), np.array([[0, 2], [1, 3]])), RegionError, "a region is"),
    (lambda: L.permute_iters(3), RangeError, "no list of iters"),
    (lambda: L.permute("01"), RangeError, "must be an integer"),
    (lambda: (L + Param("s", 0, 2)).substitute(s="a"), RangeError, "s must be an integer"),
    (lambda: L.evaluate("a"), RegionError, "indices must be integers"),
    (lambda: L.table("a"), RegionError, "must be a sequence"),
    (lambda: L.closed_form("i", "j", "k"), RegionError, "3 coordinates"),
    (lambda: L.regroup(None), RegionError, "must be a sequence"),
    (lambda: L.unpack("2"), RangeError, "must be an integer"),
    (lambda: TileLayout.from_iters(shard=5), LayoutError, "triples"),
    (lambda: TileLayout.from_iters(shard=[(4, 1)], offset=[("m", 3)]), LayoutError, "an offset is"),
    (lambda: recognise("abc"), RangeError, "integer array"),
    (lambda: recognise([[1, 2], [3]]), RangeError, "a table is rectangular"),
    (lambda: compose(L, SWIZZLED), LayoutError, "compose takes layouts"),
    (lambda: complement(L, "a"), RangeError, "must be an integer"),
    (lambda: left_inverse(None), LayoutError, "left_inverse takes layouts"),
    (lambda: mma_shared_layout("float16", 4, (8, 64)), RangeError, "swizzle mode 4"),
    (lambda: mma_shared_layout("float64", 1, (8, 64)), RangeError, "4, 8, 16 or 32 bits"),
    (lambda: mma_shared_layout("float16", 1, (64,)), RangeError, "rows, columns"),
    (lambda: mma_shared_layout("float16", 1, (64, 0)), RangeError, "positive extents"),
    (lambda: tmem_datapath_layout("H", 128, 8), RangeError, "datapath 'H'"),
    (lambda: tmem_mma_operand_layout("B", (128, 8), "f32", M=128), RangeError, "neither 'A' nor 'D'"),
    (lambda: tmem_mma_operand_layout("D", (128, 8), "f64", M=128), RangeError, "16- or 32-bit"),
    (lambda: tmem_mma_operand_layout("D", (128, 8), "f32", M=96), RangeError, "no M=96"),
    (lambda: tmem_mma_operand_layout("D", (128, 513), "f32", M=128), RangeError, "over 512 columns"),
    (lambda: tmem_mma_operand_layout("D", 128, "f32", M=128), RangeError, "must be a sequence"),
    (lambda: tcgen05_atom_layout("8x8", (128, 8), "f32"), RangeError, "no register atom '8x8'"),
    (lambda: tcgen05_atom_layout("16x64b", (128, 3), "f32"), RangeError, "multiples of 2 columns"),
    (lambda: trainium_layout("PX", (4, 4)), RangeError, "no P or F"),
    (lambda: trainium_layout("P", (200,)), RangeError, "more than 128"),
    (lambda: trainium_layout("F", (700,), psum=True), RangeError, "run across the ends of banks"),
]


@pytest.mark.parametrize(("call", "error", "message"), MISUSE, ids=[message for _, _, message in MISUSE])
def test_misuse_is_a_typed_error_that_says_what_is_wrong(call, error, message):
    with pytest.raises(error, match="(?s)" + message.replace("(", r"\(")):
        call()


def test_dimensions_may_be_given_as_one_tuple():
    assert L.permute((1, 0)) == L.permute([1, 0]) == L.permute(1, 0)
    assert L.permute((1, 0), shape=(2, 16)) == L.permute(1, 0, shape=(2, 16))


def test_a_plain_layout_can_be_compared_with_a_swizzled_one():
    plain = TileLayout(S[2, 2])
    assert plain.equivalent(SwizzledLayout(Swizzle(0, 0, 0), S[4:1]))
    found = plain.difference(SWIZZLED)
    assert found is not None
    assert found[0] == 2
