"""Pictures of layouts: every cell says what the layout says, by an oracle of its own, and people can read it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import oracle
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import LayoutError, RangeError, SwizzledLayout, TileLayout
from layoutalg.draw import Picture, beside, compare, draw
from layoutalg.draw.grid import GREY, INK, PALETTE, ramp, shade

SVG = "{http://www.w3.org/2000/svg}"
FRAGMENT = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")


def cells(picture: Picture) -> dict[str, tuple[str, str, bool]]:
    """Tooltip's head -> its facts, the label and whether the cell is dashed."""
    found = {}
    for group in ElementTree.fromstring(picture.svg).iter(f"{SVG}g"):
        head, _, facts = (group.findtext(f"{SVG}title") or "").partition(": ")
        label = " ".join(text.text or "" for text in group.findall(f"{SVG}text"))
        dashed = any(box.get("stroke-dasharray") for box in group.findall(f"{SVG}rect"))
        assert head not in found
        found[head] = (facts, label, dashed)
    return found


def facts(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (part.split() for part in text.split(", "))}


@given(st.data())
def test_every_element_has_a_cell_that_names_its_base_place(data: Any) -> None:
    layout = data.draw(strategies.layouts(limit=48))
    shape = data.draw(strategies.shapes(layout.size))
    drawn = cells(draw(layout, shape))
    plain = oracle.plain(layout)
    assert len(drawn) == layout.size
    for coord in oracle.coordinates(shape):
        text = drawn[f"({', '.join(map(str, coord))})"][0]
        named = {} if text == "no coordinates" else facts(text)
        assert oracle.place(named) == oracle.base(plain, oracle.flat(coord, shape))


@given(st.data())
def test_the_picture_of_places_inverts_the_layout_replicas_included(data: Any) -> None:
    layout = data.draw(strategies.layouts(limit=24, axes=("m", "laneid", "warpid")))
    shape = data.draw(strategies.shapes(layout.size))
    plain = oracle.plain(layout)
    wanted: dict[Any, set[str]] = {}
    for coord in oracle.coordinates(shape):
        for place in oracle.places(plain, oracle.flat(coord, shape)):
            wanted.setdefault(place, set()).add(f"({','.join(map(str, coord))})")
    drawn = {
        oracle.place(facts(at)): who[0] for at, who in cells(draw(layout, shape, view="places", limit=10**6)).items()
    }
    assert drawn.keys() == wanted.keys()
    for place, text in drawn.items():
        named = re.findall(r"\([\d,]*\)", text)
        more = re.search(r"and (\d+) more", text)
        if more is None:
            assert set(named) == wanted[place]
        else:
            assert set(named) <= wanted[place]


def test_cells_are_labelled_by_thread_register_and_number_of_places() -> None:
    drawn = cells(draw(FRAGMENT, (8, 16)))
    assert drawn["(3, 9)"][:2] == ("laneid 12, warpid 6, m 1", "w6 T12 r1 ×2")
    assert "4@warpid apart" in draw(FRAGMENT, (8, 16)).svg


def test_axes_that_share_a_letter_are_written_in_full() -> None:
    layout = TileLayout.parse("S[(2,2):(1@laneid,1@tx)]")
    assert cells(draw(layout))["(1, 0)"][1] == "laneid 1 tx 0"


def test_colours_follow_lanes_and_walls_part_warps() -> None:
    tree = ElementTree.fromstring(draw(FRAGMENT, (8, 16)).svg)
    fill = {
        facts((group.findtext(f"{SVG}title") or "").partition(": ")[2])["laneid"]: group.find(f"{SVG}rect").get("fill")  # type: ignore[union-attr]
        for group in tree.iter(f"{SVG}g")
    }
    assert fill == {lane: shade(lane) for lane in range(32)}
    (wall,) = tree.iter(f"{SVG}path")
    assert (wall.get("d") or "").count("v") == 8


def test_replicas_are_dashed_in_the_picture_of_places() -> None:
    drawn = cells(draw(TileLayout.parse("S[4:1@laneid] + R[2:4@laneid]"), view="places"))
    assert {int(at.split()[1]): dashed for at, (_, _, dashed) in drawn.items()} == {n: n >= 4 for n in range(8)}


def test_gaps_in_memory_stay_empty_and_shared_addresses_count_their_elements() -> None:
    drawn = cells(draw(TileLayout.parse("S[(2,2):(8,1)]"), view="places", width=8))
    assert sorted(drawn) == ["m 0", "m 1", "m 8", "m 9"]
    assert cells(draw(TileLayout.parse("S[(2,2):(1,1)]"), view="places"))["m 1"] == ("(0,1), (1,0)", "0,1 +1", False)


