"""Speed of the algebra beside its peers, in one run on one machine.

    python benchmarks/algebra.py benchmarks/results/algebra.json

Needs `tensor-layouts`; `pycute` (from `nvidia-cutlass`) and `apache-tvm` (compiled code behind Python) are measured
where they are installed.  Rows share a purpose, not always identical semantics: tensor-layouts and pycute coalesce
where this library canonicalizes, and fix coordinates where this library slices ranges.

Times are processor time of the fastest of several runs, so that a busy machine adds little.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
import timeit
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import tensor_layouts

from layoutalg import S, Swizzle, SwizzledLayout, TileLayout
from layoutalg.algebra.compose import compose
from layoutalg.algebra.recognise import recognise

REPEATS = 9
OURS = "layoutalg"
Row = dict[str, tuple[Callable[[], Any], int]]

# Microseconds, or how we must compare with tensor-layouts; checked after the run.
TARGETS_US = {
    "all 4,096 points": 40,
    "all 4,096 points, swizzled": 60,
    "equality of two 8-iter layouts of size 2^40, written differently": 50,
    "recognise a table of 2^20 points": 200_000,
}
NO_SLOWER = ("construct a 64x64 layout", "canonicalize four iters", "slice a column")
# At most twice the time of apache-tvm's compiled code.
WITHIN_TWICE = ("canonicalize four iters", "slice a column", "slice a range of rows of a warp fragment")


def best(action: Callable[[], Any], number: int) -> float:
    """Microseconds of processor time of the fastest of several runs."""
    return min(timeit.repeat(action, number=number, repeat=REPEATS, timer=time.process_time)) / number * 1e6


def fresh(layout: TileLayout) -> TileLayout:
    """A layout without remembered answers."""
    return TileLayout._make(layout.shard, layout.replica, {})


def ours() -> Row:
    """Name -> (action, runs)."""
    tile, split = TileLayout(S[64, 64]), TileLayout(S[8, 2, 4, 2])
    frag = TileLayout.parse("S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid")
    swizzled = SwizzledLayout(Swizzle(3, 3, 3), tile)
    wide = TileLayout.from_iters(shard=[(32, 64 * k + 1, "m") for k in range(8)])
    finer = TileLayout.from_iters(
        shard=[(e, s, "m") for k in range(8) for e, s in ((4, 8 * (64 * k + 1)), (8, 64 * k + 1))]
    )
    table = {"m": np.arange(1 << 20).reshape(1 << 10, -1).T.reshape(-1).copy()}
    a, b, copies = TileLayout(S[(6, 4) : (8, 1)]), TileLayout(S[6:4]), TileLayout(S[2, 2])
    return {
        "construct a 64x64 layout": (lambda: TileLayout(S[(64, 64) : (64, 1)]), 5000),
        "one coordinate": (lambda: tile.apply(5, 9, shape=(64, 64)), 5000),
        "all 4,096 points": (lambda: tile.table(), 500),
        "all 4,096 points, swizzled": (lambda: swizzled.table(), 500),
        "canonicalize four iters": (lambda: fresh(split).canonicalize(), 3000),
        "slice a column": (lambda: tile.slice((64, 64), ((0, 64), 9)), 3000),
        "slice a range of rows of a warp fragment": (lambda: frag.slice((8, 16), ((2, 6), (0, 16))), 1000),
        "group to a shape": (lambda: tile.group((8, 8, 64)), 2000),
        "tile by a 2x2 layout": (lambda: tile.tile(copies, (2, 2), (64, 64)), 1000),
        "compose": (lambda: compose(a, b), 1000),
        "equality of two 8-iter layouts of size 2^40, written differently": (
            lambda: fresh(wide).equivalent(fresh(finer)),
            2000,
        ),
        "recognise a table of 2^20 points": (lambda: recognise(table), 3),
    }


def of_tensor_layouts() -> Row:
    """The same questions put to tensor-layouts."""
    peer = tensor_layouts
    tile, split = peer.Layout((64, 64), (64, 1)), peer.Layout((2, 4, 2, 8), (1, 2, 8, 16))
    swizzled = peer.compose(peer.Swizzle(3, 3, 3), tile)
    a, b = peer.Layout((4, 6), (1, 8)), peer.Layout(6, 4)
    return {
        "construct a 64x64 layout": (lambda: peer.Layout((64, 64), (64, 1)), 1000),
        "one coordinate": (lambda: tile(5, 9), 1000),
        "all 4,096 points": (lambda: [tile(i) for i in range(4096)], 1),
        "all 4,096 points, swizzled": (lambda: [swizzled(i) for i in range(4096)], 1),
        "canonicalize four iters": (lambda: peer.coalesce(split), 300),
        "slice a column": (lambda: peer.slice_and_offset((None, 9), tile), 300),
        "compose": (lambda: peer.compose(a, b), 300),
    }


def of_pycute() -> Row:
    """The same questions put to pycute, where it is installed."""
    import pycute as peer

    tile, split = peer.Layout((64, 64), (64, 1)), peer.Layout((2, 4, 2, 8), (1, 2, 8, 16))
    a, b = peer.Layout((4, 6), (1, 8)), peer.Layout(6, 4)
    return {
        "construct a 64x64 layout": (lambda: peer.Layout((64, 64), (64, 1)), 5000),
        "one coordinate": (lambda: tile(5, 9), 1000),
        "all 4,096 points": (lambda: [tile(i) for i in range(4096)], 1),
        "canonicalize four iters": (lambda: peer.coalesce(split), 300),
        "slice a column": (lambda: peer.slice_and_offset((None, 9), tile), 300),
        "compose": (lambda: peer.composition(a, b), 300),
    }


def of_tvm() -> Row:
    """The same questions put to apache-tvm's tile layouts, where they are installed."""
    from tvm.tirx.layout import R as Copies
    from tvm.tirx.layout import S as Shard
    from tvm.tirx.layout import TileLayout as Peer
    from tvm.tirx.layout import laneid, warpid

    tile, copies = Peer(Shard[(64, 64) : (64, 1)]), Peer(Shard[(2, 2) : (2, 1)])
    split = Peer(Shard[(8, 2, 4, 2) : (16, 8, 2, 1)])
    strides = (4 @ laneid, 1 @ warpid, 1 @ laneid, 1)
    frag = Peer(Shard[(8, 2, 4, 2) : strides] + Copies[2 : 4 @ warpid] + 5 @ warpid)
    return {
        "construct a 64x64 layout": (lambda: Peer(Shard[(64, 64) : (64, 1)]), 1000),
        "one coordinate": (lambda: tile.apply(5, 9, shape=[64, 64]), 300),
        "all 4,096 points": (lambda: [tile.apply(i) for i in range(4096)], 1),
        "canonicalize four iters": (lambda: split.canonicalize(), 3000),
        "slice a column": (lambda: tile.slice([64, 64], [(0, 64), (9, 10)]), 1000),
        "slice a range of rows of a warp fragment": (lambda: frag.slice([8, 16], [(2, 6), (0, 16)]), 1000),
        "group to a shape": (lambda: tile.group([8, 8, 64]), 1000),
        "tile by a 2x2 layout": (lambda: tile.tile(copies, [2, 2], [64, 64]), 1000),
    }


