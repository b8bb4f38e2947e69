"""Other packages, where they are installed: what they compute is what ours compute after conversion, and back.

``pip install -e ".[test,interop]"`` brings them; none needs a GPU.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import triton_cases

from layoutalg import NotExpressibleError, Swizzle, SwizzledLayout, TileLayout
from layoutalg.interop.cute import from_cute, to_cute, to_cute_tuples
from layoutalg.interop.encodings import bases_of, from_encoding, to_blocked
from layoutalg.interop.strides import from_array, from_placements, to_placements, to_strides
from layoutalg.interop.tirx import from_tirx, to_tirx
from layoutalg.interop.triton import from_linear, to_linear


def trees(count: int, seed: int, *, low: int = -5) -> Iterator[tuple[Any, Any]]:
    """Congruent nested shapes and strides of CuTe."""
    rng = random.Random(seed)

    def tree(depth: int) -> tuple[Any, Any]:
        if depth == 0 or rng.random() < 0.5:
            return rng.randint(1, 5), rng.randint(low, 20)
        parts = [tree(depth - 1) for _ in range(rng.randint(1, 3))]
        return tuple(part[0] for part in parts), tuple(part[1] for part in parts)

    while count:
        shape, stride = tree(2)
        if isinstance(shape, tuple) and math.prod(flat(shape)) <= 400:
            count -= 1
            yield shape, stride


def flat(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for part in tree for leaf in flat(part)]


def values(layout: TileLayout | SwizzledLayout) -> list[int]:
    return [layout.apply(i).get("m", 0) for i in range(layout.size)]


def swizzles() -> Iterator[tuple[int, int, int]]:
    return ((b, m, s) for b, m, s in itertools.product(range(4), range(4), (3, 4, -3)) if abs(s) >= b)


def test_tensor_layouts_computes_the_same_function_of_the_index_from_objects_and_from_our_tuples() -> None:
    peer = pytest.importorskip("tensor_layouts")
    for shape, stride in trees(150, seed=1):
        theirs = peer.Layout(shape, stride)
        ours = from_cute(theirs)
        assert isinstance(ours, TileLayout)
        assert values(ours) == [theirs(i) for i in range(ours.size)] == values(from_cute(shape, stride))
        back = peer.Layout(*to_cute_tuples(ours))
        assert [back(i) for i in range(ours.size)] == values(ours)


def test_tensor_layouts_swizzles_as_ours_do() -> None:
    peer = pytest.importorskip("tensor_layouts")
    for (bits, base, shift), offset in itertools.product(swizzles(), (0, 5)):
        tile = peer.Layout((8, 16), (16, 1))
        theirs = peer.ComposedLayout(peer.Swizzle(bits, base, shift), tile, offset=offset)
        ours = from_cute(theirs)
        assert values(ours) == [theirs(i) for i in range(128)]
        again = from_cute(to_cute(ours))
        assert values(again) == values(ours)


def test_pycute_computes_the_same_function_and_reads_our_text_back() -> None:
    peer = pytest.importorskip("pycute")
    for shape, stride in trees(150, seed=2, low=0):
        theirs = peer.Layout(shape, stride)
        for ours in (from_cute(theirs), from_cute(str(theirs)), from_cute(shape, stride)):
            assert isinstance(ours, TileLayout)
            assert values(ours) == [theirs(i) for i in range(ours.size)]
    for bits, base, shift in swizzles():
        composed = peer.ComposedLayout(peer.Swizzle(bits, base, shift), 3, peer.Layout((16, 8), (1, 16)))
        for ours in (from_cute(composed), from_cute(str(composed))):
            assert values(ours) == [composed(i) for i in range(128)]


def tirx_layouts(peer: Any, count: int) -> Iterator[tuple[Any, TileLayout]]:
    rng = random.Random(3)
    names = ("m", "laneid", "warpid")
    for _ in range(count):
        triples = [
            [(rng.randint(1, 5), rng.randint(-6, 20), rng.choice(names)) for _ in range(n)]
            for n in (rng.randint(1, 3), rng.randint(0, 2))
        ]
        offset = {name: rng.randint(1, 9) for name in names if rng.random() < 0.3}
        ours = TileLayout.from_iters(shard=triples[0], replica=triples[1], offset=offset)
        on = [[(e, s, peer.Axis.get(a)) for e, s, a in part] for part in triples]
        theirs = peer.TileLayout.from_iters(
            shard=[peer.Iter(*it) for it in on[0]],
            replica=[peer.Iter(*it) for it in on[1]],
            offset={peer.Axis.get(a): v for a, v in offset.items()},
        )
        yield theirs, ours


def test_tirx_objects_are_read_and_evaluate_as_ours_do() -> None:
    peer = pytest.importorskip("tvm_tirx.tirx.layout")
    for theirs, ours in tirx_layouts(peer, 60):
        read = from_tirx(theirs)
        assert read == ours
        assert from_tirx(to_tirx(read)) == read
        for index in range(0, ours.size, 3):
            found = {name: int(value) for name, value in theirs.apply(index, shape=[ours.size]).items()}
            place = ours.apply(index)
            assert all(found.get(axis, 0) == place.get(axis, 0) for axis in {*found, *place})


def test_tirx_swizzles_are_spelled_and_evaluated_alike() -> None:
    peer = pytest.importorskip("tvm_tirx.tirx.layout")
    for bits, base, shift in ((3, 3, 3), (2, 3, 3), (1, 3, 3), (2, 2, 4)):
        # TIRx counts (kept low bits, swizzled bits, distance).
        theirs = peer.ComposeLayout(base, bits, shift, peer.TileLayout(peer.S[(32, 32) : (32, 1)]))
        read = from_tirx(theirs)
        assert read == SwizzledLayout(Swizzle(bits, base, shift), TileLayout.parse("S[(32,32):(32,1)]"))
        for index in range(0, 1024, 7):
            assert int(theirs.apply(index, shape=[1024])["m"]) == read.apply(index)["m"]


def test_triton_gives_the_bases_that_ours_give_for_every_kind_of_encoding() -> None:
    pytest.importorskip("triton")
    for encoding, shape in triton_cases.cases(40, seed=7):
        theirs, ours = triton_cases.triton_bases(encoding, shape), bases_of(encoding, shape)
        assert {n: r for n, r in theirs.items() if r} == {n: r for n, r in ours.items() if r}, (encoding, shape)
        assert bases_of(triton_cases.as_gluon(encoding, len(shape)), shape) == ours


def test_triton_applies_bases_as_our_layouts_place_elements() -> None:
    pytest.importorskip("triton")
    from triton._C.libtriton.linear_layout import LinearLayout

    for encoding, shape in triton_cases.cases(6, seed=9):
        bases = {name: rows for name, rows in bases_of(encoding, shape).items() if rows}
        layout = from_encoding(encoding, shape)
        dims = [f"dim{k}" for k in range(len(shape))]
        theirs = LinearLayout.from_bases(
            [(name, [list(b) for b in rows]) for name, rows in bases.items()], dims, list(shape), True
        )
        names = {"register": "m", "offset": "m", "lane": "laneid", "warp": "warpid"}
        rng = random.Random(1)
        for _ in range(20):
            hardware = {name: rng.randrange(1 << len(rows)) for name, rows in bases.items()}
            element = theirs.apply(hardware)
            places = layout.places(*(element[dim] for dim in dims), shape=shape)
            assert {names[name]: value for name, value in hardware.items() if value} in [
                {axis: value for axis, value in place.items() if value} for place in places
            ]


def test_triton_reads_the_bases_and_the_blocked_encodings_that_we_write() -> None:
    pytest.importorskip("triton")
    import triton.experimental.gluon.language as gl

    layout = TileLayout.parse("S[(4,32,4):(1@warpid,1@laneid,1)]")
    found = to_linear(layout, (32, 16))
    linear = gl.DistributedLinearLayout(
        [list(b) for b in found["m"]],
        [list(b) for b in found["laneid"]],
        [list(b) for b in found["warpid"]],
        [],
        [32, 16],
    )
    blocked = to_blocked(layout, (32, 16))
    assert bases_of(linear, (32, 16)) == triton_cases.triton_bases(blocked, (32, 16))
    again = from_linear(bases_of(linear, (32, 16)), (32, 16))
    assert isinstance(again, TileLayout)
    assert again.equivalent(layout)


def test_torch_strides_and_dlpack_are_read() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1)
    layout = from_array(tensor)
    assert to_strides(layout, tuple(tensor.shape)) == tensor.stride()
    assert (tensor.numpy() == np.arange(24)[layout.table(tuple(tensor.shape))["m"]]).all()

    class OnlyDlpack:
        def __dlpack__(self, **options: Any) -> Any:
            return tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return tensor.__dlpack_device__()

    assert from_array(OnlyDlpack()) == layout


def test_torch_placements_put_shards_where_pytorch_puts_them() -> None:
    pytest.importorskip("torch")
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as local_part

    for shape, mesh in (((8, 6), (2, 3)), ((12, 4), (2, 2)), ((8, 4, 2), (2, 2))):
        for placements in itertools.product((Replicate(), *(Shard(d) for d in range(len(shape)))), repeat=len(mesh)):
            try:
                layout = from_placements(shape, mesh, placements)
            except NotExpressibleError:
                assert any(extent % 2 or extent % 3 for extent in shape)
                continue
            held: dict[tuple[int, ...], set[tuple[int, int]]] = {}
            for device in itertools.product(*map(range, mesh)):
                local, begin = local_part(shape, mesh, list(device), list(placements))
                for at in itertools.product(*map(range, local)):
                    element = tuple(b + x for b, x in zip(begin, at, strict=True))
                    offset = int(np.ravel_multi_index(at, local))
                    held.setdefault(element, set()).add((int(np.ravel_multi_index(device, mesh)), offset))
            for element, expected in held.items():
                places = layout.places(*element, shape=shape)
                assert {(p.get("pid", 0), p.get("m", 0)) for p in places} == expected
            again = from_placements(shape, mesh, to_placements(layout, shape, mesh))
            assert again.equivalent(layout)
    with pytest.raises(NotExpressibleError, match="neither a shard nor a replicate"):
        from_placements((8,), (2,), (Partial(),))
