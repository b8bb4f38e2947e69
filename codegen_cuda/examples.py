"""Small kernels over buffers, each with numpy's answer: what the guide shows, the tests execute and a GPU runs.

>>> example = examples()["static_shared"]
>>> print(example.body.source.split("{", 1)[1])
<BLANKLINE>
    const int tx = threadIdx.x;
    __shared__ __align__(16) float sm_ptr[128];
    sm_ptr[tx] = A_ptr[tx];
    __syncthreads();
    B_ptr[tx] = sm_ptr[tx] * 2.0f;
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.body import (
    Body,
    Call,
    If,
    ScalarParam,
    Store,
    Sync,
    While,
    compare,
    let,
    local_scalar,
    loop,
    shared_scalar,
    thread_id,
)
from codegen_cuda.buffers import alloc, alloc_local, alloc_shared, declare, match
from codegen_cuda.pools import SharedPool, TmemPool
from codegen_cuda.tcgen05 import (
    tcgen05_alloc,
    tcgen05_dealloc,
    tcgen05_fence,
    tcgen05_load,
    tcgen05_relinquish,
    tcgen05_store,
    tcgen05_wait,
)
from layoutalg.hardware.tmem import tmem_datapath_layout

__all__ = ["Example", "examples"]

Arrays = list[NDArray[Any]]
# Rounded at once: a plain product may be fused with a sum later on, and its bits are then the assembler's choice.
SQUARE = "__device__ __forceinline__ float square_at(const float* p) { return __fmul_rn(*p, *p); }"


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel, its inputs and what it computes.

    Attributes:
        body: the kernel; its last buffer is the output.
        arch: what it compiles for.
        inputs: shape and type of each input buffer, in order.
        expected: the output, from the inputs.
        scalars: values of the scalar parameters, which come last.
    """

    body: Body
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    expected: Callable[[Arrays], NDArray[Any]]
    arch: str = "sm_90"
    scalars: tuple[int, ...] = ()

    def make_inputs(self, seed: int) -> Arrays:
        """Return small random integers, so that sums of floats are exact."""
        generator = np.random.default_rng(seed)
        return [generator.integers(0, 100, shape).astype(kind) for shape, kind in self.inputs]


def examples() -> dict[str, Example]:
    """Return all examples by the names of their kernels."""
    made = (
        _static_shared(),
        _dynamic_shared(),
        _pooled(),
        _registers(),
        _scalar_loop(),
        _device_function(),
        _vectorised(),
        _guarded_by_let(),
        _shared_scalar(),
        _tmem_by_hand(),
        _tmem_by_pool(),
    )
    return {example.body.name: example for example in made}


def _static_shared() -> Example:
    a, b = match("A", (128,), "float32"), match("B", (128,), "float32")
    tx = thread_id("tx", 128)
    sm = alloc_shared("sm", (128,), "float32")
    t = tx.var
    body = Body("static_shared", [a, b], [tx, sm, Store(sm[t], a[t]), Sync(), Store(b[t], sm[t] * 2.0)], threads=128)
    return Example(body, (((128,), "float32"),), lambda given: given[0] * 2)


def _dynamic_shared() -> Example:
    a, b, c = (match(name, (64,), "float32") for name in "ABC")
    tx = thread_id("tx", 64)
    arena = alloc("smem", (128,), "float32", scope="shared.dyn")
    a_shared = declare("As", (64,), "float32", data=arena.data, scope="shared.dyn")
    b_shared = declare("Bs", (64,), "float32", data=arena.data, elem_offset=64, scope="shared.dyn")
    t = tx.var
    steps = [
        tx,
        arena,
        Store(a_shared[t], a[t]),
        Store(b_shared[t], b[t]),
        Sync(),
        Store(c[t], a_shared[63 - t] + b_shared[63 - t]),
    ]
    body = Body("dynamic_shared", [a, b, c], steps, threads=64)
    return Example(body, (((64,), "float32"),) * 2, lambda given: (given[0] + given[1])[::-1])


def _pooled() -> Example:
    """Transpose a tile through a swizzled shared buffer: rows in by vectors, columns out by elements."""
    a, b = match("A", (64, 64), "float16", align=16), match("B", (64, 64), "float16")
    tx = thread_id("tx", 64)
    pool = SharedPool("smem")
    pool.alloc("header", (4,), "uint32")
    tile = pool.alloc_mma("tile", (64, 64), "float16")
    t = tx.var
    steps = [
        tx,
        pool.commit(),
        [tile.vstore([t, 8 * c], a.vload([t, 8 * c], dtype="float16x8")) for c in range(8)],
        Sync(),
        loop("r", 64, lambda r: [Store(b.permute(1, 0)[r, t], tile[r, t])]),
    ]
    return Example(Body("pooled", [a, b], steps, threads=64), (((64, 64), "float16"),), lambda given: given[0].T)


def _registers() -> Example:
    a, b = match("A", (32, 4), "float32"), match("B", (32,), "float32")
    tx = thread_id("tx", 32)
    r = alloc_local("r", (4,), "float32")
    steps = [
        tx,
        r,
        [Store(r[k], a[tx.var, k]) for k in range(4)],
        loop("k", 3, lambda k: [Store(r[k + 1], r[k + 1] + r[k])]),
        Store(b[tx.var], r[3]),
    ]
    return Example(
        Body("registers", [a, b], steps, threads=32), (((32, 4), "float32"),), lambda given: given[0].sum(axis=1)
    )


