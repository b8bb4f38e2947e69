"""Layouts, shapes and boxes for property tests: small enough for brute force, mean enough to break things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from hypothesis import currently_in_test_context, event
from hypothesis import strategies as st

from layoutalg import NotExpressibleError
from layoutalg.axis import Axis
from layoutalg.iters import make_iter
from layoutalg.tile import TileLayout

AXES = ("m", "laneid", "warpid", "TLane")
STRIDES = st.one_of(st.integers(-3, 4), st.sampled_from([0, 1, 2, 4, 6, 8, 10, 12, 16, 24, 100, -6]))
EXTENTS = st.sampled_from([1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8])


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the call gives, or the refusal that it raises; the test then checks either."""
    try:
        return function(*args, **kwargs)
    except NotExpressibleError as refusal:
        if currently_in_test_context():
            event("refused")
        return refusal


@st.composite
def iters(
    draw: st.DrawFn, *, limit: int = 64, rank: int = 4, axes: Sequence[str] = AXES, least: int = 0
) -> tuple[tuple[int, int, str], ...]:
    """Triples whose extents multiply to at most ``limit``; often with neighbours that merge."""
    chosen: list[tuple[int, int, str]] = []
    room = limit
    for _ in range(draw(st.integers(least, rank))):
        extent = draw(EXTENTS.filter(lambda e, room=room: e <= room))
        room //= extent
        axis = draw(st.sampled_from(axes))
        stride = draw(STRIDES)
        if chosen and draw(st.integers(0, 2)) == 0:  # continue the inner neighbour's progression
            axis, stride = chosen[-1][2], chosen[-1][0] * chosen[-1][1]
        chosen.append((extent, stride, axis))
    return tuple(reversed(chosen))


@st.composite
def layouts(
    draw: st.DrawFn,
    *,
    limit: int = 64,
    rank: int = 4,
    axes: Sequence[str] = AXES,
    replicas: bool = True,
    offsets: bool = True,
) -> TileLayout:
    """Layouts with every feature: negative and zero strides, unit iters, replicas, offsets, several axes."""
    shard = draw(iters(limit=limit, rank=rank, axes=axes))
    replica = draw(iters(limit=8, rank=2, axes=axes)) if replicas and draw(st.booleans()) else ()
    offset = draw(st.dictionaries(st.sampled_from(axes), st.integers(-5, 9), max_size=2)) if offsets else {}
    return TileLayout.from_iters(shard=shard, replica=replica, offset=offset)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def shapes(draw: st.DrawFn, size: int, *, rank: int = 3, units: bool = True) -> tuple[int, ...]:
    """An ordered factorisation of ``size``, whether or not a layout follows it."""
    extents: list[int] = []
    rest = size
    for _ in range(draw(st.integers(0, rank - 1))):
        extent = draw(st.sampled_from([d for d in divisors(rest) if units or d > 1 or rest == 1]))
        extents.append(extent)
        rest //= extent
    extents.insert(draw(st.integers(0, len(extents))), rest)
    return tuple(extents)


@st.composite
def layouts_of(draw: st.DrawFn, size: int) -> TileLayout:
    """Layouts of a given size."""
    extents = draw(shapes(size, rank=4))
    shard = [(extent, draw(STRIDES), draw(st.sampled_from(AXES))) for extent in extents]
    replica = draw(iters(limit=8, rank=2)) if draw(st.booleans()) else ()
    return TileLayout.from_iters(shard=shard, replica=replica)


