"""The site: its code runs, its pictures are what the library draws, its numbers are those of the code, it builds."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from codegen_cuda.cli import app
from layoutalg.algebra.canonical import MAX_SET
from layoutalg.algebra.difference import MOST_PARTS
from layoutalg.draw.places import MOST_PLACES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WRITTEN_BY_HAND = ("index.md", "tutorial.md", "cli.md", "theory.md", "hardware.md", "platforms.md", "limits.md")
PAGES = sorted([*WRITTEN_BY_HAND, *(str(path.relative_to(DOCS)) for path in DOCS.glob("howto/*.md"))])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> str:
    """The code blocks of one language, one after another."""
    found = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return "\n\n".join(body for name, body in found if name == language)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_examples(text: str, name: str) -> tuple[int, list[str]]:
    """Number of examples, and what the failing ones printed."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL, verbose=False)
    runner.run(test, out=said.append)
    return len(test.examples), said


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("cli.md", "limits.md")])
def test_the_examples_of_a_page_do_what_it_says(page: str) -> None:
    count, said = run_examples(blocks(page, "pycon"), page)
    assert count > 0
    assert not said, "".join(said)


def test_a_wrong_example_is_noticed() -> None:
    count, said = run_examples(">>> 1 + 1\n3\n", "wrong")
    assert count == 1
    assert "Expected:\n    3\nGot:\n    2" in "".join(said)


COMMANDS = [
    (page, line) for page in PAGES for line in blocks(page, "bash").splitlines() if line.startswith("layoutalg ")
]


def test_there_are_commands_to_run() -> None:
    assert len({line.split()[1] for _, line in COMMANDS}) >= 5


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_commands_of_a_page_run(page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, shlex.split(line)[1:])
    assert result.exit_code == 0, f"{page}: {result.output}"


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_of_the_readme_do_what_its_comments_say() -> None:
    (body,) = [body for name, body in BLOCK.findall(README) if name == "python"]
    names: dict[str, Any] = {}
    checked = 0
    for line in body.splitlines():
        code, _, comment = line.partition("  #")
        if not line.startswith("frag."):
            exec(line, names)
            continue
        value = eval(code, names)
        if comment.strip().startswith("{"):
            assert value == ast.literal_eval(comment.strip())
            checked += 1
        if code.startswith("frag.draw"):
            assert f"{value}\n" == (DOCS / "pictures" / "fragment.svg").read_text(encoding="utf-8")
            checked += 1
    assert checked == 2


def test_the_readme_fits_a_screen_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 60
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_links_between_pages_lead_somewhere_and_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        text = BLOCK.sub("", (DOCS / page).read_text(encoding="utf-8"))
        links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
        assert not [link for link in links if not ((DOCS / page).parent / link).exists()], page
        assert f": {page}\n" in navigation


def test_only_known_languages_are_in_code_blocks() -> None:
    languages = {name for page in PAGES for name, _ in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))}
    assert languages <= {"pycon", "bash"}


MAKER = load(DOCS / "make_pictures.py")


@pytest.mark.parametrize("name", MAKER.PICTURES)
def test_a_picture_is_what_the_library_draws(name: str) -> None:
    kept = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == MAKER.PICTURES[name]() + "\n", "run python docs/make_pictures.py"


def test_every_picture_is_made_and_shown() -> None:
    assert {path.stem for path in (DOCS / "pictures").iterdir()} == set(MAKER.PICTURES)
    texts = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    assert all(f"pictures/{name}.svg" in texts for name in MAKER.PICTURES)


def test_the_limits_page_gives_the_limits_of_the_code() -> None:
    text = " ".join((DOCS / "limits.md").read_text(encoding="utf-8").split())
    page = (ROOT / "layoutalg" / "draw" / "explore.html").read_text(encoding="utf-8")
    assert (MOST_PARTS, MAX_SET, MOST_PLACES) == (1 << 15, 1 << 16, 1 << 18)
    assert "Over 2^15 parts" in text
    assert "sets of up to 2^16 places per axis" in text
    assert "hold at most 2^18 of them" in text
    assert "LARGEST = 1 << 16" in page
    assert "at most 2^16 elements" in text


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fences_examples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "site" / "reference" / "layouts.html").read_text(encoding="utf-8")
    assert "canonicalize" in page
    assert page.count('class="gp">&gt;&gt;&gt; <') > 50
    assert "<blockquote>" not in page
    fonts = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis" not in fonts
    reference = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site" / "reference").glob("*.html"))
    described = set(re.findall(r'id="([\w.]+)"', reference))
    assert [name for name in public_names() if name not in described] == []
    assert not (tmp_path / "site" / "make_pictures.py").exists()


def public_names() -> list[str]:
    """Where every public function and class is defined; constants and instances have no entry of their own."""
    found = []
    for package in ("layoutalg", "layoutalg.banks", "layoutalg.draw", "verify", "codegen_cuda"):
        module = importlib.import_module(package)
        values = [getattr(module, name) for name in module.__all__]
        found += [f"{v.__module__}.{v.__qualname__}" for v in values if isinstance(v, type | FunctionType)]
    assert len(found) > 60
    return found


def test_generated_pages_join_the_navigation_where_they_exist(tmp_path: Path) -> None:
    hooks = load(DOCS / "hooks.py")
    (tmp_path / "THEOREMS.md").write_text("# Theorems\n")
    config = {"docs_dir": str(tmp_path), "nav": [{"Home": "index.md"}]}
    assert hooks.on_config(config)["nav"] == [{"Home": "index.md"}, {"Theorems": "THEOREMS.md"}]
