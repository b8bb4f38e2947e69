"""Tilings and direct sums mean what the definition says; the way back finds the other part where there is one."""

from __future__ import annotations

import oracle
import pytest
import strategies
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import LayoutError, NotExpressibleError, RangeError, RegionError, TileLayout


@st.composite
def pairs(draw: st.DrawFn, *, limit: int = 12, replicas: bool = True) -> tuple:
    """Two layouts with shapes of one rank, which need not fit the layouts."""
    layouts = [draw(strategies.layouts(limit=limit, rank=3, replicas=replicas)) for _ in range(2)]
    rank = draw(st.integers(1, 3))
    shapes = []
    for layout in layouts:
        shape = draw(st.one_of(strategies.shapes(layout.size, rank=rank), strategies.fitting_shapes(layout, rank=rank)))
        padding = [1] * (rank - len(shape))
        cut = draw(st.integers(0, len(padding)))
        shapes.append((*padding[:cut], *shape, *padding[cut:]))
    return layouts[0], shapes[0], layouts[1], shapes[1]


def parsed(outer: str, outer_shape: tuple, inner: str, inner_shape: tuple) -> tuple:
    return TileLayout.parse(outer), outer_shape, TileLayout.parse(inner), inner_shape


@given(pairs())
@example(parsed("S[2:1] + R[2:2] + 3", (2,), "S[4:1]", (4,)))
@example(parsed("S[2:1]", (2,), "S[4:-1]", (4,)))
@example(parsed("S[(3,2):(7,1)]", (2, 3), "S[()]", (1, 1)))
@example(parsed("S[(3,2):(7,1)]", (2, 3), "S[2:100]", (1, 2)))
@example(parsed("S[(3,2):(7,1)]", (2, 3), "S[2:100]", (2, 1)))
def test_tiling_is_its_definition_or_no_layout_is(case):
    outer, outer_shape, inner, inner_shape = case
    wanted = oracle.tiled(oracle.plain(outer), outer_shape, oracle.plain(inner), inner_shape)
    found = attempt(inner.tile, outer, outer_shape, inner_shape)
    if isinstance(found, NotExpressibleError):
        assert oracle.layout_of_sets(wanted) is None
        assert str(found).startswith("tile: the ")
        return
    assert oracle.sets(oracle.plain(found)) == wanted


@given(pairs())
def test_a_direct_sum_is_its_definition_or_no_layout_is(case):
    left, left_shape, right, right_shape = case
    wanted = oracle.interleaved(oracle.plain(left), left_shape, oracle.plain(right), right_shape, {})
    found = attempt(right.direct_sum, left, left_shape, right_shape)
    if isinstance(found, NotExpressibleError):
        assert oracle.layout_of_sets(wanted) is None
        return
    assert oracle.sets(oracle.plain(found)) == wanted


def _check_factor(found, again, wanted: oracle.Plain | None, total: TileLayout) -> None:
    """Ours and the brute force agree that there is an answer, put it back, and choose the same replicas."""
    if isinstance(found, NotExpressibleError):
        assert wanted is None, wanted
        return
    assert wanted is not None
    assert oracle.same(oracle.plain(again(found)), oracle.plain(total))
    assert oracle.same(oracle.plain(found), wanted)


@given(pairs(limit=8), st.data())
def test_the_outer_factor_of_a_tiling_comes_back(case, data):
    outer, outer_shape, inner, inner_shape = case
    total = attempt(inner.tile, outer, outer_shape, inner_shape)
    assume(not isinstance(total, NotExpressibleError))
    total = data.draw(nearby(total))
    shape = [o * i for o, i in zip(outer_shape, inner_shape, strict=True)]
    wanted = oracle.outer_factor(oracle.plain(total), (outer_shape, inner_shape), oracle.plain(inner))
    found = attempt(inner.tile_outer_of, total, shape, inner_shape)
    _check_factor(found, lambda x: inner.tile(x, outer_shape, inner_shape), wanted, total)


@given(pairs(limit=8), st.data())
def test_the_inner_factor_of_a_tiling_comes_back(case, data):
    outer, outer_shape, inner, inner_shape = case
    total = attempt(inner.tile, outer, outer_shape, inner_shape)
    assume(not isinstance(total, NotExpressibleError))
    total = data.draw(nearby(total))
    shape = [o * i for o, i in zip(outer_shape, inner_shape, strict=True)]
    found = attempt(outer.tile_inner_of, total, shape, outer_shape)
    if not isinstance(found, NotExpressibleError):
        assert found.tile(outer, outer_shape, inner_shape).equivalent(total)
    answers = oracle.inner_factors(oracle.plain(total), (outer_shape, inner_shape), oracle.plain(outer))
    assert len(answers) <= 1
    assert isinstance(found, NotExpressibleError) == (not answers)
    if answers:
        assert oracle.same(oracle.plain(found), answers[0])


