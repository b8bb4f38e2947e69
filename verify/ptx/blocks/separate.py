"""Terms over an unknown thread and an unknown block as a thread's part plus a block's part, exactly.

A kernel that moves a tensor block by block computes addresses that are, for the blocks of one *class*, the same apart
from where the block's box begins.  So a bit-vector term of width w is kept in the form

    value(block, thread) = threads[class of block, thread] + blocks[block]      (mod 2**w)

for *every* block and thread, and a truth value as ``threads[class of block, thread]``.  There are as many entries as
there are blocks, and as classes times threads: never blocks times threads.  Each operation either preserves the form
as it is (sums, products by constants, low bits), or holds it only where the blocks of a class agree on something: which
threads' sums carry, which threads pass a comparison.  There the classes are refined by exactly that, so nothing is
approximated and nothing is sampled; where this takes too many classes, the attempt is given up
(:class:`~verify.ptx.blocks.partition.TooManyClassesError`).

**Carries.** ``threads + blocks`` is the number itself, not only modulo 2**w, once ``threads`` is the value at the
class's representative (a number below 2**w), ``blocks`` the signed difference to it, and no sum leaves [0, 2**w)
(:meth:`Separated.numbers`).  Widening, comparing, dividing by shifts and joining bits all start from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.ptx.arrays import Array, UnsupportedTermError, masked
from verify.ptx.blocks.partition import Ints, Partition

__all__ = ["Parts", "Separated", "Words"]

Words = NDArray[np.uint64]

_WORD = 64
_FAR = 1 << 62
_NEAR = 1 << 61
_CLOSE = 1 << 59


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A term's values.

    Attributes:
        width: bits, 0 for a truth value.
        threads: rows by class (one row where all classes agree), columns by thread (one where all threads agree).
        blocks: one number per block, ``None`` for zeros.
        epoch: of the partition that the rows belong to.
    """

    width: int
    threads: Array
    blocks: Words | None
    epoch: int


