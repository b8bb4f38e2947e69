"""What whole-tensor permutes must do, from NumPy's own indexing: no layout, plan or address of the library is used."""

from __future__ import annotations

import numpy as np

from codegen_cuda.build import compile_ptx
from verify.ptx.concrete import Buffer, run
from verify.ptx.parse import parse

DTYPES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}


def strided(memory: np.ndarray, shape, strides) -> np.ndarray:
    """A view of elements in flat memory; strides in elements."""
    return np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])


def execute(kernel, *, source: str | None = None, seed: int = 0):
    """Run a kernel's PTX on random bytes over a random output: input, output before, output after, bytes written."""
    claim = kernel.claim
    given, result = claim.params
    ptx = compile_ptx(kernel.source if source is None else source, name="kernel.cu", line_info=False)
    rng = np.random.default_rng(seed)
    memory, before = (rng.integers(0, 256, b.count * claim.width, dtype=np.uint8) for b in (given, result))
    ran = run(
        parse(ptx.text),
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        params=[Buffer(memory), Buffer(before, mode="rw")],
        dynamic_shared=claim.dynamic_shared_bytes,
    )
    kind = DTYPES[claim.width]
    return memory.view(kind), before.view(kind), ran.buffers[1].view(kind), ran.written[1]


def wrong(kernel, shape, read, perm, written, **options) -> int:
    """Bytes of the output buffer that differ from what NumPy makes of the same input; 0 for a right kernel.

    Args:
        kernel: the kernel.
        shape: extents of the input.
        read: its strides, in elements.
        perm: the permutation.
        written: strides of the output's dimensions, in elements.
    """
    memory, before, after, touched = execute(kernel, **options)
    expected, mask = before.copy(), np.zeros(before.shape, dtype=bool)
    permuted = [shape[p] for p in perm]
    strided(expected, permuted, written)[...] = strided(memory, shape, read).transpose(perm)
    strided(mask, permuted, written)[...] = True
    differing = expected.view(np.uint8) != after.view(np.uint8)
    return int((differing | (touched & ~np.repeat(mask, before.itemsize))).sum())


def dense(shape) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for k in reversed(range(len(shape) - 1)):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)
