"""Every command of the command line: help with an example that runs, one JSON document, exit codes, no traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_cuda.cli import app, main
from layoutalg.errors import UndecidedError
from verify.cli import app as verify_app
from verify.console import EXIT_CODES, run

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(r"\[dim\](.*?)\[/\]", re.DOTALL)
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)\d[;m]")


def leaves(group: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*prefix, name))
        else:
            yield (*prefix, name), command


COMMANDS = dict(leaves(typer.main.get_command(app)))
NAMES = [" ".join(words) for words in COMMANDS]


def options(command: Any) -> dict[str, Any]:
    return {text: option for option in command.params for text in option.opts if text.startswith("-")}


def example(words: tuple[str, ...]) -> list[str]:
    """The arguments of the example in a command's help."""
    found = EXAMPLE.findall(COMMANDS[words].callback.__doc__)
    assert len(found) == 1, f"the help of {words} has {len(found)} examples"
    line = shlex.split(" ".join(found[0].split()))
    return line[1:] if line[0] == "layoutalg" else ["verify", *line[3:]]


def invoke(arguments: list[str], program: Any = main) -> tuple[int, str, str]:
    """Run a command line in this process: exit code, output stream, error stream."""
    out, err, kept = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["layoutalg", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            program()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = kept
    return int(code), out.getvalue(), err.getvalue()


def documented_keys() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split("further keys")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {name.strip("`"): set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", keys))) for name, keys in rows}


def test_the_verify_commands_are_the_same_under_both_names() -> None:
    mine = {words[1:] for words in COMMANDS if words[0] == "verify"}
    assert mine == {words for words, _ in leaves(typer.main.get_command(verify_app))}


@pytest.mark.parametrize("words", COMMANDS, ids=NAMES)
def test_help_names_every_option_an_example_and_the_exit_codes(words: tuple[str, ...]) -> None:
    code, said, _ = invoke([*words, "--help"])
    assert code == 0
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", said).split())
    assert EXIT_CODES in flat
    assert "--json" in options(COMMANDS[words])
    assert example(words)[: len(words)] == list(words)
    assert all(option.help for option in COMMANDS[words].params if option.name != "help")


def test_the_overview_tells_the_exit_codes_and_the_page_lists_every_command() -> None:
    assert EXIT_CODES in " ".join(invoke(["--help"])[1].split())
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert {name for name in NAMES if f"`{name}`" not in page} == set()
    assert set(NAMES) <= set(documented_keys())
    assert invoke(["--version"])[1].startswith("layoutalg ")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the example of ``permute`` has run, whose files other examples name."""
    folder = tmp_path_factory.mktemp("commands")
    with contextlib.chdir(folder):
        code, said, _ = invoke([*example(("permute",)), "--json"])
    (folder / "permute.json").write_text(said)
    assert code == 0
    return folder


@pytest.mark.parametrize("words", COMMANDS, ids=NAMES)
def test_an_example_runs_and_with_json_prints_one_documented_document(workplace: Path, words: tuple[str, ...]) -> None:
    name = " ".join(words)
    with contextlib.chdir(workplace):
        alone = ["--jobs", "1"] if words == ("verify", "laws") else []
        code, said, err = invoke([*example(words), *alone, "--json"])
    assert (code, err) == (0, "")
    value = json.loads(said)
    assert (value["command"], value["exit_code"]) == (name, 0)
    keys = documented_keys()[f"{name} --frag" if "--frag" in example(words) else name]
    assert set(value) - {"command", "exit_code"} == keys


def test_the_other_form_of_banks_has_the_documented_keys_too() -> None:
    value = json.loads(invoke(["banks", "S[32:1]", "--json"])[1])
    assert set(value) - {"command", "exit_code"} == documented_keys()["banks"]


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["show", "S[4:1", "--json"], 2, "NotationError"),
        (["show", "S[4:1]", "--json", "--shap", "4"], 2, "UsageError"),
        (["verify", "kernel", "nowhere.ptx", "nowhere.json", "--json"], 2, "FileNotFoundError"),
        (["banks", "S[64,64]", "--frag", "S[(2,32,64):(64,1@laneid,1)]", "--dtype", "f17", "--json"], 2, "RangeError"),
    ],
)
def test_a_failure_is_one_document_as_well(arguments: list[str], code: int, kind: str) -> None:
    found, said, err = invoke(arguments)
    value = json.loads(said)
    assert (found, value["exit_code"], value["error"]["type"]) == (code, code, kind)
    assert set(value) == {"command", "exit_code", "error"}
    assert arguments[0] in value["command"]
    assert "Traceback" not in err
    assert len(err.strip()) > 10


def test_exit_codes_tell_wrong_from_undecided_and_from_a_fault_of_the_library() -> None:
    banks = ["banks", "S[64,64]", "--frag", "S[(2,32,64):(64,1@laneid,1)]", "--dtype", "f16", "--prove", "--json"]
    code, said, _ = invoke(banks)
    assert (code, json.loads(said)["proof"]["verdict"]) == (1, "Refuted")

    def undecided() -> None:
        raise UndecidedError("n > 4 is unknown")

    def faulty() -> None:
        raise KeyError("a bug")

    assert invoke([], lambda: run(undecided))[0] == 3
    code, _, err = invoke([], lambda: run(faulty))
    assert code == 4
    assert "Traceback" in err
    assert "please report" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "S[1000000000:1]"],
        ["show", "S[1000000000:1]", "--json"],
        ["banks", "S[1000000000:1]"],
        ["banks", "S[32:1]", "--frag", "S[1000000000:1@laneid]"],
        ["swizzle", "--tile", "100000x100000", "--read", "row"],
        ["draw", "S[(1000,1000):(1000,1)]", "--limit", "100000000"],
        ["permute", "S[1000000000:1]", "S[1000000000:1]", "--dtype", "f32"],
        ["tmem", "--layout", "S[1000000000:1@TCol]"],
    ],
)
def test_requests_that_would_fill_the_memory_are_refused_at_once(arguments: list[str]) -> None:
    code, _, err = invoke(arguments)
    assert code == 2
    assert re.search("too many|handles|bytes of shared memory|less than or equal", err)


LAYOUTS = [
    "S[4:1]", "S[(4,8):(8,1)]", "Sw<3,3,3> o S[64,64]", "S[(8,4):(4@laneid,1@laneid)]", "S[8:1] + 8*s[0:2]", "S[4:n]",
    "S[4:1] + R[2:4@warpid]", "S[128:1@TLane]", "S[32:1@laneid]", "S[3:-7@laneid] + -4",
]  # fmt: skip
SCRAP = [
    "", " ", "x", "-1", "0", "3x", "8x16", "4x8", "0x0", "S[4", "S[0:1]", "R[2:1]", "S[4:1@lane]", "Sw<1,1,0> o S[4:1]",
    "((((", "[", "[/dim]", "é∘", "f4", "float32", "float4_e2m1fn", "row", "column", "A", "ld", "st", "ldmatrix", "xor",
    "ld.global", "sm_90", "sm_999", "32x32b", "warp", "mma", "s,0:1", "0:4,0:8", "S", "-", "--", "nowhere/at/all", ".",
    "bank", "laneid", "plain", "pages", "9" * 25, "st S[32:1@laneid]", "ldmatrix/8 S[32:1]",
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(LAYOUTS), st.sampled_from(SCRAP), st.text("S[]():,@xo1248<>+-sR ", max_size=12))
NUMBERS = st.sampled_from(["-1", "0", "1", "2", "3", "8", "64", "65537", "x", "1.5", "", "9" * 25])
SMALL = st.sampled_from(["-1", "0", "1", "x", ""])
#: Options whose value decides how long the command runs, or that reach for another machine.
BOUNDED = {"--count": SMALL, "--jobs": st.just("1"), "--seeds": SMALL, "--dask": st.just(""),
    "--only": st.sampled_from(["index.lemma_range", "no such law"])}  # fmt: skip


@st.composite
def command_lines(draw: Any) -> list[str]:
    """A command with wrong, missing, odd and right arguments."""
    words = draw(st.sampled_from(sorted(COMMANDS)))
    line = [*words]
    for parameter in COMMANDS[words].params:
        named = [text for text in parameter.opts if text.startswith("--")]
        if not named:
            # The file that `laws --json FILE` writes takes the place of the document.
            given = words != ("verify", "laws") and draw(st.integers(0, 7))
            line += [draw(TEXTS)] if given else []
        elif named[0] in ("--only", "--jobs", "--count", "--dask") or draw(st.integers(0, 3)) == 0:
            kind = st.nothing() if getattr(parameter, "is_flag", False) else BOUNDED.get(named[0])
            number = type(parameter.default) is int
            values = kind if kind is not None else NUMBERS if number else TEXTS
            line += [named[0]] if values.is_empty else [named[0], draw(values)]
    return line if draw(st.integers(0, 9)) or "laws" in line else [*line, draw(TEXTS)]


def check_line(line: list[str], folder: Path) -> None:
    with contextlib.chdir(folder):
        code, said, err = invoke(line)
    assert code in (0, 1, 2, 3), err
    assert "Traceback" not in err + said
    assert code == 0 or err or said
    if "--json" in line and "--help" not in line:
        assert json.loads(said)["exit_code"] == code


@settings(max_examples=40)
@given(command_lines())
def test_no_arguments_end_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, line: list[str]) -> None:
    check_line(line, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@settings(max_examples=500)
@given(command_lines())
def test_no_arguments_end_in_a_traceback_in_a_longer_search(
    tmp_path_factory: pytest.TempPathFactory, line: list[str]
) -> None:
    check_line(line, tmp_path_factory.getbasetemp())


def test_no_color_is_respected_and_pipes_get_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    banks = ["banks", "S[64,64]", "--frag", "S[(2,32,64):(64,1@laneid,1)]", "--dtype", "f16"]
    for line in (["show", "S[4:1"], banks):
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        assert "\x1b" not in "".join(invoke(line)[1:])
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert COLOUR.search("".join(invoke(line)[1:]))
        monkeypatch.setenv("NO_COLOR", "1")
        assert not COLOUR.search("".join(invoke(line)[1:]))


@pytest.mark.slow
def test_the_shell_completes_commands_and_options() -> None:
    asked = {"_LAYOUTALG_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    script = "import sys; sys.argv[0] = 'layoutalg'; from codegen_cuda.cli import app; app(prog_name='layoutalg')"
    for words, at, answer in (("layoutalg ba", "1", "banks"), ("layoutalg banks --pro", "2", "--prove")):
        environment = {**os.environ, **asked, "COMP_WORDS": words, "COMP_CWORD": at}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert done.stdout.split() == [answer], done.stderr


@pytest.mark.slow
def test_a_terminal_sees_a_bar_on_the_error_stream_only(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "codegen_cuda.cli", *example(("permute",)), "--json"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, cwd=tmp_path, env=environment) as child:
        os.close(follower)
        assert child.stdout is not None
        said = child.stdout.read().decode()
    shown = b""
    with contextlib.suppress(OSError):  # a terminal whose other end is closed
        while part := os.read(leader, 65536):
            shown += part
    os.close(leader)
    assert json.loads(said)["exit_code"] == 0
    assert b"proving the plan" in shown
    assert b"2/3" in shown
