"""The simplifier's rules and the laws that prove them: the same names on both sides; a mistake in any is noticed."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types

import numpy as np
import pytest

from codegen_cuda import expr as shipped
from layoutalg.errors import RangeError
from verify.laws.index_arithmetic import LAWS

SOURCE = inspect.getsource(shipped)
NAMES = {law.name.partition(".")[2] for law in LAWS}
TAG = re.compile(r"\[([a-z_]+)\]")
SIMPLIFIERS = {"bounds", "congruence", "possible_bits", "_recombined", "_product", "__floordiv__", "__mod__", "masked",
               "_quotient", "_remainder", "__xor__", "_xor", "exclusive", "__and__", "__rshift__"}  # fmt: skip
#: Returns that simplify nothing: what is known of a variable, "unknown", constants folded, work passed on.
PLAIN = {
    "(self.step, self.start)",
    "-1",
    "self",
    "Expr(self.const & mask, ())",
    "self._xor(other)",
    "other ^ self.const",
    "self.exclusive(other)",
    "self & mask",
    "self._atom('%', k, 0, k - 1)",
}


def returns():
    """Line and expression of every return of the methods that simplify."""
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.FunctionDef) and node.name in SIMPLIFIERS:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    yield node.name, inner


def test_the_rules_that_are_listed_are_the_laws_that_are_proved():
    assert set(TAG.findall(shipped.__doc__)) == NAMES


def test_every_return_of_the_simplifier_names_the_laws_it_stands_on():
    lines = SOURCE.splitlines()
    found = list(returns())
    assert {name for name, _ in found} == SIMPLIFIERS
    for method, node in found:
        tags = TAG.findall(" ".join(line.partition("#")[2] for line in lines[node.lineno - 1 : node.end_lineno]))
        plain = ast.unparse(node.value) in PLAIN
        assert plain or tags, f"{method}, line {node.lineno}: {lines[node.lineno - 1].strip()}"
        assert set(tags) <= NAMES


def test_every_law_is_used():
    code = SOURCE.replace(shipped.__doc__, "")
    assert set(TAG.findall(code)) & NAMES == NAMES


# -- mistakes --------------------------------------------------------------------------------------------------------


AXES = np.meshgrid(np.arange(4), np.arange(8), np.arange(0, 25, 4), np.arange(3, 12, 4), indexing="ij")
POINTS = dict(zip("ijno", (axis.reshape(-1) for axis in AXES), strict=True))


def family(i, j, n, o):
    """Expressions, or the same computations on numbers."""
    third = j // 3
    yield from (i * 8 + j, i * 3 + j, third, third * 3 + j % 3, third * 6 + j % 3, third + j % 3, n + j, 7 - j)
    yield from ((i * 8) ^ j, i ^ j, j ^ j, j ^ (j // 2), j ^ 13, (n // 8) + i, (j // 2) // 3, (i * 5 + j) % 8)
    yield from (i * j, n * o, n * (o + 1) + j, (n + 4) * i * 2 + 1)
    yield from ((i * 5 + j) % 8 + n, n * 3 + o, o, o * 2 + i, (i ^ j) * 2, i * 6 + (j ^ (i * 2)), j // 2)


def holds(module):
    """Whether a family of expressions has the values, ranges, divisibility, bits and texts that it should."""
    var = module.Expr.var
    try:
        var("x", -4, 4) // 3
    except RangeError:
        pass
    else:
        return False
    named = (var("i", 0, 3), var("j", 0, 7), var("n", 0, 24, step=4), var("o", 3, 11, step=4, start=3))
    for expr, number in zip(family(*named), family(*POINTS.values()), strict=True):
        pairs = [(expr, number)]
        for k in (2, 3, 4, 6, 8):
            pairs += [(expr // k, number // k), (expr % k, number % k)]
        pairs += [(expr.masked(mask), number & mask) for mask in (1, 3, 6)]
        if not all(sound(made, want) for made, want in pairs):
            return False
    return True


def sound(expr, number):
    """Whether one expression is right at all points, and all that it claims to know about itself."""
    low, high = expr.bounds()
    modulus, residue = expr.congruence()
    bits = expr.possible_bits()
    claims = [
        number >= low,
        number <= high,
        (number - residue) % modulus == 0 if modulus else number == residue,
        number & (0 if bits < 0 else ~bits) == 0,
        expr.evaluate(POINTS.__getitem__) == number,
        eval(expr.text().replace("/", "//"), {}, POINTS) == number,
    ]
    return all(np.all(claim) for claim in claims)


MISTAKES = {
    "multiple_leaves": ("whole = Expr(self.const // k, tuple(", "whole = Expr(self.const, tuple("),
    "small_vanishes": ("high < k:\n            return Expr(0, ())", "high <= k:\n            return Expr(0, ())"),
    "digit_splits": ("low >= 0 and high < g", "low >= 0 and high <= g"),
    "residue_is_enough": ("- c * start // k + (", "+ ("),
    "quotients_nest": ("(single.constant * k)", "(single.constant + k)"),
    "remainders_nest": ("and c * atom.constant % k == 0", "and c * (atom.constant % k) % k != 1"),
    "scaled_remainder": ("and c * atom.constant % k == 0", "and atom.constant % k == k // 2"),
    "digits_recombine": ("== c * atom.constant", "== c"),
    "disjoint_bits_add": ("if not mine & theirs:", "if not mine & theirs & 4:"),
    "equal_words_cancel": ("if self == other:", "if self.variables() >= other.variables():"),
    "far_bits_add": ("inner, outer = constant & reach, constant & ~reach", "inner, outer = constant & reach, constant"),
    "mask_keeps": ("not bits & ~mask:", "not bits & ~mask & 1:"),
    "mask_clears": ("not bits & mask:", "not bits & mask & 1:"),
    "low_mask_is_remainder": ("self % (mask + 1)  #", "self % (mask + 2)  #"),
    "mask_distributes": ("if bits < 0 or bits & union:", "if bits < 0:"),
    "products_keep_order": ("low + min(ends), high + max(ends)", "low + ends[0], high + ends[1]"),
    "quotients_keep_order": ("low // k, high // k)", "low // k, high // (k + 1))"),
    "residues_add": ("residue + c * start", "residue"),
    "multiples_multiply": ("step = math.gcd(*self.congruence()) *", "step = 2 * math.gcd(*self.congruence()) *"),
    "low_bits_of_a_residue": ("~zeros | self.start & zeros", "~zeros"),
    "reach_of_a_bound": ("reach = (1 << self.high.bit_length()) - 1", "reach = self.high"),
    "bits_of_a_sum": ("if union & part:", "if union & part & 1:"),
    "bits_of_operations": ("(inner | self.other.possible_bits())", "inner"),
    "bits_of_a_quotient": ('"/": inner // self.constant', '"/": inner // self.constant // 2'),
    "shift_is_quotient": ("{self.constant.bit_length() - 1}", "{self.constant.bit_length()}"),
    "truncation_is_floor": ("if self.bounds()[0] < 0:", "if self.bounds()[0] < -9:"),
}


def test_every_law_has_a_mistake():
    assert set(MISTAKES) == NAMES
    assert holds(shipped)


@pytest.mark.parametrize("rule", MISTAKES)
def test_a_mistake_in_a_rule_is_noticed(rule, monkeypatch):
    right, wrong = MISTAKES[rule]
    assert right in SOURCE
    module = types.ModuleType(f"broken_{rule}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE.replace(right, wrong), module.__name__, "exec"), module.__dict__)
    assert not holds(module)
