"""The first index at which a box of a layout differs from another layout, at any size and without a table.

With E_k the product of the k innermost extents, a layout is a sum of block indices:

    L(N) = S*N + sum(w_k * floor(N / E_k)),     w_k = stride of the next digit - extent * stride of this one

On a *part* of the box, a box with finer digits x, the flat index N is linear in x, and so is the index n in the box.
A block index is linear there, too, where the remainder of N, moved each time as by the first step of a digit, stays in
[0, E_k).  Where that holds for all block indices of both layouts, their difference is linear: it vanishes on the part
if it does at the beginning and after one step of each digit.  Block indices whose weights cancel do no harm either

* where they leave their blocks alike, their remainders being the same fractions of them;
* where they change at one border, as long as the position is closer to it than the least of their blocks: such a
  crossing is *smooth*, the blocks on its two sides are one.

Otherwise the first index of the part that leaves a block is tried, which mostly is the answer; then the part is cut.

    E = 8, rows [0, 3) of 5:   0 1 2 | 5 6 7 | 10 11 12     the third row is in block 1: the digits (3, 3) leave [0, 8)

A digit that leaves is cut at a number of steps after which N nearly returns to its place in the block, as in Euclid's
algorithm, so that a long digit takes few parts.  Only where the border of a block runs across two digits, and crossing
it makes no difference again and again, are there as many parts as steps along the border.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from layoutalg.errors import UndecidedError
from layoutalg.iters import Iters, Vector, combine, vector_at

__all__ = ["Digit", "Part", "first_difference", "linear_part"]

MOST_PARTS: Final = 1 << 15


class Digit(NamedTuple):
    """One digit of a part: it moves the index in the box by ``unit`` and the flat index in the layout by ``step``."""

    extent: int
    unit: int
    step: int


class Part(NamedTuple):
    """A part of a box: index in the box and flat index in the layout at its beginning, and digits, outermost first."""

    number: int
    place: int
    digits: tuple[Digit, ...]


class _Remainder(NamedTuple):
    """What is left of a position in its block, as if no digit left the block: ``start + sum(x_j * moves_j)``.

    It is right while it stays in ``[0, limit)``; ``steps`` are those of the position itself.
    """

    block: int
    limit: int
    start: int
    moves: tuple[int, ...]
    steps: tuple[int, ...]


class _Cut(NamedTuple):
    """The innermost digit that leaves, its steps until then, how many points that are, and the range of the others."""

    points: int
    digit: int
    steps: int
    low: int
    high: int


def first_difference(box: Part, iters: Iters, other: Iters) -> int | None:
    """Return the least index n with ``L(N) - L(N0) != K(n) - K(n0)``; None if there is none.

    Law (verify.laws.ragged): the layout K has the values of the box, less the first, exactly before that index.

    Args:
        box: the digits of the box; N0 and n0 are its beginning.
        iters: digits of the layout L, integers.
        other: digits of K.

    Raises:
        UndecidedError: ``MOST_PARTS`` parts do not decide.

    >>> from layoutalg.iters import make_iter
    >>> rows = Part(0, 0, (Digit(3, 3, 5), Digit(3, 1, 1)))
    >>> first_difference(rows, (make_iter(2, 100), make_iter(8, 1)), (make_iter(3, 5), make_iter(3, 1)))
    6
    """
    pair = _Pair.of(box, iters, other)
    heap, found = [box], None
    for _ in range(MOST_PARTS):
        if not heap or (found is not None and heap[0].number >= found):
            return found
        part = _before(heappop(heap), found)
        crossings: list[_Remainder] = []
        seen = pair.first_seen(part)
        if seen is None:
            crossings = pair.crossings(part)
            seen = min((n for r in crossings if (n := pair.first_outside(part, r)) is not None), default=None)
        if seen is not None and (found is None or seen < found):
            found = seen
            heappush(heap, part)
        elif crossings:
            for piece in _parts(part, min(crossings, key=lambda r: _points(r, part.digits))):
                heappush(heap, piece)
    points = math.prod(digit.extent for digit in box.digits)
    raise UndecidedError(f"{points} points in over {MOST_PARTS} parts, on each of which the values are a sum of digits")


def linear_part(box: Part, iters: Iters) -> Part | None:
    """Cut the digits of a box until all block indices are linear in them; None where that takes several parts.

    >>> from layoutalg.iters import make_iter
    >>> linear_part(Part(0, 0, (Digit(6, 1, 3),)), (make_iter(4, 100), make_iter(6, 1))).digits
    (Digit(extent=3, unit=2, step=6), Digit(extent=2, unit=1, step=3))
    """
    part = _before(box, None)
    while (cut := _leaving(part, iters)) is not None:
        if cut.steps < 2 or part.digits[cut.digit].extent % cut.steps:
            return None
        (part,) = _in_blocks(part, cut.digit, cut.steps)
    return part


def _leaving(part: Part, iters: Iters) -> _Cut | None:
    """Say where a part leaves the innermost block that it leaves."""
    block, steps = 1, tuple(digit.step for digit in part.digits)
    for extent, _, _ in reversed(iters[1:]):
        block *= extent
        cut = _cut(_remainder(block, block, part.place, steps), part.digits)
        if cut is not None:
            return cut
    return None


def _before(part: Part, end: int | None) -> Part:
    """Leave out what lies at or after an index, as far as it is a box, and digits of one value."""
    digits = part.digits
    if end is not None:
        digits = tuple(d._replace(extent=min(d.extent, -(-(end - part.number) // d.unit))) for d in digits)
    return part._replace(digits=tuple(d for d in digits if d.extent > 1))


# --- what the two layouts say of a part -------------------------------------------------------------------------


class _Level(NamedTuple):
    """``weight * floor(position / block)``."""

    block: int
    weight: Vector


class _Seen(NamedTuple):
    """A block index on a part: of which layout, with which weight, and its remainder."""

    side: int
    weight: Vector
    remainder: _Remainder


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two layouts, their values at the beginning of the box, and the levels of each."""

    iters: Iters
    other: Iters
    shift: Vector
    levels: tuple[tuple[_Level, ...], tuple[_Level, ...]]

    @classmethod
    def of(cls, box: Part, iters: Iters, other: Iters) -> _Pair:
        pair = cls(iters, other, {}, (_levels(iters, 1), _levels(other, -1)))
        return replace(pair, shift=pair.difference(box.number, box.place))

    def difference(self, number: int, place: int) -> Vector:
        total = vector_at(self.iters, place)
        for axis, value in vector_at(self.other, number).items():
            total[axis] = total.get(axis, 0) - value
        return total

    def differs(self, number: int, place: int) -> bool:
        return self.difference(number, place) != self.shift

    def first_seen(self, part: Part) -> int | None:
        """The least index among the beginning and one step of each digit at which the layouts differ."""
        steps = ((part.number + d.unit, part.place + d.step) for d in reversed(part.digits))
        return next((n for n, place in ((part.number, part.place), *steps) if self.differs(n, place)), None)

    def first_outside(self, part: Part, remainder: _Remainder) -> int | None:
        """The least index of a part that leaves a block, if the layouts differ there."""
        x = _first_outside(remainder, part.digits)
        index = part.number + sum(d.unit * n for d, n in zip(part.digits, x, strict=True))
        place = part.place + sum(d.step * n for d, n in zip(part.digits, x, strict=True))
        return index if self.differs(index, place) else None

    def crossings(self, part: Part) -> list[_Remainder]:
        """The remainders that leave their blocks on a part and may do harm."""
        places = part.place, tuple(d.step for d in part.digits)
        indices = part.number, tuple(d.unit for d in part.digits)
        seen = [
            _Seen(side, level.weight, _remainder(level.block, level.block, position, steps))
            for side, (position, steps) in enumerate((places, indices))
            for level in self.levels[side]
        ]
        seen = _without_alike(seen)
        leaving = sorted((one for one in seen if _cut(one.remainder, part.digits)), key=lambda one: one.remainder.block)
        found: list[_Remainder] = []
        while leaving:
            view, together = _best_view(leaving[0], seen, part.digits)
            # Each block index is accounted for once.
            leaving, seen = ([one for one in some if one not in together] for some in (leaving, seen))
            if _cut(view, part.digits):
                found.append(view)
        return found


