"""Pictures of layouts: a grid of the tensor, or a grid of the places, coloured so that the two can be compared.

* the **logical** picture has a cell for every element; its label says where the element lives;
* the picture of **places** has a cell for every place; its label says which element lives there.  Rows are threads and
  columns registers, rows are lanes and columns are columns (tensor memory), or addresses run along lines.

A layout that has more cells than a person can read is summarised: a cell stands for a block of elements (or places).

>>> from layoutalg import TileLayout
>>> picture = draw(TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)]"), (8, 16))
>>> "(3, 9): laneid 12, warpid 1, m 1" in picture.svg
True
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from layoutalg.axis import Axis
from layoutalg.draw.grid import Cell, Grid, Picture, above, beside, ramp, render, shade
from layoutalg.draw.lines import lines_grid
from layoutalg.draw.places import MOST_PLACES, block_of, check_numbers, coordinate, places_grid, replica_of
from layoutalg.errors import LayoutError, RangeError
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["compare", "draw"]

#: Short names of axes in cells; other axes, and two that share a letter, are written in full.
SHORT: Final = {
    "laneid": "T", "tid_in_wg": "T", "tx": "T", "warpid": "w", "wid_in_wg": "w", "wgid": "g", "pid": "d",
    "TLane": "L", "TCol": "C", "P": "P", "F": "F", "Bank": "B",
}  # fmt: skip
_FINEST_FIRST: Final = ("laneid", "tid_in_wg", "tx")
_WIDEST_FIRST: Final = ("pid", "bz", "by", "bx", "wgid", "warpid", "wid_in_wg")
_VIEWS: Final = ("logical", "places", "both", "banks")
_LARGEST_TABLE: Final = 1 << 22
_WRAP: Final = 32
_MOST_BLOCKS: Final = 256  # blocks of a summary: their labels are long, and a page is only so wide
_WIDEST: Final = 2000  # px of two pictures side by side


def draw(
    layout: TileLayout | SwizzledLayout,
    shape: Sequence[int] | None = None,
    *,
    view: str = "logical",
    by: str = "",
    dtype: Any = None,
    width: int = 0,
    limit: int = 1024,
    title: str = "",
) -> Picture:
    """Draw a layout.

    Args:
        layout: without parameters or symbols.
        shape: logical extents, outermost first; the layout's own without it.  The last dimension runs to the right.
        view: ``"logical"``, ``"places"``, ``"both"``, or ``"banks"``: lines of shared memory by bank (with ``dtype``).
        by: what colours stand for: an axis, ``"row"`` or ``"column"`` of the tensor, ``"address"``, or ``"bank"``
            (with ``dtype``).  Without it: the finest thread axis, else the address; in the places the tensor's row.
        dtype: element type, for banks.
        width: addresses per line in the picture of places.
        limit: cells beyond which blocks are drawn.
        title: text above; the notation without it.

    Raises:
        LayoutError: an unknown view or colouring, or a layout with parameters.
        RangeError: a picture of more than 2^18 places (their logical picture still works).

    >>> draw(TileLayout.parse("S[4,8]"), view="places", width=16).svg.count("<rect")
    32
    """
    if view not in _VIEWS:
        raise LayoutError(f"a layout is drawn as {', '.join(_VIEWS)}, not as {view!r}")
    check_numbers(layout)
    if limit < 1 or width < 0:
        raise RangeError(f"a picture needs a limit of at least one cell and no negative width, not {limit} and {width}")
    extents = _extents(layout, shape)
    heading = title or str(layout)
    if view == "both":
        names: dict[str, Any] = {"by": by, "dtype": dtype, "width": width, "limit": limit}
        first = draw(layout, extents, view="logical", title=heading, **names)
        second = draw(layout, extents, view="places", title="its places" if not title else f"{title}: places", **names)
        return beside(first, second)
    if view == "logical":
        return render(_logical(layout, extents, by=by, dtype=dtype, limit=limit, title=heading))
    if layout.size > MOST_PLACES:
        raise RangeError(f"{layout.size} elements are too many for a picture of places; slice the layout first")
    table = layout.table(extents)
    fills = _fills(layout, by or "row", table, extents, dtype)
    if view == "banks":
        return render(lines_grid(layout, extents, table, fills, dtype=dtype, limit=limit, title=heading))
    return render(places_grid(layout, extents, table, fills, width=width, limit=limit, title=heading))


def compare(
    before: TileLayout | SwizzledLayout,
    after: TileLayout | SwizzledLayout,
    shape: Sequence[int] | None = None,
    *,
    after_shape: Sequence[int] | None = None,
    arrow: str = "",
    **options: Any,
) -> Picture:
    """Draw two layouts side by side, or one above the other where they are too wide for a page.

    Args:
        before: the left one.
        after: the right one.
        shape: logical extents of the left one, and of the right one unless ``after_shape`` says otherwise.
        after_shape: logical extents of the right one.
        arrow: label of the arrow between them, such as ``"permute"``.
        options: as for :func:`draw`.

    >>> tile = TileLayout.parse("S[4,8]")
    >>> compare(tile, tile.permute(1, 0), (4, 8), after_shape=(8, 4), arrow="permute").svg.count("<svg")
    3
    """
    left = draw(before, shape, **options)
    right = draw(after, after_shape if after_shape is not None else shape, **options)
    if left.width + right.width > _WIDEST:
        return above(left, right, arrow=arrow)
    return beside(left, right, arrow=arrow)


def _extents(layout: TileLayout | SwizzledLayout, shape: Sequence[int] | None) -> tuple[int, ...]:
    if shape is None:
        tile = layout.inner if isinstance(layout, SwizzledLayout) else layout
        shape = tuple(int(it.extent) for it in tile.shard)
    extents = tuple(shape)
    if any(type(extent) is not int or extent < 1 for extent in extents) or math.prod(extents) != layout.size:
        raise LayoutError(f"the shape {extents} has not the {layout.size} elements of {layout}")
    return extents


def _page(extents: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the logical picture; a long line is wrapped where that fills every row."""
    if len(extents) == 1 and extents[0] > _WRAP and extents[0] % _WRAP == 0:
        return extents[0] // _WRAP, _WRAP
    columns = extents[-1] if extents else 1
    return math.prod(extents) // columns, columns


