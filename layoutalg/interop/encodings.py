"""Triton's encodings as users write them: blocked, slice, MMA, dot operand, linear, swizzled shared memory.

An encoding and a shape give the bases of a linear layout (:mod:`layoutalg.interop.triton`), hence a layout:

>>> frag = from_encoding("#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 1], "
...     "instrShape = [16, 8]}>", (16, 8))
>>> print(frag.canonicalize())
S[(2,32,2):(2,1@laneid,1)]

Texts are those of TTGIR; the layout objects of Gluon are read by their fields, without importing Triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from layoutalg.errors import LayoutError, NotExpressibleError, RegionError
from layoutalg.interop.triton import from_linear, to_linear
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = [
    "Blocked", "DotOperand", "Encoding", "Linear", "NvidiaMma", "NvmmaShared", "Slice", "SwizzledShared", "bases_of",
    "from_encoding", "to_blocked",
]  # fmt: skip

Ints: TypeAlias = tuple[int, ...]
Bases: TypeAlias = dict[str, list[Ints]]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Elements, threads and warps tile the tensor one after another, fastest dimension first in ``order``."""

    size_per_thread: Ints
    threads_per_warp: Ints
    warps_per_cta: Ints
    order: Ints


@dataclass(frozen=True, slots=True)
class Slice:
    """``parent`` with one dimension gone: who held any of its elements holds the result."""

    dim: int
    parent: Encoding


@dataclass(frozen=True, slots=True)
class NvidiaMma:
    """The accumulator of ``mma`` (version 2) or ``wgmma`` (version 3); ``instr_shape`` is (m, n) or (m, n, k)."""

    version: int
    warps_per_cta: Ints
    instr_shape: Ints


@dataclass(frozen=True, slots=True)
class DotOperand:
    """Operand 0 or 1 of an MMA in registers; ``k_width`` neighbouring elements of k share a register."""

    operand: int
    parent: NvidiaMma
    k_width: int


@dataclass(frozen=True, slots=True)
class SwizzledShared:
    """Shared memory whose vectors of ``vec`` elements are xored with the row over ``per_phase``, mod ``max_phase``."""

    vec: int
    per_phase: int
    max_phase: int
    order: Ints


@dataclass(frozen=True, slots=True)
class NvmmaShared:
    """Shared memory as TMA writes and MMA reads it; ``swizzle_bytes`` is 0, 32, 64 or 128."""

    swizzle_bytes: int
    element_bits: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """Bases given outright: pairs of a hardware name and its coordinates."""

    bases: tuple[tuple[str, tuple[Ints, ...]], ...]


Encoding: TypeAlias = Blocked | Slice | NvidiaMma | DotOperand | SwizzledShared | NvmmaShared | Linear


def from_encoding(encoding: Any, shape: Sequence[int]) -> TileLayout | SwizzledLayout:
    """Return the layout of a tensor in an encoding: registers and offsets on ``m``, lanes, warps.

    Args:
        encoding: a value of this module, a text of TTGIR, or a layout object of Gluon.
        shape: the tensor's extents, powers of two.

    Raises:
        NotationError: a malformed text.
        LayoutError: an unknown kind, or fields that do not fit together or the shape.
        NotExpressibleError: the bases are no layout of ours, see :func:`layoutalg.interop.triton.from_linear`.

    >>> print(from_encoding(Blocked((1, 4), (8, 4), (4, 1), (1, 0)), (32, 16)).canonicalize())
    S[(4,32,4):(1@warpid,1@laneid,1)]
    """
    return from_linear(bases_of(encoding, shape), shape)


def bases_of(encoding: Any, shape: Sequence[int]) -> Bases:
    """Return what Triton's ``to_linear_layout`` returns: for each hardware name, a coordinate per bit.

    >>> bases_of(SwizzledShared(2, 1, 2, (1, 0)), (4, 4))["offset"]
    [(0, 1), (0, 2), (1, 2), (2, 0)]
    """
    from layoutalg.interop.encoding_text import read_encoding

    known, extents = read_encoding(encoding), tuple(shape)
    if any(extent < 1 or extent & (extent - 1) for extent in extents):
        raise RegionError(f"Triton's tensors have powers of two for extents, not {extents}")
    if isinstance(known, Linear):
        return {name: list(rows) for name, rows in known.bases}
    if isinstance(known, Slice):
        return _slice(known, extents)
    if isinstance(known, SwizzledShared):
        return {"offset": _swizzled_shared(known, extents)}
    if isinstance(known, NvmmaShared):
        return {"offset": _nvmma_shared(known, extents)}
    found = _fitted(*_distributed(known, len(extents)), extents)
    if isinstance(known, Blocked):
        found["register"] = [basis for basis in found["register"] if any(basis)]
    return found


