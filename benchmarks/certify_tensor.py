"""Certify every whole-tensor permute of the H200 benchmark at full size, without a GPU, and record how long it takes.

    python benchmarks/certify_tensor.py benchmarks/results/certify_tensor.json
    python benchmarks/certify_tensor.py survey.json --survey            # the survey's 150 further requests

Each kernel is planned, compiled for sm_90a and certified from its PTX and its claim alone: bounds, races and the place
of every element, for all blocks and threads.  Times are CPU seconds of one process (compiling included), in the order
of the cases; the first one also pays for what is imported on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from permute_tensor_h200 import Case, cases, survey

from codegen_cuda.pipeline import certify
from codegen_cuda.tensor import permute_tensor
from verify.certificate import is_proved

ARCH = "sm_90a"
LIMIT_SECONDS = 20.0


def certified(case: Case) -> dict[str, Any]:
    """Plan, compile and certify one case."""
    start = time.process_time()
    kernel = permute_tensor(case.shape, case.perm, case.dtype).compile(arch=ARCH)
    compiled = time.process_time()
    record = certify(kernel).certificate
    done = time.process_time()
    assert record is not None
    assert kernel.plan is not None
    return {
        "case": case.name,
        "dtype": case.dtype,
        "shape": list(case.shape),
        "perm": list(case.perm),
        "strategy": kernel.plan.strategy,
        "blocks": kernel.plan.grid,
        "ptx_sha256": record["sha256"]["ptx"],
        "proved": is_proved(record),
        "obligations": {row["name"]: row["verdict"] for row in record["obligations"]},
        "compile_seconds": round(compiled - start, 2),
        "certify_seconds": round(done - compiled, 2),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals, and the slowest case."""
    slowest = max(rows, key=lambda row: row["certify_seconds"])
    return {
        "cases": len(rows),
        "proved": sum(row["proved"] for row in rows),
        "seconds": round(sum(row["certify_seconds"] for row in rows), 1),
        "slowest": f"{slowest['case']} {slowest['dtype']}",
        "slowest_seconds": slowest["certify_seconds"],
        "limit_seconds": LIMIT_SECONDS,
    }


def machine() -> str:
    """This machine, in words."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores, no GPU used"


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="a part of a case's name and type")
    parser.add_argument("--survey", action="store_true", help="the survey's requests instead of the benchmark's")
    options = parser.parse_args()
    chosen = survey() if options.survey else cases("")[0]
    rows = []
    for case in chosen:
        if options.only in f"{case.name} {case.dtype}":
            rows.append(certified(case))
            row = rows[-1]
            print(f"{row['case']:16} {row['dtype']:10} {row['strategy']:6} {row['certify_seconds']:6.2f} s", end="  ")
            print("proved" if row["proved"] else row["obligations"], flush=True)
    versions = {"python": platform.python_version(), **{n: version(n) for n in ("z3-solver", "numpy")}}
    found = {"machine": machine(), "arch": ARCH, **versions, "summary": summary(rows), "cases": rows}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["summary"]))


if __name__ == "__main__":
    main()
