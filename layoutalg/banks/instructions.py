"""From a tile and a fragment to the warp instructions that move one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layoutalg.axis import Axis
from layoutalg.banks.access import FULL_MASK, MATRIX_OPS, WIDTHS, WarpAccess, check_instruction, name_lanes
from layoutalg.banks.fragment import Holding, holding_of
from layoutalg.banks.matrix import matrix_rows
from layoutalg.errors import AxisError, RangeError, RegionError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["Instruction", "Instructions", "bit_positions", "instructions_of", "split_vectors"]

Ints = npt.NDArray[np.int64]
Groups = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of one warp: which slots it moves, and the access it makes."""

    warp: int
    registers: tuple[int, ...]
    op: str
    width: int
    addresses: tuple[int, ...]
    mask: int

    def access(self) -> WarpAccess:
        """The access, for :func:`layoutalg.banks.simulate`."""
        return WarpAccess(self.op, self.width, addresses=self.addresses, mask=self.mask)


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """A list of instructions as arrays, so that many can be priced at once.

    Args:
        dtype: element type.
        op: the operation.
        width: bytes that one address covers.
        warps: warp number per instruction.
        registers: slots per instruction, in memory order.
        addresses: byte addresses, instructions x addresses; 0 in idle lanes.
        masks: lane mask per instruction.
    """

    dtype: Dtype
    op: str
    width: int
    warps: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    addresses: tuple[Ints, ...]
    masks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.warps)

    def __iter__(self) -> Iterator[Instruction]:
        for at, warp in enumerate(self.warps):
            addresses = tuple(self.addresses[at].tolist())
            yield Instruction(warp, self.registers[at], self.op, self.width, addresses, self.masks[at])


def instructions_of(
    tile: TileLayout | SwizzledLayout,
    fragment: TileLayout | Holding,
    dtype: Dtype | str,
    *,
    op: str,
    vector: int | None = None,
    matrices: int | None = None,
    transpose: bool | None = None,
    base: int = 0,
) -> tuple[int, Instructions]:
    """Split a transfer into warp instructions: elements per address, and the list.

    See :func:`layoutalg.banks.report.shared_report` for the arguments and errors.

    >>> tile, frag = TileLayout.parse("S[64:1]"), TileLayout.parse("S[(32,2):(1@laneid,1)]")
    >>> vector, found = instructions_of(tile, frag, "f32", op="st.shared")
    >>> vector, found.width, found.registers
    (2, 8, ((0, 1),))
    """
    element = dtype_of(dtype)
    matrix = op in MATRIX_OPS
    check_instruction(op, 16 if matrix else 4)
    if not matrix and (matrices is not None or transpose is not None):
        raise RangeError(f"{op} moves no matrices; matrices= and transpose= belong to ldmatrix and stmatrix")
    if matrix and vector is not None:
        raise RangeError(f"{op} moves rows of 16 bytes; vector= belongs to ld and st, matrices= to {op}")
    holding = fragment if isinstance(fragment, Holding) else holding_of(fragment)
    positions = bit_positions(tile, holding, element, base=base, size=_size(fragment, tile))
    if matrix:
        lists = matrix_rows(positions, holding, element, op=op, matrices=matrices, transpose=transpose)
        return 128 // element.bits, Instructions(element, op, 16, *lists)
    width, groups = split_vectors(positions, holding, element, op=op, vector=vector)
    return 8 * width // element.bits, Instructions(element, op, width, *_lane_lists(positions, holding, groups))


def _size(fragment: TileLayout | Holding, tile: TileLayout | SwizzledLayout) -> int:
    size: int = tile.size if isinstance(fragment, Holding) else fragment.size
    return size


def bit_positions(tile: TileLayout | SwizzledLayout, holding: Holding, dtype: Dtype, *, base: int, size: int) -> Ints:
    """Where each held element starts in memory, in bits, by [warp, register, lane]; -1 in idle slots.

    Raises:
        RegionError: the tile has another size than the fragment.
        AxisError: the tile lives on no single memory axis.
        RangeError: the tile has replicas, reaches a negative address, or the base tears elements.
    """
    if tile.size != size:
        raise RegionError(f"the tile has {tile.size} elements, the fragment {size}; both index the same tensor")
    swizzled = isinstance(tile, SwizzledLayout)
    inner = tile.inner if isinstance(tile, SwizzledLayout) else tile
    if base < 0 or base * 8 % (dtype.bits if dtype.bits > 8 else 8):
        raise RangeError(f"base {base} is no address of a {dtype}", base=base)
    if inner.replica:
        raise RangeError(f"tile {tile} stores elements in several places; say which with .slice or drop the replica")
    tables = tile.table()
    if len(tables) > 1 or (not swizzled and any(Axis.get(name).kind != "memory" for name in tables)):
        raise AxisError(f"a tile's layout gives element offsets on one memory axis, not {', '.join(tables)}: {tile}")
    offsets = next(iter(tables.values())) if tables else np.zeros(size, np.int64)
    if not swizzled and offsets.min() < 0:
        raise RangeError(f"tile {tile} reaches element offset {int(offsets.min())}; offsets start at 0")
    bits = offsets * dtype.bits
    if base:
        bits += 8 * base
    held: Ints = bits[holding.elements]
    return held if holding.full else np.where(holding.elements >= 0, held, -1)


