"""What the places of a layout are like as a set: span, image, injectivity, bijectivity, contiguity."""

from __future__ import annotations

import time

import oracle
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st

from layoutalg import AxisError, Param, RangeError, RegionError, TileLayout, UndecidedError
from layoutalg.axis import Axis


@given(strategies.layouts())
def test_span_and_image_are_those_of_the_places(layout):
    plain = oracle.plain(layout)
    for axis in strategies.AXES:
        values = oracle.image(plain, axis)
        assert layout.span(axis) == max(values) - min(values) + 1
        assert list(layout.image(axis)) == sorted(values)
        assert layout.span(Axis.get(axis)) == layout.span(axis)


@given(strategies.layouts(limit=48))
@example(TileLayout.parse("S[(2,4):(3,1)]"))
@example(TileLayout.parse("S[(4,2):(-1,4)] + R[2:2]"))
@example(TileLayout.parse("S[3:2] + R[(2,2):(1,3)]"))
def test_a_layout_is_injective_exactly_when_no_two_indices_share_a_place(layout):
    plain = oracle.plain(layout)
    assert layout.is_injective() is oracle.is_injective(plain)
    pair = layout.first_collision()
    assert (pair is None) is layout.is_injective()
    if pair is not None:
        assert 0 <= pair[0] < pair[1] < layout.size
        assert oracle.places(plain, pair[0]) & oracle.places(plain, pair[1])


@given(strategies.layouts(limit=32), st.data())
def test_bijective_onto_a_box_means_that_every_place_of_it_has_one_index(layout, data):
    plain = oracle.plain(layout)
    box = {}
    for axis in plain.axes:
        values = oracle.image(plain, axis)
        nudge = data.draw(st.sampled_from([0, 0, 0, 0, 1]))
        box[axis] = (min(values) - nudge, max(values) + 1)
    size = oracle.prod(end - begin for begin, end in box.values())
    union = {p for group in oracle.sets(plain) for p in group}
    inside = all(all(box[a][0] <= dict(p).get(a, 0) < box[a][1] for a in box) for p in union)
    wanted = oracle.is_injective(plain) and inside and len(union) == size
    assert layout.is_bijective_onto(box) is wanted


@given(strategies.layouts(limit=32))
def test_contiguous_means_filling_the_bounding_box_once(layout):
    plain = oracle.plain(layout)
    union = {p for group in oracle.sets(plain) for p in group}
    size = oracle.prod(oracle.span(plain, axis) for axis in plain.axes)
    assert layout.is_contiguous() is (oracle.is_injective(plain) and len(union) == size)


def test_axes_that_are_not_named_must_be_zero_everywhere():
    frag = TileLayout.parse("S[(8,4,2):(4@laneid,1@laneid,1)]")
    assert frag.is_bijective_onto({"laneid": (0, 32), "m": (0, 2)})
    assert not frag.is_bijective_onto({"laneid": (0, 32)})
    assert not (frag + Param("s", 0, 1) @ Axis.get("warpid") + 1).is_bijective_onto({"laneid": (0, 32), "m": (0, 2)})
    assert frag.is_bijective_onto({"laneid": (0, 32), "m": (0, 2), "warpid": (0, 1)})


def test_huge_layouts_are_decided_by_their_digits():
    start = time.perf_counter()
    layout = TileLayout.parse("S[(1048576,1048576,32):(1048576,1,1@laneid)] + R[4:1@warpid]")
    assert layout.is_injective()
    assert layout.is_contiguous()
    assert layout.image("m") == range(1 << 40)
    assert layout.is_bijective_onto({"m": (0, 1 << 40), "laneid": (0, 32), "warpid": (0, 4)})
    padded = TileLayout.parse("S[(1048576,1048576):(1048577,1)]")
    assert padded.is_injective()
    assert not padded.is_contiguous()
    tight = TileLayout.parse("S[(1048576,1048577):(1048576,1)]")
    assert tight.first_collision() == (1048576, 1048577)
    assert TileLayout.parse("S[(1000003,999983):(999983,1000003)]").is_injective()
    assert time.perf_counter() - start < 2


def test_what_cannot_be_decided_says_so():
    sparse = TileLayout.parse("S[(1000000,1000000):(7,4000000)]")
    with pytest.raises(UndecidedError, match="over 65536 elements"):
        sparse.image("m")
    with pytest.raises(UndecidedError, match="substitute"):
        (TileLayout.parse("S[4:1]") + Param("s", 0, 2)).image("m")
    with pytest.raises(UndecidedError, match="substitute"):
        (TileLayout.parse("S[4:1]") + Param("s", 0, 2)).is_bijective_onto({"m": (0, 4)})
    with pytest.raises(UndecidedError, match="symbolic"):
        TileLayout.parse("S[(4,n):(k,1)]").is_injective()
    assert TileLayout.parse("S[(4,n):(k,1)] + 3").span("m").subs({"n": 8, "k": 8}) is not None


@pytest.mark.parametrize(
    ("box", "error", "message"),
    [
        ({"m": (0, 0)}, RegionError, "empty"),
        ({"m": (3, 1)}, RegionError, "empty"),
        ({"m": 4}, RegionError, "needs (begin, end)"),
        ({"m": (0, 1, 2)}, RegionError, "needs (begin, end)"),
        ({"m": (0, 4.0)}, RangeError, "must be an integer"),
        ({"memory": (0, 4)}, AxisError, "unknown axis"),
    ],
)
def test_boxes_are_checked(box, error, message):
    with pytest.raises(error) as caught:
        TileLayout.parse("S[4:1]").is_bijective_onto(box)
    assert message in str(caught.value)
