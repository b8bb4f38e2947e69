"""Kernels of unknown sizes: right ones are proved for every M and N, wrong ones refused with numbers that show it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from ptx_samples import ptx_names, texts

from codegen_cuda.build import compile_ptx
from layoutalg.claim import Claim, Scalar, digest
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove, SizedSide, read_claim
from layoutalg.errors import LayoutError, RangeError
from layoutalg.sizes import comparisons, evaluate_size, holds
from verify.kernel import certify_files, check_kernel
from verify.ptx.check import check_executed
from verify.ptx.expect import expectations
from verify.ptx.mutate import mutants
from verify.ptx.parametric.check import check_for_all_sizes
from verify.ptx.parametric.facts import lemmas
from verify.ptx.parametric.samples import executed_for_sizes, sample_sizes
from verify.ptx.parse import parse
from verify.verdict import Refuted, Unknown

LARGE = 1 << 20
SAMPLE = "b_transpose_tiled.nvrtc135.sm_90a.ptx"

PADDED = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, int M, int N) {
  __shared__ unsigned tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < N && y + j < M) tile[threadIdx.y + j][threadIdx.x] = in[(unsigned long long)(y + j) * N + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < M && y + j < N) out[(unsigned long long)(y + j) * M + x] = tile[threadIdx.x][threadIdx.y + j];
}"""
ROLLED = PADDED.replace("for (", '_Pragma("unroll 1") for (')
FLAT = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, unsigned M, unsigned N) {
  __shared__ unsigned tile[32 * 32];
  unsigned tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  unsigned x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + ty;
  for (int j = 0; j < 32; j += 8)
    if (x < N && y + j < M) tile[(ty + j) * 32 + (tx ^ (ty + j))] = in[(unsigned long long)(y + j) * N + x];
  __syncthreads();
  x = blockIdx.y * 32 + tx; y = blockIdx.x * 32 + ty;
  for (int j = 0; j < 32; j += 8)
    if (x < M && y + j < N) out[(unsigned long long)(y + j) * M + x] = tile[tx * 32 + ((ty + j) ^ tx)];
}"""
STRIDED = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, int M, int N) {
  for (long long i = blockIdx.x * 256 + threadIdx.x; i < (long long)M * N; i += gridDim.x * 256) out[i] = in[i];
}"""
ROLLED_STRIDE = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, long long n) {
  #pragma unroll 1
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += (long long)gridDim.x * 256) out[i] = in[i];
}"""
VECTORS = """extern "C" __global__ void __launch_bounds__(256)
k(const uint4* __restrict__ in, uint4* __restrict__ out, unsigned n) {
  unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i < n / 4) out[i] = in[i];
}"""

BATCH = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, int B, int M, int N) {
  __shared__ unsigned tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  long long b = blockIdx.z;
  for (int j = 0; j < 32; j += 8)
    if (x < N && y + j < M) tile[threadIdx.y + j][threadIdx.x] = in[(b * M + (y + j)) * N + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < M && y + j < N) out[(b * N + (y + j)) * M + x] = tile[threadIdx.x][threadIdx.y + j];
}"""
PITCHED = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, unsigned M, unsigned N, unsigned P, unsigned Q) {
  unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  if (x < N && y < M) out[(unsigned long long)y * Q + x] = in[(unsigned long long)y * P + x];
}"""
HALVES = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned short* __restrict__ in, unsigned short* __restrict__ out, int M, int N) {
  __shared__ alignas(16) unsigned short tile[64][72];
  for (int i = 0; i < 2; ++i) {
    int v = threadIdx.x + 256 * i, r = v >> 3, c = (v & 7) * 8, y = blockIdx.y * 64 + r, x = blockIdx.x * 64 + c;
    if (y < M && x < N) *(uint4*)&tile[r][c] = *(const uint4*)&in[(long long)y * N + x];
  }
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    int v = threadIdx.x + 256 * i, r = v >> 3, c = (v & 7) * 8, y = blockIdx.x * 64 + r, x = blockIdx.y * 64 + c;
    if (y < N && x < M) {
      unsigned w[4];
      for (int j = 0; j < 4; ++j) w[j] = tile[c + 2 * j][r] | (unsigned)tile[c + 2 * j + 1][r] << 16;
      *(uint4*)&out[(long long)y * M + x] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}"""


