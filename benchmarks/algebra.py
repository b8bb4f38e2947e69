"""Speed of the algebra beside tensor-layouts, in one run on one machine.

    python benchmarks/algebra.py benchmarks/results/algebra.json

Rows share a purpose, not always identical semantics: tensor-layouts coalesces where this library canonicalizes, and
fixes coordinates where this library slices ranges.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensor_layouts as peer

from layoutalg import S, Swizzle, SwizzledLayout, TileLayout
from layoutalg.algebra.compose import compose
from layoutalg.algebra.recognise import recognise

REPEATS = 7


def best(action: Callable[[], Any], number: int) -> float:
    """Microseconds of the fastest of several runs: a busy machine only ever adds time."""
    return min(timeit.repeat(action, number=number, repeat=REPEATS)) / number * 1e6


def fresh(layout: TileLayout) -> TileLayout:
    """A layout without remembered answers."""
    return TileLayout._make(layout.shard, layout.replica, {})


def questions() -> dict[str, tuple[Callable[[], Any], Callable[[], Any] | None, int]]:
    """Name -> (ours, theirs or None, runs)."""
    tile, theirs = TileLayout(S[64, 64]), peer.Layout((64, 64), (64, 1))
    split, their_split = TileLayout(S[8, 2, 4, 2]), peer.Layout((2, 4, 2, 8), (1, 2, 8, 16))
    swizzled = SwizzledLayout(Swizzle(3, 3, 3), tile)
    their_swizzled = peer.compose(peer.Swizzle(3, 3, 3), theirs)
    wide = [TileLayout.from_iters(shard=[(32, 64 * k + 1, "m") for k in range(8)]) for _ in range(2)]
    table = {"m": np.arange(1 << 20).reshape(1 << 10, -1).T.reshape(-1).copy()}
    a, b = TileLayout(S[(6, 4) : (8, 1)]), TileLayout(S[4:6])
    return {
        "construct a 64x64 layout": (
            lambda: TileLayout(S[(64, 64) : (64, 1)]),
            lambda: peer.Layout((64, 64), (64, 1)),
            5000,
        ),
        "one coordinate": (lambda: tile.apply(5, 9, shape=(64, 64)), lambda: theirs(5, 9), 5000),
        "all 4,096 points": (lambda: tile.table(), lambda: [theirs(i) for i in range(4096)], 20),
        "all 4,096 points, swizzled": (
            lambda: swizzled.table(),
            lambda: [their_swizzled(i) for i in range(4096)],
            20,
        ),
        "canonicalize four iters": (lambda: fresh(split).canonicalize(), lambda: peer.coalesce(their_split), 3000),
        "slice a column": (
            lambda: tile.slice((64, 64), ((0, 64), 9)),
            lambda: peer.slice_and_offset((None, 9), theirs),
            3000,
        ),
        "compose": (
            lambda: compose(a, b),
            lambda: peer.compose(peer.Layout((4, 6), (1, 8)), peer.Layout(6, 4)),
            1000,
        ),
        "equality of two 8-iter layouts of size 2^40": (lambda: wide[0].equivalent(wide[1]), None, 2000),
        "recognise a table of 2^20 points": (lambda: recognise(table), None, 3),
    }


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for name, (ours, theirs, number) in questions().items():
        row = {"layoutalg_us": round(best(ours, number), 2)}
        if theirs is not None:
            row["tensor_layouts_us"] = round(best(theirs, max(1, number // 10)), 2)
            row["times_faster"] = round(row["tensor_layouts_us"] / row["layoutalg_us"], 2)
        rows[name] = row
        told = f"{row['tensor_layouts_us']:>11,.2f} us  {row['times_faster']:.1f}x" if theirs is not None else ""
        print(f"{name:<46}{row['layoutalg_us']:>12,.2f} us{told}", flush=True)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    processor = names[0] if names else platform.machine()
    report = {
        "machine": {"processor": processor, "python": sys.version.split()[0], "numpy": np.__version__},
        "tensor_layouts": getattr(peer, "__version__", ""),
        "questions": rows,
    }
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