PEERS: dict[str, tuple[str, Callable[[], Row]]] = {
    "tensor-layouts": ("tensor-layouts", of_tensor_layouts),
    "pycute": ("nvidia-cutlass", of_pycute),
    "tvm": ("apache-tvm", of_tvm),
}


def measure() -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Versions of what was measured, and microseconds by question and library."""
    versions: dict[str, str] = {}
    rows: dict[str, dict[str, float]] = {}
    for name, (action, number) in ours().items():
        rows[name] = {OURS: round(best(action, number), 2)}
    for peer, (package, questions) in PEERS.items():
        try:
            versions[peer] = version(package)
            asked = questions()
        except (PackageNotFoundError, ImportError):
            versions[peer] = "not installed"
            continue
        for name, (action, number) in asked.items():
            rows[name][peer] = round(best(action, number), 2)
    return versions, rows


def missed(rows: dict[str, dict[str, float]]) -> list[str]:
    """Targets that this run does not meet."""
    late = [
        f"{name}: {rows[name][OURS]} us, not {most}" for name, most in TARGETS_US.items() if rows[name][OURS] > most
    ]
    slower = [name for name in NO_SLOWER if rows[name][OURS] > rows[name]["tensor-layouts"]]
    behind = [name for name in WITHIN_TWICE if rows[name][OURS] > 2 * rows[name].get("tvm", math.inf)]
    return [
        *late,
        *(f"{name}: slower than tensor-layouts" for name in slower),
        *(f"{name}: over twice the time of apache-tvm" for name in behind),
    ]


def main() -> int:
    """Measure, print a table, write the JSON; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    arguments = parser.parse_args()
    versions, rows = measure()
    columns = (OURS, *PEERS)
    print(f"{'microseconds':<66}" + "".join(f"{column:>16}" for column in columns))
    for name, row in rows.items():
        print(f"{name:<66}" + "".join(f"{row[c]:>16,.2f}" if c in row else f"{'-':>16}" for c in columns))
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    report = {
        "machine": {
            "processor": names[0] if names else platform.machine(),
            "python": sys.version.split()[0],
            "numpy": np.__version__,
        },
        "unit": "microseconds of processor time, fastest of several runs",
        "peers": versions,
        "questions": rows,
        "missed_targets": missed(rows),
    }
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(*report["missed_targets"], sep="\n")
    return bool(report["missed_targets"])


if __name__ == "__main__":
    sys.exit(main())