@st.composite
def fitting_shapes(draw: st.DrawFn, layout: TileLayout, *, rank: int = 3) -> tuple[int, ...]:
    """A shape whose boundaries the layout has, with a unit extent now and then."""
    extents = [it.extent for it in layout.canonicalize().shard]
    split: list[int] = []
    for extent in extents:
        part = draw(st.sampled_from(divisors(extent)))
        split += [extent // part, part]
    shape: list[int] = [1]
    for extent in split:
        if draw(st.booleans()) and len(shape) < rank:
            shape.append(extent)
        else:
            shape[-1] *= extent
    return tuple(shape)


@dataclass(frozen=True)
class Boxed:
    """A layout, a shape of its size and a box of that shape."""

    layout: TileLayout
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(end - begin for begin, end in self.region)

    @property
    def size(self) -> int:
        return prod(self.extent)


@st.composite
def boxes(draw: st.DrawFn, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    region = []
    for extent in shape:
        begin = draw(st.integers(0, extent - 1))
        region.append((begin, draw(st.integers(begin + 1, extent))))
    return tuple(region)


@st.composite
def boxed_layouts(draw: st.DrawFn, *, limit: int = 64, replicas: bool = True) -> Boxed:
    layout = draw(layouts(limit=limit, replicas=replicas))
    shape = draw(st.one_of(shapes(layout.size), fitting_shapes(layout)))
    return Boxed(layout, shape, draw(boxes(shape)))


@st.composite
def coincidences(draw: st.DrawFn, *, limit: int = 4000) -> Boxed:
    """Boxes of shapes that do not group, in layouts some of whose blocks follow one another without a break."""
    extents = draw(st.lists(st.integers(2, 12), min_size=2, max_size=4))
    strides = [draw(st.sampled_from([1, 1, 2, -1]))]
    for k in range(len(extents) - 2, -1, -1):
        smooth = strides[-1] + sum(s * (e - 1) for e, s in zip(extents[:k:-1], strides, strict=True))
        strides.append(draw(st.one_of(st.just(smooth), st.just(strides[-1]), st.integers(-5, 12))))
    blocks = [extents[-1], extents[-1] * extents[-2]]
    near = st.builds(
        lambda block, times, parts, more: max(2, times * block // parts + more),
        st.sampled_from(blocks),
        st.integers(1, 3),
        st.sampled_from([1, 1, 2, 3, max(1, extents[-2] - 1)]),
        st.integers(-1, 1),
    )
    dims = draw(st.lists(near, min_size=1, max_size=2))
    extents[0] *= prod(dims) // gcd(prod(dims), prod(extents))
    shape = (prod(extents) // prod(dims), *dims)
    region, room = [], limit
    for extent in reversed(shape):
        length = draw(st.one_of(st.integers(1, min(extent, room)), near))
        length = min(length, extent, room)
        begin = draw(st.integers(0, extent - length))
        region.append((begin, begin + length))
        room = max(1, room // length)
    layout = TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, reversed(strides), strict=True)])
    return Boxed(layout, shape, tuple(reversed(region)))


def boxed(text: str, *, shape: tuple[int, ...], region: tuple[tuple[int, int], ...]) -> Boxed:
    return Boxed(TileLayout.parse(text), shape, region)


@st.composite
def rewritten(draw: st.DrawFn, layout: TileLayout) -> TileLayout:
    """Another way to write the same map: iters split, unit iters added, zero strides moved, replicas rearranged."""
    shard = []
    for extent, stride, axis in layout.shard:
        part = draw(st.sampled_from(divisors(extent)))
        pieces = [make_iter(extent // part, stride * part, axis), make_iter(part, stride, axis)]
        if draw(st.booleans()):
            pieces.append(make_iter(1, draw(STRIDES), draw(st.sampled_from(AXES))))
        shard += [
            make_iter(it.extent, 0, draw(st.sampled_from(AXES))) if it.stride == 0 and draw(st.booleans()) else it
            for it in pieces
        ]
    replica = []
    offset = {Axis.get(a): v for a, v in layout.offset.items()}
    for extent, stride, axis in layout.replica:
        if draw(st.booleans()):  # the same progression, begun at its other end
            offset[axis] = offset.get(axis, 0) + (extent - 1) * stride
            stride = -stride
        part = draw(st.integers(1, extent))  # {0..e-1} = {0..p-1} + {0, 1, ..., e-p}
        replica += [make_iter(part, stride, axis), make_iter(extent - part + 1, stride, axis)]
    replica = draw(st.permutations(replica))
    return TileLayout.from_iters(shard=shard, replica=replica, offset={a.name: v for a, v in offset.items()})
