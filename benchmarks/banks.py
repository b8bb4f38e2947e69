"""How long one question about banks takes, next to tensor-layouts, in one process and one run.

    python benchmarks/banks.py benchmarks/results/banks.json

Both sides start from a layout and end with an answer about one warp.  tensor-layouts counts distinct words per bank
over one pool of lanes; ours knows access width, groups, merging, masks and alignment, and counts wavefronts as a
profiler does.  Rounds alternate, and the median round is reported, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tensor_layouts as peer
from tensor_layouts.analysis import bank_conflicts

from layoutalg import Swizzle, SwizzledLayout, TileLayout
from layoutalg.banks import WarpAccess, shared_report, simulate, simulate_many, warp_access

ROUNDS, REPEATS = 40, 25
LANES = TileLayout.parse("S[32:1@laneid]")


def _column_of_both() -> tuple[SwizzledLayout, Any]:
    tile = SwizzledLayout(Swizzle(3, 3, 3), TileLayout.parse("S[32,64]"))
    theirs = peer.compose(peer.Swizzle(3, 3, 3), peer.Layout((32, 64), (64, 1)))
    return tile, theirs


def cut_and_priced() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Column 0 of a swizzled half tile, one element a lane: cut it out of the tile, then price it."""
    tile, theirs = _column_of_both()

    def ours() -> Any:
        return simulate(warp_access(tile.slice((32, 64), ((0, 32), 0)), "f16"))

    return ours, lambda: bank_conflicts(theirs(None, 0), element_bytes=2)


def priced() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same column, cut out once beforehand by both sides: the price alone."""
    tile, theirs = _column_of_both()
    column, their_column = tile.slice((32, 64), ((0, 32), 0)), theirs(None, 0)
    return lambda: simulate(warp_access(column, "f16")), lambda: bank_conflicts(their_column, element_bytes=2)


def fragment_report() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same column with our longest answer: instructions and vector width found from a fragment layout."""
    tile, theirs = _column_of_both()
    column, their_column = tile.slice((32, 64), ((0, 32), 0)), theirs(None, 0)
    return lambda: shared_report(column, LANES, "f16"), lambda: bank_conflicts(their_column, element_bytes=2)


def known_addresses() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A padded float column: the addresses are known on our side, a strided layout on the other."""
    addresses = tuple(132 * lane for lane in range(32))
    theirs = peer.Layout(32, 33)

    def ours() -> Any:
        return simulate(WarpAccess("ld.shared", 4, addresses=addresses))

    return ours, lambda: bank_conflicts(theirs, element_bytes=4)


QUESTIONS = {
    "swizzled column, cut and priced": cut_and_priced,
    "swizzled column, priced": priced,
    "swizzled column, fragment report": fragment_report,
    "padded column, addresses known": known_addresses,
}


def measure(pair: tuple[Callable[[], Any], Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds per call of both sides, and how many times faster ours is."""
    rounds: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for side, question in zip(rounds, pair, strict=True):
            start = time.perf_counter()
            for _ in range(REPEATS):
                question()
            side.append((time.perf_counter() - start) / REPEATS * 1e6)
    ours, theirs = (statistics.median(side) for side in rounds)
    return {
        "layoutalg_us": round(ours, 1),
        "tensor_layouts_us": round(theirs, 1),
        "times_faster": round(theirs / ours, 1),
    }


def measure_batch() -> dict[str, float]:
    """A thousand accesses at once, milliseconds; nothing on the other side does this."""
    addresses = 4 * np.random.default_rng(0).integers(0, 8192, (1000, 32))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        simulate_many("ld.shared", 4, addresses=addresses)
        times.append((time.perf_counter() - start) * 1e3)
    return {"layoutalg_ms": round(statistics.median(times), 2)}


def processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Measure, print a table, write the results."""
    results: dict[str, Any] = {
        "machine": {"processor": processor(), "system": platform.system(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("numpy", "tensor-layouts")},
        "questions": {name: measure(make()) for name, make in QUESTIONS.items()},
        "1000 accesses at once": measure_batch(),
    }
    for name, found in results["questions"].items():
        ours, theirs = found["layoutalg_us"], found["tensor_layouts_us"]
        print(f"{name:34} {ours:8} us against {theirs:8} us: {found['times_faster']} x")
    print(f"1000 accesses at once: {results['1000 accesses at once']['layoutalg_ms']} ms")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(sys.argv[1]).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
