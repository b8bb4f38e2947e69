"""Copies that keep the innermost dimension: whole vectors move, nothing is rearranged inside them."""

from __future__ import annotations

import math
from types import MappingProxyType

from codegen_cuda.tensor.plan import VECTOR, TensorPlan, block_counts, divisor_bytes
from codegen_cuda.tensor.problem import Dim, TensorProblem
from codegen_cuda.tensor.text import ELEMENT, block_origin, constant, decode, guard, linear, unrolled

__all__ = ["emit_rows", "plan_rows"]

_THREADS = 256
_IN_FLIGHT = 8


def vector_bytes(problem: TensorProblem) -> int:
    """Return the widest access that every row of both sides allows."""
    inner = problem.dims[-1] if problem.dims else Dim(1, 1, 1)
    if len(problem.dims) == 1 and inner.src == inner.dst == 1 and inner.extent * problem.width >= VECTOR:
        return min(problem.src_align, problem.dst_align, VECTOR)  # one run, whose last elements are copied apart
    steps = [x * problem.width for d in problem.dims[:-1] for x in (d.src, d.dst)]
    run = inner.extent * problem.width if inner.src == inner.dst == 1 else problem.width
    steps += [] if inner.src == inner.dst == 1 else [inner.src * problem.width, inner.dst * problem.width]
    return divisor_bytes(run, *steps, problem.src_align, problem.dst_align, limit=VECTOR)


def plan_rows(problem: TensorProblem, *, threads: int = _THREADS, in_flight: int = _IN_FLIGHT) -> TensorPlan:
    """Plan a copy of vectors: the box grows along the inner run, then along either side's next dimension in turn."""
    width = vector_bytes(problem)
    per = max(width // problem.width, 1)
    budget = threads * in_flight
    box = [1] * len(problem.dims)
    left = budget
    if problem.dims:
        vectors = -(-problem.dims[-1].extent // per)
        taken = min(vectors, left)
        box[-1] = taken * per
        left //= taken
    outer = list(range(len(problem.dims) - 1))
    grow = [sorted(outer, key=lambda k: problem.dims[k].src), outer[::-1]]
    turn = 0
    while left >= 2 and any(box[k] < problem.dims[k].extent for k in outer):
        side = [k for k in grow[turn % 2] if box[k] < problem.dims[k].extent]
        turn += 1
        box[side[0]] = min(2 * box[side[0]], problem.dims[side[0]].extent)
        left = budget // max(math.prod(box) // per, 1)
    counts = block_counts(problem, tuple(box))
    order = tuple(reversed(range(len(box))))
    details = MappingProxyType({"vector_bytes": width})
    return TensorPlan("rows", threads, tuple(box), counts, order, 0, details)


def emit_rows(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    width = plan.details["vector_bytes"]
    per = width // problem.width
    inner = len(problem.dims) - 1
    digits, read, written, limits = [], [], [], []
    for k in reversed(range(len(problem.dims))):
        d, x = problem.dims[k], plan.box[k]
        step = per if k == inner else 1
        digits.append((f"c{k}", x // step))
        most = x // step - 1
        read.append((f"c{k}", most, d.src * problem.width * step))
        written.append((f"c{k}", most, d.dst * problem.width * step))
        if d.extent % x:
            at = f"c{k} * {step}u" if x // step > 1 else "0u"
            origin = f"o{k} + " if plan.counts[k] > 1 else ""
            limits.append(f"{origin}{at} < {constant(d.extent // step * step)}")
    total = math.prod(extent for _, extent in digits)
    trips = -(-total // plan.threads)
    bound = [f"i < {total}u"] if total % plan.threads else []
    head = [f"const u32 i = threadIdx.x + n * {plan.threads}u;", *decode("i", digits)]
    kind = ELEMENT[width]
    return [
        *block_origin(problem, plan),
        f"{kind} held[{trips}];",
        *unrolled(
            trips,
            [
                *head,
                f"if ({guard([*bound, *limits])})",
                f"    held[n] = *(const {kind}*)(src + src_base + ({linear(read)}));",
            ],
        ),
        *unrolled(
            trips,
            [
                *head,
                f"if ({guard([*bound, *limits])})",
                f"    *({kind}*)(dst + dst_base + ({linear(written)})) = held[n];",
            ],
        ),
        *_last_elements(problem, per),
    ]


def _last_elements(problem: TensorProblem, per: int) -> list[str]:
    """Copy what one run has beyond whole vectors, in the first block."""
    if len(problem.dims) != 1 or problem.dims[0].extent % per == 0:
        return []
    extent, width = problem.dims[0].extent, problem.width
    tail = extent % per
    at = f"{(extent - tail) * width}ull + threadIdx.x * {width}u"
    kind = ELEMENT[width]
    return [
        f"if (blockIdx.x == 0u && threadIdx.x < {tail}u)",
        f"    *({kind}*)(dst + {at}) = *(const {kind}*)(src + {at});",
    ]
