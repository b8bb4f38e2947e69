"""Which storage of a tile serves all its accesses with the fewest wavefronts.

Every candidate layout is priced by the exact simulator against every access.  Candidates are the row-major tile as it
is, all XOR swizzles that reach the banks, all row paddings up to one row of banks, 32-, 64- and 128-byte column pages
under the tensor-memory-accelerator (TMA) modes, and linear maps of address bits found by search.  The lower bound
holds for every layout whatsoever, so a candidate that meets it is optimal, and the result says so; otherwise it is
the best of those searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layoutalg.banks.access import MATRIX_OPS, SHARED_OPS
from layoutalg.banks.fragment import Holding, holding_of
from layoutalg.banks.instructions import Instructions, instructions_of
from layoutalg.banks.many import simulate_many
from layoutalg.errors import LayoutError, RangeError, RegionError
from layoutalg.f2 import F2Map
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.hardware.machine import DEFAULT_MACHINE, Machine
from layoutalg.hardware.machine import machine as machine_of
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Suggestion", "SwizzleSearch", "TileAccess", "suggest_swizzle"]

KINDS = ("plain", "swizzle", "padding", "pages", "gf2")
_SIMPLICITY = {"plain": 0, "swizzle": 1, "padding": 2, "pages": 2, "gf2": 3, "given": 1}
_TMA = {Swizzle(1, 4, 3): (32, "32B"), Swizzle(2, 4, 3): (64, "64B"), Swizzle(3, 4, 3): (128, "128B")}
_ROW_BYTES = 128

Layout = TileLayout | SwizzledLayout


@dataclass(frozen=True, slots=True)
class TileAccess:
    """One way in which a tile is read or written.

    Args:
        fragment: flat row-major index of the tile -> thread axes and slot.
        op: ``ld.shared``, ``st.shared``, ``ldmatrix`` or ``stmatrix``.
        vector: elements per lane and instruction; the widest that the layout permits when left out.
        times: how often the access happens for each time the others do.
        name: a label for reports.
    """

    fragment: TileLayout
    op: str = "ld.shared"
    vector: int | None = None
    times: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        if self.op not in SHARED_OPS and self.op not in MATRIX_OPS:
            raise RangeError(f"a tile in shared memory is accessed by ld, st, ldmatrix or stmatrix, not {self.op}")
        if self.times < 1:
            raise RangeError(f"times is {self.times}; an access happens at least once")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A layout for the tile, and what the accesses cost with it.

    Args:
        kind: ``plain``, ``swizzle``, ``padding``, ``pages``, ``gf2`` or ``given``.
        layout: flat row-major index -> element offset.
        costs: wavefronts of each access, once.
        wavefronts: all accesses together, as often as they happen.
        excess: the part of ``wavefronts`` beyond the instructions' ideals.
        bytes_wasted: bytes of the layout's span that hold no element.
        alignment: bytes to which the tile's base must be aligned.
        tma: the tensor-memory-accelerator mode that writes the same layout, ``32B``, ``64B`` or ``128B``, else empty.
    """

    kind: str
    layout: Layout
    costs: tuple[int, ...]
    wavefronts: int
    excess: int
    bytes_wasted: int
    alignment: int
    tma: str

    @property
    def swizzle(self) -> Swizzle | F2Map | None:
        """The map of addresses, or None for a plain or padded tile."""
        return self.layout.swizzle if isinstance(self.layout, SwizzledLayout) else None

    def __str__(self) -> str:
        extra = f", wastes {self.bytes_wasted} B" if self.bytes_wasted else ""
        tma = f", TMA {self.tma}" if self.tma else ""
        return (
            f"{self.wavefronts} wavefronts ({self.excess} conflicts): {self.kind} {self.layout}, "
            f"base aligned to {self.alignment} B{extra}{tma}"
        )


