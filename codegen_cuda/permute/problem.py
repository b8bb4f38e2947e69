"""What a permute is asked to do, brought to one form: two flat layouts on shared memory, over the same elements.

The source and the destination may each carry their own shape, region and dtype; both are sliced to the region and
canonicalized.  After that an element is a flat index n, row-major in the region, and the two layouts say where n is
read and where it is written.  Everything that a request can get wrong is refused here, each with its own rule name.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.errors import PlanError
from layoutalg.algebra.grouping import check_shape
from layoutalg.algebra.slicing import Interval, check_region
from layoutalg.claim import Move, Side, show_intervals
from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.hardware.dtypes import Dtype, dtype
from layoutalg.index import Affine, Param
from layoutalg.notation import parse_region
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["Layout", "Operand", "Problem", "inner", "pose"]

#: What a side of a permute may be.
Layout: TypeAlias = TileLayout | SwizzledLayout

#: Bytes of a warp that one 32-bit register per lane holds.
_REGISTER_BYTES = 128
_STAGES_CHECKED = 4096
_WARPS = (1, 2, 4, 8, 16, 32)
#: Names of the generated code, and words of C++ that are identifiers in Python.
_WORDS = (
    "lane warp thread src dst regs buffer from to i auto bool break case char class const continue default delete do "
    "double else enum explicit extern false float for friend goto if inline int long mutable namespace new operator "
    "private protected public register return short signed sizeof static struct switch template this throw true try "
    "typedef typename union unsigned using virtual void volatile while"
)
_RESERVED = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a permute.

    Args:
        layout: where the elements live, on axis ``m``, in elements; plain or swizzled.
        shape: logical extents; the layout's own extents without one.
        region: ``(begin, end)`` or an index per dimension, or text such as ``"s,0:1,0:4,0:32"``; all of it without one.
        dtype: element type.
    """

    layout: Layout
    shape: tuple[int, ...] | None = None
    region: Any = None
    dtype: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A checked request.

    Args:
        source: where element n is read: canonical, on ``m``, its offset affine in the stage parameters.
        destination: where element n is written.
        extents: the region's extents without the unit ones, for reports.
        dtype: element type.
        params: the stage parameters, in loop order (by name).
        move: the same request as a claim states it.
        in_place: whether source and destination may be the same memory.
        max_registers: 32-bit registers per lane that a plan may hold elements in.
        warps: how many warps share the work.
    """

    source: Layout
    destination: Layout
    extents: tuple[int, ...]
    dtype: Dtype
    params: tuple[Param, ...]
    move: Move
    in_place: bool
    max_registers: int
    warps: int = 1

    @property
    def size(self) -> int:
        """Number of elements of one stage."""
        return int(self.source.size)

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return self.dtype.bytes

    @property
    def registers(self) -> int:
        """32-bit registers per lane that hold one stage's elements."""
        return math.ceil(self.size * self.width / (_REGISTER_BYTES * self.warps))

    def coordinates(self, layout: Layout) -> NDArray[np.int64]:
        """Return the coordinate of every element at the first stage, one int64 per element."""
        first = {p.name: p.begin for p in self.params}
        return layout.substitute(**first).table()["m"] if layout.axes else np.zeros(self.size, dtype=np.int64)

    def stage_shifts(self, layout: Layout) -> list[int]:
        """Return by how many elements each stage moves the layout against the first, in loop order."""
        value = inner(layout).offset.get("m", 0)
        if not isinstance(value, Affine):
            return [0]
        start = value.substitute({p.name: p.begin for p in self.params})
        return [
            int(value.substitute(dict(zip((p.name for p in self.params), stage, strict=True)))) - int(start)
            for stage in itertools.product(*(range(p.begin, p.end) for p in self.params))
        ]

    def span(self) -> tuple[int, int]:
        """Return the least coordinate (at most 0) and one past the greatest, over both sides and all stages."""
        low, high = 0, 0
        for layout in (self.source, self.destination):
            at, shifts = self.coordinates(layout), self.stage_shifts(layout)
            low = min(low, int(at.min()) + min(shifts))
            high = max(high, int(at.max()) + max(shifts) + 1)
        return low, high


