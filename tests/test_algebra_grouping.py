"""Regrouping: the map stays, the digits follow the shape, and a refusal means that no digits could."""

from __future__ import annotations

import itertools
from math import prod

import oracle
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import NotExpressibleError, RangeError, RegionError, TileLayout


def is_separable(layout: TileLayout, shape: tuple[int, ...]) -> bool:
    """Brute force: some list of iters groups by the shape exactly when each dimension moves on its own and is a layout.

    The map over the shape must be a sum of one map per dimension, each of which is a layout by itself.
    """
    values = oracle.table(oracle.Plain(oracle.plain(layout).shard))
    parts = []
    for dim, extent in enumerate(shape):
        inner = prod(shape[dim + 1 :])
        parts.append([values[x * inner] for x in range(extent)])
    for n, x in enumerate(oracle.coordinates(shape)):
        total: oracle.Place = frozenset()
        for part, digit in zip(parts, x, strict=True):
            total = oracle.plus(total, part[digit])
        if total != values[n]:
            return False
    return all(oracle.layout_of(part) is not None for part in parts)


@given(st.data(), strategies.layouts())
@example(None, TileLayout.parse("S[(3,2):(2,1)]"))
@example(None, TileLayout.parse("S[(3,2):(0,0@laneid)]"))
def test_group_keeps_the_map_and_follows_the_shape_or_no_layout_does(data, layout):
    shape = (2, 3) if data is None else data.draw(strategies.shapes(layout.size))
    found = attempt(layout.group, shape)
    if isinstance(found, NotExpressibleError):
        assert not is_separable(layout, shape)
        assert f"({', '.join(map(str, shape))}" in str(found)
        return
    grouped, seps = found
    assert oracle.same(oracle.plain(layout), oracle.plain(grouped))
    assert grouped.replica == layout.replica
    assert seps[0] == 0
    assert seps[-1] == len(grouped.shard)
    for extent, (begin, end) in zip(shape, itertools.pairwise(seps), strict=True):
        assert prod(it.extent for it in grouped.shard[begin:end]) == extent


@given(st.data(), strategies.layouts())
def test_group_many_serves_every_shape_with_one_list_of_iters(data, layout):
    shapes = [data.draw(strategies.shapes(layout.size)) for _ in range(data.draw(st.integers(1, 3)))]
    found = attempt(layout.group_many, shapes)
    if isinstance(found, NotExpressibleError):
        assert not nest(shapes) or not is_separable(layout, refinement(shapes))
        return
    grouped, all_seps = found
    assert oracle.same(oracle.plain(layout), oracle.plain(grouped))
    for shape, seps in zip(shapes, all_seps, strict=True):
        assert seps[0] == 0
        assert seps[-1] == len(grouped.shard)
        for extent, (begin, end) in zip(shape, itertools.pairwise(seps), strict=True):
            assert prod(it.extent for it in grouped.shard[begin:end]) == extent


def marks(shapes: list[tuple[int, ...]]) -> list[int]:
    return sorted({prod(shape[k:]) for shape in shapes for k in range(len(shape) + 1)}, reverse=True)


def nest(shapes: list[tuple[int, ...]]) -> bool:
    return all(outer % inner == 0 for outer, inner in itertools.pairwise(marks(shapes)))


