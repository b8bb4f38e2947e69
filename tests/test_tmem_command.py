"""``layoutalg tmem`` and the pictures of tensor memory."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
import typer
from tmem_helpers import L, layout_b
from typer.testing import CliRunner

from codegen_cuda.cli_tmem import register
from codegen_cuda.kernel import Kernel
from layoutalg.draw.tmem import tmem_map, tmem_text
from layoutalg.errors import LayoutError, RangeError
from verify.certificate import is_proved

SVG = "{http://www.w3.org/2000/svg}"


def call(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return CliRunner().invoke(app, ["tmem", *map(str, arguments)])


def test_the_command_prints_plan_and_picture_and_writes_a_kernel_that_was_executed(tmp_path):
    result = call("--layout", "B", "--rows", 64, "--cols", 128, "--dtype", "f32", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "warp 3: 32x32b.x64 at lane 96, column 0, registers 0-63" in result.output
    assert "96-111   w3 r0-7" in result.output
    assert "every element arrives" in result.output
    assert "Unknown" not in result.output
    (path,) = tmp_path.glob("*.svg")
    assert {f.suffix for f in tmp_path.iterdir()} == {".cu", ".ptx", ".cubin", ".json", ".svg"}
    ElementTree.parse(path)
    kernel = Kernel.load(tmp_path)
    assert kernel.ptx is not None
    assert kernel.ptx.arch == "sm_100a"
    assert kernel.certificate is not None
    assert is_proved(kernel.certificate)
    assert kernel.certificate["sha256"] == kernel.hashes()
    assert kernel.claim.block == (128, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        (["--layout", "F", "--rows", 64, "--cols", 32, "--sub-slab", 1, "--direction", "ld"], "16x256b.x4"),
        (["--layout", "C", "--rows", 64, "--cols", 12, "--direction", "st"], "16x128b.x2 16x128b.x1"),
        (["--layout", "F", "--rows", 64, "--cols", 6, "--direction", "st"], "16x64b.x2 16x64b.x1"),
        (["--layout", "A", "--rows", 128, "--cols", 8, "--shape", "16x64b", "--direction", "st"], "16x64b.x4"),
        (["--layout", "S[(128,8):(1@TLane,2@TCol)]", "--dtype", "bf16", "--direction", "ld"], "32x32b.x4"),
    ],
)
def test_plans_are_listed_as_json(tmp_path, arguments, form):
    result = call(*arguments, "--json", "--no-compile", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    value = json.loads(result.output)
    (listed,) = value["plans"].values()
    assert [plan["form"] for plan in listed] == [form]
    assert value["executed"] is None
    assert value["certificate"] is None
    assert {name.rpartition(".")[2] for name in value["files"]} == {"cu", "json", "svg"}


def test_a_certified_copy_says_so_in_json(tmp_path):
    result = call("--layout", "A", "--rows", 128, "--cols", 8, "--direction", "ld", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    value = json.loads(result.output)
    assert value["executed"]["verdict"] == "Proved"
    assert is_proved(value["certificate"])
    written = json.loads(next(tmp_path.glob("*.certificate.json")).read_text())
    assert written == value["certificate"]


def test_alternatives_and_the_producer_warning_are_shown(tmp_path):
    result = call("--layout", "D", "--rows", 128, "--cols", 4, "--direction", "ld", "--alternatives", "--producer",
        "mma", "--no-compile", "--out", tmp_path)  # fmt: skip
    assert "alternative: 16x32bx2.x4, 1 per warp" in result.output
    assert "warning: the producer is a tcgen05.mma" in result.output


def test_requests_that_cannot_be_served_raise_library_errors(tmp_path):
    for arguments in (
        ["--layout", "B"],
        ["--layout", "H", "--rows", 64, "--cols", 8],
        ["--layout", "B", "--rows", 128, "--cols", 8],
        ["--layout", "C", "--rows", 64, "--cols", 8, "--registers", "S[(4,16,8):(32@tid_in_wg,1@tid_in_wg,1)]"],
    ):
        result = call(*arguments, "--out", tmp_path)
        assert isinstance(result.exception, LayoutError), arguments
    assert not list(tmp_path.iterdir())


def cells(svg):
    """Area in cells per (warp, register), from the tooltips and the rectangles of the paths."""
    root = ElementTree.fromstring(svg)
    background = next(r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity"))
    found = {}
    for path in root.iter(f"{SVG}path"):
        words = path.find(f"{SVG}title").text.replace(",", "").split()
        runs = [run for run in path.get("d").split("z") if run]
        wide = {float(run.split("h")[1].split("v")[0]) for run in runs}
        assert len(wide) == 1
        high = sum(int(run.split("v")[1].split("h")[0]) for run in runs)
        found[int(words[1]), int(words[3])] = high // 4
        assert float(background.get("width")) % wide.pop() == 0
    return found


def test_every_cell_is_drawn_once_in_the_colour_of_its_warp_and_register():
    tmem, registers = layout_b()
    drawn = cells(tmem_map(tmem, registers, dtype="f32"))
    assert drawn == {(w, r): 32 for w in range(4) for r in range(64)}
    fragment = L("S[(4,2,8,4,4,2):(32@tid_in_wg,2,4@tid_in_wg,4,1@tid_in_wg,1)]")
    drawn = cells(tmem_map(L("S[(4,16,32):(32@TLane,1@TLane,1@TCol)]"), fragment, dtype="f32"))
    # One register of 16x256b is 8 rows of 4 columns.
    assert drawn == {(w, r): 32 for w in range(4) for r in range(16)}


def test_replicas_and_second_warpgroups_are_drawn():
    tmem, registers = L("S[(32,8):(1@TLane,1@TCol)] + R[4:32@TLane]"), L("S[(32,8):(1@laneid,1)]")
    assert cells(tmem_map(tmem, registers)) == {(0, r): 128 for r in range(8)}
    tmem, registers = L("S[(2,128,4):(4@TCol,1@TLane,1@TCol)]"), L("S[(2,128,4):(1@wgid,1@tid_in_wg,1)]")
    assert set(cells(tmem_map(tmem, registers))) == {(w, r) for w in range(8) for r in range(4)}


def test_text_pictures_name_halves_that_nobody_uses():
    tmem, registers = L("S[(4,16,8):(32@TLane,1@TLane,1@TCol)] + 16@TLane"), "S[(4,16,8):(32@tid_in_wg,1@tid_in_wg,1)]"
    lines = tmem_text(tmem, L(registers)).splitlines()
    assert lines[1:3] == ["0-15     .", "16-31    w0 r0-7"]


@pytest.mark.parametrize(
    ("tmem", "registers"),
    [("S[(128,4):(1@TLane,1@TCol)] + 1@TLane", "S[(128,4):(1@tid_in_wg,1)]"), ("S[4:1@TCol]", "S[8:1]")],
)
def test_pictures_of_what_is_not_in_tensor_memory_are_refused(tmem, registers):
    with pytest.raises(RangeError):
        tmem_map(L(tmem), L(registers))
