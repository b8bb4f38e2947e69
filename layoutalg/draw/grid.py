"""Grids of labelled cells as SVG: what every picture of a layout is made of.

A :class:`Picture` is text that notebooks show.  It has no background, no script and no style sheet: cells bring light
fills and dark ink, everything outside a cell is a middle grey that can be read on white and on black paper alike.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from layoutalg.errors import LayoutError

__all__ = ["PALETTE", "Cell", "Grid", "Picture", "above", "beside", "ramp", "render", "shade"]

#: Eight light colours that people with any common colour blindness tell apart, and dark ink is readable on.
PALETTE: Final = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#d5c8ea")
INK: Final = "#16191d"
GREY: Final = "#767b83"  # 4.3 to 1 on white, 4.4 to 1 on #111111
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_ADVANCE = 6.1  # width of a character of 10 px, in px
_HIGH_LINE, _GAP = 12, 28
_RAMP = ((232, 242, 251), (107, 164, 214))
_PNG_SCALE = 2


class Cell(NamedTuple):
    """One cell of a grid.

    Args:
        row: from the top.
        column: from the left.
        lines: the label, one text a line.
        title: the tooltip.
        fill: a colour.
        copy: drawn dashed: a further place of an element that is drawn elsewhere.
        group: neighbours of different groups are parted by a wall.
    """

    row: int
    column: int
    lines: tuple[str, ...]
    title: str
    fill: str
    copy: bool = False
    group: Hashable = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells with the labels of their rows and columns, a title above and notes below."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG; a notebook shows it, ``str`` is the text, ``|`` puts two side by side.

    Args:
        svg: the text.
        width: in px.
        height: in px.
    """

    svg: str
    width: float
    height: float

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {self.width:g} x {self.height:g} px>"

    def __or__(self, other: Picture) -> Picture:
        return beside(self, other)

    def save(self, path: str | Path) -> Path:
        """Write ``.svg``, or ``.png`` where the package cairosvg is installed.

        Raises:
            LayoutError: another ending, or no converter to PNG.
        """
        path = Path(path)
        if path.suffix == ".svg":
            path.write_text(self.svg + "\n", encoding="utf-8")
        elif path.suffix == ".png":
            path.write_bytes(_png(self.svg))
        else:
            raise LayoutError(f"a picture is saved as .svg or .png, not {path.suffix or 'without an ending'}: {path}")
        return path


def _png(svg: str) -> bytes:
    try:
        converter: Any = importlib.import_module("cairosvg")
    except (ImportError, OSError) as error:
        raise LayoutError(
            f"PNG needs the package cairosvg and the cairo library ({error}); pip install cairosvg, or save as .svg"
        ) from None
    # The converter takes the first family of a list, and widths are those of a fixed pitch.
    plain = re.sub('font-family="[^"]*"', 'font-family="monospace"', svg)
    data: bytes = converter.svg2png(bytestring=plain.encode(), scale=_PNG_SCALE, background_color="white")
    return data


def shade(value: int) -> str:
    """Return the colour of a number: eight hues, and four shades of each, so 32 lanes all differ.

    >>> shade(0), shade(32) == shade(0), len({shade(lane) for lane in range(32)})
    ('#77aadd', True, 32)
    """
    hue = PALETTE[value % len(PALETTE)]
    toward_white = (0.0, 0.3, 0.55, 0.78)[value // len(PALETTE) % 4]
    channels = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * toward_white):02x}" for c in channels)


def ramp(value: float) -> str:
    """Return a colour between pale (0) and strong (1), of one hue.

    >>> ramp(0), ramp(1)
    ('#e8f2fb', '#6ba4d6')
    """
    low, high = _RAMP
    return "#" + "".join(f"{round(a + (b - a) * value):02x}" for a, b in zip(low, high, strict=True))


def render(grid: Grid) -> Picture:
    """Draw a grid.

    >>> render(Grid("one", ("0",), ("0",), (Cell(0, 0, ("7",), "seven", "#eee"),))).svg.count("<title>seven")
    1
    """
    lines = max((len(cell.lines) for cell in grid.cells), default=1)
    longest = max((len(line) for cell in grid.cells for line in cell.lines), default=1)
    longest = max(longest, *(len(label) for label in grid.columns))
    dashed = 6 if any(cell.copy for cell in grid.cells) else 0  # the frame of a copy stands clear of its label
    wide, high = max(24, round(longest * _ADVANCE + 8) + dashed), lines * _HIGH_LINE + 8 + dashed // 2
    left = 10 + round(max((len(label) for label in grid.rows), default=0) * _ADVANCE) + 6
    top = 44
    parts = [_text(8, 16, grid.title, size=12)] if grid.title else []
    parts += [_text(left + (c + 0.5) * wide, top - 6, text, anchor="middle") for c, text in enumerate(grid.columns)]
    parts += [_text(left - 6, top + r * high + high / 2 + 3.5, text, anchor="end") for r, text in enumerate(grid.rows)]
    parts += [_draw_cell(cell, left + cell.column * wide, top + cell.row * high, wide, high) for cell in grid.cells]
    parts.append(_walls(grid.cells, left, top, wide, high))
    bottom = top + len(grid.rows) * high + 18
    parts += [_text(8, bottom + 15 * i, note) for i, note in enumerate(grid.notes)]
    texts = [8 + len(grid.title) * _ADVANCE * 1.2 + 8, *(8 + len(note) * _ADVANCE + 8 for note in grid.notes)]
    width = round(max(left + len(grid.columns) * wide + 10, *texts))
    height = bottom + 15 * len(grid.notes) - 4
    return Picture(_svg(width, height, parts), width, height)


