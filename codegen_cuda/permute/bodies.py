"""Device code of the forms that go slot by slot: xor, rotation, gf2 and table.

A body is lines of C for both phases; :mod:`codegen_cuda.permute.emit` puts the barriers and the function around them.
Everything is straight-line: one load and one store per register, addresses from the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_cuda.expr import Expr
from codegen_cuda.permute.address import address, stage_terms
from codegen_cuda.permute.gf2 import gf2_slots, split_address
from codegen_cuda.permute.linear import apply
from codegen_cuda.permute.plan import LANES, Plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.rotation import rotation_order, rotation_positions
from codegen_cuda.permute.task import Ints, task_of
from codegen_cuda.permute.xor import xor_elements

__all__ = ["Body", "linear_text", "moved_type", "offset_text", "slot_body", "stage_shift"]

_IDLE = 0xFFFFFFFF
_HALF = 0xFFFF


@dataclass(frozen=True, slots=True)
class Body:
    """What a form contributes to the source text.

    Args:
        declarations: lines at file scope: tables.
        setup: lines before the read phase.
        reads: the read phase.
        between: work on registers after the barrier.
        writes: the write phase.
    """

    declarations: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


#: Per register: guard, source index, destination index.
_Slot = tuple[str, str, str]


def slot_body(problem: Problem, plan: Plan, name: str) -> Body:
    """Return the body of a plan that goes slot by slot."""
    make: dict[str, Callable[[Problem, Plan, str], tuple[Sequence[str], Sequence[str], Sequence[_Slot]]]] = {
        "xor": _xor,
        "rotation": _rotation,
        "gf2": _gf2,
        "table": _table,
    }
    declarations, setup, slots = make[plan.form](problem, plan, name)
    if problem.width < 4 and plan.registers < len(slots):
        return _joined(problem, declarations, setup, slots)
    return Body(
        declarations=tuple(declarations),
        setup=(*setup, f"{moved_type(problem)} regs[{len(slots)}];"),
        reads=tuple(f"{guard}regs[{r}] = src[{source}];" for r, (guard, source, _) in enumerate(slots)),
        writes=tuple(f"{guard}dst[{target}] = regs[{r}];" for r, (guard, _, target) in enumerate(slots)),
    )


def moved_type(problem: Problem) -> str:
    """Return the C type that carries an element; one that keeps any bits."""
    return "unsigned char" if problem.dtype.kind == "bool" else problem.dtype.c_type


def _joined(problem: Problem, declarations: Sequence[str], setup: Sequence[str], slots: Sequence[_Slot]) -> Body:
    """Keep several narrow elements in one register, where there would be too many registers."""
    kind, bits = f"unsigned {'char' if problem.width == 1 else 'short'}", 8 * problem.width
    per = 32 // bits
    reads, writes = [], []
    for r, (guard, source, target) in enumerate(slots):
        word, place = divmod(r, per)
        shift = f" << {bits * place}" if place else ""
        reads.append(f"{guard}regs[{word}] |= (unsigned)in[{source}]{shift};")
        writes.append(f"{guard}out[{target}] = ({kind})(regs[{word}]{shift.replace('<<', '>>')});")
    pointers = (
        f"const {kind}* in = reinterpret_cast<const {kind}*>(src);",
        f"{kind}* out = reinterpret_cast<{kind}*>(dst);",
    )
    zero = f"unsigned regs[{-(-len(slots) // per)}] = {{}};"
    return Body(tuple(declarations), (*pointers, *setup, zero), tuple(reads), (), tuple(writes))


def _registers(problem: Problem, plan: Plan) -> int:
    return -(-len(plan.slots) // problem.warps)


def _xor(problem: Problem, plan: Plan, _: str) -> tuple[Sequence[str], Sequence[str], Sequence[_Slot]]:
    element = xor_elements(problem, dict(plan.details))
    return (
        (),
        (),
        [_spelled("", problem.source, problem.destination, element(r)) for r in range(_registers(problem, plan))],
    )


def _rotation(problem: Problem, plan: Plan, _: str) -> tuple[Sequence[str], Sequence[str], Sequence[_Slot]]:
    details = dict(plan.details)
    order, position = rotation_order(problem, details), rotation_positions(problem, details)
    slots = []
    for r in range(_registers(problem, plan)):
        at = position(r)
        guards = [f"{at} < {problem.size}"] if at.bounds()[1] >= problem.size else []
        if (r + 1) * problem.warps > len(plan.slots):
            guards.insert(0, f"{r * problem.warps} + warp < {len(plan.slots)}")
        guard = f"if ({' && '.join(guards)}) " if guards else ""
        slots.append(_spelled(guard, order.source, order.destination, at))
    return (), (), slots


def _spelled(guard: str, source: Layout, destination: Layout, element: Expr) -> _Slot:
    return guard, str(address(source, element)), str(address(destination, element))


def _gf2(problem: Problem, _: Plan, name: str) -> tuple[Sequence[str], Sequence[str], Sequence[_Slot]]:
    task, width = task_of(problem), problem.width
    found = gf2_slots(task, problem.warps)
    assert found is not None, name
    blocks, sides = found[1:]
    guard = f"if (lane < {1 << len(blocks.lanes)}) " if len(blocks.lanes) < 5 else ""
    setup: list[str] = []
    texts: list[list[str]] = []
    for side, variable, linear, layout in zip(
        ("source", "destination"), ("from", "to"), sides, (problem.source, problem.destination), strict=True
    ):
        parts = split_address(blocks, linear, side)[1]
        lane, warp = ([apply(linear.columns, v) // width for v in vectors] for vectors in (blocks.lanes, blocks.warps))
        setup.append(f"const int {variable} = {linear_text([('lane', lane), ('warp', warp)])};")
        start = stage_shift(layout, problem) + linear.origin // width
        texts.append([offset_text(variable, x // width, start + immediate // width) for x, immediate in parts])
    return (), setup, [(guard, source, target) for source, target in zip(*texts, strict=True)]


def offset_text(variable: str, flip: int, rest: Expr) -> str:
    """Spell ``(p ^ flip) + rest``.

    >>> offset_text("p", 0, Expr.of(0)), offset_text("p", 3, Expr.of(0)), offset_text("p", 3, Expr.of(-4))
    ('p', 'p ^ 3', '(p ^ 3) - 4')
    """
    if rest == Expr.of(0):
        return f"{variable} ^ {flip}" if flip else variable
    text = str(rest)
    return (f"({variable} ^ {flip})" if flip else variable) + (f" - {text[1:]}" if text[0] == "-" else f" + {text}")


def linear_text(parts: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Spell a linear map of the bits of some variables: bits that move by one distance are masked and shifted together.

    Args:
        parts: per variable its name and the image of each of its bits.

    >>> linear_text([("lane", [4, 8, 16, 1, 2])])
    '((lane & 7) << 2) ^ ((lane & 24) >> 3)'
    >>> linear_text([("lane", [3, 0, 0, 0, 0])])
    '((lane & 1) << 1) ^ (lane & 1)'
    """
    terms: list[str] = []
    for name, images in parts:
        moves: dict[int, int] = {}
        for bit, image in enumerate(images):
            for target in range(image.bit_length()):
                if image >> target & 1:
                    moves[target - bit] = moves.get(target - bit, 0) | 1 << bit
        everything = (1 << len(images)) - 1
        for distance, mask in sorted(moves.items(), reverse=True):
            part = name if mask == everything else f"{name} & {mask}"
            if distance:
                part = f"({part})" if mask != everything else part
                part += f" << {distance}" if distance > 0 else f" >> {-distance}"
            terms.append(part)
    if len(terms) < 2:
        return terms[0] if terms else "0"
    return " ^ ".join(term if term.isidentifier() else f"({term})" for term in terms)


