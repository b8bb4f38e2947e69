"""``layoutalg banks`` and ``layoutalg swizzle``: what an access costs, and which storage makes it cheap."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codegen_cuda.cli_limits import require_elements, require_fits_shared
from layoutalg.axis import laneid
from layoutalg.banks import (
    FragmentReport,
    SwizzleSearch,
    TileAccess,
    shared_report,
    simulate,
    suggest_swizzle,
    warp_access,
)
from layoutalg.errors import LayoutError, RangeError
from layoutalg.hardware.dtypes import dtype
from layoutalg.notation import S, parse_shape
from layoutalg.swizzled import parse_layout
from layoutalg.tile import TileLayout
from verify.console import EXIT_CODES, counting, emit, exit_code

__all__ = ["register"]

_OPS = {"ld": "ld.shared", "st": "st.shared"}
_LANES, _VECTOR_BYTES = 32, 16
_SHOWN = 24  # instructions that `banks` lists


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command(epilog=EXIT_CODES)(banks)
    app.command(epilog=EXIT_CODES)(swizzle)


def banks(
    layout: Annotated[str, typer.Argument(help="where elements are stored, such as 'Sw<3,3,3> o S[64,64]'")],
    fragment: Annotated[
        str,
        typer.Option("--frag", help="who holds them, such as 'S[(2,32,64):(64,1@laneid,1)]'; lane by lane without it"),
    ] = "",
    dtype_name: Annotated[str, typer.Option("--dtype", help="element type, such as float32 or bf16")] = "float32",
    op: Annotated[str, typer.Option(help="ld (shared) st ldmatrix stmatrix ld.global st.global")] = "ld",
    vector: Annotated[int, typer.Option(help="elements per lane and instruction; the widest legal without it")] = 0,
    base: Annotated[int, typer.Option(help="byte address of element offset 0")] = 0,
    machine: Annotated[str, typer.Option(help="compute capability; only sm_90 was measured")] = "sm_90",
    prove: Annotated[bool, typer.Option("--prove", help="prove freedom from conflicts for every base address")] = False,
    svg: Annotated[Path | None, typer.Option(help="write a picture")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Price the transfer between a tile and a fragment, in a profiler's units.

    [dim]layoutalg banks "Sw<3,3,3> o S[64,64]" --frag "S[(2,32,64):(64,1@laneid,1)]" --dtype f16 --op ld[/]
    """
    op = _OPS.get(op, op)
    tile = parse_layout(layout)
    require_elements("layout", tile)
    if not fragment:
        if prove:
            raise LayoutError("--prove speaks about a fragment: give one, such as 'S[32:1@laneid]'")
        access = warp_access(tile, dtype_name, op=op, vector=vector or 1, base=base)
        one = simulate(access, machine=machine)
        if svg is not None:
            _write_picture(svg, one._repr_svg_())
        if as_json:
            emit("banks", 0, **_access_json(one))
        else:
            print(one)
        return
    holder = TileLayout.parse(fragment)
    require_elements("fragment", holder)
    report = shared_report(tile, holder, dtype_name, op=op, vector=vector or None, base=base, machine=machine)
    verdict = _prove(tile, holder, dtype_name, op=op, vector=vector or None, machine=machine) if prove else None
    if svg is not None:
        _write_picture(svg, report._repr_svg_())
    code = 0 if verdict is None else exit_code([type(verdict).__name__])
    if as_json:
        emit("banks", code, **_report_json(report, verdict))
    else:
        _print_report(Console(), report, verdict)
    raise typer.Exit(code)


def _prove(tile: Any, holder: TileLayout, dtype: str, **options: Any) -> Any:
    from verify.banks import prove_bank_free

    with counting("proving"):
        return prove_bank_free(tile, holder, dtype, **options)


def _write_picture(path: Path, picture: str | None) -> None:
    if picture is None:
        raise RangeError("there is no picture of global memory, nor of over 256 instructions")
    path.write_text(picture)


def _print_report(console: Console, report: FragmentReport, verdict: Any) -> None:
    console.print(f"[bold]{escape(str(report).splitlines()[0])}[/]", highlight=False)
    grid = Table(box=None, padding=(0, 2), header_style="dim")
    unit = "sectors" if report.op.endswith("global") else "wavefronts"
    for heading in ("warp", "slots", unit, "ideal", "excess", "degree"):
        grid.add_column(heading, justify="right")
    for one in report.instructions[:_SHOWN]:
        slots = f"{one.registers[0]}..{one.registers[-1]}" if len(one.registers) > 1 else str(one.registers[0])
        style = "yellow" if one.excess else ""
        grid.add_row(str(one.warp), slots, *map(str, (one.cost, one.ideal, one.excess, one.degree)), style=style)
    console.print(grid)
    if len(report) > _SHOWN:
        console.print(f"and {len(report) - _SHOWN} more instructions", style="dim")
    if report.excess:
        worst = max(report.instructions, key=lambda one: one.excess)
        for line in str(worst.report).splitlines()[1:]:
            console.print(escape(f"worst: {line.strip()}"), highlight=False, soft_wrap=True)
    if verdict is not None:
        console.print(escape(f"{verdict}"), style="green" if verdict.ok else "bold red", highlight=False)
        console.print(escape(f"scope: {verdict.scope}"), style="dim", highlight=False)


def _access_json(report: Any) -> dict[str, Any]:
    return {
        "op": report.access.op,
        "width": report.access.width,
        "cost": report.cost,
        "ideal": report.ideal,
        "excess": report.excess,
        "degree": report.degree,
        "measured": report.measured,
    }


