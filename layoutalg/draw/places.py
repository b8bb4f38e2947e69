"""The picture of places: which element lives in a register of a thread, in a cell of tensor memory, at an address."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from layoutalg.axis import Axis
from layoutalg.draw.grid import Cell, Grid
from layoutalg.errors import LayoutError, RangeError
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["block_of", "check_numbers", "coordinate", "holders", "places_grid", "replica_of"]

_ACROSS: Final = ("m", "TCol", "F")
MOST_PLACES: Final = 1 << 18
_NAMED: Final = 4
Place: TypeAlias = tuple[tuple[int, ...], int]


def places_grid(
    layout: TileLayout | SwizzledLayout,
    extents: tuple[int, ...],
    table: Mapping[str, NDArray[np.int64]],
    fills: NDArray[np.object_],
    *,
    width: int,
    limit: int,
    title: str,
) -> Grid:
    """Return the grid of places of a layout.

    Args:
        layout: the layout.
        extents: its logical extents.
        table: its places, as from ``layout.table(extents)``.
        fills: a colour for each element, in the form ``extents``.
        width: addresses a line, where places are addresses alone; 0 chooses.
        limit: cells beyond which a cell stands for a block.
        title: text above.

    Raises:
        RangeError: more than 2^18 places, replicas included.
    """
    names = [axis.name for axis in layout.axes]
    down, across = _sides(names)
    held = holders(layout, table, down, across)
    if not down:
        width = width or _line(extents)
        held = {((place[1] // width * width,), place[1] % width): who for place, who in held.items()}
    rows = sorted({row for row, _ in held})
    columns = range(min(c for _, c in held), max(c for _, c in held) + 1) if down else range(width)
    if not down:
        # Empty lines show gaps; where there are too many of them, the labels of the lines do.
        lines = range(rows[0][0], rows[-1][0] + 1, width)
        rows = [(at,) for at in lines] if len(lines) * width <= limit else rows
    high, wide = block_of(len(rows), len(columns), limit)
    flat_fills = fills.reshape(-1)
    cells = _cells(held, rows, columns, (high, wide), extents, flat_fills, _naming(down, across))
    notes = [f"rows: {' '.join(down)}, columns: {across}" if down else f"{across or 'm'} in lines of {width}"]
    if replica_of(layout):
        notes.append("dashed: a replica of an element that another place holds, too")
    if high * wide > 1:
        notes.append(f"each cell is {high} x {wide} places: first and last element in them, and how many")
    labels = tuple(" ".join(map(str, rows[at])) for at in range(0, len(rows), high))
    return Grid(title, labels, tuple(str(columns[at]) for at in range(0, len(columns), wide)), cells, tuple(notes))


def check_numbers(layout: TileLayout | SwizzledLayout) -> None:
    """Refuse layouts that have no numbers to show.

    Raises:
        LayoutError: a parameter or a symbol.

    >>> check_numbers(TileLayout.parse("S[8:1]"))
    """
    tile = layout.inner if isinstance(layout, SwizzledLayout) else layout
    numbers = [value for it in (*tile.shard, *tile.replica) for value in (it.extent, it.stride)]
    if any(type(value) is not int for value in (*numbers, *tile.offset.values())):
        raise LayoutError(f"{layout} has parameters or symbols; substitute numbers to draw it")


def replica_of(layout: TileLayout | SwizzledLayout) -> Any:
    """Return the replica iters of a layout: those before the swizzle of a swizzled one."""
    return (layout.inner if isinstance(layout, SwizzledLayout) else layout).replica


def _sides(names: Sequence[str]) -> tuple[list[str], str]:
    """Axes that number the rows, and the axis that numbers the columns."""
    rank = {"pid": 0, "bz": 1, "by": 2, "bx": 3, "wgid": 4, "warpid": 5, "wid_in_wg": 6}
    ordered = sorted(names, key=lambda name: (Axis.get(name).kind == "memory", rank.get(name, 7)))
    across = next((name for name in _ACROSS if name in names), ordered[-1] if ordered else "")
    return [name for name in ordered if name != across], across


def _line(extents: tuple[int, ...]) -> int:
    columns = extents[-1] if extents else 1
    return columns if 4 <= columns <= 64 else 32


def holders(
    layout: TileLayout | SwizzledLayout, table: Mapping[str, NDArray[np.int64]], down: Sequence[str], across: str
) -> dict[Place, list[tuple[int, bool]]]:
    """Place -> the elements there, as (flat index, whether this is a replica)."""
    import numpy as np

    copies = math.prod(int(it.extent) for it in replica_of(layout))
    if int(layout.size) * copies > MOST_PLACES:
        raise RangeError(f"{int(layout.size) * copies} places are too many for a picture; slice the layout first")
    zero = np.zeros(int(layout.size), dtype=np.int64)
    held: dict[Place, list[tuple[int, bool]]] = defaultdict(list)
    for number, moved in enumerate(_moves(layout, table)):
        columns = (moved.get(across, zero)).reshape(-1).tolist()
        keys = zip(*(moved[name].reshape(-1).tolist() for name in down), strict=True) if down else itertools.repeat(())
        for flat, (row, column) in enumerate(zip(keys, columns, strict=False)):
            held[row, column].append((flat, number > 0))
    return held


def _moves(layout: TileLayout | SwizzledLayout, table: Mapping[str, NDArray[np.int64]]) -> Any:
    """The table of base places, then one table for every other choice of the replicas' digits."""
    import numpy as np

    yield dict(table)
    zero = np.zeros(int(layout.size), dtype=np.int64)
    inner = layout.inner.table() if isinstance(layout, SwizzledLayout) else table
    choices = itertools.product(*(range(int(it.extent)) for it in replica_of(layout)))
    for digits in itertools.islice(choices, 1, None):
        moved = {name: np.array(values).reshape(-1) for name, values in inner.items()}
        for digit, it in zip(digits, replica_of(layout), strict=True):
            moved[it.axis.name] = moved.get(it.axis.name, zero) + digit * int(it.stride)
        if isinstance(layout, SwizzledLayout):
            moved = {layout.axis.name: layout.swizzle.apply(moved[layout.axis.name])}
        yield moved


