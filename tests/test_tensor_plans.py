"""Whole-tensor requests: fusion against brute force, choices, claims, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_cuda import PlanError, permute_tensor
from codegen_cuda.tensor.choose import STRATEGIES, candidates, choose, widen
from codegen_cuda.tensor.plan import TensorPlan, divisor_bytes, even_split
from codegen_cuda.tensor.problem import fuse, layouts_of_permutation, pose_tensor, strided_layout
from codegen_cuda.tensor.text import Permuter, linear
from layoutalg import R, S, TileLayout
from layoutalg.axis import laneid


def posed(shape, perm, dtype="f32"):
    return pose_tensor(*layouts_of_permutation(shape, perm), shape=shape, dtype_name=dtype, perm=perm)


def visited(dims) -> set[tuple[int, int]]:
    """The pairs of places that a loop nest visits, by running it."""
    return {
        (
            sum(i * d.src for i, d in zip(index, dims, strict=True)),
            sum(i * d.dst for i, d in zip(index, dims, strict=True)),
        )
        for index in itertools.product(*(range(d.extent) for d in dims))
    }


@st.composite
def permutations(draw):
    rank = draw(st.integers(1, 5))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=rank, max_size=rank)))
    return shape, tuple(draw(st.permutations(range(rank))))


@given(permutations())
def test_fused_loops_visit_exactly_the_pairs_of_the_permutation(case):
    shape, perm = case
    numbers = np.arange(math.prod(shape)).reshape(shape)
    expected = {(int(src), dst) for dst, src in enumerate(numbers.transpose(perm).reshape(-1))}
    dims = fuse(*layouts_of_permutation(shape, perm))
    assert visited(dims) == expected
    assert all(d.extent > 1 for d in dims)


@given(permutations())
def test_fused_loops_are_sorted_and_no_two_neighbours_fuse(case):
    dims = fuse(*layouts_of_permutation(*case))
    assert [d.dst for d in dims] == sorted((d.dst for d in dims), reverse=True)
    for outer, inner in itertools.pairwise(dims):
        assert not (outer.src == inner.extent * inner.src and outer.dst == inner.extent * inner.dst)


@given(permutations(), st.sampled_from(["u8", "f16", "f32", "f64", "c128"]))
def test_widened_loops_move_the_same_bytes(case, dtype):
    problem = posed(*case, dtype)
    units = widen(problem)

    def bytes_of(p):
        return {(s * p.width + k, d * p.width + k) for s, d in visited(p.dims) for k in range(p.width)}

    assert bytes_of(problem) == bytes_of(units)
    assert units.width >= problem.width


@given(permutations(), st.sampled_from(["u8", "f16", "f32", "f64", "c128"]))
def test_boxes_of_every_candidate_cover_the_loops(case, dtype):
    units = widen(posed(*case, dtype))
    for plan in candidates(units):
        assert plan.strategy in STRATEGIES
        assert plan.threads <= 1024
        assert plan.shared_bytes <= 227 * 1024
        for d, x, count in zip(units.dims, plan.box, plan.counts, strict=True):
            assert x >= 1
            assert count * x >= d.extent


def test_the_claim_names_both_layouts_and_leaves_the_rest_untouched():
    kernel = permute_tensor(
        (4, 6), src=TileLayout(S[(4, 6) : (8, 1)]) + 3, dst=TileLayout(S[(4, 6) : (1, 5)]), dtype="f64"
    )
    claim = kernel.claim
    assert claim.frame == "untouched"
    assert [(b.first, b.count, b.align) for b in claim.params] == [(3, 30, 8), (0, 29, 16)]
    assert claim.moves[0].source.layout == "S[(4,6):(8,1)] + 3"
    claim.check_bounds()


def test_equal_requests_give_equal_sources_and_names_tell_layouts_apart():
    first, again = (permute_tensor((40, 50), (1, 0), "f16") for _ in range(2))
    assert first.source == again.source
    padded = permute_tensor((40, 50), src=strided_layout((40, 50), (56, 1)), dst=first.problem.destination, dtype="f16")
    assert padded.name != first.name


@pytest.mark.parametrize(
    ("rule", "request_"),
    [
        ("perm", lambda: permute_tensor((2, 3), (0, 0), "f32")),
        ("perm", lambda: permute_tensor((2, 3), (0,), "f32")),
        ("perm", lambda: permute_tensor((2, 3), "10", "f32")),
        ("perm", lambda: permute_tensor((2, 3), (-1, 0), "f32")),
        ("perm", lambda: permute_tensor((2, 3), (True, False), "f32")),
        ("shape", lambda: permute_tensor((2, 0), (1, 0), "f32")),
        ("shape", lambda: permute_tensor((2, 1.5), (1, 0), "f32")),
        ("shape", lambda: permute_tensor(6, (0,), "f32")),
        ("shape", lambda: permute_tensor((5,), src=TileLayout(S[6]), dst=TileLayout(S[6]), dtype="f32")),
        ("rank", lambda: permute_tensor((2,) * 9, tuple(range(9)), "f32")),
        ("dtype", lambda: permute_tensor((2, 3), (1, 0), "float4_e2m1fn")),
        ("dtype", lambda: permute_tensor((2, 3), (1, 0), "object")),
        ("dtype", lambda: permute_tensor((2, 3), (1, 0))),
        ("form", lambda: permute_tensor((2, 3), dtype="f32")),
        ("form", lambda: permute_tensor((6,), src=TileLayout(S[6]), dtype="f32")),
        ("form", lambda: permute_tensor((6,), (0,), "f32", src=TileLayout(S[6]), dst=TileLayout(S[6]))),
        ("injective", lambda: permute_tensor((6,), src=TileLayout(S[6]), dst=TileLayout(S[6:0]), dtype="f32")),
        ("injective", lambda: two_layouts(S[(4, 6) : (6, 1)], S[(4, 6) : (3, 1)])),
        ("stride", lambda: two_layouts(S[(4, 6) : (6, 1)], S[(4, 6) : (-6, 1)])),
        ("replica", lambda: two_layouts(S[(4, 6) : (6, 1)] + R[2:24], S[(4, 6) : (6, 1)])),
        ("axis", lambda: two_layouts(S[(4, 6) : (6 @ laneid, 1)], S[(4, 6) : (6, 1)])),
        ("digits", lambda: two_layouts(S[(4, 6) : (1, 4)], S[(6, 4) : (1, 6)])),
        ("alignment", lambda: permute_tensor((2, 3), (1, 0), "f32", align=(2, 16))),
        ("strategy", lambda: permute_tensor((2, 3), (1, 0), "f32", strategy="magic")),
        ("strategy", lambda: permute_tensor((64, 64), (1, 0), "f32", strategy="rows")),
        ("size", lambda: two_layouts(S[(4, 6) : (1 << 46, 1)], S[(4, 6) : (6, 1)])),
    ],
)
def test_a_wrong_request_is_refused_by_its_rule(rule, request_):
    with pytest.raises(PlanError) as caught:
        request_()
    assert caught.value.facts["rule"] == rule
    assert "permute_tensor" in str(caught.value)


def two_layouts(source, destination):
    return permute_tensor((24,), src=TileLayout(source), dst=TileLayout(destination), dtype="f32")


def test_a_destination_whose_strides_interleave_without_meeting_is_served():
    kernel = permute_tensor((2, 3), src=TileLayout(S[2, 3]), dst=TileLayout(S[(2, 3) : (3, 2)]), dtype="f32")
    assert kernel.claim.buffer("dst").count == 8


def test_more_blocks_than_a_grid_holds_are_refused():
    with pytest.raises(PlanError) as caught:
        TensorPlan("rows", 256, (1, 1), (1 << 20, 1 << 20), (1, 0))
    assert caught.value.facts["rule"] == "grid"


@given(st.integers(1, 10**6), st.integers(1, 300), st.sampled_from([1, 2, 4, 8, 16]))
def test_even_splits_are_whole_units_and_never_far_over_the_target(extent, target, unit):
    x = even_split(extent, target, unit)
    assert x % unit == 0
    assert 0 < x < target + unit


@given(st.lists(st.integers(0, 10**9)))
def test_the_common_power_of_two_divides_everything(values):
    found = divisor_bytes(*values)
    assert found in (1, 2, 4, 8, 16)
    assert all(v % found == 0 for v in values)
    assert found == 16 or any(v % (2 * found) for v in values)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=4))
def test_words_are_put_together_from_any_bytes(sources):
    words = {f"w{k}": int.from_bytes(bytes(4 * k + b for b in range(4)), "little") for k in range(4)}
    permuter = Permuter()
    text = permuter.word([(f"w{k}", b) for k, b in sources])
    names = dict(words)
    for line in permuter.lines:
        name, expression = line.removeprefix("const u32 ").removesuffix(";").split(" = ", 1)
        names[name] = evaluate(expression, names)
    assert evaluate(text, names).to_bytes(4, "little") == bytes(4 * k + b for k, b in sources)


def evaluate(expression: str, names: dict[str, int]) -> int:
    """The meaning of prmt without its sign mode, from the eight bytes of two words."""
    if expression in names:
        return names[expression]
    first, second, selector = expression.removeprefix("__byte_perm(").removesuffix(")").split(", ")
    source = names[first].to_bytes(4, "little") + names[second].to_bytes(4, "little")
    return int.from_bytes(bytes(source[int(selector, 16) >> 4 * k & 7] for k in range(4)), "little")


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 45)), min_size=1, max_size=4))
def test_sums_of_products_are_wide_exactly_where_they_could_wrap(terms):
    text = linear([(f"v{k}", most, factor) for k, (most, factor) in enumerate(terms)])
    assert ("ull" in text or "(u64)" in text) == (sum(m * f for m, f in terms) >= 1 << 32)


def test_strategies_that_fit_come_before_those_that_serve_everything():
    for case in [((64, 64), (1, 0)), ((512, 3), (1, 0)), ((8, 8, 64), (1, 0, 2)), ((3, 5, 7), (2, 1, 0))]:
        plans = list(candidates(widen(posed(*case, "u8"))))
        assert plans[-1].strategy in ("boxes", "rows")
        assert choose(widen(posed(*case, "u8"))) == plans[0]
