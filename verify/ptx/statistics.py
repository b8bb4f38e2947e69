"""Counts per instruction: how often warps execute it, and what its memory accesses cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutalg.banks import simulate_many
from verify.ptx.ops_base import Load
from verify.ptx.program import Program, Step

__all__ = ["InstructionCount", "Phase", "Statistics"]


@dataclass(frozen=True, slots=True)
class InstructionCount:
    """One instruction over a whole run.

    Attributes:
        line: 1-based PTX line.
        opcode: the instruction with its modifiers.
        source: CUDA file and line, where known.
        executions: warps that executed it with at least one active lane.
        wavefronts: for shared memory, wavefronts of all executions (the bank rule of ``layoutalg.banks``).
        excess: wavefronts beyond the ideal: bank conflicts.
        sectors: for global memory, 32-byte sectors touched.
        bytes: bytes that active lanes asked for.
    """

    line: int
    opcode: str
    source: tuple[str, int] | None
    executions: int = 0
    wavefronts: int = 0
    excess: int = 0
    sectors: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """What one warp does between two barriers.

    Attributes:
        warp: number of the warp in the grid.
        epoch: number of block barriers and of warp barriers before it.
        costs: per shared-memory operation (``ld.shared``, ``st.shared``) its wavefronts and excess.
        mixed: global memory is accessed, too, apart from the module's own tables.
    """

    warp: int
    epoch: tuple[int, int]
    costs: tuple[tuple[str, int, int], ...]
    mixed: bool


class Statistics:
    """Accumulates counts; bank costs of a pattern that repeats in every block are simulated once.

    Args:
        trace: also keep the costs per warp and barrier interval, for :meth:`phases`.
    """

    def __init__(self, program: Program, *, trace: bool = False) -> None:
        self.program, self.trace = program, trace
        self._phases: dict[tuple[int, int], dict[str, list[int]]] = {}
        self.counts: dict[int, NDArray[np.int64]] = {}
        self.steps: dict[int, Step] = {}
        self._known: dict[tuple[str, int, bytes, bytes], tuple[int, int]] = {}

    def executed(self, step: Step, warps: int) -> None:
        """Add an execution by some warps."""
        self.steps[id(step)] = step
        self._row(step)[0] += warps

    def _row(self, step: Step) -> NDArray[np.int64]:
        return self.counts.setdefault(id(step), np.zeros(5, dtype=np.int64))

    def shared(
        self,
        step: Step,
        size: int,
        addresses: NDArray[Any],
        mask: NDArray[np.bool_],
        stamps: NDArray[np.int64],
        block: int,
    ) -> None:
        """Count a shared-memory access: one address per lane (those of inactive lanes are ignored)."""
        op = "ld.shared" if isinstance(step.operation.effect, Load) else "st.shared"
        table = np.where(mask, addresses, 0).astype(np.int64).reshape(-1, 32)
        active = np.packbits(mask.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32).reshape(-1)
        wavefronts, excess = self._cost(op, size, table, active, block // 32)
        if self.trace:
            self._follow(op, size, table, active, stamps)
        self._row(step)[1:] += (wavefronts, excess, 0, int(mask.sum()) * size)

    def _cost(
        self, op: str, size: int, table: NDArray[np.int64], active: NDArray[np.uint32], warps: int
    ) -> tuple[int, int]:
        blocks = table.reshape(-1, warps * 32)
        masks = active.reshape(-1, warps)
        times = len(blocks)
        if not ((blocks == blocks[0]).all() and (masks == masks[0]).all()):
            warps, times = len(table), 1
        key = (op, size, table[:warps].tobytes(), active[:warps].tobytes())
        if key not in self._known:
            used = np.flatnonzero(active[:warps])
            report = simulate_many(op, size, addresses=table[:warps][used], masks=active[:warps][used].astype(np.int64))
            self._known[key] = (int(report.wavefronts.sum()), int(report.excess.sum()))
        wavefronts, excess = self._known[key]
        return wavefronts * times, excess * times

    def _follow(
        self, op: str, size: int, table: NDArray[np.int64], active: NDArray[np.uint32], stamps: NDArray[np.int64]
    ) -> None:
        used = np.flatnonzero(active)
        report = simulate_many(op, size, addresses=table[used], masks=active[used].astype(np.int64))
        for row, wavefronts, excess in zip(
            used.tolist(), report.wavefronts.tolist(), report.excess.tolist(), strict=True
        ):
            costs = self._phase(int(stamps[32 * row])).setdefault(op, [0, 0])
            costs[0] += wavefronts
            costs[1] += excess

    def _phase(self, stamp: int) -> dict[str, list[int]]:
        return self._phases.setdefault((stamp % (1 << 32) // 32, stamp >> 32), {})

    def phases(self) -> tuple[Phase, ...]:
        """Costs per warp and barrier interval, in order of warps and time; needs ``trace``."""
        found = []
        for (warp, epoch), costs in sorted(self._phases.items()):
            rows = tuple((op, cost[0], cost[1]) for op, cost in sorted(costs.items()) if op != "global")
            found.append(Phase(warp, (epoch >> 16, epoch & 0xFFFF), rows, "global" in costs))
        return tuple(found)

    def global_(
        self,
        step: Step,
        size: int,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_],
        stamps: NDArray[np.int64],
        *,
        follow: bool = True,
    ) -> None:
        """Count a global access; aligned accesses of up to 32 bytes touch one sector per lane.

        Args:
            follow: whether it makes a phase mixed.
        """
        sectors = np.where(mask, (addresses >> np.uint64(5)).astype(np.int64), -1).reshape(-1, 32)
        ordered = np.sort(sectors, axis=1)
        fresh = ordered >= 0
        fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        self._row(step)[1:] += (0, 0, int(fresh.sum()), int(mask.sum()) * size)
        if self.trace and follow:
            for warp in np.flatnonzero(mask.reshape(-1, 32).any(axis=1)).tolist():
                self._phase(int(stamps[32 * warp])).setdefault("global", [])

    def report(self) -> tuple[InstructionCount, ...]:
        """The counts, in the order of the text."""
        rows = []
        for key, step in self.steps.items():
            executions, wavefronts, excess, sectors, size = self.counts[key].tolist()
            rows.append(
                InstructionCount(
                    step.line, step.operation.name, step.source, executions, wavefronts, excess, sectors, size
                )
            )
        return tuple(sorted(rows, key=lambda row: row.line))
