"""Loops of unknown length that stage data through shared memory: right ones are proved, wrong ones are not accepted.

Three kinds of loops: one buffer and two barriers in every trip; several buffers in turn and one barrier; a pipeline
that stores one trip ahead of what it reads.  What the proofs say is compared with the interpreter, which executes every
thread at sizes of several trips, and which knows nothing of inductions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from codegen_cuda.build import compile_ptx
from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove, SizedSide
from verify.kernel import check_kernel
from verify.ptx.check import check_executed
from verify.ptx.concrete import Buffer, run
from verify.ptx.mutate import Mutant, mutants
from verify.ptx.parametric.check import check_for_all_sizes
from verify.ptx.parametric.facts import Facts
from verify.ptx.parametric.samples import executed_for_sizes
from verify.ptx.parse import parse
from verify.ptx.resolve import load
from verify.verdict import Refuted, Unknown, Verdict

LARGE = 1 << 20
HEAD = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* __restrict__ in, unsigned* __restrict__ out, int M, int K) {
"""
SYNC = "__syncthreads();"


def tiles(buffers: str, first: str, last: str, *, barriers: str = "") -> str:
    """An (M, K) matrix transposed by tiles of 32 x 32: a block takes 32 rows and goes along K."""
    return (
        HEAD
        + f"""  __shared__ unsigned {buffers};
  int i = blockIdx.x * 32, b = 0;
  #pragma unroll 1
  for (int k = 0; k < (K + 31) / 32; ++k) {{
    {first}
    #pragma unroll
    for (int j = 0; j < 32; j += 8)
      if (k * 32 + threadIdx.x < K && i + threadIdx.y + j < M)
        tile[b][threadIdx.y + j][threadIdx.x] = in[(long long)(i + threadIdx.y + j) * K + k * 32 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 32; j += 8)
      if (k * 32 + threadIdx.y + j < K && i + threadIdx.x < M)
        out[(long long)(k * 32 + threadIdx.y + j) * M + i + threadIdx.x] = tile[b][threadIdx.x][threadIdx.y + j];
    {last} {barriers}
  }}
}}"""
    )


def rows(body: str, *, before: str = "", behind: str = "", shared: str = "unsigned s[256]", goes: str = "k < n") -> str:
    """Rows of K words copied, neighbours exchanged on the way: a block takes a row and goes along it."""
    return (
        HEAD
        + f"""  __shared__ {shared};
  const unsigned* row = in + (long long)blockIdx.x * K;
  unsigned* to = out + (long long)blockIdx.x * K;
  int t = threadIdx.x, n = (K + 255) / 256;
  {before}
  #pragma unroll 1
  for (int k = 0; {goes}; ++k) {{
    {body}
  }}
  {behind}
}}"""
    )


