"""The interpreter against an H200: 290 recorded kernels, one per pure instruction, give the same results bit by bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ptx_silicon import cases, module
from ptx_vectors import PURE

from verify.ptx.concrete import Buffer, run
from verify.ptx.ops_base import Compute, Shuffle
from verify.ptx.parse import parse
from verify.ptx.resolve import load

_FILE = Path(__file__).parent / "data" / "ptx" / "silicon_h200.npz"

# Rows without a recording: address conversions depend on the machine's address space.
NOT_MEASURED = {"dp4a.u32.u32"}


@cache
def recorded() -> tuple[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The PTX text, and operands and results per kernel."""
    with np.load(_FILE) as archive:
        data = dict(archive)  # an archive unpacks an array each time that it is asked for
        text = data["text"].tobytes().decode()
        found, read, written = {}, 0, 0
        for name, (rows, inputs, outputs) in zip(data["names"].tolist(), data["index"].tolist(), strict=True):
            operands = data["operands"][read : read + rows * inputs].reshape(rows, inputs)
            results = data["results"][written : written + rows * outputs].reshape(rows, outputs)
            read, written = read + rows * inputs, written + rows * outputs
            found[name] = (operands, results)
    return text, found


@cache
def programs():
    text, found = recorded()
    parsed = parse(text)
    return {name: load(parsed, name) for name in found}


def measured_step(name: str):
    """The step under test: the last one before the results are widened and stored."""
    return next(s for s in reversed(programs()[name].steps) if is_under_test(s))


def is_under_test(step) -> bool:
    effect = step.operation.effect
    if isinstance(effect, Shuffle):
        return True
    return isinstance(effect, Compute) and "%rd9, " not in step.text and not step.text.endswith(", %rd9")


def test_the_recording_covers_every_pure_row():
    names = {measured_step(name).operation.name for name in programs()}
    missing = {row.name for row in PURE if not row.name.startswith("cvta")} - names
    # Widening a 64-bit result is a move of the kind that is under test itself.
    assert missing <= NOT_MEASURED | {"mov.b64"}
    assert len(programs()) == 290


def test_the_interpreter_and_the_gpu_agree_on_every_recorded_result():
    differing = []
    for name, (operands, results) in recorded()[1].items():
        opcode = measured_step(name).operation.name
        fields = opcode[:3] in ("bfi", "bfe")
        rows = (operands[:, -2:] < 256).all(axis=1) if fields else np.ones(len(operands), dtype=bool)
        chosen = np.ascontiguousarray(operands[rows])
        whole = len(chosen) % 32 == 0
        out = Buffer(np.zeros((len(chosen), results.shape[1]), dtype=np.uint64), "w")
        grid, block = (len(chosen) // 32, 32) if whole else (1, len(chosen))
        got = run(programs()[name], grid=grid, block=block, params=[Buffer(chosen), out]).buffers[1]
        if not np.array_equal(got, results[rows]):
            differing.append((opcode, chosen[(got != results[rows]).any(axis=1)][0].tolist()))
    assert differing == []


@pytest.mark.parametrize("opcode", ["bfi.b64", "bfe.u64", "bfe.s64"])
def test_where_the_gpu_departs_from_the_pseudo_code_the_checker_stops(opcode):
    """Positions and lengths above 255: the 64-bit forms do not take them modulo 256, as the ISA's text suggests."""
    name = next(name for name in programs() if measured_step(name).operation.name == opcode)
    operands, results = recorded()[1][name]
    outside = np.ascontiguousarray(operands[(operands[:, -2:] >= 256).any(axis=1)])
    assert len(outside)
    out = Buffer(np.zeros((len(outside), 1), dtype=np.uint64), "w")
    result = run(programs()[name], grid=1, block=len(outside), params=[Buffer(outside), out], check=False)
    assert result.findings[0].kind == "undefined-result"
    assert len(results) == len(operands)


def test_the_measuring_script_still_writes_kernels_that_are_understood():
    entries = cases()
    parsed = parse(module(entries))
    assert len({case.entry for case in entries}) == len(entries)
    for case in entries[:: len(entries) // 10]:
        out = Buffer(np.zeros((len(case.operands), case.results), dtype=np.uint64), "w")
        rows = len(case.operands)
        shape = (rows // 32, 32) if rows % 32 == 0 else (1, rows)
        params = [Buffer(case.operands), out]
        assert run(parsed, case.entry, grid=shape[0], block=shape[1], params=params).findings == ()
