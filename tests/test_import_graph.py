"""The import graph, modules of a readable length, and packages that ship whole.

Imports are read from the syntax tree, those inside functions and those that go through ``importlib`` included, so that
nothing hides behind laziness.  The rules are data, and each is shown to refuse a module that breaks it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("layoutalg", "verify", "codegen_cuda")
LONGEST_MODULE = 500


@dataclass(frozen=True)
class Rule:
    """Modules of ``package`` never import ``forbidden``, except files of the package that match a pattern."""

    package: str
    forbidden: str
    why: str
    except_files: tuple[str, ...] = ()


RULES = (
    Rule("layoutalg", "z3", "the algebra needs no solver"),
    Rule("layoutalg", "verify", "proofs speak about the algebra, not it about them"),
    Rule("layoutalg", "codegen_cuda", "the algebra knows no kernels"),
    Rule("verify", "codegen_cuda", "a checker that borrows the generator's formulas proves nothing"),
    Rule("codegen_cuda", "z3", "only verify talks to the solver"),
    Rule(
        "codegen_cuda",
        "verify",
        "the generator proposes, its pipeline has it checked",
        ("pipeline.py", "run.py", "cli*.py"),
    ),
)

# What a module may import when it is itself imported; everything else third-party waits for first use.
AT_IMPORT_TIME = {
    "layoutalg": {"numpy"},
    "verify": {"numpy", "z3", "typer", "rich"},
    "codegen_cuda": {"numpy", "typer", "rich"},
}
LOADED_ON_FIRST_USE = {"layoutalg/symbolic.py": {"sympy"}}


def modules(root: Path) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))


def imports(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a module imports, wherever in it."""
    parents = path.relative_to(root).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(parents[: len(parents) - node.level + 1]) if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, source
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _is_import_call(node.func):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__", "find_spec"}


def breaches(root: Path) -> list[str]:
    """Every import that a rule forbids, in words."""
    found = []
    for rule in RULES:
        package = root / rule.package
        for path in sorted(package.rglob("*.py")):
            inside = path.relative_to(package).as_posix()
            if any(fnmatch(inside, pattern) for pattern in rule.except_files):
                continue
            found += [
                f"{rule.package}/{inside}:{line} imports {name}: {rule.why}"
                for line, name in imports(root, path)
                if name.split(".")[0] == rule.forbidden
            ]
    return found


def eager(root: Path) -> list[str]:
    """Third-party imports at module level that AT_IMPORT_TIME does not admit."""
    found = []
    for path in modules(root):
        inside = path.relative_to(root)
        third_party = AT_IMPORT_TIME[inside.parts[0]] | LOADED_ON_FIRST_USE.get(inside.as_posix(), set())
        admitted = third_party | set(PACKAGES) | sys.stdlib_module_names
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in _run_at_import(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            found += [
                f"{inside}:{node.lineno} imports {name} at import time"
                for name in names
                if name.split(".")[0] not in admitted
            ]
    return found


def _run_at_import(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.orelse:
                yield from _run_at_import(statement)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _run_at_import(child)


def test_there_are_modules_to_check():
    counted = {package: len(list((ROOT / package).rglob("*.py"))) for package in PACKAGES}
    assert all(counted.values()), counted


def test_no_module_imports_what_its_package_must_not_know():
    assert breaches(ROOT) == []


def test_only_the_required_dependencies_load_when_a_module_is_imported():
    assert eager(ROOT) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("layoutalg/axis.py", "import z3\n"),
        ("layoutalg/algebra/slicing.py", "def f():\n    from verify.solve import prove\n"),
        ("layoutalg/algebra/slicing.py", "import importlib\nx = importlib.import_module('codegen_cuda.emit')\n"),
        ("layoutalg/axis.py", "if TYPE_CHECKING:\n    from z3 import ArithRef\n"),
        ("verify/ptx/check.py", "class A:\n    def f(self):\n        import codegen_cuda.expr as e\n"),
        ("verify/ptx/check.py", "from codegen_cuda import expr\n"),
        ("codegen_cuda/permute/plan.py", "from verify import prove_bank_free\n"),
        ("codegen_cuda/permute/pipeline.py", "import verify\n"),
        ("codegen_cuda/pipeline.py", "import z3\n"),
        ("codegen_cuda/emit.py", "__import__('verify')\n"),
    ],
)
def test_a_forbidden_import_is_found_wherever_it_hides(tmp_path, file, text):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = breaches(tmp_path)
    assert len({message.split()[0] for message in found}) == 1, found
    assert found[0].startswith(file)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("layoutalg/verify.py", "from . import verify\nfrom .z3 import x\n"),  # relative: other modules of these names
        ("layoutalg/algebra/slicing.py", "from ..index import flatten\nimport numpy\n"),
        ("codegen_cuda/pipeline.py", "import verify\n"),
        ("codegen_cuda/cli_kernels.py", "def f():\n    import verify.ptx\n"),
        ("verify/term.py", "import z3\nimport layoutalg\n"),
    ],
)
def test_an_admitted_import_is_left_alone(tmp_path, file, text):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert breaches(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("import sympy\n", True),
        ("try:\n    import matplotlib.pyplot\nexcept ImportError:\n    pass\n", True),
        ("class A:\n    from rich import print\n", True),
        ("def f():\n    import sympy\n", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sympy\n", False),
        ("import numpy as np\nfrom .sympy import x\n", False),
    ],
)
def test_an_import_at_module_level_is_told_from_a_lazy_one(tmp_path, text, refused):
    path = tmp_path / "layoutalg" / "index.py"
    path.parent.mkdir()
    path.write_text(text)
    assert bool(eager(tmp_path)) == refused


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_passes_the_length_at_which_it_is_two(package):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_MODULE} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_modules_is_a_package_so_that_a_wheel_holds_it(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_ships_its_types(package):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in project["tool"]["setuptools"]["package-data"][package]
