"""The answer: instructions with their bases and registers, per warp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen_cuda.tmem.problem import Ints, TmemProblem, tabulate
from layoutalg.hardware.tcgen05 import TWO_ADDRESSES, TmemInstruction, allocated_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PRODUCER_WARNING", "RoundTrip", "TmemPlan", "Transfer", "cells_touched"]

PRODUCER_WARNING = (
    "the producer is a {producer}: wait::ld does not complete it. Before this load, commit it to an mbarrier "
    "(tcgen05.commit), wait for the barrier's phase in every thread that loads, and issue "
    "tcgen05.fence::after_thread_sync"
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One instruction of one warp.

    Args:
        warp: number of the warp in its block.
        instruction: shape, repeat, packing, split.
        lane: absolute lane of the base address.
        column: 32-bit column of the base address, from the start of the allocation.
        registers: the layout's register word behind each register of the instruction.
    """

    warp: int
    instruction: TmemInstruction
    lane: int
    column: int
    registers: tuple[int, ...]

    def cells(self) -> tuple[Ints, Ints]:
        """Absolute lane and column of each register word, two (32, registers) arrays."""
        rows, columns = self.instruction.cells()
        return rows + self.lane, columns + self.column

    def __str__(self) -> str:
        split = f", split {self.instruction.split:#x}" if self.instruction.shape == TWO_ADDRESSES else ""
        pack = ", packed" if self.instruction.packed else ""
        return (
            f"warp {self.warp}: {self.instruction.shape}.x{self.instruction.repeat} at lane {self.lane}, "
            f"column {self.column}{split}{pack}, registers {_ranges(self.registers)}"
        )


@dataclass(frozen=True, slots=True)
class TmemPlan:
    """A sequence of instructions that realises a pair of layouts.

    Args:
        problem: the request.
        transfers: the instructions, by warp.
        warnings: what the caller must see to, in words.
    """

    problem: TmemProblem
    transfers: tuple[Transfer, ...]
    warnings: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """Names of the forms used, such as ``"32x32b.x64"``."""
        names = {f"{t.instruction.shape}.x{t.instruction.repeat}": None for t in self.transfers}
        return " ".join(names)

    @property
    def instructions(self) -> int:
        """Instructions that the busiest warp issues."""
        counts: dict[int, int] = {}
        for transfer in self.transfers:
            counts[transfer.warp] = counts.get(transfer.warp, 0) + 1
        return max(counts.values(), default=0)

    @property
    def registers(self) -> int:
        """32-bit registers per lane, gaps of the register layout included."""
        return 1 + max(r for t in self.transfers for r in t.registers)

    @property
    def warps(self) -> tuple[int, ...]:
        """Warps that issue instructions."""
        return tuple(sorted({t.warp for t in self.transfers}))

    @property
    def columns(self) -> int:
        """32-bit columns that the instructions reach, from the start of the allocation."""
        return 1 + max(int(columns.max()) for _, columns in cells_touched(self))

    @property
    def allocation(self) -> int:
        """Columns to allocate: the next legal size."""
        return allocated_columns(self.columns)

    def table(self) -> NDArray[np.int64]:
        """Element (flat logical index) behind ``[warp, word, lane, part]``, -1 where there is none.

        A word of 32 bits has several parts where elements are narrower; of wider elements each word names its own.
        """
        held = tabulate(self.problem).held.transpose(0, 2, 1, 3)
        return np.where(held >= 0, held // self.problem.pieces, -1)

    def statements(self) -> tuple[dict[str, Any], ...]:
        """Return what ``verify.tmem.prove_transfers`` takes, as plain values: one dictionary of arguments.

        A checker needs nothing else of the plan.
        """
        problem = self.problem
        axes = {it.axis.name for _, registers in problem.parts for it in (*registers.shard, *registers.replica)}
        axes |= {name for _, registers in problem.parts for name in registers.offset}
        # Layouts of lanes only count from the first thread of the selected warp.
        first = 32 * problem.warp if problem.scope == "warp" and axes <= {"laneid", "m"} else 0
        moves = tuple(
            (t.warp, i.shape, i.repeat, i.packed, t.lane, t.column, i.split, t.registers)
            for t in self.transfers
            for i in (t.instruction,)
        )
        return (
            {
                "moves": moves,
                "layouts": problem.parts,
                "shape": problem.extents,
                "dtype": problem.dtype.name,
                "direction": problem.direction,
                "first_thread": first,
            },
        )

    def describe(self) -> str:
        """Say in a few lines what is issued."""
        verb = "load" if self.problem.direction == "ld" else "store"
        lines = [
            f"{verb}: {len(self.transfers)} instructions, {self.instructions} per warp at most; "
            f"{self.registers} registers per lane; {self.columns} columns, {self.allocation} allocated",
            *(f"  {transfer}" for transfer in self.transfers),
            *(f"  warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A store and the load that follows it."""

    store: TmemPlan
    load: TmemPlan

    @property
    def form(self) -> str:
        """Names of the forms of both."""
        return f"{self.store.form} / {self.load.form}"

    @property
    def allocation(self) -> int:
        """Columns to allocate."""
        return max(self.store.allocation, self.load.allocation)

    def statements(self) -> tuple[dict[str, Any], ...]:
        """Return what ``verify.tmem.prove_transfers`` takes, for the store and for the load."""
        return (*self.store.statements(), *self.load.statements())

    def describe(self) -> str:
        """Say what is issued."""
        return f"{self.store.describe()}\n{self.load.describe()}"


def cells_touched(plan: TmemPlan) -> Iterator[tuple[Ints, Ints]]:
    """Lanes and columns of all cells of each transfer, both cells of packed words."""
    for transfer in plan.transfers:
        lanes, columns = transfer.cells()
        if transfer.instruction.packed:
            yield np.concatenate([lanes, lanes]), np.concatenate([columns, columns + 1])
        else:
            yield lanes, columns


def _ranges(numbers: tuple[int, ...]) -> str:
    """Spell register numbers shortly.

    >>> _ranges((0, 1, 2, 3, 8, 9, 5))
    '0-3, 8-9, 5'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in parts)
