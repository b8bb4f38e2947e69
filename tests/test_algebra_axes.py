"""Thread axes: fusing is the weighted sum at every place, splitting its inverse; no thread changes its warp."""

from __future__ import annotations

import oracle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import attempt

from layoutalg import AxisError, NotExpressibleError, Param, TileLayout

WEIGHTS = {
    "warpid": {"wgid": 4, "wid_in_wg": 1},
    "tid_in_wg": {"wid_in_wg": 32, "laneid": 1},
    "tx": {"wgid": 128, "warpid": 32, "wid_in_wg": 32, "tid_in_wg": 1, "laneid": 1},
}
RANGES = {"laneid": 32, "wid_in_wg": 4, "tid_in_wg": 128}
WAYS = [
    ("warpid", ("wgid", "wid_in_wg")),
    ("tid_in_wg", ("wid_in_wg", "laneid")),
    ("tx", ("wgid", "wid_in_wg", "laneid")),
    ("tx", ("warpid", "laneid")),
    ("tx", ("wgid", "tid_in_wg")),
]


def fused(group: frozenset[oracle.Place], whole: str) -> frozenset[oracle.Place]:
    result = set()
    for p in group:
        total: dict[str, int] = {}
        for axis, value in p:
            weight = WEIGHTS[whole].get(axis)
            to = axis if weight is None else whole
            total[to] = total.get(to, 0) + value * (weight or 1)
        result.add(oracle.place(total))
    return frozenset(result)


def out_of_range(group: frozenset[oracle.Place], axes: tuple[str, ...]) -> bool:
    return any(a in axes and not 0 <= v < RANGES.get(a, 1 << 60) for p in group for a, v in p if a in RANGES)


@st.composite
def threads(draw: st.DrawFn, axes: tuple[str, ...]) -> TileLayout:
    """Layouts on thread axes whose values are near the ends of the axes' ranges."""
    scale = {"laneid": [1, 2, 8, 16, 31, -1], "wid_in_wg": [1, 2, -1], "tid_in_wg": [1, 32, 64, 96]}
    shard = []
    for _ in range(draw(st.integers(0, 4))):
        axis = draw(st.sampled_from((*axes, "m")))
        shard.append((draw(st.sampled_from([1, 2, 2, 3, 4])), draw(st.sampled_from(scale.get(axis, [1, 2, 3]))), axis))
    replica = draw(
        st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 4]), st.sampled_from(axes)), max_size=1)
    )
    offset = {axis: draw(st.sampled_from([0, 0, 1, 2, 15, 31])) for axis in draw(st.sets(st.sampled_from(axes)))}
    return TileLayout.from_iters(shard=shard, replica=replica, offset=offset)


@given(st.sampled_from(WAYS), st.data())
def test_fusing_is_the_weighted_sum_or_names_the_first_element_out_of_range(way, data):
    whole, axes = way
    layout = data.draw(threads(axes))
    groups = oracle.sets(oracle.plain(layout))
    found = attempt(layout.fuse_axes, whole)
    if isinstance(found, NotExpressibleError):
        assert found.index == next(n for n, group in enumerate(groups) if out_of_range(group, axes))
        return
    assert not any(out_of_range(group, axes) for group in groups)
    assert oracle.sets(oracle.plain(found)) == [fused(group, whole) for group in groups]
    assert not {axis.name for axis in found.axes} & set(axes)


@given(st.sampled_from(WAYS), st.data())
def test_splitting_takes_fusing_back(way, data):
    whole, axes = way
    layout = data.draw(threads(axes))
    found = attempt(layout.fuse_axes, whole)
    if isinstance(found, NotExpressibleError):
        return
    again = found.split_axis(whole, axes)
    assert again.equivalent(layout)


def split(group: frozenset[oracle.Place], whole: str, axes: tuple[str, ...]) -> frozenset[oracle.Place]:
    result = set()
    for p in group:
        total = dict(p)
        rest = total.pop(whole, 0)
        for axis in reversed(axes[1:]):
            rest, total[axis] = divmod(rest, RANGES[axis])
        total[axes[0]] = rest
        result.add(oracle.place(total))
    return frozenset(result)


@st.composite
def counted(draw: st.DrawFn, whole: str) -> TileLayout:
    """Layouts on one axis whose digits often carry between its parts."""
    strides = st.sampled_from([1, 1, 2, 4, 8, 16, 24, 32, 33, 64, 128, -1, -32])
    shard = draw(
        st.lists(st.tuples(st.sampled_from([2, 2, 3, 4, 8]), strides, st.sampled_from((whole, whole, "m"))), max_size=3)
    )
    replica = draw(st.lists(st.tuples(st.integers(1, 3), strides, st.just(whole)), max_size=1))
    offset = {whole: draw(st.sampled_from([0, 0, 1, 8, 16, 31, 32, 100]))}
    return TileLayout.from_iters(shard=shard, replica=replica, offset=offset)


