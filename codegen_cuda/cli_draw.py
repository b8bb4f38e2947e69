"""``layoutalg draw`` and ``layoutalg explore``: pictures of layouts, and a page to play with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from layoutalg.notation import parse_shape
from layoutalg.swizzled import parse_layout
from verify.console import EXIT_CODES, counting, emit

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command(epilog=EXIT_CODES)(draw)
    app.command(epilog=EXIT_CODES)(explore)


def draw(
    layout: Annotated[str, typer.Argument(help="the notation, such as 'S[(8,4):(4@laneid,1@laneid)]'")],
    shape: Annotated[str, typer.Option(help="logical extents, such as 8x16; the layout's own without it")] = "",
    after: Annotated[str, typer.Option(help="a second layout, drawn to the right of the first")] = "",
    after_shape: Annotated[str, typer.Option(help="its extents, where they differ")] = "",
    view: Annotated[str, typer.Option(help="logical, places, both or banks")] = "logical",
    by: Annotated[str, typer.Option(help="colour by an axis, or by row, column, address, bank")] = "",
    dtype: Annotated[str, typer.Option(help="element type, for banks")] = "",
    width: Annotated[int, typer.Option(help="addresses per line in the places")] = 0,
    limit: Annotated[int, typer.Option(max=65536, help="cells beyond which blocks are drawn")] = 1024,
    out: Annotated[Path, typer.Option(help="the file: .svg, or .png where cairosvg is installed")] = Path("layout.svg"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a sentence")] = False,
) -> None:
    """Draw where a layout puts every element.

    [dim]layoutalg draw "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)]" --shape 8x16 --out fragment.svg[/]
    """
    from layoutalg.draw import compare
    from layoutalg.draw import draw as picture_of

    extents = parse_shape(shape) if shape else None
    options: dict[str, Any] = {"view": view, "by": by, "dtype": dtype or None, "width": width, "limit": limit}
    with counting("drawing"):
        if after:
            other = parse_shape(after_shape) if after_shape else extents
            picture = compare(parse_layout(layout), parse_layout(after), extents, after_shape=other, **options)
        else:
            picture = picture_of(parse_layout(layout), extents, **options)
    _say("draw", picture.save(out), as_json, width=picture.width, height=picture.height)


def explore(
    layout: Annotated[str, typer.Argument(help="the notation that the page starts with")] = (
        "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + 5@warpid"
    ),
    shape: Annotated[str, typer.Option(help="logical extents, such as 8x16; the layout's own without it")] = "",
    dtype: Annotated[str, typer.Option(help="element type, for banks")] = "float32",
    out: Annotated[Path, typer.Option(help="the file")] = Path("layout.html"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a sentence")] = False,
) -> None:
    """Write one page to edit a layout in a browser: its grid, its places, its banks. It needs no network.

    [dim]layoutalg explore "Sw<3,3,3> o S[(64,64):(64,1)]" --dtype f16 --out page.html[/]
    """
    from layoutalg.draw.explore import explore_page

    page = explore_page(parse_layout(layout), parse_shape(shape) if shape else None, dtype=dtype)
    out.write_text(page, encoding="utf-8")
    _say("explore", out, as_json)


def _say(command: str, path: Path, as_json: bool, **facts: Any) -> None:
    if as_json:
        emit(command, 0, files=[path], **facts)
    else:
        Console().print(escape(f"wrote {path}"), highlight=False, soft_wrap=True)