@dataclass(frozen=True, slots=True)
class SwizzleSearch:
    """The outcome of a search: candidates, best first, and how good the best is.

    Args:
        ranked: by wavefronts, then simplicity, then bytes wasted.
        bound: wavefronts that no layout of the tile can go below.
        refused: candidates that cannot serve some access, with the reason.
    """

    ranked: tuple[Suggestion, ...]
    bound: int
    refused: tuple[tuple[str, str], ...]

    @property
    def best(self) -> Suggestion:
        """The first of the ranking."""
        return self.ranked[0]

    @property
    def optimal(self) -> bool:
        """Whether the best meets the lower bound, which proves that nothing is better."""
        return self.best.wavefronts == self.bound

    def of_kind(self, kind: str) -> Suggestion:
        """The best candidate of one kind.

        Raises:
            RangeError: none of that kind serves all accesses.
        """
        for one in self.ranked:
            if one.kind == kind:
                return one
        raise RangeError(f"no candidate of kind {kind!r} serves all accesses; kinds: {', '.join(KINDS)}")

    def __str__(self) -> str:
        how = (
            "equals the lower bound, so no layout is better"
            if self.optimal
            else f"the best of {len(self.ranked)} layouts searched; the lower bound is {self.bound}"
        )
        return f"{self.best}\n  {how}"


def suggest_swizzle(
    tile_shape: Sequence[int],
    dtype: Dtype | str,
    accesses: Sequence[TileAccess],
    *,
    candidates: Sequence[str | Swizzle | F2Map | Layout] = KINDS,
    machine: Machine | str = DEFAULT_MACHINE,
) -> SwizzleSearch:
    """Find the cheapest storage of a tile for everything that is done to it.

    Args:
        tile_shape: extents, outermost first, in elements; rows are the last dimension.
        dtype: element type.
        accesses: all accesses to the tile: the fragment that writes it, those that read it, matrix loads.
        candidates: kinds to search (``plain swizzle padding pages gf2``), or maps and layouts of one's own.
        machine: whose constants to use.

    Raises:
        RangeError: no accesses, an unknown kind, or no candidate that serves all accesses.
        RegionError: a fragment of another size than the tile.

    A float tile written by rows and read by columns, one element at a time: one swizzle frees both.

    >>> rows = TileAccess(TileLayout.parse("S[(32,32):(1,1@laneid)]"), op="st.shared")
    >>> columns = TileAccess(TileLayout.parse("S[(32,32):(1@laneid,1)]"), vector=1)
    >>> print(suggest_swizzle((32, 32), "f32", [rows, columns]))
    64 wavefronts (0 conflicts): swizzle Sw<5,0,5> o S[(32,32):(32,1)], base aligned to 4096 B
      equals the lower bound, so no layout is better
    """
    tile = _Tile(tile_shape, dtype_of(dtype), tuple(accesses), machine_of(machine))
    found: list[Suggestion] = []
    refused: list[tuple[str, str]] = []
    for kind, layout in _candidates(tile, candidates):
        try:
            found.append(tile.price(kind, layout))
        except LayoutError as error:
            refused.append((str(layout), str(error)))
    if not found:
        raise RangeError(
            f"no candidate serves all accesses; {refused[0][0]}: {refused[0][1]}" if refused else "no candidates"
        )
    return SwizzleSearch(tuple(sorted(found, key=_rank)), tile.bound(), tuple(refused))


def _rank(one: Suggestion) -> tuple[int, ...]:
    swizzle = one.swizzle
    shape = (swizzle.bits, swizzle.shift, swizzle.base) if isinstance(swizzle, Swizzle) else (0, 0, 0)
    return (one.wavefronts, _SIMPLICITY[one.kind], one.bytes_wasted, not one.tma, *shape)


