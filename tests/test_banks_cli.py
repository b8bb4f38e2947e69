"""The commands ``banks`` and ``swizzle``: what they print, the JSON they give, and how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from codegen_cuda.cli_banks import register

COLUMNS = "S[(2,32,64):(64,1@laneid,1)]"
app = typer.Typer()
register(app)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def test_banks_prints_a_total_and_the_worst_collision() -> None:
    result = run("banks", "S[64,64]", "--frag", COLUMNS, "--dtype", "f16")
    assert result.exit_code == 0
    assert "16 instructions, 512 wavefronts, ideal 64, excess 448" in result.stdout
    assert "worst: group 0, bank 0: word 0 (byte 0) lane 0" in result.stdout
    clean = json.loads(run("banks", "Sw<3,3,3> o S[64,64]", "--frag", COLUMNS, "--dtype", "f16", "--json").stdout)
    assert (clean["cost"], clean["excess"], clean["vector"], len(clean["instructions"])) == (64, 0, 8, 16)


def test_banks_without_a_fragment_walks_the_layout_lane_by_lane(tmp_path: Path) -> None:
    picture = tmp_path / "column.svg"
    result = run("banks", "S[32:33]", "--svg", str(picture))
    assert "1 wavefront, ideal 1, excess 0" in result.stdout
    assert picture.read_text().startswith("<svg")
    assert json.loads(run("banks", "S[32:2]", "--json").stdout)["excess"] == 1


def test_banks_proves_or_refutes_and_says_so_by_its_exit_code() -> None:
    proved = run("banks", "Sw<3,3,3> o S[64,64]", "--frag", COLUMNS, "--dtype", "f16", "--prove")
    assert (proved.exit_code, "Proved" in proved.stdout) == (0, True)
    refuted = run("banks", "S[64,64]", "--frag", COLUMNS, "--dtype", "f16", "--prove", "--json")
    assert refuted.exit_code == 1
    assert json.loads(refuted.stdout)["proof"]["verdict"] == "Refuted"


def test_swizzle_ranks_candidates_and_says_whether_the_best_is_optimal() -> None:
    arguments = ["swizzle", "--tile", "32x32", "--access", "st.shared S[(32,32):(1,1@laneid)]"]
    arguments += ["--access", "ld.shared/1 S[(32,32):(1@laneid,1)]"]
    result = run(*arguments)
    assert result.exit_code == 0
    assert "Sw<5,0,5> o S[(32,32):(32,1)]" in result.stdout
    assert "no layout is better" in result.stdout
    found = json.loads(run(*arguments, "--kinds", "plain,padding", "--top", "1", "--json").stdout)
    assert found["ranked"][0]["layout"] == "S[(32,32):(33,1)]"
    assert (found["optimal"], found["bound"], len(found["ranked"])) == (True, 64, 1)


def test_swizzle_knows_rows_and_columns_by_name() -> None:
    result = run("swizzle", "--tile", "64x64", "--dtype", "f16", "--read", "column", "--write", "row", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["optimal"]
    assert found["ranked"][0]["wavefronts"] == found["bound"]


def test_banks_takes_the_short_names_of_loads_and_stores() -> None:
    for short, full in (("ld", "ld.shared"), ("st", "st.shared")):
        assert json.loads(run("banks", "S[32:1]", "--op", short, "--json").stdout)["op"] == full


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["banks", "S[64,64]", "--frag", COLUMNS, "--dtype", "f17"], "unknown dtype"),
        (["banks", "S[64,64", "--frag", COLUMNS], "S[64,64"),
        (["banks", "S[32:1]", "--prove"], "give one"),
        (["swizzle", "--tile", "4x4"], "--read"),
        (["swizzle", "--tile", "4x4", "--read", "column"], "4 rows"),
        (["swizzle", "--tile", "4x4", "--write", "row"], "does not divide 16"),
        (["swizzle", "--tile", "4x4", "--access", "ld.shared"], "OP FRAGMENT"),
        (["swizzle", "--tile", "4x4", "--access", "ld.shared/x S[16:1]"], "OP FRAGMENT"),
    ],
)
def test_a_wrong_request_is_a_layout_error(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert says in str(result.exception)
