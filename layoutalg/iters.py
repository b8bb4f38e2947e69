"""``Iter(extent, stride, axis)``, one digit of a layout, and the facts about lists of them.

A list of iters, outermost first, is a mixed-radix counter: the flat index n has one digit per iter (the last is the
fastest), each digit times its stride lands on its axis, and the places add up.  With ``(2:10@m, 3:1@m)`` the
indices 0..5 go to 0, 1, 2, 10, 11, 12.

Everything here works on plain tuples of iters; :class:`layoutalg.tile.TileLayout` is the value that users hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from layoutalg.axis import Axis, m
from layoutalg.decide import Number, as_number, at_most, equal
from layoutalg.errors import RangeError

__all__ = [
    "Iter",
    "Iters",
    "Vector",
    "combine",
    "is_multiple_of_axis",
    "make_iter",
    "scale_vector",
    "size_of",
    "vector_at",
    "vector_step",
    "vectors_equal",
]


class Iter(NamedTuple):
    """One digit of a layout: ``0 <= digit < extent`` contributes ``digit * stride`` to ``axis``.

    >>> make_iter(8, 4, "laneid")
    8:4@laneid
    """

    extent: Number
    stride: Number
    axis: Axis

    def __repr__(self) -> str:
        return f"{self.extent}:{self.stride}" if self.axis is m else f"{self.extent}:{self.stride}@{self.axis.name}"


Iters: TypeAlias = tuple[Iter, ...]
#: A sparse vector of coordinates: axis -> number; an absent axis is zero.
Vector: TypeAlias = dict[Axis, Number]


def make_iter(extent: object, stride: object, axis: str | Axis = m) -> Iter:
    """Return a checked iter; ``Iter(...)`` itself trusts its caller.

    Raises:
        RangeError: the extent is not an integer of at least 1, or the stride is no integer.
        AxisError: unknown axis.

    >>> make_iter(0, 1)
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: extent must be at least 1, not 0
    """
    if type(extent) is not int:
        extent = _size(extent, "extent")
    if type(stride) is not int:
        stride = _size(stride, "stride")
    if not at_most(1, extent):
        raise RangeError(f"extent must be at least 1, not {extent}", extent=extent)
    return Iter(extent, stride, axis if type(axis) is Axis else Axis.get(axis))


def _size(value: object, what: str) -> Number:
    from layoutalg.index import Affine

    if isinstance(value, Affine):
        raise RangeError(f"{what} {value} is a parameter; only offsets and the begin of a slice may hold parameters")
    return as_number(value, what)


def size_of(iters: Iterable[Iter]) -> Number:
    """Return the product of the extents.

    >>> size_of((make_iter(2, 10), make_iter(3, 1)))
    6
    """
    return math.prod(it[0] for it in iters)


def combine(*vectors: Vector) -> Vector:
    """Add sparse vectors.

    >>> combine({m: 1}, {m: 2, Axis.get("laneid"): 3})
    {m: 3, laneid: 3}
    """
    total: Vector = {}
    for vector in vectors:
        for axis, value in vector.items():
            total[axis] = total[axis] + value if axis in total else value
    return total


def scale_vector(vector: Vector, factor: Number) -> Vector:
    """Multiply every coordinate.

    >>> scale_vector({m: 3}, 4)
    {m: 12}
    """
    return {axis: value * factor for axis, value in vector.items()}


def vectors_equal(a: Vector, b: Vector) -> bool:
    """Decide whether two sparse vectors are the same place.

    >>> vectors_equal({m: 3}, {m: 3, Axis.get("laneid"): 0})
    True
    """
    return all(equal(a.get(axis, 0), b.get(axis, 0)) for axis in {**a, **b})


def vector_at(iters: Sequence[Iter], index: Number) -> Vector:
    """Return D(index): the sum of digit times stride per axis. The outermost digit is not reduced.

    >>> vector_at((make_iter(2, 10), make_iter(3, 1)), 5)
    {m: 12}
    """
    total: Vector = {}
    for position in range(len(iters) - 1, -1, -1):
        extent, stride, axis = iters[position]
        if position == 0:
            digit = index
        elif type(index) is int and type(extent) is int:
            digit = index % extent
            index //= extent
        else:
            index, digit = _split_off(index, extent)
        total[axis] = total[axis] + digit * stride if axis in total else digit * stride
    return total


def _split_off(index: Number, extent: Number) -> tuple[Number, Number]:
    from layoutalg.index import split_off

    return split_off(index, extent)


def vector_step(iters: Sequence[Iter], index: Number) -> Vector:
    """Return D(index + 1) - D(index) from the carry alone; index + 1 must be inside.

    The innermost digit that does not overflow goes up by one stride, every digit within it falls back to zero.

    >>> vector_step((make_iter(2, 10), make_iter(3, 1)), 2)
    {m: 8}
    """
    step: Vector = {}
    for extent, stride, axis in reversed(iters[1:]):
        index, digit = divmod(index, extent)
        if digit + 1 < extent:
            step[axis] = step.get(axis, 0) + stride
            return step
        step[axis] = step.get(axis, 0) - (extent - 1) * stride
    _, stride, axis = iters[0]
    step[axis] = step.get(axis, 0) + stride
    return step


def is_multiple_of_axis(vector: Vector) -> tuple[Number, Axis] | None:
    """Return ``(stride, axis)`` if the vector lies on one axis (zero counts as on ``m``), else None.

    >>> is_multiple_of_axis({m: 3, Axis.get("laneid"): 0}), is_multiple_of_axis({m: 3, Axis.get("laneid"): 1})
    ((3, m), None)
    """
    found: tuple[Number, Axis] | None = None
    for axis, value in vector.items():
        if equal(value, 0):
            continue
        if found is not None:
            return None
        found = (value, axis)
    return found if found is not None else (0, m)


def show_vector(vector: Vector) -> str:
    """Spell a vector for a message, such as ``1@warpid - 2@laneid``."""
    parts = [f"{value}@{axis.name}" for axis, value in vector.items() if not _is_zero(value)]
    return " + ".join(parts) if parts else "0"


def _is_zero(value: Any) -> bool:
    return type(value) is int and value == 0
