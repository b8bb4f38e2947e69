"""Orders in which a permute can walk its elements with index arithmetic alone: logical, source and destination order.

An order is a relabelling of the elements by position.  Where both layouts split into the same digits, sorting the
digits by their stride on one side makes that side's addresses increase with the position.

>>> from layoutalg import S, TileLayout
>>> rows, columns = TileLayout(S[(4, 32):(32, 1)]), TileLayout(S[(4, 32):(1, 4)])
>>> [(order.name, str(order.destination)) for order in orders(rows, columns)]
[('logical', 'S[(4,32):(1,4)]'), ('destination', 'S[128:1]')]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen_cuda.permute.problem import Layout, inner
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import Iter
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["Order", "orders"]


@dataclass(frozen=True, slots=True)
class Order:
    """A walk through the elements.

    Args:
        name: ``logical``, ``source`` or ``destination``.
        element: position -> flat logical index.
        source: position -> place in the source.
        destination: position -> place in the destination.
    """

    name: str
    element: TileLayout
    source: Layout
    destination: Layout


def orders(source: Layout, destination: Layout) -> Iterator[Order]:
    """Yield the different orders, logical first."""
    size = source.size
    identity = TileLayout.from_iters(shard=[(size, 1, "m")])
    yield Order("logical", identity, source, destination)
    shapes = [[it.extent for it in inner(layout).shard] or [1] for layout in (source, destination)]
    try:
        sides = [layout.group_many(shapes)[0] for layout in (identity, inner(source), inner(destination))]
    except NotExpressibleError:
        return
    digits = [it for it in zip(*(side.shard for side in sides), strict=True) if it[0].extent > 1]
    seen = [list(range(len(digits)))]
    for name, which in (("source", 1), ("destination", 2)):
        walk = sorted(range(len(digits)), key=lambda d, w=which: -abs(digits[d][w].stride))  # type: ignore[misc]
        if walk not in seen:
            seen.append(walk)
            element, src, dst = (_walk(digits, walk, side) for side in range(3))
            yield Order(name, identity_with(element), _with(source, src), _with(destination, dst))


def _walk(digits: Sequence[tuple[Iter, ...]], walk: Sequence[int], side: int) -> list[tuple[int, int, str]]:
    return [(digits[d][side].extent, digits[d][side].stride, "m") for d in walk]


def identity_with(iters: list[tuple[int, int, str]]) -> TileLayout:
    """Return the layout of some iters without an offset."""
    return TileLayout.from_iters(shard=iters).canonicalize()


def _with(layout: Layout, iters: list[tuple[int, int, str]]) -> Layout:
    """Replace a layout's digits, keeping its offset and its swizzle."""
    tile = TileLayout.from_iters(shard=iters, offset=dict(inner(layout).offset)).canonicalize()
    return SwizzledLayout(layout.swizzle, tile) if isinstance(layout, SwizzledLayout) else tile
