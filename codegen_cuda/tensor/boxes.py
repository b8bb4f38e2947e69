"""The strategy that serves every request: boxes moved element by element through shared memory.

Elements are read in the order of the source and written in the order of the destination, so that both sides see
contiguous runs wherever the box has them; nothing is asked of extents, strides or alignment.
"""

from __future__ import annotations

import math
from types import MappingProxyType

from codegen_cuda.tensor.plan import TensorPlan, block_counts
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import ELEMENT, block_origin, constant, decode, guard, linear, unrolled

__all__ = ["emit_boxes", "plan_boxes"]

_BATCH = 8
_BANK_ROW = 128


def plan_boxes(problem: TensorProblem, *, threads: int = 256, elements: int = 0) -> TensorPlan:
    """Plan boxes that lengthen the shorter of the two sides' contiguous runs until the budget is spent."""
    dims = problem.dims
    budget = elements or min(8192, 32768 // problem.width)
    read = sorted(range(len(dims)), key=lambda k: (dims[k].src == 0, dims[k].src))
    written = sorted(range(len(dims)), key=lambda k: dims[k].dst)
    box = [1] * len(dims)
    while True:
        sides = sorted((read, written), key=lambda side: _run(problem, box, side))
        grow = [k for side in sides for k in side if box[k] < dims[k].extent]
        fits = [k for k in grow if math.prod(box) // box[k] * min(2 * box[k], dims[k].extent) <= budget]
        if not fits:
            break
        box[fits[0]] = min(2 * box[fits[0]], dims[fits[0]].extent)
    counts = block_counts(problem, tuple(box))
    details = MappingProxyType({"read": tuple(read)})
    return TensorPlan("boxes", threads, tuple(box), counts, tuple(written), _bytes(problem, box), details)


def _run(problem: TensorProblem, box: list[int], order: list[int]) -> int:
    """Elements of the box's run along a side's dimensions."""
    run = 1
    for k in order:
        run *= box[k]
        if box[k] < problem.dims[k].extent:
            break
    return run


def _per_row(problem: TensorProblem) -> int:
    return _BANK_ROW // problem.width


def _pad(problem: TensorProblem) -> int:
    """Elements of padding after each row of banks: at least a word."""
    return max(4 // problem.width, 1)


def _bytes(problem: TensorProblem, box: list[int]) -> int:
    total = math.prod(box)
    return (total + total // _per_row(problem) * _pad(problem)) * problem.width


def emit_boxes(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    read, written = plan.details["read"], plan.order
    steps: dict[int, int] = {}
    reach = 1
    for k in read:
        steps[k] = reach
        reach *= plan.box[k]
    kind = ELEMENT[problem.width]
    place = f"(p + p / {_per_row(problem)}u * {_pad(problem)}u) * {problem.width}u"
    position = linear([(f"c{k}", plan.box[k] - 1, steps[k]) for k in read])
    offsets = {
        side: linear([(f"c{k}", plan.box[k] - 1, getattr(problem.dims[k], side) * problem.width) for k in read])
        for side in ("src", "dst")
    }
    load = (
        read,
        f"held[n] = *(const {kind}*)(src + src_base + ({offsets['src']}));",
        f"const u32 p = i; *({kind}*)(tile + {place}) = held[n];",
    )
    store = (
        written,
        f"const u32 p = {position}; held[n] = *(const {kind}*)(tile + {place});",
        f"*({kind}*)(dst + dst_base + ({offsets['dst']})) = held[n];",
    )
    phases = [_phase(problem, plan, kind, *phase) for phase in (load, store)]
    return [*block_origin(problem, plan), *phases[0], "__syncthreads();", *phases[1]]


def _phase(
    problem: TensorProblem, plan: TensorPlan, kind: str, order: tuple[int, ...], first: str, second: str
) -> list[str]:
    """Move the box's elements in an order, in batches that are all in flight at once."""
    total = math.prod(plan.box)
    trips = -(-total // plan.threads)
    limits = [f"i < {total}u"] if total % plan.threads else []
    limits += [
        f"o{k} + {f'c{k}' if plan.box[k] > 1 else '0u'} < {constant(problem.dims[k].extent)}"
        for k in order
        if problem.dims[k].extent % plan.box[k]
    ]
    digits = decode("i", [(f"c{k}", plan.box[k]) for k in order])
    lines: list[str] = []
    for begin in range(0, trips, _BATCH):
        count = min(_BATCH, trips - begin)
        at = "n" if begin == 0 else f"(n + {begin}u)"
        head = [f"const u32 i = threadIdx.x + {at} * {plan.threads}u;", *digits]
        lines += [
            "{",
            f"    {kind} held[{count}];",
            *("    " + x for x in unrolled(count, [*head, f"if ({guard(limits)}) {{ {first} }}"])),
            *("    " + x for x in unrolled(count, [*head, f"if ({guard(limits)}) {{ {second} }}"])),
            "}",
        ]
    return lines
