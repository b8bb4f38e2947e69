"""Permutes inside shared memory on a GPU: data, profiler counters and times, for every form and element width.

Planning needs no GPU and the GPU machine needs no solver, so there are two steps:

    python benchmarks/permute_smem_h200.py prepare build/permute_smem        # plans, proves, compiles, predicts
    python benchmarks/permute_smem_h200.py run build/permute_smem out.json   # launches, profiles, times

``prepare`` writes cubins and ``cases.json``: for every kernel what was proved of it, where each output element comes
from (by the layouts) and how many wavefronts and conflicts the whole kernel causes, staging included (by the PTX
interpreter).  It may be stopped and started again: kernels whose source is unchanged are kept.  ``run`` refuses cubins
other than those, checks the data with numpy, reads the counters with ``ncu`` and compares them with the prediction,
and times permutes against what a user would write: the same tile, neither swizzled nor planned, and a padded tile.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

METRICS = {
    "ld": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "st": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "ld_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "st_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
#: Kernels per call of the profiler, and how long one call may take: a misspelt metric makes it hang.
NCU_KERNELS, NCU_SECONDS = 60, 75
#: Bytes of a buffer up to which kernels are proved for all data and base addresses; beyond, every thread is executed.
PROVED_SYMBOLICALLY = 4096
ROUNDS = 400
BLOCKS = 132 * 16

#: name, source, destination, warps
SHAPES: list[tuple[str, str, str, int]] = [
    ("4x32 columns", "S[(4,32):(32,1)]", "S[(4,32):(1,4)]", 1),
    ("32x32 columns", "S[(32,32):(32,1)]", "S[(32,32):(1,32)]", 1),
    ("16x8x8 reversed", "S[(16,8,8):(64,8,1)]", "S[(16,8,8):(1,16,128)]", 1),
    ("swizzled 32x8", "Sw<3,0,5> o S[(32,8):(8,1)]", "S[(32,8):(1,32)]", 1),
    ("15x64 columns", "S[(15,64):(64,1)]", "S[(15,64):(1,15)]", 1),
    ("33x31 columns", "S[(33,31):(31,1)]", "S[(33,31):(1,33)]", 1),
    ("9x15 columns", "S[(9,15):(15,1)]", "S[(9,15):(1,9)]", 1),
    ("12x16 columns", "S[(12,16):(16,1)]", "S[(12,16):(1,12)]", 1),
    ("3x20x16 reversed", "S[(3,20,16):(320,16,1)]", "S[(3,20,16):(1,3,60)]", 1),
    ("16x16x4 swapped", "S[(16,16,4):(64,4,1)]", "S[(16,16,4):(4,64,1)]", 1),
    ("9x5x4 swapped", "S[(9,5,4):(20,4,1)]", "S[(9,5,4):(4,36,1)]", 1),
    ("padded 24x20", "S[(24,20):(23,1)]", "S[(24,20):(1,29)]", 1),
    ("padded 32x8", "S[(32,8):(9,1)]", "S[(32,8):(1,33)]", 1),
    ("96 to stride 32", "S[96:1]", "S[96:32]", 1),
    ("tail of 77", "S[(7,11):(11,1)]", "S[(7,11):(1,7)]", 1),
    ("32x48, 4 warps", "S[(32,48):(48,1)]", "S[(32,48):(1,32)]", 4),
    ("64x32, 4 warps", "S[(64,32):(32,1)]", "S[(64,32):(1,64)]", 4),
    ("37x29, 2 warps", "S[(37,29):(29,1)]", "S[(37,29):(1,37)]", 2),
]
WIDTHS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
TIMED = ("32x32 columns", "16x8x8 reversed", "33x31 columns", "3x20x16 reversed")
#: The two kernels that a user would write, timed beside every form.
PLAIN, PADDED = "unswizzled tile", "padded tile"

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


def prepare(folder: Path, seconds: float = float("inf")) -> None:
    """Plan, compile, prove and predict every case; after so many seconds, kernels are no longer proved."""
    from codegen_cuda.permute import FORMS, permute_layout
    from layoutalg import parse_layout

    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    cases: list[dict[str, Any]] = []
    for title, source, destination, warps in SHAPES:
        sides = [parse_layout(text) for text in (source, destination)]
        shared: dict[str, Any] = {"scope": "cta", "warps": warps} if warps > 1 else {}
        for width, dtype in WIDTHS.items():
            options = {"dtype": dtype, **shared}
            chosen = permute_layout(*sides, **options).plan.form
            for form in FORMS if warps == 1 else (chosen,):
                kernel = _try(lambda s=sides, o=options, f=form: permute_layout(*s, plan=f, **o))
                if kernel is not None:
                    case = _case(folder, kernel, f"{title} {width} {form}", prove=time.monotonic() < end)
                    cases.append({"title": title, "width": width, "chosen": form == chosen, **case})
                    print(f"{len(cases):4} {title:<18} {width:>2} B {form:<9} {case['proved']}", flush=True)
    timed = [_timed(folder, title, width) for title in TIMED for width in WIDTHS]
    (folder / "cases.json").write_text(json.dumps({"cases": cases, "timed": timed}) + "\n")


def _try(make: Callable[[], Any]) -> Any:
    from codegen_cuda.errors import PlanError

    try:
        return make()
    except PlanError:
        return None


def _stem(text: str) -> str:
    return text.replace(" ", "_").replace(",", "")


def _case(folder: Path, kernel: Any, what: str, *, prove: bool) -> dict[str, Any]:
    """Return the record of one kernel: the one that is there, if it is of this source and as much is proved."""
    from codegen_cuda.pipeline import certify

    record = folder / f"{_stem(what)}.json"
    if record.exists():
        case: dict[str, Any] = json.loads(record.read_text())
        if case["source"] == kernel.hashes()["source"] and (case["proved"] is not None or not prove):
            return case
    size_bytes = kernel.claim.buffer("src").count * kernel.claim.width
    kernel = certify(kernel, symbolic=size_bytes <= PROVED_SYMBOLICALLY) if prove else kernel.compile()
    cubin = record.with_suffix(".cubin")
    cubin.write_bytes(kernel.cubin.image)
    case = {"cubin": cubin.name, **_facts(kernel)}
    record.write_text(json.dumps(case) + "\n")
    return case


def _facts(kernel: Any) -> dict[str, Any]:
    claim, plan, certificate = kernel.claim, kernel.plan, kernel.certificate
    return {
        "source": kernel.hashes()["source"],
        "sha256": kernel.hashes()["cubin"],
        "proved": None if certificate is None else certificate["proved"],
        "not_checked": None if certificate is None else certificate["not_checked"],
        "entry": claim.entry,
        "form": plan.form,
        "grid": claim.grid,
        "block": claim.block,
        "shared_bytes": claim.dynamic_shared_bytes,
        "gather": _gather(claim),
        "plan": {
            phase: [cost.instructions, cost.wavefronts, cost.excess, cost.lower_bound]
            for phase, cost in (("read", plan.read), ("write", plan.write))
        },
        "predicted": _predict(kernel),
    }


def _predict(kernel: Any) -> dict[str, int]:
    """Count wavefronts and conflicts of the whole kernel, staging included, by the PTX interpreter."""
    from verify.ptx.concrete import Buffer, run
    from verify.ptx.parse import parse

    claim = kernel.claim
    size = claim.buffer("src").count * claim.width
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
    return predicted | {f"{op}_conflicts": sum(row.excess for row in rows) for op, rows in shared.items()}


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

    sides = [parse_layout(text) for text in next(shape for shape in SHAPES if shape[0] == title)[1:3]]
    sides.append(_padded(sides[1], max(1, 4 // width)))
    kernels = {form: _try(lambda f=form: permute_layout(*sides[:2], dtype=WIDTHS[width], plan=f)) for form in FORMS}
    kernels[PLAIN] = _unplanned(sides[0], sides[1], width)
    kernels[PADDED] = _unplanned(sides[0], sides[2], width)
    made = {}
    for name, kernel in kernels.items():
        if kernel is not None:
            made[name] = _timing_cubin(folder, kernel, f"time {title} {width} {name}")
    chosen = permute_layout(*sides[:2], dtype=WIDTHS[width]).plan.form
    return {"title": title, "width": width, "elements": sides[0].size, "chosen": chosen, "kernels": made}


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
    file = f"{_stem(stem)}.cubin"
    (folder / file).write_bytes(image)
    return {
        "cubin": file,
        "sha256": hashlib.sha256(image).hexdigest(),
        "entry": f"{kernel.name}_timer",
        "gather": _gather(kernel.claim),
        "wavefronts": kernel.plan.wavefronts,
    }


# --- run: needs a GPU, numpy, CuPy or PyTorch, and ncu ------------------------------------------------------------


def read_cubin(folder: Path, record: dict[str, Any]) -> bytes:
    """Read an image and refuse another one than was prepared."""
    image = (folder / record["cubin"]).read_bytes()
    if hashlib.sha256(image).hexdigest() != record["sha256"]:
        raise SystemExit(f"{record['cubin']} is not what was proved: prepare again")
    return image


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
            read_cubin(folder, case),
            case["entry"],
            grid=tuple(case["grid"]),
            block=tuple(case["block"]),
            args=[data, out],
            shared_bytes=case["shared_bytes"],
        )
        wrong.append(int((out != data[gather]).any(axis=1).sum()))
    return wrong


def profile(folder: Path, count: int) -> tuple[list[dict[str, int] | None], str]:
    """Counters of every case, in order, None where there are none, and why not all are there ("" if all are)."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return [None] * count, "ncu is not on PATH"
    found: list[dict[str, int] | None] = []
    why = ""
    # One kernel first: where counters cannot be read, that is soon known.
    edges = [0, *range(1, count, NCU_KERNELS), count]
    for begin, end in pairwise(edges):
        rows = _profile_some(ncu, folder, begin, end)
        if isinstance(rows, str):
            why = rows
            break
        found += rows
    return found + [None] * (count - len(found)), why


