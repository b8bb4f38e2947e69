"""The other way round: the caller names the exact instruction and arranges views, and the owners are checked.

A view is a layout with a shape.  ``rearrange`` regroups and reorders its dimensions until they read: one axis for the
warps (scopes ``warpgroup`` and ``cta``), repeat axes, and the suffix of the instruction, ``(row, column)``.  Each
index of the leading axes is one instruction.  Nothing is inferred: where an owner differs from the instruction's image,
the element is named.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.tmem.plan import TmemPlan, Transfer
from codegen_cuda.tmem.problem import (
    LANE,
    SCOPES,
    Ints,
    TmemProblem,
    check_dtype,
    register_places,
    show,
    tabulate,
    tmem_places,
)
from codegen_cuda.tmem.solve import warnings_for
from layoutalg.algebra.grouping import check_shape
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.tcgen05 import TWO_ADDRESSES, TmemInstruction, slab_of
from layoutalg.tile import TileLayout

__all__ = ["View", "tmem_apply"]

_WARPS: Final = {"warp": 1, "warpgroup": 4}


@dataclass(frozen=True, slots=True)
class View:
    """A layout with the shape it is indexed by.

    Args:
        layout: over ``TLane`` and ``TCol``, or over thread axes and ``m``.
        shape: extents, outermost first.
        dtype: element type.

    >>> mem = View(TileLayout.parse("S[(64,2,64):(1@TLane,64@TLane,1@TCol)]"), (64, 128), "f32")
    >>> print(mem.rearrange("(wh r) (wl c) -> (wl wh) r c", wh=2, r=32, wl=2).layout.canonicalize())
    S[(128,64):(1@TLane,1@TCol)]
    """

    layout: TileLayout
    shape: tuple[int, ...]
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        extents = check_shape(self.shape, self.layout.size)
        object.__setattr__(self, "shape", tuple(int(e) for e in extents))

    def rearrange(self, pattern: str, **sizes: int) -> View:
        """Split dimensions into named factors, and put the factors into another order.

        Args:
            pattern: such as ``"(wh r) (wl c) -> (wl wh) r c"``; every name occurs once on each side.
            sizes: extents of names; at most one per dimension may be left out.

        Raises:
            PlanError: the pattern or the sizes do not fit the shape.
            NotExpressibleError: the layout has no boundary where a dimension is split.
        """
        left, right = _parse(pattern)
        if len(left) != len(self.shape):
            raise PlanError(f"rearrange: {pattern!r} has {len(left)} dimensions, the view {len(self.shape)}")
        extents: dict[str, int] = {}
        for names, extent in zip(left, self.shape, strict=True):
            extents |= _extents(names, extent, sizes, pattern)
        if extra := sorted(set(sizes) - set(extents)):
            raise PlanError(f"rearrange: no {', '.join(extra)} in {pattern!r}")
        order = [name for names in left for name in names]
        wanted = [name for names in right for name in names]
        layout = self.layout.permute(*(order.index(n) for n in wanted), shape=[extents[n] for n in order])
        return replace(self, layout=layout, shape=tuple(math.prod(extents[n] for n in names) for names in right))

    def __getitem__(self, key: int | slice | tuple[int | slice, ...]) -> View:
        """Take a box: slices keep a dimension, numbers drop it."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > len(self.shape):
            raise PlanError(f"view: {len(keys)} indices for {len(self.shape)} dimensions")
        keys = (*keys, *(slice(None) for _ in self.shape[len(keys) :]))
        region = []
        for given, extent in zip(keys, self.shape, strict=True):
            if isinstance(given, slice):
                begin, end, step = given.indices(extent)
                if step != 1:
                    raise PlanError("view: slices have step 1")
                region.append((begin, end))
            else:
                region.append((given % extent if -extent <= given < 0 else given,) * 2)
        box = [(b, e) if isinstance(k, slice) else (b, b + 1) for k, (b, e) in zip(keys, region, strict=True)]
        layout = self.layout.slice(self.shape, box)
        kept = tuple(e - b for k, (b, e) in zip(keys, box, strict=True) if isinstance(k, slice))
        return replace(self, layout=layout, shape=kept)


