"""What every thread does to memory, access by access: the ground on which two kernels are called equal.

Two kernels with the same trace do the same in every schedule.  Where traces differ (a barrier fewer, a store earlier)
the kernels still have the same effect if the outputs agree and no two threads touch one place, one of them writing,
with nothing between: then no schedule can tell.  That is decided pair by pair, from the definition, with none of the
records that the interpreter keeps (:mod:`verify.ptx.shadow`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutalg.claim import Buffer as Pointer
from layoutalg.claim import Claim, Scalar
from verify.ptx.concrete import Buffer, run
from verify.ptx.expect import planes
from verify.ptx.ops_base import Load, Store, TmemFence, TmemLoad, TmemStore, TmemWait
from verify.ptx.program import Program, Step

__all__ = ["Access", "Trace", "conflict", "equivalence", "trace"]

#: First addresses of the buffers, one row per placement, and the multiple by which shared variables are placed.
_PLACEMENTS = ((3 << 20, 1), ((1 << 33) - (1 << 13), 7))


@dataclass(frozen=True, slots=True)
class Access:
    """One access by one thread, or a wait or fence of tensor memory.

    Attributes:
        space: ``global``, ``shared``, ``tmem`` and so on; ``wait::ld``, ``fence::before`` and so on.
        write: whether it stores.
        size: bytes of each element; 0 for cells of tensor memory.
        places: address of each element, or cell.
        values: its elements.
        barriers: block barriers and warp barriers that the thread has passed.
    """

    space: str
    write: bool
    size: int
    places: tuple[int, ...]
    values: tuple[int, ...]
    barriers: tuple[int, int]

    def bytes(self, block: int) -> Iterator[tuple[Any, ...]]:
        """Everything it touches: one key per byte, or per cell of tensor memory."""
        owner = -1 if self.space == "global" else block
        for place in self.places:
            for offset in range(self.size or 1):
                yield self.space, owner, place + offset


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One execution.

    Attributes:
        threads: per thread number its accesses in program order.
        outputs: final contents of the output buffers.
        written: which of their bytes were written.
        padded: threads from one block to the next.
    """

    threads: dict[int, list[Access]]
    outputs: tuple[bytes, ...]
    written: tuple[bytes, ...]
    padded: int


def trace(program: Program, claim: Claim, *, plane: NDArray[np.uint8], scalars: tuple[int, ...], place: int) -> Trace:
    """Execute a kernel and note every access.

    Args:
        plane: contents of the inputs, one after the other.
        scalars: values of the scalar parameters.
        place: which placement of the memory.

    Raises:
        PtxError: the kernel cannot be executed, or has a defect.
    """
    base, skew = _PLACEMENTS[place]
    params, outputs = _params(claim, plane, scalars, base)
    notes = _Notes()
    made = run(
        program,
        grid=claim.grid,
        block=claim.block,
        params=params,
        dynamic_shared=claim.dynamic_shared_bytes,
        skew=skew,
        tmem_column=32 * (skew - 1),
        max_steps=200_000,
        observer=notes.access,
    )
    return Trace(
        notes.threads,
        tuple(made.buffers[i].tobytes() for i in outputs),
        tuple(made.written[i].tobytes() for i in outputs),
        made.launch.padded,
    )


class _Notes:
    """Accesses as the interpreter tells of them."""

    def __init__(self) -> None:
        self.threads: dict[int, list[Access]] = {}

    def access(self, step: Step, stamps: NDArray[np.int64], places: NDArray[Any], values: NDArray[Any]) -> None:
        space, size = _kind(step)
        write = isinstance(step.operation.effect, Store | TmemStore)
        for stamp, where, what in zip(stamps.tolist(), places.tolist(), values.tolist(), strict=True):
            barriers = stamp >> 48, stamp >> 32 & 0xFFFF
            row = Access(space, write, size, tuple(where), tuple(what), barriers)
            self.threads.setdefault(stamp & 0xFFFFFFFF, []).append(row)


def _kind(step: Step) -> tuple[str, int]:
    """Space and bytes of an element; or the name of a wait or fence."""
    match step.operation.effect:
        case Load(space, width, _, _) | Store(space, width, _):
            return space, width // 8
        case TmemLoad() | TmemStore():
            return "tmem", 0
        case TmemWait(stores):
            return f"wait::{'st' if stores else 'ld'}", 0
        case TmemFence(before):
            return f"fence::{'before' if before else 'after'}", 0
        case _:
            raise AssertionError(step.text)


