"""Layouts under a swizzle: every operation has the values that its meaning says, with the swizzle applied last.

Tried on every member of a list of tiles and swizzles; brute force over the table of addresses says what is right.  A
refusal is right where no tile has the wanted values *under the swizzle*: those values less the swizzle are no layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from layoutalg.algebra import swizzling
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import Permutation, SwizzledLayout
from layoutalg.swizzled_points import SwizzledPoints
from layoutalg.tile import TileLayout
from verify.explore import holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, attempt, no_layout

__all__ = ["LAWS"]

_SWIZZLES = tuple(Swizzle(*numbers) for numbers in ((1, 0, 1), (1, 0, 2), (2, 0, 2), (1, 1, 1), (1, 0, -1), (2, 1, 1)))
_TILES = (
    "S[8:1]", "S[(4,4):(4,1)]", "S[(4,2):(2,1)] + 4", "S[(2,4):(1,2)]", "S[(2,2,2):(8,1,4)]", "S[(2,4):(6,1)] + 1",
    "S[(2,4):(0,1)]", "S[(4,2):(4,2)]",
)  # fmt: skip


class Request(NamedTuple):
    """An operation on a swizzled layout, its arguments, and the indices that its result reads, in order."""

    layout: SwizzledLayout
    op: str
    arguments: tuple[Any, ...]
    reads: tuple[int, ...]


def _layouts() -> Iterator[SwizzledLayout]:
    yield from (SwizzledLayout(swizzle, TileLayout.parse(text)) for swizzle, text in product(_SWIZZLES, _TILES))


def _requests() -> Iterator[Request]:
    for layout in _layouts():
        size = layout.size
        for begin, end in ((0, size), (1, 4), (2, 6), (size // 2, size), (3, size)):
            yield Request(layout, "slice", ((size,), ((begin, end),)), tuple(range(begin, end)))
        shape = (size // 2, 2)
        transposed = tuple(flatten((x, y), shape) for y in range(2) for x in range(size // 2))
        yield Request(layout, "permute", (1, 0, shape), transposed)
        everything = tuple(range(size))
        yield Request(layout, "canonicalize", (), everything)
        yield Request(layout, "group", ((2, size // 2),), everything)
        yield Request(layout, "regroup", ((2, size // 2),), everything)
        yield Request(layout, "group_many", (((2, size // 2), (size // 2, 2)),), everything)
        yield Request(layout, "broadcast", (3, 0), everything * 3)
        yield Request(layout, "storage", (), everything)
        order = tuple(range(len(layout.inner.shard)))[::-1]
        backwards = tuple(_reversed_digits(layout.inner))
        yield Request(layout, "permute_iters", (order,), backwards)
        yield Request(layout, "permute_groups", ((*range(len(order) + 1),), order), backwards)


def _reversed_digits(tile: TileLayout) -> Iterator[int]:
    extents = [it.extent for it in tile.shard]
    yield from (flatten(x[::-1], extents) for x in product(*map(range, extents[::-1])))


def _run(member: Request) -> Any:
    if member.op == "permute":
        *dims, shape = member.arguments
        return attempt(member.layout.permute, *dims, shape=shape)
    found = attempt(getattr(member.layout, member.op), *member.arguments)
    return found[0] if isinstance(found, tuple) else found


def _addresses(layout: SwizzledLayout) -> list[int]:
    """The swizzled address of every element, from the tile's places one by one."""
    return [layout.swizzle.apply(layout.inner.apply(n)["m"]) for n in range(layout.size)]


def _judge(member: Request, answer: Any) -> bool:
    whole = _addresses(member.layout)
    wanted = [whole[n] for n in member.reads]
    if isinstance(answer, NotExpressibleError):
        if member.op in ("group", "group_many", "regroup", "permute"):  # the tile has no such boundaries
            shape = member.arguments[-1]
            plain = attempt(getattr(member.layout.inner, "group" if member.op == "permute" else member.op), shape)
            return isinstance(plain, NotExpressibleError)
        return _no_tile(member.layout.swizzle, wanted)
    return _has(answer, wanted)


def _has(answer: SwizzledLayout, wanted: list[int]) -> bool:
    by_table = answer.table()["m"].tolist()
    return bool(_addresses(answer) == wanted == by_table)


