"""Permutes inside shared memory on a GPU: data, profiler counters and times, for every form and element width.

Planning needs no GPU and the GPU machine needs no solver, so there are two steps:

    python benchmarks/permute_smem_h200.py prepare build/permute_smem        # plans, compiles, predicts
    python benchmarks/permute_smem_h200.py run build/permute_smem out.json   # launches, profiles, times

``prepare`` writes cubins, claims and ``cases.json``: for every kernel where each output element comes from (by the
layouts) and how many wavefronts and conflicts the whole kernel causes, staging included (by the PTX interpreter).
``run`` checks the data with numpy, reads the counters with ``ncu`` and compares them with the prediction, and times
permutes against what a user would write: the same move without a plan, and with a padded destination.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

METRICS = {
    "ld": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "st": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "ld_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "st_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
NCU_SECONDS = 300
ROUNDS = 400
BLOCKS = 132 * 16

#: name, source, destination
SHAPES: list[tuple[str, str, str]] = [
    ("4x32 columns", "S[(4,32):(32,1)]", "S[(4,32):(1,4)]"),
    ("32x32 columns", "S[(32,32):(32,1)]", "S[(32,32):(1,32)]"),
    ("16x8x8 reversed", "S[(16,8,8):(64,8,1)]", "S[(16,8,8):(1,16,128)]"),
    ("swizzled 32x8", "Sw<3,0,5> o S[(32,8):(8,1)]", "S[(32,8):(1,32)]"),
    ("15x64 columns", "S[(15,64):(64,1)]", "S[(15,64):(1,15)]"),
    ("33x31 columns", "S[(33,31):(31,1)]", "S[(33,31):(1,33)]"),
    ("9x15 columns", "S[(9,15):(15,1)]", "S[(9,15):(1,9)]"),
    ("12x16 columns", "S[(12,16):(16,1)]", "S[(12,16):(1,12)]"),
    ("3x20x16 reversed", "S[(3,20,16):(320,16,1)]", "S[(3,20,16):(1,3,60)]"),
    ("16x16x4 swapped", "S[(16,16,4):(64,4,1)]", "S[(16,16,4):(4,64,1)]"),
    ("9x5x4 swapped", "S[(9,5,4):(20,4,1)]", "S[(9,5,4):(4,36,1)]"),
    ("padded 24x20", "S[(24,20):(23,1)]", "S[(24,20):(1,29)]"),
    ("padded 32x8", "S[(32,8):(9,1)]", "S[(32,8):(1,33)]"),
    ("96 to stride 32", "S[96:1]", "S[96:32]"),
    ("tail of 77", "S[(7,11):(11,1)]", "S[(7,11):(1,7)]"),
]
WIDTHS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
TIMED = ("32x32 columns", "16x8x8 reversed", "33x31 columns", "3x20x16 reversed")

_TIMER = """
extern "C" __global__ void {name}_timer(const {kind}* __restrict__ src, {kind}* __restrict__ dst, int rounds) {{
    __shared__ __align__(16) {kind} buffer[{count}];
    const int lane = threadIdx.x;
    #pragma unroll 1
    for (int i = lane; i < {count}; i += 32) buffer[i] = src[i];
    __syncwarp();
    #pragma unroll 1
    for (int round = 0; round < rounds; ++round) {name}_device(buffer, buffer, lane);
    #pragma unroll 1
    for (int i = lane; i < {count}; i += 32) dst[i] = buffer[i];
}}
"""


# --- prepare: needs no GPU ----------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Plan, compile and predict every case."""
    from codegen_cuda.permute import FORMS, permute_layout
    from layoutalg import parse_layout

    folder.mkdir(parents=True, exist_ok=True)
    cases: list[dict[str, Any]] = []
    for title, *texts in SHAPES:
        sides = [parse_layout(text) for text in texts]
        for width, dtype in WIDTHS.items():
            for form in (*FORMS, "auto"):
                kernel = _try(lambda s=sides, d=dtype, f=form: permute_layout(*s, dtype=d, plan=f))
                if kernel is not None:
                    cases.append(_case(folder, kernel, title, width, form))
                    print(f"{len(cases):4} {title:<18} {width:>2} B {form:<9} {kernel.plan.form}", flush=True)
    timed = [_timed(folder, title, width) for title in TIMED for width in WIDTHS]
    (folder / "cases.json").write_text(json.dumps({"cases": cases, "timed": timed}) + "\n")


