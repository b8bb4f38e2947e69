"""Boxes of shapes whose boundaries the layout does not have, such as rows of 3 across blocks of 8.

What the box and the layout have whole inside comes off first.  The rest is answered by digits or by a table.

*By digits, at any size.*  Cut the box into digits: at first its own dimensions, digit j moving the flat index N by c_j.
Where the block index floor(N / E) is affine in the digits, and the next one up, and so on, the values are affine in
them, and the digits with the steps they take are the answer.  The block index is affine exactly where the remainder
``r0 + sum(x_j * r_j)``, with the r_j that one step of each digit gives, stays within [0, E) over all digits, which its
two ends decide.  Where it leaves, a digit is cut at the last step before it would.

    E = 8, rows [0, 3) of 5:   0 1 2 | 5 6 7 | 10 11 12     the third row is in block 1: the digits (3, 3) leave [0, 8)

Both are tried in the layout and, where the values from the first to the last of the box are a layout, in that one: two
blocks whose strides agree are one block there.

*By a table*, for what digits do not show.  Its first values are read by the recogniser; they suffice to refuse.

*Refused by digits.*  Before the first index t at which a block index leaves its digits the values are affine in them.
If the value at t is not, the run of the outermost digit of t ends there: a layout needs t to divide the size, and t to
be a whole number of the digits inside, unless the run is theirs, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import Axis
from layoutalg.index import flatten
from layoutalg.iters import Iter, Iters, Vector, combine, is_multiple_of_axis, scale_vector, vector_at, vectors_equal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Box", "affine_digits", "box_values", "fails_by_digits", "read_box", "take_off_whole_digits"]

#: How many values of a box are tabulated at most, and how many at first.
MAX_TABULATED = 1 << 24
FIRST_TABULATED = 1 << 12


class Box(NamedTuple):
    """A box of integer bounds in the row-major shape of an integer layout."""

    iters: Iters
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    lengths: tuple[int, ...]


class _Digit(NamedTuple):
    extent: int
    step: int  # of the flat index


def take_off_whole_digits(box: Box) -> tuple[Box, Iters]:
    """Divide by the inner digits that shape, layout and box have whole; return what is left and those digits.

    >>> from layoutalg.iters import make_iter
    >>> rest, whole = take_off_whole_digits(Box((make_iter(9, 100), make_iter(8, 1)), (6, 12), (1, 4), (3, 4)))
    >>> rest.shape, rest.begin, rest.lengths, whole
    ((6, 3), (1, 1), (3, 1), (4:1,))
    """
    iters, shape, begin, lengths = box
    whole: Iters = ()
    while iters and shape[-1] > 1:
        extent, stride, axis = iters[-1]
        common = math.gcd(extent, shape[-1], begin[-1], lengths[-1])
        if common == 1:
            break
        whole = (Iter(common, stride, axis), *whole)
        iters = canonical_shard((*iters[:-1], Iter(extent // common, stride * common, axis)))
        shape, begin, lengths = ((*x[:-1], x[-1] // common) for x in (shape, begin, lengths))
    return Box(iters, shape, begin, lengths), whole


def affine_digits(box: Box) -> Iters | None:
    """Slice a box by digits in which its values are affine; None where no digits were found.

    Law (verify.laws.ragged): with these digits x, ``L(begin + x)`` is ``L(begin)`` plus the sum of their strides.

    >>> from layoutalg.iters import make_iter
    >>> affine_digits(Box((make_iter(4, 7), make_iter(10**9 + 1, 3)), (1000, 4000), (0, 0), (500, 3)))
    (500:12000, 3:3)
    """
    base, digits, affine = _digits_of(box)
    strides = [is_multiple_of_axis(step) for step in _steps(box.iters, base, digits)] if affine else [None]
    if None in strides:
        return None
    return tuple(Iter(digit.extent, *stride) for digit, stride in zip(digits, strides, strict=True) if stride)


def _digits_of(box: Box) -> tuple[int, list[_Digit], bool]:
    """Return the flat index of the begin, digits of the box, and whether its block indices are affine in them."""
    base = flatten(box.begin, box.shape)
    steps = [math.prod(box.shape[dim + 1 :]) for dim in range(len(box.shape))]
    digits = _longer_than_one([_Digit(*pair) for pair in zip(box.lengths, steps, strict=True)])
    while (leaving := _leaving_block(box.iters, base, digits)) is not None:
        cut = _cut(digits, *leaving)
        if cut is None:
            return base, digits, False
        digits = _longer_than_one(cut)
    return base, digits, True


def _longer_than_one(digits: list[_Digit]) -> list[_Digit]:
    return [digit for digit in digits if digit.extent > 1]


def _steps(iters: Iters, base: int, digits: Sequence[_Digit]) -> list[Vector]:
    """Return how far one step of each digit moves the value at the begin."""
    start = scale_vector(vector_at(iters, base), -1)
    return [combine(vector_at(iters, base + digit.step), start) for digit in digits]


def _leaving_block(iters: Iters, base: int, digits: Sequence[_Digit]) -> tuple[int, int, list[int]] | None:
    """Return extent, first remainder and remainders per digit of the innermost block that the digits leave."""
    steps = [digit.step for digit in digits]
    for extent, _, _ in reversed(iters[1:]):
        block, rest = divmod(base, extent)
        blocks = [(base + step) // extent - block for step in steps]
        rests = [step - extent * b for step, b in zip(steps, blocks, strict=True)]
        moves = [(digit.extent - 1) * r for digit, r in zip(digits, rests, strict=True)]
        if rest + sum(min(0, x) for x in moves) < 0 or rest + sum(max(0, x) for x in moves) >= extent:
            return extent, rest, rests
        base, steps = block, blocks
    return None


def _cut(digits: list[_Digit], extent: int, rest: int, rests: list[int]) -> list[_Digit] | None:
    """Cut the innermost digit that leaves ``[0, extent)`` where it would; None if no such cut divides it.

    The digits further in take all their values meanwhile.
    """
    low = high = rest
    for k in range(len(digits) - 1, -1, -1):
        count, step = digits[k]
        move = rests[k]
        inner = 1 + ((extent - 1 - high) // move if move > 0 else low // -move if move else count)
        if inner < count:
            if inner <= 1 or count % inner:
                return None
            return [*digits[:k], _Digit(count // inner, step * inner), _Digit(inner, step), *digits[k + 1 :]]
        low, high = low + min(0, (count - 1) * move), high + max(0, (count - 1) * move)
    return None


def fails_by_digits(box: Box) -> int | None:
    """Return the first index at which digits show that every layout fails; None where they do not show it.

    Law (verify.laws.slicing_numbers): layouts of the box's size agree with it before that index, and none at it.

    >>> from layoutalg.iters import make_iter
    >>> fails_by_digits(Box((make_iter(6, 7), make_iter(10**9, 3)), (2 * 10**9, 3), (5, 0), (5 * 10**8, 2)))
    666666657
    """
    base, digits, affine = _digits_of(box)
    units = [math.prod(digit.extent for digit in digits[k + 1 :]) for k in range(len(digits))]
    leaving = None if affine else _first_leaving(box.iters, base, digits, units)
    count = math.prod(box.lengths)
    steps = _steps(box.iters, base, digits)
    for unit, step in reversed(list(zip(units, steps, strict=True))):
        if unit < (count if leaving is None else leaving) and is_multiple_of_axis(step) is None:
            return unit
    if leaving is None:
        return None
    x = [leaving // unit % digit.extent for unit, digit in zip(units, digits, strict=True)]
    expected = combine(vector_at(box.iters, base), *(scale_vector(step, n) for step, n in zip(steps, x, strict=True)))
    here = vector_at(box.iters, base + sum(digit.step * n for digit, n in zip(digits, x, strict=True)))
    if vectors_equal(here, expected):
        return None
    k = next(k for k, n in enumerate(x) if n)
    goes_on = k + 1 < len(digits) and vectors_equal(steps[k], scale_vector(steps[k + 1], digits[k + 1].extent))
    return leaving if count % leaving or (leaving % units[k] and not goes_on) else None


def _first_leaving(iters: Iters, base: int, digits: Sequence[_Digit], units: Sequence[int]) -> int:
    """Return the first index of the box at which the block index of some level leaves its digits."""
    steps = [digit.step for digit in digits]
    found = []
    for extent, _, _ in reversed(iters[1:]):
        block, rest = divmod(base, extent)
        blocks = [(base + step) // extent - block for step in steps]
        x = _first_outside(extent, rest, [s - extent * b for s, b in zip(steps, blocks, strict=True)], digits)
        if x is not None:
            found.append(sum(n * unit for n, unit in zip(x, units, strict=True)))
        base, steps = block, blocks
    return min(found)


def _first_outside(extent: int, rest: int, rests: Sequence[int], digits: Sequence[_Digit]) -> list[int] | None:
    """Return the least digits, outermost first, whose remainder is outside ``[0, extent)``."""
    moves = [(digit.extent - 1) * r for digit, r in zip(digits, rests, strict=True)]
    found: list[int] = []
    for k, r in enumerate(rests):
        low = rest + sum(min(0, move) for move in moves[k + 1 :])
        high = rest + sum(max(0, move) for move in moves[k + 1 :])
        n = 0
        if low >= 0 and high < extent:
            n = -(-(extent - high) // r) if r > 0 else low // -r + 1 if r else digits[k].extent
        if n >= digits[k].extent:
            return None
        found.append(n)
        rest += n * r
    return found


def read_box(box: Box) -> tuple[Iters, int]:
    """Recognise a box from its values; the second number says how many of them were judged.

    Raises:
        NotExpressibleError: no layout has these values; ``index`` is the first at which every layout fails.

    >>> from layoutalg.iters import make_iter
    >>> read_box(Box((make_iter(3, 100), make_iter(8, 1)), (8, 3), (0, 0), (2, 2)))
    ((2:3, 2:1), 4)
    """
    count, known = math.prod(box.lengths), 0
    found: Iters = ()
    while known < min(count, MAX_TABULATED):
        known = min(count, MAX_TABULATED if known else FIRST_TABULATED)
        found, _ = recognise_values(box_values(box, known), count)
    return found, known


def box_values(box: Box, count: int) -> dict[Axis, NDArray[Any]]:
    """Tabulate the first ``count`` values of a box, in row-major order.

    >>> from layoutalg.iters import make_iter
    >>> [column.tolist() for column in box_values(Box((make_iter(12, 5),), (4, 3), (1, 1), (2, 2)), 3).values()]
    [[20, 25, 35]]
    """
    import numpy as np

    from layoutalg.algebra.evaluate import evaluate_exactly

    kind: Any = np.int64 if math.prod(box.shape) < 1 << 63 else object
    position = np.arange(count, dtype=np.int64).astype(kind)
    index: Any = np.zeros(count, dtype=kind)
    pitch = 1
    for extent, begin, length in zip(*map(reversed, (box.shape, box.begin, box.lengths)), strict=True):
        index = index + (begin + position % length) * pitch
        position = position // length
        pitch *= extent
    return evaluate_exactly(box.iters, index)
