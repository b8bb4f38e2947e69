"""A layout is a value: immutable, hashable, and the same after JSON, pickle and copy."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import AxisError, Iter, LayoutError, Param, RangeError, RegionError, TileLayout
from layoutalg.axis import laneid, m
from layoutalg.errors import NotationError, NotExpressibleError, UndecidedError


@given(strategies.layouts(), st.integers(0, 3))
def test_json_pickle_and_copies_give_the_layout_back(layout, coefficient):
    moved = layout + Param("s", 0, 3) * coefficient
    assert TileLayout.from_json(json.loads(json.dumps(moved.to_json()))) == moved
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(moved, protocol)) == moved
    assert copy.copy(moved) == copy.deepcopy(moved) == moved
    assert hash(pickle.loads(pickle.dumps(moved))) == hash(moved)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("S[4:1]", "a layout's JSON is"),
        ({"layout": "S[4:1]"}, "a layout's JSON is"),
        ({"format": 1, "layout": "S[4:1]", "more": 0}, "a layout's JSON is"),
        ({"format": 2, "layout": "S[4:1]"}, "layout format 2 is not supported"),
        ({"format": 1, "layout": 4}, "is a str"),
        ({"format": 1, "layout": "S[4:"}, "expected a number"),
    ],
)
def test_json_of_another_form_is_refused(value, message):
    with pytest.raises(LayoutError) as caught:
        TileLayout.from_json(value)
    assert message in str(caught.value)


def test_a_pickle_of_another_version_is_refused():
    build, (version, *parts) = TileLayout.parse("S[4:1] + 3").__reduce__()
    assert build(version, *parts) == TileLayout.parse("S[4:1] + 3")
    with pytest.raises(LayoutError, match="a pickled layout of format 2; this library reads 1"):
        build(version + 1, *parts)


HUGE = 10**30


def test_numbers_beyond_int64_are_exact_wherever_nothing_is_tabulated():
    layout = TileLayout.from_iters(shard=[(HUGE, 3 * HUGE, "m"), (HUGE, 1, "m")])
    root = 10**15
    assert layout.size == HUGE * HUGE
    assert layout.apply(HUGE - 1, HUGE - 1, shape=(HUGE, HUGE)) == {"m": (HUGE - 1) * (3 * HUGE + 1)}
    assert layout.span("m") == (HUGE - 1) * (3 * HUGE + 1) + 1
    assert layout.is_injective()
    finer = layout.regroup((HUGE, root, root))
    assert finer.shard[1:] == (Iter(root, root, m), Iter(root, 1, m))
    assert finer.equivalent(layout)
    part = layout.slice((HUGE, HUGE), ((5, HUGE), (7, 9)))
    assert (part.shard, part.offset["m"]) == ((Iter(HUGE - 5, 3 * HUGE, m), Iter(2, 1, m)), 15 * HUGE + 7)
    with pytest.raises(NotExpressibleError) as caught:
        layout.slice((HUGE * HUGE,), ((HUGE // 2, 3 * HUGE),))
    assert caught.value.index == HUGE
    with pytest.raises(RangeError, match="beyond int64"):
        layout.table()


def test_numpy_integers_are_numbers_in_every_argument():
    layout, two, four, eight = TileLayout.parse("S[4,8]"), np.int64(2), np.uint8(4), np.int16(8)
    assert layout.group((two, two, eight)) == layout.group((2, 2, 8))
    assert layout.slice((four, eight), ((np.int8(1), np.int64(3)), two)) == layout.slice((4, 8), ((1, 3), 2))
    assert layout.permute(np.int64(1), np.uint8(0), shape=(four, eight)) == layout.permute(1, 0, shape=(4, 8))
    assert layout.unpack(two).pack(two).equivalent(layout)
    assert layout.tile_to((eight, eight), (four, eight)) == layout.tile_to((8, 8), (4, 8))
    assert layout.broadcast(two, np.int8(-1)) == layout.broadcast(2, -1)
    assert all(type(x) is int for it in layout.slice((four, eight), ((two, four), two)).shard for x in it[:2])


def test_nothing_of_a_layout_can_be_changed():
    layout = TileLayout.parse("S[4:1] + 3@laneid")
    for name in ("shard", "replica", "_offset", "fresh"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(layout, name, ())
    with pytest.raises(AttributeError):
        del layout.shard
    with pytest.raises(TypeError):
        layout.offset["laneid"] = 4
    with pytest.raises(AttributeError):
        layout.shard[0].extent = 8
    assert isinstance(layout.shard, tuple)
    assert str(layout) == "S[4:1] + 3@laneid"


def test_equality_is_of_the_writing_and_hashes_agree_with_it():
    one, two = TileLayout.parse("S[(4,8):(8,1)]"), TileLayout.parse("S[32:1]")
    assert one != two
    assert one.equivalent(two)
    assert {one: 1}[TileLayout.parse("S[4,8]")] == 1


def test_the_parts_of_a_layout_are_plain_to_read():
    layout = TileLayout.parse("S[(8,2):(4@laneid,1)] + R[2:4@warpid] + 5@warpid")
    assert layout.shard == (Iter(8, 4, laneid), Iter(2, 1, m))
    assert layout.shard[0].axis.name == "laneid"
    assert [a.name for a in layout.axes] == ["laneid", "m", "warpid"]
    assert dict(layout.offset) == {"warpid": 5}
    assert layout.size == 16
    assert TileLayout(layout) is layout


def test_moving_a_layout_adds_to_its_offset():
    layout = TileLayout.parse("S[4:1]") + 3 + 2 @ laneid
    assert str(layout + 4) == "S[4:1] + 2@laneid + 7"
    with pytest.raises(RangeError, match="offset must be an integer"):
        layout + 1.5
    with pytest.raises(RangeError, match="offset must be an integer"):
        layout + True


@pytest.mark.parametrize("error", [AxisError, LayoutError, RangeError, RegionError, UndecidedError])
def test_errors_are_value_errors_and_survive_pickling_with_their_facts(error):
    made = error("words", dim=1)
    again = pickle.loads(pickle.dumps(made))
    assert isinstance(made, ValueError)
    assert (type(again), str(again), again.facts) == (error, "words", {"dim": 1})


def test_errors_with_fields_of_their_own_survive_pickling():
    notation = NotationError("reason", text="S[", position=2)
    again = pickle.loads(pickle.dumps(notation))
    assert (str(again), again.text, again.position, again.reason) == (str(notation), "S[", 2, "reason")
    refusal = pickle.loads(pickle.dumps(NotExpressibleError("no", index=3, dim=1)))
    assert (refusal.index, refusal.facts) == (3, {"dim": 1, "index": 3})
