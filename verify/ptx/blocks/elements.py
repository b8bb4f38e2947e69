"""Bytes against elements: what the layouts say of a representative's bytes, and of those of its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from layoutalg.claim import Claim
from verify.ptx.blocks.apart import Written
from verify.ptx.blocks.moved import NOWHERE, PLACES, Stored
from verify.ptx.blocks.nest import Nest
from verify.ptx.blocks.partition import Ints

__all__ = ["Elements", "Tile", "first_race"]

_MOST_LOOKED_AT: Final = 1 << 26
_THIN: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """What a class's representative stores.

    Attributes:
        at: the bytes of the output, each once, sorted.
        origins: for each block part of loads, which of them come from such a load, and the bytes of the input.
    """

    at: Ints
    origins: Mapping[int, tuple[Ints, Ints]]

    @classmethod
    def of(cls, stored: list[Stored], width: int) -> Tile | None:
        """Put stores of right bytes together; None if a byte is stored twice or an element in part."""
        at = np.concatenate([s.at.reshape(-1) for s in stored])
        tags = np.concatenate([s.tags.reshape(-1) for s in stored])
        order = np.argsort(at, kind="stable")
        at, tags = at[order], tags[order]
        if (at[1:] == at[:-1]).any() or len(at) % width:
            return None
        elements = at.reshape(-1, width)
        if (elements[:, 0] % width).any() or (elements[:, -1] - elements[:, 0] != width - 1).any():
            return None
        reads = tags // PLACES
        origins = {}
        for number in np.unique(reads).tolist():
            chosen = np.flatnonzero(reads == number)
            origins[number] = (chosen, tags[chosen] % PLACES)
        return cls(at, origins)


def first_race(stored: list[Stored]) -> tuple[int, Stored, Stored, int, int] | None:
    """A byte of the output that two threads store between the same barriers: byte, both stores, both threads."""
    order: list[Ints] = []
    for number, store in enumerate(stored):
        threads = np.repeat(store.threads, store.at.shape[1])
        epochs = np.full(len(threads), store.access.place.access.block_epoch)
        order.append(np.stack([store.at.reshape(-1), epochs, threads, np.full(len(threads), number)]))
    at, epoch, thread, number = (table := np.concatenate(order, axis=1))[:, np.lexsort(table[2::-1])]
    clash = np.flatnonzero((at[1:] == at[:-1]) & (epoch[1:] == epoch[:-1]) & (thread[1:] != thread[:-1]))
    if not len(clash):
        return None
    one = int(clash[0])
    return int(at[one]), stored[number[one]], stored[number[one + 1]], int(thread[one]), int(thread[one + 1])


def _clusters(places: Ints, digits: Ints) -> list[slice]:
    """Parts of what one block writes: two where a gap divides it, as where it also writes the end of a tensor."""
    box = float(np.prod((digits.max(axis=1) - digits.min(axis=1) + 1).astype(float)))
    if box <= _THIN * len(places):
        return [slice(None)]
    at = int(np.argmax(np.diff(places))) + 1
    return [slice(None, at), slice(at, None)]


class Elements:
    """The claim's elements, by place in the output."""

    def __init__(self, claim: Claim, nest: Nest) -> None:
        self.claim, self.nest, self.width = claim, nest, claim.width
        self.move = claim.moves[0]
        self.looked_at = 0

    def expected(self, at: Ints) -> Ints:
        """The byte of the input that belongs at each byte of the output, -1 where no element does."""
        element, byte = np.divmod(at.reshape(-1), self.width)
        source = self.nest.sources(element)
        return np.where(source < 0, NOWHERE, source * self.width + byte).reshape(at.shape)

    def first_wrong(self, at: Ints, tags: Ints) -> tuple[int, dict[str, Any]] | None:
        """The first row of stored bytes that holds a wrong one, and the facts."""
        expected = self.expected(at)
        bad = (tags < 0) | (expected != tags % PLACES)
        if not bad.any():
            return None
        index, byte = np.argwhere(bad)[0].tolist()
        tag = int(tags[index, byte])
        found = f"the constant {-2 - tag}" if tag < NOWHERE else self.input(tag % PLACES if tag >= 0 else NOWHERE)
        return index, self._facts(int(at[index, byte]), int(expected[index, byte]), found)

    # --- the other blocks of a class --------------------------------------------------------------------------

    def others(
        self, tile: Tile, blocks: Ints, out: Ints, reads: Mapping[int, Ints], written: list[Written]
    ) -> tuple[int, int, dict[str, Any]] | None:
        """Check all blocks of a class by one shift of the digits for each, and add what they write.

        Args:
            tile: what the representative stores, checked.
            blocks: numbers of the blocks.
            out: how far each one's bytes in the output are from the representative's.
            reads: likewise for the input, by block part.
            written: is added to.

        Returns a block, the representative's byte and the facts where a byte is wrong; no facts where it could not be
        decided.
        """
        places = tile.at[:: self.width] // self.width
        digits = self.nest.digits(places)
        low, high = digits.min(axis=1), digits.max(axis=1)
        shift = self.nest.digits((places[0] * self.width + out) // self.width) - digits[:, :1]
        read, wrote = self.nest.places(shift)
        extents = np.array([loop.extent for loop in self.nest.loops], dtype=np.int64)[:, None]
        good = ((shift + low[:, None] >= 0) & (shift + high[:, None] < extents)).all(axis=0)
        good &= (wrote - self.nest.written) * self.width == out
        for into in reads.values():
            good &= (read - self.nest.read) * self.width == into
        chosen = np.flatnonzero(good)
        for part in _clusters(places, digits) if len(blocks) == 1 else [slice(None)]:
            ends = digits[:, part].min(axis=1), digits[:, part].max(axis=1)
            moved = out[chosen] // self.width
            written.append(Written(blocks[chosen], shift[:, chosen], places[part], ends, moved))
        for index in np.flatnonzero(~good).tolist():
            into_by = {number: int(into[index]) for number, into in reads.items()}
            found = self._look_at(tile, int(blocks[index]), int(out[index]), into_by, written)
            if found is not None:
                return (int(blocks[index]), *found)
        return None

    def _look_at(
        self, tile: Tile, block: int, out: int, moved: Mapping[int, int], written: list[Written]
    ) -> tuple[int, dict[str, Any]] | None:
        """A block that does not follow from its representative, byte by byte."""
        self.looked_at += len(tile.at)
        if self.looked_at > _MOST_LOOKED_AT:
            return -1, {}
        at = tile.at + out
        expected = self.expected(at)
        for number, (chosen, origin) in tile.origins.items():
            bad = np.flatnonzero(expected[chosen] != origin + moved[number])
            if len(bad):
                index = int(bad[0])
                found = self.input(int(origin[index]) + moved[number])
                byte = int(chosen[index])
                return int(tile.at[byte]), self._facts(int(at[byte]), int(expected[byte]), found)
        places = at[:: self.width] // self.width
        digits = self.nest.digits(places)
        extremes = digits.min(axis=1), digits.max(axis=1)
        still = np.zeros((len(digits), 1), dtype=np.int64)
        written.append(Written(np.array([block]), still, places, extremes, np.zeros(1, dtype=np.int64)))
        return None

    # --- words ------------------------------------------------------------------------------------------------

    def _facts(self, at: int, expected: int, found: str) -> dict[str, Any]:
        place, byte = divmod(at, self.width)
        return {"output": f"{self.output(place)}, byte {byte}", "expected": self.input(expected), "found": found}

    def output(self, place: int) -> str:
        """An element of the output."""
        return f"{self.move.output}[{place + self.claim.buffer(self.move.output).first}]"

    def input(self, byte: int) -> str:
        """A byte of the input."""
        if byte < 0:
            return "no input byte"
        place, rest = divmod(byte, self.width)
        return f"{self.move.input}[{place + self.claim.buffer(self.move.input).first}], byte {rest}"
