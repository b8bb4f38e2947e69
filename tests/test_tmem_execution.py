"""Compiled kernels in the interpreter, with a distinct value in every element: every form, datapath and base."""

from __future__ import annotations

import re

import pytest
from tmem_helpers import L, assert_proved, assert_runs, bases, build, layout_b, ptx_of

from codegen_cuda.errors import PlanError
from codegen_cuda.run import run_kernel
from codegen_cuda.tmem import (
    global_to_tmem,
    register_layout_for,
    roundtrip_of,
    tmem_copy,
    tmem_plan,
    tmem_roundtrip,
    tmem_to_global,
)
from codegen_cuda.tmem.solve import decompose
from layoutalg.hardware.tcgen05 import SHAPES, TmemInstruction
from layoutalg.hardware.tmem import tmem_datapath_layout
from verify.ptx.check import check_executed
from verify.ptx.parse import parse

FORMS = [(shape, n, packed) for shape, form in SHAPES.items() for n in form.repeats for packed in (False, True)]
ROWS = {"A": 128, "B": 64, "C": 64, "D": 128, "E": 64, "F": 64, "G": 32}
DATAPATHS = [(letter, slab) for letter in ROWS for slab in ((0, 1) if letter in "CF" else (0,))]
FAST = [
    ("32x32b", 1, False, "st"), ("32x32b", 128, False, "ld"), ("16x64b", 8, True, "st"), ("16x128b", 4, False, "ld"),
    ("16x256b", 2, True, "ld"), ("16x256b", 2, True, "st"), ("16x32bx2", 4, False, "st"), ("16x32bx2", 2, True, "ld"),
]  # fmt: skip


def one_instruction(shape, n, packed, direction):
    """A kernel in which every warp issues this one instruction; 16-row shapes on lanes 16 to 31 of the slab."""
    kind, step = ("bf16", 2) if packed else ("f32", 1)
    width = SHAPES[shape].pitch * n * step
    if shape == "16x32bx2":
        # Both accesses in the same 16 lanes, the second behind the first: no 32-row shape can do that.
        image = f"S[(4,2,16,{width}):(32@TLane,{width * step}@TCol,1@TLane,{step}@TCol)] + 16@TLane"
        tmem = L(image)
        registers = L(f"S[(4,2,16,{width}):(32@tid_in_wg,16@tid_in_wg,1@tid_in_wg,1)]")
        extents = (4, 2, 16, width)
    else:
        rows = SHAPES[shape].rows
        tmem = L(f"S[(4,{rows},{width}):(32@TLane,1@TLane,{step}@TCol)]" + (" + 16@TLane" if rows == 16 else ""))
        extents = (4, rows, width)
        registers = register_layout_for(tmem, extents, kind, shape)
    return tmem_copy(tmem, registers, extents, kind, direction=direction, instructions=[shape])


def fits(shape, n, packed):
    """Columns of the two-address kernel are twice those of one access."""
    return shape != "16x32bx2" or 2 * n * (2 if packed else 1) <= 512


def check_one(shape, n, packed, direction):
    kernel = one_instruction(shape, n, packed, direction)
    plan = kernel.plan
    split = n * (2 if packed else 1) if shape == "16x32bx2" else 0
    assert {t.instruction for t in plan.transfers} == {TmemInstruction(shape, n, packed, split)}
    assert plan.instructions == 1
    assert plan.transfers[0].instruction.opcode(direction) in ptx_of(kernel)
    assert_runs(kernel, columns=bases(plan.allocation))
    return kernel


@pytest.mark.parametrize(("shape", "n", "packed", "direction"), FAST)
def test_forms_run_and_move_every_element(shape, n, packed, direction):
    check_one(shape, n, packed, direction)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "n", "packed"), [form for form in FORMS if fits(*form)])
@pytest.mark.parametrize("direction", ["ld", "st"])
def test_every_legal_form_compiles_for_both_targets_and_moves_every_element(shape, n, packed, direction):
    build(check_one(shape, n, packed, direction))


def test_more_than_a_hundred_forms_are_swept():
    assert sum(2 for form in FORMS if fits(*form)) == 2 * len(FORMS) == 148


def test_the_documented_layout_b_example_with_its_own_global_layout():
    tmem, registers = layout_b()
    by_thread = L("S[(64,2,64):(64,4096,1)]")
    kernel = tmem_roundtrip(
        tmem, registers, (64, 128), "f32", source_layout=by_thread, destination_layout=by_thread, name="layout_b"
    )
    assert kernel.plan.form == "32x32b.x64 / 32x32b.x64"
    build(kernel)
    assert_runs(kernel, columns=(0, 32, 64, 448))
    text = ptx_of(kernel)
    order = [text.index(f"tcgen05.{word}") for word in ("alloc", "relinquish", "st.sync", "wait::st", "ld.sync",
        "wait::ld", "dealloc")]  # fmt: skip
    assert order == sorted(order)
    assert text.count("tcgen05.fence::before_thread_sync") == text.count("bar.sync") == 3


