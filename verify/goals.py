"""What every operation means: the value of its result at every coordinate, as reads of the inputs.

A goal is written from the definitions alone.  ``GOALS[op](result, *inputs, **options)`` returns it; the result may be
None, and then the goal describes the values that a refusal says no layout has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from layoutalg.algebra.compose import complement
from layoutalg.axis import Axis
from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.index import Affine
from layoutalg.tile import TileLayout
from verify.reads import Linear, Symbolic, constant, variable
from verify.sides import Side, params_of

__all__ = ["GOALS", "Goal", "flat", "greedy_translates", "layout_index"]


@dataclass(frozen=True, slots=True)
class Goal:
    """``left = right`` at every point of a box.

    Args:
        ranges: unknown -> (first, last): coordinates and parameters.
        order: the flat index of the result.
        left: the result's side.
        right: what it must be.
        facts: further conditions, in words, with their truth.
        within: what leaves no interval: (side, axis, first, end).
        boundaries: digit boundaries that the result must have, in elements from the end.
        extents: exact digit extents that the result must have.
    """

    ranges: Mapping[str, tuple[int, int]]
    order: Linear
    left: Side
    right: Side
    facts: Mapping[str, bool] = field(default_factory=dict)
    within: tuple[tuple[Side, str, int, int], ...] = ()
    boundaries: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of elements of the result."""
        return self.order.bounds(self.ranges)[1] + 1


# -- small tools ---------------------------------------------------------------------------------------------------


def _ints(shape: Sequence[Any], what: str) -> tuple[int, ...]:
    for extent in shape:
        if type(extent) is not int:
            raise Symbolic(f"{what} {tuple(shape)} is symbolic")
    return tuple(shape)


def _size(layout: TileLayout) -> int:
    return _ints((layout.size,), "size")[0]


def flat(coordinate: Sequence[Linear], shape: Sequence[int]) -> Linear:
    """The row-major flat index of a coordinate."""
    total = Linear()
    for x, extent in zip(coordinate, shape, strict=True):
        total = total * extent + x
    return total


def _box(extents: Sequence[int], prefix: str = "x") -> tuple[dict[str, tuple[int, int]], list[Linear]]:
    names = [f"{prefix}{k}" for k in range(len(extents))]
    return {n: (0, e - 1) for n, e in zip(names, extents, strict=True)}, [variable(n) for n in names]


def layout_index(layout: TileLayout) -> tuple[dict[str, tuple[int, int]], Linear, Linear]:
    """Digits of a layout on one axis as unknowns: their ranges, the index, and the place of that index.

    For layouts that are read at another layout's values.
    """
    ranges, digits = _box(_ints([it.extent for it in layout.shard], "extents"), "d")
    index = flat(digits, [it.extent for it in layout.shard])
    place = constant(sum(_ints(list(layout.offset.values()), "offset")))
    for digit, it in zip(digits, layout.shard, strict=True):
        place = place + digit * _ints([it.stride], "stride")[0]
    return ranges, index, place


def _same_map(result: TileLayout | None, layout: TileLayout, **more: Any) -> Goal:
    size = _size(layout)
    facts = dict(more.pop("facts", {}))
    if result is not None:
        facts = {f"{size} elements": _size(result) == size, **facts}
    left = Side() if result is None else Side().read(result, variable("n"))
    right = Side().read(layout, variable("n"))
    ranges = {"n": (0, size - 1), **params_of(result, layout)}
    return Goal(ranges, variable("n"), left, right, facts, **more)


# -- equality and regrouping ---------------------------------------------------------------------------------------


def _equivalent(result: Any, layout: TileLayout) -> Goal:
    return _same_map(result, layout)


def _canonicalize(result: Any, layout: TileLayout) -> Goal:
    facts = {
        "no unit iter": all(it.extent != 1 for it in result.shard),
        "zero strides on axis m": all(it.axis.name == "m" for it in result.shard if _is_zero(it.stride)),
        "no iter continues its inner neighbour": not any(
            a.axis is b.axis and _is_zero(a.stride - b.extent * b.stride) for a, b in pairwise(result.shard)
        ),
    }
    return _same_map(result, layout, facts=facts)


def _is_zero(value: Any) -> bool:
    from layoutalg.decide import certainly_equal

    return certainly_equal(value, 0)


def _group(result: Any, layout: TileLayout, shape: Sequence[Any]) -> Goal:
    extents = _ints(shape, "shape")
    boundaries = tuple(math.prod(extents[k:]) for k in range(len(extents) + 1))
    if result is None:
        return _same_map(None, layout, boundaries=boundaries)
    grouped, seps = result
    return _same_map(grouped, layout, facts={f"parts multiply to {extents}": _follows(grouped, seps, extents)})


