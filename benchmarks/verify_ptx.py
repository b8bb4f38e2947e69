"""How long the checks of compiled code take, and what SentryWard says of the same PTX where it is installed.

    python benchmarks/verify_ptx.py benchmarks/results/verify_ptx.json [PATH/TO/sentryward]

Seconds are of the processor (this process, or the child for SentryWard), so that a busy machine does not count.
SentryWard needs sizes as numbers; ours proves the same file for every size that the claim admits.
"""

from __future__ import annotations

import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda import permute_layout
from codegen_cuda.build import compile_ptx
from layoutalg import TileLayout
from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove, SizedSide
from verify.kernel import check_kernel
from verify.ptx.concrete import Buffer, run
from verify.ptx.parse import parse
from verify.verdict import Obligation

TILED = """extern "C" __global__ void __launch_bounds__(256)
transpose_tiled(const float* __restrict__ in, float* __restrict__ out, int M, int N) {
  __shared__ alignas(128) float tile[32 * 32];
  const int tx = threadIdx.x, ty = threadIdx.y, c0 = blockIdx.x * 32, r0 = blockIdx.y * 32;
  #pragma unroll
  for (int k = 0; k < 32; k += 8) {
    int r = r0 + ty + k, c = c0 + tx;
    if (r < M && c < N) tile[(ty + k) * 32 + (tx ^ (ty + k))] = in[(long long)r * N + c];
  }
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < 32; k += 8) {
    int r = r0 + tx, c = c0 + ty + k;
    if (r < M && c < N) out[(long long)c * M + r] = tile[tx * 32 + ((ty + k) ^ tx)];
  }
}"""
PIPELINE = """extern "C" __global__ void __launch_bounds__(256)
transpose_along(const float* __restrict__ in, float* __restrict__ out, int M, int N) {
  __shared__ float tile[3][32][33];
  const int tx = threadIdx.x, ty = threadIdx.y, r0 = blockIdx.y * 32, trips = (N + 31) / 32;
  #pragma unroll
  for (int j = 0; j < 32; j += 8)
    if (tx < N && r0 + ty + j < M) tile[0][ty + j][tx] = in[(long long)(r0 + ty + j) * N + tx];
  #pragma unroll 1
  for (int k = 0; k < trips; ++k) {
    #pragma unroll
    for (int j = 0; j < 32; j += 8) {
      int r = r0 + ty + j, c = (k + 1) * 32 + tx;
      if (c < N && r < M) tile[(k + 1) % 3][ty + j][tx] = in[(long long)r * N + c];
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 32; j += 8) {
      int r = r0 + tx, c = k * 32 + ty + j;
      if (c < N && r < M) out[(long long)c * M + r] = tile[k % 3][tx][ty + j];
    }
  }
}"""
STRAIGHT = """extern "C" __global__ void __launch_bounds__(1024)
transpose(const unsigned* __restrict__ in, unsigned* __restrict__ out) {
  __shared__ unsigned tile[32][33];
  int tx = threadIdx.x, ty = threadIdx.y;
  tile[ty][tx] = in[(blockIdx.y * 32 + ty) * 1024 + blockIdx.x * 32 + tx];
  __syncthreads();
  out[(blockIdx.x * 32 + ty) * 1024 + blockIdx.y * 32 + tx] = tile[tx][ty];
}"""
LARGEST, LIMIT_SECONDS = 1 << 20, 100
ARCH = "sm_100a"  # the target that SentryWard reads


