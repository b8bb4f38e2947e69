"""Other notations, read and written: round trips by property, meaning against independent definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg import LayoutError, NotationError, NotExpressibleError, RegionError, Swizzle, SwizzledLayout, TileLayout
from layoutalg.interop.cute import from_cute, to_cute, to_cute_tuples
from layoutalg.interop.strides import from_array, from_placements, from_strides, to_placements, to_strides
from layoutalg.interop.tirx import from_tirx, to_tirx
from layoutalg.interop.triton import from_linear, to_linear

EXTENTS = st.integers(1, 6)
STRIDES = st.integers(-9, 9)
MEMORY = st.lists(st.tuples(EXTENTS, STRIDES, st.just("m")), max_size=4).map(
    lambda shard: TileLayout.from_iters(shard=shard)
)
TREES = st.recursive(
    st.tuples(EXTENTS, STRIDES), lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=5
)


def split_tree(tree):
    """A tree of (extent, stride) leaves as CuTe's two congruent tuples."""
    if len(tree) == 2 and all(isinstance(x, int) for x in tree):
        return tree
    parts = [split_tree(part) for part in tree]
    return tuple(p[0] for p in parts), tuple(p[1] for p in parts)


def cute_value(shape, stride, index):
    """CuTe's layout function by its definition: colexicographic coordinates, then the inner product."""
    if isinstance(shape, int):
        return index * stride
    total = 0
    for extent, step in zip(shape, stride, strict=True):
        size = int(np.prod([leaf for leaf in flat(extent)], dtype=object))
        total += cute_value(extent, step, index % size)
        index //= size
    return total


def flat(tree):
    return [tree] if isinstance(tree, int) else [leaf for part in tree for leaf in flat(part)]


@given(TREES)
def test_a_cute_layout_keeps_its_function_of_the_index(tree):
    shape, stride = split_tree(tree)
    shape, stride = ((shape,), (stride,)) if isinstance(shape, int) else (shape, stride)
    layout = from_cute(shape, stride)
    assert layout.table()["m"].tolist() if layout.axes else True
    for index in range(layout.size):
        assert layout.apply(index).get("m", 0) == cute_value(shape, stride, index)


@given(TREES)
def test_a_cute_layout_read_by_coordinates_keeps_every_mode_at_its_place(tree):
    shape, stride = split_tree(tree)
    shape, stride = ((shape,), (stride,)) if isinstance(shape, int) else (shape, stride)
    sizes = [int(np.prod(flat(extent))) for extent in shape]
    layout = from_cute(shape, stride, coordinates=True)
    for coord in itertools.product(*map(range, sizes)):
        expected = sum(cute_value(e, s, x) for e, s, x in zip(shape, stride, coord, strict=True))
        assert layout.apply(*coord, shape=sizes).get("m", 0) == expected


@given(MEMORY)
def test_cute_text_round_trips(layout):
    assert from_cute(to_cute(layout)).equivalent(layout)


@given(MEMORY.filter(lambda layout: all(it.stride >= 0 for it in layout.shard)), st.integers(0, 40))
def test_a_swizzled_cute_layout_round_trips_with_its_offset_inside(tile, offset):
    layout = SwizzledLayout(Swizzle(2, 1, 3), tile + offset)
    again = from_cute(to_cute(layout))
    assert (again.table()["m"] == layout.table()["m"]).all()


@pytest.mark.parametrize(
    "text", ["", "(", "(4,8):(1)", "(4,8:(1,4)", "Sw<1,2> o 4:1", "(a):(1)", "4:1 x", "(" * 60 + ")" * 60]
)
def test_malformed_cute_text_is_a_layout_error(text):
    with pytest.raises(LayoutError):
        from_cute(text)


@given(st.text(alphabet="S w<>0123456789,():_-o", max_size=30))
def test_reading_cute_text_raises_nothing_but_layout_errors(text):
    try:
        from_cute(text)
    except LayoutError:
        return


def test_a_bare_extent_is_a_mode_of_stride_one():
    assert to_cute_tuples(from_cute("4")) == ((4,), (1,))


