"""Where an element lives: one point, every replica, whole tables, batches, and the words that explain a point."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import Param, RangeError, RegionError, TileLayout, UndecidedError

INT64 = 1 << 63


def place(values: dict[str, int]) -> oracle.Place:
    return oracle.place({axis: int(value) for axis, value in values.items()})


@given(strategies.layouts())
def test_apply_agrees_with_the_definition_at_every_index(layout):
    plain = oracle.plain(layout)
    for n in range(layout.size):
        found = layout.apply(n) if len(layout.shard) else layout.apply()
        assert place(found) == oracle.base(plain, n)
        assert sorted(found) == plain.axes, "one key per axis that occurs"


@given(st.data(), strategies.layouts())
def test_apply_flattens_coordinates_row_major(data, layout):
    shape = data.draw(strategies.shapes(layout.size))
    plain = oracle.plain(layout)
    for x in oracle.coordinates(shape):
        assert place(layout.apply(*x, shape=shape)) == oracle.base(plain, oracle.flat(x, shape))


@given(strategies.layouts())
def test_one_digit_per_iter_is_a_coordinate_too(layout):
    plain = oracle.plain(layout)
    extents = [it.extent for it in layout.shard]
    for x in oracle.coordinates(extents):
        assert place(layout.apply(*x)) == oracle.base(plain, oracle.flat(x, extents))


@given(strategies.layouts(limit=24))
def test_places_are_the_set_of_the_definition_each_once(layout):
    plain = oracle.plain(layout)
    for n in range(layout.size):
        found = [place(p) for p in layout.places(n, shape=(layout.size,))]
        assert len(found) == len(set(found))
        assert set(found) == oracle.places(plain, n)


@given(st.data(), strategies.layouts())
def test_tables_hold_what_apply_says(data, layout):
    shape = data.draw(strategies.shapes(layout.size))
    table = layout.table(shape)
    assert sorted(table) == oracle.plain(layout).axes
    for axis, values in table.items():
        assert values.dtype == np.int64
        assert values.shape == shape
        assert values.reshape(-1).tolist() == layout.table()[axis].tolist()
    for x in oracle.coordinates(shape):
        assert {axis: int(values[x]) for axis, values in table.items()} == layout.apply(*x, shape=shape)


@given(st.data(), strategies.layouts())
def test_batches_of_indices_hold_what_apply_says(data, layout):
    index = data.draw(st.lists(st.integers(0, layout.size - 1), max_size=20))
    kind = data.draw(st.sampled_from([np.int64, np.int32, np.uint8, np.uint64]))
    found = layout.evaluate(np.array(index, dtype=kind).reshape(1, -1))
    for axis, values in found.items():
        assert values.shape == (1, len(index))
        assert values[0].tolist() == [layout.apply(n, shape=(layout.size,))[axis] for n in index]


@pytest.mark.parametrize("stride", [INT64 - 1, -INT64, INT64, 3 << 62, -(3 << 62)])
def test_values_that_int64_cannot_hold_are_refused_by_tables_and_exact_in_apply(stride):
    layout = TileLayout.from_iters(shard=[(2, stride, "m")])
    assert layout.apply(1) == {"m": stride}
    if -INT64 <= stride < INT64:
        assert layout.table()["m"].tolist() == [0, stride]
        assert layout.evaluate([1])["m"].tolist() == [stride]
    else:
        with pytest.raises(RangeError, match="beyond int64"):
            layout.table()
        with pytest.raises(RangeError, match="beyond int64"):
            layout.evaluate([0])


def test_intermediate_sums_may_leave_int64_while_the_values_do_not():
    layout = TileLayout.from_iters(
        shard=[(2, 1 << 62, "m"), (2, 1 << 62, "m"), (2, -(1 << 62), "m")], offset={"m": -(1 << 62)}
    )
    expected = [layout.apply(n)["m"] for n in range(8)]
    assert layout.table()["m"].tolist() == expected
    assert layout.evaluate(range(8))["m"].tolist() == expected


@pytest.mark.parametrize(
    ("coord", "shape", "message"),
    [
        ((8,), None, "coordinate 8 of dimension 0 lies outside [0, 8)"),
        ((-1,), None, "coordinate -1 of dimension 0 lies outside [0, 8)"),
        ((0, 4), (2, 4), "coordinate 4 of dimension 1 lies outside [0, 4)"),
        ((0, 0, 0), None, "3 coordinates (0, 0, 0) for 2 extents (2, 4)"),
        ((0,), (2, 4), "1 coordinates (0,) for 2 extents (2, 4)"),
        ((), None, "0 coordinates () for 2 extents (2, 4)"),
        ((0, 0), (2, 5), "shape (2, 5) has 10 elements, the layout 8"),
        ((0, 0), (-2, -4), "shape (-2, -4) has the extent -2"),
        ((0, 0), "24", "shape must be a sequence of extents, not '24'"),
    ],
)
def test_coordinates_that_do_not_fit_are_errors_that_say_why(coord, shape, message):
    layout = TileLayout.parse("S[(2,4):(4@laneid,1)]")
    for call in (layout.apply, layout.places, layout.explain):
        with pytest.raises(RegionError) as caught:
            call(*coord, shape=shape)
        assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [True, 1.0, 0.5, "1", np.float64(1), np.bool_(True), None, [1]])
def test_a_coordinate_is_an_integer(wrong):
    with pytest.raises(RangeError, match="coordinate 0 must be an integer"):
        TileLayout.parse("S[8:1]").apply(wrong)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64])
def test_numpy_integers_are_coordinates(kind):
    found = TileLayout.parse("S[8:300]").apply(kind(7))
    assert found == {"m": 2100}
    assert type(found["m"]) is int


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 8], "index 8 (position 1) lies outside [0, 8)"),
        ([-1], "index -1 (position 0)"),
        ([0.0], "indices must be integers, not float64"),
        ([True], "indices must be integers, not bool"),
        (np.array([1 << 63], dtype=np.uint64), "lies outside [0, 8)"),
    ],
)
def test_batches_refuse_what_is_no_index(index, message):
    with pytest.raises(RegionError) as caught:
        TileLayout.parse("S[8:1]").evaluate(index)
    assert message in str(caught.value)


def test_tables_need_numbers():
    layout = TileLayout.parse("S[8:1]") + Param("s", 0, 2) * 128
    with pytest.raises(UndecidedError, match="substitute"):
        layout.table()
    assert layout.substitute(s=1).table()["m"].tolist() == [128, 129, 130, 131, 132, 133, 134, 135]
    with pytest.raises(RangeError, match=r"outside its range \[0, 2\)"):
        layout.substitute(s=2)


def test_a_layout_of_one_element_takes_no_digits_or_the_index_zero():
    layout = TileLayout.parse("S[()] + 3@warpid")
    assert layout.apply() == layout.apply(0) == layout.apply(0, 0, shape=(1, 1)) == {"warpid": 3}
    assert layout.table()["warpid"].tolist() == [3]
    assert layout.explain(0).endswith("place: warpid = 3")


def test_explain_adds_up_to_the_place():
    layout = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
    text = layout.explain(3, 9, shape=(8, 16))
    assert text.splitlines() == [
        "(3, 9) of (8, 16) is index 57 of 128",
        "digit 3 of 8:4@laneid -> 12@laneid",
        "digit 1 of 2:1@warpid -> 1@warpid",
        "digit 0 of 4:1@laneid -> 0@laneid",
        "digit 1 of 2:1 -> 1@m",
        "offset -> 5@warpid",
        "replicas 2:4@warpid",
        "place: laneid = 12, warpid = 6, m = 1",
    ]


def test_more_replicas_than_can_be_listed_are_an_error_not_a_hang():
    with pytest.raises(RegionError, match="too many to list"):
        TileLayout.parse("S[4:1] + R[1048577:1@pid]").places(0)