def _log2(number: int) -> int:
    if number < 1 or number & (number - 1):
        raise LayoutError(f"Triton's encodings are made of powers of two, not {number}")
    return number.bit_length() - 1


def _distributed(encoding: Blocked | NvidiaMma | DotOperand, rank: int) -> tuple[Bases, Ints]:
    """Return one tile's bases, and the order in which registers repeat it."""
    builder = _Tile(rank)
    if isinstance(encoding, Blocked):
        parts = encoding.size_per_thread, encoding.threads_per_warp, encoding.warps_per_cta
        if any(len(part) != rank for part in (*parts, encoding.order)) or sorted(encoding.order) != list(range(rank)):
            raise RegionError(f"{encoding} does not describe a tensor of {rank} dimensions")
        for name, extents in zip(("register", "lane", "warp"), parts, strict=True):
            for dim in encoding.order:
                builder.grow(name, dim, extents[dim])
        return builder.bases, encoding.order
    mma = encoding if isinstance(encoding, NvidiaMma) else encoding.parent
    if rank != 2 or len(mma.warps_per_cta) != 2 or mma.version not in (2, 3) or mma.instr_shape[0] != 16:
        raise NotExpressibleError(f"of MMA layouts, 16 rows in two dimensions of version 2 or 3 are known, not {mma}")
    free: Ints
    if isinstance(encoding, NvidiaMma):
        inner, width, tile, free = 1, 2, (16, mma.instr_shape[1]), (0, 1)
    elif encoding.operand == 0:
        inner, width, tile, free = 1, encoding.k_width, (16, encoding.k_width * 8), (0,)
    elif encoding.operand == 1 and mma.version == 2:
        inner, width, tile, free = 0, encoding.k_width, (encoding.k_width * 8, 8), (1,)
    else:
        raise NotExpressibleError(f"operand {encoding.operand} of MMA version {mma.version} is not held in registers")
    outer = 1 - inner
    builder.grow("register", inner, width)
    builder.grow("lane", inner, 4)
    builder.grow("lane", outer, 8)
    builder.grow("register", outer, tile[outer] // 8)
    builder.grow("register", inner, tile[inner] // (4 * width))
    for dim in (1, 0) if mma.version == 2 else (0, 1):
        builder.grow("warp", dim, mma.warps_per_cta[dim], moves=dim in free)
    return builder.bases, (inner, outer)


class _Tile:
    """Bases that grow a tile, each new bit beyond what the tile already spans."""

    def __init__(self, rank: int) -> None:
        self.bases: Bases = {"register": [], "lane": [], "warp": []}
        self.span = [1] * rank

    def grow(self, name: str, dim: int, extent: int, *, moves: bool = True) -> None:
        for _ in range(_log2(extent)):
            self.bases[name].append(tuple(self.span[d] if moves and d == dim else 0 for d in range(len(self.span))))
            if moves:
                self.span[dim] *= 2


def _fitted(bases: Bases, repeat: Ints, shape: Ints) -> Bases:
    """Bits that leave the shape hold copies; registers repeat a tile that is smaller than it."""
    rank = len(shape)

    def kept(basis: Ints) -> Ints:
        return basis if all(x < extent for x, extent in zip(basis, shape, strict=True)) else (0,) * rank

    cut = {name: [kept(basis) for basis in rows] for name, rows in bases.items()}
    span = [1] * rank
    for basis in itertools.chain(*cut.values()):
        span = [max(s, 2 * x) for s, x in zip(span, basis, strict=True)]
    for dim in repeat:
        while span[dim] < shape[dim]:
            cut["register"].append(tuple(span[dim] if d == dim else 0 for d in range(rank)))
            span[dim] *= 2
    return cut


def _slice(encoding: Slice, shape: Ints) -> Bases:
    """Drop a coordinate; registers that then hold nothing new are dropped, lanes and warps become copies."""
    if not 0 <= encoding.dim <= len(shape):
        raise RegionError(f"slice dimension {encoding.dim} of a tensor of {len(shape) + 1} dimensions")
    whole = (*shape[: encoding.dim], 1, *shape[encoding.dim :])
    found = bases_of(encoding.parent, whole)
    kept = {name: [(*b[: encoding.dim], *b[encoding.dim + 1 :]) for b in rows] for name, rows in found.items()}
    kept["register"] = [basis for basis in kept.get("register", []) if any(basis)]
    return kept


def _swizzled_shared(encoding: SwizzledShared, shape: Ints) -> list[Ints]:
    rank = len(shape)
    if sorted(encoding.order) != list(range(rank)):
        raise RegionError(f"{encoding} does not describe a tensor of {rank} dimensions")
    column = encoding.order[0]
    rows: list[Ints] = [_unit(rank, {column: 1 << k}) for k in range(_log2(shape[column]))]
    for place, dim in enumerate(encoding.order[1:]):
        for k in range(_log2(shape[dim])):
            phase = ((1 << k) // encoding.per_phase) % encoding.max_phase if place == 0 else 0
            rows.append(_unit(rank, {dim: 1 << k, column: encoding.vec * phase % shape[column]}))
    return rows


def _nvmma_shared(encoding: NvmmaShared, shape: Ints) -> list[Ints]:
    """8 rows of ``swizzle_bytes`` are the pattern; boxes of at most 256 a side repeat it, rows before columns."""
    rank = len(shape)
    if encoding.swizzle_bytes not in (0, 32, 64, 128):
        raise LayoutError(f"the swizzle spans 0, 32, 64 or 128 bytes, not {encoding.swizzle_bytes}")
    if encoding.transposed and rank != 2:
        raise NotExpressibleError(f"transposed shared memory is known in two dimensions, not in {rank}")
    # A transposed layout stores the first dimension contiguously; dims[-1] is the contiguous one.
    dims = (*range(1, rank), 0) if encoding.transposed else tuple(range(rank))
    box = [min(shape[dim], 256) for dim in dims]
    pattern = encoding.swizzle_bytes * 8 // encoding.element_bits
    if pattern:
        rows, box[-1] = math.prod(box[:-1]), min(box[-1], pattern)
        if rank < 2 or rows < 8 or box[-1] < pattern:
            raise LayoutError(f"{encoding} needs 8 rows of {pattern} elements, the tensor is {shape}")
    span, found = [1] * rank, []
    per_phase, vec = (128 // encoding.swizzle_bytes, 128 // encoding.element_bits) if pattern else (1, 0)
    row = 1
    for place in (rank - 1, *range(rank - 2, -1, -1)):
        while span[place] < box[place]:
            phase = row // per_phase * vec if place != rank - 1 and row < 8 else 0
            found.append(_unit(rank, {dims[place]: span[place], **({dims[-1]: phase} if phase else {})}))
            span[place] *= 2
            row *= 2 if place != rank - 1 else 1
    for dim in range(rank) if pattern else range(rank - 1, -1, -1):
        place = dims.index(dim)
        while span[place] < shape[dim]:
            found.append(_unit(rank, {dims[place]: span[place]}))
            span[place] *= 2
    return found


def _unit(rank: int, values: Mapping[int, int]) -> Ints:
    return tuple(values.get(dim, 0) for dim in range(rank))


def to_blocked(layout: TileLayout, shape: Sequence[int]) -> Blocked:
    """Return a blocked encoding with exactly this layout, as few registers per thread as possible.

    Raises:
        NotExpressibleError: no blocked encoding has it (an MMA fragment, replicas, swizzled storage).

    >>> to_blocked(TileLayout.parse("S[(4,32,4):(1@warpid,1@laneid,1)]"), (32, 16))
    Blocked(size_per_thread=(1, 4), threads_per_warp=(8, 4), warps_per_cta=(4, 1), order=(1, 0))
    """
    names = {"m": "register", "laneid": "lane", "warpid": "warp"}
    found = to_linear(layout, shape)
    bases = {"register": [], "lane": [], "warp": [], **{names.get(axis, axis): rows for axis, rows in found.items()}}
    foreign = set(bases) - set(names.values())
    if not foreign and all(any(basis) for rows in bases.values() for basis in rows):
        for kept in range(len(bases["register"]) + 1):
            counts = [_counts(rows, len(shape)) for rows in (bases["register"][:kept], bases["lane"], bases["warp"])]
            for order in itertools.permutations(reversed(range(len(shape)))):
                candidate = Blocked(counts[0], counts[1], counts[2], order)
                if bases_of(candidate, shape) == bases:
                    return candidate
    raise NotExpressibleError(f"to_blocked: {layout} over {tuple(shape)} is no blocked encoding; to_linear says it")


def _counts(rows: Sequence[Ints], rank: int) -> Ints:
    return tuple(1 << sum(bool(basis[dim]) for basis in rows) for dim in range(rank))
