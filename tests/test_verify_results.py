"""Certificates of single answers: right ones proved, wrong ones refuted at the first wrong index, at any size."""

from __future__ import annotations

import time

import oracle
import pytest
import strategies
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from strategies import attempt, boxed

import verify
from layoutalg import LayoutError, NotExpressibleError, Param, SwizzledLayout, TileLayout
from layoutalg.algebra.compose import (
    complement,
    compose,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)
from layoutalg.symbolic import symbol
from verify import Proved, Refuted, Unknown, certify, certify_slice, prove_equivalent
from verify.goals import GOALS

parse = TileLayout.parse


def perturbed(draw, layout: TileLayout) -> TileLayout:
    """Another layout of the same extents: a stride, an axis or an offset changed."""
    shard = [[it.extent, it.stride, it.axis.name] for it in layout.shard]
    offset = dict(layout.offset)
    what = draw(st.sampled_from(["stride", "axis", "offset"] if shard else ["offset"]))
    if what == "offset":
        axis = draw(st.sampled_from(strategies.AXES))
        offset[axis] = offset.get(axis, 0) + draw(st.sampled_from([-1, 1]))
    else:
        changed = draw(st.sampled_from(shard))
        if what == "stride":
            changed[1] += draw(st.sampled_from([-1, 1, 2]))
        else:
            changed[2] = draw(st.sampled_from(strategies.AXES))
    replica = [(it.extent, it.stride, it.axis.name) for it in layout.replica]
    return TileLayout.from_iters(shard=shard, replica=replica, offset=offset)


def check_against_brute_force(draw, op, inputs, answer, **options):
    """The answer is proved; a perturbed one is refuted, at the first wrong index, exactly when it is another map."""
    assert isinstance(certify(op, inputs, answer, **options), Proved)
    if isinstance(answer, NotExpressibleError):
        event("refused")
        return
    layout = answer[0] if isinstance(answer, tuple) else answer
    wrong = perturbed(draw, layout)
    verdict = certify(op, inputs, (wrong, *answer[1:]) if isinstance(answer, tuple) else wrong, **options)
    first = oracle.first_difference(oracle.plain(layout), oracle.plain(wrong))
    assert verdict.ok == (first is None), verdict
    if first is not None and op != "pack":
        assert verdict.counterexample["index"] == first


@settings(max_examples=50)
@given(strategies.boxed_layouts(limit=32), st.data())
@example(boxed("S[(2,2,4):(100,10,1)]", shape=(16,), region=((6, 10),)), None)
@example(boxed("S[(2,2,4):(1@laneid,10,1)]", shape=(16,), region=((6, 10),)), None)
@example(boxed("S[(2,2,2):(-1,-1,0)]", shape=(8,), region=((2, 5),)), None)
def test_slices_and_their_refusals_are_certified(case, data):
    part = attempt(case.layout.slice, case.shape, case.region)
    if data is None:
        assert certify_slice(case.layout, case.shape, case.region, part).ok
        return
    check_against_brute_force(data.draw, "slice", [case.layout, case.shape, case.region], part)


@settings(max_examples=50)
@given(strategies.layouts(limit=24), strategies.layouts(limit=6), st.data())
def test_other_operations_are_certified(layout, other, data):
    names = ["group", "regroup", "tile", "direct_sum", "unpack", "pack", "broadcast", "permute"]
    op = data.draw(st.sampled_from(names))
    shape = data.draw(strategies.shapes(layout.size))
    options = {}
    if op in ("group", "regroup"):
        arguments = [shape]
    elif op == "permute":
        arguments, options = list(data.draw(st.permutations(range(len(shape))))), {"shape": shape}
    elif op in ("unpack", "pack"):
        arguments = [data.draw(st.integers(1, 4))]
    elif op == "broadcast":
        arguments = [data.draw(st.integers(1, 3)), data.draw(st.integers(-1, 0))]
    else:
        shape, own = list(shape), list(data.draw(strategies.shapes(other.size)))
        rank = max(len(shape), len(own))
        arguments = [other, own + [1] * (rank - len(own)), shape + [1] * (rank - len(shape))]
    answer = attempt(getattr(layout, op), *arguments, **options)
    check_against_brute_force(data.draw, op, [layout, *arguments], answer, **options)


