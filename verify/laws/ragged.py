"""Boxes of shapes that the layout does not group by: the digits in which their values are affine, on all strides.

Only extents and begins decide which digits there are, so each box that has them is answered for every stride.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layoutalg.algebra import ragged
from layoutalg.algebra.ragged import affine_digits
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout
from verify.laws.core import Law
from verify.laws.family import Patch, family, spelt
from verify.laws.slicing import Box, boxes, judge_box, run_box

__all__ = ["LAWS"]

_LISTS = ("3x8:mm as 8x3", "2x9:ml as 9x2", "2x3x4:mmm as 3x8", "2x2x5:mlm as 5x4")


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


_right_leaving = ragged._leaving_block


def _never_leaves(*_: Any) -> None:
    return None


def _outer_blocks_only(iters: tuple[Iter, ...], base: int, digits: Any) -> Any:
    return _right_leaving(iters[:-1], base // iters[-1].extent, digits) if len(iters) > 1 else None


LAWS: tuple[Law, ...] = (
    family(
        "ragged.affine_digits",
        "Where the block indices are affine in digits of the box, slice takes these digits, and has the value "
        "L(begin + r) at every r.",
        scope="every box with such digits of four lists and shapes that do not group; all strides",
        members=list(_members()),
        run=run_box,
        judge=judge_box,
        mutants={
            "every block index taken for affine": [Patch(_right_leaving, _never_leaves)],
            "the innermost blocks not looked at": [Patch(_right_leaving, _outer_blocks_only)],
        },
    ),
)
