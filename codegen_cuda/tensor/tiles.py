"""2-D tiles through shared memory: rows are read along ``a``, contiguous in the source, and written along ``b``.

**Shared memory.** A tile row is a run of ``a``; rows of ``Q`` consecutive ``b`` (16 bytes of the destination) form a
group, and each group starts 16 bytes further along the banks than the one before.  Eight lanes on consecutive groups
then cover all 32 banks with four words each, so that reading columns is free of conflicts for every element width, and
within a group every row is a constant offset.

**Reading.** A thread loads 16 aligned bytes and stores them.  A row that starts inside a vector keeps its place in it,
and one vector more is loaded.

**Turning.** A thread reads one word from each of Q rows, wherever the row starts, and rearranges the bytes in registers
(``prmt``) into as many vectors along ``b`` as a word has elements.

**Writing.** Where every destination row starts at a multiple of 16 bytes, these vectors go to memory.  Otherwise they
go back to shared memory, and each thread shifts together the vector that is aligned in the destination.  Blocks own
pieces of rows that start at whole sectors, so that only the two ends of a row are written in parts.
"""

from __future__ import annotations

import math

from codegen_cuda.tensor.plan import VECTOR, TensorPlan
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import ELEMENT, Permuter, block_origin, constant, decode, divided, guard, linear, unrolled
from codegen_cuda.tensor.tile_shape import Geometry, Shape, coordinate, geometry, shape_of, t_limit, trips

__all__ = ["emit_tiles"]

_BATCH = 8


