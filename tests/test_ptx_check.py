"""Compiled kernels against claims: sound ones are proved twice, wrong claims and wrong kernels are refuted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_claims import bytes_transpose, transpose, warp_transpose
from ptx_kernels import module
from ptx_samples import ptx_names, texts

from layoutalg.claim import BankPromise, Buffer, Claim, Move, Scalar, Side
from layoutalg.errors import LayoutError
from verify.ptx.bytewise import Byte, Choice, bytes_and_conditions, bytes_of
from verify.ptx.check import check_executed
from verify.ptx.expect import decode, expectations, planes
from verify.ptx.parse import parse
from verify.ptx.symbolic import check_symbolically
from verify.verdict import Proved, Refuted, Unknown

A = [name for name in ptx_names() if name.startswith("a_warp")]
B = [name for name in ptx_names() if name.startswith("b_transpose")]
A2 = [name for name in ptx_names() if name.startswith("a2_warp")]


def some_quick(names: list[str], quick: tuple[str, ...] = ("nvcc130.sm_80", "nvrtc135.sm_90a")):
    """Some by default; all compilers and targets among the slow tests."""
    return [name if any(q in name for q in quick) else pytest.param(name, marks=pytest.mark.slow) for name in names]


CLAIM_A = warp_transpose("warp_transpose_4x32", 2)


def sample(name: str):
    return parse(texts()[name], file=name)


def verdicts(obligations) -> list[str]:
    return [str(obligation.verdict) for obligation in obligations]


def the_refuted(obligations) -> Refuted:
    return next(o.verdict for o in obligations if isinstance(o.verdict, Refuted))


@pytest.mark.parametrize("name", some_quick(A))
def test_the_warp_transpose_is_proved_by_execution_and_by_the_solver(name):
    assert verdicts(check_executed(sample(name), CLAIM_A)) == ["Proved"] * 4
    assert verdicts(check_symbolically(sample(name), CLAIM_A)) == ["Proved"] * 4


@pytest.mark.parametrize("name", some_quick(A2, ("nvcc130.sm_80",)))
def test_the_looping_warp_transpose_is_proved(name):
    claim = warp_transpose("warp_transpose_fn", 9, block=128, scalar=True)
    assert verdicts(check_executed(sample(name), claim)) == ["Proved"] * 4
    claim = warp_transpose("warp_transpose_fn", 4, block=128, scalar=True)
    assert verdicts(check_symbolically(sample(name), claim)) == ["Proved"] * 4


def test_a_barrier_that_only_some_warps_reach_is_unknown_to_the_solver():
    claim = warp_transpose("warp_transpose_fn", 9, block=128, scalar=True)
    (obligation,) = check_symbolically(sample(A2[0]), claim)
    assert isinstance(obligation.verdict, Unknown)
    assert "a barrier that some threads may not reach" in obligation.verdict.reason


@pytest.mark.parametrize("name", some_quick(B, ("nvrtc135.sm_90a",)))
def test_the_tiled_transpose_with_tails_is_proved(name):
    claim = transpose("transpose_tiled", 40, 50, "float32", grid=(2, 2, 1), block=(32, 8, 1))
    assert verdicts(check_executed(sample(name), claim)) == ["Proved"] * 4
    assert verdicts(check_symbolically(sample(name), claim)) == ["Proved"] * 4


def test_the_vector_transpose_is_proved():
    name = "b2_transpose_vec.nvrtc135.sm_100a.ptx"
    claim = transpose("transpose_u16_vec", 72, 136, "uint16", grid=(2, 1, 1), block=(256, 1, 1))
    assert verdicts(check_executed(sample(name), claim)) == ["Proved"] * 4


def test_bytes_are_followed_one_by_one():
    name = "d_async_misc.nvrtc135.sm_100a.ptx"
    assert verdicts(check_executed(sample(name), bytes_transpose())) == ["Proved"] * 4
    assert verdicts(check_symbolically(sample(name), bytes_transpose())) == ["Proved"] * 4


# --- wrong claims --------------------------------------------------------------------------------------------------


def with_destination(layout: str) -> Claim:
    (move,) = CLAIM_A.moves
    return replace(CLAIM_A, moves=(replace(move, destination=replace(move.destination, layout=layout)),))


def test_another_destination_is_refuted_with_element_address_and_thread():
    claim = with_destination("S[(2,4,32):(128,32,1)]")
    found = the_refuted(check_executed(sample(A[0]), claim)).counterexample
    assert found["output"] == "B[1], byte 0"
    assert (found["expected"], found["found"]) == ("A[1]", "A[32], byte 0")
    assert found["written by"] == "block (0, 0, 0), thread (1, 0, 0)"
    assert "expected" in the_refuted(check_symbolically(sample(A[0]), claim)).counterexample


def test_a_claim_of_fewer_stages_is_refuted_by_the_frame():
    (move,) = CLAIM_A.moves
    region = "0:1,0:4,0:32"
    sides = [replace(side, region=region) for side in (move.source, move.destination)]
    claim = replace(CLAIM_A, moves=(Move("A", sides[0], "B", sides[1]),), banks=())
    found = the_refuted(check_executed(sample(A[0]), claim)).counterexample
    assert (found["output"], found["expected"]) == ("B[129], byte 0", "A[129]")
    untouched = replace(claim, frame="untouched")
    found = the_refuted(check_executed(sample(A[0]), untouched)).counterexample
    assert (found["output"], found["expected"]) == ("B[128], byte 0", "not written")


@pytest.mark.parametrize(("wavefronts", "excess"), [(3, 0), (4, 1)])
def test_another_bank_promise_is_refuted(wavefronts, excess):
    claim = replace(CLAIM_A, banks=(BankPromise("read", "ld.shared", wavefronts, excess),))
    found = the_refuted(check_executed(sample(A[0]), claim)).counterexample
    assert found["found"] == "4 wavefronts, 0 in excess"


def test_a_promise_about_an_operation_that_never_happens_is_refuted():
    claim = replace(CLAIM_A, banks=(BankPromise("read", "ldmatrix", 4, 0),))
    assert the_refuted(check_executed(sample(A[0]), claim)).counterexample["found"] == "0 phases of ldmatrix"


INTERFACES = {
    "a missing parameter": replace(CLAIM_A, params=(*CLAIM_A.params, Scalar("n", 32, 1, 1))),
    "too many threads": replace(CLAIM_A, block=(64, 1, 1)),
}


@pytest.mark.parametrize("claim", INTERFACES.values(), ids=INTERFACES.keys())
def test_a_claim_for_another_interface_is_refuted(claim):
    (obligation,) = check_executed(sample(A[0]), claim)
    assert isinstance(obligation.verdict, Refuted)


def test_a_kernel_that_is_not_understood_is_unknown_never_proved():
    broken = parse(module("add.s32 %r6, %r1, 1;"))
    claim = replace(CLAIM_A, entry="other")
    for check in (check_executed, check_symbolically):
        (obligation,) = check(broken, claim)
        assert isinstance(obligation.verdict, Unknown)


def test_a_claim_that_contradicts_itself_is_no_claim():
    clash = with_destination("S[(2,4,32):(0,1,4)]")
    with pytest.raises(LayoutError, match="two elements at one place"):
        expectations(clash)
    outside = with_destination("S[(2,4,32):(256,1,4)]")
    with pytest.raises(LayoutError, match="spans"):
        expectations(outside)
    (obligation,) = check_executed(sample(A[0]), clash)
    assert isinstance(obligation.verdict, Unknown)


def test_scalars_that_are_only_sampled_are_not_proved():
    claim = transpose("transpose_tiled", 40, 50, "float32", grid=(2, 2, 1), block=(32, 8, 1))
    wide = replace(claim, params=(*claim.params[:3], Scalar("N", 32, 50, 99)))
    kinds = {type(o.verdict) for o in check_executed(sample("b_transpose_tiled.nvrtc135.sm_80.ptx"), wide)}
    assert Unknown in kinds or Refuted in kinds


# --- wrong kernels, by hand -----------------------------------------------------------------------------------------


def copy_claim(count: int = 32, align: int = 16, *, grid: int = 1) -> Claim:
    side = Side(f"S[{count}:1]", (count,), f"0:{count}")
    buffers = tuple(Buffer(n, r, "uint32", 0, count, align) for n, r in (("a", "input"), ("b", "output")))
    return Claim("k", "uint32", (grid, 1, 1), (32, 1, 1), 0, buffers, (Move("a", side, "b", side),), "untouched")


LARGE = copy_claim(32 * 4096, grid=4096)  # too many threads to follow one by one
CARRIED = replace(LARGE, frame="carried")  # not one whole tensor that leaves the rest alone: left to the solver
STORE = "st.global.u32 [%rd5], %r6;"
COPY = "ld.global.u32 %r6, [%rd4];" + STORE
WRONG = {
    "an address computed from data": (
        "ld.global.u32 %r6, [%rd4]; and.b32 %r7, %r6, 0; mul.wide.u32 %rd6, %r7, 4; add.s64 %rd7, %rd5, %rd6;"
        "st.global.u32 [%rd7], %r6;",
        True,
    ),
    "a data-dependent store": (
        "ld.global.u32 %r6, [%rd4]; setp.ne.u32 %p1, %r6, 305419896; @%p1 st.global.u32 [%rd5], %r6;", False,
    ),
    "computed data": ("ld.global.u32 %r6, [%rd4]; add.s32 %r6, %r6, 0; mul.lo.s32 %r6, %r6, 1;" + STORE, True),
    "changed data": ("ld.global.u32 %r6, [%rd4]; popc.b32 %r7, %r6; and.b32 %r7, %r7, 32; shr.u32 %r7, %r7, 5;"
                     "add.s32 %r6, %r6, %r7;" + STORE, False),
    "an address from both bases": (
        "sub.s64 %rd6, %rd5, %rd4; add.s64 %rd7, %rd4, %rd6; ld.global.u32 %r6, [%rd4]; xor.b64 %rd8, %rd7, %rd4;"
        "xor.b64 %rd8, %rd8, %rd4; st.global.u32 [%rd8], %r6;",
        True,
    ),
    "a condition on an address": (
        "ld.global.u32 %r6, [%rd4]; setp.ne.u64 %p1, %rd1, 4096; @%p1 st.global.u32 [%rd5], %r6;", False,
    ),
}  # fmt: skip


def test_a_plain_copy_is_proved():
    assert verdicts(check_executed(parse(module(COPY)), copy_claim())) == ["Proved"] * 4
    assert verdicts(check_symbolically(parse(module(COPY)), copy_claim())) == ["Proved"] * 4
    grid = copy_claim(96, grid=3)
    assert verdicts(check_symbolically(parse(module(COPY)), grid)) == ["Proved"] * 4


@pytest.mark.parametrize(("body", "harmless"), WRONG.values(), ids=WRONG.keys())
def test_what_execution_cannot_see_for_all_data_and_bases_the_solver_does(body, harmless):
    """Each kernel copies correctly for the tagged data; a hidden dependence, or harmless arithmetic, must not pass."""
    parsed = parse(module(body))
    assert verdicts(check_executed(parsed, copy_claim())) == ["Proved"] * 4
    obligations = check_symbolically(parsed, copy_claim())
    if harmless and all(obligation.verdict.ok for obligation in obligations):
        return  # the simplifier saw through the arithmetic
    assert isinstance(obligations[0].verdict, Refuted)
    assert "reason" in obligations[0].verdict.counterexample


def test_a_missing_guard_is_refuted_by_both_with_a_thread():
    claim = copy_claim(30)
    executed = the_refuted(check_executed(parse(module(COPY)), claim)).counterexample
    assert (executed["finding"], executed["thread"]) == ("out-of-bounds", (30, 0, 0))
    symbolic = the_refuted(check_symbolically(parse(module(COPY)), claim)).counterexample
    assert symbolic["tid.x"] >= 30


def test_alignment_beyond_the_promise_is_refuted_by_both():
    body = "shl.b32 %r6, %r1, 3; cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd1, %rd6; add.s64 %rd8, %rd2, %rd6;"
    body += "ld.global.v2.u32 {%r7, %r8}, [%rd7]; st.global.v2.u32 [%rd8], {%r7, %r8};"
    for align, expected in ((8, True), (4, False)):
        claim = copy_claim(64, align)
        for check in (check_executed, check_symbolically):
            obligations = check(parse(module(body)), claim)
            assert all(o.verdict.ok for o in obligations) is expected


def test_races_are_refuted_by_both_with_two_threads():
    body = ".shared .b32 s[64]; mov.b32 %r20, s; add.s32 %r21, %r20, %r5; ld.global.u32 %r6, [%rd4];\n"
    body += "st.shared.u32 [%r21], %r6; ld.shared.u32 %r7, [%r21+4];\nst.global.u32 [%rd5], %r6;"
    executed = the_refuted(check_executed(parse(module(body)), copy_claim())).counterexample
    assert executed["finding"] in ("race", "uninitialised-memory")
    enumerated = the_refuted(check_symbolically(parse(module(body)), copy_claim())).counterexample
    assert "by thread 1 of block 0" in enumerated["first"]
    assert "by thread 0 of block 0" in enumerated["second"]
    by_class = the_refuted(check_symbolically(parse(module(body)), LARGE)).counterexample
    assert {by_class["first"][-11:], by_class["second"][-11:]} == {"by thread 0", "by thread 1"}
    solved = the_refuted(check_symbolically(parse(module(body)), CARRIED)).counterexample
    assert solved["tid.x"] != solved["other.tid.x"]
    assert "line" in solved["first"]


def test_two_blocks_that_write_one_place_are_refuted_by_enumeration_and_by_the_solver():
    body = "mul.wide.u32 %rd6, %r1, 4; add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r6, [%rd4]; st.global.u32 [%rd7], %r6;"
    enumerated = the_refuted(check_symbolically(parse(module(body)), copy_claim(64, grid=2))).counterexample
    assert (enumerated["where"], "of block 1" in enumerated["second"]) == ("b, byte 0", True)
    by_class = the_refuted(check_symbolically(parse(module(body)), LARGE)).counterexample
    assert by_class["written by"].startswith("block (1, 0, 0), thread (0, 0, 0)")
    solved = the_refuted(check_symbolically(parse(module(body)), CARRIED)).counterexample
    assert solved["ctaid.x"] != solved["other.ctaid.x"]
    assert verdicts(check_symbolically(parse(module(COPY)), LARGE)) == ["Proved"] * 4
    assert verdicts(check_symbolically(parse(module(COPY)), CARRIED)) == ["Proved"] * 3


def test_a_table_lookup_is_followed():
    before = ".global .align 1 .b8 t[32] = {" + ", ".join(str(i ^ 5) for i in range(32)) + "};"
    body = "mov.u64 %rd6, t; cvt.u64.u32 %rd7, %r1; add.s64 %rd8, %rd6, %rd7; ld.global.nc.u8 %rs1, [%rd8];"
    body += "cvt.u32.u16 %r6, %rs1; mul.wide.u32 %rd9, %r6, 4; add.s64 %rd10, %rd1, %rd9; add.s64 %rd11, %rd2, %rd9;"
    body += "ld.global.u32 %r7, [%rd10]; st.global.u32 [%rd11], %r7;"
    parsed = parse(module(body, before=before))
    assert verdicts(check_executed(parsed, copy_claim())) == ["Proved"] * 4
    assert verdicts(check_symbolically(parsed, copy_claim())) == ["Proved"] * 4
    wrong = parse(module(body, before=before.replace("= {5, 4", "= {5, 5")))
    assert isinstance(the_refuted(check_symbolically(wrong, copy_claim())), Refuted)


# --- parts ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 70_000))
@settings(max_examples=20, deadline=None)
def test_planes_tell_every_byte_from_every_other(size):
    made = planes(size)
    columns = np.ascontiguousarray(np.stack(made, axis=1))
    assert len(np.unique(columns.view([("", columns.dtype)] * len(made)))) == size
    assert decode(made, size - 1) == size - 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 7)), min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_moved_bytes_are_read_off_terms_as_evaluation_shows(moves, data):
    """Random shifts, masks and joins of two values: every byte that is named must evaluate to that byte."""
    x, y = z3.BitVecs("x y", 32)
    term = z3.ZeroExt(32, x) | z3.ZeroExt(32, y) << 32
    for kind, amount in moves:
        match kind:
            case "a":
                term = term << 8 * amount
            case "b":
                term = z3.LShR(term, 8 * amount)
            case "c":
                term = term & (0xFF << 8 * amount)
            case _:
                term = z3.If(z3.Bool("c"), term, z3.RotateLeft(term, 8 * amount))
    values = {"x": data.draw(st.integers(0, 2**32 - 1)), "y": data.draw(st.integers(0, 2**32 - 1))}
    chosen = data.draw(st.booleans())
    pairs = [(x, z3.BitVecVal(values["x"], 32)), (y, z3.BitVecVal(values["y"], 32))]
    pairs.append((z3.Bool("c"), z3.BoolVal(chosen)))
    concrete = z3.simplify(z3.substitute(term, *pairs)).as_long()
    for simplified in (term, z3.simplify(term)):
        for index, byte in enumerate(bytes_of(simplified)):
            while isinstance(byte, Choice):
                byte = byte.yes if chosen else byte.no
            if byte is None:
                continue
            got = values[byte.name] >> 8 * byte.index & 0xFF if isinstance(byte, Byte) else byte
            assert got == concrete >> 8 * index & 0xFF


def test_computed_bytes_are_not_taken_for_moved_ones():
    x, y = z3.BitVecs("x y", 32)
    for term in (
        x + y,
        x ^ y,
        x | y,
        x & y,
        x << 3,
        z3.LShR(x, 4),
        x * 2,
        ~x,
        x & 0x0F0F0F0F,
        z3.SignExt(16, z3.Extract(15, 0, x)),
    ):
        assert None in bytes_of(term)
    row, conditions = bytes_and_conditions(z3.LShR(x, y))
    assert len(conditions) == 1
    assert isinstance(row[0], Choice)


def test_every_verdict_says_what_it_covers():
    for obligation in (*check_executed(sample(A[0]), CLAIM_A), *check_symbolically(sample(A[0]), CLAIM_A)):
        assert isinstance(obligation.verdict, Proved)
        assert obligation.name
        assert obligation.verdict.scope


ROUND_TRIP = """
.shared .align 4 .b32 slot; mov.b32 %r7, slot; shr.u32 %r11, %r1, 5; setp.eq.u32 %p1, %r11, 0;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 32;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; ld.shared.b32 %r8, [slot];
shl.b32 %r12, %r11, 21; add.s32 %r9, %r8, %r12; ld.global.u32 %r6, [%rd4];
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9+3], {%r6}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r13}, [%r9+3]; tcgen05.wait::ld.sync.aligned; st.global.u32 [%rd5], %r13;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
"""


def test_a_round_trip_through_tensor_memory_is_proved_and_its_mutants_refuted():
    claim = replace(copy_claim(128), block=(128, 1, 1))
    sound = parse(module(ROUND_TRIP))
    assert verdicts(check_executed(sound, claim)) == ["Proved"] * 4
    assert verdicts(check_symbolically(sound, claim)) == ["Proved"] * 4
    for wrong in (
        ROUND_TRIP.replace("{%r13}, [%r9+3]", "{%r13}, [%r9+4]"),
        ROUND_TRIP.replace("shl.b32 %r12, %r11, 21", "shl.b32 %r12, %r11, 20"),
        ROUND_TRIP.replace("[%rd5], %r13", "[%rd5], %r9"),
        ROUND_TRIP.replace("bar.sync 0;", "", 1),
    ):
        obligations = (*check_executed(parse(module(wrong)), claim), *check_symbolically(parse(module(wrong)), claim))
        assert isinstance(the_refuted(obligations), Refuted)
    loads_other = parse(module(ROUND_TRIP.replace("{%r13}, [%r9+3]", "{%r13}, [%r9+4]")))
    assert isinstance(the_refuted(check_symbolically(loads_other, claim)), Refuted)


def test_half_words_in_tensor_memory_are_followed():
    packed = ROUND_TRIP.replace("32x32b.x1.b32 [", "32x32b.x1.unpack::16b.b32 [")
    packed = packed.replace("32x32b.x1.b32 {", "32x32b.x1.pack::16b.b32 {")
    claim = replace(copy_claim(128), block=(128, 1, 1))
    assert verdicts(check_symbolically(parse(module(packed)), claim)) == ["Proved"] * 4
    assert verdicts(check_executed(parse(module(packed)), claim)) == ["Proved"] * 4
    mixed = packed.replace("pack::16b.b32 {", "b32 {").replace(".un.b32 [", ".b32 [")
    assert isinstance(the_refuted(check_symbolically(parse(module(mixed)), claim)), Refuted)


def test_two_inputs_are_told_apart():
    side = Side("S[32:1]", (32,), "0:32")
    buffers = tuple(Buffer(n, r, "uint32", 0, 32, 16) for n, r in (("a", "input"), ("c", "input"), ("b", "output")))
    claim = Claim("k", "uint32", (1, 1, 1), (32, 1, 1), 0, buffers, (Move("c", side, "b", side),), "untouched")
    text = module(STORE).replace(".param .u64 b", ".param .u64 c, .param .u64 b")
    for pointer, sound in (("c", True), ("a", False)):
        load = f"ld.param.u64 %rd20, [{pointer}]; add.s64 %rd21, %rd20, %rd3; ld.global.u32 %r6, [%rd21];"
        parsed = parse(text.replace(STORE, load + STORE))
        executed = check_executed(parsed, claim)
        assert all(obligation.verdict.ok for obligation in executed) is sound
        assert all(obligation.verdict.ok for obligation in check_symbolically(parsed, claim)) is sound
        if not sound:
            assert the_refuted(executed).counterexample["found"] == "a[0], byte 0"
