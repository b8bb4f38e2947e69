"""Swizzled layouts: every operation against the definition, point by point, and against recorded vectors."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from layoutalg import R, S, Swizzle, SwizzledLayout, TileLayout
from layoutalg.errors import (
    AxisError,
    LayoutError,
    NotationError,
    NotExpressibleError,
    RangeError,
    RegionError,
    UndecidedError,
)
from layoutalg.f2 import F2Map
from layoutalg.index import Param
from layoutalg.swizzled import parse_layout

parse = SwizzledLayout.parse


# The definition, in plain ints.
def digits_sum(iters: list[Any], n: int) -> int:
    total = 0
    for extent, stride, _ in reversed(iters):
        total += n % extent * stride
        n //= extent
    return total


def fold(swizzle: Swizzle, x: int) -> int:
    mask = (1 << swizzle.bits) - 1
    if swizzle.shift >= 0:
        lower: int = x ^ (((x >> (swizzle.base + swizzle.shift)) & mask) << swizzle.base)
        return lower
    upper: int = x ^ (((x >> swizzle.base) & mask) << (swizzle.base - swizzle.shift))
    return upper


def value(layout: SwizzledLayout, n: int) -> int:
    assert isinstance(layout.swizzle, Swizzle)
    iters = [tuple(it) for it in layout.inner.shard]
    start: int = layout.inner.offset.get("m", 0)
    return fold(layout.swizzle, digits_sum(iters, n) + start)


@st.composite
def swizzled(draw: st.DrawFn, *, replicas: bool = False) -> SwizzledLayout:
    bits = draw(st.integers(0, 3))
    swizzle = Swizzle(
        bits, draw(st.integers(0, 3)), draw(st.integers(max(1, bits), 4)) * draw(st.sampled_from([1, -1]))
    )
    count = draw(st.integers(1, 3))
    shard = [(draw(st.integers(1, 5)), draw(st.integers(0, 20)), "m") for _ in range(count)]
    if draw(st.booleans()):
        shard = [(4, 16, "m"), (16, 1, "m")]
    replica = [(2, draw(st.integers(0, 9)), "m")] if replicas and draw(st.booleans()) else []
    offset = {"m": draw(st.integers(0, 30))}
    return SwizzledLayout(swizzle, TileLayout.from_iters(shard=shard, replica=replica, offset=offset))


@given(swizzled())
def test_apply_table_evaluate_and_image_follow_the_definition(layout: SwizzledLayout) -> None:
    expected = [value(layout, n) for n in range(layout.size)]
    assert [layout.apply(n) for n in range(layout.size)] == [{"m": x} for x in expected]
    assert layout.table()["m"].tolist() == expected
    assert layout.evaluate(np.arange(layout.size)[::-1])["m"].tolist() == expected[::-1]
    assert layout.image() == tuple(sorted(set(expected)))
    assert layout.span() == max(expected) - min(expected) + 1
    assert f"place: m = {expected[-1]}" in layout.explain(layout.size - 1)


@given(swizzled(replicas=True))
def test_places_are_the_swizzled_places_of_the_tile(layout: SwizzledLayout) -> None:
    assert isinstance(layout.swizzle, Swizzle)
    seen = set()
    for n in range(layout.size):
        places = {place["m"] for place in layout.places(n)}
        assert places == {fold(layout.swizzle, place.get("m", 0)) for place in layout.inner.places(n)}
        seen |= places
    assert layout.image() == tuple(sorted(seen))
    assert layout.canonicalize().equivalent(layout)
    for n in range(layout.size):
        assert {p["m"] for p in layout.canonicalize().places(n)} == {p["m"] for p in layout.places(n)}


@given(swizzled(), st.data())
def test_a_slice_is_the_layout_from_its_begin_on(layout: SwizzledLayout, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, layout.size - 1))
    end = data.draw(st.integers(begin + 1, layout.size))
    try:
        part = layout.slice((layout.size,), ((begin, end),))
    except NotExpressibleError:
        event("refused")
        with pytest.raises(NotExpressibleError):
            layout.inner.slice((layout.size,), ((begin, end),))
        return
    assert [value(part, n) for n in range(end - begin)] == [value(layout, n) for n in range(begin, end)]


@given(swizzled())
def test_text_json_repr_and_pickle_bring_the_layout_back(layout: SwizzledLayout) -> None:
    assert parse(str(layout)) == layout == parse_layout(str(layout))
    assert SwizzledLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert eval(repr(layout)) == layout == pickle.loads(pickle.dumps(layout))
    assert hash(parse(str(layout))) == hash(layout)
    assert isinstance(parse_layout(str(layout.inner)), TileLayout)


@given(swizzled(replicas=True), swizzled(replicas=True))
def test_equivalence_is_equality_of_all_sets_of_places(a: SwizzledLayout, b: SwizzledLayout) -> None:
    for other in (a, b, a.inner, b.inner, a.canonicalize()):
        same = a.size == other.size and all(
            {p.get("m", 0) for p in a.places(n)} == {p.get("m", 0) for p in other.places(n)} for n in range(a.size)
        )
        assert a.equivalent(other) == same
        found = a.difference(other)
        assert (found is None) == same
        if found is not None and found[0] is not None:
            n = found[0]
            assert {p.get("m", 0) for p in a.places(n)} != {p.get("m", 0) for p in other.places(n)}


@given(swizzled(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4))
def test_tiling_repeats_the_swizzled_image_or_is_impossible(
    layout: SwizzledLayout, rows: int, columns: int, stride: int
) -> None:
    outer = TileLayout.from_iters(shard=[(rows, stride * columns, "m"), (columns, stride, "m")])
    width = layout.span()
    expected = [
        width * (r * stride * columns + c * stride) + value(layout, i)
        for r in range(rows)
        for i in range(layout.size)
        for c in range(columns)
    ]
    try:
        tiled = layout.tile(outer, (rows, columns), (layout.size, 1))
    except NotExpressibleError:
        event("refused")
        assert isinstance(layout.swizzle, Swizzle)
        assert not is_a_tile(np.array([fold(layout.swizzle, x) for x in expected]))
        return
    assert tiled.table()["m"].tolist() == expected


def is_a_tile(values: Any) -> bool:
    """Whether some mixed-radix layout has these values: try every factorisation, innermost digit first."""
    if len(values) == 1:
        return True
    for extent in range(2, len(values) + 1):
        if len(values) % extent:
            continue
        blocks = values.reshape(-1, extent)
        steps = np.diff(blocks, axis=1)
        if (steps == steps[0, 0]).all() and is_a_tile(blocks[:, 0]):
            return True
    return False


@given(swizzled(), st.sampled_from([2, 4]))
def test_narrower_elements_and_back(layout: SwizzledLayout, n: int) -> None:
    narrow = layout.unpack(n)
    wide = [value(layout, k) for k in range(layout.size)]
    assert [value(narrow, k) for k in range(n * layout.size)] == [n * x + j for x in wide for j in range(n)]
    assert narrow.pack(n).equivalent(layout)


def test_wider_elements_that_a_swizzle_tears_apart_are_refused() -> None:
    with pytest.raises(NotExpressibleError, match="tear"):
        parse("Sw<1,0,3> o S[64:1]").pack(2)
    with pytest.raises(NotExpressibleError):
        parse("Sw<1,3,3> o S[64:1]").unpack(3)
    with pytest.raises(NotExpressibleError, match="defined for swizzles"):
        SwizzledLayout(F2Map((2, 1)), TileLayout(S[4])).unpack(2)


@given(swizzled(), st.integers(0, 4))
def test_a_swizzled_layout_moves_by_whole_periods_only(layout: SwizzledLayout, times: int) -> None:
    period = layout.swizzle.period
    moved = layout + times * period
    assert moved.table()["m"].tolist() == (layout.table()["m"] + times * period).tolist()
    if period > 1:
        with pytest.raises(NotExpressibleError, match="multiples of its period"):
            _ = layout + (times * period + 1)


@given(st.permutations(range(6)).flatmap(lambda _: st.lists(st.integers(0, 63), min_size=6, max_size=6)))
def test_any_invertible_linear_map_may_permute_the_tile(columns: list[int]) -> None:
    linear = F2Map(tuple(columns), 6)
    tile = TileLayout(S[(8, 8) : (1, 8)])
    if len({linear.apply(x) for x in range(64)}) < 64:
        with pytest.raises(RangeError, match="not invertible"):
            SwizzledLayout(linear, tile)
        return
    layout = SwizzledLayout(linear, tile)
    assert layout.table()["m"].tolist() == [linear.apply(8 * (n % 8) + n // 8) for n in range(64)]
    assert parse(str(layout)) == layout
    assert layout.base_alignment("f16") == 128
    assert layout.slice((8, 8), ((2, 4), (0, 8))).table()["m"].tolist() == layout.table()["m"][16:32].tolist()


def test_a_stage_by_whole_periods_passes_through_the_swizzle() -> None:
    s = Param("s", 0, 3)
    tile = TileLayout.parse("S[(3,64,64):(4096,64,1)]")
    stage = SwizzledLayout(Swizzle(3, 3, 3), tile).slice((3, 64, 64), (s, (0, 64), (0, 64)))
    assert stage.apply(64 + 8) == {"m": 4096 * s + 64}
    assert stage.substitute(s=2).apply(64) == {"m": 8192 + 72}
    row = SwizzledLayout(Swizzle(3, 3, 3), TileLayout(S[64, 64])).slice((64, 64), (s, (0, 64)))
    with pytest.raises(UndecidedError, match="substitute"):
        row.apply(0)
    assert row.substitute(s=1).apply(0) == {"m": 72}
    with pytest.raises(UndecidedError):
        row.equivalent(TileLayout(S[64]))


def test_regrouping_and_permuting_happen_inside() -> None:
    layout = parse("Sw<2,0,2> o S[(4,4):(4,1)]")
    grouped, seps = layout.group((2, 8))
    assert grouped.equivalent(layout)
    assert seps[-1] == len(grouped.inner.shard)
    assert layout.regroup((2, 2, 4)).equivalent(layout)
    turned = layout.permute(1, 0, shape=(4, 4))
    assert turned.table((4, 4))["m"].tolist() == layout.table((4, 4))["m"].T.tolist()
    assert parse("Sw<1,0,2> o S[4:1]").as_tile() == TileLayout(S[4:1])
    with pytest.raises(NotExpressibleError):
        layout.as_tile()


@pytest.mark.parametrize(
    ("error", "make", "says"),
    [
        (
            AxisError,
            lambda: SwizzledLayout(Swizzle(3, 3, 3), TileLayout.parse("S[32:1@laneid]")),
            "laneid \\(thread\\)",
        ),
        (
            AxisError,
            lambda: SwizzledLayout(Swizzle(3, 3, 3), TileLayout.parse("S[(2,2):(1@P,1@F)]")),
            "P \\(memory\\), F",
        ),
        (RangeError, lambda: SwizzledLayout(Swizzle(3, 3, 3), S[4:-1]), "offset -3"),
        (RangeError, lambda: SwizzledLayout(Swizzle(3, 3, 3), S[4] + R[2:-8]), "offset -8"),
        (LayoutError, lambda: SwizzledLayout(Any, S[4]), "takes a Swizzle"),
        (AxisError, lambda: parse("Sw<1,0,1> o S[4]").image("laneid"), "lives on m"),
        (RegionError, lambda: parse("Sw<1,0,1> o S[4]").apply(4), "outside"),
        (LayoutError, lambda: SwizzledLayout.from_json({"format": 99, "layout": "Sw<1,0,1> o S[4]"}), "JSON"),
        (NotationError, lambda: parse("S[4]"), "expected SWIZZLE o LAYOUT"),
        (NotationError, lambda: parse("Sw<1,0> o S[4]"), "expected a swizzle"),
        (
            AxisError,
            lambda: parse("Sw<1,0,1> o S[4]").tile(TileLayout.parse("S[2:1@warpid]"), (2,), (4,)),
            "moves on warpid",
        ),
    ],
)
def test_misuse_is_refused(error: type[LayoutError], make: Callable[[], Any], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_a_fault_in_the_text_is_pointed_at_in_the_whole_text() -> None:
    with pytest.raises(NotationError) as caught:
        parse("Sw<3,3,3> o S[64,64")
    assert caught.value.text == "Sw<3,3,3> o S[64,64"
    assert caught.value.position >= len("Sw<3,3,3> o S[")
    assert parse(" Sw<1,0,1> ∘ S[4]") == parse("Swizzle<1,0,1> o S[4]")


# -- vectors of the TIRx implementation -------------------------------------------------------------------------------

with gzip.open(Path(__file__).parent / "data" / "tirx_swizzled_layouts.json.gz", "rt") as stream:
    VECTORS: list[dict[str, Any]] = json.load(stream)


def vectors(op: str) -> pytest.MarkDecorator:
    chosen = [vector for vector in VECTORS if vector["op"] == op]
    return pytest.mark.parametrize("vector", chosen, ids=[vector["id"] for vector in chosen])


def tile_of(given_tile: dict[str, Any]) -> TileLayout:
    return TileLayout.from_iters(**given_tile)


def layout_of(given_layout: dict[str, Any]) -> SwizzledLayout:
    spelling = {key: given_layout[key] for key in ("per_element", "swizzle_len", "atom_len", "swizzle_inner")}
    return SwizzledLayout(Swizzle(**spelling), tile_of(given_layout["tile"]))


@vectors("apply")
def test_addresses_agree_with_tirx(vector: dict[str, Any]) -> None:
    layout, arguments = layout_of(vector["layout"]), vector["args"]
    coords = [c if isinstance(c, list) else [c] for c in arguments["coords"]]
    got = [layout.apply(*c, shape=arguments.get("shape"))["m"] for c in coords]
    assert got == vector["result"]
    if "image_max" in vector:
        assert layout.image()[-1] == vector["image_max"]


@vectors("canonicalize")
def test_canonical_forms_are_the_same_map_as_tirx_gives(vector: dict[str, Any]) -> None:
    layout, theirs = layout_of(vector["layout"]), layout_of(vector["result"])
    assert layout.canonicalize().equivalent(layout)
    assert layout.canonicalize() == theirs.canonicalize()


@vectors("slice")
def test_slices_agree_with_tirx_and_answer_where_it_declines(vector: dict[str, Any]) -> None:
    layout, arguments = layout_of(vector["layout"]), vector["args"]
    if [it.stride for it in layout.inner.shard] == [1]:
        # The vectors' convention: one entry of stride 1 stands for the identity over the whole shape.
        layout = SwizzledLayout(layout.swizzle, S[int(np.prod(arguments["shape"])) : 1])
    box = [range(begin, end) for begin, end in arguments["region"]]
    expected = [layout.apply(*c, shape=arguments["shape"])["m"] for c in itertools.product(*box)]
    try:
        part = layout.slice(arguments["shape"], arguments["region"])
    except NotExpressibleError:
        assert vector["declined"]
        tile = [layout.inner.apply(*c, shape=arguments["shape"]).get("m", 0) for c in itertools.product(*box)]
        assert not is_a_tile(np.array(tile))
        return
    assert part.table()["m"].tolist() == expected
    if vector["result"] is not None:
        assert part.equivalent(layout_of(vector["result"]))


@vectors("tile")
def test_tilings_agree_with_tirx(vector: dict[str, Any]) -> None:
    layout, arguments = layout_of(vector["layout"]), vector["args"]
    tiled = layout.tile(tile_of(vector["outer"]), arguments["outer_shape"], arguments["inner_shape"])
    assert tiled.equivalent(layout_of(vector["result"]))


@vectors("direct_sum")
def test_direct_sums_add_up_before_the_swizzle_as_in_tirx(vector: dict[str, Any]) -> None:
    layout, arguments = layout_of(vector["layout"]), vector["args"]
    summed = layout.direct_sum(tile_of(vector["left"]), arguments["left_shape"], arguments["right_shape"])
    assert summed.equivalent(layout_of(vector["result"]))


def test_every_vector_is_asked() -> None:
    assert {vector["op"] for vector in VECTORS} == {"apply", "canonicalize", "slice", "tile", "direct_sum"}
    assert len(VECTORS) == 315


@given(swizzled(replicas=True))
def test_facts_about_the_image_are_those_of_enumeration(layout: SwizzledLayout) -> None:
    sets = [{place["m"] for place in layout.places(n)} for n in range(layout.size)]
    every = [x for places in sets for x in places]
    apart = len(every) == len(set(every))
    assert layout.is_injective() == apart
    found = layout.first_collision()
    assert (found is None) == apart
    if found is not None:
        assert sets[found[0]] & sets[found[1]]
    low, high = min(every), max(every) + 1
    full = apart and len(every) == high - low
    assert layout.is_contiguous() == full
    assert layout.is_bijective_onto({"m": (low, high)}) == full
    assert not layout.is_bijective_onto({"m": (low, high + 1)})
    assert not layout.is_bijective_onto({"m": (low, high), "P": (0, 2)})


def test_the_rest_of_the_operations_happen_inside() -> None:
    layout = parse("Sw<2,0,2> o S[(4,4):(4,1)]")
    many, seps = layout.group_many([(2, 8), (8, 2)])
    assert many.equivalent(layout)
    assert len(seps) == 2
    assert layout.permute_iters((1, 0)) == layout.permute(1, 0)
    grouped, at = layout.group((4, 4))
    assert grouped.permute_groups(at, (1, 0)).equivalent(layout.permute(1, 0, shape=(4, 4)))
    wide = layout.broadcast(3)
    assert wide.table((3, 16))["m"].tolist() == [layout.table()["m"].tolist()] * 3
    assert layout.storage() is layout
    for shape in ((6, 4), (8,)):
        with pytest.raises(RegionError, match="does not divide"):
            layout.tile_to(shape, (4, 4))
    assert layout.tile_to((8, 8), (4, 4)).size == 64


def test_a_symbol_has_no_swizzled_address() -> None:
    with pytest.raises(UndecidedError, match="substitute"):
        parse("Sw<2,0,2> o S[16:1]").apply(TileLayout.parse("S[q:1]").size)
