"""Tensor memory: values by shape, the slab rule, waits, barriers, halves, allocation, and who may do what."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import launch
from ptx_samples import ptx_names, texts

from verify.ptx.concrete import Buffer, run
from verify.ptx.ops_tmem import REPEATS, WORDS
from verify.ptx.parse import parse
from verify.ptx.tmem import footprint

ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
WAIT_LD, WAIT_ST = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
LD, ST = "tcgen05.ld.sync.aligned", "tcgen05.st.sync.aligned"


def vector(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def one_warp(body: str, *, columns: int = 64, free: bool = True) -> str:
    """A kernel of one warp: %r8 is the address of the allocation."""
    text = f".shared .b32 slot; mov.b32 %r7, slot;\n{ALLOC} [%r7], {columns};\nbar.warp.sync -1;\n"
    text += f"ld.volatile.shared.b32 %r8, [slot];\n{body}\n"
    return text + (f"{DEALLOC} %r8, {columns};" if free else "")


def four_warps(body: str, *, fences: bool = True) -> str:
    """A kernel of several warps: warp 0 allocates 64 columns, %r9 is this warp's absolute address."""
    before, after = (BEFORE, AFTER) if fences else ("", "")
    text = f""".shared .b32 slot; mov.b32 %r7, slot; shr.u32 %r11, %r1, 5; setp.eq.u32 %p1, %r11, 0;
    @%p1 {ALLOC} [%r7], 64;
    {before} bar.sync 0; {after} ld.shared.b32 %r8, [slot]; and.b32 %r12, %r11, 3; shl.b32 %r12, %r12, 21;
    add.s32 %r9, %r8, %r12;
    {body}
    {before} bar.sync 0; {after} @%p1 {DEALLOC} %r8, 64;"""
    return text


def kinds(body: str, **options) -> list[str]:
    return [finding.kind for finding in launch(body, **options).findings]


@pytest.mark.parametrize("name", [name for name in ptx_names() if name.startswith("c_tmem")])
@pytest.mark.parametrize("column", [0, 32])
def test_the_compiled_round_trip_returns_its_input_without_findings_or_warnings(name, column):
    source = np.random.default_rng(1).random((128, 64), dtype=np.float32)
    params = [Buffer(source), Buffer(np.zeros_like(source), "w")]
    result = run(parse(texts()[name]), grid=1, block=128, params=params, tmem_column=column)
    assert np.array_equal(result.buffers[1], source)
    assert result.warnings == ()


@pytest.mark.parametrize("name", [name for name in ptx_names() if name.startswith("c2_tmem")])
def test_the_compiled_tour_of_all_shapes_returns_its_input(name):
    source = np.random.default_rng(1).integers(0, 1 << 32, (32, 4)).astype(np.uint32)
    params = [Buffer(source), Buffer(np.zeros_like(source), "w")]
    assert np.array_equal(run(parse(texts()[name]), grid=1, block=32, params=params).buffers[1], source)


# (shape, thread, register) -> (row, column), read off the figures of the ISA
FIGURES = {
    ("32x32b", 17, 3): (17, 3),
    ("16x64b", 0, 0): (0, 0),
    ("16x64b", 1, 0): (8, 0),
    ("16x64b", 2, 1): (0, 3),
    ("16x64b", 31, 2): (15, 5),
    ("16x128b", 0, 1): (8, 0),
    ("16x128b", 3, 0): (0, 3),
    ("16x128b", 7, 2): (1, 7),
    ("16x256b", 0, 1): (0, 1),
    ("16x256b", 1, 0): (0, 2),
    ("16x256b", 4, 2): (9, 0),
    ("16x256b", 31, 7): (15, 15),
    ("16x32bx2", 3, 2): (3, 2),
    ("16x32bx2", 19, 2): (3, 2),
}


def test_footprints_agree_with_the_figures():
    for (shape, thread, register), place in FIGURES.items():
        rows, columns = footprint(shape, 8)
        assert (rows[thread, register], columns[thread, register]) == place, shape


