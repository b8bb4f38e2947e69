"""Every small wrong change to generated kernels, at every place: refused with a witness, or shown to be equivalent.

    python benchmarks/mutate_kernels.py benchmarks/results/ptx_mutants.json [NAME ...]

Kernels of all six permute forms at every width that each serves, and tensor-memory kernels of every shape, are compiled
by NVRTC and by nvcc for several architectures.  The unchanged kernel must be accepted by all checks, each mutant of
``verify.ptx.mutate`` refused by one of them, or equivalent by its accesses (``verify.mutation``).  A mutant that is
neither has survived, and the script fails.  Names select kernels whose name contains one of them; the file keeps its
rows of all others.  No GPU is needed.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from codegen_cuda import Kernel, permute_layout
from codegen_cuda.build import compile_ptx
from codegen_cuda.tmem import register_layout_for, tmem_copy, tmem_roundtrip
from layoutalg.claim import Claim
from layoutalg.hardware.dtypes import dtype
from layoutalg.tile import TileLayout
from verify.mutation import Judgement, accepted, judge_all
from verify.ptx.parse import parse

L = TileLayout.parse
DTYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "complex128"}
#: form -> source, destination, widths; small tiles, since every instruction is a place for mutants.
PERMUTES: dict[str, tuple[tuple[str, str, tuple[int, ...]], ...]] = {
    "xor": (
        ("S[(4,32):(32,1)]", "S[(4,32):(1,4)]", (2, 4)),
        ("S[(2,2,32):(64,32,1)]", "S[(2,2,32):(32,64,1)]", (8, 16)),
    ),
    "rotation": (("S[(7,11):(11,1)]", "S[(7,11):(11,1)]", (1, 2, 4, 8, 16)),),
    "gf2": (
        ("S[(2,4):(4,1)]", "S[(2,4):(1,2)]", (1, 2, 4, 8, 16)),
        ("S[(8,4,8):(32,8,1)]", "S[(8,4,8):(1,8,32)]", (4,)),
    ),
    "table": (("S[(3,5):(5,1)]", "S[(3,5):(1,3)]", (1, 2, 4, 8, 16)),),
    "vector": (("S[(8,8):(8,1)]", "S[(8,8):(1,8)]", (1, 2, 4, 8)),),
    "words": (
        ("S[(4,16):(16,1)]", "S[(4,16):(1,4)]", (1, 2)),
        ("S[(3,5):(5,1)]", "S[(3,5):(1,3)]", (1, 2)),
    ),
}
#: The full set of mutants for these; the unchanged kernels for all pairs.
MUTATED = (("nvrtc", "sm_90a"), ("nvcc", "sm_80"), ("nvrtc", "sm_100a"))
TARGETS = tuple((compiler, arch) for compiler in ("nvrtc", "nvcc") for arch in ("sm_80", "sm_90a", "sm_100a"))
TMEM_MUTATED = (("nvrtc", "sm_100a"), ("nvcc", "sm_100a"))
TMEM_TARGETS = (*TMEM_MUTATED, ("nvrtc", "sm_103a"))


class Subject(NamedTuple):
    """A kernel to be mutated."""

    name: str
    make: Callable[[], Kernel]
    mutated: tuple[tuple[str, str], ...]
    targets: tuple[tuple[str, str], ...]


def subjects() -> Iterator[Subject]:
    """All kernels of the suite."""
    for form, rows in PERMUTES.items():
        for source, destination, widths in rows:
            for width in widths:
                extents = "x".join(str(it.extent) for it in L(source).shard)
                make = partial(
                    permute_layout, L(source), L(destination), shape=_shape(source), dtype=DTYPES[width], plan=form
                )
                yield Subject(f"{form} {extents} {dtype(DTYPES[width]).name}", make, MUTATED, TARGETS)
    for name, make in tensor_memory().items():
        yield Subject(f"tmem {name}", make, TMEM_MUTATED, TMEM_TARGETS)


def _shape(layout: str) -> tuple[int, ...]:
    return tuple(int(it.extent) for it in L(layout).shard)


def tensor_memory() -> dict[str, Callable[[], Kernel]]:
    """Kernels of every shape, direction and way of packing."""
    rows = L("S[(128,4):(1@TLane,1@TCol)]")
    own = L("S[(128,4):(1@tid_in_wg,1)]")
    b = L("S[(64,2,4):(1@TLane,64@TLane,1@TCol)]"), L("S[(64,2,4):(1@tid_in_wg,64@tid_in_wg,1)]")
    split = L("S[(2,16,4):(8@TCol,1@TLane,1@TCol)]"), L("S[(2,16,4):(16@laneid,1@laneid,1)]")
    gaps = L("S[(128,8):(1@TLane,2@TCol)]"), L("S[(128,8):(1@tid_in_wg,1)]")
    found: dict[str, Callable[[], Kernel]] = {
        "round trip layout B": partial(tmem_roundtrip, *b, (64, 8), "f32"),
        "round trip two shapes": _two_shapes,
        "store packed": partial(tmem_copy, *gaps, (128, 8), "f16", direction="st"),
        "load packed": partial(tmem_copy, *gaps, (128, 8), "f16", direction="ld"),
        "store": partial(tmem_copy, rows, own, (128, 4), "f32", direction="st"),
    }
    for direction in ("st", "ld"):
        found[f"{direction} split"] = partial(tmem_copy, *split, (2, 16, 4), "f32", direction=direction, scope="warp")
        for shape in ("16x64b", "16x128b", "16x256b"):
            found[f"{direction} {shape}"] = partial(_sixteen_rows, shape, direction)
    return found


def _sixteen_rows(shape: str, direction: str) -> Kernel:
    tmem = L("S[(4,16,8):(32@TLane,1@TLane,1@TCol)]")
    registers = register_layout_for(tmem, (64, 8), "f32", shape)
    return tmem_copy(tmem, registers, (64, 8), "f32", direction=direction, instructions=[shape])


def _two_shapes() -> Kernel:
    tmem = L("S[(4,16,8):(32@TLane,1@TLane,1@TCol)]")
    store, load = (register_layout_for(tmem, (64, 8), "f32", shape) for shape in ("16x256b", "16x64b"))
    return tmem_roundtrip(tmem, store, (64, 8), "f32", load_register_layout=load)


def judged(text: str, claim: Claim, *, file: str) -> dict[str, Any]:
    """The table of one kernel: per operator its places and what became of the mutants."""
    started = time.process_time()
    operators: dict[str, Counter[str]] = {}
    others = []
    for judgement in judge_all(parse(text, file=file), claim):
        counts = operators.setdefault(judgement.mutant.operator, Counter())
        counts["sites"] += 1
        counts[_outcome(judgement)] += 1
        if judgement.verdict != "refused":
            others.append(_other(judgement))
    rows = {name: dict(sorted(counts.items())) for name, counts in sorted(operators.items())}
    return {
        "mutants": sum(row["sites"] for row in rows.values()),
        "equivalent": sum(1 for other in others if other["verdict"] == "equivalent"),
        "not understood": sum(1 for other in others if other["verdict"] == "not understood"),
        "survived": sum(1 for other in others if other["verdict"] == "survived"),
        "operators": rows,
        "not refused": others,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def _outcome(judgement: Judgement) -> str:
    return f"refused by {judgement.check}" if judgement.verdict == "refused" else judgement.verdict


def _other(judgement: Judgement) -> dict[str, Any]:
    mutant = judgement.mutant
    row = {"verdict": judgement.verdict, "operator": mutant.operator, "line": mutant.line, "change": mutant.change}
    return row | ({"proof": judgement.proof} if judgement.proof else {"check": judgement.check})


def examine(subject: Subject) -> Iterator[dict[str, Any]]:
    """One row per compiler and architecture."""
    kernel = subject.make()
    for compiler, arch in subject.targets:
        made = compile_ptx(kernel.source, arch=arch, name=f"{kernel.name}.cu", compiler=compiler)
        unchanged = accepted(made.text, kernel.claim)
        row = {
            "kernel": subject.name,
            "compiler": f"{made.compiler} {made.compiler_version}",
            "arch": arch,
            "unchanged": "accepted" if all(o.verdict.ok for o in unchanged) else "refused",
            "obligations": len(unchanged),
        }
        if (compiler, arch) in subject.mutated:
            row |= judged(made.text, kernel.claim, file=f"{kernel.name}.ptx")
        yield row


def main() -> int:
    """Judge all, write the table as it grows, and fail if a mutant survived or a kernel was refused."""
    path, names = Path(sys.argv[1]), sys.argv[2:]
    rows: list[dict[str, Any]] = json.loads(path.read_text())["kernels"] if names and path.exists() else []
    every = list(subjects())
    for subject in every:
        if names and not any(name in subject.name for name in names):
            continue
        rows = [row for row in rows if row["kernel"] != subject.name]
        for row in examine(subject):
            rows.append(row)
            counts = {key: row[key] for key in ("mutants", "equivalent", "not understood", "survived") if key in row}
            print(row["kernel"], row["compiler"], row["arch"], row["unchanged"], counts, flush=True)
        write(path, rows, [subject.name for subject in every])
    bad = [row for row in rows if row["unchanged"] != "accepted" or row.get("survived")]
    return 1 if bad else 0


def write(path: Path, rows: list[dict[str, Any]], order: list[str]) -> None:
    """The table so far, in the order of the suite."""
    totals = {key: sum(row.get(key, 0) for row in rows) for key in ("mutants", "equivalent", "survived")}
    results = {
        "machine": f"{platform.machine()}, no GPU used",
        "versions": {"z3-solver": version("z3-solver")},
        "total": totals | {"refused by": _totals(rows)},
        "kernels": sorted(rows, key=lambda row: order.index(row["kernel"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def _totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        for counts in row.get("operators", {}).values():
            found.update({k.removeprefix("refused by "): n for k, n in counts.items() if k.startswith("refused by ")})
    return dict(found.most_common())


if __name__ == "__main__":
    sys.exit(main())
