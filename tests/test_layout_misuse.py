"""Arguments of the wrong type raise the library's own errors, never a stray TypeError or AttributeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from layoutalg import (
    Axis,
    AxisError,
    LayoutError,
    Param,
    R,
    RangeError,
    RegionError,
    S,
    Swizzle,
    SwizzledLayout,
    TileLayout,
    parse_layout,
)
from layoutalg.algebra.compose import (
    complement,
    compose,
    cosize,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)
from layoutalg.algebra.recognise import recognise
from layoutalg.axis import laneid
from layoutalg.f2 import F2Map
from layoutalg.hardware.mma import mma_shared_layout
from layoutalg.hardware.tmem import tcgen05_atom_layout, tmem_datapath_layout, tmem_mma_operand_layout
from layoutalg.hardware.trainium import trainium_layout
from layoutalg.swizzle import row_xor

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


WRONG: list[Any] = [
    None, True, 1.5, float("nan"), 1j, "a", "", b"x", [], (), {}, set(), object(), int, slice(1, 2), range(4),
    lambda: 0, -1, 0, 3, 10**30, np.float64(2), np.int64(2), np.array([1, 2]), np.array(3), (1, 2.5), [(0, 1), (2,)],
    (None, None), ((0, None), (0, 8)), (True, 8), (4.0, 8), ("4", 8), (4, 8), (32,), {"m": 1}, {"m": (0, "a")},
    {"q": (0, 1)}, "m", laneid, L, SWIZZLED, S[4:1], Param("s", 0, 2),
]  # fmt: skip

CALLS: list[tuple[Callable[..., Any], list[Any]]] = [
    (L.apply, [1, 2]),
    (lambda i, j, shape: L.apply(i, j, shape=shape), [1, 2, (4, 8)]),
    (lambda i, j, shape: L.places(i, j, shape=shape), [1, 2, (4, 8)]),
    (lambda i, shape: L.closed_form(i, "j", shape=shape), ["i", (4, 8)]),
    (L.explain, [1, 2]),
    (L.table, [(4, 8)]),
    (L.evaluate, [[1, 2]]),
    (L.equivalent, [L]),
    (L.difference, [L]),
    (L.group, [(4, 8)]),
    (L.group_many, [[(4, 8)]]),
    (L.regroup, [(4, 8)]),
    (L.slice, [(4, 8), ((0, 2), (1, 3))]),
    (lambda d, e, shape: L.permute(d, e, shape=shape), [1, 0, (4, 8)]),
    (L.permute_iters, [(1, 0)]),
    (L.permute_groups, [(0, 1, 2), (1, 0)]),
    (L.tile, [L, (4, 8), (4, 8)]),
    (L.tile_to, [(8, 8), (4, 8)]),
    (L.direct_sum, [L, (4, 8), (4, 8)]),
    (L.tile_outer_of, [L, (4, 8), (4, 8)]),
    (L.tile_inner_of, [L, (4, 8), (4, 8)]),
    (TileLayout(S[8:1]).direct_sum_left_of, [L, (4, 8), (8,)]),
    (TileLayout(S[4:8]).direct_sum_right_of, [L, (4, 8), (4,)]),
    (L.unpack, [2, "m"]),
    (L.pack, [2, "m"]),
    (L.broadcast, [2, 0, "m"]),
    (L.fuse_axes, ["tx"]),
    (L.split_axis, ["tx", ("warpid", "laneid")]),
    (L.span, ["m"]),
    (L.image, ["m"]),
    (L.is_bijective_onto, [{"m": (0, 32)}]),
    (lambda s: (L + Param("s", 0, 2)).substitute(s=s), [1]),
    (lambda offset: L + offset, [1]),
    (lambda offset: S[4:1] + offset, [1]),
    (lambda extent, stride: S[extent:stride], [4, 1]),
    (lambda extent, stride: R[extent:stride], [4, 1]),
    (S.__getitem__, [4]),
    (TileLayout, [S[4:1]]),
    (TileLayout.parse, ["S[4:1]"]),
    (TileLayout.from_json, [{"format": 1, "layout": "S[4:1]"}]),
    (lambda d, r, o: TileLayout.from_iters(shard=d, replica=r, offset=o), [[(4, 1, "m")], [], {}]),
    (compose, [L, L]),
    (complement, [L, 64]),
    (left_inverse, [L]),
    (right_inverse, [L]),
    (logical_divide, [L, L]),
    (logical_product, [L, L]),
    (cosize, [L]),
    (recognise, [[1, 2]]),
    (parse_layout, ["S[4:1]"]),
    (Swizzle, [1, 0, 1]),
    (Swizzle.parse, ["Sw<1,0,1>"]),
    (Swizzle(3, 4, 3).recast, [8, 16]),
    (row_xor, [8, 8]),
    (SwizzledLayout, [Swizzle(1, 0, 1), L]),
    (SWIZZLED.apply, [1]),
    (SWIZZLED.table, [(4,)]),
    (SWIZZLED.slice, [(4,), ((0, 2),)]),
    (SWIZZLED.group, [(2, 2)]),
    (SWIZZLED.permute, [0]),
    (SWIZZLED.equivalent, [SWIZZLED]),
    (SWIZZLED.span, ["m"]),
    (SWIZZLED.base_alignment, ["float16"]),
    (F2Map, [(1, 2), 2]),
    (F2Map.parse, ["F2<1,2>"]),
    (F2Map((1, 2)).compose, [F2Map((1, 2))]),
    (mma_shared_layout, ["float16", 3, (64, 64)]),
    (tmem_datapath_layout, ["D", 128, 8]),
    (tcgen05_atom_layout, ["16x64b", (128, 8), "f32"]),
    (trainium_layout, ["PF", (4, 4)]),
    (Param, ["s", 0, 2]),
    (Axis.get, ["m"]),
]


@pytest.mark.parametrize("call", range(len(CALLS)), ids=lambda k: getattr(CALLS[k][0], "__qualname__", str(k)))
def test_an_argument_of_any_kind_is_taken_or_refused_by_an_error_of_the_library(call):
    function, right = CALLS[call]
    function(*right)
    refused = 0
    for position in range(len(right)):
        for wrong in WRONG:
            given = [*right[:position], wrong, *right[position + 1 :]]
            try:
                function(*given)
            except LayoutError as error:
                refused += len(str(error)) > 10
    assert refused >= len(WRONG) // 4