class Separated:
    """What is known of values in two parts: the classes of blocks so far."""

    def __init__(self, count: int) -> None:
        self.classes = Partition(count)
        # Arrays are kept with what was computed from them: the number of one that is gone would be given to another.
        self._epoch = 0
        self._relative: dict[tuple[int, int], tuple[Words, Words, Ints]] = {}

    def made(self, width: int, threads: Array, blocks: Array | None) -> Parts:
        return Parts(width, threads, blocks, self.classes.epoch)

    def rows(self, arg: Parts) -> Array:
        """The thread's part by the classes that there are now."""
        if len(arg.threads) == 1 or arg.epoch == self.classes.epoch:
            return arg.threads
        return np.asarray(arg.threads[self.classes.rows(arg.epoch)])

    # --- numbers without wrapping -----------------------------------------------------------------------------

    def numbers(self, arg: Parts, live: Parts | None = None) -> tuple[Words, Ints | None]:
        """The value at each class's representative, and each block's signed difference to it; no sum wraps.

        Args:
            arg: the values.
            live: truth values; where they are false, nothing is said of the result.
        """
        while True:
            threads, change = self.at_first(arg)
            if change is None:
                return threads, None
            used = np.ones(len(self.classes), dtype=bool)
            if live is not None:
                threads, used = _quiet(threads, self.rows(live), len(self.classes))
            least, greatest = self.classes.extremes(change)
            top = np.uint64((1 << arg.width) - 1)
            over = threads > (top - np.maximum(greatest, 0).astype(np.uint64))[:, None]
            under = threads < (-np.minimum(least, 0)).astype(np.uint64)[:, None]
            failing = np.flatnonzero(np.any(over | under, axis=1) & used)
            if not len(failing):
                return threads, change
            self.classes.split(self._wraps(threads, change, int(top), failing))

    def at_first(self, arg: Parts) -> tuple[Words, Ints | None]:
        if arg.blocks is None:
            return self.rows(arg), None
        if arg.width > _WORD:
            raise UnsupportedTermError(f"a sum of {arg.width} bits")
        base, change = self.differences(arg.blocks, arg.width)
        threads = masked(self.rows(arg) + base[:, None], arg.width)
        return threads, change if change.any() else None

    def differences(self, blocks: Words, width: int) -> tuple[Words, Ints]:
        """Of a block's part: the representatives' values, and every block's signed difference to its own one."""
        key = (id(blocks), width)
        if self._epoch != self.classes.epoch:
            self._relative.clear()
            self._epoch = self.classes.epoch
        if key not in self._relative:
            base = blocks[self.classes.first]
            gap = np.uint64(_WORD - width)
            change = ((blocks - base[self.classes.of]) << gap).view(np.int64) >> np.int64(_WORD - width)
            self._relative[key] = (blocks, base, change)
        return self._relative[key][1:]

    def _wraps(self, threads: Words, change: Ints, top: int, failing: Ints) -> Ints:
        """How many threads' sums leave the range at either end: blocks that agree on it agree on which."""
        labels = np.zeros(len(change), dtype=np.int64)
        for number in failing.tolist():
            blocks, distinct = self.classes.members(number), np.unique(threads[number])
            high = (np.uint64(top) - np.maximum(change[blocks], 0).astype(np.uint64)).astype(np.uint64)
            low = (-np.minimum(change[blocks], 0)).astype(np.uint64)
            over = len(distinct) - np.searchsorted(distinct, high, side="right")
            labels[blocks] = over * (len(distinct) + 1) + np.searchsorted(distinct, low, side="left")
        return labels

    def fixed(self, arg: Parts, live: Parts | None = None) -> Parts:
        """The same values with blocks of one class all alike: classes are refined by the block's part."""
        while True:
            threads, change = self.at_first(arg)
            if change is None:
                return self.made(arg.width, threads, None)
            if live is not None:
                used = np.asarray(np.any(self.rows(live), axis=1))
                change = np.where(used[self.classes.of] if len(used) > 1 else used, change, 0)
                if not change.any():
                    return self.made(arg.width, threads, None)
            self.classes.split(change)

    # --- comparisons ------------------------------------------------------------------------------------------

    def pair(self, x: Parts, y: Parts) -> tuple[tuple[Words, Ints | None], tuple[Words, Ints | None]]:
        """The numbers of two terms in one partition."""
        while True:
            epoch = self.classes.epoch
            found = self.numbers(x), self.numbers(y)
            if self.classes.epoch == epoch:
                return found

    def below(self, x: Parts, y: Parts, *, strict: bool) -> Parts:
        """Whether x < y, or x <= y, as unsigned numbers."""
        while True:
            (one, by_x), (two, by_y) = self.pair(x, y)
            limit = _difference(by_y, by_x)
            if limit is None or not limit.any():
                return self.made(0, one < two if strict else one <= two, None)
            limit = limit if strict else limit + 1
            distance = _distance(one, two, by_x, by_y)
            distance = np.broadcast_to(distance, (len(self.classes), distance.shape[1]))
            least, greatest = self.classes.extremes(limit)
            split = ((distance >= least[:, None]) & (distance < greatest[:, None])).any(axis=1)
            if not split.any():
                return self.made(0, distance < limit[self.classes.first][:, None], None)
            labels = np.zeros(len(limit), dtype=np.int64)
            for number in np.flatnonzero(split).tolist():
                blocks = self.classes.members(number)
                labels[blocks] = np.searchsorted(np.unique(distance[number]), limit[blocks], side="left")
            self.classes.split(labels)

    def equal(self, x: Parts, y: Parts) -> Parts:
        """Whether x == y, modulo 2**width."""
        distance = masked(self.rows(y) - self.rows(x), x.width)
        gap = x.blocks if y.blocks is None else y.blocks if x.blocks is None else x.blocks - y.blocks
        assert gap is not None
        if x.blocks is None:
            gap = np.zeros_like(gap) - gap
        gap = masked(gap, x.width)
        distance = np.broadcast_to(distance, (len(self.classes), distance.shape[1]))
        labels = np.zeros(len(gap), dtype=np.int64)
        for number in range(len(self.classes)):
            blocks, distinct = self.classes.members(number), np.unique(distance[number])
            at = np.minimum(np.searchsorted(distinct, gap[blocks]), len(distinct) - 1)
            labels[blocks] = np.where(distinct[at] == gap[blocks], at + 1, 0)
        before = self.classes.epoch
        self.classes.split(labels)
        distance = distance[self.classes.rows(before)]
        return self.made(0, distance == gap[self.classes.first][:, None], None)


def _quiet(threads: Words, live: NDArray[np.bool_], classes: int) -> tuple[Words, NDArray[np.bool_]]:
    """Values of threads that do not count replaced by one that does, and which classes have such a one."""
    shape = (classes, max(threads.shape[1], live.shape[1]))
    threads, live = np.broadcast_to(threads, shape), np.broadcast_to(live, shape)
    some = threads[np.arange(classes), live.argmax(axis=1)]
    return np.where(live, threads, some[:, None]), np.asarray(live.any(axis=1))


def _difference(a: Ints | None, b: Ints | None) -> Ints | None:
    if a is None or b is None:
        return a if b is None else -b
    return a - b


def _distance(one: Words, two: Words, by_x: Ints | None, by_y: Ints | None) -> Ints:
    """one - two as signed numbers, exact or, where far beyond any difference of blocks, shortened."""
    for change in (by_x, by_y):
        if change is not None and max(int(change.max()), -int(change.min())) >= _CLOSE:
            raise UnsupportedTermError("a comparison of numbers that blocks move by more than 2^59")
    far, near = np.uint64(_FAR), np.uint64(_NEAR)
    if ((one > far) & (two >= near)).any() or ((two > far) & (one >= near)).any():
        raise UnsupportedTermError("a comparison of two numbers beyond 2^61")
    return np.minimum(one, far).astype(np.int64) - np.minimum(two, far).astype(np.int64)