def test_what_cute_cannot_say_is_refused():
    for text in ("S[4:1] + R[2:4]", "S[4:1@laneid]", "S[4:1] + 3"):
        with pytest.raises(NotExpressibleError):
            to_cute(TileLayout.parse(text))


def test_cute_agrees_with_tensor_layouts_where_that_is_installed():
    peer = pytest.importorskip("tensor_layouts", reason="tensor_layouts not installed")
    for shape, stride in (((4, (2, 3)), (1, (4, 8))), ((8, 8), (8, 1)), (((2, 2), 3), ((1, 6), 2))):
        theirs, ours = peer.Layout(shape, stride), from_cute(shape, stride)
        assert [theirs(i) for i in range(ours.size)] == ours.table()["m"].tolist()


AXES = st.sampled_from(["m", "laneid", "warpid"])
TRIPLES = st.lists(st.tuples(EXTENTS, STRIDES, AXES), max_size=3)


@given(TRIPLES, TRIPLES, st.dictionaries(AXES, st.integers(-5, 5)))
def test_tirx_fields_round_trip(shard, replica, offset):
    layout = TileLayout.from_iters(shard=shard, replica=replica, offset=offset)
    assert from_tirx(to_tirx(layout)) == layout


def test_tirx_swizzles_round_trip_and_unknown_fields_are_refused():
    layout = SwizzledLayout(Swizzle(3, 3, 3), TileLayout.parse("S[512:1]"))
    assert from_tirx(to_tirx(layout)) == layout
    with pytest.raises(LayoutError, match="fields"):
        from_tirx({"shard": [], "replicas": [], "offset": {}})
    with pytest.raises(NotExpressibleError, match="parameters"):
        to_tirx(TileLayout.parse("S[4:1] + s[0:2]"))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.randoms())
def test_a_numpy_array_and_its_layout_address_the_same_elements(shape, random):
    order = list(range(len(shape)))
    random.shuffle(order)
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape([shape[d] for d in order])
    view = array.transpose(np.argsort(order))
    layout = from_array(view)
    assert (array.reshape(-1)[layout.table(view.shape)["m"]] == view).all()
    assert to_strides(from_strides(view.shape, to_strides(layout, view.shape)), view.shape) is not None


def test_reversed_and_broadcast_arrays_have_layouts_too():
    array = np.arange(6, dtype=np.int16)
    assert from_array(array[::-1]).shard[0].stride == -1
    assert from_array(np.broadcast_to(array, (3, 6))).shard[0].stride == 0
    with pytest.raises(NotExpressibleError, match="no multiple"):
        from_array(np.zeros(4, dtype=[("a", "u1"), ("b", "u2")])["b"])
    with pytest.raises(LayoutError, match="no strides"):
        from_array([1, 2, 3])
    with pytest.raises(NotExpressibleError):
        to_strides(TileLayout.parse("S[4:1@laneid]"), (4,))


@pytest.mark.parametrize(
    ("shape", "mesh", "placements"),
    [((8, 6), (2, 3), (0, 1)), ((8, 6), (2, 2), (0, "replicate")), ((12,), (2, 3), (0, 0))],
)
def test_placements_put_every_shard_on_its_devices(shape, mesh, placements):
    layout = from_placements(shape, mesh, placements)
    for coord in itertools.product(*map(range, shape)):
        expected = set()
        for device in itertools.product(*map(range, mesh)):
            starts, sizes = [0] * len(shape), list(shape)
            for k, where in enumerate(placements):
                if where != "replicate":
                    sizes[where] //= mesh[k]
                    starts[where] += device[k] * sizes[where]
            local = [x - s for x, s in zip(coord, starts, strict=True)]
            if all(0 <= x < n for x, n in zip(local, sizes, strict=True)):
                offset = int(np.ravel_multi_index(local, sizes))
                expected.add((int(np.ravel_multi_index(device, mesh)), offset))
        got = {(place.get("pid", 0), place["m"]) for place in layout.places(*coord, shape=shape)}
        assert got == expected


def test_wrong_placements_are_refused():
    with pytest.raises(NotExpressibleError, match="uneven"):
        from_placements((7,), (2,), (0,))
    with pytest.raises(RegionError):
        from_placements((8,), (2,), (3,))
    with pytest.raises(RegionError):
        from_placements((8,), (2, 2), (0,))