def transpose(entry: str, dtype: str = "float32", *, block=(32, 8, 1), largest: int = LARGE) -> ClaimFamily:
    """An (M, N) matrix transposed: element (i, j) of the input is element (j, i) of the output."""
    shape = ("M", "N")
    buffers = tuple(SizedBuffer(name, role, dtype, "M*N", 16) for name, role in (("in", "input"), ("out", "output")))
    return ClaimFamily(
        entry,
        dtype,
        ("(N + 31)//32", "(M + 31)//32", 1),
        block,
        0,
        (*buffers, *(Scalar(name, 32, 1, largest) for name in shape)),
        (SizedMove("in", SizedSide("S[(M,N):(N,1)]", shape), "out", SizedSide("S[(M,N):(1,M)]", shape)),),
    )


def copy(*, given: tuple[str, ...]) -> ClaimFamily:
    """A vector of n words copied."""
    side = SizedSide("S[n:1]", ("n",))
    buffers = tuple(SizedBuffer(name, role, "uint32", "n", 16) for name, role in (("in", "input"), ("out", "output")))
    return ClaimFamily(
        "k",
        "uint32",
        ("(n + 1023)//1024", 1, 1),
        (256, 1, 1),
        0,
        (*buffers, Scalar("n", 32, 4, 1 << 30)),
        (SizedMove("in", side, "out", side),),
        given=given,
    )


def compiled(source: str, arch: str = "sm_90a") -> str:
    return compile_ptx(source, arch=arch, name="k.cu").text


def refusal(text: str, family: ClaimFamily) -> Refuted:
    """The first refutation by proof alone, without executing anything."""
    found = [o.verdict for o in check_for_all_sizes(parse(text, file="k.ptx"), family)]
    refuted = [verdict for verdict in found if isinstance(verdict, Refuted)]
    assert refuted, [str(verdict) for verdict in found if not verdict.ok]
    return refuted[0]


# --- what is proved ---------------------------------------------------------------------------------------------


def test_a_transpose_of_any_matrix_is_certified():
    obligations = check_kernel(texts()[SAMPLE], transpose("transpose_tiled"), file=SAMPLE)
    assert all(o.verdict.ok for o in obligations), [str(o) for o in obligations if not o.verdict.ok]
    assert [o.name for o in obligations[:2]] == ["executed for M = 1, N = 1", "executed for M = 31, N = 33"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ptx_names() if name.startswith("b_transpose")])
def test_both_compilers_and_every_target_are_certified_for_any_matrix(name):
    assert all(o.verdict.ok for o in check_for_all_sizes(parse(texts()[name]), transpose("transpose_tiled")))


@pytest.mark.parametrize(
    ("source", "block"),
    [
        pytest.param(PADDED, (32, 8, 1), id="padded tile"),
        pytest.param(ROLLED, (32, 8, 1), id="loops of constant length", marks=pytest.mark.slow),
        pytest.param(FLAT, (256, 1, 1), id="one-dimensional block", marks=pytest.mark.slow),
    ],
)
def test_other_ways_to_write_it_are_proved_too(source, block):
    module = parse(compiled(source))
    assert all(o.verdict.ok for o in check_for_all_sizes(module, transpose("k", "uint32", block=block)))


def test_vectors_are_aligned_because_the_claim_says_so():
    module = parse(compiled(VECTORS))
    assert all(o.verdict.ok for o in check_for_all_sizes(module, copy(given=("n % 4 == 0",))))
    rest = check_for_all_sizes(module, copy(given=()))
    assert any(not o.verdict.ok for o in rest)


@pytest.mark.slow
def test_a_grid_that_is_only_known_to_be_large_enough():
    grid = (Scalar("GX", 32, 1, 1 << 26), Scalar("GY", 32, 1, 65535))
    family = replace(transpose("transpose_tiled"), grid=("GX", "GY", 1), sizes=grid, given=("32*GX >= N", "32*GY >= M"))
    assert all(o.verdict.ok for o in check_kernel(texts()[SAMPLE], family))
    wider = replace(family, sizes=(replace(grid[0], maximum=1 << 27), grid[1]))
    found = refusal(texts()[SAMPLE], wider).counterexample
    assert found["GX"] > 1 << 26
    assert "out of bounds" in found  # 32*ctaid.x + tid.x became negative and passed the guard


