"""Every public operation has a law or a reason, every known wrong answer a mutant; laws run what they speak about."""

from __future__ import annotations

import re
import types
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from layoutalg.algebra import compose
from verify.laws import all_laws, law_named
from verify.laws.core import Settings
from verify.laws.coverage import CLASSES, COVERED, MODULES, REASONS, laws_of, operations
from verify.laws.mistakes import MISTAKES
from verify.verdict import Refuted

KNOWN = [law for law in all_laws() if law.group == "known"]


def test_every_public_operation_has_a_law_or_a_reason_and_not_both():
    assert set(COVERED).isdisjoint(REASONS)
    assert set(operations()) == {*COVERED, *REASONS}
    assert all(len(reason) > 10 for reason in REASONS.values())


def test_every_law_that_is_named_exists():
    names = {law.name for law in all_laws()} | {f"{law.group}." for law in all_laws()}
    assert {name for wanted in COVERED.values() for name in wanted} <= names
    assert all(laws_of(operation) for operation in COVERED)


def test_a_new_operation_without_a_law_is_noticed(monkeypatch):
    monkeypatch.setattr(compose, "twice", lambda a: compose.compose(a, a), raising=False)
    monkeypatch.setattr(compose, "__all__", [*compose.__all__, "twice"])
    assert set(operations()) - {*COVERED, *REASONS} == {"compose.twice"}


#: The table of known wrong answers, in its order: question, often answered -> the law whose mutant gives that answer.
TABLE = [
    ("slice S(2:100,2:10,4:1), [16], [6,10)", "places 12,13,20,21", "slice_over_a_carry"),
    ("slice S(2:1@laneid,2:10,4:1), [16], [6,10)", "S(2:8,2:1)", "slice_step_on_two_axes"),
    ("slice S(4:10,4:1), [16], [2,10)", "refused", "slice_half_shift"),
    ("slice S(4:1@laneid,4:0), [16], [2,6)", "refused", "slice_zero_stride"),
    ("slice S(4:4,2:1,3:1), [24], [17,20)", "refused", "slice_smooth_crossing"),
    ("slice S(2:100,3:1), [3,2], [1,2)x[0,2)", "error", "slice_other_shape"),
    ("fuse into warps S(2:1@wgid,4:1@wid_in_wg)", "4@wgid", "fuse_into_warps"),
    ("fuse into tx, S(8:1@laneid) O{warpid:1,laneid:2}", "offset 2@tx", "fuse_offset"),
    ("the same with S(32:1@laneid)", "accepted", "fuse_out_of_range"),
    ("outer of tiled S(8:1) for inner S(4:1) R(2:100@laneid)", "S(2:1)", "outer_without_replicas"),
    ("outer of tiled S(2:8,4:1) for inner S(4:1) O{m:4}", "S(2:1)", "outer_of_moved_inner"),
    ("S(4:1).tile_to([10],[4])", "size 8", "tile_to_uneven"),
    ('mma_shared_layout("float16", 1, [16,24])', "256 elements", "mma_tile_of_uneven_atoms"),
    ("span of swizzled S(3:1) under B=1,M=0,S=1", "3", "span_of_swizzled"),
    ("span of S(4:-1)", "-2", "span_of_negative"),
    ("unpack S(32:1@laneid,4:1) R(2:4) O{m:3} by 2", "lane stride 2", "unpack_other_axes"),
    ("pack S(4:5,4:1) by 2", "stride 2", "pack_uneven_stride"),
    ("group S(3:2,2:1) by [2,3]", "error", "group_after_merging"),
    ("group S(3:0,2:0@laneid) by [2,3]", "error", "group_zero_strides"),
    ("pack S(4:2,2:1) by 4", "error", "pack_across_iters"),
    ("canonicalize S(8:1) R(1:5,2:0,2:4,4:1)", "unchanged", "replicas_merge"),
    ("are S(4:1) R(2:3,6:2) and S(4:1) R(3:2,4:3) equal?", "no", "equal_sets"),
    ("canonicalize S(2:1@wgid,32:1@laneid)", "error or endless loop", "canonical_wgid_unchanged"),
    ("canonicalize S(4:1@pid,4:1)", "error or endless loop", "canonical_pid_unchanged"),
    ("canonicalize S(4:1@bx,32:1@tx)", "error or endless loop", "canonical_bx_unchanged"),
    ("permute_iters with (0,0)", "accepted", "permute_repeated"),
    ("apply of a layout with replicas", "base place only", "places_of_replicas"),
    ("compose (4,6,8):(2,3,5) with 6:3", "(2,3):(6,3)", "compose_carry"),
    ("compose (3,6,2,8):(96,16,8,2) with 32:6", "a 30-element layout", "compose_lost_elements"),
]