@given(pairs(limit=8), st.booleans(), st.data())
def test_either_part_of_a_direct_sum_comes_back(case, left_is_known, data):
    left, left_shape, right, right_shape = case
    total = attempt(right.direct_sum, left, left_shape, right_shape)
    assume(not isinstance(total, NotExpressibleError))
    total = data.draw(nearby(total))
    interleaved = [x for pair in zip(left_shape, right_shape, strict=True) for x in pair]
    known = left if left_is_known else right
    shapes = (left_shape, right_shape)
    # As a tiling: the parts alternate, so the outer shape is padded with ones between.
    outer = [x for a in left_shape for x in (a, 1)]
    inner = [x for b in right_shape for x in (1, b)]
    wanted = oracle.other_part(
        oracle.plain(total), (outer, inner), oracle.plain(known), known_is_outer=left_is_known, scale={}, known_scale={}
    )
    if left_is_known:
        found = attempt(left.direct_sum_right_of, total, interleaved, left_shape)
        _check_factor(found, lambda x: x.direct_sum(left, *shapes), wanted, total)
    else:
        found = attempt(right.direct_sum_left_of, total, interleaved, right_shape)
        _check_factor(found, lambda x: right.direct_sum(x, *shapes), wanted, total)


@st.composite
def nearby(draw: st.DrawFn, layout: TileLayout) -> TileLayout:
    """The layout itself, or one that differs a little, so that refusals are asked for as well."""
    if draw(st.integers(0, 2)):
        return layout
    shard, replica = [list(it) for it in layout.shard], [list(it) for it in layout.replica]
    offset = dict(layout.offset)
    which = draw(st.integers(0, 2))
    if which == 0 and shard:
        shard[draw(st.integers(0, len(shard) - 1))][1] += draw(st.integers(-2, 2))
    elif which == 1:
        replica.append([draw(st.integers(2, 3)), draw(st.integers(1, 4)), "m"])
    else:
        offset["m"] = offset.get("m", 0) + draw(st.integers(-3, 3))
    return TileLayout.from_iters(shard=shard, replica=replica, offset=offset)


def test_where_replicas_leave_a_choice_the_fewest_places_are_chosen():
    total, part = TileLayout.parse("S[4:1] + R[5:1]"), TileLayout.parse("S[2:1] + R[3:1]")
    assert str(part.direct_sum_left_of(total, (2, 2), (2,))) == "S[2:2] + R[2:2]"
    dense = TileLayout.parse("S[4:1] + R[1048576:1]")
    assert str(part.direct_sum_left_of(TileLayout.parse("S[4:1] + R[3145728:1]"), (2, 2), (2,))) == (
        "S[2:2] + R[1048576:3]"
    )
    assert str(TileLayout.parse("S[2:1]").direct_sum_left_of(dense, (2, 2), (2,))) == "S[2:2] + R[1048576:1]"


@given(strategies.layouts(limit=12, rank=3), st.data())
def test_tile_to_repeats_in_row_major_order(inner, data):
    shape = data.draw(strategies.fitting_shapes(inner))
    copies = [data.draw(st.integers(1, 3)) for _ in shape]
    total = inner.tile_to([c * e for c, e in zip(copies, shape, strict=True)], shape)
    row_major = oracle.Plain(tuple((c, oracle.prod(copies[k + 1 :]), "m") for k, c in enumerate(copies)))
    assert oracle.sets(oracle.plain(total)) == oracle.tiled(row_major, copies, oracle.plain(inner), shape)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.tile_to([10], [4]), RegionError, "4 does not divide 10"),
        (lambda x: x.tile_to([8, 1], [4]), RegionError, "differ in rank"),
        (lambda x: x.tile_to([8], [8]), RegionError, "has 8 elements, the layout 4"),
        (lambda x: x.tile_to(8, [4]), RegionError, "must be a sequence"),
        (lambda x: x.tile(x, (4, 1), (4,)), RegionError, "differ in rank"),
        (lambda x: x.tile(x, (5,), (4,)), RegionError, "has 5 elements, the layout 4"),
        (lambda x: x.tile(x, (4.0,), (4,)), RangeError, "must be an integer"),
        (lambda x: x.direct_sum(x, (2, 2), (4,)), RegionError, "differ in rank"),
        (lambda x: x.tile_outer_of(x, (4,), (2,)), RegionError, "has 2 elements, the layout 4"),
        (lambda x: x.tile_outer_of(TileLayout.parse("S[6:1]"), (6,), (4,)), RegionError, "does not divide"),
        (lambda x: x.tile_outer_of("S[6:1]", (6,), (4,)), LayoutError, "takes a TileLayout"),
        (lambda x: x.direct_sum_left_of(x, (2, 2), (4,)), RegionError, "alternates"),
        (lambda x: x.direct_sum_left_of(x, (4,), (4,)), RegionError, "alternates"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(call, error, message):
    with pytest.raises(error) as caught:
        call(TileLayout.parse("S[4:1]"))
    assert message in str(caught.value)


def test_a_refusal_shows_the_index_at_which_the_factor_fails():
    inner = TileLayout.parse("S[4:1]")
    with pytest.raises(NotExpressibleError, match=r"index 4 of the tiled layout moves by 6@m, .* spans 4") as caught:
        inner.tile_outer_of(TileLayout.parse("S[(2,4):(6,1)]"), (8,), (4,))
    assert caught.value.index == 4
    with pytest.raises(NotExpressibleError, match=r"index 2 of the inner part") as caught:
        inner.tile_outer_of(TileLayout.parse("S[(4,2):(10,1)]"), (8,), (4,))
    assert caught.value.index == 2
    with pytest.raises(NotExpressibleError, match="no sum of progressions on laneid"):
        TileLayout.parse("S[4:1] + R[2:100@laneid]").tile_outer_of(TileLayout.parse("S[8:1]"), (8,), (4,))
