"""Boxes of shapes whose boundaries the layout does not have, such as rows of 3 across blocks of 8.

What the box and the layout have whole inside comes off first.  What is left is read or cut into digits.

*Read, where all numbers are known, at any size.*  The recogniser, asked about a box instead of a table: the first value
and the step to the next one make a layout; the first index at which the box differs from it (``difference``) ends the
run of its outermost digit, and so on, until nothing differs or no layout goes on.

*Cut into digits, for any strides.*  At first the digits are the box's own dimensions, digit j moving the flat index N
by c_j.  Where the block index floor(N / E) is affine in the digits, and the next one up, and so on, the values are
affine in them, and the digits with the steps they take are the answer.  The block index is affine exactly where the
remainder ``r0 + sum(x_j * r_j)``, with the r_j that one step of each digit gives, stays within [0, E) over all digits,
which its two ends decide.  Where it leaves, a digit is cut at the last step before it would.

    E = 8, rows [0, 3) of 5:   0 1 2 | 5 6 7 | 10 11 12     the third row is in block 1: the digits (3, 3) leave [0, 8)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.difference import Digit, Part, first_difference
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter, Iters, Vector, combine, is_multiple_of_axis, scale_vector, vector_at

__all__ = ["Box", "affine_digits", "read_box", "take_off_whole_digits"]


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
    base, digits = _digits_of(box)
    while (leaving := _leaving_block(box.iters, base, digits)) is not None:
        cut = _cut(digits, *leaving)
        if cut is None:
            return None
        digits = _longer_than_one(cut)
    strides = [is_multiple_of_axis(step) for step in _steps(box.iters, base, digits)]
    if None in strides:
        return None
    return tuple(Iter(digit.extent, *stride) for digit, stride in zip(digits, strides, strict=True) if stride)


def _digits_of(box: Box) -> tuple[int, list[_Digit]]:
    """Return the flat index of the begin, and the dimensions of the box that have more than one index."""
    steps = [math.prod(box.shape[dim + 1 :]) for dim in range(len(box.shape))]
    digits = [_Digit(*pair) for pair in zip(box.lengths, steps, strict=True)]
    return flatten(box.begin, box.shape), _longer_than_one(digits)


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


def read_box(box: Box) -> Iters:
    """Recognise a box of integers, run by run.

    A layout that agrees with the values before an index is asked for the first one at which it does not: there the run
    of its outermost digit ends, if that is possible, and a digit is added.

    Law (verify.laws.ragged): the answer has the value ``L(begin + x)`` less the first at every x of the box.

    Raises:
        NotExpressibleError: no layout has these values; ``index`` is the first at which every layout fails.
        UndecidedError: the box falls into over 2^15 parts on each of which the values are a sum of digits.

    >>> from layoutalg.iters import make_iter
    >>> read_box(Box((make_iter(6, 7), make_iter(10**9, 3)), (2 * 10**9, 3), (5, 0), (10**8, 2)))
    (100000000:9, 2:3)
    """
    count = math.prod(box.lengths)
    base, digits = _digits_of(box)
    units = [math.prod(digit.extent for digit in digits[k + 1 :]) for k in range(len(digits))]
    whole = Part(0, base, tuple(Digit(d.extent, unit, d.step) for d, unit in zip(digits, units, strict=True)))
    start = scale_vector(vector_at(box.iters, base), -1)
    found: Iters = ()
    known = 1  # points of the digits that are found
    while known < count:
        place = base + sum(d.step * (known // unit % d.extent) for d, unit in zip(digits, units, strict=True))
        stride = is_multiple_of_axis(combine(vector_at(box.iters, place), start))
        if stride is None:
            raise _no_layout(known)
        guess = (Iter(count // known, *stride), *found)
        at = first_difference(whole, box.iters, guess)
        if at is None:
            return guess
        if at % known or count % at:
            raise _no_layout(at)
        found, known = (Iter(at // known, *stride), *found), at
    return found


def _no_layout(index: int) -> NotExpressibleError:
    return NotExpressibleError(f"every layout that agrees before index {index} of the box fails there", index=index)
