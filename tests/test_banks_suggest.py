"""Suggested swizzles: prices are those of reports, the bound binds every layout, and the theory's cases come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from layoutalg.banks import SwizzleSearch, TileAccess, shared_report, suggest_swizzle
from layoutalg.errors import LayoutError, RangeError, RegionError
from layoutalg.f2 import F2Map
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

parse = TileLayout.parse
WRITE_ROWS = TileAccess(parse("S[(32,32):(1,1@laneid)]"), op="st.shared", name="rows")
READ_COLUMNS = TileAccess(parse("S[(32,32):(1@laneid,1)]"), vector=1, name="columns")
# A 64 x 64 half tile: 16-byte stores along rows, ldmatrix of its 16 x 16 blocks, and of the blocks of its transpose.
STORE = TileAccess(parse("S[(16,4,8,8):(8,8@laneid,1@laneid,1)]"), op="st.shared")
BLOCKS = parse("S[(4,2,8,4,2,4,2):(32,2,4@laneid,8,4,1@laneid,1)]")
LOAD = TileAccess(BLOCKS, op="ldmatrix")
LOAD_TRANSPOSED = TileAccess(BLOCKS.permute(1, 0, shape=(64, 64)), op="ldmatrix")


def replayed(search: SwizzleSearch, accesses: list[TileAccess], dtype: str, limit: int = 40) -> None:
    """Every price of a ranking is that of the reports on the same layout."""
    for one in search.ranked[:limit]:
        reports = [shared_report(one.layout, a.fragment, dtype, op=a.op, vector=a.vector) for a in accesses]
        assert one.costs == tuple(report.wavefronts for report in reports)
        assert one.wavefronts == sum(r.wavefronts * a.times for r, a in zip(reports, accesses, strict=True))
        assert one.excess == sum(r.excess * a.times for r, a in zip(reports, accesses, strict=True))
        assert one.wavefronts >= search.bound


def test_the_transpose_of_a_float_tile_gets_its_five_bit_swizzle() -> None:
    accesses = [WRITE_ROWS, READ_COLUMNS]
    search = suggest_swizzle((32, 32), "f32", accesses)
    assert search.best.swizzle == Swizzle(5, 0, 5)
    assert search.optimal
    assert (search.best.wavefronts, search.best.excess, search.best.bytes_wasted) == (64, 0, 0)
    assert "no layout is better" in str(search)
    assert search.of_kind("padding").layout == parse("S[(32,32):(33,1)]")
    assert search.of_kind("plain").excess == 31 * 32
    replayed(search, accesses, "f32", limit=200)


@pytest.mark.parametrize(
    "accesses", [[STORE, LOAD], [STORE, LOAD, LOAD_TRANSPOSED]], ids=["store, load", "and transposed"]
)
def test_a_half_tile_for_matrix_loads_gets_the_128_byte_mode(accesses: list[TileAccess]) -> None:
    search = suggest_swizzle((64, 64), "f16", accesses)
    assert search.best.swizzle == Swizzle(3, 3, 3)
    assert (search.best.tma, search.best.alignment, search.best.excess) == ("128B", 1024, 0)
    assert search.optimal
    assert search.of_kind("padding").layout == parse("S[(64,64):(72,1)]")
    # Maps that tear 16-byte rows apart cannot serve ldmatrix; they are refused, with the reason.
    assert search.refused
    assert all("ldmatrix" in reason for _, reason in search.refused)
    replayed(search, accesses, "f16", limit=6)


def test_rows_of_several_hundred_bytes_can_be_paged_for_the_accelerator() -> None:
    fragment = parse("S[(64,128):(1@tx,1)]").slice((64, 128), ((0, 32), (0, 128)))
    search = suggest_swizzle((32, 128), "f16", [TileAccess(fragment)], candidates=["pages"])
    modes = {one.tma: one for one in search.ranked}
    assert set(modes) == {"32B", "64B", "128B"}
    assert modes["128B"].layout == SwizzledLayout(Swizzle(3, 3, 3), parse("S[(32,2,64):(64,2048,1)]"))
    assert modes["128B"].excess == 0


def test_a_tile_that_is_no_power_of_two_is_swizzled_or_padded() -> None:
    columns = TileAccess(parse("S[(24,40):(1@laneid,1)]"), vector=1)
    rows = TileAccess(parse("S[(24,5,8):(5,1,1@laneid)]"), vector=1)
    search = suggest_swizzle((24, 40), "f32", [columns, rows])
    assert search.best.excess == 0
    assert search.of_kind("padding").excess == 0
    replayed(search, [columns, rows], "f32")


def fragment_of(order: list[int], vector: int) -> TileLayout:
    """A fragment that deals element bits to lanes: the low bits are a lane's vector, order[k] is lane bit k."""
    strides = {at: (1 << k, "laneid") for k, at in enumerate(order)}
    shard = [(2, *strides.get(at, (0, "m"))) for at in reversed(range(max(order) + 1))]
    slot = vector
    for position, at in enumerate(reversed(range(max(order) + 1))):
        if at not in strides and (1 << at) >= vector:
            shard[position] = (2, slot, "m")
            slot *= 2
        elif at not in strides:
            shard[position] = (2, 1 << at, "m")
    return TileLayout.from_iters(shard=shard)