def test_a_swizzled_layout_is_drawn_before_and_after() -> None:
    plain, swizzled = TileLayout.parse("S[8,16]"), SwizzledLayout.parse("Sw<2,2,2> o S[8,16]")
    picture = compare(plain, swizzled, (8, 16), view="places", arrow="swizzle")
    left, right = (
        {g.findtext(f"{SVG}title") for g in part.iter(f"{SVG}g")}
        for part in ElementTree.fromstring(picture.svg).findall(f"{SVG}svg")
    )
    assert left == {f"m {16 * i + j}: ({i},{j})" for i in range(8) for j in range(16)}
    assert right == {f"m {16 * i + 4 * (j // 4 ^ i % 4) + j % 4}: ({i},{j})" for i in range(8) for j in range(16)}
    assert ">swizzle</text>" in picture.svg


def test_replicas_of_a_swizzled_layout_are_moved_before_the_swizzle() -> None:
    layout = SwizzledLayout.parse("Sw<1,0,1> o S[2:1] + R[2:2]")
    drawn = cells(draw(layout, view="places"))
    assert {at: (who, dashed) for at, (who, _, dashed) in drawn.items()} == {
        "m 0": ("(0)", False),
        "m 1": ("(1)", False),
        "m 3": ("(0)", True),
        "m 2": ("(1)", True),
    }


@pytest.mark.parametrize("view", ["logical", "places"])
def test_big_layouts_are_summarised_within_the_limit(view: str) -> None:
    layout = TileLayout.parse("S[(128,256):(1@TLane,1@TCol)]")
    drawn = cells(draw(layout, view=view, limit=200))
    assert 100 <= len(drawn) <= 200
    if view == "logical":
        assert drawn["(120, 224) to (127, 255)"][0] == "TLane 120..127, TCol 224..255"


def test_layouts_that_no_table_holds_are_sampled() -> None:
    layout = TileLayout.parse("S[(65536,65536):(65536,1)]")
    drawn = cells(draw(layout, limit=64))
    assert drawn["first of a block, (8192, 0)"][0] == f"m {8192 * 65536}"
    assert len(drawn) == 64
    with pytest.raises(RangeError, match="slice the layout"):
        draw(layout, view="places")


def test_far_apart_addresses_do_not_draw_the_desert_between_them() -> None:
    assert len(draw(TileLayout.parse(f"S[2:{1 << 40}]"), view="places").svg) < 10_000


def test_banks_colour_a_tile_by_the_bank_of_each_element() -> None:
    drawn = ElementTree.fromstring(draw(TileLayout.parse("S[2,64]"), by="bank", dtype="f16").svg)
    boxes = [group.find(f"{SVG}rect") for group in drawn.iter(f"{SVG}g")]
    fills = [box.get("fill") for box in boxes if box is not None]
    assert fills[:64] == fills[64:]
    assert fills[0] == fills[1]
    assert len(set(fills)) == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"view": "upside"}, "logical, places, both"),
        ({"by": "bank"}, "element type"),
        ({"by": "lane"}, "nearest"),
        ({"shape": (3, 5)}, "has not the 128 elements"),
        ({"limit": 0}, "at least one cell"),
    ],
)
def test_wrong_requests_are_refused_in_words(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        draw(FRAGMENT, **{"shape": (8, 16), **change})


@pytest.mark.parametrize("text", ["S[8:1] + 8*s[0:2]", "S[4:n]", "S[n:1]", "S[4:1] + R[2:n]", "S[4:1] + n@laneid"])
def test_parameters_and_symbols_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="substitute numbers"):
        draw(TileLayout.parse(text))


def test_pictures_have_no_script_no_style_sheet_and_no_background() -> None:
    pictures = beside(draw(FRAGMENT, (8, 16), view="both"), draw(TileLayout.parse("S[4,8]")))
    tree = ElementTree.fromstring(pictures.svg)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= {"svg", "g", "rect", "text", "title", "path"}
    assert "100%" not in pictures.svg
    assert not re.search("user-select|pointer-events", pictures.svg)  # text can be marked and copied
    assert "http" not in pictures.svg.replace("http://www.w3.org/2000/svg", "")


