"""Certificates of every kind of kernel: what is proved, and what is openly not known."""

from __future__ import annotations

import time

import numpy as np
import pytest

from codegen_cuda import permute_layout, permute_tensor, tmem_roundtrip
from codegen_cuda.errors import BuildError
from codegen_cuda.pipeline import certify
from codegen_cuda.run import expected_output, require_certified
from layoutalg import Param, S, TileLayout
from layoutalg.hardware.tmem import tmem_datapath_layout
from verify.certificate import is_proved


def names(kernel):
    return [row["name"] for row in kernel.certificate["obligations"]]


def test_a_tensor_memory_kernel_is_proved_on_the_model_executed_at_every_base_and_proved_for_all():
    registers = TileLayout.parse("S[(128,8):(1@tid_in_wg,1)]")
    kernel = tmem_roundtrip(tmem_datapath_layout("A", 128, 8), registers, (128, 8), "f32").certify()
    assert is_proved(kernel.certificate)
    assert any("lanes" in name for name in names(kernel))
    assert any("all data and base addresses" in name for name in names(kernel))
    assert any("allocation at columns" in row["scope"] for row in kernel.certificate["obligations"])
    data = np.arange(128 * 8, dtype=np.float32)
    assert (kernel.run(data, device="cpu") == expected_output(kernel.claim, data)).all()


def test_a_whole_tensor_kernel_is_proved():
    kernel = permute_tensor((33, 20), (1, 0), "u16").certify()
    assert is_proved(kernel.certificate)
    assert kernel.certificate["not_checked"] == []


def test_a_tensor_too_large_to_execute_is_proved_for_all_blocks():
    kernel = permute_tensor((16384, 16384), (1, 0), "f32").certify()
    verdicts = {row["name"].split(",")[0]: row["verdict"] for row in kernel.certificate["obligations"]}
    assert is_proved(kernel.certificate)
    assert verdicts["every output byte is the input byte that the layouts name"] == "Proved"
    require_certified(kernel)


def test_a_tensor_too_large_to_execute_is_not_called_proved_without_the_symbolic_check():
    kernel = certify(permute_tensor((16384, 16384), (1, 0), "f32"), symbolic=False)
    assert not is_proved(kernel.certificate)
    assert {row["verdict"] for row in kernel.certificate["obligations"]} == {"Unknown"}
    with pytest.raises(BuildError, match="is not proved"):
        require_certified(kernel)


def test_leaving_the_symbolic_check_out_is_written_down():
    kernel = permute_layout(TileLayout(S[32:1]), TileLayout(S[32:1]), dtype="u32", plan="xor")
    record = certify(kernel, symbolic=False).certificate
    assert is_proved(record)
    assert len(record["not_checked"]) == 1


@pytest.mark.slow
def test_a_loop_over_many_stages_is_certified_stage_by_stage():
    """The effort grows with the number of stages, not with its square."""
    rows, columns = TileLayout.parse("S[(16,4,32):(128,32,1)]"), TileLayout.parse("S[(16,4,32):(128,1,4)]")
    region = (Param("s", 0, 16), (0, 4), (0, 32))
    started = time.process_time()
    kernel = permute_layout(rows, columns, dtype="float32", region=region, plan="xor").certify()
    assert {row["verdict"] for row in kernel.certificate["obligations"]} == {"Proved"}
    assert any(row["name"].startswith("every output byte") for row in kernel.certificate["obligations"])
    assert time.process_time() - started < 30


@pytest.mark.slow
def test_bounds_that_are_too_hard_for_the_solver_are_evaluated_for_every_thread():
    """Divisions by 60 and 20 in 64 bits end at the solver's limit."""
    rows, turned = TileLayout.parse("S[(3,20,16):(320,16,1)]"), TileLayout.parse("S[(3,20,16):(1,3,60)]")
    kernel = permute_layout(rows, turned, dtype="uint8", plan="rotation").certify()
    assert is_proved(kernel.certificate)
    assert any("every thread evaluated" in row["scope"] for row in kernel.certificate["obligations"])


@pytest.mark.slow
def test_a_long_table_of_accesses_is_followed():
    rows, columns = TileLayout.parse("S[(33,31):(31,1)]"), TileLayout.parse("S[(33,31):(1,33)]")
    assert is_proved(permute_layout(rows, columns, dtype="uint16", plan="words").certify().certificate)
