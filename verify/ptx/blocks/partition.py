"""Classes of blocks, refined whenever blocks of one class turn out to behave differently."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_CLASSES", "Ints", "Partition", "TooManyClassesError"]

Ints = NDArray[np.int64]

#: More classes than this count as a kernel whose blocks have nothing in common.
MOST_CLASSES = 4096


class TooManyClassesError(Exception):
    """The blocks of a kernel have too little in common to be described class by class."""


class Partition:
    """A partition of blocks ``0 .. count - 1`` into numbered classes; it only ever gets finer.

    Attributes:
        of: class of every block.
        first: a representative of each class.
        epoch: how often it was refined.

    >>> classes = Partition(6)
    >>> classes.split(np.array([0, 0, 1, 1, 1, 0]))
    >>> classes.of.tolist(), classes.first.tolist()
    ([0, 0, 1, 1, 1, 0], [0, 2])
    """

    def __init__(self, count: int) -> None:
        self.of: Ints = np.zeros(count, dtype=np.int64)
        self.first: Ints = np.zeros(1, dtype=np.int64)
        self.epoch = 0
        self._rows: list[Ints] = [np.zeros(1, dtype=np.int64)]
        self._order: Ints = np.arange(count, dtype=np.int64)
        self._starts: Ints = np.zeros(1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.first)

    def split(self, labels: Ints) -> None:
        """Separate blocks of one class that have different labels.

        Raises:
            TooManyClassesError: there would be more than :data:`MOST_CLASSES` classes.
        """
        _, numbers = np.unique(labels, return_inverse=True)
        width = int(numbers.max()) + 1
        _, first, of = np.unique(self.of * width + numbers, return_index=True, return_inverse=True)
        if len(first) > MOST_CLASSES:
            raise TooManyClassesError(f"blocks fall into more than {MOST_CLASSES} classes")
        parents = self.of[first]
        self._rows = [rows[parents] for rows in self._rows] + [np.arange(len(first))]
        self.of, self.first = of, first
        self.epoch += 1
        self._order = np.argsort(of, kind="stable")
        self._starts = np.searchsorted(of[self._order], np.arange(len(first)))

    def rows(self, epoch: int) -> Ints:
        """For each class, the number of the class that it was part of in an earlier epoch."""
        return self._rows[epoch]

    def members(self, number: int) -> Ints:
        """The blocks of a class."""
        end = self._starts[number + 1] if number + 1 < len(self) else len(self._order)
        return self._order[self._starts[number] : end]

    def extremes(self, values: Ints) -> tuple[Ints, Ints]:
        """The least and the greatest value in each class, of one value per block."""
        ordered = values[self._order]
        return np.minimum.reduceat(ordered, self._starts), np.maximum.reduceat(ordered, self._starts)
