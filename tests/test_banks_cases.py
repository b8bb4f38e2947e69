"""Questions people asked in public about banks, matrix loads and swizzles, answered through the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layoutalg import Swizzle, SwizzledLayout, TileLayout
from layoutalg.banks import WarpAccess, simulate
from layoutalg.errors import NotExpressibleError, RangeError
from layoutalg.f2 import F2Map
from layoutalg.swizzle import row_xor, straddlers

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "public_cases_banks.json").read_text())


def cases(op: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["input"]["op"] == op]
    return pytest.mark.parametrize("case", chosen, ids=[f"{case['id']} {case['area']}" for case in chosen])


def swizzle_of(value: dict[str, Any]) -> Swizzle:
    return Swizzle(bits=value["bits"], base=value["base"], shift=value["shift"])


def layout_of(value: dict[str, Any]) -> TileLayout | SwizzledLayout:
    tile = TileLayout.from_iters(shard=value["iters"])
    return SwizzledLayout(swizzle_of(value["swizzle"]), tile) if "swizzle" in value else tile


ACCESSES = [
    (case, access) for case in CASES if case["input"]["op"] == "bank_conflicts" for access in case["input"]["accesses"]
]


@pytest.mark.parametrize(
    ("case", "access"), ACCESSES, ids=[f"{case['id']} {access['name']}" for case, access in ACCESSES]
)
def test_an_access_conflicts_as_much_as_the_answer_says(case: dict[str, Any], access: dict[str, Any]) -> None:
    expected = case["expected"][access["name"]]
    store = "store" in access["name"] or "write" in access["name"]
    op = "ldmatrix" if "ldmatrix" in case["area"] else "st.shared" if store else "ld.shared"
    if expected["misaligned_lanes"]:
        with pytest.raises(RangeError, match="misaligned") as caught:
            WarpAccess(op, access["width"], addresses=access["addresses"])
        assert list(caught.value.facts["lanes"]) == expected["misaligned_lanes"]
        return
    report = simulate(WarpAccess(op, access["width"], addresses=access["addresses"]))
    banks = {bank for group in report.groups for bank, _ in group.banks}
    assert {
        "misaligned_lanes": [],
        "phases": report.ideal,
        "wavefronts": report.wavefronts,
        "conflicts": report.excess,
        "way": report.degree,
        "banks": len(banks),
    } == expected


@pytest.mark.parametrize(
    ("case", "access"),
    [(case, access) for case, access in ACCESSES if "gen" in access],
    ids=[f"{case['id']} {access['name']}" for case, access in ACCESSES if "gen" in access],
)
def test_the_addresses_of_an_access_come_out_of_the_tile_it_is_made_to(
    case: dict[str, Any], access: dict[str, Any]
) -> None:
    assert case["expected"]
    tile = access["gen"]["tile"]
    offsets = layout_of(tile).evaluate(access["gen"]["index"])["m"]
    assert (offsets * tile["elem_bytes"] + tile["base"]).tolist() == access["addresses"]


@cases("swizzle_units")
def test_a_swizzle_of_elements_is_not_a_swizzle_of_bytes(case: dict[str, Any]) -> None:
    given = case["input"]
    offset = layout_of(given["layout"]).apply(given["index"])["m"]
    swizzle, size = swizzle_of(given["swizzle"]), given["elem_bytes"]
    by_recast = swizzle.recast(8, 8 * size).apply(offset)
    assert by_recast * size == swizzle.apply(offset * size)
    assert {"element_units": swizzle.apply(offset), "byte_units": by_recast} == case["expected"]


@cases("straddle")
def test_elements_that_straddle_chunks_have_no_element_swizzle(case: dict[str, Any]) -> None:
    given = case["input"]
    with pytest.raises(NotExpressibleError, match="straddle"):
        Swizzle(3, 4, 3).recast(8, given["elem_bits"])
    torn = straddlers("e2m3", chunk_bytes=given["chunk_bytes"], region_bytes=given["region_bytes"])
    whole = given["region_bytes"] * 8 // given["elem_bits"]
    assert {"whole_elements": whole, "straddling": list(torn), "element_swizzle_exists": False} == case["expected"]


@cases("xor_rule_to_swizzle")
def test_a_byte_rule_is_recognised_as_a_swizzle(case: dict[str, Any]) -> None:
    bits = case["input"]["check_bytes"].bit_length() - 1
    found = {}
    for rule in case["input"]["rules"]:

        def formula(x: int, rule: dict[str, Any] = rule) -> int:
            return x ^ (((x % rule["mod"]) >> rule["shift_right"]) << rule["shift_left"])

        swizzle = F2Map.from_function(formula, bits).to_swizzle()
        found[rule["name"]] = {"bits": swizzle.bits, "base": swizzle.base, "shift": swizzle.shift}
    assert found == case["expected"]


@cases("base_phase")
def test_swizzling_addresses_and_swizzling_offsets_agree_on_aligned_bases(case: dict[str, Any]) -> None:
    swizzle, inside = swizzle_of(case["input"]["swizzle"]), np.arange(case["input"]["tile_bytes"])
    wrong = {
        str(base): int((base + swizzle.apply(inside) != swizzle.apply(base + inside)).sum())
        for base in case["input"]["bases"]
    }
    assert {"wrong_bytes": wrong, "min_alignment": swizzle.base_alignment("u8")} == case["expected"]


@cases("compose_swizzles")
def test_two_swizzles_in_a_row_are_a_linear_map(case: dict[str, Any]) -> None:
    bits = case["input"]["n"].bit_length() - 1
    outer, inner = (F2Map.from_swizzle(swizzle_of(case["input"][side])) for side in ("outer", "inner"))
    both = outer.compose(inner).compose(F2Map.identity(bits))
    try:
        single: Any = both.to_swizzle()
    except NotExpressibleError:
        single = None
    assert {
        "bijective": both.is_invertible,
        "single_swizzle": single,
        "images_of_powers_of_two": [both.apply(1 << k) for k in range(bits)],
        "involution": both.compose(both).is_identity,
    } == case["expected"]


@cases("slice_swizzled")
def test_a_slice_keeps_its_begin_inside_the_swizzle(case: dict[str, Any]) -> None:
    tiles, part = case["input"]["tiles_per_row"], case["input"]["slice_tiles"]
    rows = len(case["input"]["phases"])
    layout = SwizzledLayout(row_xor(rows, tiles), TileLayout.from_iters(shard=[(rows, tiles, "m"), (tiles, 1, "m")]))
    sliced = layout.slice((rows, tiles), ((0, rows), (part[0], part[-1] + 1)))
    right = (sliced.table((rows, len(part)))["m"] - tiles * np.arange(rows)[:, None]).tolist()
    # The mistake: the phase is XORed onto the index within the slice, and the begin is added afterwards.
    naive = [[part[0] + (k ^ phase) for k in range(len(part))] for phase in case["input"]["phases"]]
    wrong = sum(a != b for r, n in zip(right, naive, strict=True) for a, b in zip(r, n, strict=True))
    assert {"right": right, "slice_relative": naive, "mismatches": wrong} == case["expected"]


@cases("xor_rows")
def test_rows_that_are_no_power_of_two_lose_chunks(case: dict[str, Any]) -> None:
    given = case["input"]
    with pytest.raises(NotExpressibleError) as caught:
        row_xor(given["rows"], given["chunks"])
    facts = caught.value.facts
    assert facts["period"] == given["period"]
    found = {key: facts[key] for key in ("out_of_row", "out_of_tile", "distinct")}
    assert {**found, "injective": facts["distinct"] == given["rows"] * given["chunks"]} == case["expected"]


@cases("evaluate")
def test_a_paged_tile_stores_elements_where_the_answer_says(case: dict[str, Any]) -> None:
    layout = layout_of({**case["input"]["layout"], "swizzle": case["input"]["swizzle"]})
    assert layout.evaluate(case["input"]["indices"])["m"].tolist() == case["expected"]["values"]


def test_every_case_is_asked() -> None:
    asked = {"bank_conflicts", "swizzle_units", "straddle", "xor_rule_to_swizzle", "base_phase", "compose_swizzles"}
    asked |= {"slice_swizzled", "xor_rows", "evaluate"}
    assert {case["input"]["op"] for case in CASES} == asked
    assert len(CASES) == 22
