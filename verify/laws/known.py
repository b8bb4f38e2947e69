"""Questions whose answers are often wrong elsewhere: ours are certified, the usual wrong ones refuted.

Each question is a small theorem: the answer that the library gives is certified (``verify.certify``: right at all
positions, or no layout has the values), and the same check refutes the answer that is often given.  ``REFUSED`` stands
for a refusal where there is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from layoutalg.algebra.compose import compose
from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.hardware.mma import mma_shared_layout
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.laws.core import Law, Mutant
from verify.laws.family import show
from verify.laws.replica import least_list, sums
from verify.results import certify, prove_equivalent
from verify.verdict import Proved, Refuted, Verdict

__all__ = ["LAWS"]

REFUSED: Final = NotExpressibleError("no layout has these values")
_parse = TileLayout.parse


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, what is often answered, and how an answer is judged."""

    name: str
    text: str
    ask: Callable[[], Any]
    wrong: Any
    judge: Callable[[Any], Verdict]


def _certified(
    op: str, inputs: list[Any], wrong: Any, *, name: str, function: Callable[..., Any] | None = None
) -> Question:
    def ask() -> Any:
        try:
            return function(*inputs) if function is not None else getattr(inputs[0], op)(*inputs[1:])
        except NotExpressibleError as refusal:
            return refusal

    text = f"{op} of {', '.join(map(str, inputs))}"
    return Question(name, text, ask, wrong, lambda answer: certify(op, inputs, answer))


def _equals(name: str, text: str, ask: Callable[[], Any], wrong: Any, truth: Callable[[], Any]) -> Question:
    """A question with a plain value for an answer; ``truth`` finds it by listing."""

    def judge(answer: Any) -> Verdict:
        right = truth()
        return Proved(text) if answer == right else Refuted(text, {"answer": answer, "by listing": right})

    return Question(name, text, ask, wrong, judge)


def _is_refused(name: str, text: str, ask: Callable[[], Any], wrong: Any) -> Question:
    """A request that is no valid one, so that only an error answers it."""

    def attempt() -> Any:
        try:
            return ask()
        except LayoutError as error:
            return error

    def judge(answer: Any) -> Verdict:
        return Proved(text) if isinstance(answer, LayoutError) else Refuted(text, {"answer": str(answer)})

    return Question(name, text, attempt, wrong, judge)


def _replica_of(text: str) -> Callable[[], Any]:
    """The canonical progressions of a layout's replicas on m, by trying every list."""

    def truth() -> Any:
        values = set(sums((it.extent, it.stride) for it in _parse(text).replica))
        return least_list(frozenset(x - min(values) for x in values))

    return truth


