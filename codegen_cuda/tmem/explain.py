"""Why no instruction serves an element: the first obstacle, in words that name the element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from codegen_cuda.tmem.match import ORDER, candidate_cells, halves, pattern
from codegen_cuda.tmem.problem import LANE, Ints, TmemProblem, Words, show
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.tcgen05 import SHAPES, SLAB, TWO_ADDRESSES, TmemInstruction, slab_of

__all__ = ["explain_incomplete", "explain_uncovered"]


def explain_uncovered(problem: TmemProblem, words: Words, taken: set[object]) -> None:
    """Raise if something is not covered.

    Raises:
        NotExpressibleError: names the first element that is not, and why.
    """
    if problem.direction == "ld":
        for index, word in np.argwhere((words.held >= 0).any(axis=(1, 3))).tolist():
            if (words.warps[index], word) not in taken:
                _explain_word(problem, words, index, word)
        return
    cells = words.places // 32
    missing = np.array(sorted(set(np.unique(cells).tolist()) - taken), dtype=np.int64)
    if missing.size:
        _explain_cell(problem, words, int(missing[0]))


def explain_incomplete(
    problem: TmemProblem,
    words: Words,
    warp: int,
    word: int,
    instruction: TmemInstruction,
    lane: int,
    missing: tuple[int, int],
) -> NotExpressibleError:
    """The error for a word whose instruction needs another word, which is not there."""
    column, half = missing
    element = problem.coordinate(int(words.held[words.warps.index(warp), 0, word, 0]))
    return NotExpressibleError(
        f"tmem_copy: {instruction.shape} moves {instruction.registers} registers together; with register {word} of "
        f"warp {warp} (element {show(element)}) it would also move lanes {lane + 8 * half} to {lane + 8 * half + 7} "
        f"from column {column} on, which no register of the warp holds in that order",
        index=element,
        rule="incomplete",
        warp=warp,
        register=word,
    )


def _explain_cell(problem: TmemProblem, words: Words, cell: int) -> NoReturn:
    """A cell that no register word can be stored to."""
    pieces = np.flatnonzero((words.places // 32 == cell).any(axis=1))
    piece = int(pieces[0])
    element = problem.coordinate(piece)
    slab = cell // LANE // SLAB
    holders = np.argwhere((words.held == piece).any(axis=(1, 3))).tolist()
    near = [(index, word) for index, word in holders if words.warps[index] % 4 == slab]
    if near:
        _explain_word(problem, words, *near[0])
    begin, end = 32 * slab, 32 * slab + 31
    who = ", ".join(str(words.warps[index]) for index, _ in holders) or "no warp"
    raise NotExpressibleError(
        f"tmem_copy: element {show(element)} lives at lane {cell // LANE}, column {cell % LANE}; lanes {begin} to "
        f"{end} belong to the warps w with w % 4 == {slab}, but warp {who} holds it",
        index=element,
        rule="slab",
        lane=cell // LANE,
    )


def _explain_word(problem: TmemProblem, words: Words, index: int, word: int) -> NoReturn:
    """A register word that no instruction serves."""
    for obstacle in (_idle, _slab, _halves):
        for error in obstacle(problem, words, index, word):
            raise error
    raise _order(problem, words, index, word)


def _idle(problem: TmemProblem, words: Words, index: int, word: int) -> Iterator[NotExpressibleError]:
    held = words.held[index, :, word]
    empty = np.argwhere(held < 0)
    if len(empty):
        lane, part = empty[0].tolist()
        element = problem.coordinate(int(held[held >= 0][0]))
        half = f"part {part} of " if problem.per_word > 1 else ""
        yield _error(
            f"{half}register {word} of warp {words.warps[index]} holds no element in lane {lane} (elsewhere it holds "
            f"{show(element)}); an instruction moves whole 32-bit words of all 32 lanes",
            element,
            "idle",
            lane=lane,
        )


def _slab(problem: TmemProblem, words: Words, index: int, word: int) -> Iterator[NotExpressibleError]:
    begin, end = slab_of(words.warps[index])
    lanes = words.places[words.held[index, :, word]] // 32 // LANE
    reached = ((lanes >= begin) & (lanes < end)).any(axis=-1)
    if not reached.all():
        lane, part = np.argwhere(~reached)[0].tolist()
        element = problem.coordinate(int(words.held[index, lane, word, part]))
        yield _error(
            f"element {show(element)} lives at lane {int(lanes[lane, part, 0])} but is held by warp "
            f"{words.warps[index]}, which may access lanes {begin} to {end - 1} only",
            element,
            "slab",
            lane=int(lanes[lane, part, 0]),
        )


def _halves(problem: TmemProblem, words: Words, index: int, word: int) -> Iterator[NotExpressibleError]:
    modes = (False, True) if problem.bits == 16 else (False,)
    tables = [candidate_cells(problem, words, packed=packed)[index, :, word] for packed in modes]
    good = [(table >= 0).any(axis=-1) for table in tables]
    if not any(g.all() for g in good):
        lane = int(np.argmax(~good[0]))
        held = words.held[index, lane, word]
        element = problem.coordinate(int(held[0]))
        where = "; ".join(f"{show(problem.coordinate(int(p)))} at {_position(words, int(p))}" for p in held)
        packing = " (packed: in the low halves of neighbouring columns)" if problem.bits == 16 else ""
        yield _error(
            f"register {word} of lane {lane}, warp {words.warps[index]}, holds {where}; a register must match one "
            f"cell part by part{packing}",
            element,
            "column stride",
            lane=lane,
        )


def _order(problem: TmemProblem, words: Words, index: int, word: int) -> NotExpressibleError:
    """The shape that follows the word furthest, and the lane where it leaves it."""
    modes = (False, True) if problem.bits == 16 else (False,)
    best: tuple[int, str, Ints] = (-1, "", np.zeros(32, dtype=np.int64))
    warp = words.warps[index]
    for packed in modes:
        cells = candidate_cells(problem, words, packed=packed)[index, :, word]
        if not (cells >= 0).any(axis=-1).all():
            continue
        for shape, codes in _attempts(cells, packed):
            agree = (cells == codes[:, None]).any(axis=-1)
            lanes = 32 if agree.all() else int(np.argmin(agree))
            if lanes > best[0]:
                best = (lanes, shape, codes)
    lanes, shape, codes = best
    if lanes == 32:
        return _unserved(problem, words, index, word, shape, codes)
    want = int(codes[lanes])
    element = problem.coordinate(int(words.held[index, lanes, word, 0]))
    return _error(
        f"register {word} of warp {warp} follows {shape} up to lane {lanes - 1}; lane {lanes} would have to hold lane "
        f"{want // LANE}, column {want % LANE} of tensor memory, but holds {show(element)} from "
        f"{_position(words, int(words.held[index, lanes, word, 0]))}. Legal orders are those of "
        f"{', '.join(SHAPES)}; change the register layout or move the elements between lanes first",
        element,
        "register order",
        lane=lanes,
    )


def _attempts(cells: Ints, packed: bool) -> Iterator[tuple[str, Ints]]:
    for shape in ORDER:
        for half in range(halves(shape)):
            for first in cells[0].tolist():
                if first < 0:
                    continue
                base = first - int(pattern(shape, packed, half)[0])
                if shape != TWO_ADDRESSES:
                    yield shape, base + pattern(shape, packed, half)
                    continue
                for second in cells[16].tolist():
                    if second >= 0:
                        yield shape, np.where(np.arange(32) < 16, first, second) + LANE * (np.arange(32) % 16)


def _unserved(
    problem: TmemProblem, words: Words, index: int, word: int, shape: str, codes: Ints
) -> NotExpressibleError:
    """A word that follows a shape in all lanes, and yet no instruction serves it."""
    element = problem.coordinate(int(words.held[index, 0, word, 0]))
    lane, column = divmod(int(codes.min()), LANE)
    rows = SHAPES[shape].rows
    if len(np.unique(codes)) < 32:
        why = (
            "but a store would write its cells twice, since both halves of the warp hold them; no shape stores from 16"
        )
        rule, why = "twice", f"{why} lanes only"
    elif shape == TWO_ADDRESSES and codes[16] < codes[0]:
        rule, why = "split", "but the second half may not lie before the first: imm_half_splitoff is not negative"
    elif lane % rows:
        rule, why = "alignment", f"but its base must be a multiple of {rows} lanes"
    else:
        rule, why = "taken", "but its words are already moved by another register"
    return _error(
        f"register {word} of warp {words.warps[index]} (element {show(element)}) follows {shape} from lane {lane}, "
        f"column {column} on, {why}",
        element,
        rule,
        lane=lane,
    )


def _position(words: Words, piece: int) -> str:
    place = int(words.places[piece, 0])
    cell, bit = divmod(place, 32)
    part = f", bit {bit}" if bit else ""
    return f"lane {cell // LANE}, column {cell % LANE}{part}"


def _error(text: str, element: tuple[int, ...], rule: str, **facts: Any) -> NotExpressibleError:
    return NotExpressibleError(f"tmem_copy: {text}", index=element, rule=rule, **facts)
