"""Compiled kernels run on the CPU do what their CUDA source says, for every compiler and target."""

from __future__ import annotations

import time

import numpy as np
import pytest
from ptx_kernels import launch, module
from ptx_samples import ptx_names, texts

from verify.ptx.concrete import Buffer, run
from verify.ptx.errors import FindingError, PtxError
from verify.ptx.parse import parse
from verify.ptx.resolve import load

RNG = np.random.default_rng(5)


def compiled(kernel: str) -> list[str]:
    names = [name for name in ptx_names() if name.startswith(kernel + ".")]
    assert names
    return names


def program(name: str, entry: str | None = None):
    return load(parse(texts()[name], file=name), entry)


def output(array) -> Buffer:
    return Buffer(np.zeros_like(array), mode="w")


@pytest.mark.parametrize("name", compiled("a_warp_transpose"))
def test_the_warp_transpose_transposes_without_bank_conflicts(name):
    source = np.arange(256, dtype=np.float32)
    result = run(program(name), grid=1, block=32, params=[Buffer(source), output(source)])
    assert np.array_equal(result.buffers[1].reshape(2, 32, 4), source.reshape(2, 4, 32).transpose(0, 2, 1))
    assert (result.total("wavefronts"), result.total("excess")) == (32, 0)
    assert result.total("sectors", opcode="ld.global") == 32
    assert result.written[1].all()
    assert result.warnings == ()


@pytest.mark.parametrize("stages", [1, 4, 5, 9])
@pytest.mark.parametrize("name", compiled("a2_warp_transpose_fn"))
def test_the_looping_warp_transpose_handles_every_trip_count(name, stages):
    source = np.arange(128 * stages, dtype=np.float32)
    params = [Buffer(source), output(source), stages]
    result = run(program(name), grid=1, block=128, params=params, dynamic_shared=512 * stages)
    assert np.array_equal(result.buffers[1].reshape(stages, 32, 4), source.reshape(stages, 4, 32).transpose(0, 2, 1))
    assert result.total("excess") == 0


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (40, 50), (1, 65)])
@pytest.mark.parametrize("name", compiled("b_transpose_tiled"))
def test_the_tiled_transpose_guards_its_tails(name, rows, columns):
    source = RNG.random((rows, columns), dtype=np.float32)
    params = [Buffer(source), output(source.T), rows, columns]
    grid = (-(-columns // 32), -(-rows // 32))
    result = run(program(name), grid=grid, block=(32, 8), params=params)
    assert np.array_equal(result.buffers[1], source.T)
    assert result.total("excess") == 0


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (72, 200)])
@pytest.mark.parametrize("name", compiled("b2_transpose_vec"))
def test_the_persistent_vector_transpose_is_right_for_two_bytes(name, rows, columns):
    source = RNG.integers(0, 1 << 16, (rows, columns)).astype(np.uint16)
    params = [Buffer(source), output(source.T), rows, columns]
    assert np.array_equal(run(program(name), grid=2, block=256, params=params).buffers[1], source.T)


