"""Whole tensors, block by block: every access is in bounds, nobody races, every element arrives where it belongs.

**What is given.** The accesses of one unknown thread of an unknown block, as terms; that stored bytes are moved, not
computed, that the input is only read and the output only written.

**Classes.** :mod:`verify.ptx.blocks.operations` evaluates every guard, every offset and every choice between bytes for
*all* blocks and threads as ``threads[class, thread] + blocks[block]``.  Within a class all threads do the same, use
the same places of shared memory, and differ in global memory by the block's part alone.  Bounds and alignment follow
from the ends of both parts (:mod:`verify.ptx.blocks.safety`).  What :mod:`verify.ptx.blocks.moved` finds for the
representative r of a class, following bytes through shared memory, holds for each of its blocks b: if the store writes
byte ``o`` in r, and this is byte ``i`` of the input, then in b it writes ``o + out[b]`` with byte ``i + in[b]``.

**Elements.** The claim's two layouts are one nest of loops (:mod:`verify.ptx.blocks.nest`): an element with digits d
lies at ``i0 + sum(d * read)`` and goes to ``o0 + sum(d * written)``.  For the representative, digits of each stored
byte are found and checked.  For b, one shift s of all digits is found from one of its bytes, and checked: it moves the
input's place by ``in[b]`` and the output's by ``out[b]``, and no digit of any byte leaves its range.  How digits are
guessed does not matter.  Blocks for which this fails are looked at byte by byte.

**All of them, and nothing else.** Every written byte belongs to an element.  The threads of one block store no byte
twice, and no two blocks write the same element (:mod:`verify.ptx.blocks.apart`).  So if the bytes of all blocks
together are as many as the elements have, every element is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from layoutalg.claim import Claim, Scalar
from layoutalg.errors import LayoutError
from verify.ptx.arrays import UnsupportedTermError
from verify.ptx.blocks.apart import TooManyMeetingsError, Written, first_clash
from verify.ptx.blocks.elements import Elements, Tile, first_race
from verify.ptx.blocks.moved import PLACES, MeetingError, Stored, follow_rows, locate
from verify.ptx.blocks.nest import nest_of
from verify.ptx.blocks.operations import Terms
from verify.ptx.blocks.partition import Ints, TooManyClassesError
from verify.ptx.blocks.safety import first_hazard, first_stray
from verify.ptx.bytewise import Row
from verify.ptx.follow import Place
from verify.ptx.program import Step
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["Outcome", "check_blocks", "refusal"]

_BLOCKS_AT_ONCE: Final = 1 << 15
_MOST_BLOCKS: Final = 1 << 22
_TAGS_AT_ONCE: Final = 1 << 23


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the three statements about all blocks and threads."""

    bounds: Verdict
    races: Verdict
    contents: Verdict

    @property
    def decided(self) -> bool:
        """Whether all three are proved, or one is refuted."""
        verdicts = (self.bounds, self.races, self.contents)
        return all(v.ok for v in verdicts) or any(isinstance(v, Refuted) for v in verdicts)


def refusal(claim: Claim, places: list[Place]) -> str:
    """Say why this module cannot speak about a claim and a kernel's accesses; nothing if it can."""
    if any(p.access.space not in ("global", "shared") or p.access.warp_epoch for p in places):
        return "the kernel uses tensor memory or barriers of warps"
    if len(claim.moves) == 1:
        regions = {True: f"*{claim.moves[0].output}", False: f"*{claim.moves[0].input}"}
        if any(p.access.space == "global" and p.region != regions[p.access.write] for p in places):
            return "the kernel uses further buffers"
    if len(claim.moves) != 1 or claim.frame != "untouched":
        return "the claim is not one move that leaves the rest untouched"
    if any(isinstance(p, Scalar) and p.minimum < p.maximum for p in claim.params):
        return "the claim has scalar parameters"
    if math.prod(claim.grid) > _MOST_BLOCKS:
        return f"{math.prod(claim.grid)} blocks are more than {_MOST_BLOCKS}"
    try:
        nest_of(claim, claim.moves[0])
    except LayoutError as error:
        return str(error)
    biggest = max(claim.buffer(n).count for n in (claim.moves[0].input, claim.moves[0].output)) * claim.width
    return "a buffer spans 2^46 bytes" if biggest >= PLACES else ""


