"""A named instruction over views that the caller arranges: the documented example, repeats, scopes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tmem_helpers import L, assert_proved, assert_runs, layout_b, ptx_of

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem import View, global_to_tmem, roundtrip_of, tmem_apply, tmem_to_global
from layoutalg.errors import NotExpressibleError, RangeError
from layoutalg.hardware.tcgen05 import TmemInstruction

BY_WARP = ("(wh r) (wl c) -> (wl wh) r c", {"wh": 2, "r": 32, "wl": 2})


def documented():
    tmem, registers = layout_b()
    pattern, sizes = BY_WARP
    return [View(layout, (64, 128), "float32").rearrange(pattern, **sizes) for layout in (tmem, registers)]


def op(direction, form, pack=""):
    return f"tcgen05.{direction}.sync.aligned.{form}{pack}.b32"


def test_the_documented_example_issues_one_store_and_one_load_per_warp():
    mem, registers = documented()
    assert mem.shape == registers.shape == (4, 32, 64)
    store = tmem_apply(op("st", "32x32b.x64"), mem, registers, scope="warpgroup")
    load = tmem_apply(op("ld", "32x32b.x64"), registers, mem, scope="warpgroup")
    for plan in (store, load):
        assert [(t.warp, t.lane, t.column) for t in plan.transfers] == [(w, 32 * w, 0) for w in range(4)]
        assert_proved(plan)
    # In the view (warp, row, column) the example's global tensor A[tid, j] is row-major.
    kernel = roundtrip_of(store, load, name="tmem_roundtrip")
    assert_runs(kernel, columns=(0, 448))
    text = ptx_of(kernel)
    assert text.count("tcgen05.st.sync") == text.count("tcgen05.ld.sync") == 1


def test_rearranged_views_are_the_layout_at_the_rearranged_index():
    mem, _ = documented()
    table = layout_b()[0].table((64, 128))
    lanes = table["TLane"].reshape(2, 32, 2, 64).transpose(2, 0, 1, 3).reshape(4, 32, 64)
    assert (mem.layout.table(mem.shape)["TLane"] == lanes).all()
    part = mem[1:3, 5, 8:]
    assert part.shape == (2, 56)
    assert (part.layout.table(part.shape)["TLane"] == lanes[1:3, 5, 8:]).all()


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("(a b) c", {"a": 2}), ("(a b) c -> a b", {"a": 2}), ("(a a) c -> a c", {"a": 8}), ("(a b) c -> c a b", {}),
        ("(a b) c -> c a b", {"a": 3}), ("a b c -> c b a", {}), ("(a b) c -> c a b", {"a": 2, "d": 3}),
        ("(a (b c)) d -> a b c d", {"a": 2, "b": 2}),
    ],
)  # fmt: skip
def test_patterns_that_do_not_fit_are_refused(pattern, sizes):
    with pytest.raises(PlanError, match="rearrange"):
        View(L("S[64:1]"), (8, 8), "f32").rearrange(pattern, **sizes)


def test_views_are_indexed_like_arrays():
    view = View(L("S[(4,8):(8,1)]"), (4, 8), "f32")
    assert view[-1].layout.table()["m"].tolist() == list(range(24, 32))
    with pytest.raises(PlanError, match="step 1"):
        view[::2]
    with pytest.raises(PlanError, match="indices"):
        view[0, 0, 0]


@pytest.mark.parametrize("direction", ["ld", "st"])
def test_repeat_axes_issue_one_instruction_each(direction):
    # 64 columns as 4 repeats of 16x256b.x2 on the lower half of each slab.
    mem = View(L("S[(4,16,64):(32@TLane,1@TLane,1@TCol)] + 16@TLane"), (4, 16, 64), "f32")
    registers = View(L("S[(4,2,8,8,4,2):(32@tid_in_wg,2,4@tid_in_wg,4,1@tid_in_wg,1)]"), (4, 16, 64), "f32")
    views = [view.rearrange("w r (k c) -> w k r c", c=16) for view in (mem, registers)]
    plan = tmem_apply(op(direction, "16x256b.x2"), *(views if direction == "st" else views[::-1]))
    own = [(t.lane, t.column, t.registers) for t in plan.transfers if t.warp == 3]
    assert own == [(112, 16 * k, tuple(range(8 * k, 8 * k + 8))) for k in range(4)]
    assert_proved(plan)
    assert_runs(global_to_tmem(plan) if direction == "st" else tmem_to_global(plan))


@pytest.mark.parametrize("direction", ["ld", "st"])
def test_packed_views_have_halves_two_apart_in_tensor_memory(direction):
    def views(column, half):
        mem = View(L(f"S[(4,32,8,2):(32@TLane,1@TLane,{column}@TCol,{half}@TCol)]"), (4, 32, 8, 2), "bf16")
        registers = View(L("S[(4,32,8,2):(32@tid_in_wg,1@tid_in_wg,2,1)]"), (4, 32, 8, 2), "bf16")
        return [mem, registers] if direction == "st" else [registers, mem]

    opcode = op(direction, "32x32b.x8", ".unpack::16b" if direction == "st" else ".pack::16b")
    plan = tmem_apply(opcode, *views(4, 2))
    assert {t.instruction for t in plan.transfers} == {TmemInstruction("32x32b", 8, packed=True)}
    assert_proved(plan)
    assert_runs(global_to_tmem(plan) if direction == "st" else tmem_to_global(plan))
    with pytest.raises(NotExpressibleError, match="bit 16; the instruction has it at lane 0, column 1"):
        tmem_apply(opcode, *views(2, 1))


@pytest.mark.parametrize("direction", ["ld", "st"])
def test_the_documented_two_address_example(direction):
    mem = View(L("S[(4,32,16):(32@TLane,1@TLane,1@TCol)]"), (4, 32, 16), "f32")
    registers = View(L("S[(4,2,16,4):(32@tid_in_wg,16@tid_in_wg,1@tid_in_wg,1)]"), (4, 2, 16, 4), "f32")
    low, high = mem[:, :16, :4], mem[:, 16:32, 8:12]
    operands = (low, high, registers) if direction == "st" else (registers, low, high)
    opcode, split = op(direction, "16x32bx2.x4"), (16 << 16) + 8
    plan = tmem_apply(opcode, *operands, imm_half_splitoff=split, scope="warpgroup")
    assert [(t.warp, t.lane, t.column) for t in plan.transfers] == [(w, 32 * w, 0) for w in range(4)]
    assert_proved(plan)
    kernel = global_to_tmem(plan) if direction == "st" else tmem_to_global(plan)
    assert f"{opcode} " in kernel.source
    assert f", {split}" in kernel.source
    assert_runs(kernel, columns=(0, 32, 480))
    with pytest.raises(NotExpressibleError, match="column 8; the instruction has it at lane 16, column 4") as refused:
        tmem_apply(opcode, *operands, imm_half_splitoff=(16 << 16) + 4)
    assert refused.value.index == (1, 0, 0, 0)
    with pytest.raises(RangeError, match="needs it"):
        tmem_apply(opcode, *operands)


@pytest.mark.parametrize("warp", [0, 1, 3])
def test_scope_warp_has_no_warp_axis_and_one_slab(warp):
    registers = View(L("S[(32,8):(1@laneid,1)]"), (32, 8), "f32")
    mem = View(L(f"S[(32,8):(1@TLane,1@TCol)] + {32 * warp}@TLane"), (32, 8), "f32")
    plan = tmem_apply(op("ld", "32x32b.x8"), registers, mem, scope="warp", warp=warp)
    assert [(t.warp, t.lane) for t in plan.transfers] == [(warp, 32 * warp)]
    assert_runs(tmem_to_global(plan))
    with pytest.raises(NotExpressibleError, match="starts at a multiple of 32"):
        tmem_apply(op("ld", "32x32b.x8"), registers, mem, scope="warp", warp=(warp + 1) % 4)


def test_scope_cta_has_an_axis_of_all_warps():
    mem = View(L("S[(2,4,32,8):(8@TCol,32@TLane,1@TLane,1@TCol)]"), (2, 4, 32, 8), "f32")
    registers = View(L("S[(2,4,32,8):(1@wgid,1@wid_in_wg,1@laneid,1)]"), (2, 4, 32, 8), "f32")
    views = [view.rearrange("g w r c -> (g w) r c") for view in (mem, registers)]
    plan = tmem_apply(op("st", "32x32b.x8"), *views, scope="cta")
    assert [(t.warp, t.lane, t.column) for t in plan.transfers] == [(w, 32 * (w % 4), 8 * (w // 4)) for w in range(8)]
    assert_runs(global_to_tmem(plan))


def changed(view, text):
    return View(L(text), view.shape, view.dtype)


@pytest.mark.parametrize(
    ("which", "text", "rule", "words"),
    [
        (1, "S[(4,32,64):(32@tid_in_wg,-1@tid_in_wg,1)] + 31@tid_in_wg", "owner", "thread 31; .* in thread 0"),
        (1, "S[(2,2,32,64):(32@tid_in_wg,64@tid_in_wg,1@tid_in_wg,1)]", "owner", "thread 64; .* in thread 32"),
        (0, "S[(4,32,64):(32@TLane,1@TLane,2@TCol)]", "tmem", "column 2; the instruction has it at lane 0, column 1"),
        (0, "S[(4,32,64):(32@TLane,-1@TLane,1@TCol)] + 31@TLane", "tmem", "lane 30, column 0; .* lane 32, column 0"),
        (0, "S[(2,2,32,64):(32@TLane,64@TLane,1@TLane,1@TCol)]", "slab", "base lane 64; 32x32b of warp 1 starts"),
    ],
)
def test_owners_that_differ_from_the_image_are_named(which, text, rule, words):
    views = documented()
    views[which] = changed(views[which], text)
    with pytest.raises(NotExpressibleError, match=words) as refused:
        tmem_apply(op("st", "32x32b.x64"), *views)
    assert refused.value.facts["rule"] == rule


def test_separated_register_slots_are_fine_if_all_lanes_agree():
    mem, registers = documented()
    apart = changed(registers, "S[(4,32,32,2):(32@tid_in_wg,1@tid_in_wg,1,40)]")
    plan = tmem_apply(op("st", "32x32b.x64"), mem, apart)
    assert plan.transfers[0].registers[:4] == (0, 40, 1, 41)
    assert_proved(plan)
    assert_runs(global_to_tmem(plan))


def test_shapes_scopes_and_operands_that_do_not_fit_are_refused():
    mem, registers = documented()
    store = op("st", "32x32b.x64")
    cases = [
        ((store, registers, mem), {}, "operands"),
        ((store, mem), {}, "takes .tmem, registers., 2 views"),
        ((op("st", "32x32b.x32"), mem, registers), {}, r"ends in \(32, 32\)"),
        ((op("st", "16x256b.x8"), mem, registers), {}, r"ends in \(16, 64\)"),
        ((store, mem, registers), {"scope": "cluster"}, "scope is"),
        ((store, mem[0], registers[0]), {}, "needs a leading axis of warps"),
        ((store, mem[:2], registers[:2]), {}, "needs a leading axis of warps"),
        ((store, mem, registers[:2]), {}, "equal leading axes"),
        ((store, mem, View(registers.layout, registers.shape, "i32")), {}, "in registers"),
        ((store, mem, registers), {"producer": "mma"}, "no producer"),
    ]
    for arguments, options, words in cases:
        with pytest.raises(PlanError, match=words):
            tmem_apply(*arguments, **options)
    with pytest.raises(PlanError, match="packing moves 16-bit elements"):
        tmem_apply(op("st", "32x32b.x64", ".unpack::16b"), mem, registers)
    with pytest.raises(RangeError, match="belongs to 16x32bx2"):
        tmem_apply(store, mem, registers, imm_half_splitoff=0)


def test_a_load_from_a_matrix_instruction_warns():
    mem, registers = documented()
    plan = tmem_apply(op("ld", "32x32b.x64"), registers, mem, producer="mma")
    assert "mbarrier" in plan.warnings[0]
    assert plan.warnings[0] in tmem_to_global(plan).source


def test_a_register_that_serves_twice_is_refused():
    mem, registers = documented()
    twice = changed(registers, "S[(4,32,2,32):(32@tid_in_wg,1@tid_in_wg,0,1)]")
    with pytest.raises(NotExpressibleError, match="a register holds one element"):
        tmem_apply(op("ld", "32x32b.x64"), twice, mem)
    assert np.unique(twice.layout.table()["m"]).size == 32
