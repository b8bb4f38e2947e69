"""Choosing: which strategy serves a request and with what tile, and the few candidates that tuning measures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codegen_cuda.errors import PlanError
from codegen_cuda.tensor.boxes import plan_boxes
from codegen_cuda.tensor.plan import VECTOR, TensorPlan, divisor_bytes, even_split
from codegen_cuda.tensor.problem import Dim, TensorProblem
from codegen_cuda.tensor.rows import plan_rows, vector_bytes
from codegen_cuda.tensor.thin import MOST_THIN, plan_thin
from codegen_cuda.tensor.tile_shape import Shape, make_shape, plan_tiles, shape_of
from layoutalg.hardware.dtypes import dtype

__all__ = ["STRATEGIES", "candidates", "choose", "contiguous", "tile_shape", "widen"]

STRATEGIES = ("rows", "thin", "tiles", "boxes")
_CARRIER = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
_SHARED_LIMIT = 96 * 1024
_LARGE = 48 * 1024
_SHORT_RUN = 32
_WIDE_ENOUGH = 8
_EDGE_RUN = 1024
_BUSY = 0.75
_JOINED_RUN = 1024
_FEW = 4
_BETTER_TILED = (5, 6, 7)
_MANY_BLOCKS = 2000
_LONG_BOX = 32 * 1024

#: Tile extents along a and b, by element width, where every destination row starts at a multiple of 16 bytes.
_TARGETS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((256, 256), (128, 128), (128, 256)),
    2: ((128, 128), (64, 128), (128, 256)),
    4: ((64, 64), (64, 128), (32, 64)),
    8: ((32, 32), (64, 32), (32, 64)),
    16: ((16, 32), (32, 32), (16, 16)),
}
#: The same where rows start anywhere; the tile lies in shared memory twice.
_EDGE_TARGETS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((128, 128), (64, 128), (128, 64)),
    2: ((128, 64), (64, 128), (64, 64)),
    4: ((64, 64), (128, 32), (32, 64)),
    8: ((64, 32), (32, 64), (32, 32)),
    16: ((32, 32), (32, 16), (16, 32)),
}
#: Where the pieces of such rows start that blocks own, in bytes.
_EDGES: dict[int, int] = {1: 16, 2: 16, 4: 32, 8: 32, 16: 64}


def widen(problem: TensorProblem) -> TensorProblem:
    """Return the same request in the widest units that stay together on both sides.

    Law: the bytes that move, and whither, are the same.

    >>> from codegen_cuda.tensor.problem import layouts_of_permutation, pose_tensor
    >>> pixels = pose_tensor(*layouts_of_permutation((5, 6, 4), (1, 0, 2)), shape=(5, 6, 4), dtype_name="f32")
    >>> widen(pixels).dims, widen(pixels).width
    ((Dim(extent=6, src=1, dst=5), Dim(extent=5, src=6, dst=1)), 16)
    """
    width = problem.width
    if not problem.dims or problem.dims[-1].src != 1 or problem.dims[-1].dst != 1:
        return problem
    unit = vector_bytes(problem)
    per = unit // width
    if per <= 1 or problem.dims[-1].extent % per:
        return problem
    inner = problem.dims[-1].extent // per
    outer = [Dim(d.extent, d.src // per, d.dst // per) for d in problem.dims[:-1]]
    dims = (*outer, Dim(inner, 1, 1)) if inner > 1 else tuple(outer)
    return replace(problem, dims=dims, dtype=dtype(_CARRIER[unit]))


def choose(problem: TensorProblem, strategy: str = "auto") -> TensorPlan:
    """Return the plan that the heuristics prefer, of the named strategy if one is named.

    Raises:
        PlanError: the strategy does not serve the request.
    """
    if strategy not in ("auto", *STRATEGIES):
        raise PlanError(f"permute_tensor: no strategy {strategy!r}; auto, {', '.join(STRATEGIES)}", rule="strategy")
    for plan in candidates(problem):
        if strategy in ("auto", plan.strategy):
            return plan
    if strategy == "boxes":
        return plan_boxes(problem)
    raise PlanError(
        f"permute_tensor: strategy {strategy!r} does not serve loops {problem.dims} of {problem.width}-byte elements; "
        "strategy='auto' finds one that does",
        rule="strategy",
    )


def candidates(problem: TensorProblem) -> Iterator[TensorPlan]:
    """Yield the plans worth measuring for a widened problem, the preferred one first; the last serves everything."""
    dims = problem.dims
    if not dims or (dims[-1].src == 1 and dims[-1].dst == 1):
        yield from _kept(problem)
        return
    a, b = contiguous(problem, "src"), contiguous(problem, "dst")
    if a >= 0 and b >= 0:
        yield from _thin(problem, a, b)
        tiles = list(_tiled(problem, a, b))
        if not (tiles and _in_pieces(problem, b, shape_of(tiles[0]))):
            yield from tiles
            yield plan_boxes(problem)
        else:
            yield plan_boxes(problem)
            yield from tiles
        return
    yield plan_boxes(problem)


def _in_pieces(problem: TensorProblem, b: int, shape: Shape) -> bool:
    """Whether tiles would store pieces of short destination rows, where boxes gather whole vectors across rows."""
    run = problem.dims[b].extent * problem.width
    return run < (_EDGE_RUN if shape.edge else 0 if shape.joined else _SHORT_RUN)


def _kept(problem: TensorProblem) -> Iterator[TensorPlan]:
    """Plans where the innermost dimension stays: rows of whole vectors, or boxes where rows are odd or short."""
    dims = problem.dims
    run = (dims[-1].extent if dims else 1) * problem.width
    rows = [plan_rows(problem, in_flight=n) for n in (2, 4, 8)]
    rows.sort(key=lambda plan: plan.used(vector_bytes(problem) // problem.width) < _BUSY)
    if len(dims) <= 1 or (run >= _SHORT_RUN and vector_bytes(problem) >= _WIDE_ENOUGH):
        yield from rows
        yield plan_boxes(problem)
    else:
        yield plan_boxes(problem)
        yield from rows


def contiguous(problem: TensorProblem, side: str) -> int:
    """The dimension whose step is one element on a side, or -1."""
    return next((k for k, d in enumerate(problem.dims) if getattr(d, side) == 1), -1)


def _thin(problem: TensorProblem, a: int, b: int) -> Iterator[TensorPlan]:
    dims, width = problem.dims, problem.width
    for side, thin, long in (("src", a, b), ("dst", b, a)):
        far = "dst" if side == "src" else "src"
        extent = dims[thin].extent
        if extent > MOST_THIN or (width == VECTOR and extent in _BETTER_TILED):
            continue
        if getattr(dims[long], side) != extent or dims[long].extent * width < VECTOR * 32:
            continue
        others = [k for k in range(len(dims)) if k not in (a, b)]
        steps = [getattr(dims[k], s) * width for k in others for s in ("src", "dst")]
        steps += [getattr(dims[thin], far) * width, dims[long].extent * width]
        if divisor_bytes(*steps, problem.src_align, problem.dst_align) == VECTOR:
            for threads in (64, 128) if extent <= _FEW else (128, 64):
                yield plan_thin(problem, thin=thin, long=long, side=side, threads=threads)


def _tiled(problem: TensorProblem, a: int, b: int) -> Iterator[TensorPlan]:
    if min(problem.src_align, problem.dst_align) < VECTOR:
        return  # vectors that are aligned from the pointer on would not be aligned in memory
    rows = divisor_bytes(*(d.dst * problem.width for k, d in enumerate(problem.dims) if k != b), limit=64)
    ragged = rows < VECTOR or problem.dims[b].extent * problem.width % VECTOR != 0
    long = problem.width == VECTOR and problem.dims[b].extent * VECTOR >= _EDGE_RUN
    loose = ragged or (long and rows < _EDGES[VECTOR])
    plans = []
    for target in (_EDGE_TARGETS if loose else _TARGETS)[problem.width]:
        shape = tile_shape(problem, a, b, target, force_edge=loose)
        if shape is not None:
            plans.append(plan_tiles(problem, shape, threads=512 if problem.width == 4 and not loose else 256))
    # The largest tiles leave multiprocessors idle at the end where blocks are few.
    plans.sort(key=lambda plan: plan.grid < _MANY_BLOCKS and plan.shared_bytes > _LARGE)
    yield from (plan for plan in plans if plan.shared_bytes <= _SHARED_LIMIT)


def tile_shape(
    problem: TensorProblem, a: int, b: int, target: tuple[int, int], *, force_edge: bool = False
) -> Shape | None:
    """A tile of about the target's extents, lengthened along a third dimension where a run stays short."""
    dims, width = problem.dims, problem.width
    q = VECTOR // width
    budget = _LONG_BOX // width
    others = [k for k in range(len(dims)) if k not in (a, b)]
    xa, xb = (min(dims[k].extent, x) for k, x in zip((a, b), target, strict=True))
    t, xt = -1, 1
    if not others:  # lengthen the long side where the other is short
        room, most = target[0] * target[1], _JOINED_RUN // width
        xa, xb = (
            min(dims[k].extent, max(x, min(room // other, most)))
            for k, x, other in ((a, target[0], xb), (b, target[1], xa))
        )
    else:
        side, short = ("dst", b) if dims[b].extent < target[1] else ("src", a)
        near = min(others, key=lambda k: getattr(dims[k], side))
        if dims[near].src == dims[a].extent and dims[a].extent * width <= _JOINED_RUN:
            xa = dims[a].extent  # a whole run of a can be joined with the next dimension
        if dims[short].extent < target[short == b] and budget >= 2 * xa * xb:
            t, xt = near, even_split(dims[near].extent, budget // (xa * xb), 1)
        else:
            xa = min(dims[a].extent, target[0])
    shape = make_shape(problem, a, b, t if xt > 1 else -1, (xa, xb, xt), edge=_EDGES[width], force_edge=force_edge)
    run_a = (shape.xt if shape.joined else 1) * dims[a].extent * width
    return shape if run_a >= (_SHORT_RUN if shape.shifted else VECTOR) and dims[b].extent >= q else None