def _follows(layout: TileLayout, seps: Sequence[int], shape: Sequence[int]) -> bool:
    parts = tuple(math.prod(it.extent for it in layout.shard[b:e]) for b, e in pairwise(seps))
    return parts == tuple(shape) and seps[0] == 0 and seps[-1] == len(layout.shard)


def _group_many(result: Any, layout: TileLayout, shapes: Sequence[Sequence[Any]]) -> Goal:
    all_extents = [_ints(shape, "shape") for shape in shapes]
    boundaries = tuple(math.prod(e[k:]) for e in all_extents for k in range(len(e) + 1))
    if result is None:
        return _same_map(None, layout, boundaries=boundaries)
    grouped, all_seps = result
    facts = {
        f"parts multiply to {extents}": _follows(grouped, seps, extents)
        for extents, seps in zip(all_extents, all_seps, strict=True)
    }
    return _same_map(grouped, layout, facts=facts)


def _regroup(result: Any, layout: TileLayout, extents: Sequence[Any]) -> Goal:
    wanted = _ints(extents, "extents")
    if result is None:
        return _same_map(None, layout, extents=wanted)
    found = tuple(it.extent for it in result.shard)
    return _same_map(result, layout, facts={f"extents {wanted}": found == wanted})


# -- boxes and order -----------------------------------------------------------------------------------------------


def _slice(result: Any, layout: TileLayout, shape: Sequence[Any], region: Sequence[Any]) -> Goal:
    extents = _ints(shape, "shape")
    begins, counts = zip(*map(_interval, region), strict=True) if region else ((), ())
    ranges, x = _box(counts)
    params = params_of(layout, result, *(entry for entry in _numbers(region)))
    ranges = {**ranges, **params}
    index = flat([begin + d for begin, d in zip(begins, x, strict=True)], extents)
    for begin, count, extent in zip(begins, counts, extents, strict=True):
        low, high = begin.bounds(ranges)
        if low < 0 or high + count > extent:
            raise LayoutError(f"certify: {region} leaves {extents}")
    left = Side() if result is None else Side().read(result, flat(x, counts))
    facts = {} if result is None else {f"{math.prod(counts)} elements": _size(result) == math.prod(counts)}
    return Goal(ranges, flat(x, counts), left, Side().read(layout, index), facts)


def _numbers(region: Sequence[Any]) -> Iterator[Any]:
    for entry in region:
        yield from entry if isinstance(entry, (tuple, list)) else (entry,)


def _interval(entry: Any) -> tuple[Linear, int]:
    begin, end = entry if isinstance(entry, (tuple, list)) else (entry, entry + 1)
    return _linear(begin), _ints([end - begin], "length")[0]


def _linear(value: Any) -> Linear:
    if isinstance(value, Affine):
        total = constant(value.const)
        for param, c in value.terms:
            total = total + variable(param.name) * c
        return total
    return constant(_ints([value], "begin")[0])


def _permute(result: Any, layout: TileLayout, *dims: int, shape: Sequence[Any] | None = None) -> Goal:
    own = [it.extent for it in layout.shard] if shape is None else shape
    extents = _ints(own, "shape")
    order = [d % len(extents) for d in dims]
    if sorted(order) != list(range(len(extents))):
        raise LayoutError(f"certify: {dims} is no permutation of {len(extents)} dimensions")
    ranges, x = _box(extents)
    index = flat([x[d] for d in order], [extents[d] for d in order])
    if result is None:
        return _same_map(None, layout, boundaries=tuple(math.prod(extents[k:]) for k in range(len(extents) + 1)))
    facts = {f"{_size(layout)} elements": _size(result) == _size(layout)}
    ranges = {**ranges, **params_of(layout, result)}
    return Goal(ranges, index, Side().read(result, index), Side().read(layout, flat(x, extents)), facts)


def _permute_iters(result: Any, layout: TileLayout, order: Sequence[int]) -> Goal:
    return _permute(result, layout, *order)


def _permute_groups(result: Any, layout: TileLayout, seps: Sequence[int], order: Sequence[int]) -> Goal:
    shape = [math.prod(it.extent for it in layout.shard[b:e]) for b, e in pairwise(seps)]
    return _permute(result, layout, *order, shape=shape)


# -- sums ----------------------------------------------------------------------------------------------------------


