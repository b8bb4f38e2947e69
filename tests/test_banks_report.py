"""Reports on fragments: the instructions found are legal, complete and as wide as possible, and priced right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg.banks import FragmentReport, WarpAccess, global_report, shared_report, simulate, warp_access
from layoutalg.banks.fragment import holding_of
from layoutalg.banks.instructions import instructions_of
from layoutalg.errors import AxisError, LayoutError, NotExpressibleError, RangeError, RegionError, UndecidedError
from layoutalg.hardware.dtypes import dtype
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

Tile = TileLayout | SwizzledLayout


def tile(text: str) -> Tile:
    return SwizzledLayout.parse(text) if "o" in text.split("S[")[0] else TileLayout.parse(text)


def slots_by_hand(fragment: TileLayout) -> dict[tuple[int, int, int], int]:
    """(warp, register, lane) -> element, straight from the definition of places."""
    found: dict[tuple[int, int, int], int] = {}
    for n in range(fragment.size):
        for place in fragment.places(n):
            thread = place.get("laneid", 0) + 32 * (place.get("warpid", 0) + place.get("wid_in_wg", 0))
            thread += 128 * place.get("wgid", 0) + place.get("tid_in_wg", 0) + place.get("tx", 0)
            found[thread // 32, place.get("m", 0), thread % 32] = n
    return found


def offset_of(layout: Tile, n: int) -> int:
    return next(iter(layout.apply(n).values()), 0)


@st.composite
def transfers(draw: st.DrawFn) -> tuple[Tile, TileLayout, str]:
    """A tile of 2^k elements with digits in some order, and a fragment that deals them out to lanes and slots."""
    bits = draw(st.integers(5, 9))
    order = draw(st.permutations(range(bits)))
    pad = draw(st.integers(0, 2))
    strides = [0] * bits
    reach = 1
    for at in order:
        strides[at] = reach
        reach = 2 * reach + (pad if draw(st.booleans()) else 0)
    if draw(st.booleans()):
        strides = [1 << at for at in draw(st.permutations(range(bits)))]
    layout: Tile = TileLayout.from_iters(shard=[(2, s, "m") for s in strides])
    if draw(st.booleans()):
        layout = SwizzledLayout(Swizzle(draw(st.integers(0, 3)), draw(st.integers(0, 3)), 3), layout)  # type: ignore[arg-type]
    lanes = draw(st.permutations(range(bits)))[:5]
    threads = {at: k for k, at in enumerate(lanes)}
    shard: list[tuple[int, int, str]] = []
    slot = 1
    warps = draw(st.integers(0, 1))
    for at in range(bits):
        if at in threads:
            shard.append((2, 1 << threads[at], "laneid"))
        elif warps:
            shard.append((2, 1, "warpid"))
            warps = 0
        else:
            shard.append((2, slot, "m"))
            slot *= 2
    replica = [(2, 2, "warpid")] if draw(st.booleans()) else []
    name = draw(st.sampled_from(["u8", "f16", "f32", "f64", "c128"]))
    return layout, TileLayout.from_iters(shard=shard, replica=replica), name


@given(transfers(), st.sampled_from(["ld.shared", "st.shared", "ld.global"]))
def test_instructions_move_every_held_element_once_from_where_the_tile_stores_it(
    case: tuple[Tile, TileLayout, str], op: str
) -> None:
    layout, fragment, name = case
    size = dtype(name).bytes
    held = slots_by_hand(fragment)
    vector, found = instructions_of(layout, fragment, name, op=op)
    moved: set[tuple[int, int, int]] = set()
    for one in found:
        assert len(one.registers) == vector == one.width // size
        for lane in range(32):
            if not one.mask >> lane & 1:
                continue
            for k, register in enumerate(one.registers):
                key = (one.warp, register, lane)
                assert one.addresses[lane] + k * size == size * offset_of(layout, held[key])
                assert key not in moved
                moved.add(key)
    assert moved == set(held)


@settings(max_examples=30)
@given(transfers())
def test_no_wider_access_would_be_legal(case: tuple[Tile, TileLayout, str]) -> None:
    layout, fragment, name = case
    size = dtype(name).bytes
    held = slots_by_hand(fragment)
    vector, found = instructions_of(layout, fragment, name, op="ld.shared")
    wider = 2 * vector
    if wider * size > 16:
        return
    # Wider pieces exist only if every lane's elements fall into whole aligned pieces with the same slots each.
    pieces: set[tuple[tuple[int, ...], ...]] = set()
    legal = True
    for warp, lane in {(w, t) for w, _, t in held}:
        mine = {r: offset_of(layout, n) for (w, r, t), n in held.items() if (w, t) == (warp, lane)}
        blocks: dict[int, list[tuple[int, int]]] = {}
        for register, where in mine.items():
            blocks.setdefault(where // wider, []).append((where % wider, register))
        legal &= all(sorted(k for k, _ in block) == list(range(wider)) for block in blocks.values())
        pieces.add(tuple(sorted(tuple(r for _, r in sorted(block)) for block in blocks.values())))
    assert not legal or len(pieces) > 1
    with pytest.raises(RangeError, match="not possible here"):
        instructions_of(layout, fragment, name, op="ld.shared", vector=wider)
    assert len(found) > 0


@settings(max_examples=30)
@given(transfers())
def test_the_total_of_single_elements_is_the_sum_over_warps_and_slots(case: tuple[Tile, TileLayout, str]) -> None:
    layout, fragment, name = case
    size = dtype(name).bytes
    held = slots_by_hand(fragment)
    expected = 0
    for warp, register in {(w, r) for w, r, _ in held}:
        lanes = {t: n for (w, r, t), n in held.items() if (w, r) == (warp, register)}
        addresses = [size * offset_of(layout, lanes[t]) if t in lanes else 0 for t in range(32)]
        expected += simulate(
            WarpAccess("st.shared", size, addresses=addresses, mask=sum(1 << t for t in lanes))
        ).wavefronts
    report = shared_report(layout, fragment, name, op="st.shared", vector=1)
    assert report.wavefronts == expected
    assert report.excess == sum(one.excess for one in report) >= 0
    assert report.counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st"] == report.excess


# m16n8k16, operand A, 16-bit: lane l holds rows l/4 and l/4 + 8, columns 2(l%4) + {0, 1} and 8 more.
OPERAND_A = TileLayout.parse("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]")
# The same operand read from a tile that is stored with its columns as rows.
OPERAND_A_OF_COLUMNS = OPERAND_A.permute(1, 0, shape=(16, 16))


@pytest.mark.parametrize(
    ("text", "wavefronts", "excess"),
    [
        ("S[(16,16):(64,1)]", 32, 28),
        ("S[(16,16):(72,1)]", 4, 0),
        ("Sw<3,3,3> o S[(16,16):(64,1)]", 4, 0),
        ("Sw<2,3,3> o S[(16,16):(64,1)]", 8, 4),
    ],
)
@pytest.mark.parametrize("op", ["ldmatrix", "stmatrix"])
def test_matrix_rows_are_found_behind_the_fragment(text: str, wavefronts: int, excess: int, op: str) -> None:
    report = shared_report(tile(text), OPERAND_A, "bf16", op=op)
    assert len(report) == 1
    assert (report.wavefronts, report.excess, report.ideal) == (wavefronts, excess, 4)
    assert report[0].registers == tuple(range(8))
    rows = report[0].report.access.addresses
    at = [offset_of(tile(text), 16 * (r % 8 + 8 * (k % 2)) + 8 * (k // 2)) * 2 for k in range(4) for r in range(8)]
    assert list(rows) == at


def test_a_transposed_fragment_is_recognised() -> None:
    columns = tile("Sw<3,3,3> o S[(16,16):(64,1)]")
    report = shared_report(columns, OPERAND_A_OF_COLUMNS, "f16", op="ldmatrix")
    assert (len(report), report.excess) == (1, 0)
    assert shared_report(columns, OPERAND_A_OF_COLUMNS, "f16", op="ldmatrix", transpose=True).wavefronts == 4
    with pytest.raises(NotExpressibleError, match="as rows: slots 0, 1 of lanes"):
        shared_report(columns, OPERAND_A_OF_COLUMNS, "f16", op="ldmatrix", transpose=False)
    with pytest.raises(NotExpressibleError, match="transposed: slots"):
        shared_report(columns, OPERAND_A, "f16", op="ldmatrix", transpose=True)


def test_matrices_of_other_element_widths_keep_their_16_byte_rows() -> None:
    for name, columns in (("u8", 16), ("f32", 4), ("float4_e2m1fn", 32)):
        per_word = columns // 4
        fragment = TileLayout.parse(f"S[(8,4,{per_word}):(4@laneid,1@laneid,1)]")
        report = shared_report(TileLayout.parse(f"S[8,{columns}]"), fragment, name, op="ldmatrix")
        assert (len(report), report.wavefronts, report.vector) == (1, 1, columns)
        assert list(report[0].report.access.addresses) == list(range(0, 128, 16))


def test_the_number_of_matrices_can_be_chosen() -> None:
    swizzled = tile("Sw<3,3,3> o S[(16,16):(64,1)]")
    report = shared_report(swizzled, OPERAND_A, "f16", op="ldmatrix", matrices=2)
    assert [len(one.report.access.addresses) for one in report] == [16, 16]
    three = TileLayout.parse("S[(3,8,4,2):(2,4@laneid,1@laneid,1)]")
    sizes = [
        len(one.report.access.addresses)
        for one in shared_report(TileLayout.parse("S[24,8]"), three, "f16", op="ldmatrix")
    ]
    assert sizes == [16, 8]
    with pytest.raises(RangeError, match="do not divide"):
        shared_report(TileLayout.parse("S[24,8]"), three, "f16", op="ldmatrix", matrices=2)


def test_a_warpgroup_fragment_is_one_list_of_instructions_per_warp() -> None:
    rows = TileLayout.parse("S[(128,8):(1@tid_in_wg,1)]")
    report = shared_report(TileLayout.parse("S[128,8]"), rows, "f16", op="st.shared")
    assert [one.warp for one in report] == [0, 1, 2, 3]
    assert (report.vector, report.wavefronts, report.excess) == (8, 16, 0)
    for same in ("S[(4,32,8):(1@wid_in_wg,1@laneid,1)]", "S[(4,32,8):(1@warpid,1@laneid,1)]", "S[(128,8):(1@tx,1)]"):
        assert shared_report(TileLayout.parse("S[128,8]"), TileLayout.parse(same), "f16", op="st.shared") == report


def test_a_base_address_shifts_the_words_but_must_keep_the_alignment() -> None:
    lanes = TileLayout.parse("S[32:1@laneid]")
    layout = TileLayout.parse("S[32:2]")
    assert shared_report(layout, lanes, "f16", base=2)[0].report.access.addresses[:2] == (2, 6)
    with pytest.raises(RangeError, match="base 1 is no address"):
        shared_report(layout, lanes, "f16", base=1)
    pairs = TileLayout.parse("S[(32,2):(1@laneid,1)]")
    assert shared_report(TileLayout.parse("S[64:1]"), pairs, "f16", base=4).vector == 2
    assert shared_report(TileLayout.parse("S[64:1]"), pairs, "f16", base=2).vector == 1


def test_narrow_elements_are_moved_packed_or_refused() -> None:
    packed = TileLayout.parse("S[(32,32):(1@laneid,1)]")
    assert shared_report(TileLayout.parse("S[1024:1]"), packed, "float4_e2m1fn").vector == 32
    single = TileLayout.parse("S[(8,32):(1,1@laneid)]")
    with pytest.raises(RangeError, match=r"cannot move float4_e2m1fn.*neighbours"):
        shared_report(TileLayout.parse("S[256:1]"), single, "float4_e2m1fn")
    with pytest.raises(RangeError, match="whole number of 6-bit"):
        shared_report(TileLayout.parse("S[1024:1]"), packed, "float6_e2m3fn")


def test_slots_of_one_piece_may_come_in_any_order_that_all_lanes_share() -> None:
    reversed_slots = TileLayout.parse("S[(32,4):(1@laneid,-1)] + 3")
    report = shared_report(TileLayout.parse("S[128:1]"), reversed_slots, "f32")
    assert (report.vector, report[0].registers) == (4, (3, 2, 1, 0))


def test_global_transfers_are_counted_in_sectors() -> None:
    rows = TileLayout.parse("S[(32,8):(1@laneid,1)]")
    report = global_report(TileLayout.parse("S[(32,8):(64,1)]"), rows, "f16", vector=4)
    assert (report.sectors, report.ideal, len(report), report.measured) == (64, 16, 2, True)
    assert report.counters == {}
    assert "64 sectors" in str(report)
    with pytest.raises(RangeError, match="sectors"):
        _ = report.wavefronts
    with pytest.raises(RangeError, match="global_report prices"):
        global_report(TileLayout.parse("S[256:1]"), rows, "f16", op="ld.shared")


LANES = TileLayout.parse("S[32:1@laneid]")
FLAT = TileLayout.parse("S[32:1]")
STAGED = TileLayout.parse("S[32:1] + 32*s[0:2]")


@pytest.mark.parametrize(
    ("error", "make", "says"),
    [
        (RegionError, lambda: shared_report(TileLayout.parse("S[64:1]"), LANES, "f32"), "64 elements, the fragment 32"),
        (AxisError, lambda: shared_report(LANES, LANES, "f32"), "one memory axis, not laneid"),
        (AxisError, lambda: shared_report(FLAT, TileLayout.parse("S[32:1@bx]"), "f32"), "lives on bx"),
        (
            AxisError,
            lambda: shared_report(FLAT, TileLayout.parse("S[(2,16):(1@tx,1@laneid)]"), "f32"),
            "twice over, by laneid, tx",
        ),
        (
            RangeError,
            lambda: shared_report(FLAT, TileLayout.parse("S[32:1@laneid] + 4@laneid"), "f32"),
            "index 28 is in laneid 32",
        ),
        (RangeError, lambda: shared_report(FLAT, TileLayout.parse("S[32:-1]"), "f32"), "register -1, negative"),
        (
            RangeError,
            lambda: shared_report(FLAT, TileLayout.parse("S[(2,16):(0,1@laneid)]"), "f32"),
            "elements 0 and 16 are both in register 0 of lane 0 of warp 0",
        ),
        (RangeError, lambda: shared_report(TileLayout.parse("S[32:-1]"), LANES, "f32"), "offset -31"),
        (RangeError, lambda: shared_report(TileLayout.parse("S[32:1] + R[2:32]"), LANES, "f32"), "several places"),
        (UndecidedError, lambda: shared_report(STAGED, LANES, "f32"), "substitute"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", vector=3), "96 bits"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", vector=2), "no multiple of 2"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", op="atom.shared"), "never measured"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", matrices=2), "moves no matrices"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", op="ldmatrix", vector=2), "rows of 16 bytes"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f16", op="ldmatrix"), "no whole 32-bit registers"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f64", op="ldmatrix"), "64 bits do not fill"),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", op="ldmatrix", transpose=True), "16-bit elements only"),
        (
            RangeError,
            lambda: shared_report(
                TileLayout.parse("S[16:1]"), TileLayout.parse("S[16:1@laneid]"), "f32", op="ldmatrix"
            ),
            "lane 16 of warp 0 holds nothing",
        ),
        (RangeError, lambda: shared_report(FLAT, LANES, "f32", op="ldmatrix", matrices=3), "1, 2 or 4 matrices"),
    ],
)
def test_misuse_is_refused_with_a_reason(error: type[LayoutError], make: Callable[[], Any], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_a_report_reads_as_one_line_and_its_worst_instruction() -> None:
    report = shared_report(
        TileLayout.parse("S[(32,2):(2,1)]"), TileLayout.parse("S[(32,2):(1@laneid,1)]"), "f32", vector=1
    )
    assert isinstance(report, FragmentReport)
    assert str(report).splitlines()[0] == (
        "ld.shared of float32, 1 per access: 2 instructions, 4 wavefronts, ideal 2, excess 2 "
        "(a profiler's bank conflicts)"
    )
    assert "worst: warp 0, registers 0: ld.shared 4 B: 2 wavefronts" in str(report)
    assert report.degree == 2
    assert not report.conflict_free
    assert report[1].collisions[0].bank == 1
    assert {at for at, _ in report.collisions} == {0, 1}
    assert len(report.collisions) == 32


def test_copies_in_several_warps_are_moved_by_each() -> None:
    fragment = TileLayout.parse("S[32:1@laneid] + R[2:1@warpid]")
    assert holding_of(fragment).warps == (0, 1)
    assert [one.warp for one in shared_report(FLAT, fragment, "f32")] == [0, 1]


def test_lanes_that_walk_a_layout_make_the_access_that_they_would_make_as_a_fragment() -> None:
    column = SwizzledLayout.parse("Sw<3,3,3> o S[32,64]").slice((32, 64), ((0, 32), (8, 16)))
    access = warp_access(column, "f16", vector=8, op="st.shared")
    fragment = TileLayout.parse("S[(32,8):(1@laneid,1)]")
    assert simulate(access) == shared_report(column, fragment, "f16", op="st.shared")[0].report
    few = warp_access(TileLayout.parse("S[5:2]"), "f32", base=8)
    assert (few.mask, few.addresses[:6]) == (0b11111, (8, 16, 24, 32, 40, 0))
    narrow = warp_access(TileLayout.parse("S[64:1]"), "float4_e2m1fn", vector=2)
    assert (narrow.width, narrow.addresses[:3]) == (1, (0, 1, 2))
    refusals: list[tuple[type[LayoutError], Callable[[], Any]]] = [
        (RegionError, lambda: warp_access(TileLayout.parse("S[33:1]"), "f32")),
        (RegionError, lambda: warp_access(TileLayout.parse("S[33:1]"), "f32", vector=2)),
        (RangeError, lambda: warp_access(TileLayout.parse("S[32:2]"), "f32", vector=2)),
        (RangeError, lambda: warp_access(TileLayout.parse("S[32:1]"), "float4_e2m1fn")),
        (RangeError, lambda: warp_access(TileLayout.parse("S[32:1]"), "f32", vector=0)),
        (AxisError, lambda: warp_access(TileLayout.parse("S[(2,16):(1@TLane,1)]"), "f32")),
    ]
    for error, make in refusals:
        with pytest.raises(error):
            make()