# Five bits of chunks of four floats; a group of 8 lanes spans three of them, one fixed and two of the other four.
def chunk_access(pair: tuple[int, int]) -> TileAccess:
    fixed, free = 6, [2, 3, 4, 5]
    low = [fixed, *(2 + at for at in pair)]
    return TileAccess(fragment_of([*low, *(b for b in free if b not in low)], 4), vector=4)


PAIRS = list(combinations(range(4), 2))


def test_two_accesses_always_have_a_free_linear_map() -> None:
    for one, two in combinations(PAIRS, 2):
        search = suggest_swizzle((4, 32), "f32", [chunk_access(one), chunk_access(two)], candidates=["gf2"])
        assert search.best.excess == 0
        assert search.optimal


def test_six_accesses_can_have_none_and_the_search_does_not_claim_one() -> None:
    # A bank map free for all six pairs would be four vectors of a plane over GF(2), pairwise independent: it has three.
    accesses = [chunk_access(pair) for pair in PAIRS]
    search = suggest_swizzle((4, 32), "f32", accesses, candidates=["plain", "swizzle", "gf2"])
    assert search.best.excess > 0
    assert not search.optimal
    assert "the lower bound is 24" in str(search)
    assert not any(one.kind == "gf2" for one in search.ranked)


def test_a_map_that_is_no_xor_of_high_bits_is_found_by_a_common_complement() -> None:
    # Contiguous rows are not among the accesses here, and asking for them as well would be asking for the impossible.
    accesses = [chunk_access(pair) for pair in PAIRS if pair != (0, 1)]
    rows = TileAccess(fragment_of([2, 3, 6, 4, 5], 4), vector=4)
    search = suggest_swizzle((4, 32), "f32", accesses, candidates=["gf2"])
    assert search.best.excess == 0
    found = search.best.swizzle
    assert isinstance(found, F2Map)
    assert found.is_invertible
    assert suggest_swizzle((4, 32), "f32", [rows, *accesses], candidates=["plain", "gf2"]).best.excess > 0


