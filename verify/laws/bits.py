"""Swizzles and linear maps of address bits as numbers: the shipping code on every small map.

The laws of ``swizzle`` are about the formula, at any size.  Here are the parts beside it: arrays, inverses, changes of
width, rows of chunks, and maps given by their columns.  Vectors are ints; sums of vectors are XORs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from operator import xor
from typing import Any, NamedTuple

import numpy as np

from layoutalg import f2
from layoutalg import swizzle as module
from layoutalg.errors import NotExpressibleError
from layoutalg.f2 import F2Map
from layoutalg.swizzle import Swizzle
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, attempt

__all__ = ["LAWS", "swizzles"]


def swizzles() -> Iterator[Swizzle]:
    """Every swizzle with B up to 3, M up to 3 and |S| up to 3, the identity included."""
    for bits, base, shift in product(range(4), range(4), range(-3, 4)):
        if shift or not bits:
            yield Swizzle(bits, base, shift)


def _defined(swizzle: Swizzle, x: int) -> int:
    """Bit by bit: for S > 0 bit i of [M, M+B) is XORed with bit i + S, for S < 0 bit i - S with bit i."""
    result = x
    for i in range(swizzle.base, swizzle.base + swizzle.bits):
        source, target = (i + swizzle.shift, i) if swizzle.shift > 0 else (i, i - swizzle.shift)
        result ^= (x >> source & 1) << target
    return result


def _run_swizzle(swizzle: Swizzle) -> Any:
    addresses = np.arange(512)
    one = [swizzle.apply(int(x)) for x in addresses]
    array, place = swizzle.apply(addresses), np.arange(512)
    swizzle.apply(place, out=place)
    back = attempt(swizzle.inverse)
    linear = F2Map.from_swizzle(swizzle, 9)
    casts = {ratio: attempt(swizzle.recast, 8, 8 * ratio) for ratio in (2, 4)}
    casts |= {-ratio: attempt(swizzle.recast, 8 * ratio, 8) for ratio in (2, 4)}
    return one, array.tolist(), place.tolist(), back, linear, casts, swizzle.period


def _judge_swizzle(swizzle: Swizzle, answer: Any) -> bool:
    one, array, place, back, linear, casts, period = answer
    right = [_defined(swizzle, x) for x in range(512)]
    if not one == array == place == right or [linear.apply(x) for x in range(512)] != right:
        return False
    undone = not isinstance(back, NotExpressibleError)
    if undone != all(right[y] == x for x, y in enumerate(right)):
        return False
    if undone and [back.apply(y) for y in right] != list(range(512)):
        return False
    if any(right[x] // period != x // period or right[x] % period != right[x % period] for x in range(512)):
        return False
    return linear.to_swizzle().apply(np.arange(512)).tolist() == right and all(
        _recast_is_right(right, ratio, found) for ratio, found in casts.items()
    )


def _recast_is_right(right: list[int], ratio: int, found: Any) -> bool:
    """Wider elements move whole, or are torn; narrower ones move with the element that they are part of."""
    if ratio < 0:
        return all(found.apply(x) == right[x // -ratio] * -ratio + x % -ratio for x in range(256))
    whole = all(right[x] == right[x - x % ratio] + x % ratio for x in range(512))
    if isinstance(found, NotExpressibleError):
        return not whole
    return whole and all(found.apply(x) * ratio == right[x * ratio] for x in range(512 // ratio))


class Rows(NamedTuple):
    """Rows of chunks of elements."""

    rows: int
    chunks: int
    elements: int


def _run_rows(member: Rows) -> Any:
    return attempt(module.row_xor, member.rows, member.chunks, chunk_elements=member.elements)


def _judge_rows(member: Rows, answer: Any) -> bool:
    rows, chunks, elements = member
    period = 1 << max(0, (chunks - 1).bit_length())
    wanted = [
        ((r * chunks + c) * elements + k, (r * chunks + (c ^ r % period)) * elements + k)
        for r, c, k in product(range(rows), range(chunks), range(elements))
    ]
    if isinstance(answer, NotExpressibleError):
        return not any(all(swizzle.apply(x) == y for x, y in wanted) for swizzle in _SMALL)
    return all(answer.apply(x) == y for x, y in wanted)


_SMALL = [Swizzle(*x) for x in product(range(1, 5), range(6), [s for s in range(-6, 7) if s])]


def _maps() -> Iterator[F2Map]:
    yield from (F2Map(columns, 3) for columns in product(range(8), repeat=3))
    yield from (F2Map(columns, 2) for columns in product(range(4), repeat=4))


def _image(columns: tuple[int, ...], x: int) -> int:
    return reduce(xor, (column for bit, column in enumerate(columns) if x >> bit & 1), 0)


def _run_map(member: F2Map) -> Any:
    inputs = np.arange(1 << member.in_bits)
    gray = F2Map((1, 3, 6), 3)
    twice = gray.compose(member) if member.out_bits == 3 else None
    array = member.apply(inputs).tolist()
    return array, member.rank, member.kernel(), member.image(), attempt(member.inverse), twice


def _span(vectors: tuple[int, ...]) -> set[int]:
    return {reduce(xor, (v for v, chosen in zip(vectors, bits, strict=True) if chosen), 0)
            for bits in product((0, 1), repeat=len(vectors))}  # fmt: skip


def _judge_map(member: F2Map, answer: Any) -> bool:
    array, rank, kernel, image, inverse, twice = answer
    values = [_image(member.columns, x) for x in range(1 << member.in_bits)]
    zeros = {x for x, y in enumerate(values) if not y}
    if array != values or len(set(values)) != 1 << rank:
        return False
    if _span(kernel) != zeros or len(zeros) != 1 << len(kernel) or _span(image) != set(values) or len(image) != rank:
        return False
    if twice is not None and [_image(twice.columns, x) for x in range(8)] != [_image((1, 3, 6), y) for y in values]:
        return False
    bijective = member.in_bits == member.out_bits and len(set(values)) == len(values)
    if isinstance(inverse, NotExpressibleError):
        return not bijective
    return bijective and [inverse.apply(y) for y in values] == list(range(len(values)))


class Pair(NamedTuple):
    """Two maps of 3 bits, and how many vectors are wanted."""

    first: F2Map
    second: F2Map
    wanted: int


def _pairs() -> Iterator[Pair]:
    maps = [F2Map(columns, 2) for columns in product(range(4), repeat=3)]
    yield from (Pair(a, b, count) for a, b in product(maps[::2], maps[::3]) for count in range(1, 4))


def _run_pair(member: Pair) -> Any:
    kept = f2.joint_transversal((member.first, member.second), member.wanted)
    kernels = member.first.kernel(), member.second.kernel()
    shared = f2.common_complement(kernels, 3) if len(kernels[0]) == len(kernels[1]) else None
    return kept, shared


def _judge_pair(member: Pair, answer: Any) -> bool:
    """Independent vectors on which either map keeps as much rank as it can; a complement of both kernels."""
    kept, shared = answer
    if len(kept) != member.wanted or len(_span(kept)) != 1 << member.wanted:
        return False
    for f in (member.first, member.second):
        rank = len({_image(f.columns, x) for x in range(8)}).bit_length() - 1
        if len({_image(f.columns, x) for x in _span(kept)}) != 1 << min(rank, member.wanted):
            return False
        if shared is not None:
            kernel = {x for x in range(8) if not _image(f.columns, x)}
            if _span(shared) & kernel != {0} or {a ^ b for a in _span(shared) for b in kernel} != set(range(8)):
                return False
    return True


def _always(swizzle: Swizzle) -> Swizzle:
    return swizzle


def _same_base(swizzle: Swizzle, _from: int, _to: int) -> Swizzle:
    return swizzle


def _reads_lower(swizzle: Swizzle, offsets: Any) -> Any:
    """The bits of [M, M+B) moved up for S > 0 too."""
    moved = (offsets & ((1 << swizzle.bits) - 1) << swizzle.base) << abs(swizzle.shift)
    offsets ^= moved
    return offsets


def _period_without_shift(swizzle: Swizzle) -> int:
    return 1 << (swizzle.base + swizzle.bits)


def _any_row(rows: int, chunks: int, *, chunk_elements: int = 1) -> Swizzle:
    width = (chunks - 1).bit_length()
    base = chunk_elements.bit_length() - 1
    return Swizzle(min(width, (rows - 1).bit_length()), base, width) if width and rows > 1 else Swizzle(0, 0, 0)


def _transposed(member: F2Map) -> F2Map:
    if not member.is_invertible:
        raise NotExpressibleError("no inverse")
    columns = tuple(sum((c >> bit & 1) << k for k, c in enumerate(member.columns)) for bit in range(member.in_bits))
    return F2Map(columns, member.in_bits)


def _greedy_in_the_first(maps: Any, dim: int) -> tuple[int, ...]:
    """Vectors that the first map keeps apart, whatever the second does."""
    return _right_joint((maps[0],), dim)


_right_joint = f2.joint_transversal


def _laws() -> Iterator[Law]:
    yield exhaustive(
        "bits.swizzle",
        "apply, on single addresses, arrays and in place, is the XOR bit by bit; inverse undoes it, and refuses "
        "exactly where twice is not once; recast moves whole elements of another width, and refuses exactly where "
        "they are torn; the period repeats; F2Map.from_swizzle and to_swizzle keep the map.",
        scope="every swizzle with B up to 3, M up to 3, |S| up to 3; addresses below 512, widths 1/4 to 4 times",
        members=swizzles,
        run=_run_swizzle,
        judge=_judge_swizzle,
        mutants={
            "taken for its own inverse always": [Patch(Swizzle.inverse, _always, Swizzle)],
            "the same base for every width": [Patch(Swizzle.recast, _same_base, Swizzle)],
            "arrays read the lower bits": [Patch(Swizzle.xor_in_place, _reads_lower, Swizzle)],
            "period 2^(M+B)": [Patch(Swizzle.__dict__["period"], property(_period_without_shift), Swizzle)],
        },
    )
    yield exhaustive(
        "bits.row_xor",
        "row_xor stores chunk c of row r at chunk c ^ (r mod period) of its row; it refuses exactly where no swizzle "
        "does that.",
        scope="1 to 9 rows of 1 to 9 chunks of 1, 2 and 4 elements",
        members=lambda: (Rows(*x) for x in product(range(1, 10), range(1, 10), (1, 2, 4))),
        run=_run_rows,
        judge=_judge_rows,
        mutants={"rows of any length": [Patch(module.row_xor, _any_row)]},
    )
    yield exhaustive(
        "bits.linear_maps",
        "apply, rank, kernel, image, compose and inverse of a map given by columns are those of the sums of columns; "
        "inverse refuses exactly maps that are no bijection.",
        scope="every map of 3 to 3 and of 4 to 2 bits",
        members=_maps,
        run=_run_map,
        judge=_judge_map,
        mutants={"the transpose for the inverse": [Patch(F2Map.inverse, _transposed, F2Map)]},
    )
    yield exhaustive(
        "bits.joint_transversal",
        "joint_transversal of two maps is independent and keeps of either as much rank as it can; common_complement "
        "meets two subspaces in 0 alone and spans everything with either.",
        scope="704 pairs of maps of 3 to 2 bits, 1 to 3 vectors",
        members=_pairs,
        run=_run_pair,
        judge=_judge_pair,
        mutants={"the second map ignored": [Patch(f2.joint_transversal, _greedy_in_the_first)]},
    )


LAWS: tuple[Law, ...] = tuple(_laws())
