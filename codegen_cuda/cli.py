"""The ``layoutalg`` command.

Exit codes: 0 success; 1 something that was checked is wrong; 2 the request or its files are wrong (one readable
message, never a traceback); 3 something could not be decided; 4 the library itself failed.
"""

from __future__ import annotations

import importlib.metadata
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codegen_cuda import cli_banks, cli_draw, cli_run, cli_tmem
from codegen_cuda.cli_limits import require_elements
from layoutalg.errors import LayoutError
from layoutalg.notation import parse_shape
from layoutalg.swizzled import parse_layout
from layoutalg.tile import TileLayout
from verify.cli import register as register_verify
from verify.console import EXIT_CODES, REFUTED, emit, exit_code, run, stages

__all__ = ["app", "main"]

app = typer.Typer(
    name="layoutalg",
    help="Say where every element lives, compute with that, prove it, and get checked CUDA.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
cli_banks.register(app)
cli_tmem.register(app)
register_verify(app)
cli_draw.register(app)
cli_run.register(app)

_SHOWN = 4096  # elements that `show` prints as a grid
_LISTED = 1 << 20  # elements that `show --json` lists


def main() -> None:
    """Run the command line; see :func:`verify.console.run`."""
    run(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"layoutalg {importlib.metadata.version('layoutalg')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Nothing beyond the options that every command shares."""


@app.command(epilog=EXIT_CODES)
def show(
    layout: Annotated[str, typer.Argument(help="the notation, such as 'S[(8,4):(4@laneid,1@laneid)]'")],
    shape: Annotated[str, typer.Option(help="logical extents, such as 8x16; the layout's own without it")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Print where a layout puts every element.

    [dim]layoutalg show "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + 5@warpid" --shape 8x16[/]
    """
    parsed = parse_layout(layout)
    plain = parsed if isinstance(parsed, TileLayout) else parsed.inner
    if parsed.params or not isinstance(parsed.size, int):
        raise LayoutError(f"{parsed} has parameters or symbols; substitute numbers to print a map")
    limit = _LISTED if as_json else _SHOWN
    if parsed.size > limit:
        instead = "" if as_json else f", or --json (limit {_LISTED})"
        raise LayoutError(f"{parsed.size} elements are too many to list (limit {limit}): slice it{instead}")
    extents = parse_shape(shape) if shape else tuple(it.extent for it in plain.shard) or (1,)
    tables, canonical = parsed.table(extents), parsed.canonicalize()
    replicas = [str(it) for it in plain.replica]
    if as_json:
        emit(
            "show", 0, layout=parsed, shape=extents, size=parsed.size, canonical=canonical, replicas=replicas,
            axes={axis: table.tolist() for axis, table in tables.items()},
        )  # fmt: skip
        return
    console = Console()
    console.print(f"[bold]{escape(str(parsed))}[/]", highlight=False)
    facts = [f"shape {'x'.join(map(str, extents))}", f"{parsed.size} elements"]
    if canonical != parsed:
        facts.append(f"canonical {canonical}")
    console.print(escape(", ".join(facts)), highlight=False)
    if replicas:
        console.print(escape(f"every element has further places: replicas {', '.join(replicas)}"), highlight=False)
    _print_grid(console, extents, tables)


def _print_grid(console: Console, extents: tuple[int, ...], tables: dict[str, Any]) -> None:
    """Print one row per line of the last dimension; a cell lists the coordinate on every axis."""
    names = list(tables)
    console.print(f"each cell: {' '.join(names)}", style="dim", highlight=False)
    columns = extents[-1]
    rows = [table.reshape(-1, columns) for table in tables.values()]
    grid = Table(box=None, padding=(0, 1), header_style="dim")
    grid.add_column("", style="dim")
    for column in range(columns):
        grid.add_column(str(column), justify="right")
    for row in range(rows[0].shape[0] if rows else 1):
        cells = [" ".join(str(int(table[row, column])) for table in rows) for column in range(columns)]
        grid.add_row(_row_label(row, extents[:-1]), *cells)
    # A grid wider than the terminal is scrolled, not folded into something unreadable.
    wide = Console(width=max(console.width, 8 + columns * 24))
    wide.print(grid, soft_wrap=True)


def _row_label(row: int, outer: tuple[int, ...]) -> str:
    digits: list[str] = []
    for extent in reversed(outer):
        digits.append(str(row % extent))
        row //= extent
    return ",".join(reversed(digits))


@app.command(epilog=EXIT_CODES)
def permute(
    src: Annotated[str, typer.Argument(help="source layout, such as 'S[(2,1,4,32):(128,128,32,1)]'")],
    dst: Annotated[str, typer.Argument(help="destination layout")],
    dtype: Annotated[str, typer.Option(help="element type, such as float32 or bf16")],
    shape: Annotated[str, typer.Option(help="logical extents, such as 4x32; each layout's own without it")] = "",
    region: Annotated[str, typer.Option(help="box of the shape, such as 's,0:1,0:4,0:32'; a name is a stage")] = "",
    plan: Annotated[str, typer.Option(help="'auto', 'fastest', or a form such as 'xor'")] = "auto",
    max_registers: Annotated[int, typer.Option(help="32-bit registers per lane that may hold elements")] = 128,
    out: Annotated[Path, typer.Option(help="directory for the files")] = Path("out"),
    arch: Annotated[str, typer.Option(help="target, such as sm_90, sm_90a, sm_100a")] = "sm_90",
    run_it: Annotated[
        bool, typer.Option("--run", help="run it (GPU, or the interpreter) and compare with numpy")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a report")] = False,
) -> None:
    """Plan, prove, emit and compile a permute inside shared memory.

    [dim]layoutalg permute "S[(2,1,4,32):(128,128,32,1)]" "S[(2,1,4,32):(128,128,1,4)]" --dtype float32
    --region "s,0:1,0:4,0:32" --plan xor[/]
    """
    from codegen_cuda.permute import permute_layout
    from codegen_cuda.report import print_report

    started = time.monotonic()
    source, destination = parse_layout(src), parse_layout(dst)
    require_elements("source", source)
    require_elements("destination", destination)
    steps = ("planning", "compiling", "proving the plan, checking the PTX", "running")
    with stages(*steps if run_it else steps[:3]) as begin:
        begin()
        kernel = permute_layout(
            source,
            destination,
            shape=parse_shape(shape) if shape else None,
            region=region or None,
            dtype=dtype,
            plan=plan,
            max_registers=max_registers,
        )
        begin()
        kernel = kernel.compile(arch=arch)
        begin()
        kernel = kernel.certify()
        files = kernel.save(out)
        ran = None
        if run_it:
            begin()
            ran = _run_and_compare(kernel)
    assert kernel.certificate is not None
    wrong = ran is not None and not ran["equals_numpy"]
    code = REFUTED if wrong else exit_code(row["verdict"] for row in kernel.certificate["obligations"])
    if as_json:
        emit(
            "permute",
            code,
            kernel=kernel.name,
            plan=_plan(kernel),
            certificate=kernel.certificate,
            files=files,
            run=ran,
        )
    else:
        print_report(Console(), kernel, files, ran=_told(ran), seconds=time.monotonic() - started)
    raise typer.Exit(code)


def _plan(kernel: Any) -> dict[str, Any]:
    """The plan's form, what its phases cost per stage in a profiler's units, and the registers it needs."""
    plan = kernel.plan
    phases = {
        name: {"op": p.op, "instructions": p.instructions, "wavefronts": p.wavefronts, "excess": p.excess}
        for name, p in (("read", plan.read), ("write", plan.write))
    }
    return {"form": plan.form, "registers": plan.registers, **phases}


def _told(ran: dict[str, Any] | None) -> str:
    if ran is None:
        return ""
    where = "on the GPU" if ran["on"] == "gpu" else "in the PTX interpreter (no GPU here)"
    if ran["equals_numpy"]:
        return f"ran {where}: output equals numpy"
    return f"WRONG: ran {where}, output differs from numpy"


def _run_and_compare(kernel: Any) -> dict[str, Any]:
    """Run on random data; say where it ran and whether the result is numpy's."""
    import numpy as np

    from codegen_cuda.launch import gpu_available
    from codegen_cuda.run import expected_output, run_kernel

    buffer = kernel.claim.buffer("src")
    width = kernel.claim.width
    data = np.random.default_rng(0).integers(0, 256, buffer.count * width, dtype=np.uint8).view(f"V{width}")
    result = run_kernel(kernel, data, uncertified=True)
    right = bool((result == expected_output(kernel.claim, data)).all())
    return {"on": "gpu" if gpu_available() else "interpreter", "equals_numpy": right}


if __name__ == "__main__":
    main()
