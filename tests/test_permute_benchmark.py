"""The shared-memory benchmark without a GPU: preparing, predicting, reading the profiler's table, reporting."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from layoutalg import TileLayout

PATH = Path(__file__).parents[1] / "benchmarks" / "permute_smem_h200.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("permute_smem_h200", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SHAPES", [("4x32 columns", "S[(4,32):(32,1)]", "S[(4,32):(1,4)]")])
    monkeypatch.setattr(module, "WIDTHS", {4: "uint32"})
    monkeypatch.setattr(module, "TIMED", ("4x32 columns",))
    return module


def test_predictions_are_the_plan_plus_the_staging_copies(bench, tmp_path):
    bench.prepare(tmp_path)
    data = json.loads((tmp_path / "cases.json").read_text())
    assert {case["asked"] for case in data["cases"]} >= {"xor", "rotation", "gf2", "table", "vector", "auto"}
    for case in data["cases"]:
        assert (tmp_path / case["cubin"]).read_bytes()[:4] == b"\x7fELF"
        staging = 4  # 128 words, a row of 32 each
        assert case["predicted"]["ld"] == case["plan"]["read"][1] + staging
        assert case["predicted"]["st"] == case["plan"]["write"][1] + staging
        assert case["predicted"]["ld_conflicts"] == case["plan"]["read"][2]
        assert case["gather"] == [32 * (i % 4) + i // 4 for i in range(128)]
    assert set(data["timed"][0]["kernels"]) >= {"auto", "gf2", "unplanned", "unplanned, padded"}
    unplanned = data["timed"][0]["kernels"]["unplanned"]
    assert unplanned["wavefronts"] == 4 + 16


def test_a_padded_destination_stays_injective(bench):
    for text, pad, padded in (
        ("S[(16,8,8):(1,16,128)]", 1, "S[(16,8,8):(1,17,136)]"),
        ("S[(4,32):(1,4)]", 4, "S[(4,32):(1,8)]"),
    ):
        assert str(bench._padded(TileLayout.parse(text), pad)) == padded


TABLE = """==PROF== Connected to process 1
"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","permute_a","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum","","1,008"
"0","1","python","permute_a","l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum","","0"
"1","1","python","permute_b","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum","","12"
"""


def test_the_profilers_table_is_read_by_launch(bench, tmp_path, monkeypatch):
    def fake(command: list[str], **_: Any) -> SimpleNamespace:
        Path(command[command.index("--log-file") + 1]).write_text(TABLE)
        return SimpleNamespace(stdout="", stderr="")

    monkeypatch.setattr(bench.shutil, "which", lambda _: "/usr/bin/ncu")
    monkeypatch.setattr(bench.subprocess, "run", fake)
    assert bench.profile(tmp_path) == [{"ld": 1008, "st_conflicts": 0}, {"st": 12}]


def test_no_profiler_is_said_and_not_taken_for_agreement(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench.shutil, "which", lambda _: None)
    assert "not on PATH" in bench.profile(tmp_path)


@pytest.mark.parametrize(("wrong", "measured", "good"), [(0, 8, True), (1, 8, False), (0, 9, False)])
def test_the_report_fails_on_wrong_data_and_on_counters_that_differ(bench, capsys, wrong, measured, good):
    case = {"title": "t", "width": 4, "form": "gf2", "wrong_elements": wrong, "predicted": {"ld": 8}}
    times = {"auto": 10.0, "unplanned": 20.0, "unplanned, padded": 15.0, "gf2": 10.0}
    report = {
        "machine": "GPU",
        "counters": "read",
        "cases": [{**case, "measured": {"ld": measured}}],
        "times": [{"title": "t", "width": 4, "elements": 128, "ns_per_permute_and_sm": times}],
    }
    assert bench.show(report) is good
    assert "2.00x" in capsys.readouterr().out
