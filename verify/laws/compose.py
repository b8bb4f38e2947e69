"""Composition, complement and inverses of layouts on one memory axis.

The steps are the digit rules of ``compose``: a digit of B that is a multiple of A's inner size, one that divides it,
and sums that do not carry.  The shipping code also decides by values; it is tried on every pair of a list of small
layouts, refusals included: brute force says whether the composed values, the greedy translates or the largest inverse
are a layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from layoutalg.algebra import compose as module
from layoutalg.algebra import inverses
from layoutalg.algebra.canonical import canonical_shard
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import Iter, size_of, vector_at
from layoutalg.tile import TileLayout
from verify.explore import equal_to, holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Labelled, Patch, attempt, family, layout_of, no_layout, spelt, table
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS"]

ALL = "all strides and indices, all extents >= 1"


def _no_divisor(v: Any) -> tuple[Any, Any]:
    return places([(v["e"], v["s"])], v["i"] * v["t"]), (v["i"] * (v["t"] // v["e"]), 0)


@step(ALL, mutants={"t no multiple of e": _no_divisor})
def whole_blocks(w: World) -> Any:
    """A digit of B with stride t = g*e passes A's inner iter (e : s) by: A(i*t) = V(i*g)."""
    e, s, g, i = w.extent("e"), w.integer("s"), w.integer("g"), w.integer("i")
    if w.wrong:
        t = w.extent("t")
        q, r = w.division(t, e)
        w.assume(r >= 0)
        return w.same(w.values([(e, s)], i * t), (i * q, s * 0))
    w.know("divmod", i * g, e, 0)
    return w.same(w.values([(e, s)], i * (g * e)), (i * g, 0))


def _overflow(v: Any) -> tuple[Any, Any]:
    return places([(v["e"], v["s"])], v["i"] * v["t"]), (0, v["i"] * v["t"] * v["s"])


@step(ALL, mutants={"digits up to and with e": _overflow})
def part_of_a_block(w: World) -> Any:
    """Where e = g*t, a digit of B with stride t is (g : t*s) within a block and counts blocks beyond it."""
    g, t, s, u = w.extent("g"), w.extent("t"), w.integer("s"), w.integer("u")
    e = g * t
    if w.wrong:
        named, i = w.extent("e"), w.integer("i")
        w.assume(w.all(named == e, i >= 0, i <= g))
        return w.same(w.values([(named, s)], i * t), (0, i * t * s))
    c = w.digit("c", g)
    w.know("range", c, g, 0, t)
    w.know("positive", g, t)
    w.know("divmod", u, g * t, c * t)
    i = u * g + c
    return w.same(w.values([(e, s)], i * t), (u, c * t * s))


def _carry(v: Any) -> tuple[Any, Any]:
    e, s = v["e"], v["s"]
    x, y = v["u"] * e + v["c"], v["v"] * e + v["d"]
    parts = places([(e, s)], x), places([(e, s)], y)
    return places([(e, s)], x + y), (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])


@step(ALL, mutants={"sums that carry": _carry})
def sums_without_carry(w: World) -> Any:
    """Where the digits of x and y do not carry, A(x + y) = A(x) + A(y) digit by digit."""
    e, s, u, v = w.extent("e"), w.integer("s"), w.integer("u"), w.integer("v")
    c, d = w.digit("c", e), w.digit("d", e)
    if not w.wrong:
        w.assume(c + d < e)
    for top, digit in ((u, c), (v, d), (u + v, c + d)):
        w.know("divmod", top, e, digit)
    a, b = w.values([(e, s)], u * e + c), w.values([(e, s)], v * e + d)
    return w.same(w.values([(e, s)], u * e + c + v * e + d), (a[0] + b[0], a[1] + b[1]))


# -- the shipping code ---------------------------------------------------------------------------------------------


