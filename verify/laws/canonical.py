"""The canonical form of a shard: rewriting keeps the map, and equal maps have equal forms.

The steps speak about one axis and the outermost digit, which stands for all outer iters; axes are independent because
places add up axis by axis.  By induction on the rank: each rewrite keeps the map, and unique heads make the whole list
unique.  The families run the shipping ``canonical_shard`` and ``first_difference`` on unknown strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

from layoutalg.algebra import canonical, equality
from layoutalg.algebra.canonical import canonical_shard
from layoutalg.axis import m
from layoutalg.iters import Iter, Iters
from layoutalg.tile import TileLayout
from verify.explore import equal_to, negate, nonzero
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, family, layout_of, table
from verify.laws.forking import forking_step
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS"]

ALL = "all indices and strides, all extents >= 1"


def _own_extent(v: Any) -> tuple[Any, Any]:
    f, e, s = v["f"], v["e"], v["s"]
    return places([(f, f * s), (e, s)], v["n"]), places([(f * e, s)], v["n"])


@step(ALL, mutants={"stride f*s of the outer iter's own extent": _own_extent})
def fuse(w: World) -> Any:
    """(f : e*s)(e : s) = (fe : s): neighbours of one progression are one iter, and one iter splits into such two."""
    f, e, s = w.extent("f"), w.extent("e"), w.integer("s")
    n = w.digits(w.integer("u"), (w.digit("c", f), f), (w.digit("d", e), e))
    if w.wrong:
        named = w.integer("n")
        w.assume(named == n)
        return w.same(w.values([(f, f * s), (e, s)], n), w.values([(f * e, s)], n))
    return w.same(w.values([(f, e * s), (e, s)], n), w.values([(f * e, s)], n))


def _swapped_halves(v: Any) -> tuple[Any, Any]:
    inner = [(v["f"], v["r"]), (v["e"], v["s"])]
    z = v["g"]
    outer, rest = places([(v["g"], v["t"])], v["n"] // z), places(inner, v["n"] % z)
    return places([(v["g"], v["t"]), *inner], v["n"]), (outer[0], outer[1] + rest[1])


@step(ALL, mutants={"divided by the size of the outer list": _swapped_halves})
def concatenate(w: World) -> Any:
    """(D1 ++ D2)(n) = D1(n div z) + D2(n mod z), z the size of D2: lists of iters compose."""
    g, f, e = (w.extent(name) for name in ("g", "f", "e"))
    t, r, s = (w.integer(name) for name in ("t", "r", "s"))
    b, c, d = w.digit("b", g), w.digit("c", f), w.digit("d", e)
    n = w.digits(w.integer("u"), (b, g), (c, f), (d, e))
    w.digits(0, (c, f), (d, e))
    z = f * e
    if w.wrong:
        named, z = w.integer("n"), g
        w.assume(named == n)
    outer, inner = w.values([(g, t)], n // z), w.values([(f, r), (e, s)], n % z)
    return w.same(w.values([(g, t), (f, r), (e, s)], n), (outer[0], outer[1] + inner[1]))


def _zero_dropped(v: Any) -> tuple[Any, Any]:
    return places([(v["f"], 0), (v["e"], v["s"])], v["n"]), places([(v["e"], v["s"])], v["n"])


@step(ALL, mutants={"a zero iter dropped": _zero_dropped})
def unit_and_zero_iters(w: World) -> Any:
    """(1 : s) has no effect; (f : 0)(e : 0) = (fe : 0) keeps its extent."""
    f, e, s = w.extent("f"), w.extent("e"), w.integer("s")
    n = w.digits(w.integer("u"), (w.digit("c", f), f), (w.digit("d", e), e))
    if w.wrong:
        named = w.integer("n")
        w.assume(named == n)
        return w.same(w.values([(f, 0), (e, s)], n), w.values([(e, s)], n))
    w.know("divmod", n // e, 1, 0)
    dropped = w.same(w.values([(f, s), (1, s), (e, s)], n), w.values([(f, s), (e, s)], n))
    return w.all(dropped, w.same(w.values([(f, 0), (e, 0)], n), w.values([(f * e, 0)], n)))


def _unmerged(v: Any) -> tuple[Any, Any]:
    lists = [(Iter(v[f"R{k}"], v[f"t{k}"], m), Iter(v[f"e{k}"], v[f"s{k}"], m)) for k in (1, 2) if v[f"b{k}"] == 0]
    return [canonical_shard(iters) for iters in lists], lists


@step(ALL, mutants={"zero strides left unmerged": _unmerged})
def unique_head(w: World) -> Any:
    """Two canonical lists of one size that agree at 1 and at the lesser of their last extents have the same last iter.

    Canonical: extents >= 2, a zero stride lies on axis m (axis 0 here), and no iter continues its inner neighbour.
    The next iters are (t1 on b1) and (t2 on b2), R1 and R2 the sizes of what lies outside the last iters.
    """
    e1, e2, r1, r2 = (w.extent(name) for name in ("e1", "e2", "R1", "R2"))
    heads = [(w.integer(f"s{k}"), w.integer(f"a{k}")) for k in (1, 2)]
    nexts = [(w.integer(f"t{k}"), w.integer(f"b{k}")) for k in (1, 2)]
    w.assume(w.all(e1 >= 2, e2 >= 2, e1 * r1 == e2 * r2))
    for stride, axis in (*heads, *nexts):
        w.assume(w.implies(stride == 0, axis == 0))
    for e, (s, a), (t, b) in zip((e1, e2), heads, nexts, strict=True):
        merges = w.all(t == e * s, a == b, s != 0) if w.wrong else w.all(t == e * s, a == b)
        w.assume(w.no(merges))

    def equal(x: Any, y: Any) -> Any:
        return w.all(x[0] == y[0], w.any(x[0] == 0, x[1] == y[1]))

    w.assume(equal(heads[0], heads[1]))  # at 1
    w.assume(w.implies(e1 < e2, equal(nexts[0], (e1 * heads[1][0], heads[1][1]))))  # at e1
    w.assume(w.implies(e2 < e1, equal(nexts[1], (e2 * heads[0][0], heads[0][1]))))  # at e2
    there = w.all(w.implies(e1 < e2, r1 >= 2), w.implies(e2 < e1, r2 >= 2))  # the next iters exist
    return w.all(there, e1 == e2, heads[0][0] == heads[1][0], heads[0][1] == heads[1][1])


# -- families ------------------------------------------------------------------------------------------------------

Shard = tuple[tuple[int, ...], tuple[str, ...]]


def _shards(rank: int, axes: tuple[tuple[str, ...], ...]) -> Iterator[Shard]:
    for extents in product((1, 2, 3), repeat=rank):
        for names in axes:
            yield extents, names


def _run_canonical(x: Any, member: Shard) -> tuple[TileLayout, TileLayout]:
    layout = layout_of(x, *member)
    return layout, layout.canonicalize()


def _judge_canonical(_member: Shard, answer: tuple[TileLayout, TileLayout]) -> Labelled:
    layout, form = answer
    for n, (a, b) in enumerate(zip(table(layout), table(form), strict=True)):
        yield {"index": n}, equal_to(a, b)
    for it in form.shard:
        yield {"unit": str(it)}, it.extent != 1
        yield {"zero": str(it)}, it.axis is m or nonzero(it.stride)
    for outer, inner in pairwise(form.shard):
        yield (
            {"mergeable": f"{outer},{inner}"},
            outer.axis is not inner.axis or nonzero(outer.stride - inner.extent * inner.stride),
        )


def _canonical_with(mistake: str) -> Any:
    def wrong(iters: Iters, **_: Any) -> Iters:
        merged: list[Iter] = []
        for it in reversed(iters):
            if it.extent == 1 and mistake != "units":
                continue
            if it.axis is not m and mistake != "axis" and it.stride == 0:
                it = Iter(it.extent, 0, m)
            if merged and (merged[-1].axis is it.axis or mistake == "blind"):
                inner = merged[-1]
                pitch = it.extent if mistake == "own" else inner.extent
                if it.stride == pitch * inner.stride:
                    merged[-1] = Iter(it.extent * inner.extent, inner.stride, inner.axis)
                    continue
            merged.append(it)
        return tuple(reversed(merged))

    return wrong


def _mistake(kind: str) -> list[Patch]:
    return [Patch(canonical_shard, _canonical_with(kind))]


Pair = tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...], tuple[str, ...]]


def _run_difference(x: Any, member: Pair) -> Any:
    a = layout_of(x, member[0], member[1])
    b = TileLayout.from_iters(
        shard=[(e, x.unknown(f"t{k}"), axis) for k, (e, axis) in enumerate(zip(member[2], member[3], strict=True))]
    )
    return a, b, a.difference(b)


def _judge_difference(_member: Pair, answer: Any) -> Labelled:
    a, b, found = answer
    values = list(zip(table(a), table(b), strict=True))
    first = len(values) if found is None else found[0]
    for n, (x, y) in enumerate(values[:first]):
        yield {"index": n}, equal_to(x, y)
    if found is not None:
        yield {"index": first}, negate(equal_to(*values[first]))


def _next_unit(a: Iters, b: Iters) -> int | None:
    return None if len(a) == len(b) and all(x.extent == y.extent for x, y in zip(a, b, strict=True)) else 1


def _any_extents(w: Any, rank: int) -> Any:
    """The canonical list and the list as written have the same outermost digit and place at every index."""
    extents = [w.extent(f"e{k}") for k in range(rank)]
    strides = [w.integer(f"s{k}") for k in range(rank)]
    digits = [w.digit(f"c{k}", e) for k, e in enumerate(extents)]
    n = w.digits(w.integer("u"), *zip(digits, extents, strict=True))
    written = tuple(Iter(e, s, m) for e, s in zip(extents, strides, strict=True))
    form = canonical.canonical_shard(written)
    for it in form[1:]:
        w.know("divmod", n // it.extent, 1, 0)
    return w.same(
        w.values([(it.extent, it.stride) for it in form], n), w.values(list(zip(extents, strides, strict=True)), n)
    )


def _replay_any_extents(v: Any) -> tuple[Any, Any]:
    written = tuple(Iter(v[f"e{k}"], v[f"s{k}"], m) for k in range(v["rank"]))
    n = v["u"]
    for k in range(v["rank"]):
        n = n * v[f"e{k}"] + v[f"c{k}"]
    forms = [canonical_shard(written), _canonical_with("own")(written)]
    found = [places([(it.extent, it.stride) for it in form], n) for form in forms]
    return found[0], found[1]


def _small_forms() -> Any:
    from verify.verdict import Proved, Refuted

    count = 0
    for rank in (1, 2, 3):
        for extents in product((1, 2, 3), repeat=rank):
            for strides in product((0, 1, 2, 3), repeat=rank):
                written = [(e, s) for e, s in zip(extents, strides, strict=True)]
                form = [(it.extent, it.stride) for it in canonical_shard(tuple(Iter(e, s, m) for e, s in written))]
                for n in range(2 * math.prod(extents)):
                    count += 1
                    if places(form, n) != places(written, n):
                        return Refuted("small lists", {"list": written, "index": n})
    return Proved(f"{count} members evaluated")


def _laws() -> Iterator[Law]:
    yield forking_step(
        "canonical.form_of_any_extents",
        "canonical_shard keeps the map, run on unknown extents and strides along every path.",
        scope="all extents and strides, lists to rank 3, all indices",
        function=_any_extents,
        cases=({"rank": 1}, {"rank": 2}, {"rank": 3}),
        mutants={
            "fused by the outer iter's own extent": (tuple(_mistake("own")), _replay_any_extents),
        },
        evaluate=_small_forms,
    )
    one = (("m",), ("laneid",))
    two = (("m", "m"), ("laneid", "laneid"), ("laneid", "m"))
    three = (("m", "m", "m"), ("laneid", "laneid", "laneid"), ("laneid", "m", "m"), ("m", "laneid", "m"))
    text = (
        "canonicalize keeps the map, leaves no unit iter, no zero stride off axis m and no iter that continues its "
        "inner neighbour."
    )
    for name, members, wrong in (
        ("form_to_rank_2", [*_shards(1, one), *_shards(2, two)], {"fused by the outer iter's own extent": "own"}),
        (
            "form_of_rank_3",
            list(_shards(3, three)),
            {"axes ignored": "blind", "unit iters kept": "units", "zero strides keep their axis": "axis"},
        ),
    ):
        yield family(
            f"canonical.{name}",
            text,
            scope="extents 1, 2, 3, one and two axes; all strides",
            members=members,
            run=_run_canonical,
            judge=_judge_canonical,
            mutants={label: _mistake(kind) for label, kind in wrong.items()},
        )
    pairs = [((4,), (2, 2)), ((2, 2), (2, 2)), ((6,), (2, 3)), ((2, 3), (3, 2)), ((2, 4), (4, 2)), ((8,), (2, 2, 2))]
    yield family(
        "canonical.difference",
        "difference(a, b) is None exactly when the maps are equal, and else names the first index where they differ.",
        scope="pairs of lists of one size up to 8 (of rank 3), on one and on two axes; all strides of both",
        members=[
            (a, ("m",) * len(a), b, axes)
            for a, b in pairs
            for axes in (("m",) * len(b), ("laneid", *("m",) * (len(b) - 1)))
        ],
        run=_run_difference,
        judge=_judge_difference,
        mutants={
            "strides not compared": [Patch(equality.first_difference, _next_unit)],
            "zero strides keep their axis": _mistake("axis"),
        },
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
