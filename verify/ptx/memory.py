"""State spaces: buffers of the caller, variables of the module, and the bytes and records behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.domain_numpy import UNSIGNED
from verify.ptx.errors import PtxError
from verify.ptx.launch import Launch
from verify.ptx.ops_integer import WINDOWS
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program
from verify.ptx.shadow import Shadow
from verify.ptx.tree import Variable

__all__ = ["Buffer", "Memory", "Place", "Region"]

Array = NDArray[Any]

_PAD = 32
_MODES = ("r", "w", "rw")
_MODULE_BASE = 0x0000_6000_0000_0000
_STRIDE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Global memory that the caller hands to a kernel.

    Attributes:
        data: its contents, copied before use; any dtype and shape, in C order.
        mode: ``r`` (a write is a finding), ``w`` (contents are undefined until written) or ``rw``.
        base: its address; ``None`` lets the run choose one.
        name: for messages.
    """

    data: Array
    mode: str = "r"
    base: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise PtxError(f"buffer mode {self.mode!r} is none of {', '.join(_MODES)}")
        if self.base is not None and not 0 < self.base < 1 << 46:
            raise PtxError(f"buffer base {self.base:#x} is not an address below 2^46")


class Region:
    """Contiguous addresses of one space: a buffer, or one variable with a copy (row) per block or thread.

    Attributes:
        base: address of its first byte.
        size: bytes that may be accessed.
        stride: bytes from one row to the next.
    """

    def __init__(self, name: str, base: int, data: NDArray[np.uint8], *, rows: int = 1, mode: str = "rw") -> None:
        self.name, self.base, self.size, self.mode, self.rows = name, base, len(data), mode, rows
        self.stride = -(-self.size // _PAD) * _PAD
        self.bytes: NDArray[np.uint8] = np.zeros(rows * self.stride, dtype=np.uint8)
        self.bytes.reshape(rows, self.stride)[:, : self.size] = data
        self.shadow: Shadow | None = None
        self.granule = 1

    def watch(self, granule: int, padded: int, *, defined: bool) -> None:
        """Keep records for every ``granule`` bytes."""
        self.granule = granule
        self.shadow = Shadow(len(self.bytes) // granule, padded, defined=defined)

    def cells(self, positions: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """The record cells of ``size`` bytes from each byte position, lanes x cells."""
        first = positions // self.granule
        return first[:, None] + np.arange(size // self.granule)

    def gather(self, positions: NDArray[np.int64], width: int) -> Array:
        """Elements of ``width`` bits, little-endian."""
        size = width // 8
        if self.base % size == 0:
            return self.bytes.view(UNSIGNED[width])[positions // size]
        value = np.zeros(len(positions), dtype=UNSIGNED[width])
        for index in range(size):
            value |= self.bytes[positions + index].astype(UNSIGNED[width]) << UNSIGNED[width](8 * index)
        return value

    def scatter(self, positions: NDArray[np.int64], values: Array, width: int) -> None:
        """Store elements of ``width`` bits."""
        size = width // 8
        if self.base % size == 0:
            self.bytes.view(UNSIGNED[width])[positions // size] = values
            return
        for index in range(size):
            self.bytes[positions + index] = (values >> UNSIGNED[width](8 * index)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Place:
    """A region with the part of the lanes that access it: ``rows`` of the access, and byte positions."""

    region: Region
    rows: NDArray[np.int64] | slice
    positions: NDArray[np.int64]


class Memory:
    """All regions of a launch; those of shared and local memory are renewed for every group of blocks."""

    def __init__(self, program: Program, launch: Launch, *, dynamic_shared: int, skew: int) -> None:
        self.program, self.launch, self.skew = program, launch, skew
        self.dynamic_shared = dynamic_shared
        self.spaces: dict[str, list[Region]] = {"global": [], "const": [], "shared": [], "local": []}
        self.addresses: dict[str, int] = {}
        self.granules = {"global": 1, "shared": 1}
        self.shared_bytes = self._lay_out_shared()
        self._place_module_variables()

    # --- layout -----------------------------------------------------------------------------------------------

    def _lay_out_shared(self) -> int:
        """Give every variable of shared and local memory an address that has no more than the declared alignment.

        Variables lie a mebibyte apart, so that running off one never lands in another.
        """
        total = 0
        for space in ("shared", "local"):
            number = 0
            for variable in self.program.variables:
                if variable.space != space:
                    continue
                number += 1
                self.addresses[variable.name] = number * _STRIDE + _alignment(variable) * self.skew
                total += self._size(variable) if space == "shared" else 0
        opened = [variable for variable in self.program.variables if variable.count is None]
        if len(opened) > 1:
            raise PtxError("several arrays of dynamic shared memory start at one address", file=self.program.file)
        if self.dynamic_shared and not opened:
            raise PtxError(f"{self.program.name} has no dynamic shared memory", file=self.program.file)
        if total > 227 * 1024:
            raise PtxError(f"{total} bytes of shared memory are more than a block can have", file=self.program.file)
        return total

    def _size(self, variable: Variable) -> int:
        return self.dynamic_shared if variable.count is None else variable.count * WIDTHS[variable.type] // 8

    def _place_module_variables(self) -> None:
        number = 0
        for variable in self.program.variables:
            if variable.space not in ("global", "const"):
                continue
            number += 1
            size = WIDTHS[variable.type] // 8
            values = np.zeros(variable.count or 0, dtype=UNSIGNED[8 * size])
            values[: len(variable.init or ())] = variable.init or ()
            base = _MODULE_BASE + (number << 32) + _alignment(variable) * self.skew
            self.addresses[variable.name] = base
            self.spaces[variable.space].append(Region(variable.name, base, values.view(np.uint8), mode="r"))

    def add_buffer(self, buffer: Buffer, number: int) -> Region:
        """Place a buffer of the caller."""
        data = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
        base = buffer.base if buffer.base is not None else (number + 1) << 36
        region = Region(buffer.name or f"buffer {number}", base, data, mode=buffer.mode)
        if region.mode == "w":
            region.bytes[:] = 0xCD
        for other in self.spaces["global"]:
            if base < other.base + other.size and other.base < base + region.size:
                raise PtxError(f"{region.name} and {other.name} overlap at {max(base, other.base):#x}")
        if region.mode != "r":
            granule = min(self.granules["global"], base & -base)
            region.watch(granule, self.launch.padded, defined=region.mode == "rw")
        self.spaces["global"].append(region)
        return region

    def renew(self, blocks: int, lanes: int) -> None:
        """Fresh shared and local memory for a group of blocks."""
        for space, rows in (("shared", blocks), ("local", lanes)):
            self.spaces[space] = []
            for variable in self.program.variables:
                if variable.space != space or not self._size(variable):
                    continue
                data = np.zeros(self._size(variable), dtype=np.uint8)
                region = Region(variable.name, self.addresses[variable.name], data, rows=rows)
                granule = self.granules["shared"] if space == "shared" else 1
                region.watch(min(granule, region.base & -region.base), self.launch.padded, defined=False)
                self.spaces[space].append(region)

    # --- addresses --------------------------------------------------------------------------------------------

    def symbol(self, name: str, offset: int) -> int:
        """The address of a variable, plus bytes."""
        return self.addresses[name] + offset

    def places(
        self, space: str, addresses: NDArray[np.uint64], size: int, row: dict[str, NDArray[np.int64]]
    ) -> tuple[list[Place], int]:
        """Where each address leads: the parts of the access by region, and the first row that leads nowhere or -1.

        Args:
            space: state space; ```` resolves generic addresses.
            size: bytes per lane.
            row: per space, the row of a region that each lane uses.
        """
        found: list[Place] = []
        left = np.ones(len(addresses), dtype=bool)
        for name in (space,) if space else ("global", "const", "shared", "local"):
            window = 0 if space else WINDOWS[name]
            for region in self.spaces[name]:
                offsets = addresses - np.uint64(window + region.base)
                inside = offsets < np.uint64(max(region.size - size + 1, 0))
                if inside.all():
                    return [_place(region, slice(None), offsets, row.get(name))], -1
                if inside.any():
                    rows = np.flatnonzero(inside)
                    found.append(_place(region, rows, offsets[rows], row.get(name)))
                    left &= ~inside
        return found, int(np.argmax(left)) if left.any() else -1

    def nearest(self, space: str, address: int) -> str:
        """The region that an address out of bounds most likely meant, in words."""
        names = (space,) if space else ("global", "const", "shared", "local")
        candidates = [
            (abs(address - WINDOWS[name] * (not space) - region.base), name, region)
            for name in names
            for region in self.spaces[name]
        ]
        if not candidates:
            return "there is no such memory"
        _, name, region = min(candidates, key=lambda candidate: candidate[0])
        offset = address - WINDOWS[name] * (not space) - region.base
        return f"byte {offset} of {region.name}, which has {region.size}"


def _place(
    region: Region, rows: NDArray[np.int64] | slice, offsets: NDArray[np.uint64], copies: NDArray[np.int64] | None
) -> Place:
    positions = offsets.astype(np.int64)
    if copies is not None:
        positions += copies[rows] * region.stride
    return Place(region, rows, positions)


def _alignment(variable: Variable) -> int:
    return max(variable.align, WIDTHS[variable.type] // 8)