def _lists(strides: tuple[int, ...], rank2: bool = True) -> Iterator[TileLayout]:
    for e, s in product((1, 2, 3, 4, 6), strides):
        yield TileLayout.from_iters(shard=[(e, s, "m")])
    if rank2:
        for (e, s), (f, t) in product(product((2, 3, 4), strides), product((2, 3), strides)):
            yield TileLayout.from_iters(shard=[(e, s, "m"), (f, t, "m")])


def _extended(a: TileLayout, n: int) -> int:
    """A(n), the slowest digit going on without end; CuTe's 1:0 where A has one element."""
    form = a.canonicalize().shard
    total, rest = a.offset.get("m", 0), n
    for it in reversed(form[1:]):
        rest, digit = divmod(rest, it.extent)
        total += digit * it.stride
    return int(total + rest * form[0].stride) if form else int(total)


def _pairs() -> Iterator[tuple[TileLayout, TileLayout]]:
    outer = [*_lists((1, 3), rank2=False), *(TileLayout.parse(t) for t in (
        "S[(4,3):(1,4)]", "S[(2,3,2):(1,10,2)]", "S[(6,4):(1,6)]", "S[(3,4):(4,1)] + 2", "S[(4,6):(1,8)]",
        "S[(2,6):(7,0)]",
    ))]  # fmt: skip
    inner = [*_lists((0, 1, 2, 3, 4)), TileLayout.parse("S[4:6] + 1"), TileLayout.parse("S[4:-1] + 3")]
    yield from product(outer, inner)


def _run_compose(member: tuple[TileLayout, TileLayout]) -> Any:
    return attempt(module.compose, *member)


def _judge_compose(member: tuple[TileLayout, TileLayout], answer: Any) -> bool:
    a, b = member
    wanted = [{"m": _extended(a, place["m"])} for place in table(b)]
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout(wanted), {})
    return [place.get("m", 0) for place in table(answer)] == [place["m"] for place in wanted]


def _targets() -> Iterator[tuple[TileLayout, int]]:
    images = [
        *_lists((1, 2, 3, 4, 6)),
        TileLayout.parse("S[(2,2,2):(12,3,1)]"),
        TileLayout.parse("S[(2,2):(1,-4)] + 4"),
    ]
    yield from product(images, (1, 5, 6, 12, 24))


def _greedy(a: TileLayout, goal: int) -> list[int] | None:
    image = sorted({place["m"] for place in table(a)})
    taken: set[int] = set()
    chosen = []
    for c in range(goal):
        if c in taken:
            continue
        moved = {c + x for x in image}
        if moved & taken:
            return None
        taken |= moved
        chosen.append(c)
    return chosen


def _run_complement(member: tuple[TileLayout, int]) -> Any:
    return attempt(module.complement, *member)


def _judge_complement(member: tuple[TileLayout, int], answer: Any) -> bool:
    chosen = _greedy(*member)
    if isinstance(answer, NotExpressibleError):
        return chosen is None or holds(no_layout([{"m": c} for c in chosen]), {})
    return [place.get("m", 0) for place in table(answer)] == chosen


def _run_right(a: TileLayout) -> Any:
    return attempt(module.right_inverse, a)


def _judge_right(a: TileLayout, answer: Any) -> bool:
    """Values are right, and no longer layout of preimages exists: every choice of preimages is tried."""
    preimages: dict[int, list[int]] = {}
    for n, place in enumerate(table(a)):
        preimages.setdefault(place.get("m", 0), []).append(n)
    if isinstance(answer, NotExpressibleError):
        return 0 not in preimages
    values = [place.get("m", 0) for place in table(answer)]
    if any(i not in preimages or values[i] not in preimages[i] for i in range(len(values))):
        return False
    longest = next(n for n in range(a.size + 1) if n not in preimages)
    return not any(
        not holds(no_layout([{"m": x} for x in choice]), {})
        for n in range(len(values) + 1, longest + 1)
        for choice in product(*(preimages[i] for i in range(n)))
    )


