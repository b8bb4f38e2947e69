"""Statements of the forms that go slot by slot: xor, rotation, gf2 and table.

:class:`Phases` holds both phases; :mod:`codegen_cuda.permute.emit` puts the barriers and the function around them.
Everything is straight-line: one load and one store per register, addresses from the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from codegen_cuda.access import Pointer, word_type
from codegen_cuda.body import If, LetPointer, Statement, Store, let, let_pointer
from codegen_cuda.buffers import Buffer, alloc, declare
from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import address, lane_variable, stage_terms, warp_variable
from codegen_cuda.permute.gf2 import gf2_slots, split_address
from codegen_cuda.permute.linear import apply
from codegen_cuda.permute.plan import LANES, Plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.rotation import rotation_order, rotation_positions
from codegen_cuda.permute.sharing import share
from codegen_cuda.permute.task import Ints, task_of
from codegen_cuda.permute.xor import xor_elements
from codegen_cuda.tables import Table
from codegen_cuda.values import Combination, Literal, Value, all_of, as_index, compare
from codegen_cuda.words import cast, field
from layoutalg.hardware.dtypes import Dtype, dtype

__all__ = [
    "Phases",
    "Sides",
    "Slot",
    "guarded",
    "linear_expr",
    "moved_dtype",
    "moved_type",
    "offset",
    "slot_body",
    "stage_shift",
    "word_pointer",
]

_IDLE = 0xFFFFFFFF
_HALF = 0xFFFF
_WORD = dtype("uint32")

#: The source and the destination in shared memory, as buffers of one element type.
Sides: TypeAlias = tuple[Buffer, Buffer]


@dataclass(frozen=True, slots=True)
class Phases:
    """What a form contributes to the kernel.

    Args:
        tables: numbers that it looks up.
        setup: statements before the read phase.
        reads: the read phase.
        between: work on registers after the barrier.
        writes: the write phase.
    """

    tables: tuple[Table, ...] = ()
    setup: tuple[Statement, ...] = ()
    reads: tuple[Statement, ...] = ()
    between: tuple[Statement, ...] = ()
    writes: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """What one register carries: where from and where to, in elements, and which lanes take part."""

    guard: Combination
    source: Expr
    target: Expr


@dataclass(frozen=True, slots=True)
class _Schedule:
    """Everything that a form says about its slots."""

    slots: tuple[Slot, ...]
    setup: tuple[Statement, ...] = ()
    tables: tuple[Table, ...] = ()


def slot_body(problem: Problem, plan: Plan, name: str, sides: Sides) -> Phases:
    """Return the statements of a plan that goes slot by slot, between two buffers of its elements."""
    make: dict[str, Callable[[Problem, Plan, str], _Schedule]] = {
        "xor": _xor,
        "rotation": _rotation,
        "gf2": _gf2,
        "table": _table,
    }
    schedule = make[plan.form](problem, plan, name)
    if problem.width < 4 and plan.registers < len(schedule.slots):
        return _joined(problem, schedule, sides)
    source, target = sides
    regs = alloc("regs", (len(schedule.slots),), source.dtype, scope="local", pointer="regs")
    numbered = list(enumerate(schedule.slots))
    return Phases(
        tables=schedule.tables,
        setup=(*schedule.setup, regs),
        reads=guarded((slot.guard, Store(regs[r], source.at(slot.source))) for r, slot in numbered),
        writes=guarded((slot.guard, Store(target.at(slot.target), regs[r])) for r, slot in numbered),
    )


def guarded(stores: Iterable[tuple[Combination, Store]]) -> tuple[Statement, ...]:
    """Put each store under its guard, where it needs one."""
    return tuple(store if guard.decide() else If(guard, (store,)) for guard, store in stores)


def moved_dtype(problem: Problem) -> Dtype:
    """Return the type that carries an element; one that keeps any bits."""
    return word_type(1) if problem.dtype.kind == "bool" else problem.dtype


def moved_type(problem: Problem) -> str:
    """Return how C spells :func:`moved_dtype`."""
    return moved_dtype(problem).c_type


def word_pointer(name: str, kind: Dtype, buffer: Buffer, byte_offset: int | Expr = 0) -> tuple[LetPointer, Buffer]:
    """Bind a pointer of another type to a buffer's storage, and return a buffer over it."""
    origin = buffer.data if buffer.data.align % kind.bytes == 0 else _aligned(buffer.data, kind.bytes)
    binding = let_pointer(name, kind, origin, byte_offset=byte_offset)
    return binding, declare(name, (1,), kind, data=binding.pointer)


