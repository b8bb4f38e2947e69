"""Proofs about permute plans: sound plans are proved, and every way of spoiling one is refused with a witness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import z3
from permute_oracle import dense, problem, strided

from codegen_cuda.permute import FORMS
from codegen_cuda.permute.plan import Access
from layoutalg import LayoutError, Param, Swizzle, SwizzledLayout
from layoutalg.banks import WarpAccess, simulate
from verify.permute import prove_plan
from verify.permute_banks import Instruction, prove_phase, translation_lemma
from verify.verdict import Proved, Refuted

NAMES = ("carried", "delivered", "stages", "covered", "read", "write")


def prove(request: Any, plan: Any, **changes: Any) -> dict[str, Any]:
    """Verdicts by short name."""
    arguments: dict[str, Any] = {
        "width": request.width,
        "align": max(16, request.width),
        "reads": plan.reads,
        "writes": plan.writes,
        "read_cost": (plan.read.wavefronts, plan.read.excess),
        "write_cost": (plan.write.wavefronts, plan.write.excess),
        "warps": plan.warps,
        **changes,
    }
    found = prove_plan(arguments.pop("table", plan.slots), request.source, request.destination, **arguments)
    names = NAMES if len(found) == len(NAMES) else [n for n in NAMES if n != "covered"]
    return {name: o.verdict for name, o in zip(names, found, strict=True)}


def planned(shape: Any, order: Any, width: int, form: str, **options: Any) -> tuple[Any, Any]:
    request = problem(dense(shape, range(len(shape))), dense(shape, order), width, **options)
    return request, FORMS[form](request)


SOUND = [
    ((8, 16), (1, 0), 4, "gf2"),
    ((8, 16), (1, 0), 8, "gf2"),
    ((8, 16), (1, 0), 16, "gf2"),
    ((2, 4), (1, 0), 8, "gf2"),
    ((9, 15), (1, 0), 1, "table"),
    ((9, 15), (1, 0), 4, "table"),
    ((7, 9), (1, 0), 16, "table"),
    ((7, 11), (0, 1), 4, "rotation"),
    ((16, 16), (1, 0), 4, "vector"),
    ((16, 16), (1, 0), 1, "words"),
    ((9, 15), (1, 0), 2, "words"),
]


@pytest.mark.parametrize(("shape", "order", "width", "form"), SOUND)
def test_every_statement_about_a_sound_plan_is_proved(shape, order, width, form):
    verdicts = prove(*planned(shape, order, width, form))
    assert all(isinstance(v, Proved) for v in verdicts.values()), verdicts


def test_the_solver_does_the_work_for_small_tables_and_says_so_for_large_ones(monkeypatch):
    request, plan = planned((8, 16), (1, 0), 4, "gf2")
    small = prove(request, plan)["carried"]
    assert small.effort > 0
    assert "evaluated" not in small.scope
    monkeypatch.setattr("verify.permute.TABLE_LIMIT", 100)
    assert "evaluated" in prove(request, plan)["carried"].scope


def spoilt(plan: Any, slot: int, lane: int, element: int) -> list[list[int]]:
    rows = [list(row) for row in plan.slots]
    rows[slot][lane] = element
    return rows


def test_an_element_carried_twice_is_refused():
    request, plan = planned((9, 15), (1, 0), 4, "table")
    verdict = prove(request, plan, table=spoilt(plan, 0, 0, plan.slots[1][0]))["carried"]
    assert isinstance(verdict, Refuted)


def test_an_element_left_out_is_refused_with_the_counts():
    request, plan = planned((9, 15), (1, 0), 4, "table")
    verdict = prove(request, plan, table=spoilt(plan, 0, 0, -1))["carried"]
    assert verdict.counterexample == {"elements": 135, "read": 134}


def test_an_element_that_does_not_exist_is_refused():
    request, plan = planned((9, 15), (1, 0), 4, "table")
    found = prove_plan(spoilt(plan, 0, 0, 135), request.source, request.destination, width=4, align=16)
    assert [type(o.verdict) for o in found] == [Refuted]
    assert found[0].verdict.counterexample["element"] == 135


def test_large_tables_are_refused_just_the_same(monkeypatch):
    request, plan = planned((8, 16), (1, 0), 4, "gf2")
    monkeypatch.setattr("verify.permute.TABLE_LIMIT", 100)
    verdict = prove(request, plan, table=spoilt(plan, 2, 7, plan.slots[3][7]))
    assert isinstance(verdict["carried"], Refuted)


def test_a_thread_that_writes_what_another_read_is_refused():
    request, plan = planned((9, 15), (1, 0), 2, "words")
    first = plan.writes[0]
    lanes = list(first.elements)
    used = [k for k, lane in enumerate(lanes) if lane[0] >= 0][:2]
    lanes[used[0]], lanes[used[1]] = lanes[used[1]], lanes[used[0]]
    verdict = prove(request, plan, writes=(replace(first, elements=tuple(lanes)), *plan.writes[1:]))["carried"]
    assert isinstance(verdict, Refuted)
    assert {"read by", "written by"} <= set(verdict.counterexample)


def test_the_same_lane_of_another_warp_is_another_thread():
    request, plan = planned((32, 32), (1, 0), 4, "vector", scope="cta", warps=2)
    assert all(v.ok for v in prove(request, plan).values())
    swapped = (plan.writes[1], plan.writes[0], *plan.writes[2:])
    assert isinstance(prove(request, plan, writes=swapped)["carried"], Refuted)


def test_an_access_of_elements_that_are_no_neighbours_is_refused_with_its_lane():
    request, plan = planned((16, 16), (1, 0), 4, "vector")
    first = plan.writes[0]
    lanes = [list(lane) for lane in first.elements]
    lanes[5][0], lanes[5][1] = lanes[5][1], lanes[5][0]
    writes = (Access(first.width, tuple(map(tuple, lanes))), *plan.writes[1:])
    verdict = prove(request, plan, writes=writes)["covered"]
    assert isinstance(verdict, Refuted)
    assert (verdict.counterexample["phase"], verdict.counterexample["lane"]) == ("write", 5)


def test_an_access_wider_than_its_base_is_aligned_is_refused():
    request, plan = planned((16, 16), (1, 0), 4, "vector")
    assert isinstance(prove(request, plan, align=8)["covered"], Refuted)


def test_two_elements_at_one_place_are_refused_with_both():
    clash = strided((4, 8), (4, 1))
    found = prove_plan([list(range(32))], dense((32,), (0,)), clash, width=4, align=16)
    assert {"x", "y"} <= set(found[1].verdict.counterexample)


def test_a_stage_that_overwrites_what_a_later_one_reads_is_refused_unless_memories_differ():
    source = dense((64,), (0,)).slice((2, 32), ((Param("s", 0, 2), Param("s", 0, 2) + 1), (0, 32)))
    destination = source + 32
    found = prove_plan([list(range(32))], source, destination, width=4, align=16)
    assert isinstance(found[2].verdict, Refuted)
    found = prove_plan([list(range(32))], source, destination, width=4, align=16, in_place=False)
    assert found[2].verdict.ok


# --- costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("phase", ["read", "write"])
@pytest.mark.parametrize(
    ("shape", "width", "form"), [((9, 15), 4, "table"), ((9, 15), 16, "table"), ((9, 15), 2, "words")]
)
def test_a_wrong_promise_of_wavefronts_is_refused(shape, width, form, phase, change):
    request, plan = planned(shape, (1, 0), width, form)
    cost = getattr(plan, phase)
    wrong = {f"{phase}_cost": (cost.wavefronts + change, cost.excess)}
    assert isinstance(prove(request, plan, **wrong)[phase], Refuted)


def test_unavoidable_excess_is_counted_and_carried_over_to_all_bases_and_stages():
    source = dense((2, 64), (0, 1))
    destination = strided((2, 64), (4096, 32))
    region = (Param("s", 0, 2), (0, 64))
    from codegen_cuda.permute import Operand
    from codegen_cuda.permute.problem import pose

    request = pose(
        Operand(source, None, region, "f32"),
        Operand(destination, None, region, "f32"),
        scope="warp",
        in_place=False,
        max_registers=128,
    )
    plan = FORMS["table"](request)
    assert (plan.write.wavefronts, plan.write.excess) == (64, 62)
    assert prove(request, plan)["write"].ok
    assert isinstance(prove(request, plan, write_cost=(64, 61))["write"], Refuted)
    assert isinstance(prove(request, plan, write_cost=None)["write"], Refuted)


def test_a_swizzled_side_is_proved_and_a_torn_stage_is_no_question():
    source = SwizzledLayout(Swizzle(3, 2, 3), dense((16, 32), (0, 1)))
    request = problem(source, dense((16, 32), (1, 0)), 4)
    assert all(v.ok for v in prove(request, FORMS["gf2"](request)).values())
    torn = SwizzledLayout(Swizzle(3, 2, 3), dense((2, 40), (0, 1))).slice(
        (2, 40), ((Param("s", 0, 2), Param("s", 0, 2) + 1), (0, 40))
    )
    with pytest.raises(LayoutError, match="period"):
        prove_phase("read", [Instruction(4, np.arange(32)[:, None])], torn, width=4, align=16)


@dataclass(frozen=True)
class Pattern:
    """Places of one access, in elements, by lane; -1 for idle."""

    width: int
    places: tuple[int, ...]


PATTERNS = [
    Pattern(8, tuple(range(16)) + (-1,) * 16),
    Pattern(8, tuple(lane if lane % 2 == 0 else -1 for lane in range(32))),
    Pattern(8, tuple(16 * (lane // 2) if lane % 2 == 0 else -1 for lane in range(32))),
    Pattern(16, tuple(lane if lane % 4 < 2 else -1 for lane in range(32))),
    Pattern(16, tuple(range(32))),
    Pattern(1, tuple(range(32))),
    Pattern(2, tuple(2 * lane for lane in range(32))),
    Pattern(4, tuple(33 * lane for lane in range(32))),
]


@pytest.mark.parametrize("op", ["ld.shared", "st.shared"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_proved_costs_are_those_of_the_simulator_pattern_by_pattern(pattern, op):
    """The proof knows merging of paired loads, idle lanes, and words that several lanes share."""
    addresses = [max(p, 0) * pattern.width for p in pattern.places]
    mask = sum(1 << lane for lane, p in enumerate(pattern.places) if p >= 0)
    report = simulate(WarpAccess(op=op, width=pattern.width, addresses=addresses, mask=mask))
    phase = "read" if op == "ld.shared" else "write"
    line = [Instruction(pattern.width, np.array(pattern.places)[:, None])]
    layout = dense((2048,), (0,))

    def verdict(wavefronts: int, excess: int) -> Any:
        return prove_phase(phase, line, layout, width=pattern.width, align=16, cost=(wavefronts, excess)).verdict

    assert verdict(report.wavefronts, report.excess).ok
    assert isinstance(verdict(report.wavefronts + 1, report.excess), Refuted)
    free = prove_phase(phase, line, layout, width=pattern.width, align=16).verdict
    assert free.ok == (report.excess == 0)


@pytest.mark.parametrize("unit", [4, 8, 16])
def test_moving_by_multiples_of_the_unit_changes_no_count(unit):
    assert translation_lemma(unit).ok


@pytest.mark.parametrize("unit", [4, 8, 16])
def test_moving_by_half_a_unit_does(unit):
    """The mutant of the lemma: with half the step, two bytes of one unit can part."""
    a, b, k = z3.BitVecs("a b k", 32)
    solver = z3.Solver()
    solver.add(z3.ULT(a, 1 << 20), z3.ULT(b, 1 << 20), z3.ULT(k, 16))
    solver.add(z3.UDiv(a, unit) == z3.UDiv(b, unit))
    solver.add(z3.UDiv(a + k * (unit // 2), unit) != z3.UDiv(b + k * (unit // 2), unit))
    assert solver.check() == z3.sat


def test_a_counterexample_names_two_lanes_a_base_and_a_stage_that_really_clash():
    layout = dense((2, 1024), (0, 1)).slice((2, 1024), ((Param("s", 0, 2), Param("s", 0, 2) + 1), (0, 1024)))
    column = Instruction(4, (np.arange(32) * 32)[:, None])
    found = prove_phase("write", [column], layout, width=4, align=16).verdict.counterexample
    words = [(found["base"] + 4 * (1024 * found["s"] + 32 * found[f"lane_{k}"])) // 4 for k in "ab"]
    assert words[0] != words[1]
    assert words[0] % 32 == words[1] % 32
    assert found["slot_a"] == found["slot_b"] == 0
