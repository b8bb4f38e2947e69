"""The recogniser: the layout of a table, or the first index at which there is none."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import AxisError, NotExpressibleError, RangeError, TileLayout
from layoutalg.algebra.recognise import recognise


@given(strategies.layouts(replicas=False), st.data())
def test_a_table_is_read_back_as_its_canonical_layout(layout, data):
    shape = data.draw(strategies.shapes(layout.size))
    table = layout.table(shape)
    if table:
        assert recognise(table) == layout.canonicalize()
        assert recognise({axis: column.tolist() for axis, column in table.items()}) == layout.canonicalize()


@given(strategies.layouts(limit=36, replicas=False), st.data())
def test_a_damaged_table_is_a_layout_exactly_when_brute_force_finds_one(layout, data):
    table = {axis: column.copy() for axis, column in layout.table().items()} or {"m": np.zeros(layout.size, int)}
    for _ in range(data.draw(st.integers(1, 3))):
        column = table[data.draw(st.sampled_from(sorted(table)))]
        column[data.draw(st.integers(0, layout.size - 1))] += data.draw(st.integers(-2, 2))
    check(table)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.lists(st.integers(0, 1), min_size=12, max_size=12))
def test_any_short_table_is_a_layout_exactly_when_brute_force_finds_one(a, b):
    check({"m": np.array(a), "laneid": np.array(b[: len(a)])})
    check({"m": np.array(a)})


def check(table: dict[str, np.ndarray]) -> None:
    count = len(next(iter(table.values())))
    values = [oracle.place({axis: int(column[n]) for axis, column in table.items()}) for n in range(count)]
    found = attempt(recognise, table)
    if isinstance(found, NotExpressibleError):
        assert found.index == oracle.first_failure(values)
    else:
        assert oracle.table(oracle.plain(found)) == values
        assert found.canonicalize() is found


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_narrow_and_unsigned_tables_do_not_wrap(kind):
    assert str(recognise(np.array([100, 60, 20], dtype=kind))) == "S[3:-40] + 100"
    assert str(recognise(np.array([5, 4, 3], dtype=kind))) == "S[3:-1] + 5"


def test_extreme_values_are_exact():
    assert str(recognise(np.array([-(2**63), 2**63 - 1]))) == f"S[2:{2**64 - 1}] + {-(2**63)}"
    with pytest.raises(NotExpressibleError) as caught:
        recognise(np.array([-(2**63), 2**63 - 1, 2**63 - 2]))
    assert caught.value.index == 2
    assert str(recognise(np.array([0, 2**63 + 5], dtype=np.uint64))) == f"S[2:{2**63 + 5}]"
    assert str(recognise(np.array([0, 1 << 80], dtype=object))) == f"S[2:{1 << 80}]"


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([], RangeError, "non-empty integer array"),
        ([0.0, 1.0], RangeError, "integer array"),
        ([True, False], RangeError, "integer array"),
        (["a"], RangeError, "integer array"),
        ({}, RangeError, "at least one axis"),
        ({"m": [0, 1], "laneid": [[0, 1]]}, RangeError, "different shapes"),
        ({"m": [0, 1], "laneid": [0]}, RangeError, "different shapes"),
        ({"lane": [0]}, AxisError, "unknown axis"),
    ],
)
def test_what_is_no_table_is_an_error(table, error, message):
    with pytest.raises(error) as caught:
        recognise(table)
    assert message in str(caught.value)


def test_a_million_points_take_a_fraction_of_a_second():
    layout = TileLayout.parse("S[(64,32,512):(7@laneid,1024,1)]")
    assert recognise(layout.table((1024, 1024))) == layout
