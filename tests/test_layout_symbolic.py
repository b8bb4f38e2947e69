"""Sizes that are symbols: the operations agree with their concrete selves, or say which fact is missing."""

from __future__ import annotations

import subprocess
import sys

import oracle
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layoutalg import LayoutError, NotExpressibleError, RangeError, RegionError, S, TileLayout, UndecidedError
from layoutalg.symbolic import sym_at_most, sym_divmod, sym_equal, sym_quotient, symbol

n, k, q = symbol("n"), symbol("k"), symbol("q")


@st.composite
def symbolic(draw: st.DrawFn, *, rank: int = 3) -> TileLayout:
    """Layouts whose extents and strides are numbers, symbols and products of them; often row- or column-major."""
    extents = [draw(st.sampled_from([2, 3, 4, n, k, 2 * n, 4 * k])) for _ in range(draw(st.integers(1, rank)))]
    style = draw(st.sampled_from(["row", "column", "any"]))
    strides = []
    pitch = 1
    for extent in reversed(extents) if style == "row" else extents:
        strides.append(pitch if style != "any" else draw(st.sampled_from([0, 1, 2, -1, n, k, n * k, 4 * k])))
        pitch = pitch * extent
    if style == "row":
        strides.reverse()
    axes = [draw(st.sampled_from(["m", "m", "laneid"])) for _ in extents] if style == "any" else ["m"] * len(extents)
    offset = draw(st.sampled_from([{}, {"m": 3}, {"m": n}, {"laneid": 4 * k}]))
    return TileLayout.from_iters(shard=list(zip(extents, strides, axes, strict=True)), offset=offset)


VALUES = st.fixed_dictionaries({"n": st.integers(1, 4), "k": st.integers(1, 4)})


def number(value, values: dict[str, int]) -> int:
    """A number, or a symbolic one at these values of n and k."""
    return int(sympy.sympify(value).subs({symbol(name): x for name, x in values.items()}))


def tried(function, *args):
    """What the call gives, or the error that says what is missing or impossible."""
    try:
        return function(*args)
    except (UndecidedError, NotExpressibleError) as error:
        return error


@settings(max_examples=25)
@given(symbolic(), VALUES)
def test_the_canonical_form_is_right_for_all_values(layout, values):
    found = tried(layout.canonicalize)
    if not isinstance(found, LayoutError):
        assert found.substitute(**values).equivalent(layout.substitute(**values))


@settings(max_examples=25)
@given(symbolic(), symbolic(), VALUES)
def test_a_decided_equivalence_holds_for_all_values(a, b, values):
    decided = tried(a.equivalent, b)
    if not isinstance(decided, LayoutError):
        here = a.substitute(**values).equivalent(b.substitute(**values))
        assert here if decided else not here


@settings(max_examples=25)
@given(symbolic(), VALUES, st.data())
def test_grouping_and_permuting_by_the_layouts_own_extents_work(layout, values, data):
    shape = tuple(it.extent for it in layout.shard)
    found = tried(layout.group, shape)
    if isinstance(found, UndecidedError):
        return
    grouped, seps = found
    concrete = layout.substitute(**values)
    assert grouped.substitute(**values).equivalent(concrete)
    for extent, begin, end in zip(shape, seps, seps[1:], strict=False):
        assert sympy.expand(sympy.prod([it.extent for it in grouped.shard[begin:end]]) - extent) == 0
    order = data.draw(st.permutations(range(len(shape))))
    moved = layout.permute(*order, shape=shape).substitute(**values)
    numbers = [number(e, values) for e in shape]
    assert moved.equivalent(concrete.permute(*order, shape=numbers))


@settings(max_examples=25)
@given(symbolic(rank=2), symbolic(rank=2), VALUES)
def test_tiling_and_summing_agree_with_their_concrete_selves(outer, inner, values):
    shapes = [tuple(it.extent for it in x.shard) for x in (outer, inner)]
    assume(len(shapes[0]) == len(shapes[1]))
    numbers = [tuple(number(e, values) for e in shape) for shape in shapes]
    a, b = outer.substitute(**values), inner.substitute(**values)
    for name in ("tile", "direct_sum"):
        found = tried(getattr(inner, name), outer, *shapes)
        if not isinstance(found, LayoutError):
            assert found.substitute(**values).equivalent(getattr(b, name)(a, *numbers))


