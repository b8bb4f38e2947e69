"""The solver: what it finds, that it is right on a model of tensor memory, and what it refuses and why."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tmem_helpers import L, assert_proved, layout_b, proof

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem import register_layout_for, tmem_plan, tmem_plans
from codegen_cuda.tmem.exact import Cover, fewest
from codegen_cuda.tmem.match import Fit
from codegen_cuda.tmem.solve import decompose
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.tcgen05 import SHAPES, TmemInstruction
from layoutalg.hardware.tmem import tmem_datapath_layout
from layoutalg.tile import TileLayout

DIRECTIONS = ("ld", "st")
ROWS = {"A": 128, "B": 64, "C": 64, "D": 128, "E": 64, "F": 64, "G": 32}
DATAPATHS = [(letter, slab) for letter in ROWS for slab in ((0, 1) if letter in "CF" else (0,))]


def warp_forms(plan):
    return [(t.instruction.shape, t.instruction.repeat) for t in plan.transfers if t.warp == plan.warps[0]]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layout_b_takes_one_x64_per_warp(direction):
    tmem, registers = layout_b()
    plan = tmem_plan(tmem, registers, (64, 128), "f32", direction=direction)
    assert [(t.warp, t.lane, t.column) for t in plan.transfers] == [(w, 32 * w, 0) for w in range(4)]
    assert warp_forms(plan) == [("32x32b", 64)]
    assert (plan.registers, plan.columns, plan.allocation) == (64, 64, 64)
    assert_proved(plan)


@pytest.mark.parametrize(("letter", "slab"), DATAPATHS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_datapath_has_a_plan_for_every_shape_that_can_reach_it(letter, slab, shape, direction):
    columns = 8 * {"B": 2, "E": 2, "G": 4}.get(letter, 1)
    tmem = tmem_datapath_layout(letter, ROWS[letter], columns, slab)
    if letter in "CF" and shape in ("32x32b", "16x32bx2"):
        registers = L(f"S[(4,16,{columns}):(32@tid_in_wg,1@tid_in_wg,1)]")
        with pytest.raises(NotExpressibleError, match="all 32 lanes") as refused:
            tmem_plan(tmem, registers, (64, columns), "f32", direction=direction)
        assert refused.value.facts["rule"] == "idle"
        return
    registers = register_layout_for(tmem, (ROWS[letter], columns), "f32", shape)
    plan = tmem_plan(tmem, registers, (ROWS[letter], columns), "f32", direction=direction, instructions=[shape])
    assert {t.instruction.shape for t in plan.transfers} == {shape}
    assert {t.lane % 32 for t in plan.transfers} == ({16 * slab} if letter in "CF" else {0, 16} if shape in (
        "16x64b", "16x128b", "16x256b") else {0})  # fmt: skip
    assert_proved(plan)


@pytest.mark.parametrize("columns", range(1, 33))
def test_every_column_count_is_a_sum_of_legal_repeats_and_no_shorter_one_exists(columns):
    parts = decompose(columns, 8)
    assert sum(parts) == columns
    assert set(parts) <= {1, 2, 4, 8}
    shorter = (
        sum(choice) == columns
        for n in range(len(parts))
        for choice in itertools.combinations_with_replacement((1, 2, 4, 8), n)
    )
    assert not any(shorter)


@pytest.mark.parametrize("columns", [1, 3, 48, 100, 127, 129, 255, 511, 512])
def test_any_number_of_columns_is_covered(columns):
    tmem = tmem_datapath_layout("D", 128, columns)
    registers = L(f"S[(128,{columns}):(1@tid_in_wg,1)]")
    plan = tmem_plan(tmem, registers, (128, columns), "f32")
    repeats = [n for _, n in warp_forms(plan)]
    assert sum(repeats) == columns
    assert len(repeats) == columns // 128 + bin(columns % 128).count("1")
    covered = [c for t in plan.transfers if t.warp == 0 for c in range(t.column, t.column + t.instruction.repeat)]
    assert sorted(covered) == list(range(columns))


def test_96_columns_of_16_bit_data_split_as_in_the_public_case():
    tmem, registers = L("S[(128,96):(1@TLane,1@TCol)]"), L("S[(128,96):(1@tid_in_wg,1)]")
    plan = tmem_plan(tmem, registers, (128, 96), "f16")
    first = [t for t in plan.transfers if t.warp == 0]
    assert [[t.instruction.repeat, 2 * t.registers[0]] for t in first] == [[32, 0], [16, 64]]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_16_bit_elements_are_moved_dense_or_packed_as_the_layout_says(direction, shape):
    for stride, packed in ((1, False), (2, True)):
        tmem = L(f"S[(128,32):(1@TLane,{stride}@TCol)]")
        registers = register_layout_for(tmem, (128, 32), "bf16", shape)
        plan = tmem_plan(tmem, registers, (128, 32), "bf16", direction=direction, instructions=[shape])
        assert {t.instruction.packed for t in plan.transfers} == {packed}
        assert plan.columns == (32 if packed else 16)
        assert_proved(plan)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("kind", "columns"), [("u8", 16), ("float4_e2m1fn", 16), ("f64", 5), ("int64", 8)])
def test_elements_of_other_widths_share_or_fill_words(direction, kind, columns):
    tmem, registers = L(f"S[(128,{columns}):(1@TLane,1@TCol)]"), L(f"S[(128,{columns}):(1@tid_in_wg,1)]")
    plan = tmem_plan(tmem, registers, (128, columns), kind, direction=direction)
    assert plan.columns == {"u8": 4, "float4_e2m1fn": 2, "f64": 10, "int64": 16}[kind]
    assert_proved(plan)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_two_address_copies_are_found_with_their_split(direction):
    # Rows 0-15 at columns 0-3 and, for lanes 16-31, the other half of the slab 8 columns further: no one stride.
    low, high = L("S[(16,4):(1@TLane,1@TCol)]"), L("S[(16,4):(1@TLane,1@TCol)] + 8@TCol")
    tmem, registers = L("S[(2,16,4):(8@TCol,1@TLane,1@TCol)]"), L("S[(2,16,4):(16@laneid,1@laneid,1)]")
    plan = tmem_plan(tmem, registers, (2, 16, 4), "f32", direction=direction, scope="warp")
    (transfer,) = plan.transfers
    assert transfer.instruction == TmemInstruction("16x32bx2", 4, split=8)
    assert low.table()["TLane"].max() == high.table()["TLane"].max() == 15
    assert_proved(plan)


def test_a_split_may_go_back_in_columns_but_not_in_addresses():
    up = L("S[(2,16,2):(16@TLane,1@TLane,1@TCol)] + 8@TCol")
    registers = L("S[(2,16,2):(16@laneid,1@laneid,1)]")
    assert tmem_plan(up, registers, (2, 16, 2), "f32", scope="warp").form == "32x32b.x2"
    back = L("S[(2,16,2):(-8@TCol,1@TLane,1@TCol)] + 8@TCol")
    with pytest.raises(NotExpressibleError, match="may not lie before the first") as refused:
        tmem_plan(back, registers, (2, 16, 2), "f32", scope="warp")
    assert refused.value.facts["rule"] == "split"


def test_a_base_between_the_halves_of_a_slab_is_refused():
    tmem = L("S[(16,4):(1@TLane,1@TCol)] + 8@TLane")
    registers = register_layout_for(L("S[(16,4):(1@TLane,1@TCol)]"), (16, 4), "f32", "16x64b")
    with pytest.raises(NotExpressibleError, match="multiple of 16 lanes") as refused:
        tmem_plan(tmem, registers, (16, 4), "f32")
    assert refused.value.facts["rule"] == "alignment"


def test_registers_may_be_scattered():
    tmem = L("S[(128,8):(1@TLane,1@TCol)]")
    registers = L("S[(128,2,4):(1@tid_in_wg,1,3)] + 5")
    plan = tmem_plan(tmem, registers, (128, 8), "f32")
    assert plan.transfers[0].registers == (5, 8, 11, 14, 6, 9, 12, 15)
    assert plan.instructions == 1
    assert_proved(plan)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("warp", range(4))
def test_a_selected_warp_works_in_its_own_slab_only(direction, warp):
    registers = L("S[(32,8):(1@laneid,1)]")
    for slab in range(4):
        tmem = L(f"S[(32,8):(1@TLane,1@TCol)] + {32 * slab}@TLane")
        if slab == warp:
            plan = tmem_plan(tmem, registers, (32, 8), "f32", direction=direction, scope="warp", warp=warp)
            assert [(t.warp, t.lane) for t in plan.transfers] == [(warp, 32 * warp)]
            assert_proved(plan)
        else:
            with pytest.raises(NotExpressibleError, match=f"lane {32 * slab}") as refused:
                tmem_plan(tmem, registers, (32, 8), "f32", direction=direction, scope="warp", warp=warp)
            assert refused.value.facts["rule"] == "slab"
            assert refused.value.index == (0, 0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_block_of_two_warpgroups_shares_the_slabs(direction):
    tmem = L("S[(128,2,16):(1@TLane,16@TCol,1@TCol)]")
    registers = L("S[(128,2,16):(1@tid_in_wg,1@wgid,1)]")
    plan = tmem_plan(tmem, registers, (128, 32), "f32", direction=direction, scope="cta")
    assert plan.warps == tuple(range(8))
    assert {(t.warp, t.lane, t.column) for t in plan.transfers} == {(w, 32 * (w % 4), 16 * (w // 4)) for w in range(8)}
    assert_proved(plan)


def test_a_load_takes_the_replica_in_its_own_slab_and_a_store_writes_all():
    tmem = L("S[(32,8):(1@TLane,1@TCol)] + R[4:32@TLane]")
    registers = L("S[(32,8):(1@laneid,1)] + R[4:1@wid_in_wg]")
    for direction in DIRECTIONS:
        plan = tmem_plan(tmem, registers, (32, 8), "f32", direction=direction)
        assert [(t.warp, t.lane) for t in plan.transfers] == [(w, 32 * w) for w in range(4)]
        assert_proved(plan)
    with pytest.raises(NotExpressibleError, match="but warp 0 holds it") as refused:
        tmem_plan(tmem, L("S[(32,8):(1@laneid,1)]"), (32, 8), "f32", direction="st", scope="warp")
    assert refused.value.facts["rule"] == "slab"


def test_a_load_may_read_one_half_into_both_halves_of_a_warp():
    tmem, registers = L("S[(16,8):(1@TLane,1@TCol)]"), L("S[(16,8):(1@laneid,1)] + R[2:16@laneid]")
    plan = tmem_plan(tmem, registers, (16, 8), "f32", scope="warp")
    assert plan.transfers[0].instruction == TmemInstruction("16x32bx2", 8, split=0)
    assert_proved(plan)
    with pytest.raises(NotExpressibleError, match="would write its cells twice") as refused:
        tmem_plan(tmem, registers, (16, 8), "f32", scope="warp", direction="st")
    assert refused.value.facts["rule"] == "twice"


def test_a_store_to_column_replicas_issues_each():
    tmem, registers = L("S[(128,8):(1@TLane,1@TCol)] + R[2:16@TCol]"), L("S[(128,8):(1@tid_in_wg,1)]")
    plan = tmem_plan(tmem, registers, (128, 8), "f32", direction="st")
    assert plan.instructions == 2
    assert_proved(plan)
    assert tmem_plan(tmem, registers, (128, 8), "f32").instructions == 1


def test_a_load_may_read_one_cell_into_many_registers_but_a_store_has_no_such_thing():
    tmem, registers = L("S[(128,4):(1@TLane,0@TCol)]"), L("S[(128,4):(1@tid_in_wg,1)]")
    plan = tmem_plan(tmem, registers, (128, 4), "f32")
    assert warp_forms(plan) == [("32x32b", 1)] * 4
    assert_proved(plan)
    with pytest.raises(NotExpressibleError, match="share lane 0, column 0") as refused:
        tmem_plan(tmem, registers, (128, 4), "f32", direction="st")
    assert refused.value.facts["rule"] == "aliases"


def test_alternatives_come_fewest_first_and_are_all_right():
    tmem, registers = L("S[(128,16):(1@TLane,1@TCol)]"), L("S[(128,16):(1@tid_in_wg,1)]")
    plans = tmem_plans(tmem, registers, (128, 16), "f32")
    counts = [len(plan.transfers) for plan in plans]
    assert counts == sorted(counts)
    assert len(set(plans)) == len(plans) > 4
    assert {plan.form for plan in plans} >= {"32x32b.x16", "16x32bx2.x16", "32x32b.x8", "32x32b.x1"}
    for plan in plans[:6]:
        assert_proved(plan)


REFUSALS = {
    "slab": (
        "S[(4,32,8):(32@TLane,1@TLane,1@TCol)]", "S[(2,2,32,8):(32@tid_in_wg,64@tid_in_wg,1@tid_in_wg,1)]",
        (128, 8), "f32", {"ld": (64, 0), "st": (32, 0)},
        "held by warp 1, which may access lanes 32 to 63|belong to the warps w with w % 4 == 1, but warp 2",
    ),
    "register order": (
        "S[(128,8):(1@TLane,1@TCol)]", "S[(4,2,16,8):(32@tid_in_wg,1@tid_in_wg,2@tid_in_wg,1)]",
        (128, 8), "f32", (16, 0), "lane 1 would have to hold lane 1, column 0",
    ),
    "column stride": (
        "S[(128,8):(1@TLane,3@TCol)]", "S[(128,8):(1@tid_in_wg,1)]", (128, 8), "bf16", (0, 0), "part by part",
    ),
    "idle": (
        "S[(4,16,8):(32@TLane,1@TLane,1@TCol)]", "S[(4,16,8):(32@tid_in_wg,1@tid_in_wg,1)]", (64, 8), "f32", (0, 0),
        "holds no element in lane 16",
    ),
    "incomplete": (
        "S[(4,8,4,4):(32@TLane,1@TLane,4@TCol,1@TCol)]", "S[(4,8,4,4):(32@tid_in_wg,4@tid_in_wg,1,1@tid_in_wg)]",
        (32, 16), "f32", (0, 0), "moves 2 registers together",
    ),
    "bounds": ("S[(128,8):(1@TLane,1@TCol)] + 510@TCol", "S[(128,8):(1@tid_in_wg,1)]", (128, 8), "f32", (0, 2),
        "128 lanes of 512 columns"),
    "registers": ("S[(128,8):(1@TLane,1@TCol)]", "S[(128,8):(1@tid_in_wg,0)]", (128, 8), "f32", (0, 0),
        "a register holds one element"),
    "threads": ("S[(128,8):(1@TLane,1@TCol)]", "S[(128,8):(2@tid_in_wg,1)]", (128, 8), "f32", (64, 0),
        "tid_in_wg = 128, outside"),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSALS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_refusals_name_the_element_and_the_reason(rule, direction):
    tmem, registers, shape, kind, index, words = REFUSALS[rule]
    with pytest.raises(NotExpressibleError, match=words) as refused:
        tmem_plan(L(tmem), L(registers), shape, kind, direction=direction)
    assert refused.value.facts["rule"] == rule
    assert refused.value.index == (index[direction] if isinstance(index, dict) else index)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"direction": "load"}, "direction is"),
        ({"scope": "cluster"}, "scope is"),
        ({"warp": 2}, "warp = 2"),
        ({"dtype": None}, "a dtype is needed"),
        ({"dtype": "float6_e2m3fn"}, "legal widths are"),
        ({"instructions": ["8x8b"]}, "no tcgen05 shape"),
        ({"producer": "ld"}, "producer is"),
        ({"direction": "st", "producer": "mma"}, "no producer"),
        ({"max_repeat": 0}, "max_repeat"),
    ],
)
def test_requests_that_make_no_sense_are_refused(change, words):
    tmem, registers = layout_b()
    arguments = {"shape": (64, 128), "dtype": "f32"} | change
    with pytest.raises(PlanError, match=words):
        tmem_plan(tmem, registers, **arguments)


def test_axes_that_have_no_place_in_tensor_memory_are_refused():
    with pytest.raises(PlanError, match="laneid"):
        tmem_plan(L("S[(128,8):(1@TLane,1@laneid)]"), L("S[(128,8):(1@tid_in_wg,1)]"), (128, 8), "f32")
    with pytest.raises(PlanError, match="TCol"):
        tmem_plan(L("S[(128,8):(1@TLane,1@TCol)]"), L("S[(128,8):(1@tid_in_wg,1@TCol)]"), (128, 8), "f32")


@pytest.mark.parametrize("producer", ["mma", "cp"])
def test_a_load_behind_another_producer_warns_about_its_commit(producer):
    tmem, registers = layout_b()
    (warning,) = tmem_plan(tmem, registers, (64, 128), "f32", producer=producer).warnings
    assert f"tcgen05.{producer}" in warning
    assert "mbarrier" in warning
    assert "wait::ld does not complete it" in warning
    assert tmem_plan(tmem, registers, (64, 128), "f32").warnings == ()


@given(
    shape=st.sampled_from([*SHAPES]),
    atoms=st.integers(1, 12),
    column=st.integers(0, 9),
    packed=st.booleans(),
    direction=st.sampled_from(DIRECTIONS),
    data=st.data(),
)
@settings(max_examples=25)
def test_shuffled_registers_of_any_shape_are_solved_and_right(shape, atoms, column, packed, direction, data):
    """Columns of atoms in any register order: the fewest instructions are known, since columns are one run."""
    kind, step = ("bf16", 2) if packed else ("f32", 1)
    width = SHAPES[shape].pitch * atoms * step
    rows = SHAPES[shape].rows
    # Of 16-row shapes take the lower half of the slab half of the time.
    lane = data.draw(st.sampled_from([0, 16] if rows == 16 and shape != "16x32bx2" else [0]))
    if shape == "16x32bx2":
        rows = 32
    tmem = L(f"S[(4,{rows},{width}):(32@TLane,1@TLane,{step}@TCol)] + {lane}@TLane + {column * step * step}@TCol")
    registers = register_layout_for(tmem, (4 * rows, width), kind, shape)
    plan = tmem_plan(tmem, registers, (4 * rows, width), kind, direction=direction, instructions=[shape])
    assert plan.instructions == bin(atoms).count("1")
    assert {t.instruction.packed for t in plan.transfers} == {packed}
    assert_proved(plan)


def test_the_model_refuses_plans_that_are_wrong():
    tmem, registers = L("S[(128,16):(1@TLane,1@TCol)]"), L("S[(128,16):(1@tid_in_wg,1)]")
    for direction in DIRECTIONS:
        plan = tmem_plan(tmem, registers, (128, 16), "f32", direction=direction)
        first, second, *rest = plan.transfers
        swapped = (first.registers[1], first.registers[0], *first.registers[2:])
        mutants = {
            "slab": [replace(first, lane=32), second, *rest],
            "missing": [second, *rest],
            "twice": [first, *plan.transfers],
            "column": [replace(first, column=1), second, *rest],
            "beyond": [replace(first, column=500), second, *rest],
            "registers": [replace(first, registers=swapped), second, *rest],
            "short": [replace(first, registers=first.registers[:-1]), second, *rest],
            "packed": [replace(first, instruction=TmemInstruction("32x32b", 16, packed=True)), second, *rest],
            "shape": [replace(first, instruction=TmemInstruction("16x64b", 16)), second, *rest],
        }
        for name, transfers in mutants.items():
            verdicts = [row.verdict for row in proof(plan, transfers)]
            assert not all(v.ok for v in verdicts), (name, direction)
            assert all(v.counterexample for v in verdicts if not v.ok)


def test_the_table_of_a_plan_lists_the_elements_of_every_word():
    tmem, registers = layout_b()
    table = tmem_plan(tmem, registers, (64, 128), "f32").table()
    assert table.shape == (4, 64, 32, 1)
    lanes = np.arange(128).reshape(4, 32)
    for word in (0, 17, 63):
        expected = (lanes % 64) * 128 + 64 * (lanes // 64) + word
        assert (table[:, word, :, 0] == expected).all()


def fewest_by_search(tmem, registers, size, shapes=tuple(SHAPES)):
    """The least number of loads of one warp, by trying every instruction at every base: no algorithm of the solver."""
    held = [registers.apply(i) for i in range(size)]
    cell_of = {(h.get("laneid", 0), h["m"]): i for i, h in enumerate(held)}
    places = [{(p.get("TLane", 0), p.get("TCol", 0)) for p in tmem.places(i)} for i in range(size)]
    words = sorted({word for _, word in cell_of})
    columns = range(max(c for cells in places for _, c in cells) + 1)
    candidates = set()
    for shape in shapes:
        for n in SHAPES[shape].repeats:
            if n * SHAPES[shape].words > len(words):
                continue
            splits = [0, *(c for c in columns if c), *((16 << 16) + c for c in columns)] if shape == "16x32bx2" else [0]
            for lane, column, split in itertools.product((0, 16), columns, splits):
                rows, cols = TmemInstruction(shape, n, split=split).cells()
                matches = []
                for r in range(rows.shape[1]):
                    cells = [(lane + int(rows[t, r]), column + int(cols[t, r])) for t in range(32)]
                    matches.append({w for w in words if all(cells[t] in places[cell_of[t, w]] for t in range(32))})
                    if not matches[-1]:
                        break
                for choice in itertools.product(*matches) if all(matches) else ():
                    if len(set(choice)) == len(choice):
                        candidates.add(frozenset(choice))
    best = {frozenset(): 0}
    for word in words:
        grown = {}
        for covered, count in best.items():
            if word in covered:
                grown[covered] = min(count, grown.get(covered, count))
                continue
            for candidate in candidates:
                if word in candidate and not candidate & covered:
                    union = covered | candidate
                    grown[union] = min(count + 1, grown.get(union, count + 1))
        best = grown
    return min(best.values(), default=None)


@given(
    outer=st.integers(1, 3),
    inner=st.integers(1, 3),
    far=st.integers(0, 6),
    near=st.sampled_from([1, 2, 3]),
    order=st.booleans(),
    replica=st.sampled_from(["", " + R[2:7@TCol]", " + R[2:1@TCol]"]),
)
@settings(max_examples=30)
def test_no_sequence_is_shorter_than_the_plan(outer, inner, far, near, order, replica):
    """Loads of one warp from scattered and replicated columns, against a search over all instructions and bases."""
    tmem = L(f"S[(32,{outer},{inner}):(1@TLane,{far}@TCol,{near}@TCol)]{replica}")
    registers = L(f"S[(32,{outer},{inner}):(1@laneid,{inner if order else 1},{1 if order else outer})]")
    plan = tmem_plan(tmem, registers, (32, outer, inner), "f32", scope="warp")
    fewest = fewest_by_search(tmem, registers, 32 * outer * inner, ("32x32b",))
    assert len(plan.transfers) == fewest
    assert_proved(plan)


@pytest.mark.slow
@given(
    outer=st.tuples(st.integers(1, 3), st.integers(0, 8)),
    inner=st.tuples(st.integers(1, 3), st.integers(0, 4)),
    replicas=st.tuples(*(st.tuples(st.integers(2, 3), st.integers(1, 7)) for _ in range(2))),
    split=st.sampled_from([0, 4, 8]),
    order=st.booleans(),
)
@settings(max_examples=40)
def test_no_sequence_is_shorter_where_every_word_has_many_places(outer, inner, replicas, split, order):
    """Two replicas in columns, one or two addresses."""
    (a, far), (b, near), ((r, far_r), (q, near_q)) = outer, inner, replicas
    rows, lanes, high = ("2,16", "16@laneid,1@laneid", f"{split}@TCol,1@TLane") if split else (
        "32", "1@laneid", "1@TLane")  # fmt: skip
    tmem = L(f"S[({rows},{a},{b}):({high},{far}@TCol,{near}@TCol)] + R[({r},{q}):({far_r}@TCol,{near_q}@TCol)]")
    registers = L(f"S[({rows},{a},{b}):({lanes},{b if order else 1},{1 if order else a})]")
    extents = (2, 16, a, b) if split else (32, a, b)
    plan = tmem_plan(tmem, registers, extents, "f32", scope="warp")
    shapes = ("16x32bx2",) if split else ("32x32b",)
    assert len(plan.transfers) == fewest_by_search(tmem, registers, 32 * a * b, shapes)
    assert_proved(plan)


@pytest.mark.parametrize(
    ("tmem", "registers", "shape", "found"),
    [
        # Every second column or its neighbour: one from the left, one from the right.
        ("S[(32,2):(1@TLane,2@TCol)] + R[2:1@TCol]", "S[(32,2):(1@laneid,1)]", (32, 2), 1),
        # Columns 0 1 2 3 3 4 5 6 or 3 further: 4 + 4, not 7 + 1.
        ("S[(32,2,4):(1@TLane,3@TCol,1@TCol)] + R[2:3@TCol]", "S[(32,2,4):(1@laneid,4,1)]", (32, 8), 2),
        # Each word has four places: a matching finds eight neighbours.
        ("S[(32,2,4):(1@TLane,1@TCol,4@TCol)] + R[(2,2):(1@TCol,5@TCol)]", "S[(32,2,4):(1@laneid,4,1)]", (32, 8), 1),
    ],
)
def test_replicas_are_chosen_so_that_instructions_are_long(tmem, registers, shape, found):
    assert len(tmem_plan(L(tmem), L(registers), shape, "f32", scope="warp").transfers) == found


def test_the_search_finds_what_no_preference_finds():
    """Words at columns 0 2 4 6 8 10 or 7 further: two instructions, where the longest run first takes three."""
    tmem, registers = L("S[(32,3,2):(1@TLane,4@TCol,2@TCol)] + R[2:7@TCol]"), L("S[(32,3,2):(1@laneid,2,1)]")
    plan = tmem_plan(tmem, registers, (32, 6), "f32", scope="warp")
    assert (len(plan.transfers), fewest_by_search(tmem, registers, 192, ("32x32b",))) == (2, 2)
    assert_proved(plan)


def fits(*columns):
    """One word per entry, readable at each of its columns."""
    return [Fit(0, word, "32x32b", False, 0, c, 0, 0) for word, places in enumerate(columns) for c in places]


def test_a_search_that_finds_nothing_says_whether_it_looked_everywhere():
    ways = fits((0, 7), (2, 9), (4, 11), (6, 13), (8, 15), (10, 17))
    assert fewest(ways, below=4).pieces is not None
    assert fewest(ways, below=2) == Cover(None, True)
    assert fewest(ways, below=6, steps=1) == Cover(None, False)
    limited = fewest(ways, below=7, max_repeat=1)
    assert [piece.instruction.repeat for piece in limited.pieces] == [1] * 6


def test_words_of_one_kind_are_named_each_once():
    pieces = fewest(fits((3,), (3,), (3,), (4, 5)), below=5).pieces
    assert sorted(word for piece in pieces for word in piece.words) == [0, 1, 2, 3]
    assert len(pieces) == 3


@pytest.mark.parametrize("shape", [pytest.param(s, marks=[pytest.mark.slow] if s == "16x256b" else []) for s in SHAPES])
def test_no_sequence_of_any_shapes_is_shorter_than_one_run_of_a_shape(shape):
    rows = 32 if shape in ("32x32b", "16x32bx2") else 16
    width = 3 * SHAPES[shape].pitch
    tmem = L(f"S[({rows},{width}):(1@TLane,1@TCol)]")
    registers = register_layout_for(tmem, (rows, width), "f32", shape)
    lanes = TileLayout.from_iters(
        shard=[(it.extent, it.stride, "laneid" if it.axis.name == "tid_in_wg" else "m") for it in registers.shard]
    )
    plan = tmem_plan(tmem, lanes, (rows, width), "f32", scope="warp")
    assert len(plan.transfers) == 2 == fewest_by_search(tmem, lanes, rows * width)
