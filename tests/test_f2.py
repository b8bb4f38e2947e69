"""Linear maps of address bits against plain enumeration of all vectors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg.errors import NotationError, NotExpressibleError, RangeError
from layoutalg.f2 import (
    F2Map,
    common_complement,
    complement,
    contains,
    joint_transversal,
    quotient,
    rank,
    reduced,
)
from layoutalg.swizzle import Swizzle


def span(vectors: tuple[int, ...]) -> set[int]:
    out = {0}
    for vector in vectors:
        out |= {vector ^ other for other in out}
    return out


def maps(in_bits: int, out_bits: int) -> st.SearchStrategy[F2Map]:
    columns = st.lists(st.integers(0, (1 << out_bits) - 1), min_size=in_bits, max_size=in_bits)
    return columns.map(lambda values: F2Map(tuple(values), out_bits))


vectors = st.lists(st.integers(0, 31), max_size=6).map(tuple)


@given(maps(5, 4))
def test_a_map_is_linear_and_its_rank_kernel_and_image_count_what_enumeration_counts(f: F2Map) -> None:
    values = [f.apply(x) for x in range(32)]
    assert all(values[x ^ y] == values[x] ^ values[y] for x in range(32) for y in (1, 2, 4, 8, 16, 21))
    assert f.apply(np.arange(32)).tolist() == values
    assert 1 << f.rank == len(set(values))
    assert span(f.kernel()) == {x for x in range(32) if values[x] == 0}
    assert span(f.image()) == set(values)
    assert len(f.kernel()) + f.rank == 5


@given(maps(5, 5), maps(5, 5))
def test_composition_and_inverse_are_those_of_functions(f: F2Map, g: F2Map) -> None:
    assert [f.compose(g).apply(x) for x in range(32)] == [f.apply(g.apply(x)) for x in range(32)]
    if len({f.apply(x) for x in range(32)}) == 32:
        assert f.is_invertible
        assert f.inverse().compose(f).is_identity
        assert f.compose(f.inverse()).is_identity
    else:
        with pytest.raises(NotExpressibleError) as caught:
            f.inverse()
        assert caught.value.index
        assert f.apply(caught.value.index) == 0


@given(maps(4, 4), maps(3, 3))
def test_square_maps_of_different_width_compose_as_maps_of_addresses(f: F2Map, g: F2Map) -> None:
    for outer, inner in ((f, g), (g, f)):
        both = outer.compose(inner)
        assert [both.apply(x) for x in range(64)] == [outer.apply(inner.apply(x)) for x in range(64)]
        assert both.apply(np.arange(64)).tolist() == [both.apply(x) for x in range(64)]


@given(vectors, vectors)
def test_spans_are_compared_by_their_reduced_bases(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert 1 << rank(a) == len(span(a))
    assert span(reduced(a)) == span(a)
    assert (reduced(a) == reduced(b)) == (span(a) == span(b))
    assert all(contains(a, x) == (x in span(a)) for x in range(32))
    rest = complement(a, 5)
    assert len(span((*a, *rest))) == 32 == len(span(a)) * len(span(rest))
    f = quotient(a, 5)
    assert {x for x in range(32) if f.apply(x) == 0} == span(a)
    assert f.rank == f.out_bits == 5 - rank(a)


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, -1]))
def test_swizzles_are_linear_maps_and_come_back(bits: int, base: int, sign: int) -> None:
    for distance in range(1, 5):
        swizzle = Swizzle(bits, base, sign * distance)
        f = F2Map.from_swizzle(swizzle)
        assert [f.apply(x) for x in range(2 * swizzle.period)] == [swizzle.apply(x) for x in range(2 * swizzle.period)]
        back = f.to_swizzle()
        assert back == swizzle or (bits == 0 and back.is_identity)
        assert F2Map.parse(str(f)) == f


def test_two_swizzles_in_a_row_need_not_be_one() -> None:
    both = F2Map.from_swizzle(Swizzle(3, 0, 3)).compose(F2Map.from_swizzle(Swizzle(1, 2, 1)))
    assert [both.apply(1 << k) for k in range(8)] == [1, 2, 4, 13, 18, 36, 64, 128]
    assert both.is_invertible
    assert both.compose(both).is_identity
    with pytest.raises(NotExpressibleError, match="bit 3"):
        both.to_swizzle()


@given(maps(4, 4))
def test_a_map_that_is_no_swizzle_is_refused_only_when_no_swizzle_equals_it(f: F2Map) -> None:
    every = {
        F2Map.from_swizzle(Swizzle(b, m, s), 8).columns: (b, m, s)
        for b in range(1, 4)
        for m in range(4)
        for s in (-3, -2, -1, 1, 2, 3)
        if m + abs(s) + b <= 8
    }
    wide = F2Map((*f.columns, 16, 32, 64, 128))
    try:
        swizzle = wide.to_swizzle()
    except NotExpressibleError:
        assert wide.columns not in every
        assert not wide.is_identity
        return
    assert F2Map.from_swizzle(swizzle, 8) == wide


def test_a_byte_rule_is_recognised_as_the_swizzle_it_is() -> None:
    for bits, width in ((1, 32), (2, 64), (3, 128)):
        rule = F2Map.from_function(lambda a, w=width: a ^ (((a % (8 * w)) >> 7) << 4), 12)  # type: ignore[misc]
        assert rule.to_swizzle() == Swizzle(bits, 4, 3)
    with pytest.raises(NotExpressibleError, match="not linear") as caught:
        F2Map.from_function(lambda a: (a + 1) % 16, 4)
    assert caught.value.index == 0


@settings(max_examples=80, deadline=None)
@given(maps(7, 4), maps(7, 4), st.integers(0, 7))
def test_two_maps_always_share_a_transversal(f: F2Map, g: F2Map, dim: int) -> None:
    chosen = joint_transversal([f, g], dim)
    assert len(span(chosen)) == 1 << dim
    for h in (f, g):
        assert len({h.apply(x) for x in span(chosen)}) == 1 << min(dim, h.rank)


@settings(max_examples=60, deadline=None)
@given(st.lists(maps(4, 2), min_size=3, max_size=4), st.integers(1, 3))
def test_three_maps_share_a_transversal_exactly_when_enumeration_finds_one(family: list[F2Map], dim: int) -> None:
    def works(basis: tuple[int, ...]) -> bool:
        whole = span(basis)
        return len(whole) == 1 << dim and all(len({f.apply(x) for x in whole}) == 1 << min(dim, f.rank) for f in family)

    exists = any(works(basis) for basis in combinations(range(1, 16), dim))
    try:
        assert works(joint_transversal(family, dim))
        assert exists
    except NotExpressibleError:
        assert not exists


@given(st.lists(st.integers(1, 63), min_size=2, max_size=2), st.lists(st.integers(1, 63), min_size=2, max_size=2))
def test_two_subspaces_of_equal_dimension_have_a_common_complement(a: list[int], b: list[int]) -> None:
    if rank(a) != rank(b):
        with pytest.raises(RangeError, match="equal ones are needed"):
            common_complement([a, b], 6)
        return
    chosen = common_complement([a, b], 6)
    for subspace in (a, b):
        assert len(span((*subspace, *chosen))) == 64
        assert len(chosen) + rank(subspace) == 6


def test_three_lines_of_a_plane_have_no_common_complement() -> None:
    with pytest.raises(NotExpressibleError, match="no subspace"):
        common_complement([[1], [2], [3]], 2)


def test_misuse_is_refused() -> None:
    for make in (
        lambda: F2Map((4,), 2),
        lambda: F2Map((-1,)),
        lambda: F2Map((1, 2)).apply(-1),
        lambda: F2Map((1, 2), 3).apply(4),
        lambda: F2Map((1, 2), 3).apply(np.array([4])),
        lambda: F2Map((1, 2)).apply(np.array([0.5])),
        lambda: F2Map((1,), 2).compose(F2Map((1, 2), 3)),
        lambda: F2Map.from_swizzle(Swizzle(3, 3, 3), 4),
        lambda: joint_transversal([], 2),
        lambda: joint_transversal([F2Map((1,))], 2),
    ):
        with pytest.raises(RangeError):
            make()
    with pytest.raises(NotationError):
        F2Map.parse("F2<1,x>")