def _run_left(a: TileLayout) -> Any:
    return attempt(module.left_inverse, a)


def _judge_left(a: TileLayout, answer: Any) -> bool:
    """L(A(i)) = i wherever one is given; where it is refused, two indices meet or no system of digits has worths."""
    values = [place.get("m", 0) for place in table(a)]
    if isinstance(answer, NotExpressibleError):
        return len(set(values)) < len(values) or not any(
            _linear(values, extents) for extents in _systems(max(values) + 1, 1)
        )
    return all(_extended(answer, x) == n for n, x in enumerate(values))


def _systems(end: int, below: int) -> Iterator[tuple[int, ...]]:
    """Extents of prime digits, innermost first, up to where another digit would tell no addresses apart."""
    if 2 * below >= end:
        yield ()
    for p in (p for p in range(2, end) if below * p < end and all(p % q for q in range(2, p))):
        yield from ((p, *rest) for rest in _systems(end, below * p))


def _linear(addresses: list[int], extents: tuple[int, ...]) -> bool:
    """Whether worths of the digits (the last without end) and an offset take the addresses to 0, 1, 2, ...

    Columns are combined until each equation has one of its own; then it divides or the equations have no integers.
    """
    rows = []
    for address in addresses:
        row = [1]
        for extent in extents:
            address, digit = divmod(address, extent)
            row.append(digit)
        rows.append([*row, address])
    columns, left = [list(column) for column in zip(*rows, strict=True)], list(range(len(rows)))
    for k in range(len(rows)):
        while len(live := sorted((c for c in columns if c[k]), key=lambda c: abs(c[k]))) > 1:
            for column in live[1:]:
                times = column[k] // live[0][k]
                column[:] = [x - times * y for x, y in zip(column, live[0], strict=True)]
        if live:
            times = left[k] // live[0][k]
            left = [x - times * y for x, y in zip(left, live[0], strict=True)]
            columns = [c for c in columns if c is not live[0]]
        if left[k]:
            return False
    return True


def _run_digits(x: Any, member: tuple[str, str]) -> Any:
    """Compose by digits, A's strides unknown; None where this leaves the answer to the values."""
    a, b = layout_of(x, *spelt(member[0])), TileLayout.parse(member[1])
    form = canonical_shard(a.shard)
    return a, b, module._by_digits(form, canonical_shard(b.shard), b.offset.get("m", 0)), form


def _judge_digits(_member: tuple[str, str], answer: Any) -> Labelled:
    _, b, found, form = answer
    if found is None:
        yield {}, True
        return
    iters, start = found
    for n, place in enumerate(table(b)):
        wanted = {axis.name: value for axis, value in vector_at(form, place["m"]).items()}
        got = {axis.name: value for axis, value in vector_at(iters, n).items()}
        for axis, value in start.items():
            got[axis.name] = got.get(axis.name, 0) + value
        yield {"index": n}, equal_to(wanted, got)


def _run_divide(member: tuple[TileLayout, TileLayout]) -> Any:
    return attempt(module.logical_divide, *member)


def _judge_divide(member: tuple[TileLayout, TileLayout], answer: Any) -> bool:
    """The value at (tile j, i within it) is A(c_j + B(i)), c the translates that cover A's domain by copies of B."""
    a, b = member
    starts = _greedy(b, a.size)
    if starts is None or holds(no_layout([{"m": c} for c in starts]), {}):
        return isinstance(answer, NotExpressibleError)
    return _has_values(answer, [_extended(a, c + place["m"]) for c in starts for place in table(b)])


def _run_product(member: tuple[TileLayout, TileLayout]) -> Any:
    return attempt(module.logical_product, *member)


