"""Pictures of shared-memory banks as SVG: an access, a list of instructions, a tile coloured by bank.

Every picture is a string; notebooks show the reports themselves, which call these functions.

* :func:`bank_map`: one access.  Each group of lanes is a block, each column a bank, and the words that a bank must
  serve are stacked: one layer per wavefront, so the height of a block is its cost.
* :func:`instruction_map`: many instructions, one row each; a cell counts the words that the bank serves.
* :func:`tile_map`: a two-dimensional tile; each cell is coloured and labelled by the bank of its element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from layoutalg.draw.grid import GREY, INK, shade
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of

if TYPE_CHECKING:
    from layoutalg.banks.access import AccessReport
    from layoutalg.banks.report import FragmentReport
    from layoutalg.swizzled import SwizzledLayout
    from layoutalg.tile import TileLayout

__all__ = ["bank_map", "instruction_map", "tile_map"]

_CELL_W, _CELL_H, _LEFT, _FONT = 26, 18, 92, "ui-monospace,Menlo,Consolas,monospace"
_FREE = "#b8e0d2"
# From one wavefront too many to many, pale to strong: no red against green, and dark ink is readable on all of them.
_WORSE = ("#fdd9a0", "#fdca86", "#fcba70", "#fbab60", "#f89853", "#f58549")
_MOST_LAYERS = 40
_MOST_ROWS = 256
_MOST_CELLS = 4096


def bank_map(report: AccessReport) -> str:
    """Draw one shared-memory access: per group and bank the words it must serve, one layer per wavefront.

    Args:
        report: what :func:`layoutalg.banks.simulate` returns.

    Raises:
        RangeError: a global access, which has no banks.

    >>> from layoutalg.banks import WarpAccess, simulate
    >>> picture = bank_map(simulate(WarpAccess("ld.shared", 4, addresses=range(0, 256, 8))))
    >>> picture.startswith("<svg"), picture.count("<rect") == 32
    (True, True)
    """
    groups = report.groups
    parts = [_text(8, 20, str(report).splitlines()[0], size=13)]
    top = 40.0
    for number, group in enumerate(groups):
        layers = min(group.wavefronts, _MOST_LAYERS)
        excess = f", {group.wavefronts - 1} too many" if group.wavefronts > 1 else ""
        label = f"group {number}: lanes {_ranges(group.lanes)}, {group.wavefronts} wavefront"
        parts.append(_text(8, top + 11, label + ("s" if group.wavefronts > 1 else "") + excess, size=11))
        top += 18
        parts.extend(_layer_labels(top, layers))
        for bank, words in group.banks:
            for layer, word in enumerate(words[:layers]):
                lanes = [lane for lane in group.lanes if _touches(report, lane, word)]
                fill = _FREE if layer == 0 else _WORSE[min(layer - 1, len(_WORSE) - 1)]
                title = f"bank {bank}, word {word} (byte {4 * word}): lanes {_ranges(lanes)}"
                y = top + (layers - 1 - layer) * _CELL_H
                parts.append(_cell(_LEFT + bank * _CELL_W, y, fill=fill, label=_short(lanes), title=title))
        top += layers * _CELL_H
        if group.wavefronts > layers:
            parts.append(_text(_LEFT, top + 11, f"and {group.wavefronts - layers} more layers", size=10))
            top += 14
        parts.append(_line(_LEFT, top, _LEFT + 32 * _CELL_W))
        top += 10
    parts.extend(_bank_axis(top))
    parts.append(_text(8, top + 30, "cell: the lanes that touch the word; stacked words wait for each other", size=10))
    return _svg(_LEFT + 32 * _CELL_W + 12, top + 40, parts)


def instruction_map(report: FragmentReport) -> str:
    """Draw a list of instructions: one row each, the number of words every bank serves, added over groups.

    Args:
        report: what :func:`layoutalg.banks.shared_report` returns.

    Raises:
        RangeError: global accesses, or more than 256 instructions.

    >>> from layoutalg import TileLayout
    >>> from layoutalg.banks import shared_report
    >>> frag = TileLayout.parse("S[(32,2):(1@laneid,1)]")
    >>> "2 wavefronts" in instruction_map(shared_report(TileLayout.parse("S[64:1]"), frag, "f32"))
    True
    """
    if len(report) > _MOST_ROWS:
        raise RangeError(f"{len(report)} instructions are too many for a picture; draw a part of the fragment")
    parts = [_text(8, 20, str(report).splitlines()[0], size=13)]
    left = _LEFT + 60
    top = 40.0
    for one in report:
        slots = f"{one.registers[0]}-{one.registers[-1]}" if len(one.registers) > 1 else str(one.registers[0])
        parts.append(_text(8, top + 13, f"w{one.warp} slots {slots}", size=10))
        counts: dict[int, int] = {}
        worst: dict[int, int] = {}
        for group in one.report.groups:
            for bank, words in group.banks:
                counts[bank] = counts.get(bank, 0) + len(words)
                worst[bank] = max(worst.get(bank, 0), len(words))
        for bank, count in sorted(counts.items()):
            fill = _FREE if worst[bank] == 1 else _WORSE[min(worst[bank] - 2, len(_WORSE) - 1)]
            title = f"bank {bank}: {count} words, at most {worst[bank]} in one group"
            parts.append(_cell(left + bank * _CELL_W, top, fill=fill, label=str(count), title=title))
        tail = f"{one.cost} wavefronts" + (f", excess {one.excess}" if one.excess else "")
        parts.append(_text(left + 32 * _CELL_W + 8, top + 13, tail, size=10, bold=bool(one.excess)))
        top += _CELL_H + 2
    parts.extend(_bank_axis(top + 4, left))
    return _svg(left + 32 * _CELL_W + 190, top + 34, parts)


def tile_map(
    layout: TileLayout | SwizzledLayout, shape: Sequence[int], dtype: Dtype | str, *, base: int = 0, chunk: int = 1
) -> str:
    """Draw a two-dimensional tile: each cell shows the bank where its element starts.

    Args:
        layout: flat row-major index -> element offset.
        shape: (rows, columns).
        dtype: element type of whole bytes.
        base: byte address of element offset 0.
        chunk: columns per cell; the first element of the chunk names the bank.

    Raises:
        RangeError: the shape is not two-dimensional, does not divide into chunks, or has over 4096 cells.

    >>> from layoutalg import SwizzledLayout
    >>> swizzled = SwizzledLayout.parse("Sw<3,3,3> o S[64,64]")
    >>> tile_map(swizzled, (64, 64), "f16", chunk=8).count("<title>") == 64 * 8
    True
    """
    if len(shape) != 2 or shape[1] % chunk:
        raise RangeError(
            f"tile_map draws (rows, columns) in chunks that divide the columns, not {tuple(shape)} by {chunk}"
        )
    rows, columns = shape[0], shape[1] // chunk
    if rows * columns > _MOST_CELLS:
        raise RangeError(f"{rows} x {columns} cells are too many for a picture; use chunk=, or slice the layout")
    size = dtype_of(dtype).bytes
    offsets = next(iter(layout.table((shape[0], shape[1])).values()))[:, ::chunk]
    what = f"chunk of {chunk} {dtype_of(dtype)}" if chunk > 1 else f"{dtype_of(dtype)}"
    heading = f"{layout}: bank of every {what}"
    parts = [_text(8, 20, heading, size=13)]
    for column in range(columns):
        parts.append(_text(_LEFT + (column + 0.5) * _CELL_W, 38, str(column * chunk), size=9, middle=True))
    for row in range(rows):
        y = 44 + row * _CELL_H
        parts.append(_text(_LEFT - 8, y + 13, str(row), size=9, end=True))
        for column in range(columns):
            address = base + int(offsets[row, column]) * size
            bank = address // 4 % 32
            title = f"({row}, {column * chunk}): byte {address}, word {address // 4}, bank {bank}"
            parts.append(_cell(_LEFT + column * _CELL_W, y, fill=_hue(bank), label=str(bank), title=title))
    return _svg(max(_LEFT + columns * _CELL_W + 12, 16 + 8 * len(heading)), 54 + rows * _CELL_H, parts)


def _touches(report: AccessReport, lane: int, word: int) -> bool:
    first = report.access.addresses[lane]
    return first // 4 <= word <= (first + report.access.width - 1) // 4


def _ranges(numbers: Iterable[int]) -> str:
    """Spell ascending numbers with ranges: 0-3, 8."""
    spelled: list[list[int]] = []
    for number in numbers:
        if spelled and spelled[-1][1] == number - 1:
            spelled[-1][1] = number
        else:
            spelled.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spelled)


def _short(lanes: Sequence[int]) -> str:
    return str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+{len(lanes) - 1}"


def _hue(bank: int) -> str:
    """The four banks of a 16-byte chunk share a hue, as in pictures of layouts that are coloured by bank."""
    return shade(bank // 4 + 8 * (bank % 4))


def _layer_labels(top: float, layers: int) -> list[str]:
    return [
        _text(_LEFT - 8, top + (layers - 1 - layer) * _CELL_H + 13, f"wavefront {layer}", size=9, end=True)
        for layer in range(layers)
    ]


def _bank_axis(top: float, left: float = _LEFT) -> list[str]:
    labels = [_text(left + (b + 0.5) * _CELL_W, top + 9, str(b), size=9, middle=True) for b in range(32)]
    return [_text(left - 8, top + 9, "bank", size=9, end=True), *labels]


def _text(
    x: float, y: float, text: str, *, size: int, bold: bool = False, middle: bool = False, end: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ' text-anchor="end"' if end else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{GREY}"{weight}{anchor}>{escape(text)}</text>'


def _cell(x: float, y: float, *, fill: str, label: str, title: str) -> str:
    size = 9 if len(label) > 2 else 10
    return (
        f'<g><title>{escape(title)}</title><rect x="{x:g}" y="{y:g}" width="{_CELL_W - 1}" height="{_CELL_H - 1}" '
        f'rx="2" fill="{fill}"/><text x="{x + _CELL_W / 2 - 0.5:g}" y="{y + 12.5:g}" font-size="{size}" fill="{INK}" '
        f'text-anchor="middle">{escape(label)}</text></g>'
    )


def _line(x: float, y: float, to: float) -> str:
    return f'<line x1="{x:g}" y1="{y:g}" x2="{to:g}" y2="{y:g}" stroke="{GREY}" stroke-width="0.7"/>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}">'
        f"{body}</svg>"
    )
