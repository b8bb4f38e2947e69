"""Pools: offsets, alignment, reuse, sizes; tensor memory with its rules, compiled for one block and for pairs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_cuda.body import Body, If, Let, Store, Sync, compare, let, thread_id
from codegen_cuda.buffers import alloc, alloc_local, alloc_shared, match
from codegen_cuda.build import compile_ptx
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.pools import SharedPool, TmemPool, mma_layout, mma_swizzle_mode
from codegen_cuda.tcgen05 import (
    tcgen05_alloc,
    tcgen05_dealloc,
    tcgen05_fence,
    tcgen05_load,
    tcgen05_relinquish,
    tcgen05_store,
    tcgen05_wait,
)
from layoutalg import S, TileLayout
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import dtype
from layoutalg.hardware.tmem import tmem_datapath_layout
from verify.ptx.concrete import Buffer as Memory
from verify.ptx.concrete import run
from verify.ptx.errors import FindingError
from verify.ptx.parse import parse

VECTORS = Path(__file__).parent / "data" / "mma_shared_layouts.json.gz"
TX = thread_id("tx", 128)
WARP = let("warp", TX.var // 32)


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([16, 32, 128, 1024])), min_size=1, max_size=8))
def test_pieces_are_aligned_in_order_and_apart_and_the_size_is_their_end(pieces):
    pool = SharedPool()
    buffers = [pool.alloc(f"b{k}", (size,), "u8", align=align) for k, (size, align) in enumerate(pieces)]
    end = 0
    for piece, buffer, (size, align) in zip(pool.pieces, buffers, pieces, strict=True):
        assert piece.begin % align == 0
        assert end <= piece.begin < end + align
        assert buffer.data.align == align
        end = piece.end
        assert end == piece.begin + size
    assert pool.overlaps() == ()
    arena, *bindings = pool.commit()
    assert (arena.data.size, arena.data.align) == (end, max(16, *(align for _, align in pieces)))
    assert [b.byte_offset.const for b in bindings] == [p.begin for p in pool.pieces]


def test_moving_the_base_reuses_memory_and_the_report_says_whose():
    pool = SharedPool()
    pool.alloc("a", (64,), "f32")
    pool.alloc("b", (64,), "f32")
    pool.move_base_to(128)
    pool.alloc("c", (64,), "f32")
    assert pool.overlaps() == (("a", "c", 128, 256), ("b", "c", 256, 384))
    assert pool.size == 512
    with pytest.raises(RangeError, match="not negative"):
        pool.move_base_to(-1)


def test_a_committed_pool_is_closed_and_its_limits_hold():
    pool = SharedPool()
    with pytest.raises(PlanError, match="handed nothing out"):
        pool.commit()
    pool.alloc("a", (64,), "f32")
    with pytest.raises(PlanError, match="pass the 232448 of a block"):
        pool.alloc("b", (232448,), "u8")
    with pytest.raises(RangeError, match="power of two"):
        pool.alloc("b", (4,), "u8", align=48)
    pool.commit()
    for late in (pool.commit, lambda: pool.alloc("c", (4,), "u8"), lambda: pool.move_base_to(0)):
        with pytest.raises(PlanError, match="is committed"):
            late()


def test_the_launch_size_is_the_size_of_the_arena_and_there_is_one():
    pool, A = SharedPool(), match("A", (64,), "f32")
    s = pool.alloc("s", (64,), "f32", align=128)
    tx = thread_id("tx", 64)
    body = Body("k", [A], [tx, pool.commit(), Store(s[tx.var], A[tx.var])], threads=64)
    assert body.dynamic_shared_bytes == 256
    other = alloc("other", (8,), "f32", scope="shared.dyn")
    twice = Body("k", [A], [tx, other, *body.statements[1:]], threads=64)
    with pytest.raises(PlanError, match=r"allocates dynamic shared memory 2 times \(other, smem\)"):
        _ = twice.source


def _vectors():
    return json.loads(gzip.decompress(VECTORS.read_bytes()))


def test_mma_layouts_are_those_of_an_independent_implementation():
    """Answers recorded from apache-tvm-tirx 0.1.0a4; answers that are no whole number of atoms count as refusals."""
    compared = declined = 0
    for case in _vectors():
        shape, kind = tuple(case["shape"]), dtype(case["dtype"])
        if case["table"] is None:
            with pytest.raises(PlanError):
                mma_layout(shape, kind, mode=case["mode"])
            declined += 1
            continue
        layout = mma_layout(shape, kind, mode=case["mode"])
        tile, swizzle = (layout.inner, layout.swizzle) if case["mode"] else (layout, None)
        assert tile.equivalent(TileLayout.parse(case["table"]))
        if swizzle is not None:
            assert [swizzle.base, swizzle.bits, swizzle.shift] == case["swizzle"]
        compared += 1
    assert (compared, declined) == (125, 43)


def test_the_inferred_swizzle_is_the_widest_that_fits_and_aligns_the_buffer():
    assert mma_swizzle_mode((64, 128), dtype("f32")) == 3
    assert mma_swizzle_mode((12, 64), dtype("f16")) == 0
    with pytest.raises(PlanError, match="16-byte vectors"):
        mma_swizzle_mode((64, 12), dtype("f16"))
    pool = SharedPool()
    pool.alloc("x", (3,), "u8")
    tile = pool.alloc_mma("t", (64, 32), "f16")
    assert (tile.data.align, pool.pieces[1].begin) == (512, 512)
    assert pool.alloc_mma("plain", (64, 64), "f16", mode=0).data.align == 128
    with pytest.raises(PlanError, match="does not divide"):
        pool.alloc_mma("t", (64, 32), "f16", mode=3)


# -- tensor memory -------------------------------------------------------------------------------------------------


def test_columns_are_handed_out_in_32_bit_units_and_rounded_up_to_a_power_of_two():
    pool = TmemPool(SharedPool(), warp=WARP.var)
    columns = [pool.alloc(f"t{k}", (128, 48), kind).allocated_addr for k, kind in enumerate(("f32", "bf16", "e4m3"))]
    assert (columns, pool.used, pool.reserved) == ([0, 48, 72], 84, 128)
    assert pool.alloc("aligned", (128, 8), "f32", align=32).allocated_addr == 96
    with pytest.raises(PlanError, match=r"columns \[104, 616\) pass the 512"):
        pool.alloc("big", (128, 512), "f32")
    with pytest.raises(PlanError, match="give layout="):
        pool.alloc("half", (64, 8), "f32")
    assert pool.alloc("half", (64, 32), "f32", layout=tmem_datapath_layout("B", 64, 32)).allocated_addr == 104
    assert pool.used == 120
    fixed = TmemPool(SharedPool(), warp=WARP.var, total_cols=64)
    with pytest.raises(PlanError, match="pass the 64"):
        fixed.alloc("t", (128, 65), "f32")
    with pytest.raises(RangeError, match="power of two"):
        TmemPool(SharedPool(), warp=WARP.var, total_cols=96)


def test_the_life_of_a_tensor_memory_pool_has_one_order():
    pool = TmemPool(SharedPool(), warp=WARP.var)
    with pytest.raises(PlanError, match="open, not committed"):
        pool.dealloc()
    with pytest.raises(PlanError, match="allocates nothing"):
        pool.commit()
    pool.alloc("t", (128, 8), "f32")
    pool.commit()
    with pytest.raises(PlanError, match="committed, not open"):
        pool.alloc("u", (128, 8), "f32")
    pool.dealloc()
    with pytest.raises(PlanError, match="freed, not committed"):
        pool.dealloc()


@pytest.mark.parametrize("columns", [0, 16, 31, 48, 1024])
def test_only_powers_of_two_from_32_to_512_columns_can_be_asked_for(columns):
    with pytest.raises(PlanError, match="power of two from 32 to 512"):
        tcgen05_alloc(alloc_shared("s", (1,), "u32"), columns)


def test_slots_registers_and_tiles_of_the_wrong_kind_are_refused():
    base = let("base", 0, "uint32").var
    pool = TmemPool(SharedPool(), warp=WARP.var)
    tile = pool.alloc("t", (128, 8), "f32")
    half = pool.alloc("h", (64, 8), "f32", layout=tmem_datapath_layout("C", 64, 8))
    registers = alloc_local("r", (8,), "f32")
    with pytest.raises(PlanError, match="uint32 in shared"):
        tcgen05_alloc(alloc_local("s", (1,), "u32"), 32)
    with pytest.raises(PlanError, match="cta_group is 1 or 2"):
        tcgen05_alloc(alloc_shared("s", (1,), "u32"), 32, cta_group=3)
    with pytest.raises(PlanError, match=r"columns \[1, 9\) leave"):
        tcgen05_load(registers, tile, base=base, warp=WARP.var, column=1)
    with pytest.raises(PlanError, match="power of two"):
        tcgen05_load(alloc_local("r", (6,), "f32"), tile, base=base, warp=WARP.var)
    with pytest.raises(PlanError, match="the same in scope local"):
        tcgen05_store(tile, alloc_local("r", (8,), "u32"), base=base, warp=WARP.var)
    with pytest.raises(PlanError, match="not one row a lane"):
        tcgen05_store(half, registers, base=base, warp=WARP.var)
    for call in (lambda: tcgen05_fence("during"), lambda: tcgen05_wait("mma")):
        with pytest.raises(PlanError):
            call()


def _pooled(cta_group, alloc_warp=0, *, free=True, condition=None):
    A = match("A", (128, 8), "float32")
    shared = SharedPool("smem")
    tmem = TmemPool(
        shared, warp=WARP.var if condition is None else condition, cta_group=cta_group, alloc_warp=alloc_warp
    )
    acc, r = tmem.alloc("acc", (128, 8), "float32"), alloc_local("r", (8,), "float32")
    steps = [
        [TX, WARP, r],
        [shared.commit(), tmem.commit()],
        [Store(r[k], A[TX.var, k]) for k in range(8)],
        [tcgen05_store(acc, r, base=tmem.base, warp=WARP.var), tcgen05_wait("st")],
        [tcgen05_load(r, acc, base=tmem.base, warp=WARP.var), tcgen05_wait("ld")],
        [Store(A[TX.var, k], r[k] + 1.0) for k in range(8)],
        tmem.dealloc() if free else [],
    ]
    return Body("kernel", [A], steps, threads=128)


def _execute(body):
    ptx = compile_ptx(body.source, arch="sm_100a")
    data = np.arange(1024, dtype=np.float32).reshape(128, 8)
    module = parse(ptx.text, file="kernel.ptx")
    size = body.dynamic_shared_bytes
    result = run(module, grid=1, block=128, params=[Memory(data, mode="rw")], dynamic_shared=size)
    return data, result.buffers[0]


def test_another_warp_may_allocate_and_a_pool_that_is_not_freed_is_caught():
    data, got = _execute(_pooled(1, alloc_warp=3))
    assert np.array_equal(got, data + 1)
    with pytest.raises(FindingError, match=r"free|dealloc"):
        _execute(_pooled(1, free=False))


def test_pairs_of_blocks_compile_with_their_own_group():
    text = compile_ptx(_pooled(2).source, arch="sm_100a").text
    for name in ("alloc", "relinquish_alloc_permit", "dealloc"):
        assert f"tcgen05.{name}.cta_group::2.sync.aligned" in text
    assert "cta_group::1" not in text


def test_an_allocation_that_single_threads_would_issue_is_refused():
    for condition in (TX.var, TX.var // 16, WARP.var + TX.var):
        with pytest.raises(PlanError, match="whole warp"):
            _ = _pooled(1, condition=condition).source
    assert "if ((warp >> 1) == 0)" in _pooled(1, condition=WARP.var // 2).source


def test_a_kernel_has_one_cta_group():
    slot, base = alloc_shared("s", (1,), "u32"), Let("base", alloc_shared("s", (1,), "u32")[0])
    steps = [
        [TX, WARP, slot],
        If(compare(WARP.var, "==", 0), (tcgen05_alloc(slot, 32, cta_group=1), tcgen05_relinquish(2))),
        [Sync(), base],
        If(compare(WARP.var, "==", 0), (tcgen05_dealloc(base.var, 32, cta_group=1),)),
    ]
    with pytest.raises(PlanError, match="a kernel has one"):
        _ = Body("k", [], steps, threads=128).source


def test_a_slot_of_ones_own_takes_the_place_of_the_shared_pool():
    slot = alloc("slot", (1,), "uint32", scope="shared", pointer="slot")
    pool = TmemPool(None, warp=WARP.var, tmem_addr=slot)
    pool.alloc("acc", (128, 8), "f32")
    source = Body("k", [], [TX, WARP, slot, pool.commit(), pool.dealloc()], threads=128).source
    assert "__cvta_generic_to_shared(&slot[0])" in source
    with pytest.raises(PlanError, match="give a pool, or tmem_addr"):
        TmemPool(None, warp=WARP.var)


def test_expressions_of_pools_are_plain_layouts():
    assert SharedPool().alloc("a", (4, 8), "f32").layout == TileLayout(S[4, 8])
    assert str(SharedPool().alloc("a", (4, 8), "f32")[Expr.var("i", 0, 3), 2]) == "a_ptr[i * 8 + 2]"
