"""The reference example end to end: plan, proof, CUDA, PTX, cubin, certificate, run, files."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import numpy as np
import pytest

from codegen_cuda import Kernel, Operand, permute_layout, why_not
from codegen_cuda.errors import BuildError, PlanError
from codegen_cuda.pipeline import prove
from codegen_cuda.run import expected_output
from layoutalg import NotationError, Param, S, TileLayout
from layoutalg.axis import laneid
from layoutalg.banks import WarpAccess, simulate
from layoutalg.claim import Claim
from layoutalg.errors import AxisError, LayoutError
from verify.verdict import Proved, Refuted


def example(high: int = 1, dtype: str = "float32", plan: str = "xor", **options: object) -> Kernel:
    block = 128 * high
    source = TileLayout.parse(f"S[(2,{high},4,32):({block},128,32,1)]")
    destination = TileLayout.parse(f"S[(2,{high},4,32):({block},128,1,4)]")
    return permute_layout(source, destination, region=f"s,0:{high},0:4,0:32", dtype=dtype, plan=plan, **options)


@functools.cache
def certified(high: int = 1, dtype: str = "float32") -> Kernel:
    return example(high, dtype).certify()


ROWS = TileLayout(S[(4, 32) : (32, 1)])
COLUMNS = TileLayout(S[(4, 32) : (1, 4)])


@pytest.mark.parametrize(("high", "registers"), [(1, 4), (2, 8)])
def test_the_reference_example_gets_the_reference_plan(high, registers):
    plan = example(high).plan
    assert (plan.details["shift"], plan.details["mask"], plan.registers) == (3, 3, registers)
    for phase in (plan.read, plan.write):
        assert (phase.wavefronts, phase.excess, phase.lower_bound) == (registers, 0, registers)


@pytest.mark.parametrize("high", [1, 2])
def test_every_slot_of_the_plan_costs_one_wavefront_in_the_simulator(high):
    kernel = example(high)
    for layout, op in ((kernel.problem.source, "ld.shared"), (kernel.problem.destination, "st.shared")):
        for slot in kernel.plan.table():
            addresses = [4 * layout.apply(int(e))["m"].substitute({"s": 1}) for e in slot]
            assert simulate(WarpAccess(op=op, width=4, addresses=addresses)).wavefronts == 1


def test_the_emitted_index_arithmetic_has_the_form_of_the_reference():
    source = example().source
    for r in range(1, 4):
        assert f"regs[{r}] = src[s * 128 + lane + ({r} ^ ((lane >> 3) & 3)) * 32];" in source
        assert f"dst[s * 128 + lane * 4 + ({r} ^ ((lane >> 3) & 3))] = regs[{r}];" in source
    device = source[source.index("__device__") : source.index("#if")]
    assert device.count("__syncwarp();") == 2
    assert "#include" not in source


@pytest.mark.parametrize("dtype", ["float32", "uint32", "float16", "uint8"])
@pytest.mark.parametrize("high", [1, 2])
def test_all_proofs_of_the_example_hold(high, dtype):
    obligations = prove(example(high, dtype))
    assert len(obligations) == 5
    assert all(isinstance(o.verdict, Proved) for o in obligations), [str(o.verdict) for o in obligations]


def test_half_precision_is_not_refused_by_bank_arithmetic_that_forgets_broadcast():
    plan = example(dtype="float16").plan
    assert (plan.read.excess, plan.write.excess) == (0, 0)


def test_a_plan_with_a_wrong_shift_is_refuted_with_two_lanes_on_one_bank():
    kernel = example()
    lanes = np.arange(32)
    slots = [[int(lane + 32 * (r ^ ((lane >> 4) & 1))) for lane in lanes] for r in range(4)]
    wrong = dataclasses.replace(kernel, plan=dataclasses.replace(kernel.plan, slots=tuple(map(tuple, slots))))
    verdict = prove(wrong)[-1].verdict
    assert isinstance(verdict, Refuted)
    found = verdict.counterexample
    words = []
    for side in ("a", "b"):
        element = slots[found[f"slot_{side}"]][found[f"lane_{side}"]]
        place = kernel.problem.destination.substitute(s=found["s"]).apply(element)["m"]
        words.append((found["base"] + 4 * place) // 4)
    assert words[0] != words[1]
    assert words[0] % 32 == words[1] % 32


def test_a_plan_that_carries_an_element_twice_is_refuted():
    kernel = example()
    slots = [list(row) for row in kernel.plan.slots]
    slots[0][0] = slots[0][1]
    wrong = dataclasses.replace(kernel, plan=dataclasses.replace(kernel.plan, slots=tuple(map(tuple, slots))))
    assert isinstance(prove(wrong)[0].verdict, Refuted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a", "sm_100a"])
def test_the_example_compiles_without_a_gpu(arch):
    kernel = example().compile(arch=arch)
    assert kernel.ptx.entries == (kernel.name,)
    assert kernel.cubin.image[:4] == b"\x7fELF"
    if arch != "sm_80":
        assert ".reqntid 32, 1, 1" in kernel.ptx.text


@pytest.mark.parametrize(("high", "dtype"), [(1, "float32"), (1, "float16"), (2, "uint32")])
def test_the_compiled_example_permutes_every_stage_in_the_interpreter(high, dtype):
    kernel = certified(high, dtype)
    count = kernel.claim.buffer("src").count
    data = np.random.default_rng(high).integers(0, 256, count * kernel.claim.width, dtype=np.uint8)
    data = data.view(f"u{kernel.claim.width}")
    got = kernel.run(data, device="cpu")
    stages = data.reshape(2, high, 4, 32)
    assert (got.reshape(2, high, 32, 4) == stages.transpose(0, 1, 3, 2)).all()
    assert (got == expected_output(kernel.claim, data)).all()


def test_places_between_the_elements_of_a_padded_destination_keep_their_values():
    padded = TileLayout.parse("S[(4,32):(1,5)]")
    kernel = permute_layout(TileLayout.parse("S[(4,32):(40,1)]"), padded, dtype="u32", plan="xor")
    data = np.arange(kernel.claim.buffer("src").count, dtype=np.uint32)
    assert (kernel.run(data, device="cpu") == expected_output(kernel.claim, data)).all()


def test_a_certificate_names_hashes_verdicts_assumptions_and_what_was_not_checked():
    kernel = certified()
    record = kernel.certificate
    assert record["proved"]
    assert record["sha256"] == kernel.hashes()
    assert set(record["sha256"]) == {"source", "claim", "ptx", "cubin"}
    assert record["assumptions"]
    assert {"z3", "compiler", "assembler", "arch"} <= set(record["tools"])


def test_a_kernel_survives_saving_and_loading_and_still_runs(tmp_path):
    kernel = certified()
    names = {path.name for path in kernel.save(tmp_path)}
    stem = kernel.name
    assert names == {f"{stem}{end}" for end in (".cu", ".ptx", ".cubin", ".claim.json", ".certificate.json")}
    loaded = Kernel.load(tmp_path)
    assert (loaded.claim, loaded.source, loaded.hashes()) == (kernel.claim, kernel.source, kernel.hashes())
    data = np.arange(256, dtype=np.float32)
    assert (loaded.run(data, device="cpu") == expected_output(kernel.claim, data)).all()


@pytest.mark.parametrize("what", ["ptx", "cu", "claim.json"])
def test_a_kernel_whose_files_were_changed_after_certification_does_not_run(tmp_path, what):
    kernel = certified()
    kernel.save(tmp_path)
    path = tmp_path / f"{kernel.name}.{what}"
    text = path.read_text()
    path.write_text(text.replace("128", "127", 1) if what != "ptx" else text + "// edited\n")
    changed = Kernel.load(tmp_path)
    with pytest.raises(BuildError, match="about another"):
        changed.run(np.zeros(256, dtype=np.float32), device="cpu")


def test_a_claim_survives_its_json_form_and_a_foreign_one_is_refused():
    claim = example(2).claim
    assert Claim.from_json(json.loads(json.dumps(claim.to_json()))) == claim
    claim.check_bounds()
    for broken in ({}, {"format": 99}, {**claim.to_json(), "params": [{"kind": "magic"}]}, [1], None):
        with pytest.raises(LayoutError):
            Claim.from_json(broken)


def test_a_claim_whose_buffer_is_too_small_is_found_out():
    claim = example().claim
    small = dataclasses.replace(claim, params=tuple(dataclasses.replace(p, count=200) for p in claim.params))
    with pytest.raises(LayoutError, match=r"spans \[0, 200\)"):
        small.check_bounds()


REJECTIONS = {
    "dtype": lambda: permute_layout(Operand(ROWS, dtype="f32"), Operand(COLUMNS, dtype="u32")),
    "extent": lambda: permute_layout(ROWS, TileLayout(S[(32, 4) : (4, 1)]), dtype="f32"),
    "width": lambda: permute_layout(ROWS, COLUMNS, dtype="float4_e2m1fn"),
    "injective": lambda: permute_layout(ROWS, TileLayout(S[(4, 32) : (0, 1)]), dtype="f32"),
    "volume": lambda: permute_layout(
        TileLayout(S[(4, 31) : (31, 1)]), TileLayout(S[(4, 31) : (1, 4)]), dtype="f32", plan="xor"
    ),
    "registers": lambda: permute_layout(ROWS, COLUMNS, dtype="f32", max_registers=3),
    "scope": lambda: permute_layout(ROWS, COLUMNS, dtype="f32", scope="thread"),
    "layout": lambda: permute_layout("S[32:1]", COLUMNS, dtype="f32"),
    "memory": lambda: permute_layout(ROWS, TileLayout(S[(4, 32) : (1, 1 @ laneid)]), dtype="f32"),
    "replica": lambda: permute_layout(ROWS, TileLayout.parse("S[(4,32):(1,4)] + R[2:128]"), dtype="f32"),
    "region": lambda: permute_layout(ROWS, COLUMNS, dtype="f32", region=((0, 5), (0, 32))),
    "stages": lambda: permute_layout(
        TileLayout(S[(2, 128) : (128, 1)]), TileLayout(S[(2, 128) : (64, 1)]), dtype="f32", region="s,0:128", plan="xor"
    ),
    "slice": lambda: permute_layout(
        Operand(TileLayout(S[(8, 16) : (100, 1)]), (128,), ((4, 36),)), TileLayout(S[32:1]), dtype="f32"
    ),
}


@pytest.mark.parametrize("rule", REJECTIONS)
def test_each_predicate_rejects_with_its_own_rule(rule):
    with pytest.raises(PlanError) as caught:
        REJECTIONS[rule]()
    assert caught.value.facts["rule"] == rule
    assert str(caught.value).startswith("permute_layout: ")


def test_each_rejection_has_its_own_message():
    messages = []
    for reject in REJECTIONS.values():
        with pytest.raises(PlanError) as caught:
            reject()
        messages.append(re.sub(r"\d+", "N", str(caught.value)))
    assert len(set(messages)) == len(REJECTIONS)


def test_why_not_returns_the_reason_or_nothing():
    assert why_not(ROWS, COLUMNS, dtype="f32", plan="xor") is None
    assert why_not(ROWS, COLUMNS, dtype="f32", max_registers=1).facts["rule"] == "registers"


def test_an_unknown_axis_names_its_neighbours_and_malformed_text_its_column():
    with pytest.raises(NotationError, match="nearest: laneid") as caught:
        TileLayout.parse("S[(4,32):(1,1@lanid)]")
    assert caught.value.position == len("S[(4,32):(1,1@")
    with pytest.raises(AxisError, match="nearest"):
        TileLayout.from_iters(shard=[(4, 1, "lanid")])


def test_operands_may_carry_their_own_shape_region_and_dtype():
    source = Operand(TileLayout(S[256:1]), (2, 4, 32), (Param("s", 0, 2), (0, 4), (0, 32)), "float32")
    destination = Operand(TileLayout.parse("S[(2,4,32):(128,1,4)]"), None, "s,0:4,0:32", "f32")
    assert permute_layout(source, destination, plan="xor").plan == example().plan


@pytest.mark.parametrize(
    ("data", "message"),
    [(np.zeros(255, dtype=np.float32), "256 elements"), (np.zeros(256), "of 4 bytes"), ([0.0] * 256, "list")],
)
def test_an_array_that_does_not_fit_is_refused_before_anything_runs(data, message):
    with pytest.raises(BuildError, match=message):
        certified().run(data, device="cpu")
