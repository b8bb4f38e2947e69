"""Slicing: the rules of ``layoutalg.algebra.slicing`` over all extents, and the shipping code on all strides.

Notation: E and S the innermost extent and stride, V the map of the outer digits, ``b = u*E + d`` the begin.  The steps
prove each rule right, and the facts that make refusals right (no break inside a block, no two smooth crossings in a
row).  That *every* refusal is right is proved for the families: there the obligation of a refusal is that no layout has
the values of the box, for any order of prime digits; it shares nothing with the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from layoutalg.algebra import slicing
from layoutalg.errors import NotExpressibleError
from layoutalg.index import flatten
from layoutalg.iters import Iter, Vector, combine, is_multiple_of_axis, vector_at, vector_step, vectors_equal
from verify.explore import all_of, equal_to, negate
from verify.laws.core import Law
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS", "Box", "boxes", "judge_box", "run_box"]

ALL = "all strides, outer maps and begins, all extents >= 1"


@step(
    ALL,
    mutants={
        "begin not aligned": lambda v: (
            places([(v["E"], v["S"])], v["B"] * v["E"] + v["x"] + v["i"] * v["E"] + v["d"]),
            (v["B"] + v["i"], v["d"] * v["S"]),
        )
    },
)
def peel(w: World) -> Any:
    """Where E divides begin and count, the outer digits are sliced alone: L(B*E + r) = V(B + r div E) + (r mod E)*S."""
    e, s, b, i = w.extent("E"), w.integer("S"), w.integer("B"), w.integer("i")
    d = w.digit("d", e)
    w.know("divmod", b + i, e, d)
    w.know("divmod", i, e, d)
    r = i * e + d
    begin = b * e
    if w.wrong:
        begin = begin + w.digit("x", e)
    return w.same(w.values([(e, s)], begin + r), (b + r // e, (r % e) * s))


@step(
    ALL,
    mutants={
        "first position of a block": lambda v: (
            places([(v["E"], v["S"])], v["u"] * v["E"] + v["d"]),
            tuple(
                a + b
                for a, b in zip(places([(v["E"], v["S"])], v["u"] * v["E"] + v["d"] - 1), (0, v["S"]), strict=True)
            ),
        )
    },
)
def no_break_inside_a_block(w: World) -> Any:
    """The step onto u*E + d with 0 < d < E is S, so a run can only end at a block's boundary."""
    e, s, u = w.extent("E"), w.integer("S"), w.integer("u")
    w.assume(e >= 2)
    d = w.digit("d", e)
    if not w.wrong:
        w.assume(d >= 1)
    w.know("divmod", u, e, d)
    w.know("divmod", u, e, d - 1)
    n = u * e + d
    here, before = w.values([(e, s)], n), w.values([(e, s)], n - 1)
    return w.same(here, (before[0], before[1] + s))


@step(
    ALL,
    mutants={
        "d + n <= E + 1": lambda v: (
            places([(v["E"], v["S"])], v["u"] * v["E"] + v["d"] + v["r"]),
            (v["u"], (v["d"] + v["r"]) * v["S"]),
        )
    },
)
def inside_one_block(w: World) -> Any:
    """Where d + n <= E the box is (n : S)."""
    e, s, u = w.extent("E"), w.integer("S"), w.integer("u")
    count = w.extent("n")
    d, r = w.digit("d", e), w.digit("r", count)
    w.assume(d + count <= (e + 1 if w.wrong else e))
    w.know("divmod", u, e, d + r)
    return w.same(w.values([(e, s)], u * e + d + r), (u, (d + r) * s))


def _value(w: World, outer: Any, e: Any, s: Any, n: Any) -> Any:
    """L(n) on one axis, for any map of the outer digits."""
    u, place = w.values([(e, s)], n)
    return outer(u) + place


