"""Index arithmetic: what is simplified has the value that Python computes, and what should vanish does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codegen_cuda.expr import Atom, Expr
from layoutalg.errors import RangeError


@dataclass(frozen=True)
class Variable:
    name: str
    low: int
    high: int
    step: int
    start: int

    def expr(self):
        return Expr.var(self.name, self.low, self.high, step=self.step, start=self.start)

    def values(self):
        return [v for v in range(self.low, self.high + 1) if v % self.step == self.start % self.step]


@st.composite
def variables(draw):
    made = []
    for name in "ijk"[: draw(st.integers(1, 3))]:
        step = draw(st.sampled_from([1, 1, 2, 4, 6, 8]))
        start = draw(st.integers(0, step - 1))
        made.append(Variable(name, start, start + step * draw(st.integers(0, 5)), step, start))
    return tuple(made)


DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32])


@st.composite
def pairs(draw, names, depth):
    """An expression and the same computation on plain numbers."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.integers(0, 4)) == 0:
            k = draw(st.integers(0, 40))
            return (lambda _: Expr.of(k)), (lambda _: k)
        name = draw(st.sampled_from(names))
        return (lambda e: e[name]), (lambda v: v[name])
    (ea, va) = draw(pairs(names, depth - 1))
    op = draw(st.sampled_from(["+", "+", "*", "product", "//", "%", "^c", "^", "&", "mask"]))
    if op in ("+", "^", "product"):
        (eb, vb) = draw(pairs(names, depth - 1))
        if op == "product":
            return (lambda e: ea(e) * eb(e)), (lambda v: va(v) * vb(v))
        if op == "+":
            return (lambda e: ea(e) + eb(e)), (lambda v: va(v) + vb(v))
        return (lambda e: ea(e) ^ eb(e)), (lambda v: va(v) ^ vb(v))
    k = draw(DIVISORS)
    table = {
        "*": (lambda e: ea(e) * k, lambda v: va(v) * k),
        "//": (lambda e: ea(e) // k, lambda v: va(v) // k),
        "%": (lambda e: ea(e) % k, lambda v: va(v) % k),
        "^c": (lambda e: ea(e) ^ k, lambda v: va(v) ^ k),
        "&": (lambda e: ea(e) & k, lambda v: va(v) & k),
        "mask": (lambda e: ea(e).masked(k - 1), lambda v: va(v) & (k - 1)),
    }
    return table[op]


@given(st.data())
def test_a_simplified_expression_has_the_value_of_the_unsimplified_one_at_every_point(data):
    names = data.draw(variables())
    build, compute = data.draw(pairs([v.name for v in names], 4))
    result = build({v.name: v.expr() for v in names})
    low, high = result.bounds()
    modulus, residue = result.congruence()
    bits = result.possible_bits()
    points = list(itertools.islice(itertools.product(*(v.values() for v in names)), 216))
    for point in points:
        values = dict(zip([v.name for v in names], point, strict=True))
        want = compute(values)
        assert result.evaluate(values.__getitem__) == want
        assert low <= want <= high
        assert (want - residue) % modulus == 0 if modulus else want == residue
        assert bits < 0 or want & ~bits == 0


@given(st.data())
def test_printed_c_evaluates_to_the_same_number(data):
    names = data.draw(variables())
    build, compute = data.draw(pairs([v.name for v in names], 3))
    text = build({v.name: v.expr() for v in names}).text().replace("/", "//")
    for point in itertools.islice(itertools.product(*(v.values() for v in names)), 30):
        values = dict(zip([v.name for v in names], point, strict=True))
        assert eval(text, {}, values) == compute(values)  # the operators used mean the same in Python


I4, J8, N8 = Expr.var("i", 0, 3), Expr.var("j", 0, 7), Expr.var("n", 0, 96, step=8)
LANE = Expr.var("lane", 0, 31)


@pytest.mark.parametrize(
    ("made", "printed"),
    [
        ((I4 * 8 + J8) // 8, "i"),
        ((I4 * 8 + J8) % 8, "j"),
        ((I4 * 8 + J8) // 16, "(i >> 1)"),
        ((I4 * 8 + J8) % 16, "(i & 1) * 8 + j"),
        ((J8 // 2) * 2 + J8 % 2, "j"),
        (LANE // 4 * 4 + LANE % 4, "lane"),
        ((LANE % 8) % 4, "(lane & 3)"),
        ((LANE // 2) // 4, "(lane >> 3)"),
        (N8 % 8, "0"),
        ((N8 + 3) % 8, "3"),
        ((N8 + J8) // 8, "(n >> 3)"),
        ((I4 * 8) ^ J8, "i * 8 + j"),
        (J8 ^ J8, "0"),
        ((LANE >> 3) & 3, "((lane >> 3) & 3)"),
        ((LANE >> 3).masked(3), "(lane >> 3)"),
        (LANE.masked(32), "0"),
    ],
)
def test_what_ranges_divisibility_and_bits_decide_is_gone(made, printed):
    assert str(made) == printed


@example(n=3)
@given(n=st.integers(0, 9))
def test_a_false_divisibility_would_change_the_value(n):
    """The mutant: a variable wrongly said to be a multiple of four loses its remainder, the right one keeps it."""
    wrong = Expr.var("n", 0, 9, step=4) % 4
    right = Expr.var("n", 0, 9) % 4
    assert right.evaluate({"n": n}.__getitem__) == n % 4
    assert (wrong.evaluate({"n": n}.__getitem__) == n % 4) == (n % 4 == 0)


def test_what_may_be_negative_is_not_divided():
    x = Expr.var("x", -4, 4)
    for operation in (lambda: x // 3, lambda: x % 3, lambda: x & 1, lambda: x ^ LANE):
        with pytest.raises(RangeError, match="may be negative"):
            operation()
    assert str((x * 8 + 16) // 8) == "x + 2"


def test_narrowing_a_variable_changes_what_is_known_and_not_its_name():
    x = Expr.var("x", -(2**31), 2**31 - 1)
    assert str(x.within(0, 7) % 8) == "x"
    with pytest.raises(RangeError, match="never in"):
        x.within(0, 7).within(9, 10)
    with pytest.raises(RangeError, match="no variable"):
        (x + 1).within(0, 7)


def test_powers_of_two_are_no_divisions():
    assert str(LANE // 4 + LANE % 8).count("/") == 0
    assert str(LANE // 3).count("/") == 1
    assert str(LANE % 3).count("%") == 1


def grid_holds():
    """Whether a fixed family of expressions evaluates to the numbers that it should, at every point."""
    i, j, n = Expr.var("i", 0, 3), Expr.var("j", 0, 7), Expr.var("n", 0, 24, step=4)
    for values in itertools.product(range(4), range(8), range(0, 25, 4)):
        at = dict(zip("ijn", values, strict=True)).__getitem__
        a, b, c = values
        made = [i * 8 + j, i * 3 + j, j // 3 * 3 + j % 3, j // 3 * 6 + j % 3, n + j, (i * 8) ^ j, i ^ j]
        want = [a * 8 + b, a * 3 + b, b, b // 3 * 6 + b % 3, c + b, (a * 8) ^ b, a ^ b]
        for expr, number in zip(made, want, strict=True):
            if expr.evaluate(at) != number or expr.masked(6).evaluate(at) != number & 6:
                return False
            for k in (2, 4, 6, 8, 16):
                if (expr // k).evaluate(at) != number // k or (expr % k).evaluate(at) != number % k:
                    return False
    return True


def wrong_digit(self, k):
    g = 4
    if k % g or not self.terms:
        return None
    large = Expr(self.const // g, tuple((a, c // g) for a, c in self.terms if c % g == 0))
    small = Expr(self.const % g, tuple((a, c) for a, c in self.terms if c % g))
    return (g, large, small) if small.bounds()[1] < 2 * g else None


def wrong_recombination(self):
    for atom, c in self.terms:
        if atom.op == "%":
            return atom.operand * c
    return self


MUTANTS = {
    "small digits up to 2g": ("_digit", wrong_digit, Expr),
    "any remainder recombines": ("_recombined", wrong_recombination, Expr),
    "no low bits": ("possible_bits", lambda self: max(self.bounds()[1], 0) & ~1, Expr),
    "steps doubled": ("congruence", lambda self: (2 * self.step, self.start), Atom),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_noticed(monkeypatch, name):
    assert grid_holds()
    method, wrong, kind = MUTANTS[name]
    monkeypatch.setattr(kind, method, wrong)
    assert not grid_holds()
