"""Narrower and wider elements: unpack and pack undo one another.

The step is the arithmetic of one place, with k*n + j split by n; the families run the shipping code on unknown strides.
Where ``pack`` refuses, no layout P has n*P(k) + j = L(k*n + j): n elements are no neighbours, a place is no multiple of
n, or the places of the wide elements are no layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from layoutalg.algebra import packing
from layoutalg.axis import Axis, laneid
from layoutalg.decide import exact_quotient
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter
from verify.explore import Formula, all_of, any_of, equal_to, negate, nonzero
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.step import World, step, steps_of

__all__ = ["LAWS"]

ALL = "all strides and indices, all extents and factors >= 1"


def _floored(v: Any) -> tuple[Any, Any]:
    return v["s"], v["s"] // v["N"] * v["N"]


@step(ALL, mutants={"strides divided with rounding": _floored})
def unpack_and_pack(w: World) -> Any:
    """The list scaled by N with (N : 1) within has at k*N + j the place N*L(k) + j; dividing by N undoes it."""
    n, e, s, u = w.extent("N"), w.extent("e"), w.integer("s"), w.integer("u")
    d, j = w.digit("d", e), w.digit("j", n)
    k = u * e + d
    index = w.digits(u, (d, e), (j, n))
    w.know("divmod", u, e, d)
    if w.wrong:  # s is any stride of the packed layout: dividing and multiplying gives it back
        q, r = w.division(s, n)
        w.assume(r >= 0)
        return q * n == s
    narrow, wide = w.values([(e, s * n), (n, 1)], index), w.values([(e, s)], k)
    w.know("divmod", s, n, 0)
    return w.all(w.same(narrow, (wide[0], n * wide[1] + j)), (s * n) // n == s)


# -- families ------------------------------------------------------------------------------------------------------

Member = tuple[str, int]


def _run_unpack(x: Any, member: Member) -> Any:
    layout = layout_of(x, *spelt(member[0])) + x.unknown("a")
    return layout, layout.unpack(member[1])


def _narrow(place: dict[str, Any], n: int, j: int) -> dict[str, Any]:
    return {axis: value for axis, value in place.items() if axis != "m"} | {"m": place.get("m", 0) * n + j}


def _judge_unpack(member: Member, answer: Any) -> Labelled:
    layout, found = answer
    n, values = member[1], table(layout)
    for index, place in enumerate(table(found)):
        yield {"index": index}, equal_to(place, _narrow(values[index // n], n, index % n))


def _run_pack(x: Any, member: Member) -> Any:
    layout = layout_of(x, *spelt(member[0])) + x.unknown("a")
    return layout, attempt(layout.pack, member[1])


def _judge_pack(member: Member, answer: Any) -> Labelled:
    layout, found = answer
    n, values = member[1], table(layout)
    if not isinstance(found, NotExpressibleError):
        for index, place in enumerate(values):
            yield {"index": index}, equal_to(place, _narrow(found.apply(index // n), n, index % n))
        return
    if len(values) % n:
        yield {}, True
        return
    heads = values[::n]
    together: list[Formula] = [
        equal_to(values[k * n + j], {**heads[k], "m": heads[k].get("m", 0) + j})
        for k in range(len(heads))
        for j in range(n)
    ]
    torn = [nonzero(place.get("m", 0) % n) for place in heads]
    yield {"refused": str(found)}, any_of([negate(all_of(together)), *torn, no_layout(heads)])


def _run_storage(x: Any, text: str) -> Any:
    layout = layout_of(x, *spelt(text)) + x.unknown("a")
    layout = layout + x.unknown("w") @ laneid
    return layout, layout.storage()


def _judge_storage(_text: str, answer: Any) -> Labelled:
    """At the digits of the memory iters, the other digits 0, lies what L has there on memory axes."""
    layout, found = answer
    extents = [it.extent for it in layout.shard]
    memory = [k for k, it in enumerate(layout.shard) if it.axis.kind == "memory"]
    yield {"axes": found.axes}, all(axis.kind == "memory" for axis in found.axes)
    yield {"size": found.size}, found.size == math.prod(extents[k] for k in memory)
    for n, digits in enumerate(product(*(range(extents[k]) for k in memory))):
        x = [0] * len(extents)
        for k, digit in zip(memory, digits, strict=True):
            x[k] = digit
        wanted = {axis: value for axis, value in layout.apply(flatten(x, extents)).items() if axis == "m"}
        yield {"index": n}, equal_to(dict(found.apply(n)), wanted)


def _keep_all(layout: Any) -> Any:
    return _right_storage(layout)._replace(offset={Axis.get(name): value for name, value in layout.offset.items()})


_right_storage = packing.storage


def _floor(a: Any, b: Any) -> Any:
    return a // b


def _offset_kept(layout: Any, n: Any, axis: Any) -> Any:
    parts = _right_unpack(layout, n, axis)
    return parts._replace(offset={Axis.get(name): value for name, value in layout.offset.items()})


def _every_axis(iters: Any, _axis: Any, factor: Any) -> Any:
    return tuple(Iter(e, s * factor, a) for e, s, a in iters)


_right_unpack = packing.unpack


def _laws() -> Iterator[Law]:
    yield family(
        "packing.unpack",
        "unpack(n) has on the axis the place n*L(k) + j at k*n + j, and L's place elsewhere; offsets are scaled.",
        scope="lists to rank 3 on one and two axes, n to 4; all strides and offsets",
        members=[(text, n) for text in ("3:m", "2x3:mm", "2x2:ml", "2x2x2:mlm") for n in (1, 2, 3, 4)],
        run=_run_unpack,
        judge=_judge_unpack,
        mutants={
            "the offset kept": [Patch(_right_unpack, _offset_kept)],
            "other axes scaled": [Patch(packing._scale, _every_axis)],
        },
    )
    yield family(
        "packing.pack",
        "pack(n) is the layout that unpack(n) turns back into this one; where it refuses, there is none.",
        scope="lists to 12 elements on one and two axes, n to 6; all strides and offsets",
        members=[
            (text, n)
            for text in ("4:m", "2x2:mm", "3x2:mm", "2x3:lm", "2x4:mm", "2x2x2:mmm", "2x2x3:mml", "2x6:mm")
            for n in (1, 2, 3, 4, 6)
        ],
        run=_run_pack,
        judge=_judge_pack,
        mutants={"strides divided with rounding": [Patch(exact_quotient, _floor, packing)]},
    )

    yield family(
        "packing.storage",
        "storage has the memory iters alone, and at their digits the memory coordinates of L.",
        scope="lists to rank 4 on memory and lanes, offsets on both; all strides and offsets",
        members=["4:m", "2x3:lm", "2x2x3:mlm", "2x2x2:lml", "2x2x2x2:mlml", "3x2:ll"],
        run=_run_storage,
        judge=_judge_storage,
        mutants={"offsets on thread axes kept": [Patch(_right_storage, _keep_all)]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
