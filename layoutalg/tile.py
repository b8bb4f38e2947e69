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

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from layoutalg.axis import Axis, Placed, m
from layoutalg.decide import Number, as_number
from layoutalg.errors import LayoutError
from layoutalg.index import Affine, Param, substitute
from layoutalg.iters import Iter, Iters, make_iter, size_of
from layoutalg.notation import R, S, Spec, format_parts, parse_parts
from layoutalg.operations import Operations

__all__ = ["R", "S", "TileLayout"]

#: Version of the JSON form and of pickles.
FORMAT: Final = 1


def _make(shard: Iters, replica: Iters, offset: Mapping[Axis, Number]) -> TileLayout:
    """Build a layout from checked parts: the only way in for the algebra's own results."""
    self = object.__new__(TileLayout)
    _set_shard(self, shard)
    _set_replica(self, replica)
    _set_offset(self, tuple(sorted(offset.items(), key=_axis_name)) if len(offset) > 1 else tuple(offset.items()))
    _set_canonical(self, None)
    _set_hash(self, None)
    return self


class TileLayout(Operations):
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

    _make = staticmethod(_make)

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
        if offset is not None and not isinstance(offset, Mapping):
            raise LayoutError(f"an offset is {{axis: number}}, not {offset!r}")
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

    def _self(self) -> TileLayout:
        return self

    def _remember(self, canonical: TileLayout) -> None:
        _set_canonical(canonical, canonical)
        _set_canonical(self, canonical)

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

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols in extents, strides and offsets."""
        values = [x for it in (*self.shard, *self.replica) for x in it[:2]] + [value for _, value in self._offset]
        return tuple(sorted({s.name for value in values for s in getattr(value, "free_symbols", ())}))

    def substitute(self, **values: int) -> TileLayout:
        """Replace parameters and symbols by numbers; names that do not occur are ignored.

        Raises:
            RangeError: a parameter outside its range, or a symbol below 1.

        >>> print(TileLayout.parse("S[8:1] + 128*s[0:2]").substitute(s=1))
        S[8:1] + 128
        >>> print(TileLayout.parse("S[(n,8):(8,1)]").substitute(n=4))
        S[(4,8):(8,1)]
        """
        offset = {a: substitute(v, values) for a, v in self._offset}
        if not self.symbols:
            return _make(self.shard, self.replica, offset)
        from layoutalg.symbolic import replace

        shard, replica = (
            tuple(make_iter(replace(e, values), replace(s, values), a) for e, s, a in iters)
            for iters in (self.shard, self.replica)
        )
        return _make(shard, replica, {a: replace(v, values) for a, v in offset.items()})

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
        return f"TileLayout({self})" if not (self.params or self.symbols) else f"TileLayout.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (FORMAT, self.shard, self.replica, self._offset))

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

        >>> TileLayout.from_json({"format": 1, "layout": "S[4,8]"})
        TileLayout(S[(4,8):(8,1)])
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


def _axis_name(item: tuple[Axis, Number]) -> str:
    return item[0].name


def _unpickle(version: int, shard: Iters, replica: Iters, offset: tuple[tuple[Axis, Number], ...]) -> TileLayout:
    if version != FORMAT:
        raise LayoutError(f"a pickled layout of format {version}; this library reads {FORMAT}")
    return _make(shard, replica, dict(offset))


def _iters_from(triples: Iterable[Sequence[Any]], what: str) -> Iters:
    if isinstance(triples, str) or not isinstance(triples, Iterable) or getattr(triples, "shape", None) == ():
        raise LayoutError(f"{what} takes (extent, stride, axis) triples, not {triples!r}")
    checked: list[Iter] = []
    for triple in triples:
        if not isinstance(triple, (tuple, list)) or len(triple) not in (2, 3):
            raise LayoutError(f"{what} takes (extent, stride, axis) triples, not {triple!r}")
        checked.append(make_iter(*triple))
    return tuple(checked)
