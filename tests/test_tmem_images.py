"""The images of tcgen05 loads and stores against the table of the documentation, spelt out again here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from layoutalg.errors import RangeError
from layoutalg.hardware.tcgen05 import (
    COLUMNS,
    SHAPES,
    TmemInstruction,
    allocated_columns,
    instruction_for,
    slab_of,
    split_offset,
)

CASES = json.loads((Path(__file__).parent / "data" / "public_cases_tmem.json").read_text())["cases"]

# The table: register words and where lane l finds register r.
TABLE = {
    "32x32b": (1, lambda lane, r: (lane, r)),
    "16x64b": (1, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b": (4, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4))),
    "16x32bx2": (1, lambda lane, r: (lane % 16, r)),
}
LEGAL = [
    (shape, n, packed)
    for shape, (words, _) in TABLE.items()
    for n in (1, 2, 4, 8, 16, 32, 64, 128)
    if n * words <= 128
    for packed in (False, True)
]


def case(identifier: str) -> dict:
    return next(c for c in CASES if c["id"] == identifier)


@pytest.mark.parametrize(("shape", "n", "packed"), LEGAL)
def test_every_image_is_the_table_for_all_lanes_and_registers(shape, n, packed):
    instruction = TmemInstruction(shape, n, packed)
    rows, columns = instruction.cells()
    words, where = TABLE[shape]
    assert instruction.registers == words * n
    for lane in range(32):
        for r in range(words * n):
            row, column = where(lane, r)
            assert (rows[lane, r], columns[lane, r]) == (row, column * (2 if packed else 1))


@pytest.mark.parametrize(("shape", "n", "packed"), LEGAL)
def test_both_sides_of_an_image_hold_each_element_once_and_agree_element_by_element(shape, n, packed):
    instruction = TmemInstruction(shape, n, packed)
    kind = "uint16" if packed else "uint32"
    held = instruction.register_image(kind).table()
    (first, *second) = [image.table() for image in instruction.tmem_images(kind)]
    per = 2 if packed else 1
    slots = set(zip(held["laneid"].tolist(), held["m"].tolist(), strict=True))
    assert len(slots) == 32 * instruction.registers * per == held["m"].size
    assert max(held["m"]) == instruction.registers * per - 1
    cells = set(zip(first["TLane"].tolist(), first["TCol"].tolist(), strict=True))
    assert len(cells) == first["TLane"].size
    assert len(second) == (shape == "16x32bx2")
    assert int(max(first["TCol"])) // per == instruction.columns - 1
    _, where = TABLE[shape]
    count = first["TLane"].size
    for index in range(count):
        lane, place = int(held["laneid"][index]), int(held["m"][index])
        row, column = where(lane, place // per)
        bit = 32 * (2 * column + place % 2) if packed else 32 * column
        assert (first["TLane"][index], first["TCol"][index] * (16 if packed else 32)) == (row, bit)


def test_the_halves_of_a_packed_word_are_low_halves_of_neighbouring_cells():
    expected = case("M12")
    lanes, columns = TmemInstruction("32x32b", 2, packed=True).cells()
    given = expected["input"]
    found = [
        {"lane": given["lane"] + int(lanes[t, r]), "cols": [given["col"] + int(columns[t, r]) + h for h in (0, 1)]}
        for t, r in given["queries"]
    ]
    assert found == expected["expected"]["cells"]


@pytest.mark.parametrize("identifier", ["M03", "M19"])
def test_public_questions_about_single_registers(identifier):
    given, expected = case(identifier)["input"], case(identifier)["expected"]["cells"]
    rows, columns = TmemInstruction(given["shape"], given["num"]).cells()
    assert [
        {"lane": given["lane"] + int(rows[t, r]), "cols": [given["col"] + int(columns[t, r])]}
        for t, r in given["queries"]
    ] == expected


def test_16x64b_is_linear_in_the_bits_of_the_lane():
    expected = case("M16")["expected"]
    rows, columns = TmemInstruction("16x64b", 1).cells()
    bases = [[int(rows[1 << b, 0]), int(columns[1 << b, 0])] for b in range(5)]
    assert bases == expected["lane"]
    for lane in range(32):
        bits = [bases[b] for b in range(5) if lane >> b & 1]
        assert [int(rows[lane, 0]), int(columns[lane, 0])] == [
            np.bitwise_xor.reduce([b[i] for b in bits] or [0]) for i in (0, 1)
        ]


def test_two_addresses_with_every_split_of_the_public_case():
    for split in case("M10")["input"]["splits"]:
        expected = case("M10")["expected"][f"split{split}"]
        low, high = (image.table() for image in TmemInstruction("16x32bx2", 1, split=split).tmem_images())
        low, high = ([(r, c) for r, c in zip(t["TLane"], t["TCol"], strict=True)] for t in (low, high))
        assert len({*low, *high}) == expected["distinct_cells"]
        assert len(set(low) & set(high)) == expected["shared_cells"]
        assert sorted({c for _, c in low}) == expected["columns_low_half"]
        assert sorted({c for _, c in high}) == expected["columns_high_half"]


def test_only_16x256b_keeps_pairs_of_registers_on_8x8_matrices():
    given, expected = case("M01")["input"], case("M01")["expected"]
    for shape in given["shapes"]:
        rows, columns = TmemInstruction(shape, given["num"][shape]).cells()
        thread, register = np.arange(32)[:, None], np.arange(4)[None, :]
        fits = rows[:, :4] == thread // 4 + 8 * (register // 2)
        fits &= columns[:, :4] == 2 * (thread % 4) + register % 2
        assert bool(fits.all()) == expected[shape]


def test_the_second_half_of_a_two_address_access_moves_by_the_split_in_every_dtype():
    for packed, kind, per in ((False, "f32", 1), (False, "bf16", 2), (True, "bf16", 2)):
        instruction = TmemInstruction("16x32bx2", 4, packed, split_offset(16, 8))
        low, high = (image.table() for image in instruction.tmem_images(kind))
        assert (high["TLane"] - low["TLane"] == 16).all()
        assert (high["TCol"] - low["TCol"] == 8 * per).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_repeat_that_the_hardware_lacks_is_refused_with_the_legal_ones(shape):
    legal = {n for s, n, _ in LEGAL if s == shape}
    for n in (*range(-1, 130), 256, True, 2.0):
        if type(n) is int and n in legal:
            assert TmemInstruction(shape, n).repeat == n
        else:
            with pytest.raises(RangeError) as refused:
                TmemInstruction(shape, n)
            assert all(f".x{good}" in str(refused.value) for good in legal)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float32", "int64", "int4"])
def test_packing_is_for_16_bit_elements_only(kind):
    with pytest.raises(RangeError, match="legal are int16, uint16, float16, bfloat16"):
        TmemInstruction("32x32b", 1, packed=True).register_image(kind)


@pytest.mark.parametrize("kind", ["float64", "complex128", "float6_e2m3fn"])
def test_elements_that_no_word_holds_a_whole_number_of_are_refused(kind):
    with pytest.raises(RangeError, match="legal widths are 4, 8, 16 and 32"):
        TmemInstruction("32x32b", 1).tmem_images(kind)


@pytest.mark.parametrize("shape", SHAPES)
def test_row_and_column_counts_are_refused_with_the_legal_ones(shape):
    rows = SHAPES[shape].rows
    for tile in ((rows, 3), (48 - rows, 16), (8, 8), (64, 64)):
        with pytest.raises(RangeError, match=rf"legal: {rows} rows, \d+, "):
            instruction_for(shape, tile)
    for n in SHAPES[shape].repeats:
        assert instruction_for(shape, (rows, n * SHAPES[shape].pitch * 2), "f16").repeat == n


@pytest.mark.parametrize("split", [-1, 1 << 32, 32 << 16, (16 << 16) + 512, 8 << 16, 512, True])
def test_splits_that_leave_the_slab_are_refused(split):
    with pytest.raises(RangeError, match="imm_half_splitoff"):
        TmemInstruction("16x32bx2", 1, split=split)


@pytest.mark.parametrize(
    "opcode",
    [
        "tcgen05.ld.sync.aligned.32x32b.x4.unpack::16b.b32",
        "tcgen05.st.sync.aligned.32x32b.x4.pack::16b.b32",
        "tcgen05.ld.sync.aligned.32x32b.x4.b16",
        "tcgen05.ld.32x32b.x4.b32",
        "tcgen05.ld.sync.aligned.16x32bx2.x4.b32",
    ],
)
def test_malformed_opcodes_are_refused(opcode):
    with pytest.raises(RangeError):
        TmemInstruction.parse(opcode)


@pytest.mark.parametrize(("shape", "n", "packed"), LEGAL)
def test_opcodes_read_back(shape, n, packed):
    split = 8 if shape == "16x32bx2" else None
    instruction = TmemInstruction(shape, n, packed, split or 0)
    for direction in ("ld", "st"):
        assert TmemInstruction.parse(instruction.opcode(direction), split=split) == (direction, instruction)


def test_allocations_are_rounded_to_what_the_hardware_grants():
    given, expected = case("M07")["input"], case("M07")["expected"]
    exact = [n for n in given["counts"] if n <= COLUMNS and allocated_columns(n) == n]
    assert exact == expected["valid_counts"]
    assert sum(given["stacked"]) == expected["stacked"]["columns"]
    assert allocated_columns(sum(given["stacked"])) == expected["stacked"]["allocated"]
    with pytest.raises(RangeError, match="512"):
        allocated_columns(sum(given["side_by_side"]))


def test_addresses_of_the_public_case():
    given, expected = case("M05")["input"], case("M05")["expected"]
    assert [(slab_of(w)[0] << 16) + given["base"] for w in given["warps"]] == expected["addresses"]
