"""The shared-memory benchmark without a GPU: preparing, predicting, reading the profiler's table, reporting."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from permute_oracle import benchmark

from layoutalg import TileLayout


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = benchmark("permute_smem_h200")
    monkeypatch.setattr(module, "SHAPES", [("4x32 columns", "S[(4,32):(32,1)]", "S[(4,32):(1,4)]", 1)])
    monkeypatch.setattr(module, "WIDTHS", {4: "uint32"})
    monkeypatch.setattr(module, "TIMED", ("4x32 columns",))
    return module


def test_predictions_are_the_plan_plus_the_staging_copies(bench, tmp_path):
    bench.prepare(tmp_path, seconds=0)
    data = json.loads((tmp_path / "cases.json").read_text())
    assert [case["form"] for case in data["cases"]] == ["xor", "rotation", "gf2", "table", "vector"]
    assert sum(case["chosen"] for case in data["cases"]) == 1
    for case in data["cases"]:
        assert bench.read_cubin(tmp_path, case)[:4] == b"\x7fELF"
        staging = 4  # 128 words, a row of 32 each
        assert case["predicted"]["ld"] == case["plan"]["read"][1] + staging
        assert case["predicted"]["st"] == case["plan"]["write"][1] + staging
        assert case["predicted"]["ld_conflicts"] == case["plan"]["read"][2]
        assert case["gather"] == [32 * (i % 4) + i // 4 for i in range(128)]
    timed = data["timed"][0]
    assert set(timed["kernels"]) == {"xor", "rotation", "gf2", "table", "vector", bench.PLAIN, bench.PADDED}
    assert timed["kernels"][bench.PLAIN]["wavefronts"] == 4 + 16
    assert timed["kernels"][timed["chosen"]]["wavefronts"] == 8


@pytest.mark.slow
def test_prepared_kernels_are_proved_kept_and_bound_by_hash(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "TIMED", ())
    bench.prepare(tmp_path, seconds=0)
    assert [c["proved"] for c in json.loads((tmp_path / "cases.json").read_text())["cases"]] == [None] * 5
    bench.prepare(tmp_path)
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert [c["proved"] for c in cases] == [True] * 5
    times = [(tmp_path / c["cubin"]).stat().st_mtime_ns for c in cases]
    bench.prepare(tmp_path)
    assert times == [(tmp_path / c["cubin"]).stat().st_mtime_ns for c in cases]
    with (tmp_path / cases[0]["cubin"]).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(SystemExit, match="not what was proved"):
        bench.read_cubin(tmp_path, cases[0])


def test_a_padded_destination_stays_injective(bench):
    for text, pad, padded in (
        ("S[(16,8,8):(1,16,128)]", 1, "S[(16,8,8):(1,17,136)]"),
        ("S[(4,32):(1,4)]", 4, "S[(4,32):(1,8)]"),
    ):
        assert str(bench._padded(TileLayout.parse(text), pad)) == padded


def test_many_permutes_in_a_row_are_a_power_of_one(bench):
    gather = np.random.default_rng(0).permutation(9)
    total = np.arange(9)
    for _ in range(13):
        total = gather[total]
    assert (bench._power(gather, 13) == total).all()


TABLE = """==PROF== Connected to process 1
"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","permute_a","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum","","1,008"
"0","1","python","permute_a","l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum","","0"
"1","1","python","permute_b","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum","","12"
"""


def test_the_profilers_table_is_read_by_launch(bench):
    assert bench._read_counters(TABLE) == [{"ld": 1008, "st_conflicts": 0}, {"st": 12}]


def test_kernels_are_profiled_in_portions_the_first_of_one_and_a_failure_ends_it(bench, tmp_path, monkeypatch):
    asked = []

    def portion(_ncu: str, _folder: Path, begin: int, end: int) -> Any:
        asked.append((begin, end))
        return [{"ld": k} for k in range(begin, end)] if end < 100 else "ncu fell over"

    monkeypatch.setattr(bench.shutil, "which", lambda _: "/usr/bin/ncu")
    monkeypatch.setattr(bench, "_profile_some", portion)
    found, why = bench.profile(tmp_path, 150)
    assert asked == [(0, 1), (1, 61), (61, 121)]
    assert found == [{"ld": k} for k in range(61)] + [None] * 89
    assert why == "ncu fell over"


def test_a_profiler_that_hangs_is_ended_with_its_children(bench, tmp_path):
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    begin = time.monotonic()
    said = bench._run_within([sys.executable, "-c", script + "time.sleep(60)"], 1.0, tmp_path / "said.txt")
    assert said is None
    assert time.monotonic() - begin < 20
    assert bench._run_within([sys.executable, "-c", "print('well')"], 60.0, tmp_path / "said.txt") == "well\n"


def test_no_profiler_is_said_and_not_taken_for_agreement(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench.shutil, "which", lambda _: None)
    found, why = bench.profile(tmp_path, 2)
    assert found == [None, None]
    assert "not on PATH" in why


@pytest.mark.parametrize(
    ("wrong", "measured", "lost", "good"),
    [(0, 8, 0, True), (1, 8, 0, False), (0, 9, 0, False), (0, None, 0, False), (0, 8, 1, False)],
)
def test_the_report_fails_on_wrong_data_and_on_counters_that_differ_or_lack(bench, capsys, wrong, measured, lost, good):
    def counters(loads: int) -> dict[str, int]:
        return {"ld": loads, "st": 8, "ld_conflicts": 0, "st_conflicts": 0}

    seen = None if measured is None else counters(measured)
    case = {"title": "t", "width": 4, "form": "gf2", "chosen": True, "proved": True, "wrong_elements": wrong}
    times = {"gf2": 10.0, bench.PLAIN: 20.0, bench.PADDED: 15.0}
    row = {"title": "t", "width": 4, "elements": 128, "chosen": "gf2", "ns_per_permute_and_sm": times}
    report = {
        "machine": "GPU",
        "counters": "read",
        "cases": [{**case, "predicted": counters(8), "measured": seen}],
        "times": [{**row, "wrong_elements": {"gf2": lost}}],
    }
    assert bench.show(report) is good
    assert "2.00x" in capsys.readouterr().out
