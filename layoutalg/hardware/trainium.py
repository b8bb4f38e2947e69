"""Tiles of a Trainium core: 128 partitions ``P``, each with a free dimension ``F``, in eight banks for accumulators.

Every dimension of a tensor is marked P or F.  Partition dimensions count over at most 128 partitions; what exceeds
them goes to the free dimension, outside everything that is there.  In the accumulator memory (PSUM) the free dimension
of a partition is cut into banks of 2 KiB, 512 elements of 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from layoutalg.decide import as_number
from layoutalg.errors import RangeError
from layoutalg.tile import TileLayout

__all__ = ["BANK_ELEMENTS", "PARTITIONS", "trainium_layout"]

PARTITIONS: Final = 128
BANK_ELEMENTS: Final = 512

_Digits = list[tuple[int, int, str]]


def trainium_layout(marks: str, shape: Sequence[int], *, psum: bool = False) -> TileLayout:
    """Return the layout of a tensor whose dimensions are marked as partition or free.

    Args:
        marks: one letter per dimension, ``"P"`` or ``"F"``, such as ``"FPF"``.
        shape: extents of the tensor; the partition extents multiply to at most 128 or to a multiple of it.
        psum: in accumulator memory, where the free dimension falls into banks of 512 elements.

    Raises:
        RangeError: other marks, or extents that do not divide so.

    >>> print(trainium_layout("PF", (384, 8)))
    S[(3,128,8):(8@F,1@P,1@F)]
    >>> print(trainium_layout("PF", (128, 2048), psum=True))
    S[(128,4,512):(1@P,1@Bank,1@F)]
    """
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise RangeError(f"the tensor's shape must be a sequence of extents, not {shape!r}", shape=shape)
    extents = tuple(as_number(extent, "an extent of the tensor") for extent in shape)
    if not isinstance(marks, str) or not marks or set(marks) - {"P", "F"} or len(marks) != len(extents):
        raise RangeError(f"marks {marks!r} are no P or F for each of {len(extents)} dimensions", marks=marks)
    if not all(type(extent) is int and extent >= 1 for extent in extents):
        raise RangeError(f"shape {extents} needs positive extents", shape=extents)
    digits = _digits(marks, extents)
    return TileLayout.from_iters(shard=_banked(digits) if psum else digits)


def _digits(marks: str, extents: tuple[int, ...]) -> _Digits:
    """Give every dimension its digits, innermost ones first to get a stride."""
    partitions = prod(e for mark, e in zip(marks, extents, strict=True) if mark == "P")
    free = prod(e for mark, e in zip(marks, extents, strict=True) if mark == "F")
    if partitions > PARTITIONS and partitions % PARTITIONS:
        raise RangeError(f"{partitions} partitions are more than {PARTITIONS} and no multiple", partitions=partitions)
    inner = {"P": 1, "F": 1}
    digits: _Digits = []
    for mark, extent in zip(reversed(marks), reversed(extents), strict=True):
        if mark == "F":
            digits.append((extent, inner["F"], "F"))
            inner["F"] *= extent
            continue
        room = max(1, PARTITIONS // inner["P"])
        here, outside = (extent, 1) if extent <= room else (room, extent // room)
        if here * outside != extent:
            raise RangeError(f"a partition dimension of {extent} does not split at {room}", extent=extent)
        if here > 1 or outside == 1:
            digits.append((here, inner["P"], "P"))
        inner["P"] *= here
        if outside > 1:
            digits.append((outside, free, "F"))
            free *= outside
    return digits[::-1]


def _banked(digits: _Digits) -> _Digits:
    """Split the free coordinate into bank and place within it."""
    result: _Digits = []
    reach = 0
    for extent, stride, axis in digits:
        if axis != "F" or extent == 1:
            result.append((extent, stride if axis != "F" else 0, axis))
            continue
        if stride % BANK_ELEMENTS == 0:
            result.append((extent, stride // BANK_ELEMENTS, "Bank"))
            continue
        if extent * stride > BANK_ELEMENTS and BANK_ELEMENTS % stride == 0 and extent % (BANK_ELEMENTS // stride) == 0:
            run = BANK_ELEMENTS // stride
            result.append((extent // run, 1, "Bank"))
            extent = run
        reach += (extent - 1) * stride
        result.append((extent, stride, "F"))
    if reach >= BANK_ELEMENTS:
        raise RangeError(
            f"free digits {[d for d in digits if d[2] == 'F']} run across the ends of banks of {BANK_ELEMENTS}",
            reach=reach,
        )
    return result
