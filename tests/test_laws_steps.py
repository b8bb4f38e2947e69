"""The laws over all extents: proved, not vacuous, and refuting what is plausible and wrong."""

from __future__ import annotations

import pytest

from verify.laws import all_laws, law_named
from verify.laws.core import Settings
from verify.laws.step import Grid, Model, Proof
from verify.verdict import Proved, Refuted, Unknown

STEPS = [law for law in all_laws() if law.kind == "step"]
#: Bit-blasted 64-bit vectors cost more than anything else here.
HEAVY = {"swizzle.involution_on_64_bits", "swizzle.injective_on_64_bits"}
MUTANTS = [(law, mutant) for law in STEPS for mutant in law.mutants]


@pytest.mark.parametrize(
    "law", [pytest.param(x, id=x.name, marks=pytest.mark.slow if x.name in HEAVY else ()) for x in STEPS]
)
def test_a_step_is_proved_within_its_effort(law):
    verdict = law.check(Settings())
    assert isinstance(verdict, Proved), verdict
    assert verdict.effort < (20_000_000 if law.name in HEAVY else 1_000_000)
    assert verdict.scope == law.scope


@pytest.mark.parametrize("law", STEPS, ids=lambda law: law.name)
def test_a_step_holds_on_a_grid_and_its_hypotheses_are_satisfied_there(law):
    verdict = law.evaluate()
    assert isinstance(verdict, Proved), verdict
    assert int(verdict.scope.split()[0]) > 0


@pytest.mark.parametrize(("law", "mutant"), MUTANTS, ids=lambda x: x.name.replace(" ", "_"))
def test_a_wrong_step_is_refuted_and_the_library_gives_another_answer_there(law, mutant):
    verdict = mutant.check(Settings())
    assert isinstance(verdict, Refuted), verdict
    right, wrong = mutant.replay(verdict.counterexample)
    assert right != wrong, (law.name, verdict)


def test_every_step_has_a_mutant_and_a_statement():
    assert len(STEPS) > 20
    for law in STEPS:
        assert law.mutants, law.name
        assert len(law.statement) > 20, law.name


def test_the_worlds_of_a_step_agree_that_a_false_statement_is_false():
    def false(w):
        e = w.extent("e")
        n = w.digits(w.integer("u"), (w.digit("d", e), e))
        return n // e == w.integer("u") + 1

    world = Proof()
    goal = false(world)
    from verify.solve import prove

    assert isinstance(prove(goal, given=world.given, scope=""), Refuted)
    small = Model("", 3)
    goal = false(small)
    assert isinstance(prove(goal, given=small.given, scope=""), Refuted)
    assert isinstance(Grid(false).verdict(), Refuted)


def test_hypotheses_that_contradict_each_other_are_no_success():
    def vacuous(w):
        e = w.extent("e")
        w.assume(e == 1)
        return e == 1

    assert isinstance(Grid(vacuous).verdict(), Unknown)


def test_a_small_budget_gives_unknown_and_no_success():
    verdict = law_named("canonical.concatenate").check(Settings(budget=10))
    assert isinstance(verdict, Unknown)
    assert not verdict.ok
