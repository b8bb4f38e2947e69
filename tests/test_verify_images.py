"""Injectivity and bijectivity as theorems, against brute force and at sizes nobody can list."""

from __future__ import annotations

import oracle
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg import Param, RegionError, SwizzledLayout, TileLayout
from layoutalg.symbolic import symbol
from verify import Proved, Refuted, Unknown, prove_bijective, prove_injective

parse = TileLayout.parse


@settings(max_examples=80)
@given(strategies.layouts(limit=32))
def test_injectivity_is_proved_exactly_when_no_two_indices_meet(layout):
    verdict = prove_injective(layout)
    plain = oracle.plain(layout)
    assert verdict.ok == oracle.is_injective(plain)
    if not verdict.ok:
        a, b = verdict.counterexample["indices"]
        assert a < b
        place = oracle.place(verdict.counterexample["place"])
        assert place in oracle.places(plain, a) & oracle.places(plain, b)


@settings(max_examples=80)
@given(strategies.layouts(limit=24), st.data())
def test_bijectivity_is_proved_exactly_when_the_box_is_filled_once(layout, data):
    plain = oracle.plain(layout)
    box = {}
    for axis in plain.axes:
        image = oracle.image(plain, axis)
        low, high = min(image), max(image) + 1
        box[axis] = (low - data.draw(st.integers(0, 1)), high + data.draw(st.sampled_from([0, 0, 0, 1, -1])))
    if any(b >= e for b, e in box.values()):
        box = {axis: (0, 1) for axis in box}
    verdict = prove_bijective(layout, box)
    volume = 1
    for b, e in box.values():
        volume *= e - b
    taken = {p for group in oracle.sets(plain) for p in group}
    inside = all(box[a][0] <= dict(p).get(a, 0) < box[a][1] for p in taken for a in box)
    assert verdict.ok == (inside and len(taken) == volume and oracle.is_injective(plain)), verdict
    if isinstance(verdict, Refuted) and "missing" in verdict.counterexample:
        assert oracle.place(verdict.counterexample["missing"]) not in taken


def test_2_to_the_60_elements_are_no_obstacle():
    bits = TileLayout.from_iters(shard=[(2, 2 ** (k * 7 % 60), "m") for k in range(60)])
    assert isinstance(prove_bijective(bits, {"m": (0, 1 << 60)}), Proved)
    short = prove_bijective(bits, {"m": (0, (1 << 60) - 1)})
    assert short.counterexample == {"index": (1 << 60) - 1, "leaves": f"m in [0, {(1 << 60) - 1})"}
    wide = prove_bijective(bits, {"m": (0, (1 << 60) + 1)})
    assert wide.counterexample == {"places": 1 << 60, "volume": (1 << 60) + 1}
    overlapping = TileLayout.from_iters(shard=[(32, 31 ** (11 - k), "m") for k in range(12)])
    a, b = prove_injective(overlapping).counterexample["indices"]
    assert overlapping.apply(a) == overlapping.apply(b)


def test_the_first_stray_index_is_named():
    fragment = parse("S[(8,4,2):(4@laneid,1@laneid,1)]")
    assert prove_bijective(fragment, {"laneid": (0, 32), "m": (0, 2)}).ok
    stray = prove_bijective(fragment, {"laneid": (0, 31), "m": (0, 2)})
    assert stray.counterexample == {"index": 62, "leaves": "laneid in [0, 31)"}
    assert prove_bijective(fragment, {"laneid": (0, 32)}).counterexample["leaves"] == "m in [0, 1)"


def test_replicas_count_as_places():
    layout = parse("S[4:2] + R[2:1]")
    assert prove_bijective(layout, {"m": (0, 8)}).ok
    twice = prove_injective(parse("S[4:1] + R[2:1]"))
    assert twice.counterexample == {"indices": (0, 1), "place": {"m": 1}}


@pytest.mark.parametrize("text", ["Sw<3,3,3> o S[(64,64):(64,1)]", "Sw<1,0,1> o S[4:1]"])
def test_a_swizzle_permutes_whole_periods(text):
    layout = SwizzledLayout.parse(text)
    assert prove_injective(layout).ok
    assert prove_bijective(layout, {"m": (0, layout.size)}).ok


def test_a_swizzled_box_that_is_no_whole_period_is_listed():
    layout = SwizzledLayout.parse("Sw<1,0,1> o S[3:1]")
    verdict = prove_bijective(layout, {"m": (0, 3)})
    assert verdict.counterexample == {"index": 2, "leaves": "m in [0, 3)"}
    gap = prove_bijective(layout, {"m": (0, 5)})
    assert gap.counterexample["missing"] == {"m": 2}
    meeting = SwizzledLayout.parse("Sw<1,0,1> o S[(2,2):(1,1)]")
    assert prove_bijective(meeting, {"m": (0, 5)}).counterexample["indices"] == (1, 2)
    huge = SwizzledLayout.parse("Sw<1,0,1> o S[1048576:1]")
    assert isinstance(prove_bijective(huge, {"m": (0, 3)}), Unknown)


def test_parameters_do_not_matter_for_injectivity_and_do_for_boxes():
    layout = TileLayout.from_iters(shard=[(4, 1, "m")], offset={"m": 4 * Param("s", 0, 2)})
    assert prove_injective(layout).ok
    verdict = prove_bijective(layout, {"m": (0, 4)})
    assert verdict.counterexample["s"] == 1


def test_symbolic_layouts_are_unknown():
    layout = TileLayout.from_iters(shard=[(4, symbol("n"), "m")])
    assert isinstance(prove_injective(layout), Unknown)
    assert isinstance(prove_bijective(layout, {"m": (0, 4)}), Unknown)


@pytest.mark.parametrize("ends", [(3, 3), (4, 1), (0, 1, 2), "ab"])
def test_an_empty_interval_is_an_error(ends):
    with pytest.raises(RegionError, match="begin < end"):
        prove_bijective(parse("S[4:1]"), {"m": ends})
