"""Replicas and offsets through every operation: what an operation means, it means for the set of places.

The families leave replicas out, since an operation either keeps them or scales them.  Here layouts with replicas and
offsets on two axes go through all of them, and the sets are listed place by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from layoutalg import operations
from layoutalg.algebra import packing, tiling
from layoutalg.algebra.canonical import canonical_replica
from layoutalg.errors import LayoutError
from layoutalg.index import flatten
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch

__all__ = ["LAWS"]

Place = frozenset[tuple[str, int]]
Sets = list[frozenset[Place]]

_TEXTS = (
    "S[8:1]",
    "S[8:1] + R[2:16] + 3",
    "S[(2,4):(4@laneid,1)] + R[2:-8] + -1@laneid",
    "S[(4,2):(2,1)] + R[2:1@laneid] + 2",
    "S[(2,2,2):(8,1@laneid,2)] + R[(2,2):(20,40@laneid)] + 6",
    "S[(4,2):(2,1)] + R[3:2] + 4",
    "S[(4,2):(-2,1)] + R[2:4]",
)
_OUTER = TileLayout.parse("S[(2,2):(1,2)] + R[2:5] + 1")


class Request(NamedTuple):
    """A layout and what is asked of it."""

    layout: TileLayout
    name: str


def _sets(layout: TileLayout) -> Sets:
    """The set of places of every index, from the digits and the definition; coordinates that are 0 left out."""
    found: Sets = []
    for x in product(*(range(it.extent) for it in layout.shard)):
        base: dict[str, int] = dict(layout.offset)
        for digit, it in zip(x, layout.shard, strict=True):
            base[it.axis.name] = base.get(it.axis.name, 0) + digit * it.stride
        places = [base]
        for it in layout.replica:
            places = [
                {**p, it.axis.name: p.get(it.axis.name, 0) + r * it.stride} for p in places for r in range(it.extent)
            ]
        found.append(frozenset(frozenset((a, v) for a, v in p.items() if v) for p in places))
    return found


def _add(a: Place, b: Place, scale: Callable[[str], int] = lambda _: 1) -> Place:
    total = dict(a)
    for axis, value in b:
        total[axis] = total.get(axis, 0) + value * scale(axis)
    return frozenset((axis, value) for axis, value in total.items() if value)


def _sum(near: Sets, far: Sets, scale: Callable[[str], int]) -> Sets:
    """The sets of a sum over the interleaved domain (far over near)."""
    return [frozenset(_add(p, q, scale) for p in x for q in y) for y in far for x in near]


def _spans(sets: Sets) -> Callable[[str], int]:
    def span(axis: str) -> int:
        values = [dict(p).get(axis, 0) for found in sets for p in found]
        return max(values) - min(values) + 1

    return span


def _narrow(sets: Sets, n: int) -> Sets:
    def unpacked(p: Place, j: int) -> Place:
        m = dict(p).get("m", 0) * n + j
        return frozenset({(a, v) for a, v in p if a != "m"} | ({("m", m)} if m else set()))

    return [frozenset(unpacked(p, j) for p in found) for found in sets for j in range(n)]


def _memory(layout: TileLayout, sets: Sets) -> Sets:
    extents = [it.extent for it in layout.shard]
    kept = [e if it.axis.name == "m" else 1 for e, it in zip(extents, layout.shard, strict=True)]
    heads = [sets[flatten(x, extents)] for x in product(*map(range, kept))]
    return [frozenset(frozenset((a, v) for a, v in p if a == "m") for p in found) for found in heads]


#: Request -> (the call, what its sets are, given the layout and its sets).
_ASKED: dict[str, tuple[Callable[[TileLayout], Any], Callable[[TileLayout, Sets], Sets]]] = {
    "canonicalize": (lambda x: x.canonicalize(), lambda _, s: s),
    "group": (lambda x: x.group((2, 4))[0], lambda _, s: s),
    "regroup": (lambda x: x.regroup((2, 2, 2)), lambda _, s: s),
    "group_many": (lambda x: x.group_many(((2, 4), (4, 2)))[0], lambda _, s: s),
    "slice": (lambda x: x.slice((2, 4), ((1, 2), (0, 4))), lambda _, s: s[4:]),
    "slice_inside": (lambda x: x.slice((8,), ((2, 4),)), lambda _, s: s[2:4]),
    "permute": (
        lambda x: x.permute(1, 0, shape=(2, 4)),
        lambda _, s: [s[4 * a + b] for b in range(4) for a in range(2)],
    ),
    "permute_iters": (lambda x: x.permute_iters(tuple(range(len(x.shard)))), lambda _, s: s),
    "broadcast": (lambda x: x.broadcast(3, 0), lambda _, s: s * 3),
    "storage": (lambda x: x.storage(), _memory),
    "unpack": (lambda x: x.unpack(2), lambda _, s: _narrow(s, 2)),
    "unpack_and_pack": (lambda x: x.unpack(2).pack(2), lambda _, s: s),
    "tile": (lambda x: x.tile(_OUTER, (4, 1), (1, 8)), lambda _, s: _sum(s, _sets(_OUTER), _spans(s))),
    "tile_to": (
        lambda x: x.tile_to((3, 8), (1, 8)),
        lambda _, s: _sum(s, _sets(TileLayout.parse("S[3:1]")), _spans(s)),
    ),
    "direct_sum": (lambda x: x.direct_sum(_OUTER, (4, 1), (1, 8)), lambda _, s: _sum(s, _sets(_OUTER), lambda _: 1)),
    "outer_of_tile": (
        lambda x: x.tile(x.tile_outer_of(x.tile(_OUTER, (4, 1), (1, 8)), (4, 8), (1, 8)), (4, 1), (1, 8)),
        lambda _, s: _sum(s, _sets(_OUTER), _spans(s)),
    ),
    "inner_of_tile": (
        lambda x: _OUTER.tile_inner_of(x.tile(_OUTER, (4, 1), (1, 8)), (4, 8), (4, 1)).tile(_OUTER, (4, 1), (1, 8)),
        lambda _, s: _sum(s, _sets(_OUTER), _spans(s)),
    ),
    "left_of_sum": (
        lambda x: x.direct_sum(
            x.direct_sum_left_of(x.direct_sum(_OUTER, (4, 1), (1, 8)), (4, 1, 1, 8), (1, 8)), (4, 1), (1, 8)
        ),
        lambda _, s: _sum(s, _sets(_OUTER), lambda _: 1),
    ),
    "right_of_sum": (
        lambda x: _OUTER.direct_sum_right_of(x.direct_sum(_OUTER, (4, 1), (1, 8)), (4, 1, 1, 8), (4, 1)).direct_sum(
            _OUTER, (4, 1), (1, 8)
        ),
        lambda _, s: _sum(s, _sets(_OUTER), lambda _: 1),
    ),
}


def _members() -> Iterator[Request]:
    yield from (Request(TileLayout.parse(text), name) for text, name in product(_TEXTS, _ASKED))


def _run(member: Request) -> Any:
    try:
        return _ASKED[member.name][0](member.layout)
    except LayoutError as refusal:
        return refusal


def _judge(member: Request, answer: Any) -> bool:
    """All these requests have answers."""
    if isinstance(answer, LayoutError):
        return False
    return _sets(answer) == _ASKED[member.name][1](member.layout, _sets(member.layout))


_right_scaled = tiling.scaled
_right_unpack = packing.unpack
_right_storage = packing.storage
_right_sum = tiling._sum
_right_broadcast = packing.broadcast


def _replicas_unscaled(layout: TileLayout, factors: Any) -> Any:
    return _right_scaled(layout, factors)._replace(replica=layout.replica)


def _one_set(outer: Any, outer_shape: Any, inner: TileLayout, inner_shape: Any, what: str) -> Any:
    """The replicas of the outer layout alone."""
    return _right_sum(outer, outer_shape, inner, inner_shape, what)._replace(replica=outer.replica)


def _kept(right: Any) -> Any:
    return lambda layout, *rest: right(layout, *rest)._replace(replica=layout.replica)


def _dropped(layout: TileLayout, iters: Any) -> TileLayout:
    return TileLayout.from_iters(shard=iters, offset=layout.offset)


def _towards_zero(iters: Any) -> Any:
    """Negative strides turned round without moving the offset."""
    return canonical_replica(tuple(Iter(it.extent, abs(it.stride), it.axis) for it in iters))


LAWS: tuple[Law, ...] = (
    exhaustive(
        "sets.operations",
        "Every operation means for sets of places what it means for places: canonicalize and the groupings keep them, "
        "slice, permute and broadcast read them, unpack and storage map them, tilings and sums add them, and a factor "
        "that is found makes the same sets again.",
        scope="seven layouts of eight elements with replicas and offsets on two axes, 19 requests each",
        members=_members,
        run=_run,
        judge=_judge,
        mutants={
            "the outer layout's replicas not scaled": [Patch(_right_scaled, _replicas_unscaled, tiling)],
            "the inner layout's replicas lost": [Patch(_right_sum, _one_set)],
            "replicas of narrower elements not scaled": [Patch(_right_unpack, _kept(_right_unpack))],
            "replicas on thread axes kept in storage": [Patch(_right_storage, _kept(_right_storage))],
            "replicas lost in regrouping": [Patch(operations.Operations._with_shard, _dropped, operations.Operations)],
            "negative replicas turned without moving": [Patch(canonical_replica, _towards_zero)],
        },
    ),
)