@pytest.mark.parametrize("name", compiled("d_async_misc"))
def test_asynchronous_copies_bytes_and_divisions(name):
    source = RNG.random((3, 32, 32), dtype=np.float32)
    params = [Buffer(source), output(source), 0]
    result = run(program(name, "cp_async_transpose"), grid=3, block=128, params=params)
    assert np.array_equal(result.buffers[1], source.transpose(0, 2, 1))
    bytes_ = RNG.integers(0, 256, (32, 32)).astype(np.uint8)
    result = run(program(name, "u8_permute"), grid=1, block=32, params=[Buffer(bytes_), output(bytes_)])
    assert np.array_equal(result.buffers[1], bytes_.T)
    words = RNG.integers(0, 1 << 60, (5, 6, 7)).astype(np.uint64)
    params = [Buffer(words), Buffer(np.zeros((7, 5, 6), dtype=np.uint64), "w"), 5, 6, 7]
    assert np.array_equal(
        run(program(name, "nd_permute"), grid=2, block=256, params=params).buffers[1], words.transpose(2, 0, 1)
    )
    halves = RNG.integers(0, 1 << 16, (2, 5, 7, 12)).astype(np.uint16)
    params = [Buffer(halves), Buffer(np.zeros((2, 12, 5, 7), dtype=np.uint16), "w"), halves.size]
    result = run(program(name, "const_div"), grid=halves.size // 128 + 1, block=128, params=params)
    assert np.array_equal(result.buffers[1], halves.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", compiled("d2_mbar"))
def test_barrier_objects_and_election(name, last):
    source = RNG.random(300, dtype=np.float32)
    result = run(program(name), grid=3, block=128, params=[Buffer(source), output(source), 300], elect_last=last)
    padded = np.zeros(384, dtype=np.float32)
    padded[:300] = source
    staged = padded.reshape(3, 128)[:, np.arange(128) ^ 5]
    elected = np.arange(128) % 32 == (31 if last else 0)
    expected = staged[:, (np.arange(128) + elected) % 128].reshape(-1)[:300]
    assert np.array_equal(result.buffers[1], expected)


def idiom(i: int, n: int, divisor: int, big: int, x: int) -> int:
    """The value that thread ``i`` of the sample d3 computes, in Python's own arithmetic."""
    field, rotated = i >> 3 & 31, (i << 5 | i >> 27) & 0xFFFFFFFF
    chosen = field if i < n else rotated
    shifted = i - 1000
    quotient = -(-shifted // 6) if shifted < 0 else shifted // 6
    pool = x.to_bytes(4, "little") + (x >> 3).to_bytes(4, "little")
    permuted = int.from_bytes(bytes(pool[k] for k in (0, 4, 2, 6)), "little")
    total = min(i // 12, i // divisor) + max(i % 12, i % divisor) + quotient + shifted - 6 * quotient
    return (total + i * 977 // big + i * 977 % big + chosen + permuted) % (1 << 32)


@pytest.mark.parametrize("name", compiled("d3_index_idioms"))
def test_index_arithmetic_as_compilers_write_it(name):
    n, divisor, big = 700, 13, 10**6
    source = RNG.integers(0, 1 << 32, 768).astype(np.uint32)
    params = [Buffer(source), output(source), n, divisor, big]
    result = run(program(name, "idioms"), grid=3, block=256, params=params)
    thread = np.arange(768)
    read = source[(thread & ~7) | ((thread ^ (thread >> 3)) & 7)][thread ^ 5]
    writes = [i < n and (i >> 3 & 31 | i % 12) != 0 for i in range(768)]
    assert result.written[1].reshape(-1, 4).all(axis=1).tolist() == writes
    for i in np.flatnonzero(writes).tolist():
        assert result.buffers[1][i] == idiom(i, n, divisor, big, int(read[i]))


@pytest.mark.parametrize("name", compiled("d3_index_idioms"))
def test_packed_and_wide_accesses_and_generic_pointers(name):
    halves = RNG.integers(0, 1 << 16, 512).astype(np.uint16)
    wide = RNG.integers(0, 1 << 32, 1024).astype(np.uint32)
    params = [Buffer(halves), Buffer(np.zeros(256, dtype=np.uint32), "w"), Buffer(wide), output(wide)]
    result = run(program(name, "pack16"), grid=1, block=128, params=params)
    t, as_bytes = np.arange(128), halves.view(np.uint8)
    low, high = halves[2 * t].astype(np.uint32), halves[2 * t + 97].astype(np.uint32)
    assert np.array_equal(result.buffers[1][:128], low | high << 16)
    quads = np.stack([as_bytes[t + k] for k in (0, 7, 9, 11)], axis=1)
    assert np.array_equal(result.buffers[1][128:], np.ascontiguousarray(quads).view(np.uint32).ravel())
    assert np.array_equal(result.buffers[3].reshape(128, 8), wide.reshape(128, 8)[t ^ 3])
    memory = Buffer(np.zeros(32, dtype=np.float32), "rw")
    assert run(program(name, "gen_ptr"), grid=1, block=32, params=[memory, 1]).buffers[0].tolist() == [1.0] * 32
    with pytest.raises(FindingError) as caught:
        run(program(name, "gen_ptr"), grid=1, block=32, params=[memory, 0])
    assert caught.value.finding.kind == "uninitialised-memory"


@pytest.mark.parametrize("size", [512, pytest.param(2048, marks=pytest.mark.slow)])
def test_a_million_threads_take_less_than_five_seconds(size):
    """A matrix of 2048 x 2048 has a million threads; a smaller one has its share of the time, and half a second."""
    source = np.arange(size * size, dtype=np.float32).reshape(size, size)
    kernel = program("b_transpose_tiled.nvrtc135.sm_90a.ptx")
    started = time.process_time()
    params = [Buffer(source), output(source), size, size]
    result = run(kernel, grid=(size // 32, size // 32), block=(32, 8), params=params)
    assert result.threads == size * size // 4
    assert time.process_time() - started < 5 * result.threads / (1 << 20) + (0 if size == 2048 else 0.5)
    assert np.array_equal(result.buffers[1], source.T)


def test_blocks_beyond_one_group_keep_their_indices():
    body = "mov.u32 %r6, %ctaid.y; mov.u32 %r7, %nctaid.x; mad.lo.s32 %r8, %r6, %r7, %r2;\n"
    body += "mul.wide.u32 %rd6, %r8, 4; add.s64 %rd7, %rd2, %rd6; st.global.u32 [%rd7], %r8;"
    result = launch(body, grid=(70, 31), block=1, b=np.zeros(70 * 31, dtype=np.uint32))
    assert result.buffers[1].tolist() == list(range(70 * 31))


def test_threads_are_numbered_with_x_fastest_and_partial_warps_work():
    body = """mov.u32 %r6, %tid.y; mov.u32 %r7, %tid.z; mad.lo.s32 %r8, %r7, 3, %r6; mad.lo.s32 %r9, %r8, 5, %r1;
    mov.u32 %r10, %laneid; mul.wide.u32 %rd6, %r9, 4; add.s64 %rd7, %rd2, %rd6; st.global.u32 [%rd7], %r10;"""
    result = launch(body, block=(5, 3, 3))
    assert result.buffers[1].tolist() == [i % 32 for i in range(45)]


def test_divergent_loops_reconverge():
    body = """mov.u32 %r6, 0; mov.u32 %r7, 0; and.b32 %r8, %r1, 7;
    L: setp.ge.u32 %p1, %r6, %r8; @%p1 bra E; add.s32 %r7, %r7, %r6; add.s32 %r6, %r6, 1; bra L;
    E: bar.warp.sync -1; st.global.u32 [%rd5], %r7;"""
    result = launch(body)
    assert result.buffers[1].tolist() == [sum(range(i % 8)) for i in range(32)]


def test_a_block_out_of_line_rejoins_before_the_barrier():
    body = """.shared .b32 s[32]; mov.b32 %r20, s; add.s32 %r21, %r20, %r5; setp.lt.u32 %p1, %r1, 9; mov.u32 %r7, 5;
    @%p1 bra FAR; B: st.shared.u32 [%r21], %r7; bar.sync 0; xor.b32 %r22, %r5, 4; add.s32 %r23, %r20, %r22;
    ld.shared.u32 %r8, [%r23]; st.global.u32 [%rd5], %r8; ret; FAR: mov.u32 %r7, 6; bra B;"""
    assert launch(body).buffers[1].tolist() == [6 if (i ^ 1) < 9 else 5 for i in range(32)]


def test_warps_may_meet_at_different_barriers():
    body = """setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 0; bra E; A: bar.sync 0; E: st.global.u32 [%rd5], %r1;"""
    result = launch(body, block=64)
    assert result.findings == ()
    assert result.buffers[1].tolist() == list(range(64))


def test_local_constant_and_module_tables_are_read():
    before = """.const .align 4 .u32 c[4] = {10, 20, 30, 40}; .global .align 1 .b8 g[8] = {1, 2, 3};"""
    body = """.local .align 8 .b8 depot[16]; mov.u64 %rd10, depot; cvta.local.u64 %rd11, %rd10; and.b32 %r6, %r1, 3;
    mul.wide.u32 %rd12, %r6, 4; mov.u64 %rd13, c; add.s64 %rd14, %rd13, %rd12; ld.const.u32 %r7, [%rd14];
    add.s64 %rd15, %rd10, %rd12; st.local.u32 [%rd15], %r7; add.s64 %rd16, %rd11, %rd12; ld.u32 %r8, [%rd16];
    cvt.u64.u32 %rd17, %r6; mov.u64 %rd18, g; add.s64 %rd19, %rd18, %rd17; ld.global.nc.u8 %rs1, [%rd19];
    cvt.u32.u8 %r9, %rs1; add.s32 %r10, %r8, %r9; ld.const.u32 %r11, [c+4]; add.s32 %r12, %r10, %r11;
    st.global.u32 [%rd5], %r12;"""
    expected = [[10, 20, 30, 40][i % 4] + [1, 2, 3, 0][i % 4] + 20 for i in range(32)]
    assert launch(body, before=before).buffers[1].tolist() == expected


SHUFFLES = {
    "up": lambda lane, b, c: lane - b if lane - b >= (lane & (c >> 8)) else lane,
    "down": lambda lane, b, c: lane + b if lane + b <= (lane & (c >> 8) | c & ~(c >> 8) & 31) else lane,
    "bfly": lambda lane, b, c: lane ^ b if lane ^ b <= (lane & (c >> 8) | c & ~(c >> 8) & 31) else lane,
    "idx": lambda lane, b, c: (lane & (c >> 8)) | (b & ~(c >> 8) & 31),
}


@pytest.mark.parametrize(("b", "width"), [(1, 32), (3, 32), (5, 8), (2, 4)])
@pytest.mark.parametrize("mode", SHUFFLES)
def test_shuffles_read_the_lane_that_the_isa_names(mode, b, width):
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f"shfl.sync.{mode}.b32 %r6|%p1, %r1, {b}, {c}, -1; st.global.u32 [%rd5], %r6;"
    assert launch(body).buffers[1].tolist() == [SHUFFLES[mode](lane, b, c) for lane in range(32)]


def test_a_structure_parameter_is_read_by_its_bytes():
    text = module("", prologue="").replace(".param .u64 b", ".param .align 8 .b8 b[16]")
    body = "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [b+8]; ld.param.s16 %r2, [b+12];"
    body += "st.global.v2.u32 [%rd1], {%r1, %r2};"
    text = text.replace("ret;", body + "ret;")
    target = Buffer(np.zeros(2, dtype=np.int32), "w")
    data = bytes(8) + (77).to_bytes(4, "little") + (-5).to_bytes(2, "little", signed=True) + bytes(2)
    assert run(parse(text), grid=1, block=1, params=[target, data]).buffers[0].tolist() == [77, -5]


def test_counts_say_what_each_instruction_cost():
    body = """.shared .b32 s[1024]; mov.b32 %r20, s; shl.b32 %r21, %r1, 7; add.s32 %r22, %r20, %r21;
    st.shared.u32 [%r22], %r1;
    ld.shared.u32 %r6, [%r22];
    st.global.u32 [%rd5], %r6;"""
    result = launch(body, grid=3)
    (store,) = [row for row in result.instructions if row.opcode.startswith("st.shared")]
    assert (store.executions, store.wavefronts, store.excess, store.bytes) == (3, 96, 93, 384)
    (out,) = [row for row in result.instructions if row.opcode.startswith("st.global")]
    assert (out.executions, out.sectors) == (3, 12)
    assert result.total("excess", opcode="ld.shared") == 93


LAUNCHES = {
    "a block that the kernel forbids": (dict(block=64, limits=".maxntid 32"), "allows 32 threads"),
    "another block than the required one": (dict(block=(32, 1), limits=".reqntid 16, 2"), "requires blocks"),
    "too many threads": (dict(block=2048), "more than 1024"),
    "an empty grid": (dict(grid=0), "positive integers"),
    "dynamic memory that nobody declared": (dict(dynamic_shared=64), "no dynamic shared memory"),
    "too much shared memory": (dict(before=".shared .b8 big[300000];"), "more than a block can have"),
    "two dynamic arrays": (
        dict(before=".extern .shared .b8 x[]; .extern .shared .b8 y[];", dynamic_shared=8),
        "start at one address",
    ),
}


@pytest.mark.parametrize(("options", "reason"), LAUNCHES.values(), ids=LAUNCHES.keys())
def test_a_launch_that_does_not_fit_is_refused(options, reason):
    small = np.zeros(8, dtype=np.uint32)
    with pytest.raises(PtxError, match=reason):
        launch("", a=small, b=small, **options)


def test_parameters_are_compared_with_the_declaration():
    parsed = parse(module(""))
    array = np.zeros(8, dtype=np.uint32)
    for params, reason in [
        ([Buffer(array)], "has 2 parameters, not 1"),
        ([1 << 64, 0], "does not fit"),
        ([b"123", 0], "has 8 bytes, not 3"),
        ([Buffer(array, base=4096), Buffer(array, "w", base=4100)], "overlap"),
    ]:
        with pytest.raises(PtxError, match=reason):
            run(parsed, grid=1, block=1, params=params)
    with pytest.raises(PtxError, match="none of r, w, rw"):
        Buffer(array, mode="x")
