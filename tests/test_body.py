"""Bodies: equal meaning is equal value, and what needs the whole kernel is checked."""

from __future__ import annotations

import re

import numpy as np
import pytest

from codegen_cuda.body import (
    Body,
    Call,
    Do,
    For,
    If,
    ScalarParam,
    Store,
    Sync,
    While,
    block_id,
    compare,
    let,
    local_scalar,
    loop,
    thread_id,
)
from codegen_cuda.buffers import alloc, alloc_local, alloc_shared, declare, match
from codegen_cuda.build import compile_ptx
from codegen_cuda.errors import PlanError
from codegen_cuda.examples import examples
from codegen_cuda.expr import Expr
from codegen_cuda.tcgen05 import tcgen05_relinquish
from verify.ptx.concrete import Buffer as Memory
from verify.ptx.concrete import run
from verify.ptx.parse import parse

TX = thread_id("tx", 64)
A, B = match("A", (64,), "f32"), match("B", (64,), "f32")


def code(*statements, params=(A, B), threads=64):
    """The lines of a kernel's body."""
    source = Body("k", params, statements, threads=threads).source
    return [line.strip() for line in source.partition(f"LAUNCH_SHAPE({threads})")[2].splitlines()[1:-1]]


def test_a_guard_that_the_ranges_decide_is_not_emitted():
    t = TX.var
    inside = If(compare(t, "<", 64), (Store(B[t], A[t]),))
    never = If(compare(t, "<", 0), (Store(B[t], A[t]),), (Sync(),))
    open_one = If(compare(t, "<", 63), (Store(B[t], A[t]),), (Store(B[t], 0.0),))
    assert code(TX, inside, never) == ["const int tx = threadIdx.x;", "B_ptr[tx] = A_ptr[tx];", "__syncthreads();"]
    assert "if (tx < 63) {" in code(TX, open_one)
    assert "} else {" in code(TX, open_one)


def test_a_let_carries_its_bounds_to_a_guard_and_a_scalar_does_not():
    """The one difference between the two kernels is that the second keeps the value in a mutable scalar."""
    t = TX.var
    start = let("start", t + 0)
    by_let = code(TX, start, If(compare(start.var, "<", 64), (Store(B[start.var], A[start.var]),)))
    scalar = local_scalar("start", "int32")
    by_scalar = code(TX, scalar, scalar.set(t), If(compare(scalar, "<", 64), (Store(B[scalar], A[scalar]),)))
    assert not any(line.startswith("if") for line in by_let)
    assert "if (start_ptr[0] < 64) {" in by_scalar


def test_divisibility_of_a_let_reaches_vectors_and_divisions():
    n = ScalarParam("n", 0, 15)
    half = let("half", n.var * 4)
    wide = match("W", (64,), "f32", align=16)
    store = wide.vstore([half.var], wide.vload([half.var], dtype="float32x4"))
    assert code(half, store, params=(wide, n)) == [
        "const int half = n * 4;",
        "*(float4*)(W_ptr + half) = *(float4*)(W_ptr + half);",
    ]
    assert str(half.var % 4) == "0"


def test_parameters_that_nobody_writes_are_const():
    read = Call("peek", A.access_ptr("r"), source="__device__ float peek(const float* p) { return *p; }", returns="f32")
    source = Body("k", (A, B), [TX, Store(B[TX.var], read)], threads=64).source
    assert "const float* __restrict__ A_ptr, float* __restrict__ B_ptr" in source
    poke = Do(Call("poke", A.ptr_to([TX.var]), source="__device__ void poke(float* p) { *p = 0; }"))
    assert "(float* __restrict__ A_ptr," in Body("k", (A, B), [TX, poke, Store(B[TX.var], 0.0)], threads=64).source


def test_a_device_function_is_printed_once_and_two_of_one_name_are_refused():
    one = "__device__ float f(float x) { return x; }"
    twice = [Store(B[0], Call("f", A[k], source=one, returns="f32")) for k in (0, 1)]
    assert Body("k", (A, B), twice, threads=1).source.count(one) == 1
    other = Store(B[0], Call("f", A[0], source=one.replace("x;", "-x;"), returns="f32"))
    with pytest.raises(PlanError, match="two sources for f"):
        _ = Body("k", (A, B), [*twice, other], threads=1).source
    with pytest.raises(PlanError, match="does not define it"):
        Call("g", A[0], source=one)
    with pytest.raises(PlanError, match="returns nothing"):
        Store(B[0], Call("f", A[0], source=one))