class _Tile:
    """A tile and its accesses, priced layout by layout."""

    def __init__(self, shape: Sequence[int], dtype: Dtype, accesses: tuple[TileAccess, ...], machine: Machine) -> None:
        if not accesses:
            raise RangeError("suggest_swizzle needs the accesses that the tile must serve")
        if not shape or any(type(extent) is not int or extent < 1 for extent in shape):
            raise RangeError(f"tile_shape {tuple(shape)} must be positive ints")
        self.dtype, self.accesses, self.machine = dtype, accesses, machine
        self.columns = shape[-1]
        self.rows = math.prod(shape[:-1])
        self.size = self.rows * self.columns
        self.holdings: list[Holding] = []
        for access in accesses:
            if access.fragment.size != self.size:
                raise RegionError(
                    f"fragment {access.fragment} has {access.fragment.size} elements, the tile {self.size}"
                )
            self.holdings.append(holding_of(access.fragment))

    @property
    def plain(self) -> TileLayout:
        return self.pitched(self.columns)

    def pitched(self, pitch: int) -> TileLayout:
        return TileLayout.from_iters(shard=[(self.rows, pitch, "m"), (self.columns, 1, "m")])

    def instructions(self, layout: Layout) -> list[Instructions]:
        return [
            instructions_of(layout, holding, self.dtype, op=access.op, vector=access.vector)[1]
            for access, holding in zip(self.accesses, self.holdings, strict=True)
        ]

    def price(self, kind: str, layout: Layout) -> Suggestion:
        costs, ideals, width = [], [], 1
        for found in self.instructions(layout):
            cost, ideal = _cost(found, self.machine)
            costs.append(cost)
            ideals.append(ideal)
            width = max(width, found.width)
        times = [access.times for access in self.accesses]
        total = _weighted(costs, times)
        aligned = layout.base_alignment(self.dtype) if isinstance(layout, SwizzledLayout) else 1
        return Suggestion(
            kind,
            layout,
            tuple(costs),
            total,
            total - _weighted(ideals, times),
            self._wasted(layout),
            math.lcm(aligned, width, 4),
            self._tma(layout),
        )

    def _wasted(self, layout: Layout) -> int:
        values = next(iter(layout.table().values()), None)
        span = 1 if values is None else int(values.max()) + 1
        return (span - self.size) * self.dtype.bits // 8

    def _tma(self, layout: Layout) -> str:
        """The mode whose box rows are this layout's rows (or pages), if there is one."""
        if not isinstance(layout, SwizzledLayout) or not isinstance(layout.swizzle, Swizzle):
            return ""
        try:
            row_bytes, name = _TMA[layout.swizzle.recast(self.dtype.bits, 8)]
        except (KeyError, LayoutError):
            return ""
        innermost = layout.inner.shard[-1].extent * self.dtype.bits // 8
        return name if innermost == row_bytes else ""

    def bound(self) -> int:
        """Wavefronts that no layout can go below: each brings 128 bytes, 16 to a lane; a pinned width stays pinned."""
        total = 0
        for access, holding in zip(self.accesses, self.holdings, strict=True):
            total += access.times * self._bound_of(access, holding)
        return total

    def _bound_of(self, access: TileAccess, holding: Holding) -> int:
        import numpy as np

        pinned = access.vector is not None or access.op in MATRIX_OPS
        total = 0
        for warp in holding.elements:
            held = np.unique(warp[warp >= 0]).size * self.dtype.bits
            wavefronts = -(-held // (8 * _ROW_BYTES))
            lanes = max(np.unique(lane[lane >= 0]).size for lane in warp.T) * self.dtype.bits
            wavefronts = max(wavefronts, -(-lanes // 128))
            total += max(wavefronts, self._pinned(access, warp)) if pinned else wavefronts
        return total

    def _pinned(self, access: TileAccess, warp: NDArray[np.int64]) -> int:
        """With the width fixed, every group of lanes that holds something costs a wavefront, copies merged."""
        if access.op in MATRIX_OPS:
            return int(warp.shape[0]) * self.dtype.bits // 32
        assert access.vector is not None
        width = access.vector * self.dtype.bits // 8
        # Groups merge at most pairwise.
        size = min(32, _ROW_BYTES // max(width, 4)) * (2 if width >= 8 and access.op == "ld.shared" else 1)
        size = min(32, size)
        active = (warp >= 0).reshape(warp.shape[0], -1, size).any(axis=2)
        return -(-int(active.sum()) // access.vector)


def _weighted(costs: Sequence[int], times: Sequence[int]) -> int:
    return sum(cost * often for cost, often in zip(costs, times, strict=True))


def _cost(found: Instructions, machine: Machine) -> tuple[int, int]:
    """Wavefronts and ideal of a list of instructions; lists of different length (matrices) are priced apart."""
    import numpy as np

    cost = ideal = 0
    lengths = {len(row) for row in found.addresses}
    for length in lengths:
        at = [k for k, row in enumerate(found.addresses) if len(row) == length]
        batch = simulate_many(
            found.op,
            found.width,
            addresses=np.stack([found.addresses[k] for k in at]),
            masks=[found.masks[k] for k in at],
            machine=machine,
        )
        cost, ideal = cost + int(batch.cost.sum()), ideal + int(batch.ideal.sum())
    return cost, ideal


def _candidates(tile: _Tile, wanted: Sequence[str | Swizzle | F2Map | Layout]) -> Iterator[tuple[str, Layout]]:
    makers = {"swizzle": _swizzles, "padding": _paddings, "pages": _pages, "gf2": _linear_maps}
    for one in wanted:
        if one == "plain":
            yield "plain", tile.plain
        elif isinstance(one, str):
            if one not in makers:
                raise RangeError(f"unknown kind of candidate {one!r}; kinds: {', '.join(KINDS)}")
            for layout in makers[one](tile):
                yield one, layout
        elif isinstance(one, (Swizzle, F2Map)):
            yield "given", SwizzledLayout(one, tile.plain)
        else:
            yield "given", one


def _bank_bits(tile: _Tile) -> int:
    """Bits of an element offset within one row of banks."""
    return (8 * _ROW_BYTES // tile.dtype.bits).bit_length() - 1


def _swizzles(tile: _Tile) -> Iterator[Layout]:
    """Every Swizzle that writes only bank bits and reads only bits of the tile."""
    if tile.dtype.bits & (tile.dtype.bits - 1):
        return
    top, reach = _bank_bits(tile), (tile.size - 1).bit_length()
    for base in range(top):
        for bits in range(1, top - base + 1):
            for shift in range(bits, reach - base - bits + 1):
                if base + shift + bits > top:
                    yield SwizzledLayout(Swizzle(bits, base, shift), tile.plain)


def _paddings(tile: _Tile) -> Iterator[Layout]:
    if tile.rows > 1:
        for extra in range(1, 8 * _ROW_BYTES // tile.dtype.bits + 1):
            yield tile.pitched(tile.columns + extra)


def _pages(tile: _Tile) -> Iterator[Layout]:
    """Rows longer than a TMA box row, cut into column pages that lie one after another."""
    for swizzle, (row_bytes, _) in _TMA.items():
        width = 8 * row_bytes // tile.dtype.bits
        if tile.columns > width and tile.columns % width == 0 and 8 * row_bytes % tile.dtype.bits == 0:
            shard = [(tile.rows, width, "m"), (tile.columns // width, tile.rows * width, "m"), (width, 1, "m")]
            try:
                recast = swizzle.recast(8, tile.dtype.bits)
            except LayoutError:
                continue
            yield SwizzledLayout(recast, TileLayout.from_iters(shard=shard))


def _linear_maps(tile: _Tile) -> Iterator[Layout]:
    from layoutalg.banks.linear_search import linear_maps

    if tile.size & (tile.size - 1) or tile.dtype.bits & (tile.dtype.bits - 1):
        return
    try:
        lists = tile.instructions(tile.plain)
    except LayoutError:
        return
    for found in linear_maps(lists, tile.dtype, bits=tile.size.bit_length() - 1):
        yield SwizzledLayout(found, tile.plain)
