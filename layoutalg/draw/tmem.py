"""Pictures of tensor memory: lanes by columns, coloured by the warp and the register that hold each cell.

:func:`tmem_map` is SVG; :func:`tmem_text` is the same by blocks of lanes and columns, for a terminal.
"""

from __future__ import annotations

import itertools
from colorsys import hls_to_rgb
from html import escape
from typing import TYPE_CHECKING

from layoutalg.draw.grid import GREY
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.hardware.tcgen05 import COLUMNS, LANES
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["tmem_map", "tmem_text"]

_WIDE, _HIGH, _LEFT, _TOP, _FONT = 720, 4, 64, 44, "ui-monospace,Menlo,Consolas,monospace"
# Hues far apart for the four slabs, also for readers who do not tell red from green.
_HUES = (0.58, 0.09, 0.44, 0.86)
_THREADS = {"laneid": 1, "wid_in_wg": 32, "warpid": 32, "tid_in_wg": 1, "wgid": 128, "tx": 1}


def tmem_map(tmem_layout: TileLayout, register_layout: TileLayout, *, dtype: object = "uint32", title: str = "") -> str:
    """Return an SVG of all 128 lanes: hue by warp, lightness by register, each cell with a tooltip.

    Args:
        tmem_layout: over ``TLane`` and ``TCol``, in elements of ``dtype``.
        register_layout: of equal size, over thread axes and ``m``; warps are numbered in the block.
        dtype: element type.
        title: text above the picture.

    Raises:
        RangeError: layouts of different size, or an element outside tensor memory.

    >>> tmem, registers = (TileLayout.parse(t) for t in ("S[(128,4):(1@TLane,1@TCol)]", "S[(128,4):(1@tid_in_wg,1)]"))
    >>> svg = tmem_map(tmem, registers, dtype="f32")
    >>> svg.count("<path"), "<title>warp 3, register 2</title>" in svg
    (16, True)
    """
    owner, columns = _owners(tmem_layout, register_layout, dtype)
    wide = max(1.0, min(16.0, _WIDE / columns))
    width, height = int(_LEFT + columns * wide + 16), _TOP + LANES * _HIGH + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{_FONT}" font-size="11" fill="{GREY}" shape-rendering="crispEdges">',
        f'<text x="{_LEFT}" y="16">{escape(title or "tensor memory: colour by warp, shade by register")}</text>',
        *_frame(columns, wide),
    ]
    classes = sorted({(int(w), int(r)) for w, r in owner.reshape(-1, 2).tolist() if w >= 0})
    count = 1 + max((r for _, r in classes), default=0)
    for warp, register in classes:
        shape = _outline((owner[..., 0] == warp) & (owner[..., 1] == register), wide)
        parts.append(
            f'<path fill="{_colour(warp, register, count)}" d="{shape}">'
            f"<title>warp {warp}, register {register}</title></path>"
        )
    return "\n".join([*parts, *_slabs(columns, wide), "</svg>\n"])


