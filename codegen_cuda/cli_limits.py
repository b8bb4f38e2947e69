"""What one command accepts: requests that would fill the memory or the day are refused before they begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.hardware.machine import machine as machine_of

__all__ = ["LARGEST", "require_elements", "require_fits_shared"]

#: Elements of the largest layout that a command tabulates.
LARGEST: Final = 1 << 24


def require_elements(what: str, layout: Any) -> None:
    """Refuse a layout with more elements than a command tabulates; symbolic sizes are left to the command.

    >>> from layoutalg import TileLayout
    >>> require_elements("source", TileLayout.parse("S[1000000000:1]"))
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: the source has 1000000000 elements, and a command handles 16777216: slice it first
    """
    size = layout.size
    if isinstance(size, int) and size > LARGEST:
        raise RangeError(f"the {what} has {size} elements, and a command handles {LARGEST}: slice it first")


def require_fits_shared(shape: Sequence[int], dtype: str, machine: str) -> None:
    """Refuse a tile that no block's shared memory holds.

    >>> require_fits_shared((1024, 1024), "f32", "sm_90")
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: a tile of 4194304 bytes: a block of sm_90 has 232448 bytes of shared memory
    """
    chosen, bytes_wide = machine_of(machine), math.prod(shape) * dtype_of(dtype).bits // 8
    if bytes_wide > chosen.shared_bytes_per_block:
        raise RangeError(
            f"a tile of {bytes_wide} bytes: a block of {chosen.name} has {chosen.shared_bytes_per_block} bytes of "
            f"shared memory"
        )
