"""The strategy that serves every request: boxes of the loop nest through shared memory, gathered element by element.

A box is a *run* on either side, contiguous in that side's memory, times its other dimensions.  Runs of the source are
loaded in aligned vectors and keep their place in them; each thread then gathers the elements of one aligned vector of
a destination run, wherever they lie, and stores it whole.  The vectors in which a run begins and ends are stored by
element.  Nothing is asked of extents, strides or alignment; where pointers are aligned less, vectors are shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

from codegen_cuda.tensor.plan import TensorPlan, block_counts, divisor_bytes, round_up
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import ELEMENT, block_origin, constant, decode, divided, guard, linear, unrolled

__all__ = ["emit_boxes", "plan_boxes"]

_BATCH = 8
_FEW_ELEMENTS = 2
_MANY_GROUPS = 4
_SKEW = 16
_MOST_ELEMENTS = 16384
_MOST_BYTES = 32768


def plan_boxes(problem: TensorProblem, *, threads: int = 256, elements: int = 0) -> TensorPlan:
    """Plan boxes that lengthen the shorter of the two sides' runs until the budget is spent."""
    dims = problem.dims
    budget = elements or min(_MOST_ELEMENTS, _MOST_BYTES // problem.width)
    read = sorted(range(len(dims)), key=lambda k: (dims[k].src == 0, dims[k].src))
    written = sorted(range(len(dims)), key=lambda k: dims[k].dst)
    box = [1] * len(dims)
    while True:
        sides = sorted((read, written), key=lambda side: _reach(problem, box, side))
        grow = [k for side in sides for k in side if box[k] < dims[k].extent]
        fits = [k for k in grow if math.prod(box) // box[k] * min(2 * box[k], dims[k].extent) <= budget]
        if not fits:
            break
        box[fits[0]] = min(2 * box[fits[0]], dims[fits[0]].extent)
    counts = block_counts(problem, tuple(box))
    plan = TensorPlan("boxes", threads, tuple(box), counts, tuple(written))
    shared = _Box.of(problem, plan).bytes
    return TensorPlan("boxes", threads, tuple(box), counts, tuple(written), shared, MappingProxyType({}))


def _reach(problem: TensorProblem, box: list[int], order: list[int]) -> int:
    """Elements of the box along a side's dimensions, up to the first that it does not take whole."""
    run = 1
    for k in order:
        run *= box[k]
        if box[k] < problem.dims[k].extent:
            break
    return run


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a box: the dimensions of its run, innermost first, and the others."""

    run: tuple[int, ...]
    others: tuple[int, ...]
    length: int
    vector: int
    aligned: bool
    vectors: int


@dataclass(frozen=True, slots=True)
class _Box:
    """Both sides of a box, and where its elements lie in shared memory."""

    src: _Side
    dst: _Side
    pitch: int
    rows: int
    skewed: int
    per: int
    bytes: int

    @classmethod
    def of(cls, problem: TensorProblem, plan: TensorPlan) -> _Box:
        src, dst = (_side(problem, plan, side) for side in ("src", "dst"))
        pitch = round_up(src.vectors * src.vector, _SKEW)
        pitch += _SKEW if pitch % (2 * _SKEW) == 0 else 0
        rows = math.prod([plan.box[k] for k in src.others])
        # Vectors of a run that crosses rows would meet in few banks: every so many rows start 16 bytes further on.
        per = dst.vector // problem.width
        first = dst.run[0] if dst.run else -1
        many = first in src.others and plan.box[first] >= _MANY_GROUPS * per
        skewed = first if many and per > 1 and problem.width > 1 else -1
        x = plan.box[skewed] if skewed >= 0 else 1
        size = rows // x * (-(-x // per) * (per * pitch + _SKEW) if skewed >= 0 else pitch)
        return cls(src, dst, pitch, rows, skewed, per, size)


def _stride(problem: TensorProblem, side: str, k: int) -> int:
    return (problem.dims[k].src if side == "src" else problem.dims[k].dst) * problem.width


def _side(problem: TensorProblem, plan: TensorPlan, side: str) -> _Side:
    """Find the run of a side: dimensions that follow one another in memory, all but the last taken whole."""
    width, box = problem.width, plan.box
    run: list[int] = []
    length = 1
    for k in sorted(range(len(box)), key=lambda k: _stride(problem, side, k)):
        whole = all(box[j] == problem.dims[j].extent for j in run)
        if _stride(problem, side, k) == length * width and whole and box[k] > 1:
            run.append(k)
            length *= box[k]
    others = tuple(k for k in range(len(box)) if k not in run and box[k] > 1)
    vector = min(problem.src_align if side == "src" else problem.dst_align, 16) if run else width
    steps = [_stride(problem, side, k) * box[k] for k in range(len(box)) if plan.counts[k] > 1]
    steps += [_stride(problem, side, k) for k in others]
    aligned = divisor_bytes(*steps, limit=vector) == vector
    vectors = -(-length * width // vector) + (not aligned)
    return _Side(tuple(run), others, length, vector, aligned, vectors)


def emit_boxes(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    box = _Box.of(problem, plan)
    return [
        *block_origin(problem, plan),
        *_loads(problem, plan, box),
        "__syncthreads();",
        *_stores(problem, plan, box),
    ]


def _terms(problem: TensorProblem, plan: TensorPlan, side: str, dims: tuple[int, ...]) -> list[tuple[str, int, int]]:
    return [(f"c{k}", plan.box[k] - 1, _stride(problem, side, k)) for k in dims]


def _limits(problem: TensorProblem, plan: TensorPlan, dims: tuple[int, ...]) -> list[str]:
    """Guards of dimensions that the last box exceeds."""
    return [
        f"o{k} + {f'c{k}' if plan.box[k] > 1 else '0u'} < {constant(problem.dims[k].extent)}"
        for k in dims
        if problem.dims[k].extent % plan.box[k]
    ]


def _length(problem: TensorProblem, plan: TensorPlan, side: _Side) -> str:
    """Elements of a run that exist: less than all of them in the last box along its outermost dimension."""
    if not side.run or problem.dims[side.run[-1]].extent % plan.box[side.run[-1]] == 0:
        return f"{side.length}u"
    k = side.run[-1]
    x, extent = plan.box[k], constant(problem.dims[k].extent)
    inner = side.length // x
    return f"(o{k} + {x}u <= {extent} ? {x}u : (u32)({extent} - o{k})) * {inner}u"


def _loads(problem: TensorProblem, plan: TensorPlan, box: _Box) -> list[str]:
    """Global to shared: aligned vectors of every source run."""
    side, width = box.src, problem.width
    digits = [("v", side.vectors), *((f"c{k}", plan.box[k]) for k in side.others)]
    total = side.vectors * box.rows
    rounds = -(-total // plan.threads)
    bound = [f"i < {total}u"] if total % plan.threads else []
    fixed = tuple(k for k in range(len(plan.box)) if plan.box[k] == 1)
    conditions = [*bound, *_limits(problem, plan, (*side.others, *fixed))]
    kind = ELEMENT[side.vector]
    mask = f" & ~{side.vector - 1}ull" if side.vector > 1 and not side.aligned else ""
    row = linear(_terms(problem, plan, "src", side.others))
    span = problem.span("src") * width
    where = [
        f"const u64 start = src_base + ({row});",
        f"const u64 at = (start{mask}) + {linear([('v', side.vectors - 1, side.vector)])};",
        f"const bool in = {guard([*conditions, 'at < start + run_bytes'])};",
    ]
    place = linear([("v", side.vectors - 1, side.vector), *_rows(plan, box)])
    load = [*where, f"if (in && at + {side.vector}ull <= {span}ull) held[n] = *(const {kind}*)(src + at);"]
    store = [*where, f"if (in && at + {side.vector}ull <= {span}ull) *({kind}*)(tile + ({place})) = held[n];"]
    lines = [f"const u32 run_bytes = ({_length(problem, plan, side)}) * {width}u;"]
    for first in range(0, rounds, _BATCH):
        count = min(_BATCH, rounds - first)
        at = "n" if first == 0 else f"(n + {first}u)"
        head = [f"const u32 i = threadIdx.x + {at} * {plan.threads}u;", *decode("i", digits)]
        body = [f"{kind} held[{count}];", *unrolled(count, [*head, *load]), *unrolled(count, [*head, *store])]
        lines += ["{", *("    " + line for line in body), "}"]
    return [*lines, *_last_elements(problem, plan, box, [*where], place)]


def _rows(plan: TensorPlan, box: _Box) -> list[tuple[str, int, int]]:
    """Where each row of the box starts in shared memory, as terms of the other dimensions."""
    terms = []
    step = box.pitch
    if box.skewed >= 0:
        k, per = box.skewed, box.per
        group = per * box.pitch + _SKEW
        terms = [(f"(c{k} % {per}u)", per - 1, box.pitch), (f"(c{k} / {per}u)", (plan.box[k] - 1) // per, group)]
        step = -(-plan.box[k] // per) * group
    for k in box.src.others:
        if k != box.skewed:
            terms.append((f"c{k}", plan.box[k] - 1, step))
            step *= plan.box[k]
    return terms


def _last_elements(problem: TensorProblem, plan: TensorPlan, box: _Box, where: list[str], place: str) -> list[str]:
    """Where the source ends inside a vector, load that vector's elements one by one, in the blocks that reach it."""
    side, width = box.src, problem.width
    span = problem.span("src") * width
    tail = span % side.vector
    if not tail:
        return []
    reach = sum((plan.box[k] - 1) * _stride(problem, "src", k) for k in range(len(plan.box))) + width
    digits = [("v", side.vectors), *((f"c{k}", plan.box[k]) for k in side.others)]
    total = side.vectors * box.rows
    kind = ELEMENT[width]
    # Constantly many turns for every thread, so that a checker can follow them.
    bound = f"i < {total}u && " if total % plan.threads else ""
    body = [
        f"const u32 i = threadIdx.x + n * {plan.threads}u;",
        *decode("i", digits),
        *where,
        f"if ({bound}in && at == {span - tail}ull) {{",
        *(
            f"    *({kind}*)(tile + ({place}) + {at}u) = *(const {kind}*)(src + {span - tail + at}ull);"
            for at in range(0, tail, width)
        ),
        "}",
    ]
    return [
        f"if (src_base + {reach}ull > {span - tail}ull) {{",
        *("    " + line for line in unrolled(-(-total // plan.threads), body, whole=False)),
        "}",
    ]


def _stores(problem: TensorProblem, plan: TensorPlan, box: _Box) -> list[str]:
    """Shared to global: each thread gathers one aligned vector of a destination run."""
    side, width = box.dst, problem.width
    per = side.vector // width
    digits, total, extra = _store_digits(problem, plan, box)
    rounds = -(-total // plan.threads)
    bound = [f"i < {total}u"] if total % plan.threads else []
    fixed = tuple(k for k in range(len(plan.box)) if plan.box[k] == 1)
    limits = [*bound, *_limits(problem, plan, (*side.others, *fixed))]
    shift = "0u" if side.aligned or per == 1 else divided(f"((u32)row & {side.vector - 1}u)", width)
    vector = ELEMENT[side.vector]
    body = [
        f"const u32 i = threadIdx.x + n * {plan.threads}u;",
        *decode("i", digits),
        *extra,
        f"if ({guard(limits)}) {{",
        f"    const u64 row = dst_base + ({linear(_terms(problem, plan, 'dst', side.others))});",
        f"    const u32 s = {shift};",
        f"    const u32 first = {linear([('v', side.vectors - 1, per)])};",
        f"    unsigned char* to = dst + (row - s * {width}u) + first * {width}u;",
        f"    if (first >= s && first + {per}u <= run + s) {{",
        *("        " + line for line in _gathered(problem, plan, box)),
        f"        *({vector}*)to = {_joined(width, side.vector)};",
        *(["    } else {", *_pieces(problem, plan, box)] if per > 1 else []),
        "    }",
        "}",
    ]
    return [f"const u32 run = {_length(problem, plan, side)};", *unrolled(rounds, body, whole=per <= _FEW_ELEMENTS)]


def _store_digits(problem: TensorProblem, plan: TensorPlan, box: _Box) -> tuple[list[tuple[str, int]], int, list[str]]:
    """How threads are numbered when storing: along the run, or two vectors of each neighbouring narrow column.

    Neighbours in a run of the source are elements apart that many vectors of one row of banks hold; columns that are
    next to one another in shared memory are in the same words instead, and two vectors still fill a sector.
    """
    side = box.dst
    others = [(f"c{k}", plan.box[k]) for k in side.others]
    near = [k for k in side.others if problem.dims[k].src == 1 and k in box.src.run]
    if problem.width >= 4 or not near or side.vectors < 2:
        digits = [("v", side.vectors), *others]
        return digits, math.prod([extent for _, extent in digits]), []
    half = -(-side.vectors // 2)
    first = (f"c{near[0]}", plan.box[near[0]])
    digits = [("v0", 2), first, ("v1", half), *(other for other in others if other != first)]
    lines = [f"const u32 v = v0{' + v1 * 2u' if half > 1 else ''};"]
    return digits, math.prod([extent for _, extent in digits]), lines


def _gathered(problem: TensorProblem, plan: TensorPlan, box: _Box) -> list[str]:
    """Read the elements of a whole vector: the digits of the first by division, those of the others by counting."""
    digits = [(f"c{k}", plan.box[k]) for k in box.dst.run]
    lines = ["u32 e = first - s;", *(line.removeprefix("const ") for line in decode("e", digits))]
    width = problem.width
    kind = "u32" if width < 4 else ELEMENT[width]
    for q in range(box.dst.vector // width):
        lines += _counted([name for name, _ in digits], dict(digits)) if q else []
        lines.append(f"const {kind} e{q} = *(const {ELEMENT[width]}*)(tile + {_place(problem, plan, box)});")
    return lines


def _counted(names: list[str], extents: dict[str, int]) -> list[str]:
    """Count the digits one up, with carries."""
    first, *rest = names
    if not rest:
        return [f"++{first};"]
    return [f"if (++{first} == {extents[first]}u) {{ {first} = 0u; {' '.join(_counted(rest, extents))} }}"]


def _pieces(problem: TensorProblem, plan: TensorPlan, box: _Box) -> list[str]:
    kind, width = ELEMENT[problem.width], problem.width
    lines = []
    for q in range(box.dst.vector // width):
        lines += [
            f"        if (first + {q}u >= s && first + {q}u < run + s) {{",
            *("            " + x for x in _element(problem, plan, box, q)),
            f"            *({kind}*)(to + {q * width}u) = value;",
            "        }",
        ]
    return lines


def _element(problem: TensorProblem, plan: TensorPlan, box: _Box, q: int) -> list[str]:
    """Read the element q of a vector from shared memory, as ``value``."""
    kind = ELEMENT[problem.width]
    digits = [(f"c{k}", plan.box[k]) for k in box.dst.run]
    place = _place(problem, plan, box)
    return [
        f"const u32 e = first + {q}u - s;",
        *decode("e", digits),
        f"const {kind} value = *(const {kind}*)(tile + {place});",
    ]


def _place(problem: TensorProblem, plan: TensorPlan, box: _Box) -> str:
    """Where the element of the digits ``c<dim>`` lies in shared memory."""
    terms = [*_terms(problem, plan, "src", box.src.run), *_rows(plan, box)]
    place = linear(terms)
    if box.src.aligned:
        return place
    mask = box.src.vector - 1
    inner = [(name, most, step & mask) for name, most, step in _terms(problem, plan, "src", box.src.others)]
    return f"{place} + (((u32)src_base & {mask}u) + {linear(inner)} & {mask}u)"


def _joined(width: int, vector: int) -> str:
    """The elements e0, e1, ... as one vector."""
    if vector == width:
        return f"({ELEMENT[width]})e0" if width < 4 else "e0"
    if vector < 4:
        return "(unsigned short)(e0 | e1 << 8)"
    words = []
    for word in range(vector // 4):
        if width == 1:
            e = [f"e{4 * word + k}" for k in range(4)]
            low, high = (f"__byte_perm({e[k]}, {e[k + 1]}, 0x0040)" for k in (0, 2))
            words.append(f"__byte_perm({low}, {high}, 0x5410)")
        elif width == 2:
            words.append(f"__byte_perm(e{2 * word}, e{2 * word + 1}, 0x5410)")
        elif width == 4:
            words.append(f"e{word}")
        else:
            words.append(f"e{word // 2}.{'xy'[word % 2]}")
    return words[0] if len(words) == 1 else f"{ELEMENT[vector]}{{{', '.join(words)}}}"
