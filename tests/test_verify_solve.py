"""The solver's front end: hermetic, bounded by work, deterministic; and the lemmas about digits."""

from __future__ import annotations

import itertools

import pytest
import z3

from verify import Proved, Refuted, Unknown, solve
from verify.laws import law_named
from verify.laws.core import Settings
from verify.solve import is_satisfiable, prove
from verify.term import Div, Mod, digits, lemma_divmod, lemma_positive, lemma_range
from verify.verdict import verdict_json

x, y, z = z3.Ints("x y z")
#: Questions of three kinds; the last needs more work than a small budget has.
QUESTIONS = [
    (x * x >= 0, []),
    (x * y != 143, [x > 1, y > x]),
    (x * x * x + y * y * y != z * z * z, [x > 0, y > 0, z > 0, x < 60, y < 60]),
]


def ask(number, budget=200_000):
    goal, given = QUESTIONS[number]
    return prove(goal, given=given, scope="integers", budget=budget)


def test_the_three_outcomes():
    assert isinstance(ask(0), Proved)
    assert ask(1).counterexample == {"x": 11, "y": 13}
    unknown = ask(2)
    assert isinstance(unknown, Unknown)
    assert not unknown.ok
    assert verdict_json(unknown)["verdict"] == "Unknown"


def test_verdict_effort_and_counterexample_do_not_depend_on_what_was_asked_before():
    alone = [ask(number) for number in range(3)]
    for order in itertools.permutations(range(3)):
        again = {number: ask(number) for number in order}
        assert [again[number] for number in range(3)] == alone


def test_effort_is_what_the_budget_bounds():
    verdict = ask(1, budget=100)
    assert isinstance(verdict, Unknown)
    assert verdict.effort < 10_000


def test_an_unknown_says_which_limit_ended_it(monkeypatch):
    law = law_named("swizzle.injective_on_64_bits")
    assert "resource limit" in law.check(Settings(budget=1000)).reason
    monkeypatch.setattr(solve, "WATCHDOG_MS", 1)
    assert "clock" in law.check(Settings()).reason


def test_hypotheses_that_contradict_each_other_are_told_apart():
    assert isinstance(prove(z3.BoolVal(False), given=[x > 3, x < 2], scope=""), Proved)
    assert not is_satisfiable([x > 3, x < 2])
    assert is_satisfiable([x > 3, x < 5])


def test_a_counterexample_has_plain_values():
    flag, word, function = z3.Bool("flag"), z3.BitVec("word", 8), z3.Function("f", z3.IntSort(), z3.IntSort())
    verdict = prove(z3.Not(z3.And(flag, word == 200, function(3) == 4, x / y == 2, y == 5)), scope="")
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample["flag"] is True
    assert verdict.counterexample["word"] == 200
    assert verdict.counterexample["x"] // 5 == 2
    assert "div0" not in verdict.counterexample


@pytest.mark.parametrize("values", list(itertools.product((-2, 0, 3), (1, 2, 3), (0, 1, 2))))
def test_lemma_instances_hold_for_integer_division(values):
    """Each instance, with Div and Mod read as Python's own operators, is true."""
    q, e, r = values
    n = q * e + r
    table = z3.And(Div(n, e) == n // e, Mod(n, e) == n % e) if e > 0 else z3.BoolVal(True)
    for lemma in (
        lemma_divmod(*map(z3.IntVal, values)),
        lemma_range(r, e, 0, 2),
        lemma_positive(e, 2),
    ):
        assert is_satisfiable([table, lemma])
        assert isinstance(prove(lemma, given=[table], scope=""), Proved)


def test_digits_are_what_division_gives():
    u, c, d, f, e = z3.Ints("u c d f e")
    n, lemmas = digits(u, [(c, f), (d, e)])
    ranges = [f >= 1, e >= 1, c >= 0, c < f, d >= 0, d < e]
    wanted = z3.And(Div(n, e) == u * f + c, Mod(n, e) == d)
    assert isinstance(prove(wanted, given=[*lemmas, *ranges], scope=""), Proved)
    assert isinstance(prove(wanted, given=lemmas, scope=""), Refuted)  # nothing is known about digits out of range
    assert is_satisfiable([*lemmas, *ranges, f >= 2, e >= 2])
