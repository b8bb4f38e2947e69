"""The bank rule for many accesses at once, in numpy: one sort and one histogram for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.banks.access import (
    FULL_MASK,
    GLOBAL_OPS,
    MATRIX_OPS,
    MEASURED_GLOBAL,
    check_count,
    check_instruction,
    check_mask,
    name_lanes,
)
from layoutalg.errors import RangeError
from layoutalg.hardware.machine import DEFAULT_MACHINE, Machine
from layoutalg.hardware.machine import machine as machine_of

__all__ = ["BatchReport", "simulate_many"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BatchReport:
    """Costs of N accesses of one kind, as read-only arrays of N.

    Args:
        op: the operation.
        width: bytes per lane.
        cost: wavefronts per access, or sectors for global memory.
        ideal: the least cost with the active lanes.
        degree: the most words that one bank serves in one group; 0 for global memory.
        measured: whether profiler counters confirmed the rule for this operation on this machine.
    """

    op: str
    width: int
    cost: Ints
    ideal: Ints
    degree: Ints
    measured: bool

    @property
    def wavefronts(self) -> Ints:
        """Wavefronts per shared-memory access.

        Raises:
            RangeError: global accesses, which are counted in sectors.
        """
        if self.op in GLOBAL_OPS:
            raise RangeError(f"{self.op} is counted in sectors; its wavefronts were not measured")
        return self.cost

    @property
    def sectors(self) -> Ints:
        """Sectors per global access.

        Raises:
            RangeError: shared-memory accesses, which have no sectors.
        """
        if self.op not in GLOBAL_OPS:
            raise RangeError(f"{self.op} is counted in wavefronts; shared memory has no sectors")
        return self.cost

    @property
    def excess(self) -> Ints:
        """Cost beyond the ideal per access: bank conflicts, in shared memory."""
        return self.cost - self.ideal

    def __len__(self) -> int:
        return len(self.cost)


def simulate_many(
    op: str,
    width: int,
    addresses: npt.ArrayLike,
    masks: npt.ArrayLike | None = None,
    *,
    machine: Machine | str = DEFAULT_MACHINE,
) -> BatchReport:
    """Costs of N accesses of the same operation and width; entry n is what :func:`simulate` gives for access n.

    Args:
        op: as in :class:`WarpAccess`.
        width: bytes per lane.
        addresses: byte addresses, N x 32 (N x 8, 16 or 32 rows for the matrix operations).
        masks: N lane masks; all lanes are active without it.
        machine: whose constants to use.

    Raises:
        RangeError: as :class:`WarpAccess`, naming the first access at fault and its lanes.

    >>> import numpy as np
    >>> strides = np.array([[4], [8], [128]])
    >>> simulate_many("st.shared", 4, addresses=strides * np.arange(32)).wavefronts.tolist()
    [1, 2, 32]
    """
    target = machine if isinstance(machine, Machine) else machine_of(machine)
    check_instruction(op, width)
    table = _integers(addresses, "addresses")
    if table.ndim != 2:
        raise RangeError(f"addresses must be a table of accesses x lanes, not {table.ndim}-dimensional")
    check_count(op, table.shape[1])
    active = _active(op, masks, table.shape)
    _check(op, width, table, active)
    # Narrower keys sort about twice as fast.
    if table.size and int(table.max()) < 2**31:
        table = table.astype(np.int32)
    if op in GLOBAL_OPS:
        cost, ideal, degree = _sectors(table, active, width=width, machine=target)
        measured = target.measured and (op, width) in MEASURED_GLOBAL
    else:
        cost, ideal, degree = _wavefronts(op, width, table=table, active=active, machine=target)
        measured = target.measured
    for array in (cost, ideal, degree):
        array.setflags(write=False)
    return BatchReport(op, width, cost, ideal, degree, measured)


def _integers(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise RangeError(f"{what} must be integers, not {array.dtype}")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >> 63:
        raise RangeError(f"{what}: a value does not fit 63 bits")
    return array.astype(np.int64)


def _active(op: str, masks: npt.ArrayLike | None, shape: tuple[int, ...]) -> Bools | None:
    if masks is None:
        return None
    values = _integers(masks, "masks")
    if values.shape != shape[:1]:
        raise RangeError(f"masks must be one per access, {shape[0]}, not of shape {values.shape}")
    if (values == FULL_MASK).all():
        return None
    for mask in np.unique(values) if op in MATRIX_OPS else (values.min(), values.max()):
        check_mask(op, int(mask))
    lanes: Bools = (values[:, None] >> np.arange(shape[1])) & 1 == 1
    return lanes


def _check(op: str, width: int, table: Ints, active: Bools | None) -> None:
    wrong = (table & (width - 1) != 0) | (table < 0)
    if active is not None:
        wrong &= active
    if not wrong.any():
        return
    first = int(np.flatnonzero(wrong.any(axis=1))[0])
    lanes = np.flatnonzero(wrong[first]).tolist()
    raise RangeError(
        f"access {first}: {op} of {width} bytes: {name_lanes(lanes)} misaligned or negative "
        f"(lane {lanes[0]} at byte {table[first, lanes[0]]}); every address must be a multiple of {width}",
        access=first,
        lanes=tuple(lanes),
    )


def _merging(op: str, width: int, *, table: npt.NDArray[Any], active: Bools | None) -> Bools:
    """Which accesses are served in groups of twice the size: judged over the whole warp."""
    merging: Bools = np.zeros(len(table), dtype=bool)
    if op != "ld.shared" or width < 8:
        return merging
    lanes = np.arange(32)
    for step in (1, 2):
        low = lanes[lanes & step == 0]
        same = table[:, low] == table[:, low ^ step]
        if active is not None:
            same |= ~(active[:, low] & active[:, low ^ step])
        merging |= same.all(axis=1)
    return merging


def _wavefronts(
    op: str, width: int, *, table: npt.NDArray[Any], active: Bools | None, machine: Machine
) -> tuple[Ints, Ints, Ints]:
    unit = max(width, machine.bank_bytes)
    size = min(machine.lanes * machine.bank_bytes // unit, machine.lanes)
    units = table >> (unit.bit_length() - 1)
    merging = _merging(op, width, table=table, active=active)
    cost, ideal, degree = (np.zeros(len(table), dtype=np.int64) for _ in range(3))
    for rows, lanes in ((~merging, size), (merging, 2 * size)):
        if not rows.any():
            continue
        everything = bool(rows.all())
        part = units if everything else units[rows]
        part_active = active if active is None or everything else active[rows]
        most, used = _groups(part, part_active, lanes=lanes, banks=machine.banks * machine.bank_bytes // unit)
        cost[rows], ideal[rows], degree[rows] = most.sum(axis=1), used.sum(axis=1), most.max(axis=1)
    return cost, ideal, degree


def _groups(units: npt.NDArray[Any], active: Bools | None, *, lanes: int, banks: int) -> tuple[Ints, Bools]:
    """Per access and group: the most distinct units in one bank, and whether any lane is active."""
    shape = (units.shape[0], units.shape[1] // lanes)
    rows = np.sort((units if active is None else np.where(active, units, -1)).reshape(-1, lanes), axis=1)
    fresh = rows >= 0
    fresh[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    keys = (rows & (banks - 1)) + banks * np.arange(len(rows), dtype=np.int64)[:, None]
    counts = np.bincount(keys[fresh], minlength=banks * len(rows)).reshape(-1, banks)
    most: Ints = counts.max(axis=1).reshape(shape).astype(np.int64)
    return most, most > 0


def _sectors(table: npt.NDArray[Any], active: Bools | None, *, width: int, machine: Machine) -> tuple[Ints, Ints, Ints]:
    rows = np.sort(table if active is None else np.where(active, table, -1), axis=1)
    used = rows >= 0
    sectors = rows // machine.sector_bytes

    def distinct(values: npt.NDArray[Any]) -> Ints:
        fresh = used.copy()
        fresh[:, 1:] &= values[:, 1:] != values[:, :-1]
        counts: Ints = fresh.sum(axis=1)
        return counts

    ideal = -(-distinct(rows) * width // machine.sector_bytes)
    return distinct(sectors), ideal, np.zeros(len(table), dtype=np.int64)
