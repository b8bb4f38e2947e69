"""The bank rule against silicon, against an independent statement of the rule, and against wrong rules."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from layoutalg.banks import AccessReport, WarpAccess, global_sectors, simulate, simulate_many
from layoutalg.errors import RangeError
from layoutalg.hardware.machine import MACHINES, machine

FULL = 0xFFFFFFFF
DATA = Path(__file__).parent / "data" / "silicon_h200.jsonl.gz"


def measured_accesses() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt") as lines:
        return [json.loads(line) for line in lines]


RECORDS = measured_accesses()


def access_of(record: dict[str, Any]) -> WarpAccess:
    return WarpAccess(record["op"], record.get("width", 16), addresses=record["addr"], mask=record["mask"])


# An independent statement of the rule, word by word, with one switch per mistake that people make.
def rule(record: dict[str, Any], **wrong: bool) -> int:
    op, width, addresses = record["op"], record.get("width", 16), record["addr"]
    matrix = "matri" in op
    lanes = [n for n in range(len(addresses)) if matrix or record["mask"] >> n & 1]
    size = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[8 if matrix and wrong.get("matrix_by_16") else width]
    if wrong.get("one_pool"):
        size = 32
    if (
        width >= 8
        and (op == "ld.shared" or (wrong.get("stores_merge") and op == "st.shared"))
        and not wrong.get("no_merge")
    ):
        merged = any(all(n ^ x not in lanes or addresses[n] == addresses[n ^ x] for n in lanes) for x in steps(wrong))
        size *= 2 if merged else 1
        if wrong.get("merge_by_halves"):
            return sum(rule({**record, "mask": record["mask"] & half}, half=True) for half in (0xFFFF, 0xFFFF0000))
    total = 0
    for start in range(0, len(addresses), size):
        per_bank: dict[int, list[int]] = {}
        for lane in lanes:
            if start <= lane < start + size:
                for byte in range(addresses[lane], addresses[lane] + width):
                    per_bank.setdefault(byte // 4 % 32, []).append(byte // 4)
        keep = list if wrong.get("no_broadcast") else set
        total += max((len(keep(words)) for words in per_bank.values()), default=0)
    return total


def steps(wrong: dict[str, bool]) -> tuple[int, ...]:
    return (1,) if wrong.get("only_xor_one") else (1, 2)


def test_the_data_set_is_whole() -> None:
    assert len(RECORDS) == 3382
    assert sum("conflicts" in record for record in RECORDS) == 1428
    assert sum("sectors" in record for record in RECORDS) == 145


def test_every_measured_shared_access_is_reproduced_exactly() -> None:
    shared = [record for record in RECORDS if "wavefronts" in record]
    reports = [simulate(access_of(record)) for record in shared]
    wrong = [r for r, report in zip(shared, reports, strict=True) if report.wavefronts != r["wavefronts"]]
    assert wrong == []
    conflicts = [(r, report) for r, report in zip(shared, reports, strict=True) if "conflicts" in r]
    assert [r for r, report in conflicts if report.excess != r["conflicts"]] == []
    assert all(report.measured for report in reports)


def test_every_measured_global_load_is_reproduced_exactly() -> None:
    loads = [record for record in RECORDS if "sectors" in record]
    assert [record for record in loads if global_sectors(access_of(record)) != record["sectors"]] == []


def test_the_batch_simulator_reproduces_every_measured_access() -> None:
    def key(record: dict[str, Any]) -> tuple[str, int, int]:
        return record["op"], record.get("width", 16), len(record["addr"])

    seen = 0
    for (op, width, _), group in itertools.groupby(sorted(RECORDS, key=key), key=key):
        records = list(group)
        batch = simulate_many(op, width, addresses=[r["addr"] for r in records], masks=[r["mask"] for r in records])
        measure = "sectors" if op == "ld.global" else "wavefronts"
        assert batch.cost.tolist() == [record[measure] for record in records]
        for record, excess in zip(records, batch.excess.tolist(), strict=True):
            assert record.get("conflicts", excess) == excess
        seen += len(batch)
    assert seen == 3382


@pytest.mark.parametrize(
    "mistake",
    ["no_merge", "stores_merge", "only_xor_one", "merge_by_halves", "no_broadcast", "one_pool", "matrix_by_16"],
)
def test_silicon_refutes_a_plausible_wrong_rule(mistake: str) -> None:
    shared = [record for record in RECORDS if "wavefronts" in record]
    assert any(rule(record, **{mistake: True}) != record["wavefronts"] for record in shared)


def test_silicon_confirms_the_independent_statement_of_the_rule() -> None:
    shared = [record for record in RECORDS if "wavefronts" in record]
    assert all(rule(record) == record["wavefronts"] for record in shared)


OPS = [("ld.shared", w) for w in (1, 2, 4, 8, 16)] + [("st.shared", w) for w in (1, 2, 4, 8, 16)]


@st.composite
def accesses(draw: st.DrawFn) -> dict[str, Any]:
    op, width = draw(st.sampled_from([*OPS, ("ldmatrix", 16), ("stmatrix", 16)]))
    count = draw(st.sampled_from([8, 16, 32])) if "matri" in op else 32
    span = draw(st.sampled_from([4, 40, 600]))
    addresses = draw(st.lists(st.integers(0, span), min_size=count, max_size=count))
    shape = draw(st.sampled_from(["free", "pairs", "quads"]))
    step = {"free": 0, "pairs": 1, "quads": 2}[shape]
    addresses = [width * addresses[lane & ~step] for lane in range(count)]
    mask = FULL if "matri" in op else draw(st.one_of(st.just(FULL), st.integers(0, FULL), st.just(0x55555555)))
    return {"op": op, "width": width, "addr": addresses, "mask": mask}


@settings(max_examples=120, deadline=None)
@given(accesses())
@example({"op": "ld.shared", "width": 8, "addr": [0] * 29 + [8, 0, 8], "mask": FULL})
@example(
    {"op": "ld.shared", "width": 8, "addr": [8 * (n % 16) + 4096 * (n // 16) for n in range(32)], "mask": 0x55555555}
)
def test_simulator_batch_and_independent_rule_agree_on_any_access(record: dict[str, Any]) -> None:
    access = access_of(record)
    report = simulate(access)
    batch = simulate_many(access.op, access.width, addresses=[access.addresses], masks=[access.mask])
    assert report.wavefronts == rule(record) == batch.wavefronts[0]
    assert (report.ideal, report.degree) == (batch.ideal[0], batch.degree[0])
    assert sum(group.wavefronts for group in report.groups) == report.wavefronts
    assert len(report.groups) == report.ideal
    assert sorted(lane for group in report.groups for lane in group.lanes) == list(access.lanes)
    assert max((group.wavefronts for group in report.groups), default=0) == report.degree
    assert bool(report.collisions) == (report.excess > 0)
    for hit in report.collisions:
        assert all(word % 32 == hit.bank for word in hit.words)
        touched = {
            lane: range(access.addresses[lane] // 4, (access.addresses[lane] + access.width - 1) // 4 + 1)
            for lane in access.lanes
        }
        for word, lanes in zip(hit.words, hit.lanes, strict=True):
            assert lanes
            assert all(word in touched[lane] for lane in lanes)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.integers(0, 90), min_size=32, max_size=32), st.integers(0, FULL))
def test_sectors_are_the_distinct_aligned_32_byte_blocks_of_active_lanes(
    width: int, where: list[int], mask: int
) -> None:
    addresses = [width * place for place in where]
    touched = {
        byte for lane in range(32) if mask >> lane & 1 for byte in range(addresses[lane], addresses[lane] + width)
    }
    report = simulate(WarpAccess("ld.global", width, addresses=addresses, mask=mask))
    batch = simulate_many("ld.global", width, addresses=[addresses], masks=[mask])
    assert report.sectors == len({byte // 32 for byte in touched}) == batch.sectors[0]
    assert report.ideal == -(-len(touched) // 32) == batch.ideal[0]
    assert report.measured == (width < 16)


# What follows from the rule, in words that kernel writers use.
def wavefronts(op: str, width: int, pitch: int, *, mask: int = FULL) -> tuple[int, int]:
    report = simulate(WarpAccess(op, width, addresses=[pitch * lane for lane in range(32)], mask=mask))
    return report.wavefronts, report.excess


@pytest.mark.parametrize("op", ["ld.shared", "st.shared"])
def test_bytes_of_the_same_word_never_conflict(op: str) -> None:
    assert wavefronts(op, 1, 1) == (1, 0)
    assert wavefronts(op, 2, 2) == (1, 0)


@pytest.mark.parametrize("op", ["ld.shared", "st.shared"])
def test_contiguous_sixteen_byte_access_is_four_wavefronts_and_no_conflict(op: str) -> None:
    assert wavefronts(op, 16, 16) == (4, 0)
    assert wavefronts(op, 8, 8) == (2, 0)


def test_padding_by_one_element_clears_columns_of_four_byte_elements_only() -> None:
    assert wavefronts("ld.shared", 4, 4 * 33) == (1, 0)
    assert wavefronts("ld.shared", 8, 8 * 33) == (2, 0)
    assert wavefronts("ld.shared", 2, 2 * 65) == (2, 1)
    assert wavefronts("ld.shared", 1, 129) == (4, 3)
    with pytest.raises(RangeError, match="misaligned"):
        wavefronts("ld.shared", 16, 4 * 33)


def test_an_odd_pitch_in_words_decides_nothing_for_wide_access() -> None:
    assert wavefronts("ld.shared", 8, 8 * 33)[1] == 0
    assert wavefronts("ld.shared", 8, 8 * 16)[1] > 0
    assert wavefronts("ld.shared", 16, 16 * 9)[1] == 0


def test_merging_can_cause_a_conflict() -> None:
    addresses = [8 * (lane % 16) + 128 * (lane // 16) for lane in range(32)]
    report = simulate(WarpAccess("ld.shared", 8, addresses=addresses, mask=0x55555555))
    assert (report.wavefronts, report.excess) == (2, 1)
    stored = simulate(WarpAccess("st.shared", 8, addresses=addresses, mask=0x55555555))
    assert (stored.wavefronts, stored.excess) == (2, 0)


def test_no_active_lane_costs_nothing() -> None:
    for op, width in OPS:
        report = simulate(WarpAccess(op, width, addresses=[0] * 32, mask=0))
        assert (report.wavefronts, report.ideal, report.groups, report.collisions) == (0, 0, (), ())
    batch = simulate_many("ld.shared", 16, addresses=np.zeros((3, 32), dtype=int), masks=[0, 0, 0])
    assert batch.wavefronts.tolist() == [0, 0, 0]
    assert len(simulate_many("st.shared", 4, addresses=np.zeros((0, 32), dtype=int))) == 0


Maker = Callable[[], Any]
LANES = list(range(0, 128, 4))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: WarpAccess("ld.shared", 8, addresses=LANES),
            "lanes 1, 3, 5.*misaligned.*lane 1 at byte 4.*multiple of 8",
        ),
        (lambda: WarpAccess("ld.shared", 4, addresses=[*LANES[:31], -4]), "lane 31 is at a negative address"),
        (lambda: WarpAccess("ld.shared", 4, addresses=[1 << 63, *LANES[1:]]), "lane 0 is beyond 63 bits"),
        (lambda: WarpAccess("ld.shared", 4, addresses=LANES[:31]), "32 addresses, one per lane.*not 31"),
        (lambda: WarpAccess("ldmatrix", 16, addresses=[0] * 9), "8, 16 or 32 row addresses.*not 9"),
        (lambda: WarpAccess("ldmatrix", 4, addresses=[0] * 8), "rows of 16 bytes"),
        (lambda: WarpAccess("ldmatrix", 16, addresses=[0] * 8, mask=0xFF), "whole warp"),
        (lambda: WarpAccess("ld.shared", 3, addresses=LANES), "1, 2, 4, 8 or 16 bytes per lane, not 3"),
        (lambda: WarpAccess("ld.shared", True, addresses=LANES), "not True"),
        (lambda: WarpAccess("ld.local", 4, addresses=LANES), "unknown operation 'ld.local'.*st.shared"),
        (lambda: WarpAccess("atom.shared", 4, addresses=LANES), "atom.shared was never measured"),
        (lambda: WarpAccess("cp.async", 16, addresses=LANES), "cp.async was never measured"),
        (lambda: WarpAccess("ld.shared", 4, addresses=LANES, mask=1 << 32), "no 32-bit lane mask"),
        (lambda: WarpAccess("ld.shared", 4, addresses=[0.0] * 32), "address of lane 0 is 0.0"),  # type: ignore[list-item]
        (lambda: WarpAccess("ld.shared", 4, addresses=[*LANES[:5], False, *LANES[6:]]), "lane 5 is False"),
        (lambda: simulate(WarpAccess("ld.shared", 4, addresses=LANES), machine="sm_42"), "unknown machine 'sm_42'"),
        (lambda: global_sectors(WarpAccess("ld.shared", 4, addresses=LANES)), "no sectors"),
        (lambda: simulate(WarpAccess("ld.global", 4, addresses=LANES)).wavefronts, "not measured"),
        (lambda: simulate(WarpAccess("ld.global", 4, addresses=LANES)).groups, "no banks"),
        (lambda: simulate_many("ld.shared", 8, addresses=[[0] * 32, LANES]), "access 1:.*lanes 1, 3"),
        (lambda: simulate_many("ld.shared", 4, addresses=[LANES], masks=[1, 2]), "one per access"),
        (lambda: simulate_many("ld.shared", 4, addresses=[LANES], masks=[-1]), "lane mask"),
        (lambda: simulate_many("ld.shared", 4, addresses=LANES), "accesses x lanes"),
        (lambda: simulate_many("ld.shared", 4, addresses=[[0.5] * 32]), "integers"),
        (lambda: simulate_many("ldmatrix", 16, addresses=[[0] * 8], masks=[3]), "whole warp"),
        (lambda: simulate_many("ld.shared", 4, addresses=np.full((1, 32), 1 << 63, dtype=np.uint64)), "63 bits"),
    ],
)
def test_misuse_is_refused_with_the_lanes_at_fault(make: Maker, says: str) -> None:
    with pytest.raises(RangeError, match=says):
        make()


def test_an_inactive_lane_may_hold_any_address() -> None:
    assert simulate(WarpAccess("ld.shared", 16, addresses=[-7] + [0] * 31, mask=FULL - 1)).wavefronts == 2
    assert simulate_many("ld.shared", 16, addresses=[[-7] + [0] * 31], masks=[FULL - 1]).wavefronts[0] == 2


def test_numpy_integers_are_accepted_and_kept_as_ints() -> None:
    access = WarpAccess("st.shared", 4, addresses=np.arange(0, 128, 4), mask=np.uint32(FULL))  # type: ignore[arg-type]
    assert access == WarpAccess("st.shared", 4, addresses=tuple(range(0, 128, 4)))
    assert eval(repr(access)) == access


def test_only_the_measured_machine_and_operations_count_as_measured() -> None:
    access = WarpAccess("ld.shared", 4, addresses=LANES)
    assert [name for name in MACHINES if simulate(access, machine=name).measured] == ["sm_90"]
    assert "modelled" in str(simulate(access, machine="sm_80"))
    assert not simulate(WarpAccess("st.global", 4, addresses=LANES)).measured
    assert not simulate_many("st.global", 4, addresses=[LANES]).measured
    assert machine("9.0") is machine("sm_90a") is machine(MACHINES["sm_90"])
    assert machine("10.0").assumption


def test_a_report_names_counters_and_colliding_lanes() -> None:
    report = simulate(WarpAccess("st.shared", 4, addresses=range(0, 32 * 8, 8)))
    assert report.counters == {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st": 2,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st": 1,
    }
    assert report.collisions[1].bank == 2
    assert report.collisions[1].lanes == ((1,), (17,))
    assert "word 32 (byte 128) lane 16" in str(report)
    assert isinstance(report, AccessReport)
