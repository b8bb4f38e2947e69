"""``python -m verify`` and ``layoutalg verify``: tables, JSON, and exit codes that tell outcomes apart."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from codegen_cuda import permute_layout
from codegen_cuda.cli import app as layoutalg
from layoutalg import S, TileLayout
from verify.cli import app
from verify.laws import all_laws
from verify.theorems import theorems
from verify.verdict import Proved


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel")
    rows, columns = TileLayout(S[(4, 32) : (32, 1)]), TileLayout(S[(4, 32) : (1, 4)])
    kernel = permute_layout(rows, columns, dtype="float32", plan="xor").compile()
    kernel.save(folder)
    return folder / f"{kernel.name}.ptx", folder / f"{kernel.name}.claim.json"


def run(*arguments, of=app):
    return CliRunner().invoke(of, [str(a) for a in arguments], env={"COLUMNS": "160"})


def test_a_right_kernel_is_proved_and_exits_with_0(files, tmp_path):
    result = run("kernel", *files, "--out", tmp_path / "c.json")
    assert result.exit_code == 0
    assert "Refuted" not in result.stdout
    certificate = json.loads((tmp_path / "c.json").read_text())
    assert certificate["proved"]
    assert {row["verdict"] for row in certificate["obligations"]} == {"Proved"}


def test_a_changed_kernel_is_refuted_with_a_witness_and_exits_with_1(files, tmp_path):
    ptx, claim = files
    text = ptx.read_text()
    shared = text.index("st.shared", text.index("bar.warp.sync"))
    register = text[shared:].split("[")[1].split("]")[0]
    assert "+" not in register
    wrong = tmp_path / "wrong.ptx"
    wrong.write_text(text[:shared] + text[shared:].replace(f"[{register}]", f"[{register}+4]", 1))
    result = run("kernel", wrong, claim, "--json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["certificate"]["obligations"]
    assert any(row["verdict"] == "Refuted" and row["counterexample"] for row in rows)


def test_the_same_commands_answer_under_layoutalg(files):
    result = run("verify", "kernel", *files, "--no-symbolic", of=layoutalg)
    assert result.exit_code == 0
    assert "not checked" in result.stdout


def test_laws_are_listed_with_their_verdicts_and_written_as_json(tmp_path):
    result = run("laws", "--only", "index.", "--jobs", "1", "--out", tmp_path / "laws.json")
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "laws.json").read_text())
    assert len(rows) == len([law for law in all_laws() if "index." in law.name])
    assert {row["verdict"] for row in rows} == {"Proved"}
    assert all(row["mutants"] for row in rows)


def test_the_table_of_theorems_names_every_law_once():
    text = theorems([(law, Proved(law.scope)) for law in all_laws()]).partition("## Laws by operation")[0]
    for law in all_laws():
        assert text.count(f"| {law.name} |") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "nowhere.ptx", "nowhere.claim.json"], "nowhere.ptx"),
        (["laws", "--only", "no such law"], "groups:"),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_code_2(arguments, says):
    done = subprocess.run([sys.executable, "-m", "verify", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