def _report_json(report: FragmentReport, verdict: Any) -> dict[str, Any]:
    from verify.verdict import verdict_json

    return {
        "op": report.op,
        "dtype": report.dtype.name,
        "vector": report.vector,
        "cost": report.cost,
        "ideal": report.ideal,
        "excess": report.excess,
        "instructions": [
            {"warp": one.warp, "registers": list(one.registers), **_access_json(one.report)} for one in report
        ],
        "proof": None if verdict is None else verdict_json(verdict),
    }


def swizzle(
    tile: Annotated[str, typer.Option(help="the tile's shape, such as 64x64")],
    read: Annotated[list[str], typer.Option(help="a read: 'row', 'column' or a fragment; repeat for more")] = [],  # noqa: B006
    write: Annotated[list[str], typer.Option(help="a write: 'row', 'column' or a fragment; repeat for more")] = [],  # noqa: B006
    access: Annotated[
        list[str],
        typer.Option(help="OP FRAGMENT or OP/VECTOR FRAGMENT, such as 'ldmatrix S[...]'; repeat for more"),
    ] = [],  # noqa: B006
    dtype_name: Annotated[str, typer.Option("--dtype", help="element type, such as float32 or bf16")] = "float32",
    kinds: Annotated[str, typer.Option(help="candidates to search")] = "plain,swizzle,padding,pages,gf2",
    top: Annotated[int, typer.Option(help="how many candidates to print")] = 8,
    machine: Annotated[str, typer.Option(help="compute capability; only sm_90 was measured")] = "sm_90",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Find the storage of a tile that serves all its accesses with the fewest wavefronts.

    A 'row' access gives neighbouring lanes neighbouring elements, in the widest vectors; a 'column' access gives lane l
    row l, one element an instruction.

    [dim]layoutalg swizzle --tile 64x64 --dtype f16 --read column --write row[/]
    """
    shape = parse_shape(tile)
    require_fits_shared(shape, dtype_name, machine)
    accesses = [_named_access(text, "ld.shared", shape, dtype_name) for text in read]
    accesses += [_named_access(text, "st.shared", shape, dtype_name) for text in write]
    accesses += [_read_access(text) for text in access]
    if not accesses:
        raise LayoutError("say how the tile is accessed: --read, --write or --access, such as --read column")
    wanted = tuple(kind.strip() for kind in kinds.split(",") if kind.strip())
    with counting("searching"):
        search = suggest_swizzle(shape, dtype_name, accesses, candidates=wanted, machine=machine)
    if as_json:
        emit("swizzle", 0, **_search_json(search, top))
    else:
        _print_search(Console(), search, top)


def _named_access(text: str, op: str, shape: tuple[int, ...], dtype_name: str) -> TileAccess:
    """Return the access that ``row`` or ``column`` names, or that of a fragment in notation."""
    if text not in ("row", "column"):
        return TileAccess(TileLayout.parse(text), op=op)
    size, columns = math.prod(shape), shape[-1]
    rows = size // columns
    if text == "column":
        if rows % _LANES:
            raise LayoutError(f"a column access gives each of {_LANES} lanes a row, and {rows} rows do not divide")
        return TileAccess(TileLayout(S[(rows // 32, 32, columns) : (columns, 1 @ laneid, 1)]), op=op, vector=1)
    vector = math.gcd(_VECTOR_BYTES // dtype(dtype_name).bytes, columns)
    if size % (_LANES * vector):
        raise LayoutError(
            f"a row access moves {_LANES} lanes of {vector} elements at once, which does not divide {size}"
        )
    slots = size // (_LANES * vector)
    return TileAccess(TileLayout(S[(slots, 32, vector) : (vector, 1 @ laneid, 1)]), op=op)


def _read_access(text: str) -> TileAccess:
    op, _, fragment = text.strip().partition(" ")
    op, _, vector = op.partition("/")
    if not fragment or (vector and not vector.isdecimal()):
        raise LayoutError(f"--access takes OP FRAGMENT or OP/VECTOR FRAGMENT, not {text!r}")
    return TileAccess(TileLayout.parse(fragment), op=_OPS.get(op, op), vector=int(vector) if vector else None)


def _print_search(console: Console, search: SwizzleSearch, top: int) -> None:
    grid = Table(box=None, padding=(0, 2), header_style="dim")
    for heading, side in (("wavefronts", "right"), ("conflicts", "right"), ("kind", "left"), ("layout", "left")):
        grid.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for heading in ("alignment", "wasted", "TMA"):
        grid.add_column(heading, justify="right")
    for one in search.ranked[:top]:
        facts = f"{one.alignment} B", f"{one.bytes_wasted} B", one.tma or "-"
        grid.add_row(str(one.wavefronts), str(one.excess), one.kind, escape(str(one.layout)), *facts)
    # A line that is too long for the terminal is scrolled, not folded into something unreadable.
    Console(width=max(console.width, 120)).print(grid, soft_wrap=True)
    console.print(escape(str(search).splitlines()[-1].strip()), highlight=False)
    if search.refused:
        console.print(f"{len(search.refused)} candidates cannot serve every access", style="dim", highlight=False)


def _search_json(search: SwizzleSearch, top: int) -> dict[str, Any]:
    return {
        "bound": search.bound,
        "optimal": search.optimal,
        "searched": len(search.ranked),
        "refused": len(search.refused),
        "ranked": [
            {
                "kind": one.kind,
                "layout": str(one.layout),
                "wavefronts": one.wavefronts,
                "excess": one.excess,
                "costs": list(one.costs),
                "bytes_wasted": one.bytes_wasted,
                "alignment": one.alignment,
                "tma": one.tma,
            }
            for one in search.ranked[:top]
        ],
    }