def _parse(pattern: str) -> tuple[list[list[str]], list[list[str]]]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise PlanError(f"rearrange: {pattern!r} needs one '->'")
    parsed = []
    for side in sides:
        tokens = re.findall(r"\([^()]*\)|\w+", side)
        if re.sub(r"\([\w\s]*\)|\w+|\s", "", side):
            raise PlanError(f"rearrange: {side.strip()!r} is not of the form 'a (b c) d'")
        parsed.append([token.strip("()").split() for token in tokens])
    names = [sorted(n for group in side for n in group) for side in parsed]
    if names[0] != names[1] or len(set(names[0])) != len(names[0]):
        raise PlanError(f"rearrange: each name of {pattern!r} must occur once on each side")
    return parsed[0], parsed[1]


def _extents(names: Sequence[str], extent: int, sizes: dict[str, int], pattern: str) -> dict[str, int]:
    unknown = [name for name in names if name not in sizes]
    known = math.prod(sizes[name] for name in names if name in sizes)
    if len(unknown) > 1 or known < 1 or extent % known or (not unknown and known != extent):
        raise PlanError(
            f"rearrange: ({' '.join(names)}) of {pattern!r} must multiply to {extent}; given are "
            + (", ".join(f"{n}={sizes[n]}" for n in names if n in sizes) or "none")
        )
    return {name: sizes.get(name, extent // known) for name in names}


def tmem_apply(
    opcode: str,
    *operands: View,
    scope: str = "warpgroup",
    imm_half_splitoff: int | None = None,
    warp: int = 0,
    producer: str | None = None,
) -> TmemPlan:
    """Return the plan that repeats one named instruction over views, after checking every owner.

    Args:
        opcode: such as ``"tcgen05.ld.sync.aligned.32x32b.x64.b32"``.
        operands: a load takes registers, then tensor memory; a store tensor memory, then registers; ``16x32bx2`` has
            two regions of tensor memory, low and high.  Shapes end in the suffix of the instruction,
            :meth:`TmemInstruction.image_shape`; registers of ``16x32bx2`` have the access before it.
        scope: ``"warp"``, ``"warpgroup"`` (a leading axis of 4 warps) or ``"cta"`` (a leading axis of warps).
        imm_half_splitoff: second base minus the first, for ``16x32bx2``.
        warp: the selected warp of scope ``"warp"``.
        producer: ``"mma"`` or ``"cp"``, as for ``tmem_plan``.

    Raises:
        PlanError: shapes or dtypes that do not fit the instruction.
        NotExpressibleError: an element whose owner differs from the instruction's image.

    >>> mem = View(TileLayout.parse("S[(64,2,64):(1@TLane,64@TLane,1@TCol)]"), (64, 128), "f32")
    >>> reg = View(TileLayout.parse("S[(64,2,64):(1@tid_in_wg,64@tid_in_wg,1)]"), (64, 128), "f32")
    >>> views = [v.rearrange("(wh r) (wl c) -> (wl wh) r c", wh=2, r=32, wl=2) for v in (mem, reg)]
    >>> tmem_apply("tcgen05.st.sync.aligned.32x32b.x64.b32", *views).instructions
    1
    """
    direction, instruction = TmemInstruction.parse(opcode, split=imm_half_splitoff)
    regions, registers = _operands(direction, instruction, operands)
    lead = _lead(instruction, regions, registers, scope)
    if instruction.shape == TWO_ADDRESSES:
        access = len(lead)
        before = (slice(None),) * access
        held = [registers[(*before, i)] for i in (0, 1)]
    else:
        held = [registers]
    problem = TmemProblem(
        tuple((region.layout, part.layout) for region, part in zip(regions, held, strict=True)),
        regions[0].shape,
        registers.dtype,
        direction,
        scope,
        warp,
    )
    tabulate(problem)  # bounds, threads of the scope, one element per place
    transfers = tuple(_transfers(problem, instruction, lead))
    return TmemPlan(problem, transfers, warnings_for(problem, producer))


def _operands(direction: str, instruction: TmemInstruction, operands: Sequence[View]) -> tuple[tuple[View, ...], View]:
    count = 3 if instruction.shape == TWO_ADDRESSES else 2
    order = "registers, " + "tmem" * (count == 2) + "tmem_low, tmem_high" * (count == 3)
    if direction == "st":
        order = ("tmem" if count == 2 else "tmem_low, tmem_high") + ", registers"
    if len(operands) != count or not all(isinstance(o, View) for o in operands):
        raise PlanError(f"tmem_apply: {instruction.opcode(direction)} takes ({order}), {count} views", rule="operands")
    registers = operands[0 if direction == "ld" else -1]
    regions = tuple(operands[1:] if direction == "ld" else operands[:-1])
    for region in regions:
        moving = {it.axis.name for it in region.layout.shard if it.stride}
        if moving - {"TLane", "TCol"} or region.layout.replica or registers.layout.replica:
            raise PlanError(
                f"tmem_apply: operands are ({order}); tensor memory is over TLane and TCol, and no view has replicas",
                rule="operands",
            )
        if region.dtype != registers.dtype:
            raise PlanError(
                f"tmem_apply: {region.dtype} in tensor memory, {registers.dtype} in registers", rule="dtype"
            )
    return regions, registers


def _lead(instruction: TmemInstruction, regions: Sequence[View], registers: View, scope: str) -> tuple[int, ...]:
    """Extents of the leading axes: warps, then repeats."""
    if scope not in SCOPES:
        raise PlanError(f"tmem_apply: scope is {', '.join(map(repr, SCOPES))}, not {scope!r}", rule="scope")
    kind: Dtype = registers.dtype
    if instruction.packed and kind.bits != 16:
        raise PlanError(f"tmem_apply: packing moves 16-bit elements, not {kind}", rule="dtype")
    suffix = instruction.image_shape(kind)
    held = (2, *suffix) if instruction.shape == TWO_ADDRESSES else suffix
    shapes = [(region, suffix, "tensor memory") for region in regions] + [(registers, held, "registers")]
    leads = {view.shape[: len(view.shape) - len(end)] for view, end, _ in shapes}
    for view, end, name in shapes:
        if view.shape[len(view.shape) - len(end) :] != end or len(leads) > 1:
            raise PlanError(
                f"tmem_apply: the {name} view of {instruction.shape}.x{instruction.repeat} ends in {end} after equal "
                f"leading axes, but is {view.shape}",
                rule="shape",
            )
    (lead,) = leads
    if scope != "warp" and (not lead or lead[0] != _WARPS.get(scope, lead[0])):
        raise PlanError(f"tmem_apply: scope {scope!r} needs a leading axis of warps, not {lead}", rule="shape")
    return lead


def _transfers(problem: TmemProblem, instruction: TmemInstruction, lead: tuple[int, ...]) -> Iterator[Transfer]:
    """One instruction per index of the leading axes, with every owner checked."""
    thread, position = (table[:, 0] for table in register_places(problem))
    places = tmem_places(problem)[:, 0]
    count = len(problem.parts)
    shape = (count, *lead, -1)
    thread, position, places = (np.moveaxis(table.reshape(shape), 0, -2) for table in (thread, position, places))
    numbers = np.moveaxis(np.arange(problem.size).reshape(shape), 0, -2)
    warps = lead[0] if problem.scope != "warp" else 1
    repeats = lead[1:] if problem.scope != "warp" else lead
    for number, at in itertools.product(range(warps), itertools.product(*(range(e) for e in repeats))):
        index = (number, *at) if problem.scope != "warp" else at
        one = _One(problem, instruction, number if problem.scope != "warp" else problem.warp, numbers[index])
        yield one.transfer(thread[index], position[index], places[index])


@dataclass(frozen=True, slots=True, eq=False)
class _One:
    """One instruction of one warp and the elements it moves, ``[access, element]``."""

    problem: TmemProblem
    instruction: TmemInstruction
    warp: int
    numbers: Ints

    def transfer(self, thread: Ints, position: Ints, places: Ints) -> Transfer:
        per = self.problem.per_word
        image = self.instruction.register_image(self.problem.dtype).table()
        lanes, slots = (image[axis].reshape(self.numbers.shape) for axis in ("laneid", "m"))
        # Views of scope "warp" may count lanes from 0 or threads of the block.
        first = 32 * self.warp if self.problem.scope != "warp" or thread.max() >= 32 else 0
        self._same(thread, first + lanes, lambda a, b: f"thread {a}; the instruction has it in thread {b}", "owner")
        self._same(position % per, slots % per, lambda a, b: f"part {a} of its register, not part {b}", "owner")
        words = np.zeros(self.instruction.registers, dtype=np.int64)
        words[slots // per] = position // per
        text = "register {}; other lanes have it in register {}"
        self._same(position // per, words[slots // per], text.format, "register order")
        if len(set(words.tolist())) != len(words):
            raise self._error(0, f"a register that serves twice, among {words.tolist()}", "registers")
        lane, column = divmod(int(places.reshape(-1)[0]) // 32, LANE)
        expected = self._expected(lane, column)
        self._same(places, expected, _cells, "tmem")
        self._slab(lane)
        return Transfer(self.warp, self.instruction, lane, column, tuple(words.tolist()))

    def _expected(self, lane: int, column: int) -> Ints:
        """Bit positions of all elements, from the base of the first."""
        tables = [image.table() for image in self.instruction.tmem_images(self.problem.dtype)]
        bits = self.problem.dtype.bits
        moved = [
            32 * LANE * (lane + t.get("TLane", np.zeros(1, np.int64))) + 32 * column + bits * t["TCol"] for t in tables
        ]
        return np.stack(moved)

    def _slab(self, lane: int) -> None:
        begin, end = slab_of(self.warp)
        rows = self.instruction.rows
        high = lane + (self.instruction.split_parts[0] if self.instruction.shape == TWO_ADDRESSES else 0)
        for base in (lane, high):
            if base % rows or not begin <= base <= end - rows:
                text = f"base lane {base}; {self.instruction.shape} of warp {self.warp} starts at a multiple of {rows} "
                raise self._error(0, text + f"in lanes {begin} to {end - 1}", "slab")

    def _same(self, found: Ints, expected: Ints, say: Any, rule: str) -> None:
        wrong = np.flatnonzero((found != expected).reshape(-1))
        if wrong.size:
            at = int(wrong[0])
            raise self._error(at, say(int(found.reshape(-1)[at]), int(expected.reshape(-1)[at])), rule)

    def _error(self, at: int, text: str, rule: str) -> NotExpressibleError:
        element = self.problem.coordinate(int(self.numbers.reshape(-1)[at]))
        opcode = self.instruction.opcode(self.problem.direction)
        return NotExpressibleError(
            f"tmem_apply: {opcode}, warp {self.warp}: element {show(element)} of the view has {text}",
            index=element,
            rule=rule,
        )


def _cells(found: int, expected: int) -> str:
    texts = []
    for place in (found, expected):
        cell, bit = divmod(place, 32)
        texts.append(f"lane {cell // LANE}, column {cell % LANE}" + (f", bit {bit}" if bit else ""))
    return f"{texts[0]}; the instruction has it at {texts[1]}"
