"""Pictures of layouts and of what hardware makes of them: SVG text, no dependencies.

>>> from layoutalg import TileLayout
>>> from layoutalg.draw import draw
>>> draw(TileLayout.parse("S[(8,4):(4@laneid,1@laneid)]"), (8, 4))
<Picture of 221 x 233 px>

Names load on first use, so that importing the library stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutalg.draw.banks import bank_map as bank_map
    from layoutalg.draw.banks import instruction_map as instruction_map
    from layoutalg.draw.banks import tile_map as tile_map
    from layoutalg.draw.grid import Picture as Picture
    from layoutalg.draw.grid import beside as beside
    from layoutalg.draw.layout import compare as compare
    from layoutalg.draw.layout import draw as draw
    from layoutalg.draw.tmem import tmem_map as tmem_map

_HOME = {
    "Picture": "layoutalg.draw.grid",
    "bank_map": "layoutalg.draw.banks",
    "beside": "layoutalg.draw.grid",
    "compare": "layoutalg.draw.layout",
    "draw": "layoutalg.draw.layout",
    "instruction_map": "layoutalg.draw.banks",
    "tile_map": "layoutalg.draw.banks",
    "tmem_map": "layoutalg.draw.tmem",
}

__all__ = ["Picture", "bank_map", "beside", "compare", "draw", "instruction_map", "tile_map", "tmem_map"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
