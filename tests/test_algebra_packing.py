"""Changing the width of elements, inserting digits, keeping what one thread holds."""

from __future__ import annotations

import oracle
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import AxisError, NotExpressibleError, RangeError, TileLayout


def widened(layout: oracle.Plain, n: int, axis: str) -> list[frozenset[oracle.Place]]:
    """U(k*n + j) = n*L(k) + j on the axis, straight from the definition."""
    result = []
    for group in oracle.sets(layout):
        for j in range(n):
            result.append(frozenset(oracle.place({**dict(p), axis: n * dict(p).get(axis, 0) + j}) for p in group))
    return result


@given(strategies.layouts(limit=16), st.integers(1, 4), st.sampled_from(strategies.AXES))
def test_unpack_is_its_definition_and_pack_takes_it_back(layout, n, axis):
    wide = layout.unpack(n, axis)
    assert oracle.sets(oracle.plain(wide)) == widened(oracle.plain(layout), n, axis)
    assert wide.pack(n, axis).equivalent(layout)


@given(strategies.layouts(limit=24), st.integers(1, 4), st.sampled_from(("m", "laneid")))
@example(TileLayout.parse("S[(4,4):(5,1)]"), 2, "m")
@example(TileLayout.parse("S[(4,2):(2,1)]"), 4, "m")
@example(TileLayout.parse("S[(8,1):(1,1)]"), 2, "m")
@example(TileLayout.parse("S[8:1] + R[(2,2):(4,2)] + 6"), 2, "m")
@example(TileLayout.parse("S[8:1] + R[2:-2]"), 2, "m")
def test_pack_finds_the_wider_layout_or_there_is_none(layout, n, axis):
    found = attempt(layout.pack, n, axis)
    sets = oracle.sets(oracle.plain(layout))
    if not isinstance(found, NotExpressibleError):
        assert widened(oracle.plain(found), n, axis) == sets
        return
    if layout.size % n == 0:
        assert packed(sets, n, axis) is None
    else:
        assert found.index is None


def packed(sets: list[frozenset[oracle.Place]], n: int, axis: str) -> oracle.Plain | None:
    """The layout whose widening these sets are, by dividing every n-th set."""
    narrow = []
    for k in range(0, len(sets), n):
        if any(dict(p).get(axis, 0) % n for p in sets[k]):
            return None
        narrow.append(frozenset(oracle.place({**dict(p), axis: dict(p).get(axis, 0) // n}) for p in sets[k]))
    answer = oracle.layout_of_sets(narrow)
    return answer if answer is not None and widened(answer, n, axis) == sets else None


@pytest.mark.parametrize(
    ("text", "n", "index", "message"),
    [
        ("S[8:2]", 2, 1, "elements 0 and 1"),
        ("S[8:1@laneid]", 2, 1, "elements 0 and 1"),
        ("S[(4,3):(8,1)]", 2, 3, "runs of 3 neighbours"),
        ("S[(4,4):(5,1)]", 2, 4, "index 4 of .* moves by 5@m"),
        ("S[8:1] + 3", 2, 0, "element 0 of .* lies at 3"),
        ("S[8:1] + R[2:3]", 2, 0, "steps of 3"),
        ("S[9:1]", 2, None, "9 elements, no multiple of 2"),
    ],
)
def test_a_refused_pack_shows_the_element(text, n, index, message):
    with pytest.raises(NotExpressibleError, match=message) as caught:
        TileLayout.parse(text).pack(n)
    assert caught.value.index == index


@given(strategies.layouts(limit=16), st.integers(1, 3), st.data())
def test_broadcast_inserts_a_digit_that_moves_nothing(layout, n, data):
    rank = len(layout.shard) + 1
    position = data.draw(st.integers(-rank, rank - 1))
    wide = layout.broadcast(n, position)
    at = position % rank
    extents = [it.extent for it in layout.shard]
    plain = oracle.plain(layout)
    for x in oracle.coordinates([*extents[:at], n, *extents[at:]]):
        there = oracle.flat(x, [it.extent for it in wide.shard])
        assert oracle.places(oracle.plain(wide), there) == oracle.places(
            plain, oracle.flat([*x[:at], *x[at + 1 :]], extents)
        )


@given(strategies.layouts())
def test_storage_keeps_the_digits_of_memory_axes(layout):
    kept, plain = oracle.plain(layout.storage()), oracle.plain(layout)
    memory = {"m", "TLane"}
    assert kept.shard == tuple(it for it in plain.shard if it[2] in memory)
    assert kept.replica == tuple(it for it in plain.replica if it[2] in memory)
    assert dict(kept.offset) == {a: v for a, v in plain.offset if a in memory}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.unpack(0), RangeError, "unpack: 0 elements"),
        (lambda x: x.pack(-2), RangeError, "pack: -2 elements"),
        (lambda x: x.unpack(2.0), RangeError, "must be an integer, not 2.0"),
        (lambda x: x.pack(True), RangeError, "must be an integer, not True"),
        (lambda x: x.unpack(2, "memory"), AxisError, "unknown axis 'memory'"),
        (lambda x: x.broadcast(0), RangeError, "broadcast: 0 elements"),
        (lambda x: x.broadcast(2, 2), RangeError, "position 2 lies outside"),
        (lambda x: x.broadcast(2, -3), RangeError, "position -3 lies outside"),
        (lambda x: x.broadcast(2, 0, "lane"), AxisError, "unknown axis"),
    ],
)
def test_arguments_that_make_no_sense_are_errors(call, error, message):
    with pytest.raises(error) as caught:
        call(TileLayout.parse("S[8:1]"))
    assert message in str(caught.value)
