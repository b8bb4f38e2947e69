"""``TensorPlan``: which strategy serves a request, and the box of the loop nest that one block moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from codegen_cuda.errors import PlanError
from codegen_cuda.tensor.problem import TensorProblem

__all__ = ["VECTOR", "TensorPlan", "divisor_bytes", "even_split", "round_up"]

#: Bytes of the widest access of one thread.
VECTOR = 16
GRID_LIMIT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """How a whole tensor is moved: every block moves one box of the loop nest.

    Args:
        strategy: ``"rows"``, ``"tiles"``, ``"thin"`` or ``"boxes"``.
        threads: threads of a block.
        box: extent of the box in each dimension of the problem; 1 where blocks walk it element by element.
        counts: number of boxes along each dimension.
        order: the dimensions in the order in which the block index walks them, fastest first.
        shared_bytes: shared memory of a block.
        details: the strategy's own constants.
    """

    strategy: str
    threads: int
    box: tuple[int, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...]
    shared_bytes: int = 0
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.grid > GRID_LIMIT:
            raise PlanError(
                f"permute_tensor: {self.grid} blocks of {self.box} exceed a grid of {GRID_LIMIT}; a longer contiguous "
                "run on either side would help",
                rule="grid",
            )

    @property
    def grid(self) -> int:
        """Number of blocks."""
        return math.prod(self.counts)

    def used(self, per_access: int) -> float:
        """Which part of the threads' turns has something to move, if each moves so many elements.

        >>> TensorPlan("rows", 256, (4, 65), (1, 1), (1, 0)).used(1)
        0.5078125
        """
        turns = math.prod(self.box) / per_access
        return turns / (-(-turns // self.threads) * self.threads)

    def describe(self) -> str:
        """Return the plan in one line.

        >>> TensorPlan("rows", 256, (2048,), (4,), (0,)).describe()
        'rows: box 2048, 4 blocks of 256 threads, 0 bytes of shared memory'
        """
        facts = "".join(f", {key} {value}" for key, value in self.details.items())
        box = "x".join(map(str, self.box)) or "1"
        return (
            f"{self.strategy}: box {box}, {self.grid} blocks of {self.threads} threads, "
            f"{self.shared_bytes} bytes of shared memory{facts}"
        )


def divisor_bytes(*values: int, limit: int = VECTOR) -> int:
    """Return the largest power of two, up to the limit, that divides every value.

    >>> divisor_bytes(24, 40), divisor_bytes(0, 64)
    (8, 16)
    """
    return math.gcd(limit, *values)


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of the unit that is not less than the value."""
    return -(-value // unit) * unit


def even_split(extent: int, target: int, unit: int) -> int:
    """Return a tile extent, a multiple of the unit, near the target, such that tiles waste little of the extent.

    >>> even_split(300, 256, 16), even_split(96, 256, 16), even_split(16384, 256, 16)
    (160, 96, 256)
    """
    if extent <= target:
        return round_up(extent, unit)
    return min(round_up(-(-extent // -(-extent // target)), unit), round_up(target, unit))


def block_counts(problem: TensorProblem, box: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many boxes cover each dimension."""
    return tuple(-(-d.extent // x) for d, x in zip(problem.dims, box, strict=True))
