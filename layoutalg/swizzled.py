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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from layoutalg.axis import Axis, m
from layoutalg.errors import AxisError, LayoutError, NotationError, NotExpressibleError, RangeError, UndecidedError
from layoutalg.f2 import F2Map
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.index import Affine, Param, bounds
from layoutalg.notation import Spec
from layoutalg.swizzle import Swizzle
from layoutalg.tile import FORMAT, TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from layoutalg.draw.grid import Picture

__all__ = ["Permutation", "SwizzledLayout", "parse_layout"]

Permutation: TypeAlias = Swizzle | F2Map
_HEAD = re.compile(r"\s*((?:Sw|Swizzle|F2)\s*<[^>]*>)\s*(?:o|∘)\s*(?=\S)")
_ENUMERATION_LIMIT = 1 << 22


@dataclass(frozen=True, slots=True, init=False)
class SwizzledLayout:
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
        _check_sign(layout, swizzle)
        object.__setattr__(self, "swizzle", swizzle)
        object.__setattr__(self, "inner", layout)
        object.__setattr__(self, "axis", _memory_axis(layout))

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
        """Replace parameters by numbers."""
        return SwizzledLayout(self.swizzle, self.inner.substitute(**values))

    def base_alignment(self, dtype: Dtype | str) -> int:
        """Bytes to which the tile's base address must be aligned so that the swizzle may act on offsets.

        >>> SwizzledLayout.parse("Sw<3,3,3> o S[64,64]").base_alignment("bf16")
        1024
        """
        if isinstance(self.swizzle, Swizzle):
            return self.swizzle.base_alignment(dtype)
        return max(1, self.swizzle.period * dtype_of(dtype).bits // 8)

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
        """A versioned JSON-ready value; :meth:`from_json` reads it."""
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
        if not _is_multiple(distance, self.swizzle.period):
            raise NotExpressibleError(
                f"{self} moved by {distance}: a swizzle commutes with a translation only by multiples of its period "
                f"{self.swizzle.period}; to move the tile inside the swizzle, add to .inner",
                period=self.swizzle.period,
            )
        return SwizzledLayout(self.swizzle, moved)

    # -- evaluation ------------------------------------------------------------------------------------------------

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """The base place of one element: ``{axis: sigma(offset)}``.

        Raises:
            RegionError: wrong rank or out of range.
            UndecidedError: the offset depends on a parameter by less than the period.
        """
        place = self.inner.apply(*coord, shape=shape)
        return {self.axis.name: self._permute(place.get(self.axis.name, 0))}

    def places(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Every place of one element, replicas included.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[2:1] + R[2:2]").places(0)
        ({'m': 0}, {'m': 3})
        """
        name = self.axis.name
        found = (self._permute(place.get(name, 0)) for place in self.inner.places(*coord, shape=shape))
        return tuple({name: value} for value in found)

    def table(self, shape: Sequence[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """Every element at once: one int64 array, of the given shape (flat without one)."""
        # The canonical tile has the fewest iters to add up; with replicas it may start elsewhere.
        plain = len(self.inner.shard) < 2 or self.inner.replica
        tile = self.inner if plain else self.inner.canonicalize()
        values = tile.table(shape).get(self.axis.name)
        return {self.axis.name: self._permute_array(_zeros(self.inner.size, shape) if values is None else values)}

    def evaluate(self, index: ArrayLike) -> dict[str, NDArray[np.int64]]:
        """The base places of an array of flat indices.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").evaluate([3, 1])["m"].tolist()
        [2, 1]
        """
        import numpy as np

        values = self.inner.evaluate(index).get(self.axis.name)
        return {self.axis.name: self._permute_array(np.zeros(np.shape(index), np.int64) if values is None else values)}

    def explain(self, *coord: Any, shape: Sequence[Any] | None = None) -> str:
        """Spell out how one element finds its place: the tile's digits, then the swizzle."""
        lines = self.inner.explain(*coord, shape=shape).splitlines()
        before = self.inner.apply(*coord, shape=shape).get(self.axis.name, 0)
        after = self._permute(before)
        return "\n".join([*lines[:-1], f"{self.swizzle}: {before} -> {after}", f"place: {self.axis} = {after}"])

    def draw(self, shape: Sequence[int] | None = None, **options: Any) -> Picture:
        """Draw a grid of the elements, of the places, or both: an SVG that notebooks show.

        Args:
            shape: logical extents, outermost first; the layout's own without it.
            options: ``view``, ``by``, ``dtype``, ``width``, ``limit``, ``title`` of :func:`layoutalg.draw.draw`.

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[2,2]").draw().svg.count("<rect")
        4
        """
        from layoutalg.draw.layout import draw

        return draw(self, shape, **options)

    def image(self, axis: str | Axis | None = None) -> tuple[int, ...]:
        """Every address that some element has, replicas included, ascending."""
        import numpy as np

        self._check_axis(axis)
        base = self.inner.table().get(self.axis.name)
        values = _zeros(self.inner.size, None) if base is None else base
        for it in self.inner.replica:
            values = (values[:, None] + it.stride * np.arange(it.extent)).reshape(-1)
        return tuple(np.unique(self._permute_array(values)).tolist())

    def span(self, axis: str | Axis | None = None) -> int:
        """Distance from the least to the greatest address, plus one.

        The image of a swizzle can exceed the span of the tile:

        >>> SwizzledLayout.parse("Sw<1,0,1> o S[3:1]").span()
        4
        """
        image = self.image(axis)
        return image[-1] - image[0] + 1

    def _permute(self, value: Any) -> Any:
        if not isinstance(value, Affine):
            return self.swizzle.apply(value)
        period = self.swizzle.period
        if any(coefficient % period for _, coefficient in value.terms):
            raise UndecidedError(
                f"{self.swizzle} of {value} depends on the parameters, which move it by no multiple of {period}; "
                "substitute them first"
            )
        inside = value.const % period
        return value + (self.swizzle.apply(inside) - inside)

    def _permute_array(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        result: NDArray[np.int64]
        if isinstance(self.swizzle, Swizzle) and values.flags.writeable:
            result = self.swizzle.xor_in_place(values)
        else:
            result = self.swizzle.apply(values)
        return result

    def _check_axis(self, axis: str | Axis | None) -> None:
        if axis is not None and Axis.get(str(axis)) is not self.axis:
            raise AxisError(f"{self} lives on {self.axis}, not on {axis}", axis=str(axis))

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
        """None for equivalent layouts, else the first index that differs, and both places in words."""
        if isinstance(other, SwizzledLayout) and other.swizzle == self.swizzle and not self.params:
            found = self.inner.difference(other.inner)
            if found is None or found[0] is None:
                return found
            index = found[0]
            return index, f"index {index}: {_show(self.places(index))} against {_show(other.places(index))}"
        if self.size != other.size:
            return None, f"sizes differ: {self.size} against {other.size}"
        return _first_difference(self, other)

    def as_tile(self) -> TileLayout:
        """The plain layout with the same values, where there is one.

        Raises:
            NotExpressibleError: no plain layout has these values, with the first index that shows it.

        >>> print(SwizzledLayout.parse("Sw<1,0,2> o S[4:1]").as_tile())
        S[4:1]
        """
        if self.inner.replica:
            raise NotExpressibleError(f"{self} has replicas; a plain form is looked for without them only")
        return _recognised(self.table()[self.axis.name], self.axis)

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
        """Split the tile's iters by a shape; see :meth:`TileLayout.group`."""
        tile, seps = self.inner.group(shape)
        return self._with(tile), seps

    def regroup(self, extents: Sequence[Any]) -> SwizzledLayout:
        """Rewrite the tile with exactly one iter per extent; see :meth:`TileLayout.regroup`."""
        return self._with(self.inner.regroup(extents))

    def slice(self, shape: Sequence[Any], region: Sequence[Any]) -> SwizzledLayout:
        """Restrict to a box of the index space; its begin stays as an offset *inside* the swizzle.

        Law: ``L.slice(shape, region).apply(*x) == L.apply(*(begin + x), shape=shape)``.

        Raises:
            RegionError: the box is empty, has the wrong rank or leaves ``shape``.
            NotExpressibleError: no tile has these values under this swizzle.
        """
        return self._with(self.inner.slice(shape, region))

    def permute(self, *dims: int, shape: Sequence[Any] | None = None) -> SwizzledLayout:
        """Reorder the logical dimensions; see :meth:`TileLayout.permute`.

        >>> print(SwizzledLayout.parse("Sw<1,0,2> o S[4,2]").permute(1, 0))
        Sw<1,0,2> o S[(2,4):(1,2)]
        """
        return self._with(self.inner.permute(*dims, shape=shape))


def parse_layout(text: str) -> TileLayout | SwizzledLayout:
    """Read a plain or a swizzled layout.

    Raises:
        NotationError: malformed text, with a caret under the position.

    >>> type(parse_layout("S[4,4]")).__name__, type(parse_layout("Sw<2,0,2> o S[4,4]")).__name__
    ('TileLayout', 'SwizzledLayout')
    """
    return SwizzledLayout.parse(text) if text.lstrip()[:2] in ("Sw", "F2") else TileLayout.parse(text)


def _moving_axes(layout: TileLayout) -> dict[Axis, None]:
    """The axes on which something happens, in order."""
    iters = [it.axis for it in (*layout.shard, *layout.replica) if not _is_zero(it.stride)]
    return dict.fromkeys([*iters, *(Axis.get(name) for name, value in layout.offset.items() if not _is_zero(value))])


def _memory_axis(layout: TileLayout) -> Axis:
    axes = list(_moving_axes(layout))
    if len(axes) > 1 or any(axis.kind != "memory" for axis in axes):
        names = ", ".join(f"{axis.name} ({axis.kind})" for axis in axes)
        raise AxisError(
            f"a swizzle permutes the addresses of one memory axis, but {layout} lives on {names}; "
            "swizzle the part .storage() keeps",
            axes=tuple(axis.name for axis in axes),
        )
    return axes[0] if axes else m


def _check_sign(layout: TileLayout, swizzle: Permutation) -> None:
    low = 0
    for it in (*layout.shard, *layout.replica):
        if type(it.extent) is not int or type(it.stride) is not int:
            raise UndecidedError(f"{swizzle} o {layout}: a swizzle needs numbers, and {it} is symbolic")
        low += min(0, (it.extent - 1) * it.stride)
    low += sum(bounds(value)[0] for value in layout.offset.values())
    if low < 0:
        raise RangeError(
            f"{swizzle} o {layout} reaches offset {low}; swizzled addresses start at 0, so add {-low} to the tile",
            lowest=low,
        )


def _is_zero(value: Any) -> bool:
    return type(value) is int and value == 0


def _is_multiple(value: Any, period: int) -> bool:
    if isinstance(value, Affine):
        return value.const % period == 0 and all(coefficient % period == 0 for _, coefficient in value.terms)
    return bool(value % period == 0)


def _zeros(size: int, shape: Sequence[int] | None) -> NDArray[np.int64]:
    import numpy as np

    return np.zeros(size if shape is None else tuple(shape), np.int64)


def _recognised(values: NDArray[np.int64], axis: Axis) -> TileLayout:
    from layoutalg.algebra.recognise import recognise_values

    iters, offset = recognise_values({axis: values})
    return TileLayout.from_iters(
        shard=[(it.extent, it.stride, it.axis.name) for it in iters], offset={a.name: v for a, v in offset.items()}
    )


def _show(places: Sequence[Mapping[str, Any]]) -> str:
    texts = [", ".join(f"{axis} = {value}" for axis, value in place.items()) for place in places]
    return texts[0] if len(texts) == 1 else "{" + "; ".join(texts) + "}"


def _first_difference(a: SwizzledLayout, b: SwizzledLayout | TileLayout) -> tuple[int, str] | None:
    """Compare two layouts of one size point by point."""
    if a.params or b.params:
        raise UndecidedError(f"{a} against {b}: substitute the parameters first")
    if a.size > _ENUMERATION_LIMIT:
        raise UndecidedError(f"{a} against {b}: {a.size} points under different swizzles are too many to compare")
    replicas = b.inner.replica if isinstance(b, SwizzledLayout) else b.replica
    if a.inner.replica or replicas:
        for index in range(a.size):
            left, right = a.places(index), b.places(index)
            if {_place(p) for p in left} != {_place(p) for p in right}:
                return index, f"index {index}: {_show(left)} against {_show(right)}"
        return None
    left_table, right_table = a.table(), b.table()
    zero = _zeros(a.size, None)
    wrong = zero != 0
    for name in {*left_table, *right_table}:
        wrong |= left_table.get(name, zero) != right_table.get(name, zero)
    if not wrong.any():
        return None
    index = int(wrong.argmax())
    return index, f"index {index}: {_show(a.places(index))} against {_show(b.places(index))}"


def _place(place: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset((axis, value) for axis, value in place.items() if value)