def split_vectors(
    positions: Ints, holding: Holding, dtype: Dtype, *, op: str, vector: int | None
) -> tuple[int, Groups]:
    """Access width in bytes, and the slots (by position in the list of slots) that each access covers.

    Raises:
        RangeError: ``vector`` is no legal width or no legal grouping, or no width packs elements to whole bytes.
    """
    if vector is not None:
        width, rest = divmod(vector * dtype.bits, 8)
        if rest or width not in WIDTHS:
            raise RangeError(
                f"{op}: {vector} elements of {dtype} make {vector * dtype.bits} bits; 1, 2, 4, 8 or 16 bytes move"
            )
        groups, why = _grouping(positions, holding, bits=dtype.bits, width=width)
        if why:
            raise RangeError(f"{op} of {vector} {dtype} per lane is not possible here: {why}", vector=vector)
        return width, groups
    why = f"no access width holds a whole number of {dtype.bits}-bit elements"
    for width in reversed(WIDTHS):
        if 8 * width % dtype.bits == 0:
            groups, why = _grouping(positions, holding, bits=dtype.bits, width=width)
            if not why:
                return width, groups
    raise RangeError(f"{op} cannot move {dtype}: {why}", dtype=dtype.name)


def _grouping(positions: Ints, holding: Holding, *, bits: int, width: int) -> tuple[Groups, str]:
    """Group slots so that each group is one aligned piece of memory in every lane; else say why not.

    Slots have static names, so their order within a group is free, but it must be the same in every lane.
    """
    size = 8 * width // bits
    slots = positions.shape[1]
    if size == 1:
        return [(slot,) for slot in range(slots)], ""
    if slots % size:
        return [], f"the fragment has {slots} slots, no multiple of {size}"
    active = positions >= 0
    left = np.ones(slots, dtype=bool)
    groups: Groups = []
    while left.any():
        counts = (active & left[:, None]).sum(axis=1)
        warp, lane = divmod(int(counts.argmax()), 32)
        mine = np.flatnonzero(active[warp, :, lane] & left)
        if not mine.size:
            break
        order = mine[np.argsort(positions[warp, mine, lane], kind="stable")]
        found = order[: len(order) - len(order) % size].reshape(-1, size)
        why = "" if len(order) % size == 0 else _short(holding, order, size=size)
        # One lane refutes most widths; only a width that suits it is asked of all.
        for part in (slice(warp, warp + 1), slice(None)) if not why else ():
            lanes = slice(lane, lane + 1) if part.stop is not None else slice(None)
            fault = _first_fault(positions[part, :, lanes], bits, width, groups=found)
            if fault is not None:
                why = _describe(fault, holding, found, warp=warp, lane=lane, single=part.stop is not None)
                break
        if why:
            return [], why
        groups.extend(tuple(group) for group in found.tolist())
        left[order] = False
    return sorted(groups, key=min), ""


def _short(holding: Holding, order: npt.NDArray[Any], *, size: int) -> str:
    return f"a lane holds {len(order)} elements in slots {_slots(holding, order)}, no multiple of {size}"


Fault = tuple[int, int, list[int], bool]


def _first_fault(positions: Ints, bits: int, width: int, *, groups: npt.NDArray[Any]) -> Fault | None:
    """The first group of slots that is no aligned piece of memory: warp, group, lanes, and whether it is in use."""
    size = groups.shape[1]
    places = positions[:, groups, :]
    active = places >= 0
    whole: npt.NDArray[np.bool_] = np.asarray(active.all(axis=2))
    first = places[:, :, :1, :]
    wanted = first + bits * np.arange(size)[:, None]
    good = (places == wanted).all(axis=2) & (first[:, :, 0, :] % (8 * width) == 0)
    wrong = np.where(whole, ~good, active.any(axis=2))
    if not wrong.any():
        return None
    warp, group, lane = (int(x) for x in np.argwhere(wrong)[0])
    return warp, group, np.flatnonzero(wrong[warp, group]).tolist(), bool(whole[warp, group, lane])


def _describe(fault: Fault, holding: Holding, groups: npt.NDArray[Any], *, warp: int, lane: int, single: bool) -> str:
    at, group, lanes, whole = fault
    reason = "are not neighbours in one aligned piece of memory" if whole else "are only partly in use"
    where = f"{name_lanes([lane] if single else lanes)} of warp {holding.warps[warp if single else at]}"
    return f"slots {_slots(holding, groups[group])} {reason} in {where}"


def _slots(holding: Holding, order: npt.NDArray[Any]) -> str:
    names = [str(holding.registers[int(at)]) for at in order]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _lane_lists(positions: Ints, holding: Holding, groups: Groups) -> tuple[Any, Any, Any, Any]:
    """The instruction lists of per-lane accesses, warp by warp."""
    starts = positions[:, [group[0] for group in groups], :]
    slots = [tuple(holding.registers[slot] for slot in group) for group in groups]
    if holding.full:
        count = len(holding.warps)
        warps = tuple(warp for warp in holding.warps for _ in groups)
        return warps, (*slots,) * count, tuple((starts >> 3).reshape(-1, 32)), (FULL_MASK,) * (count * len(groups))
    active = starts >= 0
    masks = (active.astype(np.int64) << np.arange(32)).sum(axis=2)
    used = [(w, g) for w in range(len(holding.warps)) for g in range(len(groups)) if masks[w, g]]
    return (
        tuple(holding.warps[w] for w, _ in used),
        tuple(slots[g] for _, g in used),
        tuple(np.where(active[w, g], starts[w, g] >> 3, 0) for w, g in used),
        tuple(int(masks[w, g]) for w, g in used),
    )
