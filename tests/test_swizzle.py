"""Swizzles of addresses: the formula, its laws, its units, and the public questions asked about them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutalg.errors import NotationError, NotExpressibleError, RangeError
from layoutalg.f2 import F2Map
from layoutalg.swizzle import Swizzle, row_xor, straddlers


def moved(bits: int, base: int, shift: int, address: int) -> int:
    """The definition, bit by bit."""
    digits = [address >> k & 1 for k in range(60)]
    out = list(digits)
    for k in range(bits):
        source, target = (base + shift + k, base + k) if shift > 0 else (base + k, base - shift + k)
        out[target] ^= digits[source]
    return sum(bit << k for k, bit in enumerate(out))


@st.composite
def swizzles(draw: st.DrawFn, *, involutions: bool = False) -> Swizzle:
    bits = draw(st.integers(0, 4))
    shift = draw(st.integers(max(bits if involutions else 1, 1), 6)) * draw(st.sampled_from([1, -1]))
    return Swizzle(bits, draw(st.integers(0, 5)), shift)


@given(swizzles(), st.integers(0, 1 << 20))
def test_apply_xors_the_bits_that_the_definition_names(swizzle: Swizzle, address: int) -> None:
    expected = moved(swizzle.bits, swizzle.base, swizzle.shift, address)
    assert swizzle.apply(address) == expected
    inner = swizzle.swizzle_inner
    q, low = address >> swizzle.per_element, address & ((1 << swizzle.per_element) - 1)
    mask = (1 << swizzle.swizzle_len) - 1
    q ^= (q >> swizzle.atom_len) & mask if inner else (q & mask) << swizzle.atom_len
    assert q << swizzle.per_element | low == expected


@settings(max_examples=60, deadline=None)
@given(swizzles(), st.sampled_from([np.int64, np.int32, np.uint16, np.uint64]), st.data())
def test_arrays_and_single_addresses_agree(swizzle: Swizzle, kind: Any, data: st.DataObject) -> None:
    addresses = np.array(
        data.draw(st.lists(st.integers(0, 65535 if kind != np.int32 else 30000), max_size=40)), dtype=kind
    )
    before = addresses.copy()
    result = swizzle.apply(addresses)
    assert result.dtype == np.int64
    assert result.tolist() == [swizzle.apply(int(a)) for a in addresses]
    assert (addresses == before).all()


def test_an_array_can_be_swizzled_in_place() -> None:
    addresses = np.arange(4096)
    expected = [moved(3, 3, 3, a) for a in range(4096)]
    assert Swizzle(3, 3, 3).apply(addresses, out=addresses) is addresses
    assert addresses.tolist() == expected


@given(swizzles(involutions=True), st.integers(0, 1 << 16))
def test_a_swizzle_with_shift_at_least_bits_is_its_own_inverse(swizzle: Swizzle, address: int) -> None:
    assert swizzle.is_involution
    assert swizzle.inverse().apply(swizzle.apply(address)) == address


@given(swizzles(), st.integers(0, 1 << 10), st.integers(0, 5))
def test_the_pattern_repeats_after_its_period_and_every_swizzle_is_a_bijection_of_it(
    swizzle: Swizzle, address: int, times: int
) -> None:
    shift = times * swizzle.period
    assert swizzle.apply(address + shift) == swizzle.apply(address) + shift
    assert F2Map.from_swizzle(swizzle).is_invertible


@given(swizzles())
def test_no_smaller_power_of_two_is_a_period(swizzle: Swizzle) -> None:
    if swizzle.is_identity:
        assert swizzle.period == 1
        return
    half = swizzle.period // 2
    everywhere = np.arange(swizzle.period)
    assert (swizzle.apply(everywhere + half) != swizzle.apply(everywhere) + half).any()


def test_a_short_shift_has_a_linear_inverse_that_is_no_swizzle() -> None:
    swizzle = Swizzle(3, 0, 1)
    with pytest.raises(NotExpressibleError, match="no swizzle"):
        swizzle.inverse()
    back = F2Map.from_swizzle(swizzle).inverse()
    assert [back.apply(swizzle.apply(x)) for x in range(64)] == list(range(64))
    with pytest.raises(NotExpressibleError):
        back.to_swizzle()


@given(swizzles(), st.sampled_from([4, 6, 8, 16, 32, 64]), st.sampled_from([4, 6, 8, 16, 32, 64]), st.integers(0, 4000))
def test_recast_moves_the_same_memory_or_refuses(swizzle: Swizzle, source: int, target: int, where: int) -> None:
    ratio = max(source, target) // min(source, target)
    try:
        recast = swizzle.recast(source, target)
    except NotExpressibleError:
        straddles = max(source, target) % min(source, target) != 0 or ratio & (ratio - 1) != 0
        torn = target > source and 1 << swizzle.base < ratio
        assert straddles or torn
        return
    if target >= source:
        assert recast.apply(where) * ratio == swizzle.apply(where * ratio)
    else:
        assert recast.apply(where * ratio) == swizzle.apply(where) * ratio
    assert recast.recast(target, source) == swizzle


def test_base_alignment_is_where_software_and_hardware_swizzles_agree() -> None:
    assert Swizzle(3, 3, 3).base_alignment("f16") == 1024
    assert Swizzle(3, 4, 3).base_alignment("u8") == 1024
    assert Swizzle(3, 5, 3).base_alignment("float4_e2m1fn") == 1024
    assert Swizzle(0, 3, 3).base_alignment("f32") == 4
    assert Swizzle(3, 3, 3).base_alignment("float6_e2m3fn") == 384


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Swizzle(3, 3, 0), "shift 0"),
        (lambda: Swizzle(-1, 3, 3), "cannot be negative"),
        (lambda: Swizzle(3, -3, 3), "cannot be negative"),
        (lambda: Swizzle(30, 3, 30), "address bits"),
        (lambda: Swizzle(3, 3), "needs bits, base and shift"),
        (lambda: Swizzle(3, 3, 3, atom_len=3), "not both"),
        (lambda: Swizzle(per_element=3, swizzle_len=3, atom_len=-3), "swizzle_inner=False"),
        (lambda: Swizzle(3, True, 3), "must be an integer"),
        (lambda: Swizzle(3, 3.0, 3), "must be an integer"),  # type: ignore[arg-type]
        (lambda: Swizzle(3, 3, 3).apply(-1), "starts? at 0"),
        (lambda: Swizzle(3, 3, 3).apply(np.array([3, -2])), "-2 is negative"),
        (lambda: Swizzle(3, 3, 3).apply(np.array([0.5])), "integers"),
        (lambda: Swizzle(3, 3, 3).recast(0, 8), "at least one bit"),
        (lambda: row_xor(0, 4), "at least 1"),
        (lambda: row_xor(4, 4, chunk_elements=3), "power of two"),
    ],
)
def test_misuse_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(RangeError, match=says):
        make()


def test_both_spellings_text_and_pickle_give_the_same_value() -> None:
    swizzle = Swizzle(2, 4, -3)
    assert Swizzle(per_element=4, swizzle_len=2, atom_len=3, swizzle_inner=False) == swizzle
    assert str(swizzle) == "Sw<2,4,-3>"
    assert Swizzle.parse(str(swizzle)) == Swizzle.parse("Swizzle< 2, 4, -3 >") == swizzle
    assert eval(repr(swizzle)) == swizzle == pickle.loads(pickle.dumps(swizzle))
    for text in ("Sw<3,3>", "Sw<3,3,3> o S[8]", "3,3,3"):
        with pytest.raises(NotationError):
            Swizzle.parse(text)


@given(st.integers(1, 20), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 8]))
def test_row_xor_permutes_the_chunks_of_every_row(rows: int, chunks: int, size: int) -> None:
    swizzle = row_xor(rows, chunks, chunk_elements=size)
    for row in range(rows):
        for chunk in range(chunks):
            place = swizzle.apply((row * chunks + chunk) * size)
            assert place == (row * chunks + (chunk ^ row % chunks)) * size


def test_row_xor_over_a_row_that_is_no_power_of_two_says_what_would_escape() -> None:
    with pytest.raises(NotExpressibleError, match="chunk 8 of row 4 goes to chunk 12 of a row of 12") as caught:
        row_xor(8, 12)
    facts = caught.value.facts
    assert (facts["out_of_row"], facts["out_of_tile"], facts["distinct"]) == (16, 4, 84)
    with pytest.raises(NotExpressibleError, match="no bit of the offset"):
        row_xor(2, 6)
    assert row_xor(1, 12).is_identity


def test_elements_that_straddle_a_chunk_are_named() -> None:
    assert straddlers("float6_e2m3fn", chunk_bytes=16, region_bytes=128) == (21, 42, 85, 106, 149)
    assert straddlers("float16", chunk_bytes=16, region_bytes=128) == ()
    with pytest.raises(NotExpressibleError, match="straddle the pieces of 128 bits"):
        Swizzle(3, 4, 3).recast(8, 6)
