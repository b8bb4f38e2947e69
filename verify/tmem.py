"""Check tensor-memory copies twice: the instructions of a plan on a model, and the compiled PTX in the interpreter.

:func:`prove_transfers` decides a plan by running it on a model of 128 x 512 cells whose every part carries its own
address as its value; the footprints are those of :mod:`verify.ptx.tmem`, which the planner does not use.
:func:`run_claim` executes compiled PTX on inputs in which every element is distinct and compares every element of the
output, and which bytes were written, with the claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layoutalg.claim import Buffer as ClaimBuffer
from layoutalg.claim import Claim
from layoutalg.hardware.dtypes import dtype as dtype_of
from layoutalg.tile import TileLayout
from verify.ptx.concrete import Buffer, run
from verify.ptx.errors import FindingError, PtxError
from verify.ptx.parse import parse
from verify.ptx.program import Program
from verify.ptx.resolve import load
from verify.ptx.tmem import COLUMNS, LANES, footprint
from verify.verdict import Obligation, Proved, Refuted

__all__ = ["BASES", "EXECUTED", "Move", "prove_transfers", "run_claim"]

#: Every column at which an allocation can start (PTX ISA 9.7.16.7.1: sizes are powers of two from 32 on).
BASES: Final = tuple(range(0, COLUMNS, 32))

#: The statement of :func:`run_claim`.
EXECUTED: Final = "the compiled PTX puts every element where the claim says"

_FIELD = 1 << 20
_THREAD = {"laneid": 1, "wid_in_wg": 32, "warpid": 32, "tid_in_wg": 1, "wgid": 128, "tx": 1}

#: warp, word and part of a register; or lane, column and part of a cell
Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One instruction, as the plan states it: see ``codegen_cuda.tmem.Transfer``."""

    warp: int
    shape: str
    repeat: int
    packed: bool
    lane: int
    column: int
    split: int
    registers: tuple[int, ...]


def prove_transfers(
    moves: Sequence[Move | tuple[Any, ...]],
    layouts: Sequence[tuple[TileLayout, TileLayout]],
    *,
    shape: Sequence[int],
    dtype: object,
    direction: str,
    first_thread: int = 0,
) -> tuple[Obligation, ...]:
    """Decide three statements about a plan by running it on a model.

    Args:
        moves: the instructions, as :class:`Move` or as tuples of its fields.
        layouts: pairs (tensor memory, registers), in elements; one pair, or one per region of a two-address access.
        shape: logical extents, to name a counterexample.
        dtype: element type.
        direction: ``"ld"`` or ``"st"``.
        first_thread: number of the thread that counts as thread 0 of the register layout.
    """
    bits = dtype_of(dtype).bits
    steps = [move if isinstance(move, Move) else Move(*move) for move in moves]
    scope = f"all {len(steps)} instructions and {sum(int(tmem.size) for tmem, _ in layouts)} elements of {tuple(shape)}"
    model = _Model(min(bits, 32))
    outside = next((found for move in steps for found in model.outside(move)), None)
    copy = "load" if direction == "ld" else "store"
    rows = [_obligation(f"{copy}: every warp stays in its lanes and in 512 columns", scope, outside)]
    if outside is None:
        twice = model.twice(steps, direction)
        misplaced = _misplaced(model, steps, _elements(layouts, bits, first_thread), direction, tuple(shape))
        rows.append(_obligation(f"{copy}: no word is moved twice", scope, twice))
        rows.append(_obligation(f"{copy}: every element arrives where the layouts put it", scope, misplaced))
    return tuple(rows)


def _obligation(name: str, scope: str, counterexample: Mapping[str, Any] | None) -> Obligation:
    return Obligation(name, Proved(scope) if counterexample is None else Refuted(scope, counterexample))


@dataclass(frozen=True, slots=True)
class _Element:
    """One part (at most 32 bits) of an element: its index, its register places and its cells."""

    index: int
    registers: tuple[Place, ...]
    cells: tuple[Place, ...]