def tmem_text(tmem_layout: TileLayout, register_layout: TileLayout, *, dtype: object = "uint32") -> str:
    """Return a table of 16-lane rows by blocks of columns: the warps and registers in each block.

    >>> tmem, registers = (TileLayout.parse(t) for t in ("S[(64,8):(1@TLane,1@TCol)]", "S[(64,8):(1@tid_in_wg,1)]"))
    >>> print(tmem_text(tmem, registers, dtype="f32"))
    lanes    columns 0-7
    0-15     w0 r0-7
    16-31    w0 r0-7
    32-47    w1 r0-7
    48-63    w1 r0-7
    64-79    .
    80-95    .
    96-111   .
    112-127  .
    """
    owner, columns = _owners(tmem_layout, register_layout, dtype)
    step = max(8, 1 << (max(1, columns // 8) - 1).bit_length())
    blocks = [(c, min(c + step, columns)) for c in range(0, columns, step)]
    rows = [["lanes", *(f"columns {a}-{b - 1}" for a, b in blocks)]]
    for lane in range(0, LANES, 16):
        rows.append([f"{lane}-{lane + 15}", *(_summary(owner[lane : lane + 16, a:b]) for a, b in blocks)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _owners(tmem: TileLayout, registers: TileLayout, dtype: object) -> tuple[NDArray[np.int64], int]:
    """Warp and register word of every cell, ``[lane, column, 2]``, -1 where there is none."""
    import numpy as np

    bits = dtype_of(dtype).bits
    if tmem.size != registers.size:
        raise RangeError(f"{tmem.size} elements in tensor memory, {registers.size} in registers")
    held = registers.table()
    zero = np.zeros(int(tmem.size), dtype=np.int64)
    thread = sum((step * held[axis] for axis, step in _THREADS.items() if axis in held), start=zero)
    word = held.get("m", zero) * bits // 32
    owner = np.full((LANES, COLUMNS, 2), -1, dtype=np.int64)
    table = tmem.table()
    for moved in _replicas(tmem):
        lane = table.get("TLane", zero) + moved.get("TLane", 0)
        column = (table.get("TCol", zero) + moved.get("TCol", 0)) * bits // 32
        if lane.min() < 0 or lane.max() >= LANES or column.min() < 0 or column.max() >= COLUMNS:
            raise RangeError(f"{tmem} leaves the {LANES} lanes of {COLUMNS} columns")
        owner[lane, column, 0], owner[lane, column, 1] = thread // 32, word
    used = np.flatnonzero((owner[..., 0] >= 0).any(axis=0))
    return owner, int(used.max()) + 1


def _replicas(layout: TileLayout) -> list[dict[str, int]]:
    found = []
    for digits in itertools.product(*(range(int(it.extent)) for it in layout.replica)):
        moved: dict[str, int] = {}
        for digit, it in zip(digits, layout.replica, strict=True):
            moved[it.axis.name] = moved.get(it.axis.name, 0) + digit * int(it.stride)
        found.append(moved)
    return found


def _outline(cells: NDArray[np.bool_], wide: float) -> str:
    """A path of one rectangle per vertical run of cells."""
    import numpy as np

    edges = np.diff(np.pad(cells.astype(np.int8), ((1, 1), (0, 0))), axis=0)
    parts = []
    for column in np.flatnonzero(cells.any(axis=0)).tolist():
        begins, ends = (np.flatnonzero(edges[:, column] == sign).tolist() for sign in (1, -1))
        for begin, end in zip(begins, ends, strict=True):
            x, y, high = _LEFT + column * wide, _TOP + begin * _HIGH, (end - begin) * _HIGH
            parts.append(f"M{x:g} {y}h{wide:g}v{high}h{-wide:g}z")
    return "".join(parts)


def _frame(columns: int, wide: float) -> list[str]:
    step = max(1, 1 << (columns // 8).bit_length() >> 1)
    ticks = [f'<text x="{_LEFT + c * wide:g}" y="{_TOP - 8}">{c}</text>' for c in range(0, columns, step)]
    size = f'width="{columns * wide:g}" height="{LANES * _HIGH}"'
    box = f'<rect x="{_LEFT}" y="{_TOP}" {size} fill="{GREY}" fill-opacity="0.15"/>'
    return [box, *ticks]


def _slabs(columns: int, wide: float) -> list[str]:
    lines = []
    for slab in range(5):
        y = _TOP + 32 * slab * _HIGH
        lines.append(f'<line x1="{_LEFT}" x2="{_LEFT + columns * wide:g}" y1="{y}" y2="{y}" stroke="{GREY}"/>')
        if slab < 4:
            lines.append(f'<text x="4" y="{y + 12}">lane {32 * slab}</text>')
            lines.append(
                f'<rect x="4" y="{y + 18}" width="12" height="12" fill="{_colour(slab, 0, 1)}"/>'
                f'<text x="20" y="{y + 28}">w{slab}</text>'
            )
    lines.append(f'<text x="{_LEFT}" y="{_TOP + LANES * _HIGH + 20}">columns of 32 bits</text>')
    return lines


def _colour(warp: int, register: int, count: int) -> str:
    light = 0.82 - 0.42 * (register / max(count - 1, 1))
    # The second warpgroup shares the slabs of the first, in paler colours.
    red, green, blue = hls_to_rgb(_HUES[warp % 4], light, 0.75 if warp < 4 else 0.3)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _summary(block: NDArray[np.int64]) -> str:
    pairs = [(w, r) for w, r in block.reshape(-1, 2).tolist() if w >= 0]
    if not pairs:
        return "."
    texts = []
    for warp in sorted({w for w, _ in pairs}):
        registers = [r for w, r in pairs if w == warp]
        low, high = min(registers), max(registers)
        texts.append(f"w{warp} r{low}" + (f"-{high}" if high > low else ""))
    return ", ".join(texts)