def inner(layout: Layout) -> TileLayout:
    """Return the plain layout, before the swizzle where there is one."""
    return layout.inner if isinstance(layout, SwizzledLayout) else layout


def pose(
    source: Operand,
    destination: Operand,
    *,
    scope: str,
    in_place: bool,
    max_registers: int,
    warps: int | None = None,
) -> Problem:
    """Check a request and bring it to one form.

    Raises:
        PlanError: ``facts["rule"]`` is one of scope, warps, dtype, width, layout, memory, replica, region, extent,
            params, names, injective, registers, swizzle, stages.
    """
    _require(
        scope in ("warp", "cta"),
        "scope",
        f"scope {scope!r}: 'warp' (one warp moves the region) or 'cta' (all warps of a block share it)",
    )
    _require(
        warps is None or (scope == "cta" and warps in _WARPS) or (scope == "warp" and warps == 1),
        "warps",
        f"warps={warps} with scope {scope!r}: one warp, or 1, 2, 4, 8, 16 or 32 with scope 'cta'",
    )
    kind = _same_dtype(source, destination)
    sides = [_side(operand, which) for operand, which in ((source, "source"), (destination, "destination"))]
    (src, src_box, src_side), (dst, dst_box, dst_side) = sides
    extents = [tuple(i.length for i in box if i.length != 1) for box in (src_box, dst_box)]
    _require(
        extents[0] == extents[1],
        "extent",
        f"extent mismatch: the source region has extents {extents[0]}, the destination {extents[1]}",
    )
    move = Move("src", src_side, "dst", dst_side)
    params = _attempt("params", move.params)
    _check_names(params)
    count = _share(int(src.size) * kind.bytes, max_registers, warps) if scope == "cta" else 1
    problem = Problem(src, dst, extents[0], kind, params, move, in_place, max_registers, count)
    _check_injective(problem)
    _require(
        problem.registers <= max_registers,
        "registers",
        f"{problem.size} elements of {kind.bytes} bytes need {problem.registers} registers per lane, the limit is "
        f"{max_registers}: permute in several regions, share the work with scope='cta', or raise max_registers "
        f"(a thread has 255)",
        needed=problem.registers,
        limit=max_registers,
    )
    _check_stages(problem)
    return problem


