"""What a claim says must be where, byte by byte, derived from the layouts' own evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutalg.claim import Buffer, Claim, Move
from layoutalg.errors import LayoutError

__all__ = ["Expectation", "expectations"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """The final contents of one output buffer.

    Attributes:
        output: name of the buffer.
        input: name of the buffer that its elements come from.
        origin: per element of the output, the element of the input it must equal; -1 where the output must not be
            written.
    """

    output: str
    input: str
    origin: Ints

    def origin_bytes(self, width: int) -> Ints:
        """The same per byte."""
        byte = self.origin[:, None] * width + np.arange(width)
        return np.where(self.origin[:, None] < 0, -1, byte).reshape(-1)


def expectations(claim: Claim) -> tuple[Expectation, ...]:
    """Read a claim: for each output buffer, where each element comes from.

    Raises:
        LayoutError: the claim contradicts itself, leaves its buffers, or fills one output from several inputs.

    >>> from layoutalg.claim import Buffer, Side
    >>> buffers = tuple(Buffer(n, r, "f32", 0, 4, 16) for n, r in (("a", "input"), ("b", "output")))
    >>> move = Move("a", Side("S[(2,2):(2,1)]", (2, 2), "0:2,0:2"), "b", Side("S[(2,2):(1,2)]", (2, 2), "0:2,0:2"))
    >>> claim = Claim("k", "f32", (1, 1, 1), (32, 1, 1), 0, buffers, (move,), "untouched")
    >>> expectations(claim)[0].origin.tolist()
    [0, 2, 1, 3]
    """
    claim.check_bounds()
    found = []
    for buffer in claim.params:
        if isinstance(buffer, Buffer) and buffer.role == "output":
            moves = [move for move in claim.moves if move.output == buffer.name]
            found.append(_expectation(claim, buffer, moves))
    return tuple(found)


def _expectation(claim: Claim, output: Buffer, moves: list[Move]) -> Expectation:
    inputs = {move.input for move in moves}
    if len(inputs) != 1:
        raise LayoutError(f"the claim fills {output.name} from {len(inputs)} inputs; exactly one is supported")
    source = claim.buffer(inputs.pop())
    if {source.dtype, output.dtype} != {claim.dtype}:
        raise LayoutError(f"the claim moves {claim.dtype} between buffers of {source.dtype} and {output.dtype}")
    origin = np.full(output.count, -1, dtype=np.int64)
    for move in moves:
        for values in move.assignments():
            read, written = move.coordinates(values)
            _enter(origin, read - source.first, written - output.first, output.name)
    if claim.frame == "carried":
        carried = np.arange(output.count, dtype=np.int64) + output.first - source.first
        outside = (origin < 0) & ((carried < 0) | (carried >= source.count))
        if outside.any():
            place = int(np.argmax(outside)) + output.first
            raise LayoutError(f"the claim carries place {place} of {output.name}, which {source.name} does not have")
        origin = np.where(origin < 0, carried, origin)
    return Expectation(output.name, source.name, origin)


def _enter(origin: Ints, read: Ints, written: Ints, name: str) -> None:
    """Add the pairs of one move; a place may be named again only with the same source."""
    before = origin[written]
    origin[written] = read
    wrong = ((before >= 0) & (before != read)) | (origin[written] != read)
    if wrong.any():
        raise LayoutError(f"the claim puts two elements at one place of {name}", place=int(written[np.argmax(wrong)]))


def planes(size: int) -> list[NDArray[np.uint8]]:
    """Contents for a buffer that together tell every byte from every other: the digits of its index, base 256."""
    index = np.arange(size, dtype=np.int64)
    count = max(1, (max(size - 1, 1).bit_length() + 7) // 8)
    return [(index >> 8 * digit & 0xFF).astype(np.uint8) for digit in range(count)]


def decode(found: list[NDArray[np.uint8]], byte: int) -> int:
    """The index that a byte's values in all planes spell."""
    return sum(int(plane[byte]) << 8 * digit for digit, plane in enumerate(found))


def describe(values: Any) -> str:
    """A coordinate or index triple for a counterexample."""
    return str(tuple(values))