def _table(problem: Problem, plan: Plan, name: str) -> tuple[Sequence[str], Sequence[str], Sequence[_Slot]]:
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
    return _table_text(name, offsets[0], offsets[1], starts, warps=warps)


def stage_shift(layout: Layout, problem: Problem) -> Expr:
    """Return by how much a stage moves the layout against the first stage, at which a task's places were evaluated."""
    first = {p.name: p.begin for p in problem.params}
    # A parameter with one value moves nothing, by whatever it would move things.
    still = {p.name for p in problem.params if p.end - p.begin == 1}
    moving = Expr(0, tuple((atom, c) for atom, c in stage_terms(layout).terms if atom.name not in still))
    return moving - moving.evaluate(first.__getitem__)


def _table_text(
    name: str, sources: Ints, targets: Ints, starts: Sequence[Expr], *, warps: int
) -> tuple[Sequence[str], Sequence[str], Sequence[_Slot]]:
    """Spell the schedule as an array that lanes read 16 bytes at a time, and the slots that use it."""
    idle = sources < 0
    wide = max(int(sources.max()), int(targets.max())) >= _HALF
    words = [np.where(idle, _IDLE, sources), np.where(idle, _IDLE, targets)]
    entries = np.stack(words, axis=-1) if wide else (words[0] & _HALF | (words[1] & _HALF) << 16)[..., None]
    registers, per = len(sources), entries.shape[-1]
    vector = 4 if registers * per > 2 else registers * per
    rows = -(-registers * per // vector)
    flat = np.full((warps, LANES, rows * vector), _IDLE, dtype=np.int64)
    flat[:, :, : registers * per] = entries.transpose(1, 2, 0, 3).reshape(warps, LANES, -1)
    table = flat.reshape(warps, LANES, rows, vector).transpose(2, 0, 1, 3)
    kind = "unsigned" if vector == 1 else f"uint{vector}"
    text = ",\n".join("    " + _row(lanes) for lanes in table.reshape(rows * warps, LANES, vector))
    content = "source and destination offset" if wide else "source offset in the low half, destination in the high"
    declarations = [
        f"// Per lane and slot: {content}; all ones: idle.\n"
        f"__device__ const {kind} {name}_schedule[{rows * warps}][{LANES}] = {{\n{text}\n}};"
    ]
    index = "warp" if warps > 1 else ""
    setup = [f"const {kind} t{i} = {name}_schedule[{_plus(i * warps, index)}][lane];" for i in range(rows)]
    slots = []
    for r in range(registers):
        fields = [_field(vector, r * per + k) for k in range(per)]
        guard = f"if ({fields[0]} != {_IDLE:#x}u) " if idle[r].any() else ""
        parts = fields if wide else [f"{fields[0]} & {_HALF:#x}", f"{fields[0]} >> 16"]
        slots.append((guard, *(_moved(part, start) for part, start in zip(parts, starts, strict=True))))
    return declarations, setup, slots  # type: ignore[return-value]


def _moved(index: str, start: Expr) -> str:
    if start == Expr.of(0):
        return index
    return f"({index}) + {start}" if " " in index else f"{index} + {start}"


def _plus(number: int, index: str) -> str:
    return f"{number} + {index}" if index and number else index or str(number)


def _field(vector: int, number: int) -> str:
    return f"t{number // vector}" + (f".{'xyzw'[number % vector]}" if vector > 1 else "")


def _row(lanes: Ints) -> str:
    if lanes.shape[1] == 1:
        return "{" + ", ".join(str(int(v[0])) for v in lanes) + "}"
    return "{" + ", ".join("{" + ", ".join(map(str, v.tolist())) + "}" for v in lanes) + "}"
