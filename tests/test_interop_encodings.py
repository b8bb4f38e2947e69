"""Triton's encodings: recorded answers of Triton 3.9, texts both ways, layouts of the bases, refusals."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest
import triton_cases
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import LayoutError, NotationError, NotExpressibleError, SwizzledLayout, TileLayout
from layoutalg.interop.encoding_text import read_encoding, write_encoding
from layoutalg.interop.encodings import (
    Blocked,
    DotOperand,
    Linear,
    NvidiaMma,
    NvmmaShared,
    Slice,
    SwizzledShared,
    bases_of,
    from_encoding,
    to_blocked,
)
from layoutalg.interop.triton import to_linear

AXES = {"register": "m", "offset": "m", "lane": "laneid", "warp": "warpid"}


@functools.cache
def recorded() -> list[tuple[str, tuple[int, ...], dict[str, list[tuple[int, ...]]]]]:
    rows = json.loads(gzip.decompress(triton_cases.RECORD.read_bytes()))
    return [(text, tuple(shape), {n: [tuple(b) for b in r] for n, r in bases.items()}) for text, shape, bases in rows]


def test_every_recorded_encoding_has_the_bases_that_triton_gave() -> None:
    kinds = {text.split("<")[0].removeprefix("#ttg.") for text, _, _ in recorded()}
    assert kinds == {"blocked", "slice", "nvidia_mma", "dot_op", "swizzled_shared", "nvmma_shared"}
    assert len(recorded()) > 600
    for text, shape, bases in recorded():
        assert {name: rows for name, rows in bases_of(text, shape).items() if rows} == {
            name: rows for name, rows in bases.items() if rows
        }, (text, shape)


def test_the_layout_of_an_encoding_holds_every_element_where_its_bases_say() -> None:
    for text, shape, bases in recorded()[::9]:
        layout = from_encoding(text, shape)
        widths = [len(rows) for rows in bases.values()]
        if sum(widths) > 13:
            continue
        held: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for bits in itertools.product(*(range(1 << width) for width in widths)):
            element = [0] * len(shape)
            for value, rows in zip(bits, bases.values(), strict=True):
                for k, basis in enumerate(rows):
                    if value >> k & 1:
                        element = [a ^ b for a, b in zip(element, basis, strict=True)]
            held.setdefault(tuple(element), set()).add(bits)
        for element in list(held)[:: max(1, len(held) // 60)]:
            places = layout.places(*element, shape=shape)
            assert {tuple(place.get(AXES[name], 0) for name in bases) for place in places} == held[element]


def test_texts_read_back() -> None:
    for encoding, shape in triton_cases.cases(20, seed=5):
        assert read_encoding(write_encoding(encoding)) == encoding
        linear = Linear(tuple((name, tuple(rows)) for name, rows in bases_of(encoding, shape).items() if rows))
        assert read_encoding(write_encoding(linear)) == linear
        assert {n: r for n, r in bases_of(linear, shape).items() if r} == {
            n: r for n, r in bases_of(encoding, shape).items() if r
        }


def test_objects_of_gluon_are_read_by_their_fields() -> None:
    class BlockedLayout(SimpleNamespace):
        pass

    class SliceLayout(SimpleNamespace):
        pass

    blocked = {"size_per_thread": [1, 4], "threads_per_warp": [8, 4], "warps_per_cta": [4, 1], "order": [1, 0]}
    parent = BlockedLayout(**blocked, cga_layout=[])
    assert read_encoding(SliceLayout(dim=1, parent=parent)) == Slice(1, Blocked((1, 4), (8, 4), (4, 1), (1, 0)))
    with pytest.raises(NotExpressibleError, match="several blocks"):
        read_encoding(BlockedLayout(**blocked, cga_layout=[[1, 0]]))
    with pytest.raises(LayoutError, match="no encoding that is known"):
        read_encoding(SimpleNamespace())


def test_blocked_encodings_come_back_from_their_layouts() -> None:
    found = 0
    for encoding, shape in triton_cases.cases(60, seed=2):
        if isinstance(encoding, Blocked):
            layout = from_encoding(encoding, shape)
            assert isinstance(layout, TileLayout)
            if not layout.replica:
                found += 1
                again = to_blocked(layout, shape)
                assert from_encoding(again, shape).equivalent(layout)
                assert {n: r for n, r in bases_of(again, shape).items() if r} == {
                    n: r for n, r in bases_of(encoding, shape).items() if r
                }
    assert found > 5


def test_what_is_no_blocked_encoding_is_refused() -> None:
    mma = from_encoding(NvidiaMma(2, (1, 1), (16, 8)), (16, 16))
    for layout in (mma, TileLayout.parse("S[(2,128):(1@cbx,1)]"), TileLayout.parse("S[256:1] + R[2:1@warpid]")):
        assert isinstance(layout, TileLayout)
        with pytest.raises(NotExpressibleError):
            to_blocked(layout, (16, 16))
    assert to_linear(mma, (16, 16))["m"] == [(0, 1), (8, 0), (0, 8)]


def test_shared_encodings_are_swizzled_layouts() -> None:
    layout = from_encoding(SwizzledShared(8, 1, 8, (1, 0)), (64, 64))
    assert isinstance(layout, SwizzledLayout)
    expected = SwizzledLayout.parse("Sw<3,3,3> o S[64,64]")
    assert (layout.table((64, 64))["m"] == expected.table((64, 64))["m"]).all()
    tma = from_encoding(NvmmaShared(128, 16), (64, 64))
    assert (tma.table((64, 64))["m"] == expected.table((64, 64))["m"]).all()


@pytest.mark.parametrize(
    ("encoding", "shape", "error"),
    [
        (Blocked((1,), (32,), (1,), (0,)), (4, 4), LayoutError),
        (Blocked((3, 1), (8, 4), (1, 1), (1, 0)), (4, 4), LayoutError),
        (Blocked((1, 1), (8, 4), (1, 1), (1, 1)), (4, 4), LayoutError),
        (Blocked((1, 1), (8, 4), (1, 1), (1, 0)), (3, 4), LayoutError),
        (NvidiaMma(5, (4, 1), (128, 128)), (128, 128), NotExpressibleError),
        (DotOperand(1, NvidiaMma(3, (4, 1), (16, 64, 16)), 2), (64, 64), NotExpressibleError),
        (NvmmaShared(128, 16), (4, 64), LayoutError),
        (NvmmaShared(128, 16), (64, 32), LayoutError),
        (NvmmaShared(48, 16), (64, 64), LayoutError),
        (NvmmaShared(128, 16, True), (2, 64, 64), NotExpressibleError),
        (SwizzledShared(8, 1, 8, (0,)), (64, 64), LayoutError),
        (Slice(3, Blocked((1, 1), (8, 4), (1, 1), (1, 0))), (4,), LayoutError),
        ("#ttg.blocked<{sizePerThread = [1]}>", (4,), LayoutError),
        ("#ttg.padded_shared<{}>", (4,), NotationError),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 8, fp4Padded = true}>",
         (64, 128), NotExpressibleError),
    ],
)  # fmt: skip
def test_what_an_encoding_cannot_mean_is_refused(encoding: Any, shape: tuple[int, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        from_encoding(encoding, shape)


@given(st.text("#tg.blockedsice<{}>=[],0123 dimparent", max_size=40))
def test_reading_an_encoding_raises_nothing_but_layout_errors(text: str) -> None:
    for whole in (text, f"#ttg.slice<{{dim = 0, parent = {text}}}>"):
        with pytest.raises(LayoutError):
            read_encoding(whole)