def family(entry: str = "transpose_tiled", across: str | int = "(N + 31)//32") -> ClaimFamily:
    """An (M, N) matrix of floats transposed, for every M and N up to 2^20, by blocks of 32 rows."""
    shape = ("M", "N")
    buffers = tuple(SizedBuffer(n, role, "float32", "M*N", 16) for n, role in (("in", "input"), ("out", "output")))
    return ClaimFamily(
        entry,
        "float32",
        (across, "(M + 31)//32", 1),
        (32, 8, 1),
        0,
        (*buffers, *(Scalar(name, 32, 1, LARGEST) for name in shape)),
        (SizedMove("in", SizedSide("S[(M,N):(N,1)]", shape), "out", SizedSide("S[(M,N):(1,M)]", shape)),),
    )


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and seconds of this process."""
    started = time.process_time()
    result = action()
    return result, round(time.process_time() - started, 2)


def summary(obligations: tuple[Obligation, ...], seconds: float, goal: float) -> dict[str, Any]:
    """Verdicts counted, and the time next to its goal."""
    counts: dict[str, int] = {}
    for obligation in obligations:
        kind = type(obligation.verdict).__name__
        counts[kind] = counts.get(kind, 0) + 1
    return {"cpu_seconds": seconds, "goal_seconds": goal, "obligations": counts}


def reference_kernel() -> dict[str, Any]:
    """The warp permute of the reference example: executed for every thread, and proved for all data and addresses."""
    source = TileLayout.parse("S[(2,1,4,32):(128,128,32,1)]")
    destination = TileLayout.parse("S[(2,1,4,32):(128,128,1,4)]")
    kernel = permute_layout(source, destination, region="s,0:1,0:4,0:32", dtype="float32", plan="xor").compile()
    certified, seconds = timed(kernel.certify)
    verdicts = [row["verdict"] for row in certified.certificate["obligations"]]
    counts = {kind: verdicts.count(kind) for kind in sorted(set(verdicts))}
    return {"cpu_seconds": seconds, "goal_seconds": 2, "obligations": counts}


def any_matrix(text: str) -> dict[str, Any]:
    """The tiled transpose for unknown M and N: five sizes executed, all sizes proved."""
    obligations, seconds = timed(lambda: check_kernel(text, family()))
    return {**summary(obligations, seconds, 20), "sizes": f"1 <= M, N <= {LARGEST}"}


def any_number_of_trips() -> dict[str, Any]:
    """A transpose along N in as many trips as it takes, pipelined through three buffers: by induction on the trips."""
    text = compile_ptx(PIPELINE, arch=ARCH, name="along.cu").text
    obligations, seconds = timed(lambda: check_kernel(text, family("transpose_along", 1)))
    return {**summary(obligations, seconds, 20), "sizes": f"1 <= M, N <= {LARGEST}"}


def million_threads() -> dict[str, Any]:
    """A straight-line transpose of 1024 x 1024 words in the interpreter, all checks of a run included."""
    program = parse(compile_ptx(STRAIGHT, arch=ARCH, name="straight.cu").text)
    data = np.arange(1 << 20, dtype=np.uint32)
    memory = [Buffer(data), Buffer(np.zeros_like(data), mode="w")]
    result, seconds = timed(lambda: run(program, grid=(32, 32), block=(32, 32), params=memory))
    right = bool((result.buffers[1].reshape(1024, 1024) == data.reshape(1024, 1024).T).all())
    return {"cpu_seconds": seconds, "goal_seconds": 5, "threads": result.threads, "right": right}


# --- the same file in SentryWard --------------------------------------------------------------------------------


def mutants(text: str) -> dict[str, str]:
    """The kernel, and four mistakes in it."""
    first_xor = re.search(r"xor\.b32\s+%r\d+, %r\d+, %r\d+;", text)
    guard = re.search(r"@%p\d+ bra\s+\$L__BB0_2;", text)
    if first_xor is None or guard is None:
        raise SystemExit("the compiler wrote another kernel than this benchmark expects")
    return {
        "as compiled": text,
        "no barrier": re.sub(r"bar\.sync\s+0;", "", text, count=1),
        "no guard": text.replace(guard[0], "", 1),
        "first swizzle changed": text.replace(first_xor[0], first_xor[0].replace("xor", "and"), 1),
        "load shifted by 4 bytes": re.sub(r"(ld\.global\.nc\.[fb]32\s+%\w+, \[%rd\d+)\]", r"\1+4]", text, count=1),
    }


def ask_sentryward(program: str, text: str, rows: int, columns: int) -> dict[str, Any]:
    """Its result for one size, and the processor's seconds of its processes."""
    sizes = {"transpose_tiled_param_2": rows, "transpose_tiled_param_3": columns}
    request = {
        "schema": "spverify.kernel-input/v1",
        "launch": {"grid_dim": [-(-columns // 32), -(-rows // 32), 1], "block_dim": [32, 8, 1]},
        "arguments": [{"parameter": name, "type": "u32", "value": value} for name, value in sizes.items()],
    }
    with tempfile.TemporaryDirectory() as folder:
        ptx, config = Path(folder, "k.ptx"), Path(folder, "input.json")
        ptx.write_text(text)
        config.write_text(json.dumps(request))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [program, str(ptx), "--input", str(config), "--timeout", str(LIMIT_SECONDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"result": "no JSON", "output": (done.stdout + done.stderr)[-400:]}
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    codes = [diagnostic["code"] for diagnostic in found["diagnostics"]]
    return {"result": found["result"], "diagnostics": codes, "cpu_seconds": round(seconds, 2)}


def ask_us(text: str) -> dict[str, Any]:
    """Our first refusal for all sizes, or that there is none."""
    obligations, seconds = timed(lambda: check_kernel(text, family()))
    bad = [o for o in obligations if not o.verdict.ok]
    said = f"{bad[0].name}: {bad[0].verdict}" if bad else "certified for all sizes"
    return {"result": said, "cpu_seconds": seconds}


def version_beside(program: str) -> str:
    """The version of SentryWard in the environment of its command."""
    ask = "import importlib.metadata as m; print(m.version('sentryward'))"
    command = [str(Path(program).with_name("python")), "-c", ask]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def comparison(program: str, text: str) -> dict[str, Any]:
    """Both on the kernel and its mutants at 40 x 50 (theirs) and all sizes (ours), then theirs on larger sizes."""
    rows = {
        name: {"sentryward, 40 x 50": ask_sentryward(program, each, 40, 50), "layoutalg, all sizes": ask_us(each)}
        for name, each in mutants(text).items()
    }
    larger = {f"{n} x {n}": ask_sentryward(program, text, n, n) for n in (128, 512)}
    return {
        "version": version_beside(program),
        "mutants": rows,
        "larger sizes, as compiled": larger,
        "limit_seconds": LIMIT_SECONDS,
    }


def processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Measure, print, write the results."""
    text = compile_ptx(TILED, arch=ARCH, name="tiled.cu").text
    results: dict[str, Any] = {
        "machine": {"processor": processor(), "system": platform.system(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("numpy", "z3-solver")},
        "reference warp kernel, certified": reference_kernel(),
        "tiled transpose of any matrix, certified": any_matrix(text),
        "pipelined transpose of any matrix, certified": any_number_of_trips(),
        "a million threads, interpreted": million_threads(),
    }
    for name in list(results)[2:]:
        print(f"{name}: {results[name]}")
    if len(sys.argv) > 2:
        results["sentryward"] = comparison(sys.argv[2], text)
        print(json.dumps(results["sentryward"], indent=2))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(sys.argv[1]).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
