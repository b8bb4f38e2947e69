"""The question of a tensor-memory copy, and its tables: which elements every register word and every cell hold.

Everything is tabulated: 128 lanes of 512 cells are at most 65,536 words.  Elements wider than 32 bits are taken apart
into 32-bit pieces, narrower ones share a word, so from here on a *piece* has at most 32 bits and a *word* holds
``32 // bits`` of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.errors import PlanError
from layoutalg.algebra.grouping import check_shape
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.hardware.tcgen05 import COLUMNS, LANES
from layoutalg.tile import TileLayout

__all__ = [
    "LANE",
    "SCOPES",
    "TmemProblem",
    "Words",
    "check_dtype",
    "pose_tmem",
    "register_places",
    "tabulate",
    "tmem_places",
]

Ints = NDArray[np.int64]

#: Cells from one lane to the next in cell codes ``lane * LANE + column``; more than any column reaches.
LANE: Final = 4096
#: Threads of each scope.
SCOPES: Final[Mapping[str, int]] = {"warp": 32, "warpgroup": 128, "cta": 1024}
_THREAD_AXES: Final = {"laneid": 1, "wid_in_wg": 32, "warpid": 32, "tid_in_wg": 1, "wgid": 128, "tx": 1}
_TMEM_AXES: Final = ("TLane", "TCol")
_REPLICAS: Final = 4096


@dataclass(frozen=True, slots=True)
class TmemProblem:
    """A checked request.

    Args:
        parts: pairs of layouts, (tensor memory, registers), each over ``shape``; one pair except for two-address views,
            whose two regions need not be one layout.  Tensor memory is over ``TLane`` and ``TCol``, registers are over
            thread axes and ``m``, both in elements.
        shape: logical extents of every layout.
        dtype: element type.
        direction: ``"ld"`` (tensor memory to registers) or ``"st"``.
        scope: ``"warp"``, ``"warpgroup"`` or ``"cta"``.
        warp: the statically selected warp, for scope ``"warp"``.
    """

    parts: tuple[tuple[TileLayout, TileLayout], ...]
    shape: tuple[int, ...]
    dtype: Dtype
    direction: str
    scope: str
    warp: int = 0

    @property
    def size(self) -> int:
        """Elements of all parts."""
        return len(self.parts) * math.prod(self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape, with the part first where there are several."""
        return (len(self.parts), *self.shape) if len(self.parts) > 1 else self.shape

    @property
    def bits(self) -> int:
        """Bits of a piece."""
        return min(self.dtype.bits, 32)

    @property
    def pieces(self) -> int:
        """32-bit pieces of one element, 1 for narrow ones."""
        return max(self.dtype.bits // 32, 1)

    @property
    def per_word(self) -> int:
        """Pieces of one 32-bit word."""
        return 32 // self.bits

    @property
    def threads(self) -> int:
        """Threads of the scope."""
        return SCOPES[self.scope]

    def coordinate(self, piece: int) -> tuple[int, ...]:
        """The element that a piece belongs to."""
        return tuple(int(x) for x in np.unravel_index(piece // self.pieces, self.extents or (1,)))


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The tables of a problem.

    Attributes:
        held: piece in each register half, ``[warp, lane, word, part]``, -1 where there is none.
        places: bit position of every place of a piece, ``[piece, replica]``: ``32 * (lane * LANE + column) + bit``.
        warps: number of the warp in the block for each first index of ``held``.
    """

    held: Ints
    places: Ints
    warps: tuple[int, ...]


def pose_tmem(
    tmem: TileLayout,
    registers: TileLayout,
    shape: Sequence[int] | None,
    dtype: object,
    *,
    direction: str,
    scope: str,
    warp: int = 0,
) -> TmemProblem:
    """Check a request.

    Raises:
        PlanError: the request makes no sense; ``facts["rule"]`` names the rule.

    >>> problem = pose_tmem(TileLayout.parse("S[(128,4):(1@TLane,1@TCol)]"),
    ...     TileLayout.parse("S[(128,4):(1@tid_in_wg,1)]"), (128, 4), "f32", direction="ld", scope="warpgroup")
    >>> tabulate(problem).held.shape
    (4, 32, 4, 1)
    """
    if direction not in ("ld", "st"):
        raise PlanError(f"tmem_copy: direction is 'ld' or 'st', not {direction!r}", rule="direction")
    if scope not in SCOPES:
        raise PlanError(f"tmem_copy: scope is {', '.join(map(repr, SCOPES))}, not {scope!r}", rule="scope")
    if type(warp) is not int or not 0 <= warp < 32 or (warp and scope != "warp"):
        raise PlanError(f"tmem_copy: warp = {warp!r} selects one warp of scope 'warp', 0 to 31", rule="warp")
    if dtype is None:
        raise PlanError("tmem_copy: a dtype is needed, such as 'float32'", rule="dtype")
    element = check_dtype(dtype)
    extents = shape if shape is not None else [it.extent for it in tmem.shard]
    for name, layout in (("tmem", tmem), ("register", registers)):
        if layout.params or not isinstance(layout.size, int):
            raise PlanError(f"tmem_copy: the {name} layout {layout} has parameters or symbols", rule="numbers")
    checked = tuple(int(e) for e in check_shape(extents, tmem.size))
    if registers.size != tmem.size:
        raise PlanError(
            f"tmem_copy: {registers.size} elements in registers and {tmem.size} in tensor memory", rule="size"
        )
    _check_axes(tmem, _TMEM_AXES, "tmem")
    _check_axes(registers, (*_THREAD_AXES, "m"), "register")
    return TmemProblem(((tmem, registers),), checked, element, direction, scope, warp)


def check_dtype(dtype: object) -> Dtype:
    """Return the element type, if 32-bit words hold it or it holds one or two of them.

    Raises:
        PlanError: another width.
    """
    element = dtype_of(dtype)
    if element.bits not in (4, 8, 16, 32, 64):
        raise PlanError(
            f"tmem_copy: {element.name} has {element.bits} bits; legal widths are 4, 8, 16, 32 and 64", rule="dtype"
        )
    return element


def _check_axes(layout: TileLayout, known: Sequence[str], name: str) -> None:
    wrong = [axis.name for axis in layout.axes if axis.name not in known]
    # A canonical layout keeps zero strides on axis m.
    moving = {it.axis.name for it in (*layout.shard, *layout.replica) if it.stride} | set(layout.offset)
    wrong = [axis for axis in wrong if axis in moving]
    if wrong:
        raise PlanError(
            f"tmem_copy: the {name} layout {layout} uses {', '.join(wrong)}; it may use {', '.join(known)}",
            rule="axes",
        )


def tabulate(problem: TmemProblem) -> Words:
    """Tabulate a problem.

    Raises:
        NotExpressibleError: an element outside tensor memory or the scope, or two in one place; names it.
    """
    places = tmem_places(problem)
    thread, position = register_places(problem)
    first = 32 * problem.warp if problem.scope == "warp" and (thread < 32).all() else 0
    thread = thread + first
    if problem.scope == "warp":
        _check_threads(problem, thread, 32 * problem.warp, 32 * problem.warp + 32)
        warps: tuple[int, ...] = (problem.warp,)
    else:
        _check_threads(problem, thread, 0, problem.threads)
        warps = tuple(range(int(thread.max()) // 32 + 1)) if problem.scope == "cta" else (0, 1, 2, 3)
    per = problem.per_word
    word, part = position // per, position % per
    held = np.full((len(warps), 32, int(word.max()) + 1, per), -1, dtype=np.int64)
    index = (thread // 32 - warps[0], thread % 32, word, part)
    pieces = np.broadcast_to(np.arange(len(thread))[:, None], thread.shape)
    held[index] = pieces
    lost = held[index] != pieces
    if lost.any():
        row, k = (int(x) for x in np.argwhere(lost)[0])
        other = problem.coordinate(int(held[tuple(a[row, k] for a in index)]))
        raise NotExpressibleError(
            f"tmem_copy: elements {problem.coordinate(row)} and {other} share position {int(position[row, k])} of "
            f"thread {int(thread[row, k])}; a register holds one element",
            index=problem.coordinate(row),
            rule="registers",
        )
    if problem.direction == "st":
        _check_distinct(problem, places)
    return Words(held, places, warps)


def _replicas(layout: TileLayout) -> dict[str, Ints]:
    """Offsets of every replica, per axis, each of length K."""
    extents = [int(it.extent) for it in layout.replica]
    if math.prod(extents) > _REPLICAS:
        raise PlanError(f"tmem_copy: {layout} has {math.prod(extents)} replicas; limit {_REPLICAS}", rule="replicas")
    digits = itertools.product(*(range(e) for e in extents))
    choices = np.array(list(digits), dtype=np.int64).reshape(math.prod(extents), len(extents))
    found: dict[str, Ints] = {}
    for digit, it in enumerate(layout.replica):
        name = it.axis.name
        found[name] = found.get(name, np.zeros(len(choices), dtype=np.int64)) + choices[:, digit] * int(it.stride)
    return found or {"m": np.zeros(1, dtype=np.int64)}


def _spread(layouts: Sequence[TileLayout], axes: Sequence[str]) -> dict[str, Ints]:
    """Coordinates per axis, ``[element, replica]``, of the layouts one after the other."""
    found = [_spread_one(layout, axes) for layout in layouts]
    count = max(next(iter(one.values())).shape[1] for one in found)
    # The last replica stands in where another part has more of them.
    return {
        axis: np.concatenate(
            [np.pad(one[axis], ((0, 0), (0, count - one[axis].shape[1])), mode="edge") for one in found]
        )
        for axis in axes
    }


def _spread_one(layout: TileLayout, axes: Sequence[str]) -> dict[str, Ints]:
    tables, replicas = layout.table(), _replicas(layout)
    count = len(next(iter(replicas.values())))
    zero = np.zeros((int(layout.size), count), dtype=np.int64)
    return {
        axis: zero + (tables[axis][:, None] if axis in tables else 0) + replicas.get(axis, np.zeros(1, np.int64))
        for axis in axes
    }


def tmem_places(problem: TmemProblem) -> Ints:
    """Bit position of every place of every piece; see :class:`Words`.

    Raises:
        NotExpressibleError: an element outside tensor memory.
    """
    spread = _spread([tmem for tmem, _ in problem.parts], _TMEM_AXES)
    lane, bit = spread["TLane"], spread["TCol"] * problem.dtype.bits
    outside = (lane < 0) | (lane >= LANES) | (bit < 0) | (bit + problem.dtype.bits > 32 * COLUMNS)
    if outside.any():
        row, k = (int(x) for x in np.argwhere(outside)[0])
        element = problem.coordinate(row * problem.pieces)
        raise NotExpressibleError(
            f"tmem_copy: element {element} would live at lane {lane[row, k]}, bit {bit[row, k]} of its lane; tensor "
            f"memory has {LANES} lanes of {COLUMNS} columns of 32 bits",
            index=element,
            rule="bounds",
        )
    return _pieces(problem, 32 * LANE * lane + bit, 32)


def _pieces(problem: TmemProblem, position: Ints, step: int) -> Ints:
    if problem.pieces == 1:
        return position
    parts = np.arange(problem.pieces) * step
    moved = position[:, None, :] + parts[None, :, None]
    return moved.reshape(-1, position.shape[1])


def register_places(problem: TmemProblem) -> tuple[Ints, Ints]:
    """Thread and position (in pieces) of every piece, ``[piece, replica]``.

    Raises:
        NotExpressibleError: a coordinate outside its axis.
    """
    spread = _spread([registers for _, registers in problem.parts], (*_THREAD_AXES, "m"))
    thread = np.zeros_like(spread["m"])
    for axis, step in _THREAD_AXES.items():
        limit = {"laneid": 32, "wid_in_wg": 4, "tid_in_wg": 128}.get(axis)
        if limit is not None:
            _check_range(problem, spread[axis], 0, limit, axis)
        thread = thread + spread[axis] * step
    _check_range(problem, spread["m"], 0, 1 << 16, "m")
    position = _pieces(problem, spread["m"] * problem.pieces, 1)
    return np.repeat(thread, problem.pieces, axis=0), position


def _check_range(problem: TmemProblem, values: Ints, begin: int, end: int, axis: str) -> None:
    outside = (values < begin) | (values >= end)
    if outside.any():
        row, k = (int(x) for x in np.argwhere(outside)[0])
        element = problem.coordinate(row * problem.pieces)
        raise NotExpressibleError(
            f"tmem_copy: element {element} has {axis} = {values[row, k]}, outside [{begin}, {end})",
            index=element,
            rule="threads" if axis != "m" else "registers",
        )


def _check_threads(problem: TmemProblem, thread: Ints, begin: int, end: int) -> None:
    outside = (thread < begin) | (thread >= end)
    if outside.any():
        row, k = (int(x) for x in np.argwhere(outside)[0])
        element = problem.coordinate(row)
        raise NotExpressibleError(
            f"tmem_copy: element {element} belongs to thread {thread[row, k]}, outside the threads {begin} to "
            f"{end - 1} of scope {problem.scope!r}",
            index=element,
            rule="threads",
        )


def _check_distinct(problem: TmemProblem, places: Ints) -> None:
    """Refuse a store of two elements to one place; one element with equal replicas is fine."""
    flat = places.reshape(-1)
    owner = np.repeat(np.arange(len(places)), places.shape[1])
    order = np.argsort(flat, kind="stable")
    same = (flat[order][1:] == flat[order][:-1]) & (owner[order][1:] != owner[order][:-1])
    if same.any():
        at = int(np.argmax(same))
        pair = [problem.coordinate(int(owner[order][at + i])) for i in (0, 1)]
        cell = int(flat[order][at]) // 32
        raise NotExpressibleError(
            f"tmem_copy: elements {pair[0]} and {pair[1]} share lane {cell // LANE}, column {cell % LANE}; a store "
            "cannot put two elements in one place",
            index=pair[1],
            rule="aliases",
        )


def show(coordinate: Any) -> str:
    """Spell a coordinate for a message."""
    return "(" + ", ".join(map(str, coordinate)) + ")"
