"""The shape of a launch, and which thread each lane of an array stands for.

Threads of a block are numbered with x fastest and padded to whole warps, so that lane ``i`` of an array belongs to
warp ``i // 32``; padding lanes never execute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.errors import PtxError
from verify.ptx.program import Program

__all__ = ["Dim", "Lanes", "Launch"]

Dim = tuple[int, int, int]

_MAX_BLOCK = 1024


def _dim(value: int | tuple[int, ...], what: str) -> Dim:
    values = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(values) <= 3 or any(not isinstance(v, int) or v < 1 for v in values):
        raise PtxError(f"{what} must be one to three positive integers, not {value!r}")
    x, y, z = (*values, 1, 1)[:3]
    return (x, y, z)


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid and block shape.

    >>> Launch.of((2, 3), 48).padded
    64
    """

    grid: Dim
    block: Dim

    @staticmethod
    def of(grid: int | tuple[int, ...], block: int | tuple[int, ...]) -> Launch:
        """Complete the shapes with ones and check the limits of the machine.

        Raises:
            PtxError: a shape that no launch can have.
        """
        launch = Launch(_dim(grid, "grid"), _dim(block, "block"))
        if launch.threads > _MAX_BLOCK or launch.block[2] > 64:
            raise PtxError(f"a block of {launch.block} has more than {_MAX_BLOCK} threads (or 64 along z)")
        if launch.grid[0] >= 1 << 31 or max(launch.grid[1:]) >= 1 << 16:
            raise PtxError(f"a grid of {launch.grid} is out of range")
        if launch.blocks * launch.padded >= 1 << 31:
            raise PtxError(f"{launch.blocks} blocks of {launch.padded} lanes are more than can be followed (2^31)")
        return launch

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def padded(self) -> int:
        """Threads in a block, rounded up to whole warps."""
        return -(-self.threads // 32) * 32

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def check(self, program: Program) -> None:
        """Compare with what the kernel says about its block.

        Raises:
            PtxError: the kernel was compiled for another block.
        """
        if program.required_block is not None and program.required_block != self.block:
            raise PtxError(
                f"{program.name} requires blocks of {program.required_block}, not {self.block}", file=program.file
            )
        if program.maximum_block is not None and self.threads > program.maximum_block:
            raise PtxError(
                f"{program.name} allows {program.maximum_block} threads in a block, not {self.threads}",
                file=program.file,
            )

    def block_index(self, block: int) -> Dim:
        """Coordinates of a block by its number."""
        return (block % self.grid[0], block // self.grid[0] % self.grid[1], block // (self.grid[0] * self.grid[1]))

    def thread_index(self, thread: int) -> Dim:
        """Coordinates of a thread by its number in the block."""
        x, y, _ = self.block
        return (thread % x, thread // x % y, thread // (x * y))


class Lanes:
    """The lanes of consecutive blocks ``first .. first + count - 1``, as arrays."""

    def __init__(self, launch: Launch, first: int, count: int) -> None:
        self.launch, self.first, self.count = launch, first, count
        self._specials: dict[str, NDArray[Any]] = {}
        self.size = count * launch.padded
        lanes = np.arange(self.size)
        self.thread = lanes % launch.padded
        self.block = lanes // launch.padded
        self.exists: NDArray[np.bool_] = self.thread < launch.threads
        self.whole = bool(self.exists.all())
        self.who = lanes + first * launch.padded
        """Number of the thread in the whole grid, padding counted: what race records carry."""

    def special(self, name: str) -> NDArray[Any]:
        """The value of a special register for every lane."""
        if name not in self._specials:
            self._specials[name] = self._special(name)
        return self._specials[name]

    def _special(self, name: str) -> NDArray[Any]:
        register, _, axis = name[1:].partition(".")
        dim = "xyz".index(axis) if axis else 0
        grid, block = self.launch.grid, self.launch.block
        if register == "ntid":
            return np.array([block[dim]], dtype=np.uint32)
        if register == "nctaid":
            return np.array([grid[dim]], dtype=np.uint32)
        if register == "laneid":
            return (self.thread % 32).astype(np.uint32)
        number, shape = (self.thread, block) if register == "tid" else (self.block + self.first, grid)
        before = (1, shape[0], shape[0] * shape[1])[dim]
        return (number // before % shape[dim]).astype(np.uint32)

    def where(self, lane: int) -> tuple[Dim, Dim]:
        """Block and thread coordinates of a lane."""
        return self.describe(int(self.who[lane]))

    def describe(self, who: int) -> tuple[Dim, Dim]:
        """Block and thread coordinates of a thread by its number in the grid."""
        padded = self.launch.padded
        return self.launch.block_index(who // padded), self.launch.thread_index(who % padded)
