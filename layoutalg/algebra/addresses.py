"""Layouts read as functions from indices to addresses: the common ground of composition and inverses.

CuTe reads a layout as a function of one integer with integer values.  Ours is one when it moves on a single axis:
``S[(2,3):(10,1)]`` is i -> 0 1 2 10 11 12, its *image* are those six numbers, and its *cosize* is 13, one more than the
largest.  Composition puts one such function into another, A(B(i)); then B's values are indices of A, so B lives on a
memory axis, has neither replicas nor negative values, and its numbers are ints.

The digit order is ours (the last iter is the fastest); it does not change what the function is, only how it is written.
What an operand may not have is refused here, with one message each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.axis import Axis, m
from layoutalg.errors import AxisError, LayoutError, RangeError, UndecidedError
from layoutalg.iters import Iters

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = ["as_index", "check_concrete", "cosize", "memory_axis", "start_of"]


def check_concrete(layout: object, what: str) -> None:
    """Refuse what is no layout of ints.

    Raises:
        LayoutError: no layout at all.
        UndecidedError: a symbolic extent or stride.

    >>> check_concrete("S[4:1]", "compose")
    Traceback (most recent call last):
        ...
    layoutalg.errors.LayoutError: compose takes layouts, not 'S[4:1]'; texts: TileLayout.parse
    """
    from layoutalg.tile import TileLayout

    if not isinstance(layout, TileLayout):
        raise LayoutError(f"{what} takes layouts, not {layout!r}; texts: TileLayout.parse")
    for it in (*layout.shard, *layout.replica):
        if not (type(it.extent) is int and type(it.stride) is int):
            raise UndecidedError(f"{what}: {it} of {layout} is symbolic; this operation is decided for numbers")


def start_of(layout: TileLayout, axis: Axis, what: str) -> int:
    """Return the offset on an axis as an int.

    Raises:
        UndecidedError: it has parameters.

    >>> from layoutalg.tile import TileLayout
    >>> start_of(TileLayout.parse("S[4:1] + 3"), m, "compose")
    3
    """
    start = layout.offset.get(axis.name, 0)
    if type(start) is not int:
        raise UndecidedError(f"{what}: the offset {start} on {axis} has parameters; substitute them first")
    return start


def memory_axis(layout: TileLayout, what: str) -> Axis:
    """Return the one memory axis that the layout moves on, ``m`` where it moves nowhere.

    Raises:
        AxisError: several axes, or one that is no memory axis.

    >>> from layoutalg.tile import TileLayout
    >>> memory_axis(TileLayout.parse("S[(2,4):(0@laneid,1@TCol)]"), "cosize")
    TCol
    """
    iters = (*layout.shard, *layout.replica)
    axes = [
        axis
        for axis in layout.axes
        if any(it.axis is axis and it.stride and it.extent > 1 for it in iters) or layout.offset.get(axis.name)
    ]
    if len(axes) > 1 or any(axis.kind != "memory" for axis in axes):
        names = ", ".join(f"{axis.name} ({axis.kind})" for axis in axes)
        raise AxisError(f"{what}: {layout} lives on {names}; addresses are on one memory axis, see .storage()")
    return axes[0] if axes else m


def cosize(layout: TileLayout) -> int:
    """Return one more than the largest address, 0 where all are negative.

    >>> from layoutalg.tile import TileLayout
    >>> cosize(TileLayout.parse("S[(4,2):(4,2)]"))
    15
    """
    check_concrete(layout, "cosize")
    top = start_of(layout, memory_axis(layout, "cosize"), "cosize")
    reach = [(it.extent - 1) * it.stride for it in (*layout.shard, *layout.replica)]
    return max(0, top + sum(int(x) for x in reach if x > 0) + 1)


def as_index(layout: TileLayout, what: str) -> tuple[Iters, int]:
    """Return canonical shard (on ``m``) and start of a layout read as one index at or above 0 per element.

    Raises:
        RangeError: it has replicas, or reaches below 0.

    >>> from layoutalg.tile import TileLayout
    >>> as_index(TileLayout.parse("S[4:6@TCol] + 1@TCol"), "compose")
    ((4:6,), 1)
    """
    check_concrete(layout, what)
    start = start_of(layout, memory_axis(layout, what), what)
    if any(it.extent > 1 and it.stride for it in layout.replica):
        raise RangeError(f"{what}: {layout} has replicas; an index is one number")
    low = start + sum(min(0, (it.extent - 1) * it.stride) for it in layout.shard)
    if low < 0:
        raise RangeError(f"{what}: {layout} reaches {low}; an index starts at 0", lowest=low)
    return canonical_shard(tuple(it._replace(axis=m) for it in layout.shard)), start