@pytest.mark.slow
def test_a_batch_of_matrices_is_proved():
    shape = ("B", "M", "N")
    buffers = (SizedBuffer("in", "input", "uint32", "B*M*N", 4), SizedBuffer("out", "output", "uint32", "B*M*N", 4))
    family = replace(
        transpose("k", "uint32"),
        grid=("(N + 31)//32", "(M + 31)//32", "B"),
        params=(*buffers, Scalar("B", 32, 1, 1000), Scalar("M", 32, 1, 1 << 15), Scalar("N", 32, 1, 1 << 15)),
        moves=(
            SizedMove("in", SizedSide("S[(B,M,N):(M*N,N,1)]", shape), "out", SizedSide("S[(B,M,N):(M*N,1,M)]", shape)),
        ),
    )
    text = compiled(BATCH)
    assert all(o.verdict.ok for o in check_for_all_sizes(parse(text), family))
    short = replace(family, grid=("(N + 31)//32", "(M + 31)//32", 1))
    assert not all(o.verdict.ok for o in check_for_all_sizes(parse(text), short))


def pitched(*given: str) -> ClaimFamily:
    """A matrix copied from rows of pitch P to rows of pitch Q; what lies between the rows stays untouched."""
    shape = ("M", "N")
    buffers = (SizedBuffer("in", "input", "uint32", "M*P", 4), SizedBuffer("out", "output", "uint32", "M*Q", 4))
    return replace(
        transpose("k", "uint32"),
        grid=("(N + 31)//32", "(M + 7)//8", 1),
        params=(*buffers, *(Scalar(name, 32, 1, 1 << 18) for name in "MNPQ")),
        moves=(SizedMove("in", SizedSide("S[(M,N):(P,1)]", shape), "out", SizedSide("S[(M,N):(Q,1)]", shape)),),
        given=given,
    )


def test_pitches_are_sizes_like_any_other():
    module = parse(compiled(PITCHED))
    assert all(o.verdict.ok for o in check_for_all_sizes(module, pitched("P >= N", "Q >= N")))
    assert not all(o.verdict.ok for o in check_for_all_sizes(module, pitched("P >= N")))


@pytest.mark.slow
def test_a_transpose_of_two_byte_elements_by_vectors_is_proved():
    family = transpose("k", "uint16", block=(256, 1, 1))
    family = replace(
        family,
        grid=("(N + 63)//64", "(M + 63)//64", 1),
        params=(*family.params[:2], *(Scalar(name, 32, 8, 1 << 18) for name in "MN")),
    )
    module = parse(compiled(HALVES))
    whole = replace(family, given=("M % 8 == 0", "N % 8 == 0"))
    assert all(o.verdict.ok for o in check_for_all_sizes(module, whole))
    assert not all(o.verdict.ok for o in check_for_all_sizes(module, replace(family, given=("M % 8 == 0",))))


def test_what_is_counted_on_is_proved():
    assert [o.verdict.ok for o in lemmas()] == [True, True]


# --- what is refused --------------------------------------------------------------------------------------------

MUTANTS = {
    "no guard before a load": ("@%p3 bra 	$L__BB0_2;", "", "out of bounds"),
    "no guard before a store": ("@%p15 bra 	$L__BB0_10;", "", "out of bounds"),
    "one guard for the other": ("or.pred  	%p3, %p1, %p2;", "and.pred  	%p3, %p1, %p2;", "out of bounds"),
    "no barrier": ("bar.sync 	0;", "", "meets"),
    "pitch M for N": ("mul.wide.s32 	%rd7, %r3, %r14;", "mul.wide.s32 	%rd7, %r3, %r13;", "out of bounds"),
    "pitch N for M": ("cvt.s64.s32 	%rd3, %r13;", "cvt.s64.s32 	%rd3, %r14;", "out of bounds"),
    "bound off by one": ("setp.ge.s32 	%p1, %r18, %r14;", "setp.gt.s32 	%p1, %r18, %r14;", "out of bounds"),
    "guard by N for M": ("setp.ge.s32 	%p13, %r54, %r13;", "setp.ge.s32 	%p13, %r54, %r14;", "out of bounds"),
    "base shifted": ("ld.global.nc.f32 	%f2, [%rd16];", "ld.global.nc.f32 	%f2, [%rd16+4];", "out of bounds"),
    "column shifted": ("add.s32 	%r10, %r8, 8;", "add.s32 	%r10, %r8, 9;", "expected"),
    "swizzle changed": ("xor.b32  	%r56, %r17, %r4;", "and.b32 %r56, %r17, %r4;", "expected"),
    "shared pitch doubled": ("shl.b32 	%r9, %r4, 5;", "shl.b32 	%r9, %r4, 6;", "shared memory"),
    "wrong register": ("st.global.f32 	[%rd36], %f6;", "st.global.f32 	[%rd36], %f5;", "expected"),
    "store left out": ("st.global.f32 	[%rd36], %f6;", "", "found"),
    "two threads for one row": ("mov.u32 	%r17, %tid.y;", "mov.u32 %r17, %tid.y; and.b32 %r17, %r17, 6;", "meets"),
}
NARROW = {
    "32 bits, signed, to load": (
        "mul.wide.s32 	%rd7, %r3, %r14;",
        "mul.lo.s32 %r19, %r3, %r14; cvt.s64.s32 %rd7, %r19;",
        "out of bounds",
    ),
    "32 bits, unsigned, to load": (
        "mul.wide.s32 	%rd7, %r3, %r14;",
        "mul.lo.s32 %r19, %r3, %r14; cvt.u64.u32 %rd7, %r19;",
        "expected",
    ),
    "32 bits, signed, to store": (
        "mul.lo.s64 	%rd28, %rd27, %rd3;",
        "mul.lo.s32 %r19, %r8, %r13; cvt.s64.s32 %rd28, %r19;",
        "out of bounds",
    ),
}