@settings(max_examples=25)
@given(symbolic(), VALUES, st.data())
def test_apply_and_closed_forms_agree_with_numbers(layout, values, data):
    shape = tuple(it.extent for it in layout.shard)
    numbers = tuple(number(e, values) for e in shape)
    coord = tuple(data.draw(st.integers(0, e - 1)) for e in numbers)
    names = "xyz"[: len(shape)]
    concrete = layout.substitute(**values).apply(*coord, shape=numbers)
    forms = layout.closed_form(*names, shape=shape)
    known = {symbol_: value for symbol_, value in values.items()}
    for axis, form in forms.items():
        replaced = form.subs(
            {s: known.get(s.name, dict(zip(names, coord, strict=True)).get(s.name)) for s in form.free_symbols}
        )
        assert int(replaced) == concrete[axis]
    assert {axis: number(v, values) for axis, v in layout.apply(*coord, shape=shape).items()} == concrete


@settings(max_examples=15)
@given(st.sampled_from([8, 16, 3, 24]), st.integers(1, 3), st.integers(1, 4), st.data())
def test_slices_with_a_symbolic_begin_are_the_slices_at_every_begin(width, at, copies, data):
    """A tile number i that no size knows is inside by assumption; it lands in the offset."""
    i = sympy.Symbol("i", integer=True, nonnegative=True)
    rows = TileLayout(S[(32 * q, 64) : (64, 1)])
    region = ((width * i, width * i + width), (0, 64))
    found = tried(rows.slice, (32 * q, 64), region)
    assert isinstance(found, TileLayout)
    assert found.shard == TileLayout(S[width * 64 : 1]).shard
    assert sympy.expand(found.offset["m"] - 64 * width * i) == 0
    column = data.draw(st.integers(0, 63))
    part = rows.slice((32 * q, 64), ((0, 32 * q), (column, column + 1)))
    assert part.substitute(q=copies).equivalent(
        TileLayout(S[(32 * copies, 64) : (64, 1)]).slice((32 * copies, 64), ((0, 32 * copies), (column, column + 1)))
    )
    inside = rows.slice((32 * q, 64), (at, (0, 64)))
    assert inside.offset["m"] == 64 * at


def test_row_major_prints_as_written_by_hand():
    layout = TileLayout(S[n, k])
    assert layout.closed_form("i", "j", shape=(n, k))["m"] == sympy.sympify(
        "i*k + j", {"i": _index("i"), "j": _index("j"), "k": k}
    )
    frag = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)]")
    forms = frag.closed_form("i", "j", shape=(8, 16))
    assert {axis: str(form) for axis, form in forms.items()} == {
        "laneid": "4*i + Mod(floor(j/2), 4)",
        "warpid": "floor(j/8)",
        "m": "Mod(j, 2)",
    }
    assert frag.closed_form(3, 9, shape=(8, 16)) == {"laneid": 12, "warpid": 1, "m": 1}
    assert TileLayout(S[32:1]).closed_form("x") == {"m": _index("x")}


def _index(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def test_a_shape_that_the_layout_does_not_follow_still_has_a_closed_form():
    layout = TileLayout.parse("S[(3,2):(10,1)]")
    form = layout.closed_form("i", "j", shape=(2, 3))["m"]
    i, j = _index("i"), _index("j")
    for x in oracle.coordinates((2, 3)):
        assert form.subs({i: x[0], j: x[1]}) == layout.apply(*x, shape=(2, 3))["m"]


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: TileLayout(S[n:1]).group((4, q)), "4*q == n"),
        (lambda: TileLayout(S[4 * n : 1]).group((8, q)), "8*q == 4*n"),
        (lambda: TileLayout(S[(n, 8) : (16, 1)]).regroup((2, 4 * n)), "divides"),
        (lambda: TileLayout(S[(4, 8) : (q, 1)]).canonicalize(), "q == 8"),
        (lambda: TileLayout(S[4:q]).equivalent(TileLayout(S[4:k])), "q == k"),
        (lambda: TileLayout(S[n:2]).equivalent(TileLayout(S[n:3])), "2 <= n"),
        (lambda: TileLayout(S[n:1]).slice((n,), ((0, 4),)), "4 <= n"),
        (lambda: TileLayout(S[(n, 64) : (128, 1)]).slice((64 * n,), ((q, q + 16),)), "modulo 64 is not known"),
        (lambda: TileLayout(S[n:1]).table(), "needs numbers"),
        (lambda: TileLayout(S[n:1]).group_many([(n,), (1, n)]), "needs numbers"),
    ],
)
def test_what_cannot_be_decided_states_the_missing_fact(call, fact):
    with pytest.raises(UndecidedError) as caught:
        call()
    assert fact in str(caught.value)


