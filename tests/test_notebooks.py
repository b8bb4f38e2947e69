"""Notebooks run from clean, top to bottom, in a kernel of their own, and are kept without outputs."""

from __future__ import annotations

import ast
import json
import resource
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("01_layouts", "02_proofs", "03_permute_kernels", "04_tensor_memory")
SECONDS = 120  # for all of them together


def read(name: str) -> dict[str, Any]:
    book: dict[str, Any] = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    return book


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in read(name)["cells"] if cell["cell_type"] == "code"]


def test_every_notebook_is_listed() -> None:
    assert tuple(sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stripped(name: str) -> None:
    cells = [cell for cell in read(name)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_explains_itself_and_calls_the_library(name: str) -> None:
    cells = read(name)["cells"]
    prose = sum(cell["cell_type"] == "markdown" for cell in cells)
    assert prose >= 4
    assert prose / len(cells) > 0.3
    defined = [node for text in code(name) for node in ast.walk(ast.parse(text))]
    assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda) for node in defined)
    assert any(isinstance(node, ast.Assert) for node in defined)


def execute(book: Any) -> Any:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.reads(json.dumps(book), as_version=4)
    place = {"metadata": {"path": str(ROOT / "notebooks")}}
    return NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place).execute()


def children_seconds() -> float:
    """Processor time of every process that was started here and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.filterwarnings("default:::zmq", "default:::jupyter_client", "default:::nbclient")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_clean(name: str) -> None:
    before = children_seconds()
    done = execute(read(name))
    # Of the processor, so that a busy machine is no reason to fail.
    assert children_seconds() - before < SECONDS / len(NAMES)
    cells = [cell for cell in done.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    if name != "02_proofs":
        pictures = sum("image/svg+xml" in output.get("data", {}) for output in outputs)
        assert pictures >= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("default:::zmq", "default:::jupyter_client", "default:::nbclient")
def test_a_notebook_with_a_false_assertion_fails() -> None:
    from nbclient.exceptions import CellExecutionError

    book = read("01_layouts")
    book["cells"] = [{**book["cells"][1], "source": "assert 1 + 1 == 3"}]
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(book)
