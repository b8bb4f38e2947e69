"""The ``layoutalg`` command.

Exit codes: 0 success; 1 something that was checked is wrong; 2 the request or its files are wrong (one readable
message, never a traceback); 3 something could not be decided.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codegen_cuda import cli_banks, cli_draw, cli_tmem
from layoutalg.errors import LayoutError
from layoutalg.notation import parse_shape
from layoutalg.swizzled import parse_layout
from layoutalg.tile import TileLayout
from verify.cli import register as register_verify

__all__ = ["app", "main"]

app = typer.Typer(
    name="layoutalg",
    help="Say where every element lives, compute with that, prove it, and get checked CUDA.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
cli_banks.register(app)
cli_tmem.register(app)
register_verify(app)
cli_draw.register(app)

_SHOWN = 4096  # elements that `show` prints as a grid


def main() -> None:
    """Run the command line; every expected failure is one message and exit code 2."""
    try:
        app()
    except (LayoutError, OSError, ValueError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


@app.command()
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
    extents = parse_shape(shape) if shape else tuple(it.extent for it in plain.shard) or (1,)
    tables = parsed.table(extents)
    if as_json:
        print(json.dumps({"layout": str(parsed), "shape": extents, "axes": {a: t.tolist() for a, t in tables.items()}}))
        return
    console = Console()
    console.print(f"[bold]{escape(str(parsed))}[/]", highlight=False)
    canonical = parsed.canonicalize()
    facts = [f"shape {'x'.join(map(str, extents))}", f"{parsed.size} elements"]
    if canonical != parsed:
        facts.append(f"canonical {canonical}")
    console.print(escape(", ".join(facts)), highlight=False)
    if plain.replica:
        console.print(escape(f"every element has further places: replicas {', '.join(map(str, plain.replica))}"))
    if parsed.size > _SHOWN:
        raise LayoutError(f"{parsed.size} elements are too many for a table (limit {_SHOWN}); slice it, or use --json")
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


@app.command()
def permute(
    src: Annotated[str, typer.Argument(help="source layout, such as 'S[(2,1,4,32):(128,128,32,1)]'")],
    dst: Annotated[str, typer.Argument(help="destination layout")],
    dtype: Annotated[str, typer.Option(help="element type, such as float32 or bf16")],
    shape: Annotated[str, typer.Option(help="logical extents, such as 4x32; each layout's own without it")] = "",
    region: Annotated[str, typer.Option(help="box of the shape, such as 's,0:1,0:4,0:32'; a name is a stage")] = "",
    plan: Annotated[str, typer.Option(help="'auto' or a form, such as 'xor'")] = "auto",
    max_registers: Annotated[int, typer.Option(help="32-bit registers per lane that may hold elements")] = 128,
    out: Annotated[Path, typer.Option(help="directory for the files")] = Path("out"),
    arch: Annotated[str, typer.Option(help="target, such as sm_90, sm_90a, sm_100a")] = "sm_90",
    run: Annotated[bool, typer.Option("--run", help="run it (GPU, or the interpreter) and compare with numpy")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the certificate as JSON instead of a report")] = False,
) -> None:
    """Plan, prove, emit and compile a permute inside shared memory.

    [dim]layoutalg permute "S[(2,1,4,32):(128,128,32,1)]" "S[(2,1,4,32):(128,128,1,4)]" --dtype float32
    --region "s,0:1,0:4,0:32" --plan xor[/]
    """
    from codegen_cuda.permute import permute_layout
    from codegen_cuda.report import print_report

    progress = Console(stderr=True)
    started = time.monotonic()
    with progress.status("planning") as status:
        kernel = permute_layout(
            parse_layout(src),
            parse_layout(dst),
            shape=parse_shape(shape) if shape else None,
            region=region or None,
            dtype=dtype,
            plan=plan,
            max_registers=max_registers,
        )
        status.update(f"compiling {kernel.name} for {arch}")
        kernel = kernel.compile(arch=arch)
        status.update("proving the plan and checking the PTX")
        kernel = kernel.certify()
        files = kernel.save(out)
        ran = ""
        if run:
            status.update("running")
            ran = _run_and_compare(kernel)
    assert kernel.certificate is not None
    if as_json:
        print(json.dumps({"certificate": kernel.certificate, "files": [str(f) for f in files], "run": ran}, indent=2))
    else:
        print_report(Console(), kernel, files, ran=ran, seconds=time.monotonic() - started)
    raise typer.Exit(_exit_code(kernel.certificate, ran))


def _exit_code(certificate: Any, ran: str) -> int:
    verdicts = {row["verdict"] for row in certificate["obligations"]}
    if "Refuted" in verdicts or ran.startswith("WRONG"):
        return 1
    return 3 if "Unknown" in verdicts else 0


def _run_and_compare(kernel: Any) -> str:
    """Run on random data; say where it ran and whether the result is numpy's."""
    import numpy as np

    from codegen_cuda.launch import gpu_available
    from codegen_cuda.run import expected_output, run_kernel

    buffer = kernel.claim.buffer("src")
    width = kernel.claim.width
    data = np.random.default_rng(0).integers(0, 256, buffer.count * width, dtype=np.uint8).view(f"V{width}")
    result = run_kernel(kernel, data, uncertified=True)
    where = "on the GPU" if gpu_available() else "in the PTX interpreter (no GPU here)"
    right = bool((result == expected_output(kernel.claim, data)).all())
    return f"ran {where}: output equals numpy" if right else f"WRONG: ran {where}, output differs from numpy"


if __name__ == "__main__":
    main()
