"""``layoutalg tmem``: plan, show and write a tensor-memory copy from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from codegen_cuda.cli_limits import require_elements
from codegen_cuda.errors import PlanError
from verify.console import EXIT_CODES, emit, exit_code, stages

if TYPE_CHECKING:
    from codegen_cuda.kernel import Kernel
    from codegen_cuda.tmem import TmemPlan
    from layoutalg.tile import TileLayout

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command ``tmem`` to an application."""
    app.command("tmem", epilog=EXIT_CODES)(tmem)


def tmem(
    layout: Annotated[str, typer.Option(help="datapath letter A to G, or a layout over TLane and TCol")],
    rows: Annotated[int, typer.Option(help="rows of the tile")] = 0,
    cols: Annotated[int, typer.Option(help="columns of the tile, in elements")] = 0,
    dtype: Annotated[str, typer.Option(help="element type, such as f32 or bf16")] = "f32",
    sub_slab: Annotated[int, typer.Option(help="which 16 lanes of every 32, for datapaths C and F")] = 0,
    registers: Annotated[str, typer.Option(help="register layout; the natural one of --shape without it")] = "",
    shape: Annotated[str, typer.Option(help="tcgen05 shape, such as 16x256b; chosen by the lanes in use")] = "",
    direction: Annotated[str, typer.Option(help="'roundtrip', 'ld' or 'st'")] = "roundtrip",
    scope: Annotated[str, typer.Option(help="'warp', 'warpgroup' or 'cta'")] = "warpgroup",
    warp: Annotated[int, typer.Option(help="the warp that is selected for scope 'warp'")] = 0,
    alternatives: Annotated[bool, typer.Option("--alternatives", help="list other plans, too")] = False,
    producer: Annotated[str, typer.Option(help="'mma' or 'cp' if such an instruction wrote what is loaded")] = "",
    out: Annotated[Path, typer.Option(help="directory for the files")] = Path("out"),
    arch: Annotated[str, typer.Option(help="target, such as sm_100a or sm_103a")] = "sm_100a",
    no_compile: Annotated[bool, typer.Option("--no-compile", help="write the source and the picture only")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="compile, but do not check and execute the PTX")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a report")] = False,
) -> None:
    """Plan a copy between tensor memory and registers, show it, and write a certified kernel.

    [dim]layoutalg tmem --layout B --rows 64 --cols 128 --dtype f32[/]
    """
    from codegen_cuda.tmem import register_layout_for, tmem_plans
    from layoutalg.tile import TileLayout

    memory, extents = _memory(layout, rows, cols, sub_slab)
    require_elements("layout", memory)
    chosen = shape or _shape_for(memory)
    held = TileLayout.parse(registers) if registers else register_layout_for(memory, extents, dtype, chosen)
    options: dict[str, Any] = {"scope": scope, "warp": warp, "instructions": [shape] if shape else None}
    wanted = ("st", "ld") if direction == "roundtrip" else (direction,)
    with stages("planning", "compiling", "proving the plan, checking the PTX") as begin:
        begin()
        found = {
            d: tmem_plans(
                memory, held, extents, dtype, direction=d, alternatives=alternatives,
                producer=producer if producer and d == "ld" else None, **options,
            )
            for d in wanted
        }  # fmt: skip
        plans = {d: listed[0] for d, listed in found.items()}
        kernel = _kernel(plans, arch)
        begin()
        if not no_compile:
            kernel = kernel.compile(arch=arch)
        begin()
        if not no_compile and not no_run:
            kernel = kernel.certify()
        files = [*kernel.save(out), _write_picture(out, kernel.name, memory, held, dtype)]
    code = exit_code(row["verdict"] for row in (kernel.certificate or {}).get("obligations", ()))
    if as_json:
        emit("tmem", code, **_json(found, files, kernel.certificate))
    else:
        _report(Console(), (memory, held, dtype), found, kernel, files)
    raise typer.Exit(code)


def _memory(layout: str, rows: int, cols: int, sub_slab: int) -> tuple[TileLayout, tuple[int, ...] | None]:
    from layoutalg.hardware.tmem import tmem_datapath_layout
    from layoutalg.tile import TileLayout

    if len(layout) > 1:
        return TileLayout.parse(layout), (rows, cols) if rows and cols else None
    if not rows or not cols:
        raise PlanError(f"tmem: datapath {layout} needs --rows and --cols")
    return tmem_datapath_layout(layout, rows, cols, sub_slab), (rows, cols)


def _shape_for(memory: TileLayout) -> str:
    """32x32b where whole slabs are in use, else the 16-row shape that suits matrix fragments."""
    from codegen_cuda.tmem.natural import whole_slabs
    from layoutalg.hardware.tcgen05 import SHAPES

    if whole_slabs(memory):
        return "32x32b"
    columns = int(memory.table()["TCol"].max()) + 1
    # The widest shape whose pitch divides the columns needs the fewest registers per row of a fragment.
    return next(
        name for name in ("16x256b", "16x128b", "16x64b") if columns % SHAPES[name].pitch == 0 or name == "16x64b"
    )


def _kernel(plans: dict[str, TmemPlan], arch: str) -> Kernel:
    from dataclasses import replace

    from codegen_cuda.tmem import global_to_tmem, roundtrip_of, tmem_to_global

    if len(plans) == 2:
        kernel = roundtrip_of(plans["st"], plans["ld"])
    else:
        ((direction, plan),) = plans.items()
        kernel = global_to_tmem(plan) if direction == "st" else tmem_to_global(plan)
    return replace(kernel, arch=arch)


def _write_picture(out: Path, name: str, memory: TileLayout, held: TileLayout, dtype: str) -> Path:
    from layoutalg.draw.tmem import tmem_map

    path = out / f"{name}.svg"
    path.write_text(tmem_map(memory, held, dtype=dtype, title=name))
    return path


def _json(
    found: dict[str, tuple[TmemPlan, ...]], files: list[Path], certificate: Mapping[str, Any] | None
) -> dict[str, Any]:
    from verify.tmem import EXECUTED

    plans = {
        direction: [
            {
                "form": plan.form,
                "instructions": [str(t) for t in plan.transfers],
                "registers": plan.registers,
                "columns": plan.columns,
                "allocation": plan.allocation,
                "warnings": list(plan.warnings),
            }
            for plan in listed
        ]
        for direction, listed in found.items()
    }
    rows = (certificate or {}).get("obligations", ())
    executed = next(({k: v for k, v in row.items() if k != "name"} for row in rows if row["name"] == EXECUTED), None)
    return {"plans": plans, "files": files, "certificate": certificate, "executed": executed}


def _report(
    console: Console,
    asked: tuple[TileLayout, TileLayout, str],
    found: dict[str, tuple[TmemPlan, ...]],
    kernel: Kernel,
    files: list[Path],
) -> None:
    from codegen_cuda.report import print_proofs
    from layoutalg.draw.tmem import tmem_text

    def say(text: str, style: str = "") -> None:
        console.print(escape(text), style=style or None, highlight=False, soft_wrap=True)

    memory, held, dtype = asked
    say(f"tensor memory  {memory}", "bold")
    say(f"registers      {held}", "bold")
    for listed in found.values():
        say(listed[0].describe())
        for other in listed[1:]:
            say(f"  alternative: {other.form}, {other.instructions} per warp", "dim")
    say(tmem_text(memory, held, dtype=dtype))
    print_proofs(console, kernel)
    for path in files:
        say(f"wrote {path}", "dim")
