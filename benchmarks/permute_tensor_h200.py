"""Whole-tensor permutes on an H200 against PyTorch, a copy of the same size, and recorded figures of cuTENSOR.

    python benchmarks/permute_tensor_h200.py --out benchmarks/results/permute_tensor_h200.json
    python benchmarks/permute_tensor_h200.py --explore --out explore.json      # every candidate of every case

Each figure is bytes read plus bytes written over the median time of many launches, with the L2 cache emptied between
them by reading a buffer several times its size.  Every case is compared with PyTorch bit by bit on random bytes,
with the output poisoned before and a margin around it that must stay as it was.  cuTENSOR is not run: its recorded
figures are scaled by the ratio of the copies.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda.errors import BuildError
from codegen_cuda.kernel import Kernel
from codegen_cuda.launch import launch
from codegen_cuda.tensor import kernel_of, permute, permute_tensor
from codegen_cuda.tensor.choose import candidates, choose, contiguous, tile_shape, widen
from codegen_cuda.tensor.plan import TensorPlan
from codegen_cuda.tensor.problem import TensorProblem, layouts_of_permutation, pose_tensor
from codegen_cuda.tensor.rows import plan_rows
from codegen_cuda.tensor.thin import plan_thin
from codegen_cuda.tensor.tile_shape import make_shape, plan_tiles

BASELINES = Path(__file__).with_name("data") / "h200_permute_baselines.json"
TARGETS = {
    1: ((256, 256), (128, 256), (256, 128), (128, 128), (64, 128), (128, 64)),
    2: ((128, 128), (128, 256), (64, 64), (64, 128), (128, 64)),
    4: ((64, 64), (64, 128), (128, 64), (32, 64), (128, 32)),
    8: ((32, 64), (64, 32), (32, 32), (64, 64), (16, 64)),
    16: ((32, 32), (16, 32), (32, 16), (16, 16), (64, 16)),
}
MARGIN = 4096
POISON = 0xA5
GOALS = {1: 3400.0, 2: 3700.0, 4: 3700.0, 8: 3700.0, 16: 3700.0}


@dataclass(frozen=True)
class Case:
    """One line of the baselines."""

    name: str
    shape: tuple[int, ...]
    perm: tuple[int, ...]
    dtype: str
    torch: float
    cutensor: float | None

    def problem(self) -> TensorProblem:
        """The request."""
        return pose_tensor(
            *layouts_of_permutation(self.shape, self.perm), shape=self.shape, dtype_name=self.dtype, perm=self.perm
        )


def cases(only: str) -> tuple[list[Case], float]:
    """The baselines whose name and type contain a text, and the copy speed that they were measured beside."""
    record = json.loads(BASELINES.read_text())
    found = [
        Case(c["case"], tuple(c["shape"]), tuple(c["perm"]), c["dtype"], c["torch_copy_GBps"], c["cutensor_GBps"])
        for c in record["cases"]
    ]
    return [c for c in found if only in f"{c.name} {c.dtype}"], record["copy_GBps"]


def compiled(kernel: Kernel) -> Kernel:
    """Compile in a process of its own."""
    return kernel.compile(arch="sm_90")


def explored(case: Case) -> list[Kernel]:
    """The preferred plan of a case, then many others of its strategy."""
    problem = case.problem()
    units = widen(problem)
    plans = [choose(units), *candidates(units)]
    plans += _variants(units) if case.name != "survey" or len(units.dims) == 1 else []
    distinct = {p.describe() + str(p.order): p for p in plans}
    return [kernel_of(problem, plan) for plan in distinct.values()]


def _variants(units: TensorProblem) -> Iterator[TensorPlan]:
    first = choose(units)
    if first.strategy == "rows":
        for threads, in_flight in itertools.product((128, 256, 512, 1024), (1, 2, 4, 8)):
            yield plan_rows(units, threads=threads, in_flight=in_flight)
    elif first.strategy == "thin":
        thin, long, side = (first.details[key] for key in ("thin", "long", "side"))
        for threads, groups in itertools.product((64, 128, 256), (1, 2)):
            yield plan_thin(units, thin=thin, long=long, side=side, threads=threads, groups=groups)
    elif first.strategy == "tiles":
        a, b = contiguous(units, "src"), contiguous(units, "dst")
        if first.details["tile"].shifted or units.dims[b].extent % 2:
            for target, threads, edge in itertools.product(TARGETS[units.width], (256, 512), (16, 32, 64)):
                if edge == 64 and units.width < 16:
                    continue
                shape = make_shape(units, a, b, -1, (*target, 1), edge=edge, force_edge=edge > 16)
                plan = plan_tiles(units, shape, threads=threads)
                if plan.shared_bytes <= 110 * 1024:
                    yield plan
            return
        for target, threads, order in itertools.product(TARGETS[units.width], (256, 512), ("dst", "src")):
            shape = tile_shape(units, a, b, target)
            plan = plan_tiles(units, shape, threads=threads, order=order) if shape else first
            if plan.shared_bytes <= 110 * 1024:
                yield plan


#: Requests beyond the baselines: thin, odd, small and deep ones, in about 60 million elements.
SURVEY: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4097, 4099, 3), (2, 0, 1)),
    ((3, 4097, 4099), (1, 2, 0)),
    ((4093, 127, 121), (0, 2, 1)),
    ((127, 4093, 121), (1, 0, 2)),
    ((8_000_009, 7), (1, 0)),
    ((7, 8_000_009), (1, 0)),
    ((4_000_000, 16), (1, 0)),
    ((16, 4_000_000), (1, 0)),
    ((3_000_000, 20), (1, 0)),
    ((20, 3_000_000), (1, 0)),
    ((2_000_003, 33), (1, 0)),
    ((33, 2_000_003), (1, 0)),
    ((400, 3, 224, 224), (0, 2, 3, 1)),
    ((400, 224, 224, 3), (0, 3, 1, 2)),
    ((256, 56, 56, 80), (0, 3, 1, 2)),
    ((256, 80, 57, 57), (0, 2, 3, 1)),
    ((17, 31, 19, 83, 73), (4, 3, 2, 1, 0)),
    ((512, 197, 640), (1, 0, 2)),
    ((128, 12, 640, 64), (0, 2, 1, 3)),
    ((127, 13, 577, 65), (0, 2, 1, 3)),
    ((20,) * 6, (5, 4, 3, 2, 1, 0)),
    ((9,) * 8, (7, 6, 5, 4, 3, 2, 1, 0)),
    ((16, 16, 16, 16, 16, 64), (1, 0, 3, 2, 5, 4)),
    ((88, 88, 88, 88), (2, 3, 0, 1)),
    ((4096, 4096, 4), (1, 0, 2)),
    ((4096, 4096, 3), (1, 0, 2)),
    ((2048, 2, 16384), (2, 1, 0)),
    ((60_000_011,), (0,)),
    ((2, 30_000_001), (1, 0)),
    ((30_000_001, 2), (1, 0)),
)


def survey() -> list[Case]:
    """The further requests for every element width."""
    kinds = ("uint8", "float16", "float32", "float64", "complex128")
    return [Case("survey", shape, perm, kind, 0.0, None) for kind in kinds for shape, perm in SURVEY]


class Bench:
    """Buffers and timing on the GPU."""

    def __init__(self, repetitions: int) -> None:
        import torch

        self.torch = torch
        self.repetitions = repetitions
        self.flush = torch.ones(1 << 27, dtype=torch.int32, device="cuda")

    def gbps(self, action: Callable[[], Any], count: int, repetitions: int = 0) -> float:
        """Bytes over the median time of an action, in GB/s."""
        torch = self.torch
        times = []
        for _ in range(3 + (repetitions or self.repetitions)):
            self.flush.max()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            action()
            stop.record()
            times.append((start, stop))
        torch.cuda.synchronize()
        return count / statistics.median(a.elapsed_time(b) for a, b in times[3:]) / 1e6

    def check(self, kernel: Kernel, x: Any, whole: Any, out: Any, expected: Any) -> bool:
        """Poison, run, compare bit by bit, and look at the margins."""
        whole.fill_(POISON)
        run(kernel, x, out)
        good = bool(self.torch.equal(out, expected))
        return good and bool((whole[:MARGIN] == POISON).all()) and bool((whole[-MARGIN:] == POISON).all())


def run(kernel: Kernel, x: Any, out: Any) -> None:
    """Launch on the default stream."""
    claim = kernel.claim
    assert kernel.cubin is not None
    launch(
        kernel.cubin,
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        args=[x, out],
        shared_bytes=claim.dynamic_shared_bytes,
    )


def measure(bench: Bench, case: Case, kernels: list[Kernel], plans: list[str], *, explore: bool) -> dict[str, Any]:
    """All figures of one case."""
    torch = bench.torch
    kind = getattr(torch, case.dtype)
    width = torch.empty(0, dtype=kind).element_size()
    elements = math.prod(case.shape)
    moved = 2 * elements * width
    x = torch.randint(0, 256, (elements * width,), dtype=torch.uint8, device="cuda")
    whole = torch.empty(elements * width + 2 * MARGIN, dtype=torch.uint8, device="cuda")
    out = whole[MARGIN:-MARGIN]
    typed = x.view(kind).view(case.shape)
    target = torch.empty([case.shape[p] for p in case.perm], dtype=kind, device="cuda")
    target.copy_(typed.permute(case.perm))
    expected = target.view(-1).view(torch.uint8)
    rows = []
    for kernel, plan in zip(kernels, plans, strict=True):
        good = bench.check(kernel, x, whole, out, expected)
        rows.append({"plan": plan, "correct": good, "GBps": round(bench.gbps(partial(run, kernel, x, out), moved))})
    result: dict[str, Any] = {"case": case.name, "dtype": case.dtype, "shape": case.shape, "perm": case.perm, **rows[0]}
    if explore:
        result["candidates"] = rows
    copied = bench.gbps(lambda: out.copy_(x), moved)
    theirs = bench.gbps(lambda: target.copy_(typed.permute(case.perm)), moved, 7)
    again = bench.gbps(lambda: run(kernels[0], x, out), moved)
    return {**result, "again_GBps": round(again), "torch_GBps": round(theirs), "copy_GBps": round(copied)}


def summarise(results: list[dict[str, Any]], known: dict[tuple[str, str], Case], copy: float) -> dict[str, Any]:
    """Scale cuTENSOR's figures, and judge requirement and goal by type."""
    summary: dict[str, Any] = {}
    for row in results:
        recorded = known[row["case"], row["dtype"]].cutensor
        row["cutensor_scaled_GBps"] = None if recorded is None else round(recorded * row["copy_GBps"] / copy)
        row["vs_torch"] = round(row["GBps"] / row["torch_GBps"], 3)
        row["vs_cutensor"] = None if recorded is None else round(row["GBps"] / row["cutensor_scaled_GBps"], 3)
    for kind in dict.fromkeys(row["dtype"] for row in results):
        rows = [row for row in results if row["dtype"] == kind]
        ratios = [row["vs_cutensor"] for row in rows if row["vs_cutensor"]]
        summary[kind] = {
            "GBps": round(statistics.geometric_mean(row["GBps"] for row in rows)),
            "copy_GBps": round(statistics.geometric_mean(row["copy_GBps"] for row in rows)),
            "vs_cutensor": round(statistics.geometric_mean(ratios), 3) if ratios else None,
            "worst_vs_cutensor": min(ratios, default=None),
            "worst_vs_torch": min(row["vs_torch"] for row in rows),
            "all_correct": all(row["correct"] for row in rows),
        }
    return summary


