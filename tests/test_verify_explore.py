"""The explorer of paths: every answer that is possible is given, and nothing else."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutalg.decide import at_most, equal, exact_quotient
from verify import Proved, Refuted, Unknown
from verify.explore import Explorer, all_of, any_of, equal_to, explore, holds, negate, nonzero, zero


def outcomes(body):
    """What a body returns on each of its paths."""
    found = []

    def run(x):
        found.append(body(x))
        return []

    assert isinstance(explore(run, scope="all"), Proved)
    return found


def test_every_possible_answer_is_tried_once():
    def body(x):
        s, t, u = (x.unknown(n) for n in "stu")
        return equal(s, t), equal(t, u), equal(s, u)

    # Equality is transitive, so of eight combinations five are possible.
    assert sorted(outcomes(body)) == [
        (False, False, False),
        (False, False, True),
        (False, True, False),
        (True, False, False),
        (True, True, True),
    ]


def test_questions_over_integers_know_about_gaps_and_remainders():
    def body(x):
        s = x.unknown("s")
        return at_most(s, 3) and at_most(4, s), equal(s * 2, 7), (s * 6 + 4) % 3

    assert set(outcomes(body)) == {(False, False, 1)}


def test_a_remainder_that_is_not_clear_becomes_an_unknown_of_its_range():
    def body(x):
        s = x.unknown("s")
        q, r = divmod(s + 5, 4)
        return [({}, zero(q * 4 + r - s - 5)), ({}, all_of([negate(zero(r + 1)), negate(zero(r - 4))]))]

    assert isinstance(explore(body, scope="all"), Proved)
    assert sorted(outcomes(lambda x: [k for k in range(4) if equal(x.unknown("s") % 4, k)])) == [[0], [1], [2], [3]]


def test_divisibility_is_a_question_too():
    assert sorted(outcomes(lambda x: exact_quotient(x.unknown("s"), 3) is None)) == [False, True]
    assert outcomes(lambda x: exact_quotient(x.unknown("s") * 6, x.unknown("s") * 2)) == [3]
    assert outcomes(lambda x: exact_quotient(x.unknown("s") * 3, x.unknown("s") * -2)) == [None]
    with pytest.raises(TypeError, match="no linear question"):
        outcomes(lambda x: exact_quotient(x.unknown("s"), x.unknown("t")))


def test_python_operators_fork_as_well():
    def body(x):
        s = x.unknown("s")
        return "neg" if s < 0 else "zero" if s == 0 else "small" if s <= 2 else "big" if s > 2 else "never"

    assert sorted(outcomes(body)) == ["big", "neg", "small", "zero"]
    assert sorted(outcomes(lambda x: (x.unknown("s") >= 1, bool(x.unknown("s"))))) == [
        (False, False),
        (False, True),
        (True, True),
    ]


def test_an_unknown_cannot_be_hashed_or_multiplied_by_another():
    x = Explorer()
    with pytest.raises(TypeError, match="unhashable"):
        hash(x.unknown("s"))
    with pytest.raises(TypeError):
        _ = x.unknown("s") * x.unknown("t")
    with pytest.raises(TypeError, match="positive ints"):
        divmod(x.unknown("s"), 0)
    assert (x.unknown("s") - x.unknown("s")) == 0
    assert type(x.unknown("s") * 0) is int
    assert repr(x.unknown("s") * 2 + 3) == "2*s + 3"


def test_code_that_asks_differently_the_second_time_is_caught():
    calls = []

    def body(x):
        calls.append(1)
        s = x.unknown("s")
        equal(s, len(calls))
        equal(s, 100)
        return []

    with pytest.raises(AssertionError, match="not deterministic"):
        explore(body, scope="all")


def test_a_counterexample_names_the_values_and_the_first_failing_label():
    def body(x):
        s, t = x.unknown("s"), x.unknown("t")
        return [({"index": 0}, zero(s - s)), ({"index": 1}, nonzero(s - t)), ({"index": 2}, nonzero(s - t))]

    verdict = explore(body, scope="all")
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample["index"] == 1
    assert verdict.counterexample["s"] == verdict.counterexample["t"]


def test_a_counterexample_about_a_quotient_names_the_unknowns_alone():
    def body(x):
        s = x.unknown("s")
        return [({"half": 0}, zero(s - s)), ({"half": 1}, nonzero(s // 2 - 3))]

    verdict = explore(body, scope="all")
    assert verdict.counterexample["s"] // 2 == 3
    assert verdict.counterexample["half"] == 1
    assert set(verdict.counterexample) == {"s", "half"}


def test_a_mistake_on_one_rare_path_is_found():
    def body(x):
        s, t = x.unknown("s"), x.unknown("t")
        if equal(s, 12_345) and equal(t, s * 2 + 1):
            return [({}, False)]
        return [({}, True)]

    assert explore(body, scope="all").counterexample == {"s": 12_345, "t": 24_691}


def test_a_solver_without_budget_gives_unknown():
    def body(x):
        s, t = x.unknown("s"), x.unknown("t")
        return [({}, negate(all_of([zero(s * 3 - t * 5 - 1), zero(s * 7 - t * 11 - 2)])))]

    assert isinstance(explore(body, scope="all", budget=1), Unknown)


def test_verdict_effort_and_counterexample_repeat():
    def body(x):
        s, t = x.unknown("s"), x.unknown("t")
        equal(s, t)
        return [({}, any_of([zero(s), zero(t)]))]

    first, second = (explore(body, scope="all") for _ in range(2))
    assert first == second


FORMS = st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 4))


@given(st.lists(st.tuples(st.sampled_from("=n"), FORMS), min_size=1, max_size=4), st.booleans())
def test_formulas_mean_what_their_evaluation_says(parts, conjunction):
    """Refuted with values that fail, or Proved: then no small values fail."""

    def formula(s, t):
        atoms = [(zero if kind == "=" else nonzero)(s * a + t * b + c) for kind, (a, b, c) in parts]
        return all_of(atoms) if conjunction else any_of(atoms)

    verdict = explore(lambda x: [({}, formula(x.unknown("s"), x.unknown("t")))], scope="all")
    if isinstance(verdict, Refuted):
        values = {"s": 0, "t": 0, **verdict.counterexample}
        assert not holds(formula(values["s"], values["t"]), {})
    else:
        assert all(holds(formula(s, t), {}) for s, t in product(range(-6, 7), repeat=2))


def test_vectors_are_compared_axis_by_axis():
    x = Explorer()
    s = x.unknown("s")
    assert holds(equal_to({"m": s, "laneid": 0}, {"m": s}), {"s": 3})
    assert not holds(equal_to({"m": s}, {"laneid": s}), {"s": 3})
    assert holds(equal_to({"m": s}, {"laneid": s}), {"s": 0})
