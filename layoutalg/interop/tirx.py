"""TIRx: tile layouts as ``shard``, ``replica`` and ``offset`` fields, swizzles as ``per_element`` and so on.

The meaning is ours (row-major digits, last iter fastest), so fields carry over one by one.

>>> layout = from_tirx({"shard": [[8, 4, "laneid"], [2, 1, "m"]], "replica": [], "offset": {"warpid": 5}})
>>> print(layout)
S[(8,2):(4@laneid,1)] + 5@warpid
>>> from_tirx(to_tirx(layout)) == layout
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["from_tirx", "to_tirx"]

_PLAIN = ("shard", "replica", "offset")
_SWIZZLE = ("per_element", "swizzle_len", "atom_len", "swizzle_inner")


def from_tirx(fields: Any) -> TileLayout | SwizzledLayout:
    """Read a tile layout or a swizzled one: its fields (``tile`` holds the plain part), or an object of TIRx.

    Raises:
        LayoutError: fields are missing or unknown.
        NotExpressibleError: an object whose numbers are expressions.

    >>> print(from_tirx({"per_element": 3, "swizzle_len": 3, "atom_len": 3, "swizzle_inner": True,
    ...     "tile": {"shard": [[512, 1, "m"]], "replica": [], "offset": {}}}))
    Sw<3,3,3> o S[512:1]
    """
    if not isinstance(fields, Mapping):
        fields = _fields_of(fields)
    if "tile" in fields:
        _check(fields, (*_SWIZZLE, "tile"))
        tile = from_tirx(fields["tile"])
        if not isinstance(tile, TileLayout):
            raise LayoutError("the tile of a swizzled layout is a plain layout")
        return SwizzledLayout(Swizzle(**{name: fields[name] for name in _SWIZZLE}), tile)
    _check(fields, _PLAIN)
    return TileLayout.from_iters(shard=fields["shard"], replica=fields["replica"], offset=fields["offset"])


def _fields_of(layout: Any) -> dict[str, Any]:
    """Return the fields of a ``TileLayout`` or ``ComposeLayout`` of TIRx, whose numbers are constants of its own."""
    if hasattr(layout, "tile_layout"):
        swizzle = {name: int(getattr(layout, name)) for name in _SWIZZLE}
        return {**swizzle, "swizzle_inner": bool(layout.swizzle_inner), "tile": _fields_of(layout.tile_layout)}
    if not all(hasattr(layout, name) for name in _PLAIN):
        raise LayoutError(f"from_tirx reads fields or layouts of TIRx, not {type(layout).__name__}")
    try:
        iters = {
            name: [[int(i.extent), int(i.stride), i.axis.name] for i in getattr(layout, name)] for name in _PLAIN[:2]
        }
        return {**iters, "offset": {axis.name: int(value) for axis, value in layout.offset.items()}}
    except TypeError as error:
        raise NotExpressibleError(f"from_tirx: {layout} has symbolic numbers; substitute constants first") from error


def _check(fields: Mapping[str, Any], names: tuple[str, ...]) -> None:
    if set(fields) != set(names):
        raise LayoutError(f"a layout of this kind has the fields {', '.join(names)}, not {', '.join(sorted(fields))}")


def to_tirx(layout: TileLayout | SwizzledLayout) -> dict[str, Any]:
    """Return the fields; :func:`from_tirx` reads them back.

    Raises:
        NotExpressibleError: a swizzle that is a general map of address bits, or symbolic numbers.
    """
    if isinstance(layout, SwizzledLayout):
        swizzle = layout.swizzle
        if not isinstance(swizzle, Swizzle):
            raise NotExpressibleError(f"to_tirx: {swizzle} is a general map of address bits, no swizzle of TIRx")
        return {**{name: getattr(swizzle, name) for name in _SWIZZLE}, "tile": to_tirx(layout.inner)}
    numbers = [n for it in (*layout.shard, *layout.replica) for n in it[:2]] + list(layout.offset.values())
    if not all(type(n) is int for n in numbers):
        raise NotExpressibleError(f"to_tirx: {layout} has parameters or symbols; substitute numbers first")
    return {
        "shard": [[it.extent, it.stride, it.axis.name] for it in layout.shard],
        "replica": [[it.extent, it.stride, it.axis.name] for it in layout.replica],
        "offset": dict(layout.offset),
    }
