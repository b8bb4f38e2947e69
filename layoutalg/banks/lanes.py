"""The access of a warp whose lanes walk a layout: the shortest way from a layout to its price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layoutalg.banks.access import FULL_MASK, MATRIX_OPS, WarpAccess
from layoutalg.errors import AxisError, RangeError, RegionError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of

if TYPE_CHECKING:
    from layoutalg.swizzled import SwizzledLayout
    from layoutalg.tile import TileLayout

__all__ = ["warp_access"]


def warp_access(
    layout: TileLayout | SwizzledLayout, dtype: Dtype | str, *, op: str = "ld.shared", vector: int = 1, base: int = 0
) -> WarpAccess:
    """The access in which lane l moves elements ``l*vector`` to ``l*vector + vector - 1`` of a layout.

    Args:
        layout: at most 32 * vector elements, on one memory axis; lanes beyond its end are idle.
        dtype: element type; a lane's elements make 1, 2, 4, 8 or 16 bytes.
        op: as in :class:`WarpAccess`; for matrix operations the layout's elements are rows of 16 bytes.
        vector: elements per lane, side by side in memory.
        base: byte address of element offset 0.

    Raises:
        RegionError: the layout is larger than a warp's access.
        AxisError: the layout is on no single memory axis.
        RangeError: a lane's elements are no aligned neighbours.

    Column 3 of a swizzled half tile:

    >>> from layoutalg import SwizzledLayout
    >>> from layoutalg.banks import simulate
    >>> tile = SwizzledLayout.parse("Sw<3,3,3> o S[32,64]")
    >>> simulate(warp_access(tile.slice((32, 64), ((0, 32), 3)), "f16")).excess
    3
    """
    tables = layout.table()
    if len(tables) > 1:
        raise AxisError(f"a warp's access needs offsets on one memory axis, not on {', '.join(tables)}: {layout}")
    bits = dtype_of(dtype).bits
    width, rest = divmod(vector * bits, 8)
    if rest or vector < 1:
        raise RangeError(f"{vector} elements of {dtype} are {vector * bits} bits, no whole number of bytes")
    lanes = layout.size // vector
    if lanes > 32 or layout.size % vector:
        raise RegionError(f"{layout} has {layout.size} elements; a warp moves at most 32 lanes of {vector}")
    offsets = next(iter(tables.values())).tolist() if tables else [0] * layout.size
    starts = offsets[::vector]
    for k in range(1, vector):
        if any(offset != start + k for offset, start in zip(offsets[k::vector], starts, strict=True)):
            raise RangeError(f"{layout}: the {vector} elements of a lane are not side by side in memory")
    addresses = [base + (start * bits >> 3) for start in starts]
    if op in MATRIX_OPS:
        return WarpAccess(op, width, addresses=addresses)
    mask = FULL_MASK if lanes == 32 else (1 << lanes) - 1
    return WarpAccess(op, width, addresses=addresses + [0] * (32 - lanes), mask=mask)
