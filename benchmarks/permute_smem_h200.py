"""Every form and width of the warp permute on a GPU: right data, and the profiler's counters equal the predicted ones.

Preparing needs a compiler; running needs CuPy and, for the counters, Nsight Compute:

    python benchmarks/permute_smem_h200.py prepare build/smem
    python benchmarks/permute_smem_h200.py run build/smem benchmarks/results/permute_smem_h200.json

The predicted counters of a whole kernel (staging copies included) come from the PTX interpreter, which prices every
access by the measured bank rule; the plan's own promise is checked against the same run by the certificate.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda import Kernel, PlanError, permute_layout
from codegen_cuda.launch import device_architecture
from codegen_cuda.run import expected_output
from layoutalg import parse_layout

PAIRS = (
    ("S[(4,32):(32,1)]", "S[(4,32):(1,4)]"),
    ("S[(16,16):(16,1)]", "S[(16,16):(1,16)]"),
    ("S[(8,4,16):(64,16,1)]", "S[(8,4,16):(1,8,32)]"),
    ("S[(32,8):(9,1)]", "S[(32,8):(1,33)]"),
    ("Sw<3,0,5> o S[(32,8):(8,1)]", "S[(32,8):(1,32)]"),
    ("S[(6,10,5):(50,5,1)]", "S[(6,10,5):(1,6,60)]"),
    ("S[(12,16):(16,1)]", "S[(12,16):(1,12)]"),
)
TYPES = ("uint8", "uint16", "uint32", "uint64", "complex128")
FORMS = ("xor", "rotation", "gf2", "table", "vector", "words")
COUNTERS = {
    ("ld", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ("st", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ("ld", "excess"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ("st", "excess"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
ROUNDS = 20


def prepare(folder: Path) -> None:
    """Plan, compile and save every form that serves a pair and a type, with the counters to expect."""
    index: list[dict[str, Any]] = []
    for number, (source, destination) in enumerate(PAIRS):
        for dtype in TYPES:
            for form in FORMS:
                try:
                    kernel = permute_layout(parse_layout(source), parse_layout(destination), dtype=dtype, plan=form)
                except PlanError:
                    continue
                built = kernel.compile(arch="sm_90")
                place = f"{number}_{dtype}_{form}"
                built.save(folder / place)
                plan = kernel.plan
                index.append(
                    {
                        "place": place,
                        "source": source,
                        "destination": destination,
                        "dtype": dtype,
                        "form": form,
                        "plan": {"read": plan.read.wavefronts, "write": plan.write.wavefronts},
                        "bound": {"read": plan.read.lower_bound, "write": plan.write.lower_bound},
                        "expected": expected_counters(built),
                    }
                )
                print(place, index[-1]["expected"])
    (folder / "index.json").write_text(json.dumps(index, indent=1))


def expected_counters(kernel: Kernel) -> dict[str, int]:
    """Price every shared-memory access of the compiled kernel in the interpreter."""
    from verify.ptx.concrete import Buffer, run
    from verify.ptx.parse import parse

    size = kernel.claim.buffer("src").count * kernel.claim.width
    result = run(
        parse(kernel.ptx.text),
        kernel.claim.entry,
        grid=kernel.claim.grid,
        block=kernel.claim.block,
        params=[Buffer(np.zeros(size, dtype=np.uint8)), Buffer(np.zeros(size, dtype=np.uint8), mode="w")],
        dynamic_shared=kernel.claim.dynamic_shared_bytes,
    )
    return {f"{op} {what}": result.total(what, opcode=f"{op}.shared") for op, what in COUNTERS}


def run(folder: Path) -> dict[str, Any]:
    """Check the data of every case, then read the counters of one launch of each under the profiler."""
    import cupy

    index = json.loads((folder / "index.json").read_text())
    generator = np.random.default_rng()
    for row in index:
        kernel = Kernel.load(folder / row["place"])
        count, width = kernel.claim.buffer("src").count, kernel.claim.width
        row["wrong_bytes"] = 0
        for _ in range(ROUNDS):
            data = generator.integers(0, 256, (count, width), dtype=np.uint8)
            out = cupy.full(count * width, 0xA5, dtype=cupy.uint8)
            _launch(kernel, cupy.asarray(data.reshape(-1)), out)
            expected = expected_output(kernel.claim, data.view(f"V{width}").reshape(-1))
            row["wrong_bytes"] += int((cupy.asnumpy(out) != expected.view(np.uint8)).sum())
    for row, measured in zip(index, _profile(folder, len(index)), strict=True):
        row["measured"] = measured
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {"machine": properties["name"].decode(), "arch": device_architecture(), "rounds": ROUNDS, "results": index}


def _launch(kernel: Kernel, source: Any, out: Any) -> None:
    from codegen_cuda.launch import launch

    claim = kernel.claim
    launch(
        kernel.cubin,
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        args=[source, out],
        shared_bytes=claim.dynamic_shared_bytes,
    )


def _profile(folder: Path, count: int) -> list[dict[str, int]]:
    command = ["ncu", "--csv", "--metrics", ",".join(COUNTERS.values()), "-k", "regex:permute"]
    command += [sys.executable, __file__, "launch", str(folder)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout
    table = csv.DictReader(io.StringIO(text[text.index('"ID"') :]))
    rows: list[dict[str, int]] = [{} for _ in range(count)]
    names = {metric: f"{op} {what}" for (op, what), metric in COUNTERS.items()}
    for line in table:
        rows[int(line["ID"])][names[line["Metric Name"]]] = int(float(line["Metric Value"].replace(",", "")))
    return rows


def launch_all(folder: Path) -> None:
    """Launch every case once, in order, for the profiler."""
    import cupy

    for row in json.loads((folder / "index.json").read_text()):
        kernel = Kernel.load(folder / row["place"])
        size = kernel.claim.buffer("src").count * kernel.claim.width
        _launch(kernel, cupy.zeros(size, dtype=cupy.uint8), cupy.zeros(size, dtype=cupy.uint8))
    cupy.cuda.runtime.deviceSynchronize()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run", "launch"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument("json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder)
    elif arguments.command == "launch":
        launch_all(arguments.folder)
    else:
        report = run(arguments.folder)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
        bad = [r for r in report["results"] if r["wrong_bytes"] or r["measured"] != r["expected"]]
        for form in FORMS:
            rows = [r for r in report["results"] if r["form"] == form]
            agree = sum(r["measured"] == r["expected"] for r in rows)
            wrong = sum(bool(r["wrong_bytes"]) for r in rows)
            print(f"{form:<9} {len(rows):>3} kernels, counters as predicted in {agree}, wrong data in {wrong}")
        for row in bad[:10]:
            print(row["place"], row["wrong_bytes"], row["measured"], row["expected"])
        sys.exit(bool(bad))


if __name__ == "__main__":
    main()