def _without_alike(seen: Sequence[_Seen]) -> list[_Seen]:
    """Leave out block indices whose remainders are the same fractions of their blocks, if their weights cancel."""
    alike: dict[tuple[int, ...], list[_Seen]] = {}
    for one in seen:
        block, _, start, moves, _ = one.remainder
        unit = math.gcd(block, *moves)
        alike.setdefault((block // unit, start // unit, *(move // unit for move in moves)), []).append(one)
    return [one for group in alike.values() if any(combine(*(x.weight for x in group)).values()) for one in group]


def _levels(iters: Iters, sign: int) -> tuple[_Level, ...]:
    """The block indices of a layout, innermost first, with their weights."""
    found, block = [], 1
    for (_, outer, outer_axis), (extent, stride, axis) in reversed(list(pairwise(iters))):
        block *= extent
        found.append(_Level(block, combine({outer_axis: sign * outer}, {axis: -sign * extent * stride})))
    return tuple(found)


def _best_view(one: _Seen, seen: Sequence[_Seen], digits: Sequence[Digit]) -> tuple[_Remainder, list[_Seen]]:
    """See a block index that leaves alone, or with all those that change with it at one border, if that is harmless.

    Of these views the one is returned in which most points of the part do not leave.
    """
    best, together, points = one.remainder, [one], _points(one.remainder, digits)
    for far in seen:
        if far.side != one.side or far.remainder.block < one.remainder.block:
            continue
        near = _near_a_border(one.remainder, far.remainder)
        if near.start < near.limit and (longer := _points(near, digits)) > points:
            joined = [other for other in seen if _changes_with(other.remainder, near)]
            if not any(combine(*(other.weight for other in joined)).values()):
                best, together, points = near, joined, longer
    return best, together


def _near_a_border(one: _Remainder, far: _Remainder) -> _Remainder:
    """See a position by its distance from a border of far's blocks, while it is closer than a block of one."""
    window = one.block if far.block > one.block else far.block // 2
    return _remainder(far.block, 2 * window, far.start + window, far.steps)


def _changes_with(remainder: _Remainder, near: _Remainder) -> bool:
    """Whether a block index changes at that border, and at no other while the position is that close to it."""
    block, window = remainder.block, near.limit // 2
    return (
        block >= window
        and (remainder.start - near.start + window) % block == 0
        and all((step - move) % block == 0 for step, move in zip(remainder.steps, near.moves, strict=True))
    )


# --- remainders -------------------------------------------------------------------------------------------------


def _remainder(block: int, limit: int, position: int, steps: tuple[int, ...]) -> _Remainder:
    first, start = divmod(position, block)
    moves = tuple(step - block * ((position + step) // block - first) for step in steps)
    return _Remainder(block, limit, start, moves, steps)


def _cut(remainder: _Remainder, digits: Sequence[Digit]) -> _Cut | None:
    """Say which digit leaves first, those further in taking all their values meanwhile; None where none does."""
    points, low, high = 1, remainder.start, remainder.start
    for k in range(len(digits) - 1, -1, -1):
        count, move = digits[k].extent, remainder.moves[k]
        steps = 1 + ((remainder.limit - 1 - high) // move if move > 0 else low // -move if move else count)
        if steps < count:
            return _Cut(points * steps, k, steps, low, high)
        low, high = low + min(0, (count - 1) * move), high + max(0, (count - 1) * move)
        points *= count
    return None


def _points(remainder: _Remainder, digits: Sequence[Digit]) -> float:
    """How many points of a part do not leave, those of whole digits counted; infinity where none leaves."""
    cut = _cut(remainder, digits)
    return math.inf if cut is None else cut.points


def _first_outside(remainder: _Remainder, digits: Sequence[Digit]) -> list[int]:
    """Return the least digits, outermost first, at which a remainder that leaves has left."""
    moves = [(digit.extent - 1) * move for digit, move in zip(digits, remainder.moves, strict=True)]
    low = remainder.start + sum(min(0, move) for move in moves)
    high = remainder.start + sum(max(0, move) for move in moves)
    found: list[int] = []
    for move, most in zip(remainder.moves, moves, strict=True):
        low, high = low - min(0, most), high - max(0, most)
        n = 0
        if low >= 0 and high < remainder.limit:
            n = -(-(remainder.limit - high) // move) if move > 0 else low // -move + 1
        found.append(n)
        low, high = low + n * move, high + n * move
    return found


# --- cutting ----------------------------------------------------------------------------------------------------


def _parts(part: Part, remainder: _Remainder) -> tuple[Part, ...]:
    """Cut a part where a remainder leaves."""
    cut = _cut(remainder, part.digits)
    assert cut is not None, "only a remainder that leaves is cut"
    count = part.digits[cut.digit].extent
    near = _near_return(remainder.steps[cut.digit], remainder.block)
    steps = near if 1 < near < count else cut.steps
    if steps > 1:
        return _in_blocks(part, cut.digit, steps)
    return _in_two(part, *_place_to_split(remainder, part.digits, cut))


def _in_blocks(part: Part, k: int, steps: int) -> tuple[Part, ...]:
    """Cut digit k into one of whole blocks of steps and one within them; what is left over is a part of its own."""
    number, place, digits = part
    count, unit, step = digits[k]
    blocks, rest = divmod(count, steps)
    inner = (Digit(blocks, unit * steps, step * steps), Digit(steps, unit, step))
    whole = Part(number, place, (*digits[:k], *inner, *digits[k + 1 :]))
    if not rest:
        return (whole,)
    done = blocks * steps
    left = (*digits[:k], Digit(rest, unit, step), *digits[k + 1 :])
    return whole, Part(number + done * unit, place + done * step, left)


def _in_two(part: Part, k: int, at: int) -> tuple[Part, Part]:
    """Split digit k before the value ``at``."""
    number, place, digits = part
    count, unit, step = digits[k]
    first = Part(number, place, (*digits[:k], Digit(at, unit, step), *digits[k + 1 :]))
    rest = (*digits[:k], Digit(count - at, unit, step), *digits[k + 1 :])
    return first, Part(number + at * unit, place + at * step, rest)


def _place_to_split(remainder: _Remainder, digits: Sequence[Digit], cut: _Cut) -> tuple[int, int]:
    """Return a digit and where to split it, if the digit that leaves does so at its first step for some values within.

    Of that digit and those within that move it towards the border, the one with the longest steps is split: where the
    digit that leaves makes its step just so, if that is possible, or in the middle.
    """
    move = remainder.moves[cut.digit]
    up = move > 0
    towards = [k for k in range(cut.digit + 1, len(digits)) if remainder.moves[k] and (remainder.moves[k] > 0) == up]
    k = max((cut.digit, *towards), key=lambda k: abs(remainder.moves[k]))
    excess = cut.high + move - (remainder.limit - 1) if up else -(cut.low + move)
    at = digits[k].extent - -(-excess // abs(remainder.moves[k]))
    return k, at if k != cut.digit and at >= 1 else digits[k].extent // 2


def _near_return(step: int, block: int) -> int:
    """Return the least number of steps, at least 2, after which a position nearly returns to its place in a block.

    It is the first good denominator of the continued fraction of ``step / block``; 1 if every step returns.

    >>> _near_return(5, 8), _near_return(2, 1000), _near_return(1001, 1000000), _near_return(16, 8)
    (3, 500, 999, 1)
    """
    a, b = block, step % block
    before, steps = 0, 1
    while b:
        quotient, rest = divmod(a, b)
        before, steps = steps, quotient * steps + before
        a, b = b, rest
        if steps >= 2 and not (b and a // b == 1):
            break
    return steps
