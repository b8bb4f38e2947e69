"""Exact layout algebra for GPU kernels.

>>> from layoutalg import S, TileLayout
>>> from layoutalg.axis import laneid
>>> TileLayout(S[(8, 4) : (4 @ laneid, 1 @ laneid)]).canonicalize()
TileLayout(S[32:1@laneid])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layoutalg.axis import Axis
from layoutalg.errors import (
    AxisError,
    LayoutError,
    NotationError,
    NotExpressibleError,
    RangeError,
    RegionError,
    UndecidedError,
)
from layoutalg.index import Affine, Param
from layoutalg.iters import Iter
from layoutalg.notation import R, S
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    from layoutalg.swizzle import Swizzle
    from layoutalg.swizzled import SwizzledLayout, parse_layout

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "Axis",
    "AxisError",
    "Iter",
    "LayoutError",
    "NotExpressibleError",
    "NotationError",
    "Param",
    "R",
    "RangeError",
    "RegionError",
    "S",
    "Swizzle",
    "SwizzledLayout",
    "TileLayout",
    "UndecidedError",
    "__version__",
    "parse_layout",
]

_LAZY = {
    "Swizzle": "layoutalg.swizzle",
    "SwizzledLayout": "layoutalg.swizzled",
    "parse_layout": "layoutalg.swizzled",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'layoutalg' has no attribute {name!r}")
