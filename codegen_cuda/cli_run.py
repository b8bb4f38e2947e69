"""``layoutalg run``: run a saved kernel and say whether its result is what its claim promises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codegen_cuda.errors import BuildError
from layoutalg.claim import Buffer, Claim
from verify.console import EXIT_CODES, REFUTED, emit, stages

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command ``run`` to an application."""
    app.command("run", epilog=EXIT_CODES)(run)


def run(
    paths: Annotated[list[Path], typer.Argument(help="a kernel's directory, or its .ptx and its .claim.json")],
    name: Annotated[str, typer.Option(help="which kernel, if the directory holds several")] = "",
    data: Annotated[
        list[str] | None, typer.Option(help="FILE.npy, or BUFFER=FILE.npy; elements that hold their number without it")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--set", help="a size or scalar parameter, such as M=31; may be repeated")
    ] = None,
    device: Annotated[str, typer.Option(help="'auto', 'gpu' or 'cpu' (the PTX interpreter)")] = "auto",
    out: Annotated[Path | None, typer.Option(help="write the output to this .npy file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Run a saved kernel, and compare its outputs with what its claim says.

    [dim]layoutalg run out --name permute_4x32_float32_xor --device cpu[/]
    """
    from codegen_cuda.cli_run_kernel import read_saved, run_saved

    if device not in ("auto", "cpu", "gpu"):
        raise BuildError(f"--device {device!r}: choose 'auto', 'gpu' or 'cpu' (the PTX interpreter)")
    with stages("reading", "running") as begin:
        begin()
        saved = read_saved(paths, name=name, values=_sizes(sizes or []))
        inputs = _inputs(saved.claim, data) if data else None
        begin()
        outcome = run_saved(saved, device=device, inputs=inputs)
    if out is not None:
        _write(out, saved.claim, outcome.contents)
    code = 0 if outcome.right else REFUTED
    facts = _facts(saved, outcome)
    if as_json:
        emit("run", code, **facts, outputs=[_row(o) for o in outcome.outputs], right=outcome.right)
    else:
        _report(Console(), facts, outcome)
    raise typer.Exit(code)


def _sizes(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            found[name.strip()] = int(value, 0)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise BuildError(f"--set {text!r}: write NAME=NUMBER, such as M=31")
    return found


def _inputs(claim: Claim, texts: list[str]) -> dict[str, Any]:
    """Read the files; a file without a buffer's name is for the only input."""
    from codegen_cuda.cli_run_kernel import read_array

    buffers = {p.name: p for p in claim.params if isinstance(p, Buffer) and p.role == "input"}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, path = text.rpartition("=")
        if not equals and len(buffers) == 1:
            name = next(iter(buffers))
        if name not in buffers:
            raise BuildError(f"--data {text!r}: write BUFFER=FILE.npy; the inputs are {', '.join(buffers) or 'none'}")
        found[name] = read_array(Path(path), buffers[name], claim.width)
    missing = sorted(buffers.keys() - found.keys())
    if missing:
        raise BuildError(f"no data for {', '.join(missing)}: give all inputs, or none")
    return found


def _write(path: Path, claim: Claim, contents: Any) -> None:
    """Write the only output, in its element type where numpy has it, as raw elements otherwise."""
    import numpy as np

    from layoutalg.hardware.dtypes import dtype

    if len(contents) != 1:
        raise BuildError(f"--out: the kernel has {len(contents)} outputs, and one can be written")
    ((_, array),) = contents.items()
    known = dtype(claim.dtype).numpy
    with path.open("wb") as file:
        np.save(file, array.view(known) if known else array.view(f"u{claim.width}"))


def _facts(saved: Any, outcome: Any) -> dict[str, Any]:
    claim = saved.claim
    return {
        "kernel": claim.entry,
        "device": "GPU" if outcome.device == "gpu" else "PTX interpreter",
        "grid": claim.grid,
        "block": claim.block,
        "scalars": dict(saved.scalars),
        "data": outcome.data,
        "runs": outcome.runs,
        "seconds": round(outcome.seconds, 3),
        "finding": str(outcome.finding) if outcome.finding is not None else "",
    }


def _row(output: Any) -> dict[str, Any]:
    return {
        "output": output.name,
        "elements": output.elements,
        "expected": output.expected,
        "wrong": output.wrong,
        "first": output.first,
    }


def _report(console: Console, facts: dict[str, Any], outcome: Any) -> None:
    table = Table(box=None, show_header=False, padding=(0, 1))
    for key in ("kernel", "device", "grid", "block", "scalars", "data", "runs", "seconds"):
        value = facts[key]
        if isinstance(value, dict):
            value = ", ".join(f"{name} = {number}" for name, number in value.items())
        elif isinstance(value, tuple):
            value = " x ".join(map(str, value))
        if value != "":
            table.add_row(f"[dim]{key}[/]", escape(str(value)))
    console.print(table)
    results = Table()
    for column in ("output", "elements", "expected", "wrong"):
        results.add_column(column, justify="left" if column == "output" else "right")
    for output in outcome.outputs:
        style = "bold red" if output.wrong else "green"
        results.add_row(escape(output.name), str(output.elements), str(output.expected), f"[{style}]{output.wrong}[/]")
    console.print(results)
    for output in outcome.outputs:
        if output.first:
            console.print(escape(output.first), style="bold red", highlight=False, soft_wrap=True)
    if facts["finding"]:
        console.print(escape(facts["finding"]), style="bold red", highlight=False, soft_wrap=True)
    elif outcome.right:
        console.print("every output is what the claim says", style="green", highlight=False)
