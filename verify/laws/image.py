"""Which places a layout reaches: two indices meet exactly when digit differences cancel on every axis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import prod
from typing import Any

from layoutalg.algebra import image
from layoutalg.tile import TileLayout
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch
from verify.laws.step import World, step, steps_of

__all__ = ["LAWS"]

ALL = "all strides, all extents >= 1"


@step(ALL, mutants={"differences up to e": lambda v: (v["d"] < v["e"] and -v["d"] < v["e"], True)})
def every_difference_occurs(w: World) -> Any:
    """Digits of extent e differ by d exactly for |d| < e: max(d, 0) and max(-d, 0) are two such digits.

    Hence two indices have a common place exactly when some differences |d_k| < e_k, not all zero on the shard, have
    ``sum d_k*s_k = 0`` on every axis, with differences of replica digits as well.
    """
    e, d = w.extent("e"), w.integer("d")
    w.assume(w.all(-e <= d, d <= e) if w.wrong else w.all(-e < d, d < e))
    a, b = w.choose(d >= 0, d, d * 0), w.choose(d >= 0, d * 0, -d)
    x, y = w.digit("x", e), w.digit("y", e)
    return w.all(a - b == d, a >= 0, a < e, b >= 0, b < e, x - y < e, y - x < e)


def _members() -> Iterator[TileLayout]:
    strides = (-2, 0, 1, 2, 3, 4, 6)
    for (e, s), (f, t) in product(product((1, 2, 3, 4), strides), repeat=2):
        yield TileLayout.from_iters(shard=[(e, s, "m"), (f, t, "m")])
        yield TileLayout.from_iters(shard=[(e, s, "m"), (f, t, "laneid")], replica=[(2, 1, "m")], offset={"m": 3})
    for (e, s), r, (f, t) in product(product((2, 3), strides), (1, 2, 4), product((2, 3), strides)):
        yield TileLayout.from_iters(shard=[(e, s, "m"), (2, r, "m")], replica=[(f, t, "m")])


def _run(layout: TileLayout) -> Any:
    reach = {axis.name: layout.span(axis) for axis in layout.axes}
    ends = {axis.name: tuple(layout.image(axis)) for axis in layout.axes}
    box = {name: (values[0], values[-1] + 1) for name, values in ends.items()}
    return layout.first_collision(), reach, ends, layout.is_bijective_onto(box), layout.is_contiguous()


def _judge(layout: TileLayout, answer: Any) -> bool:
    collision, reach, ends, bijective, contiguous = answer
    sets = [{tuple(sorted(place.items())) for place in layout.places(n)} for n in range(layout.size)]
    owners: dict[Any, list[int]] = {}
    for n, found in enumerate(sets):
        for place in found:
            owners.setdefault(place, []).append(n)
    injective = all(len(found) == 1 for found in owners.values())
    for axis in layout.axes:
        values = sorted({dict(place)[axis.name] for place in owners})
        if tuple(values) != ends[axis.name] or values[-1] - values[0] + 1 != reach[axis.name]:
            return False
    volume = 1
    for values in ends.values():
        volume *= values[-1] - values[0] + 1
    if not bijective == contiguous == (injective and volume == len(owners)):
        return False
    if collision is None:
        return injective
    return bool(collision[0] != collision[1] and sets[collision[0]] & sets[collision[1]])


_right_relation = image._relation


def _no_replicas(shard: Any, _replicas: Any, axis: str) -> Any:
    return _right_relation(shard, [], axis)


def _nested_only(shard: Any, replicas: Any, axis: str) -> Any:
    """Strides that do not nest are taken to collide."""
    terms = sorted((abs(s), e) for s, e in shard if e > 1)
    if any(t < e * s for (s, e), (t, _) in pairwise(terms)):
        return [1] + [0] * (len(shard) - 1)
    return _right_relation(shard, replicas, axis)


def _as_many(layout: Any) -> bool:
    """Size against span: right for injective layouts on one axis without replicas."""
    return bool(layout.size == prod(image.span(layout, axis) for axis in layout.axes))


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    exhaustive(
        "image.places_reached",
        "first_collision finds two indices with a common place exactly when there are such, span and image are those "
        "of the places, is_bijective_onto and is_contiguous say whether they fill their box once.",
        scope="layouts of two iters with strides -2..6 on one and two axes, with and without replicas and offsets",
        members=_members,
        run=_run,
        judge=_judge,
        mutants={
            "replicas ignored": [Patch(_right_relation, _no_replicas)],
            "strides that do not nest taken to collide": [Patch(_right_relation, _nested_only)],
            "as many places as the span taken for all of it": [Patch(image.is_contiguous, _as_many)],
        },
    ),
)
