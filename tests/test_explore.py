"""The page of ``layoutalg explore``: what the browser computes equals what the library computes.

Headless Chromium loads the real page with a script appended that asks it for tables, costs and messages, plays a
person who types and points, and leaves the answers in the document as JSON.
"""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
import struct
import subprocess
import tomllib
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from layoutalg import LayoutError, NotationError, TileLayout
from layoutalg.banks import WarpAccess, simulate
from layoutalg.draw.explore import explore_page
from layoutalg.draw.grid import PALETTE
from layoutalg.swizzled import parse_layout

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
browser = pytest.mark.skipif(not CHROMIUM, reason="chromium not installed")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
)


def random_notations(count: int) -> list[str]:
    """Layouts with every feature that the page knows, plain and swizzled."""
    rng, found = random.Random(11), []
    for number in range(count):
        swizzled = number % 3 == 0
        axes = ("m",) if swizzled else ("m", "laneid", "warpid", "TLane", "tx")
        low = 0 if swizzled else -40
        shard = [(rng.randint(1, 6), rng.randint(low, 70), rng.choice(axes)) for _ in range(rng.randint(0, 4))]
        replica = [(rng.randint(1, 3), rng.randint(low, 9), rng.choice(axes)) for _ in range(rng.randint(0, 2))]
        offset = {axis: rng.randint(low, 99) for axis in axes if rng.random() < 0.4}
        layout = TileLayout.from_iters(shard=shard, replica=replica, offset=offset)
        bits, shift = rng.randint(0, 3), rng.choice((-4, -3, 3, 4))
        found.append(f"Sw<{bits},{rng.randint(0, 3)},{shift}> o {layout}" if swizzled else str(layout))
    return found


NOTATIONS = (
    *random_notations(60),
    "S[()]",
    "S[4,8]",
    "S[(4,8):(1,4)]",
    "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid",
    "S[(3,5):(-7,2@laneid)] + -4@warpid + 3",
    "S[(2,3,2):(0,100,1@TLane)] + R[(2,2):(10,20@laneid)]",
    "S[4:2, 3:8@tx] + (2*3+1)@tx",
    "S[(2,2):(1,1)] + R[3:1]",
    "S[2:1] + R[(2,2):(1,1)]",
    f"S[2:{1 << 45}]",
    "Sw<3,3,3> o S[64,64]",
    "Sw<2,1,-3> ∘ S[(8,16):(16,1)] + 64",
    "Swizzle<1,0,1> o S[3:1] + R[2:4]",
    f"Sw<2,33,4> o S[4:{1 << 37}]",
)
WRONG = (
    "",
    "S[4",
    "S[4:1",
    "S[(4,2):(1)]",
    "S[4:1@lane]",
    "S[4:1] + R[2:1] + S[2:1]",
    "S[4:1] + 1 + 2",
    "S[0:1]",
    "S[4:1] $",
    "R[2:1]",
    "Sw<1,1,0> o S[4:1]",
    "Sw<1,1,1> o S[4:1@laneid]",
    "Sw<1,1,1> o S[(4,2):(1,1@laneid)]",
)


def dump(tmp_path: Path, page: str, script: str) -> Any:
    """The value that the script's function returns, computed in the page."""
    runner = f"""<pre id="answer"></pre><script>
    const answer = (() => {{ {script} }})();
    document.getElementById("answer").textContent = btoa(unescape(encodeURIComponent(JSON.stringify(answer))));
    </script></body>"""
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", runner), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="answer">([A-Za-z0-9+/=]+)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    return json.loads(base64.b64decode(found[1]))


def accesses() -> list[WarpAccess]:
    """Accesses of every width, strided, random, paired and masked; loads that merge and that do not."""
    rng = random.Random(7)
    found = []
    for op in ("ld.shared", "st.shared"):
        for width in (1, 2, 4, 8, 16):
            for stride in (1, 2, 3, 33):
                found.append(WarpAccess(op=op, width=width, addresses=[width * stride * lane for lane in range(32)]))
            for step in (1, 2):
                base = [width * rng.randrange(64) for _ in range(32)]
                paired = [base[lane & ~step] for lane in range(32)]
                found.append(WarpAccess(op=op, width=width, addresses=paired))
                mask = rng.getrandbits(32)
                found.append(WarpAccess(op=op, width=width, addresses=base, mask=mask))
            found.append(WarpAccess(op=op, width=width, addresses=[128 * lane for lane in range(32)], mask=0x55555555))
    return found


