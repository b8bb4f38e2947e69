"""Kernels made to deceive the proofs for all sizes: each shows a way in which what holds here was taken for everywhere.

Wrong kernels must not be proved, right ones not be refuted.  What they do is executed at a size that shows it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_ptx_stage_loops import DRAIN, FILL, HEAD, SYNC, compiled, copied, rows, transposed

from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove, SizedSide
from layoutalg.errors import LayoutError
from verify.ptx.check import check_executed
from verify.ptx.parametric.check import check_for_all_sizes
from verify.ptx.parametric.facts import Facts
from verify.ptx.parse import parse
from verify.verdict import Refuted

#: A barrier at the end of a trip, unless M divided by what is left of the trips is 3, and not in the last trip.
UNDECIDED = """asm volatile("{ .reg .pred p; .reg .pred q; .reg .u32 d; setp.ge.s32 p, %0, %1; @p bra SKIP;
 sub.s32 d, %1, %0; div.u32 d, %2, d; setp.ne.u32 q, d, 3; @q bar.sync 0; SKIP: }" :: "r"(k + 1), "r"(n), "r"(M) :
 "memory");""".replace("\n", "")


def along_rows(column: str = "", guard: str = "") -> str:
    """A transpose whose next tile is stored by other threads than those that read it: with a mistake in a column."""
    return (
        HEAD
        + f"""  __shared__ unsigned tile[16][17];
  int i = blockIdx.x * 16, x = threadIdx.x, y = threadIdx.y, n = (K + 15) / 16;
  if (x < K && i + y < M) tile[y][x] = in[(long long)(i + y) * K + x];
  __syncthreads();
  #pragma unroll 1
  for (int k = 0; k < n; ++k) {{
    unsigned v = 0;
    if (k * 16 + y < K && i + x < M) v = tile[x][y];
    __syncthreads();
    int c = (k + 1) * 16 + x {column};
    if (c < K && i + y < M {guard}) tile[y][x] = in[(long long)(i + y) * K + c];
    __syncthreads();
    if (k * 16 + y < K && i + x < M) out[(long long)(k * 16 + y) * M + i + x] = v;
  }}
}}"""
    )


def barrier_if(condition: str) -> str:
    text = "{ .reg .pred p; setp.ne.s32 p, %0, 0; @p bar.sync 0; }"
    return f'asm volatile("{text}" :: "r"((int)({condition})) : "memory");'


COPY = "if (k * 256 + t < K) to[k * 256 + t] = row[k * 256 + t];"
BOTH = "unsigned s[256]; __shared__ volatile unsigned r[256]"
DIAGONAL = (
    HEAD
    + """  int t = threadIdx.x;
  #pragma unroll 1
  for (int k = 0; k * 256 < K; ++k) {
    int i = blockIdx.x + 2 * k, c = 256 * k + t;
    if (i < M && c < K) out[(long long)i * K + c] = in[(long long)i * K + c];
  }
}"""
)
TILES = replace(transposed(), grid=("(M + 15)//16", 1, 1), block=(16, 16, 1))
QUOTIENT = "(unsigned)(i + x) / (unsigned)(M + k + 1)"
#: Kernel, family, sizes at which it goes wrong.
WRONG = {
    "a barrier of which nothing is known in another trip": (rows(FILL + SYNC + DRAIN + UNDECIDED), copied(), (3, 512)),
    "a column that only the readers' bounds make right": (along_rows("+ " + QUOTIENT), TILES, (1, 60)),
    "one trip for two dimensions": (DIAGONAL, replace(copied(), grid=(2, 1, 1)), (4, 512)),
    "a barrier that the last trip leaves out": (
        rows(
            barrier_if("k + 1 < n") + "if (t < 2 && k + 1 < n) r[t] = 5;" + COPY,
            behind="if (t < 2) r[t ^ 1] = 7;",
            shared=BOTH,
        ),
        copied(),
        (1, 512),
    ),
    "writers that only the readers' bounds make come": (along_rows("", f"&& {QUOTIENT} != 3"), TILES, (1, 60)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_deceptive_loop_is_not_proved(name):
    source, family, (m, k) = WRONG[name]
    module = parse(compiled(source), file="k.ptx")
    assert any(isinstance(o.verdict, Refuted) for o in check_executed(module, family.at(M=m, K=k)))
    assert not all(o.verdict.ok for o in check_for_all_sizes(module, family))


def test_the_honest_form_of_these_loops_is_proved():
    assert all(o.verdict.ok for o in check_for_all_sizes(parse(compiled(along_rows())), TILES))


def elements(align: int = 16, *sizes: Scalar, given: tuple[str, ...] = ()) -> ClaimFamily:
    """A copy of n elements."""
    side = SizedSide("S[n:1]", ("n",))
    buffers = [SizedBuffer(name, role, "uint32", "n", align) for name, role in (("in", "input"), ("out", "output"))]
    params, grid = (*buffers, Scalar("n", 32, 1, 1 << 20), *sizes), ("(n + 255)//256", 1, 1)
    return ClaimFamily("k", "uint32", grid, (256, 1, 1), 0, params, (SizedMove("in", side, "out", side),), given=given)


def copying(parameters: str, body: str) -> str:
    return f"""extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, int n{parameters}) {{
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  {body}
}}"""


def test_a_size_may_have_any_name():
    guarded = copying(", int x1", "if (i < n && x1 < n) out[i] = in[i];")
    module = parse(compiled(guarded), file="k.ptx")
    family = elements(16, Scalar("x1", 32, 1, 100))
    assert any(isinstance(o.verdict, Refuted) for o in check_executed(module, family.at(n=3, x1=3)))
    assert not all(o.verdict.ok for o in check_for_all_sizes(module, family))


def test_two_things_of_one_name_are_refused():
    facts = Facts()
    facts.atom("n", 1, 9)
    for name in ("n", "thread"):
        with pytest.raises(LayoutError, match="the name of something else"):
            facts.atom(name, 0, 5)


L = Scalar("L", 32, 1, 1 << 20)
TWICE = 'asm volatile("xor.b32 %0, %0, 1; xor.b32 %0, %0, 1;" : "+r"(x));'
WIDE = """asm volatile("{ .reg .pred p; .reg .b32 a; .reg .b32 b; .reg .b32 c; .reg .b32 d; setp.gt.s32 p, %1, %2;
 @p ld.global.v4.u32 {a, b, c, d}, [%0]; }" :: "l"(in), "r"(L), "r"(n));""".replace("\n", "")
