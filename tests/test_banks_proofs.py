"""Bank-conflict proofs: the solver's statement agrees with the simulator, and refutations replay."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import z3

from layoutalg.banks import WarpAccess, shared_report, simulate
from layoutalg.errors import LayoutError, RangeError
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.banks import _merges, conflict_of, prove_access_bank_free, prove_bank_free
from verify.term import lookup
from verify.verdict import Proved, Refuted, Unknown

Tile = TileLayout | SwizzledLayout
KINDS = [(op, width) for op in ("ld.shared", "st.shared") for width in (1, 2, 4, 8, 16)]


def tile(text: str) -> Tile:
    return SwizzledLayout.parse(text) if "o" in text.split("S[")[0] else TileLayout.parse(text)


def random_access(source: random.Random) -> WarpAccess:
    """An access that conflicts about as often as not: strides, XORs, copies, holes."""
    op, width = source.choice([*KINDS, ("ldmatrix", 16), ("stmatrix", 16)])
    count = source.choice([8, 16, 32]) if "matri" in op else 32
    stride, fold = source.choice([1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64]), source.choice([0, 0, 1, 3, 7])
    keep = ~source.choice([0, 0, 0, 1, 2, 3])
    units = [((lane & keep) * stride) ^ (lane >> 2 & fold) for lane in range(count)]
    if source.random() < 0.2:
        units[source.randrange(count)] = source.randrange(256)
    mask = 0xFFFFFFFF if "matri" in op or source.random() < 0.6 else source.getrandbits(32)
    return WarpAccess(op, width, addresses=[width * unit for unit in units], mask=mask)


Judge = Callable[[str, int, list[int], int], bool]


def solver_says_free(access: WarpAccess, *, merges: Judge = _merges, width: int | None = None) -> bool:
    """Ask the solver about one access, by the statement that the proofs use."""
    mask = access.mask & (1 << len(access.addresses)) - 1
    row = [access.addresses[lane] if mask >> lane & 1 else 0 for lane in range(32)]
    conflict = conflict_of(
        access.width if width is None else width,
        masks=[mask],
        merged=[merges(access.op, access.width, row, mask)],
        address=lambda _, lane: lookup(row, lane),
    )
    solver = z3.SolverFor("QF_BV")
    solver.add(conflict.formula, *conflict.given)
    found = solver.check()
    assert found != z3.unknown
    return bool(found == z3.unsat)


def test_solver_and_simulator_agree_on_random_accesses() -> None:
    source = random.Random(7)
    accesses = [random_access(source) for _ in range(120)]
    answers = [solver_says_free(access) for access in accesses]
    assert answers == [simulate(access).conflict_free for access in accesses]
    assert 24 < sum(answers) < 96


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_solver_and_simulator_agree_on_thousands_of_random_accesses(seed: int) -> None:
    source = random.Random(seed)
    accesses = [random_access(source) for _ in range(400)]
    assert [solver_says_free(access) for access in accesses] == [simulate(a).conflict_free for a in accesses]


def halves_apart(op: str, width: int, row: list[int], mask: int) -> bool:
    return _merges(op, width, row, mask & 0xFFFF) or _merges(op, width, row, mask & 0xFFFF0000)


MUTANTS: dict[str, dict[str, Any]] = {
    "loads never merge": {"merges": lambda *_: False},
    "every wide access merges": {"merges": lambda _op, width, _row, _mask: width >= 8},
    "half-warps merge alone": {"merges": halves_apart},
    "all lanes in one group": {"width": 4},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_statement_of_the_rule_disagrees_with_the_simulator(mutant: str) -> None:
    source = random.Random(3)
    pool = (random_access(source) for _ in range(4000))
    wide = (access for access in pool if access.width >= 8)
    assert any(solver_says_free(a, **MUTANTS[mutant]) != simulate(a).conflict_free for a in wide)


COLUMNS = TileLayout.parse("S[(32,32):(1@laneid,1)]")
ROWS = TileLayout.parse("S[(32,32):(1,1@laneid)]")
HALF_ROWS = TileLayout.parse("S[(2,32,64):(64,1@laneid,1)]")
OPERAND_A = TileLayout.parse("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]")
WARPS = TileLayout.parse("S[(4,16,64):(1@warpid,2@laneid,1)] + R[2:1@laneid]")

CASES: list[tuple[str, TileLayout, str, dict[str, Any]]] = [
    ("S[32,32]", COLUMNS, "f32", {"vector": 1}),
    ("S[32,32]", ROWS, "f32", {}),
    ("S[(32,32):(33,1)]", COLUMNS, "f32", {}),
    ("S[(32,32):(36,1)]", COLUMNS, "f32", {"op": "st.shared"}),
    ("Sw<5,0,5> o S[32,32]", COLUMNS, "f32", {}),
    ("Sw<3,2,5> o S[32,32]", COLUMNS, "f32", {}),
    ("Sw<3,0,5> o S[32,32]", COLUMNS, "f32", {}),
    ("S[64,64]", HALF_ROWS, "f16", {}),
    ("Sw<3,3,3> o S[64,64]", HALF_ROWS, "f16", {}),
    ("S[(64,64):(65,1)]", HALF_ROWS, "f16", {}),
    ("S[(16,16):(64,1)]", OPERAND_A, "bf16", {"op": "ldmatrix"}),
    ("Sw<3,3,3> o S[(16,16):(64,1)]", OPERAND_A, "bf16", {"op": "ldmatrix"}),
    ("Sw<3,3,3> o S[(16,16):(64,1)]", OPERAND_A, "bf16", {"op": "stmatrix", "matrices": 2}),
    ("Sw<3,3,3> o S[64,64]", WARPS, "f16", {}),
    ("S[64,64]", WARPS, "f16", {"op": "st.shared"}),
    ("F2<1,2,4,8,16,33,66,132,264> o S[(32,16):(16,1)]", TileLayout.parse("S[(32,16):(1@laneid,1)]"), "f32", {}),
]


@pytest.mark.parametrize(("text", "fragment", "dtype", "options"), CASES, ids=[f"{c[0]} {c[2]} {c[3]}" for c in CASES])
def test_a_transfer_is_proved_free_exactly_when_its_report_has_no_excess(
    text: str, fragment: TileLayout, dtype: str, options: dict[str, Any]
) -> None:
    layout = tile(text)
    report = shared_report(layout, fragment, dtype, **options)
    verdict = prove_bank_free(layout, fragment, dtype, **options)
    assert not isinstance(verdict, Unknown)
    assert verdict.ok == report.conflict_free
    assert f"{len(report)} {report.op}" in verdict.scope
    if isinstance(verdict, Refuted):
        replay(verdict, shared_report(layout, fragment, dtype, base=verdict.counterexample["base"], **options))


def replay(verdict: Refuted, report: Any) -> None:
    """The two lanes of a counterexample collide in the simulator too, on the bank and words it names."""
    shown = verdict.counterexample
    access = report[shown["instruction"]].report
    assert tuple(access.access.addresses[lane] for lane in shown["lanes"]) == shown["addresses"]
    hits = [hit for hit in access.collisions if hit.bank == shown["bank"]]
    assert any(
        set(shown["words"]) <= set(hit.words)
        and all(
            lane in hit.lanes[hit.words.index(word)] for lane, word in zip(shown["lanes"], shown["words"], strict=True)
        )
        for hit in hits
    )


STAGED = "Sw<3,3,3> o S[64,64] + 4096*s[0:3]"


def test_a_proof_covers_every_stage_and_aligned_base() -> None:
    verdict = prove_bank_free(tile(STAGED), HALF_ROWS, "f16", align=1024)
    assert isinstance(verdict, Proved)
    assert "every 0 <= s < 3" in verdict.scope
    assert "aligned to 1024 B" in verdict.scope


def test_stages_that_break_the_alignment_of_vectors_are_refuted() -> None:
    verdict = prove_bank_free(tile("S[64,64] + 4100*s[0:3]"), TileLayout.parse("S[(16,32,8):(8,1@laneid,1)]"), "f16")
    assert isinstance(verdict, Refuted)
    assert "not 16 aligned neighbouring bytes" in verdict.counterexample["fault"]
    assert verdict.counterexample["address"] % 16
    torn = prove_bank_free(
        tile("Sw<3,3,3> o S[64,64] + 4100*s[0:3]"), TileLayout.parse("S[(16,32,8):(8,1@laneid,1)]"), "f16"
    )
    assert isinstance(torn, Refuted)


def test_a_stage_that_conflicts_is_found() -> None:
    # Stage 0 is a row of words; in stage 1 the swizzle folds two lanes onto one bank.
    fragment = TileLayout.parse("S[32:1@laneid]")
    staged = tile("Sw<1,0,5> o S[(2,16):(16,1)] + 16*s[0:2]")
    verdict = prove_bank_free(staged, fragment, "f32")
    by_stage = [shared_report(staged.substitute(s=s), fragment, "f32").excess for s in (0, 1)]
    assert by_stage == [0, 0]
    assert isinstance(verdict, Proved)
    bad = tile("Sw<1,4,1> o S[(2,16):(16,1)] + 16*s[0:2]")
    verdict = prove_bank_free(bad, fragment, "f32")
    by_stage = [shared_report(bad.substitute(s=s), fragment, "f32").excess for s in (0, 1)]
    assert by_stage == [0, 1] or by_stage[0] == 0 < by_stage[1]
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample["s"] == 1
    replay(verdict, shared_report(bad.substitute(s=1), fragment, "f32", base=verdict.counterexample["base"]))


def test_one_access_is_proved_for_every_aligned_base_or_shown_to_collide() -> None:
    assert prove_access_bank_free(WarpAccess("ld.shared", 16, addresses=range(0, 512, 16))).ok
    assert prove_access_bank_free(WarpAccess("st.shared", 2, addresses=range(0, 64, 2))).ok
    verdict = prove_access_bank_free(WarpAccess("st.shared", 8, addresses=range(0, 1024, 32)), align=16)
    assert isinstance(verdict, Refuted)
    shown = verdict.counterexample
    assert shown["addresses"] == tuple(shown["base"] + 32 * lane for lane in shown["lanes"])
    assert shown["lanes"][0] // 16 == shown["lanes"][1] // 16
    assert (shown["words"][0] - shown["words"][1]) % 32 == 0
    idle = WarpAccess("st.shared", 8, addresses=range(0, 1024, 32), mask=0x00010001)
    assert prove_access_bank_free(idle).ok


def test_a_target_that_was_not_measured_is_an_assumption_of_the_scope() -> None:
    access = WarpAccess("ld.shared", 4, addresses=range(0, 128, 4))
    assert "assuming that sm_80" in prove_access_bank_free(access, machine="sm_80").scope
    assert "assuming" not in prove_bank_free(tile("S[32,32]"), ROWS, "f32").scope


def test_too_small_a_budget_is_unknown_not_success() -> None:
    verdict = prove_bank_free(tile(STAGED), HALF_ROWS, "f16", budget=10)
    assert isinstance(verdict, Unknown)
    assert not verdict.ok


def test_misuse_is_refused() -> None:
    with pytest.raises(RangeError, match="banks are a matter of shared memory"):
        prove_bank_free(tile("S[32,32]"), ROWS, "f32", op="ld.global")
    with pytest.raises(RangeError, match="need a multiple of 16"):
        prove_bank_free(tile("Sw<3,3,3> o S[64,64]"), HALF_ROWS, "f16", align=8)
    with pytest.raises(LayoutError):
        prove_bank_free(tile("S[32]"), ROWS, "f32")