SWEEP = [
    (letter, slab, shape)
    for letter, slab in DATAPATHS
    for shape in SHAPES
    if not (letter in "CF" and shape in ("32x32b", "16x32bx2"))
]


def datapath(letter, slab, shape, columns=16):
    width = columns * {"B": 2, "E": 2, "G": 4}.get(letter, 1)
    tmem = tmem_datapath_layout(letter, ROWS[letter], width, slab)
    return tmem, register_layout_for(tmem, (ROWS[letter], width), "f32", shape), (ROWS[letter], width)


@pytest.mark.parametrize(
    ("letter", "slab", "shape"), [(a, s, f) for a, s, f in SWEEP if f == ("16x64b" if a in "CF" else "32x32b")]
)
def test_every_datapath_round_trips(letter, slab, shape):
    tmem, registers, extents = datapath(letter, slab, shape)
    assert_runs(tmem_roundtrip(tmem, registers, extents, "f32", instructions=[shape]), columns=(64,))


@pytest.mark.slow
@pytest.mark.parametrize(("letter", "slab", "shape"), SWEEP)
def test_every_datapath_with_every_shape_is_stored_loaded_and_round_tripped(letter, slab, shape):
    tmem, registers, extents = datapath(letter, slab, shape)
    kernels = [tmem_roundtrip(tmem, registers, extents, "f32", instructions=[shape])]
    kernels += [
        tmem_copy(tmem, registers, extents, "f32", direction=direction, instructions=[shape])
        for direction in ("st", "ld")
    ]
    build(kernels[0])
    for kernel in kernels:
        assert_runs(kernel, columns=(0, 480))


def test_a_store_in_one_shape_and_a_load_in_another_transpose_between_threads():
    tmem = L("S[(4,16,32):(32@TLane,1@TLane,1@TCol)]")
    a, b = (register_layout_for(tmem, (64, 32), "f32", shape) for shape in ("16x256b", "16x64b"))
    kernel = tmem_roundtrip(tmem, a, (64, 32), "f32", load_register_layout=b)
    assert kernel.plan.form == "16x256b.x4 / 16x64b.x16"
    assert_runs(kernel)