def mutant(old: str, new: str) -> str:
    assert old in texts()[SAMPLE]
    return texts()[SAMPLE].replace(old, new, 1)


def test_computed_data_are_not_proved_and_executed_sizes_refute_them():
    store = "st.global.f32 	[%rd36], %f6;"
    text, family = mutant(store, "add.f32 %f6, %f6, %f6; " + store), transpose("transpose_tiled")
    proved = [o.verdict for o in check_for_all_sizes(parse(text), family) if not o.verdict.ok]
    assert [type(verdict) for verdict in proved] == [Unknown]
    assert any(isinstance(o.verdict, Refuted) for o in check_kernel(text, family))


@pytest.mark.parametrize("name", list(MUTANTS)[:: len(MUTANTS) // 2])
def test_a_wrong_transpose_is_refused_by_proof_with_a_witness(name):
    check_mutant(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_every_wrong_transpose_is_refused_by_proof_with_a_witness(name):
    check_mutant(name)


def check_mutant(name: str) -> None:
    old, new, reason = MUTANTS[name]
    family = transpose("transpose_tiled")
    text = mutant(old, new)
    found = refusal(text, family).counterexample
    assert reason in found
    assert family.admits({size: found[size] for size in "MN"})
    if name != "store left out":
        assert {"block", "thread", "PTX line", "instruction"} <= found.keys()
    # The witness is no artefact of the proof: at these sizes the interpreter refuses the kernel, too.
    executed = check_executed(parse(text), family.at(M=found["M"], N=found["N"]))
    assert any(isinstance(o.verdict, Refuted) for o in executed)


@pytest.mark.slow
def test_a_thread_may_store_its_element_twice():
    text = mutant("st.global.f32 	[%rd36], %f6;", "st.global.f32 [%rd36], %f6; st.global.f32 [%rd36], %f6;")
    assert all(o.verdict.ok for o in check_for_all_sizes(parse(text), transpose("transpose_tiled")))


@pytest.mark.parametrize(
    "name", [name if index == 1 else pytest.param(name, marks=pytest.mark.slow) for index, name in enumerate(NARROW)]
)
def test_a_product_in_32_bits_is_refused_with_sizes_at_which_it_wraps(name):
    old, new, reason = NARROW[name]
    found = refusal(mutant(old, new), transpose("transpose_tiled")).counterexample
    assert reason in found
    assert found["M"] * found["N"] > 1 << 31


@pytest.mark.slow
def test_a_product_in_32_bits_is_right_where_the_claim_keeps_it_small():
    old, new, _ = NARROW["32 bits, signed, to load"]
    small = replace(transpose("transpose_tiled"), given=("M*N <= 2**31 - 1",))
    obligations = check_for_all_sizes(parse(mutant(old, new)), small)
    assert all(o.verdict.ok for o in obligations)
    assert [o.name for o in obligations if "did not wrap" in o.name] == ["what line 49 reads did not wrap"]


def test_what_depends_on_an_operation_without_meaning_is_unknown_not_refuted():
    # M & 5 is never 99, but that and is opaque here: no witness may rest on it.
    odd = "and.b32 %r19, %r13, 5; setp.eq.s32 %p1, %r19, 99; @%p1 st.global.f32 [%rd2+-4], %f1; ret;"
    found = [o.verdict for o in check_for_all_sizes(parse(mutant("ret;", odd)), transpose("transpose_tiled"))]
    assert not any(isinstance(verdict, Refuted) for verdict in found)
    assert any(isinstance(verdict, Unknown) for verdict in found)


def test_half_of_an_element_is_not_the_whole():
    text = mutant("st.shared.f32 	[%r52], %f4;", "st.shared.u16 [%r52], %f4;")
    (found,) = check_for_all_sizes(parse(text), transpose("transpose_tiled"))
    assert isinstance(found.verdict, Unknown)
    assert "part of an element" in found.verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4))
def test_nothing_is_proved_that_executing_a_few_sizes_refutes(start):
    family = transpose("transpose_tiled")
    proved = 0
    for mutant_ in list(mutants(parse(texts()[SAMPLE], file=SAMPLE)))[5 * start :: 101]:
        executed = executed_for_sizes(mutant_.module, family)
        obligations = check_for_all_sizes(mutant_.module, family)
        wrong = any(isinstance(o.verdict, Refuted) for o in executed)
        accepted = all(o.verdict.ok for o in obligations)
        assert not (wrong and accepted), (mutant_.operator, mutant_.line, mutant_.change)
        proved += accepted
    assert proved <= 1  # those that change nothing are few


def test_a_certificate_of_files_covers_all_sizes(tmp_path):
    ptx, claim = tmp_path / "k.ptx", tmp_path / "k.claim.json"
    ptx.write_text(texts()[SAMPLE])
    claim.write_text(json.dumps(transpose("transpose_tiled").to_json()))
    certificate = certify_files(ptx, claim)
    assert certificate["proved"]
    assert certificate["sha256"]["claim"] == digest(transpose("transpose_tiled").to_json())
    executed = certify_files(ptx, claim, symbolic=False)
    assert not executed["proved"]
    assert [row["verdict"] for row in executed["obligations"]][-1] == "Unknown"


@pytest.mark.slow
def test_executing_some_sizes_refuses_what_the_proof_leaves_open():
    text = mutant("shl.b32 	%r1, %r15, 5;", "shl.b32 	%r1, %r15, 4;")
    proved = check_for_all_sizes(parse(text), transpose("transpose_tiled"))
    assert [type(o.verdict) for o in proved if not o.verdict.ok] == [Unknown]
    executed = check_kernel(text, transpose("transpose_tiled"))
    assert isinstance(executed[-1].verdict, Refuted)


def strided(grid, *sizes: Scalar) -> ClaimFamily:
    """A vector of any number of words copied by a grid that need not be large enough."""
    family = copy(given=())
    return replace(family, grid=(grid, 1, 1), params=(*family.params[:2], Scalar("n", 64, 1, 1 << 34)), sizes=sizes)


@pytest.mark.parametrize("family", [strided(64), strided("G", Scalar("G", 32, 1, 1 << 20))], ids=["64", "any"])
def test_a_loop_of_unknown_length_is_proved_by_induction(family):
    assert all(o.verdict.ok for o in check_for_all_sizes(parse(compiled(ROLLED_STRIDE)), family))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gridDim.x * 256", "gridDim.x * 128"),
        ("gridDim.x * 256", "gridDim.x * 512"),
        ("(long long)gridDim.x * 256", "64 * 128"),
        ("i < n", "i <= n"),
        ("i < n", "i < n - 1"),
        ("+ threadIdx.x", "+ threadIdx.x + 1"),
        ("= in[i]", "= in[i > 0 ? i - 1 : i]"),
        ("i += (long long)gridDim.x * 256", "i += 0"),
    ],
)
def test_a_wrong_loop_of_unknown_length_is_not_accepted(old, new):
    assert old in ROLLED_STRIDE
    module = parse(compiled(ROLLED_STRIDE.replace(old, new)))
    for family in (strided(64), strided("G", Scalar("G", 32, 1, 1 << 20))):
        assert not all(o.verdict.ok for o in check_for_all_sizes(module, family))


