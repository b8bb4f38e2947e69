"""Code for plans whose lanes each do something of their own: addresses and selectors are looked up.

Every instruction has one entry per lane, 16 bits: which unit of its width the lane moves.  What is read goes to one
register per read.  A word to be written takes its bytes from several registers, which ones depends on the lane: a chain
of ``prmt``, each adding the bytes that come from one more register, with a selector per lane (16 bits, looked up too)
or, where all lanes agree, an immediate one.  Words are put together as soon as their bytes are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen_cuda.access import Pointer, word_type
from codegen_cuda.body import Let, Statement, Store, let
from codegen_cuda.buffers import Buffer, Element, alloc
from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import lane_variable
from codegen_cuda.permute.bodies import Phases, Sides, guarded, stage_shift, word_pointer
from codegen_cuda.permute.plan import Moves, Plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.task import LANES, Ints, Task
from codegen_cuda.tables import Lookup, Table
from codegen_cuda.values import Combination, Literal, Value, all_of, compare
from codegen_cuda.words import byte_perm, cast
from codegen_cuda.words import field as word_of
from layoutalg.hardware.dtypes import dtype

__all__ = ["count_operations", "lane_body"]

_IDLE = 0xFFFF
_PER_ROW = 8
_ROW = word_type(16)


@dataclass(frozen=True, slots=True)
class _Step:
    """``prmt`` of the word so far and one more register.

    Args:
        register: number of the read whose bytes are added.
        selectors: per lane.
    """

    register: int
    selectors: tuple[int, ...]

    @property
    def uniform(self) -> int | None:
        """The selector if all lanes have the same."""
        return self.selectors[0] if len(set(self.selectors)) == 1 else None


def _chains(reads: Sequence[Ints], writes: Sequence[Ints], width: int) -> list[list[_Step]]:
    """Return for each write the steps that put its word together."""
    origin: dict[int, tuple[int, int]] = {}
    for number, table in enumerate(reads):
        for lane in range(LANES):
            for position, element in enumerate(table[lane].tolist()):
                if element >= 0:
                    origin[element] = number, position * width
    return [_chain(table, origin, width) for table in writes]


def _chain(table: Ints, origin: dict[int, tuple[int, int]], width: int) -> list[_Step]:
    """Steps for one word: ``table[lane][position]`` says what it holds."""
    bytes_: list[list[tuple[int, int]]] = []
    for lane in range(LANES):
        some = []
        for element in table[lane].tolist():
            if element >= 0:
                register, start = origin[element]
                some += [(register, start + byte) for byte in range(width)]
        bytes_.append(some)
    steps = []
    registers = sorted({register for some in bytes_ for register, _ in some})
    for number, register in enumerate(registers):
        selectors: list[int | None] = []
        for some in bytes_:
            if not some:
                selectors.append(None)
                continue
            # Up to here the word keeps what it has; the first register starts it.
            nibbles = [
                (byte + 4 * (number > 0)) if source == register else target
                for target, (source, byte) in enumerate(some)
            ]
            selectors.append(sum(nibble << 4 * k for k, nibble in enumerate(nibbles)))
        known = [s for s in selectors if s is not None]
        steps.append(_Step(register, tuple(s if s is not None else known[0] for s in selectors)))
    return _merged(steps, bytes_)


def _merged(steps: list[_Step], bytes_: Sequence[Sequence[tuple[int, int]]]) -> list[_Step]:
    """Take the first two registers in one step: its selector chooses between them."""
    if len(steps) < 2:
        return steps
    first, second = steps[0].register, steps[1].register
    selectors = []
    for some in bytes_:
        nibbles = [byte if source == first else byte + 4 if source == second else 0 for source, byte in some]
        selectors.append(sum(nibble << 4 * k for k, nibble in enumerate(nibbles)) if some else None)
    known = [s for s in selectors if s is not None]
    merged = _Step(second, tuple(s if s is not None else known[0] for s in selectors))
    return [_Step(first, (-1,) * LANES), merged, *steps[2:]]


def _is_plain(steps: Sequence[_Step], size: int) -> bool:
    """Whether the word is one register as it is."""
    return len(steps) == 1 and steps[0].uniform == sum(k << 4 * k for k in range(size))


def count_operations(reads: Sequence[Moves], writes: Sequence[Moves]) -> int:
    """Estimate the instructions per lane beyond loads and stores: entries, selections and table loads."""
    width = reads[0][0] // reads[0][1].shape[2]
    chains = _chains([t[0] for _, t in reads], [t[0] for _, t in writes], width)
    entries = len(reads) + len(writes) + sum(step.uniform is None for chain in chains for step in chain)
    return 2 * entries + -(-entries // _PER_ROW) + sum(max(1, len(chain) - 1) for chain in chains)


@dataclass(slots=True)
class _Entries:
    """The looked-up numbers, in order of use, and the statements that load them."""

    name: str
    columns: list[Ints] = field(default_factory=list)
    loaded: list[Let] = field(default_factory=list)

    @property
    def pointer(self) -> Pointer:
        """The table's, which is made in the end."""
        return Pointer(f"{self.name}_schedule", _ROW, "global", _ROW.bytes)

    def add(self, values: Ints, statements: list[Statement]) -> Value:
        """Add one number per lane; return it, loading its row first where that has not happened."""
        number = len(self.columns)
        self.columns.append(values)
        row, place = divmod(number, _PER_ROW)
        if row == len(self.loaded):
            self.loaded.append(let(f"t{row}", Lookup(self.pointer, (Expr.of(row), lane_variable()))))
            statements.append(self.loaded[-1])
        word = word_of(self.loaded[row].var, place // 2)
        return word & Literal(0xFFFF, dtype("uint32"), digits=4) if place % 2 == 0 else word >> 16

    def table(self) -> Table:
        """Return the table."""
        rows = -(-len(self.columns) // _PER_ROW)
        flat = np.full((rows * _PER_ROW, LANES), _IDLE, dtype=np.int64)
        flat[: len(self.columns)] = self.columns
        words = flat[0::2] | flat[1::2] << 16
        listed = words.reshape(rows, 4, LANES).transpose(0, 2, 1).reshape(-1, 4).tolist()
        comment = "Per lane, 16 bits each, in order of use: indices of accesses (0xffff: idle) and selectors of bytes."
        return Table(self.pointer.name, _ROW, (rows, LANES), tuple(map(tuple, listed)), comment, digits=8)


def lane_body(problem: Problem, plan: Plan, task: Task, name: str, buffers: Sides) -> Phases:
    """Return the statements of a plan given by its instructions."""
    reads = [(a.width, np.array(a.elements)) for a in plan.reads]
    writes = [(a.width, np.array(a.elements)) for a in plan.writes]
    chains = _chains([t for _, t in reads], [t for _, t in writes], task.width)
    entries = _Entries(name)
    sides = (
        _Side(problem.source, task.source, "in", problem, buffers[0], {w for w, _ in reads}),
        _Side(problem.destination, task.destination, "out", problem, buffers[1], {w for w, _ in writes}),
    )
    regs = alloc("regs", (len(reads),), "uint32", scope="local", pointer="regs")
    gathered: list[Statement] = []
    words: dict[int, Value] = {}
    for number, (width, table) in enumerate(reads):
        gathered += sides[0].read(regs[number], width, table, entries)
        while len(words) < len(chains) and all(step.register <= number for step in chains[len(words)]):
            done = len(words)
            words[done] = _assemble(f"w{done}", chains[done], writes[done][0], regs, entries, gathered)
    stores: list[Statement] = []
    for number, (width, table) in enumerate(writes):
        stores += sides[1].write(words[number], width, table, entries)
    setup: tuple[Statement, ...] = (*sides[0].pointers, *sides[1].pointers, regs)
    return Phases(tables=(entries.table(),), setup=setup, reads=tuple(gathered), writes=tuple(stores))


def _assemble(
    name: str, steps: Sequence[_Step], width: int, regs: Buffer, entries: _Entries, statements: list[Statement]
) -> Value:
    """Add the statements that put one word together, in order of its registers; return the word."""
    word: Value = regs[steps[0].register]
    if _is_plain(steps, width):
        return word
    for number, step in enumerate(steps[1:] if len(steps) > 1 else steps):
        uniform = step.uniform
        selector: Value = (
            Literal(uniform, dtype("uint32"), digits=4)
            if uniform is not None
            else entries.add(np.array(step.selectors), statements)
        )
        made = let(f"{name}_{number}", byte_perm(word, regs[step.register], selector))
        statements.append(made)
        word = made.var
    return word


class _Side:
    """Pointers and accesses of one side."""

    def __init__(
        self, layout: Layout, places: Ints, pointer: str, problem: Problem, buffer: Buffer, widths: set[int]
    ) -> None:
        self.places, self.width = places, problem.width
        self.base = int(places.min()) // 4 * 4
        start = stage_shift(layout, problem) * self.width + self.base
        made = {w: word_pointer(f"{pointer}{8 * w}", word_type(w), buffer, start) for w in sorted(widths, reverse=True)}
        self.pointers = tuple(binding for binding, _ in made.values())
        self.views = {width: view for width, (_, view) in made.items()}

    def _index(
        self, width: int, table: Ints, entries: _Entries, statements: list[Statement]
    ) -> tuple[Value, Combination]:
        needed = table >= 0
        position = needed.argmax(axis=1)
        first = table[np.arange(LANES), position]
        index = (self.places[np.maximum(first, 0)] - position * self.width - self.base) // width
        entry = entries.add(np.where(first >= 0, index, _IDLE), statements)
        return entry, all_of(*([compare(entry, "!=", _IDLE)] if (first < 0).any() else []))

    def read(self, register: Element, width: int, table: Ints, entries: _Entries) -> list[Statement]:
        """Return the statements of one load."""
        statements: list[Statement] = []
        index, guard = self._index(width, table, entries, statements)
        load = Store(register, cast("uint32", self.views[width].at(index)))
        idle = [Store(register, 0)] if guard.decide() is None else []
        return [*statements, *idle, *guarded([(guard, load)])]

    def write(self, value: Value, width: int, table: Ints, entries: _Entries) -> list[Statement]:
        """Return the statements of one store."""
        statements: list[Statement] = []
        index, guard = self._index(width, table, entries, statements)
        store = Store(self.views[width].at(index), cast(word_type(width), value))
        return [*statements, *guarded([(guard, store)])]