def _logical(
    layout: TileLayout | SwizzledLayout, extents: tuple[int, ...], *, by: str, dtype: Any, limit: int, title: str
) -> Grid:
    import numpy as np

    rows, columns = _page(extents)
    high, wide = block_of(rows, columns, limit if rows * columns <= limit else min(limit, _MOST_BLOCKS))
    down, across = range(0, rows, high), range(0, columns, wide)
    exact = layout.size <= _LARGEST_TABLE
    if exact:
        table = {name: values.reshape(rows, columns) for name, values in layout.table(extents).items()}
        first = {name: values[::high, ::wide] for name, values in table.items()}
    else:
        corners = np.asarray(down)[:, None] * columns + np.asarray(across)[None, :]
        table = first = layout.evaluate(corners)
    flat = np.asarray(down, dtype=np.int64)[:, None] * columns + np.asarray(across, dtype=np.int64)[None, :]
    fills = _fills(layout, by or _colouring(layout), first, extents, dtype, flat=flat)
    names = list(first)
    cells = []
    for (i, row), (j, column) in itertools.product(enumerate(down), enumerate(across)):
        block = (slice(row, row + high), slice(column, column + wide)) if exact else (slice(i, i + 1), slice(j, j + 1))
        ends = {name: (int(table[name][block].min()), int(table[name][block].max())) for name in names}
        begin = row * columns + column
        last = (min(row + high, rows) - 1) * columns + min(column + wide, columns) - 1
        facts = ", ".join(f"{name} {_range(*ends[name])}" for name in names) or "no coordinates"
        tooltip = f"{_about(begin, last, extents, exact=exact)}: {facts}"
        group = tuple(ends[name] for name in names if name in _WIDEST_FIRST)
        cells.append(Cell(i, j, _label(layout, ends), tooltip, str(fills[i, j]), group=group))
    notes = [_key(names), *_replica_notes(layout)]
    if high * wide > 1:
        what = "the range over" if exact else "the first element of"
        notes.append(f"{layout.size} elements: each cell is {what} {high} x {wide}")
    labels = tuple(_row_name(row * columns, extents, columns) for row in down)
    return Grid(title, labels, tuple(map(str, across)), tuple(cells), tuple(note for note in notes if note))


def _colouring(layout: TileLayout | SwizzledLayout) -> str:
    names = [axis.name for axis in layout.axes]
    for name in _FINEST_FIRST:
        if name in names:
            return name
    threads = [axis.name for axis in layout.axes if axis.kind in ("thread", "device")]
    return threads[-1] if threads else "address"