def _questions() -> Iterator[Question]:
    """The table of known wrong answers, in its order."""
    layout = _parse("S[(2,2,4):(100,10,1)]")
    yield _certified("slice", [layout, (16,), ((6, 10),)], _parse("S[(2,2):(8,1)] + 12"), name="slice_over_a_carry")
    lanes = _parse("S[(2,2,4):(1@laneid,10,1)]")
    yield _certified("slice", [lanes, (16,), ((6, 10),)], _parse("S[(2,2):(8,1)] + 12"), name="slice_step_on_two_axes")
    yield _certified("slice", [_parse("S[(4,4):(10,1)]"), (16,), ((2, 10),)], REFUSED, name="slice_half_shift")
    zero = _parse("S[(4,4):(1@laneid,0)]")
    yield _certified("slice", [zero, (16,), ((2, 6),)], REFUSED, name="slice_zero_stride")
    yield _certified("slice", [_parse("S[(4,2,3):(4,1,1)]"), (24,), ((17, 20),)], REFUSED, name="slice_smooth_crossing")
    box = ((1, 2), (0, 2))
    yield _certified("slice", [_parse("S[(2,3):(100,1)]"), (3, 2), box], REFUSED, name="slice_other_shape")
    warps = _parse("S[(2,4):(1@wgid,1@wid_in_wg)]")
    yield _certified("fuse_axes", [warps, "warpid"], _parse("S[(2,4):(4@wgid,1@warpid)]"), name="fuse_into_warps")
    moved = _parse("S[8:1@laneid] + 1@warpid + 2@laneid")
    yield _certified("fuse_axes", [moved, "tx"], _parse("S[8:1@tx] + 2@tx"), name="fuse_offset")
    wide = _parse("S[32:1@laneid] + 1@warpid + 2@laneid")
    yield _certified("fuse_axes", [wide, "tx"], _parse("S[32:1@tx] + 34@tx"), name="fuse_out_of_range")
    inner = _parse("S[4:1] + R[2:100@laneid]")
    yield _no_outer(inner, _parse("S[8:1]"), _parse("S[2:1]"))
    part = _parse("S[4:1] + 4")
    yield _certified(
        "tile_outer_of", [part, _parse("S[(2,4):(8,1)]"), (8,), (4,)], _parse("S[2:1]"), name="outer_of_moved_inner"
    )
    four = _parse("S[4:1]")
    yield _is_refused(
        "tile_to_uneven", "S[4:1].tile_to([10], [4])", lambda: four.tile_to((10,), (4,)), _parse("S[8:1]")
    )
    swizzled = SwizzledLayout.parse("Sw<1,0,1> o S[3:1]")
    yield _equals("span_of_swizzled", f"span of {swizzled}", lambda: swizzled.span(), 3, lambda: _listed_span(swizzled))
    back = _parse("S[4:-1]")
    yield _equals("span_of_negative", f"span of {back}", lambda: back.span("m"), -2, lambda: _listed_span(back))
    yield _is_refused(
        "mma_tile_of_uneven_atoms",
        'mma_shared_layout("float16", 1, [16, 24])',
        lambda: mma_shared_layout("float16", 1, [16, 24]),
        _parse("S[256:1]"),
    )
    pairs = _parse("S[(32,4):(1@laneid,1)] + R[2:4] + 3")
    yield _certified("unpack", [pairs, 2], _parse("S[(32,4,2):(2@laneid,2,1)] + R[2:8] + 6"), name="unpack_other_axes")
    yield _certified("pack", [_parse("S[(4,4):(5,1)]"), 2], _parse("S[(4,2):(2,1)]"), name="pack_uneven_stride")
    yield _certified("group", [_parse("S[(3,2):(2,1)]"), (2, 3)], REFUSED, name="group_after_merging")
    yield _certified("group", [_parse("S[(3,2):(0,0@laneid)]"), (2, 3)], REFUSED, name="group_zero_strides")
    yield _certified("pack", [_parse("S[(4,2):(2,1)]"), 4], REFUSED, name="pack_across_iters")
    many = "S[8:1] + R[(1,2,2,4):(5,0,4,1)]"
    yield _equals(
        "replicas_merge",
        f"canonical replicas of {many}",
        lambda: tuple((it.stride, it.extent) for it in _parse(many).canonicalize().replica),
        tuple((it.stride, it.extent) for it in _parse(many).replica),
        _replica_of(many),
    )
    sets = _parse("S[4:1] + R[(2,6):(3,2)]"), _parse("S[4:1] + R[(3,4):(2,3)]")
    yield _equals(
        "equal_sets",
        f"{sets[0]} = {sets[1]}",
        lambda: sets[0].equivalent(sets[1]),
        False,
        lambda: prove_equivalent(*sets).ok,
    )
    for name, text, renamed in (
        ("wgid", "S[(2,32):(1@wgid,32@laneid)]", "S[64:1@tid_in_wg]"),
        ("pid", "S[(4,4):(1@pid,4)]", "S[16:1@pid]"),
        ("bx", "S[(4,32):(1@bx,32@tx)]", "S[128:1@tx]"),
    ):
        yield _certified("canonicalize", [_parse(text)], _parse(renamed), name=f"canonical_{name}_unchanged")
    yield _is_refused(
        "permute_repeated", "permute_iters((0, 0))", lambda: _parse("S[4,8]").permute_iters((0, 0)), _parse("S[4,4]")
    )
    twice = _parse("S[4:1] + R[2:1@warpid]")
    yield _equals(
        "places_of_replicas",
        f"places of index 3 of {twice}",
        lambda: sorted(tuple(sorted(p.items())) for p in twice.places(3)),
        [(("m", 3), ("warpid", 0))],
        lambda: sorted((("m", 3), ("warpid", w)) for w in range(2)),
    )
    a, b = _parse("S[(8,6,4):(5,3,2)]"), _parse("S[6:3]")
    yield _certified("compose", [a, b], _parse("S[(3,2):(3,6)]"), name="compose_carry", function=compose)
    a, b = _parse("S[(8,2,6,3):(2,8,16,96)]"), _parse("S[32:6]")
    yield _certified("compose", [a, b], _parse("S[(5,2,3):(16,8,96)]"), name="compose_lost_elements", function=compose)


def _no_outer(inner: TileLayout, tiled: TileLayout, wrong: TileLayout) -> Question:
    """A tiling has the replicas of its inner layout, so one without them has no outer layout."""

    def ask() -> Any:
        try:
            return inner.tile_outer_of(tiled, (8,), (4,))
        except NotExpressibleError as refusal:
            return refusal

    def judge(answer: Any) -> Verdict:
        if isinstance(answer, NotExpressibleError):
            lost = {it.axis for it in inner.replica if it.extent > 1 and it.stride} - {it.axis for it in tiled.replica}
            return Proved("replicas stay in a tiling") if lost else Refuted("replicas", {"lost": "none"})
        return certify("tile_outer_of", [inner, tiled, (8,), (4,)], answer)

    return Question("outer_without_replicas", f"outer of {tiled} for inner {inner}", ask, wrong, judge)


def _listed_span(layout: TileLayout | SwizzledLayout) -> int:
    values = [place["m"] for n in range(layout.size) for place in layout.places(n)]
    return int(max(values) - min(values) + 1)


def _short(wrong: Any) -> str:
    return "refused" if wrong is REFUSED else str(wrong)


def _law(question: Question) -> Law:
    return Law(
        name=f"known.{question.name}",
        statement=f"{question.text}: the answer is right. Often answered: {_short(question.wrong)}.",
        scope="this question",
        kind="answers",
        check=lambda _settings: question.judge(question.ask()),
        mutants=(
            Mutant(
                "the answer often given",
                lambda _settings: question.judge(question.wrong),
                lambda _values: (show(question.ask()), show(question.wrong)),
            ),
        ),
        evaluate=lambda: question.judge(question.ask()),
    )


LAWS: tuple[Law, ...] = tuple(_law(question) for question in _questions())