def _sum(result: Any, outer: TileLayout, outer_shape: Any, inner: TileLayout, inner_shape: Any, scale: Any) -> Goal:
    outer_extents, inner_extents = _ints(outer_shape, "shape"), _ints(inner_shape, "shape")
    (far, o), (near, i) = _box(outer_extents, "o"), _box(inner_extents, "i")
    x = [a * extent + b for a, b, extent in zip(o, i, inner_extents, strict=True)]
    whole = [a * b for a, b in zip(outer_extents, inner_extents, strict=True)]
    index = flat(x, whole)
    right = Side().read(inner, flat(i, inner_extents)).read(outer, flat(o, outer_extents), scale=scale)
    facts = {} if result is None else {f"{math.prod(whole)} elements": _size(result) == math.prod(whole)}
    left = Side() if result is None else Side().read(result, index)
    return Goal({**far, **near, **params_of(outer, inner, result)}, index, left, right, facts)


def _spans(layout: TileLayout) -> dict[str, tuple[str, int]]:
    """axis -> (axis, span of the image); one more than the sum of (e-1)*|s| (law replica.span_step)."""
    found = {axis.name: 1 for axis in layout.axes}
    for extent, stride, axis in (*layout.shard, *layout.replica):
        found[axis.name] += (_ints([extent], "extent")[0] - 1) * abs(_ints([stride], "stride")[0])
    return {axis: (axis, span) for axis, span in found.items()}


def _tile(result: Any, inner: TileLayout, outer: TileLayout, outer_shape: Any, inner_shape: Any) -> Goal:
    return _sum(result, outer, outer_shape, inner, inner_shape, _spans(inner))


