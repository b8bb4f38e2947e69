"""Plans and code for linear pairs whose lanes move several elements at once (forms ``vector`` and ``words``).

The read phase fills registers with accesses, the write phase empties them; in between, at 1 and 2 bytes, ``prmt``
gathers the bytes of each word that is written.  Since everything is linear, the registers that feed a word are the same
in all lanes, and a lane's selector is a constant with some of its bits flipped by a linear function of the lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from codegen_cuda.access import word_type
from codegen_cuda.body import Statement, Store, let
from codegen_cuda.buffers import Buffer, alloc
from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import lane_variable, warp_variable
from codegen_cuda.permute.bodies import Phases, Sides, guarded, linear_expr, offset, stage_shift, word_pointer
from codegen_cuda.permute.gf2 import operations, split_address
from codegen_cuda.permute.linear import Blocks, LinearSide, apply, choose_blocks, images
from codegen_cuda.permute.plan import LANES, Plan, list_plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.selectors import Selectors
from codegen_cuda.permute.task import Ints, Task, group_lanes
from codegen_cuda.values import Literal, Name, Value, all_of, compare
from codegen_cuda.words import byte_perm, cast, field, record
from layoutalg.subspaces import Span, rank

__all__ = ["block_body", "plan_blocks"]


def plan_blocks(
    form: str,
    problem: Problem,
    task: Task,
    sides: tuple[LinearSide, LinearSide],
    widths: Iterable[tuple[int, int]],
) -> Plan | None:
    """Return the cheapest plan with one of the given widths in bytes of reads and writes, or None where none fits."""
    best: tuple[tuple[int, int], Blocks] | None = None
    bits, limit = task.size.bit_length() - 1, problem.max_registers
    hopes = sorted((_hope(bits, sides, task.width, pair), pair) for pair in widths)
    for hope, (read, write) in hopes:
        if best is not None and hope >= best[0]:
            break
        blocks = choose_blocks(task, sides, read, write, warps=problem.warps)
        if blocks is None or _registers(blocks) > limit:
            continue
        cost = _cost(blocks, sides)
        if best is None or cost < best[0]:
            best = cost, blocks
    return None if best is None else _plan(form, problem, task, sides, best[1])


def _hope(bits: int, sides: tuple[LinearSide, LinearSide], width: int, pair: tuple[int, int]) -> tuple[int, int]:
    """Return wavefronts and instructions if all goes as well as the dimensions allow."""
    inner = rank((*sides[0].inside(pair[0]), *sides[1].inside(pair[1])))
    lanes = max(0, min(5, bits - inner))
    wavefronts = instructions = 0
    for linear, size in zip(sides, pair, strict=True):
        count = max(1, (1 << (bits - lanes)) * width // size)
        depth = min(group_lanes(size).bit_length() - 1, lanes)
        # Lanes of one word share a wavefront, so only words count that banks do not tell apart.
        shared = len(linear.inside(4)) - len(linear.inside(size)) if size < 4 else 0
        worst = 1 << max(0, depth - shared - rank(linear.banks(size)))
        wavefronts += count * (1 << (lanes - depth)) * worst
        instructions += count
    return wavefronts, instructions


def _cost(blocks: Blocks, sides: tuple[LinearSide, LinearSide]) -> tuple[int, int]:
    """Return wavefronts and instructions of chosen lanes."""
    wavefronts = instructions = 0
    for side, linear, size in zip(_SIDES, sides, (blocks.read, blocks.write), strict=True):
        count = 1 << len(blocks.rows(side))
        depth = min(group_lanes(size).bit_length() - 1, len(blocks.lanes))
        units, banks = (
            rank([apply(columns, v) for v in blocks.lanes[:depth]])
            for columns in ([c // max(size, 4) for c in linear.columns], linear.banks(size))
        )
        wavefronts += count * (1 << (len(blocks.lanes) - depth)) << (units - banks)
        instructions += count
    return wavefronts, instructions


def _registers(blocks: Blocks) -> int:
    reads = 1 << (len(blocks.rows("source")) - len(blocks.warps))
    return reads * max(1, blocks.read // 4)


def _plan(form: str, problem: Problem, task: Task, sides: tuple[LinearSide, LinearSide], blocks: Blocks) -> Plan:
    reads, writes = (blocks.elements(side, linear, task.width) for side, linear in zip(_SIDES, sides, strict=True))
    work = operations(blocks, sides) + (len(_Network(blocks, sides, task.width).steps) if task.width < 4 else 0)
    details = {
        "read_bytes": blocks.read,
        "write_bytes": blocks.write,
        "lanes": blocks.lanes,
        "slots": (*blocks.warps, *blocks.inner, *blocks.outer),
    }
    moves = [(blocks.read, reads)], [(blocks.write, writes)]
    return list_plan(form, *moves, problem, details, task=task, operations=work, registers=_registers(blocks))


_SIDES = ("source", "destination")


@dataclass(frozen=True, slots=True)
class _Step:
    """One word made of bytes of one or two other words.

    Args:
        name: of the new word.
        inputs: names of one or two words.
        selectors: per lane, four nibbles, the lowest for byte 0; values from 4 on mean the second input.
    """

    name: str
    inputs: tuple[str, ...]
    selectors: tuple[int, ...]


class _Network:
    """How the words that are written come from the words that were read, for one warp.

    A word is 4 bytes of a register, or fewer where an access is narrower.  Elements are named by their register vector
    rho: lane l holds element ``L(l) ^ rho``.
    """

    def __init__(self, blocks: Blocks, sides: tuple[LinearSide, LinearSide], width: int) -> None:
        self.blocks, self.sides, self.width = blocks, sides, width
        self.lanes = images(blocks.lanes)
        self.lane_part = [images([apply(linear.columns, v) for v in blocks.lanes]) for linear in sides]
        # Bases of what moves only inside one word.
        self.inside = sides[0].inside(min(blocks.read, 4)), sides[1].inside(min(blocks.write, 4))
        self.steps: list[_Step] = []
        self.words: dict[tuple[int, int], str] = {}
        warps = 1 << len(blocks.warps)
        rows = [images(blocks.rows(side))[::warps] for side in _SIDES]
        inside = [images(blocks.source_inside), images(blocks.destination_inside)]
        #: rho -> (name of the word that was read, byte position per lane)
        self.read: dict[int, tuple[str, Ints]] = {}
        for number, row in enumerate(rows[0]):
            for s in inside[0]:
                rho = int(row ^ s)
                self.read[rho] = self._locate(0, rho, number)
        self.made: dict[tuple[int, ...], tuple[str, dict[int, Ints]]] = {}
        if width >= 4:
            self._rename(rows[1], inside[1])
            return
        for number, row in enumerate(rows[1]):
            by_word: dict[int, list[int]] = {}
            for d in inside[1]:
                rho = int(row ^ d)
                word = int(self._address(1, rho)[0] % blocks.write // 4)
                by_word.setdefault(word, []).append(rho)
            for word, members in sorted(by_word.items()):
                self.words[number, word] = self._word(tuple(sorted(members)), number, word)

    def _rename(self, rows: Ints, inside: Ints) -> None:
        """Elements of whole words only change their names."""
        for number, row in enumerate(rows):
            for d in inside:
                rho = int(row ^ d)
                name, _, field = self.read[rho][0].partition(".")
                first = int(self._address(1, rho)[0] % self.blocks.write // 4)
                for k in range(self.width // 4):
                    part = f".{'xyzw'['xyzw'.index(field) + k]}" if field else ""
                    self.words[number, first + k] = name + part

    def _address(self, side: int, rho: int) -> Ints:
        linear = self.sides[side]
        place: Ints = self.lane_part[side] ^ apply(linear.columns, rho) ^ linear.constant
        return place

    def _locate(self, side: int, rho: int, number: int) -> tuple[str, Ints]:
        """Name the word that an element is read into, and its byte in every lane."""
        address = self._address(side, rho) % self.blocks.read
        word = int(address[0] // 4)
        name = f"r{number}" + (f".{'xyzw'[word]}" if self.blocks.read > 4 else "")
        return name, address % 4

    def _word(self, members: tuple[int, ...], number: int, word: int) -> str:
        """Make one word that is written; return its name."""
        target = {rho: self._address(1, rho) % self.blocks.write % 4 for rho in members}
        sources = sorted({self.read[rho][0] for rho in members})
        if len(sources) <= 2:
            return self._step(
                f"w{number}_{word}", tuple(sources), {rho: (self.read[rho], target[rho]) for rho in members}
            )
        halves = self._halves(members)
        parts = [self._gather(half) for half in halves]
        origin = {rho: (name, place[rho]) for name, place in parts for rho in place}
        names = tuple(dict.fromkeys(name for name, _ in parts))
        return self._step(f"w{number}_{word}", names, {rho: (origin[rho], target[rho]) for rho in members})

    def _halves(self, members: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Split a word's elements so that each half comes from two of the words read."""
        source, destination = self.inside
        second = _quotient_basis(destination, source)[-1]
        half = Span((*(v for v in destination if v != second), *source))
        first = members[0]
        mine = tuple(rho for rho in members if half.reduce(rho ^ first) == 0)
        return [mine, tuple(rho for rho in members if rho not in mine)]

    def _gather(self, half: tuple[int, ...]) -> tuple[str, dict[int, Ints]]:
        """Make (or find) an intermediate word with these elements and as many of their companions as fit."""
        # Companions differ by the last vector of S that D does not have.
        span = _quotient_basis(*self.inside)[-1:] if self.width == 1 else []
        members = sorted({rho ^ int(v) for rho in half for v in images(span)})
        chosen = tuple(members[: 4 // self.width])
        if not set(half) <= set(chosen):
            chosen = half
        if chosen not in self.made:
            place = {rho: np.full(LANES, self.width * k) for k, rho in enumerate(chosen)}
            sources = tuple(sorted({self.read[rho][0] for rho in chosen}))
            name = self._step(
                f"m{len(self.made)}",
                sources,
                {rho: (self.read[rho], place[rho][: len(self.lanes)]) for rho in chosen},
            )
            self.made[chosen] = name, place
        return self.made[chosen]

    def _step(self, name: str, inputs: tuple[str, ...], moves: dict[int, tuple[tuple[str, Ints], Ints]]) -> str:
        """Record how one word is put together; a word that is already right needs no step."""
        selectors = np.zeros(len(self.lanes), dtype=np.int64)
        for (source, place), target in moves.values():
            start = 4 * inputs.index(source)
            for byte in range(self.width):
                selectors |= (start + place[: len(self.lanes)] + byte) << 4 * (target[: len(self.lanes)] + byte)
        if len(inputs) == 1 and (selectors == sum(k << 4 * k for k in range(len(moves) * self.width))).all():
            return inputs[0]
        self.steps.append(_Step(name, inputs, tuple(selectors.tolist())))
        return name


def _quotient_basis(space: tuple[int, ...], part: tuple[int, ...]) -> list[int]:
    span = Span(part)
    return [vector for vector in space if span.add(vector)]


def block_body(
    problem: Problem, plan: Plan, task: Task, sides: tuple[LinearSide, LinearSide], buffers: Sides
) -> Phases:
    """Return the statements of a plan of :func:`plan_blocks`."""
    read, write = plan.details["read_bytes"], plan.details["write_bytes"]
    blocks = choose_blocks(task, sides, read, write, warps=problem.warps)
    assert blocks is not None
    network = _Network(blocks, sides, task.width)
    guard = all_of(compare(lane_variable(), "<", 1 << len(blocks.lanes)))
    setup: list[Statement] = []
    views, places = [], []
    for side, names, linear, layout, buffer, size in zip(
        _SIDES,
        (("in", "from"), ("out", "to")),
        sides,
        (problem.source, problem.destination),
        buffers,
        (read, write),
        strict=True,
    ):
        pointer, view = word_pointer(names[0], word_type(size), buffer)
        base = let(names[1], _lane_part(problem, blocks, linear, size))
        setup += [pointer, base]
        views.append(view)
        places.append(_offsets(blocks, linear, side, layout, problem, size, base.var))
    regs = alloc("regs", (len(places[0]),), word_type(read), scope="local", pointer="regs")
    setup.append(regs)
    if guard.decide() is None:  # idle lanes take part in the sorting of bytes, so their registers hold something
        setup += [Store(register, _zero(read)) for register in map(regs.__getitem__, range(len(places[0])))]
    selectors = Selectors(len(blocks.lanes))
    steps = [
        let(s.name, byte_perm(_word(regs, s.inputs[0]), _word(regs, s.inputs[-1]), selectors.value(s.selectors)))
        for s in network.steps
    ]
    reads = [(guard, Store(regs[i], views[0].at(place))) for i, place in enumerate(places[0])]
    writes = [
        (
            guard,
            Store(views[1].at(place), _value(regs, write, [network.words[j, q] for q in range(max(1, write // 4))])),
        )
        for j, place in enumerate(places[1])
    ]
    return Phases((), tuple(setup), guarded(reads), (*selectors.setup(), *steps), guarded(writes))


def _zero(width: int) -> Value:
    words = [Literal(0, word_type(4))] * (width // 4)
    return record(*words) if words else Literal(0, word_type(width))


def _word(regs: Buffer, name: str) -> Value:
    """Return what a name of the network stands for: a word of a register, or a word that was made."""
    number, _, part = name.partition(".")
    if number[0] != "r":
        return Name(name, word_type(4))
    register = regs[int(number[1:])]
    return field(register, "xyzw".index(part)) if part else cast("uint32", register)


def _value(regs: Buffer, width: int, words: list[str]) -> Value:
    """Return what is written, from its words; whole registers as they are."""
    if width <= 4:
        return cast(word_type(width), _word(regs, words[0]))
    whole = {word.split(".")[0] for word in words}
    if (
        regs.dtype.bytes == width
        and len(whole) == 1
        and [w.partition(".")[2] for w in words] == list("xyzw"[: len(words)])
    ):
        element: Value = regs[int(whole.pop()[1:])]
        return element
    return record(*(_word(regs, word) for word in words))


def _lane_part(problem: Problem, blocks: Blocks, linear: LinearSide, size: int) -> Expr:
    lane, warp = ([apply(linear.columns, v) // size for v in vectors] for vectors in (blocks.lanes, blocks.warps))
    return linear_expr([(lane_variable(), lane), (warp_variable(problem), warp)])


def _offsets(
    blocks: Blocks, linear: LinearSide, side: str, layout: Layout, problem: Problem, size: int, variable: Expr
) -> list[Expr]:
    """Return the index of every instruction in units of its width."""
    move = stage_shift(layout, problem)
    scaled = move * problem.width // size + linear.origin // size
    parts = split_address(blocks, linear, side)[1]
    return [offset(variable, x // size, scaled + immediate // size) for x, immediate in parts]