def _judge_product(member: tuple[TileLayout, TileLayout], answer: Any) -> bool:
    """The value at (copy j, i within it) is A(i) + c at B(j), c the translates that disjoint copies of A need."""
    a, b = member
    copies = [place["m"] for place in table(b)]
    starts = _greedy(a, a.size * (max(copies) + 1))
    if starts is None:
        return isinstance(answer, NotExpressibleError)
    moved = [starts[copy] for copy in copies]
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout([{"m": c} for c in moved]), {})
    return _has_values(answer, [c + place["m"] for c in moved for place in table(a)])


def _has_values(answer: Any, wanted: list[int]) -> bool:
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout([{"m": value} for value in wanted]), {})
    return [place.get("m", 0) for place in table(answer)] == wanted


def _operands() -> Iterator[tuple[TileLayout, TileLayout]]:
    wholes = ("S[24:1]", "S[(4,6):(6,1)]", "S[(4,6):(1,4)]", "S[(2,3,4):(1,2,6)]", "S[8:3]", "S[(4,2):(2,1)] + 3")
    tiles = [*_lists((1, 2, 3, 4)), TileLayout.parse("S[(2,2):(1,6)]"), TileLayout.parse("S[2:12]")]
    yield from product(map(TileLayout.parse, wholes), tiles)


def _repeats() -> Iterator[tuple[TileLayout, TileLayout]]:
    blocks = ("S[4:1]", "S[4:2]", "S[(2,2):(4,1)]", "S[(2,3):(1,2)]", "S[3:4]", "S[2:1]", "S[(2,2):(3,1)]")
    yield from product(map(TileLayout.parse, blocks), _lists((1, 2, 3)))


def _unguarded(a: Any, b: Any, start: int) -> Any:
    """As if no sum of pieces carried: every digit of A but the outermost given room enough."""
    found = _right_by_digits(a, b, start)
    if found is not None or start:
        return found
    places_ = [int(size_of(a[k + 1 :])) for k in range(len(a))]
    pieces = [_right_pieces(a, places_, it.extent, it.stride) for it in b]
    if any(piece is None for piece in pieces):
        return None
    return tuple(Iter(n, step * a[k].stride, a[k].axis) for piece in pieces for k, n, step in piece or ()), {}


_right_by_digits = module._by_digits
_right_complement = module.complement
_right_pieces = module._pieces
_right_gaps = module._nested_gaps


