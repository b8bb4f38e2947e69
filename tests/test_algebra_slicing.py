"""Slicing: right at every point of the box, and refused only where no layout has these values."""

from __future__ import annotations

import itertools

import oracle
import pytest
import strategies
from hypothesis import event, example, given
from hypothesis import strategies as st
from strategies import attempt, boxed

from layoutalg import NotExpressibleError, Param, RangeError, RegionError, TileLayout, UndecidedError
from layoutalg.algebra.slicing import MAX_TABULATED


def box_of(case: strategies.Boxed) -> tuple[oracle.Plain, list[int]]:
    return oracle.plain(case.layout), oracle.box_indices(case.shape, case.region)


@given(strategies.boxed_layouts())
@example(boxed("S[(2,2,4):(100,10,1)]", shape=(16,), region=((6, 10),)))
@example(boxed("S[(2,2,4):(1@laneid,10,1)]", shape=(16,), region=((6, 10),)))
@example(boxed("S[(4,4):(10,1)]", shape=(16,), region=((2, 10),)))
@example(boxed("S[(4,4):(1@laneid,0)]", shape=(16,), region=((2, 6),)))
@example(boxed("S[(4,2,3):(4,1,1)]", shape=(24,), region=((17, 20),)))
@example(boxed("S[(2,3):(100,1)]", shape=(3, 2), region=((1, 2), (0, 2))))
@example(boxed("S[(2,2,2):(-1,-1,0)]", shape=(8,), region=((2, 5),)))
@example(boxed("S[(2,2,2):(0,2,0)]", shape=(8,), region=((3, 5),)))
def test_a_slice_is_right_at_every_point_or_no_layout_is(case):
    plain, indices = box_of(case)
    wanted = [oracle.base(plain, n) for n in indices]
    part = attempt(case.layout.slice, case.shape, case.region)
    if isinstance(part, NotExpressibleError):
        assert oracle.layout_of(wanted) is None
        assert part.index == oracle.first_failure(wanted)
        assert str(part).startswith("slice: ")
        return
    assert oracle.sets(oracle.plain(part)) == [oracle.places(plain, n) for n in indices]
    assert part.shard == part.canonicalize().shard


@pytest.mark.slow
def test_every_box_of_every_small_layout():
    extents = [e for rank in (1, 2, 3) for e in itertools.product((2, 3, 4), repeat=rank) if 4 <= _prod(e) <= 18]
    for shape in extents:
        for strides in itertools.product((0, 1, 2, -1, 4), repeat=len(shape)):
            layout = TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(shape, strides, strict=True)])
            plain = oracle.plain(layout)
            for begin in range(layout.size):
                for end in range(begin + 1, layout.size + 1):
                    wanted = [oracle.base(plain, n) for n in range(begin, end)]
                    part = attempt(layout.slice, (layout.size,), ((begin, end),))
                    if isinstance(part, NotExpressibleError):
                        assert part.index == oracle.first_failure(wanted)
                    else:
                        assert oracle.table(oracle.plain(part)) == wanted


def _prod(extents: tuple[int, ...]) -> int:
    total = 1
    for e in extents:
        total *= e
    return total


@given(strategies.boxed_layouts(replicas=False), st.data())
def test_slicing_twice_is_slicing_once(case, data):
    try:
        part = case.layout.slice(case.shape, case.region)
        inner = data.draw(strategies.boxes(case.extent))
        twice = part.slice(case.extent, inner)
    except NotExpressibleError:
        event("refused")
        return
    moved = tuple((b + x, b + y) for (b, _), (x, y) in zip(case.region, inner, strict=True))
    assert twice.equivalent(case.layout.slice(case.shape, moved))


@given(strategies.layouts(), st.data())
def test_a_single_index_becomes_an_extent_of_one(layout, data):
    shape = data.draw(strategies.fitting_shapes(layout))
    x = [data.draw(st.integers(0, e - 1)) for e in shape]
    part = layout.slice(shape, x)
    assert part.size == 1
    assert set(map(lambda p: oracle.place(p), part.places(0))) == oracle.places(
        oracle.plain(layout), oracle.flat(x, shape)
    )