@pytest.mark.parametrize("way_out", ["ret", "bra $L__BB0_3"])
def test_a_loop_that_a_thread_may_leave_in_the_middle_is_not_accepted(way_out):
    text = compiled(ROLLED_STRIDE)
    after = text.index(";", text.index("st.global")) + 1
    assert "$L__BB0_3:" in text[after:]
    left = f"{text[:after]} setp.eq.s64 %p1, %rd22, 70000; @%p1 {way_out}; {text[after:]}"
    found = [o.verdict for o in check_for_all_sizes(parse(left, file="k.ptx"), strided(64)) if not o.verdict.ok]
    assert isinstance(found[0], Unknown)
    assert "several ways out" in found[0].reason


@pytest.mark.parametrize("trips", [1025, 1026, 1027])
def test_a_loop_whose_trips_are_limited_does_not_reach_everything(trips):
    # 1026 is what hides behind the bound of the induction, which is one more than the largest size.
    source = ROLLED_STRIDE.replace("long long n", "long long M, long long N").replace(
        "i < n", f"i < M * N && k < {trips}"
    )
    source = source.replace("#pragma", "long long k = 0;\n#pragma").replace(
        "out[i] = in[i]", "{ ++k; out[i] = in[i]; }"
    )
    side = SizedSide("S[M*N:1]", ("M*N",))
    buffers = (SizedBuffer("in", "input", "uint32", "M*N", 16), SizedBuffer("out", "output", "uint32", "M*N", 16))
    sizes = (Scalar("M", 64, 1, 1024), Scalar("N", 64, 1, 1024))
    family = replace(
        strided("G", Scalar("G", 32, 1, 1024)), params=(*buffers, *sizes), moves=(SizedMove("in", side, "out", side),)
    )
    assert not all(o.verdict.ok for o in check_for_all_sizes(parse(compiled(source)), family))