def luminance(colour: str) -> float:
    linear = []
    for at in (1, 3, 5):
        c = int(colour[at : at + 2], 16) / 255
        linear.append(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_text_is_readable_on_its_cell_and_outside_on_light_and_dark_paper() -> None:
    fills = {*PALETTE, *(shade(n) for n in range(32)), ramp(0), ramp(0.5), ramp(1)}
    assert min(contrast(INK, fill) for fill in fills) > 6.5
    assert min(contrast(GREY, paper) for paper in ("#ffffff", "#1e1e1e", "#111111", "#f7f7f7")) > 3.5


def as_seen(colour: str, kind: str) -> tuple[float, ...]:
    """The colour as a dichromat sees it, in linear light (the published matrices of Vienot, Brettel and Mollon)."""
    red, green, blue = ((int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    if kind == "protan":
        return (0.11238 * red + 0.88762 * green, 0.11238 * red + 0.88762 * green, 0.004 * red - 0.004 * green + blue)
    return (0.29275 * red + 0.70725 * green, 0.29275 * red + 0.70725 * green, -0.02234 * red + 0.02234 * green + blue)


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_the_eight_hues_differ_for_people_who_do_not_tell_red_from_green(kind: str) -> None:
    seen = [as_seen(colour, kind) for colour in PALETTE]
    gaps = [sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 for i, a in enumerate(seen) for b in seen[:i]]
    assert min(gaps) > 0.08


def test_a_picture_is_saved_as_svg_and_as_png_only_with_a_converter(tmp_path: Path) -> None:
    picture = draw(TileLayout.parse("S[4,8]"))
    assert picture.save(tmp_path / "a.svg").read_text().startswith("<svg")
    assert picture._repr_svg_() == str(picture)
    with pytest.raises(LayoutError, match=r"\.svg or \.png"):
        picture.save(tmp_path / "a.jpg")
    if importlib.util.find_spec("cairosvg") is None:
        with pytest.raises(LayoutError, match="cairosvg"):
            picture.save(tmp_path / "a.png")
        assert not (tmp_path / "a.png").exists()
    else:
        assert picture.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_two_pictures_that_are_too_wide_for_a_page_stand_one_above_the_other() -> None:
    narrow = compare(TileLayout.parse("S[4,8]"), TileLayout.parse("S[4,8]"))
    tile, swizzled = TileLayout.parse("S[8,64]"), SwizzledLayout.parse("Sw<3,3,3> o S[8,64]")
    wide = compare(tile, swizzled, by="bank", dtype="f16", arrow="swizzle")
    first = draw(tile, by="bank", dtype="f16")
    assert narrow.width > 2 * draw(TileLayout.parse("S[4,8]")).width
    assert (wide.width, wide.height) == (first.width, 2 * first.height + 28)
    assert ">swizzle</text>" in wide.svg
    assert len(cells(draw(TileLayout.parse("S[4096,1024]")))) <= 256


@given(st.data())
def test_lines_by_bank_name_every_element_in_every_word_that_it_touches(data: Any) -> None:
    layout = data.draw(strategies.layouts(limit=24, axes=("m",)))
    name, size = data.draw(st.sampled_from([("u8", 1), ("f16", 2), ("f32", 4), ("f64", 8)]))
    found: dict[int, set[str]] = {}
    for title in cells(draw(layout, (layout.size,), view="banks", dtype=name, limit=10**6)):
        bank, word, byte = map(int, re.findall(r"bank (\d+), word (-?\d+), byte (-?\d+)", title)[0])
        assert (bank, byte) == (word % 32, 4 * word)
    for title, (named, _, _) in cells(draw(layout, (layout.size,), view="banks", dtype=name, limit=10**6)).items():
        found[int(re.findall(r"word (-?\d+)", title)[0])] = set(re.findall(r"\((\d+)\)", named))
    plain, expected = oracle.plain(layout), {}
    for (flat,) in oracle.coordinates((layout.size,)):
        for where in oracle.places(plain, flat):
            start = dict(where).get("m", 0) * size
            for byte in range(start, start + size):
                expected.setdefault(byte // 4, set()).add(str(flat))
    assert set(found) == set(expected)
    for word, names in expected.items():
        assert found[word] <= names
        assert found[word] == names or len(names) > 4


def test_lines_by_bank_are_for_memory_with_an_element_type_and_are_summarised() -> None:
    with pytest.raises(LayoutError, match="element type"):
        draw(TileLayout.parse("S[4,8]"), view="banks")
    with pytest.raises(LayoutError, match="other axes"):
        draw(FRAGMENT, (8, 16), view="banks", dtype="f16")
    drawn = cells(draw(TileLayout.parse("S[512,64]"), view="banks", dtype="f16", limit=256))
    assert len(drawn) == 256
    assert {label for _, label, _ in drawn.values()} == {"128"}
    with pytest.raises(RangeError, match="lines of memory"):
        draw(TileLayout.parse("S[2:99999999]"), view="banks", dtype="f16")
