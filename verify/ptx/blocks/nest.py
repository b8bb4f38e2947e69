"""Two layouts over one index as one nest of loops, and the digits of a place in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutalg.algebra.grouping import group_iters, group_many_iters
from layoutalg.claim import Claim, Move
from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.tile import TileLayout
from verify.ptx.blocks.partition import Ints

__all__ = ["Loop", "Nest", "nest_of"]


@dataclass(frozen=True, slots=True)
class Loop:
    """One digit: its extent, and how many elements a step moves in the input and in the output."""

    extent: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Nest:
    """All pairs (place in the input, place in the output) of one move: sums over digits below their extents.

    Attributes:
        loops: outermost in the output first.
        read, written: the places where all digits are zero, counted from the buffers' first elements.
    """

    loops: tuple[Loop, ...]
    read: int
    written: int

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for loop in self.loops:
            size *= loop.extent
        return size

    def digits(self, written: Ints) -> Ints:
        """Guess the digits of places of the output, one column each; whether they are right, :meth:`places` tells."""
        left = written - self.written
        found = np.zeros((len(self.loops), len(written)), dtype=np.int64)
        for row, loop in zip(found, self.loops, strict=True):
            if loop.written:
                row[:] = np.clip(left // loop.written, 0, loop.extent - 1)
                left = left - row * loop.written
        return found

    def places(self, digits: Ints) -> tuple[Ints, Ints]:
        """The places in the input and in the output of digits, given as columns."""
        read = np.full(digits.shape[1], self.read, dtype=np.int64)
        written = np.full(digits.shape[1], self.written, dtype=np.int64)
        for row, loop in zip(digits, self.loops, strict=True):
            read += row * loop.read
            written += row * loop.written
        return read, written

    def sources(self, written: Ints) -> Ints:
        """The place in the input of each place of the output, -1 where there is none or none was found."""
        digits = self.digits(written)
        read, again = self.places(digits)
        return np.where(again == written, read, -1)


def nest_of(claim: Claim, move: Move) -> Nest:
    """Return the nest of a move over two whole tile layouts on axis ``m``.

    Both canonical forms are refined to common digits, so that an index has the same digits in both; digits that are
    one run in both, in whatever order the index counts them, are joined.

    Raises:
        LayoutError: the move is not of this form.

    >>> from layoutalg.claim import Buffer, Side
    >>> sides = [Side(f"S[(4,2,3):{strides}]", (4, 2, 3), "0:4,0:2,0:3") for strides in ("(6,3,1)", "(1,12,4)")]
    >>> buffers = tuple(Buffer(n, r, "f32", 0, 24, 16) for n, r in (("a", "input"), ("b", "output")))
    >>> move = Move("a", sides[0], "b", sides[1])
    >>> nest_of(Claim("k", "f32", (1, 1, 1), (32, 1, 1), 0, buffers, (move,), "untouched"), move).loops
    (Loop(extent=6, read=1, written=4), Loop(extent=4, read=6, written=1))
    """
    layouts = []
    for side in (move.source, move.destination):
        layout, region = side.parts()
        if any(i.begin != 0 or i.length != e for i, e in zip(region, side.shape, strict=True)):
            raise LayoutError("the move is over a part of its layouts")
        if not isinstance(layout, TileLayout) or layout.replica or layout.params:
            raise LayoutError("the move is over layouts with swizzles, replicas or parameters")
        if any(axis.name != "m" for axis in layout.axes):
            raise LayoutError("the move leaves axis m")
        layouts.append(layout)
    source, destination = layouts
    if source.size != destination.size:
        raise LayoutError("the move's layouts differ in size")
    firsts = [
        int(layout.offset.get("m", 0)) - claim.buffer(name).first
        for layout, name in ((source, move.input), (destination, move.output))
    ]
    return _nest(_common(source, destination), *firsts)


def _common(source: TileLayout, destination: TileLayout) -> list[Loop]:
    """The digits of both canonical forms, each split where the other one has a boundary."""
    read, written = source.canonicalize().shard, destination.canonicalize().shard
    try:
        digits, _ = group_many_iters(read, [tuple(i.extent for i in side) for side in (read, written)])
        digits = tuple(i for i in digits if i.extent != 1)
        others, _ = group_iters(written, tuple(i.extent for i in digits))
    except NotExpressibleError as error:
        raise LayoutError(f"the digits of the move's layouts do not nest: {error}") from error
    pairs = zip(digits, (i for i in others if i.extent != 1), strict=True)
    return [Loop(int(r.extent), int(r.stride), int(w.stride)) for r, w in pairs]


def _nest(loops: list[Loop], read: int, written: int) -> Nest:
    """The nest of digits; a digit that walks the output backwards is counted from its other end."""
    forward = []
    for loop in loops:
        if loop.written < 0:
            read, written = read + (loop.extent - 1) * loop.read, written + (loop.extent - 1) * loop.written
            loop = Loop(loop.extent, -loop.read, -loop.written)
        forward.append(loop)
    return Nest(_joined(forward), read, written)


def _joined(loops: list[Loop]) -> tuple[Loop, ...]:
    """Sorted by the output's strides, with neighbours joined that are one run in both.

    Digits i (outer) and j (inner) with strides ``s_i == e_j * s_j`` on both sides add ``s_j * (i * e_j + j)`` to either
    place, and ``i * e_j + j`` takes every value below ``e_i * e_j`` once.
    """
    made: list[Loop] = []
    for loop in sorted(loops, key=lambda one: (-one.written, -one.read)):
        outer = made[-1] if made else None
        joins = outer and outer.read == loop.extent * loop.read and outer.written == loop.extent * loop.written
        if outer is not None and joins:
            made[-1] = Loop(outer.extent * loop.extent, loop.read, loop.written)
        else:
            made.append(loop)
    return tuple(made)