def check_libraries(seed: int, rounds: int) -> dict[str, str]:
    """Exercise the drop-in helper on arrays of every library, compared with PyTorch; each line says what held."""
    import cupy
    import torch

    def same(got: Any, expected: Any) -> str:
        flat = [t.contiguous().view(-1).view(torch.uint8) for t in (got, expected)]
        return "equal" if torch.equal(*flat) else "WRONG"

    random = torch.Generator(device="cuda").manual_seed(seed)

    def data(shape: tuple[int, ...], kind: Any) -> Any:
        width = torch.empty(0, dtype=kind).element_size()
        raw = torch.randint(0, 256, (math.prod(shape) * width,), dtype=torch.uint8, device="cuda", generator=random)
        return raw.view(kind).view(shape)

    found = {}
    for kind in ("bool", "uint8", "int16", "bfloat16", "float8_e4m3fn", "int64", "complex64", "complex128"):
        x = data((37, 129, 66), getattr(torch, kind)) if kind != "bool" else data((37, 129, 66), torch.uint8) > 127
        found[f"torch {kind}"] = same(permute(x, (2, 0, 1)), x.permute(2, 0, 1))
    x = data((64, 500, 130), torch.float16)[::2, 3:, 1:]
    found["torch view"] = same(permute(x, (1, 2, 0)), x.permute(1, 2, 0))
    x = data((1, 500, 130), torch.float32).expand(7, 500, 130)
    found["torch expanded"] = same(permute(x, (2, 0, 1)), x.permute(2, 0, 1))
    stream = torch.cuda.Stream()
    x = data((4096, 4096), torch.float32)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found["torch stream"] = same(permute(x, (1, 0)), x.t())
    y = cupy.random.random((300, 400, 50)).astype(cupy.float32)
    found["cupy"] = "equal" if bool((permute(y, (2, 1, 0)) == y.transpose(2, 1, 0)).all()) else "WRONG"
    z = np.random.default_rng(seed).random((70, 80, 90))
    found["numpy"] = "equal" if bool((permute(z, (1, 2, 0)) == z.transpose(1, 2, 0)).all()) else "WRONG"
    x = data((65_553, 32_773), torch.uint8)
    found["2,148,368,469 elements"] = same(permute(x, (1, 0)), x.t())
    x = data((3, 1 << 30), torch.uint8)
    found["3 x 2^30 elements"] = same(permute(x, (1, 0)), x.t())
    del x
    tuned = permute_tensor((96, 80, 112, 128), (3, 2, 1, 0), "f32", autotune=True)
    found["autotune"] = tuned.plan.describe()
    huge = torch.empty(1, dtype=torch.uint8, device="cuda").expand(1 << 19, 1 << 19)
    try:
        permute(huge, (1, 0))
        found["no room"] = "WRONG"
    except BuildError as error:
        found["no room"] = f"refused: {str(error)[:60]}"
    found["random requests"] = _random_requests(np.random.default_rng(seed), data, same, rounds)
    found["jax"] = _check_jax()
    return found