def test_what_is_known_of_a_quotient_says_nothing_of_a_divisor_of_zero():
    source = """extern "C" __global__ void __launch_bounds__(256)
    k(const unsigned* __restrict__ in, unsigned* __restrict__ out, unsigned n, unsigned p) {
      unsigned i = blockIdx.x * 256 + threadIdx.x;
      if (p >= 1 && blockIdx.x / p == 7777777) out[0] = in[0];
      if (i < n) out[p ? i : i + n] = in[i];
    }"""
    family = copy(given=())
    family = replace(family, grid=("(n + 255)//256", 1, 1), params=(*family.params, Scalar("p", 32, 0, 1000)))
    found = refusal(compiled(source), family).counterexample
    assert found["p"] == 0
    assert "out of bounds" in found


def test_a_barrier_that_some_sizes_leave_out_orders_only_where_it_comes():
    def judged(condition: str) -> list[object]:
        text = compiled(PADDED.replace("__syncthreads();", f"if ({condition}) __syncthreads();"))
        obligations = check_for_all_sizes(parse(text), transpose("k", "uint32"))
        return [o.verdict for o in obligations if not o.verdict.ok]

    assert judged("M >= 1") == []
    (found,) = judged("M > 5")
    assert isinstance(found, Refuted)
    assert "meets" in found.counterexample
    assert found.counterexample["M"] <= 5
    (found,) = judged("blockIdx.x != 7")
    assert isinstance(found, Refuted)
    assert found.counterexample["block"][0] == 7
    (found,) = judged("threadIdx.y < M")
    assert isinstance(found, Unknown)
    assert "some threads may not reach" in found.reason


def test_what_other_blocks_may_write_is_not_called_never_written():
    source = (
        VECTORS.replace("uint4", "unsigned").replace("blockIdx.x * 256 +", "blockIdx.x + 2 *").replace("n / 4", "n")
    )
    found = check_for_all_sizes(parse(compiled(source)), replace(copy(given=()), grid=("n", 1, 1)))
    assert [type(o.verdict) for o in found if not o.verdict.ok] == [Unknown]


def test_a_loop_that_goes_one_too_far_is_refuted_with_its_thread():
    found = refusal(compiled(ROLLED_STRIDE.replace("i < n", "i <= n")), strided(64)).counterexample
    assert "out of bounds" in found
    assert found["PTX line"] > 0


def test_a_loop_that_the_compiler_unrolled_is_named_as_a_gap():
    family = replace(transpose("k", "uint32", block=(256, 1, 1)), grid=(64, 1, 1))
    (found,) = check_for_all_sizes(parse(compiled(STRIDED), file="k.ptx"), family)
    assert isinstance(found.verdict, Unknown)
    assert "k.ptx:" in found.verdict.reason
    assert "a loop whose number of trips depends on unknowns" in found.verdict.reason


