"""Where an element lies: single points, whole tables and batches of indices agree with the definition.

Points of ints, tables (outer sums of progressions) and batches (division, or shifts for powers of two) have code of
their own.  The definition is written out here once more, digit by digit; every layout of a list is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from layoutalg import points
from layoutalg.algebra import evaluate
from layoutalg.iters import vector_at
from layoutalg.tile import TileLayout
from verify.explore import equal_to
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Labelled, Patch, family, layout_of, spelt

__all__ = ["LAWS", "defined"]


def defined(layout: Any, n: int) -> dict[str, Any]:
    """Return D(n) + O from the definition: digit k is ``floor(n / product of the later extents) mod extent``."""
    place: dict[str, Any] = dict.fromkeys((it.axis.name for it in (*layout.shard, *layout.replica)), 0)
    place |= dict(layout.offset)
    for k, it in enumerate(layout.shard):
        digit = n // prod(later.extent for later in layout.shard[k + 1 :]) % it.extent
        place[it.axis.name] = place[it.axis.name] + digit * it.stride
    return place


def _layouts() -> Iterator[TileLayout]:
    strides = (-3, 0, 1, 5)
    for (e, f), (s, t) in product(product((1, 2, 3, 4), repeat=2), product(strides, repeat=2)):
        yield TileLayout.from_iters(shard=[(e, s, "m"), (f, t, "m")], offset={"m": 7})
        shard = [(e, s, "m"), (3, 2, "laneid"), (f, t, "m")]
        yield TileLayout.from_iters(shard=shard, replica=[(2, 4, "warpid"), (3, s, "m")], offset={"laneid": -1})
    yield TileLayout.from_iters(shard=[(3, 1 << 70, "m")])
    yield TileLayout.from_iters(shard=[(2, 1 << 62, "m"), (2, -(1 << 62), "m")])
    yield TileLayout.from_iters(shard=())


def _run(layout: TileLayout) -> Any:
    size = layout.size
    one = [layout.apply(n) for n in range(size)]
    rank = len(layout.shard)
    coordinates = list(product(*(range(it.extent) for it in layout.shard)))
    each = [layout.apply(*x) for x in coordinates] if rank > 1 else one
    halves = [layout.apply(n // 2, n % 2, shape=(size // 2, 2)) for n in range(size)] if size % 2 == 0 else one
    sets = [layout.places(n) for n in range(size)]
    fits = all(abs(value) < 1 << 63 for place in one for value in place.values())
    backwards = np.arange(size)[::-1]
    whole = {axis: column.tolist() for axis, column in layout.table().items()} if fits else None
    batch = {axis: column.tolist()[::-1] for axis, column in layout.evaluate(backwards).items()} if fits else None
    exact = {axis.name: column.tolist() for axis, column in _exactly(layout).items()}
    return one, each, halves, sets, whole, batch, exact


def _exactly(layout: TileLayout) -> Any:
    return evaluate.evaluate_exactly(layout.shard, np.arange(layout.size))


def _judge(layout: TileLayout, answer: Any) -> bool:
    one, each, halves, sets, whole, batch, exact = answer
    wanted = [defined(layout, n) for n in range(layout.size)]
    columns = {axis: [place[axis] for place in wanted] for axis in wanted[0]}
    bare = {a: [x - layout.offset.get(a, 0) for x in columns[a]] for a in {it.axis.name for it in layout.shard}}
    return bool(
        one == each == halves == wanted
        and all(_set(places) == _moved(layout, place) for places, place in zip(sets, wanted, strict=True))
        and (whole is None or whole == columns)
        and (batch is None or batch == columns)
        and exact == bare
    )


def _set(places: Any) -> set[tuple[tuple[str, int], ...]]:
    return {tuple(sorted(place.items())) for place in places}


def _moved(layout: TileLayout, place: dict[str, int]) -> set[tuple[tuple[str, int], ...]]:
    found = [place]
    for it in layout.replica:
        found = [{**x, it.axis.name: x[it.axis.name] + r * it.stride} for x in found for r in range(it.extent)]
    return _set(found)


def _run_unknown(x: Any, text: str) -> Any:
    layout = layout_of(x, *spelt(text)) + x.unknown("a")
    return layout, [layout.apply(n) for n in range(layout.size)]


def _judge_unknown(_text: str, answer: Any) -> Labelled:
    layout, found = answer
    for n, place in enumerate(found):
        yield {"index": n}, equal_to(place, defined(layout, n))


_right_digit = evaluate._digit
_right_vector = vector_at
_right_table = evaluate.table_of_iters


def _fastest_first(iters: Any, index: Any) -> Any:
    """The first iter is taken for the fastest, as CuTe writes it."""
    return _right_vector(iters[::-1], index)


def _by_shift(n: Any, extent: int) -> Any:
    bits = (extent - 1).bit_length()
    return n & ((1 << bits) - 1), n >> bits


LAWS: tuple[Law, ...] = (
    family(
        "points.apply",
        "apply(n) is D(n) + O, with D(n) the sum of digit times stride.",
        scope="lists to rank 4 and 24 elements on one and two axes; all strides and offsets",
        members=["4:m", "2x3:mm", "3x2:ml", "2x3x4:mlm", "2x2x2x2:mmlm", "1x5x1:mmm"],
        run=_run_unknown,
        judge=_judge_unknown,
        mutants={"the first iter fastest": [Patch(vector_at, _fastest_first)]},
    ),
    exhaustive(
        "points.tables_and_batches",
        "apply at flat indices and at coordinates, table, evaluate and places agree with the definition, for values "
        "beyond 64 bits too where single points are asked.",
        scope="515 layouts to rank 3 with strides -3, 0, 1, 5, replicas and offsets, and three extreme ones",
        members=_layouts,
        run=_run,
        judge=_judge,
        mutants={
            "batches divide by the next power of two": [Patch(_right_digit, _by_shift)],
            "the offset left out of tables": [
                Patch(_right_table, lambda iters, _offset, axes: _right_table(iters, {}, axes))
            ],
            "the first iter fastest in points": [Patch(vector_at, _fastest_first, points)],
        },
    ),
)
