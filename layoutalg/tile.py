"""``TileLayout``: where every element of a tensor lives.

A layout is a triple (D, R, O).  The *shard* D is a list of iters, outermost first; a flat index n is split row-major
into one digit per iter, and each digit times its stride adds to its axis.  The *replica* R is a list of iters too, but
every choice of its digits is a further place of the same element.  The *offset* O moves everything:

    L(n) = { D(n) + O + sum_t r_t * s_t  :  0 <= r_t < e_t }

A warp's accumulator fragment, for example, keeps element (i, j) of an (8, 16) tile in lane 4*(i % 8) + (j % 8) // 2
of warp j // 8, in register j % 2:

>>> from layoutalg.axis import laneid, warpid
>>> frag = TileLayout(S[(8, 2, 4, 2):(4@laneid, 1@warpid, 1@laneid, 1)] + 5@warpid)
>>> frag.apply(3, 9, shape=(8, 16))
{'laneid': 12, 'warpid': 6, 'm': 1}
>>> print(frag.slice((8, 16), ((2, 6), (0, 16))))
S[(4,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + 8@laneid + 5@warpid
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from layoutalg.algebra.canonical import canonical_replica, canonical_shard
from layoutalg.algebra.grouping import check_shape, group_iters, group_many_iters, regroup_iters
from layoutalg.algebra.permuting import check_permutation, permute_groups
from layoutalg.algebra.slicing import check_region, slice_iters
from layoutalg.axis import Axis, Placed, m
from layoutalg.decide import Number, as_number, equal
from layoutalg.errors import LayoutError, RegionError
from layoutalg.index import Affine, Param, flatten, split, substitute
from layoutalg.iters import Iter, Iters, make_iter, size_of, vector_at
from layoutalg.notation import R, S, Spec, format_parts, parse_parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["R", "S", "TileLayout"]

#: Version of the JSON form and of pickles.
FORMAT: Final = 1
_PLACES_LIMIT: Final = 1 << 20
_NOT_COORDINATES: Final = (bool, float, complex, str, bytes, tuple, list, dict, set, type(None))


class TileLayout:
    """An immutable layout (D, R, O); ``==`` is structural, :meth:`equivalent` compares the maps.

    Attributes:
        shard: iters of D, outermost first.
        replica: iters of R.

    >>> TileLayout(S[4, 8]) == TileLayout.parse("S[(4,8):(8,1)]")
    True
    """

    __slots__ = ("_canonical", "_hash", "_offset", "replica", "shard")

    shard: Iters
    replica: Iters
    _offset: tuple[tuple[Axis, Number], ...]
    _canonical: TileLayout | None
    _hash: int | None

    def __new__(cls, spec: Spec | TileLayout) -> TileLayout:
        if type(spec) is TileLayout:
            return spec
        if not isinstance(spec, Spec):
            raise LayoutError(f"TileLayout(...) takes S[...] + R[...] + offsets, not {spec!r}; texts: TileLayout.parse")
        if spec.shard is None:
            raise LayoutError("a layout needs a shard; S[()] is the empty one")
        return _make(spec.shard, spec.replica, dict(spec.offset))

    @classmethod
    def from_iters(
        cls,
        *,
        shard: Iterable[Sequence[Any]],
        replica: Iterable[Sequence[Any]] = (),
        offset: Mapping[str, Any] | None = None,
    ) -> TileLayout:
        """Build from ``(extent, stride, axis)`` triples and an offset per axis name.

        >>> TileLayout.from_iters(shard=[(8, 4, "laneid"), (2, 1, "m")], offset={"warpid": 5})
        TileLayout(S[(8,2):(4@laneid,1)] + 5@warpid)
        """
        start = {Axis.get(a): as_number(v, f"offset on {a}") for a, v in (offset or {}).items()}
        return _make(_iters_from(shard, "shard"), _iters_from(replica, "replica"), start)

    @classmethod
    def parse(cls, text: str) -> TileLayout:
        """Read the notation, the inverse of ``str``.

        Raises:
            NotationError: malformed text, with a caret under the position.

        >>> TileLayout.parse("S[8:1] + R[2:4@warpid]").replica
        (2:4@warpid,)
        """
        shard, replica, offset = parse_parts(text)
        return _make(shard, replica, dict(offset))

    # -- the value -------------------------------------------------------------------------------------------------

    @property
    def offset(self) -> Mapping[str, Number]:
        """The offset, axis name -> number, without the axes that have none (read-only)."""
        return MappingProxyType({axis.name: value for axis, value in self._offset})

    @property
    def size(self) -> Number:
        """The number of elements, the product of the shard's extents."""
        return size_of(self.shard)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that occur in D, R or O, in that order."""
        seen = {it.axis: None for it in self.shard} | {it.axis: None for it in self.replica}
        return tuple(seen | {axis: None for axis, _ in self._offset})

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters that the offset depends on, by name."""
        found = {p for _, value in self._offset if isinstance(value, Affine) for p, _ in value.terms}
        return tuple(sorted(found, key=lambda p: p.name))

    def substitute(self, **values: int) -> TileLayout:
        """Replace parameters by numbers.

        >>> print(TileLayout.parse("S[8:1] + 128*s[0:2]").substitute(s=1))
        S[8:1] + 128
        """
        return _make(self.shard, self.replica, {a: substitute(v, values) for a, v in self._offset})

    def __add__(self, other: object) -> TileLayout:
        """Move the layout: ``layout + 5@warpid``, ``layout + 3`` (axis m)."""
        axis, value = (other.axis, other.value) if isinstance(other, Placed) else (m, other)
        offset = dict(self._offset)
        offset[axis] = offset.get(axis, 0) + as_number(value, "offset")
        return _make(self.shard, self.replica, offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileLayout) and (self.shard, self.replica, self._offset) == (
            other.shard,
            other.replica,
            other._offset,
        )

    def __hash__(self) -> int:
        if self._hash is None:
            _set_hash(self, hash((self.shard, self.replica, self._offset)))
        return self._hash  # type: ignore[return-value]

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a TileLayout is immutable: cannot set {key}")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"a TileLayout is immutable: cannot delete {key}")

    def __str__(self) -> str:
        return format_parts(self.shard, self.replica, self._offset)

    def __repr__(self) -> str:
        return f"TileLayout({self})" if not self.params else f"TileLayout.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (FORMAT, self.shard, self.replica, self._offset))

    # -- evaluation ------------------------------------------------------------------------------------------------

    def apply(self, *coord: Any, shape: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the base place D(n) + O of one element, one number per axis that occurs.

        Args:
            coord: over ``shape``; without one, a single flat index or one digit per iter.
            shape: logical extents, outermost first; product is the size.

        Raises:
            RegionError: wrong rank or out of range.

        >>> TileLayout(S[4, 8]).apply(1, 2, shape=(4, 8))
        {'m': 10}
        """
        place = dict.fromkeys(self.axes, 0) | dict(self._offset)
        for axis, value in vector_at(self.shard, self._flat(coord, shape)).items():
            place[axis] = place[axis] + value
        return {axis.name: value for axis, value in place.items()}

    def places(self, *coord: Any, shape: Sequence[Any] | None = None) -> tuple[dict[str, Any], ...]:
        """Return every place of one element, replicas included, each once, in increasing order of their digits.

        >>> TileLayout.parse("S[4:1] + R[2:1@warpid]").places(3)
        ({'m': 3, 'warpid': 0}, {'m': 3, 'warpid': 1})
        """
        base = self.apply(*coord, shape=shape)
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

        >>> TileLayout(S[4, 8]).evaluate([0, 9])["m"].tolist()
        [0, 9]
        """
        from layoutalg.algebra.evaluate import evaluate_iters

        tables = evaluate_iters(self.shard, dict(self._offset), self.axes, index)
        return {axis.name: table for axis, table in tables.items()}

    def explain(self, *coord: Any, shape: Sequence[Any] | None = None) -> str:
        """Spell out how one element finds its place, digit by digit.

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
        return flatten(
            [_check_coordinate(x, e, d) for d, (x, e) in enumerate(zip(coord, extents, strict=True))], extents
        )

    # -- canonical form and equality -------------------------------------------------------------------------------

    def canonicalize(self) -> TileLayout:
        """Return the canonical form: equal for equivalent layouts (``verify.laws.canonical``).

        Unit iters and zero offsets vanish, zero strides move to axis m, neighbours that form one progression merge,
        and replicas take their unique factorisation.  Thread axes are not renamed; see :meth:`fuse_axes`.

        Raises:
            UndecidedError: a replica set too large to factor, or a symbolic fact that is missing.

        >>> print(TileLayout.parse("S[(4,1,8):(8,3,1)] + R[2:-4@warpid] + 0").canonicalize())
        S[32:1] + R[2:4@warpid] + -4@warpid
        """
        if self._canonical is None:
            replica, moved = canonical_replica(self.replica)
            offset = dict(self._offset)
            for axis, value in moved.items():
                offset[axis] = offset.get(axis, 0) + value
            shard = canonical_shard(self.shard)
            kept = {axis: value for axis, value in offset.items() if not _is_zero(value)}
            same = shard is self.shard and replica == self.replica and len(kept) == len(self._offset)
            canonical = self if same else _make(shard, replica, kept)
            _set_canonical(canonical, canonical)
            _set_canonical(self, canonical)
        return self._canonical  # type: ignore[return-value]

    def equivalent(self, other: TileLayout) -> bool:
        """Decide whether both layouts put every index at the same set of places.

        Law (verify.laws.canonical): true exactly when sizes agree and L1(n) = L2(n) for all n; nothing is enumerated
        except replica sets that several iters on one axis form.

        >>> TileLayout.parse("S[8:1] + R[(2,6):(3,2)]").equivalent(TileLayout.parse("S[8:1] + R[(3,4):(2,3)]"))
        True
        """
        return self.difference(other) is None

    def difference(self, other: TileLayout) -> tuple[int | None, str] | None:
        """Return None for equivalent layouts, else the first index that differs and both places in words.

        >>> TileLayout(S[4, 2]).difference(TileLayout(S[(4, 2):(1, 4)]))
        (1, 'index 1: m = 1 against m = 4')
        """
        from layoutalg.algebra.equality import difference

        return difference(self, other)

    # -- regrouping, slicing, permuting ----------------------------------------------------------------------------

    def group(self, shape: Sequence[Any]) -> tuple[TileLayout, tuple[int, ...]]:
        """Split the iters so that ``seps[d]:seps[d+1]`` multiply to ``shape[d]``; the map stays the same.

        Raises:
            NotExpressibleError: a boundary of the shape that no iter has.

        >>> TileLayout(S[32:1]).group((4, 8))
        (TileLayout(S[(4,8):(8,1)]), (0, 1, 2))
        """
        iters, seps = group_iters(canonical_shard(self.shard), check_shape(shape, self.size))
        return self._with_shard(iters), seps

    def group_many(self, shapes: Sequence[Sequence[Any]]) -> tuple[TileLayout, tuple[tuple[int, ...], ...]]:
        """Split the iters to the common refinement of several shapes, with the seps of each.

        >>> TileLayout(S[32:1]).group_many([(4, 8), (16, 2)])
        (TileLayout(S[(4,4,2):(8,2,1)]), ((0, 1, 3), (0, 2, 3)))
        """
        extents = [check_shape(shape, self.size) for shape in shapes]
        iters, seps = group_many_iters(canonical_shard(self.shard), extents)
        return self._with_shard(iters), seps

    def regroup(self, extents: Sequence[Any]) -> TileLayout:
        """Rewrite with exactly one iter per extent.

        Raises:
            NotExpressibleError: an extent would need two iters, or a boundary that no iter has.

        >>> print(TileLayout(S[32:1]).regroup((2, 16)))
        S[(2,16):(16,1)]
        """
        return self._with_shard(regroup_iters(canonical_shard(self.shard), check_shape(extents, self.size)))

    def slice(self, shape: Sequence[Any], region: Sequence[Any]) -> TileLayout:
        """Restrict the layout to a box of its index space, re-indexed from zero.

        Law (verify.laws.slicing): for every x with 0 <= x < extent,
        ``L.slice(shape, region).apply(*x) == L.apply(*(begin + x), shape=shape)``.

        Args:
            shape: logical extents, outermost first; product is the size.
            region: per dimension ``(begin, end)`` or one index (which becomes extent 1); begins may hold parameters.

        Raises:
            RegionError: the box is empty, has the wrong rank or leaves ``shape``.
            NotExpressibleError: no TileLayout has these values; ``index`` is the first that shows it.

        >>> print(TileLayout.parse("S[(2,2,4):(100,10,1)]").slice((16,), ((6, 10),)))
        S[(2,2):(88,1)] + 12
        """
        extents = check_shape(shape, self.size)
        iters, start = slice_iters(canonical_shard(self.shard), extents, check_region(region, extents))
        offset = dict(self._offset)
        for axis, value in start.items():
            if not _is_zero(value):
                offset[axis] = offset.get(axis, 0) + value
        return _make(canonical_shard(iters), self.replica, offset)

    def permute(self, *dims: int, shape: Sequence[Any] | None = None) -> TileLayout:
        """Reorder the logical dimensions: ``new[x[dims[0]], x[dims[1]], ...] = old[x]``.

        Args:
            dims: a permutation of the dimensions, negative ones count from the end.
            shape: logical extents; without one, each iter is a dimension.

        Raises:
            RangeError: not a permutation.

        >>> print(TileLayout(S[32:1]).permute(1, 0, shape=(4, 8)))
        S[(8,4):(1,8)]
        """
        if shape is None:
            order = check_permutation(dims, len(self.shard), "iters")
            return self._with_shard(tuple(self.shard[d] for d in order))
        layout, seps = self.group(shape)
        return layout.permute_groups(seps, dims)

    def permute_iters(self, order: Sequence[int]) -> TileLayout:
        """Reorder the iters.

        >>> print(TileLayout(S[4, 8]).permute_iters((1, 0)))
        S[(8,4):(1,8)]
        """
        return self.permute(*order)

    def permute_groups(self, seps: Sequence[int], order: Sequence[int]) -> TileLayout:
        """Reorder groups of iters, ``seps`` as returned by :meth:`group`.

        >>> print(TileLayout(S[2, 2, 8]).permute_groups((0, 2, 3), (1, 0)))
        S[(8,2,2):(1,16,8)]
        """
        bounds = [as_number(sep, "a separator") for sep in seps]
        if len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != len(self.shard) or sorted(bounds) != bounds:
            raise RegionError(
                f"separators {tuple(seps)} do not run from 0 to {len(self.shard)} iters", seps=tuple(seps)
            )
        checked = check_permutation(order, len(bounds) - 1, "groups")
        return self._with_shard(permute_groups(self.shard, bounds, checked))

    def _with_shard(self, iters: Iters) -> TileLayout:
        return self if iters is self.shard else _make(iters, self.replica, dict(self._offset))

    # -- JSON ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a versioned JSON-ready value; :meth:`from_json` reads it.

        >>> TileLayout(S[4, 8]).to_json()
        {'format': 1, 'layout': 'S[(4,8):(8,1)]'}
        """
        return {"format": FORMAT, "layout": str(self)}

    @classmethod
    def from_json(cls, value: object) -> TileLayout:
        """Read the JSON form.

        Raises:
            LayoutError: not this form, or a newer version.
        """
        if not isinstance(value, dict) or set(value) != {"format", "layout"}:
            raise LayoutError(f"a layout's JSON is {{'format': {FORMAT}, 'layout': TEXT}}, not {value!r}")
        if value["format"] != FORMAT:
            raise LayoutError(f"layout format {value['format']!r} is not supported; this library reads {FORMAT}")
        return cls.parse(value["layout"])


# Slot descriptors write the fields of the frozen value: the cheapest way to build one.
_slots: Any = TileLayout
_set_shard = _slots.shard.__set__
_set_replica = _slots.replica.__set__
_set_offset = _slots._offset.__set__
_set_canonical = _slots._canonical.__set__
_set_hash = _slots._hash.__set__


def _make(shard: Iters, replica: Iters, offset: Mapping[Axis, Number]) -> TileLayout:
    """Build a layout from checked parts: the only way in for the algebra's own results."""
    self = object.__new__(TileLayout)
    _set_shard(self, shard)
    _set_replica(self, replica)
    _set_offset(self, tuple(sorted(offset.items(), key=_axis_name)) if len(offset) > 1 else tuple(offset.items()))
    _set_canonical(self, None)
    _set_hash(self, None)
    return self


def _axis_name(item: tuple[Axis, Number]) -> str:
    return item[0].name


def _unpickle(version: int, shard: Iters, replica: Iters, offset: tuple[tuple[Axis, Number], ...]) -> TileLayout:
    if version != FORMAT:
        raise LayoutError(f"a pickled layout of format {version}; this library reads {FORMAT}")
    return _make(shard, replica, dict(offset))


def _iters_from(triples: Iterable[Sequence[Any]], what: str) -> Iters:
    checked: list[Iter] = []
    for triple in triples:
        if not isinstance(triple, (tuple, list)) or len(triple) not in (2, 3):
            raise LayoutError(f"{what} takes (extent, stride, axis) triples, not {triple!r}")
        checked.append(make_iter(*triple))
    return tuple(checked)


def _is_zero(value: Number) -> bool:
    return not isinstance(value, Affine) and equal(value, 0)  # a parameter is never dropped, whatever its range


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
    if type(x) is int and type(extent) is int and not 0 <= x < extent:
        raise RegionError(f"coordinate {x} of dimension {dim} lies outside [0, {extent})", dim=dim, coordinate=x)
    return x