FILL = "if (k * 256 + t < K) s[t] = row[k * 256 + t];"
DRAIN = "if (k * 256 + (t ^ 1) < K) to[k * 256 + (t ^ 1)] = s[t ^ 1];"
PLAIN = rows(FILL + SYNC + DRAIN + SYNC)
TURNS = rows(
    "if (k * 256 + t < K) s[b][t] = row[k * 256 + t];"
    + SYNC
    + "if (k * 256 + (t ^ 1) < K) to[k * 256 + (t ^ 1)] = s[b][t ^ 1]; b ^= 1;",
    before="int b = 0;",
    shared="unsigned s[2][256]",
)
PIPELINE = rows(
    "if (k + 1 < n && (k + 1) * 256 + t < K) s[(k + 1) % 3][t] = row[(k + 1) * 256 + t];"
    + SYNC
    + "if (k * 256 + (t ^ 1) < K) to[k * 256 + (t ^ 1)] = s[k % 3][t ^ 1];",
    before="if (t < K) s[0][t] = row[t];",
    shared="unsigned s[3][256]",
)
#: One buffer, filled again behind what was read from it into a register.
BEHIND = rows(
    "unsigned x = 0; if (k * 256 + (t ^ 1) < K) x = s[t ^ 1];"
    + SYNC
    + "if ((k + 1) * 256 + t < K) s[t] = row[(k + 1) * 256 + t];"
    + SYNC
    + "if (k * 256 + (t ^ 1) < K) to[k * 256 + (t ^ 1)] = x;",
    before="if (t < K) s[t] = row[t];" + SYNC,
)
WALKING = (
    HEAD
    + """  __shared__ unsigned s[256];
  int t = threadIdx.x;
  const unsigned* row = in + (long long)blockIdx.x * K + t;
  unsigned* to = out + (long long)blockIdx.x * K + (t ^ 1);
  #pragma unroll 1
  for (int c = 0; c < K; c += 256, row += 256, to += 256) {
    if (c + t < K) s[t] = *row;
    __syncthreads();
    if (c + (t ^ 1) < K) *to = s[t ^ 1];
    __syncthreads();
  }
}"""
)
SINGLE = tiles("tile[1][32][33]", "", "", barriers=SYNC)
MODULO_2 = tiles("tile[2][32][33]", "b = k % 2;", "")
MODULO_3 = tiles("tile[3][32][33]", "b = k % 3;", "")
TOGGLED = tiles("tile[2][32][33]", "", "b ^= 1;")
RESET = tiles("tile[3][32][33]", "", "if (++b == 3) b = 0;")
TWO_BARRIERS = (
    PIPELINE.replace("% 3", "% 2").replace("s[3]", "s[2]").replace("s[k % 2][t ^ 1];", "s[k % 2][t ^ 1];" + SYNC)
)
FIVE = TURNS.replace("s[2]", "s[5]").replace("b ^= 1", "b = (k + 1) % 5")
#: A barrier that only those trips pass that another one follows.
PREDICATED = rows(
    FILL
    + SYNC
    + DRAIN
    + 'asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, %1; @p bar.sync 0; }" :: "r"(k + 1), "r"(n));'
)
#: Each trip reads what the trip before stored.
LATE = rows(
    "if (k < n && k * 256 + t < K) s[k % 2][t] = row[k * 256 + t];"
    + SYNC
    + "if (k >= 1 && (k - 1) * 256 + (t ^ 1) < K) to[(k - 1) * 256 + (t ^ 1)] = s[(k - 1) % 2][t ^ 1];"
    + SYNC,
    shared="unsigned s[2][256]",
    goes="k < n + 1",
)
UNLESS_FIRST = rows("if (k > 0) " + SYNC + FILL + SYNC + DRAIN)


def matrix(move: SizedMove, grid: str, block: tuple[int, int, int], largest: int) -> ClaimFamily:
    buffers = tuple(SizedBuffer(name, role, "uint32", "M*K", 16) for name, role in (("in", "input"), ("out", "output")))
    sizes = (Scalar("M", 32, 1, largest), Scalar("K", 32, 1, largest))
    return ClaimFamily("k", "uint32", (grid, 1, 1), block, 0, (*buffers, *sizes), (move,))


def transposed(largest: int = LARGE) -> ClaimFamily:
    """Element (i, j) of an (M, K) matrix becomes element (j, i)."""
    shape = ("M", "K")
    move = SizedMove("in", SizedSide("S[(M,K):(K,1)]", shape), "out", SizedSide("S[(M,K):(1,M)]", shape))
    return matrix(move, "(M + 31)//32", (32, 8, 1), largest)


def copied(largest: int = LARGE) -> ClaimFamily:
    """An (M, K) matrix stays what it is."""
    side = SizedSide("S[(M,K):(K,1)]", ("M", "K"))
    return matrix(SizedMove("in", side, "out", side), "M", (256, 1, 1), largest)


