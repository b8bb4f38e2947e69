"""Cover every register word (of a load) or every cell (of a store) exactly once, with the fewest instructions.

Without replicas every word has one cell per lane and one pattern, so the ``.x1`` atoms are forced, and so is their
grouping into maximal progressions; a progression of n atoms takes one instruction per binary digit of n (and per full
largest repeat), and no sum of legal repeats has fewer terms.  With replicas a word or cell may be served from several
places; then a fixed list of preferences is tried, and the plans found are ordered by their number of instructions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem.explain import explain_incomplete, explain_uncovered
from codegen_cuda.tmem.match import ORDER, Fit, cells_of, find_fits
from codegen_cuda.tmem.plan import PRODUCER_WARNING, TmemPlan, Transfer
from codegen_cuda.tmem.problem import TmemProblem, Words, tabulate
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.tcgen05 import SHAPES, TmemInstruction

__all__ = ["decompose", "enumerate_plans", "warnings_for"]

PRODUCERS = ("mma", "cp")


class _Atom(NamedTuple):
    """An ``.x1`` instruction: where it starts and the words behind its registers."""

    column: int
    words: tuple[int, ...]


def enumerate_plans(
    problem: TmemProblem,
    *,
    instructions: Sequence[str] | None = None,
    max_repeat: int = 128,
    producer: str | None = None,
    alternatives: bool = False,
) -> tuple[TmemPlan, ...]:
    """Return plans, fewest instructions first; with ``alternatives`` also those with other shapes and smaller repeats.

    Args:
        problem: the request.
        instructions: shapes that may be used, all without it.
        max_repeat: largest N of ``.xN``.
        producer: ``"mma"`` or ``"cp"`` if such an instruction wrote the tensor memory that is loaded.
        alternatives: look further than the fewest instructions.

    Raises:
        NotExpressibleError: an element that no instruction reaches, and why.
    """
    allowed = _allowed(instructions)
    if max_repeat < 1:
        raise PlanError(f"tmem_copy: max_repeat must be at least 1, not {max_repeat}", rule="max_repeat")
    warnings = warnings_for(problem, producer)
    words = tabulate(problem)
    fits = [fit for fit in find_fits(problem, words) if fit.shape in allowed]
    found: dict[tuple[Transfer, ...], None] = {}
    failure: NotExpressibleError | None = None
    repeats = [r for r in (128, 64, 32, 16, 8, 4, 2, 1) if r <= max_repeat] if alternatives else [max_repeat]
    for preference in _preferences(fits, thorough=alternatives):
        try:
            chosen = _choose(problem, words, sorted(fits, key=preference))
            groups = list(_group(problem, words, chosen))
        except NotExpressibleError as error:
            failure = failure or error
            continue
        for repeat in repeats:
            found[_transfers(groups, repeat)] = None
    if not found:
        assert failure is not None
        raise failure
    plans = [TmemPlan(problem, transfers, warnings) for transfers in found]
    return tuple(sorted(plans, key=lambda plan: (len(plan.transfers), plan.instructions)))


def _allowed(instructions: Sequence[str] | None) -> frozenset[str]:
    names = tuple(SHAPES) if instructions is None else tuple(instructions)
    for name in names:
        if name not in SHAPES:
            raise PlanError(f"tmem_copy: no tcgen05 shape {name!r}; legal are {', '.join(SHAPES)}", rule="shape")
    return frozenset(names)


def warnings_for(problem: TmemProblem, producer: str | None) -> tuple[str, ...]:
    """What the caller must see to before this copy."""
    if producer is None:
        return ()
    if producer not in PRODUCERS:
        raise PlanError(f"tmem_copy: producer is None, 'mma' or 'cp', not {producer!r}", rule="producer")
    if problem.direction == "st":
        raise PlanError("tmem_copy: a store has no producer in tensor memory", rule="producer")
    return (PRODUCER_WARNING.format(producer=f"tcgen05.{producer}"),)


def _preferences(fits: list[Fit], *, thorough: bool) -> Iterator[Any]:
    """Sort keys to try; one only where every word fits in one way (32x32b counting as its own two-address form)."""
    counts = Counter((fit.warp, fit.word) for fit in fits if fit.shape != ORDER[-1])
    several = max(counts.values(), default=0) > 1
    wholes = {(fit.warp, fit.word) for fit in fits if fit.shape == ORDER[0]}
    split = Counter((fit.warp, fit.word) for fit in fits if fit.shape == ORDER[-1])
    several = several or max(split.values(), default=0) > 1
    mixed = any(key not in wholes and counts[key] for key in split)
    shared = len({(f.warp % 4, f.lane, f.column, f.shape, f.packed, f.half, f.split) for f in fits}) < len(fits)
    if not (several or mixed or shared or thorough):
        yield lambda fit: (ORDER.index(fit.shape), *fit)
        return
    for first, up, right in itertools.product(ORDER, (1, -1), (1, -1)):
        yield lambda fit, first=first, up=up, right=right: (
            fit.shape != first,
            ORDER.index(fit.shape),
            up * fit.lane,
            fit.split,
            right * fit.column,
            *fit,
        )


def _targets(problem: TmemProblem, fit: Fit) -> Iterable[object]:
    """What must be covered exactly once: register words of a load, cells of a store."""
    return ((fit.warp, fit.word),) if problem.direction == "ld" else cells_of(fit).tolist()


def _choose(problem: TmemProblem, words: Words, fits: list[Fit]) -> list[Fit]:
    """Take fits in the given order as long as nothing is covered twice, until everything is covered."""
    taken: set[object] = set()
    chosen = []
    for fit in fits:
        targets = set(_targets(problem, fit))
        # A store whose two halves meet in one cell would write that cell twice.
        if targets & taken or (problem.direction == "st" and len(targets) < 32 * (1 + fit.packed)):
            continue
        taken |= targets
        chosen.append(fit)
    explain_uncovered(problem, words, taken)
    return chosen


class _Group(NamedTuple):
    """Atoms of one warp, shape, lane base and split that follow one another."""

    warp: int
    shape: str
    packed: bool
    lane: int
    split: int
    atoms: tuple[_Atom, ...]


def _group(problem: TmemProblem, words: Words, chosen: list[Fit]) -> Iterator[_Group]:
    buckets: dict[tuple[int, str, bool, int, int], dict[tuple[int, int], list[int]]] = {}
    for fit in sorted(chosen):
        bucket = buckets.setdefault((fit.warp, fit.shape, fit.packed, fit.lane, fit.split), {})
        bucket.setdefault((fit.column, fit.half), []).append(fit.word)
    for (warp, shape, packed, lane, split), bucket in sorted(buckets.items()):
        instruction = TmemInstruction(shape, 1, packed, split)
        atoms = list(_atoms(problem, words, (warp, instruction, lane), bucket))
        for run in _runs(atoms, instruction.pitch):
            yield _Group(warp, shape, packed, lane, split, run)


def _parts(instruction: TmemInstruction, column: int) -> list[tuple[int, int]]:
    """(column, half) of each register of an atom, in register order."""
    if instruction.shape == "16x256b":
        step = 2 if instruction.packed else 1
        return [(column + j * step, half) for half in (0, 1) for j in (0, 1)]
    return [(column, half) for half in range(instruction.registers)]


def _atoms(
    problem: TmemProblem,
    words: Words,
    where: tuple[int, TmemInstruction, int],
    bucket: dict[tuple[int, int], list[int]],
) -> Iterator[_Atom]:
    """Put words together to atoms, from the left: the leftmost word can only be the first of its atom."""
    warp, instruction, lane = where
    while bucket:
        column = min(column for column, _ in bucket)
        parts = _parts(instruction, column)
        missing = [part for part in parts if part not in bucket]
        if missing:
            present = next(part for part in bucket if part[0] == column)
            word = bucket[present][0]
            raise explain_incomplete(problem, words, warp, word, instruction, lane, missing[0])
        yield _Atom(column, tuple(bucket[part].pop(0) for part in parts))
        for part in parts:
            if not bucket[part]:
                del bucket[part]


def _runs(atoms: list[_Atom], pitch: int) -> Iterator[tuple[_Atom, ...]]:
    """Split atoms into maximal progressions of the pitch; equal atoms go to different runs."""
    waiting: dict[int, list[_Atom]] = {}
    for atom in atoms:
        waiting.setdefault(atom.column, []).append(atom)
    while waiting:
        column = min(waiting)
        run = []
        while column in waiting:
            run.append(waiting[column].pop(0))
            if not waiting[column]:
                del waiting[column]
            column += pitch
        yield tuple(run)


def decompose(count: int, limit: int) -> list[int]:
    """Return the fewest powers of two up to ``limit`` that add up to ``count``, largest first.

    >>> decompose(7, 128), decompose(200, 64), decompose(48, 128)
    ([4, 2, 1], [64, 64, 64, 8], [32, 16])
    """
    largest = 1 << (limit.bit_length() - 1)
    whole, rest = divmod(count, largest)
    return [largest] * whole + [1 << b for b in range(rest.bit_length() - 1, -1, -1) if rest >> b & 1]


def _transfers(groups: list[_Group], max_repeat: int) -> tuple[Transfer, ...]:
    transfers = []
    for warp, shape, packed, lane, split, atoms in groups:
        at = 0
        for repeat in decompose(len(atoms), min(max_repeat, max(SHAPES[shape].repeats))):
            part = atoms[at : at + repeat]
            at += repeat
            instruction = replace(TmemInstruction(shape, 1, packed, split), repeat=repeat)
            registers = tuple(word for atom in part for word in atom.words)
            transfers.append(Transfer(warp, instruction, lane, part[0].column, registers))
    return tuple(sorted(transfers, key=lambda t: (t.warp, t.registers[0], t.lane, t.column)))
