"""Injectivity and bijectivity as theorems, with two colliding indices, a stray place or a count as counterexample.

Two indices have a common place exactly when digit differences ``|d_k| < e_k``, not all zero on the shard, cancel on
every axis, together with differences of replica digits (law ``image.every_difference_occurs``).  That is linear
integer arithmetic, whatever the size.  An injective layout whose places lie in a box fills it exactly when there are as
many of them as the box has.

A swizzle is a bijection of addresses, so it changes no answer about injectivity; it permutes every interval whose ends
are multiples of its period.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import z3

from layoutalg.axis import Axis
from layoutalg.errors import RegionError
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.reads import Claim, Symbolic, decide, variable
from verify.sides import Side, params_of
from verify.solve import BUDGET, prove
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["prove_bijective", "prove_injective"]

#: Boxes and layouts up to this many places are listed to name one that is missing.
_FEW: Final = 1 << 16


def prove_injective(layout: TileLayout | SwizzledLayout, *, budget: int = BUDGET) -> Verdict:
    """Prove that no two indices share a place; the counterexample has two ``indices`` and a common ``place``.

    >>> print(prove_injective(TileLayout.parse("S[(1048576,1048576):(1048576,1)]")))
    Proved
    >>> prove_injective(TileLayout.parse("S[(2,4):(3,1)]")).counterexample["indices"]
    (3, 4)
    """
    tile = layout.inner if isinstance(layout, SwizzledLayout) else layout
    scope = f"all pairs of the {tile.size} indices of {layout}"
    try:
        differences, replicas, sums = _differences(tile)
    except Symbolic as reason:
        return Unknown(scope, str(reason))
    ranges = [z3.And(z3.Int(n) > -e, z3.Int(n) < e) for n, e in {**differences, **replicas}.items()]
    apart = z3.Or(False, *(z3.Int(n) != 0 for n in differences))
    meets = [z3.Sum([c * z3.Int(n) for n, c in terms.items()]) == 0 for terms in sums.values() if terms]
    verdict = prove(z3.Not(apart), given=[*ranges, *meets], scope=scope, budget=budget)
    if not isinstance(verdict, Refuted):
        return verdict
    return Refuted(scope, _collision(layout, tile, differences, verdict.counterexample), verdict.effort)


def _differences(tile: TileLayout) -> tuple[dict[str, int], dict[str, int], dict[str, dict[str, int]]]:
    """Names and extents of digit differences, and on every axis their coefficients."""
    differences: dict[str, int] = {}
    replicas: dict[str, int] = {}
    sums: dict[str, dict[str, int]] = {}
    for names, iters, letter in ((differences, tile.shard, "d"), (replicas, tile.replica, "r")):
        for k, (extent, stride, axis) in enumerate(iters):
            if type(extent) is not int or type(stride) is not int:
                raise Symbolic(f"iter {extent}:{stride}@{axis} is symbolic; injectivity may depend on its values")
            names[f"{letter}{k}"] = extent
            if stride and extent > 1:
                sums.setdefault(axis.name, {})[f"{letter}{k}"] = stride
    return differences, replicas, sums


def _collision(
    layout: TileLayout | SwizzledLayout, tile: TileLayout, differences: Mapping[str, int], model: Mapping[str, Any]
) -> dict[str, Any]:
    low = high = 0
    for name, extent in differences.items():
        d = int(model.get(name, 0))
        low, high = low * extent + max(-d, 0), high * extent + max(d, 0)
    low, high = sorted((low, high))
    found: dict[str, Any] = {"indices": (low, high)}
    if not tile.params and math.prod(it.extent for it in tile.replica) <= _FEW:
        seen = [{tuple(sorted(place.items())) for place in layout.places(n)} for n in (low, high)]
        found["place"] = dict(min(seen[0] & seen[1]))
    return found


def prove_bijective(
    layout: TileLayout | SwizzledLayout, box: Mapping[str, Sequence[int]], *, budget: int = BUDGET
) -> Verdict:
    """Prove that every place of a box belongs to exactly one index, and that every place is in the box.

    Args:
        layout: plain or swizzled; an axis that the box does not name must be 0 everywhere.
        box: ``{axis: (begin, end)}``.
        budget: resource limit of each of the solver's checks.

    Raises:
        RegionError: an interval is empty or no pair.

    >>> fragment = TileLayout.parse("S[(8,4,2):(4@laneid,1@laneid,1)]")
    >>> print(prove_bijective(fragment, {"laneid": (0, 32), "m": (0, 2)}))
    Proved
    >>> prove_bijective(fragment, {"laneid": (0, 16), "m": (0, 2)}).counterexample
    {'index': 32, 'leaves': 'laneid in [0, 16)'}
    """
    ends = {Axis.get(axis).name: _interval(axis, pair) for axis, pair in box.items()}
    scope = f"{layout} onto " + ", ".join(f"{axis} in [{b}, {e})" for axis, (b, e) in ends.items())
    if isinstance(layout, SwizzledLayout):
        begin, end = ends.get(layout.axis.name, (0, 1))
        if begin % layout.swizzle.period or end % layout.swizzle.period:
            return _listed(layout, ends, scope)
        layout = layout.inner
    try:
        return _fills(layout, ends, scope, budget)
    except Symbolic as reason:
        return Unknown(scope, str(reason))


def _interval(axis: str, pair: Sequence[int]) -> tuple[int, int]:
    if isinstance(pair, str) or len(pair) != 2 or not pair[0] < pair[1]:
        raise RegionError(f"prove_bijective: {axis} needs (begin, end) with begin < end, not {pair!r}", axis=axis)
    return int(pair[0]), int(pair[1])


def _fills(layout: TileLayout, ends: Mapping[str, tuple[int, int]], scope: str, budget: int) -> Verdict:
    effort = 0
    ranges = {"index": (0, int(layout.size) - 1), **params_of(layout)}
    side = Side().read(layout, variable("index"))
    for axis in {**ends, **{a.name: None for a in layout.axes}}:
        begin, end = ends.get(axis, (0, 1))
        low, high = side.ends(axis)
        within = {axis: (begin - low, end - high)}
        claim = Claim(ranges, variable("index"), tuple(side.reads), side.offset, within)
        verdict = decide(claim, scope=scope, budget=budget)
        effort += verdict.effort
        if isinstance(verdict, Refuted):
            return Refuted(scope, {**verdict.counterexample, "leaves": f"{axis} in [{begin}, {end})"}, effort)
        if not verdict.ok:
            return verdict
    injective = prove_injective(layout, budget=budget)
    effort += injective.effort
    if not injective.ok:
        return injective
    translations = math.prod(len(_sums(layout, axis)) for axis in side.replicas)
    places, volume = int(layout.size) * translations, math.prod(end - begin for begin, end in ends.values())
    if places != volume:
        return Refuted(scope, {"places": places, "volume": volume, **_missing(layout, ends, volume)}, effort)
    return Proved(scope, effort)


def _sums(layout: TileLayout, axis: str) -> set[int]:
    total = {0}
    for extent, stride, on in layout.replica:
        if on.name == axis:
            total = {x + k * stride for x in total for k in range(extent)}
    return total


def _missing(layout: TileLayout | SwizzledLayout, ends: Mapping[str, tuple[int, int]], volume: int) -> dict[str, Any]:
    """The first place of a small box that no index has."""
    if volume > _FEW or layout.size > _FEW or layout.params:
        return {}
    axes = list(ends)
    taken = {tuple(place.get(a, 0) for a in axes) for n in range(layout.size) for place in layout.places(n)}
    for point in itertools.product(*(range(*ends[a]) for a in axes)):
        if point not in taken:
            return {"missing": dict(zip(axes, point, strict=True))}
    return {}


def _listed(layout: SwizzledLayout, ends: Mapping[str, tuple[int, int]], scope: str) -> Verdict:
    """Decide a box that the swizzle does not permute by listing the places."""
    if layout.size > _FEW or layout.params:
        return Unknown(scope, f"the box is no whole number of periods of {layout.swizzle} and is too large to list")
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    for n in range(layout.size):
        for place in layout.places(n):
            for axis in {**ends, **place}:
                begin, end = ends.get(axis, (0, 1))
                if not begin <= place.get(axis, 0) < end:
                    return Refuted(scope, {"index": n, "leaves": f"{axis} in [{begin}, {end})"})
            key = tuple(sorted(place.items()))
            if key in seen and seen[key] != n:
                return Refuted(scope, {"indices": (seen[key], n), "place": dict(key)})
            seen[key] = n
    volume = math.prod(end - begin for begin, end in ends.values())
    if len(seen) != volume:
        return Refuted(scope, {"places": len(seen), "volume": volume, **_missing(layout, ends, volume)})
    return Proved(f"{scope}; {layout.size} indices listed")