def refinement(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(outer // inner for outer, inner in itertools.pairwise(marks(shapes)))


@given(st.data(), strategies.layouts())
def test_regroup_gives_exactly_one_iter_per_extent_or_none_could(data, layout):
    extents = data.draw(strategies.shapes(layout.size, rank=4))
    found = attempt(layout.regroup, extents)
    if isinstance(found, NotExpressibleError):
        values = oracle.table(oracle.Plain(oracle.plain(layout).shard))
        assert not one_iter_each(values, extents)
        return
    assert tuple(it.extent for it in found.shard) == extents
    assert oracle.same(oracle.plain(layout), oracle.plain(found))


def one_iter_each(values: list[oracle.Place], extents: tuple[int, ...]) -> bool:
    strides = [
        oracle.minus(values[prod(extents[k + 1 :])], values[0]) if e > 1 else frozenset() for k, e in enumerate(extents)
    ]
    if any(len(stride) > 1 for stride in strides):
        return False
    for n, x in enumerate(oracle.coordinates(extents)):
        total: oracle.Place = values[0]
        for stride, digit in zip(strides, x, strict=True):
            total = oracle.plus(total, stride, digit)
        if total != values[n]:
            return False
    return True


def test_a_refusal_names_the_boundary_that_no_iter_has():
    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse("S[(2,3):(10,1)]").group((3, 2))
    assert caught.value.facts["boundary"] == 2
    assert "needs a boundary 2 elements from the end (before dimension 1)" in str(caught.value)
    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse("S[(2,4):(10,1)]").regroup((8,))
    assert caught.value.facts["dim"] == 0
    assert "needs 2 iters" in str(caught.value)
    with pytest.raises(NotExpressibleError, match="do not nest"):
        TileLayout.parse("S[12:1]").group_many([(3, 4), (2, 6)])


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((5,), RegionError, "has 5 elements, the layout 8"),
        ((), RegionError, "has 1 elements, the layout 8"),
        ((8, 0), RegionError, "extents are at least 1"),
        ((-2, -4), RegionError, "extents are at least 1"),
        (8, RegionError, "must be a sequence of extents"),
        ("8", RegionError, "must be a sequence of extents"),
        ((8.0,), RangeError, "extent of the shape must be an integer, not 8.0"),
        ((True, 8), RangeError, "extent of the shape must be an integer, not True"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(shape, error, message):
    layout = TileLayout.parse("S[8:1]")
    for call in (layout.group, layout.regroup, lambda s: layout.group_many([s])):
        with pytest.raises(error) as caught:
            call(shape)
        assert message in str(caught.value)


@given(st.data(), strategies.layouts())
def test_permuting_dimensions_moves_every_element_along(data, layout):
    shape = data.draw(strategies.fitting_shapes(layout))
    order = data.draw(st.permutations(range(len(shape))))
    plain, moved = oracle.plain(layout), oracle.plain(layout.permute(*order, shape=shape))
    new_shape = [shape[d] for d in order]
    for x in oracle.coordinates(shape):
        there = oracle.flat([x[d] for d in order], new_shape)
        assert oracle.places(moved, there) == oracle.places(plain, oracle.flat(x, shape))


@given(st.data(), strategies.layouts())
def test_permuting_iters_reorders_the_digits(data, layout):
    order = data.draw(st.permutations(range(len(layout.shard))))
    for moved in (layout.permute(*order), layout.permute_iters(order)):
        assert moved.shard == tuple(layout.shard[d] for d in order)
        assert (moved.replica, moved.offset) == (layout.replica, layout.offset)


@given(st.data(), strategies.layouts())
def test_permuting_groups_is_permuting_the_dimensions_they_stand_for(data, layout):
    shape = data.draw(strategies.fitting_shapes(layout))
    order = data.draw(st.permutations(range(len(shape))))
    grouped, seps = layout.group(shape)
    assert grouped.permute_groups(seps, order) == layout.permute(*order, shape=shape)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((0, 0), "1 missing"),
        ((0,), "1 missing"),
        ((0, 1, 1), "repeated"),
        ((0, 2), "2 is no dimension"),
        ((0, -3), "-3 is no dimension"),
        ((), "0, 1 missing"),
        ((0, 1.0), "must be an integer"),
        ((0, True), "must be an integer"),
    ],
)
def test_what_is_no_permutation_is_an_error(dims, message):
    layout = TileLayout.parse("S[4,8]")
    for call in (
        lambda: layout.permute(*dims),
        lambda: layout.permute_iters(dims),
        lambda: layout.permute(*dims, shape=(8, 4)),
        lambda: layout.permute_groups((0, 1, 2), dims),
    ):
        with pytest.raises(RangeError) as caught:
            call()
        assert message in str(caught.value)


@pytest.mark.parametrize("seps", [(), (0,), (0, 1), (1, 2), (0, 3), (0, 2, 1), (0, -1, 2)])
def test_separators_must_run_over_all_iters(seps):
    with pytest.raises(RegionError, match="do not run from 0 to 2 iters"):
        TileLayout.parse("S[4,8]").permute_groups(seps, range(len(seps) - 1))