@given(st.sampled_from(WAYS), st.data())
@example(("tx", ("warpid", "laneid")), None)
def test_a_split_is_division_with_remainder_at_every_place_or_no_layout_is(way, data):
    whole, axes = way
    layout = TileLayout.parse("S[32:1@tx] + 16@tx") if data is None else data.draw(counted(whole))
    wanted = [split(group, whole, axes) for group in oracle.sets(oracle.plain(layout))]
    found = attempt(layout.split_axis, whole, axes)
    if isinstance(found, NotExpressibleError):
        # A split into three goes through the one into two, which may fail where the three would not.
        assert oracle.layout_of_sets(wanted) is None or len(axes) == 3
        return
    assert oracle.sets(oracle.plain(found)) == wanted


def test_the_first_thread_out_of_range_is_named():
    layout = TileLayout.parse("S[32:1@laneid] + 1@warpid + 2@laneid")
    with pytest.raises(NotExpressibleError, match=r"laneid is 32 at index 30, outside \[0, 32\)") as caught:
        layout.fuse_axes("tx")
    assert caught.value.index == 30
    assert str(TileLayout.parse("S[8:1@laneid] + 1@warpid + 2@laneid").fuse_axes("tx")) == "S[8:1@tx] + 34@tx"
    huge = TileLayout.parse("S[(1073741824,33):(1,1@laneid)]")
    with pytest.raises(NotExpressibleError, match="laneid is 32 at index 32"):
        huge.fuse_axes("tx")


@pytest.mark.parametrize(
    ("text", "into", "message"),
    [
        ("S[4:1@laneid]", "laneid", "laneid is not made of finer axes"),
        ("S[4:1@laneid]", "lane", "unknown axis"),
        ("S[4:1@laneid]", "m", "m is not made of finer axes"),
        ("S[(2,2):(1@warpid,1@wgid)]", "tx", "uses warpid, wgid"),
        ("S[(2,2):(1@tx,1@laneid)]", "tx", "uses tx, laneid"),
        ("S[(2,2):(1@warpid,1@laneid)]", "tid_in_wg", "uses warpid, laneid"),
        ("S[(2,2):(1@tid_in_wg,1@wgid)] + 1@wid_in_wg", "warpid", "uses tid_in_wg, wgid, wid_in_wg"),
    ],
)
def test_threads_counted_in_two_ways_at_once_are_refused(text, into, message):
    with pytest.raises(AxisError) as caught:
        TileLayout.parse(text).fuse_axes(into)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["S[4:1]", "S[4:1@tx]", "S[(2,4):(1@bx,1@pid)] + 3@tx"])
def test_layouts_with_nothing_to_fuse_stay_as_they_are(text):
    layout = TileLayout.parse(text)
    assert layout.fuse_axes("tx").equivalent(layout)


def test_axes_that_stand_beside_one_another_may_be_fused_in_part():
    layout = TileLayout.parse("S[(2,4,32):(1@wgid,1@wid_in_wg,1@laneid)]")
    assert str(layout.fuse_axes("warpid")) == "S[(8,32):(1@warpid,1@laneid)]"
    assert str(layout.fuse_axes("tid_in_wg")) == "S[(2,128):(1@wgid,1@tid_in_wg)]"
    assert str(layout.fuse_axes("warpid").fuse_axes("tx")) == str(layout.fuse_axes("tx")) == "S[256:1@tx]"


@pytest.mark.parametrize(
    ("axis", "into", "message"),
    [
        ("laneid", ("m",), "not made of finer axes"),
        ("tx", ("warpid",), "tx = "),
        ("tx", ("warpid", "warpid", "laneid"), "tx = "),
        ("tx", "laneid", "sequence of axes"),
        ("warpid", ("warpid", "laneid"), "warpid = wgid + wid_in_wg"),
    ],
)
def test_a_split_needs_the_parts_of_the_axis(axis, into, message):
    with pytest.raises(AxisError) as caught:
        TileLayout.parse("S[32:1@tx]").split_axis(axis, into)
    assert message in str(caught.value)


def test_parameters_move_whole_warps():
    s = Param("s", 0, 4)
    layout = TileLayout.parse("S[32:1@laneid]") + s @ _axis("warpid")
    fused_layout = layout.fuse_axes("tx")
    assert str(fused_layout) == "S[32:1@tx] + 32*s[0:4]@tx"
    assert fused_layout.split_axis("tx", ("warpid", "laneid")) == layout
    with pytest.raises(NotExpressibleError, match="laneid is 32"):
        (TileLayout.parse("S[32:1@laneid]") + s @ _axis("laneid")).fuse_axes("tx")


def _axis(name: str):
    from layoutalg import Axis

    return Axis.get(name)