def beside(*pictures: Picture, arrow: str = "") -> Picture:
    """Put pictures side by side, with an arrow and its label between them where one is given.

    >>> one = render(Grid("", ("0",), ("0",), (Cell(0, 0, ("7",), "", "#eee"),)))
    >>> beside(one, one, arrow="permute").svg.count("<svg")
    3
    """
    gap = max(_GAP, round(len(arrow) * _ADVANCE) + 24) if arrow else _GAP
    height = max((picture.height for picture in pictures), default=0)
    parts: list[str] = []
    x = 0.0
    for picture in pictures:
        if parts and arrow:
            parts.append(_arrow(x - gap, min(height, pictures[0].height) / 2, gap, arrow))
        parts.append(picture.svg.replace("<svg ", f'<svg x="{x:g}" y="0" ', 1))
        x += picture.width + gap
    width = max(x - gap, 1)
    return Picture(_svg(width, height, parts), width, height)


def above(*pictures: Picture, arrow: str = "") -> Picture:
    """Put pictures one above another, with an arrow and its label between them where one is given.

    >>> one = render(Grid("", ("0",), ("0",), (Cell(0, 0, ("7",), "", "#eee"),)))
    >>> above(one, one, arrow="swizzle").svg.count("<svg")
    3
    """
    gap = _GAP if arrow else 0
    parts: list[str] = []
    y = 0.0
    for picture in pictures:
        if parts and arrow:
            stroke = f'stroke="{GREY}" stroke-width="1.5" fill="none"'
            line = f'<path d="M40 {y - gap + 2:g}v{gap - 8:g}m-4 -6l4 6l4 -6" {stroke}/>'
            parts.append(line + _text(52, y - gap / 2 + 3, arrow))
        parts.append(picture.svg.replace("<svg ", f'<svg x="0" y="{y:g}" ', 1))
        y += picture.height + gap
    width, height = max((picture.width for picture in pictures), default=1), max(y - gap, 1)
    return Picture(_svg(width, height, parts), width, height)


def _svg(width: float, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{escape(_FONT)}" font-size="10">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "", size: int = 0) -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    large = f' font-size="{size}"' if size else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{GREY}"{where}{large}>{escape(text)}</text>'


def _draw_cell(cell: Cell, x: float, y: float, wide: float, high: float) -> str:
    box = _rect(x + 1, y + 1, wide - 2, high - 2, f' rx="2" fill="{cell.fill}"')
    if cell.copy:
        box += _rect(x + 3, y + 3, wide - 6, high - 6, f' fill="none" stroke="{INK}" stroke-dasharray="3 2"')
    first = y + high / 2 + 3.5 - (len(cell.lines) - 1) * _HIGH_LINE / 2
    labels = "".join(
        f'<text x="{x + wide / 2:g}" y="{first + i * _HIGH_LINE:g}" fill="{INK}" text-anchor="middle">'
        f"{escape(line)}</text>"
        for i, line in enumerate(cell.lines)
    )
    return f"<g><title>{escape(cell.title)}</title>{box}{labels}</g>"


def _rect(x: float, y: float, wide: float, high: float, style: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"{style}/>'


def _walls(cells: Sequence[Cell], left: float, top: float, wide: float, high: float) -> str:
    """Lines between neighbouring cells of different groups."""
    groups = {(cell.row, cell.column): cell.group for cell in cells}
    moves = []
    for (row, column), group in groups.items():
        x, y = left + column * wide, top + row * high
        if groups.get((row, column + 1), group) != group:
            moves.append(f"M{x + wide:g} {y:g}v{high:g}")
        if groups.get((row + 1, column), group) != group:
            moves.append(f"M{x:g} {y + high:g}h{wide:g}")
    return f'<path d="{"".join(moves)}" stroke="{GREY}" stroke-width="2.5" fill="none"/>' if moves else ""


def _arrow(x: float, y: float, gap: float, label: str) -> str:
    line = f'<path d="M{x + 6:g} {y:g}h{gap - 14:g}m-6 -4l6 4l-6 4" stroke="{GREY}" stroke-width="1.5" fill="none"/>'
    return line + _text(x + gap / 2, y - 8, label, anchor="middle")
