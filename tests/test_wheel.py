"""The wheel: what is in it, and that the README's main job runs where nothing else is installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("layoutalg", "verify", "codegen_cuda")
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the checkout; its output, or a failure that shows it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A copy of the sources, so that the checkout stays as it is, and the wheel made of it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, source, cwd=source)
    (found,) = out.glob("*.whl")
    return source, found


def test_the_wheel_holds_every_module_the_type_markers_and_the_page_and_nothing_else(built: tuple[Path, Path]) -> None:
    source, wheel = built
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(source)) for package in PACKAGES for path in (source / package).rglob("*.py")}
    data = {*(f"{package}/py.typed" for package in PACKAGES), "layoutalg/draw/explore.html"}
    assert names == modules | data
    assert not any("test" in Path(name).stem.split("_") for name in names)
    licences = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("LICENSE")]
    assert len(licences) == 1


def readme_line() -> tuple[list[str], list[str]]:
    """The main job of the README: what pip installs, and the command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("pip install") and "layoutalg permute" in line]
    install, _, job = line.partition(" && ")
    return shlex.split(install), shlex.split(job)


def test_the_main_job_runs_from_the_wheel_in_a_clean_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    install, job = readme_line()
    assert install[:-1] == ["pip", "install", "-e"]
    extra = install[-1].removeprefix(".")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{built[1]}{extra}", cwd=tmp_path)
    where = run(python, "-c", "import layoutalg, verify, codegen_cuda; print(layoutalg.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert "--run" in job
    said = run(tmp_path / "venv" / "bin" / job[0], *job[1:], cwd=tmp_path)
    assert "output equals numpy" in said
    assert "Refuted" not in said
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".cu", ".ptx", ".cubin", ".json"}
    run(tmp_path / "venv" / "bin" / "layoutalg", "explore", "--out", "page.html", cwd=tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert run(tmp_path / "venv" / "bin" / "layoutalg", "--version", cwd=tmp_path).startswith("layoutalg ")
