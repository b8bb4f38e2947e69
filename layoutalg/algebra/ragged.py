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
from typing import NamedTuple

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.difference import Digit, Part, first_difference, linear_part
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter, Iters, combine, is_multiple_of_axis, scale_vector, vector_at

__all__ = ["Box", "affine_digits", "read_box", "take_off_whole_digits"]


class Box(NamedTuple):
    """A box of integer bounds in the row-major shape of an integer layout."""

    iters: Iters
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    lengths: tuple[int, ...]


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
    part = linear_part(_part_of(box), box.iters)
    if part is None:
        return None
    start = scale_vector(vector_at(box.iters, part.place), -1)
    found: list[Iter] = []
    for digit in part.digits:
        stride = is_multiple_of_axis(combine(vector_at(box.iters, part.place + digit.step), start))
        if stride is None:
            return None
        found.append(Iter(digit.extent, *stride))
    return tuple(found)


def _part_of(box: Box) -> Part:
    """Return the dimensions of a box as digits."""
    steps = [(math.prod(box.lengths[dim + 1 :]), math.prod(box.shape[dim + 1 :])) for dim in range(len(box.shape))]
    digits = (Digit(length, *step) for length, step in zip(box.lengths, steps, strict=True) if length > 1)
    return Part(0, flatten(box.begin, box.shape), tuple(digits))


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
    whole = _part_of(box)
    start = scale_vector(vector_at(box.iters, whole.place), -1)
    found: Iters = ()
    known = 1  # points of the digits that are found
    while known < count:
        place = whole.place + sum(d.step * (known // d.unit % d.extent) for d in whole.digits)
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
