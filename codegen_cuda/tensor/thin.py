"""Thin transposes: one side's innermost dimension is a handful of elements, so that the other side is one long run.

A group is the ``E`` vectors of 16 bytes that hold ``Q`` consecutive steps of the long dimension.  On the thin side the
group is contiguous; on the other it is one vector in each of ``E`` rows.  A thread rearranges a whole group in
registers; shared memory only lets neighbouring threads access neighbouring vectors of the thin side.
"""

from __future__ import annotations

from types import MappingProxyType

from codegen_cuda.tensor.plan import VECTOR, TensorPlan, block_counts
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import Permuter, block_origin, constant, guard, linear, unrolled

__all__ = ["MOST_THIN", "emit_thin", "plan_thin"]

#: Most elements of the thin dimension: a group and its rearrangement must fit into registers.
MOST_THIN = 8
_FIELDS = (".x", ".y", ".z", ".w")


def plan_thin(
    problem: TensorProblem, *, thin: int, long: int, side: str, threads: int = 256, groups: int = 1
) -> TensorPlan:
    """Plan blocks of ``threads * groups`` groups.

    Args:
        problem: the request.
        thin: the thin dimension.
        long: the long one.
        side: the side on which (long, thin) is one run, ``"src"`` or ``"dst"``.
        threads: threads of a block.
        groups: groups per thread.
    """
    q = VECTOR // problem.width
    box = [1] * len(problem.dims)
    box[thin] = problem.dims[thin].extent
    box[long] = q * threads * groups
    counts = block_counts(problem, tuple(box))
    chunks = threads * groups * problem.dims[thin].extent
    order = tuple(sorted(range(len(box)), key=lambda k: problem.dims[k].dst))
    details = MappingProxyType({"thin": thin, "long": long, "side": side, "groups": groups})
    return TensorPlan("thin", threads, tuple(box), counts, order, (chunks + chunks // 8) * VECTOR, details)


def emit_thin(problem: TensorProblem, plan: TensorPlan) -> list[str]:
    """Return the kernel's body."""
    extent = problem.dims[plan.details["thin"]].extent
    outer = block_origin(problem, plan)
    skew = extent % 2 == 0
    if plan.details["side"] == "src":
        phases = [_staged(problem, plan, skew=skew, read=True), _groups(problem, plan, skew=skew, read=False)]
    else:
        phases = [_groups(problem, plan, skew=skew, read=True), _staged(problem, plan, skew=skew, read=False)]
    return [*outer, *phases[0], "__syncthreads();", *phases[1]]


def _place(chunk: str, *, skew: bool) -> str:
    """Where a 16-byte chunk lies: even strides between threads would meet in few banks, so rows of banks are skewed."""
    return f"({chunk} + {chunk} / 8u) * {VECTOR}u" if skew else f"{chunk} * {VECTOR}u"


def _staged(problem: TensorProblem, plan: TensorPlan, *, skew: bool, read: bool) -> list[str]:
    """Copy the block's run of the thin side to or from shared memory, 16 bytes a thread, neighbours together."""
    thin, long = plan.details["thin"], plan.details["long"]
    extent = problem.dims[thin].extent
    q = VECTOR // problem.width
    count = plan.details["groups"] * extent
    base = "src_base" if read else "dst_base"
    ragged = problem.dims[long].extent % plan.box[long]
    left = f"(u64)({constant(problem.dims[long].extent)} - o{long}) * {extent}u"
    limits = [f"i * {q}u < {left}"] if ragged and plan.counts[long] > 1 else []
    limits = [f"i < {problem.dims[long].extent * extent // q}u"] if ragged and not limits else limits
    index = f"const u32 i = threadIdx.x + n * {plan.threads}u;"
    tile = f"tile + {_place('i', skew=skew)}"
    if not read:
        store = f"    *(uint4*)(dst + {base} + i * {VECTOR}u) = *(const uint4*)({tile});"
        return unrolled(count, [index, f"if ({guard(limits)})", store])
    return [
        f"uint4 held[{count}];",
        *unrolled(
            count, [index, f"if ({guard(limits)})", f"    held[n] = *(const uint4*)(src + {base} + i * {VECTOR}u);"]
        ),
        *unrolled(count, [index, f"if ({guard(limits)})", f"    *(uint4*)({tile}) = held[n];"]),
    ]


def _groups(problem: TensorProblem, plan: TensorPlan, *, skew: bool, read: bool) -> list[str]:
    """Rearrange one group per thread: the long side's rows on one end, the shared run on the other."""
    thin, long = plan.details["thin"], plan.details["long"]
    q = VECTOR // problem.width
    extent = problem.dims[thin].extent
    ragged = problem.dims[long].extent % plan.box[long]
    at = f"o{long} + g * {q}u" if plan.counts[long] > 1 else f"g * {q}u"
    limits = [f"{at} < {constant(problem.dims[long].extent)}"] if ragged else []
    row = (problem.dims[thin].src if read else problem.dims[thin].dst) * problem.width
    chunk = linear([("g", plan.threads * plan.details["groups"] - 1, extent)])
    lines = [f"const u32 g = threadIdx.x + n * {plan.threads}u;", f"if ({guard(limits)}) {{"]
    for e in range(extent):
        place = _place(f"({chunk} + {e}u)", skew=skew)
        where = f"src + src_base + {constant(e * row)} + g * {VECTOR}u" if read else f"tile + {place}"
        lines.append(f"    const uint4 in{e} = *(const uint4*)({where});")
    stores, permuter = _rearranged(problem.width, extent, to_thin=read)
    lines += ["    " + line for line in permuter.lines]
    for e, words in enumerate(stores):
        place = _place(f"({chunk} + {e}u)", skew=skew)
        where = f"tile + {place}" if read else f"dst + dst_base + {constant(e * row)} + g * {VECTOR}u"
        lines.append(f"    {{ const uint4 v = {{{', '.join(words)}}}; *(uint4*)({where}) = v; }}")
    return unrolled(plan.details["groups"], [*lines, "}"])


def _rearranged(width: int, extent: int, *, to_thin: bool) -> tuple[list[list[str]], Permuter]:
    """The words of each outgoing vector, and the lines that make them."""
    q = VECTOR // width
    permuter = Permuter()
    outgoing = []
    for vector in range(extent):
        words = []
        for word in range(4):
            sources = []
            for byte in range(4 * word, 4 * word + 4):
                index, inside = divmod(byte, width)
                if to_thin:  # vectors come by thin element, and leave as one run over (step, thin element)
                    place, source = divmod(vector * q + index, extent)
                else:
                    source, place = divmod(index * extent + vector, q)
                at = place * width + inside
                sources.append((f"in{source}{_FIELDS[at // 4]}", at % 4))
            words.append(permuter.word(sources))
        outgoing.append(words)
    return outgoing, permuter
