"""The example kernels: compiled, executed for every thread against numpy, and printed as they were last read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from codegen_cuda.body import ScalarParam
from codegen_cuda.build import assemble, compile_ptx
from codegen_cuda.examples import examples
from verify.ptx.concrete import Buffer as Memory
from verify.ptx.concrete import run
from verify.ptx.errors import FindingError
from verify.ptx.parse import parse

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = examples()


def interpret(body, arrays, scalars, *, arch, like, source=None, count=None):
    """Run a body's PTX on the CPU and return what it did."""
    ptx = compile_ptx(source or body.source, arch=arch, name=f"{body.name}.cu")
    outputs = [Memory(np.zeros(like.shape, dtype=like.dtype), mode="w")]
    return run(
        parse(ptx.text, file=f"{body.name}.ptx"),
        body.name,
        grid=body.blocks,
        block=body.threads,
        params=[*(Memory(a) for a in arrays), *outputs, *scalars],
        dynamic_shared=body.dynamic_shared_bytes if count is None else count,
    )


def execute(body, arrays, scalars, **how):
    """Run a body's PTX on the CPU and return its output."""
    result = interpret(body, arrays, scalars, **how)
    assert result.warnings == ()
    return result.buffers[len(arrays)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_what_numpy_does(name):
    example = EXAMPLES[name]
    arrays = example.make_inputs(seed=7)
    want = np.ascontiguousarray(example.expected(arrays))
    got = execute(example.body, arrays, example.scalars, arch=example.arch, like=want)
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


def compare_with_golden(name, folder=GOLDEN):
    path = folder / f"{name}.cu"
    assert path.is_file(), f"{path.name} is missing: print body.source, read it, and add it"
    assert EXAMPLES[name].body.source == path.read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_as_it_was_last_read(name):
    compare_with_golden(name)


def test_a_golden_file_that_is_missing_or_differs_fails(tmp_path):
    with pytest.raises(AssertionError, match=r"pooled\.cu is missing"):
        compare_with_golden("pooled", tmp_path)
    (tmp_path / "pooled.cu").write_text(EXAMPLES["pooled"].body.source + " ")
    with pytest.raises(AssertionError):
        compare_with_golden("pooled", tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "pooled.cu"]


def test_every_golden_file_belongs_to_an_example():
    assert {p.stem for p in GOLDEN.glob("*.cu")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_assembles(name):
    example = EXAMPLES[name]
    cubin = assemble(compile_ptx(example.body.source, arch=example.arch, name=f"{name}.cu"))
    assert cubin.arch == example.arch
    assert "spill" not in cubin.log or "0 bytes spill stores, 0 bytes spill loads" in cubin.log


MUTANTS = {
    "static_shared": [
        ("sm_ptr[tx] = A_ptr[tx]", "sm_ptr[tx ^ 1] = A_ptr[tx]"),
        ("sm_ptr[tx] * 2.0f", "sm_ptr[127 - tx] * 2.0f"),
    ],
    "dynamic_shared": [("    __syncthreads();\n", ""), ("smem_ptr[tx + 64]", "smem_ptr[tx + 63]")],
    "pooled": [("(5 ^ (tx & 7))", "(4 ^ (tx & 7))"), ("    __syncthreads();\n", "")],
    "registers": [("r_ptr[3] = A_ptr[tx * 4 + 3]", "r_ptr[3] = A_ptr[tx * 4 + 2]")],
    "scalar_loop": [("phase_ptr[0] < 4", "phase_ptr[0] < 3"), ("phase_ptr[0] < 4", "phase_ptr[0] < 5")],
    "device_function": [("__fmul_rn(*p, *p)", "__fmul_rn(*p, 2.0f)")],
    "vectorised": [("(B_ptr + tx * 4)", "(B_ptr + tx * 4 + 1)")],
    "guarded_by_let": [("if (start < n)", "if (start <= n)")],
    "shared_scalar": [("    __syncthreads();\n", "")],
    "tmem_by_hand": [("<< 21", "<< 20"), ('    asm volatile("tcgen05.wait::st.sync.aligned;" : : : "memory");\n', "")],
    "tmem_by_pool": [("tmem_base + ((unsigned int)warp << 21) + 40u", "tmem_base + ((unsigned int)warp << 21) + 60u")],
}


@pytest.mark.parametrize(("name", "old", "new"), [(n, a, b) for n, found in MUTANTS.items() for a, b in found])
def test_a_broken_example_is_caught_by_the_interpreter_or_by_numpy(name, old, new):
    example = EXAMPLES[name]
    assert old in example.body.source
    arrays = example.make_inputs(seed=7)
    want = np.ascontiguousarray(example.expected(arrays))
    broken = example.body.source.replace(old, new, 1)
    try:
        got = execute(example.body, arrays, example.scalars, arch=example.arch, like=want, source=broken)
    except FindingError:
        return
    assert not np.array_equal(got, want)


def test_the_inferred_swizzle_costs_no_excess_wavefront_and_a_dense_tile_does():
    example = EXAMPLES["pooled"]
    arrays = example.make_inputs(seed=2)
    want = np.ascontiguousarray(example.expected(arrays))
    result = interpret(example.body, arrays, (), arch=example.arch, like=want)
    assert result.total("excess", opcode="shared") == 0
    assert result.total("wavefronts", opcode="st.shared") == 2 * 8 * 4
    dense = re.sub(r"\((\d) \^ \(tx & 7\)\) \* 8", r"\1 * 8", example.body.source.replace("(tx & 7) * 8) =", "0) ="))
    dense = dense.replace("((tx >> 3) ^ (r & 7)) * 8 + (tx & 7)", "tx")
    result = interpret(example.body, arrays, (), arch=example.arch, like=want, source=dense)
    assert np.array_equal(result.buffers[1], want)
    assert result.total("excess", opcode="st.shared") > 0


def test_a_smaller_launch_than_the_arena_is_refused():
    example = EXAMPLES["dynamic_shared"]
    arrays = example.make_inputs(seed=1)
    with pytest.raises(FindingError, match="bounds"):
        execute(example.body, arrays, (), arch="sm_90", like=example.expected(arrays), count=511)


def test_every_example_has_mutants_and_scalars_for_its_parameters():
    assert set(MUTANTS) == set(EXAMPLES)
    for example in EXAMPLES.values():
        assert len(example.scalars) == sum(isinstance(p, ScalarParam) for p in example.body.params)
