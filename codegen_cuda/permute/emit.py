"""From a plan to header-free CUDA C++: a device function to paste and a harness kernel to check and run.

The device function takes shared-memory pointers and the lane, reads its registers, synchronises the warp, writes, and
synchronises again, so that the caller may use the result at once and source and destination may be the same memory.
The harness stages a buffer through shared memory: global -> shared, the permute for every stage, shared -> global.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import replace

from codegen_cuda.access import Pointer
from codegen_cuda.body import Body, Function, If, ScalarParam, Statement, Store, Sync, compare, let, loop, thread_id
from codegen_cuda.buffers import Buffer, alloc, declare, match
from codegen_cuda.expr import Expr
from codegen_cuda.permute.blocks import block_body
from codegen_cuda.permute.bodies import Phases, Sides, moved_dtype, slot_body, word_pointer
from codegen_cuda.permute.joining import may_join
from codegen_cuda.permute.lanes import lane_body
from codegen_cuda.permute.linear import linear_sides
from codegen_cuda.permute.packing import pack_problem, wide_plan
from codegen_cuda.permute.plan import LANES, Phase, Plan
from codegen_cuda.permute.problem import Problem
from codegen_cuda.permute.task import Task, task_of
from layoutalg.claim import BankPromise, Claim
from layoutalg.claim import Buffer as Param

__all__ = ["ALIGN", "claim_of", "emit_permute", "kernel_name"]

#: Alignment of the harness's buffers in bytes, and what the device function asks of its base pointers at least.
ALIGN = 16
_STATIC_LIMIT = 48 * 1024
_UNROLLED = 64


def kernel_name(problem: Problem, form: str) -> str:
    """Return a readable identifier: ``permute_4x32_float32_xor``."""
    extents = "x".join(map(str, problem.extents)) or "1"
    shared = f"_{problem.warps}warps" if problem.warps > 1 else ""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"permute_{extents}_{problem.dtype.name}_{form}{shared}")


def claim_of(problem: Problem, plan: Plan, name: str) -> Claim:
    """Return what the harness kernel promises, in terms of the layouts."""
    low, high = problem.span()
    buffers = tuple(
        Param(param, role, problem.dtype.name, low, high - low, ALIGN)
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
            _promise(name, cost, plan)
            for name, cost, layout, listed in (
                ("read", plan.read, problem.source, plan.reads),
                ("write", plan.write, problem.destination, plan.writes),
            )
            if cost.uniform and not may_join(problem, plan, layout, listed)
        ),
    )


def _promise(phase: str, cost: Phase, plan: Plan) -> BankPromise:
    return BankPromise(phase, cost.op, cost.wavefronts, cost.excess, plan.warps)


def emit_permute(problem: Problem, plan: Plan, name: str) -> str:
    """Return the CUDA source: comment block, tables, device function ``NAME_device``, harness kernel ``NAME``."""
    return body_of(problem, plan, name).source


def body_of(problem: Problem, plan: Plan, name: str) -> Body:
    """Return the harness kernel."""
    sides = _sides(problem)
    phases = phases_of(problem, plan, name, sides)
    device = _device(problem, phases, name, sides)
    statements = _harness(problem, device)
    source, target = (
        match(side, (problem.span()[1] - problem.span()[0],), moved_dtype(problem), align=ALIGN, pointer=side)
        for side in ("src", "dst")
    )
    return Body(
        name,
        (source, target),
        statements,
        threads=LANES * problem.warps,
        tables=phases.tables,
        comment=_header(problem, plan),
    )


def _sides(problem: Problem) -> Sides:
    """Return the shared memory that the device function gets: coordinate 0 of either side."""
    kind = moved_dtype(problem)
    source, target = (
        declare(name, (1,), kind, data=Pointer(name, kind, "shared", max(ALIGN, problem.width)))
        for name in ("src", "dst")
    )
    return source, target


def phases_of(problem: Problem, plan: Plan, name: str, sides: Sides) -> Phases:
    """Return the statements that are the plan's own."""
    if plan.form not in ("vector", "words"):
        return slot_body(problem, plan, name, sides)
    task = task_of(problem)
    if "pack" in plan.details:
        return _packed(problem, plan, task, name, sides)
    if "jobs" in plan.details:
        return lane_body(problem, plan, task, name, sides)
    linear = linear_sides(task)
    assert linear is not None
    return block_body(problem, plan, task, linear, sides)


def _packed(problem: Problem, plan: Plan, task: Task, name: str, sides: Sides) -> Phases:
    """Return the statements of a plan on wider elements, through pointers to them."""
    packed = pack_problem(problem, task, plan.details["pack"])
    assert packed is not None
    wide = wide_plan(packed[0])
    assert wide is not None
    if packed[0].width < 4 and wide.registers < len(wide.slots):
        return slot_body(packed[0], wide, name, sides)
    kind = moved_dtype(packed[0])
    (bind_in, source), (bind_out, target) = (
        word_pointer(pointer, kind, side) for pointer, side in zip(("in", "out"), sides, strict=True)
    )
    phases = slot_body(packed[0], wide, name, (source, target))
    return replace(phases, setup=(bind_in, bind_out, *phases.setup))


