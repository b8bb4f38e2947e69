"""Changing the width of elements, and adding or dropping digits.

Two half-precision numbers fill one 32-bit word.  If L says in which word element k lives, the halves live at

    unpack(L, n)(k*n + j) = n * L(k) + j       0 <= j < n

on the axis that counts the elements; other axes do not change, and the axis's offset and replicas are
multiplied too.  So ``S[4:1]`` in words is ``S[(4,2):(2,1)] = S[8:1]`` in halves.

``pack`` goes back.  The last n values of every block must be n neighbours, so the innermost canonical iter has stride
1 and an extent that n divides, and every other stride, replica and offset on the axis must be a multiple of n.  These
conditions are also sufficient; each failure has an index that shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layoutalg.algebra.canonical import canonical_replica, canonical_shard, merge_progressions
from layoutalg.axis import Axis
from layoutalg.decide import Number, as_number, at_most, certainly_equal, equal, exact_quotient
from layoutalg.errors import NotExpressibleError, RangeError
from layoutalg.iters import Iter, Iters

if TYPE_CHECKING:
    from layoutalg.algebra.tiling import Parts
    from layoutalg.tile import TileLayout

__all__ = ["broadcast", "pack", "storage", "unpack"]


def _count(n: object, what: str) -> Number:
    value = as_number(n, f"the factor of {what}")
    if not at_most(1, value):
        raise RangeError(f"{what}: {value} elements; there is at least one", count=value)
    return value


def unpack(layout: TileLayout, n: object, axis: str | Axis) -> Parts:
    """Return the layout of elements n times narrower.

    Law (verify.laws.packing): ``U(k*n + j) = n*L(k) + j`` on the axis, unchanged elsewhere.

    Raises:
        RangeError: n is no integer of at least 1.
        AxisError: unknown axis.

    >>> from layoutalg.tile import TileLayout
    >>> unpack(TileLayout.parse("S[4:3] + 1"), 2, "m")
    Parts(shard=(4:6, 2:1), replica=(), offset={m: 2})
    """
    from layoutalg.algebra.tiling import Parts

    count, on = _count(n, "unpack"), Axis.get(axis)
    shard = (*_scale(layout.shard, on, count), Iter(count, 1, on))
    offset = {Axis.get(name): value for name, value in layout.offset.items()}
    if on in offset:
        offset[on] = offset[on] * count
    return Parts(canonical_shard(shard), _scale(layout.replica, on, count), offset)


def _scale(iters: Iters, axis: Axis, factor: Number) -> Iters:
    return tuple(Iter(e, s * factor, a) if a is axis else Iter(e, s, a) for e, s, a in iters)


def pack(layout: TileLayout, n: object, axis: str | Axis) -> Parts:
    """Return the layout of elements n times wider, the inverse of :func:`unpack`.

    Law (verify.laws.packing): ``unpack(pack(L, n), n)`` is L; it refuses only where no layout does that.

    Raises:
        NotExpressibleError: n elements are not neighbours, or a place is no multiple of n; ``index`` shows it.

    >>> from layoutalg.tile import TileLayout
    >>> pack(TileLayout.parse("S[(4,2):(2,1)]"), 4, "m")
    Parts(shard=(2:1,), replica=(), offset={})
    """
    from layoutalg.algebra.tiling import Parts

    count, on = _count(n, "pack"), Axis.get(axis)
    if exact_quotient(layout.size, count) is None:
        raise NotExpressibleError(f"pack: {layout} has {layout.size} elements, no multiple of {count}")
    replica, offset = _packed_set(layout, count, on)
    shard = _outer_of_run(canonical_shard(layout.shard), count, on, layout)
    scaled: list[Iter] = []
    inner = count
    for extent, stride, at in reversed(shard):
        quotient = stride if at is not on else exact_quotient(stride, count)
        if quotient is None:
            raise NotExpressibleError(
                f"pack: index {inner} of {layout} moves by {stride}@{on}, no multiple of {count}", index=inner
            )
        scaled.insert(0, Iter(extent, quotient, at))
        inner = inner * extent
    return Parts(tuple(scaled), replica, offset)


def _outer_of_run(shard: Iters, count: Number, axis: Axis, layout: TileLayout) -> Iters:
    """Take ``count`` neighbours off the innermost iter."""
    if certainly_equal(count, 1):
        return shard
    extent, stride, on = shard[-1]
    if on is not axis or not equal(stride, 1):
        raise NotExpressibleError(
            f"pack: elements 0 and 1 of {layout} are no neighbours on {axis}, so {count} of them make no wider one",
            index=1,
        )
    rest = exact_quotient(extent, count)
    if rest is None:
        raise NotExpressibleError(
            f"pack: {layout} has runs of {extent} neighbours on {axis}; {count} does not divide them", index=extent
        )
    head = () if certainly_equal(rest, 1) else (Iter(rest, count, axis),)
    return (*shard[:-1], *head)


def _packed_set(layout: TileLayout, count: Number, axis: Axis) -> tuple[Iters, dict[Axis, Number]]:
    """Divide the replicas and the offset on the axis: every place of element 0 must be a multiple of count."""
    offset = {Axis.get(name): value for name, value in layout.offset.items()}
    others = tuple(it for it in layout.replica if it.axis is not axis)
    pairs, low = merge_progressions(it for it in layout.replica if it.axis is axis)
    start = offset.pop(axis, 0) + low.get(axis, 0)
    divided = [(exact_quotient(stride, count), extent) for stride, extent in pairs.get(axis, [])]
    first = exact_quotient(start, count)
    if first is None or any(stride is None for stride, _ in divided):
        where = start if first is None else f"steps of {', '.join(str(s) for s, _ in pairs[axis])} from there"
        raise NotExpressibleError(
            f"pack: element 0 of {layout} lies at {where} on {axis}, no multiple of {count}", index=0
        )
    replica, _ = canonical_replica(tuple(Iter(extent, stride, axis) for stride, extent in divided))
    if not certainly_equal(first, 0):
        offset[axis] = first
    return others + replica, offset


def broadcast(layout: TileLayout, n: object, position: object, axis: str | Axis) -> Parts:
    """Insert a digit of extent n that moves nothing; negative positions count from the end of the new list.

    Law: with x the index without the new digit, ``B(x with any digit) = L(x)``.

    >>> from layoutalg.tile import TileLayout
    >>> broadcast(TileLayout.parse("S[4:1]"), 2, 0, "m").shard
    (2:0, 4:1)
    """
    from layoutalg.algebra.tiling import Parts

    count, rank = _count(n, "broadcast"), len(layout.shard) + 1
    at = as_number(position, "the position of a broadcast")
    if type(at) is not int or not -rank <= at < rank:
        raise RangeError(f"broadcast: position {at} lies outside [{-rank}, {rank})", position=at)
    at %= rank
    shard = (*layout.shard[:at], Iter(count, 0, Axis.get(axis)), *layout.shard[at:])
    return Parts(shard, layout.replica, {Axis.get(name): value for name, value in layout.offset.items()})


def storage(layout: TileLayout) -> Parts:
    """Keep the memory axes: the layout of what one thread of one device holds.

    Iters, replicas and offsets on thread and device axes are dropped, so the size is that of the memory part.

    >>> from layoutalg.tile import TileLayout
    >>> storage(TileLayout.parse("S[(8,2):(4@laneid,1)] + 5@warpid")).shard
    (2:1,)
    """
    from layoutalg.algebra.tiling import Parts

    def keep(iters: Iters) -> Iters:
        return tuple(it for it in iters if it.axis.kind == "memory")

    offset = {Axis.get(name): value for name, value in layout.offset.items()}
    return Parts(keep(layout.shard), keep(layout.replica), {a: v for a, v in offset.items() if a.kind == "memory"})
