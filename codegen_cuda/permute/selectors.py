"""Selectors of ``prmt`` that depend on the lane: a constant, with equal bits of every nibble flipped linearly.

>>> from codegen_cuda.spelling import spell
>>> table = Selectors(5)
>>> print(table.value([0x3210] * 32), table.value([0x3210 ^ 0x1111 * (lane & 1) for lane in range(32)]), sep=", ")
0x3210u, 0x3210u ^ f0
>>> print(*map(spell, table.setup()))
const unsigned int f0 = (unsigned int)(lane & 1) * 0x1111u;
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.body import Let, let
from codegen_cuda.permute.address import lane_variable
from codegen_cuda.permute.bodies import linear_expr
from codegen_cuda.values import Literal, Value
from codegen_cuda.words import cast
from layoutalg.hardware.dtypes import dtype

__all__ = ["Selectors"]


class Selectors:
    """Collects the lane-dependent parts of selectors, each once.

    Args:
        bits: bits of the lane that are in use.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.flips: dict[tuple[int, ...], Let] = {}

    def value(self, selectors: Sequence[int]) -> Value:
        """Return a selector that is given per lane.

        Raises:
            ValueError: it is not of the form that linear plans give rise to.
        """
        first = selectors[0]
        used = max(1, (max(selectors).bit_length() + 3) // 4)
        columns = tuple((selectors[1 << bit] ^ first) & 7 for bit in range(self.bits))
        for lane, selector in enumerate(selectors):
            flip = 0
            for bit, column in enumerate(columns):
                flip ^= column if lane >> bit & 1 else 0
            spread = sum(flip << 4 * k for k in range(used))
            if selector ^ first != spread:
                raise ValueError(
                    f"selector {selector:#x} of lane {lane} does not differ from {first:#x} in all nibbles"
                )
        constant = Literal(first, dtype("uint32"), digits=4)
        if not any(columns):
            return constant
        if columns not in self.flips:
            moved = cast("uint32", linear_expr([(lane_variable(), columns)]))
            spread_out = moved * Literal(0x1111, dtype("uint32"), digits=4)
            self.flips[columns] = let(f"f{len(self.flips)}", spread_out)
        moving: Value = self.flips[columns].var
        return constant ^ moving

    def setup(self) -> tuple[Let, ...]:
        """Return the statements that compute the lane-dependent parts."""
        return tuple(self.flips.values())
