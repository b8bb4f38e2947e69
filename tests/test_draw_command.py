"""The commands ``draw`` and ``explore``: the files they write, and how they fail."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner, Result

from codegen_cuda.cli import main
from codegen_cuda.cli_draw import register
from layoutalg import LayoutError, SwizzledLayout, TileLayout
from layoutalg.draw import compare, draw

app = typer.Typer()
register(app)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def test_draw_writes_the_picture_that_the_library_draws(tmp_path: Path) -> None:
    out = tmp_path / "fragment.svg"
    text = "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid"
    result = run("draw", text, "--shape", "8x16", "--view", "both", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert out.read_text() == draw(TileLayout.parse(text), (8, 16), view="both").svg + "\n"
    ElementTree.fromstring(out.read_text())


def test_draw_puts_two_layouts_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "swizzle.svg"
    bank = ("--by", "bank", "--dtype", "f16")
    assert run("draw", "S[8,64]", "--after", "Sw<3,3,3> o S[8,64]", *bank, "--out", str(out)).exit_code == 0
    before, after = TileLayout.parse("S[8,64]"), SwizzledLayout.parse("Sw<3,3,3> o S[8,64]")
    assert out.read_text() == compare(before, after, by="bank", dtype="f16").svg + "\n"
    assert run("draw", "S[4,8]", "--after", "S[(8,4):(1,8)]", "--after-shape", "8x4", "--out", str(out)).exit_code == 0


@pytest.mark.parametrize("arguments", [("--shape", "3x3"), ("--out", "layout.jpg"), ("--view", "upside")])
def test_wrong_requests_are_errors_of_the_library(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run("draw", "S[4,8]", "--out", str(tmp_path / "a.svg"), *arguments)
    assert isinstance(result.exception, LayoutError)
    assert not list(tmp_path.iterdir())


def test_a_failure_is_one_message_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["layoutalg", "draw", "S[4,8]", "--by", "bank"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "needs the element type" in capsys.readouterr().err


def test_explore_writes_the_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run("explore", "Sw<3,3,3> o S[64,64]", "--dtype", "f16", "--out", str(out)).exit_code == 0
    assert "Sw\\u003c3,3,3> o S[(64,64):(64,1)]" in out.read_text()
