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

from codegen_cuda.expr import Expr
from codegen_cuda.permute.bodies import Body, stage_shift
from codegen_cuda.permute.plan import Moves, Plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.task import LANES, Ints, Task

__all__ = ["count_operations", "lane_body"]

_IDLE = 0xFFFF
_PER_ROW = 8
_CARRIERS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}


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
    """The looked-up numbers, in order of use, and the lines that load them."""

    name: str
    columns: list[Ints] = field(default_factory=list)
    loaded: int = 0

    def add(self, values: Ints, lines: list[str]) -> str:
        """Add one number per lane; return how to spell it, loading its row first where that has not happened."""
        number = len(self.columns)
        self.columns.append(values)
        row, place = divmod(number, _PER_ROW)
        if row == self.loaded:
            lines.append(f"const uint4 t{row} = {self.name}_schedule[{row}][lane];")
            self.loaded += 1
        word = f"t{row}.{'xyzw'[place // 2]}"
        return f"({word} & 0xffff)" if place % 2 == 0 else f"({word} >> 16)"

    def declaration(self) -> str:
        """Spell the table."""
        rows = -(-len(self.columns) // _PER_ROW)
        flat = np.full((rows * _PER_ROW, LANES), _IDLE, dtype=np.int64)
        flat[: len(self.columns)] = self.columns
        words = flat[0::2] | flat[1::2] << 16
        table = words.reshape(rows, 4, LANES).transpose(0, 2, 1)
        text = ",\n".join(
            "    {" + ", ".join("{" + ", ".join(map(str, lane)) + "}" for lane in row) + "}" for row in table.tolist()
        )
        return (
            "// Per lane, 16 bits each, in order of use: indices of accesses (0xffff: idle) and selectors of bytes.\n"
            f"__device__ const uint4 {self.name}_schedule[{rows}][{LANES}] = {{\n{text}\n}};"
        )


def lane_body(problem: Problem, plan: Plan, task: Task, name: str) -> Body:
    """Return the code of a plan given by its instructions."""
    reads = [(a.width, np.array(a.elements)) for a in plan.reads]
    writes = [(a.width, np.array(a.elements)) for a in plan.writes]
    chains = _chains([t for _, t in reads], [t for _, t in writes], task.width)
    entries = _Entries(name)
    sides = (
        _Side(problem.source, task.source, "in", problem),
        _Side(problem.destination, task.destination, "out", problem),
    )
    setup = [line for side, moves in zip(sides, (reads, writes), strict=True) for line in side.pointers(moves)]
    lines: list[str] = []
    done = 0
    for number, (width, table) in enumerate(reads):
        lines += sides[0].read(f"r{number}", width, table, entries)
        while done < len(chains) and all(step.register <= number for step in chains[done]):
            lines += _assemble(f"w{done}", chains[done], writes[done][0], entries)
            done += 1
    stores: list[str] = []
    for number, (width, table) in enumerate(writes):
        value = f"r{chains[number][0].register}" if _is_plain(chains[number], width) else f"w{number}"
        stores += sides[1].write(value, width, table, entries)
    return Body(declarations=(entries.declaration(),), setup=tuple(setup), reads=tuple(lines), writes=tuple(stores))


def _assemble(name: str, steps: Sequence[_Step], width: int, entries: _Entries) -> list[str]:
    """Return the lines that put one word together, in order of its registers."""
    if _is_plain(steps, width):
        return []
    lines: list[str] = []
    word = f"r{steps[0].register}"
    rest = steps[1:] if len(steps) > 1 else steps
    for step in rest:
        uniform = step.uniform
        selector = f"{uniform:#06x}" if uniform is not None else entries.add(np.array(step.selectors), lines)
        head = f"unsigned {name} = " if step is rest[0] else f"{name} = "
        lines.append(f"{head}__byte_perm({word}, r{step.register}, {selector.strip('()')});")
        word = name
    return lines


class _Side:
    """Pointers and accesses of one side."""

    def __init__(self, layout: Layout, places: Ints, pointer: str, problem: Problem) -> None:
        self.places, self.pointer, self.width = places, pointer, problem.width
        self.base = int(places.min()) // 4 * 4
        self.move = stage_shift(layout, problem)

    def pointers(self, moves: Sequence[tuple[int, Ints]]) -> list[str]:
        """Return declarations of a pointer per width."""
        lines = []
        for width in sorted({w for w, _ in moves}, reverse=True):
            start = self.move * self.width // width + self.base // width
            kind, array = _CARRIERS[width], "src" if self.pointer == "in" else "dst"
            const = "const " if self.pointer == "in" else ""
            shift = f" + ({start})" if start != Expr.of(0) else ""
            lines.append(
                f"{const}{kind}* {self.pointer}{8 * width} = reinterpret_cast<{const}{kind}*>({array}){shift};"
            )
        return lines

    def _index(self, width: int, table: Ints, entries: _Entries, lines: list[str]) -> tuple[str, str]:
        needed = table >= 0
        position = needed.argmax(axis=1)
        first = table[np.arange(LANES), position]
        index = (self.places[np.maximum(first, 0)] - position * self.width - self.base) // width
        text = entries.add(np.where(first >= 0, index, _IDLE), lines)
        return text, f"if ({text} != {_IDLE:#x}) " if (first < 0).any() else ""

    def read(self, name: str, width: int, table: Ints, entries: _Entries) -> list[str]:
        """Return the lines of one load."""
        lines: list[str] = []
        text, guard = self._index(width, table, entries, lines)
        access = f"{self.pointer}{8 * width}[{text[1:-1]}]"
        if not guard:
            return [*lines, f"const unsigned {name} = {access};"]
        return [*lines, f"unsigned {name} = 0;", f"{guard}{name} = {access};"]

    def write(self, value: str, width: int, table: Ints, entries: _Entries) -> list[str]:
        """Return the lines of one store."""
        lines: list[str] = []
        text, guard = self._index(width, table, entries, lines)
        cast = "" if width == 4 else f"({_CARRIERS[width]})"
        return [*lines, f"{guard}{self.pointer}{8 * width}[{text[1:-1]}] = {cast}{value};"]
