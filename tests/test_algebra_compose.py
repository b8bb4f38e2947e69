"""Composition, complement, inverses, division and product: complete for integers, never a wrong layout."""

from __future__ import annotations

import itertools

import oracle
import pytest
import strategies
import z3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import AxisError, LayoutError, NotExpressibleError, Param, RangeError, TileLayout, UndecidedError
from layoutalg.algebra.compose import (
    complement,
    compose,
    cosize,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)

MEMORY = st.integers(0, 12) | st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def addresses(draw: st.DrawFn, *, limit: int = 24, rank: int = 3, negative: bool = False, offset: bool = False):
    """Layouts on axis m, most with strides that nest."""
    shard: list[tuple[int, int, str]] = []
    room, pitch = limit, 1
    for _ in range(draw(st.integers(0, rank))):
        extent = draw(st.sampled_from([e for e in (1, 2, 2, 3, 4, 6) if e <= room]))
        room //= extent
        stride = draw(st.one_of(st.just(pitch), st.just(pitch * 2), MEMORY))
        if negative and draw(st.integers(0, 3)) == 0:
            stride = -stride
        shard.append((extent, stride, "m"))
        pitch = max(pitch, abs(stride) * extent)
    shard = draw(st.permutations(shard))
    low = sum(min(0, (e - 1) * s) for e, s, _ in shard)
    start = -low + (draw(st.integers(0, 5)) if offset else 0)
    return TileLayout.from_iters(shard=shard, offset={"m": start} if start else {})


def number(p: oracle.Place) -> int:
    return dict(p).get("m", 0)


def extended(layout: oracle.Plain, n: int) -> oracle.Place:
    """A(n), the slowest digit that is no unit going on beyond its extent."""
    shard = [it for it in layout.shard if it[0] > 1]
    total = dict(layout.offset)
    for e, s, a in reversed(shard[1:]):
        n, digit = divmod(n, e)
        total[a] = total.get(a, 0) + digit * s
    if shard:
        total[shard[0][2]] = total.get(shard[0][2], 0) + n * shard[0][1]
    return oracle.place(total)


@given(strategies.layouts(limit=24, rank=3), addresses(negative=True, offset=True))
@example(TileLayout.parse("S[(8,6,4):(5,3,2)]"), TileLayout.parse("S[6:3]"))
@example(TileLayout.parse("S[(8,2,6,3):(2,8,16,96)]"), TileLayout.parse("S[32:6]"))
@example(TileLayout.parse("S[(8,2,6,3):(2,8,16,96)]"), TileLayout.parse("S[96:3]"))
@example(TileLayout.parse("S[4:1]"), TileLayout.parse("S[8:1]"))
def test_a_composition_is_a_after_b_or_no_layout_is(a, b):
    outer, inner = oracle.plain(a), oracle.plain(b)
    wanted = [extended(outer, number(oracle.base(inner, n))) for n in range(inner.size)]
    found = attempt(compose, a, b)
    if isinstance(found, NotExpressibleError):
        assert found.index == oracle.first_failure(wanted)
        return
    assert oracle.table(oracle.Plain(oracle.plain(found).shard, (), oracle.plain(found).offset)) == wanted
    assert found.replica == a.replica


def greedy(layout: oracle.Plain, goal: int) -> list[int] | None:
    """The increasing translates with disjoint images that cover [0, goal), or None where an address stays free."""
    image = {number(p) for group in oracle.sets(layout) for p in group}
    covered: set[int] = set()
    chosen = []
    for c in range(goal):
        if c in covered:
            continue
        moved = {x + c for x in image}
        if moved & covered or c not in moved:
            return None
        covered |= moved
        chosen.append(c)
    return chosen


@given(addresses(), st.integers(1, 80))
@example(TileLayout.parse("S[4:2]"), 24)
@example(TileLayout.parse("S[4:0]"), 8)
@example(TileLayout.parse("S[4:2]"), 9)
@example(TileLayout.parse("S[2:8]"), 5)
def test_a_complement_lists_the_greedy_translates_or_they_are_no_layout(a, goal):
    chosen = greedy(oracle.plain(a), goal)
    found = attempt(complement, a, goal)
    if isinstance(found, NotExpressibleError):
        values = None if chosen is None else [oracle.place({"m": c}) for c in chosen]
        assert values is None or oracle.layout_of(values) is None
        assert values is None or found.index == oracle.first_failure(values)
        return
    assert [number(p) for p in oracle.table(oracle.plain(found))] == chosen