def _header(problem: Problem, plan: Plan) -> list[str]:
    details = ", ".join(f"{key} = {value}" for key, value in plan.details.items())
    return [
        f"source       {problem.source}",
        f"destination  {problem.destination}",
        f"{problem.size} elements of {problem.dtype.name} per stage, row-major over {problem.extents or (1,)}",
        f"form         {plan.form}" + (f" ({details})" if details else ""),
        *(
            f"{phase:<12} {cost.wavefronts} wavefronts, {cost.excess} in excess, lower bound {cost.lower_bound}"
            for phase, cost in (("read", plan.read), ("write", plan.write))
        ),
        f"registers    {plan.registers} of 32 bits per lane",
        *(line for candidate in plan.candidates for line in _considered(str(candidate).partition("; other forms")[0])),
        "Certification proves: every element is carried by exactly one lane and register; every destination receives",
        "the source's element; no stage disturbs a later one; both phases cost the wavefronts stated here, for every",
        "stage and base address (less where the compiler joins narrow accesses); and of the compiled PTX, that it does",
        "all that for all data.",
        f"Base pointers of the device function: shared memory, aligned to {max(ALIGN, problem.width)} bytes.",
    ]


def _considered(text: str) -> list[str]:
    return textwrap.wrap(f"considered   {text}", 117, subsequent_indent=" " * 13, break_on_hyphens=False)


def _device(problem: Problem, phases: Phases, name: str, sides: Sides) -> Function:
    source, target = sides
    barrier = _barrier(problem)
    statements = [*phases.setup, *phases.reads, barrier, *phases.between, *phases.writes, barrier]
    return Function(f"{name}_device", (target, source, *_variables(problem)), statements)


def _variables(problem: Problem) -> tuple[ScalarParam, ...]:
    """Return the integers that the device function takes: lane, warp, stages."""
    warp = [ScalarParam("warp", 0, problem.warps - 1)] if problem.warps > 1 else []
    return (
        ScalarParam("lane", 0, LANES - 1),
        *warp,
        *(ScalarParam(p.name, p.begin, p.end - 1) for p in problem.params),
    )


def _barrier(problem: Problem) -> Sync:
    return Sync("warp" if problem.warps == 1 else "block")


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


def _staging(target: Buffer, origin: Buffer, thread: Expr, threads: int) -> list[Statement]:
    """Copy a buffer with all threads: whole rows, then the tail."""
    rows, tail = divmod(target.shape[0], threads)
    statements: list[Statement] = []
    if rows:

        def copy(i: Expr) -> list[Statement]:
            return [Store(target[i * threads + thread], origin[i * threads + thread])]

        statements.append(loop("i", rows, copy, unroll=_is_short(rows)))
    if tail:
        at = thread.within(0, tail - 1) + rows * threads
        statements.append(If(compare(thread, "<", tail), (Store(target[at], origin[at]),)))
    return statements


def _is_short(trips: int) -> bool:
    """Unroll short loops wholly and long ones not at all: both leave code that is easy to follow and to check."""
    return trips <= _UNROLLED


def _harness(problem: Problem, device: Function) -> list[Statement]:
    kind, threads = moved_dtype(problem), LANES * problem.warps
    low, high = problem.span()
    count, lead, kept = high - low, _lead(problem), _kept(problem)
    scope = "shared.dyn" if _is_dynamic(problem) else "shared"
    length = _shared_bytes(problem) // problem.width
    shared = alloc("buffer", (length,), kind, scope=scope, align=max(ALIGN, problem.width), pointer="buffer")

    def view(place: int, size: int = 1) -> Buffer:
        return declare("buffer", (size,), kind, data=shared.data, elem_offset=place)

    # Coordinate 0 of each side, and coordinate `low`, which is the first of the buffers.
    target, origin = view(lead), view(lead if problem.in_place else lead + kept)
    source, result = (match(side, (count,), kind, align=ALIGN, pointer=side) for side in ("src", "dst"))
    first = view(lead + low, count)
    second = None if problem.in_place else view(kept + lead + low, count)
    thread = thread_id("lane" if problem.warps == 1 else "thread", threads)
    names = (
        [thread] if problem.warps == 1 else [thread, let("lane", thread.var % LANES), let("warp", thread.var // LANES)]
    )
    stages: list[Statement] = [device.call(target, origin, *(p.var for p in _variables(problem)))]
    trips = math.prod(p.end - p.begin for p in problem.params)
    for p in reversed(problem.params):
        inner = stages
        stages = [loop(p.name, p.end - p.begin, lambda _, inner=inner: inner, unroll=_is_short(trips), begin=p.begin)]
    return [
        shared,
        *names,
        *_staging(first, source, thread.var, threads),
        *(_staging(second, source, thread.var, threads) if second is not None else []),
        _barrier(problem),
        *stages,
        *_staging(result, first, thread.var, threads),
    ]
