"""The shipping code on unknown strides: every path right, every refusal right, every mutant refuted and replayed."""

from __future__ import annotations

import time

import pytest

from verify.laws import all_laws, law_named
from verify.laws.core import Settings
from verify.verdict import Proved, Refuted

FAMILIES = [law for law in all_laws() if law.kind == "family"]
#: Proved and evaluated in every run; the others are where slow tests run, for every choice of small strides.
QUICK = {
    "canonical.form_to_rank_2",
    "canonical.difference",
    "grouping.group",
    "packing.unpack",
    "permuting.permute",
    "slicing.intervals_2x2x2",
    "tiling.direct_sum_left_of",
}


def _param(law):
    return pytest.param(law, id=law.name, marks=() if law.name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("law", [_param(law) for law in FAMILIES])
def test_a_family_is_proved_on_every_path(law):
    started = time.process_time()
    verdict = law.check(Settings())
    assert isinstance(verdict, Proved), verdict
    assert " paths" in verdict.scope
    assert time.process_time() - started < 30


@pytest.mark.parametrize("law", [_param(law) for law in FAMILIES])
def test_a_family_holds_when_evaluated_on_small_strides(law):
    verdict = law.evaluate()
    assert isinstance(verdict, Proved), verdict
    assert int(verdict.scope.split()[0]) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("law", FAMILIES, ids=lambda law: law.name)
def test_a_family_holds_for_every_choice_of_small_strides(law):
    verdict = law.evaluate(thorough=True)
    assert isinstance(verdict, Proved), verdict


def _mutant(law, mutant):
    heavy = law.group == "slicing" and law.name not in QUICK
    name = f"{law.name}-{mutant.name}".replace(" ", "_")
    return pytest.param(law, mutant, id=name, marks=pytest.mark.slow if heavy else ())


@pytest.mark.parametrize(("law", "mutant"), [_mutant(law, m) for law in FAMILIES for m in law.mutants])
def test_a_mutant_of_the_shipping_code_is_refuted_and_replayed(law, mutant):
    assert law.kind == "family"
    verdict = mutant.check(Settings())
    assert isinstance(verdict, Refuted), verdict
    right, wrong = mutant.replay(verdict.counterexample)
    assert right != wrong


def test_the_quick_families_exist():
    assert {law.name for law in FAMILIES} >= QUICK
    assert all(law.mutants for law in FAMILIES)


def test_a_counterexample_that_does_not_repeat_is_noticed():
    law = law_named("slicing.intervals_2x2x2")
    member = law.mutants[0].check(Settings()).counterexample["member"]
    with pytest.raises(AssertionError, match="does not repeat"):
        law.mutants[0].replay({"s0": 4, "s1": 2, "s2": 1, "member": member})
