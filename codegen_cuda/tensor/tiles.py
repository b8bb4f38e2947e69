"""2-D tiles through shared memory: rows are read along ``a``, contiguous in the source, and written along ``b``.

**Shared memory.** A tile row is a run of ``a``; rows of ``Q`` consecutive ``b`` (16 bytes of the destination) form a
group, and each group starts 16 bytes further along the banks than the one before.  Eight lanes on consecutive groups
then cover all 32 banks with four words each, so that reading columns is free of conflicts for every element width, and
within a group every row is a constant offset.

**Reading.** Where every row starts at a multiple of 16 bytes, a thread loads 16 bytes and stores them.  Otherwise it
loads the two aligned vectors that hold its 16 bytes and shifts them together.

**Writing.** Where every destination row starts at a multiple of 16 bytes, a thread reads one word from each of Q rows
and rearranges the bytes in registers (``prmt``) into as many whole vectors as a word has elements.  Otherwise it
gathers, element by element, the vector that is aligned in the destination; blocks own aligned vectors, so only the
two ends of a row are written in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from codegen_cuda.tensor.plan import VECTOR, TensorPlan, block_counts, divisor_bytes, even_split, round_up
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import ELEMENT, Permuter, block_origin, constant, decode, guard, linear, unrolled

__all__ = ["SHIFT_HELPER", "Shape", "emit_tiles", "plan_tiles", "shape_of"]

_BATCH = 8
_SKEW = 16
_BANK_ROW = 128

Digits = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The constants of a tile.

    Args:
        a: the dimension that is contiguous in the source.
        b: the dimension that is contiguous in the destination.
        t: a further dimension inside the tile, or -1.
        xa: extent of the tile along ``a``.
        xb: extent along ``b``.
        xt: extent along ``t``.
        joined: ``t`` and ``a`` are one run of the source.
        shifted: source rows start anywhere.
        gather: destination rows start anywhere.
    """

    a: int
    b: int
    t: int
    xa: int
    xb: int
    xt: int
    joined: bool
    shifted: bool
    gather: bool


