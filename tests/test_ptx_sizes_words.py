"""The third domain of the PTX table against the concrete one: whatever a word says of its bits is true of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import z3
from ptx_vectors import PURE, input_widths, is_floating, vectors

from verify.ptx.domain_numpy import NUMPY
from verify.ptx.ops_base import Operation
from verify.ptx.parametric.facts import Environment, Facts
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word, Words

THREADS = 8


class Case:
    """One instruction on operands whose values are known to us, and partly unknown to the domain."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.facts = Facts()
        self.words = Words(self.facts)
        self.thread = self.rng.randrange(THREADS)
        self.environment: Environment = {"thread": self.thread}

    def operand(self, value: int, width: int) -> Any:
        """A constant, a value per thread, or an unknown in a range; all of them ``value`` for our thread."""
        kind = self.rng.choice(("constant", "thread", "narrow", "wide", "sum"))
        if width == 1:
            return self.predicate(bool(value), kind)
        if kind == "constant":
            return self.words.const(value, width)
        if kind == "thread":
            table = np.array([self.rng.getrandbits(width) for _ in range(THREADS)], dtype=f"u{width // 8}")
            table[self.thread] = value
            return self.words.of_table(table)
        number = value - (1 << width) if value >> (width - 1) and self.rng.random() < 0.5 else value
        reach = {"narrow": 3, "wide": 1 << (width - 1)}.get(kind, 1 << self.rng.randrange(width))
        low, high = number - self.rng.randrange(reach + 1), number + self.rng.randrange(reach + 1)
        if kind != "sum":
            return self.words.word(width, self.unknown(number, low, high))
        part = self.rng.randrange(8)
        scale = self.rng.choice((1, 2, 4, 32))
        return self.words.word(width, self.unknown(part, 0, 7) * scale + self.unknown(number - scale * part, low, high))

    def unknown(self, number: int, low: int, high: int) -> Poly:
        name = self.facts.fresh("u")
        self.environment[name] = number
        return self.facts.atom(name, min(low, number), max(high, number))

    def predicate(self, value: bool, kind: str) -> Pred:
        if kind == "constant":
            return self.words.bool_const(value)
        if kind == "thread":
            table = np.array([self.rng.random() < 0.5 for _ in range(THREADS)])
            table[self.thread] = value
            number = self.facts.of_table(table.astype(np.int64))
            return Pred(self.facts.term(number) >= 1, table)
        return Pred(self.facts.term(self.unknown(int(value), 0, 1)) >= 1)


def value_of(case: Case, number: Poly) -> int | None:
    """What a polynomial comes to, unless it holds an atom of which nothing is known."""
    try:
        return case.facts.at(number, dict(case.environment))
    except KeyError:
        return None


def contradiction(case: Case, found: Word | Pred, bits: int) -> str:
    """How a result disagrees with its bits, if it does; a word may also say that it knows nothing."""
    if isinstance(found, Pred):
        if found.table is not None and bool(found.table[case.thread % len(found.table)]) != bool(bits):
            return "table"
        try:
            return "" if case.facts.holds(found.condition, dict(case.environment)) == bool(bits) else "condition"
        except KeyError:
            return ""
    if found.table is not None and int(found.table[case.thread % len(found.table)]) != bits:
        return "table"
    constant = found.row is not None and all(isinstance(byte, int) for byte in found.row)
    if constant and int.from_bytes(bytes(found.row), "little") != bits:  # type: ignore[arg-type]
        return "row"
    value = value_of(case, found.value)
    return "" if value is None or (value - bits) % (1 << found.width) == 0 else f"value {value}"


def reading(case: Case, found: Word, bits: int, *, signed: bool) -> str:
    """How the number that a word is read as disagrees with its bits."""
    wanted = bits - (1 << found.width) if signed and bits >> (found.width - 1) else bits
    number = case.words.number(found, signed=signed)
    value = value_of(case, number)
    if value is None:
        return ""
    low, high = case.facts.bounds(number)
    return "" if value == wanted and low <= value <= high else f"reads {value}, not {wanted}, in [{low}, {high}]"


def tried(operation: Operation, count: int) -> int:
    """Try an operation on some vectors; gives how often the domain knew the result."""
    known = 0
    for index, vector in enumerate(vectors(operation)[:count]):
        case = Case(f"{operation.name}{index}")
        widths = input_widths(operation)
        operands = [case.operand(value, width) for value, width in zip(vector, widths, strict=True)]
        exact = [np.array([bool(v)]) if w == 1 else NUMPY.const(v, w) for v, w in zip(vector, widths, strict=True)]
        meaning = operation.effect.meaning  # type: ignore[union-attr]
        results, wanted = meaning(case.words, *operands), meaning(NUMPY, *exact)
        pairs = zip(results, wanted, strict=True) if isinstance(results, tuple) else [(results, wanted)]
        for result, array in pairs:
            bits = int(array[0])
            assert contradiction(case, result, bits) == "", (operation.name, vector)
            if isinstance(result, Word):
                assert reading(case, result, bits, signed=False) == "", (operation.name, vector)
                assert reading(case, result, bits, signed=True) == "", (operation.name, vector)
                known += value_of(case, result.value) is not None
        assert all(case.facts.holds(fact, dict(case.environment)) for fact in case.facts.given if decided(case, fact))
    return known


def decided(case: Case, fact: Any) -> bool:
    """Whether all atoms of a fact have values."""
    try:
        case.facts.holds(fact, dict(case.environment))
    except KeyError:
        return False
    return True


EXACT = [row for row in PURE if not is_floating(row)]
#: These count bits of unknowns one by one, which nobody's addresses do and which takes the solver long.
LONG = ("clz", "popc", "brev", "prmt", "lop3")
QUICK = [row for row in EXACT if not row.name.startswith(LONG)]


@pytest.mark.parametrize("operation", QUICK[::9], ids=lambda row: row.name)
def test_what_a_word_says_of_its_bits_is_true(operation):
    tried(operation, 3)


@pytest.mark.slow
@pytest.mark.parametrize("operation", EXACT, ids=lambda row: row.name)
def test_what_a_word_says_of_its_bits_is_true_for_every_operation(operation):
    tried(operation, 2 if operation in QUICK else 1)


@pytest.mark.parametrize("name", ["add.s32", "mad.lo.s32", "mul.wide.s32", "sub.s32", "cvt.s64.s32", "min.s32"])
def test_index_arithmetic_keeps_what_is_known(name):
    (operation, *_) = [row for row in EXACT if row.name == name]
    assert tried(operation, 20) >= 10


def test_a_sum_that_may_wrap_is_reduced_and_one_that_cannot_is_not():
    facts = Facts()
    words = Words(facts)
    n = facts.atom("n", 0, (1 << 31) - 1)
    word = words.word(32, n + 1)
    assert words.number(word) == n + 1
    assert words.number(word, signed=True) != n + 1
    facts.path = (facts.term(n) <= 1000,)
    assert words.number(word, signed=True) == n + 1


def test_products_of_unknowns_are_bounded_by_the_lemma_alone():
    facts = Facts()
    m, n = (facts.atom(name, 1, 1 << 20, uniform=True) for name in "mn")
    facts.sizes = [m, n]
    i = facts.atom("i", 0, 1 << 20)
    j = facts.atom("j", 0, 1 << 20)
    facts.path = (facts.term(i) < facts.term(m), facts.term(j) < facts.term(n))
    assert facts.is_at_least(m * n - 1 - (i * n + j), 0) is True
    assert facts.is_at_least(m * n - 1 - (i * m + j), 0) is None
    assert not z3.is_true(facts.term(m * n) >= 1)