@given(strategies.layouts(), st.data())
def test_equal_maps_are_proved_equal_and_others_refuted(layout, data):
    other = data.draw(strategies.rewritten(layout))
    assert prove_equivalent(layout, other).ok
    assert certify("canonicalize", [layout], layout.canonicalize()).ok
    wrong = perturbed(data.draw, other)
    first = oracle.first_difference(oracle.plain(layout), oracle.plain(wrong))
    verdict = prove_equivalent(layout, wrong)
    assert verdict.ok == (first is None)
    if first is not None:
        assert verdict.counterexample["index"] == first


OUTER, INNER = parse("S[(2,2):(2,1)] + 1"), parse("S[(2,3):(3,1)] + R[2:100@laneid]")
TILED = INNER.tile(OUTER, (2, 2), (2, 3))
SUM = INNER.direct_sum(OUTER, (2, 2), (2, 3))
LANES = parse("S[(4,32):(1@warpid,1@laneid)] + 2@warpid")
A, B = parse("S[(4,6):(1,8)]"), parse("S[4:6]")
CASES = [
    ("canonicalize", [parse("S[(4,1,8):(8,5,1)]")], parse("S[32:1]"), parse("S[(4,8):(8,1)]")),
    ("equivalent", [parse("S[4,8]")], parse("S[32:1]"), parse("S[32:2]")),
    ("group", [parse("S[32:1]"), (4, 8)], parse("S[32:1]").group((4, 8)), (parse("S[(8,4):(4,1)]"), (0, 1, 2))),
    ("group_many", [parse("S[32:1]"), [(4, 8), (16, 2)]], parse("S[32:1]").group_many([(4, 8), (16, 2)]),
     (parse("S[(4,8):(8,1)]"), ((0, 1, 2), (0, 1, 2)))),
    ("regroup", [parse("S[32:1]"), (2, 16)], parse("S[(2,16):(16,1)]"), parse("S[(4,8):(8,1)]")),
    ("slice", [parse("S[4,8]"), (4, 8), ((1, 3), 4)], parse("S[2:8] + 12"), parse("S[2:8] + 4")),
    ("permute", [parse("S[4,8]"), 1, 0], parse("S[(8,4):(1,8)]"), parse("S[(8,4):(4,1)]")),
    ("permute_iters", [parse("S[4,8]"), (1, 0)], parse("S[(8,4):(1,8)]"), parse("S[4,8]")),
    ("permute_groups", [parse("S[2,2,8]"), (0, 2, 3), (1, 0)], parse("S[(8,2,2):(1,16,8)]"), parse("S[2,2,8]")),
    ("tile", [INNER, OUTER, (2, 2), (2, 3)], TILED, TILED + 1),
    ("tile_to", [parse("S[4,4]"), (4, 8), (4, 4)], parse("S[(4,2,4):(4,16,1)]"), parse("S[(2,4,4):(16,4,1)]")),
    ("direct_sum", [INNER, OUTER, (2, 2), (2, 3)], SUM, TILED),
    ("tile_outer_of", [INNER, TILED, (4, 6), (2, 3)], OUTER, parse("S[(2,2):(2,1)]")),
    ("tile_inner_of", [OUTER, TILED, (4, 6), (2, 2)], INNER, parse("S[(2,3):(3,1)]")),
    ("direct_sum_left_of", [INNER, SUM, (2, 2, 2, 3), (2, 3)], OUTER, parse("S[(2,2):(2,2)] + 1")),
    ("direct_sum_right_of", [OUTER, SUM, (2, 2, 2, 3), (2, 2)], INNER, parse("S[(2,3):(3,1)] + R[2:99@laneid]")),
    ("unpack", [parse("S[4:3] + 1"), 2], parse("S[(4,2):(6,1)] + 2"), parse("S[(4,2):(6,1)] + 1")),
    ("pack", [parse("S[(4,2):(2,1)]"), 4], parse("S[2:1]"), parse("S[2:2]")),
    ("broadcast", [parse("S[4:1]"), 2, 0], parse("S[(2,4):(0,1)]"), parse("S[(4,2):(1,0)]")),
    ("storage", [parse("S[(8,2):(4@laneid,1)] + 5@warpid")], parse("S[2:1]"), parse("S[8:1]")),
    ("fuse_axes", [LANES, "tx"], parse("S[128:1@tx] + 64@tx"), parse("S[128:1@tx] + 2@tx")),
    ("split_axis", [parse("S[128:1@tx] + 64@tx"), "tx", ("warpid", "laneid")], LANES,
     parse("S[128:1@laneid] + 2@warpid")),
    ("compose", [A, B], compose(A, B), parse("S[4:2]")),
    ("complement", [parse("S[4:2]"), 24], parse("S[(3,2):(8,1)]"), parse("S[6:1]")),
    ("right_inverse", [parse("S[(6,4,2):(8,1,4)]")], right_inverse(parse("S[(6,4,2):(8,1,4)]")), parse("S[48:1]")),
    ("left_inverse", [parse("S[(2,2):(1,4)]")], left_inverse(parse("S[(2,2):(1,4)]")), parse("S[(2,4):(2,1)]")),
    ("logical_divide", [parse("S[4,8]"), parse("S[4:2]")], logical_divide(parse("S[4,8]"), parse("S[4:2]")),
     parse("S[4,8]")),
    ("logical_product", [parse("S[4:2]"), parse("S[4:1]")], logical_product(parse("S[4:2]"), parse("S[4:1]")),
     parse("S[(4,4):(4,2)]")),
    ("logical_product", [parse("S[2:3]"), parse("S[2:9]")], logical_product(parse("S[2:3]"), parse("S[2:9]")),
     parse("S[(2,2):(20,3)]")),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "right", "wrong"), CASES, ids=[case[0] for case in CASES])