def test_names_are_declared_before_they_are_used_and_once():
    t, sm = TX.var, alloc_shared("sm", (64,), "f32")
    k = Expr.var("k", 0, 3)
    for missing, statements in {
        "tx": [Store(B[t], A[t])],
        "sm_ptr": [TX, Store(sm[t], A[t]), sm],
        "k": [loop("k", 4, lambda k: [Store(B[k], A[k])]), Store(B[k], A[k])],
        "phase_ptr": [Store(B[local_scalar("phase", "int32")], 0.0)],
        "C_ptr": [TX, Store(B[t], match("C", (64,), "f32")[t])],
    }.items():
        with pytest.raises(PlanError, match=rf"uses .*{missing}.* before a declaration"):
            _ = Body("k", (A, B), statements, threads=64).source
    with pytest.raises(PlanError, match="tx is declared twice"):
        code(TX, TX)
    with pytest.raises(PlanError, match="only allocations are declared"):
        code(declare("v", (8,), "f32", data=sm.data))


def test_names_are_names_of_c():
    for name in ("for", "two words", "1st", "x;y", ""):
        with pytest.raises(PlanError, match="cannot be the name"):
            code(TX, let(name, TX.var + 1))
        with pytest.raises(PlanError, match="cannot be the name"):
            _ = Body(name, (A, B), [TX], threads=64).source
    with pytest.raises(PlanError, match="share a name"):
        code(TX, params=(A, A))


def test_a_block_barrier_stands_where_all_threads_come_by():
    bx, n = block_id("bx", 8), ScalarParam("n", 0, 64)
    for uniform in (compare(bx.var, "<", 4), compare(n.var, "<", 32)):
        assert "__syncthreads();" in code(bx, If(uniform, (Sync(),)), params=(A, B, n))
    with pytest.raises(PlanError, match="whole block must come by"):
        code(TX, If(compare(TX.var, "<", 32), (Sync(),)))
    with pytest.raises(PlanError, match="whole block must come by"):
        code(TX, While(compare(TX.var, "<", 32), (For(Expr.var("k", 0, 1), 2, (Sync(),)),)))
    assert "__syncwarp();" in code(TX, Sync("warp"))


