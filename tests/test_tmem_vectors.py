"""Recorded vectors: datapath layouts, and register atoms that the solver must serve with their own instruction."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tmem_helpers import assert_proved

from codegen_cuda.tmem import register_layout_for, tmem_plan
from layoutalg.errors import LayoutError
from layoutalg.hardware.tcgen05 import SHAPES
from layoutalg.hardware.tmem import tmem_datapath_layout
from layoutalg.tile import TileLayout

DATA = Path(__file__).parent / "data"
CASES = json.loads(gzip.decompress((DATA / "tirx_tmem.json.gz").read_bytes()))["cases"]
DATAPATHS = [c for c in CASES if c["op"] == "tmem_datapath_layout"]
ATOMS = [c for c in CASES if c["op"] == "tcgen05_atom_layout" and not c["declined"]]
(X11,) = [c for c in json.loads((DATA / "public_cases_tmem.json").read_text())["cases"] if c["id"] == "X11"]


def layout_of(recorded):
    return TileLayout.from_iters(**recorded)


def test_datapath_layouts_are_the_recorded_ones_and_the_others_are_refused():
    declined = 0
    for case in DATAPATHS:
        given = case["args"]
        arguments = (given["datapath"], given["rows"], given["cols"], given["sub_slab"])
        if case["declined"]:
            declined += 1
            with pytest.raises(LayoutError):
                tmem_datapath_layout(*arguments)
        else:
            assert tmem_datapath_layout(*arguments).equivalent(layout_of(case["result"])), arguments
    assert (len(DATAPATHS), declined) == (238, 99)


def test_the_upper_half_of_datapath_c_is_that_of_the_public_case():
    layout = tmem_datapath_layout("C", 64, 8, 1)
    table = layout.table()
    points = [{axis: int(table[axis][i]) for axis in ("TCol", "TLane")} for i in X11["input"]["indices"]]
    assert points == X11["expected"]["points"]


def owners(layout):
    """Thread of the warpgroup and position, flat."""
    table = layout.table()
    zero = np.zeros(layout.size, dtype=np.int64)
    thread = table.get("laneid", zero) + 32 * table.get("wid_in_wg", zero) + table.get("tid_in_wg", zero)
    return thread.tolist(), table.get("m", zero).tolist()


def memory_of(shape, rows, cols):
    return tmem_datapath_layout("D" if rows == 128 else "B" if shape == "32x32b" else "F", rows, cols)


@pytest.mark.parametrize("shape", sorted({c["args"]["instr_shape"] for c in ATOMS}))
def test_every_recorded_register_atom_takes_one_instruction_per_16_or_32_rows(shape):
    own = [c for c in ATOMS if c["args"]["instr_shape"] == shape]
    for case in own:
        (rows, cols), kind = case["args"]["tensor_shape"], case["args"]["dtype"]
        registers = layout_of(case["result"])
        tmem = memory_of(shape, rows, cols)
        words = cols // {"float32": 1}.get(kind, 2) // (2 if (shape, rows) == ("32x32b", 64) else 1)
        plan = tmem_plan(tmem, registers, (rows, cols), kind)
        repeats = {(t.instruction.shape, t.instruction.repeat) for t in plan.transfers}
        assert repeats == {(shape, words // SHAPES[shape].pitch)}
        assert plan.instructions == (2 if rows == 128 and shape != "32x32b" else 1)
        assert owners(register_layout_for(tmem, (rows, cols), kind, shape)) == owners(registers)
    assert len(own) == {"32x32b": 32, "16x64b": 48, "16x128b": 42, "16x256b": 36}[shape]


@pytest.mark.parametrize("shape", sorted({c["args"]["instr_shape"] for c in ATOMS}))
def test_the_smallest_and_one_larger_atom_of_each_kind_is_proved_on_the_model(shape):
    own = [c for c in ATOMS if c["args"]["instr_shape"] == shape and c["args"]["tensor_shape"][1] <= 16]
    for case in own:
        (rows, cols), kind = case["args"]["tensor_shape"], case["args"]["dtype"]
        for direction in ("ld", "st"):
            tmem, registers = memory_of(shape, rows, cols), layout_of(case["result"])
            assert_proved(tmem_plan(tmem, registers, (rows, cols), kind, direction=direction))
    assert own