def _rounded(a: Any, places_: Any, extent: int, stride: int) -> Any:
    found = _right_pieces(a, places_, extent, stride)
    return found if found is not None or stride < 0 else [(0, extent, stride // places_[0])]


def _short_last(gaps: Any, goal: int) -> Any:
    return _right_first(gaps, max(1, goal - gaps[-1][0]))


_right_first = module._first_translates
_right_digits = inverses._right_by_digits


def _stops_early(iters: Any, axis: Any) -> Any:
    found = _right_digits(iters, axis)
    return found[1:] if found else found


def _unsorted(iters: Any) -> Any:
    return [(it.stride, it.extent, 1) for it in iters if it.stride]


def _tile_outermost(a: Any, b: Any) -> Any:
    """The concatenation written the other way round, as CuTe's order would have it; a plain B is not affected."""
    return _right_compose(a, TileLayout.from_iters(shard=[(it.extent, it.stride, "m") for it in b.shard[::-1]]))


def _cosize_for_size(b: Any, size: int) -> Any:
    return _right_complement(b, size * 2)


_right_compose = module.compose


def _gap_after_all(steps: Any) -> Any:
    """Gaps between the elements of A are left empty."""
    gaps: Any = _right_gaps(steps)
    return gaps and gaps[-1:]


def _laws() -> Iterator[Law]:
    yield exhaustive(
        "compose.compose",
        "compose(A, B) has the value A(B(i)) at every i, A's slowest digit going on; where it refuses, no layout has "
        "these values.",
        scope="16 layouts A to rank 3 after 177 layouts B to rank 2",
        members=_pairs,
        run=_run_compose,
        judge=_judge_compose,
        mutants={"strides divided with rounding": [Patch(_right_pieces, _rounded)]},
    )
    yield family(
        "compose.by_digits",
        "Where compose answers by digits, the answer has the value A(B(i)) at every i.",
        scope="six lists A to rank 3 on one and two axes, all strides, after 21 layouts B",
        members=[
            (a, b)
            for a in ("6:m", "4x3:mm", "2x3x2:mmm", "2x6:lm", "4x4:ml", "2x2x2:mml")
            for b in (
                "S[3:1]", "S[3:2]", "S[2:3]", "S[4:3]", "S[2:4]", "S[3:6]", "S[6:2]", "S[5:0]", "S[(2,2):(3,1)]",
                "S[(2,3):(1,4)]", "S[(3,2):(2,1)]", "S[(2,2):(1,1)]", "S[(3,4):(1,3)]", "S[(2,2):(6,2)]", "S[2:1] + 1",
                "S[2:2] + 3", "S[3:4] + 2", "S[3:-1] + 4", "S[2:-3] + 5", "S[(2,3):(4,2)] + 1", "S[2:5]",
            )
        ],
        run=_run_digits,
        judge=_judge_digits,
        mutants={
            "strides divided with rounding": [Patch(_right_pieces, _rounded)],
            "carries not noticed": [Patch(_right_by_digits, _unguarded)],
        },
    )  # fmt: skip
    yield exhaustive(
        "compose.logical_divide",
        "logical_divide(A, B) has at (j, i) the value A(c_j + B(i)), c_0, c_1, ... the translates at which copies of B "
        "cover A's domain; where it refuses, there are none or no layout has these values.",
        scope="six layouts A of 8 to 24 elements by 118 tiles B",
        members=_operands,
        run=_run_divide,
        judge=_judge_divide,
        mutants={
            "the tile outermost": [Patch(module.compose, _tile_outermost)],
            "covers up to A's cosize": [Patch(_right_complement, _cosize_for_size)],
        },
    )
    yield exhaustive(
        "compose.logical_product",
        "logical_product(A, B) has at (j, i) the value A(i) + c, c number B(j) of the translates at which copies of A "
        "are disjoint and leave no gap; where it refuses, there are none or those at B are no layout.",
        scope="seven layouts A repeated by 69 layouts B",
        members=_repeats,
        run=_run_product,
        judge=_judge_product,
        mutants={
            "copies one element apart": [Patch(module._nested_gaps, lambda _steps: [(1, 0)])],
            "copies one after the other": [Patch(module._nested_gaps, _gap_after_all)],
        },
    )
    yield exhaustive(
        "compose.complement",
        "complement(A, n) lists the translates that disjoint copies of A, taken greedily, need to cover [0, n).",
        scope="images of rank 1 and 2 with strides to 6, five cotargets to 24",
        members=_targets,
        run=_run_complement,
        judge=_judge_complement,
        mutants={"the last period left out": [Patch(_right_first, _short_last)]},
    )
    yield exhaustive(
        "compose.right_inverse",
        "right_inverse(A) = R with A(R(i)) = i, and no longer layout does that.",
        scope="layouts of rank 1 and 2 with strides 0 to 4",
        members=lambda: _lists((0, 1, 2, 3, 4)),
        run=_run_right,
        judge=_judge_right,
        mutants={"the last digit left out": [Patch(_right_digits, _stops_early)]},
    )
    yield exhaustive(
        "compose.left_inverse",
        "left_inverse(A) = L with L(A(i)) = i for every i; where it refuses, two indices meet or no layout does that.",
        scope="layouts of rank 1 and 2 with strides 1 to 6",
        members=lambda: _lists((1, 2, 3, 4, 6)),
        run=_run_left,
        judge=_judge_left,
        mutants={"place values left out": [Patch(inverses._placed, _unsorted)]},
    )


LAWS: tuple[Law, ...] = (*steps_of(__name__), *_laws())
