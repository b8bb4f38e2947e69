"""Cover every register word (of a load) or every cell (of a store) exactly once, with the fewest instructions.

Without replicas every word has one cell per lane and one pattern, so the ``.x1`` atoms are forced, and so is their
grouping into maximal progressions; a progression of n atoms takes one instruction per binary digit of n (and per full
largest repeat), and no sum of legal repeats has fewer terms.  With replicas a word or cell may be served from several
places; then the longest runs and a fixed list of preferences are tried, and the plans found are ordered by their number
of instructions.  Of loads a search over all covers then looks for a shorter plan (:mod:`codegen_cuda.tmem.exact`); it
looks everywhere unless there are very many replicas.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem.exact import Cover, fewest, parts_of
from codegen_cuda.tmem.explain import explain_incomplete, explain_uncovered
from codegen_cuda.tmem.match import ORDER, Fit, cells_of, find_fits
from codegen_cuda.tmem.plan import PRODUCER_WARNING, TmemPlan, Transfer
from codegen_cuda.tmem.problem import TmemProblem, Words, tabulate
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.tcgen05 import SHAPES, TmemInstruction

__all__ = ["decompose", "enumerate_plans", "warnings_for"]

PRODUCERS = ("mma", "cp")
#: Of ambiguous loads, how many ways of choosing are tried before the search.
_BEFORE_SEARCH = 2


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
    ambiguous = _is_ambiguous(fits)
    searched = ambiguous and problem.direction == "ld"
    for number, choose in enumerate(_strategies(problem, words, fits, thorough=alternatives, ambiguous=ambiguous)):
        if searched and number >= _BEFORE_SEARCH:
            transfers, complete = _shortened(words, min(found, key=len, default=()), fits, max_repeat)
            found.update({transfers: None} if transfers else {})
            searched = False
            if complete and not alternatives:
                break
        try:
            chosen = choose()
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


def _is_ambiguous(fits: list[Fit]) -> bool:
    """Whether some word fits in several ways (32x32b counting as its own two-address form), or several in one place."""
    counts = Counter((fit.warp, fit.word) for fit in fits if fit.shape != ORDER[-1])
    wholes = {(fit.warp, fit.word) for fit in fits if fit.shape == ORDER[0]}
    split = Counter((fit.warp, fit.word) for fit in fits if fit.shape == ORDER[-1])
    several = max(counts.values(), default=0) > 1 or max(split.values(), default=0) > 1
    mixed = any(key not in wholes and counts[key] for key in split)
    shared = len({(f.warp % 4, f.lane, f.column, f.shape, f.packed, f.half, f.split) for f in fits}) < len(fits)
    return several or mixed or shared


def _shortened(
    words: Words, transfers: tuple[Transfer, ...], fits: list[Fit], max_repeat: int
) -> tuple[tuple[Transfer, ...], bool]:
    """The fewest loads, where a search finds fewer than these (or any, where there are none), and if it was complete.

    Warps that differ by their slab share the search.
    """
    known: dict[tuple[int, frozenset[Fit]], Cover] = {}
    shortened: list[Transfer] = []
    held = np.asarray((words.held >= 0).any(axis=(1, 3)))
    for index, warp in enumerate(words.warps):
        own = [t for t in transfers if t.warp == warp]
        base = 32 * (warp % 4)
        relative = frozenset(fit._replace(warp=0, lane=fit.lane - base) for fit in fits if fit.warp == warp)
        needed = {int(word) for word in np.flatnonzero(held[index])}
        if {fit.word for fit in relative} != needed:
            return (), False
        key = (len(own) or len(needed) + 1, relative)
        if key not in known:
            known[key] = fewest(sorted(relative), below=key[0], max_repeat=max_repeat)
        better = [Transfer(warp, p.instruction, p.lane + base, p.column, p.words) for p in known[key].pieces or ()]
        if not better and not own:
            return (), known[key].complete
        shortened += better or own
    ordered = tuple(sorted(shortened, key=lambda t: (t.warp, t.registers[0], t.lane, t.column)))
    return ordered, all(cover.complete for cover in known.values())


def _strategies(
    problem: TmemProblem, words: Words, fits: list[Fit], *, thorough: bool, ambiguous: bool
) -> Iterator[Callable[[], list[Fit]]]:
    """Ways to choose; one only where nothing is ambiguous."""
    yield lambda: _choose(problem, words, sorted(fits, key=lambda fit: (ORDER.index(fit.shape), *fit)))
    if not (ambiguous or thorough):
        return
    yield lambda: _choose(problem, words, list(_longest_runs(problem, fits)))
    for first, up, right in itertools.product(ORDER, (1, -1), (1, -1)):
        preferred = sorted(
            fits,
            key=lambda fit, first=first, up=up, right=right: (  # type: ignore[misc]
                fit.shape != first,
                ORDER.index(fit.shape),
                up * fit.lane,
                fit.split,
                right * fit.column,
                *fit,
            ),
        )
        yield lambda preferred=preferred: _choose(problem, words, preferred)  # type: ignore[misc]


def _longest_runs(problem: TmemProblem, fits: list[Fit]) -> Iterator[Fit]:
    """Take the longest instruction that finds something new everywhere, then the longest of what is left, and so on."""
    buckets: dict[tuple[int, TmemInstruction, int], dict[tuple[int, int], list[Fit]]] = {}
    for fit in sorted(fits, key=lambda fit: (ORDER.index(fit.shape), *fit)):
        key = (fit.warp, TmemInstruction(fit.shape, 1, fit.packed, fit.split), fit.lane)
        buckets.setdefault(key, {}).setdefault((fit.column, fit.half), []).append(fit)
    taken: set[object] = set()
    while True:
        best: list[Fit] = []
        for (_, instruction, _), bucket in buckets.items():
            for column, half in bucket:
                run = _run_from(problem, instruction, bucket, column, taken) if half == 0 else []
                best = run if len(run) > len(best) else best
        if not best:
            return
        for fit in best:
            taken.update(_targets(problem, fit))
            yield fit


def _run_from(
    problem: TmemProblem,
    instruction: TmemInstruction,
    bucket: dict[tuple[int, int], list[Fit]],
    column: int,
    taken: set[object],
) -> list[Fit]:
    """The fits of the largest legal instruction from a column on, each with something that is not yet taken."""
    match = _Matching(load=problem.direction == "ld")
    atoms = 0
    while atoms < max(SHAPES[instruction.shape].repeats):
        for part in parts_of(instruction, column):
            options = [fit for fit in bucket.get(part, ()) if not taken.intersection(_targets(problem, fit))]
            if not match.add(options):
                return match.chosen[: _largest(atoms) * instruction.registers]
        atoms, column = atoms + 1, column + instruction.pitch
    return match.chosen


class _Matching:
    """Different words for the registers of one load, by augmenting paths; a store may repeat a word."""

    def __init__(self, *, load: bool) -> None:
        self.load = load
        self.options: list[list[Fit]] = []
        self.chosen: list[Fit] = []
        self.owner: dict[int, int] = {}

    def add(self, options: list[Fit]) -> bool:
        """Give a further register one of the options, moving earlier ones if need be."""
        if not options:
            return False
        self.options.append(options)
        self.chosen.append(options[0])
        return not self.load or self._assign(len(self.options) - 1, set())

    def _assign(self, register: int, seen: set[int]) -> bool:
        for fit in self.options[register]:
            if fit.word in seen:
                continue
            seen.add(fit.word)
            if fit.word not in self.owner or self._assign(self.owner[fit.word], seen):
                self.owner[fit.word] = register
                self.chosen[register] = fit
                return True
        return False


def _largest(count: int) -> int:
    """The largest power of two that is not larger, or 0."""
    return 1 << (count.bit_length() - 1) if count else 0


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
    """Atoms of one warp, shape, lane base and split."""

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
        atoms = tuple(_atoms(problem, words, (warp, instruction, lane), bucket))
        yield _Group(warp, shape, packed, lane, split, atoms)


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
        parts = parts_of(instruction, column)
        missing = [part for part in parts if part not in bucket]
        if missing:
            present = next(part for part in bucket if part[0] == column)
            word = bucket[present][0]
            raise explain_incomplete(problem, words, warp, word, instruction, lane, missing[0])
        yield _Atom(column, tuple(bucket[part].pop(0) for part in parts))
        for part in parts:
            if not bucket[part]:
                del bucket[part]


def _runs(atoms: Sequence[_Atom], pitch: int) -> Iterator[list[_Atom]]:
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
        yield run


def _cut(atoms: Sequence[_Atom], pitch: int, limit: int) -> list[list[_Atom]]:
    """Cut atoms into instructions: progressions of a legal length.

    Where all columns differ, cutting maximal runs is best.  Where columns repeat, taking the longest instruction first
    may be shorter: 0 1 2 3 3 4 5 6 is 4 + 4 and not 7 + 1.
    """
    by_runs = [part for run in _runs(atoms, pitch) for part in _pieces(run, limit)]
    if len({atom.column for atom in atoms}) == len(atoms):
        return by_runs
    return min(by_runs, _longest_first(atoms, pitch, limit), key=len)


def _pieces(run: list[_Atom], limit: int) -> Iterator[list[_Atom]]:
    at = 0
    for length in decompose(len(run), limit):
        yield run[at : at + length]
        at += length


def _longest_first(atoms: Sequence[_Atom], pitch: int, limit: int) -> list[list[_Atom]]:
    waiting: dict[int, list[_Atom]] = {}
    for atom in atoms:
        waiting.setdefault(atom.column, []).append(atom)
    found = []
    length = limit
    while waiting:
        spans = (_span(column, pitch, length) for column in sorted(waiting))
        columns = next((span for span in spans if all(column in waiting for column in span)), None)
        if columns is None:
            length //= 2
            continue
        found.append([waiting[x].pop(0) for x in columns])
        waiting = {column: left for column, left in waiting.items() if left}
    return found


def _span(column: int, pitch: int, length: int) -> range:
    return range(column, column + pitch * length, pitch)


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
        instruction = TmemInstruction(shape, 1, packed, split)
        limit = _largest(min(max_repeat, max(SHAPES[shape].repeats)))
        for part in _cut(atoms, instruction.pitch, limit):
            registers = tuple(word for atom in part for word in atom.words)
            transfers.append(Transfer(warp, replace(instruction, repeat=len(part)), lane, part[0].column, registers))
    return tuple(sorted(transfers, key=lambda t: (t.warp, t.registers[0], t.lane, t.column)))
