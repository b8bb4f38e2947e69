"""Asynchronous copies and shuffles in the symbolic check: right kernels are proved, their wrong neighbours refused."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import launch, module
from ptx_samples import texts

from layoutalg.claim import Buffer, Claim, Move, Scalar, Side
from verify.kernel import check_kernel
from verify.ptx.parse import parse
from verify.ptx.symbolic import check_symbolically
from verify.ptx.symwarp import partners
from verify.verdict import Refuted, Unknown

SHARED = ".shared .align 16 .b8 s[256]; mov.b32 %r20, s; add.s32 %r21, %r20, %r5; xor.b32 %r22, %r5, 4;\n"
SHARED += "add.s32 %r23, %r20, %r22;\n"
COPY = "cp.async.ca.shared.global [%r21], [%rd4], 4;\n"
NEIGHBOUR = "ld.shared.u32 %r6, [%r23]; st.global.u32 [%rd5], %r6;"
LOAD, STORE = "ld.global.u32 %r6, [%rd4];\n", "st.global.u32 [%rd5], %r7;"


def neighbours() -> Claim:
    """Words exchanged in pairs: word t of the output is word t ^ 1 of the input."""
    shape = (16, 2)
    source = Side("S[(16,2):(2,-1)] + 1", shape, "0:16,0:2")
    buffers = tuple(Buffer(name, role, "uint32", 0, 32, 16) for name, role in (("a", "input"), ("b", "output")))
    move = Move("a", source, "b", Side("S[(16,2):(2,1)]", shape, "0:16,0:2"))
    return Claim("k", "uint32", (1, 1, 1), (32, 1, 1), 0, buffers, (move,), "untouched")


RIGHT = {
    "a copy, waited for": SHARED + COPY + "cp.async.wait_all; bar.sync 0;\n" + NEIGHBOUR,
    "a copy in a group": SHARED + COPY + "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;\n" + NEIGHBOUR,
    "an older group": SHARED
    + COPY
    + "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;\n"
    + NEIGHBOUR,
    "a copy and a barrier of the warp": SHARED + COPY + "cp.async.wait_all; bar.warp.sync -1;\n" + NEIGHBOUR,
    "a butterfly": LOAD + "shfl.sync.bfly.b32 %r7, %r6, 1, 31, -1;\n" + STORE,
    "a butterfly of parts of a warp": LOAD + "shfl.sync.bfly.b32 %r7|%p1, %r6, 1, 0x1c1f, -1;\n" + STORE,
    "two butterflies": LOAD
    + "shfl.sync.bfly.b32 %r7, %r6, 3, 31, -1; shfl.sync.bfly.b32 %r7, %r7, 2, 31, -1;\n"
    + STORE,
    "up and down": LOAD + "shfl.sync.up.b32 %r8, %r6, 1, 0, -1; shfl.sync.down.b32 %r9, %r6, 1, 31, -1;\n"
    "and.b32 %r10, %r1, 1; setp.eq.u32 %p2, %r10, 1; selp.b32 %r7, %r8, %r9, %p2;\n" + STORE,
}
WRONG = {
    "nobody waits": SHARED + COPY + "bar.sync 0;\n" + NEIGHBOUR,
    "the newest group is still under way": SHARED + COPY + "cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;\n"
    + NEIGHBOUR,
    "no barrier": SHARED + COPY + "cp.async.wait_all;\n" + NEIGHBOUR,
    "the wait comes after the barrier": SHARED + COPY + "bar.sync 0; cp.async.wait_all;\n" + NEIGHBOUR,
    "the thread reads its own word too early": SHARED + COPY + "ld.shared.u32 %r6, [%r21]; st.global.u32 [%rd5], %r6;",
    "another lane": LOAD + "shfl.sync.bfly.b32 %r7, %r6, 2, 31, -1;\n" + STORE,
    "a clamp that cuts pairs apart": LOAD + "shfl.sync.bfly.b32 %r7, %r6, 1, 0x1f1f, -1;\n" + STORE,
    "the same lane": LOAD + "shfl.sync.idx.b32 %r7, %r6, 1, 31, -1;\n" + STORE,
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_executed_and_proved(name):
    obligations = check_kernel(module(RIGHT[name]), neighbours())
    assert all(o.verdict.ok for o in obligations), [(o.name, str(o.verdict)) for o in obligations if not o.verdict.ok]
    assert any(o.name.startswith("every output byte") for o in obligations)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_refused_by_proof_and_by_execution(name):
    text = module(WRONG[name])
    proved = check_symbolically(parse(text), neighbours())
    assert any(isinstance(o.verdict, Refuted) for o in proved), [str(o.verdict) for o in proved]
    assert not all(o.verdict.ok for o in check_kernel(text, neighbours(), symbolic=False))


@pytest.mark.parametrize(
    "body",
    [
        LOAD + "and.b32 %r8, %r1, 1; shfl.sync.bfly.b32 %r7, %r6, %r8, 31, -1;\n" + STORE,
        LOAD + "shfl.sync.bfly.b32 %r7, %r6, 1, 31, 0xffff;\n" + STORE,
        LOAD + "shfl.sync.bfly.b32 %r8, %r1, 1, 31, -1; mov.u32 %r7, %r6;\n" + STORE,
        LOAD + "setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r7, %r6, 1, 31, -1;\n" + STORE,
    ],
    ids=["a pattern that is no constant", "part of a warp", "something computed", "some lanes"],
)
def test_other_shuffles_are_named_as_unknown(body):
    (found,) = check_symbolically(parse(module(body), file="k.ptx"), neighbours())
    assert isinstance(found.verdict, Unknown)
    assert "shfl.sync.bfly.b32" in found.verdict.reason


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("clamp", [31, 0, 0x1C1F, 0x1800, 0x0F0F])
def test_who_reads_whom_is_what_the_interpreter_does(mode, clamp):
    for amount in (0, 1, 5, 16, 31):
        shuffle = f"shfl.sync.{mode}.b32 %r6|%p1, %r1, {amount}, {clamp}, -1;\n"
        body = shuffle + "selp.u32 %r7, 100, 0, %p1; add.s32 %r6, %r6, %r7; st.global.u32 [%rd5], %r6;"
        found = launch(body, a=np.zeros(32, dtype=np.uint32)).buffers[1]
        wanted = [lane + 100 * valid for lane, valid in partners(mode, amount, clamp)]
        assert found.tolist() == wanted


def test_a_compiled_transpose_by_asynchronous_copies_is_proved():
    shape = (32, 32)
    source = Side("S[(32,32):(32,1)]", shape, "0:32,0:32")
    buffers = tuple(Buffer(name, role, "float32", 0, 1024, 16) for name, role in (("A", "input"), ("B", "output")))
    move = Move("A", source, "B", Side("S[(32,32):(1,32)]", shape, "0:32,0:32"))
    params = (*buffers, Scalar("n", 32, 0, 0))
    claim = Claim("cp_async_transpose", "float32", (1, 1, 1), (128, 1, 1), 0, params, (move,), "untouched")
    text = texts()["d_async_misc.nvrtc135.sm_80.ptx"]
    assert all(o.verdict.ok for o in check_symbolically(parse(text), claim))
    early = text.replace("cp.async.wait_group 0;", "cp.async.wait_group 1;")
    assert early != text
    assert any(isinstance(o.verdict, Refuted) for o in check_symbolically(parse(early), claim))