def _outer_map(v: Any) -> Any:
    return lambda x: (x // v["V_extent"]) * v["V_outer"] + (x % v["V_extent"]) * v["V_inner"]


def _replay_smooth(v: Any) -> tuple[Any, Any]:
    outer, (u, place) = _outer_map(v), places([(v["E"], v["S"])], v["u"] * v["E"] + v["d"] + v["r"])
    return outer(u) + place, outer(v["u"]) + (v["d"] + v["r"]) * v["S"]


@step(ALL, mutants={"every crossing taken for smooth": _replay_smooth}, cases=[{"crossed": 0}, {"crossed": 1}])
def smooth_crossing(w: World, crossed: int) -> Any:
    """Where V(u+1) - V(u) = E*S the run goes on to the next block's end: L(b + r) = L(b) + r*S for d + r < 2E."""
    e, s, u, outer = w.extent("E"), w.integer("S"), w.integer("u"), w.map("V")
    d, r = w.digit("d", e), w.digit("r", e * 2)
    rest = d + r - e if crossed else d + r  # the digit at b + r
    w.assume(w.all(rest >= 0, rest < e))
    if not w.wrong:
        w.assume(outer(u + 1) - outer(u) == e * s)
    w.know("divmod", u + 1 if crossed else u, e, rest)
    w.know("divmod", u, e, d)
    return _value(w, outer, e, s, u * e + d + r) == outer(u) + (d + r) * s


def _replay_twice(v: Any) -> tuple[Any, Any]:
    def at(x: int) -> int:
        top, place = places([(v["F"], v["T"])], x)
        return int((top // v["W_extent"]) * v["W_outer"] + (top % v["W_extent"]) * v["W_inner"] + place)

    u = v["q"] * v["F"] + v["c"]
    return [at(u + k + 1) - at(u + k) for k in range(2)] != [v["E"] * v["S"]] * 2, True


@step(ALL, mutants={"outer extent 1 allowed": _replay_twice}, cases=[{"last": 0}, {"last": 1}])
def never_smooth_twice(w: World, last: int) -> Any:
    """In a canonical list two crossings in a row are not both smooth.

    The neighbour (F : T) has F >= 2 and does not continue (E : S), so T differs from E*S; one of the two crossings is
    no carry of the neighbour and steps by T.
    """
    f, e, s, t, q, outer = w.extent("F"), w.extent("E"), w.integer("S"), w.integer("T"), w.integer("q"), w.map("W")
    c = w.digit("c", f)
    w.assume(t != e * s)
    if not w.wrong:
        w.assume(f >= 2)
    w.assume(c == f - 1 if last else c < f - 1)
    for top, digit in ((q, c), (q, c + 1), (q + 1, 0 * c), (q + 1, 0 * c + 1)):
        w.know("divmod", top, f, digit)
    u = q * f + c
    carried = (q + 1) * f  # u + 1 where u's digit is the last, written from its new outer digit
    steps = [(carried, u), (carried + 1, carried)] if last else [(u + 1, u)]
    smooth = [_value(w, outer, f, t, a) - _value(w, outer, f, t, b) == e * s for a, b in steps]
    return w.no(w.all(*smooth)) if len(smooth) > 1 else w.no(smooth[0])


def _replay_halves(v: Any) -> tuple[Any, Any]:
    outer, begin = _outer_map(v), v["u"] * v["E"] + v["d"]
    top, place = places([(v["E"], v["S"])], begin + v["half"] * v["c"] + v["j"])
    jump = v["V_inner"] - v["d"] * v["S"]
    return outer(top) + place, outer(v["u"]) + (v["d"] + v["j"]) * v["S"] + v["half"] * jump


@step(ALL, mutants={"the neighbour's stride for V(u+1) - V(u)": _replay_halves}, cases=[{"half": 0}, {"half": 1}])
def two_halves(w: World, half: int) -> Any:
    """Where d + c = E and n = 2c the box is (2 : V(u+1) - V(u) - d*S)(c : S)."""
    e, s, u, outer = w.extent("E"), w.integer("S"), w.integer("u"), w.map("V")
    d = w.digit("d", e)
    c = w.integer("c")
    w.assume(d + c == e)
    j = w.digit("j", c)
    rest = j if half else d + j
    w.know("divmod", u + 1 if half else u, e, rest)
    step_out = outer(u + 1) - outer(u)
    if w.wrong:  # what the nearest outer iter alone would give; without a carry the two agree
        step_out = w.integer("V_inner")
    jump = step_out - d * s
    got = outer(u) + d * s + half * jump + j * s
    return _value(w, outer, e, s, u * e + d + half * c + j) == got


@step(
    ALL,
    mutants={
        "digit + 1 <= F (the guard that holds always)": lambda v: (
            places([(v["F"], v["T"])], v["q"] * v["F"] + v["c"] + 1),
            (v["q"], (v["c"] + 1) * v["T"]),
        )
    },
)
def guard(w: World) -> Any:
    """V(u+1) - V(u) is the neighbour's stride T exactly while its digit does not overflow: digit + 1 < F."""
    f, t, q = w.extent("F"), w.integer("T"), w.integer("q")
    c = w.digit("c", f)
    w.assume(c + 1 <= f if w.wrong else c + 1 < f)
    w.know("divmod", q, f, c)
    w.know("divmod", q, f, c + 1)
    here, after = w.values([(f, t)], q * f + c), w.values([(f, t)], q * f + c + 1)
    return w.same(after, (here[0], here[1] + t))


def _replay_half_shift(v: Any) -> tuple[Any, Any]:
    h, s, g, outer = v["H"], v["S"], v["g"], _outer_map(v)
    r = (v["i"] * 2 + v["k"]) * h + v["j"]
    top, place = places([(2 * h, s)], v["u"] * 2 * h + h + r)
    return outer(top) + place, outer(v["u"]) + h * s + v["i"] * g + v["k"] * (g - h * s) + v["j"] * s


@step(ALL, mutants={"a progression of q values only": _replay_half_shift}, cases=[{"k": 0}, {"k": 1}])
def half_shift(w: World, k: int) -> Any:
    """Where E = 2H, d = H, n = q*E and V(u+i) = V(u) + i*g for 0 <= i <= q, the box is (q : g)(2 : g - H*S)(H : S)."""
    h, q = w.extent("H"), w.extent("q")
    s, g, u, outer = w.integer("S"), w.integer("g"), w.integer("u"), w.map("V")
    i, j = w.digit("i", q), w.digit("j", h)
    e = h * 2
    for x in (i, i + 1):  # the instances of the hypothesis that matter
        within = x < q if w.wrong else x <= q
        w.assume(w.implies(w.all(x >= 0, within), outer(u + x) == outer(u) + x * g))
    top, rest = (u + i + 1, j) if k else (u + i, h + j)
    w.know("divmod", top, e, rest)
    got = outer(u) + h * s + i * g + k * (g - h * s) + j * s
    return _value(w, outer, e, s, top * e + rest) == got


# -- families ------------------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """A box of a layout with unknown strides."""

    extents: tuple[int, ...]
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...]

    def indices(self) -> list[int]:
        """Flat indices of the box in row-major order."""
        return [flatten(x, self.shape) for x in product(*(range(b, e) for b, e in self.region))]


def boxes(extents: Sequence[int], names: Sequence[str], shape: Sequence[int] | None = None) -> Iterator[Box]:
    """Every box of a shape (one dimension without one)."""
    dims = tuple(shape) if shape is not None else (math.prod(extents),)
    intervals = [[(b, e) for b in range(n) for e in range(b + 1, n + 1)] for n in dims]
    for region in product(*intervals):
        yield Box(tuple(extents), tuple(names), dims, region)


def run_box(x: Any, box: Box) -> tuple[Any, Any]:
    """The layout with unknown strides, and its slice or refusal."""
    layout = layout_of(x, box.extents, box.axes)
    return layout, attempt(layout.slice, box.shape, box.region)


def judge_box(box: Box, answer: tuple[Any, Any]) -> Labelled:
    """A slice has the values of the box; a refusal means that no layout has them."""
    layout, part = answer
    whole = table(layout)
    wanted = [whole[n] for n in box.indices()]
    if isinstance(part, NotExpressibleError):
        yield {"refused": str(part)}, no_layout(wanted)
        return
    for r, (a, b) in enumerate(zip(wanted, table(part), strict=True)):
        yield {"index": r}, equal_to(a, b)


def _run_length(x: Any, box: Box) -> tuple[Any, Any]:
    layout = layout_of(x, box.extents, box.axes).canonicalize()
    ((begin, end),) = box.region
    if end - begin < 2 or not layout.shard:
        return layout, end - begin
    return layout, slicing._run_length(layout.shard, begin, end - begin)


def _judge_length(box: Box, answer: tuple[Any, Any]) -> Labelled:
    layout, length = answer
    ((begin, end),) = box.region
    values = table(layout)[begin:end]

    def agrees(r: int) -> Any:
        axes = {axis for value in values for axis in value}
        return equal_to(
            values[r], {a: values[0].get(a, 0) + r * (values[1].get(a, 0) - values[0].get(a, 0)) for a in axes}
        )

    if len(values) < 2:
        return
    yield {"length": length}, all_of(agrees(r) for r in range(length))
    if length < len(values):
        yield {"length": length}, negate(agrees(length))


# Wrong implementations: each replaces one function of the shipping module.


def _neighbour_only(iters: Any, _index: Any) -> Vector:
    return {iters[-1].axis: iters[-1].stride}


def _interval_with(rule: Any) -> Any:
    right = slicing._interval

    def wrong(iters: Any, begin: Any, count: int) -> Any:
        if count > 1 and len(iters) > 1:
            found = rule(iters, begin, count)
            if found is not None:
                return found
        return right(iters, begin, count)

    return wrong


def _peel_anywhere(iters: Any, begin: Any, count: int) -> Any:
    extent, stride, axis = iters[-1]
    if count % extent:
        return None
    sliced, start = slicing._peel(iters[:-1], begin // extent, count // extent, extent)
    return (*sliced, iters[-1]), combine(start, {axis: (begin % extent) * stride})


def _one_too_long(iters: Any, begin: Any, count: int) -> Any:
    extent, stride, axis = iters[-1]
    if begin % extent + count != extent + 1:
        return None
    start = combine(vector_at(iters[:-1], begin // extent), {axis: (begin % extent) * stride})
    return (Iter(count, stride, axis),), start


def _first_axis(extent: int, vector: Vector, _index: int) -> Iter:
    found = is_multiple_of_axis(vector)
    if found is None:
        axis = next(iter(vector))
        found = (vector[axis], axis)
    return Iter(extent, *found)


_right_length = slicing._run_length
_right_broken = slicing._broken


def _no_half_shift(outer: Any, u: Any, d: Any, count: int, inner: Iter) -> Any:
    if count > 2 * (inner.extent - d):
        raise slicing._NoRunError(0, "more than two runs")
    return _right_broken(outer, u, d, count, inner)


NEIGHBOUR = Patch(vector_step, _neighbour_only)
UNGUARDED = Patch(slicing._interval, _interval_with(_peel_anywhere))
PIVOT = Patch(slicing._interval, _interval_with(_one_too_long))
TWO_AXES = Patch(slicing._one_axis, _first_axis)
SHORT = Patch(slicing._run_length, lambda iters, begin, limit: min(limit, _right_length(iters, begin, limit) + 1))
NEVER_SMOOTH = Patch(vectors_equal, lambda _a, _b: False, slicing)
ALWAYS_SMOOTH = Patch(vectors_equal, lambda _a, _b: True, slicing)
NO_HALF_SHIFT = Patch(slicing._broken, _no_half_shift)

_TEXT = "slice(L, box) has the value L(begin + r) at every r; where it refuses, no layout has the values of the box."


def _family(name: str, members: Iterable[Box], what: str, mutants: dict[str, Patch]) -> Law:
    found = list(members)
    return family(
        f"slicing.{name}",
        _TEXT,
        scope=f"every box of {what}; all strides, zero and negative included",
        members=found,
        run=run_box,
        judge=judge_box,
        mutants={wrong: [patch] for wrong, patch in mutants.items()},
    )


def _intervals(*cases: str) -> Iterator[Box]:
    """Boxes of "2x3:ml": extents and axes; "2x2x2:mmm as 4x2" gives a shape."""
    for case in cases:
        layout, _, shape = case.partition(" as ")
        yield from boxes(*spelt(layout), [int(e) for e in shape.split("x")] if shape else None)


#: Family -> its lists (extents, axes, and the shape where it is not one dimension), what they are, and mutants.
_FAMILIES: dict[str, tuple[tuple[str, ...], str, dict[str, Patch]]] = {
    "intervals_of_two_iters": (
        ("2x2:mm", "2x3:mm", "3x2:mm", "4x2:mm", "2x4:mm", "3x3:mm", "4x3:mm", "3x4:mm", "5x2:mm", "2x6:mm"),
        "(e0,e1) up to 12 elements on one axis",
        {"peel without alignment": UNGUARDED, "run one element too long": PIVOT, "half shift forgotten": NO_HALF_SHIFT},
    ),
    "intervals_on_two_axes": (
        ("2x2:ml", "3x2:ml", "2x3:ml", "4x2:ml", "2x4:ml", "3x4:lm", "6x2:lm"),
        "(e0,e1) up to 12 elements on two axes",
        {"a step on two axes taken for one": TWO_AXES},
    ),
    "intervals_2x2x2": (
        ("2x2x2:mmm",),
        "(2,2,2) on one axis",
        {"the neighbour's stride at every crossing": NEIGHBOUR, "smooth crossings missed": NEVER_SMOOTH},
    ),
    "intervals_2x2x2_two_axes": (
        ("2x2x2:mml", "2x2x2:mlm", "2x2x2:lmm"),
        "(2,2,2) on two axes",
        {"every crossing taken for smooth": ALWAYS_SMOOTH},
    ),
    "intervals_2x2x3": (
        ("2x2x3:mmm", "2x2x3:mlm"),
        "(2,2,3) on one and two axes",
        {"the neighbour's stride at every crossing": NEIGHBOUR},
    ),
    "intervals_2x3x2": (
        ("2x3x2:mmm", "3x2x2:mmm"),
        "(2,3,2) and (3,2,2) on one axis",
        {"progression one too short": SHORT},
    ),
    "intervals_2x2x4": (("2x2x4:mmm",), "(2,2,4) on one axis", {"the neighbour's stride at every crossing": NEIGHBOUR}),
    "intervals_2x4x2": (("2x4x2:mmm",), "(2,4,2) on one axis", {"progression one too short": SHORT}),
    "intervals_4x2x2": (("4x2x2:mmm",), "(4,2,2) on one axis", {"half shift forgotten": NO_HALF_SHIFT}),
    "intervals_3x3x2": (("3x3x2:mmm",), "(3,3,2) on one axis", {"peel without alignment": UNGUARDED}),
    "intervals_2x2x2x2": (("2x2x2x2:mmmm",), "(2,2,2,2) on one axis", {"half shift forgotten": NO_HALF_SHIFT}),
    "intervals_2x2x2x2_two_axes": (
        ("2x2x2x2:mlmm",),
        "(2,2,2,2) on two axes",
        {"a step on two axes taken for one": TWO_AXES},
    ),
    "boxes_of_two_dimensions": (
        ("2x2x2:mmm as 2x4", "2x2x2:mmm as 4x2", "2x2x2:mlm as 2x4", "3x2x2:mmm as 6x2", "2x2x3:mmm as 2x6"),
        "two-dimensional shapes over three iters",
        {"run one element too long": PIVOT},
    ),
    "boxes_of_2x2x2x2": (
        ("2x2x2x2:mmmm as 4x4",),
        "(2,2,2,2) as a (4, 4) shape",
        {"peel without alignment": UNGUARDED},
    ),
    "boxes_of_2x8": (
        ("2x2x2x2:mmmm as 2x8",),
        "(2,2,2,2) as a (2, 8) shape",
        {"the neighbour's stride at every crossing": NEIGHBOUR},
    ),
    "boxes_of_three_dimensions": (
        ("2x2x2x2:mmmm as 2x4x2", "2x2x2:mlm as 2x2x2", "2x2x2x2:mmlm as 2x2x4"),
        "three-dimensional shapes over (2,2,2) and (2,2,2,2)",
        {"run one element too long": PIVOT},
    ),
}


def _laws() -> Iterator[Law]:
    for name, (lists, what, mutants) in _FAMILIES.items():
        yield _family(name, _intervals(*lists), what, mutants)
    yield family(
        "slicing.run_length",
        "The length found for the half shift is that of the longest progression from the begin.",
        scope="every interval of (4,2), (2,2,2), (2,3,2), (2,2,3); all strides",
        members=list(_intervals("4x2:mm", "2x2x2:mmm", "2x3x2:mmm", "2x2x3:mmm", "2x2x2:mlm")),
        run=_run_length,
        judge=_judge_length,
        mutants={"progression one too short": [SHORT]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