def test_every_operation_has_a_certified_answer_and_a_refuted_one(op, inputs, right, wrong):
    assert isinstance(certify(op, inputs, right), Proved)
    refuted = certify(op, inputs, wrong)
    assert isinstance(refuted, Refuted), refuted
    assert {"index", "fails"} & refuted.counterexample.keys()


def test_no_operation_is_left_out():
    assert {case[0] for case in CASES} == set(GOALS)
    assert complement(parse("S[4:2]"), 24) == parse("S[(3,2):(8,1)]")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("slice", [parse("S[(2,2,4):(1@laneid,10,1)]"), (16,), ((6, 10),)]),
        ("group", [parse("S[(2,3):(5,1)]"), (3, 2)]),
        ("group_many", [parse("S[12:1]"), [(3, 4), (4, 3)]]),
        ("regroup", [parse("S[(2,3):(5,1)]"), (6,)]),
        ("direct_sum", [parse("S[(2,3):(5,1)]"), parse("S[2:1]"), (1, 2), (3, 2)]),
        ("pack", [parse("S[(4,4):(5,1)]"), 2]),
        ("pack", [parse("S[4:2]"), 2]),
        ("pack", [parse("S[4:1] + 1"), 2]),
        ("pack", [parse("S[4:1] + R[2:3]"), 2]),
        ("pack", [parse("S[3:1]"), 2]),
        ("fuse_axes", [parse("S[32:1@laneid] + 1@warpid + 2@laneid"), "tx"]),
        ("split_axis", [parse("S[3:20@tx]"), "tx", ("warpid", "laneid")]),
    ],
)
def test_a_right_refusal_is_proved(op, inputs):
    with pytest.raises(NotExpressibleError) as refusal:
        getattr(inputs[0], op)(*inputs[1:])
    assert isinstance(certify(op, inputs, refusal.value), Proved)


