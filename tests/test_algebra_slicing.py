"""Slicing: right at every point of the box, and refused only where no layout has these values."""

from __future__ import annotations

import itertools
import math

import oracle
import pytest
import strategies
import sympy
from hypothesis import event, example, given
from hypothesis import strategies as st
from strategies import attempt, boxed

from layoutalg import NotExpressibleError, Param, RangeError, RegionError, S, TileLayout, UndecidedError
from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.difference import Digit, Part, first_difference
from layoutalg.algebra.ragged import Box, affine_digits, read_box
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import Axis
from verify.results import certify_slice
from verify.verdict import Proved, Refuted


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


@st.composite
def resonant_boxes(draw: st.DrawFn) -> strategies.Boxed:
    """Boxes of layouts whose strides are sums of inner reaches, so that crossings between blocks step alike."""
    extents = draw(
        st.lists(st.sampled_from([2, 2, 2, 3, 4, 7]), min_size=2, max_size=5).filter(lambda e: _prod(e) < 97)
    )
    strides = [draw(st.sampled_from([1, 0, -2]))]
    for k in range(len(extents) - 2, -1, -1):
        inner = list(zip(extents[k + 1 :], reversed(strides), strict=True))
        reach = sum((e - 1) * s for e, s in inner)
        strides.append(draw(st.sampled_from([reach + s * f for _, s in inner for f in (1, extents[-1])] + [3, 50])))
    axes = [draw(st.sampled_from(["m", "m", "m", "laneid"])), *["m"] * (len(extents) - 1)]
    shard = list(zip(extents, reversed(strides), axes, strict=True))
    layout = TileLayout.from_iters(shard=shard)
    shape = draw(strategies.fitting_shapes(layout, rank=2))
    return strategies.Boxed(layout, shape, draw(strategies.boxes(shape)))