def _tile_to(result: Any, inner: TileLayout, to: Sequence[Any], current: Sequence[Any]) -> Goal:
    goal, own = _ints(to, "shape"), _ints(current, "shape")
    copies = [a // b for a, b in zip(goal, own, strict=True)]
    strides = [math.prod(copies[k + 1 :]) for k in range(len(copies))]
    outer = TileLayout.from_iters(shard=list(zip(copies, strides, ["m"] * len(copies), strict=True)))
    found = _tile(result, inner, outer, copies, own)
    whole = all(a == b * c for a, b, c in zip(goal, own, copies, strict=True))
    return Goal(found.ranges, found.order, found.left, found.right, {**found.facts, f"{own} divides {goal}": whole})


def _direct_sum(result: Any, right: TileLayout, left: TileLayout, left_shape: Any, right_shape: Any) -> Goal:
    return _sum(result, left, left_shape, right, right_shape, {})


def _quotients(whole: Sequence[Any], part: Sequence[Any]) -> tuple[int, ...]:
    return tuple(a // b for a, b in zip(_ints(whole, "shape"), _ints(part, "shape"), strict=True))


def _outer_of(result: Any, inner: TileLayout, tiled: TileLayout, tiled_shape: Any, inner_shape: Any) -> Goal:
    return _tile(tiled, inner, result, _quotients(tiled_shape, inner_shape), inner_shape)


def _inner_of(result: Any, outer: TileLayout, tiled: TileLayout, tiled_shape: Any, outer_shape: Any) -> Goal:
    return _tile(tiled, result, outer, outer_shape, _quotients(tiled_shape, outer_shape))


def _left_of(result: Any, right: TileLayout, total: TileLayout, interleaved: Any, own: Any) -> Goal:
    return _direct_sum(total, right, result, tuple(interleaved)[0::2], own)


def _right_of(result: Any, left: TileLayout, total: TileLayout, interleaved: Any, own: Any) -> Goal:
    return _direct_sum(total, result, left, own, tuple(interleaved)[1::2])


# -- widths, axes --------------------------------------------------------------------------------------------------


def _unpack(result: Any, layout: TileLayout, n: int, axis: str | Axis = "m") -> Goal:
    name, size = Axis.get(axis).name, _size(layout)
    index = variable("k") * n + variable("j")
    ranges = {"k": (0, size - 1), "j": (0, n - 1), **params_of(layout, result)}
    right = Side().read(layout, variable("k"), scale={name: (name, n)}).add((name, ""), variable("j"))
    return Goal(ranges, index, Side().read(result, index), right, {f"{size * n} elements": _size(result) == size * n})


def _pack(result: Any, layout: TileLayout, n: int, axis: str | Axis = "m") -> Goal:
    found = _unpack(layout, result, n, axis)
    return Goal(found.ranges, found.order, found.left, found.right, found.facts)


def _broadcast(result: Any, layout: TileLayout, n: int, position: int = 0, axis: str | Axis = "m") -> Goal:
    extents = [*_ints([it.extent for it in layout.shard], "extents")]
    at = position % (len(extents) + 1)
    shape = [*extents[:at], n, *extents[at:]]
    ranges, x = _box(shape)
    index = flat(x, shape)
    right = Side().read(layout, flat([*x[:at], *x[at + 1 :]], extents))
    facts = {f"{math.prod(shape)} elements": _size(result) == math.prod(shape), "known axis": bool(Axis.get(axis))}
    return Goal({**ranges, **params_of(layout, result)}, index, Side().read(result, index), right, facts)


def _storage(result: Any, layout: TileLayout) -> Goal:
    def kept(iters: Any) -> list[tuple[Any, Any, str]]:
        return [(e, s, a.name) for e, s, a in iters if a.kind == "memory"]

    offset = {a: v for a, v in layout.offset.items() if Axis.get(a).kind == "memory"}
    own = TileLayout.from_iters(shard=kept(layout.shard), replica=kept(layout.replica), offset=offset)
    return _same_map(result, own)


#: Threads per warp, warps per warpgroup; what one step of each axis counts on the axis it is a part of.
_WEIGHTS: Final[dict[str, dict[str, int]]] = {
    "tx": {"wgid": 128, "tid_in_wg": 1, "warpid": 32, "wid_in_wg": 32, "laneid": 1},
    "tid_in_wg": {"wid_in_wg": 32, "laneid": 1},
    "warpid": {"wgid": 4, "wid_in_wg": 1},
}
_RANGES: Final = {"laneid": 32, "wid_in_wg": 4, "tid_in_wg": 128}


def _fuse_axes(result: Any, layout: TileLayout, into: str | Axis) -> Goal:
    whole = Axis.get(into).name
    weights = _WEIGHTS[whole]
    scale = {part: (whole, weight) for part, weight in weights.items()}
    own = Side().read(layout, variable("n"))
    used = {axis.name for axis in layout.axes}
    within = tuple((own, part, 0, end) for part, end in _RANGES.items() if part in weights and part in used)
    size = _size(layout)
    facts = {} if result is None else {f"{size} elements": _size(result) == size}
    left = Side() if result is None else Side().read(result, variable("n"))
    ranges = {"n": (0, size - 1), **params_of(layout, result)}
    return Goal(ranges, variable("n"), left, Side().read(layout, variable("n"), scale=scale), facts, within)


def _split_axis(result: Any, layout: TileLayout, axis: str | Axis, into: Sequence[str | Axis]) -> Goal:
    whole = Axis.get(axis).name
    parts = sorted((Axis.get(part).name for part in into), key=lambda p: -_WEIGHTS[whole][p])
    size = _size(layout)
    ranges = {"n": (0, size - 1), **params_of(layout, result)}
    right = Side().read(layout, variable("n"))
    if result is None:
        return Goal(ranges, variable("n"), Side(), right)
    scale = {part: (whole, _WEIGHTS[whole][part]) for part in parts}
    left = Side().read(result, variable("n"), scale=scale)
    own = Side().read(result, variable("n"))
    within = tuple((own, part, 0, _RANGES[part]) for part in parts[1:])
    gone = whole not in {a.name for a in result.axes}
    facts = {f"{size} elements": _size(result) == size, f"no {whole} left": gone}
    return Goal(ranges, variable("n"), left, right, facts, within)


# -- composition ---------------------------------------------------------------------------------------------------


def _compose(result: Any, a: TileLayout, b: TileLayout) -> Goal:
    ranges, index, place = layout_index(b)
    facts = {} if result is None else {f"{_size(b)} elements": _size(result) == _size(b)}
    left = Side() if result is None else Side().read(result, index)
    return Goal(ranges, index, left, Side().read(_extended(a), place, endless=True), facts)


def _extended(a: TileLayout) -> TileLayout:
    """Without unit iters, so that the slowest digit that goes on is a real one; CuTe's 1:0 where none is left."""
    kept = [(e, s, x.name) for e, s, x in a.shard if e != 1] or [(1, 0, "m")]
    replica = [(e, s, x.name) for e, s, x in a.replica]
    return TileLayout.from_iters(shard=kept, replica=replica, offset=dict(a.offset))


def _right_inverse(result: Any, a: TileLayout) -> Goal:
    """A(R(i)) = i; the values of R are indices of A."""
    ranges, index, place = layout_index(result)
    low, high = place.bounds(ranges)
    facts = {"values are indices": low >= 0 and high < _size(a)}
    axis = next((it.axis.name for it in a.shard if it.stride), "m")
    return Goal(ranges, index, Side().read(a, place), Side().add((axis, ""), index), facts)


def _left_inverse(result: Any, a: TileLayout) -> Goal:
    """L(A(i)) = i, L's slowest digit going on as in a composition."""
    ranges, index, place = layout_index(a)
    axis = next((it.axis.name for it in result.shard if it.stride), "m")
    return Goal(ranges, index, Side().read(_extended(result), place, endless=True), Side().add((axis, ""), index))


#: The greedy translates of a complement are listed for cotargets up to this.
_MAX_COTARGET: Final = 1 << 16


def greedy_translates(a: TileLayout, cotarget: int) -> tuple[list[int], bool]:
    """Return the translates that cover [0, cotarget) when taken greedily, and whether their images are disjoint.

    Raises:
        Symbolic: a size that is not listed.
    """
    image = {0}
    for extent, stride, _ in (*a.shard, *a.replica):
        image = {x + c * _ints([stride], "stride")[0] for x in image for c in range(extent)}
        if len(image) > _MAX_COTARGET:
            raise Symbolic(f"an image of over {_MAX_COTARGET} places")
    if cotarget > _MAX_COTARGET:
        raise Symbolic(f"a complement up to {cotarget} is not listed")
    low = min(image)
    taken: set[int] = set()
    translates: list[int] = []
    disjoint = True
    for c in range(cotarget):
        if c not in taken:
            moved = {c + x - low for x in image}
            disjoint = disjoint and not moved & taken
            taken |= moved
            translates.append(c)
    return translates, disjoint


def _complement(result: Any, a: TileLayout, cotarget: int) -> Goal:
    """The translates are those of a greedy search over all addresses; nothing is left for the solver."""
    translates, disjoint = greedy_translates(a, cotarget)
    found = result.table()
    axis = next((it.axis.name for it in (*a.shard, *a.replica) if it.stride), "m")
    values = found[axis].tolist() if axis in found else [0] * result.size
    facts = {"disjoint images": disjoint, "the greedy translates": values == translates}
    return Goal({}, constant(0), Side(), Side(), facts)


def _divide(result: Any, a: TileLayout, b: TileLayout) -> Goal:
    """compose(A, (complement(B, size A), B)), the tile's number being the slow part."""
    rest = complement(b, _size(a))
    tiler = TileLayout.from_iters(shard=[(e, s, x.name) for e, s, x in (*rest.shard, *b.shard)])
    found = _compose(result, a, tiler)
    facts = {**_complement(rest, b, _size(a)).facts, **found.facts}
    return Goal(found.ranges, found.order, found.left, found.right, facts)


def _product(result: Any, a: TileLayout, b: TileLayout) -> Goal:
    """At j*size(A) + i: A(i) plus the translate numbered B(j) of the complement."""
    ranges, j, place = layout_index(b)
    goal, rest = _translates(a, _size(a) * (place.bounds(ranges)[1] + 1))
    index = j * _size(a) + variable("i")
    right = Side().read(a, variable("i")).read(_extended(rest), place, endless=True)
    facts = {
        **_complement(rest, a, goal).facts,
        f"{_size(a) * _size(b)} elements": _size(result) == _size(a) * _size(b),
    }
    return Goal({**ranges, "i": (0, _size(a) - 1)}, index, Side().read(result, index), right, facts)


def _translates(a: TileLayout, least: int) -> tuple[int, TileLayout]:
    """A cotarget of at least ``least`` up to which the complement is a layout, and that complement."""
    covered = max((abs(it.extent * it.stride) for it in (*a.shard, *a.replica)), default=0) or 1
    for goal in (least, -(-least // covered) * covered):
        try:
            return goal, complement(a, goal)
        except NotExpressibleError:
            continue
    raise Symbolic(f"the translates of {a} below {least} are no layout")


GOALS: Final[dict[str, Callable[..., Goal]]] = {
    "broadcast": _broadcast,
    "canonicalize": _canonicalize,
    "complement": _complement,
    "compose": _compose,
    "direct_sum": _direct_sum,
    "direct_sum_left_of": _left_of,
    "direct_sum_right_of": _right_of,
    "equivalent": _equivalent,
    "fuse_axes": _fuse_axes,
    "group": _group,
    "group_many": _group_many,
    "left_inverse": _left_inverse,
    "logical_divide": _divide,
    "logical_product": _product,
    "pack": _pack,
    "permute": _permute,
    "permute_groups": _permute_groups,
    "permute_iters": _permute_iters,
    "regroup": _regroup,
    "right_inverse": _right_inverse,
    "slice": _slice,
    "split_axis": _split_axis,
    "storage": _storage,
    "tile": _tile,
    "tile_inner_of": _inner_of,
    "tile_outer_of": _outer_of,
    "tile_to": _tile_to,
    "unpack": _unpack,
}