@pytest.mark.parametrize(
    ("op", "inputs", "answer"),
    [
        ("slice", [parse("S[(4,4):(10,1)]"), (16,), ((2, 10),)], "S[(2,2,2):(10,8,1)] + 2"),
        ("group", [parse("S[(3,2):(2,1)]"), (2, 3)], "S[(2,3):(3,1)]"),
        ("regroup", [parse("S[(2,3):(3,1)]"), (6,)], "S[6:1]"),
        ("compose", [parse("S[(4,6):(1,8)]"), parse("S[4:6]")], "S[(2,2):(2,1)]"),
        ("pack", [parse("S[(4,2):(2,1)]"), 4], "S[2:4] in units of 4"),
        ("slice", [parse("S[(64,512):(512,1)]"), (1 << 15,), ((0, 1 << 15),)], None),
    ],
)
def test_a_wrong_refusal_is_refuted_with_the_answer(op, inputs, answer):
    verdict = certify(op, inputs, NotExpressibleError("there is none"))
    assert isinstance(verdict, Refuted)
    if answer is not None and op != "compose":
        assert verdict.counterexample["answer"] == answer
    assert verdict.counterexample["answer"]


def test_a_refusal_that_names_a_later_or_earlier_index_is_refuted():
    layout, shape, region = parse("S[(2,2,4):(1@laneid,10,1)]"), (16,), ((6, 10),)
    with pytest.raises(NotExpressibleError) as refusal:
        layout.slice(shape, region)
    assert refusal.value.index == 2
    early = certify_slice(layout, shape, region, NotExpressibleError("", index=1))
    assert early.counterexample["a layout reaches further"] == "S[2:1] + 12"
    late = certify_slice(layout, shape, region, NotExpressibleError("", index=3))
    assert late.counterexample == {"index": 3, "no layout reaches": 3}
    threads = parse("S[32:1@laneid] + 1@warpid + 2@laneid")
    assert isinstance(certify("fuse_axes", [threads, "tx"], NotExpressibleError("", index=29)), Refuted)
    in_range = parse("S[32:1@laneid] + 1@warpid")
    assert isinstance(certify("fuse_axes", [in_range, "tx"], NotExpressibleError("")), Refuted)


BIG = TileLayout.from_iters(shard=[(2, 2 ** (k * 7 % 60), "m") for k in range(60)])
CUBE = (1 << 20,) * 3


@pytest.mark.parametrize(
    ("op", "arguments", "options"),
    [
        ("canonicalize", [], {}),
        ("group", [CUBE], {}),
        ("permute", [2, 0, 1], {"shape": CUBE}),
        ("unpack", [4], {}),
        ("slice", [CUBE, ((1 << 19, 3 << 18), (5 << 7, 6 << 7), (3, 4))], {}),
        ("slice", [CUBE, ((1, 2), (3 << 10, 4 << 10), (0, 1 << 20))], {}),
        ("broadcast", [32, 30], {}),
    ],
)
def test_answers_on_2_to_the_60_elements_are_certified_in_a_moment(op, arguments, options):
    answer = getattr(BIG, op)(*arguments, **options)
    started = time.monotonic()
    verdict = certify(op, [BIG, *arguments], answer, **options)
    assert isinstance(verdict, Proved), verdict
    assert verdict.effort < 1_000_000
    assert time.monotonic() - started < 30
    if op not in ("group", "slice"):
        return
    first = answer[0] if isinstance(answer, tuple) else answer
    shard = [(it.extent, it.stride + (k == 0), it.axis.name) for k, it in enumerate(first.shard)]
    wrong = TileLayout.from_iters(shard=shard, offset=dict(first.offset))
    found = certify(op, [BIG, *arguments], (wrong, *answer[1:]) if isinstance(answer, tuple) else wrong, **options)
    assert found.counterexample["index"] == wrong.size // wrong.shard[0].extent


def test_a_large_refusal_is_proved_and_its_index_checked():
    layout = parse("S[(1048576,1048576):(2097152,1)]")
    region = ((5, (1 << 40) - 5),)
    with pytest.raises(NotExpressibleError) as refusal:
        layout.slice((1 << 40,), region)
    box = ((1 << 19, (1 << 19) + 3 * (1 << 19)),)
    with pytest.raises(NotExpressibleError) as refusal:
        layout.slice((1 << 40,), box)
    verdict = certify_slice(layout, (1 << 40,), box, refusal.value)
    assert isinstance(verdict, Proved), verdict
    early = NotExpressibleError("", index=refusal.value.index - 1)
    assert isinstance(certify_slice(layout, (1 << 40,), box, early), Refuted)