def test_a_stated_multiple_is_enough():
    assert str(TileLayout(S[32 * q : 1]).group((q, 32))[0]) == "S[(q,32):(32,1)]"
    assert str(TileLayout(S[n, k]).canonicalize()) == "S[k*n:1]"
    assert str(TileLayout(S[(n, k) : (1, n)]).canonicalize()) == "S[(n,k):(1,n)]"
    assert str(TileLayout(S[8, n]).permute(1, 0, shape=(8, n))) == "S[(n,8):(1,n)]"
    assert TileLayout(S[n, k]).equivalent(TileLayout(S[n * k : 1]))
    assert not TileLayout(S[2 * n : 2]).equivalent(TileLayout(S[2 * n : 3]))
    assert TileLayout.parse(str(TileLayout(S[n, 32 * q] + 4 * k))) == TileLayout(S[n, 32 * q] + 4 * k)


def test_symbols_are_positive_integers():
    with pytest.raises(RangeError, match="not known to be an integer"):
        TileLayout(S[sympy.Symbol("x") : 1])
    with pytest.raises(RangeError, match="n = 0 is below 1"):
        TileLayout(S[n:1]).substitute(n=0)
    with pytest.raises(RangeError, match="must be an integer"):
        TileLayout(S[n:1]).substitute(n=1.5)
    assert TileLayout(S[n : k + 1] + 3 * q).symbols == ("k", "n", "q")
    assert TileLayout(S[n : k + 1]).substitute(n=4).symbols == ("k",)


@given(st.integers(-6, 6), st.integers(-6, 6), st.integers(-6, 6), st.integers(1, 5), st.integers(1, 5))
def test_decisions_about_polynomials_hold_for_all_values(a, b, c, x, y):
    left, value = a * n * k + b * n + c, a * x * y + b * x + c
    for decide, holds in ((sym_equal, value == 0), (sym_at_most, value <= 0)):
        answer = tried(decide, left, 0)
        if not isinstance(answer, LayoutError):
            assert answer is holds
    if value:
        quotient = tried(sym_quotient, left, 3)
        if quotient is None:
            assert value % 3
        elif not isinstance(quotient, LayoutError):
            assert int(sympy.sympify(quotient).subs({n: x, k: y})) * 3 == value
    parts = tried(sym_divmod, left, 4)
    if not isinstance(parts, LayoutError):
        assert tuple(int(sympy.sympify(p).subs({n: x, k: y})) for p in parts) == divmod(value, 4)


def test_concrete_layouts_never_touch_sympy():
    code = """
import sys
from layoutalg import TileLayout, Param, NotExpressibleError
L = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
L.canonicalize(), L.group((8, 16)), L.slice((8, 16), ((2, 6), (0, 16))), L.permute(1, 0, shape=(8, 16))
L.tile(L, (8, 16), (8, 16)), L.direct_sum(L, (8, 16), (8, 16)), L.table((8, 16)), L.is_injective(), L.span("m")
L.unpack(2).pack(2), L.fuse_axes("tx").split_axis("tx", ("warpid", "laneid")), L.equivalent(L), L.image("laneid")
TileLayout.parse("S[(2,128):(128,1)]").slice((2, 128), (Param("s", 0, 2), (0, 128)))
try: TileLayout.parse("S[(4,4):(10,1)]").slice((16,), ((3, 9),))
except NotExpressibleError: pass
print("sympy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_refusal_of_a_symbolic_slice_is_typed():
    rows = TileLayout(S[(32 * q, 64) : (64, 1)])
    for region in (((0, 32 * q + 1), (0, 64)), ((32 * q, 32 * q + 1), (0, 64)), ((0, 0), (0, 64))):
        with pytest.raises(RegionError):
            rows.slice((32 * q, 64), region)
    with pytest.raises(NotExpressibleError):
        TileLayout(S[(q, 3, 4) : (12, 5, 1)]).slice((12 * q,), ((2, 7),))