def _random_requests(random: Any, data: Any, same: Any, rounds: int) -> str:
    import torch

    kinds = (torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex128)
    for turn in range(rounds):
        rank = int(random.integers(2, 6))
        shape = tuple(int(e) for e in random.integers(1, (0, 0, 3000, 200, 60, 24)[rank], rank))
        perm = tuple(int(p) for p in random.permutation(rank))
        x = data(shape, kinds[turn % len(kinds)])
        if same(permute(x, perm), x.permute(perm)) != "equal":
            return f"WRONG: {shape} {perm} {x.dtype}"
    return f"{rounds} equal"


def _check_jax() -> str:
    import jax

    x = jax.numpy.arange(60_000, dtype=jax.numpy.float32).reshape(100, 20, 30)
    got = permute(x, (2, 0, 1))
    return "equal" if bool((jax.block_until_ready(got) == x.transpose(2, 0, 1)).all()) else "WRONG"


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="cases whose 'name dtype' contains this text")
    parser.add_argument("--explore", action="store_true", help="measure every candidate plan")
    parser.add_argument("--libraries", action="store_true", help="also run the helper on arrays of every library")
    parser.add_argument("--survey", action="store_true", help="measure requests beyond the baselines instead")
    parser.add_argument("--repetitions", type=int, default=25)
    options = parser.parse_args()
    chosen, copy = cases(options.only)
    chosen = survey() if options.survey else chosen
    sources = [explored(c) if options.explore else [kernel_of(c.problem(), choose(widen(c.problem())))] for c in chosen]
    with ProcessPoolExecutor() as pool:
        bare = [replace(k, plan=None, problem=None) for group in sources for k in group]
        flat = list(pool.map(compiled, bare, chunksize=4))
    import torch

    bench = Bench(options.repetitions)
    results = []
    for case, group in zip(chosen, sources, strict=True):
        kernels, flat = flat[: len(group)], flat[len(group) :]
        plans = [k.plan.describe() for k in group if k.plan is not None]
        results.append(measure(bench, case, kernels, plans, explore=options.explore))
        row = results[-1]
        title = case.name if case.name != "survey" else f"{case.shape} {case.perm}"
        print(
            f"{case.dtype:10} {title:14} {row['GBps']:5} torch {row['torch_GBps']:5} copy {row['copy_GBps']:5} "
            f"cutensor {case.cutensor} {'' if row['correct'] else 'WRONG'} {row['plan']}",
            flush=True,
        )
        for other in row.get("candidates", ())[1:]:
            if other["GBps"] < row["GBps"] and other["correct"]:
                continue
            print(f"    {other['GBps']:5} {'' if other['correct'] else 'WRONG'} {other['plan']}", flush=True)
    summary = summarise(results, {(c.name, c.dtype): c for c in chosen}, copy)
    record = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "method": "median of launches, L2 emptied between them by reading 512 MiB; GB/s = bytes read plus written",
        "repetitions": options.repetitions,
        "recorded_copy_GBps": copy,
        "summary": summary,
        "cases": results,
    }
    if options.libraries:
        record["libraries"] = check_libraries(1, 48)
        print(json.dumps(record["libraries"], indent=1))
    print(json.dumps(summary, indent=1))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row["correct"] for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
