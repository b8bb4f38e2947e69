"""A permute plan: which lane and register carries which element, and what both phases cost.

A plan is data.  Phase one reads slot by slot: in slot r, lane l reads the element ``slots[r][l]`` from its source place
into register r; after a ``__syncwarp`` phase two writes the registers to the destination places of the same elements.
Costs are wavefronts of the measured bank rule (``layoutalg.banks``), for the worst stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.permute.problem import Problem
from layoutalg.banks import simulate_many
from layoutalg.tile import TileLayout

__all__ = ["Phase", "Plan", "lower_bound", "make_plan", "measure"]

LANES = 32
_ROW_BYTES = 128  # one wavefront delivers at most 32 words of 4 bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """The cost of one phase of one stage.

    Args:
        op: ``ld.shared`` or ``st.shared``.
        instructions: warp instructions issued.
        wavefronts: what they cost together.
        excess: wavefronts beyond the instructions' ideal, which profilers count as bank conflicts.
        lower_bound: no way of moving these elements through the banks costs less.
    """

    op: str
    instructions: int
    wavefronts: int
    excess: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule for one permute.

    Args:
        form: how the schedule is written down, such as ``"xor"``.
        slots: ``[slot][lane]``, the flat logical index of the element; -1 where the lane is idle.
        read: cost of the read phase.
        write: cost of the write phase.
        registers: 32-bit registers per lane that hold elements.
        details: the form's own constants, such as ``shift`` and ``mask``.
    """

    form: str
    slots: tuple[tuple[int, ...], ...]
    read: Phase
    write: Phase
    registers: int
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def table(self) -> NDArray[np.int64]:
        """Return the schedule as an int64 array [slot][lane], -1 for idle lanes."""
        return np.array(self.slots, dtype=np.int64)


def make_plan(form: str, slots: NDArray[np.int64], problem: Problem, details: Mapping[str, Any]) -> Plan:
    """Measure a schedule that accesses memory slot by slot in both phases, and wrap it."""
    return Plan(
        form=form,
        slots=tuple(tuple(int(e) for e in row) for row in slots),
        read=measure("ld.shared", slots, problem, problem.source),
        write=measure("st.shared", slots, problem, problem.destination),
        registers=-(-slots.shape[0] * problem.width // 4),
        details=MappingProxyType(dict(details)),
    )


def measure(op: str, slots: NDArray[np.int64], problem: Problem, layout: TileLayout) -> Phase:
    """Simulate one phase: every slot is one instruction; the worst stage counts.

    Stages move all addresses together.  A move by whole rows of banks changes nothing, so one stage per remainder is
    simulated.
    """
    width = problem.width
    places = problem.coordinates(layout) * width
    remainders = sorted({shift * width % _ROW_BYTES for shift in problem.stage_shifts(layout)})
    active = slots >= 0
    masks = (active.astype(np.int64) << np.arange(LANES)).sum(axis=1)
    base = -(int(places.min()) // _ROW_BYTES) * _ROW_BYTES
    addresses = np.where(active, places[np.maximum(slots, 0)] + base, 0)
    worst: tuple[int, int] | None = None
    for remainder in remainders:
        report = simulate_many(op, width, addresses=np.where(active, addresses + remainder, 0), masks=masks)
        cost = (int(report.wavefronts.sum()), int(report.excess.sum()))
        worst = cost if worst is None else max(worst, cost)
    assert worst is not None
    bound = max(lower_bound(places + remainder, width) for remainder in remainders)
    return Phase(op, int(active.any(axis=1).sum()), *worst, bound)


def lower_bound(places: NDArray[np.int64], width: int) -> int:
    """Return the fewest wavefronts that can touch these byte addresses: the most units that one bank holds.

    A unit is a 4-byte word, a bank pair for 8-byte and a quad for 16-byte elements, since those are served by halves
    and quarters of a warp; a wavefront delivers one unit of each bank.

    >>> lower_bound(np.arange(64) * 4, 4), lower_bound(np.arange(32) * 128, 4)
    (2, 32)
    """
    unit = max(width, 4)
    units = np.unique(places // unit)
    return int(np.bincount(units % (_ROW_BYTES // unit)).max())