def _elements(layouts: Sequence[tuple[TileLayout, TileLayout]], bits: int, first_thread: int) -> Iterator[_Element]:
    """Places of every part of every element, replicas one by one."""
    width, parts = min(bits, 32), max(bits // 32, 1)
    per = 32 // width
    for tmem, registers in layouts:
        threads = list(_places(registers, {**_THREAD, "m": _FIELD}))
        cells = list(_places(tmem, {"TLane": 1, "TCol": _FIELD}))
        rows = []
        for part in range(parts):
            held = [_registers(t % _FIELD + first_thread, t // _FIELD * parts + part, per) for t in threads]
            lives = [_tuples(c % _FIELD, *np.divmod(c // _FIELD * parts + part, per)) for c in cells]
            rows.append(list(zip(zip(*held, strict=True), zip(*lives, strict=True), strict=True)))
        for index, row in enumerate(zip(*rows, strict=True)):
            yield from (_Element(index, *places) for places in row)


def _registers(thread: NDArray[np.int64], word: NDArray[np.int64], per: int) -> list[Place]:
    """Warp, lane, word and part of every element."""
    return _tuples(thread // 32, thread % 32, *np.divmod(word, per))


def _tuples(*columns: NDArray[np.int64]) -> list[Place]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _places(layout: TileLayout, weights: Mapping[str, int]) -> Iterator[NDArray[np.int64]]:
    """One number per element and replica: the weighted sum of its coordinates (small ones below ``_FIELD``)."""
    tables = layout.table()
    base = sum((weights[axis] * table for axis, table in tables.items() if axis in weights), start=np.int64(0))
    flat = np.broadcast_to(base, int(layout.size))
    for digits in itertools.product(*(range(int(it.extent)) for it in layout.replica)):
        pairs = zip(digits, layout.replica, strict=True)
        yield flat + sum(d * int(it.stride) * weights.get(it.axis.name, 0) for d, it in pairs)


class _Model:
    """Registers and cells as dictionaries; the value of a part is the place it came from."""

    def __init__(self, bits: int) -> None:
        self.per = 32 // bits
        self._cells: dict[Move, list[tuple[Place, list[tuple[int, int]]]]] = {}

    def cells(self, move: Move) -> list[tuple[Place, list[tuple[int, int]]]]:
        """(warp, lane, word) and the cells of its halves: one cell, or two when packed."""
        if move not in self._cells:
            self._cells[move] = list(self._touched(move))
        return self._cells[move]

    def _touched(self, move: Move) -> Iterator[tuple[Place, list[tuple[int, int]]]]:
        rows, columns = footprint(move.shape, move.repeat)
        step = 2 if move.packed else 1
        for lane, (its_rows, its_columns) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            address = (move.lane << 16) + move.column
            if move.shape == "16x32bx2" and lane >= 16:
                address += move.split
            first, begin = address >> 16, address & 0xFFFF
            for register, row, column in zip(move.registers, its_rows, its_columns, strict=False):
                cell = begin + step * column
                yield (move.warp, lane, register), [(first + row, cell + half) for half in range(step)]

    def outside(self, move: Move) -> Iterator[dict[str, Any]]:
        """Cells that the warp may not access."""
        begin = 32 * (move.warp % 4)
        if len(move.registers) != footprint(move.shape, move.repeat)[0].shape[1]:
            yield {"move": move, "registers": len(move.registers)}
        for (warp, lane, word), cells in self.cells(move):
            for row, column in cells:
                if not begin <= row < min(begin + 32, LANES) or not 0 <= column < COLUMNS:
                    yield {"warp": warp, "thread": lane, "register": word, "lane": row, "column": column}

    def twice(self, moves: Sequence[Move], direction: str) -> dict[str, Any] | None:
        """A register that two loads fill, or a cell that two stores write."""
        seen: set[Place] = set()
        for move in moves:
            for register, cells in self.cells(move):
                for target in [register] if direction == "ld" else cells:
                    if target in seen:
                        return {"direction": direction, "place": target, "warp": move.warp}
                    seen.add(target)
        return None

    def run(self, moves: Sequence[Move], direction: str) -> dict[Place, Place]:
        """Where the content of each destination part came from."""
        origin: dict[Place, Place] = {}
        for move in moves:
            for (warp, lane, word), cells in self.cells(move):
                for part in range(self.per):
                    # Packed: part p is the low half of cell p.  Plain: part p of the one cell.
                    cell = (*cells[part], 0) if move.packed else (*cells[0], part)
                    register = (warp, lane, word, part)
                    if direction == "ld":
                        origin[register] = cell
                    else:
                        origin[cell] = register
                if direction == "st" and move.packed:
                    for row, column in cells:
                        origin[(row, column, 1)] = ()
        return origin


def _misplaced(
    model: _Model, moves: Sequence[Move], elements: Iterable[_Element], direction: str, shape: tuple[int, ...]
) -> dict[str, Any] | None:
    """The first element that does not arrive, or a place that holds something although no element belongs there."""
    origin = model.run(moves, direction)
    expected: set[Place] = set()
    for element in elements:
        sources, targets = element.cells, element.registers
        if direction == "st":
            sources, targets = targets, sources
        for target in targets:
            expected.add(target)
            if origin.get(target) not in sources:
                where = tuple(int(x) for x in np.unravel_index(element.index, shape or (1,)))
                return {"element": where, "place": target, "comes from": origin.get(target), "should": sources}
    # Upper halves that an unpacking store leaves undefined were checked above if an element lives there.
    extra = next((place for place, source in origin.items() if place not in expected and source != ()), None)
    return None if extra is None else {"place": extra, "comes from": origin[extra], "should": "not be touched"}


# --- compiled code -------------------------------------------------------------------------------------------------


def run_claim(ptx: str, claim: Claim, *, columns: Sequence[int] = BASES) -> tuple[Obligation, ...]:
    """Execute a kernel on distinct elements, once per first column that the allocation may get, and compare.

    With the default the base is as good as unknown: allocations start at multiples of 32 columns, and all 16 are tried
    (of those without room for the allocation, the interpreter gives out the lowest that has).

    Args:
        ptx: the compiled module.
        claim: what it promises, with one input and one output.
        columns: first columns that ``tcgen05.alloc`` gives out.
    """
    scope = f"allocation at columns {', '.join(map(str, columns))}; inputs in which every element is distinct"
    try:
        program = load(parse(ptx, file=f"{claim.entry}.ptx"), claim.entry)
    except PtxError as error:
        problem: dict[str, Any] | None = {"error": str(error)}
    else:
        problem = next((found for column in columns for found in _wrong(program, claim, column)), None)
    return (_obligation(EXECUTED, scope, problem),)


def _wrong(program: Program, claim: Claim, column: int) -> Iterator[dict[str, Any]]:
    given, result = (_buffer(claim, role) for role in ("input", "output"))
    want_from, want_to = _expected(claim, given, result)
    for tags in _tags(given.count, claim.width):
        try:
            ran = run(
                program,
                grid=claim.grid,
                block=claim.block,
                params=[Buffer(tags), Buffer(np.zeros(result.count, tags.dtype), mode="w")],
                dynamic_shared=claim.dynamic_shared_bytes,
                tmem_column=column,
            )
        except FindingError as error:
            yield {"column": column, "finding": str(error.finding), "kind": error.finding.kind}
            return
        except PtxError as error:
            yield {"column": column, "error": str(error)}
            return
        if ran.warnings:
            yield {"column": column, "warning": ran.warnings[0]}
        written = ran.written[1].reshape(result.count, claim.width)
        should = np.zeros(result.count, dtype=bool)
        should[want_to] = True
        bad = np.flatnonzero((written != should[:, None]).any(axis=1))
        if bad.size:
            yield {"column": column, "output": int(bad[0]), "written": bool(written[bad[0]].any())}
        bad = np.flatnonzero(ran.buffers[1][want_to] != tags[want_from])
        if bad.size:
            at = int(want_to[bad[0]])
            found = int(ran.buffers[1][at])
            yield {"column": column, "output": at, "should": int(tags[want_from[bad[0]]]), "found": found}


def _expected(claim: Claim, given: ClaimBuffer, result: ClaimBuffer) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Input and output index of every element that moves."""
    pairs = [move.coordinates(values) for move in claim.moves for values in move.assignments()]
    read = np.concatenate([source for source, _ in pairs]) - given.first
    write = np.concatenate([destination for _, destination in pairs]) - result.first
    return read, write


def _buffer(claim: Claim, role: str) -> ClaimBuffer:
    (found,) = (p for p in claim.params if isinstance(p, ClaimBuffer) and p.role == role)
    return found


def _tags(count: int, width: int) -> Iterator[NDArray[Any]]:
    """Arrays of elements that together tell every element apart: one, or one per digit of the index.

    Adding one keeps the tags of a first element off zero, which is what lost data most often reads as.
    """
    kind = np.dtype(f"u{width}")
    base = 1 << (8 * min(width, 4))
    index = np.arange(1, count + 1, dtype=np.uint64)
    while True:
        digit = index % np.uint64(base)
        # Both halves of a wide element differ.
        yield (digit | (~digit << np.uint64(32)) if width == 8 else digit).astype(kind)
        index //= np.uint64(base)
        if not index.any():
            return
