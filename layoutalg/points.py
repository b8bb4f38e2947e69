"""Asking a layout where things are: one element, all of them, and what the places are like as a set."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from layoutalg.algebra.grouping import check_shape
from layoutalg.axis import Axis
from layoutalg.decide import Number, as_number
from layoutalg.errors import RangeError, RegionError
from layoutalg.index import flatten, split
from layoutalg.iters import Iters, size_of, vector_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from layoutalg.draw.grid import Picture
    from layoutalg.tile import TileLayout

__all__ = ["Points"]

_PLACES_LIMIT: Final = 1 << 20
_NOT_COORDINATES: Final = (bool, float, complex, str, bytes, tuple, list, dict, set, type(None))


class Points:
    """The questions of :class:`~layoutalg.tile.TileLayout` about places; none of them makes a new layout."""

    __slots__ = ()

    if TYPE_CHECKING:
        shard: Iters
        replica: Iters
        _offset: tuple[tuple[Axis, Number], ...]

        @property
        def offset(self) -> Mapping[str, Number]: ...

        @property
        def size(self) -> Number: ...

        @property
        def axes(self) -> tuple[Axis, ...]: ...

        def _self(self) -> TileLayout: ...

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base place D(n) + O of one element, one number per axis that occurs.

        Args:
            coord: over ``shape``; without one, a single flat index or one digit per iter.
            shape: logical extents, outermost first; product is the size.

        Raises:
            RegionError: wrong rank or out of range.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[4, 8]).apply(1, 2, shape=(4, 8))
        {'m': 10}
        """
        place: dict[str, Any] = {}
        for iters in (self.shard, self.replica):
            for it in iters:
                place[it[2].name] = 0
        for axis, value in self._offset:
            place[axis.name] = value
        for axis, value in vector_at(self.shard, self._flat(coord, shape)).items():
            place[axis.name] = place[axis.name] + value
        return place

    def places(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Return every place of one element, replicas included, each once, in increasing order of their digits.

        >>> from layoutalg import R, TileLayout
        >>> TileLayout.parse("S[4:1] + R[2:1@warpid]").places(3)
        ({'m': 3, 'warpid': 0}, {'m': 3, 'warpid': 1})
        """
        base = self.apply(*coord, shape=shape)
        if any(getattr(value, "shape", ()) != () for value in base.values()):
            raise RegionError("places() lists the places of one element; evaluate() takes arrays of indices")
        if size_of(self.replica) > _PLACES_LIMIT:
            raise RegionError(f"{size_of(self.replica)} replicas are too many to list; limit {_PLACES_LIMIT}")
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for digits in itertools.product(*(range(it.extent) for it in self.replica)):
            place = dict(base)
            for digit, it in zip(digits, self.replica, strict=True):
                place[it.axis.name] = place[it.axis.name] + digit * it.stride
            found.setdefault(tuple(place.values()), place)
        return tuple(found.values())

    def table(self, shape: Sequence[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """Evaluate every element at once: one int64 array per axis, of the given shape (flat without one).

        Raises:
            RangeError: a value does not fit int64.
            UndecidedError: the layout has symbols or parameters.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[2, 2] + 5).table((2, 2))["m"].tolist()
        [[5, 6], [7, 8]]
        """
        from layoutalg.algebra.evaluate import table_of_iters

        tables = table_of_iters(self.shard, dict(self._offset), self.axes)
        if shape is None:
            return {axis.name: table for axis, table in tables.items()}
        extents = check_shape(shape, self.size)
        return {axis.name: table.reshape(extents) for axis, table in tables.items()}

    def evaluate(self, index: ArrayLike) -> dict[str, NDArray[np.int64]]:
        """Return the base places of an array of flat indices, one array per axis.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[4, 8]).evaluate([0, 9])["m"].tolist()
        [0, 9]
        """
        from layoutalg.algebra.evaluate import evaluate_iters

        tables = evaluate_iters(self.shard, dict(self._offset), self.axes, index)
        return {axis.name: table for axis, table in tables.items()}

    def explain(self, *coord: Any, shape: Sequence[Any] | None = None) -> str:
        """Spell out how one element finds its place, digit by digit.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4, 8] + 3).explain(1, 2, shape=(4, 8)))
        (1, 2) of (4, 8) is index 10 of 32
        digit 1 of 4:8 -> 8@m
        digit 2 of 8:1 -> 2@m
        offset -> 3@m
        place: m = 13
        """
        flat = self._flat(coord, shape)
        where = f"{coord} of {tuple(shape)} is index {flat}" if shape is not None else f"index {flat}"
        lines = [f"{where} of {self.size}"]
        for digit, it in zip(split(flat, [it.extent for it in self.shard]), self.shard, strict=True):
            lines.append(f"digit {digit} of {it} -> {digit * it.stride}@{it.axis}")
        lines.extend(f"offset -> {value}@{axis}" for axis, value in self._offset)
        lines.extend(f"replicas {it}" for it in self.replica)
        place = self.apply(flat) if self.shard else dict(self.offset)
        return "\n".join([*lines, "place: " + ", ".join(f"{axis} = {value}" for axis, value in place.items())])

    def draw(self, shape: Sequence[int] | None = None, **options: Any) -> Picture:
        """Draw a grid of the elements, of the places, or both: an SVG that notebooks show.

        Args:
            shape: logical extents, outermost first; the layout's own without it.
            options: ``view``, ``by``, ``dtype``, ``width``, ``limit``, ``title`` of :func:`layoutalg.draw.draw`.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[4, 8]).draw(view="places").svg.count("<rect")
        32
        """
        from layoutalg.draw.layout import draw

        return draw(self._self(), shape, **options)

    def _flat(self, coord: Sequence[Any], shape: Sequence[Any] | None) -> Any:
        """Return the checked flat index of a coordinate."""
        if shape is not None:
            extents = check_shape(shape, self.size)
        elif len(coord) == 1:
            extents = (self.size,)
        else:
            extents = tuple(it.extent for it in self.shard)
        if len(coord) != len(extents):
            raise RegionError(
                f"{len(coord)} coordinates {tuple(coord)} for {len(extents)} extents {extents}: give one per extent"
                + ("" if shape is not None else ", a flat index, or shape="),
                coord=tuple(coord),
            )
        flat = 0
        for x, extent in zip(coord, extents, strict=True):
            if type(x) is not int or type(extent) is not int or not 0 <= x < extent:
                break
            flat = flat * extent + x
        else:
            return flat
        return flatten(
            [_check_coordinate(x, e, d) for d, (x, e) in enumerate(zip(coord, extents, strict=True))], extents
        )

    def closed_form(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base place as a simplified sympy expression per axis.

        Args:
            coord: over ``shape``, as in :meth:`apply`; a str is the symbol of that name, from 0 up.
            shape: logical extents, which may be symbolic.

        >>> from layoutalg import S, TileLayout
        >>> from layoutalg.axis import laneid, warpid
        >>> frag = TileLayout(S[(8, 2, 4, 2):(4@laneid, 1@warpid, 1@laneid, 1)])
        >>> frag.closed_form("i", "j", shape=(8, 16))["warpid"]
        floor(j/8)
        """
        from layoutalg.symbolic import closed_form

        return closed_form(self._self(), coord, shape)

    # -- the places as a set ---------------------------------------------------------------------------------------

    def span(self, axis: str | Axis) -> Number:
        """Return max - min + 1 of the places on an axis, replicas included.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[4:-1]).span("m")
        4
        """
        from layoutalg.algebra.image import span

        return span(self._self(), axis)

    def image(self, axis: str | Axis) -> Sequence[int]:
        """Return the values on an axis in increasing order: a ``range`` where they are one progression, else a tuple.

        Raises:
            UndecidedError: symbols, or several progressions whose sum is too large to list.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[(2, 2):(5, 1)]).image("m"), TileLayout(S[4, 8] + 3).image("m")
        ((0, 1, 5, 6), range(3, 35))
        """
        from layoutalg.algebra.image import image

        return image(self._self(), axis)

    def is_injective(self) -> bool:
        """Decide whether distinct indices have disjoint sets of places.

        Raises:
            UndecidedError: symbols, or strides on which the search for a collision gives up.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[(2, 4):(4, 1)]).is_injective(), TileLayout(S[(2, 4):(3, 1)]).is_injective()
        (True, False)
        """
        from layoutalg.algebra.image import is_injective

        return is_injective(self._self())

    def first_collision(self) -> tuple[int, int] | None:
        """Return two indices that share a place, or None for an injective layout.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[(2, 4):(3, 1)]).first_collision()
        (3, 4)
        """
        from layoutalg.algebra.image import first_collision

        return first_collision(self._self())

    def is_bijective_onto(self, box: Mapping[str, Sequence[Any]]) -> bool:
        """Decide whether every place of a box belongs to exactly one index, and every place is in the box.

        Args:
            box: ``{axis: (begin, end)}``; an axis that is not named must be 0 everywhere.

        >>> from layoutalg import S, TileLayout
        >>> from layoutalg.axis import laneid
        >>> TileLayout(S[(8, 4, 2):(4@laneid, 1@laneid, 1)]).is_bijective_onto({"laneid": (0, 32), "m": (0, 2)})
        True
        """
        from layoutalg.algebra.image import is_bijective_onto

        return is_bijective_onto(self._self(), box)

    def is_contiguous(self) -> bool:
        """Decide whether the places fill a box without gap, each belonging to one index.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[(2, 4):(1, 2)] + 5).is_contiguous(), TileLayout(S[4:2]).is_contiguous()
        (True, False)
        """
        from layoutalg.algebra.image import is_contiguous

        return is_contiguous(self._self())


def _check_coordinate(x: Any, extent: Number, dim: int) -> Any:
    """Pass ints (checked), integer arrays (checked) and anything symbolic; refuse other values."""
    if type(x) is not int:
        if getattr(x, "shape", ()) != () and getattr(x, "dtype", None) is not None and x.dtype.kind in "iu":
            if type(extent) is int and x.size:
                _check_coordinate(int(x.min()), extent, dim)
                _check_coordinate(int(x.max()), extent, dim)
            return x
        if isinstance(x, _NOT_COORDINATES) or hasattr(x, "__index__") or type(x).__module__ == "numpy":
            x = as_number(x, f"coordinate {dim}")
        elif not all(hasattr(x, operation) for operation in ("__add__", "__mul__", "__mod__", "__floordiv__")):
            raise RangeError(f"coordinate {dim} must be an integer, not {x!r} ({type(x).__name__})", value=x)
    if type(x) is int and type(extent) is int and not 0 <= x < extent:
        raise RegionError(f"coordinate {x} of dimension {dim} lies outside [0, {extent})", dim=dim, coordinate=x)
    return x