@given(addresses(limit=12, negative=True), st.integers(0, 2))
@example(TileLayout.parse("S[(6,4,2):(8,1,4)]"), 0)
@example(TileLayout.parse("S[(2,3):(1,1)]"), 0)
@example(TileLayout.parse("S[4:-1] + 3"), 0)
def test_a_right_inverse_is_the_largest_layout_that_is_one(a, start):
    layout = a + start if start else a
    values = [number(p) for p in oracle.table(oracle.plain(layout))]
    found = attempt(right_inverse, layout)
    reached = next(n for n in itertools.count() if n not in values)
    if isinstance(found, NotExpressibleError):
        assert reached == 0
        assert found.index == 0
        return
    inverse = [number(p) for p in oracle.table(oracle.plain(found))]
    assert [values[r] for r in inverse] == list(range(len(inverse)))
    assert not any(has_right_inverse(values, n) for n in range(len(inverse) + 1, reached + 1))


def has_right_inverse(values: list[int], n: int) -> bool:
    """Some layout of n elements picks indices of the addresses 0, 1, ..., n-1: try every choice."""
    preimages = [[i for i, v in enumerate(values) if v == address] for address in range(n)]
    for order in oracle.prime_orders(n):
        units = [oracle.prod(order[:k]) for k in range(len(order))]
        for start in preimages[0]:
            for ends in itertools.product(*(preimages[u] for u in units)):
                r = [
                    start + sum(i // u % e * (end - start) for u, e, end in zip(units, order, ends, strict=True))
                    for i in range(n)
                ]
                if all(r[i] in preimages[i] for i in range(n)):
                    return True
    return False


@settings(max_examples=40)
@given(addresses(limit=8, negative=True, offset=True))
@example(TileLayout.parse("S[(160,128):(1,65536)]"))
@example(TileLayout.parse("S[(2,2):(3,2)]"))
@example(TileLayout.parse("S[(2,2):(5,2)] + 1"))
def test_a_left_inverse_takes_every_address_back_or_no_layout_does(a):
    plain = oracle.plain(a)
    values = [number(p) for p in oracle.table(plain)]
    found = attempt(left_inverse, a)
    if isinstance(found, NotExpressibleError):
        if found.index is not None:
            assert values[found.index] == values[found.facts["other"]]
            return
        assert not has_left_inverse(values)
        return
    inverse = oracle.plain(found)
    assert inverse.size > max(values)
    assert [number(oracle.base(inverse, v)) for v in values] == list(range(len(values)))


def has_left_inverse(values: list[int]) -> bool:
    """Some layout, of any digit extents, takes the values back: ask a solver for the strides of each system."""

    def systems(below: int) -> list[list[int]]:
        found: list[list[int]] = [[]]
        for extent in range(2, max(values) + 1):
            if below * extent <= max(values):
                found += [[extent, *rest] for rest in systems(below * extent)]
        return found

    for extents in systems(1):
        strides = [z3.Int(f"s{k}") for k in range(len(extents) + 1)]
        start = z3.Int("start")
        solver = z3.Solver()
        for index, value in enumerate(values):
            total = start
            for extent, stride in zip(extents, strides, strict=False):
                value, digit = divmod(value, extent)
                total = total + digit * stride
            solver.add(total + value * strides[-1] == index)
        if solver.check() == z3.sat:
            return True
    return False


@given(addresses(limit=24), addresses(limit=6))
@example(TileLayout.parse("S[4,8]"), TileLayout.parse("S[4:2]"))
@example(TileLayout.parse("S[(32,12):(12,1)]"), TileLayout.parse("S[32:1]"))
def test_a_division_runs_through_the_tiles(a, b):
    tiles = greedy(oracle.plain(b), a.size)
    outer, inner = oracle.plain(a), [number(p) for p in oracle.table(oracle.plain(b))]
    found = attempt(logical_divide, a, b)
    if isinstance(found, NotExpressibleError):
        if tiles is not None and oracle.layout_of([oracle.place({"m": c}) for c in tiles]) is not None:
            assert oracle.layout_of([extended(outer, c + x) for c in tiles for x in inner]) is None
        return
    assert oracle.table(oracle.plain(found)) == [extended(outer, c + x) for c in tiles for x in inner]


@given(addresses(limit=6), addresses(limit=6))
@example(TileLayout.parse("S[4:2]"), TileLayout.parse("S[4:1]"))
@example(TileLayout.parse("S[2:3]"), TileLayout.parse("S[2:9]"))
@example(TileLayout.parse("S[(3,2):(1,2)]"), TileLayout.parse("S[1:1]"))
def test_a_product_repeats_the_first_factor_as_the_second_says(a, b):
    copies = [number(p) for p in oracle.table(oracle.plain(b))]
    starts = greedy(oracle.plain(a), a.size * (max(copies) + 1))
    inner = [number(p) for p in oracle.table(oracle.plain(a))]
    found = attempt(logical_product, a, b)
    if isinstance(found, NotExpressibleError):
        assert starts is None or oracle.layout_of([oracle.place({"m": starts[c]}) for c in copies]) is None
        return
    assert [number(p) for p in oracle.table(oracle.plain(found))] == [starts[c] + x for c in copies for x in inner]


@given(addresses(offset=True))
def test_cosize_is_one_more_than_the_largest_address(a):
    assert cosize(a) == max(number(p) for p in oracle.table(oracle.plain(a))) + 1


def test_huge_operands_are_decided_by_their_digits():
    a = TileLayout.parse("S[(1048576,1048576):(1,1048576)]")
    assert str(compose(a, TileLayout.parse("S[1073741824:1024]"))) == "S[(1048576,1024):(1,1073741824)]"
    assert right_inverse(a) == a
    assert left_inverse(a).equivalent(a)
    assert str(complement(TileLayout.parse("S[1048576:1048576]"), 1 << 60)) == "S[(1048576,1048576):(1099511627776,1)]"
    with pytest.raises(UndecidedError, match="carries between the digits"):
        compose(a, TileLayout.parse("S[1073741824:1023]"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: compose(L("S[4:1]"), L("S[(2,2):(1,1@TCol)]")), AxisError, "lives on m (memory), TCol (memory)"),
        (lambda: compose(L("S[4:1]"), L("S[4:1@laneid]")), AxisError, "laneid (thread)"),
        (lambda: compose(L("S[4:1]"), L("S[4:-1]")), RangeError, "reaches -3"),
        (lambda: compose(L("S[4:1]"), L("S[4:1] + R[2:1]")), RangeError, "has replicas"),
        (lambda: compose(L("S[4:1]"), L("S[4:1]") + Param("s", 0, 2)), UndecidedError, "has parameters"),
        (lambda: compose(L("S[4:1]"), L("S[n:1]")), UndecidedError, "symbolic"),
        (lambda: compose("S[4:1]", L("S[4:1]")), LayoutError, "takes layouts"),
        (lambda: complement(L("S[4:1]"), 0), RangeError, "cotarget 0 is below 1"),
        (lambda: complement(L("S[4:1]"), 2.0), RangeError, "must be an integer"),
        (lambda: complement(L("S[4:1] + 1"), 8), RangeError, "starts at 1, not at 0"),
        (lambda: complement(L("S[4:-1]"), 8), RangeError, "starts at -3, not at 0"),
        (lambda: complement(L("S[4:1@laneid]"), 8), AxisError, "laneid (thread)"),
        (lambda: right_inverse(L("S[4:1] + R[2:1]")), RangeError, "has replicas"),
        (lambda: right_inverse(L("S[4:1@laneid]")), AxisError, "laneid (thread)"),
        (lambda: left_inverse(L("S[4:-1]")), RangeError, "reaches address -3"),
        (lambda: left_inverse(L("S[(2,4):(0,1)]")), NotExpressibleError, "indices 0 and 4"),
        (lambda: cosize(L("S[(2,2):(1,1@TCol)]")), AxisError, "one memory axis"),
    ],
)
def test_operands_that_make_no_sense_are_errors(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def L(text: str) -> TileLayout:
    return TileLayout.parse(text)


def test_a_layout_that_nests_has_inverses_on_both_sides_that_agree():
    a = TileLayout.parse("S[(3,4,5):(20,1,4)]")
    assert right_inverse(a).equivalent(left_inverse(a))
    assert compose(a, right_inverse(a)).equivalent(TileLayout.parse("S[60:1]"))
