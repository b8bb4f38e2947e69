"""Evaluating a whole layout at once with numpy.

A layout's table is a sum of outer products, so it is built by broadcasting one ``arange`` per iter and never touches
an element in Python.  ``S[(2,3):(10,1)] + 5`` is

    [[0], [10]] + [[5, 6, 7]] = [[5, 6, 7], [15, 16, 17]],  read row by row.

A batch of indices is split digit by digit instead, by masks and shifts where an extent is a power of two.

Extreme values are known from the strides beforehand: each iter adds between 0 and ``(e - 1)*s``.  A table that would
not fit int64 is refused, not wrapped.  Sums in between may wrap: arithmetic modulo 2^64 is exact where the result fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutalg.axis import Axis
from layoutalg.decide import Number
from layoutalg.errors import RangeError, RegionError, UndecidedError
from layoutalg.iters import Iters, size_of

__all__ = ["evaluate_exactly", "evaluate_iters", "table_of_iters"]

IntArray = NDArray[np.int64]
_INT64 = 1 << 63


def _check_numbers(iters: Iters, offset: Mapping[Axis, Number]) -> None:
    """Refuse symbolic layouts and tables whose values leave int64."""
    low: dict[Axis, int] = {}
    high: dict[Axis, int] = {}
    for axis, value in offset.items():
        if type(value) is not int:
            raise UndecidedError(f"a table needs numbers: the offset on {axis} is {value}; substitute it first")
        low[axis] = high[axis] = value
    for extent, stride, axis in iters:
        if type(extent) is not int or type(stride) is not int:
            raise UndecidedError(f"a table needs numbers: iter {extent}:{stride}@{axis} is symbolic")
        end = (extent - 1) * stride
        low[axis], high[axis] = low.get(axis, 0) + min(end, 0), high.get(axis, 0) + max(end, 0)
    for axis in low:
        if low[axis] < -_INT64 or high[axis] >= _INT64:
            raise RangeError(
                f"the values on {axis} run from {low[axis]} to {high[axis]}, beyond int64; "
                f"apply() computes single points exactly",
                axis=axis.name,
            )


def table_of_iters(iters: Iters, offset: Mapping[Axis, Number], axes: tuple[Axis, ...]) -> dict[Axis, IntArray]:
    """Return the flat int64 table of every axis in ``axes``, D + O at every index in order.

    >>> from layoutalg.axis import m
    >>> from layoutalg.iters import Iter
    >>> table_of_iters((Iter(2, 10, m), Iter(3, 1, m)), {m: 5}, (m,))[m].tolist()
    [5, 6, 7, 15, 16, 17]
    """
    _check_numbers(iters, offset)
    extents = tuple(it[0] for it in iters)
    return {axis: _axis_table(iters, extents, offset.get(axis, 0), axis) for axis in axes}


def _axis_table(iters: Iters, extents: tuple[int, ...], start: int, axis: Axis) -> IntArray:
    """Add up one arange per iter on the axis, innermost first; iters elsewhere only repeat the values."""
    values: IntArray | None = None
    shape: list[int] = []  # the shape of `values`, with 1 where an iter does not move this axis
    repeats = False
    for extent, stride, on in reversed(iters):
        if on is not axis or extent == 1:
            shape.insert(0, 1)
            repeats = repeats or extent > 1
            continue
        if values is None:
            values = _progression(start, extent, stride)
        else:
            values = _progression(0, extent, stride).reshape((extent,) + (1,) * values.ndim) + values
        shape.insert(0, extent)
        values = values.reshape(shape)
    if values is None:
        return np.full(int(np.prod(extents, dtype=object)) if extents else 1, start, dtype=np.int64)
    if repeats:
        values = np.broadcast_to(values.reshape(shape), extents)
    return cast("IntArray", values.reshape(-1))


def _progression(start: int, extent: int, stride: int) -> IntArray:
    """Return start + k*stride modulo 2**64: the final sums fit int64, so intermediate wrapping is harmless."""
    end = start + extent * stride
    if stride and -_INT64 <= start < _INT64 and -_INT64 <= end < _INT64:
        return np.arange(start, end, stride)
    wrapped = [(start + k * stride + _INT64) % (2 * _INT64) - _INT64 for k in range(extent)]
    return np.array(wrapped, dtype=np.int64)


def evaluate_iters(
    iters: Iters, offset: Mapping[Axis, Number], axes: tuple[Axis, ...], index: ArrayLike
) -> dict[Axis, IntArray]:
    """Return D(n) + O on every axis for an array of flat indices, in the array's shape.

    Raises:
        RegionError: an index lies outside ``[0, size)`` or is no integer.

    >>> from layoutalg.axis import m
    >>> from layoutalg.iters import Iter
    >>> evaluate_iters((Iter(2, 10, m), Iter(3, 1, m)), {m: 5}, (m,), [0, 4])[m].tolist()
    [5, 16]
    """
    _check_numbers(iters, offset)
    try:
        n = np.asarray(index)
    except ValueError as error:
        raise RegionError(f"an array of indices is rectangular: {error}") from error
    if n.dtype.kind not in "iu":
        raise RegionError(f"indices must be integers, not {n.dtype}")
    n = n.astype(np.int64, copy=False)
    size = size_of(iters)
    if n.size and (int(n.min()) < 0 or int(n.max()) >= size):
        flat = n.reshape(-1)
        first = int(np.flatnonzero((flat < 0) | (flat >= size))[0])
        raise RegionError(f"index {int(flat[first])} (position {first}) lies outside [0, {size})", position=first)
    result: dict[Axis, Any] = {axis: None for axis in axes}
    for position in range(len(iters) - 1, -1, -1):
        extent, stride, axis = iters[position]
        digit, n = (n, n) if position == 0 else _digit(n, extent)
        if stride:
            term = digit * np.int64((stride + _INT64) % (2 * _INT64) - _INT64)
            result[axis] = term if result[axis] is None else result[axis] + term
    for axis, values in result.items():
        start = offset.get(axis, 0)
        result[axis] = np.full(n.shape, start, dtype=np.int64) if values is None else values + np.int64(start)
    return result


def evaluate_exactly(iters: Iters, index: IntArray) -> dict[Axis, NDArray[Any]]:
    """Return D(n) per axis for an array of flat indices: int64, or Python ints where values leave int64.

    >>> from layoutalg.axis import m
    >>> from layoutalg.iters import Iter
    >>> evaluate_exactly((Iter(2, 1 << 80, m),), np.arange(2))[m].tolist()
    [0, 1208925819614629174706176]
    """
    axes = tuple({it.axis: None for it in iters})
    try:
        return dict(evaluate_iters(iters, {}, axes, index))
    except RangeError:
        n: Any = index.astype(object)
    result: dict[Axis, Any] = {axis: np.zeros_like(n) for axis in axes}
    for extent, stride, axis in reversed(iters):
        n, digit = n // extent, n % extent
        result[axis] = result[axis] + digit * stride
    return result


def _digit(n: IntArray, extent: int) -> tuple[IntArray, IntArray]:
    """Return n mod extent and n div extent, by mask and shift for powers of two."""
    if extent & (extent - 1) == 0:
        return n & (extent - 1), n >> (extent.bit_length() - 1)
    outer = n // extent
    return n - outer * extent, outer