@given(st.permutations(range(8)), st.integers(0, 3))
def test_linear_bases_place_every_element_where_the_hardware_bits_say(order, registers):
    shape = (16, 16)
    vectors = [np.unravel_index(1 << b, shape) for b in order]
    bases = {
        "register": vectors[:registers],
        "lane": vectors[registers : registers + 5],
        "warp": vectors[registers + 5 :],
    }
    bases = {name: [tuple(map(int, v)) for v in rows] for name, rows in bases.items()}
    layout = from_linear(bases, shape)
    names = {"register": "m", "lane": "laneid", "warp": "warpid"}
    widths = [len(rows) for rows in bases.values()]
    for bits in itertools.product(*(range(1 << w) for w in widths)):
        element = [0, 0]
        for name, value in zip(bases, bits, strict=True):
            for k, basis in enumerate(bases[name]):
                if value >> k & 1:
                    element = [a ^ b for a, b in zip(element, basis, strict=True)]
        place = layout.apply(*element, shape=shape)
        assert [place.get(names[name], 0) for name in bases] == list(bits)
    again = to_linear(layout, shape)
    assert again == {names[name]: rows for name, rows in bases.items() if rows}


def test_a_zero_basis_is_a_replica_and_mixed_bits_on_one_memory_are_a_swizzle():
    replicated = from_linear({"lane": [(1,)], "warp": [(0,)]}, (2,))
    assert [str(it) for it in replicated.replica] == ["2:1@warpid"]
    mixed = from_linear({"offset": [(0, 1), (0, 2), (1, 1), (2, 2)]}, (4, 4))
    table = mixed.table((4, 4))["m"]
    for offset in range(16):
        row, column = offset >> 2, (offset & 3) ^ (offset >> 2)
        assert table[row, column] == offset


@pytest.mark.parametrize(
    ("bases", "shape", "error"),
    [
        ({"lane": [(1,)], "warp": [(1,)]}, (2,), NotExpressibleError),
        ({"lane": [(1,)]}, (4,), NotExpressibleError),
        ({"lane": [(1,)]}, (3,), NotExpressibleError),
        ({"lane": [(3,), (1,)], "warp": [(2,)]}, (4,), NotExpressibleError),
        ({"lane": [(5,)]}, (4,), RegionError),
        ({"thread": [(1,)]}, (2,), RegionError),
    ],
)
def test_bases_that_are_no_layout_are_refused(bases, shape, error):
    with pytest.raises(error):
        from_linear(bases, shape)


@pytest.mark.parametrize("text", ["S[4:1] + 1", "S[3:1]", "S[4:3]", "S[(2,2):(1,1)]", "S[4:2]", "S[4:-1]"])
def test_layouts_that_are_not_linear_over_bits_are_refused(text):
    layout = TileLayout.parse(text)
    with pytest.raises(NotExpressibleError):
        to_linear(layout, (layout.size,))


def test_a_column_of_the_failure_is_named():
    with pytest.raises(NotationError) as caught:
        from_cute("(4,x):(1,4)")
    assert caught.value.position == 3


def test_memory_that_numpy_cannot_see_is_refused_in_words():
    class Elsewhere:
        def __dlpack__(self, **_):
            raise BufferError("on another device")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(LayoutError, match="from_strides"):
        from_array(Elsewhere())


@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=2), st.data())
def test_placements_come_back_from_their_layouts(mesh, data):
    placements = [data.draw(st.sampled_from([0, 1, None])) for _ in mesh]
    layout = from_placements((4, 4), mesh, placements)
    assert from_placements((4, 4), mesh, to_placements(layout, (4, 4), mesh)).equivalent(layout)


def test_layouts_that_no_placements_have_are_refused():
    with pytest.raises(NotExpressibleError, match="no shard or replicate"):
        to_placements(TileLayout.parse("S[(4,4):(1,4)]"), (4, 4), (2,))
    with pytest.raises(NotExpressibleError, match="too many"):
        to_placements(TileLayout.parse("S[(4,4):(4,1)]"), (4, 4), (1,) * 9)
