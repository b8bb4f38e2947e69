"""CuTe: ``(4,(2,3)):(1,(4,8))``, first mode fastest.

A CuTe layout is a function of an integer, like ours; only the digit order differs: CuTe's first mode is the fastest
digit, our last iter is.  So a conversion flattens the modes and reverses them, and the function of the *index* stays:

>>> layout = from_cute("(4,(2,3)):(1,(4,8))")
>>> print(layout, [layout.apply(i)["m"] for i in range(6)])
S[(3,2,4):(8,4,1)] [0, 1, 2, 3, 4, 5]

A coordinate (c0, c1) of CuTe's shape is therefore (c1, c0) over the reversed shape; ``coordinates=True`` instead keeps
every mode at its place, so that coordinates mean the same tensor element and the index order changes.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn, TypeAlias

from layoutalg.axis import m
from layoutalg.errors import LayoutError, NotationError, NotExpressibleError
from layoutalg.iters import Iter, make_iter
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["from_cute", "to_cute", "to_cute_tuples"]

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"

_TOKEN = re.compile(r"\s*(?:_?(?P<int>-?[0-9]+)|(?P<sign>[(),]))")
_HEAD = re.compile(
    r"\s*(?:(?:Sw|Swizzle)<|SW_)\s*(\d+)\s*[,_]\s*(\d+)\s*[,_]\s*(-?\d+)\s*>?\s*o\s*(?:_?(-?\d+)\s*o\s*)?"
)


def from_cute(layout: Any, stride: Any = None, *, coordinates: bool = False) -> TileLayout | SwizzledLayout:
    """Read a CuTe layout: text, a pair ``(shape, stride)``, shape and stride apart, or a layout of another package.

    Law: without ``coordinates``, ``result.apply(i)["m"]`` is CuTe's ``layout(i)`` for every index i.

    Args:
        layout: text as CuTe and pycute print it (static ``_4`` and ``Sw<B,M,S> o offset o layout`` included), the
            shape, or an object of pycute or tensor-layouts: with ``shape`` and ``stride``, or swizzled.
        stride: the strides, congruent with the shape; column-major (CuTe's default) without them.
        coordinates: keep mode k as dimension k instead of keeping the index order.

    Raises:
        NotationError: malformed text.
        LayoutError: shape and stride are not congruent.

    >>> print(from_cute("Sw<3,3,3> o _0 o (8,8):(8,1)"), from_cute((4, 8)))
    Sw<3,3,3> o S[(8,8):(1,8)] S[(8,4):(4,1)]
    """
    if isinstance(layout, str):
        return _from_text(layout, coordinates)
    if not isinstance(layout, tuple | int):
        return _from_object(layout, coordinates)
    if isinstance(layout, int):
        return _build(layout, stride, coordinates)
    if stride is None and len(layout) == 2 and all(isinstance(part, tuple) for part in layout):
        layout, stride = layout
    return _build(layout, stride, coordinates)


def _from_text(text: str, coordinates: bool) -> TileLayout | SwizzledLayout:
    head = _HEAD.match(text)
    body, _, strides = text[head.end() if head else 0 :].partition(":")
    start = head.end() if head else 0
    shape = _Reader(text, start, start + len(body)).whole()
    stride = _Reader(text, start + len(body) + 1, len(text)).whole() if strides else None
    tile = _build(shape, stride, coordinates)
    if head is None:
        return tile
    bits, base, shift, offset = (int(g or 0) for g in head.groups())
    return SwizzledLayout(Swizzle(bits, base, shift), tile + offset if offset else tile)


def _from_object(layout: Any, coordinates: bool) -> TileLayout | SwizzledLayout:
    """Read a composition (pycute: layoutB o offset o layoutA; tensor-layouts: outer o offset o inner), or a layout."""
    for outer, inner in (("layoutB", "layoutA"), ("outer", "inner")):
        if hasattr(layout, outer) and hasattr(layout, inner):
            swizzle, tile = getattr(layout, outer), _from_object(getattr(layout, inner), coordinates)
            if not all(hasattr(swizzle, name) for name in ("bits", "base", "shift")) or isinstance(
                tile, SwizzledLayout
            ):
                raise NotExpressibleError(f"from_cute: {layout} composes more than one swizzle with one layout")
            inside = tile + layout.offset if layout.offset else tile
            return SwizzledLayout(Swizzle(swizzle.bits, swizzle.base, swizzle.shift), inside)
    if not hasattr(layout, "shape") or not hasattr(layout, "stride"):
        raise LayoutError(
            f"from_cute reads text, tuples, and objects with shape and stride, not {type(layout).__name__}"
        )
    return _build(layout.shape, layout.stride, coordinates)


def _build(shape: Any, stride: Any, coordinates: bool) -> TileLayout:
    if stride is None:
        stride = _column_major(shape, [1])
    modes = list(zip(shape, stride, strict=True)) if _congruent_top(shape, stride) else [(shape, stride)]
    per_mode = [tuple(reversed(_leaves(e, s))) for e, s in modes]
    order = per_mode if coordinates else per_mode[::-1]
    iters = [(it.extent, it.stride, it.axis) for mode in order for it in mode]
    return TileLayout.from_iters(shard=iters)


def _congruent_top(shape: Any, stride: Any) -> bool:
    return isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride)


def _leaves(shape: Any, stride: Any) -> list[Iter]:
    """Return the leaves of one mode, fastest first."""
    if _congruent_top(shape, stride):
        return [leaf for e, s in zip(shape, stride, strict=True) for leaf in _leaves(e, s)]
    if isinstance(shape, tuple) or isinstance(stride, tuple):
        raise LayoutError(f"shape {shape} and stride {stride} of a CuTe layout are not congruent")
    return [make_iter(shape, stride, m)]


def _column_major(shape: Any, pitch: list[int]) -> Any:
    if isinstance(shape, tuple):
        return tuple(_column_major(part, pitch) for part in shape)
    stride, pitch[0] = pitch[0], pitch[0] * shape
    return stride


class _Reader:
    """Nested tuples of integers between two columns of a text."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.at, self.end = text, start, end

    def fail(self, reason: str) -> NoReturn:
        raise NotationError(reason, text=self.text, position=self.at)

    def whole(self) -> Any:
        value = self.value(0)
        if self.text[self.at : self.end].strip():
            self.fail("expected the end of a CuTe shape or stride")
        return value

    def token(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.at, self.end)

    def take(self, sign: str) -> bool:
        found = self.token()
        if found is None or found["sign"] != sign:
            return False
        self.at = found.end()
        return True

    def value(self, depth: int) -> Any:
        found = self.token()
        if depth > 50:
            self.fail("a CuTe tuple nested over 50 deep")
        if self.take("("):
            if self.take(")"):
                return ()
            parts = [self.value(depth + 1)]
            while not self.take(")"):
                if not self.take(","):
                    self.fail("expected ',' or ')' in a CuTe tuple")
                if self.take(")"):  # Python's tuple of one: (4,)
                    break
                parts.append(self.value(depth + 1))
            return tuple(parts)
        if found is None or found["int"] is None:
            self.fail("expected an integer or '(' of a CuTe layout")
        self.at = found.end()
        return int(found["int"])


def to_cute_tuples(layout: TileLayout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return flat ``(shape, stride)``, first mode fastest, with the same function of the index.

    Raises:
        NotExpressibleError: the layout has replicas, an offset, or another axis than ``m``.

    >>> to_cute_tuples(TileLayout.parse("S[(4,8):(8,1)]"))
    ((8, 4), (1, 8))
    """
    _require_plain(layout)
    if any(value != 0 for value in layout.offset.values()):
        raise NotExpressibleError(f"to_cute: a CuTe layout starts at 0, and {layout} has an offset; write it apart")
    iters = layout.shard[::-1] or (Iter(1, 0, m),)
    return tuple(it.extent for it in iters), tuple(it.stride for it in iters)


def to_cute(layout: TileLayout | SwizzledLayout) -> str:
    """Print a layout as CuTe does; :func:`from_cute` reads it back to an equivalent layout.

    Raises:
        NotExpressibleError: CuTe's form cannot say it: replicas, several axes, an offset without a swizzle, or a
            permutation of addresses that is no ``Swizzle<B,M,S>``.

    >>> to_cute(TileLayout.parse("S[(4,8):(8,1)]"))
    '(8,4):(1,8)'
    """
    if isinstance(layout, SwizzledLayout):
        swizzle, tile = layout.swizzle, layout.inner
        if not isinstance(swizzle, Swizzle):
            raise NotExpressibleError(f"to_cute: {swizzle} is a general map of address bits, no Swizzle<B,M,S>")
        _require_plain(tile)
        offset = tile.offset.get("m", 0)
        plain = tile + -offset if offset else tile
        head = f"Sw<{swizzle.bits},{swizzle.base},{swizzle.shift}> o {offset} o "
        return head + to_cute(TileLayout.from_iters(shard=plain.shard))
    shape, stride = to_cute_tuples(layout)
    if len(shape) == 1:
        return f"{shape[0]}:{stride[0]}"
    return f"({','.join(map(str, shape))}):({','.join(map(str, stride))})"


def _require_plain(layout: TileLayout) -> None:
    if layout.replica:
        raise NotExpressibleError(f"to_cute: a CuTe layout has one place per index, and {layout} has replicas")
    foreign = [it.axis.name for it in layout.shard if it.axis is not m and it.stride != 0]
    if foreign:
        raise NotExpressibleError(f"to_cute: a CuTe layout has one axis, and {layout} uses {', '.join(foreign)}")
