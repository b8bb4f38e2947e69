"""Every defect is found, with a witness, and the sound neighbour of each defective kernel passes."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import launch

from verify.ptx.concrete import Buffer
from verify.ptx.errors import PtxError

SHARED = ".shared .align 16 .b8 s[256]; mov.b32 %r20, s; add.s32 %r21, %r20, %r5; xor.b32 %r22, %r5, 4;\n"
SHARED += "add.s32 %r23, %r20, %r22;\n"
OUT = "st.global.u32 [%rd5], %r6;"
COPY = "cp.async.ca.shared.global [%r21], [%rd4], 4;\n"

# name: (defective body, kind of finding, sound body, launch options)
PAIRS = {
    "a read past the buffer": (
        f"ld.global.u32 %r6, [%rd4+4];\n{OUT}", "out-of-bounds", f"ld.global.u32 %r6, [%rd4];\n{OUT}", {},
    ),
    "a read before the buffer": (
        f"ld.global.u32 %r6, [%rd4+-4];\n{OUT}", "out-of-bounds", f"ld.global.u32 %r6, [%rd4+0];\n{OUT}", {},
    ),
    "a write past shared memory": (
        SHARED + f"st.shared.u32 [%r21+132], %r1;\nmov.u32 %r6, 0;{OUT}", "out-of-bounds",
        SHARED + f"st.shared.u32 [%r21+128], %r1;\nmov.u32 %r6, 0;{OUT}", {},
    ),
    "a misaligned vector": (
        ".shared .align 16 .b8 s[1024]; mov.b32 %r20, s; shl.b32 %r7, %r1, 4; add.s32 %r21, %r20, %r7;\n"
        "st.shared.v4.u32 [%r21+8], {%r1, %r1, %r1, %r1};", "misaligned",
        ".shared .align 16 .b8 s[1024]; mov.b32 %r20, s; shl.b32 %r7, %r1, 4; add.s32 %r21, %r20, %r7;\n"
        "st.shared.v4.u32 [%r21+16], {%r1, %r1, %r1, %r1};", {},
    ),
    "a vector in memory that is aligned to its elements only": (
        ".shared .align 4 .b8 s[1024]; mov.b32 %r20, s; shl.b32 %r7, %r1, 4; add.s32 %r21, %r20, %r7;\n"
        "st.shared.v4.u32 [%r21], {%r1, %r1, %r1, %r1};", "misaligned",
        ".shared .align 16 .b8 s[1024]; mov.b32 %r20, s; shl.b32 %r7, %r1, 4; add.s32 %r21, %r20, %r7;\n"
        "st.shared.v4.u32 [%r21], {%r1, %r1, %r1, %r1};", {},
    ),
    "shared memory read before it is written": (
        SHARED + f"ld.shared.u32 %r6, [%r21];\n{OUT}", "uninitialised-memory",
        SHARED + f"st.shared.u32 [%r21], %r1; ld.shared.u32 %r6, [%r21];\n{OUT}", {},
    ),
    "a register read before it is written": (
        f"setp.lt.u32 %p1, %r1, 31; @%p1 mov.u32 %r6, 1;\n{OUT}", "uninitialised-register",
        f"setp.lt.u32 %p1, %r1, 32; @%p1 mov.u32 %r6, 1;\n{OUT}", {},
    ),
    "an output read before it is written": (
        f"ld.global.u32 %r6, [%rd5];\n{OUT}", "uninitialised-memory",
        f"st.global.u32 [%rd5], %r1; ld.global.u32 %r6, [%rd5];\n{OUT}", {},
    ),
    "an exchange without a barrier": (
        SHARED + f"st.shared.u32 [%r21], %r1;\nld.shared.u32 %r6, [%r23];\n{OUT}", "race",
        SHARED + f"st.shared.u32 [%r21], %r1;\nbar.warp.sync -1; ld.shared.u32 %r6, [%r23];\n{OUT}", {},
    ),
    "a warp barrier where a block barrier is needed": (
        SHARED + f"st.shared.u32 [%r21], %r1; bar.warp.sync -1; xor.b32 %r24, %r21, 128;\n"
        f"sub.s32 %r24, %r24, %r20; and.b32 %r24, %r24, 255; add.s32 %r24, %r24, %r20; xor.b32 %r25, %r5, 128;\n"
        f"add.s32 %r25, %r25, %r20; ld.shared.u32 %r6, [%r25];\n{OUT}", "race",
        SHARED + f"st.shared.u32 [%r21], %r1; bar.sync 0; xor.b32 %r25, %r5, 128;\n"
        f"add.s32 %r25, %r25, %r20; ld.shared.u32 %r6, [%r25];\n{OUT}", dict(block=64),
    ),
    "a write over what others still read": (
        SHARED + f"st.shared.u32 [%r21], %r1; bar.sync 0; ld.shared.u32 %r6, [%r23];\nst.shared.u32 [%r21], %r6;{OUT}",
        "race",
        SHARED + f"st.shared.u32 [%r21], %r1; bar.sync 0; ld.shared.u32 %r6, [%r23];\n"
        f"bar.sync 0; st.shared.u32 [%r21], %r6;{OUT}", {},
    ),
    "two threads that write one word, even the same value": (
        SHARED + f"and.b32 %r7, %r5, 120; add.s32 %r8, %r20, %r7; mov.u32 %r6, 1;\nst.shared.u32 [%r8], %r6;{OUT}",
        "race",
        SHARED + f"and.b32 %r7, %r5, 124; add.s32 %r8, %r20, %r7; mov.u32 %r6, 1;\nst.shared.u32 [%r8], %r6;{OUT}", {},
    ),
    "two blocks that write one word": (
        "mul.wide.u32 %rd6, %r1, 4; add.s64 %rd7, %rd2, %rd6; st.global.u32 [%rd7], %r1;", "race",
        "st.global.u32 [%rd5], %r1;", dict(grid=2),
    ),
    "a write to the input": ("st.global.u32 [%rd4], %r1;", "read-only", "st.global.u32 [%rd5], %r1;", {}),
    "a non-coherent read of the output": (
        f"st.global.u32 [%rd5], %r1; ld.global.nc.u32 %r6, [%rd5];\n{OUT}", "read-only",
        f"st.global.u32 [%rd5], %r1; ld.global.nc.u32 %r6, [%rd4];\n{OUT}", {},
    ),
    "half a warp at the block barrier": (
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 16; @%p1 bar.sync 0;\n{OUT}", "divergent-barrier",
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0;\n{OUT}", {},
    ),
    "a thread that ends before the barrier": (
        f"mov.u32 %r6, 0; setp.eq.u32 %p1, %r1, 7; @%p1 ret; bar.sync 0;\n{OUT}", "divergent-barrier",
        f"mov.u32 %r6, 0; setp.eq.u32 %p1, %r1, 7; bar.sync 0; @%p1 ret;\n{OUT}", {},
    ),
    "half a warp at the warp barrier": (
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 16; @%p1 bar.warp.sync -1;\n{OUT}", "divergent-warp",
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 16; bar.warp.sync -1;\n{OUT}", {},
    ),
    "a member mask without the thread itself": (
        f"mov.u32 %r6, 0; bar.warp.sync 0x7fffffff;\n{OUT}", "divergent-warp",
        f"mov.u32 %r6, 0; bar.warp.sync 0xffffffff;\n{OUT}", {},
    ),
    "a branch that is not uniform as promised": (
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 16; @%p1 bra.uni E; mov.u32 %r6, 1;\nE: {OUT}", "divergent-warp",
        f"mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 16; @%p1 bra E; mov.u32 %r6, 1;\nE: {OUT}", {},
    ),
    "a division by zero": (
        f"div.u32 %r6, 32, %r1;\n{OUT}", "undefined-result", f"add.s32 %r7, %r1, 1; div.u32 %r6, 32, %r7;\n{OUT}", {},
    ),
    "a loop that does not end": (
        "L: setp.lt.u32 %p1, %r1, 40;\n@%p1 bra L;", "step-limit",
        "L: setp.gt.u32 %p1, %r1, 40;\n@%p1 bra L;", dict(max_steps=1000),
    ),
    "a trap": ("setp.eq.u32 %p1, %r1, 3; @%p1 trap;", "trap", "setp.eq.u32 %p1, %r1, 33; @%p1 trap;", {}),
    "a copy that nobody waited for": (
        SHARED + COPY + f"cp.async.commit_group; ld.shared.u32 %r6, [%r21];\n{OUT}", "pending",
        SHARED + COPY + f"cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r6, [%r21];\n{OUT}", {},
    ),
    "a wait that leaves the newest group under way": (
        SHARED + COPY + f"cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r6, [%r21];\n{OUT}", "pending",
        SHARED + COPY + "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;\n"
        f"ld.shared.u32 %r6, [%r21]; {OUT}", {},
    ),
    "a copy that another thread uses without a barrier": (
        SHARED + COPY + f"cp.async.wait_all; ld.shared.u32 %r6, [%r23];\n{OUT}", "race",
        SHARED + COPY + f"cp.async.wait_all; bar.sync 0; ld.shared.u32 %r6, [%r23];\n{OUT}", {},
    ),
    "an mbarrier that nobody initialised": (
        ".shared .align 8 .b64 m; mov.b32 %r8, m; mbarrier.arrive.shared::cta.b64 %rd9, [%r8];",
        "uninitialised-memory",
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0; mbarrier.arrive.shared::cta.b64 %rd9, [%r8];", {},
    ),
    "an mbarrier used before others see its initialisation": (
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; mbarrier.arrive.shared::cta.b64 %rd9, [%r8];", "race",
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.warp.sync -1; mbarrier.arrive.shared::cta.b64 %rd9, [%r8];",
        {},
    ),
    "a wait for a phase to which not all arrive": (
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0; @%p1 bra W;\n"
        "mbarrier.arrive.shared::cta.b64 %rd9, [%r8];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0; @!%p2 bra W;", "deadlock",
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0;\n"
        "mbarrier.arrive.shared::cta.b64 %rd9, [%r8];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0; @!%p2 bra W;", {},
    ),
    "barrier memory used as data": (
        ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0; @%p1 st.shared.u32 [%r8], %r1;", "pending",
        ".shared .align 8 .b64 m; .shared .b32 n; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0; @%p1 st.shared.u32 [n], %r1;", {},
    ),
    "a read of local memory that was never written": (
        ".local .b32 d[4]; ld.local.u32 %r6, [d+8];\n" + OUT, "uninitialised-memory",
        ".local .b32 d[4]; st.local.u32 [d+8], %r1; ld.local.u32 %r6, [d+8];\n" + OUT, {},
    ),
    "a pointer into nowhere": (
        "mov.u64 %rd9, 1024; ld.u32 %r6, [%rd9];\n" + OUT, "out-of-bounds", "ld.u32 %r6, [%rd4];\n" + OUT, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "sound", "options"), PAIRS.values(), ids=PAIRS.keys())
def test_a_defect_is_found_and_its_sound_neighbour_passes(body, kind, sound, options):
    (finding,) = launch(body, **options).findings
    assert finding.kind == kind, finding
    assert finding.line >= 5
    assert finding.thread is not None
    assert launch(sound, **options).findings == ()


def test_a_witness_names_thread_block_address_and_source_line():
    body = ".loc 1 42 3\nsetp.eq.u32 %p1, %r4, 70; @%p1 ld.global.u32 %r6, [%rd4+4096];"
    text_after = '.file 1 "mine.cu"'
    result = launch(body, grid=3, before=text_after)
    (finding,) = result.findings
    assert (finding.block, finding.thread, finding.source) == ((2, 0, 0), (6, 0, 0), ("mine.cu", 42))
    assert finding.address == (1 << 36) + 70 * 4 + 4096
    assert "byte 4376 of buffer 0, which has 384" in finding.message
    assert "mine.cu:42" in str(finding)


def test_a_race_names_both_parties():
    (finding,) = launch(*PAIRS["an exchange without a barrier"][:1]).findings
    assert finding.thread == (0, 0, 0)
    assert finding.other == "block (0, 0, 0), thread (1, 0, 0)"


def test_a_lost_barrier_names_who_is_missing():
    (finding,) = launch(PAIRS["a thread that ends before the barrier"][0]).findings
    assert finding.other == "thread (7, 0, 0) has ended"


UNSUPPORTED = {
    "a barrier other than 0": "bar.sync 1;",
    "an mbarrier for some threads": ".shared .align 8 .b64 m; mov.b32 %r8, m; mbarrier.init.shared.b64 [%r8], 16;",
    "an access between arrival and wait": (
        SHARED + ".shared .align 8 .b64 m; mov.b32 %r8, m; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32; bar.sync 0;"
        "mbarrier.arrive.shared::cta.b64 %rd9, [%r8]; st.shared.u32 [%r21], %r1;"
    ),
    "a copy from memory that may change": SHARED + "cp.async.ca.shared.global [%r21], [%rd5], 4;",
    "a copy of an odd size": SHARED + "cp.async.ca.shared.global [%r21], [%rd4], 2;",
}


@pytest.mark.parametrize("body", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_what_the_model_does_not_cover_is_an_error_and_no_result(body):
    with pytest.raises(PtxError) as caught:
        launch(body)
    assert caught.value.line >= 5


def test_pointers_are_held_to_the_alignment_that_the_caller_promises():
    body = "shl.b32 %r6, %r1, 4; cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd1, %rd6;\n"
    body += "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd7]; st.global.u32 [%rd5], %r13;"
    data = np.arange(128, dtype=np.uint32)
    good = launch(body, a=Buffer(data, base=0x10000), b=np.zeros(32, dtype=np.uint32))
    assert good.buffers[1].tolist() == data[3::4].tolist()
    (finding,) = launch(body, a=Buffer(data, base=0x10004), b=np.zeros(32, dtype=np.uint32)).findings
    assert finding.kind == "misaligned"


def test_elements_at_a_base_of_smaller_alignment_are_read_and_written_whole():
    body = "mul.wide.u32 %rd6, %r1, 8; add.s64 %rd7, %rd1, %rd6; add.s64 %rd8, %rd2, %rd6;\n"
    body += "ld.global.u64 %rd9, [%rd7+4]; st.global.u64 [%rd8+4], %rd9;"
    data = np.arange(66, dtype=np.uint32)
    result = launch(body, a=Buffer(data, base=0x10004), b=Buffer(np.zeros_like(data), "w", base=0x20004))
    assert result.findings == ()
    assert result.buffers[1][1:65].tolist() == data[1:65].tolist()
    assert result.written[1].reshape(-1, 4).all(axis=1).tolist() == [False, *[True] * 64, False]


def test_mode_rw_keeps_what_the_kernel_does_not_write():
    body = "setp.lt.u32 %p1, %r1, 5; @%p1 st.global.u32 [%rd5], %r1;"
    result = launch(body, b=Buffer(np.full(32, 9, dtype=np.uint32), "rw"))
    assert result.buffers[1].tolist() == [0, 1, 2, 3, 4, *[9] * 27]
    assert result.written[1].sum() == 20
