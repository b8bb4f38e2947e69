"""Where a box stops being a layout: the first index that no layout of its size reaches.

A table of C values is read from its start.  The first run of constant step has some length r, and every layout that
agrees beyond r has that run as its innermost iter: so r must divide C, the steps at all other multiples of r are free,
every other step must equal the first, and the run starts 0, r, 2r, ... are the same question for C / r values.  The
least failure of all levels is the answer.

    0 1 | 10 11 | 20 21 22   6 of 9 values: the run has length 2, which does not divide 9, so index 2 fails.
                             Of 8 values: the step onto index 6 is free, the one onto 7 is not 1 at 22, and so on.

Nothing is tabulated.  Full inner digits multiply the index (``unit``).  What is left is an interval that is no layout
on its own, repeated by the outer dimensions; it fails before the second repetition has shown two runs, so one
interval and the beginning of the next are looked at.  Either few blocks of its inner digit decide, and they are
compared as *pieces* of constant step, or the steps at the crossings between the blocks repeat, and a level is taken
off at once: aligned blocks, half-shifted blocks and pairs of blocks (``_level_of``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from layoutalg.iters import Iter, Iters, Vector, vector_at, vector_step

__all__ = ["Head", "Piece", "failure_of_pieces", "first_failure"]

#: Blocks of the inner digit that are compared one by one, at least 5: every interval but those of ``_level_of`` fails
#: within 4 of them.
FEW = 6


class Piece(NamedTuple):
    """Values of constant step at the indices ``[begin, begin + length)``; vectors without zeros."""

    begin: int
    length: int
    value: Vector
    step: Vector


Pieces = tuple[Piece, ...]


class Head(NamedTuple):
    """The values of canonical digits at ``[begin, begin + length)``, numbered from zero."""

    iters: Iters
    begin: int
    length: int


def first_failure(dim: Head, count: int, value: Callable[[int], Vector]) -> int:
    """Return the first index at which every layout of ``count`` values fails.

    Args:
        dim: the innermost dimension of a box, which is no layout on its own.
        count: values of the box, a multiple of those of the dimension.
        value: the place of any index of the box; only the beginning of the second repetition is asked for.

    >>> from layoutalg.iters import make_iter
    >>> digits = (make_iter(4, 10), make_iter(4, 1))
    >>> first_failure(Head(digits, 1, 9), 9, lambda n: vector_at(digits, 1 + n))
    6
    """
    iters, begin, length = dim
    unit = 1
    while len(iters) > 1 and begin % iters[-1].extent == 0 and length % iters[-1].extent == 0:
        extent = iters[-1].extent
        iters, begin, length, unit = iters[:-1], begin // extent, length // extent, unit * extent
    head = Head(iters, begin, length)
    tail: Pieces = ()
    if length * unit < count:
        shown = pieces_of(head._replace(length=min(length, 2 * _longest_run(head) + 1)))
        jump = _difference(value(length * unit), value(0))
        tail = tuple(p._replace(begin=p.begin + length, value=_sum(p.value, jump)) for p in shown)
    found = _head_failure(head, tail, count // unit)
    assert found is not None, "a refused interval fails before the second repetition has shown two runs"
    return found * unit


class _Level(NamedTuple):
    """What taking a level off an interval needs: the first run and where the interval itself breaks that pattern."""

    run: int
    step: Vector
    starts: Head  # the run starts less ``shift``; its length is still that of the interval
    shift: Vector
    rough: int | None = None  # the first index, no multiple of ``run``, at which the interval does not go on by step


def _head_failure(head: Head, tail: Pieces, count: int) -> int | None:
    """Find the first failure among the values of the head and then of the tail, of ``count`` values in all."""
    extent = head.iters[-1].extent
    d = head.begin % extent
    if len(head.iters) == 1 or d + head.length <= FEW * extent:
        return failure_of_pieces((*pieces_of(head), *tail), count)
    level = _level_of(head)
    if level is None:
        return failure_of_pieces(pieces_of(head._replace(length=FEW * extent - d)), count)
    run, step, starts, shift, bad = level
    if len(step) > 1:
        return 1
    if count % run:
        return run
    if bad is None or bad >= head.length:
        last = Piece(head.length - 1, 1, _clean(vector_at(head.iters, head.begin + head.length - 1)), {})
        bad = _first_break((last, *tail), step, run)
    known = head.length if bad is None else min(head.length, bad)
    left = _sample(tail if bad is None else _before(tail, bad), run)
    moved = tuple(p._replace(value=_difference(p.value, shift)) for p in left)
    deeper = _head_failure(starts._replace(length=-(-known // run)), moved, count // run)
    return _least(bad, None if deeper is None else deeper * run)


def _level_of(head: Head) -> _Level | None:
    """Recognise the intervals that may go on for many blocks; None where the first blocks show a failure."""
    iters, begin, length = head
    (extent, stride, axis), outer = iters[-1], iters[:-1]
    u, d = divmod(begin, extent)
    step = _clean({axis: stride})
    smooth = _step(outer, u) == _scaled(step, extent)
    if d == 0 and not smooth:  # aligned blocks
        return _Level(extent, step, Head(outer, u, length), {})
    if d == 0 and len(outer) > 1 and outer[-1].extent == 2:  # pairs of blocks, joined at every other crossing
        pairs = Head(outer[:-1], u // 2, length)
        shift = _clean({outer[-1].axis: outer[-1].stride})
        return _Level(2 * extent, step, pairs, shift, (2 * _longest_run(pairs) - 1) * extent)
    if 2 * d != extent or smooth:
        return None
    if d > 1:  # half-shifted blocks: first as blocks of two halves,
        return _Level(d, step, Head((*outer, Iter(2, stride * d, axis)), 2 * u + 1, length), {})
    crossing = _difference(_step(outer, u), step)  # then from each second half to the next first one
    rough = 2 * _longest_run(Head(outer, u, length)) - 1
    return _Level(2, crossing, Head(outer, u, length), step, rough)


def _longest_run(head: Head) -> int:
    """Return how many values from the start form one progression: at least 2, where there are 2."""
    iters, begin, length = head
    if len(iters) == 1:
        return length
    extent: int = iters[-1].extent
    u, d = divmod(begin, extent)
    if d + length <= extent:
        return length
    if _step(iters[:-1], u) == _clean({iters[-1].axis: extent * iters[-1].stride}):
        return min(length, 2 * extent - d)
    return max(2, extent - d)


def _step(iters: Iters, index: int) -> Vector:
    return _clean(vector_step(iters, index))


def pieces_of(head: Head) -> Pieces:
    """Cut an interval at every crossing between blocks of its inner digit.

    >>> from layoutalg.iters import make_iter
    >>> [(p.begin, p.length, p.value) for p in pieces_of(Head((make_iter(4, 10), make_iter(4, 1)), 3, 6))]
    [(0, 1, {m: 3}), (1, 4, {m: 10}), (5, 1, {m: 20})]
    """
    iters, begin, length = head
    extent, stride, axis = iters[-1]
    step = _clean({axis: stride})
    found: list[Piece] = []
    at = 0
    while at < length:
        room = length - at if len(iters) == 1 else min(length - at, extent - (begin + at) % extent)
        found.append(Piece(at, room, _clean(vector_at(iters, begin + at)), step))
        at += room
    return tuple(found)


def failure_of_pieces(pieces: Pieces, count: int) -> int | None:
    """Return the first index at which every layout of ``count`` values fails, None if one has all the given values.

    Args:
        pieces: the first values, one piece after another from index 0.
        count: how many values the whole table has.

    >>> from layoutalg.axis import m
    >>> runs = (Piece(0, 2, {}, {m: 1}), Piece(2, 2, {m: 10}, {m: 1}), Piece(4, 1, {m: 11}, {m: 1}))
    >>> failure_of_pieces(runs, 6), failure_of_pieces(runs, 5)
    (4, 2)
    """
    unit, failure = 1, None
    while pieces[-1].begin + pieces[-1].length > 1:
        first = pieces[0]
        step = first.step if first.length > 1 else _difference(pieces[1].value, first.value)
        if len(step) > 1:
            return _least(failure, unit)
        run = _first_break(pieces, step, None)
        if run is None:
            return failure
        if count % run:
            return _least(failure, run * unit)
        bad = _first_break(pieces, step, run)
        if bad is not None:
            failure, pieces = _least(failure, bad * unit), _before(pieces, bad)
        pieces, count, unit = _sample(pieces, run), count // run, unit * run
    return failure


def _first_break(pieces: Pieces, step: Vector, run: int | None) -> int | None:
    """Return the first index, no multiple of ``run``, whose value is not its predecessor's plus the step.

    The step onto the first index of the first piece is not looked at.
    """
    last: Piece | None = None
    for piece in pieces:
        begin, length, value, own = piece
        if last is not None and (run is None or begin % run):
            before = _sum(last.value, _scaled(last.step, last.length - 1))
            if _difference(value, before) != step:
                return begin
        if own != step:
            for index in range(begin + 1, min(begin + length, begin + 3)):
                if run is None or index % run:
                    return index
        last = piece
    return None


def _before(pieces: Pieces, end: int) -> Pieces:
    return tuple(p._replace(length=min(p.length, end - p.begin)) for p in pieces if p.begin < end)


def _sample(pieces: Pieces, run: int) -> Pieces:
    """Keep every run-th index."""
    found: list[Piece] = []
    for begin, length, value, step in pieces:
        first, end = -(-begin // run), -(-(begin + length) // run)
        if first < end:
            start = _sum(value, _scaled(step, first * run - begin))
            found.append(Piece(first, end - first, start, _scaled(step, run)))
    return tuple(found)


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _clean(vector: Vector) -> Vector:
    return {axis: value for axis, value in vector.items() if value}


def _scaled(vector: Vector, factor: int) -> Vector:
    return {axis: value * factor for axis, value in vector.items()} if factor else {}


def _sum(a: Vector, b: Vector) -> Vector:
    total = dict(a)
    for axis, value in b.items():
        total[axis] = total.get(axis, 0) + value
    return _clean(total)


def _difference(a: Vector, b: Vector) -> Vector:
    return _sum(a, _scaled(b, -1))
