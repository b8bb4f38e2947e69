"""What holds for every test: hypothesis settings, and skips that must be true."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings

IN_CI = bool(os.environ.get("CI"))

# No deadline: a machine that is busy with something else is not a fault of the code under test.
settings.register_profile("default", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("ci" if IN_CI else "default")

_CLAIMS = (
    re.compile(r"(?P<name>[\w.-]+) (?:is )?not installed"),
    re.compile(r"could not import '(?P<name>[\w.]+)'"),  # pytest.importorskip
)


def false_skip(reason: str) -> str:
    """Name of the package that ``reason`` calls missing although it is installed, ``""`` if it speaks the truth."""
    for claim in _CLAIMS:
        for found in claim.finditer(reason):
            if is_installed(found["name"]):
                return found["name"]
    return ""


def is_installed(name: str) -> bool:
    """Whether ``name`` is an installed distribution, a module that can be found, or a program in the path."""
    if shutil.which(name) is not None:
        return True
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        try:
            return importlib.util.find_spec(name.replace("-", "_")) is not None
        except (ImportError, ValueError):
            return False
    return True


def _refuse_false_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if name := false_skip(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped with {reason!r}, but {name} is installed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _refuse_false_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _refuse_false_skip(report)
    return report