def _try(make: Any) -> Any:
    from codegen_cuda.errors import PlanError

    try:
        return make()
    except PlanError:
        return None


def _case(folder: Path, kernel: Any, title: str, width: int, form: str) -> dict[str, Any]:
    from verify.ptx.concrete import Buffer, run
    from verify.ptx.parse import parse

    kernel = kernel.compile(arch="sm_90")
    number = len(list(folder.glob("*.cubin")))
    (folder / f"{number}.cubin").write_bytes(kernel.cubin.image)
    claim = kernel.claim
    size = claim.buffer("src").count * width
    result = run(
        parse(kernel.ptx.text),
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        params=[Buffer(np.zeros(size, np.uint8)), Buffer(np.zeros(size, np.uint8), mode="w")],
        dynamic_shared=claim.dynamic_shared_bytes,
    )
    shared = {op: [row for row in result.instructions if row.opcode.startswith(f"{op}.")] for op in ("ld", "st")}
    shared = {op: [row for row in rows if ".shared" in row.opcode] for op, rows in shared.items()}
    predicted = {op: sum(row.wavefronts for row in rows) for op, rows in shared.items()}
    predicted |= {f"{op}_conflicts": sum(row.excess for row in rows) for op, rows in shared.items()}
    return {
        "cubin": f"{number}.cubin",
        "entry": claim.entry,
        "title": title,
        "width": width,
        "asked": form,
        "form": kernel.plan.form,
        "grid": claim.grid,
        "block": claim.block,
        "shared_bytes": claim.dynamic_shared_bytes,
        "gather": _gather(claim),
        "plan": {
            phase: [cost.instructions, cost.wavefronts, cost.excess, cost.lower_bound]
            for phase, cost in (("read", kernel.plan.read), ("write", kernel.plan.write))
        },
        "predicted": predicted,
    }


def _gather(claim: Any) -> list[int]:
    """Where each element of the output comes from, by the claim's layouts alone."""
    first = claim.buffer("src").first
    origin = np.arange(claim.buffer("dst").count)
    for move in claim.moves:
        for values in move.assignments():
            read, write = move.coordinates(values)
            origin[write - first] = read - first
    return [int(v) for v in origin]


