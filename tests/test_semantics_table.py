"""Questions that are often answered wrongly or not at all, with the right answers; one line each.

``S(e:s, ...)`` outermost first, no axis means m, ``R(...)`` replicas, ``O{}`` offset, as layouts are written on paper.
"""

from __future__ import annotations

import re

import oracle
import pytest

from layoutalg import (
    Iter,
    LayoutError,
    NotExpressibleError,
    RangeError,
    RegionError,
    Swizzle,
    SwizzledLayout,
    TileLayout,
)
from layoutalg.algebra.compose import compose
from layoutalg.axis import Axis
from layoutalg.hardware.mma import mma_shared_layout

_ITER = re.compile(r"(-?\d+):(-?\d+)(?:@(\w+))?")


def paper(text: str) -> TileLayout:
    """Read ``S(2:100,4:1@laneid) R(2:3) O{m:4,laneid:2}``."""
    parts = {part[0]: part[1:] for part in text.split()}
    found = {letter: _ITER.findall(parts.get(letter, "")) for letter in "SR"}
    iters = {letter: [(int(e), int(s), axis or "m") for e, s, axis in found[letter]] for letter in "SR"}
    offset = {axis: int(value) for axis, value in re.findall(r"(\w+):(-?\d+)", parts.get("O", ""))}
    return TileLayout.from_iters(shard=iters["S"], replica=iters["R"], offset=offset)


def is_right(found: TileLayout, wanted: str) -> bool:
    return oracle.same(oracle.plain(found), oracle.plain(paper(wanted))) and found.equivalent(paper(wanted))


@pytest.mark.parametrize(
    ("text", "shape", "region", "right"),
    [
        ("S(2:100,2:10,4:1)", [16], [(6, 10)], "S(2:88,2:1) O{m:12}"),
        ("S(4:10,4:1)", [16], [(2, 10)], "S(2:10,2:8,2:1) O{m:2}"),
        ("S(4:1@laneid,4:0)", [16], [(2, 6)], "S(2:1@laneid,2:0)"),
        ("S(4:4,2:1,3:1)", [24], [(17, 20)], "S(3:1) O{m:11}"),
        ("S(2:100,3:1)", [3, 2], [(1, 2), (0, 2)], "S(2:98) O{m:2}"),
    ],
)
def test_slices(text, shape, region, right):
    assert is_right(paper(text).slice(shape, region), right)


def test_a_slice_whose_step_is_on_two_axes_is_not_expressible():
    with pytest.raises(NotExpressibleError, match="one iter has one axis"):
        paper("S(2:1@laneid,2:10,4:1)").slice([16], [(6, 10)])


def test_the_places_of_the_first_slice():
    part = paper("S(2:100,2:10,4:1)").slice([16], [(6, 10)])
    assert part.table()["m"].tolist() == [12, 13, 100, 101]


@pytest.mark.parametrize(
    ("text", "into", "right"),
    [
        ("S(2:1@wgid,4:1@wid_in_wg)", "warpid", "S(8:1@warpid)"),
        ("S(8:1@laneid) O{warpid:1,laneid:2}", "tx", "S(8:1@tx) O{tx:34}"),
    ],
)
def test_fusing_threads(text, into, right):
    assert is_right(paper(text).fuse_axes(into), right)


def test_fusing_is_refused_where_a_lane_leaves_its_warp():
    with pytest.raises(NotExpressibleError) as caught:
        paper("S(32:1@laneid) O{warpid:1,laneid:2}").fuse_axes("tx")
    assert caught.value.index == 30


def test_the_outer_layout_of_a_tiling():
    with pytest.raises(NotExpressibleError, match="replicas"):
        paper("S(4:1) R(2:100@laneid)").tile_outer_of(paper("S(8:1)"), [8], [4])
    assert is_right(paper("S(4:1) O{m:4}").tile_outer_of(paper("S(2:8,4:1)"), [8], [4]), "S(2:2) O{m:-1}")


def test_tiling_up_to_a_shape_needs_a_multiple():
    with pytest.raises(RegionError, match="4 does not divide 10"):
        paper("S(4:1)").tile_to([10], [4])


def test_a_shared_tile_whose_columns_are_no_multiple_of_the_atom_is_refused():
    with pytest.raises(RangeError, match=r"\(16, 24\) is no multiple"):
        mma_shared_layout("float16", 1, [16, 24])


def test_spans():
    assert SwizzledLayout(Swizzle(bits=1, base=0, shift=1), paper("S(3:1)")).span() == 4
    assert paper("S(4:-1)").span("m") == 4


def test_packing():
    wide = paper("S(32:1@laneid,4:1) R(2:4) O{m:3}").unpack(2)
    assert is_right(wide, "S(32:1@laneid,4:2,2:1) R(2:8) O{m:6}")
    with pytest.raises(NotExpressibleError, match="no multiple of 2"):
        paper("S(4:5,4:1)").pack(2)
    assert is_right(paper("S(4:2,2:1)").pack(4), "S(2:1)")


def test_grouping():
    assert paper("S(3:2,2:1)").group([2, 3])[0] == paper("S(2:3,3:1)")
    assert paper("S(3:0,2:0@laneid)").group([2, 3])[0] == paper("S(2:0,3:0)")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("S(8:1) R(1:5,2:0,2:4,4:1)", "S(8:1) R(8:1)"),
        ("S(2:1@wgid,32:1@laneid)", "S(2:1@wgid,32:1@laneid)"),
        ("S(4:1@pid,4:1)", "S(4:1@pid,4:1)"),
        ("S(4:1@bx,32:1@tx)", "S(4:1@bx,32:1@tx)"),
    ],
)
def test_canonical_forms(text, right):
    assert paper(text).canonicalize() == paper(right)


def test_one_set_of_replicas_in_two_ways():
    assert paper("S(4:1) R(2:3,6:2)").equivalent(paper("S(4:1) R(3:2,4:3)"))
    assert paper("S(4:1) R(2:3,6:2)").canonicalize() == paper("S(4:1) R(3:2,4:3)").canonicalize()


def test_a_repeated_iter_is_no_permutation():
    with pytest.raises(LayoutError, match="1 missing"):
        paper("S(4:2,2:1)").permute_iters((0, 0))


def test_every_replica_is_a_place():
    assert paper("S(4:1) R(2:8)").places(1) == ({"m": 1}, {"m": 9})


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        ("S(8:5,6:3,4:2)", "S(6:3)", [0, 6, 7, 8, 9, 15]),
        ("S(8:2,2:8,6:16,3:96)", "S(32:6)", None),
    ],
)
def test_compositions_that_are_no_layout(a, b, values):
    """CuTe writes these modes in the opposite order: (4,6,8):(2,3,5) with 6:3."""
    with pytest.raises(NotExpressibleError) as caught:
        compose(paper(a), paper(b))
    index = paper(b).table()["m"]
    found = paper(a).evaluate(index[index < paper(a).size])["m"].tolist()
    assert values is None or found == values
    wanted = [oracle.place({"m": int(v)}) for v in found]
    if len(found) == paper(b).size:
        assert caught.value.index == oracle.first_failure(wanted)
    else:
        assert caught.value.index is not None


def test_the_paper_notation_reads_as_it_should():
    layout = paper("S(2:-100,4:1@laneid) R(2:3@warpid) O{m:4,laneid:-2}")
    assert layout.shard == (Iter(2, -100, Axis.get("m")), Iter(4, 1, Axis.get("laneid")))
    assert layout.replica == (Iter(2, 3, Axis.get("warpid")),)
    assert dict(layout.offset) == {"m": 4, "laneid": -2}