def _scalar_loop() -> Example:
    a, b = match("A", (32, 4), "float32"), match("B", (32,), "float32")
    tx = thread_id("tx", 32)
    phase, acc = local_scalar("phase", "int32"), local_scalar("acc", "float32")
    steps = [
        tx,
        phase,
        acc,
        phase.set(0),
        acc.set(0.0),
        While(compare(phase, "<", 4), (acc.set(acc + a[tx.var, phase]), phase.set(phase + 1))),
        Store(b[tx.var], acc),
    ]
    return Example(
        Body("scalar_loop", [a, b], steps, threads=32), (((32, 4), "float32"),), lambda given: given[0].sum(axis=1)
    )


def _device_function() -> Example:
    a, b = match("A", (64,), "float32"), match("B", (64,), "float32")
    tx = thread_id("tx", 64)
    call = Call("square_at", a.access_ptr("r", offset=tx.var, extent=1), source=SQUARE, returns="float32")
    body = Body("device_function", [a, b], [tx, Store(b[tx.var], call)], threads=64)
    return Example(body, (((64,), "float32"),), lambda given: given[0] ** 2)


def _vectorised() -> Example:
    a, b = match("A", (512,), "float32", align=16), match("B", (512,), "float32", align=16)
    tx = thread_id("tx", 128)
    copy = b.vstore([tx.var * 4], a.vload([tx.var * 4], dtype="float32x4"))
    return Example(
        Body("vectorised", [a, b], [tx, copy], threads=128), (((512,), "float32"),), lambda given: given[0].copy()
    )


def _guarded_by_let() -> Example:
    """The guard on ``start`` is decided by what its ``let`` knows; the one on the length is not."""
    a, b = match("A", (512,), "int32", align=16), match("B", (512,), "int32", align=16)
    n = ScalarParam("n", 4, 512, step=4)
    tx = thread_id("tx", 128)
    start = let("start", tx.var * 4)
    s = start.var
    copy = If(compare(s + 3, "<", 512), (b.vstore([s], a.vload([s], dtype="int32x4")),))
    double = If(compare(s, "<", n.var), (Store(b[s], a[s] * 2),))

    def expected(given: Arrays) -> NDArray[Any]:
        out = given[0].copy()
        out[:400:4] *= 2
        return out

    body = Body("guarded_by_let", [a, b, n], [tx, start, copy, double], threads=128)
    return Example(body, (((512,), "int32"),), expected, scalars=(400,))


def _shared_scalar() -> Example:
    a, b = match("A", (64,), "int32"), match("B", (64,), "int32")
    tx = thread_id("tx", 64)
    first = shared_scalar("first", "int32")
    steps = [
        tx,
        first,
        If(compare(tx.var, "==", 0), (first.set(a[0]),)),
        Sync(),
        Store(b[tx.var], a[tx.var] - first.element),
    ]
    return Example(
        Body("shared_scalar", [a, b], steps, threads=64), (((64,), "int32"),), lambda given: given[0] - given[0][0]
    )


def _tmem_by_hand() -> Example:
    a, b = match("A", (128, 8), "uint32"), match("B", (128, 8), "uint32")
    tx = thread_id("tx", 128)
    warp = let("warp", tx.var // 32)
    slot, r = alloc_shared("addr", (1,), "uint32"), alloc_local("r", (8,), "uint32")
    base = let("base", slot[0], "uint32")
    layout = tmem_datapath_layout("D", 128, 8)
    acc = declare("acc", (128, 8), "uint32", data=None, scope="tmem", allocated_addr=16, layout=layout)
    one_warp = compare(warp.var, "==", 0)
    barrier = [tcgen05_fence("before"), Sync(), tcgen05_fence("after")]
    steps = [
        [tx, warp, slot, r],
        If(one_warp, (tcgen05_alloc(slot, 32),)),
        [*barrier, base],
        [Store(r[k], a[tx.var, k]) for k in range(8)],
        [tcgen05_store(acc, r, base=base.var, warp=warp.var), tcgen05_wait("st")],
        [tcgen05_load(r, acc, base=base.var, warp=warp.var), tcgen05_wait("ld")],
        [Store(b[tx.var, k], r[7 - k]) for k in range(8)],
        barrier,
        If(one_warp, (tcgen05_relinquish(), tcgen05_dealloc(base.var, 32))),
    ]
    body = Body("tmem_by_hand", [a, b], steps, threads=128)
    return Example(body, (((128, 8), "uint32"),), lambda given: given[0][:, ::-1], arch="sm_100a")


def _tmem_by_pool() -> Example:
    a, b = match("A", (128, 8), "float32"), match("B", (128, 8), "float32")
    tx = thread_id("tx", 128)
    warp = let("warp", tx.var // 32)
    shared = SharedPool("smem")
    tmem = TmemPool(shared, warp=warp.var)
    other = tmem.alloc("other", (128, 40), "float32")
    acc = tmem.alloc("acc", (128, 8), "float32", align=8)
    r = alloc_local("r", (8,), "float32")
    steps = [
        [tx, warp, r],
        [shared.commit(), tmem.commit()],
        [Store(r[k], a[tx.var, k]) for k in range(8)],
        [tcgen05_store(acc, r, base=tmem.base, warp=warp.var), tcgen05_store(other, r, base=tmem.base, warp=warp.var)],
        tcgen05_wait("st"),
        [tcgen05_load(r, acc, base=tmem.base, warp=warp.var), tcgen05_wait("ld")],
        [Store(b[tx.var, k], r[k] + 1.0) for k in range(8)],
        tmem.dealloc(),
    ]
    body = Body("tmem_by_pool", [a, b], steps, threads=128)
    return Example(body, (((128, 8), "float32"),), lambda given: given[0] + 1, arch="sm_100a")