PROVED = {
    "one buffer": PLAIN,
    "one buffer, tiles": SINGLE,
    "buffers in turn, toggled": TURNS,
    "two buffers, tiles, modulo": MODULO_2,
    "two buffers, tiles, toggled": TOGGLED,
    "three buffers, tiles, modulo": MODULO_3,
    "three buffers, tiles, reset": RESET,
    "five buffers": FIVE,
    "pipeline of three buffers": PIPELINE,
    "pipeline of two buffers and barriers": TWO_BARRIERS,
    "pipeline of one buffer": BEHIND,
    "a trip late": LATE,
    "a barrier unless the loop ends": PREDICATED,
    "a barrier unless the loop begins": UNLESS_FIRST,
    "until the counter is there": PLAIN.replace("k < n", "k != n"),
    "buffers in turn, until the counter is there": TURNS.replace("k < n", "k != n"),
    "pipeline until the counter is there": PIPELINE.replace("k < n", "k != n"),
    "pointers that walk": WALKING,
}
QUICK = (
    "until the counter is there",
    "one buffer, tiles",
    "buffers in turn, toggled",
    "pipeline of three buffers",
    "pipeline of one buffer",
)
#: Sizes of several trips, whole ones and tails: for tiles of 32, and for rows taken 256 at a time.
SEVERAL = {
    "transposed": ((1, 1), (33, 31), (5, 96), (2, 97), (31, 161)),
    "copied": ((2, 255), (1, 256), (1, 257), (1, 769), (2, 1793)),
}


@cache
def compiled(source: str, compiler: str = "nvrtc") -> str:
    return compile_ptx(source, arch="sm_90a", name="k.cu", compiler=compiler).text


def several(family: ClaimFamily) -> tuple[tuple[int, int], ...]:
    return SEVERAL["transposed" if family.block == (32, 8, 1) else "copied"]


def open_ends(text: str, family: ClaimFamily) -> list[str]:
    """What is not proved, by proof alone."""
    return [str(o) for o in check_for_all_sizes(parse(text, file="k.ptx"), family) if not o.verdict.ok]


def family_of(source: str) -> ClaimFamily:
    """What a kernel promises."""
    return transposed() if "tile[" in source else copied()