def shape_of(plan: TensorPlan) -> Shape:
    """Return the tile of a plan."""
    shape = plan.details["tile"]
    assert isinstance(shape, Shape)
    return shape


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where a tile's elements lie in shared memory, in bytes."""

    width: int
    per_vector: int
    per_word: int
    word: int
    run: int
    rows: int
    pitch: int
    group: int
    t_step: int
    skew: int

    @property
    def bytes(self) -> int:
        """Shared memory of the tile."""
        return -(-self.rows // self.per_vector) * self.group


def geometry(problem: TensorProblem, shape: Shape) -> Geometry:
    """Lay the tile out in shared memory."""
    width = problem.width
    q = VECTOR // width
    row = shape.xa * width
    run = shape.xt * row if shape.joined else row
    t_step = row if shape.joined else round_up(row, VECTOR)
    pitch = round_up(run, VECTOR) if shape.joined else t_step * shape.xt
    skew = _SKEW if q * pitch % (2 * _SKEW) == 0 else 0
    rows = shape.xb + (q if shape.gather else 0)
    return Geometry(
        width=width,
        per_vector=q,
        per_word=max(4 // width, 1),
        word=max(4, width),
        run=round_up(run, VECTOR) // VECTOR,
        rows=rows,
        pitch=pitch,
        group=q * pitch + skew,
        t_step=t_step,
        skew=skew,
    )


def plan_tiles(problem: TensorProblem, shape: Shape, *, threads: int = 256, order: str = "dst") -> TensorPlan:
    """Complete a tile shape to a plan.

    Args:
        problem: the request.
        shape: the tile.
        threads: threads of a block.
        order: ``"dst"`` or ``"src"``: along whose contiguous dimension neighbouring blocks lie.
    """
    box = [1] * len(problem.dims)
    box[shape.a], box[shape.b] = shape.xa, shape.xb
    if shape.t >= 0:
        box[shape.t] = shape.xt
    counts = list(block_counts(problem, tuple(box)))
    if shape.gather:
        q = VECTOR // problem.width
        counts[shape.b] = -(-(problem.dims[shape.b].extent + q - 1) // shape.xb)
    side = {"dst": lambda k: problem.dims[k].dst, "src": lambda k: problem.dims[k].src}[order]
    walked = tuple(sorted(range(len(box)), key=side))
    made = geometry(problem, shape)
    return TensorPlan(
        "tiles", threads, tuple(box), tuple(counts), walked, made.bytes, MappingProxyType({"tile": shape})
    )


def aligned_side(problem: TensorProblem, side: str, dims: Sequence[int], extra: Sequence[int]) -> bool:
    """Whether rows of a side start at multiples of 16 bytes whatever these dimensions' coordinates are."""
    steps = [getattr(problem.dims[k], side) * problem.width for k in dims]
    align = problem.src_align if side == "src" else problem.dst_align
    return divisor_bytes(*steps, *(e * problem.width for e in extra), align) == VECTOR


def make_shape(problem: TensorProblem, a: int, b: int, t: int, target: tuple[int, int, int]) -> Shape:
    """Return the tile of about the target extents along a, b, t, with the widest accesses the strides allow."""
    dims = problem.dims
    q = VECTOR // problem.width
    xa, xb = (even_split(dims[k].extent, x, q) for k, x in zip((a, b), target[:2], strict=True))
    xt = min(target[2], dims[t].extent) if t >= 0 else 1
    others = [k for k in range(len(dims)) if k not in (a, b)]
    joined = t >= 0 and dims[t].src == dims[a].extent and xa >= dims[a].extent and xt > 1
    joined = joined and dims[a].extent * problem.width % max(4, problem.width) == 0
    if joined:
        xa = dims[a].extent
        while xt > 1 and (xt * xa) % q:
            xt -= 1
        joined = (xt * xa) % q == 0 and dims[t].extent * xa % q == 0
        xa = xa if joined else even_split(dims[a].extent, target[0], q)
    outer = [k for k in others if not (joined and k == t)]
    src_ok = aligned_side(problem, "src", [b, *outer], [] if joined else [dims[a].extent])
    dst_ok = aligned_side(problem, "dst", [a, *others], [dims[b].extent])
    return Shape(a, b, t, xa, xb, xt, joined, shifted=not src_ok, gather=not dst_ok)


def emit_tiles(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    shape = shape_of(plan)
    made = geometry(problem, shape)
    store = _gather(problem, plan, shape, made) if shape.gather else _blocks(problem, plan, shape, made)
    return [
        *block_origin(problem, plan, without=[shape.b] if shape.gather else []),
        *_loads(problem, plan, shape, made),
        "__syncthreads();",
        *store,
    ]


def _trips(total: int, threads: int) -> tuple[int, list[str], str]:
    """How often each thread goes round, what guards the last time, and the index."""
    bound = [f"i < {total}u"] if total % threads else []
    return -(-total // threads), bound, f"const u32 i = threadIdx.x + n * {threads}u;"


def _at(plan: TensorPlan, dim: int, local: str) -> str:
    """The coordinate of a dimension: the block's origin plus a local part."""
    return f"o{dim} + {local}" if plan.counts[dim] > 1 else local


def _t_limit(problem: TensorProblem, plan: TensorPlan, shape: Shape) -> list[str]:
    if shape.t < 0 or problem.dims[shape.t].extent % shape.xt == 0:
        return []
    return [f"{_at(plan, shape.t, 't' if shape.xt > 1 else '0u')} < {constant(problem.dims[shape.t].extent)}"]


# -- reading ---------------------------------------------------------------------------------------------------------


def _loads(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Global to shared, in batches of loads that are all in flight before the first store."""
    t_rows = 1 if shape.joined or shape.t < 0 else shape.xt
    digits: Digits = [("v", made.run), ("t", t_rows), ("b", made.rows)]
    total = math.prod(extent for _, extent in digits)
    trips, bound, index = _trips(total, plan.threads)
    names = {name: name if extent > 1 else "0u" for name, extent in digits}
    conditions = [*bound, *_load_limits(problem, plan, shape, made, names)]
    read = _load_address(problem, plan, shape, made, t_rows, names)
    value = f"load_shifted(src, {read})" if shape.shifted else f"*(const uint4*)(src + {read})"
    place = linear(
        [
            ("v", made.run - 1, VECTOR),
            ("t", t_rows - 1, made.t_step),
            ("(b % Q)", min(made.per_vector, made.rows) - 1, made.pitch),
            ("(b / Q)", (made.rows - 1) // made.per_vector, made.group),
        ]
    ).replace("Q)", f"{made.per_vector}u)")
    lines: list[str] = []
    for first in range(0, trips, _BATCH):
        count = min(_BATCH, trips - first)
        at = index if first == 0 else index.replace("n *", f"(n + {first}u) *")
        head = [at, *decode("i", digits), f"if ({guard(conditions)})"]
        lines += [
            "{",
            f"    uint4 held[{count}];",
            *("    " + x for x in unrolled(count, [*head, f"    held[n] = {value};"])),
            *("    " + x for x in unrolled(count, [*head, f"    *(uint4*)(tile + ({place})) = held[n];"])),
            "}",
        ]
    return lines


def _load_limits(
    problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, names: dict[str, str]
) -> list[str]:
    dims = problem.dims
    limits: list[str] = []
    if shape.gather:
        at = _rows_at(plan, shape, names["b"])
        limits += [f"{at} >= {made.per_vector}u", f"{at} < {constant(dims[shape.b].extent + made.per_vector)}"]
    elif dims[shape.b].extent % shape.xb:
        limits.append(f"{_at(plan, shape.b, names['b'])} < {constant(dims[shape.b].extent)}")
    along = f"{names['v']} * {made.per_vector}u" if made.run > 1 else "0u"
    if shape.joined:
        if dims[shape.t].extent % shape.xt:
            left = f"({dims[shape.t].extent}u - {_at(plan, shape.t, '0u')})"
            limits.append(f"{along} < {left} * {shape.xa}u")
    else:
        limits += _t_limit(problem, plan, shape)
        if dims[shape.a].extent % shape.xa or shape.xa % made.per_vector:
            limits.append(f"{_at(plan, shape.a, along)} < {constant(dims[shape.a].extent)}")
    return limits


def _rows_at(plan: TensorPlan, shape: Shape, row: str) -> str:
    """The row of a gathering tile, counted from Q rows before the destination's first element."""
    if plan.counts[shape.b] == 1:
        return row
    wide = "(u64)" if plan.counts[shape.b] * shape.xb >= 1 << 31 else ""
    return f"{wide}t{shape.b} * {shape.xb}u + {row}"


def _load_address(
    problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, t_rows: int, names: dict[str, str]
) -> str:
    dims = problem.dims
    terms = [("v", made.run - 1, VECTOR)]
    if t_rows > 1:
        terms.append(("t", t_rows - 1, dims[shape.t].src * made.width))
    step = dims[shape.b].src * made.width
    if not shape.gather:
        return f"(src_base + ({linear([*terms, ('b', made.rows - 1, step)])}))"
    at = _rows_at(plan, shape, names["b"])
    row = f"(u64)({at} - {made.per_vector}u) * {constant(step)}"
    return f"(src_base + {row} + ({linear(terms)}))"


SHIFT_HELPER = """\
// The 16 bytes at src + at, from the aligned vectors that hold them; bytes past the buffer's last element are not read.
__device__ __forceinline__ uint4 load_shifted(const unsigned char* __restrict__ src, u64 at) {
    const u64 low = at & ~15ull;
    const u32 shift = (u32)at & 15u;
    uint4 a = {0u, 0u, 0u, 0u};
    uint4 b = {0u, 0u, 0u, 0u};
    a = load_whole(src, low);
    if (shift) b = load_whole(src, low + 16ull);
    u32 w0 = a.x, w1 = a.y, w2 = a.z, w3 = a.w, w4 = b.x, w5 = b.y, w6 = b.z, w7 = b.w;
    if (shift & 8u) { w0 = w2; w1 = w3; w2 = w4; w3 = w5; w4 = w6; w5 = w7; }
    if (shift & 4u) { w0 = w1; w1 = w2; w2 = w3; w3 = w4; w4 = w5; }
    const u32 bits = (shift & 3u) * 8u;
    uint4 r;
    r.x = __funnelshift_r(w0, w1, bits);
    r.y = __funnelshift_r(w1, w2, bits);
    r.z = __funnelshift_r(w2, w3, bits);
    r.w = __funnelshift_r(w3, w4, bits);
    return r;
}
"""


def shift_helper(problem: TensorProblem) -> str:
    """Return the device functions of shifted loads, for this buffer's number of bytes."""
    total = problem.span("src") * problem.width
    lines = [
        "// The aligned vector at src + at, or the part of it that lies in the buffer.",
        "__device__ __forceinline__ uint4 load_whole(const unsigned char* __restrict__ src, u64 at) {",
        "    uint4 v = {0u, 0u, 0u, 0u};",
        f"    if (at + 16ull <= {total}ull) v = *(const uint4*)(src + at);",
    ]
    tail = total % VECTOR
    if tail:
        lines.append(f"    else if (at < {total}ull) {{")
        words = ("x", "y", "z", "w")
        element = ELEMENT[problem.width]
        for at in range(0, tail, problem.width):
            field = words[at // 4]
            if problem.width < 4:
                value = f"(u32)*(const {element}*)(src + at + {at}ull) << {8 * (at % 4)}"
                lines.append(f"        v.{field} |= {value};")
            else:
                lines += [
                    f"        v.{words[at // 4 + k]} = *(const u32*)(src + at + {at + 4 * k}ull);"
                    for k in range(problem.width // 4)
                ]
        lines.append("    }")
    return "\n".join([*lines, "    return v;", "}", SHIFT_HELPER])


# -- writing ---------------------------------------------------------------------------------------------------------


def _blocks(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Shared to global where destination rows are aligned: a word of each of Q rows, rearranged in registers."""
    dims = problem.dims
    vectors, words = made.rows // made.per_vector, -(-shape.xa // made.per_word)
    digits = _lanes(("k", vectors), ("a", words), shape)
    total = vectors * words * shape.xt
    trips, bound, index = _trips(total, plan.threads)
    limits = [*bound, *_t_limit(problem, plan, shape)]
    if dims[shape.b].extent % shape.xb:
        along = f"k * {made.per_vector}u" if vectors > 1 else "0u"
        limits.append(f"{_at(plan, shape.b, along)} < {constant(dims[shape.b].extent)}")
    if dims[shape.a].extent % shape.xa or shape.xa % made.per_word:
        along = f"a * {made.per_word}u" if words > 1 else "0u"
        limits.append(f"{_at(plan, shape.a, along)} < {constant(dims[shape.a].extent)}")
    place = [("k", vectors - 1, made.group), ("t", shape.xt - 1, made.t_step), ("a", words - 1, made.word)]
    body = [
        index,
        *digits,
        f"if ({guard(limits)}) {{",
        f"    const unsigned char* from = tile + ({linear(place)});",
        f"    unsigned char* to = dst + dst_base + ({_written(problem, shape, made, vectors, words)});",
        *("    " + line for line in _words(problem, plan, shape, made, words)),
        "}",
    ]
    return unrolled(trips, body)


def _written(problem: TensorProblem, shape: Shape, made: Geometry, vectors: int, words: int) -> str:
    dims = problem.dims
    terms = [("k", vectors - 1, VECTOR), ("a", words - 1, dims[shape.a].dst * made.width * made.per_word)]
    if shape.t >= 0:
        terms.append(("t", shape.xt - 1, dims[shape.t].dst * made.width))
    return linear(terms)


def _lanes(k: tuple[str, int], a: tuple[str, int], shape: Shape) -> list[str]:
    """Index digits of the writing phase: lanes cover runs of the destination, and four neighbours along a."""
    if shape.xt > 1 and k[1] < 8:
        return decode("i", [k, ("t", shape.xt), a])
    if k[1] % 8 or a[1] % 4 or k[1] == 8:
        return decode("i", [k, a, ("t", shape.xt)])
    lines = decode("i", [("k0", 8), ("a0", 4), ("k1", k[1] // 8), ("a1", a[1] // 4), ("t", shape.xt)])
    high = {name: f" + {name} * {factor}u" for name, factor in (("k1", 8), ("a1", 4))}
    lines.append(f"const u32 k = k0{high['k1'] if k[1] > 8 else ''};")
    lines.append(f"const u32 a = a0{high['a1'] if a[1] > 4 else ''};")
    return lines


def _words(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry, words: int) -> list[str]:
    """Load a word from each row of a group, rearrange, store one vector per element of the word."""
    dims = problem.dims
    q, p, width = made.per_vector, made.per_word, made.width
    kind = {4: "u32", 8: "uint2", 16: "uint4"}[made.word]
    lines = [f"const {kind} r{j} = *(const {kind}*)(from + {constant(j * made.pitch)});" for j in range(q)]
    fields = {4: ("",), 8: (".x", ".y"), 16: (".x", ".y", ".z", ".w")}[made.word]
    permuter = Permuter()
    stores: list[str] = []
    for e in range(p):
        out = []
        for word in range(4):
            sources = []
            for byte in range(word * 4, word * 4 + 4):
                row, inside = divmod(byte, width)
                at = e * width + inside
                sources.append((f"r{row}{fields[at // 4]}", at % 4))
            out.append(permuter.word(sources))
        step = dims[shape.a].dst * width * e
        store = f"{{ const uint4 v = {{{', '.join(out)}}}; *(uint4*)(to + {constant(step)}) = v; }}"
        if e and dims[shape.a].extent % p:
            along = f"a * {p}u + {e}u" if words > 1 else f"{e}u"
            store = f"if ({_at(plan, shape.a, along)} < {constant(dims[shape.a].extent)}) {store}"
        stores.append(store)
    return [*lines, *permuter.lines, *stores]


def _gather(problem: TensorProblem, plan: TensorPlan, shape: Shape, made: Geometry) -> list[str]:
    """Shared to global where destination rows start anywhere: each thread gathers one aligned vector."""
    dims = problem.dims
    q, width = made.per_vector, made.width
    vectors = shape.xb // q
    digits = _lanes(("k", vectors), ("a", shape.xa), shape)
    trips, bound, index = _trips(vectors * shape.xa * shape.xt, plan.threads)
    limits = [*bound, *_t_limit(problem, plan, shape)]
    if dims[shape.a].extent % shape.xa:
        limits.append(f"{_at(plan, shape.a, 'a' if shape.xa > 1 else '0u')} < {constant(dims[shape.a].extent)}")
    row = [("a", shape.xa - 1, dims[shape.a].dst * width)]
    if shape.t >= 0:
        row.append(("t", shape.xt - 1, dims[shape.t].dst * width))
    box = [(f"t{shape.b}", plan.counts[shape.b] - 1, vectors)]
    place = [
        ("k", vectors - 1, made.group),
        ("t", shape.xt - 1, made.t_step),
        ("a", shape.xa - 1, width),
        (f"({q}u - s)", q, made.pitch),
    ]
    extent = constant(dims[shape.b].extent)
    count = "u64" if dims[shape.b].extent >= 1 << 31 else "u32"
    body = [
        index,
        *digits,
        f"if ({guard(limits)}) {{",
        f"    const u64 row = dst_base + ({linear(row)});",
        f"    const u32 s = ((u32)row & 15u) / {width}u;",
        f"    const {count} first = ({linear([*box, ('k', vectors - 1, 1)])}) * ({count}){q}u;",
        f"    const unsigned char* from = tile + ({linear(place)});",
        f"    unsigned char* to = dst + (row - s * {width}u) + (u64)first * {width}u;",
        f"    if (first >= s && first + {q}u <= {extent} + s) {{",
        *("        " + line for line in _gathered(made)),
        "    } else {",
        *("        " + line for line in _pieces(made, extent)),
        "    }",
        "}",
    ]
    return unrolled(trips, body)


def _element_at(made: Geometry, q: int) -> str:
    """Where the element q of a gathered vector lies: past the group's end, rows are a skew further."""
    if made.skew == 0:
        return f"from + {constant(q * made.pitch)}"
    past = f"s <= {q}u" if q else "s == 0u"
    return f"from + ({past} ? {constant(q * made.pitch + made.skew)} : {constant(q * made.pitch)})"


def _gathered(made: Geometry) -> list[str]:
    kind, width = ELEMENT[made.width], made.width
    lines = []
    for q in range(made.per_vector):
        lines.append(f"const {kind if width > 2 else 'u32'} e{q} = *(const {kind}*)({_element_at(made, q)});")
    if width == 8:
        words = ["e0.x", "e0.y", "e1.x", "e1.y"]
    elif width == 4:
        words = [f"e{q}" for q in range(4)]
    elif width == 2:
        words = [f"__byte_perm(e{2 * q}, e{2 * q + 1}, 0x5410)" for q in range(4)]
    else:
        for q in range(8):
            lines.append(f"const u32 p{q} = __byte_perm(e{2 * q}, e{2 * q + 1}, 0x0040);")
        words = [f"__byte_perm(p{2 * q}, p{2 * q + 1}, 0x5410)" for q in range(4)]
    return [*lines, f"const uint4 v = {{{', '.join(words)}}};", "*(uint4*)to = v;"]


def _pieces(made: Geometry, extent: str) -> list[str]:
    kind = ELEMENT[made.width]
    lines = []
    for q in range(made.per_vector):
        place = f"first + {q}u"
        lines.append(
            f"if ({place} >= s && {place} < {extent} + s) "
            f"*({kind}*)(to + {q * made.width}u) = *(const {kind}*)({_element_at(made, q)});"
        )
    return lines
