"""What a permute plan must satisfy, recomputed from the layouts' points and the bank rule in the simplest way there is.

Nothing here uses the library's simulator or planner: addresses come from ``apply`` or from plain arithmetic on strides,
wavefronts from sets of words per bank.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from codegen_cuda.permute import Operand
from codegen_cuda.permute.problem import Problem, pose
from layoutalg import TileLayout

LANES = 32
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DTYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "complex128"}


def benchmark(name: str) -> ModuleType:
    """A benchmark as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def strided(extents: Sequence[int], strides: Sequence[int]) -> TileLayout:
    """A plain layout."""
    return TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, strides, strict=True)])


def dense(extents: Sequence[int], order: Sequence[int]) -> TileLayout:
    """A layout without gaps whose memory order is ``order``, outermost first."""
    strides, step = [0] * len(extents), 1
    for d in reversed(order):
        strides[d] = step
        step *= extents[d]
    return strided(extents, strides)


def problem(source: Any, destination: Any, width: int, **options: Any) -> Problem:
    """A posed request."""
    settings = {"scope": "warp", "in_place": True, "max_registers": 512, **options}
    name = DTYPES[width]
    return pose(Operand(source, dtype=name), Operand(destination, dtype=name), **settings)


def places(layout: Any, width: int) -> np.ndarray:
    """Byte address of every element, from ``apply`` where that is cheap, else from the table."""
    if layout.size <= 64:
        return np.array([layout.apply(i).get("m", 0) * width for i in range(layout.size)])
    return layout.table()["m"] * width


def bound(addresses: np.ndarray, width: int) -> int:
    """The most units that one bank (pair, quad) holds."""
    unit = max(width, 4)
    held: dict[int, set[int]] = {}
    for word in {int(a) // unit for a in addresses}:
        held.setdefault(word % (128 // unit), set()).add(word)
    return max(len(words) for words in held.values())


def wavefronts(op: str, width: int, addresses: Sequence[int | None]) -> int:
    """The bank rule for one instruction, lane by lane; None for an idle lane."""
    active = [lane for lane in range(LANES) if addresses[lane] is not None]
    size = min(LANES, 128 // max(width, 4))
    if op == "ld.shared" and width >= 8:
        for step in (1, 2):
            if all(addresses[lane ^ step] in (None, addresses[lane]) for lane in active):
                size *= 2
                break
    total = 0
    for start in range(0, LANES, size):
        banks: dict[int, set[int]] = {}
        for lane in active:
            if start <= lane < start + size:
                for byte in range(0, max(width, 4), 4):
                    word = (addresses[lane] + byte) // 4
                    banks.setdefault(word % 32, set()).add(word)
        total += max((len(words) for words in banks.values()), default=0)
    return total


def instructions(plan: Any, phase: str, width: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Width and elements [lane][position] of every instruction of a phase."""
    listed = plan.reads if phase == "read" else plan.writes
    if listed:
        for access in listed:
            yield access.width, [list(lane) for lane in access.elements]
    else:
        for row in plan.slots:
            yield width, [[e] for e in row]


def check_plan(request: Problem, plan: Any) -> tuple[int, int, int, int]:
    """Check that the plan moves every element once, by one thread, through consecutive aligned accesses.

    Returns the recomputed wavefronts and lower bounds: read, write, bound of read, bound of write.
    """
    carriers: dict[str, dict[int, int]] = {}
    costs: list[int] = []
    bounds: list[int] = []
    for phase, layout, op in (
        ("read", request.source, "ld.shared"),
        ("write", request.destination, "st.shared"),
    ):
        at = places(layout, request.width)
        at = at - at.min() // 128 * 128
        seen: dict[int, int] = {}
        total = 0
        for number, (width, lanes) in enumerate(instructions(plan, phase, request.width)):
            addresses: list[int | None] = []
            for lane, elements in enumerate(lanes):
                assert len(elements) * request.width == width
                starts = {int(at[e]) - k * request.width for k, e in enumerate(elements) if e >= 0}
                assert len(starts) <= 1, "the elements of an access lie one after another"
                addresses.append(starts.pop() if starts else None)
                assert addresses[-1] is None or addresses[-1] % width == 0
                for e in elements:
                    if e >= 0:
                        assert e not in seen
                        seen[e] = lane + LANES * (number % plan.warps)
            total += wavefronts(op, width, addresses)
        assert sorted(seen) == list(range(request.size))
        carriers[phase] = seen
        costs.append(total)
        bounds.append(bound(at, request.width))
    assert carriers["read"] == carriers["write"], "a thread writes what it read"
    assert (plan.read.wavefronts, plan.write.wavefronts) == tuple(costs)
    assert (plan.read.lower_bound, plan.write.lower_bound) == tuple(bounds)
    table = plan.table()
    assert sorted(table[table >= 0].tolist()) == list(range(request.size))
    return (*costs, *bounds)


def bit_permutation(bits: Sequence[int]) -> tuple[TileLayout, TileLayout]:
    """Row-major source, destination with index bit k at address bit ``bits[k]``."""
    n = len(bits)
    extents = (2,) * n
    return dense(extents, range(n)), strided(extents, [1 << b for b in bits])


def smooth_shapes(primes: Sequence[int], largest: int) -> list[tuple[int, int, int]]:
    """Shapes of three axes whose extents have only these prime factors, of at most ``largest`` elements, each >= 2."""

    def is_smooth(n: int) -> bool:
        for p in primes:
            while n % p == 0:
                n //= p
        return n == 1

    extents = [n for n in range(2, largest + 1) if is_smooth(n)]
    return [s for s in itertools.product(extents, repeat=3) if math.prod(s) <= largest]
