"""The recogniser: read a layout off a table of its values, or show the first index at which no layout fits.

The innermost iter of a layout is the longest run of constant step on one axis from the start.  Its length e must
divide the number of values, and the same run must repeat in every block of e; the values at the block starts are
then the same question again.  Nothing is guessed: the run is forced, so one pass of n + n/e + ... values decides.

    0 1 | 10 11 | 20 21   run of step 1, length 2, repeats;  block starts 0 10 20: run of step 10, length 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layoutalg.axis import Axis, m
from layoutalg.errors import AxisError, NotExpressibleError, RangeError
from layoutalg.iters import Iter, Iters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from layoutalg.tile import TileLayout

__all__ = ["recognise", "recognise_values"]


def recognise(table: Mapping[str | Axis, ArrayLike] | ArrayLike) -> TileLayout:
    """Return the canonical layout with these values, the inverse of :meth:`TileLayout.table`.

    Law (verify.laws.recognise): ``recognise(L.table())`` is equivalent to L without its replicas.

    Args:
        table: one integer array per axis, all of one shape, read row-major; a bare array is the axis ``m``.

    Raises:
        NotExpressibleError: no layout has these values; ``index`` is the first at which every layout that agrees
            before it fails.
        RangeError: no integers, no elements, or arrays of different shapes.

    >>> print(recognise([[5, 6], [15, 16], [25, 26]]))
    S[(3,2):(10,1)] + 5
    """
    import numpy as np

    from layoutalg.tile import _make

    columns = table if isinstance(table, Mapping) else {m: table}
    try:
        arrays = {Axis.get(axis): np.asarray(column) for axis, column in columns.items()}
    except AxisError:
        raise
    except ValueError as error:
        raise RangeError(f"recognise: a table is rectangular: {error}") from error
    if not arrays:
        raise RangeError("recognise: a table has at least one axis")
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1:
        raise RangeError(f"recognise: the arrays have different shapes: {', '.join(map(str, sorted(shapes)))}")
    shard, offset = recognise_values({axis: array.reshape(-1) for axis, array in arrays.items()})
    return _make(shard, (), offset)


def recognise_values(values: Mapping[Axis, NDArray[Any]], total: int | None = None) -> tuple[Iters, dict[Axis, int]]:
    """Return canonical iters and the offset of a table, one flat int array of equal length per axis.

    Law (verify.laws.recognise): evaluating the result gives the table back; it fails only where no layout has it.

    Args:
        values: the table.
        total: its true length, where only its first values are given: then a failure is one of the whole table, and
            an answer is the layout of ``total`` elements that goes on as these values begin.

    Raises:
        NotExpressibleError: no layout has these values; ``index`` is the first at which every layout that agrees
            before it fails.
        RangeError: the arrays are not flat integer arrays of one positive length.

    >>> import numpy as np
    >>> recognise_values({m: np.array([5, 6, 15, 16, 25, 26])})
    ((3:10, 2:1), {m: 5})
    """
    table, count = _check_table(values)
    offset = {axis: int(column[0]) for axis, column in values.items() if column[0]}
    iters, failure = _read(table, count if total is None else total)
    if failure is not None:
        index, reason = failure
        raise NotExpressibleError(f"recognise: no layout has these values: {reason}", index=index, reason=reason)
    return iters, offset


def _check_table(values: Mapping[Axis, NDArray[Any]]) -> tuple[dict[Axis, NDArray[Any]], int]:
    import numpy as np

    table = {axis: np.asarray(column) for axis, column in values.items()}
    for axis, column in table.items():
        if column.ndim != 1 or column.size == 0 or not _is_integer(column):
            raise RangeError(f"recognise: the values on {axis} must be a flat, non-empty integer array")
    sizes = {column.size for column in table.values()}
    if len(sizes) > 1:
        raise RangeError(f"recognise: axes have {sorted(sizes)} values; one length is needed")
    return {axis: _from_zero(column) for axis, column in table.items()}, sizes.pop() if sizes else 1


def _is_integer(column: NDArray[Any]) -> bool:
    return column.dtype.kind in "iu" or (column.dtype == object and all(type(x) is int for x in column))


def _from_zero(column: NDArray[Any]) -> NDArray[Any]:
    """Move a column so that its least value is 0, which no difference of its values overflows."""
    import numpy as np

    low, high = int(column.min()), int(column.max())
    if high - low < 1 << 63:
        if column.dtype == np.uint64 or column.dtype == object:
            return np.asarray(column - low).astype(np.int64)
        wide = column.astype(np.int64, copy=False)
        return wide - low if low else wide
    return column.astype(object)


def _read(table: dict[Axis, NDArray[Any]], count: int) -> tuple[Iters, tuple[int, str] | None]:
    """Read iters off, innermost first, from the known prefix of ``count`` values; the least failure of all levels."""
    iters: list[Iter] = []
    failure: tuple[int, str] | None = None
    unit = 1  # elements of the original table between two values of the current level
    table = {axis: column for axis, column in table.items() if (column != column[0]).any()}
    while count > 1 and (not table or next(iter(table.values())).size > 1):
        try:
            length, stride, axis = _first_run(table, count, unit)
        except NotExpressibleError as error:
            return (), _least(failure, (error.index, str(error)))
        if length < count and count % length:
            reason = f"the first run has {length} steps of {unit} elements, which do not divide {count}"
            return (), _least(failure, (length * unit, reason))
        bad = _broken_block(table, length)
        if bad is not None:
            reason = f"index {bad * unit} does not repeat the first run of {length} steps of {unit} elements"
            failure = _least(failure, (bad * unit, reason))
            table = {a: column[:bad] for a, column in table.items()}
        iters.append(Iter(length, stride, axis))
        table = {a: column[::length] for a, column in table.items()}
        count, unit = count // length, unit * length
    return tuple(reversed(iters)), failure


def _least(a: tuple[int, str] | None, b: tuple[int, str]) -> tuple[int, str]:
    return b if a is None else min(a, b)


def _first_run(table: dict[Axis, NDArray[Any]], count: int, unit: int) -> tuple[int, int, Axis]:
    """Return length, step and axis of the longest run of constant step from the start.

    A prefix that is one run to its end counts as running on to ``count``.
    """
    steps = {axis: int(column[1]) - int(column[0]) for axis, column in table.items()}
    moving = [axis for axis, step in steps.items() if step]
    if len(moving) > 1:
        where = " + ".join(f"{steps[a]}@{a}" for a in moving)
        raise NotExpressibleError(f"index {unit} steps by {where}, and one iter has one axis", index=unit)
    length = count
    for axis, column in table.items():
        broken = _first_break(column[:length], steps[axis])
        if broken is not None:
            length = broken
    return length, steps[moving[0]] if moving else 0, moving[0] if moving else m


def _first_break(column: NDArray[Any], step: int) -> int | None:
    """Return the first position whose step from its predecessor differs; short prefixes are looked at first."""
    import numpy as np

    reach = 64
    while True:
        head = column[:reach]
        broken = np.flatnonzero(head[1:] - head[:-1] != step)
        if broken.size:
            return int(broken[0]) + 1
        if reach >= column.size:
            return None
        reach *= 64


def _broken_block(table: dict[Axis, NDArray[Any]], length: int) -> int | None:
    """Return the first position at which a block of ``length`` values is not the first run, moved."""
    found = [bad for column in table.values() if (bad := _broken_column(column, length)) is not None]
    return min(found, default=None)


def _broken_column(column: NDArray[Any], length: int) -> int | None:
    whole = column.size - column.size % length
    if not whole:
        return None
    run = column[:length] - column[0]
    blocks = column[:whole].reshape(-1, length)
    wrong = (blocks - blocks[:, :1]) != run
    if wrong.any():
        return int(wrong.reshape(-1).argmax())
    tail = column[whole:]
    late = tail - tail[:1] != run[: tail.size]
    return whole + int(late.argmax()) if late.any() else None
