"""Thread axes: fusing and splitting keep every thread's identity.

Weights are the constants of the hardware: 32 lanes in a warp, 4 warps in a warpgroup.  The steps are linear facts about
one place; ranges are decided on numbers, so the shipping code is tried on every small layout of a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from layoutalg.algebra import axes
from layoutalg.axis import Axis
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import Iter
from layoutalg.tile import TileLayout
from verify.explore import holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, attempt, no_layout, table
from verify.laws.step import World, step, steps_of

__all__ = ["LAWS"]

WEIGHTS = [{"k": 4}, {"k": 32}, {"k": 128}]


def _parts_only(v: Any) -> tuple[Any, Any]:
    outer, inner, whole = {4: ("wgid", "wid_in_wg", "warpid"), 32: ("warpid", "laneid", "tx")}.get(
        v["k"], ("wgid", "tid_in_wg", "tx")
    )
    layout = TileLayout.from_iters(shard=[(v["l"] + 1, 1, inner)], offset={inner: v["o"], outer: v["w"]})
    return isinstance(attempt(layout.fuse_axes, whole), NotExpressibleError), False


@step(
    "all threads; weights 4, 32 and 128",
    mutants={"offset and digits each in range, not their sum": _parts_only},
    cases=WEIGHTS,
)
def weighted_sum(w: World, k: int) -> Any:
    """With the inner value in [0, k) the sum k*outer + inner names one thread: dividing by k gives both back."""
    outer, inner = w.integer("w"), w.digit("l", k)
    if w.wrong:
        inner = inner + w.digit("o", k)
        q, r = w.division(outer * k + inner, outer * 0 + k)
        return w.all(q == outer, r == inner)
    w.know("divmod", outer, k, inner)
    whole = outer * k + inner
    return w.all(whole // k == outer, whole % k == inner)


def _apart(v: Any) -> tuple[Any, Any]:
    k = v["k"]
    return divmod(k * v["w"] + v["l"] + v["m"], k), (v["w"], (v["l"] + v["m"]) % k)


@step("all threads; weights 4, 32 and 128", mutants={"a carry between parts": _apart}, cases=WEIGHTS)
def parts_add_up(w: World, k: int) -> Any:
    """Places add part by part as long as no inner sum carries: k*w + l plus k*v + m has the parts w + v and l + m."""
    a, b = w.integer("w"), w.integer("v")
    low, high = w.digit("l", k), w.digit("m", k)
    if not w.wrong:
        w.assume(low + high < k)
        w.know("divmod", a + b, k, low + high)
    whole = (a * k + low) + (b * k + high)
    q, r = (whole // k, whole % k) if not w.wrong else w.division(whole, a * 0 + k)
    return w.all(q == a + b, r == low + high)


# -- the shipping code ---------------------------------------------------------------------------------------------


class Fuse(NamedTuple):
    """A layout and the axis to count its threads on."""

    layout: TileLayout
    into: str


_WEIGHTS = {
    "tx": {"wgid": 128, "wid_in_wg": 32, "warpid": 32, "laneid": 1, "tid_in_wg": 1},
    "warpid": {"wgid": 4, "wid_in_wg": 1},
    "tid_in_wg": {"wid_in_wg": 32, "laneid": 1},
}
_RANGES = {"laneid": 32, "wid_in_wg": 4, "tid_in_wg": 128}


def _fusions() -> Iterator[Fuse]:
    lanes = [(32, 1), (8, 4), (33, 1), (4, -1), (2, 16)]
    for (e, s), (f, t), o, p in product(lanes, [(2, 1), (4, 1), (5, 1)], (0, 2, 31), (0, 1)):
        shard = [(f, t, "warpid"), (e, s, "laneid")]
        yield Fuse(TileLayout.from_iters(shard=shard, offset={"laneid": o, "warpid": p}), "tx")
        narrow = [(f, t, "wid_in_wg"), (2, 3, "m"), (e, s, "laneid")]
        yield Fuse(TileLayout.from_iters(shard=narrow, offset={"laneid": o, "wid_in_wg": p}), "tid_in_wg")
        warps = [(e % 7 + 1, s, "wgid"), (f, t, "wid_in_wg")]
        replica = [(2, 1, "wid_in_wg")] if o else []
        yield Fuse(TileLayout.from_iters(shard=warps, replica=replica, offset={"wid_in_wg": p}), "warpid")


def _run_fuse(member: Fuse) -> Any:
    return attempt(member.layout.fuse_axes, member.into)


def _judge_fuse(member: Fuse, answer: Any) -> bool:
    weights = _WEIGHTS[member.into]
    first = None
    for n in range(member.layout.size):
        places = member.layout.places(n)
        if any(
            not 0 <= place.get(axis, 0) < end for place in places for axis, end in _RANGES.items() if axis in weights
        ):
            first = n
            break
    if isinstance(answer, NotExpressibleError):
        return bool(answer.index == first)
    return first is None and all(
        {_fused(place, weights, member.into) for place in member.layout.places(n)}
        == {frozenset((a, v) for a, v in place.items() if v) for place in answer.places(n)}
        for n in range(member.layout.size)
    )


def _fused(place: dict[str, int], weights: dict[str, int], into: str) -> frozenset[tuple[str, int]]:
    total = sum(value * weights[axis] for axis, value in place.items() if axis in weights)
    kept = {axis: value for axis, value in place.items() if axis not in weights}
    return frozenset((axis, value) for axis, value in {**kept, into: total}.items() if value)


class Split(NamedTuple):
    """A layout without replicas, an axis of it, and the finer axes."""

    layout: TileLayout
    axis: str
    into: tuple[str, ...]


def _splits() -> Iterator[Split]:
    strides = (-1, 1, 2, 3, 8, 16, 24, 32, 40, 64)
    for (e, s), (f, t), o in product(product((2, 3, 4), strides), product((1, 2, 4), (1, 4, 32)), (0, 5, 31)):
        layout = TileLayout.from_iters(shard=[(e, s, "tx"), (f, t, "tx")], offset={"tx": o})
        yield Split(layout, "tx", ("warpid", "laneid"))
    for e, s, o in product((2, 3, 4, 8), (1, 2, 3, 4, 5, 6), (0, 1, 3)):
        layout = TileLayout.from_iters(shard=[(e, s, "warpid"), (2, 1, "m")], offset={"warpid": o})
        yield Split(layout, "warpid", ("wgid", "wid_in_wg"))


def _run_split(member: Split) -> Any:
    return attempt(member.layout.split_axis, member.axis, member.into)


def _judge_split(member: Split, answer: Any) -> bool:
    outer, inner = member.into
    k = _RANGES[inner]
    wanted = []
    for place in table(member.layout):
        q, r = divmod(place.pop(member.axis), k)
        wanted.append({**place, outer: q, inner: r})
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout(wanted), {})
    found = table(answer)
    return all(all(a.get(x, 0) == b.get(x, 0) for x in {**a, **b}) for a, b in zip(wanted, found, strict=True))


_right_cut = axes._cut


def _cut_by_k(iters: Any, whole: Axis, outer: Axis, inner: Axis) -> Any:
    k = inner.extent or 1
    return tuple(
        Iter(it.extent, it.stride // k, outer) if it.axis is whole and abs(it.stride) >= k
        else it._replace(axis=inner) if it.axis is whole else it
        for it in iters
    )  # fmt: skip


_UNWEIGHTED = Patch(axes._weights, lambda way: dict.fromkeys(way, 1))
_UNCHECKED = Patch(axes._check_ranges, lambda *_: None)
_CUT = Patch(_right_cut, _cut_by_k)


def _laws() -> Iterator[Law]:
    yield exhaustive(
        "axes.fuse_axes",
        "fuse_axes has the weighted sum of the old coordinates at every place; it refuses at the first index where an "
        "inner value leaves its range, and only there.",
        scope="270 layouts on warps and lanes with offsets, some with replicas",
        members=_fusions,
        run=_run_fuse,
        judge=_judge_fuse,
        mutants={"parts not weighted": [_UNWEIGHTED], "ranges not checked": [_UNCHECKED]},
    )
    yield exhaustive(
        "axes.split_axis",
        "split_axis has quotient and remainder of the old coordinate at every index; where it refuses, they are no "
        "layout.",
        scope="layouts of two iters on tx, strides from -1 to 64, and of warps, with offsets",
        members=_splits,
        run=_run_split,
        judge=_judge_split,
        mutants={"iters sent to one part whole": [_CUT]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
