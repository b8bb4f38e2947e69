"""The map of shared memory, line by bank: a row is 128 bytes, a column a bank, a cell one word of 4 bytes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from layoutalg.draw.grid import Cell, Grid
from layoutalg.draw.places import MOST_PLACES, coordinate, holders
from layoutalg.errors import LayoutError, RangeError
from layoutalg.hardware.dtypes import dtype as dtype_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from layoutalg.swizzled import SwizzledLayout
    from layoutalg.tile import TileLayout

__all__ = ["lines_grid"]

_BANKS: Final = 32
_WORD: Final = 4
_NAMED: Final = 8  # elements that a tooltip names


def lines_grid(
    layout: TileLayout | SwizzledLayout,
    extents: tuple[int, ...],
    table: Mapping[str, NDArray[np.int64]],
    fills: NDArray[np.object_],
    *,
    dtype: Any,
    limit: int,
    title: str,
) -> Grid:
    """Return the grid of words of a layout in memory.

    Args:
        layout: over ``m`` alone.
        extents: its logical extents.
        table: its places, as from ``layout.table(extents)``.
        fills: a colour for each element, in the form ``extents``.
        dtype: element type of whole bytes.
        limit: cells beyond which a cell stands for several lines.
        title: text above.

    Raises:
        LayoutError: no element type, or a layout over other axes than ``m``.
        RangeError: more than 2^18 places, replicas included.
    """
    if dtype is None:
        raise LayoutError("banks need the element type: dtype='f16'")
    if any(axis.name != "m" for axis in layout.axes):
        raise LayoutError(f"banks are those of shared memory, and {layout} has other axes than m")
    words = _words(layout, table, dtype_of(dtype).bytes)
    first, last = min(words) // _BANKS, max(words) // _BANKS
    lines: Sequence[int] = range(first, last + 1)
    if len(lines) * _BANKS > MOST_PLACES:
        raise RangeError(f"{len(lines)} lines of memory are too many for a picture; slice the layout first")
    if len(lines) * _BANKS > limit:
        lines = sorted({word // _BANKS for word in words})  # without the empty ones
    high = -(-len(lines) * _BANKS // limit)
    blocks: dict[tuple[int, int], list[int]] = defaultdict(list)
    place = {line: at for at, line in enumerate(lines)}
    for word in sorted(words):
        blocks[place[word // _BANKS] // high, word % _BANKS].append(word)
    flat_fills = fills.reshape(-1)
    cells = tuple(_cell(at, inside, words, extents, flat_fills) for at, inside in blocks.items())
    notes = ["rows: byte address, columns: bank; a cell is a word of 4 bytes and the element that begins in it"]
    if high > 1:
        notes.append(f"each cell is {high} lines: how many elements are in its words")
    labels = tuple(str(lines[at] * _BANKS * _WORD) for at in range(0, len(lines), high))
    return Grid(title, labels, tuple(map(str, range(_BANKS))), cells, tuple(notes))


def _words(
    layout: TileLayout | SwizzledLayout, table: Mapping[str, NDArray[np.int64]], size: int
) -> dict[int, list[tuple[int, bool]]]:
    """Word -> the elements with a byte in it, as (flat index, whether this is a replica), in order of address."""
    words: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for (_, offset), who in sorted(holders(layout, table, (), "m").items()):
        for word in range(offset * size // _WORD, ((offset + 1) * size - 1) // _WORD + 1):
            words[word] += who
    return words


def _cell(
    at: tuple[int, int],
    inside: Sequence[int],
    words: Mapping[int, list[tuple[int, bool]]],
    extents: tuple[int, ...],
    fills: NDArray[np.object_],
) -> Cell:
    held = [one for word in inside for one in words[word]]
    names = [f"({coordinate(flat, extents)})" + (" again" if copy else "") for flat, copy in held]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    where = f"word {inside[0]}" if len(inside) == 1 else f"words {inside[0]} to {inside[-1]}"
    title = f"bank {at[1]}, {where}, byte {inside[0] * _WORD}: {' '.join(names[:_NAMED])}{more}"
    if len(inside) > 1:
        label = str(len(held))
    else:
        label = coordinate(held[0][0], extents) + (f" +{len(held) - 1}" if len(held) > 1 else "")
    return Cell(*at, (label,), title, str(fills[held[0][0]]), copy=all(copy for _, copy in held))