def _profile_some(ncu: str, folder: Path, begin: int, end: int) -> list[dict[str, int]] | str:
    log = folder / "ncu.csv"
    log.unlink(missing_ok=True)
    command = [ncu, "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--log-file", str(log)]
    command += [sys.executable, __file__, "launch", str(folder), str(begin), str(end)]
    said = _run_within(command, NCU_SECONDS, folder / "ncu.txt")
    if said is None:
        return f"ncu took more than {NCU_SECONDS} s"
    rows = _read_counters(log.read_text()) if log.exists() else []
    if len(rows) != end - begin:
        return f"ncu reported {len(rows)} of {end - begin} kernels: {said[-400:]}"
    return rows


def _run_within(command: list[str], seconds: float, output: Path) -> str | None:
    """Run a command and its children, all of which end when time is up; return what it said, None if it was ended."""
    with output.open("w+") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        file.seek(0)
        return file.read()


def _read_counters(log: str) -> list[dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    names = {metric: short for short, metric in METRICS.items()}
    for row in csv.DictReader(line for line in log.splitlines() if line.startswith('"')):
        if row.get("Metric Name") in names:
            value = round(float(row["Metric Value"].replace(",", "")))
            found.setdefault(int(row["ID"]), {})[names[row["Metric Name"]]] = value
    return [found[key] for key in sorted(found)]


class Gpu:
    """Device memory and events, of CuPy or of PyTorch, whichever is there."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError:
            import torch

            self.name = torch.cuda.get_device_name()
            self.array = lambda host: torch.from_numpy(host).cuda()
            self.host = lambda array: array.cpu().numpy()
            self.event = lambda: torch.cuda.Event(enable_timing=True)
            self.elapsed = lambda begin, end: begin.elapsed_time(end)
            self.stream = torch.cuda.current_stream
        else:
            self.name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
            self.array, self.host = cupy.asarray, cupy.asnumpy
            self.event, self.elapsed = cupy.cuda.Event, cupy.cuda.get_elapsed_time
            self.stream = cupy.cuda.get_current_stream

    def milliseconds(self, action: Callable[[Any], None]) -> float:
        """Time an action on the current stream."""
        begin, end = self.event(), self.event()
        begin.record()
        action(self.stream())
        end.record()
        end.synchronize()
        return float(self.elapsed(begin, end))


def time_all(folder: Path, timed: list[dict[str, Any]], gpu: Any) -> list[dict[str, Any]]:
    """Nanoseconds of one permute on a full GPU, per kernel: the best of several launches, all in one run."""
    rows = []
    for request in timed:
        images = {name: read_cubin(folder, kernel) for name, kernel in request["kernels"].items()}
        best = dict.fromkeys(images, float("inf"))
        wrong = dict.fromkeys(images, 0)
        for _ in range(7):
            for name, kernel in request["kernels"].items():
                milliseconds, lost = _time_one(gpu, images[name], kernel, request["width"])
                best[name] = min(best[name], milliseconds)
                wrong[name] = max(wrong[name], lost)
        times = {name: value * 1e6 / ROUNDS / (BLOCKS / 132) for name, value in best.items()}
        kept = {key: request[key] for key in ("title", "width", "elements", "chosen")}
        wavefronts = {name: kernel["wavefronts"] for name, kernel in request["kernels"].items()}
        rows.append({**kept, "ns_per_permute_and_sm": times, "wavefronts": wavefronts, "wrong_elements": wrong})
    return rows


def _time_one(gpu: Any, image: bytes, kernel: dict[str, Any], width: int) -> tuple[float, int]:
    """Time one launch; also compare what many permutes in a row leave behind."""
    from codegen_cuda.launch import launch

    gather = np.array(kernel["gather"])
    data = np.random.default_rng().integers(0, 256, (len(gather), width), dtype=np.uint8)
    source, out = gpu.array(data), gpu.array(np.zeros_like(data))
    arguments = [source, out, np.int32(ROUNDS)]
    milliseconds = gpu.milliseconds(
        lambda stream: launch(image, kernel["entry"], grid=BLOCKS, block=32, args=arguments, stream=stream)
    )
    return milliseconds, int((gpu.host(out) != data[_power(gather, ROUNDS)]).any(axis=1).sum())


def _power(gather: Any, rounds: int) -> Any:
    """Apply a gather so many times, by squaring."""
    total, factor = np.arange(len(gather)), gather
    while rounds:
        total = factor[total] if rounds & 1 else total
        factor, rounds = factor[factor], rounds >> 1
    return total


def run(folder: Path, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Check, profile and time, saving what is known before the next step begins."""
    from codegen_cuda.launch import device_architecture

    gpu = Gpu()
    data = json.loads((folder / "cases.json").read_text())
    cases = data["cases"]
    report = {"machine": gpu.name, "arch": device_architecture(), "host": platform.machine()}
    wrong = launch_all(folder, cases)
    counters, why = profile(folder, len(cases))
    kept = ("title", "width", "form", "chosen", "proved", "not_checked", "plan", "predicted", "sha256")
    rows = [
        {**{key: case[key] for key in kept}, "wrong_elements": lost, "measured": measured}
        for case, lost, measured in zip(cases, wrong, counters, strict=True)
    ]
    report |= {"counters": why or "read", "cases": rows, "times": []}
    save(report)
    report["times"] = time_all(folder, data["timed"], gpu)
    save(report)
    return report


def show(report: dict[str, Any]) -> bool:
    """Print a short table; say whether data and counters are as they should be."""
    cases = report["cases"]
    wrong = sum(case["wrong_elements"] > 0 for case in cases)
    read = [case for case in cases if case["measured"] is not None]
    off = sum(case["measured"] != case["predicted"] for case in read)
    print("shared loads + stores of the whole kernel as measured (conflicts); * marks the planner's choice")
    for (title, width), rows in groupby(cases, key=lambda case: (case["title"], case["width"])):
        print(f"{title:<18}{width:>3} B  " + "  ".join(_show_case(case) for case in rows))
    print(f"\n{'ns per permute and SM':<20}{'bytes':>6}  {'ours':>7}  {'unswizzled':>10}  {'padded':>7}   forms")
    lost = sum([_show_times(row) for row in report["times"]])
    print(f"\n{report['machine']}: {len(cases)} kernels, {sum(bool(c['proved']) for c in cases)} proved beforehand")
    print(f"data: {wrong} of {len(cases)} kernels wrong, {lost} of the timed ones")
    print(f"counters {report['counters']}: {len(read) - off} of {len(read)} kernels exactly as predicted")
    return not wrong and not lost and not off and len(read) == len(cases)


def _show_case(case: dict[str, Any]) -> str:
    seen = case["measured"]
    text = f"{case['form']}{'*' if case['chosen'] else ''} "
    text += "-" if seen is None else f"{seen['ld']}+{seen['st']}({seen['ld_conflicts'] + seen['st_conflicts']})"
    text += " WRONG DATA" if case["wrong_elements"] else ""
    return text if seen in (None, case["predicted"]) else f"{text} PREDICTED {case['predicted']}"


def _show_times(row: dict[str, Any]) -> int:
    """Print one request's times; return how many of its kernels left wrong data."""
    times = row["ns_per_permute_and_sm"]
    ours = times[row["chosen"]]
    others = "  ".join(f"{name} {ns:.0f}" for name, ns in times.items() if name not in (PLAIN, PADDED))
    wrong = [name for name, count in row["wrong_elements"].items() if count]
    head = f"{row['title']:<20}{row['width'] * row['elements']:>6}  {ours:>7.1f}"
    tail = f"   WRONG DATA: {', '.join(wrong)}" if wrong else ""
    print(f"{head}  {times[PLAIN] / ours:>9.2f}x  {times[PADDED] / ours:>6.2f}x   {others}{tail}")
    return len(wrong)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run", "launch"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "prepare":
            command.add_argument("--seconds", type=float, default=float("inf"), help="prove no more after so long")
        elif name == "run":
            out = Path(os.environ.get("OUT", ".")) / "permute_smem_h200.json"
            command.add_argument("json", type=Path, nargs="?", default=out)
        else:
            command.add_argument("begin", type=int)
            command.add_argument("end", type=int)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder, arguments.seconds)
    elif arguments.command == "launch":
        cases = json.loads((arguments.folder / "cases.json").read_text())["cases"]
        launch_all(arguments.folder, cases[arguments.begin : arguments.end])
    else:
        save = lambda report: arguments.json.write_text(json.dumps(report, indent=1) + "\n")  # noqa: E731
        sys.exit(not show(run(arguments.folder, save)))


if __name__ == "__main__":
    main()
