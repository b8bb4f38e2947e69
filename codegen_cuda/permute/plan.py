"""A permute plan: which lane and register carries which element, and what both phases cost.

A plan is data.  Forms ``xor``, ``rotation``, ``gf2`` and ``table`` read slot by slot: in slot r, lane l reads the
element ``slots[r][l]`` from its source place into register r; after a barrier phase two writes the registers to the
destination places of the same elements.  ``vector`` and ``words`` move several elements of a lane at once, and read
them grouped otherwise than they write them, so they list the instructions of both phases.

Costs are wavefronts of the measured bank rule (``layoutalg.banks``), for the worst stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import LANES, ROW_BYTES, Ints, Task, lower_bound, task_of
from layoutalg.banks import simulate_many

__all__ = ["LANES", "Access", "Candidate", "Moves", "Phase", "Plan", "list_plan", "lower_bound", "make_plan", "measure"]

#: Instructions of one width: bytes a lane, and the elements [instruction][lane][position], -1 for what nobody needs.
Moves = tuple[int, Ints]


@dataclass(frozen=True, slots=True)
class Access:
    """One instruction of one warp.

    Args:
        width: bytes that a lane moves.
        elements: ``[lane][position]``, the elements that lie at consecutive places from the lane's address on; -1 where
            the lane is idle, or reads what it does not need.
    """

    width: int
    elements: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """The cost of one phase of one stage.

    Args:
        op: ``ld.shared`` or ``st.shared``.
        instructions: warp instructions issued.
        wavefronts: what they cost together.
        excess: wavefronts beyond the instructions' ideal, which profilers count as bank conflicts.
        lower_bound: no way of moving these elements through the banks costs less.
        uniform: whether all stages cost the same; else the costs are those of the worst.
    """

    op: str
    instructions: int
    wavefronts: int
    excess: int
    lower_bound: int
    uniform: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one form would cost, or why it does not serve.

    Args:
        form: name of the form.
        reason: why it does not serve, in words; empty where it does.
        read: cost of the read phase.
        write: cost of the write phase.
        registers: 32-bit registers per lane that hold elements.
        operations: estimate of the instructions per lane that compute addresses, load tables and sort bytes.
    """

    form: str
    reason: str = ""
    read: Phase | None = None
    write: Phase | None = None
    registers: int = 0
    operations: int = 0

    @property
    def wavefronts(self) -> int | None:
        """Wavefronts of both phases, None where the form does not serve."""
        return None if self.read is None or self.write is None else self.read.wavefronts + self.write.wavefronts

    def __str__(self) -> str:
        if self.read is None or self.write is None:
            return f"{self.form}: {self.reason}"
        costs = [f"{p.wavefronts} ({p.lower_bound})" for p in (self.read, self.write)]
        return (
            f"{self.form}: {' + '.join(costs)} wavefronts (bounds), "
            f"{self.read.instructions} + {self.write.instructions} instructions, about {self.operations} operations"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule for one permute.

    Args:
        form: how the schedule is written down, such as ``"xor"``.
        slots: ``[slot][lane]``, the flat logical index of the element; -1 where the lane is idle.  With several warps,
            slot s belongs to warp ``s % warps``.
        read: cost of the read phase.
        write: cost of the write phase.
        registers: 32-bit registers per lane that hold elements.
        details: the form's own constants, such as ``shift`` and ``mask``.
        reads: instructions of the read phase where it is not slot by slot.
        writes: instructions of the write phase where it is not slot by slot.
        operations: estimate of the further instructions per lane.
        candidates: what every form would have cost, where the planner chose.
        warps: how many warps share the work.
    """

    form: str
    slots: tuple[tuple[int, ...], ...]
    read: Phase
    write: Phase
    registers: int
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    operations: int = 0
    candidates: tuple[Candidate, ...] = field(default=(), compare=False)
    warps: int = 1

    def table(self) -> NDArray[np.int64]:
        """Return the schedule as an int64 array [slot][lane], -1 for idle lanes."""
        return np.array(self.slots, dtype=np.int64)

    @property
    def wavefronts(self) -> int:
        """Wavefronts of both phases."""
        return self.read.wavefronts + self.write.wavefronts

    @property
    def cost(self) -> tuple[int, int, int]:
        """What the planner minimises: wavefronts, then memory instructions, then further instructions."""
        return self.wavefronts, self.read.instructions + self.write.instructions, self.operations

    @property
    def cycles(self) -> float:
        """Estimated cycles of an SM with many warps: a wavefront each, and half a one for an instruction beside them.

        An SM takes one wavefront and issues two warps' integer instructions in a cycle (compute capability 9.0); over
        the kernels timed in ``benchmarks/results/permute_smem_h200.json`` the least estimate is that of the fastest
        form, within 7 %.
        """
        return self.wavefronts + self.operations / 2

    def candidate(self) -> Candidate:
        """Return the plan's cost as a candidate."""
        return Candidate(self.form, "", self.read, self.write, self.registers, self.operations)


def make_plan(
    form: str,
    slots: Ints,
    problem: Problem,
    details: Mapping[str, Any],
    *,
    task: Task | None = None,
    operations: int = 0,
    registers: int | None = None,
) -> Plan:
    """Measure a schedule that accesses memory slot by slot in both phases, and wrap it."""
    task = task or task_of(problem)
    moves = [(problem.width, slots[:, :, None])]
    reads, writes = (measure(op, moves, task) for op in ("ld.shared", "st.shared"))
    return Plan(
        form=form,
        slots=_rows(slots),
        read=reads,
        write=writes,
        registers=registers or slot_registers(problem, -(-slots.shape[0] // problem.warps)),
        details=MappingProxyType(dict(details)),
        operations=operations,
        warps=problem.warps,
    )


def slot_registers(problem: Problem, slots: int) -> int:
    """Return the registers that slots of elements take: narrow ones share a register only where they must."""
    words = max(1, problem.width // 4)
    return slots * words if slots * words <= problem.max_registers else -(-slots * problem.width // 4)


def list_plan(
    form: str,
    reads: Sequence[Moves],
    writes: Sequence[Moves],
    problem: Problem,
    details: Mapping[str, Any],
    *,
    task: Task | None = None,
    operations: int = 0,
    registers: int | None = None,
) -> Plan:
    """Measure a schedule given as the instructions of both phases, and wrap it."""
    task = task or task_of(problem)
    slots = np.concatenate([_slots(table, problem.warps) for _, table in reads])
    needed = sum(len(table) * max(1, width // 4) for width, table in reads)
    return Plan(
        form=form,
        slots=_rows(slots),
        read=measure("ld.shared", reads, task),
        write=measure("st.shared", writes, task),
        registers=registers or -(-needed // problem.warps),
        details=MappingProxyType(dict(details)),
        reads=_accesses(reads),
        writes=_accesses(writes),
        operations=operations,
        warps=problem.warps,
    )


def _slots(table: Ints, warps: int) -> Ints:
    """Return element slots [slot][lane] of instructions; slot s belongs to warp ``s % warps``, as instructions do."""
    count, lanes, positions = table.shape
    return table.reshape(count // warps, warps, lanes, positions).transpose(0, 3, 1, 2).reshape(-1, lanes)


def _rows(slots: Ints) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, slots.tolist()))


def _accesses(moves: Sequence[Moves]) -> tuple[Access, ...]:
    return tuple(Access(width, _rows(row)) for width, table in moves for row in table)


def measure(op: str, moves: Sequence[Moves], task: Task) -> Phase:
    """Simulate one phase; the worst stage counts.

    Stages move all addresses together.  A move by whole words rotates the banks and changes nothing, so one stage per
    remainder is simulated.
    """
    is_read = op == "ld.shared"
    places, shifts = (task.source, task.source_moves) if is_read else (task.destination, task.destination_moves)
    base = -(int(places.min()) // ROW_BYTES - 1) * ROW_BYTES
    unit = max(4, *(width for width, _ in moves))
    costs: set[tuple[int, int]] = set()
    for rest in sorted({shift % unit for shift in shifts}):
        wavefronts = excess = 0
        for width, table in moves:
            addresses, masks = addresses_of(table, places + base + rest, task.width)
            report = simulate_many(op, width, addresses=addresses, masks=masks)
            wavefronts += int(report.wavefronts.sum())
            excess += int(report.excess.sum())
        costs.add((wavefronts, excess))
    count = sum(int((table >= 0).any(axis=(1, 2)).sum()) for _, table in moves)
    return Phase(op, count, *max(costs), task.bounds[0 if is_read else 1], len(costs) == 1)


def addresses_of(table: Ints, places: Ints, width: int) -> tuple[Ints, Ints]:
    """Return byte addresses [instruction][lane] and lane masks; a lane's first needed element tells its address."""
    needed = table >= 0
    position = needed.argmax(axis=2)
    first = np.take_along_axis(table, position[:, :, None], axis=2)[:, :, 0]
    active = first >= 0
    addresses = np.where(active, places[np.maximum(first, 0)] - position * width, 0)
    masks = (active.astype(np.int64) << np.arange(table.shape[1])).sum(axis=1)
    return addresses, masks
