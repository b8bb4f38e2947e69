"""The notation: the same text as Python and as a string, printed so that it reads back, refused with a caret."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st

from layoutalg import LayoutError, NotationError, Param, R, RangeError, S, Swizzle, TileLayout, parse_layout
from layoutalg.axis import Axis, laneid, m, warpid
from layoutalg.errors import AxisError
from layoutalg.f2 import F2Map


def evaluated(text: str) -> TileLayout:
    return TileLayout(eval(text, {"S": S, "R": R, **Axis.registry}))


@given(strategies.layouts())
def test_str_and_repr_read_back_as_text_and_as_python(layout):
    assert TileLayout.parse(str(layout)) == layout
    assert TileLayout(evaluated(str(layout))) == layout
    assert eval(repr(layout), {"S": S, "R": R, "TileLayout": TileLayout, **Axis.registry}) == layout


@given(strategies.layouts(), st.integers(-9, 9), st.integers(1, 5), st.booleans())
def test_parameters_read_back_with_their_range(layout, coefficient, width, inside):
    moved = layout + (Param("s", -width, width) * coefficient + Param("tile", 0, 4)) @ warpid
    assert TileLayout.parse(str(moved)) == moved
    assert eval(repr(moved), {"TileLayout": TileLayout}) == moved
    assert inside in (True, False)


@pytest.mark.parametrize(
    ("text", "shard"),
    [
        ("S[()]", []),
        ("S[():()]", []),
        ("S[8]", [(8, 1, m)]),
        ("S[4,8]", [(4, 8, m), (8, 1, m)]),
        ("S[(4,8)]", [(4, 8, m), (8, 1, m)]),
        ("S[8:2]", [(8, 2, m)]),
        ("S[8:-2@laneid]", [(8, -2, laneid)]),
        ("S[4:8, 8:1@laneid]", [(4, 8, m), (8, 1, laneid)]),
        ("S[(4,8):(8,1@laneid)]", [(4, 8, m), (8, 1, laneid)]),
        ("S[(8,):(2,)]", [(8, 2, m)]),
        ("  S [ ( 4 , 8 ) : ( 8 , 1 @ laneid ) ]  ", [(4, 8, m), (8, 1, laneid)]),
        ("S[2*4 : 3*5]", [(8, 15, m)]),
        ("S[8 : (1+1)*2]", [(8, 4, m)]),
    ],
)
def test_spellings_of_a_shard(text, shard):
    layout = TileLayout.parse(text)
    assert list(layout.shard) == shard
    assert evaluated(text) == layout


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "a layout starts with its shard"),
        ("R[2:1]", 0, "a layout starts with its shard"),
        ("S[4:1", 5, "expected ']'"),
        ("S[4:1]]", 6, "expected '+' or the end"),
        ("S[4:1] S[4:1]", 7, "expected '+' or the end"),
        ("S[4:1] + S[4:1]", 9, "second S[...]"),
        ("S[(4,8):(1,2,3)]", 1, "2 extents but 3 strides"),
        ("S[4:1@lanid]", 6, "nearest: laneid"),
        ("S[4:1@]", 6, "expected an axis name"),
        ("S[0:1]", 1, "extent must be at least 1, not 0"),
        ("S[-4:1]", 1, "extent must be at least 1, not -4"),
        ("S[4:1] + 3 + 4", 13, "the offset on m is given twice"),
        ("S[4:1] +", 8, "expected a number"),
        ("S[4:1] & 3", 7, "unexpected character '&'"),
        ("S[4:1.5]", 5, "unexpected character '.'"),
        ("S[4:1] + s[0:0]", 9, "empty range"),
        ("S[4:1] + s[0:x]", 13, "expected an integer in the range of a parameter"),
        ("S[4:1] + s[0:2]*t[0:2]", 9, "not affine"),
        ("S[4:s[0:2]]", 1, "parameter"),
        ("S[s[0:2]:4]", 1, "parameter"),
        ("S[4:2**99999]", 7, "small integer exponent"),
        ("S[4:" + "(" * 60 + "1", 55, "nested over 50 deep"),
        ("S[4:" + "1" * 5000 + "]", 4, "over 4000 digits"),
    ],
)
def test_a_malformed_text_is_refused_with_a_caret_under_the_fault(text, position, reason):
    with pytest.raises(NotationError) as caught:
        TileLayout.parse(text)
    assert reason in str(caught.value)
    assert caught.value.position == position
    assert str(caught.value).splitlines()[-1] == " " * (position + 2) + "^"


@given(st.text(alphabet="SR[]():,+-*@0123456789 mslanewrpidq", max_size=40))
@example("S[4:1]+q[0:2]@m")
@example("S[(,):()]")
@example("S[(4:1)]")
@example("S[4:1@m@m]")
@example("S[4:(1@m)]")
def test_random_text_raises_nothing_but_layout_errors(text):
    try:
        layout = TileLayout.parse(text)
    except LayoutError:
        return
    assert TileLayout.parse(str(layout)) == layout


@given(st.one_of(st.text(max_size=20), st.text(alphabet="SRwF<>o()[]:,+-*@0189² mslq[]", max_size=30)), st.booleans())
@example("Sw<1,0,1> o S[4:1] + 3", False)
@example("F2<1> o S[2:1]", False)
@example("\N{SUPERSCRIPT TWO}", True)
def test_text_of_any_kind_raises_nothing_but_layout_errors(text, headed):
    text = f"Sw<1,0,1> o S[{text}" if headed else text
    for read in (TileLayout.parse, parse_layout, Swizzle.parse, F2Map.parse, Axis.get):
        try:
            found = read(text)
        except LayoutError:
            continue
        assert str(found) == text or read(str(found)) == found


@given(strategies.layouts(), st.data())
def test_damaged_notation_raises_nothing_but_layout_errors(layout, data):
    text = list(str(layout))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        if data.draw(st.booleans()) and at < len(text):
            del text[at]
        else:
            text.insert(at, data.draw(st.sampled_from("SR[]():,+-*@0 m17")))
    try:
        found = TileLayout.parse("".join(text))
    except LayoutError:
        return
    assert TileLayout.parse(str(found)) == found


@pytest.mark.parametrize("wrong", [None, 4, b"S[4:1]", ["S[4:1]"]])
def test_only_a_str_is_a_text(wrong):
    with pytest.raises(LayoutError, match="is a str"):
        TileLayout.parse(wrong)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: S[4:1] + S[4:1], "two S[...] cannot be added"),
        (lambda: S[4:1] + 3 + 4, "the offset on m is given twice"),
        (lambda: S[4 : 1 @ laneid, 8], "mixes"),
        (lambda: S[4:1:2], "no step"),
        (lambda: S[4:], "both sides"),
        (lambda: S[:], "both sides"),
        (lambda: S[(4, 8) : 1], "2 extents but 1 strides"),
        (lambda: S[4:1.0], "stride must be an integer, not 1.0 (float)"),
        (lambda: S[4.0:1], "extent must be an integer, not 4.0 (float)"),
        (lambda: S[True:1], "extent must be an integer, not True (bool)"),
        (lambda: S[4:True], "stride must be an integer, not True (bool)"),
        (lambda: S[0:1], "extent must be at least 1, not 0"),
        (lambda: S[4 : 1.5 @ laneid], "stride must be an integer, not 1.5 (float)"),
        (lambda: S[4:1] + 1.5 @ laneid, "offset must be an integer, not 1.5 (float)"),
        (lambda: S[4 : Param("s", 0, 2)], "stride"),
        (lambda: TileLayout(R[2:1]), "needs a shard"),
        (lambda: TileLayout("S[4:1]"), "TileLayout.parse"),
        (lambda: TileLayout(None), "TileLayout(...) takes"),
        (lambda: TileLayout.from_iters(shard=[(4,)]), "(extent, stride, axis) triples"),
        (lambda: TileLayout.from_iters(shard=[(4, 1, "lane")]), "unknown axis 'lane'"),
        (lambda: TileLayout.from_iters(shard=[(4, 1, "m")], offset={"nowhere": 1}), "unknown axis 'nowhere'"),
        (lambda: TileLayout.from_iters(shard=[(4, 1, "m")], offset={"m": 0.5}), "offset on m must be an integer"),
        (lambda: TileLayout.from_iters(shard=[(np.float32(4), 1, "m")]), "extent must be an integer"),
        (lambda: TileLayout.from_iters(shard=[(4, np.bool_(True), "m")]), "stride must be an integer"),
    ],
)
def test_each_mistake_in_python_has_its_own_message(write, message):
    with pytest.raises(LayoutError) as caught:
        write()
    assert message in str(caught.value)


def test_numbers_from_numpy_become_ints():
    layout = TileLayout(S[(np.int64(4), np.uint8(8)) : (np.int32(8) @ laneid, np.int8(-1))] + np.int64(3) @ warpid)
    assert layout == TileLayout.parse("S[(4,8):(8@laneid,-1)] + 3@warpid")
    assert all(type(x) is int for it in layout.shard for x in it[:2])


def test_axes_are_registered_on_purpose_and_a_misspelt_one_is_never_made():
    with pytest.raises(AxisError, match="nearest: wid_in_wg"):
        Axis.get("wid_in_gw")
    with pytest.raises(AxisError, match="another meaning"):
        Axis.register("laneid", kind="memory")
    assert Axis.register("laneid", kind="thread", unit="thread", within="warp", extent=32) is laneid
    fresh = Axis.register("chiplet_of_tests", kind="thread")
    assert TileLayout.parse("S[4:1@chiplet_of_tests]").shard[0].axis is fresh
    for name, kind in (("a b", "memory"), ("x", "nonsense"), (3, "memory")):
        with pytest.raises(AxisError):
            Axis.register(name, kind=kind)
    with pytest.raises(AxisError, match="immutable"):
        laneid.extent = 64


def test_parameters_are_checked():
    for begin, end in ((0, 0), (3, 2)):
        with pytest.raises(RangeError, match="empty range"):
            Param("s", begin, end)
    with pytest.raises(RangeError, match="not an identifier"):
        Param("a b", 0, 2)
    with pytest.raises(RangeError, match="must be an integer"):
        Param("s", 0, 2.0)
    with pytest.raises(RangeError, match="two ranges"):
        Param("s", 0, 2) + Param("s", 0, 3)


def test_the_order_of_an_offset_does_not_matter():
    a, b = TileLayout.parse("S[4:1] + 2@warpid + 1@laneid"), TileLayout.parse("S[4:1] + 1@laneid + 2@warpid")
    assert a == b
    assert hash(a) == hash(b)
    assert oracle.same(oracle.plain(a), oracle.plain(b))
