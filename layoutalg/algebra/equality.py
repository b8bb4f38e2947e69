"""Deciding equality, and the first index that shows a difference.

A layout determines two things (see :mod:`layoutalg.algebra.canonical`): the map D(n) - D(0) of its shard, and the set
O + R.  So layouts are equal exactly when their canonical shards are, and their sets are.  Per axis, positive strides
and merged progressions usually settle the set at once; only where several progressions remain is it listed.

*The first difference* of two maps needs no table either.  Let e and f be the last extents of two canonical shards.
Where their strides or axes differ, so do the maps at index 1.  Where e < f, the first run of one ends at index e and
that of the other goes on; the neighbour does not continue the run, or the two would have merged.  Where e = f, the maps
of the outer digits decide, and an index u of theirs is the index u*e.  For example

    S[(4,8):(8,1)] = S[32:1]  and  S[(4,8):(9,1)]    agree up to index 7; at 8 they say 8 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layoutalg.algebra.canonical import canonical_shard, merge_progressions, sumset
from layoutalg.axis import Axis
from layoutalg.decide import Number, at_most, equal
from layoutalg.errors import LayoutError, UndecidedError
from layoutalg.iters import Iters, Vector

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = ["difference"]


def difference(a: TileLayout, b: TileLayout) -> tuple[Number | None, str] | None:
    """Return None for equivalent layouts, else the first index that differs (None for sizes) and why in words.

    >>> from layoutalg.tile import TileLayout
    >>> difference(TileLayout.parse("S[4:1]"), TileLayout.parse("S[4:1] + 2"))
    (0, 'index 0 lies at different places on m: 0 against 2')
    """
    if not (hasattr(b, "shard") and hasattr(b, "canonicalize")):
        from layoutalg.swizzled import SwizzledLayout

        if isinstance(b, SwizzledLayout):
            return b.difference(a)
        raise LayoutError(f"a layout is compared with a layout, not {b!r}; texts: TileLayout.parse")
    if a == b:
        return None
    if not equal(a.size, b.size):
        return None, f"sizes {a.size} and {b.size}"
    axis = _different_set(a, b)
    if axis is not None:
        return 0, f"index 0 lies at different places on {axis}: {_spell(a, axis)} against {_spell(b, axis)}"
    shard_a, shard_b = canonical_shard(a.shard), canonical_shard(b.shard)
    if shard_a == shard_b:
        return None
    index = first_difference(shard_a, shard_b)
    if index is None:
        return None
    at_a, at_b = (", ".join(f"{k} = {v}" for k, v in x.apply(index, shape=(x.size,)).items()) for x in (a, b))
    return index, f"index {index}: {at_a} against {at_b}"


def first_difference(a: Iters, b: Iters) -> Number | None:
    """Return the first index at which two canonical shards of one size differ, or None.

    The innermost iter is the longest run from the start: while both agree on it, the question moves to the run
    starts; else the shorter run ends first, or the very first step differs.

    Raises:
        UndecidedError: symbols whose values decide it; the message states the missing fact.

    >>> from layoutalg.iters import make_iter
    >>> first_difference((make_iter(2, 8), make_iter(4, 1)), (make_iter(8, 1),))
    4
    """
    unit: Number = 1
    a_rest, b_rest = list(a), list(b)
    while a_rest and b_rest:
        x, y = a_rest.pop(), b_rest.pop()
        if x.axis is not y.axis or not equal(x.stride, y.stride):
            _check_moves(x.extent, y.extent)
            return unit
        if not equal(x.extent, y.extent):
            least = x.extent if at_most(x.extent, y.extent) else y.extent
            return unit * least
        unit = unit * x.extent
    return None


def _check_moves(*extents: Number) -> None:
    """Two steps that differ show a difference of layouts only where both digits have a second value."""
    for extent in extents:
        if type(extent) is not int and not at_most(2, extent):
            raise UndecidedError(f"it is not known whether {extent} == 1", question=("==", extent, 1))


def _different_set(a: TileLayout, b: TileLayout) -> Axis | None:
    """Return an axis on which offset plus replicas are different sets."""
    if not (a.replica or b.replica or a._offset or b._offset):
        return None
    (per_a, low_a), (per_b, low_b) = merge_progressions(a.replica), merge_progressions(b.replica)
    start_a, start_b = _start(a, low_a), _start(b, low_b)
    for axis in {**start_a, **start_b, **per_a, **per_b}:
        if not equal(start_a.get(axis, 0), start_b.get(axis, 0)):
            return axis
        if not _same_progressions(per_a.get(axis, []), per_b.get(axis, []), axis):
            return axis
    return None


def _same_progressions(a: list[tuple[Number, Number]], b: list[tuple[Number, Number]], axis: Axis) -> bool:
    if len(a) == len(b) and all(equal(s, t) and equal(e, f) for (s, e), (t, f) in zip(a, b, strict=True)):
        return True
    if len(a) <= 1 and len(b) <= 1:
        return False
    return sumset(a, axis.name) == sumset(b, axis.name)


def _start(layout: TileLayout, moved: Vector) -> Vector:
    start: Vector = {axis: layout.offset[axis.name] for axis in layout.axes if axis.name in layout.offset}
    for axis, value in moved.items():
        start[axis] = start.get(axis, 0) + value
    return start


def _spell(layout: TileLayout, axis: Axis) -> str:
    offset = layout.offset.get(axis.name, 0)
    replicas = [str(it) for it in layout.replica if it.axis is axis]
    return f"{offset}" + (f" + R({', '.join(replicas)})" if replicas else "")