@pytest.mark.parametrize("shape", [shape for shape in WORDS if shape != "16x32bx2"])
def test_a_footprint_covers_each_word_of_its_box_once(shape):
    for repeat in REPEATS[shape]:
        rows, columns = footprint(shape, repeat)
        height = 32 if shape == "32x32b" else 16
        cells = set(zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True))
        assert cells == {(row, column) for row in range(height) for column in range(columns.size // height)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", WORDS)
def test_what_one_shape_stores_another_finds_where_the_figure_says(shape, packed):
    """Store words tagged with thread and register, read the raw cells back, and compare cell by cell."""
    repeat = 2
    words = WORDS[shape] * repeat
    width = 2 if packed else 1
    rows, columns = footprint(shape, repeat)
    span = int(columns.max() + 1) * width
    total = 2 * span if shape == "16x32bx2" else span
    unpack, pack = (".unpack::16b", ".pack::16b") if packed else ("", "")
    offset = f", {span}" if shape == "16x32bx2" else ""
    tags = "".join(
        f"mul.lo.s32 %r{20 + i}, %r1, 65537; add.s32 %r{20 + i}, %r{20 + i}, {0x200_0100 * i + 0x0100_0000};"
        for i in range(words)
    )
    body = tags + f"{ST}.{shape}.x{repeat}{unpack}.b32 [%r8]{offset}, {vector(20, words)};\n{WAIT_ST}\n"
    if packed:
        read = f"{LD}.32x32b.x{max(total // 2, 1)}{pack}.b32 {vector(60, total // 2)}, [%r8];\n{WAIT_LD}\n"
    else:
        read = f"{LD}.32x32b.x{total}.b32 {vector(60, total)}, [%r8];\n{WAIT_LD}\n"
    count = total // width
    # The lanes that the shape leaves alone must be defined before they are read.
    clear = f"{ST}.32x32b.x{total}.b32 [%r8], {vector(100, total)};\n{WAIT_ST}\n"
    zero = "".join(f"mov.b32 %r{100 + i}, 0;" for i in range(total))
    store = f"mul.lo.s32 %r6, %r1, {4 * count}; cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd2, %rd6;\n"
    store += "".join(f"st.global.u32 [%rd7+{4 * i}], %r{60 + i};" for i in range(count))
    result = launch(one_warp(zero + clear + body + read + store), b=np.zeros((32, count), dtype=np.uint32))
    assert result.findings == ()
    expected = np.zeros((32, count), dtype=np.uint32)
    for thread in range(32):
        for register in range(words):
            column = int(columns[thread, register])
            if shape == "16x32bx2" and thread >= 16:
                column += span // width
            tag = thread * 65537 + 0x200_0100 * register + 0x0100_0000
            expected[rows[thread, register], column] = tag
    assert np.array_equal(result.buffers[1], expected)


LOAD = f"{LD}.32x32b.x1.b32 {{%r6}}, [%r8];\n"
STORE = f"{ST}.32x32b.x1.b32 [%r8], {{%r1}};\n"
OUT = "st.global.u32 [%rd5], %r6;"

ONE_WARP = {
    "a load of what was never stored": (LOAD + WAIT_LD, "uninitialised-tmem", STORE + WAIT_ST + LOAD + WAIT_LD),
    "a load before the store is complete": (
        STORE + LOAD + WAIT_LD, "tmem-pending", STORE + WAIT_ST + LOAD + WAIT_LD,
    ),
    "the wrong wait": (STORE + WAIT_LD + LOAD + WAIT_LD, "tmem-pending", STORE + WAIT_ST + LOAD + WAIT_LD),
    "a store over what a load still reads": (
        STORE + WAIT_ST + LOAD + STORE + WAIT_LD + WAIT_ST, "tmem-pending",
        STORE + WAIT_ST + LOAD + WAIT_LD + STORE + WAIT_ST,
    ),
    "loaded registers stored before the wait": (
        STORE + WAIT_ST + LOAD + OUT + WAIT_LD, "tmem-pending", STORE + WAIT_ST + LOAD + WAIT_LD + OUT,
    ),
    "values computed from loaded registers stored before the wait": (
        STORE + WAIT_ST + LOAD + "add.s32 %r6, %r6, 1;" + OUT + WAIT_LD, "tmem-pending",
        STORE + WAIT_ST + LOAD + "mov.b32 %r6, 1;" + OUT + WAIT_LD,
    ),
    "a store beyond the allocation": (
        f"add.s32 %r8, %r8, 64;\n{ST}.32x32b.x1.b32 [%r8], {{%r1}};\n{WAIT_ST} sub.s32 %r8, %r8, 64;",
        "tmem-unallocated",
        f"add.s32 %r8, %r8, 63;\n{ST}.32x32b.x1.b32 [%r8], {{%r1}};\n{WAIT_ST} sub.s32 %r8, %r8, 63;",
    ),
    "a vector that runs off the allocation": (
        f"{ST}.32x32b.x2.b32 [%r8+63], {{%r1, %r1}};{WAIT_ST}", "tmem-unallocated",
        f"{ST}.32x32b.x2.b32 [%r8+62], {{%r1, %r1}};{WAIT_ST}",
    ),
    "another warp's slab": (
        f"add.s32 %r10, %r8, 2097152;\n{ST}.32x32b.x1.b32 [%r10], {{%r1}};{WAIT_ST}", "tmem-slab",
        f"add.s32 %r10, %r8, 0;\n{ST}.32x32b.x1.b32 [%r10], {{%r1}};{WAIT_ST}",
    ),
    "a lane that is no multiple of 16": (
        f"add.s32 %r10, %r8, 524288;\n{ST}.16x64b.x1.b32 [%r10], {{%r1}};{WAIT_ST}", "tmem-slab",
        f"add.s32 %r10, %r8, 1048576;\n{ST}.16x64b.x1.b32 [%r10], {{%r1}};{WAIT_ST}",
    ),
    "an address that differs within the warp": (
        f"add.s32 %r10, %r8, %r1;\n{ST}.32x32b.x1.b32 [%r10], {{%r1}};{WAIT_ST}", "tmem-divergent",
        f"add.s32 %r10, %r8, 5;\n{ST}.32x32b.x1.b32 [%r10], {{%r1}};{WAIT_ST}",
    ),
    "half a warp": (
        f"setp.lt.u32 %p2, %r1, 16; @%p2 {ST}.32x32b.x1.b32 [%r8], {{%r1}};{WAIT_ST}", "divergent-warp",
        f"setp.lt.u32 %p2, %r1, 32; @%p2 {ST}.32x32b.x1.b32 [%r8], {{%r1}};{WAIT_ST}",
    ),
    "a full load of half-defined cells": (
        f"{ST}.32x32b.x1.unpack::16b.b32 [%r8], {{%r1}};{WAIT_ST}{LOAD}{WAIT_LD}", "uninitialised-tmem",
        f"{ST}.32x32b.x1.unpack::16b.b32 [%r8], {{%r1}};{WAIT_ST}"
        f"{LD}.32x32b.x1.pack::16b.b32 {{%r6}}, [%r8];{WAIT_LD}",
    ),
    "two halves of one store that overlap": (
        f"{ST}.16x32bx2.x2.b32 [%r8], 1, {{%r1, %r1}};{WAIT_ST}", "race",
        f"{ST}.16x32bx2.x2.b32 [%r8], 2, {{%r1, %r1}};{WAIT_ST}",
    ),
    "a second half outside the slab": (
        f"{ST}.16x32bx2.x2.b32 [%r8], 2097154, {{%r1, %r1}};{WAIT_ST}", "tmem-slab",
        f"{ST}.16x32bx2.x2.b32 [%r8], 1048578, {{%r1, %r1}};{WAIT_ST}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "sound"), ONE_WARP.values(), ids=ONE_WARP.keys())
def test_a_defect_of_one_warp_is_found_and_its_sound_neighbour_passes(body, kind, sound):
    assert kinds(one_warp(body)) == [kind]
    assert kinds(one_warp(sound)) == []


ALLOCATIONS = {
    "columns that are no power of two": ("", dict(columns=48), "tmem-alloc"),
    "too few columns": ("", dict(columns=16), "tmem-alloc"),
    "a leak": ("", dict(free=False), "tmem-leak"),
    "a larger second allocation": (f"{ALLOC} [%r7], 128; {DEALLOC} %r8, 128;", {}, "tmem-alloc"),
    "more than there is": (f"{ALLOC} [%r7], 64;", dict(columns=512), "tmem-alloc"),
    "an allocation after the permit is gone": (f"{RELINQUISH} {ALLOC} [%r7], 32;", {}, "tmem-alloc"),
    "a free of another size": (f"{DEALLOC} %r8, 32;", {}, "tmem-dealloc"),
    "a free of another address": (f"add.s32 %r10, %r8, 32; {DEALLOC} %r10, 64;", {}, "tmem-dealloc"),
    "a second free": (f"{DEALLOC} %r8, 64;", {}, "tmem-dealloc"),
    "a free under a load": (f"{STORE}{WAIT_ST}{LOAD}", {}, "tmem-pending"),
    "a free under a store": (STORE, {}, "tmem-pending"),
    "a read of the address before a barrier": (
        f".shared .b32 t; mov.b32 %r10, t; {ALLOC} [%r10], 32; ld.shared.b32 %r11, [t]; {DEALLOC} %r11, 32;",
        {},
        "race",
    ),
}


@pytest.mark.parametrize(("body", "options", "kind"), ALLOCATIONS.values(), ids=ALLOCATIONS.keys())
def test_a_broken_allocation_is_found(body, options, kind):
    assert kinds(one_warp(body, **options)) == [kind]


def test_two_allocations_and_a_permit_given_up_pass():
    body = f".shared .b32 t; mov.b32 %r10, t; {ALLOC} [%r10], 32; {RELINQUISH} bar.warp.sync -1;"
    body += f"ld.shared.b32 %r11, [t]; {DEALLOC} %r11, 32;"
    assert kinds(one_warp(body)) == []


ROUND_TRIP = f"""{ST}.32x32b.x1.b32 [%r9], {{%r4}}; {WAIT_ST}
{LD}.32x32b.x1.b32 {{%r6}}, [%r9]; {WAIT_LD} st.global.u32 [%rd5], %r6;"""


def test_each_warp_has_its_slab():
    result = launch(four_warps(ROUND_TRIP), block=128)
    assert (result.findings, result.warnings) == ((), ())
    assert result.buffers[1].tolist() == list(range(128))


def test_relative_lanes_are_accepted_only_on_request():
    relative = four_warps(ROUND_TRIP.replace("%r9", "%r8"))
    assert kinds(relative, block=128) == ["tmem-slab"]
    result = launch(relative, block=128, relative_lanes=True)
    assert result.findings == ()
    assert result.buffers[1].tolist() == list(range(128))
    assert kinds(four_warps(ROUND_TRIP), block=128, relative_lanes=True) == []


def test_all_warps_allocating_is_refused():
    text = four_warps("").replace("@%p1 tcgen05.alloc", "tcgen05.alloc")
    assert kinds(text, block=128) == ["tmem-alloc"]


EXCHANGE = f"""setp.lt.u32 %p2, %r11, 4; @%p2 {ST}.32x32b.x1.b32 [%r9], {{%r4}}; @%p2 {WAIT_ST}
{BEFORE} BARRIER {AFTER}
setp.ge.u32 %p3, %r11, 4; @%p3 {LD}.32x32b.x1.b32 {{%r6}}, [%r9]; @%p3 {WAIT_LD} @%p3 st.global.u32 [%rd5], %r6;"""


def test_warps_that_share_a_slab_need_a_barrier():
    result = launch(four_warps(EXCHANGE.replace("BARRIER", "bar.sync 0;")), block=256)
    assert (result.findings, result.warnings) == ((), ())
    assert result.buffers[1][128:].tolist() == list(range(128))
    assert kinds(four_warps(EXCHANGE.replace("BARRIER", "")), block=256) == ["race"]


def test_a_wait_after_the_barrier_comes_too_late():
    late = EXCHANGE.replace(f"@%p2 {WAIT_ST}", "").replace("BARRIER", f"bar.sync 0; @%p2 {WAIT_ST}")
    assert kinds(four_warps(late), block=256) == ["race"]


def test_a_free_needs_a_barrier_after_the_last_access():
    text = four_warps(ROUND_TRIP)
    last = text.rindex("bar.sync 0;")
    assert kinds(text[:last] + text[last + len("bar.sync 0;") :], block=128) == ["race"]


def test_missing_fences_are_warned_about():
    result = launch(four_warps(ROUND_TRIP, fences=False), block=128)
    assert result.findings == ()
    assert any("before_thread_sync" in warning for warning in result.warnings)
    assert any("after_thread_sync" in warning for warning in result.warnings)


def test_the_address_of_an_allocation_is_not_assumed_to_be_zero():
    guess = (
        one_warp(STORE + WAIT_ST)
        .replace("[%r8], {%r1}", "[%r10], {%r1}")
        .replace("bar.warp", "mov.b32 %r10, 0; bar.warp")
    )
    assert kinds(guess) == []
    assert kinds(guess, tmem_column=64) == ["tmem-unallocated"]
