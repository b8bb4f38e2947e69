"""Permutes that are linear on the bits of the index: choosing lanes and registers by linear algebra over GF(2).

With 2^n elements, let A and B send the bits of an index to its source and destination address (up to a constant).  A
lane reads ``read`` bytes at once: the elements of one access differ by vectors of S, those that A moves only inside it;
D is the same for writes.  Lane bits span a subspace W, registers a complement R that contains U = S + D.  An
instruction is free of bank conflicts exactly when W maps injectively to the banks.  Greedy choice of W never backtracks
when n - 5 >= dim U: before each step three proper subspaces of codimension at least two cannot cover the space, and at
the last step they cannot either, since S lies in U and in A's kernel, and D in U and in B's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import xor

import numpy as np

from codegen_cuda.permute.task import LANES, ROW_BYTES, Ints, Task, group_lanes
from layoutalg.subspaces import Span, complement, rank

__all__ = ["Blocks", "LinearSide", "apply", "choose_blocks", "images", "linear_sides"]

_LANE_BITS = 5
_NODES = 64


def apply(columns: Sequence[int], vector: int) -> int:
    """Return the image of a vector under a linear map given by the images of its bits.

    >>> apply((1, 2, 4), 0b101)
    5
    """
    image = 0
    for bit, column in enumerate(columns):
        if vector >> bit & 1:
            image ^= column
    return image


def images(columns: Sequence[int]) -> Ints:
    """Return the images of all vectors, in order.

    >>> images((2, 1)).tolist()
    [0, 2, 1, 3]
    """
    table = np.zeros(1, dtype=np.int64)
    for column in columns:
        table = np.concatenate([table, table ^ column])
    return table


@dataclass(frozen=True, slots=True)
class LinearSide:
    """Byte address of element n: ``origin + (A n ^ constant)``.

    Args:
        origin: in bytes.
        columns: image of each bit of n under A, in bytes.
        constant: in bytes.
    """

    origin: int
    columns: tuple[int, ...]
    constant: int

    def inside(self, width: int) -> tuple[int, ...]:
        """Return a basis of the vectors that move only inside an aligned access of ``width`` bytes."""
        return _kernel([column // width for column in self.columns])

    def banks(self, width: int) -> tuple[int, ...]:
        """Return the map from index bits to the bank unit of an access of ``width`` bytes."""
        unit = max(width, 4)
        return tuple(column // unit % (ROW_BYTES // unit) for column in self.columns)


def linear_sides(task: Task) -> tuple[LinearSide, LinearSide] | None:
    """Recognise both sides of a task as linear, or None."""
    bits = task.size.bit_length() - 1
    if task.size != 1 << bits:
        return None
    source, destination = (_linear(places, bits) for places in (task.source, task.destination))
    return None if source is None or destination is None else (source, destination)


def _linear(places: Ints, bits: int) -> LinearSide | None:
    low = int(places.min())
    reach = 1 << (int(places.max()) - low).bit_length()
    for origin in dict.fromkeys((low, low // reach * reach, low // (2 * reach) * (2 * reach), min(low, 0))):
        offsets = places - origin
        constant = int(offsets[0])
        columns = tuple(int(offsets[1 << bit]) ^ constant for bit in range(bits))
        if (images(columns) ^ constant == offsets).all():
            return LinearSide(origin, columns, constant)
    return None


def _kernel(columns: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    pivots: list[tuple[int, int]] = []
    for bit, column in enumerate(columns):
        image, source = column, 1 << bit
        for other, origin in pivots:
            if image ^ other < image:
                image, source = image ^ other, source ^ origin
        if image:
            pivots.append((image, source))
            pivots.sort(reverse=True)
        else:
            found.append(source)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which index bits are lanes and which are registers.

    Args:
        read: bytes of a lane's read.
        write: bytes of a lane's write.
        lanes: image of each lane bit, at most 5 index vectors; lanes beyond ``2**len(lanes)`` are idle.
        warps: image of each bit of the warp's number.
        inner: S + D, a basis: what every lane holds whole.
        outer: the further register bits.
        source_inside: a basis of S.
        destination_inside: a basis of D.
    """

    read: int
    write: int
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    source_inside: tuple[int, ...]
    destination_inside: tuple[int, ...]

    def rows(self, side: str) -> tuple[int, ...]:
        """Return a basis of the instructions of one phase: the warp's bits first, then registers modulo S or D."""
        inside = self.source_inside if side == "source" else self.destination_inside
        rest = [v for v in _complement_in(self.inner, inside)]
        return (*self.warps, *rest, *self.outer)

    def elements(self, side: str, linear: LinearSide, width: int) -> Ints:
        """Return the elements [instruction][lane][position] of one phase.

        Args:
            side: ``source`` or ``destination``.
            linear: that side.
            width: bytes of an element.
        """
        inside = self.source_inside if side == "source" else self.destination_inside
        size = self.read if side == "source" else self.write
        held = images(self.rows(side))[:, None, None] ^ images(self.lanes)[None, :, None] ^ images(inside)
        address = images(linear.columns)[held] ^ linear.constant
        table = np.full((len(held), LANES, size // width), -1, dtype=np.int64)
        rows, lanes = np.indices(held.shape)[:2]
        table[rows, lanes, address % size // width] = held
        return table


def _complement_in(space: Sequence[int], part: Sequence[int]) -> list[int]:
    """Return vectors of ``space`` that, with ``part``, span it."""
    span = Span(part)
    return [vector for vector in space if span.add(vector)]


def choose_blocks(
    task: Task, sides: tuple[LinearSide, LinearSide], read: int, write: int, *, warps: int = 1
) -> Blocks | None:
    """Choose lanes and registers for accesses of the given widths, or None where these widths do not fit.

    Which register of an access holds an element must not depend on the lane, since registers have no addresses; where
    in a register may, since bytes are moved by selectors, but better does not.

    Args:
        task: what to move.
        sides: its linear maps.
        read: bytes of a lane's read, a multiple of the element's width up to 16.
        write: bytes of a lane's write.
        warps: a power of two; how many warps share the work.
    """
    source, destination = sides
    bits, width = task.size.bit_length() - 1, task.width
    inside = (source.inside(read), destination.inside(write))
    if not (_fits(task, "source", source, read) and _fits(task, "destination", destination, write)):
        return None
    if len(inside[1]) != (write // width).bit_length() - 1 or not _reads_whole(inside[0], read, width):
        return None
    inner = tuple(Span((*inside[0], *inside[1])).basis)
    count = min(_LANE_BITS, bits - len(inner))
    if count == 0:
        # A single lane has constant addresses, and compilers join such accesses or let all lanes make them.
        return None
    spaces = [_still(sides, read, write, part) for part in (1, 4)]
    folds = [
        _Fold(linear.banks(size), size, count, spaces[1]) for linear, size in ((source, read), (destination, write))
    ]
    lanes = _Choice(folds, inner, count, spaces).run()
    if lanes is None:
        return None
    rest = _registers(bits, lanes, inner)
    share = warps.bit_length() - 1
    if share > len(rest):
        return None
    return Blocks(read, write, lanes, rest[:share], inner, rest[share:], *inside)


def _still(sides: tuple[LinearSide, LinearSide], read: int, write: int, part: int) -> tuple[int, ...]:
    """Return a basis of the vectors that move no element to another part, of so many bytes, of an access."""
    pairs = zip(sides[0].columns, sides[1].columns, strict=True)
    return _kernel([a % read // part | (b % write // part) << 8 for a, b in pairs])


def _fits(task: Task, side: str, linear: LinearSide, size: int) -> bool:
    return linear.origin % size == 0 and task.is_aligned(side, size)


def _reads_whole(inside: Sequence[int], read: int, width: int) -> bool:
    return len(inside) == (read // width).bit_length() - 1


def _registers(bits: int, lanes: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    return complement((*lanes, *inner), bits)


@dataclass(slots=True)
class _Fold:
    """The banks of one side, as a condition on the first lane bits: those that are served together."""

    columns: tuple[int, ...]
    depth: int
    target: int

    def __init__(self, columns: tuple[int, ...], width: int, count: int, space: Sequence[int]) -> None:
        self.columns = columns
        self.depth = min(group_lanes(width).bit_length() - 1, count)
        self.target = min(rank([apply(columns, v) for v in space]), self.depth)


class _Choice:
    """Depth-first choice of lane vectors; a side with as much rank left as vectors to choose must always gain.

    Where that finds nothing in a few steps, sides gain when they can and nothing is required.
    """

    def __init__(
        self, folds: Sequence[_Fold], inner: Sequence[int], count: int, spaces: Sequence[Sequence[int]]
    ) -> None:
        self.folds, self.inner, self.count = folds, inner, count
        vectors = dict.fromkeys(vector for basis in spaces for vector in _sums(basis))
        self.vectors = [(v, tuple(apply(fold.columns, v) for fold in folds)) for v in vectors]
        self.nodes = 0
        self.strict = True

    def run(self) -> tuple[int, ...] | None:
        """Return the lane vectors, or None where there are not enough that keep elements in their registers."""
        for self.strict in (True, False):
            self.nodes = 0
            found = self._extend((), Span(self.inner), [Span() for _ in self.folds])
            if found is not None:
                return found
        return None

    def _extend(self, chosen: tuple[int, ...], taken: Span, spans: list[Span]) -> tuple[int, ...] | None:
        if len(chosen) == self.count:
            return chosen
        for vector, images in self._ranked(len(chosen), taken, spans):
            self.nodes += 1
            if self.nodes > _NODES:
                return None
            grown = taken.copy()
            grown.add(vector)
            wider = [span.copy() for span in spans]
            for span, fold, image in zip(wider, self.folds, images, strict=True):
                if len(chosen) < fold.depth:
                    span.add(image)
            found = self._extend((*chosen, vector), grown, wider)
            if found is not None:
                return found
        return None

    def _ranked(self, at: int, taken: Span, spans: list[Span]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield vectors that may come next: first those with which every side that still lacks rank gains."""
        lacking = [
            (k, span)
            for k, (fold, span) in enumerate(zip(self.folds, spans, strict=True))
            if at < fold.depth and len(span.basis) < fold.target
        ]
        must = {
            k
            for k, span in lacking
            if self.strict and self.folds[k].target - len(span.basis) == self.folds[k].depth - at
        }
        later: list[tuple[int, int, tuple[int, ...]]] = []
        for vector, images in self.vectors:
            if taken.reduce(vector) == 0:
                continue
            lost = [k for k, span in lacking if span.reduce(images[k]) == 0]
            if not lost:
                yield vector, images
            elif not must.intersection(lost):
                later.append((len(lost), vector, images))
        for _, vector, images in sorted(later, key=lambda item: item[0]):
            yield vector, images


def _sums(basis: Sequence[int]) -> list[int]:
    """Return the sums of up to three vectors, single ones first."""
    return [reduce(xor, chosen) for size in (1, 2, 3) for chosen in combinations(basis, size)]
