"""Slicing on numbers: the short way of the common case, boxes judged by their table, and where refusals happen.

The families of ``slicing`` run the rules on unknown strides; what is decided on ints alone is tried here.  A refusal
names the first index of the box at which every layout fails that has the values before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

from layoutalg import index
from layoutalg.algebra import slicing
from layoutalg.errors import LayoutError, NotExpressibleError, UndecidedError
from layoutalg.index import Param, flatten
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout
from verify.explore import holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, agreement, attempt, no_layout, table

__all__ = ["LAWS"]


class Cut(NamedTuple):
    """A layout, a shape and a box of it."""

    layout: TileLayout
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]


def _boxes(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    yield from product(*([(b, e) for b in range(n) for e in range(b + 1, n + 1)] for n in shape))


def _short() -> Iterator[Cut]:
    for text in ("S[4:3]", "S[(3,4):(4,1)] + 2", "S[(2,3):(1@laneid,-5)]", "S[(2,2,3):(7,0,2)]", "S[(3,1,2):(2,9,1)]"):
        layout = TileLayout.parse(text)
        shape = tuple(it.extent for it in layout.shard)
        yield from (Cut(layout, shape, region) for region in _boxes(shape))


def _others() -> Iterator[Cut]:
    lists = (
        ((3, 2), (2, 3)), ((2, 3), (3, 2)), ((3, 4), (2, 6)), ((4, 3), (2, 6)), ((4, 3), (6, 2)), ((2, 3, 2), (4, 3)),
        ((2, 2, 3), (3, 4)), ((3, 4), (12,)), ((2, 2, 3), (12,)), ((2, 3, 2), (12,)),
    )  # fmt: skip
    for extents, shape in lists:
        rank = len(extents)
        for strides in ((10, 1, 5), (1, 10, 100), (1, 1, 1), (0, 3, 2), (3, -1, 0), (6, 2, 4)):
            layout = TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, strides, strict=False)])
            yield from (Cut(layout, shape, region) for region in _boxes(shape))
        lanes = [(e, k + 1, "laneid" if k == rank - 1 else "m") for k, e in enumerate(extents)]
        yield from (Cut(TileLayout.from_iters(shard=lanes), shape, region) for region in _boxes(shape))


def _run(member: Cut) -> Any:
    return attempt(member.layout.slice, member.shape, member.region)


def _judge(member: Cut, answer: Any) -> bool:
    layout, shape, region = member
    whole = table(layout)
    wanted = [whole[flatten(x, shape)] for x in product(*(range(b, e) for b, e in region))]
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout(wanted), {}) and answer.index == agreement(wanted)
    found = table(answer)
    return len(found) == len(wanted) and all(map(_agree, wanted, found))


class Moving(NamedTuple):
    """A box of a layout whose begin is ``start + step*p``."""

    layout: TileLayout
    start: int
    step: int
    length: int
    values: int


def _moving() -> Iterator[Moving]:
    lists = ("S[16:3]", "S[(4,4):(10,1)]", "S[(2,8):(1@laneid,2)]", "S[(2,2,4):(50,7,1)]", "S[(4,4):(1,4)] + 5")
    for text, start, step, length, values in product(lists, (0, 1, 2, 4), (1, 2, 4, 8), (1, 2, 3, 4, 8), (2, 3, 4)):
        if start + step * (values - 1) + length <= 16:
            yield Moving(TileLayout.parse(text), start, step, length, values)


def _run_moving(member: Moving) -> Any:
    begin = member.start + member.step * Param("p", 0, member.values)
    try:
        return member.layout.slice((16,), ((begin, begin + member.length),))
    except (NotExpressibleError, UndecidedError) as refusal:
        return refusal


def _judge_moving(member: Moving, answer: Any) -> bool:
    """For each value of p the slice at that begin.

    A refusal means that steps are no multiple of the inner extents, or that no layout with affine offsets does that.
    """
    whole = table(member.layout)
    begins = [member.start + member.step * p for p in range(member.values)]
    boxes = [whole[begin : begin + member.length] for begin in begins]
    if not isinstance(answer, LayoutError):
        found = [table(answer.substitute(p=p) if answer.params else answer) for p in range(member.values)]
        return all(_agree(a, b) for box, part in zip(boxes, found, strict=True) for a, b in zip(box, part, strict=True))
    inner = prod(it.extent for it in member.layout.canonicalize().shard[1:])
    if member.step % inner:
        return True
    moved = [[{a: x[a] - box[0][a] for a in x} for x in box] for box in boxes]
    starts = [box[0] for box in boxes]
    affine = all(
        starts[k][a] - starts[0][a] == k * (starts[1][a] - starts[0][a]) for k in range(len(starts)) for a in starts[0]
    )
    return not (affine and all(x == moved[0] for x in moved)) or holds(no_layout(boxes[0]), {})


def _agree(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a.get(axis, 0) == b.get(axis, 0) for axis in {**a, **b})


_right_plain = slicing.slice_plain
_right_slice = slicing.slice_iters


def _start_forgotten(iters: Any, shape: Any, region: Any) -> Any:
    found = _right_plain(iters, shape, region)
    return None if found is None else (found[0], {})


def _end_for_length(iters: Any, shape: Any, region: Any) -> Any:
    """The end of an interval taken for its length, wherever that stays inside."""
    found = _right_plain(iters, shape, region)
    if found is None:
        return None
    ends = [entry[1] for entry in region]
    return tuple(Iter(end, it.stride, it.axis) for it, end in zip(found[0], ends, strict=True)), found[1]


def _columns_first(iters: Any, shape: Any, region: Any) -> Any:
    """Shape and box read with the first dimension fastest."""
    return _right_slice(iters, shape[::-1], region[::-1])


def _one_later(iters: Any, shape: Any, region: Any) -> Any:
    try:
        return _right_slice(iters, shape, region)
    except NotExpressibleError as right:
        later = (right.index or 0) + 1
        raise NotExpressibleError(f"index {later}, one after that of: {right}", index=later) from right


def _rounded(value: Any, divisor: int) -> Any:
    """Quotient and remainder of the constant part, with the parameters' part divided as if it were exact."""
    quotient, rest = divmod(value.const, divisor)
    for param, c in value.terms:
        quotient = quotient + c // divisor * param
    return quotient, rest