QUESTIONS = f"""
    const tables = {json.dumps(NOTATIONS)}.map(text => {{
      const layout = layoutalg.parse(text), sets = [];
      for (let n = 0; n < layoutalg.sizeOf(layout); n++) sets.push(layoutalg.places(layout, n));
      return [layoutalg.table(text), sets];
    }});
    const refused = {json.dumps(WRONG)}.map(text => {{
      try {{ layoutalg.parse(text); return ""; }} catch (problem) {{ return problem.message; }} }});
    const costs = {json.dumps([[a.op, a.width, list(a.addresses), a.mask] for a in accesses()])}
      .map(a => {{ const r = layoutalg.simulate(...a); return [r.wavefronts, r.ideal, r.excess]; }});
    return {{tables, refused, costs}};
"""


def disagreements(answer: Any) -> list[str]:
    """What the browser computed otherwise than the library: notations, wrong notations, accesses."""
    found = []
    for text, (table, sets) in zip(NOTATIONS, answer["tables"], strict=True):
        layout = parse_layout(text)
        places = [as_set({a: int(v) for a, v in p.items()} for p in layout.places(n)) for n in range(layout.size)]
        if table != {axis: values.reshape(-1).tolist() for axis, values in layout.table().items()}:
            found.append(f"table of {text}")
        if [as_set(some) for some in sets] != places:
            found.append(f"places of {text}")
    for text, message in zip(WRONG, answer["refused"], strict=True):
        with pytest.raises(LayoutError) as refusal:
            parse_layout(text)
        caret = message.rindex("^") - message.rindex("\n") - 3 if "^" in message else -1
        position = getattr(refusal.value, "position", None)
        if not message or (isinstance(refusal.value, NotationError) and caret not in (-1, position)):
            found.append(f"refusal of {text!r}")
    for access, cost in zip(accesses(), answer["costs"], strict=True):
        report = simulate(access)
        if cost != [report.wavefronts, report.ideal, report.excess]:
            found.append(f"cost of {access}")
    return found


def as_set(places: Iterable[dict[str, int]]) -> list[list[tuple[str, int]]]:
    return sorted(sorted(place.items()) for place in places)


@browser
def test_the_browser_agrees_with_the_library_on_tables_places_banks_and_refusals(tmp_path: Path) -> None:
    answer = dump(tmp_path, explore_page(TileLayout.parse("S[4,8]")), QUESTIONS)
    assert disagreements(answer) == []


@browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ("place[it.axis] += digit * it.stride", "place[it.axis] = digit * it.stride", "table of"),
        ("size *= 2", "size *= 1", "cost of"),
        ("paired(1) || paired(2)", "paired(1)", "cost of"),
        ("base + Math.max(-shift, 0)", "base", "table of Sw<2,1,-3>"),
        ("kept.set(axes.map(a => place[a]).join(), place)", "kept.set(kept.size, place)", "places of S[2:1]"),
        ("text, skip + list[where].at", "text, list[where].at + 1", "refusal of"),
    ],
)
def test_a_wrong_line_in_the_page_is_noticed(tmp_path: Path, right: str, wrong: str, where: str) -> None:
    page = explore_page(TileLayout.parse("S[4,8]"))
    assert page.count(right) == 1
    found = disagreements(dump(tmp_path, page.replace(right, wrong), QUESTIONS))
    assert any(text.startswith(where) for text in found)


