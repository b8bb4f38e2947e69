"""Selectors of ``prmt`` that depend on the lane: a constant, with equal bits of every nibble flipped linearly.

>>> table = Selectors(5)
>>> table.text([0x3210] * 32), table.text([0x3210 ^ 0x1111 * (lane & 1) for lane in range(32)])
('0x3210', '0x3210 ^ f0')
>>> table.setup()
('const unsigned f0 = (lane & 1) * 0x1111;',)
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.permute.bodies import linear_text

__all__ = ["Selectors"]


class Selectors:
    """Collects the lane-dependent parts of selectors, each once.

    Args:
        bits: bits of the lane that are in use.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.flips: dict[tuple[int, ...], str] = {}

    def text(self, selectors: Sequence[int]) -> str:
        """Spell a selector given per lane.

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
        if not any(columns):
            return f"{first:#06x}"
        name = self.flips.setdefault(columns, f"f{len(self.flips)}")
        return f"{first:#06x} ^ {name}"

    def setup(self) -> tuple[str, ...]:
        """Return the lines that compute the lane-dependent parts."""
        return tuple(
            f"const unsigned {name} = ({linear_text([('lane', columns)])}) * 0x1111;"
            for columns, name in self.flips.items()
        )