def block_of(rows: int, columns: int, limit: int) -> tuple[int, int]:
    """Rows and columns of a block: powers of two, the longer side of the page halved first.

    >>> block_of(64, 128, 1024)
    (2, 4)
    """
    high = wide = 1
    while -(-rows // high) * -(-columns // wide) > limit:
        if -(-rows // high) > -(-columns // wide):
            high *= 2
        else:
            wide *= 2
    return high, wide


def coordinate(flat: int, extents: tuple[int, ...]) -> str:
    """Return a flat index over a shape as text.

    >>> coordinate(11, (4, 8))
    '1,3'
    """
    digits = []
    for extent in reversed(extents):
        flat, digit = divmod(flat, extent)
        digits.append(str(digit))
    return ",".join(reversed(digits))


def _naming(down: Sequence[str], across: str) -> Callable[[tuple[int, ...], int], str]:
    def name(row: tuple[int, ...], column: int) -> str:
        if not down:
            return f"{across or 'm'} {row[0] + column}"
        facts = [f"{axis} {value}" for axis, value in zip(down, row, strict=True)]
        return ", ".join([*facts, f"{across} {column}"] if across else facts)

    return name


def _cells(
    held: Mapping[Place, Sequence[tuple[int, bool]]],
    rows: Sequence[tuple[int, ...]],
    columns: range,
    block: tuple[int, int],
    extents: tuple[int, ...],
    fills: NDArray[np.object_],
    name: Callable[[tuple[int, ...], int], str],
) -> tuple[Cell, ...]:
    """One cell for every block of places that holds an element."""
    where = {row: at for at, row in enumerate(rows)}
    blocks: dict[tuple[int, int], list[Place]] = defaultdict(list)
    for row, column in held:
        blocks[where[row] // block[0], (column - columns.start) // block[1]].append((row, column))
    cells = []
    for (i, j), places in sorted(blocks.items()):
        who = [element for place in places for element in held[place]]
        first = min(who)[0]
        if block == (1, 1):
            (place,) = places
            lines: tuple[str, ...] = _single(who, extents)
            named = ", ".join(f"({coordinate(flat, extents)})" for flat, _ in who[:_NAMED])
            more = f" and {len(who) - _NAMED} more" if len(who) > _NAMED else ""
            title = f"{name(*place)}: {named}{more}"
        else:
            last = max(who)[0]
            lines = (coordinate(first, extents), coordinate(last, extents), f"×{len(who)}")
            title = f"{name(*min(places))} to {name(*max(places))}: {len(who)} elements"
        cells.append(Cell(i, j, lines, title, str(fills[first]), copy=all(copy for _, copy in who)))
    return tuple(cells)


def _single(who: Sequence[tuple[int, bool]], extents: tuple[int, ...]) -> tuple[str, ...]:
    label = coordinate(who[0][0], extents) or "·"
    return (label, f"+{len(who) - 1}") if len(who) > 1 else (label,)