MASKED = """asm volatile("{ .reg .pred p; .reg .b32 a; and.b32 a, %0, %1; setp.gt.u32 p, a, %0;"
 "@p st.shared.u32 [%2], a; }" :: "r"(n), "r"(L), "r"((unsigned)__cvta_generic_to_shared((void*)&s[t ^ 1])));"""
ALIGNED = """asm volatile("{ .reg .pred p; .reg .b64 a; and.b64 a, %0, 15; setp.ne.u64 p, a, 0;"
 "@p st.global.u32 [%0+-4], 7; }" :: "l"(out) : "memory");"""
#: Right kernels, written so that a hasty reader finds something wrong.
RIGHT = {
    "behind a loop what was before it is long past": (
        rows(
            FILL + SYNC + DRAIN + SYNC,
            before="r[t] = row[0];",
            behind="r[t ^ 1] = 7;",
            shared=BOTH,
        ),
        copied(),
    ),
    "a barrier in the last trip alone": (
        rows(
            COPY + barrier_if("k + 1 == n"),
            before="if (t < 2) r[t] = 1;",
            behind="if (t < 2) r[t ^ 1] = 7;",
            shared=BOTH,
        ),
        copied(),
    ),
    "changed and changed back": (
        copying(", int L", "if (i < n) { unsigned x = in[i]; " + TWICE + " out[i] = x; }"),
        elements(16, L),
    ),
    "a wide load that never happens": (
        copying(", int L", "if (i < n) { " + WIDE + " out[i] = in[i]; }"),
        elements(4, L, given=("L <= n",)),
    ),
    "a store that never happens": (
        copying(", int L", f"__shared__ volatile unsigned s[256]; s[t] = n; {MASKED} if (i < n) out[i] = in[i];"),
        elements(16, L),
    ),
    "an address that is aligned": (copying("", ALIGNED + " if (i < n) out[i] = in[i];"), elements()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_not_refuted(name):
    source, family = RIGHT[name]
    module = parse(compiled(source), file="k.ptx")
    sizes = {"M": 2, "K": 300} if family.block == copied().block and "M" in source else {"n": 300}
    sizes = {size.name: sizes.get(size.name, 1) for size in family.unknowns}
    assert all(o.verdict.ok for o in check_executed(module, family.at(**sizes)))
    assert not any(isinstance(o.verdict, Refuted) for o in check_for_all_sizes(module, family))


def test_the_sizes_of_a_witness_are_admissible():
    source = copying(", int L", "if (i < n) out[i] = in[i + 1 < n ? i + 1 : i];")
    family = elements(16, L)
    found = [o.verdict for o in check_for_all_sizes(parse(compiled(source)), family) if isinstance(o.verdict, Refuted)]
    assert found
    witness = found[0].counterexample
    assert family.admits({"n": witness["n"], "L": witness["L"]})
