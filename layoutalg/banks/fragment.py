"""Who holds what: a fragment layout as a table of warps, registers and lanes.

A fragment layout sends the flat logical index of an element to thread axes (who) and to ``m`` (which of the
thread's element slots).  The table turns that round: the element in every slot of every lane of every warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.errors import AxisError, RangeError
from layoutalg.tile import TileLayout

__all__ = ["Holding", "holding_of"]

Ints = npt.NDArray[np.int64]

# The spellings of a thread, from SEMANTICS: tx = 32*warpid + laneid = 128*wgid + tid_in_wg.
_WEIGHT = {"laneid": 1, "tid_in_wg": 1, "tx": 1, "warpid": 32, "wid_in_wg": 32, "wgid": 128}
_RANGE = {"laneid": 32, "tid_in_wg": 128, "wid_in_wg": 4}
_SPELLINGS = ({"laneid", "warpid"}, {"laneid", "wid_in_wg", "wgid"}, {"tid_in_wg", "wgid"}, {"tx"})
_LIMIT = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """The elements that a fragment layout puts into registers.

    Args:
        warps: the numbers of the warps that hold something, ascending.
        registers: the element slots in use, ascending (coordinates on ``m``).
        elements: flat logical index by [warp, register, lane]; -1 where a lane holds nothing in that slot.
        full: whether no slot of no lane is idle.
    """

    warps: tuple[int, ...]
    registers: tuple[int, ...]
    elements: Ints
    full: bool


@lru_cache(maxsize=64)
def holding_of(fragment: TileLayout) -> Holding:
    """Turn a fragment layout into the table of who holds what; replicas hold copies.

    Args:
        fragment: flat logical index -> thread axes and ``m``.

    Raises:
        AxisError: an axis that names no thread of a block and no register, or two spellings of a thread at once.
        RangeError: a lane or warp number out of its range, or two elements in one slot of one lane.
        UndecidedError: the layout has parameters or symbols.

    >>> from layoutalg.tile import TileLayout
    >>> holding = holding_of(TileLayout.parse("S[(2,32,2):(2,1@laneid,1)]"))
    >>> holding.registers, holding.elements[0, 2, :3].tolist()
    ((0, 1, 2, 3), [64, 66, 68])
    """
    if not isinstance(fragment, TileLayout):
        raise AxisError(f"a fragment layout is a TileLayout over thread axes and m, not {fragment!r}")
    names = {axis.name for axis in fragment.axes}
    _check_spelling(fragment, names)
    places = _all_places(fragment)
    size = fragment.size
    for name, limit in _RANGE.items():
        if name in places:
            _check_range(places[name], name=name, limit=limit, size=size)
    count = len(next(iter(places.values()))) if places else size
    zero = np.zeros(count, np.int64)
    thread = sum((weight * places[name] for name, weight in _WEIGHT.items() if name in places), start=zero)
    slot = places.get("m", zero)
    for what, values in (("thread", thread), ("register", slot)):
        _check_range(values, name=what, limit=None, size=size)
    return _tabulate(thread, slot, np.arange(count) % size)


def _check_spelling(fragment: TileLayout, names: set[str]) -> None:
    strange = names - set(_WEIGHT) - {"m"}
    if strange:
        raise AxisError(
            f"fragment {fragment} lives on {', '.join(sorted(strange))}; a fragment says which thread "
            f"({', '.join(_WEIGHT)}) holds an element in which slot (m)",
            axes=tuple(sorted(strange)),
        )
    threads = names - {"m"}
    if not any(threads <= spelling for spelling in _SPELLINGS):
        raise AxisError(
            f"fragment {fragment} names threads twice over, by {', '.join(sorted(threads))}; "
            "use laneid and warpid, or laneid, wid_in_wg and wgid, or tid_in_wg and wgid, or tx (see fuse_axes)",
            axes=tuple(sorted(threads)),
        )


def _all_places(fragment: TileLayout) -> dict[str, Ints]:
    """Every place of every element: the base table repeated for each choice of replica digits."""
    places = fragment.table()
    copies = int(np.prod([it.extent for it in fragment.replica], dtype=object))
    if fragment.size * copies > _LIMIT:
        raise RangeError(f"fragment {fragment} has {fragment.size * copies} places; at most {_LIMIT} are tabulated")
    for it in fragment.replica:
        steps = np.arange(it.extent)[:, None]
        places = {
            name: (values + (steps * it.stride if name == it.axis.name else 0 * steps)).reshape(-1)
            for name, values in places.items()
        }
    return places


def _check_range(values: Ints, *, name: str, limit: int | None, size: int) -> None:
    wrong = values < 0 if limit is None else (values < 0) | (values >= limit)
    if wrong.any():
        at = int(wrong.argmax())
        bound = "negative" if limit is None else f"outside [0, {limit})"
        raise RangeError(f"fragment: index {at % size} is in {name} {values[at]}, {bound}", index=at % size, axis=name)


def _tabulate(thread: Ints, slot: Ints, element: npt.NDArray[Any]) -> Holding:
    warps, warp_at = np.unique(thread >> 5, return_inverse=True)
    registers, register_at = np.unique(slot, return_inverse=True)
    shape = (len(warps), len(registers), 32)
    if int(np.prod(shape, dtype=object)) > _LIMIT:
        raise RangeError(f"fragment: {shape[0]} warps x {shape[1]} registers x 32 lanes are more than {_LIMIT} slots")
    elements = np.full(shape, -1, np.int64)
    key = (warp_at.reshape(-1), register_at.reshape(-1), thread & 31)
    elements[key] = element
    lost = elements[key] != element
    if lost.any():
        at = int(lost.argmax())
        w, r, lane = (int(part[at]) for part in key)
        raise RangeError(
            f"fragment: elements {element[at]} and {elements[w, r, lane]} are both in register {registers[r]} of "
            f"lane {lane} of warp {warps[w]}",
            lane=lane,
            warp=int(warps[w]),
            register=int(registers[r]),
        )
    elements.setflags(write=False)
    return Holding(tuple(warps.tolist()), tuple(registers.tolist()), elements, bool((elements >= 0).all()))