def _timed(folder: Path, title: str, width: int) -> dict[str, Any]:
    """Timing kernels of one request: every form, the move without a plan, and one to a padded destination."""
    from codegen_cuda.permute import FORMS, permute_layout
    from layoutalg import parse_layout

    sides = [parse_layout(text) for text in next(shape for shape in SHAPES if shape[0] == title)[1:]]
    sides.append(_padded(sides[1], max(1, 4 // width)))
    kernels = {form: _try(lambda f=form: permute_layout(*sides[:2], dtype=WIDTHS[width], plan=f)) for form in FORMS}
    kernels["auto"] = permute_layout(*sides[:2], dtype=WIDTHS[width])
    kernels["unplanned"] = _unplanned(sides[0], sides[1], width)
    kernels["unplanned, padded"] = _unplanned(sides[0], sides[2], width)
    made = {}
    for name, kernel in kernels.items():
        if kernel is not None:
            made[name] = _timing_cubin(folder, kernel, f"time_{title}_{width}_{name}")
    return {"title": title, "width": width, "elements": sides[0].size, "kernels": made}


def _padded(layout: Any, pad: int) -> Any:
    """Lengthen a layout's rows by one word, or one element of more than a word, as a user would."""
    extents, strides = [it.extent for it in layout.shard], [it.stride for it in layout.shard]
    found, step = list(strides), 1
    for d in sorted(range(len(extents)), key=strides.__getitem__):
        found[d] = step
        step = step * extents[d] + (pad if step == 1 else 0)
    return type(layout).from_iters(shard=[(e, s, "m") for e, s in zip(extents, found, strict=True)])


def _unplanned(source: Any, destination: Any, width: int) -> Any:
    """The kernel that walks elements in logical order, whatever the banks say."""
    from codegen_cuda.kernel import Kernel
    from codegen_cuda.permute.emit import claim_of, emit_permute
    from codegen_cuda.permute.plan import make_plan
    from codegen_cuda.permute.problem import Operand, pose

    operands = [Operand(side, dtype=WIDTHS[width]) for side in (source, destination)]
    problem = pose(*operands, scope="warp", in_place=True, max_registers=255)
    slots = -(-problem.size // 32)
    position = np.arange(slots * 32).reshape(slots, 32)
    table = np.where(position < problem.size, position, -1)
    details = {"order": "logical", "group": 32, "step": 0, "slots": slots}
    plan = make_plan("rotation", table, problem, details, registers=slots)
    name = f"unplanned_{problem.size}_{width}"
    return Kernel(name, emit_permute(problem, plan, name), claim_of(problem, plan, name), plan, problem)


def _timing_cubin(folder: Path, kernel: Any, stem: str) -> dict[str, Any]:
    from codegen_cuda.build import assemble, compile_ptx
    from codegen_cuda.permute.bodies import moved_type

    count = kernel.claim.buffer("src").count
    device = kernel.source[: kernel.source.index("#if __CUDA_ARCH__")]
    source = device + _TIMER.format(name=kernel.name, kind=moved_type(kernel.problem), count=count)
    image = assemble(compile_ptx(source, arch="sm_90", name=f"{kernel.name}.cu")).image
    file = stem.replace(" ", "_").replace(",", "") + ".cubin"
    (folder / file).write_bytes(image)
    wavefronts = kernel.plan.read.wavefronts + kernel.plan.write.wavefronts
    entry = f"{kernel.name}_timer"
    return {"cubin": file, "entry": entry, "count": count, "form": kernel.plan.form, "wavefronts": wavefronts}


# --- run: needs a GPU, numpy, CuPy and ncu --------------------------------------------------------------------------


def launch_all(folder: Path, cases: list[dict[str, Any]]) -> list[int]:
    """Launch every case once on random bytes; return how many elements are wrong in each."""
    from codegen_cuda.launch import launch

    wrong = []
    generator = np.random.default_rng()
    for case in cases:
        gather = np.array(case["gather"])
        data = generator.integers(0, 256, (len(gather), case["width"]), dtype=np.uint8)
        out = np.full_like(data, 0xA5)
        launch(
            (folder / case["cubin"]).read_bytes(),
            case["entry"],
            grid=tuple(case["grid"]),
            block=tuple(case["block"]),
            args=[data, out],
            shared_bytes=case["shared_bytes"],
        )
        wrong.append(int((out != data[gather]).any(axis=1).sum()))
    return wrong


def profile(folder: Path) -> list[dict[str, int]] | str:
    """Counters of every case, in order, or why there are none."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return "ncu is not on PATH"
    log = folder / "ncu.csv"
    # A misspelt metric makes ncu hang, hence the limit.
    command = [ncu, "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--log-file", str(log)]
    command += [sys.executable, __file__, "launch", str(folder)]
    try:
        done = subprocess.run(command, timeout=NCU_SECONDS, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return f"ncu took more than {NCU_SECONDS} s"
    if not log.exists():
        return f"ncu failed: {(done.stderr or done.stdout)[-400:]}"
    found: dict[int, dict[str, int]] = {}
    names = {metric: short for short, metric in METRICS.items()}
    lines = [line for line in log.read_text().splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        if row.get("Metric Name") in names:
            value = round(float(row["Metric Value"].replace(",", "")))
            found.setdefault(int(row["ID"]), {})[names[row["Metric Name"]]] = value
    return [found[key] for key in sorted(found)]


def time_all(folder: Path, timed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nanoseconds of one permute on a full GPU, per kernel: the best of several launches, all in one run."""
    import cupy

    from codegen_cuda.launch import launch

    rows = []
    for request in timed:
        times: dict[str, float] = {}
        images = {name: (folder / k["cubin"]).read_bytes() for name, k in request["kernels"].items()}
        best = dict.fromkeys(images, float("inf"))
        for _ in range(7):
            for name, kernel in request["kernels"].items():
                size = kernel["count"] * request["width"]
                source, out = cupy.zeros(size, cupy.uint8), cupy.zeros(size, cupy.uint8)
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                launch(
                    images[name],
                    kernel["entry"],
                    grid=BLOCKS,
                    block=32,
                    args=[source, out, np.int32(ROUNDS)],
                    stream=cupy.cuda.get_current_stream(),
                )
                end.record()
                end.synchronize()
                best[name] = min(best[name], cupy.cuda.get_elapsed_time(begin, end))
        for name, milliseconds in best.items():
            times[name] = milliseconds * 1e6 / ROUNDS / (BLOCKS / 132)
        rows.append({**{k: request[k] for k in ("title", "width", "elements")}, "ns_per_permute_and_sm": times})
    return rows


def run(folder: Path) -> dict[str, Any]:
    """Check, profile and time."""
    import cupy

    from codegen_cuda.launch import device_architecture

    data = json.loads((folder / "cases.json").read_text())
    cases = data["cases"]
    wrong = launch_all(folder, cases)
    counters = profile(folder)
    rows = []
    for number, case in enumerate(cases):
        measured = counters[number] if isinstance(counters, list) and len(counters) == len(cases) else None
        kept = {key: case[key] for key in ("title", "width", "asked", "form", "plan", "predicted")}
        rows.append({**kept, "wrong_elements": wrong[number], "measured": measured})
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "machine": properties["name"].decode(),
        "arch": device_architecture(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "host": platform.machine(),
        "counters": "read" if isinstance(counters, list) else counters,
        "kernels_profiled": len(counters) if isinstance(counters, list) else 0,
        "cases": rows,
        "times": time_all(folder, data["timed"]),
    }


def show(report: dict[str, Any]) -> bool:
    """Print a short table; say whether data and counters are as they should be."""
    cases = report["cases"]
    wrong = [case for case in cases if case["wrong_elements"]]
    read = [case for case in cases if case["measured"] is not None]
    off = [case for case in read if case["measured"] != case["predicted"]]
    print(f"{report['machine']}: {len(cases)} kernels, {len(wrong)} with wrong data")
    print(f"counters {report['counters']}: {len(read) - len(off)} of {len(read)} kernels exactly as predicted")
    for case in off[:10]:
        print(f"  {case['title']} {case['width']} B {case['form']}: {case['predicted']} predicted, {case['measured']}")
    print(f"\n{'ns per permute and SM':<22}{'bytes':>6}  {'auto':>8}  {'unplanned':>9}  {'padded':>8}   forms")
    for row in report["times"]:
        times = row["ns_per_permute_and_sm"]
        plain, padded = (times[k] / times["auto"] for k in ("unplanned", "unplanned, padded"))
        others = "  ".join(f"{k} {v:.0f}" for k, v in times.items() if not k.startswith(("auto", "unplanned")))
        head = f"{row['title']:<22}{row['width'] * row['elements']:>6}  {times['auto']:>8.1f}"
        print(f"{head}  {plain:>8.2f}x  {padded:>7.2f}x   {others}")
    return not wrong and not off


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run", "launch"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument(
                "json", type=Path, nargs="?", default=Path(os.environ.get("OUT", ".")) / "permute.json"
            )
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder)
    elif arguments.command == "launch":
        launch_all(arguments.folder, json.loads((arguments.folder / "cases.json").read_text())["cases"])
    else:
        report = run(arguments.folder)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
        sys.exit(not show(report))


if __name__ == "__main__":
    main()
