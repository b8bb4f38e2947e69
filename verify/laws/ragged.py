"""Boxes of shapes that the layout does not group by.

For unknown strides: the digits in which their values are affine.  Only extents and begins decide which digits there
are, so each box that has them is answered for every stride.

For numbers: the first index at which a box differs from another layout, on which reading a box rests.  The steps prove
the two cases in which a block index does no harm; that all the cutting finds the first index is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from layoutalg.algebra import difference, ragged
from layoutalg.algebra.difference import Digit, Part, first_difference
from layoutalg.algebra.ragged import affine_digits
from layoutalg.index import flatten
from layoutalg.iters import Iter, vector_at
from layoutalg.tile import TileLayout
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, family, layout_of, spelt, table
from verify.laws.slicing import Box, boxes, judge_box, run_box
from verify.laws.step import World, step, steps_of

__all__ = ["LAWS"]

_LISTS = ("3x8:mm as 8x3", "2x9:ml as 9x2", "2x3x4:mmm as 3x8", "2x2x5:mlm as 5x4")


# --- the two cases ------------------------------------------------------------------------------------------------


def _moved(v: Any) -> tuple[Any, Any]:
    """Block index at b + x*c, and moved as by the first step, where the remainder may leave the block."""
    block, start, move = v["E"], v["start"], v["move"]
    place = v["q"] * block + start + v["x"] * (v["t"] * block + move)
    return place // block, v["q"] + v["x"] * v["t"]


@step("all extents >= 1, begins and steps", mutants={"the remainder may leave the block": _moved})
def linear_block_index(w: World) -> Any:
    """Where the remainder of N, moved as by a digit's first step, stays in its block, floor(N / E) moves so, too.

    N = b + x*c with b = q*E + start and c = t*E + move: floor(N / E) = q + x*t where 0 <= start + x*move < E.
    """
    block, q, t = w.extent("E"), w.integer("q"), w.integer("t")
    start, move, x = w.integer("start"), w.integer("move"), w.integer("x")
    rest = start + x * move
    if not w.wrong:
        w.assume(w.all(rest >= 0, rest < block))
    w.know("divmod", q + x * t, block, rest)
    return (q * block + start + x * (t * block + move)) // block == q + x * t


def _near(v: Any) -> tuple[Any, Any]:
    """The block index near a border, and what it is closer than one block."""
    border = v["m"] * v["g"]
    return (border * v["E"] + v["near"]) // v["E"], border if v["near"] >= 0 else border - 1


@step(
    "all extents >= 1, all multiples",
    mutants={"further away than one block": _near},
    cases=[{"below": 0}, {"below": 1}],
)
def blocks_near_a_border(w: World, below: int) -> Any:
    """Closer than E to a multiple of g*E, the block indices of E and of g*E change together, each by one.

    So weights that add up to zero leave no trace of such a crossing: floor(N / E) is m*g or m*g - 1, floor(N / (g*E))
    is m or m - 1.
    """
    block, g, m, near = w.extent("E"), w.extent("g"), w.integer("m"), w.integer("near")
    if not w.wrong:
        w.assume(w.all(near < 0, near >= 0 - block) if below else w.all(near >= 0, near < block))
    else:
        w.assume(w.all(near < 0, near >= 0 - block * 2) if below else w.all(near >= 0, near < block * 2))
    first = near + block if below else near
    w.know("divmod", m * g - 1 if below else m * g, block, first)
    w.know("divmod", m - 1 if below else m, g, g - 1 if below else 0 * g)
    index = (m * g * block + near) // block
    return w.all(index == (m * g - 1 if below else m * g), index // g == (m - 1 if below else m))


# --- digits for all strides -----------------------------------------------------------------------------------------


def _asked(layout: TileLayout, box: Box) -> ragged.Box:
    begins = tuple(b for b, _ in box.region)
    return ragged.Box(layout.shard, box.shape, begins, tuple(e - b for b, e in box.region))


def _members() -> Iterator[Box]:
    """Boxes that have digits, whatever the strides are."""
    for case in _LISTS:
        text, _, shape = case.partition(" as ")
        extents, names = spelt(text)
        iters = [(e, 100**k + k, a) for k, (e, a) in enumerate(zip(extents, names, strict=True))]
        layout = TileLayout.from_iters(shard=iters)
        for box in boxes(extents, names, [int(e) for e in shape.split("x")]):
            if affine_digits(_asked(layout, box)) is not None:
                yield box


def _by_digits(x: Any, box: Box) -> tuple[Any, Any]:
    """The layout with unknown strides, and its slice by digits."""
    layout = layout_of(x, box.extents, box.axes)
    asked = _asked(layout, box)
    digits = affine_digits(asked)
    start = vector_at(layout.shard, flatten(asked.begin, asked.shape))
    assert digits is not None, "the box has digits, whatever the strides are"
    return layout, TileLayout.from_iters(shard=digits, offset={axis.name: value for axis, value in start.items()})


_right_leaving = difference._leaving


def _never_leaves(*_: Any) -> None:
    return None


def _outer_blocks_only(part: Part, iters: tuple[Iter, ...]) -> Any:
    if len(iters) < 2:
        return None
    outer, inner = iters[-2:]
    return _right_leaving(part, (*iters[:-2], outer._replace(extent=outer.extent * inner.extent)))


_right_whole = ragged.take_off_whole_digits


def _wider_digits(box: ragged.Box) -> tuple[ragged.Box, tuple[Iter, ...]]:
    rest, whole = _right_whole(box)
    return rest, tuple(it._replace(stride=it.stride * 2) for it in whole)


# --- the first difference -------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """A box of a layout and another layout of the size of the box."""

    layout: TileLayout
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]
    other: TileLayout


def _compared() -> Iterator[Compared]:
    """Each box against layouts of one and of two iters with the steps of the box itself, and with others."""
    cases = (
        ("S[(3,8):(5,1)]", (8, 3)), ("S[(4,3,2):(4,2,1)]", (3, 8)), ("S[(5,2,3):(8,5,1)]", (6, 5)),
        ("S[(3,3,3):(7,3,1)]", (9, 3)), ("S[(7,2,2):(2,2,1)]", (4, 7)), ("S[(3,4,2):(5,1@laneid,1)]", (4, 6)),
        ("S[(2,3):(2,2)]", (6,)), ("S[(3,2,3):(0,4,-1)]", (18,)),
    )  # fmt: skip
    for text, shape in cases:
        layout = TileLayout.parse(text)
        whole = [place["m"] for place in table(layout)]
        for region in product(*([(b, e) for b in range(n) for e in range(b + 1, n + 1)] for n in shape)):
            values = [whole[flatten(x, shape)] for x in product(*(range(b, e) for b, e in region))]
            steps = [value - values[0] for value in values]
            count = len(values)
            shards = [[(count, 1)], *([(count // e, 3), (e, 1)] for e in (2, 3) if count % e == 0 and count > e)]
            for e in range(1, count):
                if count % e == 0:
                    shards.append([(count // e, steps[e]), (e, steps[1])])
            for shard in shards:
                yield Compared(layout, shape, region, TileLayout.from_iters(shard=[(*it, "m") for it in shard]))


def _ask(member: Compared) -> int | None:
    layout, shape, region, other = member
    lengths = [e - b for b, e in region]
    digits = tuple(Digit(n, prod(lengths[k + 1 :]), prod(shape[k + 1 :])) for k, n in enumerate(lengths))
    box = Part(0, flatten([b for b, _ in region], shape), digits)
    return first_difference(box, layout.canonicalize().shard, other.canonicalize().shard)


def _is_first(member: Compared, answer: int | None) -> bool:
    layout, shape, region, other = member
    whole, expected = table(layout), table(other)
    values = [whole[flatten(x, shape)] for x in product(*(range(b, e) for b, e in region))]
    differ = [
        n for n, value in enumerate(values)
        if any(value.get(a, 0) - values[0].get(a, 0) != expected[n].get(a, 0) for a in {**value, "m": 0})
    ]  # fmt: skip
    return answer == min(differ, default=None)


_right_levels = difference._levels
_right_joins = difference._changes_with
_right_blocks = difference._in_blocks


def _innermost_only(iters: tuple[Iter, ...], sign: int) -> Any:
    return _right_levels(iters, sign)[:1]


def _at_every_border(*_: Any) -> bool:
    return True


def _rest_forgotten(part: Part, k: int, steps: int) -> Sequence[Part]:
    return _right_blocks(part, k, steps)[:1]


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    family(
        "ragged.affine_digits",
        "Where the block indices are affine in digits of the box, affine_digits returns these digits, and with them "
        "the value is L(begin + r) at every r, for all strides.",
        scope="every box with such digits of four lists and shapes that do not group; all strides",
        members=list(_members()),
        run=_by_digits,
        judge=judge_box,
        mutants={
            "every block index taken for affine": [Patch(_right_leaving, _never_leaves)],
            "the innermost blocks not looked at": [Patch(_right_leaving, _outer_blocks_only)],
        },
    ),
    family(
        "ragged.slice",
        "slice has the value L(begin + r) at every r of these boxes, whole inner digits taken off first.",
        scope="every box with such digits of four lists and shapes that do not group; all strides",
        members=list(_members()),
        run=run_box,
        judge=judge_box,
        mutants={"whole digits with twice their strides": [Patch(_right_whole, _wider_digits)]},
    ),
    exhaustive(
        "ragged.first_difference",
        "first_difference finds the least index n at which L(N) - L(N0) of a box is not K(n), or that there is none.",
        scope="every box of eight layouts, whose crossings may agree, against layouts of one and two iters",
        members=_compared,
        run=_ask,
        judge=_is_first,
        mutants={
            "every block index taken to change at every border": [Patch(_right_joins, _at_every_border)],
            "the innermost blocks alone": [Patch(_right_levels, _innermost_only)],
            "what is left over after a cut forgotten": [Patch(_right_blocks, _rest_forgotten)],
        },
    ),
)
