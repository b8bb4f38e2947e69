"""Subspaces of GF(2)^n, given by spanning vectors: rank, membership, complements.

Vectors are ints: bit i is coordinate i, and ``^`` is addition.

>>> rank([3, 5, 6]), contains([3, 5], 6), complement([3], 3)
(2, True, (1, 4))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import combinations
from operator import xor

__all__ = ["Span", "candidates", "complement", "contains", "rank", "reduced"]


class Span:
    """A subspace under construction: a basis kept so that membership is one pass."""

    __slots__ = ("basis",)

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self.basis: list[int] = []
        for vector in vectors:
            self.add(vector)

    def reduce(self, vector: int) -> int:
        """The smallest vector that differs from the given one by a member; 0 exactly for members.

        >>> Span([4, 6]).reduce(7), Span([4, 6]).reduce(2)
        (1, 0)
        """
        for other in self.basis:
            vector = min(vector, vector ^ other)
        return vector

    def add(self, vector: int) -> bool:
        """Enlarge the span; says whether it grew.

        >>> span = Span([1, 2])
        >>> span.add(3), span.add(4)
        (False, True)
        """
        rest = self.reduce(vector)
        if rest:
            self.basis.append(rest)
            self.basis.sort(reverse=True)
        return bool(rest)

    def copy(self) -> Span:
        """An independent twin.

        >>> span = Span([1])
        >>> span.copy().add(2), span.basis
        (True, [1])
        """
        twin = Span()
        twin.basis = list(self.basis)
        return twin


def rank(vectors: Iterable[int]) -> int:
    """Dimension of the span of some vectors.

    >>> rank([1, 2, 3, 4])
    3
    """
    return len(Span(vectors).basis)


def contains(vectors: Iterable[int], vector: int) -> bool:
    """Whether a vector is a sum of some of the given ones.

    >>> contains([1, 2], 3), contains([1, 2], 4)
    (True, False)
    """
    return Span(vectors).reduce(vector) == 0


def reduced(vectors: Iterable[int]) -> tuple[int, ...]:
    """The reduced basis of a span: ascending, each leading bit in one vector only.  Equal spans, equal tuples.

    >>> reduced([3, 5]), reduced([5, 6])
    ((3, 5), (3, 5))
    """
    basis = sorted(Span(vectors).basis)
    for low, vector in enumerate(basis):
        for high in range(low + 1, len(basis)):
            if basis[high] >> (vector.bit_length() - 1) & 1:
                basis[high] ^= vector
    return tuple(basis)


def complement(vectors: Iterable[int], bits: int) -> tuple[int, ...]:
    """Single bits that, with the given vectors, span all of ``bits`` bits, and meet their span only in 0.

    >>> complement([3], 3)
    (1, 4)
    """
    span = Span(vectors)
    return tuple(1 << bit for bit in range(bits) if span.add(1 << bit))


def candidates(bits: int, weight: int) -> Iterator[int]:
    """Vectors with at most ``weight`` bits set: single bits first, low before high.

    >>> list(candidates(3, 2))
    [1, 2, 4, 3, 5, 6]
    """
    for size in range(1, weight + 1):
        for chosen in combinations(range(bits), size):
            yield reduce(xor, (1 << bit for bit in chosen))