def _no_tile(swizzle: Permutation, wanted: list[int]) -> bool:
    """No tile has these addresses under the swizzle: what it takes to them is looked up in its table."""
    undo = {swizzle.apply(x): x for x in range(1 << (max(wanted).bit_length() + swizzle.period.bit_length()))}
    return holds(no_layout([{"m": undo[value]} for value in wanted]), {})


class Width(NamedTuple):
    """A swizzled layout and a change of element width: n times narrower, or wider for a negative n."""

    layout: SwizzledLayout
    n: int


def _widths() -> Iterator[Width]:
    yield from (Width(layout, n) for layout, n in product(_layouts(), (2, 4, -2, -4)))


def _run_width(member: Width) -> Any:
    layout, n = member
    return attempt(layout.unpack, n) if n > 0 else attempt(layout.pack, -n)


def _judge_width(member: Width, answer: Any) -> bool:
    """Narrower: n neighbours for each element.  Wider: n elements that are neighbours from a multiple of n on."""
    layout, n = member
    whole, refused = _addresses(layout), isinstance(answer, NotExpressibleError)
    if n > 0:
        return not refused and _has(answer, [n * x + j for x in whole for j in range(n)])
    n = -n
    heads = whole[::n]
    together = len(whole) % n == 0 and all(x % n == k % n and x - k % n == heads[k // n] for k, x in enumerate(whole))
    if not refused:
        return together and _has(answer, [x // n for x in heads])
    bits, base, shift = _numbers(layout)
    base -= n.bit_length() - 1
    return not together or base < 0 or _no_tile(Swizzle(bits, base, shift), [x // n for x in heads])


def _numbers(layout: SwizzledLayout) -> tuple[int, int, int]:
    swizzle = layout.swizzle
    assert isinstance(swizzle, Swizzle)
    return swizzle.bits, swizzle.base, swizzle.shift


class Tiling(NamedTuple):
    """A swizzled layout repeated as an outer layout says."""

    inner: SwizzledLayout
    outer: TileLayout


def _tilings() -> Iterator[Tiling]:
    outers = map(TileLayout.parse, ("S[2:1]", "S[2:2]", "S[(2,2):(1,2)]", "S[3:1] + 1", "S[2:0]"))
    yield from (Tiling(*pair) for pair in product(_layouts(), outers))


def _run_tiling(member: Tiling) -> Any:
    inner, outer = member
    shapes = (outer.size, 1), (1, inner.size)
    return attempt(inner.tile, outer, *shapes), attempt(inner.tile_to, (2, inner.size), (1, inner.size)), attempt(
        inner.direct_sum, TileLayout.parse("S[2:16]"), (2, 1), (1, inner.size)
    )  # fmt: skip


def _judge_tiling(member: Tiling, answer: Any) -> bool:
    inner, outer = member
    near = _addresses(inner)
    span = max(near) - min(near) + 1
    tiled = [x + span * place["m"] for place in (outer.apply(n) for n in range(outer.size)) for x in near]
    twice = [x + span * copy for copy in range(2) for x in near]
    below = [place["m"] for place in (inner.inner.apply(n) for n in range(inner.size))]
    summed = [inner.swizzle.apply(x + 16 * o) for o in range(2) for x in below]
    return all(
        _no_tile(inner.swizzle, wanted) if isinstance(found, NotExpressibleError) else _has(found, wanted)
        for found, wanted in zip(answer, (tiled, twice, summed), strict=True)
    )


Two = tuple[SwizzledLayout, SwizzledLayout]


def _run_compared(member: Two) -> Any:
    a, b = member
    return a.difference(b), a.equivalent(b)


def _judge_compared(member: Two, answer: Any) -> bool:
    difference, equivalent = answer
    a, b = map(_addresses, member)
    if len(a) != len(b):
        return not equivalent and difference[0] is None
    first = next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
    return equivalent == (first is None) and (difference is None if first is None else difference[0] == first)


class Moved(NamedTuple):
    """A swizzled tile, moved by some elements before the swizzle."""

    layout: SwizzledLayout
    by: int


def _moved(member: Moved) -> SwizzledLayout:
    return SwizzledLayout(member.layout.swizzle, member.layout.inner + member.by)


def _run_image(member: Moved) -> Any:
    layout = _moved(member)
    values = _addresses(layout)
    box = {"m": (min(values), max(values) + 1)}
    seen = layout.evaluate(np.arange(layout.size))["m"].tolist(), [layout.places(n) for n in range(layout.size)]
    facts = layout.is_injective(), layout.is_bijective_onto(box), layout.is_contiguous()
    return attempt(layout.as_tile), layout.span(), tuple(layout.image()), layout.first_collision(), facts, *seen


def _judge_image(member: Moved, answer: Any) -> bool:
    plain, span, image, shared, facts, batch, places = answer
    a = _addresses(_moved(member))
    if isinstance(plain, NotExpressibleError):
        fits = holds(no_layout([{"m": x} for x in a]), {})
    else:
        fits = [plain.apply(n).get("m", 0) for n in range(plain.size)] == a
    values, once = sorted(set(a)), len(set(a)) == len(a)
    full = once and len(values) == values[-1] - values[0] + 1
    meets = shared is None if once else shared[0] != shared[1] and a[shared[0]] == a[shared[1]]
    counted = span == values[-1] - values[0] + 1 and list(image) == values and facts == (once, full, full)
    return bool(fits and counted and meets and batch == a and places == [({"m": x},) for x in a])


def _offset_outside(layout: SwizzledLayout, tile: TileLayout) -> SwizzledLayout:
    """The swizzle of the offset alone put in the place of the offset, as if the swizzle were linear in sums."""
    moved = tile.offset.get("m", 0)
    return _right_with(layout, tile + (layout.swizzle.apply(moved) - moved))


def _span_of_tile(layout: SwizzledLayout, axis: Any = None) -> int:
    return int(layout.inner.span(axis or layout.axis))


def _tiles_compared(a: SwizzledLayout, b: Any) -> Any:
    return a.inner.difference(b.inner)


_right_with = SwizzledLayout._with
_right_recast = swizzling.recast


def _laws() -> Iterator[Law]:
    yield exhaustive(
        "swizzled.operations",
        "slice, permute, canonicalize, the groupings, broadcast and storage of a swizzled layout read the addresses "
        "that their meaning says; slice refuses only where no tile has them under the swizzle.",
        scope="eight tiles under six swizzles, 14 requests each",
        members=_requests,
        run=_run,
        judge=_judge,
        mutants={"the offset of a slice outside the swizzle": [Patch(_right_with, _offset_outside, SwizzledLayout)]},
    )
    yield exhaustive(
        "swizzled.widths",
        "unpack and pack recast the swizzle: n neighbours for one element, and back; pack refuses where elements are "
        "no neighbours or the swizzle tears them apart.",
        scope="eight tiles under six swizzles, 2 and 4 times narrower and wider",
        members=_widths,
        run=_run_width,
        judge=_judge_width,
        mutants={"the swizzle kept": [Patch(_right_recast, lambda swizzle, *_: swizzle)]},
    )
    yield exhaustive(
        "swizzled.tilings",
        "tile and tile_to have the address L(i) + W*Out(o), W the span of the swizzled image, and direct_sum the "
        "swizzle of the sum; each refuses only where no tile has these addresses under the swizzle.",
        scope="eight tiles under six swizzles, five outer layouts",
        members=_tilings,
        run=_run_tiling,
        judge=_judge_tiling,
        mutants={"the span before the swizzle": [Patch(SwizzledLayout.span, _span_of_tile, SwizzledPoints)]},
    )
    yield exhaustive(
        "swizzled.places",
        "difference names the first address that differs, and equivalent is the equality of all addresses.",
        scope="every pair of eight tiles under six swizzles",
        members=lambda: product(_layouts(), repeat=2),
        run=_run_compared,
        judge=_judge_compared,
        mutants={"tiles compared under different swizzles": [Patch(swizzling.first_difference, _tiles_compared)]},
    )
    yield exhaustive(
        "swizzled.images",
        "as_tile finds the plain layout with the addresses if there is one; span, image, the first collision, "
        "injectivity, contiguity, places and batches are those of the addresses.",
        scope="eight tiles under six swizzles, moved by 0, 1 and 3 elements",
        members=lambda: (Moved(*pair) for pair in product(_layouts(), (0, 1, 3))),
        run=_run_image,
        judge=_judge_image,
        mutants={
            "the span before the swizzle": [Patch(SwizzledLayout.span, _span_of_tile, SwizzledPoints)],
            "the tile for the plain form": [Patch(SwizzledLayout.as_tile, lambda x: x.inner, SwizzledLayout)],
        },
    )


LAWS: tuple[Law, ...] = tuple(_laws())
