"""Sums of layouts at indices: one side of a statement about an answer, with its offsets and replicas.

Replicas are sets.  A finite set has one translation onto another (the least element goes to the least), so two sides
agree everywhere when their sets of replicas, moved to start at 0, are equal, and their places, moved by the least
elements, agree.  Sets of numbers are listed; symbolic ones are compared as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from layoutalg.index import Affine
from layoutalg.tile import TileLayout
from verify.reads import Linear, Place, Read, Symbolic, constant, offset_terms

__all__ = ["Side", "add_places", "difference_of_sets", "params_of"]

#: Sets of replicas are listed up to this many elements per axis.
_MAX_SET: Final = 1 << 20


@dataclass(slots=True)
class Side:
    """A sum under construction: reads, offsets, and progressions ``(extent, stride)`` per axis."""

    reads: list[Read] = field(default_factory=list)
    offset: Place = field(default_factory=dict)
    replicas: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)

    def read(
        self,
        layout: TileLayout,
        index: Linear,
        *,
        scale: Mapping[str, tuple[str, int]] | None = None,
        factor: int = 1,
        endless: bool = False,
    ) -> Side:
        """Add a layout at an index; see :class:`verify.reads.Read` for the options."""
        scales = scale or {}
        self.reads.append(Read(layout.shard, index, scales, factor, endless))
        for axis, value in layout.offset.items():
            name, times = scales.get(axis, (axis, factor))
            for monomial, form in offset_terms(value, "offset").items():
                self.add((name, monomial), form * times)
        for extent, stride, on in layout.replica:
            name, times = scales.get(on.name, (on.name, factor))
            if not (type(extent) is int and extent == 1) and not (type(stride) is int and stride == 0):
                self.replicas.setdefault(name, []).append((extent, stride * times))
        return self

    def add(self, key: tuple[str, str], form: Linear) -> Side:
        """Add a number on an axis."""
        self.offset[key] = self.offset.get(key, Linear()) + form
        return self

    def ends(self, axis: str) -> tuple[int, int]:
        """Least and greatest replica on an axis."""
        low = high = 0
        for extent, stride in self.replicas.get(axis, []):
            end = (_int(extent) - 1) * _int(stride)
            low, high = low + min(0, end), high + max(0, end)
        return low, high


def _int(value: Any) -> int:
    if type(value) is not int:
        raise Symbolic(f"replica {value} is symbolic")
    return value


def add_places(a: Place, b: Place, factor: int = 1) -> Place:
    """Return ``a + factor * b``."""
    total = dict(a)
    for key, form in b.items():
        total[key] = total.get(key, Linear()) + form * factor
    return total


def difference_of_sets(left: Side, right: Side) -> tuple[Place, dict[str, Any] | None]:
    """Return by how much the least replicas differ per axis, and the first axis whose sets differ in shape.

    Raises:
        Symbolic: sets that are symbolic and written differently, or too large to list.
    """
    moved: Place = {}
    for axis in sorted({*left.replicas, *right.replicas}):
        a, b = left.replicas.get(axis, []), right.replicas.get(axis, [])
        if sorted(map(str, a)) == sorted(map(str, b)):
            continue
        (low_a, shape_a), (low_b, shape_b) = _set_of(a, axis), _set_of(b, axis)
        moved[axis, ""] = constant(low_a - low_b)
        if shape_a != shape_b:
            odd = min(shape_a ^ shape_b)
            return moved, {"axis": axis, "replica": odd, "missing in": "expected" if odd in shape_a else "answer"}
    return moved, None


def _set_of(progressions: list[tuple[int, Any]], axis: str) -> tuple[int, frozenset[int]]:
    """Return the least sum of digits, and all sums moved to start at 0."""
    total = {0}
    for extent, stride in progressions:
        if type(extent) is not int or type(stride) is not int:
            raise Symbolic(f"replicas {extent}:{stride}@{axis} are symbolic and written in two ways")
        if len(total) * extent > _MAX_SET:
            raise Symbolic(f"over {_MAX_SET} replicas on {axis}")
        total = {x + k * stride for x in total for k in range(extent)}
    low = min(total)
    return low, frozenset(x - low for x in total)


def params_of(*values: Any) -> dict[str, tuple[int, int]]:
    """Return the ranges of the named parameters in layouts, offsets and begins.

    Raises:
        Symbolic: one name with two ranges.
    """
    found: dict[str, tuple[int, int]] = {}
    for value in values:
        params = value.params if isinstance(value, TileLayout) else ()
        if isinstance(value, Affine):
            params = tuple(param for param, _ in value.terms)
        for param in params:
            ends = (param.begin, param.end - 1)
            if found.setdefault(param.name, ends) != ends:
                raise Symbolic(f"parameter {param.name} has two ranges")
    return found