def test_a_warp_wide_instruction_needs_a_condition_of_whole_warps():
    warp = let("warp", TX.var // 32)
    assert any("relinquish" in line for line in code(TX, warp, If(compare(warp.var, "==", 1), (tcgen05_relinquish(),))))
    with pytest.raises(PlanError, match="whole warp must come by"):
        code(TX, warp, If(compare(TX.var, "==", 0), (tcgen05_relinquish(),)))


def test_a_pointer_is_passed_by_its_name_and_an_element_by_its_address():
    source = "__device__ float ld(const float* p) { return *p; }"
    by_name, by_address = (Call("ld", x, source=source, returns="f32") for x in (A.data, A.ptr_to([TX.var])))
    assert code(TX, Store(B[TX.var], by_address), Store(B[TX.var], by_name))[1:] == [
        "B_ptr[tx] = ld(&A_ptr[tx]);",
        "B_ptr[tx] = ld(A_ptr);",
    ]


def test_a_scalar_takes_part_in_arithmetic_on_either_side():
    acc, bits = local_scalar("acc", "float32"), local_scalar("bits", "uint32")
    made = [
        acc + 1,
        1 + acc,
        acc - 1,
        1 - acc,
        acc * 2,
        2 * acc,
        -acc,
        bits & 7,
        bits | 1,
        bits ^ 3,
        bits << 2,
        bits >> 1,
    ]
    assert [str(x) for x in made] == [
        "acc_ptr[0] + 1.0f", "1.0f + acc_ptr[0]", "acc_ptr[0] - 1.0f", "1.0f - acc_ptr[0]", "acc_ptr[0] * 2.0f",
        "2.0f * acc_ptr[0]", "-acc_ptr[0]", "bits_ptr[0] & 7u", "bits_ptr[0] | 1u", "bits_ptr[0] ^ 3u",
        "bits_ptr[0] << 2", "bits_ptr[0] >> 1",
    ]  # fmt: skip
    assert acc - 1 == acc.element - 1


def test_dynamic_shared_memory_has_its_limit():
    with pytest.raises(PlanError, match="asks for 232449 bytes of dynamic shared memory; a block has 232448"):
        code(alloc("smem", (232449,), "u8", scope="shared.dyn"))
    assert code(alloc("smem", (232448,), "u8", scope="shared.dyn"))


def test_static_shared_memory_has_its_limit():
    with pytest.raises(PlanError, match="declares 49156 bytes of static shared memory"):
        code(alloc_shared("a", (12288,), "f32"), alloc("b", (4,), "u8", scope="shared"))


def test_statements_are_values_and_what_is_none_is_refused():
    assert Body("k", (A, B), [[TX], [Sync()]], threads=64) == Body("k", (A, B), [TX, Sync()], threads=64)
    assert hash(Body("k", (A, B), [TX], threads=64)) == hash(Body("k", (A, B), [TX], threads=64))
    with pytest.raises(PlanError, match="is no statement"):
        Body("k", (A, B), [A[0]], threads=64)
    with pytest.raises(PlanError, match="does not fit"):
        Store(B[0], match("V", (64,), "f32", align=16).vload([0], dtype="float32x4"))


@pytest.mark.parametrize(
    ("made", "printed"),
    [
        (lambda a, b: a - (b - a), "A_ptr[0] - (A_ptr[1] - A_ptr[0])"),
        (lambda a, b: a + (b + a), "A_ptr[0] + (A_ptr[1] + A_ptr[0])"),
        (lambda a, b: (a + b) * 2, "(A_ptr[0] + A_ptr[1]) * 2.0f"),
        (lambda a, b: -(a + b) * -b, "-(A_ptr[0] + A_ptr[1]) * (-A_ptr[1])"),
        (lambda a, b: 1 - a * b, "1.0f - A_ptr[0] * A_ptr[1]"),
    ],
)
def test_sums_of_floats_keep_their_order(made, printed):
    assert str(made(A[0], A[1])) == printed


def test_no_index_of_the_examples_holds_a_division_or_a_remainder():
    for example in examples().values():
        indices = re.findall(r"\[([^\[\]]*)\]|\(\w+_ptr \+ ([^()]*)\)", example.body.source)
        for index in (text for pair in indices for text in pair):
            assert "/" not in index
            assert "%" not in re.sub(r"%\d+", "", index)


def test_four_declarations_of_one_buffer_run_to_four_placements():
    """The guide's example, executed: the same access under other metadata writes other places."""
    from layoutalg import S, TileLayout

    tx = thread_id("tx", 32)
    i, j = tx.var // 8, tx.var % 8
    source = match("A", (4, 8), "f32")
    layouts = [
        {},
        {"layout": TileLayout(S[(4, 8) : (1, 4)])},
        {"elem_offset": 64},
        {"layout": TileLayout(S[(4, 8) : (16, 1)])},
    ]
    data = np.arange(32, dtype=np.float32)
    for metadata in layouts:
        target = match("B", (4, 8), "f32", **metadata)
        body = Body("k", (source, target), [tx, Store(target[i, j], source[i, j] + 1)], threads=32)
        module = parse(compile_ptx(body.source).text, file="k.ptx")
        out = np.zeros(96, dtype=np.float32)
        got = run(module, grid=1, block=32, params=[Memory(data), Memory(out, mode="rw")]).buffers[1]
        want = out.copy()
        places = target.layout.table((4, 8))["m"].reshape(-1) + metadata.get("elem_offset", 0)
        want[places] = data + 1
        assert np.array_equal(got, want)


def test_sub_byte_elements_are_read_as_their_bits():
    packed = match("P", (64,), "float4_e2m1fn", align=4)
    out = match("O", (64,), "u32")
    call = Call("code", packed[TX.var], source="__device__ unsigned code(int x) { return x; }", returns="u32")
    body = Body("k", (packed, out), [TX, Store(out[TX.var], call)], threads=64)
    data = np.random.default_rng(3).integers(0, 256, 32).astype(np.uint8)
    module = parse(compile_ptx(body.source).text, file="k.ptx")
    params = [Memory(data), Memory(np.zeros(64, np.uint32), mode="w")]
    got = run(module, grid=1, block=64, params=params).buffers[1]
    assert got.tolist() == [int(byte) >> shift & 15 for byte in data for shift in (0, 4)]


def test_registers_of_a_thread_hold_their_part_of_a_layout():
    from layoutalg import TileLayout

    tile = alloc("R", (32, 8), "f32", scope="local", layout=TileLayout.parse("S[(32,8):(1@laneid,1)]"))
    own, given = tile.local(8), match("A", (32, 8), "f32")
    lane = thread_id("lane", 32)
    out = match("B", (32, 8), "f32")
    steps = [lane, tile, [Store(own[k], given[lane.var, k]) for k in range(8)]]
    steps += [Store(out[lane.var, k], own[7 - k]) for k in range(8)]
    body = Body("k", (given, out), steps, threads=32)
    assert "float R_ptr[8];" in body.source
    data = np.arange(256, dtype=np.float32).reshape(32, 8)
    module = parse(compile_ptx(body.source).text, file="k.ptx")
    got = run(module, grid=1, block=32, params=[Memory(data), Memory(np.zeros_like(data), mode="w")]).buffers[1]
    assert np.array_equal(got, data[:, ::-1])
    assert alloc_local("x", (8,), "f32").data.align == 4