def check_blocks(
    claim: Claim, places: list[Place], sources: list[list[Row]], hazards: Iterable[tuple[Any, Step, str]]
) -> Outcome:
    """Prove bounds, races and contents for all blocks and threads; see the module's text.

    Args:
        claim: one for which :func:`refusal` has nothing to say.
        places: the accesses in program order.
        sources: per access and stored value, the bytes that are moved.
        hazards: conditions that must hold for results to be defined.
    """
    check = _Check(claim, places, sources, tuple(hazards))
    try:
        check.run()
    except (UnsupportedTermError, TooManyClassesError, TooManyMeetingsError) as error:
        check.unclear = str(error)
    return check.outcome()


class _Check:
    def __init__(
        self, claim: Claim, places: list[Place], sources: list[list[Row]], hazards: tuple[tuple[Any, Step, str], ...]
    ) -> None:
        self.claim, self.places, self.sources, self.hazards = claim, places, sources, hazards
        self.elements = Elements(claim, nest_of(claim, claim.moves[0]))
        self.threads = math.prod(claim.block)
        self.total = math.prod(claim.grid)
        self.written: list[Written] = []
        self.classes = 0
        self.wrong: dict[str, dict[str, Any]] = {}
        self.unclear = ""

    def run(self) -> None:
        """Check all blocks, some at a time, then what they write against one another."""
        for first in range(0, self.total, _BLOCKS_AT_ONCE):
            self.blocks(np.arange(first, min(self.total, first + _BLOCKS_AT_ONCE)))
            if self.wrong or self.unclear:
                return
        clash = first_clash(self.written)
        if clash is not None:
            one, two, place = clash
            blocks = f"blocks {self.block(one)} and {self.block(two)}"
            self.wrong["races"] = {"written by": blocks, "output": self.elements.output(place)}
            return
        bytes_written = sum(len(w.places) * len(w.blocks) for w in self.written) * self.claim.width
        bytes_wanted = self.elements.nest.size * self.claim.width
        if bytes_written != bytes_wanted:
            self.wrong["contents"] = {"bytes written": bytes_written, "bytes of all elements": bytes_wanted}

    def outcome(self) -> Outcome:
        """The verdicts: what is refuted, and whether that leaves the others open."""
        scope = f"{self.elements.nest.size} elements, {self.total} blocks of {self.threads} threads"
        if not self.wrong and not self.unclear:
            scope += f", in {self.classes} classes of blocks that do the same"
        verdicts: dict[str, Verdict] = {}
        for name in ("bounds", "races", "contents"):
            if name in self.wrong:
                verdicts[name] = Refuted(scope, self.wrong[name])
            elif self.wrong:
                verdicts[name] = Unknown(scope, "another statement is refuted")
            else:
                verdicts[name] = Unknown(scope, self.unclear) if self.unclear else Proved(scope)
        return Outcome(**verdicts)

    # --- a list of blocks -------------------------------------------------------------------------------------

    def blocks(self, numbers: Ints) -> None:
        """Check these blocks, class by class."""
        terms = Terms(
            _coordinates("tid", self.claim.block, np.arange(self.threads)),
            _coordinates("ctaid", self.claim.grid, numbers),
            len(numbers),
        )
        moves: list[Ints] = []
        located = locate(terms, self.places, self.sources, [condition for condition, _, _ in self.hazards], moves)
        stray = first_stray(terms, located, moves) or first_hazard(terms, self.hazards)
        if stray is not None:
            facts, block, thread = stray
            self.wrong["bounds"] = {**facts, "block": self.block(int(numbers[block])), "thread": self.thread(thread)}
            return
        self.classes += len(terms.classes)
        for rows in self._portions(len(terms.classes)):
            try:
                stored = list(follow_rows(terms, located, self.sources, rows, self.threads))
            except MeetingError as error:
                block = int(numbers[terms.classes.first[rows.start + error.row]])
                self.wrong["races"] = {**error.facts, "block": self.block(block)}
                return
            for row in rows:
                self._class(terms, row, [s.of_row(row - rows.start) for s in stored], moves, numbers)
                if self.wrong or self.unclear:
                    return

    def _portions(self, classes: int) -> Iterable[range]:
        """Classes a few at a time, so that their tags fit into memory."""
        held = sum(p.access.size * self.threads for p in self.places)
        shared = 3 * sum({p.region: p.size for p in self.places if p.access.space == "shared"}.values())
        at_once = max(1, _TAGS_AT_ONCE // (held + shared + 1))
        for first in range(0, classes, at_once):
            yield range(first, min(first + at_once, classes))

    def _class(self, terms: Terms, row: int, stored: list[Stored], moves: list[Ints], numbers: Ints) -> None:
        """Check one class: its representative, then its other blocks."""
        stored = [s for s in stored if len(s.at)]
        members, first = terms.classes.members(row), int(numbers[terms.classes.first[row]])
        for store in stored:
            wrong = self.elements.first_wrong(store.at, store.tags)
            if wrong is not None:
                self._blame(store, first, wrong)
                return
        if not stored:
            return
        outs = [moves[number][members] for number in sorted({s.access.move for s in stored})]
        for out in outs[1:]:
            if not np.array_equal(out, outs[0]):
                self._differing(stored, members[int(np.argmax(out != outs[0]))], moves, numbers)
                return
        tile = Tile.of(stored, self.claim.width)
        if tile is None:
            self._repeated(stored, first)
            return
        reads = {number: moves[number][members] for number in tile.origins}
        left = self.elements.others(tile, numbers[members], outs[0], reads, self.written)
        if left is not None and left[2]:
            store, index = next((s, i) for s in stored for i in np.flatnonzero((s.at == left[1]).any(axis=1)).tolist())
            self._blame(store, left[0], (index, left[2]))
        elif left is not None:
            self.unclear = "too many blocks do not follow from others"

    def _repeated(self, stored: list[Stored], block: int) -> None:
        """A block that stores a byte twice: a race if two threads do, without a barrier between."""
        race = first_race(stored)
        if race is None:
            self.unclear = "a thread stores a byte twice, or a part of an element"
            return
        at, one, two, thread_of_one, thread_of_two = race
        words = []
        for store, thread in ((one, thread_of_one), (two, thread_of_two)):
            step = store.access.place.access.step
            words.append(f"{step.text} (line {step.line}) by thread {self.thread(thread)}")
        place, byte = divmod(at, self.claim.width)
        where = f"{self.elements.output(place)}, byte {byte}"
        self.wrong["races"] = {"first": words[0], "second": words[1], "where": where, "block": self.block(block)}

    def _differing(self, stored: list[Stored], block: int, moves: list[Ints], numbers: Ints) -> None:
        """A block whose stores move by different amounts: one of them should be wrong."""
        for store in stored:
            reads = np.array([move[block] for move in moves])[store.tags // PLACES]
            wrong = self.elements.first_wrong(store.at + moves[store.access.move][block], store.tags + reads)
            if wrong is not None:
                self._blame(store, int(numbers[block]), wrong)
                return
        self.unclear = "the stores of a block move differently from block to block"

    # --- witnesses --------------------------------------------------------------------------------------------

    def _blame(self, store: Stored, block: int, wrong: tuple[int, dict[str, Any]]) -> None:
        index, facts = wrong
        step = store.access.place.access.step
        self.wrong["contents"] = {
            **facts,
            "written by": f"block {self.block(block)}, thread {self.thread(int(store.threads[index]))}",
            "PTX line": step.line,
            "instruction": step.text,
        }

    def block(self, number: int) -> tuple[int, int, int]:
        """Coordinates of a block."""
        return _index(self.claim.grid, number)

    def thread(self, number: int) -> tuple[int, int, int]:
        """Coordinates of a thread."""
        return _index(self.claim.block, number)


def _index(shape: tuple[int, int, int], number: int) -> tuple[int, int, int]:
    x, y, _ = shape
    return number % x, number // x % y, number // (x * y)


def _coordinates(name: str, shape: tuple[int, int, int], numbers: Ints) -> dict[str, Any]:
    x, y, _ = shape
    values = (numbers % x, numbers // x % y, numbers // (x * y))
    return {f"{name}.{axis}": v.astype(np.uint64) for axis, v in zip("xyz", values, strict=True)}