def test_symbolic_strides_are_certified_for_all_their_values():
    n, k = symbol("n"), symbol("k")
    layout = TileLayout.from_iters(shard=[(4, 8 * n, "m"), (8, n, "m"), (2, k * n + 3, "m")])
    assert prove_equivalent(layout, layout.canonicalize()).ok
    wrong = TileLayout.from_iters(shard=[(32, n, "m"), (2, n * k + 4, "m")])
    assert prove_equivalent(layout, wrong).counterexample["index"] == 1
    for region in (((5, 9), (0, 2)), ((3, 7), (1, 2))):
        assert certify_slice(layout, (32, 2), region, layout.slice((32, 2), region)).ok
    crossing = attempt(layout.slice, (64,), ((3, 7),))
    assert certify_slice(layout, (64,), ((3, 7),), crossing).ok


def test_a_parameter_begin_is_certified_for_every_value():
    stage = Param("s", 0, 2)
    stages = parse("S[(2,4,32):(128,32,1)]")
    region = (stage, (0, 4), (0, 32))
    assert certify_slice(stages, (2, 4, 32), region, stages.slice((2, 4, 32), region)).ok
    first = stages.slice((2, 4, 32), (0, (0, 4), (0, 32)))
    verdict = certify_slice(stages, (2, 4, 32), region, first)
    assert verdict.counterexample["s"] == 1


def test_what_is_not_decided_is_unknown():
    size = symbol("size")
    unknown_size = TileLayout.from_iters(shard=[(size, 4, "m"), (4, 1, "m")])
    assert isinstance(prove_equivalent(unknown_size, unknown_size), Unknown)
    assert isinstance(certify("storage", [BIG], NotExpressibleError("")), Unknown)
    assert isinstance(certify("slice", [parse("S[4:1]"), (4,), ((0, 2),)], LayoutError("misuse")), Unknown)
    assert isinstance(certify("complement", [parse("S[4:2]"), 1 << 20], parse("S[4:1]")), Unknown)


def test_misuse_is_an_error():
    with pytest.raises(LayoutError, match="no operation 'sort'"):
        certify("sort", [parse("S[4:1]")], parse("S[4:1]"))
    with pytest.raises(LayoutError, match="leaves"):
        certify_slice(parse("S[4:1]"), (4,), ((2, 6),), parse("S[4:1]"))
    with pytest.raises(LayoutError, match="no permutation"):
        certify("permute_iters", [parse("S[4,8]"), (0, 0)], parse("S[4,8]"))


def test_swizzled_answers_are_certified_by_their_tiles():
    layout = SwizzledLayout.parse("Sw<3,3,3> o S[(64,64):(64,1)]")
    region = ((8, 16), (0, 64))
    part = layout.slice((64, 64), region)
    assert certify("slice", [layout, (64, 64), region], part).ok
    other = layout.slice((64, 64), ((16, 24), (0, 64)))
    assert certify("slice", [layout, (64, 64), region], other).counterexample["index"] == 0
    assert certify("canonicalize", [layout], layout.canonicalize()).ok
    assert isinstance(certify("slice", [layout, (64, 64), region], parse("S[512:1]")), Unknown)
    assert isinstance(certify("unpack", [layout, 2], part), Unknown)
    assert isinstance(certify("slice", [parse("S[512:1]"), (512,), ((0, 512),)], part), Unknown)


def test_a_verdict_adds_up_its_effort_and_names_its_scope():
    verdict = certify("unpack", [parse("S[4:3]"), 2], parse("S[(4,2):(6,2)]"))
    assert isinstance(verdict, Refuted)
    assert verdict.effort > 0
    assert "unpack(S[4:3], 2)" in verdict.scope
    assert verify.certify is certify