def with_slow(names: Iterable[str], quick: Collection[str]) -> list[object]:
    """All names, those that are not quick marked."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


# --- what is proved ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", with_slow(PROVED, QUICK))
def test_a_loop_that_stages_data_is_proved_and_the_interpreter_agrees(name):
    source = PROVED[name]
    family = family_of(source)
    text = compiled(source)
    assert open_ends(text, family) == []
    module = parse(text)
    executed = executed_for_sizes(module, family)
    assert executed
    assert all(o.verdict.ok for o in executed)
    for m, k in several(family):
        assert all(o.verdict.ok for o in check_executed(module, family.at(M=m, K=k))), (m, k)


@pytest.mark.parametrize("name", ["one buffer, tiles", "pipeline of three buffers"])
def test_what_is_proved_is_what_numpy_says(name):
    source = PROVED[name]
    family = family_of(source)
    program = load(parse(compiled(source)), "k")
    for m, k in several(family)[1:]:
        given = np.random.default_rng(k).integers(0, 1 << 32, (m, k), dtype=np.uint32)
        wanted = given.T if family.block == (32, 8, 1) else given
        params = [Buffer(given), Buffer(np.zeros_like(wanted), mode="w"), m, k]
        found = run(program, grid=family.at(M=m, K=k).grid, block=family.block, params=params)
        assert np.array_equal(found.buffers[1], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one buffer, tiles", "two buffers, tiles, toggled", "three buffers, tiles, modulo",
    "pipeline of three buffers"])  # fmt: skip
def test_the_other_compiler_is_proved_too(name):
    source = PROVED[name]
    family = family_of(source)
    assert open_ends(compiled(source, "nvcc"), family) == []


def test_a_whole_certificate_names_the_sizes_that_were_executed():
    obligations = check_kernel(compiled(PIPELINE), copied())
    assert all(o.verdict.ok for o in obligations)
    assert obligations[0].name == "executed for M = 1, K = 1"


@pytest.mark.slow
def test_whole_tiles_need_no_guards():
    source = PLAIN.replace("if (k * 256 + t < K) ", "").replace("if (k * 256 + (t ^ 1) < K) ", "")
    assert open_ends(compiled(source), replace(copied(), given=("K % 256 == 0",))) == []
    assert open_ends(compiled(source), copied())


@pytest.mark.parametrize("goes", ["k <= n", "k < n + 1"])
def test_a_trip_too_many_is_harmless_where_every_access_is_guarded(goes):
    assert open_ends(compiled(PLAIN.replace("k < n", goes)), copied()) == []


def test_a_table_that_a_loop_only_reads_needs_no_barrier_in_it():
    source = PLAIN.replace(
        FILL + SYNC + DRAIN + SYNC, "if (k * 256 + t < K && s[t] < M) to[k * 256 + t] = row[k * 256 + t];"
    )
    filled = source.replace("#pragma", "s[t] = 0; __syncthreads();\n  #pragma")
    assert "no two threads touch" not in " ".join(open_ends(compiled(filled), copied()))
    raced = filled.replace("s[t] <", "s[t ^ 1] <").replace("__syncthreads();\n", "\n")
    assert "with no step of the loop between" in str(verdict_of(raced, "no two threads touch", copied()))


# --- what is refused --------------------------------------------------------------------------------------------

LAST = "= s[t ^ 1];" + SYNC
LATE_END = "% 2][t ^ 1];" + SYNC
WRONG = {
    # one buffer
    "no first barrier": (PLAIN, SYNC, "", "meets"),
    "no second barrier": (PLAIN, LAST, "= s[t ^ 1];", "in one step and in the next"),
    "tiles without the first barrier": (SINGLE, SYNC, "", "meets"),
    "tiles without the second barrier": (SINGLE, " " + SYNC + "\n  }", "\n  }", "in one step and in the next"),
    "a barrier in some threads": (PLAIN, SYNC, "if (k * 256 + t < K) " + SYNC, "some threads may not reach"),
    "a barrier in the first trips": (PLAIN, SYNC, "if (k < 9) " + SYNC, "meets"),
    "a barrier from the third trip on": (UNLESS_FIRST, "k > 0", "k > 1", "in one step and in the next"),
    "a barrier in few trips too few": (PREDICATED, '"r"(k + 1)', '"r"(k + 2)', "in one step and in the next"),
    "a barrier of warps": (PLAIN, SYNC, "__syncwarp();", "a warp barrier"),
    "another barrier": (PLAIN, SYNC, 'asm volatile("bar.sync 1;");', "only barrier 0"),
    "trips that differ between threads": (PLAIN, "k < n", "k * 256 + t < K", "some threads may not reach"),
    "threads that begin later": (PLAIN, "int k = 0", "int k = t / 128", "some threads may not reach"),
    "threads that never begin": (PLAIN, "#pragma", "if (t >= K) return;\n#pragma", "some threads may not reach"),
    "threads that leave early": (PLAIN, LAST, LAST + "if (k == t) break;", "go round differently"),
    "a trip too few": (PLAIN, "k < n", "k < n - 1", "not proved to be reached"),
    "a bound of 32 trips": (PLAIN, "k < n", "k < n && k < 32", "not proved to be reached"),
    "a trip too many": (TURNS.replace("if (k * 256 + (t ^ 1) < K) ", ""), "k < n", "k <= n", "out of bounds"),
    "stored one further": (PLAIN, "s[t] =", "s[t + 1] =", "shared memory"),
    "loaded one further": (PLAIN, "row[k * 256 + t]", "row[k * 256 + t + 1]", "out of bounds"),
    "put one further": (PLAIN, "to[k", "to[1 + k", "out of bounds"),
    "left where it was": (PLAIN, "= s[t ^ 1]", "= s[t]", "expected"),
    "a trip left out": (PLAIN, "if (k * 256 + t < K)", "if (k != 5 && k * 256 + t < K)", "expected"),
    "warps in turn": (PLAIN, "if (k * 256 + t", "if ((k & 1) == (t / 32 & 1) && k * 256 + t", "expected"),
    "a first trip that is special": (PLAIN, "row[k * 256 + t]", "row[k ? k * 256 + t : 0]", "expected"),
    "spoiled behind the barrier": (PLAIN, LAST, "= s[t ^ 1]; if (t == 3) s[3] = 7;" + SYNC, "meets"),
    # buffers in turn
    "one buffer in turn": (TURNS, "b ^= 1", "b ^= 0", "in one step and in the next"),
    "buffers in turn without a barrier": (TURNS, SYNC, "", "meets"),
    "every other barrier": (MODULO_2, SYNC, "if (k % 2) " + SYNC, "meets"),
    "each buffer twice": (MODULO_2, "k % 2", "k / 2 % 2", "meets"),
    "three trips, two buffers": (MODULO_3, "k % 3", "k % 3 % 2", "in one step and in the next"),
    "the other buffer": (MODULO_2, "= tile[b][", "= tile[b ^ 1][", "meets"),
    "a buffer too far": (RESET, "b == 3", "b == 4", "shared memory"),
    # a pipeline
    "no prologue": (PIPELINE, "if (t < K) s[0]", "if (t < 0) s[0]", "expected"),
    "a prologue in the wrong buffer": (PIPELINE, "s[0][t] =", "s[1][t] =", "expected"),
    "a pipeline without a barrier": (PIPELINE, SYNC, "", "meets"),
    "a pipeline of two buffers": (PIPELINE.replace("s[3]", "s[2]"), "% 3", "% 2", "meets"),
    "a pipeline with a short last trip": (PIPELINE, SYNC, "if (k + 1 < n) " + SYNC, "meets"),
    "the stage before": (PIPELINE, "s[k % 3]", "s[(k + 2) % 3]", "meets"),
    "the stage after": (PIPELINE, "s[k % 3]", "s[(k + 1) % 3]", "expected"),
    "the same element again": (PIPELINE, "row[(k + 1) * 256 + t]", "row[k * 256 + t]", "expected"),
    "a stage left out": (PIPELINE, "if (k + 1 < n", "if (k != 5 && k + 1 < n", "expected"),
    "a stage too few": (PIPELINE, "k + 1 < n", "k + 2 < n", "expected"),
    "room for two": (PIPELINE, "unsigned s[3]", "unsigned s[2]", "shared memory"),
    "a stage for the next but one": (BEHIND, "row[(k + 1) * 256 + t]", "row[k * 256 + t]", "expected"),
    "a trip late in the wrong buffer": (LATE, "s[(k - 1) % 2]", "s[k % 2]", "expected"),
    "a trip late without a second barrier": (LATE, LATE_END, LATE_END.replace(SYNC, ""), "meets"),
    "a trip late that begins later": (LATE, "k >= 1", "k >= 2", "not proved to be reached"),
    "a trip late that ends early": (LATE, "k < n + 1", "k < n", "not proved to be reached"),
    "no barrier behind the prologue": (BEHIND, "row[t];" + SYNC, "row[t];", "before the loop and in its first step"),
}  # fmt: skip
#: Reasons of kernels that are refused by what is not proved; executing a few sizes refutes most of them.
GAPS = (
    "not proved to be reached",
    "some threads may not reach",
    "a warp barrier",
    "only barrier 0",
    "go round differently",
)
SOON = ("no second barrier", "no prologue", "a stage left out", "trips that differ between threads", "a trip too few")


@pytest.mark.parametrize("name", with_slow(WRONG, SOON))
def test_a_wrong_loop_is_refused_and_its_witness_is_confirmed(name):
    source, old, new, reason = WRONG[name]
    family = family_of(source)
    assert old in source
    changed = source.replace(old, new) if name == "a pipeline of two buffers" else source.replace(old, new, 1)
    module = parse(compiled(changed), file="k.ptx")
    found = [o.verdict for o in check_for_all_sizes(module, family) if not o.verdict.ok]
    assert found
    if reason in GAPS:
        assert isinstance(found[0], Unknown)
        assert reason in found[0].reason
        return
    assert isinstance(found[0], Refuted), str(found[0])
    witness = found[0].counterexample
    assert reason in witness or reason == witness.get("when")
    executed = check_executed(module, family.at(M=witness["M"], K=witness["K"]))
    assert any(isinstance(o.verdict, Refuted) for o in executed)


def test_a_witness_in_a_loop_names_its_trip():
    source = PIPELINE.replace("if (k + 1 < n", "if (k != 5 && k + 1 < n")
    (found,) = [o.verdict for o in check_for_all_sizes(parse(compiled(source)), copied()) if not o.verdict.ok]
    assert isinstance(found, Refuted)
    witness = found.counterexample
    assert witness["trip"] == 6
    assert witness["expected"] == f"in[{6 * 256 + 1}]"
    assert witness["found"] == f"in[{3 * 256 + 1}]"  # three trips before, the last time that this buffer was filled


UNSUPPORTED = {
    "a loop inside": (rows("for (int j = 0; j < M; ++j) {" + FILL + SYNC + DRAIN + SYNC + "}"), "a loop"),
    "a loop around": (
        HEAD
        + "__shared__ unsigned s[256]; const unsigned* row = in; unsigned* to = out; int t = threadIdx.x;\n"
        + '_Pragma("unroll 1") for (int m = 0; m < M; ++m)\n_Pragma("unroll 1") for (int k = 0; k < K; ++k) {'
        + (FILL + SYNC + DRAIN + SYNC + "}}"),
        "a second loop with barriers",
    ),
    "the same loop twice": (
        rows(FILL + SYNC + DRAIN + SYNC).replace("#pragma", '_Pragma("unroll 1") for (int i = 0; i < 2; ++i)\n#pragma'),
        "begun a second time",
    ),
    "two such loops": (
        rows(
            FILL + SYNC + DRAIN + SYNC, behind='_Pragma("unroll 1") for (int k = 0; k < n; ++k) {' + FILL + SYNC + "}"
        ),
        "a second loop with barriers",
    ),
    "a way out": (rows(FILL + SYNC + DRAIN + SYNC + 'if (k == M) asm volatile("exit;");'), "a loop"),
    "what the loop left": (
        rows(FILL + SYNC + DRAIN + SYNC, behind="if (K <= 256 && t < K) to[t] = s[t];"),
        "what a loop leaves in shared memory",
    ),
    "an address by the sizes": (rows("s[(K + t) % 256] = row[t];" + SYNC + DRAIN + SYNC), "a shared address depends"),
    "a value carried in a register": (
        rows("if (k * 256 + t < K) s[t] = v;" + SYNC + "v = row[t];" + DRAIN + SYNC, before="unsigned v = row[0];"),
        "read before it is written",
    ),
    "a counter that passes by its end": (PLAIN.replace("k < n; ++k", "k != n; k += 2"), "the trips before a trip"),
    "a counter that begins behind its end": (PLAIN.replace("k < n", "k != n - 2"), "the trips before a trip"),
    "nine buffers": (FIVE.replace("s[5]", "s[9]").replace("% 5", "% 9"), "modulo 8"),
    "blocks of their own length": (
        rows(FILL + SYNC + DRAIN + SYNC, goes="k < n && k < (int)blockIdx.x + 1"),
        "reached",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_unknown_and_says_why(name):
    source, reason = UNSUPPORTED[name]
    found = [
        o.verdict for o in check_for_all_sizes(parse(compiled(source), file="k.ptx"), copied()) if not o.verdict.ok
    ]
    assert [type(verdict) for verdict in found] == [Unknown]
    assert reason in found[0].reason
    assert "line" in found[0].reason or "k.ptx:" in found[0].reason


def test_shared_memory_written_behind_a_loop_races_with_its_last_trip():
    source = rows(FILL + SYNC + DRAIN, behind="s[0] = K;")
    (found,) = [o.verdict for o in check_for_all_sizes(parse(compiled(source)), copied()) if not o.verdict.ok]
    assert isinstance(found, Refuted)
    assert "meets" in found.counterexample


# --- mutants ----------------------------------------------------------------------------------------------------


def judged(mutant: Mutant, family: ClaimFamily) -> str:
    """The verdict by proof; a mutant that is proved must do what the claim says wherever it is executed."""
    obligations = check_for_all_sizes(mutant.module, family, max_steps=5_000)  # some mutants do not end
    bad = [o.verdict for o in obligations if not o.verdict.ok]
    if bad:
        return "refuted" if any(isinstance(verdict, Refuted) for verdict in bad) else "unknown"
    for m, k in several(family):
        executed = check_executed(mutant.module, family.at(M=m, K=k))
        assert all(o.verdict.ok for o in executed), (mutant.operator, mutant.line, mutant.change)
    return "proved"


#: Kernels to mutate.
MUTATED = ("one buffer", "buffers in turn, toggled", "pipeline of three buffers")


@pytest.mark.parametrize(("name", "start"), [(name, 3 * index) for index, name in enumerate(MUTATED)])
def test_some_mutants_of_a_loop_are_refused(name, start):
    source = PROVED[name]
    family = family_of(source)
    found = list(mutants(parse(compiled(source), file="k.ptx")))[start::80]
    assert Counter(judged(mutant, family) for mutant in found)["refuted"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATED)
def test_mutants_of_a_loop_of_each_kind_are_refused_or_do_the_same(name):
    """Every third mutant.

    Those that are proved let in trips in which every access is guarded, change signs of numbers that are positive, or
    magic factors that stay exact enough: at most one in four.
    """
    source = PROVED[name]
    family = family_of(source)
    found = list(mutants(parse(compiled(source), file="k.ptx")))[::3]
    counts = Counter(judged(mutant, family) for mutant in found)
    assert counts["proved"] <= len(found) // 4
    assert counts["refuted"] > counts["unknown"]


# --- what it rests on -------------------------------------------------------------------------------------------


def test_another_step_reaches_into_what_was_derived():
    facts = Facts()
    q, n = facts.atom("trip.0", 0, 100, uniform=True), facts.atom("n", 1, 100, uniform=True)
    derived = (q * 7 + n) // 5 + facts.choice(facts.term(q) >= 3, q, n)
    before = facts.substitute(derived, {"trip.0": q - 1})
    for number in range(1, 9):
        environment = {"thread": 0, "trip.0": number, "n": 6}
        there = {"thread": 0, "trip.0": number - 1, "n": 6}
        assert (
            facts.at(before, environment)
            == facts.at(derived, there)
            == (7 * (number - 1) + 6) // 5 + (number - 1 if number - 1 >= 3 else 6)
        )


def verdict_of(source: str, statement: str, family: ClaimFamily) -> Verdict:
    """What became of one statement about a kernel."""
    obligations = check_for_all_sizes(parse(compiled(source), file="k.ptx"), family)
    return next(o.verdict for o in obligations if o.name.startswith(statement))


def test_what_a_loop_spoiled_two_trips_ago_is_not_taken_for_what_was_there_before():
    # Odd trips read what even ones stored, with no barrier between: never in one trip, so that they do not race there.
    body = "if (k % 2 == 0) s[t] = row[t ^ 2]; if (k % 2 == 1) to[t] = s[t ^ 1];" + SYNC
    source = rows(body, before="s[t ^ 1] = row[t]; to[t] = row[t];" + SYNC)
    family = replace(copied(), given=("K % 256 == 0",))
    found = verdict_of(source, "every store puts the element there", family)
    assert isinstance(found, Refuted)
    assert (found.counterexample["expected"], found.counterexample["found"]) == ("in[0]", "in[3]")


def test_the_last_store_before_a_loop_counts_even_where_only_later_trips_load():
    # No barrier behind the second store, but whoever loads comes in a later trip.
    body = "if (k > 0) to[t] = s[t];" + SYNC
    before = "s[t] = row[t];" + SYNC + "s[t ^ 1] = row[t]; to[t] = row[t];"
    family = replace(copied(), given=("K % 256 == 0",))
    found = verdict_of(rows(body, before=before), "every store puts the element there", family)
    assert isinstance(found, Refuted)
    assert found.counterexample["trip"] == 1


def test_a_loop_without_a_barrier_races_in_any_of_its_trips_with_what_is_before():
    body = "if (k > 0 && k * 256 + t < K && s[t ^ 1] < M) to[k * 256 + t] = row[k * 256 + t];"
    found = verdict_of(rows(body, before="s[t] = row[0];"), "no two threads touch", copied())
    assert not found.ok


def test_a_store_so_many_trips_late_that_none_comes_is_not_taken_for_all_of_them():
    late = 1 << 21  # more than any loop makes here
    place = f"(k - {late}) * 256 + t"
    source = rows(f"if (k >= {late} && {place} < K) to[{place}] = row[{place}];")
    found = verdict_of(source, "every element that the layouts name is written", copied())
    assert not found.ok