# --- claims -----------------------------------------------------------------------------------------------------


def test_conditions_that_no_sizes_meet_are_refused():
    family = replace(transpose("transpose_tiled"), given=("M + N <= 1",))
    assert isinstance(check_kernel(texts()[SAMPLE], family)[0].verdict, Refuted)


def test_a_layout_that_leaves_its_buffer_is_refused_with_sizes():
    family = transpose("transpose_tiled")
    short = tuple(replace(p, count="M*N - 1") if isinstance(p, SizedBuffer) else p for p in family.params)
    found = refusal(texts()[SAMPLE], replace(family, params=short, given=("M*N >= 2",)))
    assert found.counterexample["buffer"] == "in"


def test_a_layout_that_puts_two_elements_in_one_place_is_not_accepted():
    shape = ("M", "N")
    move = SizedMove("in", SizedSide("S[(M,N):(N,1)]", shape), "out", SizedSide("S[(M,N):(1,1)]", shape))
    found = check_for_all_sizes(parse(texts()[SAMPLE]), replace(transpose("transpose_tiled"), moves=(move,)))
    assert not all(o.verdict.ok for o in found)


def test_the_other_transpose_is_not_accepted():
    shape = ("M", "N")
    move = SizedMove("in", SizedSide("S[(M,N):(1,M)]", shape), "out", SizedSide("S[(M,N):(N,1)]", shape))
    family = replace(transpose("transpose_tiled"), moves=(move,))
    assert any(isinstance(o.verdict, Refuted) for o in check_kernel(texts()[SAMPLE], family))


def test_a_family_at_its_sizes_is_the_claim_written_by_hand():
    claim = transpose("transpose_tiled").at(M=5, N=3)
    (found,) = expectations(claim)
    rows = np.arange(15).reshape(5, 3)
    assert found.origin.tolist() == rows.T.reshape(-1).tolist()
    assert claim.grid == (1, 1, 1)
    assert Claim.from_json(claim.to_json()) == claim


def test_a_family_reads_back_and_a_claim_is_still_a_claim():
    family = replace(transpose("t"), given=("M*N <= 2**31",), sizes=(Scalar("P", 32, 1, 9),))
    assert read_claim(family.to_json()) == family
    claim = family.at(M=2, N=2, P=1)
    assert read_claim(claim.to_json()) == claim
    with pytest.raises(LayoutError):
        Claim.from_json(family.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": ("K", 1, 1)}, "names K"),
        ({"given": ("M + N",)}, "no condition"),
        ({"given": ("__import__('os') <= 1",)}, "no expression"),
        ({"sizes": (Scalar("M", 32, 1, 2),)}, "distinct names"),
        ({"grid": ("M / 2", 1, 1)}, "no expression"),
        ({"params": (Scalar("M", 32, 1, 1 << 32), Scalar("N", 32, 1, 9)), "moves": ()}, "bits do not hold"),
    ],
)
def test_a_family_that_means_nothing_is_refused(change, message):
    with pytest.raises(LayoutError, match=message):
        replace(transpose("t"), **change).at(M=4, N=4)


@pytest.mark.parametrize("values", [{"M": 4}, {"M": 0, "N": 4}, {"M": 4, "N": LARGE + 1}])
def test_sizes_outside_the_family_are_refused(values):
    with pytest.raises(RangeError):
        transpose("t").at(**values)


def test_samples_lie_around_the_tile_and_meet_the_conditions():
    family = replace(transpose("t"), given=("M*N % 2 == 1",))
    found = sample_sizes(family)
    assert {"M": 31, "N": 33} in found
    assert all(family.admits(sizes) for sizes in found)


@pytest.mark.parametrize("text", ["M*(N+1)//3 % 5", "2**3 - M", "-M + 4*N"])
def test_size_expressions_mean_what_python_means(text):
    for m in range(1, 9):
        for n in range(1, 9):
            assert evaluate_size(text, {"M": m, "N": n}) == eval(text, {"M": m, "N": n})
            assert holds(f"{text} < 7", {"M": m, "N": n}) == (eval(text, {"M": m, "N": n}) < 7)


def test_a_chain_of_comparisons_is_all_of_them():
    assert len(comparisons("1 <= M < N <= 9", {"M": 1, "N": 2})) == 3