def _fills(
    layout: TileLayout | SwizzledLayout,
    by: str,
    table: Mapping[str, NDArray[np.int64]],
    extents: tuple[int, ...],
    dtype: Any,
    *,
    flat: NDArray[np.int64] | None = None,
) -> NDArray[np.object_]:
    """Colours of elements, in the form of ``flat`` (or of the whole tensor)."""
    import numpy as np

    if flat is None:
        flat = np.arange(layout.size).reshape(extents)
    columns = _page(extents)[1]
    if by == "address":
        memory = [axis.name for axis in layout.axes if axis.kind == "memory" and axis.name in table]
        value = sum((np.asarray(table[name]) for name in memory), start=np.zeros(flat.shape, dtype=np.int64))
        low, high = int(value.min()), int(value.max())
        return _map(lambda x: ramp((x - low) / max(high - low, 1)), value)
    if by == "bank":
        if dtype is None:
            raise LayoutError("colouring by bank needs the element type: dtype='f16'")
        address = np.asarray(table.get("m", np.zeros(flat.shape, dtype=np.int64))) * dtype_of(dtype).bits // 8
        # The four banks of a 16-byte chunk share a hue.
        return _map(lambda bank: shade(bank // 4 + 8 * (bank % 4)), address // 4 % 32)
    if by in ("row", "column"):
        return _map(shade, flat // columns if by == "row" else flat % columns)
    name = Axis.get(by).name
    return _map(shade, np.asarray(table.get(name, np.zeros(flat.shape, dtype=np.int64))))


def _map(colour: Any, values: NDArray[np.int64]) -> NDArray[np.object_]:
    import numpy as np

    found, where = np.unique(values, return_inverse=True)
    return np.array([colour(int(v)) for v in found], dtype=object)[where].reshape(values.shape)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"


def _label(layout: TileLayout | SwizzledLayout, ends: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """Threads on the first line, widest first, and memory on the second."""
    holders, memory = [], []
    short = _short(ends)
    threaded = any(axis.kind != "memory" for axis in layout.axes)
    order = sorted(ends, key=lambda n: _WIDEST_FIRST.index(n) if n in _WIDEST_FIRST else len(_WIDEST_FIRST))
    for name in order:
        text = _range(*ends[name])
        if Axis.get(name).kind != "memory":
            holders.append(f"{short.get(name, name + ' ')}{text}")
        elif name == "m":
            memory.append(f"r{text}" if threaded else text)
        else:
            memory.append(f"{short.get(name, name + ' ')}{text}")
    copies = math.prod(int(it.extent) for it in replica_of(layout))
    if copies > 1:
        (memory if memory else holders).append(f"×{copies}")
    return tuple(" ".join(line) for line in (holders, memory) if line) or ("·",)


def _replica_notes(layout: TileLayout | SwizzledLayout) -> list[str]:
    iters = replica_of(layout)
    if not iters:
        return []
    texts = ", ".join(f"{it.extent} places {it.stride}@{it.axis.name} apart" for it in iters)
    return [f"×: replicas, every element is in {texts}; cells show the first"]


def _short(names: Iterable[str]) -> dict[str, str]:
    letters = Counter(SHORT[name] for name in names if name in SHORT)
    return {name: SHORT[name] for name in names if letters[SHORT.get(name, "")] == 1}


def _key(names: Sequence[str]) -> str:
    threaded = any(Axis.get(name).kind != "memory" for name in names)
    texts = [f"{letter} {name}" for name, letter in _short(names).items()]
    if "m" in names:
        texts.append("r register (m)" if threaded else "number: address (m)")
    return ", ".join(texts)


def _about(begin: int, last: int, extents: tuple[int, ...], *, exact: bool) -> str:
    first = _tuple(begin, extents)
    if begin == last:
        return first
    return f"{first} to {_tuple(last, extents)}" if exact else f"first of a block, {first}"


def _tuple(flat: int, extents: tuple[int, ...]) -> str:
    return f"({coordinate(flat, extents).replace(',', ', ')})"


def _row_name(flat: int, extents: tuple[int, ...], columns: int) -> str:
    if len(extents) == 1 and columns != extents[0]:
        return f"{flat}+"
    return coordinate(flat, extents).rpartition(",")[0]