def _aligned(pointer: Pointer, align: int) -> Pointer:
    return Pointer(pointer.name, pointer.dtype, pointer.scope, align, pointer.size)


def _joined(problem: Problem, schedule: _Schedule, sides: Sides) -> Phases:
    """Keep several narrow elements in one register, where there would be too many registers."""
    kind, bits = word_type(problem.width), 8 * problem.width
    per = 32 // bits
    count = -(-len(schedule.slots) // per)
    (bind_in, source), (bind_out, target) = (
        word_pointer(name, kind, side) for name, side in zip(("in", "out"), sides, strict=True)
    )
    regs = alloc("regs", (count,), _WORD, scope="local", pointer="regs")
    reads, writes = [], []
    for r, slot in enumerate(schedule.slots):
        word, place = divmod(r, per)
        element, held = cast(_WORD, source.at(slot.source)), regs[word]
        reads.append((slot.guard, Store(held, held | (element << bits * place if place else element))))
        value = cast(kind, held >> bits * place if place else held)
        writes.append((slot.guard, Store(target.at(slot.target), value)))
    zero = [Store(regs[k], 0) for k in range(count)]
    setup = (bind_in, bind_out, *schedule.setup, regs, *zero)
    return Phases(schedule.tables, setup, guarded(reads), (), guarded(writes))


def _registers(problem: Problem, plan: Plan) -> int:
    return -(-len(plan.slots) // problem.warps)


def _xor(problem: Problem, plan: Plan, _: str) -> _Schedule:
    element = xor_elements(problem, dict(plan.details))
    count = _registers(problem, plan)
    places = [[address(side, element(r)) for r in range(count)] for side in (problem.source, problem.destination)]
    return _Schedule(tuple(Slot(all_of(), source, target) for source, target in zip(*places, strict=True)))


def _rotation(problem: Problem, plan: Plan, _: str) -> _Schedule:
    details = dict(plan.details)
    order, position = rotation_order(problem, details), rotation_positions(problem, details)
    positions = [position(r) for r in range(_registers(problem, plan))]
    # A position that is never beyond the end is not compared, and needs no name for that.
    compared = [at if at.bounds()[1] >= problem.size else Expr.of(0) for at in positions]
    sides = [[address(side, at) for at in positions] for side in (order.source, order.destination)]
    setup, shared = share([*compared, *sides[0], *sides[1]])
    count = len(positions)
    slots = []
    for r, (at, source, target) in enumerate(zip(shared[:count], shared[count:], shared[2 * count :], strict=False)):
        warp = warp_variable(problem) + r * problem.warps
        guard = all_of(compare(warp, "<", len(plan.slots)), compare(at, "<", problem.size))
        slots.append(Slot(guard, source, target))
    return _Schedule(tuple(slots), tuple(setup))


def _gf2(problem: Problem, _: Plan, name: str) -> _Schedule:
    task, width = task_of(problem), problem.width
    found = gf2_slots(task, problem.warps)
    assert found is not None, name
    blocks, sides = found[1:]
    guard = all_of(compare(lane_variable(), "<", 1 << len(blocks.lanes)))
    setup: list[Statement] = []
    places: list[list[Expr]] = []
    for side, variable, linear, layout in zip(
        ("source", "destination"), ("from", "to"), sides, (problem.source, problem.destination), strict=True
    ):
        parts = split_address(blocks, linear, side)[1]
        lane, warp = ([apply(linear.columns, v) // width for v in vectors] for vectors in (blocks.lanes, blocks.warps))
        base = let(variable, linear_expr([(lane_variable(), lane), (warp_variable(problem), warp)]))
        setup.append(base)
        start = stage_shift(layout, problem) + linear.origin // width
        places.append([offset(base.var, x // width, start + immediate // width) for x, immediate in parts])
    slots = (Slot(guard, source, target) for source, target in zip(*places, strict=True))
    return _Schedule(tuple(slots), tuple(setup))


def offset(variable: Expr, flip: int, rest: Expr) -> Expr:
    """Return ``(p ^ flip) + rest``.

    >>> p = Expr.var("p", 0, 7)
    >>> print(offset(p, 0, Expr.of(0)), offset(p, 3, Expr.of(0)), offset(p, 3, Expr.of(-4)), sep=", ")
    p, (3 ^ p), (3 ^ p) - 4
    """
    return (variable ^ flip if flip else variable) + rest


def linear_expr(parts: Sequence[tuple[Expr, Sequence[int]]]) -> Expr:
    """Return a linear map of the bits of some variables; bits that move by one distance are shifted together.

    Args:
        parts: per variable the image of each of its bits.

    >>> lane = lane_variable()
    >>> print(linear_expr([(lane, [4, 8, 16, 1, 2])]))
    (((lane & 7) * 4) ^ ((lane & 24) >> 3))
    >>> print(linear_expr([(lane, [3, 1, 0, 0, 0])]))
    ((((lane & 1) * 2) ^ (lane & 1)) ^ ((lane & 2) >> 1))
    """
    total = Expr.of(0)
    for variable, vectors in parts:
        moves: dict[int, int] = {}
        for bit, image in enumerate(vectors):
            for target in range(image.bit_length()):
                if image >> target & 1:
                    moves[target - bit] = moves.get(target - bit, 0) | 1 << bit
        everything = (1 << len(vectors)) - 1
        for distance, mask in sorted(moves.items(), reverse=True):
            part = variable if mask == everything else variable & mask
            part = part << distance if distance > 0 else part >> -distance
            total = total.exclusive(part) if total.terms else part
    return total


def _table(problem: Problem, plan: Plan, name: str) -> _Schedule:
    task, warps = task_of(problem), problem.warps
    slots = plan.table()
    registers = _registers(problem, plan)
    padded = np.full((registers * warps, LANES), -1, dtype=np.int64)
    padded[: len(slots)] = slots
    held = padded.reshape(registers, warps, LANES)
    places = [task.source // task.width, task.destination // task.width]
    lows = [int(p.min()) for p in places]
    offsets = [np.where(held >= 0, p[np.maximum(held, 0)] - low, -1) for p, low in zip(places, lows, strict=True)]
    starts = [
        stage_shift(layout, problem) + low
        for layout, low in zip((problem.source, problem.destination), lows, strict=True)
    ]
    return _looked_up(problem, name, offsets[0], offsets[1], starts)


def stage_shift(layout: Layout, problem: Problem) -> Expr:
    """Return by how much a stage moves the layout against the first stage, at which a task's places were evaluated."""
    first = {p.name: p.begin for p in problem.params}
    # A parameter with one value moves nothing, by whatever it would move things.
    still = {p.name for p in problem.params if p.end - p.begin == 1}
    moving = Expr(0, tuple((atom, c) for atom, c in stage_terms(layout).terms if atom.name not in still))
    return moving - moving.evaluate(first.__getitem__)


def _looked_up(problem: Problem, name: str, sources: Ints, targets: Ints, starts: Sequence[Expr]) -> _Schedule:
    """Return the schedule as a table that lanes read 16 bytes at a time, and the slots that use it."""
    idle, warps = sources < 0, problem.warps
    wide = max(int(sources.max()), int(targets.max())) >= _HALF
    words = [np.where(idle, _IDLE, sources), np.where(idle, _IDLE, targets)]
    entries = np.stack(words, axis=-1) if wide else (words[0] & _HALF | (words[1] & _HALF) << 16)[..., None]
    registers, per = len(sources), entries.shape[-1]
    vector = 4 if registers * per > 2 else registers * per
    rows = -(-registers * per // vector)
    flat = np.full((warps, LANES, rows * vector), _IDLE, dtype=np.int64)
    flat[:, :, : registers * per] = entries.transpose(1, 2, 0, 3).reshape(warps, LANES, -1)
    listed = flat.reshape(warps, LANES, rows, vector).transpose(2, 0, 1, 3).reshape(-1, vector)
    content = "source and destination offset" if wide else "source offset in the low half, destination in the high"
    table = Table(
        f"{name}_schedule",
        word_type(4 * vector),
        (rows * warps, LANES),
        tuple(map(tuple, listed.tolist())),
        f"Per lane and slot: {content}; all ones: idle.",
        digits=8,
    )
    loads = [let(f"t{i}", table[warp_variable(problem) + i * warps, lane_variable()]) for i in range(rows)]
    slots = []
    for r in range(registers):
        fields = [field(loads[k // vector].var, k % vector) for k in range(r * per, (r + 1) * per)]
        guard = all_of(*([compare(fields[0], "!=", _IDLE)] if idle[r].any() else []))
        parts = fields if wide else [fields[0] & Literal(_HALF, _WORD, digits=4), fields[0] >> 16]
        slots.append(Slot(guard, *(_moved(part, start) for part, start in zip(parts, starts, strict=True))))
    return _Schedule(tuple(slots), tuple(loads), (table,))


def _moved(index: Value, start: Expr) -> Expr:
    """Add a start, in signed arithmetic where that may be negative."""
    return as_index(cast("int32", index) if start.bounds()[0] < 0 else index) + start
