"""Asking a swizzled layout where things are: the tile's answer, permuted.

The tile is evaluated as it is, and its addresses go through the swizzle.  ``Swizzle(1, 0, 1)`` exchanges the last two
of every four addresses, so the tile ``S[4:1]`` at 0, 1, 2, 3 lies at 0, 1, 3, 2.  What a bijection cannot change, such
as whether two elements meet, is asked of the tile alone; an image and a span are taken after the swizzle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.swizzling import zeros
from layoutalg.axis import Axis
from layoutalg.decide import is_symbolic
from layoutalg.errors import AxisError, UndecidedError
from layoutalg.f2 import F2Map
from layoutalg.index import Affine
from layoutalg.swizzle import Swizzle
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from layoutalg.draw.grid import Picture
    from layoutalg.swizzled import SwizzledLayout

__all__ = ["SwizzledPoints"]


class SwizzledPoints:
    """The questions of :class:`~layoutalg.swizzled.SwizzledLayout` about places; none of them makes a new layout."""

    __slots__ = ()

    if TYPE_CHECKING:
        swizzle: Swizzle | F2Map
        inner: TileLayout
        axis: Axis

        def _self(self) -> SwizzledLayout: ...

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """The base place of one element: ``{axis: sigma(offset)}``.

        Raises:
            RegionError: wrong rank or out of range.
            UndecidedError: the offset depends on a parameter by less than the period.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").apply(3)
        {'m': 2}
        """
        place = self.inner.apply(*coord, shape=shape)
        return {self.axis.name: self._permute(place.get(self.axis.name, 0))}

    def places(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Every place of one element, replicas included.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[2:1] + R[2:2]").places(0)
        ({'m': 0}, {'m': 3})
        """
        name = self.axis.name
        found = (self._permute(place.get(name, 0)) for place in self.inner.places(*coord, shape=shape))
        return tuple({name: value} for value in found)

    def table(self, shape: Sequence[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """Every element at once: one int64 array, of the given shape (flat without one).

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").table((2, 2))["m"].tolist()
        [[0, 1], [3, 2]]
        """
        # The canonical tile has the fewest iters to add up; with replicas it may start elsewhere.
        plain = len(self.inner.shard) < 2 or self.inner.replica
        tile = self.inner if plain else self.inner.canonicalize()
        values = tile.table(shape).get(self.axis.name)
        return {self.axis.name: self._permute_array(zeros(self.inner.size, shape) if values is None else values)}

    def evaluate(self, index: ArrayLike) -> dict[str, NDArray[np.int64]]:
        """The base places of an array of flat indices.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").evaluate([3, 1])["m"].tolist()
        [2, 1]
        """
        import numpy as np

        values = self.inner.evaluate(index).get(self.axis.name)
        return {self.axis.name: self._permute_array(np.zeros(np.shape(index), np.int64) if values is None else values)}

    def explain(self, *coord: Any, shape: Sequence[Any] | None = None) -> str:
        """Spell out how one element finds its place: the tile's digits, then the swizzle.

        >>> from layoutalg import SwizzledLayout
        >>> print(SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").explain(3))
        index 3 of 4
        digit 3 of 4:1 -> 3@m
        Sw<1,0,1>: 3 -> 2
        place: m = 2
        """
        lines = self.inner.explain(*coord, shape=shape).splitlines()
        before = self.inner.apply(*coord, shape=shape).get(self.axis.name, 0)
        after = self._permute(before)
        return "\n".join([*lines[:-1], f"{self.swizzle}: {before} -> {after}", f"place: {self.axis} = {after}"])

    def draw(self, shape: Sequence[int] | None = None, **options: Any) -> Picture:
        """Draw a grid of the elements, of the places, or both: an SVG that notebooks show.

        Args:
            shape: logical extents, outermost first; the layout's own without it.
            options: ``view``, ``by``, ``dtype``, ``width``, ``limit``, ``title`` of :func:`layoutalg.draw.draw`.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[2,2]").draw().svg.count("<rect")
        4
        """
        from layoutalg.draw.layout import draw

        return draw(self._self(), shape, **options)

    def image(self, axis: str | Axis | None = None) -> tuple[int, ...]:
        """Every address that some element has, replicas included, ascending.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[3:1]").image()
        (0, 1, 3)
        """
        import numpy as np

        self._check_axis(axis)
        base = self.inner.table().get(self.axis.name)
        values = zeros(self.inner.size, None) if base is None else base
        for it in self.inner.replica:
            values = (values[:, None] + it.stride * np.arange(it.extent)).reshape(-1)
        return tuple(np.unique(self._permute_array(values)).tolist())

    def span(self, axis: str | Axis | None = None) -> int:
        """Distance from the least to the greatest address, plus one.

        The image of a swizzle can exceed the span of the tile:

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[3:1]").span()
        4
        """
        image = self.image(axis)
        return image[-1] - image[0] + 1

    def is_injective(self) -> bool:
        """Whether distinct indices have disjoint sets of places: the tile's question, since swizzles are bijections.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[4:1]").is_injective()
        True
        """
        return self.inner.is_injective()

    def first_collision(self) -> tuple[int, int] | None:
        """Two indices that share a place, or None for an injective layout.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<1,0,1> o S[(2,2):(1,1)]").first_collision()
        (1, 2)
        """
        return self.inner.first_collision()

    def is_bijective_onto(self, box: Mapping[str, Sequence[Any]]) -> bool:
        """Whether every place of ``{axis: (begin, end)}`` belongs to exactly one index, and every place is in it.

        >>> from layoutalg import SwizzledLayout
        >>> SwizzledLayout.parse("Sw<3,3,3> o S[64,64]").is_bijective_onto({"m": (0, 4096)})
        True
        """
        others = [name for name in box if name != self.axis.name and tuple(box[name]) != (0, 1)]
        begin, end = box.get(self.axis.name, (0, 1))
        return not others and self.image() == tuple(range(begin, end)) and self.is_injective()

    def is_contiguous(self) -> bool:
        """Whether the places fill an interval without gap, each belonging to one index.

        >>> from layoutalg import SwizzledLayout
        >>> [SwizzledLayout.parse(f"Sw<1,0,1> o S[{n}:1]").is_contiguous() for n in (3, 4)]
        [False, True]
        """
        return self.span() == len(self.image()) and self.is_injective()

    def _permute(self, value: Any) -> Any:
        if is_symbolic(value) and not isinstance(value, Affine):
            raise UndecidedError(f"{self.swizzle} of {value}: a swizzle needs numbers; substitute the symbols first")
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