@settings(max_examples=25)
@given(st.permutations(range(2, 9)), st.permutations(range(2, 9)), st.sampled_from([1, 2, 4]))
def test_any_two_power_of_two_fragments_are_served_without_conflict(a: list[int], b: list[int], vector: int) -> None:
    accesses = [
        TileAccess(fragment_of([x for x in order if 1 << x >= vector][:5], vector), vector=vector) for order in (a, b)
    ]
    sizes = {access.fragment.size for access in accesses}
    if len(sizes) > 1:
        full = max(sizes)
        accesses = [TileAccess(_widened(access.fragment, full, vector), vector=vector) for access in accesses]
    size = accesses[0].fragment.size
    search = suggest_swizzle((size // 32 or 1, min(size, 32)), "f32", accesses, candidates=["plain", "gf2"])
    assert search.best.excess == 0
    assert search.optimal


def _widened(fragment: TileLayout, size: int, vector: int) -> TileLayout:
    slots = fragment.size // 32
    extra = [(2, max(slots, vector) << k, "m") for k in range((size // fragment.size).bit_length() - 1)]
    shard = [(it.extent, it.stride, it.axis.name) for it in fragment.shard]
    return TileLayout.from_iters(shard=[*reversed(extra), *shard])


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.sampled_from(["f32", "f16", "f64"]), st.sampled_from([None, 1, 2]))
def test_no_layout_beats_the_lower_bound(seed: int, dtype: str, vector: int | None) -> None:
    source = random.Random(seed)
    order = source.sample(range(8), 5)
    access = TileAccess(fragment_of([*order[:4], 7] if 7 not in order else order, 1), vector=vector)
    layouts: list[SwizzledLayout] = []
    while len(layouts) < 12:
        try:
            layouts.append(SwizzledLayout(F2Map(tuple(source.getrandbits(8) for _ in range(8)), 8), parse("S[256:1]")))
        except RangeError:
            continue
    try:
        search = suggest_swizzle((8, 32), dtype, [access], candidates=["plain", *layouts])
    except RangeError as error:
        event(str(error)[:20])
        assert vector == 2
        return
    assert all(one.wavefronts >= search.bound for one in search.ranked)
    assert search.bound >= 1


def test_an_access_that_happens_more_often_counts_more() -> None:
    often = TileAccess(READ_COLUMNS.fragment, vector=1, times=10)
    search = suggest_swizzle((32, 32), "f32", [WRITE_ROWS, often], candidates=["plain"])
    assert search.best.wavefronts == 32 + 10 * 32 * 32
    assert search.bound == 32 + 10 * 32
    assert search.best.costs == (32, 1024)


def test_candidates_of_ones_own_are_ranked_too() -> None:
    own: list[Any] = [Swizzle(3, 0, 5), F2Map.from_swizzle(Swizzle(5, 0, 5)), parse("S[(32,32):(34,1)]")]
    search = suggest_swizzle((32, 32), "f32", [WRITE_ROWS, READ_COLUMNS], candidates=own)
    assert [one.kind for one in search.ranked] == ["given"] * 3
    assert search.best.swizzle == own[1]
    assert search.best.excess == 0


@pytest.mark.parametrize(
    ("error", "make", "says"),
    [
        (RangeError, lambda: suggest_swizzle((32, 32), "f32", []), "needs the accesses"),
        (RangeError, lambda: suggest_swizzle((0, 32), "f32", [WRITE_ROWS]), "positive ints"),
        (RegionError, lambda: suggest_swizzle((16, 32), "f32", [WRITE_ROWS]), "1024 elements, the tile 512"),
        (RangeError, lambda: suggest_swizzle((32, 32), "f32", [WRITE_ROWS], candidates=["magic"]), "'magic'"),
        (RangeError, lambda: suggest_swizzle((32, 32), "f32", [WRITE_ROWS], candidates=[]), "no candidates"),
        (
            RangeError,
            lambda: suggest_swizzle((32, 32), "f32", [WRITE_ROWS], candidates=["plain"]).of_kind("gf2"),
            "no candidate of kind 'gf2'",
        ),
        (
            RangeError,
            lambda: suggest_swizzle((32, 32), "f16", [TileAccess(WRITE_ROWS.fragment, op="ldmatrix")]),
            "no candidate serves all accesses",
        ),
        (RangeError, lambda: TileAccess(WRITE_ROWS.fragment, op="ld.global"), "accessed by ld, st"),
        (RangeError, lambda: TileAccess(WRITE_ROWS.fragment, times=0), "at least once"),
    ],
)
def test_misuse_is_refused(error: type[LayoutError], make: Callable[[], Any], says: str) -> None:
    with pytest.raises(error, match=says):
        make()