@st.composite
def repeated_intervals(draw: st.DrawFn) -> strategies.Boxed:
    """Half-shifted and paired blocks, repeated with a jump that may go on as the steps within the interval do."""
    extent, stride = draw(st.sampled_from([2, 2, 4, 6])), draw(st.sampled_from([1, 0, -1]))
    blocks, step = draw(st.sampled_from([5, 7, 8])), draw(st.sampled_from([3, 7, 0]))
    paired = draw(st.booleans())
    digits = [(blocks, extent * stride + step), (2, step), (extent, stride)] if paired else [(blocks, step)]
    layout = oracle.Plain(tuple((e, s, "m") for e, s in (digits if paired else [*digits, (extent, stride)])))
    begin = draw(st.sampled_from([extent, 3 * extent] if paired else [extent // 2, extent + extent // 2]))
    length = draw(st.integers(2, layout.size - begin))
    values = [dict(oracle.base(layout, n)).get("m", 0) for n in range(begin, begin + length)]
    after = draw(st.integers(1, min(length, 2 * extent + 1)))  # the jump lands on one of these values and a step
    steps = [values[k] - values[k - d] for d in (1, 2, extent) for k in range(d, min(length, d + 3))]
    jump = values[-after] - values[0] + draw(st.sampled_from(steps))
    count = draw(st.sampled_from([n for n in (2, 3, 4, 6) if n * length < 200]))
    shard = [(count, jump, "m"), *layout.shard]
    whole = TileLayout.from_iters(shard=shard)
    return strategies.Boxed(whole, (count, layout.size), ((0, count), (begin, begin + length)))


@given(st.one_of(resonant_boxes(), repeated_intervals()))
@example(boxed("S[(2,8,7,2,4):(50,12,3,3,0)]", shape=(16, 56), region=((0, 16), (4, 41))))
@example(boxed("S[(3,2,7,2,2):(11,8,5,1,2)]", shape=(3, 56), region=((0, 3), (47, 56))))
@example(boxed("S[(2,2,15,4):(96,48,10,2)]", shape=(4, 60), region=((0, 4), (2, 21))))
@example(boxed("S[(2,2,3,5,2,2):(50,14,1,5,3,1)]", shape=(4, 60), region=((0, 4), (6, 55))))
@example(boxed("S[(2,2,12,2):(22,11,1,1)]", shape=(4, 24), region=((0, 4), (1, 24))))
@example(boxed("S[(4,2,2):(1003,7,2)]", shape=(4, 4), region=((0, 4), (1, 4))))
@example(boxed("S[(3,7,2,2):(50,3,1,1)]", shape=(84,), region=((2, 83),)))
@example(boxed("S[(2,8,2,2):(50,3,1,1)]", shape=(2, 32), region=((0, 2), (2, 31))))
def test_a_refusal_names_the_first_index_that_no_layout_reaches(case):
    plain, indices = box_of(case)
    part = attempt(case.layout.slice, case.shape, case.region)
    first = oracle.first_failure([oracle.base(plain, n) for n in indices])
    assert first == (part.index if isinstance(part, NotExpressibleError) else None)


@given(strategies.boxed_layouts(replicas=False), st.sampled_from([65536, 1_000_003]), st.integers(-2, 9))
@example(boxed("S[(4,2,2):(1000003,7,131072)]", shape=(4, 4), region=((0, 4), (1, 4))), 65536, 1)
def test_full_inner_digits_multiply_the_index_of_a_refusal(case, extent, stride):
    shard = [(e, s, a.name) for e, s, a in case.layout.shard]
    wide = TileLayout.from_iters(shard=[*shard, (extent, stride, "m")])
    plain, indices = box_of(case)
    part = attempt(wide.slice, (*case.shape, extent), (*case.region, (0, extent)))
    first = oracle.first_failure([oracle.base(plain, n) for n in indices])
    assert (part.index if isinstance(part, NotExpressibleError) else None) == (
        None if first is None else first * extent
    )


#: Layout, shape, box, and the first index that fails, as it follows from the digits.
FAR = [
    # pairs of rows do not divide 3 rows, and the next column begins with a row that breaks the pattern
    ("S[(4,2,2,65536):(1000003,7,131072,1)]", (4, 4, 65536), ((0, 4), (1, 4), (0, 65536)), 3 * 65536),
    # the run to the first crossing does not divide the box
    ("S[(1048576,1048576):(2097152,1)]", (1 << 40,), ((5, (1 << 40) - 5),), (1 << 20) - 5),
    # half-shifted blocks are evenly spaced up to the carry of the digit 100003
    ("S[(64,100003,1000):(7,2000,1)]", (64 * 100003 * 1000,), ((500, 64 * 100003 * 1000 - 500),), 100003 * 1000 - 500),
    # pairs of blocks, joined at every other crossing, go on to the end of a row; the next row jumps within a block
    (
        "S[(4,1000003,2,1024):(12345678901,1031,7,1)]",
        (4, 1000003 * 2048),
        ((0, 4), (1024, 1024 + 1024 * 200001 + 512)),
        1024 * 200001 + 512,
    ),
]


@pytest.mark.parametrize(("text", "shape", "region", "index"), FAR)
def test_failures_beyond_any_table_are_found_by_their_digits(text, shape, region, index):
    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse(text).slice(shape, region)
    assert caught.value.index == index


@pytest.mark.slow
@pytest.mark.parametrize(("text", "shape", "region", "index"), FAR)
def test_failures_beyond_any_table_are_certified(text, shape, region, index):
    layout = TileLayout.parse(text)
    refusal = NotExpressibleError("", index=index)
    assert isinstance(certify_slice(layout, shape, region, refusal), Proved)
    for other in (index - 1, index + 1):
        assert isinstance(certify_slice(layout, shape, region, NotExpressibleError("", index=other)), Refuted)


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


@pytest.mark.parametrize(
    ("layout", "shape", "region", "want"),
    [
        # all in one block, whose rows of 3 do not divide it
        ("S[(6,1000000000):(7,3)]", (2 * 10**9, 3), ((5, 10**8), (0, 2)), "S[(99999995,2):(9,3)] + 45"),
        # 400 blocks of 1,000 rows and one element: the columns of each start one further to the left
        (
            "S[(1000,1000001):(5000000,3)]",
            (1000001, 1000),
            ((0, 400000), (500, 510)),
            "S[(400,1000,10):(4999997,3000,3)] + 1500",
        ),
        # beyond 64 bits
        ("S[(3,1180591620717411303424):(5,7)]", (1 << 70, 3), ((5, 100), (0, 2)), "S[(95,2):(21,7)] + 105"),
    ],
)
def test_large_boxes_of_shapes_that_do_not_group_are_sliced_by_digits(layout, shape, region, want):
    layout = TileLayout.parse(layout)
    answer = layout.slice(shape, region)
    assert str(answer) == want
    for coord in itertools.product(*({b, b + 1, (b + e) // 2, e - 2, e - 1} for b, e in region)):
        r = [x - b for x, (b, _) in zip(coord, region, strict=True)]
        assert answer.apply(*r, shape=tuple(e - b for b, e in region)) == layout.apply(*coord, shape=shape)


def test_boxes_of_shapes_that_do_not_group_are_sliced_for_unknown_strides():
    a, b = sympy.symbols("a b", positive=True, integer=True)
    layout = TileLayout(S[(3, 8) : (a, b)])
    assert str(layout.slice((8, 3), ((0, 2), (0, 2)))) == str(TileLayout(S[(2, 2) : (3 * b, b)]))
    with pytest.raises(UndecidedError, match="no sum of digits"):
        layout.slice((8, 3), ((0, 4), (0, 2)))


def test_a_parameter_that_no_affine_offset_follows_is_named_with_its_dimension():
    layout, p, q = TileLayout.parse("S[(3,4,4):(100,10,1)]"), Param("p", 0, 8), Param("q", 0, 3)
    with pytest.raises(NotExpressibleError, match=r"region\[1\] = .* modulo 4 depends on p: ") as caught:
        layout.slice((3, 16), (q, (p, p + 2)))
    assert caught.value.facts["dim"] == 1


def test_a_large_box_is_refused_from_its_first_values():
    layout = TileLayout.parse("S[(6,100000000,5):(3000000004@laneid,3,1)]")
    with pytest.raises(NotExpressibleError) as caught:
        layout.slice((10**9, 3), ((0, 10**9), (0, 2)))
    assert caught.value.index == 7


@pytest.mark.parametrize(
    ("layout", "shape", "region", "index"),
    [
        # row 333,333,333 begins with the last element of a block
        ("S[(6,1000000000):(7,3)]", (2 * 10**9, 3), ((5, 5 * 10**8), (0, 2)), 2 * (333333333 - 5) + 1),
        # a block of 3,004 ends inside the row of 8 that begins at 3,000, after 375 rows of 4 and 3 more elements
        ("S[(10000000,3004):(10000,1)]", (3755000000, 8), ((0, 10**9), (1, 5)), 4 * 375 + 3),
        # two blocks whose strides agree are one, the next is not
        ("S[(2,2,1000000007):(1000000012,5,1)]", (2000000014, 2), ((499999903, 1500000010), (0, 1)), 101),
    ],
)
def test_a_large_box_is_refused_by_its_digits(layout, shape, region, index):
    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse(layout).slice(shape, region)
    assert caught.value.index == index


def test_blocks_whose_strides_agree_are_one_block():
    layout = TileLayout.parse("S[(2,2,1000000007):(1000000012,5,1)]")
    answer = layout.slice((2000000014, 2), ((500000004, 1500000010), (0, 1)))
    assert str(answer) == "S[1000000006:2] + 6"


def ragged(case):
    """A box of integers, without what slicing simplifies beforehand."""
    begins, lengths = tuple(b for b, _ in case.region), tuple(e - b for b, e in case.region)
    return Box(case.layout.canonicalize().shard, case.shape, begins, lengths)


def values_of(case):
    """The table of a box, per axis."""
    tables = TileLayout.from_iters(shard=case.layout.shard).table(case.shape)
    return {Axis.get(axis): table[tuple(slice(*i) for i in case.region)].reshape(-1) for axis, table in tables.items()}


@given(st.one_of(strategies.boxed_layouts(), strategies.coincidences()))
@example(boxed("S[(11,2,5):(50,50,1)]", shape=(10, 11), region=((0, 5), (0, 6))))
def test_a_box_is_read_as_its_table_is(case):
    table, read = attempt(recognise_values, values_of(case)), attempt(read_box, ragged(case))
    event(f"{'refused' if isinstance(read, NotExpressibleError) else 'read'}")
    if isinstance(table, NotExpressibleError):
        assert read.index == table.index
    else:
        assert canonical_shard(read) == table[0]


@given(strategies.boxed_layouts())
def test_digits_for_any_strides_are_those_that_are_read(case):
    digits = affine_digits(ragged(case))
    if digits is not None:
        assert canonical_shard(digits) == canonical_shard(read_box(ragged(case)))


@given(st.one_of(strategies.boxed_layouts(replicas=False), strategies.coincidences(limit=400)), st.data())
def test_the_first_index_at_which_a_box_differs_from_a_layout_is_found(case, data):
    plain, places = box_of(case)
    read = attempt(read_box, ragged(case))
    iters = () if isinstance(read, NotExpressibleError) else read
    if not iters or data.draw(st.booleans()):
        iters = [(e, 1, "m") for e in data.draw(strategies.shapes(len(places)))]
    strides = [data.draw(st.one_of(st.just(stride), st.integers(-9, 12))) for _, stride, _ in iters]
    other = TileLayout.from_iters(shard=[(e, s, str(a)) for (e, _, a), s in zip(iters, strides, strict=True)])
    first, values = oracle.base(plain, places[0]), [oracle.base(plain, n) for n in places]
    differ = (n for n, v in enumerate(values) if oracle.minus(v, first) != oracle.base(oracle.plain(other), n))
    digits = [
        Digit(e - b, math.prod(y - x for x, y in case.region[k + 1 :]), math.prod(case.shape[k + 1 :]))
        for k, (b, e) in enumerate(case.region)
    ]
    box = Part(0, places[0], tuple(digits))
    found = first_difference(box, ragged(case).iters, other.canonicalize().shard)
    event("differs" if found is not None else "the same")
    assert found == next(differ, None)


#: Layouts whose blocks of p elements follow one another without a break, in all sizes: box and answer, or first index.
COINCIDENCES = [
    # every second crossing is none; row 3p//5 begins with a block of its own, after 3 crossings
    lambda p: ((5, 2, p), (p + 5, 5, 1), (2 * p, 5), ((p // 5 + 1, 3 * p // 2), (1, 3)), None),
    # the border of a block runs across rows and columns; blocks of the box do as well
    lambda p: (
        (2 * p + 1, 2, p),
        (9 * p, 9 * p, 1),
        (2 * p, 2 * p + 1),
        ((0, p), (0, p + 1)),
        ((p + 1, 9 * p), (p, 1)),
    ),
    # rows that step from block to block and a third, three to a block of the next level
    lambda p: ((4 * p, 4, 3 * p), (9 * p + 3, 2 * p + 1, 1), (12 * p, 4 * p), ((0, 12 * p), (3, 4)), None),
]


@pytest.mark.parametrize("p", [7, 11, 101, 1009, 10007, 1000000007])
@pytest.mark.parametrize("make", COINCIDENCES)
def test_coincidences_of_strides_are_decided_at_any_size(make, p):
    extents, strides, shape, region, answer = make(p)
    layout = TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, strides, strict=True)])
    found = attempt(layout.slice, shape, region)
    if answer is not None:
        assert [(it.extent, it.stride) for it in found.shard] == list(answer)
    if p <= 1009:
        table = attempt(recognise_values, values_of(strategies.Boxed(layout, shape, region)))
        if isinstance(table, NotExpressibleError):
            assert found.index == table.index
        else:
            assert found.canonicalize().shard == table[0]


def test_a_large_box_whose_blocks_agree_by_coincidence_is_refused_where_they_no_longer_do():
    layout = TileLayout.parse("S[(5,2,1000000007):(1000000012,5,1)]")
    with pytest.raises(NotExpressibleError) as caught:
        layout.slice((2000000014, 5), ((200000011, 1500000010), (1, 3)))
    # the third block begins at 3*1000000007 = 5*600000004 + 1, in the first column of row 600000004
    assert caught.value.index == 2 * (600000004 - 200000011)


def rows_in_step_with_blocks(e, wide):
    """Rows and elements of a box that step by one more than E/(e-1), E being e blocks; every e-th crossing is none."""
    block = (e - 1) * wide
    shape = (2 * (e - 1) * e * block, 2 * e - 1, e * wide + 1)
    iters = ((math.prod(shape) // (e * block), block + 36 * (e - 1)), (e, 36), (block, 1))
    layout = TileLayout.from_iters(shard=[(extent, stride, "m") for extent, stride in iters])
    return layout, shape, ((0, 2 * (e - 1)), (0, 2 * (e - 1)), (1, 2))


def test_borders_that_run_across_two_dimensions_are_followed():
    e, wide = 129, 10**9
    layout, shape, region = rows_in_step_with_blocks(e, wide)
    part, rows = layout.slice(shape, region), 2 * (e - 1)
    assert [(it.extent, it.stride) for it in part.shard] == [(rows, (wide + 37) * (2 * e - 1)), (rows, wide + 37)]
    for i, j in itertools.product((0, 1, 127, 128, 129, 255), repeat=2):
        there = oracle.base(oracle.plain(layout), oracle.flat((i, j, 1), shape))
        assert oracle.base(oracle.plain(part), rows * i + j) == there


def test_a_box_of_too_many_parts_is_undecided():
    layout, shape, region = rows_in_step_with_blocks(16385, 10**11)
    with pytest.raises(UndecidedError, match="1073741824 points in over 32768 parts"):
        layout.slice(shape, region)


def test_a_refusal_keeps_its_facts_when_it_is_pickled():
    import pickle

    with pytest.raises(NotExpressibleError) as caught:
        TileLayout.parse("S[(2,2,4):(1@laneid,10,1)]").slice((16,), ((6, 10),))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.index, again.facts) == (str(caught.value), 2, caught.value.facts)