KERNELS = {
    "seven columns": ("S[(128,7):(1@TLane,1@TCol)]", "S[(128,7):(1@tid_in_wg,1)]", (128, 7), "f32", {}),
    "doubles": ("S[(128,6):(1@TLane,1@TCol)]", "S[(128,6):(1@tid_in_wg,1)]", (128, 6), "f64", {}),
    "bytes": ("S[(128,12):(1@TLane,1@TCol)]", "S[(128,12):(1@tid_in_wg,1)]", (128, 12), "u8", {}),
    "shuffled bytes": (
        "S[(128,4,3):(1@TLane,1@TCol,4@TCol)]", "S[(128,4,3):(1@tid_in_wg,1,4)]", (128, 12), "u8", {}),
    "dense halves": ("S[(128,10):(1@TLane,1@TCol)]", "S[(128,10):(1@tid_in_wg,1)]", (128, 10), "f16", {}),
    "packed with gaps": ("S[(128,8):(1@TLane,2@TCol)] + 8@TCol", "S[(128,8):(1@tid_in_wg,1)]", (128, 8), "f16", {}),
    "replicas": (
        "S[(32,8):(1@TLane,1@TCol)] + R[4:32@TLane]", "S[(32,8):(1@laneid,1)] + R[4:1@wid_in_wg]", (32, 8), "f32", {}),
    "one warp": (
        "S[(32,8):(1@TLane,1@TCol)] + 64@TLane", "S[(32,8):(1@laneid,1)]", (32, 8), "f32",
        {"scope": "warp", "warp": 2}),
    "two warpgroups": (
        "S[(128,2,16):(1@TLane,16@TCol,1@TCol)]", "S[(128,2,16):(1@tid_in_wg,1@wgid,1)]", (128, 32), "f32",
        {"scope": "cta"}),
    "warps that differ": (
        "S[(4,32,8):(32@TLane,1@TLane,1@TCol)]", "S[(4,32,8):(1@wid_in_wg,1@laneid,1)] + 3", (128, 8), "f32", {}),
    "scattered registers": (
        "S[(128,8):(1@TLane,1@TCol)]", "S[(128,2,4):(1@tid_in_wg,1,3)] + 5", (128, 8), "f32", {}),
    "split": (
        "S[(2,16,4):(8@TCol,1@TLane,1@TCol)]", "S[(2,16,4):(16@laneid,1@laneid,1)]", (2, 16, 4), "f32",
        {"scope": "warp"}),
    "columns from 40": (
        "S[(128,8):(1@TLane,1@TCol)] + 40@TCol", "S[(128,8):(1@tid_in_wg,1)]", (128, 8), "f32", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_many_kinds_round_trip(name):
    tmem, registers, shape, kind, options = KERNELS[name]
    kernel = tmem_roundtrip(L(tmem), L(registers), shape, kind, **options)
    kernel.claim.check_bounds()
    for plan in (kernel.plan.store, kernel.plan.load):
        assert_proved(plan)
    assert_runs(kernel, columns=(0, 64))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_many_kinds_run_in_both_directions(name):
    tmem, registers, shape, kind, options = KERNELS[name]
    for direction in ("st", "ld"):
        kernel = tmem_copy(L(tmem), L(registers), shape, kind, direction=direction, **options)
        kernel.claim.check_bounds()
        assert_proved(kernel.plan)
        assert_runs(kernel, columns=(0, 64))


def test_warps_with_different_columns_get_branches_of_their_own():
    tmem, registers, shape, kind, options = KERNELS["two warpgroups"]
    source = tmem_copy(L(tmem), L(registers), shape, kind, direction="st", **options).source
    for warps in (range(4), range(4, 8)):
        assert f"if ({' || '.join(f'warp == {w}' for w in warps)}) {{" in source


@pytest.mark.slow
@pytest.mark.parametrize("columns", [96, 224, 300, 512])
def test_wide_tiles_compile_for_both_targets_and_run(columns):
    tmem, registers = L(f"S[(128,{columns}):(1@TLane,1@TCol)]"), L(f"S[(128,{columns}):(1@tid_in_wg,1)]")
    kernel = tmem_roundtrip(tmem, registers, (128, columns), "f32")
    assert len(kernel.plan.store.transfers) == 4 * len(decompose(columns, 128))
    build(kernel)
    assert_runs(kernel, columns=bases(kernel.plan.store.allocation))


def test_a_kernel_runs_on_the_cpu_without_being_told_the_target():
    import numpy as np

    tmem, registers = L("S[(128,4):(1@TLane,1@TCol)]"), L("S[(128,4):(1@tid_in_wg,1)]")
    kernel = tmem_roundtrip(tmem, registers, (128, 4), "f32")
    data = np.arange(512, dtype=np.float32)
    assert (run_kernel(kernel, data, device="cpu", uncertified=True) == data).all()
    assert kernel.compile().ptx.arch == "sm_100a"


def test_harnesses_refuse_plans_and_layouts_that_do_not_fit():
    tmem, registers = L("S[(128,4):(1@TLane,1@TCol)]"), L("S[(128,4):(1@tid_in_wg,1)]")
    load, store = (tmem_plan(tmem, registers, (128, 4), "f32", direction=d) for d in ("ld", "st"))
    for call in (lambda: global_to_tmem(load), lambda: tmem_to_global(store), lambda: roundtrip_of(load, store)):
        with pytest.raises(PlanError):
            call()
    for bad in ("S[512:0]", "S[256:1]", "S[512:1@laneid]", "S[512:-1]", "S[512:1] + R[2:512]"):
        with pytest.raises(PlanError, match="global layout"):
            tmem_to_global(load, global_layout=L(bad))
    nibbles = tmem_plan(L("S[(128,2,4):(1@TLane,1@TCol,2@TCol)]"), L("S[(128,2,4):(1@tid_in_wg,1,2)]"), (128, 8),
        "float4_e2m1fn")  # fmt: skip
    with pytest.raises((PlanError, ValueError), match="no C"):
        tmem_to_global(nibbles)


def test_a_global_layout_of_the_callers_own_is_read_and_written():
    tmem, registers = L("S[(128,4):(1@TLane,1@TCol)]"), L("S[(128,4):(1@tid_in_wg,1)]")
    columns_first = L("S[(128,4):(1,128)]")
    for direction in ("st", "ld"):
        assert_runs(tmem_copy(tmem, registers, (128, 4), "f32", direction=direction, global_layout=columns_first))


def test_the_general_checker_accepts_the_kernels_and_refuses_a_swapped_register():
    tmem, registers = layout_b()
    kernel = tmem_roundtrip(tmem, registers, (64, 128), "f32")
    text = ptx_of(kernel)
    assert all(row.verdict.ok for row in check_executed(parse(text), kernel.claim))
    wrong = re.sub(r"(tcgen05\.ld\S*\s+\{)(%r\d+), (%r\d+)", r"\1\3, \2", text)
    rows = check_executed(parse(wrong), kernel.claim)
    assert [row.verdict.ok for row in rows].count(False) == 1


@pytest.mark.parametrize(
    "name", ["split", *(pytest.param(n, marks=pytest.mark.slow) for n in ("packed with gaps", "two warpgroups"))]
)
def test_every_base_that_an_allocation_can_get_works(name):
    tmem, registers, shape, kind, options = KERNELS[name]
    kernel = tmem_copy(L(tmem), L(registers), shape, kind, direction="st", **options)
    assert_runs(kernel, columns=tuple(range(0, 512 - kernel.plan.allocation + 1, 32)))


def test_public_names_are_found_from_the_package():
    import codegen_cuda

    for name in ("View", "tmem_apply", "tmem_copy", "tmem_plan", "tmem_roundtrip", "register_layout_for"):
        assert name in codegen_cuda.__all__
        assert getattr(codegen_cuda, name) is getattr(codegen_cuda.tmem, name)
