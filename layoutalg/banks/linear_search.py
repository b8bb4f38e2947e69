"""Search for linear maps of address bits that free a list of accesses from bank conflicts.

Under a linear map A two lanes with row-major offsets x and y get the bank difference bank(A(x ^ y)), so a list of
accesses is free exactly when no difference d between two lanes served together has A(d) in another word of the same
bank.  Only the set of differences matters.

First come maps that only XOR high bits onto bank bits, ``A(h, low) = (h, low ^ T(h))``: one pattern T_j per high bit,
few bits first.  A difference is decided by the patterns up to its highest bit, so the search prunes early.  If that
fails, a common complement of the spans of the differences is the kernel of a bank map, which for two accesses always
exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from layoutalg.banks.instructions import Instructions
from layoutalg.errors import LayoutError
from layoutalg.f2 import F2Map, common_complement, complement
from layoutalg.hardware.dtypes import Dtype
from layoutalg.subspaces import rank, reduced

__all__ = ["linear_maps"]

Ints = npt.NDArray[np.int64]
_ROW_BITS = 8 * 128
_NODES = 20_000


def linear_maps(lists: Sequence[Instructions], dtype: Dtype, *, bits: int) -> Iterator[F2Map]:
    """Give linear maps of ``bits`` offset bits under which the accesses should be free of conflicts.

    Args:
        lists: the accesses, as instructions on the row-major tile (byte address = offset times element size).
        dtype: element type, a power of two wide.
        bits: address bits of the tile.
    """
    row = (_ROW_BITS // dtype.bits).bit_length() - 1
    widest = max((8 * max(found.width, 4) // dtype.bits for found in lists), default=1)
    keep = widest.bit_length() - 1
    if bits <= row or keep > row:
        return
    groups = [(differences(found, dtype), (8 * max(found.width, 4) // dtype.bits).bit_length() - 1) for found in lists]
    patterns = _patterns(groups, row=row, keep=keep, bits=bits)
    if patterns is not None:
        yield F2Map(tuple(1 << j if j < row else 1 << j | patterns[j - row] for j in range(bits)), bits)
        return
    general = _by_complement(groups, row=row, keep=keep, bits=bits)
    if general is not None:
        yield general


def differences(found: Instructions, dtype: Dtype) -> Ints:
    """All XORs of the element offsets of two lanes that one group serves, each once, 0 left out.

    Args:
        found: the instructions of one access.
        dtype: element type.
    """
    seen: set[int] = set()
    for one in found:
        offsets = np.array(one.addresses, np.int64) * 8 // dtype.bits
        active = np.array([one.mask >> lane & 1 == 1 for lane in range(len(offsets))])
        size = _group(one.op, one.width, offsets, active)
        for start in range(0, len(offsets), size):
            mine = offsets[start : start + size][active[start : start + size]]
            seen.update(np.unique(mine[:, None] ^ mine[None, :]).tolist())
    seen.discard(0)
    return np.array(sorted(seen), np.int64)


def _group(op: str, width: int, offsets: Ints, active: npt.NDArray[np.bool_]) -> int:
    size = min(32, 128 // max(width, 4))
    if op != "ld.shared" or width < 8:
        return size
    lanes = np.arange(32)
    for step in (1, 2):
        other = lanes ^ step
        if (~active | ~active[other] | (offsets == offsets[other])).all():
            return 2 * size
    return size


def _patterns(groups: Sequence[tuple[Ints, int]], *, row: int, keep: int, bits: int) -> list[int] | None:
    """Choose the pattern of each high bit, few bits first, so that no difference ends on its own bank."""
    # Differences by their highest bit; within a row of banks they never collide.
    layers: list[list[tuple[Ints, Ints, int]]] = []
    for j in range(row, bits):
        layer = []
        for values, unit in groups:
            mine = values[values >> j == 1]
            layer.append((mine & ((1 << row) - 1), mine >> row, unit))
        layers.append(layer)
    options = sorted(range(0, 1 << row, 1 << keep), key=lambda p: (p.bit_count(), p))
    chosen: list[int] = []
    nodes = [0]

    def fits(layer: list[tuple[Ints, Ints, int]]) -> bool:
        for low, high, unit in layer:
            bank = low.copy()
            for k, pattern in enumerate(chosen):
                bank ^= np.where(high >> k & 1 == 1, pattern, 0)
            if ((bank >> unit) == 0).any():
                return False
        return True

    def extend(at: int) -> bool:
        if at == len(layers):
            return True
        for pattern in options:
            nodes[0] += 1
            if nodes[0] > _NODES:
                return False
            chosen.append(pattern)
            if fits(layers[at]) and extend(at + 1):
                return True
            chosen.pop()
        return False

    return chosen if extend(0) else None


def _by_complement(groups: Sequence[tuple[Ints, int]], *, row: int, keep: int, bits: int) -> F2Map | None:
    """A bank map whose kernel meets the span of each access's differences only in 0."""
    spans = []
    for values, _ in groups:
        span = reduced((values >> keep).tolist())
        if rank(span) > row - keep:
            return None
        # A smaller span leaves a choice; low bits keep neighbours on neighbouring banks.
        spare = complement(span, bits - keep)
        spans.append((*span, *spare[: row - keep - len(span)]))
    try:
        kernel = common_complement(spans, bits - keep)
    except LayoutError:
        return None
    # Address bits: the untouched low bits, then coordinates along the first span (banks), then along the kernel.
    basis = (*spans[0], *kernel)
    upper = F2Map(basis, bits - keep).inverse()
    low = tuple(1 << j for j in range(keep))
    return F2Map((*low, *(column << keep for column in upper.columns)), bits)
