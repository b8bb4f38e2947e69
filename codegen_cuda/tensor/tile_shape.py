"""The tile of a 2-D transpose: its extents, and where its elements lie in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from codegen_cuda.tensor.plan import VECTOR, TensorPlan, block_counts, divisor_bytes, even_split, round_up
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import constant

__all__ = [
    "EDGE",
    "Geometry",
    "Shape",
    "coordinate",
    "geometry",
    "make_shape",
    "plan_tiles",
    "shape_of",
    "t_limit",
    "trips",
]

_SKEW = 16
_SPLIT = 64

#: Blocks of a destination with rows that start anywhere own whole sectors of memory.
EDGE = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """The constants of a tile.

    Args:
        a: the dimension that is contiguous in the source.
        b: the dimension that is contiguous in the destination.
        t: a further dimension inside the tile, or -1.
        xa: extent of the tile along ``a``.
        xb: extent along ``b``.
        xt: extent along ``t``.
        joined: ``t`` and ``a`` are one run of the source.
        shifted: source rows start anywhere.
        edge: 0 where every destination row starts at a multiple of 16 bytes; else blocks own pieces of rows that
            start at multiples of so many bytes.
    """

    a: int
    b: int
    t: int
    xa: int
    xb: int
    xt: int
    joined: bool
    shifted: bool
    edge: int


def shape_of(plan: TensorPlan) -> Shape:
    """Return the tile of a plan."""
    shape = plan.details["tile"]
    assert isinstance(shape, Shape)
    return shape


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where a tile's elements lie in shared memory, in bytes."""

    width: int
    per_vector: int
    per_word: int
    word: int
    run: int
    rows: int
    pitch: int
    group: int
    t_step: int
    turned_rows: int

    @property
    def groups(self) -> int:
        """Groups of rows."""
        return -(-self.rows // self.per_vector)

    @property
    def bytes(self) -> int:
        """Shared memory of the tile as it is read."""
        return self.groups * self.group

    @property
    def turned_pitch(self) -> int:
        """From row to row of the turned tile."""
        return self.groups * VECTOR

    @property
    def turned_bytes(self) -> int:
        """Shared memory of the turned tile."""
        return self.turned_rows * self.turned_pitch


def geometry(problem: TensorProblem, shape: Shape) -> Geometry:
    """Lay the tile out in shared memory."""
    width = problem.width
    q = VECTOR // width
    row = shape.xa * width
    run = shape.xt * row if shape.joined else row
    more = VECTOR if shape.shifted else 0
    t_step = row if shape.joined else round_up(row, VECTOR) + more
    pitch = round_up(run, VECTOR) + more if shape.joined else t_step * shape.xt
    skew = _SKEW if q * pitch % (2 * _SKEW) == 0 else 0
    return Geometry(
        width=width,
        per_vector=q,
        per_word=max(4 // width, 1),
        word=max(4, width),
        run=(round_up(run, VECTOR) + more) // VECTOR,
        rows=shape.xb + shape.edge // width,
        pitch=pitch,
        group=q * pitch + skew,
        t_step=t_step,
        turned_rows=round_up(shape.xa, max(4 // width, 1)) * shape.xt if shape.edge else 0,
    )


def plan_tiles(problem: TensorProblem, shape: Shape, *, threads: int = 256, order: str = "dst") -> TensorPlan:
    """Complete a tile shape to a plan.

    Args:
        problem: the request.
        shape: the tile.
        threads: threads of a block.
        order: ``"dst"`` or ``"src"``: along whose contiguous dimension neighbouring blocks lie.
    """
    box = [1] * len(problem.dims)
    box[shape.a], box[shape.b] = shape.xa, shape.xb
    if shape.t >= 0:
        box[shape.t] = shape.xt
    counts = list(block_counts(problem, tuple(box)))
    if shape.edge:
        counts[shape.b] = -(-(problem.dims[shape.b].extent + shape.edge // problem.width - 1) // shape.xb)
    side = {"dst": lambda k: problem.dims[k].dst, "src": lambda k: problem.dims[k].src}[order]
    walked = tuple(sorted(range(len(box)), key=side))
    made = geometry(problem, shape)
    shared = made.bytes + made.turned_bytes
    return TensorPlan("tiles", threads, tuple(box), tuple(counts), walked, shared, MappingProxyType({"tile": shape}))


def aligned_side(problem: TensorProblem, side: str, dims: Sequence[int], extra: Sequence[int]) -> bool:
    """Whether rows of a side start at multiples of 16 bytes whatever these dimensions' coordinates are."""
    steps = [getattr(problem.dims[k], side) * problem.width for k in dims]
    align = problem.src_align if side == "src" else problem.dst_align
    return divisor_bytes(*steps, *(e * problem.width for e in extra), align) == VECTOR


def make_shape(
    problem: TensorProblem,
    a: int,
    b: int,
    t: int,
    target: tuple[int, int, int],
    *,
    edge: int = EDGE,
    force_edge: bool = False,
) -> Shape:
    """Return the tile of about the target extents along a, b, t, with the widest accesses the strides allow."""
    dims = problem.dims
    q = VECTOR // problem.width
    xa, xb = (_tile_extent(dims[k].extent, x, problem.width) for k, x in zip((a, b), target[:2], strict=True))
    xt = min(target[2], dims[t].extent) if t >= 0 else 1
    others = [k for k in range(len(dims)) if k not in (a, b)]
    joined = t >= 0 and dims[t].src == dims[a].extent and xa >= dims[a].extent and xt > 1
    joined = joined and dims[a].extent * problem.width % max(4, problem.width) == 0
    if joined:
        xa = dims[a].extent
        while xt > 1 and (xt * xa) % q:
            xt -= 1
        joined = (xt * xa) % q == 0 and dims[t].extent * xa % q == 0
        xa = xa if joined else _tile_extent(dims[a].extent, target[0], problem.width)
    outer = [k for k in others if not (joined and k == t)]
    src_ok = aligned_side(problem, "src", [b, *outer], [] if joined else [dims[a].extent])
    dst_ok = aligned_side(problem, "dst", [a, *others], [dims[b].extent])
    if not dst_ok or force_edge:
        xb = round_up(xb, edge // problem.width)
    return Shape(a, b, t, xa, xb, xt, joined, shifted=not src_ok, edge=0 if dst_ok and not force_edge else edge)


def _tile_extent(extent: int, target: int, width: int) -> int:
    """A tile's extent near the target: whole vectors, and whole sectors where there are several tiles."""
    return even_split(extent, target, (VECTOR if extent <= target else _SPLIT) // width)


def trips(total: int, threads: int) -> tuple[int, list[str], str]:
    """How often each thread goes round, what guards the last time, and the index."""
    bound = [f"i < {total}u"] if total % threads else []
    return -(-total // threads), bound, f"const u32 i = threadIdx.x + n * {threads}u;"


def coordinate(plan: TensorPlan, dim: int, local: str) -> str:
    """The coordinate of a dimension: the block's origin plus a local part."""
    return f"o{dim} + {local}" if plan.counts[dim] > 1 else local


def t_limit(problem: TensorProblem, plan: TensorPlan, shape: Shape) -> list[str]:
    """The condition that a tile beyond the last whole one puts on t."""
    if shape.t < 0 or problem.dims[shape.t].extent % shape.xt == 0:
        return []
    return [f"{coordinate(plan, shape.t, 't' if shape.xt > 1 else '0u')} < {constant(problem.dims[shape.t].extent)}"]