LAWS: tuple[Law, ...] = (
    exhaustive(
        "slicing_numbers.short_way",
        "Where every dimension is one iter of ints, slice has the value L(begin + r) at every r.",
        scope="every box of five layouts to rank 3, as their own shapes",
        members=_short,
        run=_run,
        judge=_judge,
        mutants={
            "the begin forgotten": [Patch(_right_plain, _start_forgotten)],
            "the end taken for the length": [Patch(_right_plain, _end_for_length)],
        },
    ),
    exhaustive(
        "slicing_numbers.other_shapes",
        "slice has the value L(begin + r) at every r, for shapes that the layout does not group by as well; it refuses "
        "only boxes that are no layout, at the first index at which every layout fails that has the values before it.",
        scope="every box of ten pairs of lists and shapes of 6 and 12 elements, six choices of strides, and two axes",
        members=_others,
        run=_run,
        judge=_judge,
        mutants={
            "the first dimension fastest": [Patch(_right_slice, _columns_first)],
            "the first failure one too late": [Patch(_right_slice, _one_later)],
        },
    ),
    exhaustive(
        "slicing_numbers.parameters",
        "A slice whose begin is start + step*p has for each value of p the values of the slice at that begin; it "
        "refuses only where the step is no multiple of the inner extents, or no layout with an affine offset has them.",
        scope="five layouts of 16 elements, starts to 4, steps to 8, lengths to 8, two to four values of p",
        members=_moving,
        run=_run_moving,
        judge=_judge_moving,
        mutants={"the remainder of the step forgotten": [Patch(index.divide_affine, _rounded)]},
    ),
)
