"""Certify the library's own answers to random requests: every operation, small layouts and huge ones.

What ``python -m verify results`` runs.  A request that the library refuses has its refusal certified.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from layoutalg.algebra.compose import complement, compose, right_inverse
from layoutalg.errors import NotExpressibleError, UndecidedError
from layoutalg.tile import TileLayout
from verify.results import certify
from verify.verdict import Verdict

__all__ = ["Request", "certify_request", "requests"]

_AXES: Final = ("m", "laneid", "warpid")
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "compose": compose,
    "complement": complement,
    "right_inverse": right_inverse,
}


@dataclass(frozen=True, slots=True)
class Request:
    """An operation, the layout it is called on with positional arguments, and keyword arguments."""

    op: str
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def ask(self) -> Any:
        """Return the library's answer, or the refusal.

        Raises:
            UndecidedError: the library says that it does not decide this.
        """
        try:
            if self.op in _FUNCTIONS:
                return _FUNCTIONS[self.op](*self.inputs)
            return getattr(self.inputs[0], self.op)(*self.inputs[1:], **self.options)
        except NotExpressibleError as refusal:
            return refusal


def certify_request(request: Request) -> tuple[Any, Verdict | None]:
    """Return the library's answer and its certificate; None where the library itself is undecided.

    >>> answer, verdict = certify_request(Request("unpack", (TileLayout.parse("S[4:1]"), 2)))
    >>> print(answer, verdict)
    S[8:1] Proved
    """
    try:
        answer = request.ask()
    except UndecidedError as reason:
        return reason, None
    return answer, certify(request.op, request.inputs, answer, **request.options)


def requests(count: int, *, seed: int = 0) -> Iterator[Request]:
    """Yield random requests, the same ones for one seed.

    >>> len(list(requests(20))), next(requests(1, seed=3)) == next(requests(1, seed=3))
    (20, True)
    """
    draw = random.Random(seed)
    for _ in range(count):
        yield _MAKERS[draw.choice(sorted(_MAKERS))](draw)


# -- drawing -------------------------------------------------------------------------------------------------------


def _layout(draw: random.Random, limit: int = 64, axes: tuple[str, ...] = _AXES, *, plain: bool = False) -> TileLayout:
    """A layout of mixed small extents, often with neighbours that merge; rarely one of up to 2^48 elements."""
    huge = not plain and limit == 64 and draw.random() < 0.1
    room = 1 << 48 if huge else limit
    shard: list[tuple[int, int, str]] = []
    for _ in range(draw.randint(0, 12 if huge else 4)):
        extent = draw.choice([16, 32, 64, 1 << 10]) if huge else draw.choice([1, 2, 2, 2, 3, 4, 4, 5, 6, 8])
        if extent > room:
            continue
        room //= extent
        axis, stride = draw.choice(axes), draw.choice([-3, -1, 0, 1, 2, 3, 4, 6, 8, 12, 100])
        if shard and draw.random() < 0.4:
            axis, stride = shard[0][2], shard[0][0] * shard[0][1]
        shard.insert(0, (extent, abs(stride) if plain else stride, axis))
    many = [(draw.choice([2, 3]), draw.choice([-2, 1, 2, 4]), draw.choice(axes))] if draw.random() < 0.2 else []
    offset = {axis: draw.randint(-3, 9) for axis in axes if draw.random() < 0.3}
    return TileLayout.from_iters(shard=shard, replica=() if plain else many, offset={} if plain else offset)


def _divisor(draw: random.Random, n: int) -> int:
    """A divisor of n, found from its small prime factors."""
    d = 1
    for p in (2, 3, 5, 7):
        while n % p == 0:
            n //= p
            d *= p if draw.random() < 0.5 else 1
    return d


def _shape(draw: random.Random, size: int, rank: int = 3) -> tuple[int, ...]:
    extents: list[int] = []
    for _ in range(draw.randint(0, rank - 1)):
        extents.append(_divisor(draw, size))
        size //= extents[-1]
    extents.insert(draw.randint(0, len(extents)), size)
    return tuple(extents)


def _fitting(draw: random.Random, layout: TileLayout) -> tuple[int, ...]:
    """A shape that the layout follows: its extents, neighbours multiplied at random."""
    shape = [1]
    for it in layout.shard:
        if draw.random() < 0.5:
            shape.append(it.extent)
        else:
            shape[-1] *= it.extent
    return tuple(shape)


def _region(draw: random.Random, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """A box; in long dimensions its ends are multiples of a power of two."""
    region = []
    for extent in shape:
        unit = math.gcd(extent, 1 << draw.randint(0, extent.bit_length() - 1)) if extent > 64 else 1
        begin = draw.randrange(extent // unit)
        region.append((begin * unit, draw.randint(begin + 1, min(extent // unit, begin + 64)) * unit))
    return tuple(region)


def _slice(draw: random.Random) -> Request:
    layout = _layout(draw)
    shape = _fitting(draw, layout) if draw.random() < 0.7 or layout.size > 64 else _shape(draw, layout.size)
    return Request("slice", (layout, shape, _region(draw, shape)))


def _grouped(op: str) -> Callable[[random.Random], Request]:
    def make(draw: random.Random) -> Request:
        layout = _layout(draw)
        return Request(op, (layout, _fitting(draw, layout) if layout.size > 64 else _shape(draw, layout.size)))

    return make


def _permute(draw: random.Random) -> Request:
    layout = _layout(draw)
    shape = _fitting(draw, layout)
    order = list(range(len(shape)))
    draw.shuffle(order)
    return Request("permute", (layout, *order), {"shape": shape})


def _sum(op: str) -> Callable[[random.Random], Request]:
    def make(draw: random.Random) -> Request:
        inner, outer = _layout(draw, 24), _layout(draw, 8)
        a, b = list(_shape(draw, outer.size)), list(_shape(draw, inner.size))
        rank = max(len(a), len(b))
        shapes = [tuple(extents + [1] * (rank - len(extents))) for extents in (a, b)]
        return Request(op, (inner, outer, *shapes))

    return make


def _width(op: str) -> Callable[[random.Random], Request]:
    return lambda draw: Request(op, (_layout(draw), draw.choice([1, 2, 3, 4])))


def _fuse(draw: random.Random) -> Request:
    return Request("fuse_axes", (_layout(draw, 64, ("m", "laneid", "warpid")), "tx"))


def _split(draw: random.Random) -> Request:
    layout = _layout(draw, 64, ("tx", "m"), plain=True)
    return Request("split_axis", (layout, "tx", ("warpid", "laneid")))


def _compose(draw: random.Random) -> Request:
    return Request("compose", (_layout(draw, 64, ("m",), plain=True), _layout(draw, 24, ("m",), plain=True)))


_MAKERS: Final[dict[str, Callable[[random.Random], Request]]] = {
    "broadcast": lambda draw: Request("broadcast", (_layout(draw), draw.choice([1, 2, 3]), draw.choice([0, -1]))),
    "canonicalize": lambda draw: Request("canonicalize", (_layout(draw),)),
    "complement": lambda draw: Request("complement", (_layout(draw, 16, ("m",), plain=True), draw.choice([8, 24, 60]))),
    "compose": _compose,
    "direct_sum": _sum("direct_sum"),
    "fuse_axes": _fuse,
    "group": _grouped("group"),
    "pack": _width("pack"),
    "permute": _permute,
    "regroup": _grouped("regroup"),
    "right_inverse": lambda draw: Request("right_inverse", (_layout(draw, 24, ("m",), plain=True),)),
    "slice": _slice,
    "split_axis": _split,
    "storage": lambda draw: Request("storage", (_layout(draw),)),
    "tile": _sum("tile"),
    "unpack": _width("unpack"),
}
