"""Whole-tensor kernels, executed for every thread by the PTX interpreter and compared with NumPy."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from tensor_oracle import DTYPES, dense, execute, wrong

from codegen_cuda.tensor import kernel_of, permute_tensor
from codegen_cuda.tensor.choose import choose, widen
from codegen_cuda.tensor.problem import layouts_of_permutation, pose_tensor, strided_layout
from codegen_cuda.tensor.tile_shape import make_shape, plan_tiles
from verify.ptx.check import check_executed
from verify.ptx.errors import FindingError
from verify.ptx.parse import parse

WIDTHS = (1, 2, 4, 8, 16)


def wrong_when_dense(kernel, shape, perm, **options) -> int:
    return wrong(kernel, shape, dense(shape), perm, dense([shape[p] for p in perm]), **options)


# Shape, permutation, and the strategy to serve it with for elements of 1, 2, 4, 8 and 16 bytes.
CASES = {
    "square": ((128, 192), (1, 0), "tiles tiles tiles tiles tiles"),
    "odd pitches": ((133, 71), (1, 0), "tiles tiles tiles tiles tiles"),
    "prime and long": ((37, 211), (1, 0), "tiles tiles tiles tiles tiles"),
    "batched": ((3, 48, 64), (0, 2, 1), "tiles tiles tiles tiles tiles"),
    "four reversed": ((48, 3, 2, 64), (3, 2, 1, 0), "tiles tiles tiles tiles tiles"),
    "joined run": ((16, 3, 2, 12, 40), (4, 2, 1, 3, 0), "tiles tiles tiles tiles tiles"),
    "thin source of 3": ((4096, 3), (1, 0), "thin thin thin thin thin"),
    "thin source of 8": ((1536, 8), (1, 0), "thin thin thin thin thin"),
    "thin destination of 3": ((3, 2048), (1, 0), "thin thin thin thin thin"),
    "thin destination of 8": ((8, 2048), (1, 0), "thin thin thin thin thin"),
    "thin and batched": ((2, 4, 1024), (0, 2, 1), "thin thin thin thin thin"),
    "rows kept": ((6, 20, 64), (1, 0, 2), "rows rows rows rows rows"),
    "odd rows kept": ((5, 7, 33), (1, 0, 2), "boxes boxes boxes rows rows"),
    "copy": ((1021,), (0,), "rows rows rows rows rows"),
    "small inner 3 kept": ((17, 9, 3), (1, 0, 2), "boxes boxes boxes boxes rows"),
    "small everything": ((7, 5, 3), (2, 0, 1), "boxes boxes boxes boxes thin"),
    "eight dimensions": ((2, 3, 2, 1, 3, 2, 2, 3), (7, 2, 5, 0, 3, 6, 1, 4), None),
    "ones": ((1, 1, 1), (2, 0, 1), "rows rows rows rows rows"),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_every_strategy_moves_every_element_and_writes_nothing_else(name, width):
    shape, perm, strategies = CASES[name]
    strategy = strategies.split()[WIDTHS.index(width)] if strategies else "auto"
    kernel = permute_tensor(shape, perm, DTYPES[width], strategy=strategy)
    assert wrong_when_dense(kernel, shape, perm) == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("shape", "perm", "pad_in", "pad_out"),
    [
        ((40, 72), (1, 0), 24, 8),
        ((37, 45), (1, 0), 3, 5),
        ((40, 64), (1, 0), 16, 1),
        ((6, 8, 40), (1, 0, 2), 8, 16),
        ((5, 6, 7), (2, 1, 0), 2, 3),
    ],
)
def test_padded_strides_are_read_and_written_where_they_lie(shape, perm, pad_in, pad_out, width):
    permuted = [shape[p] for p in perm]
    read, target = (dense([*e[:-1], e[-1] + pad]) for e, pad in ((shape, pad_in), (permuted, pad_out)))
    written = [0] * len(shape)
    for position, dim in enumerate(perm):
        written[dim] = target[position]
    kernel = permute_tensor(
        shape, src=strided_layout(shape, read), dst=strided_layout(shape, written), dtype=DTYPES[width]
    )
    assert wrong(kernel, shape, read, perm, target) == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_less_aligned_pointers_are_served(width):
    for align, shape in itertools.product({width, min(2 * width, 16)}, [(20, 34), (8, 96), (136, 4)]):
        kernel = permute_tensor(shape, (1, 0), DTYPES[width], align=(align, align)).compile()
        assert wrong_when_dense(kernel, shape, (1, 0)) == 0
        # The checker puts buffers at addresses no more aligned than the claim says.
        assert all(o.verdict.ok for o in check_executed(parse(kernel.ptx.text), kernel.claim)), kernel.plan.describe()


def test_a_tile_of_aligned_vectors_is_refuted_for_a_pointer_that_is_aligned_less():
    shape, perm = (40, 36), (1, 0)
    for align, good in ((16, True), (4, False)):
        problem = pose_tensor(
            *layouts_of_permutation(shape, perm), shape=shape, dtype_name="f32", perm=perm, align=(align, align)
        )
        tile = make_shape(problem, 0, 1, -1, (40, 36, 1))
        kernel = kernel_of(problem, plan_tiles(problem, tile)).compile()
        assert all(o.verdict.ok for o in check_executed(parse(kernel.ptx.text), kernel.claim)) is good


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("edge", [16, 32, 64, 128])
def test_blocks_may_own_pieces_of_any_edge(edge, width):
    shape, perm = (131, 67), (1, 0)
    problem = pose_tensor(*layouts_of_permutation(shape, perm), shape=shape, dtype_name=DTYPES[width], perm=perm)
    a, b = (0, 1) if problem.dims[0].src == 1 else (1, 0)
    tile = make_shape(problem, a, b, -1, (64, 64, 1), edge=edge, force_edge=True)
    assert wrong_when_dense(kernel_of(problem, plan_tiles(problem, tile)), shape, perm) == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_strides_without_any_run_are_served(width):
    shape, read, written = (5, 3, 7), (70, 23, 3), (3, 2 * 25, 2 * 90)
    kernel = permute_tensor(
        shape, src=strided_layout(shape, read), dst=strided_layout(shape, written), dtype=DTYPES[width]
    )
    assert wrong(kernel, shape, read, (0, 1, 2), written) == 0


def test_a_broadcast_source_repeats_its_elements():
    source, destination = strided_layout((6, 40), (0, 1)), strided_layout((6, 40), (1, 6))
    kernel = permute_tensor((6, 40), src=source, dst=destination, dtype="u16")
    memory, _, after, _ = execute(kernel)
    assert (after.reshape(40, 6) == memory[:, None]).all()


@pytest.mark.parametrize("strategy", ["rows", "thin", "tiles", "boxes"])
def test_the_boxes_serve_what_every_other_strategy_serves(strategy):
    shape, perm = {
        "rows": ((6, 5, 32), (1, 0, 2)),
        "thin": ((1024, 4), (1, 0)),
        "tiles": ((40, 64), (1, 0)),
        "boxes": ((7, 3, 5), (2, 0, 1)),
    }[strategy]
    for wanted in (strategy, "boxes"):
        kernel = permute_tensor(shape, perm, "u16", strategy=wanted)
        assert kernel.plan.strategy == wanted
        assert wrong_when_dense(kernel, shape, perm) == 0


def test_kernels_satisfy_the_checker_that_reads_only_their_claims():
    for shape, perm, kind in [((64, 80), (1, 0), "u8"), ((1024, 3), (1, 0), "f32"), ((7, 5, 3), (2, 0, 1), "f16")]:
        kernel = permute_tensor(shape, perm, kind).compile()
        assert all(o.verdict.ok for o in check_executed(parse(kernel.ptx.text), kernel.claim)), kernel.name


# -- mutants: each changes one thing in the source, and the comparison or the interpreter must object ----------------

MUTANTS = {
    "a barrier is dropped": (r"__syncthreads\(\);", ""),
    "a guard admits one row more": (r"(o\d) \+ (\w+|\w+ \* \d+u) < (\d+)u", r"\1 + \2 < \3u + 1u"),
    "a group starts elsewhere": (r"(b / \d+u\)) \* (\d+)u", r"\1 * \2u + 16u"),
    "bytes are taken from another row": (r"__byte_perm\(r0, r1", "__byte_perm(r1, r0"),
    "an output row is skipped": (r"\*\(uint4\*\)\(to \+ 64u\)", "*(uint4*)(to + 128u)"),
    "the source is read further on": (r"\(src_base \+ \(", "(src_base + 16ull + ("),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutated_kernel_is_caught(name):
    shapes = {"a guard admits one row more": (272, 1040), "an output row is skipped": (64, 528)}
    shape, perm = shapes.get(name, (300, 64)), (1, 0)
    pattern, replacement = MUTANTS[name]
    kernel = permute_tensor(shape, perm, "u8", strategy="tiles")
    mutant, count = re.subn(pattern, replacement, kernel.source)
    assert count, kernel.source
    try:
        differing = wrong_when_dense(kernel, shape, perm, source=mutant)
    except FindingError:
        return  # the interpreter objects: out of bounds, a race, a read of what nobody wrote
    assert differing > 0


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_permutation_of_small_tensors_of_every_rank(width):
    rng = np.random.default_rng(width)
    for rank in (2, 3, 4):
        for perm in itertools.permutations(range(rank)):
            for _ in range(2):
                shape = tuple(int(e) for e in rng.integers(1, (0, 0, 70, 24, 12)[rank], rank))
                kernel = permute_tensor(shape, perm, DTYPES[width])
                assert wrong_when_dense(kernel, shape, perm) == 0, (shape, perm, kernel.plan.describe())


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_candidate_of_ragged_tensors(width):
    from codegen_cuda.tensor.choose import candidates

    for shape, perm in [
        ((197, 149), (1, 0)),
        ((3, 61, 83), (0, 2, 1)),
        ((64, 7, 96), (2, 1, 0)),
        ((5, 9, 50), (1, 0, 2)),
    ]:
        problem = pose_tensor(*layouts_of_permutation(shape, perm), shape=shape, dtype_name=DTYPES[width], perm=perm)
        for plan in candidates(widen(problem)):
            assert wrong_when_dense(kernel_of(problem, plan), shape, perm) == 0, plan.describe()


def test_huge_tensors_are_planned_in_64_bits():
    huge = pose_tensor(
        *layouts_of_permutation((1 << 17, 1 << 16), (1, 0)), shape=(1 << 17, 1 << 16), dtype_name="f32", perm=(1, 0)
    )
    source = kernel_of(huge, choose(huge)).source
    assert "(u64)o" in source
    longest = max(int(c) for c in re.findall(r"\b(\d+)u\b", source))
    assert longest < 1 << 32
