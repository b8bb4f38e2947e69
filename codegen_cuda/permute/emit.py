"""From a plan to header-free CUDA C++: a device function to paste and a harness kernel to check and run.

The device function takes shared-memory pointers and the lane, reads its registers, synchronises the warp, writes, and
synchronises again, so that the caller may use the result at once and source and destination may be the same memory.
The harness stages a buffer through shared memory: global -> shared, the permute for every stage, shared -> global.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from codegen_cuda.permute.blocks import block_body
from codegen_cuda.permute.bodies import Body, moved_type, slot_body
from codegen_cuda.permute.lanes import lane_body
from codegen_cuda.permute.linear import linear_sides
from codegen_cuda.permute.packing import pack_problem, wide_plan
from codegen_cuda.permute.plan import LANES, Phase, Plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Task, task_of
from layoutalg.claim import BankPromise, Buffer, Claim

__all__ = ["ALIGN", "claim_of", "emit_permute", "kernel_name"]

#: Alignment of the harness's buffers in bytes, and what the device function asks of its base pointers at least.
ALIGN = 16
_STATIC_LIMIT = 48 * 1024
_UNROLLED = 64

# __block_size__ puts the exact block shape into the PTX; compilers have it from compute capability 9.0 on.
_LAUNCH_SHAPE = """\
#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
"""


def kernel_name(problem: Problem, form: str) -> str:
    """Return a readable identifier: ``permute_4x32_float32_xor``."""
    extents = "x".join(map(str, problem.extents)) or "1"
    shared = f"_{problem.warps}warps" if problem.warps > 1 else ""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"permute_{extents}_{problem.dtype.name}_{form}{shared}")


def claim_of(problem: Problem, plan: Plan, name: str) -> Claim:
    """Return what the harness kernel promises, in terms of the layouts."""
    low, high = problem.span()
    buffers = tuple(
        Buffer(param, role, problem.dtype.name, low, high - low, ALIGN)
        for param, role in (("src", "input"), ("dst", "output"))
    )
    return Claim(
        entry=name,
        dtype=problem.dtype.name,
        grid=(1, 1, 1),
        block=(LANES * problem.warps, 1, 1),
        dynamic_shared_bytes=_shared_bytes(problem) if _is_dynamic(problem) else 0,
        params=buffers,
        moves=(problem.move,),
        frame="carried",
        banks=tuple(
            _promise(name, cost, plan) for name, cost in (("read", plan.read), ("write", plan.write)) if cost.uniform
        ),
    )


def _promise(phase: str, cost: Phase, plan: Plan) -> BankPromise:
    return BankPromise(phase, cost.op, cost.wavefronts, cost.excess, plan.warps)


def emit_permute(problem: Problem, plan: Plan, name: str) -> str:
    """Return the CUDA source: comment block, tables, device function ``NAME_device``, harness kernel ``NAME``."""
    body = body_of(problem, plan, name)
    parts = [_header(problem, plan), *(line + "\n" for line in body.declarations)]
    return "\n".join([*parts, _device(problem, body, name), _LAUNCH_SHAPE, _harness(problem, name)])


def body_of(problem: Problem, plan: Plan, name: str) -> Body:
    """Return the code that is the plan's own."""
    if plan.form not in ("vector", "words"):
        return slot_body(problem, plan, name)
    task = task_of(problem)
    if "pack" in plan.details:
        return packed_body(problem, plan, task, name)
    if "jobs" in plan.details:
        return lane_body(problem, plan, task, name)
    sides = linear_sides(task)
    assert sides is not None
    return block_body(problem, plan, task, sides)


def packed_body(problem: Problem, plan: Plan, task: Task, name: str) -> Body:
    """Return the code of a plan on wider elements, with pointers to them."""
    packed = pack_problem(problem, task, plan.details["pack"])
    assert packed is not None
    wide = wide_plan(packed[0])
    assert wide is not None
    body = slot_body(packed[0], wide, name)
    if any(" in = " in line for line in body.setup):
        return body
    kind = moved_type(packed[0])
    pointers = (
        f"const {kind}* in = reinterpret_cast<const {kind}*>(src);",
        f"{kind}* out = reinterpret_cast<{kind}*>(dst);",
    )
    return replace(
        body,
        setup=(*pointers, *body.setup),
        reads=tuple(line.replace(" src[", " in[") for line in body.reads),
        writes=tuple(re.sub(r"\bdst\[", "out[", line) for line in body.writes),
    )


