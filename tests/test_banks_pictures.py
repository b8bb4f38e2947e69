"""Pictures are well-formed, show what the reports say, and refuse what does not fit on a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from layoutalg import SwizzledLayout, TileLayout
from layoutalg.banks import WarpAccess, global_report, shared_report, simulate, warp_access
from layoutalg.draw.banks import bank_map, instruction_map, tile_map
from layoutalg.draw.grid import GREY, INK
from layoutalg.draw.tmem import tmem_map
from layoutalg.errors import RangeError

SVG = "{http://www.w3.org/2000/svg}"
COLUMNS = TileLayout.parse("S[(2,32,64):(64,1@laneid,1)]")


def titles(picture: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(picture).iter(f"{SVG}title")]


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("pitch", [1, 2, 32, 33])
def test_a_bank_map_has_one_cell_per_word_and_names_the_lanes(width: int, pitch: int) -> None:
    report = simulate(WarpAccess("ld.shared", width, addresses=range(0, 32 * width * pitch, width * pitch)))
    shown = titles(bank_map(report))
    expected = [
        f"bank {bank}, word {word} (byte {4 * word})"
        for group in report.groups
        for bank, words in group.banks
        for word in words
    ]
    assert sorted(title.split(":")[0] for title in shown) == sorted(expected)
    assert bank_map(report) == report._repr_svg_()
    assert f"{report.wavefronts} wavefront" in texts(bank_map(report))[0]


def test_copies_share_a_cell_and_idle_groups_have_none() -> None:
    report = simulate(WarpAccess("st.shared", 16, addresses=[0] * 32, mask=0xFF00))
    shown = titles(bank_map(report))
    assert len(shown) == 4
    assert all("lanes 8-15" in title for title in shown)
    assert any("1 wavefront" in text for text in texts(bank_map(report)))


def test_an_instruction_map_has_one_row_per_instruction() -> None:
    report = shared_report(TileLayout.parse("S[64,64]"), COLUMNS, "f16")
    picture = instruction_map(report)
    assert sum("wavefronts, excess 28" in text for text in texts(picture)) == len(report) == 16
    assert len(titles(picture)) == 16 * 4
    assert report._repr_svg_() == picture


def test_a_tile_map_labels_every_cell_with_its_bank() -> None:
    layout = SwizzledLayout.parse("Sw<3,3,3> o S[64,64]")
    shown = titles(tile_map(layout, (64, 64), "f16", chunk=8))
    assert len(shown) == 64 * 8
    assert shown[9] == "(1, 8): byte 128, word 32, bank 0"
    assert titles(tile_map(TileLayout.parse("S[4,4]"), (4, 4), "f32", base=8))[0] == "(0, 0): byte 8, word 2, bank 2"


def test_markup_in_texts_is_escaped() -> None:
    picture = tile_map(SwizzledLayout.parse("Sw<1,0,2> o S[4,4]"), (4, 4), "f32")
    assert "Sw&lt;1,0,2&gt;" in picture
    assert texts(picture)[0].startswith("Sw<1,0,2>")


def test_what_does_not_fit_is_refused_and_notebooks_fall_back_to_text() -> None:
    big = TileLayout.parse("S[128,128]")
    refusals: list[Callable[[], str]] = [
        lambda: tile_map(big, (128, 128), "f32"),
        lambda: tile_map(big, (128, 128), "f32", chunk=3),
        lambda: tile_map(big, (2, 64, 128), "f32"),
        lambda: bank_map(simulate(WarpAccess("ld.global", 4, addresses=range(0, 128, 4)))),
    ]
    for make in refusals:
        with pytest.raises(RangeError):
            make()
    far = global_report(TileLayout.parse("S[32:1]"), TileLayout.parse("S[32:1@laneid]"), "f32")
    assert far._repr_svg_() is None
    assert far[0].report._repr_svg_() is None
    many = shared_report(TileLayout.parse("S[16384:1]"), TileLayout.parse("S[(512,32):(1,1@laneid)]"), "f32")
    assert many._repr_svg_() is None
    with pytest.raises(RangeError, match="too many for a picture"):
        instruction_map(many)


def test_pictures_of_banks_and_tensor_memory_have_no_paper_of_their_own_and_readable_cells() -> None:
    report = simulate(warp_access(TileLayout.parse("S[32:32]"), "f32"))
    frag = shared_report(TileLayout.parse("S[32,64]"), TileLayout.parse("S[(32,64):(1@laneid,1)]"), "f16")
    tmem = tmem_map(TileLayout.parse("S[(128,4):(1@TLane,1@TCol)]"), TileLayout.parse("S[(128,4):(1@tid_in_wg,1)]"))
    pictures = [bank_map(report), instruction_map(frag), tile_map(TileLayout.parse("S[8,33]"), (8, 33), "f32"), tmem]
    for picture in pictures:
        assert "100%" not in picture
        assert "#ffffff" not in picture
        assert set(re.findall(r'<(?:text|svg) [^>]*fill="(#\w+)"', picture)) <= {GREY, INK}
    for fill in {fill for picture in pictures[:3] for fill in re.findall(r'<rect [^>]*fill="(#\w+)"', picture)}:
        assert contrast(INK, fill) > 6.5


def contrast(ink: str, fill: str) -> float:
    """The ratio of the accessibility guidelines (WCAG 2)."""
    low, high = sorted(map(luminance, (ink, fill)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