@pytest.mark.parametrize(("question", "often", "name"), TABLE, ids=[name for *_, name in TABLE])
def test_a_known_wrong_answer_is_refuted(question, often, name):
    law = law_named(f"known.{name}")
    (mutant,) = law.mutants
    assert isinstance(mutant.check(Settings()), Refuted), (question, often)
    right, wrong = mutant.replay({})
    assert right != wrong


def test_every_line_of_the_table_of_wrong_answers_has_its_law():
    assert sorted(law.name.partition(".")[2] for law in KNOWN) == sorted(name for *_, name in TABLE)


def test_every_law_names_a_mutant_and_a_scope():
    for law in all_laws():
        assert law.mutants, law.name
        assert len({mutant.name for mutant in law.mutants}) == len(law.mutants), law.name
        assert len(law.statement) > 20, law.name
        assert len(law.scope) >= 8, law.name


def test_every_mistake_is_a_mutant_of_its_law():
    for name, mistakes in MISTAKES.items():
        assert {mutant.name for mutant in law_named(name).mutants} > set(mistakes), name
    assert sum(map(len, MISTAKES.values())) >= 30


class Reached(BaseException):
    """An operation that was waited for is called; nothing catches this by accident."""


def raising(*_args, **_kwargs):
    raise Reached


def traps(about):
    """Patches that stop at the first call of one of the operations."""
    for owner in CLASSES:
        for name, found in [(n, f) for c in owner.__mro__ for n, f in vars(c).items()]:
            if f"{owner.__name__}.{name}" in about and isinstance(found, types.FunctionType):
                yield mock.patch.object(owner, name, raising)
            elif f"{owner.__name__}.{name}" in about and isinstance(found, property):
                yield mock.patch.object(owner, name, property(raising))
    for module in MODULES:
        for name, found in list(vars(module).items()):
            if f"{module.__name__.rpartition('.')[2]}.{name}" in about and isinstance(found, types.FunctionType):
                yield mock.patch.object(module, name, raising)


#: Laws about a function inside the library on which an operation rests.
INSIDE = {
    "replica.merge_progressions",
    "replica.canonical_replica",
    "recognise.tables_on_one_axis",
    "recognise.tables_on_two_axes",
    "slicing.run_length",
    "ragged.affine_digits",
    "ragged.first_difference",
    "compose.by_digits",
}
RUN = [law for law in all_laws() if law.kind in ("family", "exhaustive") and law.name not in INSIDE]


@pytest.mark.parametrize("law", RUN, ids=lambda law: law.name)
def test_a_law_runs_an_operation_that_it_speaks_about(law):
    about = {operation for operation in COVERED if law.name in laws_of(operation)}
    with ExitStack() as stack:
        for trap in traps(about):
            stack.enter_context(trap)
        with pytest.raises(Reached):
            law.evaluate()


def test_the_page_lists_every_operation():
    page = (Path(__file__).resolve().parents[1] / "docs" / "THEOREMS.md").read_text(encoding="utf-8")
    section = page.partition("## Laws by operation")[2]
    assert re.findall(r"^\| ([\w.]+\.\w+) \|", section, flags=re.M) == list(operations())
