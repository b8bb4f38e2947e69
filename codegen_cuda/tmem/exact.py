"""The fewest loads of one warp where words can be read from several places: a search over covers.

Every register word must be filled by exactly one instruction.  The search fills the word with the fewest places left by
every instruction that could fill it there, of every legal length, and so on, ever deeper until a cover is found; words
that can be read from the same places are one kind, of which only the number left counts.  A bound on the steps keeps
layouts with very many replicas from taking for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from codegen_cuda.tmem.match import ORDER, Fit
from layoutalg.hardware.tcgen05 import SHAPES, TmemInstruction

__all__ = ["STEPS", "Cover", "Piece", "fewest", "parts_of"]

#: Instructions and fillings tried before the search gives up.
STEPS: Final = 200_000


class _Place(NamedTuple):
    """Where a word is read: an ``.x1`` instruction without its column, and the column and half of the register."""

    order: int
    packed: bool
    split: int
    lane: int
    column: int
    half: int


class Piece(NamedTuple):
    """One instruction of a cover: form, lane and column of its base, and the words behind its registers."""

    instruction: TmemInstruction
    lane: int
    column: int
    words: tuple[int, ...]


class Cover(NamedTuple):
    """What the search found: pieces, or none that are fewer; ``complete`` says that it looked everywhere."""

    pieces: tuple[Piece, ...] | None
    complete: bool


def parts_of(instruction: TmemInstruction, column: int) -> list[tuple[int, int]]:
    """Return (column, half) of each register of an ``.x1`` instruction that starts at a column, in register order."""
    if instruction.shape == "16x256b":
        step = 2 if instruction.packed else 1
        return [(column + j * step, half) for half in (0, 1) for j in (0, 1)]
    return [(column, half) for half in range(instruction.registers)]


def fewest(fits: Sequence[Fit], *, below: int, max_repeat: int = 128, steps: int = STEPS) -> Cover:
    """Search for a cover with fewer than ``below`` instructions, the fewest there are.

    Args:
        fits: every way in which the words of one warp can be read.
        below: how many instructions a known cover has.
        max_repeat: largest N of ``.xN``.
        steps: how many instructions and fillings to try at most.

    >>> left = [Fit(0, word, "32x32b", False, 0, 2 * word, 0, 0) for word in (0, 1)]
    >>> right = [Fit(0, word, "32x32b", False, 0, 2 * word + 1, 0, 0) for word in (0, 1)]
    >>> [piece.words for piece in fewest(left + right, below=2).pieces]
    [(0, 1)]
    """
    search = _Search(fits, max_repeat, steps)
    try:
        for depth in range(search.least(), below):
            found = search.cover(search.whole, depth)
            if found is not None:
                return Cover(search.named(found), True)
    except _StepsExhausted:
        return Cover(None, False)
    return Cover(None, True)


class _StepsExhausted(Exception):
    """The search was given up."""


class _Window(NamedTuple):
    """An instruction somewhere, and where each of its registers is read."""

    instruction: TmemInstruction
    registers: tuple[_Place, ...]


#: An instruction with the kinds of the words behind its registers.
_Chosen = tuple[_Window, tuple[int, ...]]


class _Search:
    """Kinds of words, where each can be read, and what was found not to work."""

    def __init__(self, fits: Sequence[Fit], max_repeat: int, steps: int) -> None:
        self.steps = steps
        places: dict[int, set[_Place]] = {}
        for fit in fits:
            place = _Place(ORDER.index(fit.shape), fit.packed, fit.split, fit.lane, fit.column, fit.half)
            places.setdefault(fit.word, set()).add(place)
        kinds: dict[frozenset[_Place], list[int]] = {}
        for word in sorted(places):
            kinds.setdefault(frozenset(places[word]), []).append(word)
        self.places = [sorted(kind) for kind in kinds]
        self.words = list(kinds.values())
        self.readable: dict[_Place, list[int]] = {}
        for kind, where in enumerate(self.places):
            for place in where:
                self.readable.setdefault(place, []).append(kind)
        self.whole = tuple(len(words) for words in self.words)
        self.windows: list[list[tuple[_Window, int]]] = [[] for _ in kinds]
        """Per kind the instructions that can fill a word of it, longest first, and in which register."""
        self.longest = 1
        for window in sorted(self._all_windows(max_repeat), key=lambda window: -len(window.registers)):
            self.longest = max(self.longest, len(window.registers))
            for number, place in enumerate(window.registers):
                for kind in self.readable[place]:
                    self.windows[kind].append((window, number))
        self.hopeless: dict[tuple[int, ...], int] = {}

    def least(self) -> int:
        """No cover has fewer instructions."""
        return -(-sum(self.whole) // self.longest)

    def _all_windows(self, max_repeat: int) -> Iterator[_Window]:
        """Every legal instruction all of whose registers can be filled with some word."""
        for first in self.readable:
            one = TmemInstruction(ORDER[first.order], 1, first.packed, first.split)
            registers: list[_Place] = []
            for atom in range(min(max_repeat, max(SHAPES[one.shape].repeats)) if first.half == 0 else 0):
                parts = [
                    first._replace(column=column, half=half)
                    for column, half in parts_of(one, first.column + atom * one.pitch)
                ]
                if not all(part in self.readable for part in parts):
                    break
                registers += parts
                if atom + 1 in SHAPES[one.shape].repeats:
                    yield _Window(replace(one, repeat=atom + 1), tuple(registers))

    def cover(self, left: tuple[int, ...], depth: int) -> list[_Chosen] | None:
        """Instructions, at most ``depth``, that fill what is left; None where there are none."""
        total = sum(left)
        if total == 0:
            return []
        if total > depth * self.longest or self.hopeless.get(left, 0) >= depth:
            return None
        kind = min((k for k, count in enumerate(left) if count), key=lambda k: len(self.places[k]))
        for window, number in self.windows[kind]:
            for kinds in self._fillings(window.registers, number, kind, left):
                rest = list(left)
                for used, count in Counter(kinds).items():
                    rest[used] -= count
                found = self.cover(tuple(rest), depth - 1)
                if found is not None:
                    return [(window, kinds), *found]
        self.hopeless[left] = max(depth, self.hopeless.get(left, 0))
        return None

    def _fillings(
        self, registers: tuple[_Place, ...], number: int, kind: int, left: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Kinds for the registers, each as often as it is left, the given one in its register."""
        options = [[kind] if i == number else self.readable[place] for i, place in enumerate(registers)]
        rest = list(left)

        def fill(at: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            self.steps -= 1
            if self.steps < 0:
                raise _StepsExhausted
            if at == len(options):
                yield chosen
                return
            for option in options[at]:
                if rest[option]:
                    rest[option] -= 1
                    yield from fill(at + 1, (*chosen, option))
                    rest[option] += 1

        return fill(0, ())

    def named(self, found: list[_Chosen]) -> tuple[Piece, ...]:
        """Give every kind its words, in order."""
        words = [iter(kind) for kind in self.words]
        return tuple(
            Piece(
                window.instruction,
                window.registers[0].lane,
                window.registers[0].column,
                tuple(next(words[kind]) for kind in kinds),
            )
            for window, kinds in found
        )