def _share(size_bytes: int, max_registers: int, warps: int | None) -> int:
    """Return how many warps share the work: as asked, or four, more as registers need them, fewer for small tiles."""
    if warps is not None:
        return warps
    rounds = -(-size_bytes // _REGISTER_BYTES)
    most = max(w for w in _WARPS if w <= max(rounds, 1))
    return min(most, next((w for w in _WARPS if w >= 4 and rounds <= w * max_registers), _WARPS[-1]))


def _check_names(params: Sequence[Param]) -> None:
    taken = [p.name for p in params if p.name in _RESERVED or re.match(r"_|[a-z]\d", p.name)]
    _require(
        not taken,
        "names",
        f"stage parameter {', '.join(taken)} would clash with a name in the generated code; choose another name",
    )


def _require(condition: bool, rule: str, message: str, **facts: Any) -> None:
    if not condition:
        raise PlanError(f"permute_layout: {message}", rule=rule, **facts)


def _attempt(rule: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except PlanError:
        raise
    except LayoutError as error:
        raise PlanError(f"permute_layout: {error}", rule=rule) from error


def _same_dtype(source: Operand, destination: Operand) -> Dtype:
    given = [operand.dtype for operand in (source, destination) if operand.dtype is not None]
    _require(bool(given), "dtype", "no dtype given: pass dtype=, such as 'float32'")
    kinds: list[Dtype] = [_attempt("dtype", functools.partial(dtype, name)) for name in given]
    _require(
        kinds[0] == kinds[-1],
        "dtype",
        f"dtype mismatch: the source is {kinds[0].name}, the destination {kinds[-1].name}; a permute moves bits",
    )
    kind = kinds[0]
    _require(
        kind.bits in (8, 16, 32, 64, 128),
        "width",
        f"{kind.name} is {kind.bits} bits wide; elements of 1, 2, 4, 8 or 16 bytes are moved: pack() the layout first",
    )
    return kind


def _side(operand: Operand, which: str) -> tuple[Layout, tuple[Interval, ...], Side]:
    layout = operand.layout
    _require(
        isinstance(layout, (TileLayout, SwizzledLayout)),
        "layout",
        f"the {which} is {layout!r}, neither a TileLayout nor a SwizzledLayout",
    )
    foreign = [axis.name for axis in layout.axes if axis.name != "m"]
    _require(
        not foreign,
        "memory",
        f"the {which} layout uses axis {', '.join(foreign)}; shared memory has the one axis m",
    )
    tile = inner(layout)
    _require(not tile.replica, "replica", f"the {which} layout has replicas; one element has one place here")
    extents = operand.shape if operand.shape is not None else tuple(it.extent for it in tile.shard) or (1,)
    shape = _attempt("region", lambda: check_shape(tuple(extents), layout.size))
    region = _attempt("region", lambda: check_region(_region(operand.region, shape), shape))
    try:
        sliced = layout.slice(shape, region).canonicalize()
    except NotExpressibleError as error:
        raise PlanError(f"permute_layout: the {which} cannot be sliced to its region: {error}", rule="slice") from error
    _check_swizzle(sliced, which)
    return sliced, region, Side(str(layout), tuple(int(e) for e in shape), show_intervals(region))


def _check_swizzle(layout: Layout, which: str) -> None:
    """Refuse stages that a swizzle does not simply move along."""
    offset = inner(layout).offset.get("m", 0)
    if isinstance(layout, SwizzledLayout) and isinstance(offset, Affine):
        period = layout.swizzle.period
        torn = [f"{c} per {p.name}" for p, c in offset.terms if c % period]
        _require(
            not torn,
            "swizzle",
            f"the stages of the {which} are {', '.join(torn)} elements apart, no multiple of the period {period} of "
            f"{layout.swizzle}, so they are swizzled differently: pad the stages to it",
        )


def _region(region: Any, shape: Sequence[Any]) -> Any:
    if region is None:
        return [(0, extent) for extent in shape]
    return parse_region(region, tuple(shape)) if isinstance(region, str) else region


def _check_injective(problem: Problem) -> None:
    for layout, which in ((problem.source, "source"), (problem.destination, "destination")):
        at = problem.coordinates(layout)
        order = np.argsort(at, kind="stable")
        same = np.flatnonzero(at[order][1:] == at[order][:-1])
        if same.size:
            a, b = int(order[same[0]]), int(order[same[0] + 1])
            _require(
                False,
                "injective",
                f"the {which} layout is not injective: elements {a} and {b} both live at {int(at[a])}; "
                f"a permute needs one place per element",
                elements=(a, b),
            )


def _check_stages(problem: Problem) -> None:
    """Refuse stages that overwrite what a later stage reads or writes."""
    src, dst = problem.coordinates(problem.source), problem.coordinates(problem.destination)
    src_shifts, dst_shifts = problem.stage_shifts(problem.source), problem.stage_shifts(problem.destination)
    count = max(len(src_shifts), len(dst_shifts))
    if count == 1 and problem.params:
        count = math.prod(p.end - p.begin for p in problem.params)
    _require(count <= _STAGES_CHECKED, "stages", f"{count} stages are too many; the limit is {_STAGES_CHECKED}")
    src_shifts, dst_shifts = (s * count if len(s) == 1 else s for s in (src_shifts, dst_shifts))
    written: set[int] = set()
    for stage, (src_shift, dst_shift) in enumerate(zip(src_shifts, dst_shifts, strict=True)):
        reads = set((src + src_shift).tolist()) if problem.in_place else set()
        writes = set((dst + dst_shift).tolist())
        lost = written & (reads | writes)
        _require(
            not lost,
            "stages",
            f"stage {stage} needs place {min(lost, default=0)}, which an earlier stage has written: "
            f"stages must not overlap",
            stage=stage,
        )
        written |= writes
