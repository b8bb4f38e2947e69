"""A page to play with a layout: edit the notation, see the grid, point at an element, watch the banks.

The page is one file without any network access (its content policy forbids it).  It computes in the browser with a
second implementation of the notation, of ``apply`` and of the bank rule; tests run it in a browser and compare.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutalg.axis import Axis
from layoutalg.draw.grid import PALETTE
from layoutalg.draw.places import check_numbers
from layoutalg.errors import LayoutError
from layoutalg.hardware.dtypes import DTYPES
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["explore_page"]

_TEMPLATE = Path(__file__).with_name("explore.html")


def explore_page(
    layout: TileLayout | SwizzledLayout, shape: Sequence[int] | None = None, *, dtype: Any = "float32"
) -> str:
    """Return the text of the page.

    Args:
        layout: what the page starts with.
        shape: logical extents, outermost first; the layout's own without it.
        dtype: element type, for addresses in bytes and banks.

    Raises:
        LayoutError: parameters or symbols, which the page does not know, or a shape of another size.

    >>> "S[(4,8):(8,1)]" in explore_page(TileLayout.parse("S[4,8]"), (4, 8), dtype="f16")
    True
    """
    check_numbers(layout)
    if shape is not None:
        layout.apply(*(0 for _ in shape), shape=tuple(shape))
    known = {name: one.bits for name, one in DTYPES.items() if one.bits % 8 == 0}
    chosen = dtype_of(dtype).name
    if chosen not in known:
        raise LayoutError(f"the page shows banks of elements of whole bytes, not {chosen}")
    start = {
        "layout": str(layout),
        "shape": "x".join(map(str, shape)) if shape else "",
        "dtype": chosen,
        "dtypes": known,
        "axes": {name: axis.kind for name, axis in Axis.registry.items()},
        "palette": PALETTE,
    }
    # "<" would let a text end the script that carries it.
    data = json.dumps(start).replace("<", "\\u003c")
    return _TEMPLATE.read_text(encoding="utf-8").replace("@START@", data, 1)
