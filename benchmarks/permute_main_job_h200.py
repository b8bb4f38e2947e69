"""The main job on a GPU: certified permutes of the reference example on real data, compared with numpy.

Two steps, because proofs need z3 and the GPU machine may not have it:

    python benchmarks/permute_main_job_h200.py prepare build/main_job      # proves, compiles, saves
    python benchmarks/permute_main_job_h200.py run build/main_job results.json

Both block sizes of the example (128 and 256 elements a stage), float32 and uint32, random bits each time.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda import Kernel, permute_layout
from codegen_cuda.launch import device_architecture
from codegen_cuda.run import expected_output
from layoutalg import TileLayout

CASES = [(high, dtype) for high in (1, 2) for dtype in ("float32", "uint32")]
ROUNDS = 100


def prepare(folder: Path) -> None:
    """Certify and save every case."""
    for high, dtype in CASES:
        block = 128 * high
        source = TileLayout.parse(f"S[(2,{high},4,32):({block},128,32,1)]")
        destination = TileLayout.parse(f"S[(2,{high},4,32):({block},128,1,4)]")
        kernel = permute_layout(source, destination, region=f"s,0:{high},0:4,0:32", dtype=dtype, plan="xor")
        kernel.certify().save(folder / f"{block}_{dtype}")


def run(folder: Path) -> dict[str, Any]:
    """Run every saved case on random data and compare bit by bit."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    results: list[dict[str, Any]] = []
    for high, dtype in CASES:
        kernel = Kernel.load(folder / f"{128 * high}_{dtype}")
        generator = np.random.default_rng()
        wrong = 0
        for _ in range(ROUNDS):
            bits = generator.integers(0, 1 << 32, kernel.claim.buffer("src").count, dtype=np.uint32)
            data = bits.view(dtype)
            out = cupy.full(data.shape, 0, dtype=data.dtype)
            out.view(np.uint32)[:] = 0xDEADBEEF  # poison: an unwritten place cannot pass
            kernel.run(cupy.asarray(data), out, device="gpu")
            got = cupy.asnumpy(out).view(np.uint32)
            wrong += int((got != expected_output(kernel.claim, data).view(np.uint32)).sum())
        results.append(
            {
                "kernel": kernel.name,
                "dtype": dtype,
                "elements_per_stage": 128 * high,
                "rounds": ROUNDS,
                "wrong_elements": wrong,
                "sha256_cubin": kernel.hashes()["cubin"],
            }
        )
    return {
        "machine": properties["name"].decode(),
        "arch": device_architecture(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "host": platform.machine(),
        "results": results,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument("json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder)
        return
    report = run(arguments.folder)
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    for row in report["results"]:
        print(f"{row['kernel']:<32} {row['dtype']:<8} {row['rounds']} rounds, {row['wrong_elements']} wrong elements")
    sys.exit(any(row["wrong_elements"] for row in report["results"]))


if __name__ == "__main__":
    main()