def emit_tiles(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    shape = shape_of(plan)
    made = geometry(problem, shape)
    lines = [
        *block_origin(problem, plan, without=[shape.b] if shape.edge else []),
        *_loads(problem, plan, shape, made),
        "__syncthreads();",
    ]
    if not shape.edge:
        return [*lines, *_blocks(problem, plan, shape, made)]
    return [*lines, *_turn(problem, plan, shape, made), "__syncthreads();", *_aligned_rows(problem, plan, shape, made)]


# -- reading ---------------------------------------------------------------------------------------------------------


def _loads(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Global to shared, in batches of loads that are all in flight before the first store."""
    t_rows = 1 if shape.joined or shape.t < 0 else shape.xt
    digits = [("v", made.run), ("t", t_rows), ("b", made.rows)]
    total = math.prod(extent for _, extent in digits)
    rounds, bound, index = trips(total, plan.threads)
    names = {name: name if extent > 1 else "0u" for name, extent in digits}
    conditions = [*bound, *_load_limits(problem, plan, shape, made, names)]
    row = _row_address(problem, plan, shape, made, t_rows, names)
    place = linear(
        [
            ("v", made.run - 1, VECTOR),
            ("t", t_rows - 1, made.t_step),
            (f"(b % {made.per_vector}u)", min(made.per_vector, made.rows) - 1, made.pitch),
            (f"({divided('b', made.per_vector)})", (made.rows - 1) // made.per_vector, made.group),
        ]
    )
    along = linear([("v", made.run - 1, VECTOR)])
    # Rows and columns outside the tensor become zeros where all of the tile is read later.
    kept = bound if shape.edge or shape.shifted else conditions
    store = [f"if ({guard(kept)})", f"    *(uint4*)(tile + ({place})) = held[n];"]
    if shape.shifted:
        phases = [*_aligned_loads(problem, guard(conditions), f"({row} & ~15ull) + {along}"), store]
    else:
        load = ["held[n] = uint4{0u, 0u, 0u, 0u};", f"if ({guard(conditions)})"]
        phases = [[*load, f"    held[n] = *(const uint4*)(src + {row} + {along});"], [], store]
    lines = [_near_end(problem, plan, shape, made)] if phases[1] else []
    for first in range(0, rounds, _BATCH):
        count = min(_BATCH, rounds - first)
        at = index if first == 0 else index.replace("n *", f"(n + {first}u) *")
        load, last, store = (unrolled(count, [at, *decode("i", digits), *phase]) if phase else [] for phase in phases)
        body = [*load, *(["if (near_end) {", *last, "}"] if last else []), *store]
        lines += ["{", f"    uint4 held[{count}];", *("    " + x for x in body), "}"]
    return lines


def _aligned_loads(problem: TensorProblem, inside: str, at: str) -> list[list[str]]:
    """Load aligned vectors of rows that start anywhere; the one in which the buffer ends, by element and apart."""
    total = problem.span("src") * problem.width
    last = total // VECTOR * VECTOR
    where = [f"const u64 at = {at};"]
    load = [*where, "held[n] = uint4{0u, 0u, 0u, 0u};"]
    load += [f"if ({inside} && at < {last}ull) held[n] = *(const uint4*)(src + at);"]
    ends = [*where, f"if ({inside} && at == {last}ull) held[n] = last_vector(src);"]
    return [load, ends if total % VECTOR else []]


def _near_end(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> str:
    """Whether any of the block's rows reaches the vector in which the buffer ends."""
    dims, width = problem.dims, made.width
    reach = [(made.rows - 1) * dims[shape.b].src, made.run * made.per_vector]
    reach += [(shape.xt - 1) * dims[shape.t].src] if shape.t >= 0 else []
    start = [(f"t{shape.b}", plan.counts[shape.b] - 1, shape.xb * dims[shape.b].src * width)] if shape.edge else []
    last = problem.span("src") * width // VECTOR * VECTOR
    return f"const bool near_end = src_base + ({linear(start)}) + {sum(reach) * width}ull >= {last}ull;"


def _load_limits(
    problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, names: dict[str, str]
) -> list[str]:
    dims = problem.dims
    limits: list[str] = []
    if shape.edge:
        at, before = _rows_at(plan, shape, names["b"]), shape.edge // made.width
        limits += [f"{at} >= {before}u", f"{at} < {constant(dims[shape.b].extent + before)}"]
    elif dims[shape.b].extent % shape.xb:
        limits.append(f"{coordinate(plan, shape.b, names['b'])} < {constant(dims[shape.b].extent)}")
    along = f"{names['v']} * {made.per_vector}u" if made.run > 1 else "0u"
    more = made.per_vector if shape.shifted else 0  # a row that starts inside a vector ends in one more
    if shape.joined:
        if dims[shape.t].extent % shape.xt:
            left = f"({dims[shape.t].extent}u - {coordinate(plan, shape.t, '0u')})"
            limits.append(f"{along} < {left} * {shape.xa}u + {more}u")
    else:
        limits += t_limit(problem, plan, shape)
        if dims[shape.a].extent % shape.xa or shape.xa % made.per_vector:
            limits.append(f"{coordinate(plan, shape.a, along)} < {constant(dims[shape.a].extent + more)}")
    return limits


def _rows_at(plan: TensorPlan, shape: Shape, row: str) -> str:
    """The row of a tile that starts an edge before the destination's first element."""
    if plan.counts[shape.b] == 1:
        return row
    wide = "(u64)" if plan.counts[shape.b] * shape.xb >= 1 << 31 else ""
    return f"{wide}t{shape.b} * {shape.xb}u + {row}"


def _row_address(
    problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, t_rows: int, names: dict[str, str]
) -> str:
    """Where a row of the tile starts in the source."""
    dims = problem.dims
    terms = [("t", t_rows - 1, dims[shape.t].src * made.width)] if t_rows > 1 else []
    step = dims[shape.b].src * made.width
    if not shape.edge:
        return f"(src_base + ({linear([*terms, ('b', made.rows - 1, step)])}))"
    at = _rows_at(plan, shape, names["b"])
    row = f"(u64)({at} - {shape.edge // made.width}u) * {constant(step)}"
    return f"(src_base + {row} + ({linear(terms)}))"


# -- writing ---------------------------------------------------------------------------------------------------------


def _blocks(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Shared to global where destination rows are aligned: a word of each of Q rows, rearranged in registers."""
    dims = problem.dims
    vectors, words = made.rows // made.per_vector, -(-shape.xa // made.per_word)
    digits = _lanes(problem, ("k", vectors), ("a", words), shape)
    total = vectors * words * shape.xt
    rounds, bound, index = trips(total, plan.threads)
    limits = [*bound, *t_limit(problem, plan, shape)]
    if dims[shape.b].extent % shape.xb:
        along = f"k * {made.per_vector}u" if vectors > 1 else "0u"
        limits.append(f"{coordinate(plan, shape.b, along)} < {constant(dims[shape.b].extent)}")
    if dims[shape.a].extent % shape.xa or shape.xa % made.per_word:
        along = f"a * {made.per_word}u" if words > 1 else "0u"
        limits.append(f"{coordinate(plan, shape.a, along)} < {constant(dims[shape.a].extent)}")
    place = [("k", vectors - 1, made.group), ("t", shape.xt - 1, made.t_step), ("a", words - 1, made.word)]
    body = [
        index,
        *digits,
        f"if ({guard(limits)}) {{",
        f"    const unsigned char* from = tile + ({linear(place)});",
        *_row_start(problem, shape, made),
        f"    unsigned char* to = dst + dst_base + ({_written(problem, shape, made, vectors, words)});",
        *("    " + line for line in _words(problem, plan, shape, made, words)),
        "}",
    ]
    return unrolled(rounds, body)


def _written(problem: TensorProblem, shape: Shape, made: Geometry, vectors: int, words: int) -> str:
    dims = problem.dims
    terms = [("k", vectors - 1, VECTOR), ("a", words - 1, dims[shape.a].dst * made.width * made.per_word)]
    if shape.t >= 0:
        terms.append(("t", shape.xt - 1, dims[shape.t].dst * made.width))
    return linear(terms)


def _lanes(problem: TensorProblem, k: tuple[str, int], a: tuple[str, int], shape: Shape) -> list[str]:
    """Index digits of the writing phase: lanes cover runs of the destination, and four neighbours along a."""
    if shape.xt > 1 and k[1] < 8 and problem.dims[shape.t].dst < problem.dims[shape.a].dst:
        return decode("i", [k, ("t", shape.xt), a])
    if k[1] % 8 or a[1] % 4 or k[1] == 8:
        return decode("i", [k, a, ("t", shape.xt)])
    lines = decode("i", [("k0", 8), ("a0", 4), ("k1", k[1] // 8), ("a1", a[1] // 4), ("t", shape.xt)])
    high = {name: f" + {name} * {factor}u" for name, factor in (("k1", 8), ("a1", 4))}
    lines.append(f"const u32 k = k0{high['k1'] if k[1] > 8 else ''};")
    lines.append(f"const u32 a = a0{high['a1'] if a[1] > 4 else ''};")
    return lines


def _turned(problem: TensorProblem, shape: Shape, made: Geometry) -> tuple[list[str], list[str]]:
    """Read a word from each row of a group: the lines, and one vector along b for each element of the word."""
    kind = {4: "u32", 8: "uint2", 16: "uint4"}[made.word]
    fields = {4: ("",), 8: (".x", ".y"), 16: (".x", ".y", ".z", ".w")}[made.word]
    lines: list[str] = []
    for j in range(made.per_vector):
        if not shape.shifted:
            lines.append(f"const {kind} r{j} = *(const {kind}*)(from + {constant(j * made.pitch)});")
            continue
        # Q rows of a destination vector are 16 bytes, so that every group's row j starts at the same remainder.
        step = (j - shape.edge // made.width) * problem.dims[shape.b].src * made.width % VECTOR
        lines.append(f"const u32 s{j} = (start + {step}u) & 15u;")
        begin = f"from + {constant(j * made.pitch)}"
        if made.width >= 4:
            lines.append(f"const {kind} r{j} = *(const {kind}*)({begin} + s{j});")
            continue
        lines.append(f"const u32 l{j} = *(const u32*)({begin} + (s{j} & 12u));")
        lines.append(f"const u32 h{j} = *(const u32*)({begin} + (s{j} & 12u) + 4u);")
        lines.append(f"const u32 r{j} = __funnelshift_r(l{j}, h{j}, (s{j} & 3u) * 8u);")
    permuter = Permuter()
    vectors: list[str] = []
    for e in range(made.per_word):
        words = []
        for word in range(4):
            sources = []
            for byte in range(word * 4, word * 4 + 4):
                row, inside = divmod(byte, made.width)
                at = e * made.width + inside
                sources.append((f"r{row}{fields[at // 4]}", at % 4))
            words.append(permuter.word(sources))
        vectors.append(f"uint4{{{', '.join(words)}}}")
    return [*lines, *permuter.lines], vectors


def _row_start(problem: TensorProblem, shape: Shape, made: Geometry) -> list[str]:
    """Where in its vector the first row of a group starts."""
    if not shape.shifted:
        return []
    t_step = problem.dims[shape.t].src * made.width % VECTOR if shape.xt > 1 and not shape.joined else 0
    return [f"    const u32 start = ((u32)src_base & 15u) + ({linear([('t', shape.xt - 1, t_step)])});"]


def _words(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, words: int) -> list[str]:
    """Turn a word of each row of a group, and store one vector per element of the word."""
    d, p = problem.dims[shape.a], made.per_word
    lines, vectors = _turned(problem, shape, made)
    for e, vector in enumerate(vectors):
        store = f"*(uint4*)(to + {constant(d.dst * made.width * e)}) = {vector};"
        if e and d.extent % p:
            along = f"a * {p}u + {e}u" if words > 1 else f"{e}u"
            store = f"if ({coordinate(plan, shape.a, along)} < {constant(d.extent)}) {store}"
        lines.append(store)
    return lines


def _turn(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Shared to shared: the tile turned, so that rows run along b."""
    words = -(-shape.xa // made.per_word)
    digits = _lanes(problem, ("k", made.groups), ("a", words), shape)
    rounds, bound, index = trips(made.groups * words * shape.xt, plan.threads)
    place = [("k", made.groups - 1, made.group), ("t", shape.xt - 1, made.t_step), ("a", words - 1, made.word)]
    rows = words * made.per_word
    to = [
        ("k", made.groups - 1, VECTOR),
        ("t", shape.xt - 1, rows * made.turned_pitch),
        ("a", words - 1, made.per_word * made.turned_pitch),
    ]
    lines, vectors = _turned(problem, shape, made)
    body = [
        index,
        *digits,
        f"if ({guard(bound)}) {{",
        f"    const unsigned char* from = tile + ({linear(place)});",
        *_row_start(problem, shape, made),
        f"    unsigned char* to = tile + {made.bytes}u + ({linear(to)});",
        *("    " + line for line in lines),
        *(f"    *(uint4*)(to + {e * made.turned_pitch}u) = {vector};" for e, vector in enumerate(vectors)),
        "}",
    ]
    return unrolled(rounds, body)


def _aligned_rows(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Turned tile to global: each thread shifts together one vector that is aligned in the destination."""
    d, q, width = problem.dims[shape.a], made.per_vector, made.width
    vectors = shape.xb // q
    digits = decode("i", [("k", vectors), ("t", shape.xt), ("a", shape.xa)])
    rounds, bound, index = trips(vectors * shape.xa * shape.xt, plan.threads)
    limits = [*bound, *t_limit(problem, plan, shape)]
    if d.extent % shape.xa:
        limits.append(f"{coordinate(plan, shape.a, 'a' if shape.xa > 1 else '0u')} < {constant(d.extent)}")
    row = [("a", shape.xa - 1, d.dst * width)]
    if shape.t >= 0:
        row.append(("t", shape.xt - 1, problem.dims[shape.t].dst * width))
    box = [(f"t{shape.b}", plan.counts[shape.b] - 1, vectors), ("k", vectors - 1, 1)]
    rows = made.turned_rows // shape.xt
    place = [
        ("k", vectors - 1, VECTOR),
        ("t", shape.xt - 1, rows * made.turned_pitch),
        ("a", shape.xa - 1, made.turned_pitch),
    ]
    last = constant(problem.dims[shape.b].extent)
    kind = "u64" if problem.dims[shape.b].extent >= 1 << 31 else "u32"
    body = [
        index,
        *digits,
        f"if ({guard(limits)}) {{",
        f"    const u64 row = dst_base + ({linear(row)});",
        f"    const u32 s = {divided(f'((u32)row & {shape.edge - 1}u)', width)};",
        f"    const {kind} first = ({linear(box)}) * ({kind}){q}u;",
        f"    const u32 skip = {shape.edge}u - s * {width}u;",
        f"    const unsigned char* from = tile + {made.bytes}u + ({linear(place)}) + (skip & ~15u);",
        f"    if (first + {q}u > s && first < {last} + s) {{",
        "        const uint4 low = *(const uint4*)from;",
        "        const uint4 high = *(const uint4*)(from + (skip & 15u ? 16u : 0u));",
        "        const uint4 v = shift_together(low, high, skip & 15u);",
        f"        unsigned char* to = dst + (row - s * {width}u) + (u64)first * {width}u;",
        f"        if (first >= s && first + {q}u <= {last} + s) *(uint4*)to = v;",
        *(["        else {", *_pieces(made, last), "        }"] if q > 1 else []),
        "    }",
        "}",
    ]
    return unrolled(rounds, body)


def _pieces(made: Geometry, last: str) -> list[str]:
    """Store the elements of a vector that lie in the row, one by one."""
    kind, width = ELEMENT[made.width], made.width
    lines = []
    for q in range(made.per_vector):
        word, shift = divmod(q * width, 4)
        value = f"v.{'xyzw'[word]}"
        if width == 8:
            value = f"uint2{{v.{'xyzw'[word]}, v.{'xyzw'[word + 1]}}}"
        elif shift:
            value = f"{value} >> {8 * shift}"
        value = f"({kind})({value})" if width < 4 else value
        inside = f"first + {q}u >= s && first + {q}u < {last} + s"
        lines.append(f"            if ({inside}) *({kind}*)(to + {q * width}u) = {value};")
    return lines
