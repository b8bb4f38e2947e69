"""The rule about skips can fail: a false reason is refused in CI, a true one passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import false_skip, is_installed

CONFTEST = Path(__file__).with_name("conftest.py")

MODULES = {
    "test_false.py": "import pytest\ndef test_a():\n    pytest.skip('numpy not installed')\n",
    "test_false_module.py": "import pytest\npytest.skip('numpy is not installed', allow_module_level=True)\n",
    "test_true.py": "import pytest\ndef test_a():\n    pytest.skip('no_such_package not installed')\n",
    "test_other.py": "import pytest\ndef test_a():\n    pytest.skip('there is no GPU')\n",
    "test_expected.py": "import pytest\n@pytest.mark.xfail(reason='numpy not installed')\ndef test_a(): assert 0\n",
}


def outcome(folder: Path, *, ci: bool) -> str:
    """What pytest says about MODULES, in a process of its own under our conftest."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    for name, body in MODULES.items():
        (folder / name).write_text(body)
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    flags = ["-q", "-rA", "--continue-on-collection-errors", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *flags, str(folder)]
    environment = kept | ({"CI": "1"} if ci else {})
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def test_ci_fails_a_skip_that_calls_an_installed_package_missing_and_no_other(tmp_path):
    said = outcome(tmp_path, ci=True)
    assert "FAILED test_false.py::test_a - skipped with 'Skipped: numpy not installed', but numpy is installed" in said
    assert "ERROR test_false_module.py" in said
    assert "1 failed, 2 skipped, 1 xfailed, 1 error" in said


def test_outside_ci_a_skip_is_a_skip(tmp_path):
    assert "4 skipped, 1 xfailed" in outcome(tmp_path, ci=False)


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("Skipped: numpy not installed", "numpy"),
        ("Skipped: could not import 'numpy': No module named 'numpy'", "numpy"),
        ("pytest-xdist is not installed", "pytest-xdist"),
        ("could not import 'no_such_package': No module named 'no_such_package'", ""),
        ("there is no GPU", ""),
    ],
)
def test_reasons_are_read_by_distribution_and_by_module_name(reason, name):
    assert false_skip(reason) == name


def test_a_submodule_of_a_missing_package_is_missing():
    assert not is_installed("no_such_package.inside")
