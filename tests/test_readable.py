"""The algebra explains itself: every public operation shows an example, every module opens with what it is about."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator

import pytest

import layoutalg.algebra
import layoutalg.hardware

PLAIN = (
    "axis", "decide", "f2", "index", "iters", "notation", "operations", "points", "subspaces", "swizzle", "swizzled",
    "swizzled_points", "symbolic", "tile",
)  # fmt: skip
MODULES = [f"layoutalg.{name}" for name in PLAIN] + [
    found.name
    for package in (layoutalg.algebra, layoutalg.hardware)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
]
#: The questions that numbers answer for the algebra; ``decide.equal`` and its neighbours show them.
PROTOCOL = {"equals", "is_at_most", "is_at_least", "quotient"}


def operations(module: types.ModuleType) -> Iterator[tuple[str, str]]:
    """Public functions and methods of a module, each with its docstring."""
    for name in module.__all__:
        found = getattr(module, name)
        if getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(found):
            yield name, found.__doc__ or ""
        elif inspect.isclass(found) and not issubclass(found, Exception):
            for method, value in vars(found).items():
                function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                if inspect.isfunction(function) and not method.startswith("_") and method not in PROTOCOL:
                    yield f"{name}.{method}", function.__doc__ or ""


def silent(module: types.ModuleType) -> list[str]:
    return [name for name, doc in operations(module) if ">>> " not in doc]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_operation_shows_an_example(name):
    module = importlib.import_module(name)
    assert silent(module) == []


@pytest.mark.parametrize("name", [name for name in MODULES if ".algebra." in name])
def test_a_module_of_the_algebra_opens_with_its_theory_and_a_worked_example(name):
    doc = importlib.import_module(name).__doc__ or ""
    assert len(doc.strip().splitlines()) >= 7
    assert any(mark in doc for mark in ("``(", "S[", "0 1", "Sw<")), "an example with numbers"


def test_an_operation_without_an_example_is_noticed():
    module = types.ModuleType("made_up")
    exec("def shown():\n    '''>>> 1'''\ndef told():\n    '''Words.'''", vars(module))
    module.__all__ = ["shown", "told"]  # type: ignore[attr-defined]
    module.shown.__module__ = module.told.__module__ = "made_up"
    assert silent(module) == ["told"]