@browser
def test_a_person_who_types_and_points_sees_the_grid_the_places_and_the_banks(tmp_path: Path) -> None:
    script = """
    const $ = id => document.getElementById(id), seen = {};
    const type = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("input")); };
    const point = (pane, n) => {
      const cell = document.querySelector(`#${pane} td[data-of="${n}"]`);
      cell.dispatchEvent(new Event("mouseover", {bubbles: true}));
      return [cell.textContent, $("detail").textContent, document.querySelectorAll("td.hit").length];
    };
    seen.fragment = point("elements", 57);
    type("notation", "S[64,64]"); type("shape", "64x64"); type("dtype", "float16");
    seen.conflict = $("cost").textContent;
    type("vector", "8"); seen.plain = $("cost").textContent;
    type("swizzle", "3"); seen.swizzled = $("cost").textContent;
    seen.cell = point("elements", 72);
    type("notation", "S[4:1"); seen.error = $("error").textContent;
    type("notation", "S[4:1]"); type("swizzle", "written"); seen.shape = $("error").textContent;
    type("shape", ""); seen.clean = $("error").textContent;
    seen.count = document.querySelectorAll("#elements td").length;
    return seen;
    """
    fragment = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
    seen = dump(tmp_path, explore_page(fragment, (8, 16)), script)
    assert seen["fragment"][0] == "w6 T12 r1 ×2"
    assert "element (3,9), flat index 57" in seen["fragment"][1]
    assert "also: laneid 12, warpid 10, m 1" in seen["fragment"][1]
    assert seen["fragment"][2] == 3  # the element, and both its places
    assert seen["conflict"].startswith("32 wavefronts, ideal 1, excess 31")
    assert seen["plain"].startswith("32 wavefronts, ideal 4, excess 28")
    assert seen["swizzled"].startswith("4 wavefronts, ideal 4, excess 0")
    assert "Sw<3,3,3>: 72 -> 64" in seen["cell"][1]
    assert "byte 128, bank 0" in seen["cell"][1]
    assert "expected ']'" in seen["error"]
    assert "4096 elements, the layout 4" in seen["shape"]
    assert (seen["clean"], seen["count"]) == ("", 4)


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the colours of a PNG of 8 bits a channel, row by row."""
    width, height, depth, kind, *_ = struct.unpack(">IIBBBBB", png[16:29])
    channels = {2: 3, 6: 4}[kind]
    assert depth == 8
    at, packed = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        packed += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    raw, size = zlib.decompress(packed), width * channels
    above, rows = bytes(size), []
    for start in range(0, len(raw), size + 1):
        row = bytearray(raw[start + 1 : start + 1 + size])
        for i in range(size):
            left, up = row[i - channels] if i >= channels else 0, above[i]
            corner = above[i - channels] if i >= channels else 0
            row[i] = (row[i] + (0, left, up, (left + up) // 2, paeth(left, up, corner))[raw[start]]) & 255
        above = bytes(row)
        rows.append(above)
    return width, height, [row[i : i + 3] for row in rows for i in range(0, size, channels)]


def paeth(left: int, up: int, corner: int) -> int:
    """The predictor of PNG: whichever neighbour is nearest to left + up - corner."""
    return min((left, up, corner), key=lambda x: abs(left + up - corner - x))


@browser
@pytest.mark.slow
def test_a_screenshot_shows_the_coloured_grid_on_light_and_on_dark_paper(tmp_path: Path) -> None:
    page, papers = tmp_path / "page.html", {}
    page.write_text(explore_page(TileLayout.parse("S[(2,8):(8@laneid,1@laneid)]"), (2, 8)), encoding="utf-8")
    for theme, flags in (("light", ()), ("dark", ("--force-dark-mode",))):
        shot = tmp_path / f"{theme}.png"
        command = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={tmp_path / theme}", "--window-size=420,420"]
        subprocess.run([*command, f"--screenshot={shot}", page.as_uri()], capture_output=True, timeout=120, check=True)
        width, height, colours = pixels(shot.read_bytes())
        assert (width, height, len(colours)) == (420, 420, 420 * 420)
        papers[theme] = colours[0]
        # Cells of all eight hues are there, each with more than a hundred pixels.
        for hue in PALETTE:
            assert colours.count(bytes.fromhex(hue[1:])) > 100, (theme, hue)
    assert papers == {"light": bytes.fromhex("ffffff"), "dark": bytes.fromhex("14171a")}


def test_the_page_is_one_file_that_asks_nothing_of_the_network() -> None:
    page = explore_page(TileLayout.parse("S[4,8]"))
    assert "default-src 'none'" in page
    assert not re.search("user-select|pointer-events", page)
    assert not re.search(r"https?:|//[a-z]+\.|\bsrc=|\bhref=|@import|url\(", page)
    assert "@START@" not in page


def test_what_the_page_does_not_know_is_refused() -> None:
    for text in ("S[8:1] + 8*s[0:2]", "S[4:n]"):
        with pytest.raises(LayoutError, match="substitute numbers"):
            explore_page(TileLayout.parse(text))
    with pytest.raises(LayoutError):
        explore_page(TileLayout.parse("S[4,8]"), (5, 5))
    with pytest.raises(LayoutError, match="whole bytes"):
        explore_page(TileLayout.parse("S[4,8]"), dtype="float4_e2m1fn")


def test_the_page_ships_with_the_package() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())
    assert "draw/*.html" in project["tool"]["setuptools"]["package-data"]["layoutalg"]