def _params(
    claim: Claim, plane: NDArray[np.uint8], scalars: tuple[int, ...], base: int
) -> tuple[list[Buffer | int | bytes], list[int]]:
    """Arguments of a launch, and the positions of the outputs among the buffers."""
    params: list[Buffer | int | bytes] = []
    outputs, begin, number, rest = [], 0, 0, iter(scalars)
    for p in claim.params:
        if isinstance(p, Scalar):
            params.append(next(rest))
            continue
        size = p.count * claim.width
        base = -(-base // (2 * p.align)) * 2 * p.align + p.align
        if p.role == "input":
            params.append(Buffer(plane[begin : begin + size], "r", base, p.name))
            begin += size
        else:
            params.append(Buffer(np.zeros(size, dtype=np.uint8), "w", base, p.name))
            outputs.append(number)
        base, number = base + size + 512, number + 1
    return params, outputs


def _executions(claim: Claim) -> Iterator[tuple[NDArray[np.uint8], tuple[int, ...], int]]:
    """Contents, scalars and placements that together tell every byte apart and meet both ends of every scalar."""
    size = sum(p.count * claim.width for p in claim.params if isinstance(p, Pointer) and p.role == "input")
    ends = [sorted({p.minimum, p.maximum}) for p in claim.params if isinstance(p, Scalar)]
    for scalars in itertools.product(*ends):
        for place in range(len(_PLACEMENTS)):
            for plane in planes(size):
                yield plane, scalars, place


def equivalence(original: Program, other: Program, claim: Claim) -> str:
    """Why two kernels are the same for the user, or ``""`` where they are not shown to be.

    The answer is one of two sentences, weaker ones later: the same accesses by every thread, in the same order, between
    the same barriers; or the same outputs, and nothing in the other kernel that a schedule could change.  Waits and
    fences of tensor memory with nothing to wait for or to order do not count; all others must be there.
    """
    same = True
    for plane, scalars, place in _executions(claim):
        first, second = (trace(k, claim, plane=plane, scalars=scalars, place=place) for k in (original, other))
        if (first.outputs, first.written) != (second.outputs, second.written):
            return ""
        kernels = [{who: needed(rows) for who, rows in k.threads.items()} for k in (first, second)]
        if same and kernels[0] != kernels[1]:
            same = False
        if not same and not _as_ordered(*kernels):
            return ""
        if not same and conflict(second) is not None:
            return ""
    if same:
        return "every thread makes the same accesses with the same values between the same barriers"
    return "the outputs are the same, and no two threads touch one byte unordered, one of them writing"


def needed(rows: list[Access]) -> list[Access]:
    """Accesses of a thread with the waits and fences that have something to do.

    A wait has where an access of its kind is under way; ``fence::before`` where tensor memory was accessed since the
    last block barrier; ``fence::after`` where it will be accessed before the next one.
    """
    kept: list[Access] = []
    for index, row in enumerate(rows):
        here = row.barriers[0]
        if row.space.startswith("wait"):
            kind = row.space.endswith("st")
            since = itertools.takewhile(lambda r: r.space != row.space, reversed(rows[:index]))  # noqa: B023
            useful = any(r.space == "tmem" and r.write == kind for r in since)
        elif row.space == "fence::before":
            useful = any(r.space == "tmem" and r.barriers[0] == here for r in rows[:index])
        elif row.space == "fence::after":
            useful = any(r.space == "tmem" and r.barriers[0] == here for r in rows[index:])
        else:
            useful = True
        if useful:
            kept.append(row)
    return kept


def _as_ordered(first: dict[int, list[Access]], second: dict[int, list[Access]]) -> bool:
    """Whether every thread of the second kernel waits and fences at least as often as in the first."""
    counts = [
        {who: Counter(row.space for row in rows if "::" in row.space) for who, rows in kernel.items()}
        for kernel in (first, second)
    ]
    return all(count <= counts[1].get(who, Counter()) for who, count in counts[0].items())


def conflict(made: Trace) -> tuple[Any, ...] | None:
    """The first place that two threads touch unordered, one of them writing; by definition, pair by pair."""
    seen: dict[tuple[Any, ...], set[tuple[int, bool, tuple[int, int]]]] = {}
    for thread, accesses in made.threads.items():
        for access in accesses:
            for key in access.bytes(thread // made.padded):
                seen.setdefault(key, set()).add((thread, access.write, access.barriers))
    for key, touches in seen.items():
        if any(write for _, write, _ in touches):
            for first, second in itertools.combinations(touches, 2):
                if (first[1] or second[1]) and not _ordered(first, second, made.padded, key[0]):
                    return key, first, second
    return None


def _ordered(
    first: tuple[int, bool, tuple[int, int]], second: tuple[int, bool, tuple[int, int]], padded: int, space: str
) -> bool:
    """One thread; or a block barrier between them, or in one warp a warp barrier.

    Instructions of tensor memory are those of the whole warp, so that its threads are one.
    """
    (a, _, (block, warp)), (b, _, (other_block, other_warp)) = first, second
    if a == b:
        return True
    if a // padded != b // padded:
        return False
    return block != other_block or (a // 32 == b // 32 and (warp != other_warp or space == "tmem"))
