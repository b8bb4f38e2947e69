"""The canonical form and equality: the theorem that equivalent layouts, and only those, have equal canonical forms."""

from __future__ import annotations

import itertools
import math

import oracle
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st

from layoutalg import LayoutError, Param, TileLayout, UndecidedError
from layoutalg.algebra.canonical import factor_sumset


@given(strategies.layouts())
@example(TileLayout.parse("S[8:1] + R[(1,2,2,4):(5,0,4,1)]"))
@example(TileLayout.parse("S[8:1] + R[(2,6):(3,2)]"))
def test_canonical_form_is_the_same_map(layout):
    canonical = layout.canonicalize()
    assert oracle.same(oracle.plain(layout), oracle.plain(canonical))
    assert canonical.canonicalize() is canonical


@given(st.data(), strategies.layouts())
def test_layouts_written_in_two_ways_have_one_canonical_form(data, layout):
    other = data.draw(strategies.rewritten(layout))
    assert oracle.same(oracle.plain(layout), oracle.plain(other)), "the strategy rewrites, it does not change"
    assert layout.canonicalize() == other.canonicalize()
    assert layout.equivalent(other)
    assert other.equivalent(layout)
    assert layout.difference(other) is None


@given(st.data(), strategies.layouts(limit=24))
def test_canonical_forms_are_equal_exactly_when_the_maps_are(data, layout):
    other = data.draw(strategies.layouts_of(layout.size))
    _check_decision(layout, other)


@given(st.data(), strategies.layouts(limit=24))
def test_near_misses_are_told_apart_at_the_first_index_that_differs(data, layout):
    shard = [list(it) for it in data.draw(strategies.rewritten(layout)).shard]
    offset = dict(layout.offset)
    if shard and data.draw(st.booleans()):
        digit = data.draw(st.integers(0, len(shard) - 1))
        shard[digit][1] += data.draw(st.integers(-2, 2))
    else:
        offset["m"] = offset.get("m", 0) + data.draw(st.integers(-1, 1))
    _check_decision(layout, TileLayout.from_iters(shard=shard, replica=layout.replica, offset=offset))


def _check_decision(a: TileLayout, b: TileLayout) -> None:
    first = oracle.first_difference(oracle.plain(a), oracle.plain(b))
    assert (a.canonicalize() == b.canonicalize()) is (first is None)
    assert a.equivalent(b) is (first is None)
    found = a.difference(b)
    if first is None:
        assert found is None
        return
    assert found is not None
    index, words = found
    assert index == first
    assert words.startswith(f"index {first}")


@given(strategies.layouts(replicas=False))
def test_no_layout_with_the_same_map_has_fewer_iters(layout):
    shard = layout.canonicalize().shard
    values = oracle.table(oracle.plain(layout))
    for order in oracle.prime_orders(len(values)):
        reach, iters = oracle._agreement(values, order)
        if reach == len(values):
            merged = 1 if iters else 0
            for (_, outer, a), (e, inner, b) in itertools.pairwise(iters):
                merged += not (outer == e * inner and (a == b or outer == inner == 0))
            assert merged >= len(shard)
    assert all(it.extent > 1 for it in shard)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(2, 4)), min_size=1, max_size=3))
@example([(2, 6), (3, 2)])
@example([(1, 2), (2, 3), (3, 2)])
def test_a_set_of_replicas_is_factored_into_the_fewest_then_least_progressions(pairs):
    elements = frozenset({0})
    for stride, extent in pairs:
        elements = frozenset(x + k * stride for x in elements for k in range(extent))
    if max(elements) <= 20:
        assert tuple(factor_sumset(elements)) == oracle.canonical_sum(elements)


@given(strategies.iters(limit=12, rank=3, axes=("m", "laneid")), strategies.iters(limit=12, rank=3, axes=("m",)))
def test_equal_sets_of_replicas_have_one_form_and_different_ones_have_two(a, b):
    one = TileLayout.from_iters(shard=[(2, 1, "m")], replica=a)
    two = TileLayout.from_iters(shard=[(2, 1, "m")], replica=b)
    equal = oracle.same(oracle.plain(one), oracle.plain(two))
    assert one.equivalent(two) is equal
    assert (one.canonicalize() == two.canonicalize()) is equal


def test_a_layout_that_is_canonical_already_is_returned_itself():
    layout = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
    assert layout.canonicalize() is layout


def test_layouts_of_different_sizes_differ_without_an_index():
    assert TileLayout.parse("S[4:1]").difference(TileLayout.parse("S[8:1]")) == (None, "sizes 4 and 8")


def test_huge_layouts_are_compared_by_their_digits():
    a = TileLayout.parse("S[(1048576,1048576):(1048576,1)]")
    b = TileLayout.parse("S[(1024,1024,1024,1024):(1073741824,1048576,1024,1)]")
    c = TileLayout.parse("S[(1024,1024,1024,1024):(1073741824,1048576,1024,2)]")
    d = TileLayout.parse("S[(1024,1024,2,524288):(1073741824,1048576,524288,1)] + 1")
    assert a.equivalent(b)
    assert a.difference(c) == (1, "index 1: m = 1 against m = 2")
    assert a.difference(d)[0] == 0
    e = TileLayout.parse("S[(2,549755813888):(549755813887,1)]")
    assert a.difference(e) == (1 << 39, "index 549755813888: m = 549755813888 against m = 549755813887")


def test_replica_sets_too_large_to_list_are_undecided_and_single_progressions_never_are():
    huge = TileLayout.parse("S[2:1] + R[1099511627776:1]")
    split = TileLayout.parse("S[2:1] + R[(1048576,1048576):(1048576,1)]")
    assert huge.equivalent(split)
    assert huge.canonicalize() == split.canonicalize()
    sparse = TileLayout.parse("S[2:1] + R[(70000,2):(3,1)]")
    shifted = TileLayout.parse("S[2:1] + R[(70000,2):(3,2)]")
    with pytest.raises(UndecidedError, match="over 65536 elements"):
        sparse.equivalent(shifted)
    assert sparse.equivalent(sparse)


def test_parameters_in_offsets_are_compared_for_all_their_values():
    s = Param("s", 0, 2)
    a, b = TileLayout.parse("S[4:1]") + 8 * s, TileLayout.parse("S[(2,2):(2,1)]") + (s * 8)
    assert a.equivalent(b)
    assert a.canonicalize() == b.canonicalize()
    assert not a.equivalent(b + 16)
    with pytest.raises(UndecidedError, match="depends on the value"):
        a.equivalent(TileLayout.parse("S[4:1]"))


@pytest.mark.parametrize("other", [None, "S[4:1]", 3])
def test_only_layouts_can_be_compared(other):
    assert (TileLayout.parse("S[4:1]") == other) is False
    with pytest.raises(LayoutError, match="compare"):
        TileLayout.parse("S[4:1]").equivalent(other)


@given(st.integers(1, 12), st.integers(1, 12))
def test_a_two_iter_zero_layout_is_one_iter_whatever_its_axes(a, b):
    layout = TileLayout.from_iters(shard=[(a, 0, "laneid"), (b, 0, "warpid")])
    expected = [(a * b, 0, "m")] if math.prod((a, b)) > 1 else []
    assert layout.canonicalize() == TileLayout.from_iters(shard=expected)
