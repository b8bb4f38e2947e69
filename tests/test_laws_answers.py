"""Laws decided by trying everything, and the questions that are often answered wrongly."""

from __future__ import annotations

import pytest

from verify.laws import all_laws
from verify.laws.core import Settings
from verify.verdict import Proved, Refuted

EXHAUSTIVE = [law for law in all_laws() if law.kind == "exhaustive"]
ANSWERS = [law for law in all_laws() if law.kind == "answers"]
SLOW = {
    "compose.compose",
    "recognise.recognise_values",
    "replica.equivalent",
    "slicing_numbers.other_shapes",
    "swizzled.places",
    "summands.replicas_completed",
    "bits.joint_transversal",
}


@pytest.mark.parametrize(
    "law", [pytest.param(x, id=x.name, marks=pytest.mark.slow if x.name in SLOW else ()) for x in EXHAUSTIVE]
)
def test_every_member_of_an_exhaustive_law_is_right(law):
    verdict = law.check(Settings())
    assert isinstance(verdict, Proved), verdict
    assert int(verdict.scope.rpartition("; ")[2].split()[0]) >= 100
    assert verdict.effort == 0


@pytest.mark.parametrize(
    ("law", "mutant"), [(law, m) for law in EXHAUSTIVE for m in law.mutants], ids=lambda x: x.name.replace(" ", "_")
)
def test_a_mutant_is_refuted_by_a_member_and_replayed(law, mutant):
    assert mutant in law.mutants
    verdict = mutant.check(Settings())
    assert isinstance(verdict, Refuted), verdict
    right, wrong = mutant.replay(verdict.counterexample)
    assert right != wrong


@pytest.mark.parametrize("law", ANSWERS, ids=lambda law: law.name)
def test_our_answer_is_certified_and_the_usual_wrong_one_refuted(law):
    verdict = law.check(Settings())
    assert isinstance(verdict, Proved), verdict
    (mutant,) = law.mutants
    wrong = mutant.check(Settings())
    assert isinstance(wrong, Refuted), wrong
    right, often = mutant.replay(wrong.counterexample)
    assert right != often


def test_every_known_wrong_answer_is_asked():
    assert len(ANSWERS) >= 28
    assert all("Often answered" in law.statement for law in ANSWERS)
    assert all(law.mutants for law in EXHAUSTIVE)


def test_laws_have_distinct_names_and_a_kind():
    names = [law.name for law in all_laws()]
    assert len(set(names)) == len(names)
    assert {law.kind for law in all_laws()} == {"step", "family", "exhaustive", "answers"}