@given(strategies.layouts(), st.data())
def test_a_parameter_begin_gives_the_slice_at_each_of_its_values(layout, data):
    shape = data.draw(strategies.fitting_shapes(layout))
    dim = data.draw(st.integers(0, len(shape) - 1))
    scale = data.draw(st.sampled_from(strategies.divisors(shape[dim])))
    count = data.draw(st.integers(1, scale))
    tile = Param("tile", 0, shape[dim] // scale)
    region = [(0, e) for e in shape]
    region[dim] = (tile * scale, tile * scale + count)
    part = attempt(layout.slice, shape, region)
    if isinstance(part, NotExpressibleError):
        assert part.index is not None or "tile" in str(part)
        return
    for value in range(tile.end):
        region[dim] = (value * scale, value * scale + count)
        assert part.substitute(tile=value).equivalent(layout.slice(shape, region))


def test_a_parameter_lands_in_the_offset():
    stages = TileLayout.parse("S[(2,4,32):(128,32,1)]")
    assert str(stages.slice((2, 4, 32), (Param("s", 0, 2), (0, 4), (0, 32)))) == "S[128:1] + 128*s[0:2]"
    with pytest.raises(NotExpressibleError, match="depends on s"):
        TileLayout.parse("S[(4,4):(10,1)]").slice((16,), ((Param("s", 0, 4), Param("s", 0, 4) + 2),))


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (((0, 2),), "region has 1 dimensions"),
        (((0, 2), (0, 4), (0, 1)), "region has 3 dimensions"),
        (((2, 2), (0, 4)), "region[0] = [2, 2) is empty"),
        (((3, 1), (0, 4)), "region[0] = [3, 1) is empty"),
        (((0, 5), (0, 8)), "region[0] = [0, 5) leaves [0, 4)"),
        (((-1, 2), (0, 8)), "region[0] = [-1, 2) leaves [0, 4)"),
        ((4, (0, 8)), "region[0] = [4, 5) leaves [0, 4)"),
        (((0, 4), (0, 1, 2)), "must be (begin, end) or one index"),
        ("ab", "a region is one (begin, end) or index per dimension"),
        (7, "a region is one (begin, end) or index per dimension"),
        ((Param("s", 0, 5), (0, 8)), "leaves [0, 4)"),
        (((0, Param("s", 1, 4)), (0, 8)), "no constant"),
    ],
)
def test_regions_that_do_not_fit_are_errors(region, message):
    with pytest.raises(RegionError) as caught:
        TileLayout.parse("S[4,8]").slice((4, 8), region)
    assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [1.0, True, "1", None])
def test_bounds_are_integers(wrong):
    with pytest.raises(RangeError, match=r"region\[0\] must be an integer"):
        TileLayout.parse("S[4,8]").slice((4, 8), ((0, wrong), (0, 8)))
    with pytest.raises(RangeError, match=r"region\[0\] must be an integer"):
        TileLayout.parse("S[4,8]").slice((4, 8), (wrong, (0, 8)))


def test_huge_layouts_are_sliced_by_their_digits():
    layout = TileLayout.parse("S[(1048576,1048576):(2097152,1)]")
    assert str(layout.slice((1 << 40,), ((5, 1 << 20),))) == "S[1048571:1] + 5"
    half = layout.slice((1 << 40,), ((1 << 19, (1 << 19) + (1 << 30)),))
    assert str(half) == "S[(1024,2,524288):(2097152,1572864,1)] + 524288"
    with pytest.raises(NotExpressibleError) as caught:
        layout.slice((1 << 40,), ((5, (1 << 40) - 5),))
    assert caught.value.index == (1 << 20) - 5


def test_a_box_that_fits_no_regrouping_is_judged_point_by_point_up_to_a_stated_limit():
    side = 1 << 13
    layout = TileLayout.from_iters(shard=[(side - 1, 1, "m"), (side + 1, side, "m")])
    region = ((0, side + 1), (0, side - 2))
    with pytest.raises(UndecidedError, match=str(MAX_TABULATED)):
        layout.slice((side + 1, side - 1), region)


def test_a_refusal_keeps_its_facts_when_it_is_pickled():
    import pickle

    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse("S[(2,2,4):(1@laneid,10,1)]").slice((16,), ((6, 10),))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.index, again.facts) == (str(caught.value), 2, caught.value.facts)
