"""``SwizzledLayout``: a tile in one memory, its addresses permuted by a swizzle.

    L(n) = { sigma(x)  :  x in tile(n) }

The swizzle acts on absolute element offsets, so whatever moves or cuts the tile does so *before* the swizzle: a slice
keeps its begin as an offset inside, because a swizzle commutes with a translation only by multiples of its period.

>>> from layoutalg.tile import TileLayout
>>> half = SwizzledLayout(Swizzle(3, 3, 3), TileLayout.parse("S[64,64]"))
>>> half.apply(1, 8, shape=(64, 64)), half.apply(1, 0, shape=(64, 64))
({'m': 64}, {'m': 72})
>>> print(half.slice((64, 64), ((1, 3), (0, 64))))
Sw<3,3,3> o S[128:1] + 64
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from layoutalg.algebra.swizzling import check_sign, is_multiple, memory_axis, recast
from layoutalg.axis import Axis
from layoutalg.errors import (
    LayoutError,
    NotationError,
    NotExpressibleError,
    RangeError,
    RegionError,
)
from layoutalg.f2 import F2Map
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.index import Param
from layoutalg.notation import S, Spec
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled_points import SwizzledPoints
from layoutalg.tile import FORMAT, TileLayout

if TYPE_CHECKING:
    pass

__all__ = ["Permutation", "SwizzledLayout", "parse_layout"]

Permutation: TypeAlias = Swizzle | F2Map
_HEAD = re.compile(r"\s*((?:Sw|Swizzle|F2)\s*<[^>]*>)\s*(?:o|∘)\s*(?=\S)")


@dataclass(frozen=True, slots=True, init=False)
class SwizzledLayout(SwizzledPoints):
    """A layout whose memory addresses are permuted after the fact: first the tile, then the swizzle.

    Args:
        swizzle: a :class:`Swizzle`, or any invertible :class:`F2Map`, on element offsets.
        tile: a layout (or ``S[...]`` expression) whose only coordinate is one memory axis, never negative; kept as
            the attribute ``inner``, since ``tile`` is the operation.

    Attributes:
        axis: the memory axis that the swizzle permutes.

    Raises:
        AxisError: the tile lives on several axes, or on one that is no memory.
        RangeError: the tile reaches a negative offset, or the map is not invertible.

    >>> print(SwizzledLayout.parse("Sw<2,0,2> o S[(4,4):(4,1)]").table((4, 4))["m"][1])
    [5 4 7 6]
    """

    swizzle: Permutation
    inner: TileLayout
    axis: Axis = field(compare=False)

    def __init__(self, swizzle: Permutation, tile: TileLayout | Spec) -> None:
        if not isinstance(swizzle, (Swizzle, F2Map)):
            raise LayoutError(f"a swizzled layout takes a Swizzle or an F2Map first, not {swizzle!r}")
        if isinstance(swizzle, F2Map) and not swizzle.is_invertible:
            raise RangeError(f"{swizzle} is not invertible, so it would store several elements in one place")
        layout = TileLayout(tile)
        check_sign(layout, swizzle)
        object.__setattr__(self, "swizzle", swizzle)
        object.__setattr__(self, "inner", layout)
        object.__setattr__(self, "axis", memory_axis(layout))

    # -- the value -------------------------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that occur: the one memory axis."""
        return (self.axis,)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.inner.size

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters that the offset inside the swizzle depends on."""
        return self.inner.params

    def substitute(self, **values: int) -> SwizzledLayout:
        """Replace parameters by numbers.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1] + 4*s[0:2]").substitute(s=1))
        Sw<1,0,1> o S[4:1] + 4
        """
        return SwizzledLayout(self.swizzle, self.inner.substitute(**values))

    def base_alignment(self, dtype: Dtype | str) -> int:
        """Bytes to which the tile's base address must be aligned so that the swizzle may act on offsets.

        >>> SwizzledLayout.parse("Sw<3,3,3> o S[64,64]").base_alignment("bf16")
        1024
        """
        if isinstance(self.swizzle, Swizzle):
            return self.swizzle.base_alignment(dtype)
        return max(1, self.swizzle.period * dtype_of(dtype).bits // 8)

    def _self(self) -> SwizzledLayout:
        return self

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.inner}"

    def __repr__(self) -> str:
        return f"SwizzledLayout.parse({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> SwizzledLayout:
        """Read ``Sw<B,M,S> o S[...]`` (or ``F2<c0,c1,...> o S[...]``), the inverse of ``str``.

        Raises:
            NotationError: malformed text, with a caret under the position.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").image()
        (0, 1, 2, 3)
        """
        head = _HEAD.match(text)
        if head is None:
            raise NotationError("expected SWIZZLE o LAYOUT, such as Sw<3,3,3> o S[64,64]", text=text, position=0)
        reader = F2Map if head[1].startswith("F2") else Swizzle
        try:
            swizzle: Permutation = reader.parse(head[1])
            tile = TileLayout.parse(text[head.end() :])
        except NotationError as error:
            shift = head.start(1) if error.text == head[1] else head.end()
            raise NotationError(error.reason, text=text, position=error.position + shift) from None
        return cls(swizzle, tile)

    def to_json(self) -> dict[str, Any]:
        """A versioned JSON-ready value; :meth:`from_json` reads it.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").to_json()
        {'format': 1, 'layout': 'Sw<1,0,1> o S[4:1]'}
        """
        return {"format": FORMAT, "layout": str(self)}

    @classmethod
    def from_json(cls, value: object) -> SwizzledLayout:
        """Read the JSON form.

        Raises:
            LayoutError: not this form, or another version.

        >>> SwizzledLayout.from_json({"format": 1, "layout": "Sw<1,0,1> o S[4:1]"}).size
        4
        """
        if not isinstance(value, dict) or set(value) != {"format", "layout"} or value["format"] != FORMAT:
            raise LayoutError(f"a layout's JSON is {{'format': {FORMAT}, 'layout': TEXT}}, not {value!r}")
        return cls.parse(value["layout"])

    def __add__(self, other: object) -> SwizzledLayout:
        """Move the whole layout; only a multiple of the period moves a swizzled pattern without changing it.

        Raises:
            NotExpressibleError: any other distance.
        """
        moved = self.inner + other
        distance = moved.offset.get(self.axis.name, 0) - self.inner.offset.get(self.axis.name, 0)
        if not is_multiple(distance, self.swizzle.period):
            raise NotExpressibleError(
                f"{self} moved by {distance}: a swizzle commutes with a translation only by multiples of its period "
                f"{self.swizzle.period}; to move the tile inside the swizzle, add to .inner",
                period=self.swizzle.period,
            )
        return SwizzledLayout(self.swizzle, moved)

    # -- canonical form and equality -------------------------------------------------------------------------------

    def canonicalize(self) -> SwizzledLayout:
        """The same map with a canonical tile; the swizzle stays as it is.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[2,1,2]").canonicalize())
        Sw<1,0,1> o S[4:1]
        """
        return self._with(self.inner.canonicalize())

    def equivalent(self, other: SwizzledLayout | TileLayout) -> bool:
        """Decide whether both layouts put every index at the same set of places.

        Under one and the same swizzle that is the tiles' question; otherwise the points are compared.

        Raises:
            UndecidedError: different swizzles over more than 2^22 places, or over parameters.

        >>> SwizzledLayout.parse("Sw<1,0,2> o S[4:1]").equivalent(TileLayout.parse("S[4:1]"))
        True
        """
        return self.difference(other) is None

    def difference(self, other: SwizzledLayout | TileLayout) -> tuple[int | None, str] | None:
        """None for equivalent layouts, else the first index that differs, and both places in words.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").difference(TileLayout.parse("S[4:1]"))
        (2, 'index 2: m = 3 against m = 2')
        """
        from layoutalg.algebra import swizzling

        if not isinstance(other, SwizzledLayout | TileLayout):
            raise LayoutError(f"a layout is compared with a layout, not {other!r}; texts: parse_layout")
        if isinstance(other, SwizzledLayout) and other.swizzle == self.swizzle and not self.params:
            found = self.inner.difference(other.inner)
            if found is None or found[0] is None:
                return found
            return found[0], swizzling.show_difference(self, other, found[0])
        if self.size != other.size:
            return None, f"sizes differ: {self.size} against {other.size}"
        return swizzling.first_difference(self, other)

    def as_tile(self) -> TileLayout:
        """The plain layout with the same values, where there is one.

        Raises:
            NotExpressibleError: no plain layout has these values, with the first index that shows it.

        >>> print(SwizzledLayout.parse("Sw<1,0,2> o S[4:1]").as_tile())
        S[4:1]
        """
        if self.inner.replica:
            raise NotExpressibleError(f"{self} has replicas; a plain form is looked for without them only")
        from layoutalg.algebra.swizzling import recognised

        return recognised(self.table()[self.axis.name], self.axis)

    # -- operations that happen before the swizzle -----------------------------------------------------------------

    def _with(self, tile: TileLayout) -> SwizzledLayout:
        """The same swizzle over a tile whose places are among this one's, so that nothing needs checking."""
        if tile is self.inner:
            return self
        twin = object.__new__(SwizzledLayout)
        object.__setattr__(twin, "swizzle", self.swizzle)
        object.__setattr__(twin, "inner", tile)
        object.__setattr__(twin, "axis", self.axis)
        return twin

    def group(self, shape: Sequence[Any]) -> tuple[SwizzledLayout, tuple[int, ...]]:
        """Split the tile's iters by a shape; see :meth:`TileLayout.group`.

        >>> print(*SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").group((2, 2)))
        Sw<1,0,1> o S[(2,2):(2,1)] (0, 1, 2)
        """
        tile, seps = self.inner.group(shape)
        return self._with(tile), seps

    def regroup(self, extents: Sequence[Any]) -> SwizzledLayout:
        """Rewrite the tile with exactly one iter per extent; see :meth:`TileLayout.regroup`.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").regroup((2, 2)))
        Sw<1,0,1> o S[(2,2):(2,1)]
        """
        return self._with(self.inner.regroup(extents))

    def slice(self, shape: Sequence[Any], region: Sequence[Any]) -> SwizzledLayout:
        """Restrict to a box of the index space; its begin stays as an offset *inside* the swizzle.

        Law: ``L.slice(shape, region).apply(*x) == L.apply(*(begin + x), shape=shape)``.

        Raises:
            RegionError: the box is empty, has the wrong rank or leaves ``shape``.
            NotExpressibleError: no tile has these values under this swizzle.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").slice((4,), ((1, 3),)))
        Sw<1,0,1> o S[2:1] + 1
        """
        return self._with(self.inner.slice(shape, region))

    def permute(self, *dims: int, shape: Sequence[Any] | None = None) -> SwizzledLayout:
        """Reorder the logical dimensions; see :meth:`TileLayout.permute`.

        >>> print(SwizzledLayout.parse("Sw<1,0,2> o S[4,2]").permute(1, 0))
        Sw<1,0,2> o S[(2,4):(1,2)]
        """
        return self._with(self.inner.permute(*dims, shape=shape))

    def unpack(self, n: int) -> SwizzledLayout:
        """The layout of elements n times narrower, n of them per element: ``U(n*k + j) = n*L(k) + j``.

        Raises:
            NotExpressibleError: n is no power of two.

        >>> print(SwizzledLayout.parse("Sw<3,4,3> o S[64,128]").unpack(2))
        Sw<3,5,3> o S[16384:1]
        """
        return SwizzledLayout(recast(self.swizzle, n, 1), self.inner.unpack(n, axis=self.axis)).canonicalize()

    def pack(self, n: int) -> SwizzledLayout:
        """The layout of elements n times wider, the inverse of :meth:`unpack`.

        Raises:
            NotExpressibleError: the swizzle or the tile tears the wider elements apart.

        >>> print(SwizzledLayout.parse("Sw<3,4,3> o S[64,128]").pack(2))
        Sw<3,3,3> o S[4096:1]
        """
        return SwizzledLayout(recast(self.swizzle, 1, n), self.inner.pack(n, axis=self.axis))

    def group_many(self, shapes: Sequence[Sequence[Any]]) -> tuple[SwizzledLayout, tuple[tuple[int, ...], ...]]:
        """Split the tile's iters to the common refinement of several shapes; see :meth:`TileLayout.group_many`.

        >>> print(*SwizzledLayout.parse("Sw<1,0,1> o S[8:1]").group_many([(2, 4), (4, 2)]))
        Sw<1,0,1> o S[(2,2,2):(4,2,1)] ((0, 1, 3), (0, 2, 3))
        """
        tile, seps = self.inner.group_many(shapes)
        return self._with(tile), seps

    def permute_iters(self, order: Sequence[int]) -> SwizzledLayout:
        """Reorder the tile's iters.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[2,4]").permute_iters((1, 0)))
        Sw<1,0,1> o S[(4,2):(1,4)]
        """
        return self._with(self.inner.permute_iters(order))

    def permute_groups(self, seps: Sequence[int], order: Sequence[int]) -> SwizzledLayout:
        """Reorder groups of the tile's iters, ``seps`` as returned by :meth:`group`.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[2,2,4]").permute_groups((0, 2, 3), (1, 0)))
        Sw<1,0,1> o S[(4,2,2):(1,8,4)]
        """
        return self._with(self.inner.permute_groups(seps, order))

    def broadcast(self, n: int, position: int = 0) -> SwizzledLayout:
        """Insert a digit of extent n that moves nothing.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").broadcast(2))
        Sw<1,0,1> o S[(2,4):(0,1)]
        """
        return self._with(self.inner.broadcast(n, position, self.axis))

    def storage(self) -> SwizzledLayout:
        """The memory axes only: the layout itself.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").storage())
        Sw<1,0,1> o S[4:1]
        """
        return self

    def direct_sum(self, left: TileLayout, left_shape: Sequence[int], right_shape: Sequence[int]) -> SwizzledLayout:
        """Interleave domains ``[A0, B0, A1, B1, ...]``; addresses add up before the swizzle: ``sigma(A(a) + B(b))``.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").direct_sum(TileLayout.parse("S[2:8]"), (2,), (4,)))
        Sw<1,0,1> o S[(2,4):(8,1)]
        """
        return SwizzledLayout(self.swizzle, self.inner.direct_sum(left, left_shape, right_shape))

    def tile(self, outer: TileLayout, outer_shape: Sequence[int], inner_shape: Sequence[int]) -> SwizzledLayout:
        """Repeat this layout as the outer one says: value ``L(i) + W * Out(o)``, with W the span of this image.

        Where W * Out moves by multiples of the period, that is the tiled tile; otherwise the values decide whether
        some tile has them under this swizzle.

        Raises:
            NotExpressibleError: no tile has these values under this swizzle.
            AxisError: the outer layout leaves this layout's axis.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").tile(TileLayout.parse("S[2:1]"), (2,), (4,)))
        Sw<1,0,1> o S[8:1]
        """
        from layoutalg.algebra.swizzling import tile_swizzled

        return tile_swizzled(self, outer, outer_shape=outer_shape, inner_shape=inner_shape)

    def tile_to(self, to: Sequence[int], current: Sequence[int]) -> SwizzledLayout:
        """Repeat this layout of shape ``current``, copies in row-major order, up to shape ``to``.

        Raises:
            RegionError: ``current`` does not divide ``to``.
            NotExpressibleError: no tile has these values under this swizzle.

        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[2,2]").tile_to((2, 4), (2, 2)))
        Sw<1,0,1> o S[(2,2,2):(2,4,1)]
        """
        if len(to) != len(current) or any(whole % part for whole, part in zip(to, current, strict=True)):
            raise RegionError(f"tile_to: {tuple(current)} does not divide {tuple(to)}")
        copies = [whole // part for whole, part in zip(to, current, strict=True)]
        return self.tile(TileLayout(S[tuple(copies)]), copies, current)


def parse_layout(text: str) -> TileLayout | SwizzledLayout:
    """Read a plain or a swizzled layout.

    Raises:
        NotationError: malformed text, with a caret under the position.

    >>> type(parse_layout("S[4,4]")).__name__, type(parse_layout("Sw<2,0,2> o S[4,4]")).__name__
    ('TileLayout', 'SwizzledLayout')
    """
    if not isinstance(text, str):
        raise LayoutError(f"the notation of a layout is a str, not {type(text).__name__}")
    return SwizzledLayout.parse(text) if text.lstrip()[:2] in ("Sw", "F2") else TileLayout.parse(text)