def _header(problem: Problem, plan: Plan) -> str:
    details = ", ".join(f"{key} = {value}" for key, value in plan.details.items())
    lines = [
        f"source       {problem.source}",
        f"destination  {problem.destination}",
        f"{problem.size} elements of {problem.dtype.name} per stage, row-major over {problem.extents or (1,)}",
        f"form         {plan.form}" + (f" ({details})" if details else ""),
        *(
            f"{phase:<12} {cost.wavefronts} wavefronts, {cost.excess} in excess, lower bound {cost.lower_bound}"
            for phase, cost in (("read", plan.read), ("write", plan.write))
        ),
        f"registers    {plan.registers} of 32 bits per lane",
        *(f"considered   {str(candidate).partition('; other forms')[0]}" for candidate in plan.candidates),
        "Certification proves: every element is carried by exactly one lane and register; every destination receives",
        "the source's element; no stage disturbs a later one; both phases cost the wavefronts stated here, for every",
        "stage and base address; and of the compiled PTX, that it does all that for all data.",
        f"Base pointers of the device function: shared memory, aligned to {max(ALIGN, problem.width)} bytes.",
    ]
    return "\n".join("// " + line for line in lines) + "\n"


def _device(problem: Problem, body: Body, name: str) -> str:
    kind = moved_type(problem)
    variables = ["lane", *(["warp"] if problem.warps > 1 else []), *(p.name for p in problem.params)]
    arguments = "".join(f", int {variable}" for variable in variables)
    barrier = _barrier(problem)
    lines = [*body.setup, *body.reads, barrier, *body.between, *body.writes, barrier]
    head = f"__device__ __forceinline__ void {name}_device({kind}* dst, const {kind}* src{arguments}) {{"
    return "\n".join([head, *("    " + line for line in lines), "}"]) + "\n"


def _barrier(problem: Problem) -> str:
    return "__syncwarp();" if problem.warps == 1 else "__syncthreads();"


def _is_dynamic(problem: Problem) -> bool:
    return _shared_bytes(problem) > _STATIC_LIMIT


def _lead(problem: Problem) -> int:
    """Return how many elements lie before coordinate 0 in shared memory: that one is aligned like a base pointer."""
    per = max(1, ALIGN // problem.width)
    return -(problem.span()[0] // per) * per


def _kept(problem: Problem) -> int:
    """Return how many elements one copy of the buffers takes in shared memory, whole multiples of the alignment."""
    count, per = problem.span()[1] + _lead(problem), max(1, ALIGN // problem.width)
    return count if problem.in_place else -(-count // per) * per


def _shared_bytes(problem: Problem) -> int:
    return _kept(problem) * problem.width * (1 if problem.in_place else 2)


def _staging(target: str, origin: str, count: int, threads: int) -> list[str]:
    """Copy a buffer with all threads: whole rows, then the tail."""
    rows, tail = divmod(count, threads)
    index = "lane" if threads == LANES else "thread"
    lines = []
    if rows:
        head = f"{_unroll(rows, 1)}    for (int i = 0; i < {rows}; ++i)"
        lines.append(f"{head} {target}[i * {threads} + {index}] = {origin}[i * {threads} + {index}];")
    if tail:
        at = f"{rows * threads} + {index}"
        lines.append(f"    if ({index} < {tail}) {target}[{at}] = {origin}[{at}];")
    return lines


def _unroll(trips: int, depth: int) -> str:
    """Unroll short loops wholly and long ones not at all: both leave code that is easy to follow and to check."""
    return f"{'    ' * depth}#pragma unroll{'' if trips <= _UNROLLED else ' 1'}\n"


def _harness(problem: Problem, name: str) -> str:
    kind, threads = moved_type(problem), LANES * problem.warps
    low, high = problem.span()
    count, lead, kept = high - low, _lead(problem), _kept(problem)
    shared = (
        f"    extern __shared__ __align__({ALIGN}) {kind} buffer[];"
        if _is_dynamic(problem)
        else f"    __shared__ __align__({ALIGN}) {kind} buffer[{_shared_bytes(problem) // problem.width}];"
    )

    def at(place: int) -> str:
        return f"(buffer + {place})" if place else "buffer"

    # Coordinate 0 of each side, and coordinate `low`, which is the first of the buffers.
    target, origin = at(lead), at(lead if problem.in_place else lead + kept)
    first = at(lead + low)
    second = [] if problem.in_place else _staging(at(kept + lead + low), "src", count, threads)
    variables = ["lane", *(["warp"] if problem.warps > 1 else []), *(p.name for p in problem.params)]
    stages = math.prod(p.end - p.begin for p in problem.params)
    loops = [
        f"{_unroll(stages, depth)}{'    ' * depth}for (int {p.name} = {p.begin}; {p.name} < {p.end}; ++{p.name})"
        for depth, p in enumerate(problem.params, start=1)
    ]
    one = ["    const int lane = threadIdx.x;"]
    several = ["    const int thread = threadIdx.x;", "    const int lane = thread & 31, warp = thread >> 5;"]
    lines = [
        f'extern "C" __global__ void LAUNCH_SHAPE({threads})',
        f"{name}(const {kind}* __restrict__ src, {kind}* __restrict__ dst) {{",
        shared,
        *(one if problem.warps == 1 else several),
        *_staging(first, "src", count, threads),
        *second,
        "    " + _barrier(problem),
        *loops,
        f"{'    ' * (len(loops) + 1)}{name}_device({', '.join([target, origin, *variables])});",
        *_staging("dst", first, count, threads),
        "}",
    ]
    return "\n".join(lines) + "\n"
