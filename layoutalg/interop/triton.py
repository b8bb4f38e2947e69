"""Triton's linear layouts: for each hardware name, where one more of each bit moves the element.

A linear layout maps hardware to tensor: bit k of ``lane`` set adds (xors) ``bases["lane"][k]`` to the tensor
coordinate.  A tile layout maps tensor to hardware, so converting inverts.  Bases with a single tensor bit each become
digits; a zero base means that hardware bit does not matter, which is a replica:

>>> bases = {"register": [(0, 1)], "lane": [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], "warp": [(0, 0)]}
>>> print(from_linear(bases, (8, 8)).canonicalize())
S[(32,2):(1@laneid,1)] + R[2:1@warpid]

Bases that mix bits (swizzled shared memory) are no digits.  On one memory they are a map over GF(2), and the result is
a ``SwizzledLayout``; over several hardware names they are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from layoutalg.axis import Axis
from layoutalg.errors import NotExpressibleError, RegionError
from layoutalg.f2 import F2Map
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["AXES", "from_linear", "to_linear"]

#: Triton's name of a hardware dimension and the axis that it is here.
AXES: Final[Mapping[str, str]] = {
    "register": "m",
    "offset": "m",
    "lane": "laneid",
    "warp": "warpid",
    "block": "cbx",
}

Bases = Mapping[str, Sequence[Sequence[int]]]


def from_linear(bases: Bases, shape: Sequence[int], *, axes: Mapping[str, str] = AXES) -> TileLayout | SwizzledLayout:
    """Read the bases of a linear layout over a tensor of power-of-two extents.

    Law: for hardware bits h, the element at the xor of their bases has h among its places.

    Args:
        bases: hardware name -> one tensor coordinate (outermost first) per bit.
        shape: the tensor's extents.
        axes: hardware name -> axis.

    Raises:
        RegionError: an extent is no power of two, or a basis has the wrong rank or leaves the shape.
        NotExpressibleError: two hardware bits hold one tensor bit, a tensor bit nobody holds, or mixed bits over
            several hardware names.
    """
    widths = [_log2(extent, "shape") for extent in shape]
    flat = {name: [_flatten(basis, shape, name) for basis in rows] for name, rows in bases.items()}
    columns = [(axes[_known(name, axes)], k, value) for name, rows in flat.items() for k, value in enumerate(rows)]
    bits = sum(widths)
    if any(value & (value - 1) for _, _, value in columns):
        return _from_mixed(columns, bits)
    holders: dict[int, tuple[str, int]] = {}
    replica: list[tuple[int, int, str]] = []
    for axis, k, value in columns:
        if value == 0:
            replica.append((2, 1 << k, axis))
        elif value in holders:
            raise NotExpressibleError(
                f"from_linear: bit {k} of {axis} and bit {holders[value][1]} of {holders[value][0]} both move tensor "
                f"index {value}: such a xor of two hardware bits is no tile layout",
                index=value,
            )
        else:
            holders[value] = (axis, k)
    missing = [1 << b for b in range(bits) if 1 << b not in holders]
    if missing:
        raise NotExpressibleError(f"from_linear: no hardware bit reaches tensor index {missing[0]}", index=missing[0])
    shard = [(2, 1 << holders[1 << b][1], holders[1 << b][0]) for b in range(bits - 1, -1, -1)]
    return TileLayout.from_iters(shard=shard, replica=replica)


def _from_mixed(columns: list[tuple[str, int, int]], bits: int) -> SwizzledLayout:
    names = sorted({axis for axis, _, _ in columns})
    if len(names) > 1:
        raise NotExpressibleError(
            f"from_linear: bases mix tensor bits over {', '.join(names)}; mixed bits are a layout on one memory only"
        )
    if len(columns) != bits or Axis.get(names[0]).kind != "memory":
        raise NotExpressibleError(f"from_linear: {len(columns)} mixed bases for {bits} tensor bits are not invertible")
    forward = F2Map(tuple(value for _, _, value in sorted(columns, key=lambda c: c[1])))
    return SwizzledLayout(forward.inverse(), TileLayout.from_iters(shard=[(1 << bits, 1, names[0])]))


def to_linear(layout: TileLayout, shape: Sequence[int]) -> dict[str, list[tuple[int, ...]]]:
    """Return Triton's bases of a layout, by axis name (``m``, ``laneid``, ...), one coordinate per hardware bit.

    Raises:
        NotExpressibleError: an extent or stride is no power of two, two digits meet in one hardware bit, an offset, or
            a gap in the hardware bits.

    >>> to_linear(TileLayout.parse("S[(32,2):(1@laneid,1)]"), (8, 8))["laneid"]
    [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
    """
    for extent in shape:
        _log2(extent, "shape")
    if any(value != 0 for value in layout.offset.values()):
        raise NotExpressibleError(f"to_linear: a linear layout maps 0 to 0, and {layout} has an offset")
    canonical = layout.canonicalize()
    bases: dict[str, dict[int, int]] = {}
    unit = 1
    for it in reversed(canonical.shard):
        for k in range(_log2(it.extent, f"iter {it}")):
            _enter(bases, it.axis.name, it.stride << k, unit << k, layout)
        unit *= it.extent
    for it in canonical.replica:
        for k in range(_log2(it.extent, f"replica {it}")):
            _enter(bases, it.axis.name, it.stride << k, 0, layout)
    return {name: [_unflatten(rows[k], shape) for k in range(len(rows))] for name, rows in _dense(bases, layout)}


def _enter(bases: dict[str, dict[int, int]], axis: str, place: int, value: int, layout: TileLayout) -> None:
    bit = place.bit_length() - 1
    if place < 1 or place != 1 << bit or bit in bases.setdefault(axis, {}):
        raise NotExpressibleError(
            f"to_linear: {layout} puts index {value} at {place} on {axis}, which is no hardware bit of its own"
        )
    bases[axis][bit] = value


def _dense(bases: dict[str, dict[int, int]], layout: TileLayout) -> list[tuple[str, dict[int, int]]]:
    for axis, rows in bases.items():
        if sorted(rows) != list(range(len(rows))):
            raise NotExpressibleError(f"to_linear: {layout} leaves bit {_gap(rows)} of {axis} unused")
    return list(bases.items())


def _gap(rows: dict[int, int]) -> int:
    return next(k for k in range(len(rows) + 1) if k not in rows)


def _known(name: str, axes: Mapping[str, str]) -> str:
    if name not in axes:
        raise RegionError(f"hardware name {name!r} has no axis; known: {', '.join(axes)}; pass axes=")
    return name


def _log2(extent: Any, what: str) -> int:
    if not isinstance(extent, int) or extent < 1 or extent & (extent - 1):
        raise NotExpressibleError(f"a linear layout has powers of two only; {what} has the extent {extent}")
    return extent.bit_length() - 1


def _flatten(basis: Sequence[int], shape: Sequence[int], name: str) -> int:
    if len(basis) != len(shape) or any(not 0 <= x < e for x, e in zip(basis, shape, strict=False)):
        raise RegionError(f"basis {tuple(basis)} of {name} does not lie in the shape {tuple(shape)}")
    flat = 0
    for x, extent in zip(basis, shape, strict=True):
        flat = flat * extent + x
    return flat


def _unflatten(value: int, shape: Sequence[int]) -> tuple[int, ...]:
    digits = []
    for k, extent in enumerate(shape):
        digits.append(value // math.prod(shape[k + 1 :]) % extent)
    return tuple(digits)
