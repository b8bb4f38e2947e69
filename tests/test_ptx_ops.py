"""The meaning of every pure instruction, in both domains, against definitions on Python integers.

The definitions below follow the pseudo-code of the PTX ISA bit by bit; they share nothing with the table, which is
written over an abstract domain.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import z3
from ptx_vectors import PURE, input_widths, is_floating, vectors

from verify.ptx.domain_numpy import NUMPY
from verify.ptx.domain_z3 import Z3
from verify.ptx.ops import table
from verify.ptx.ops_base import Compute, Kind, Operation


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) & 1 else value


def truncated_quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def bit(value: int, position: int) -> int:
    return value >> position & 1


def from_bits(bits: list[int]) -> int:
    return sum(value << position for position, value in enumerate(bits))


# --- integers ---------------------------------------------------------------------------------------------------


def arithmetic(operator: str, type_: str, *operands: int) -> int:
    width = int(type_[1:])
    values = [signed(value, width) if type_[0] == "s" else value for value in operands]
    a, b = values[0], values[1] if len(values) > 1 else 0
    match operator:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "neg":
            return -a
        case "abs":
            return abs(a)
        case "div":
            return truncated_quotient(a, b)
        case "rem":
            return a - b * truncated_quotient(a, b)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "mul.lo" | "mul.wide":
            return a * b
        case "mul.hi":
            return a * b >> width
        case "mad.lo" | "mad.wide":
            return a * b + operands[2]
    raise AssertionError(operator)


def logic(operator: str, *operands: int) -> int:
    a, b = operands[0], operands[-1]
    return {"and": a & b, "or": a | b, "xor": a ^ b, "not": ~a}[operator]


def lop3(a: int, b: int, c: int, table_: int) -> int:
    return from_bits([bit(table_, 4 * bit(a, i) + 2 * bit(b, i) + bit(c, i)) for i in range(32)])


def shift(operator: str, type_: str, a: int, amount: int) -> int:
    width = int(type_[1:])
    if operator == "shl":
        return a << amount if amount < width else 0
    if type_[0] == "s":
        return signed(a, width) >> min(amount, width)
    return a >> amount if amount < width else 0


def funnel(direction: str, mode: str, a: int, b: int, c: int) -> int:
    amount = c % 32 if mode == "wrap" else min(c, 32)
    if direction == "l":
        return b << amount | a >> (32 - amount)
    return b << (32 - amount) | a >> amount


def insert_field(width: int, a: int, b: int, c: int, d: int) -> int:
    position, length, result = c & 0xFF, d & 0xFF, b
    for i in range(length):
        if position + i < width:
            result = result & ~(1 << (position + i)) | bit(a, i) << (position + i)
            if i >= width:
                result &= ~(1 << (position + i))
    return result


def extract_field(type_: str, a: int, b: int, c: int) -> int:
    width, position, length = int(type_[1:]), b & 0xFF, c & 0xFF
    sign = 0 if type_[0] == "u" or length == 0 else bit(a, min(position + length - 1, width - 1))
    bits = [bit(a, position + i) if i < length and position + i < width else sign for i in range(width)]
    return from_bits(bits)


PRMT_ROWS = {  # mode: for c = 0..3 the source of bytes 3, 2, 1, 0 of the result
    "f4e": [(3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)],
    "b4e": [(5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)],
    "rc8": [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)],
    "ecl": [(3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)],
    "ecr": [(0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)],
    "rc16": [(1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)],
}


def permute_bytes(mode: str, a: int, b: int, c: int) -> int:
    pool = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    if mode:
        return int.from_bytes([pool[source] for source in reversed(PRMT_ROWS[mode][c % 4])], "little")
    chosen = []
    for position in range(4):
        selector = c >> 4 * position & 15
        byte = pool[selector & 7]
        chosen.append((0xFF if byte >= 128 else 0) if selector & 8 else byte)
    return int.from_bytes(chosen, "little")


def compare(operator: str, type_: str, a: int, b: int) -> int:
    if type_[0] == "s":
        a, b = signed(a, int(type_[1:])), signed(b, int(type_[1:]))
    tests = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    tests |= {"lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b}
    return int(tests[operator])


def convert(source: str, a: int) -> int:
    return signed(a, int(source[1:])) if source[0] == "s" else a


def pack(parts: tuple[int, ...], width: int) -> int:
    return from_bits([bit(part, i) for part in parts for i in range(width)])


# --- floating point: exact rationals, rounded once ----------------------------------------------------------------

FORMATS = {32: (8, 23), 16: (5, 10)}


@cache
def decode(bits: int, width: int) -> Fraction | str:
    exponent_bits, fraction_bits = FORMATS[width]
    exponent, fraction = bits >> fraction_bits & ((1 << exponent_bits) - 1), bits & ((1 << fraction_bits) - 1)
    sign = -1 if bits >> (width - 1) else 1
    if exponent == (1 << exponent_bits) - 1:
        return "nan" if fraction else ("-inf" if sign < 0 else "inf")
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent:
        fraction, exponent = fraction | 1 << fraction_bits, exponent - 1
    return sign * Fraction(fraction) * Fraction(2) ** (exponent - bias + 1 - fraction_bits)


def encode(value: Fraction, width: int) -> int:
    """Round to nearest, ties to even, by comparing with the two neighbours among all patterns."""
    exponent_bits, fraction_bits = FORMATS[width]
    magnitude, largest = abs(value), ((1 << exponent_bits) - 1) << fraction_bits
    low, high = 0, largest
    while high - low > 1:
        middle = (low + high) // 2
        exact = decode(middle, width)
        assert isinstance(exact, Fraction)
        low, high = (middle, high) if exact <= magnitude else (low, middle)
    below = decode(low, width)
    assert isinstance(below, Fraction)
    step = Fraction(2) ** (max(low >> fraction_bits, 1) - (1 << (exponent_bits - 1)) + 2 - fraction_bits - 1)
    rest = magnitude - below
    nearest = high if 2 * rest > step or (2 * rest == step and low & 1) else low
    return nearest | ((value < 0) << (width - 1))


def floating(operator: str, width: int, *operands: int) -> int:
    values = [decode(operand, width) for operand in operands]
    negative = [operand >> (width - 1) for operand in operands]
    nan = 0x7FFFFFFF if width == 32 else 0x7FFF
    if operator == "sub":
        values[1], negative[1] = negate(values[1]), 1 - negative[1]
    if operator in ("mul", "fma"):
        product, product_negative = multiply(values[0], values[1], negative[0] ^ negative[1])
        if operator == "mul":
            return finish(product, product_negative, width, nan)
        values, negative = [product, values[2]], [product_negative, negative[2]]
    return finish(*total(values[0], values[1], negative[0], negative[1]), width, nan)


def negate(value):
    return {"nan": "nan", "inf": "-inf", "-inf": "inf"}[value] if isinstance(value, str) else -value


def multiply(a, b, negative):
    if "nan" in (a, b):
        return "nan", 0
    if isinstance(a, str) or isinstance(b, str):
        return ("nan", 0) if 0 in (a, b) else ("-inf" if negative else "inf", negative)
    return a * b, negative


def total(a, b, a_negative, b_negative):
    infinite = {value for value in (a, b) if isinstance(value, str)}
    if infinite:
        only = infinite.pop() if len(infinite) == 1 else "nan"
        return only, int(only == "-inf")
    if a + b == 0:
        return Fraction(0), a_negative & b_negative
    return a + b, int(a + b < 0)


def finish(value, negative, width, nan):
    if value == "nan":
        return nan
    if isinstance(value, str):
        return 0x7F800000 | negative << 31 if width == 32 else 0x7C00 | negative << 15
    return encode(value, width) if value else negative << (width - 1)


# --- which definition belongs to which row ------------------------------------------------------------------------


def reference(operation: Operation):
    """The definition of a row as a function of Python integers."""
    name, *rest = operation.name.split(".")
    match name, rest:
        case "mul" | "mad", [("lo" | "hi" | "wide") as mode, type_]:
            return lambda *v: arithmetic(f"{name}.{mode}", type_, *v)
        case (("add" | "sub" | "neg" | "abs" | "div" | "rem" | "min" | "max"), [type_]) if type_[0] != "f":
            return lambda *v: arithmetic(name, type_, *v)
        case (("add" | "sub" | "mul" | "fma"), [*_, "f32"]):
            return lambda *v: floating(name, 32, *v)
        case (("add" | "sub" | "mul" | "fma"), [*_, "f16x2"]):
            return lambda *v: (
                floating(name, 16, *(x & 0xFFFF for x in v)) | floating(name, 16, *(x >> 16 for x in v)) << 16
            )
        case (("and" | "or" | "xor" | "not"), _):
            return lambda *v: logic(name, *v)
        case "lop3", _:
            return lop3
        case (("shl" | "shr"), [type_]):
            return lambda *v: shift(name, type_, *v)
        case "shf", [direction, mode, _]:
            return lambda *v: funnel(direction, mode, *v)
        case "bfi", [type_]:
            return lambda *v: insert_field(int(type_[1:]), *v)
        case "bfe", [type_]:
            return lambda *v: extract_field(type_, *v)
        case "popc", _:
            return lambda a: bin(a).count("1")
        case "clz", [type_]:
            return lambda a: int(type_[1:]) - a.bit_length()
        case "brev", [type_]:
            return lambda a: int(f"{a:0{type_[1:]}b}"[::-1], 2)
        case "prmt", ["b32", *mode]:
            return lambda *v: permute_bytes("".join(mode), *v)
        case "dp4a", _:
            return lambda a, b, c: c + sum((a >> 8 * k & 0xFF) * (b >> 8 * k & 0xFF) for k in range(4))
        case "dp2a", [half, *_]:
            at = 2 if half == "hi" else 0
            return lambda a, b, c: c + sum((a >> 16 * k & 0xFFFF) * (b >> 8 * (at + k) & 0xFF) for k in (0, 1))
        case "selp", _:
            return lambda a, b, p: a if p else b
        case "setp", [operator, type_]:
            return lambda *v: compare(operator, type_, *v)
        case "cvt", [_, source]:
            return lambda a: convert(source, a)
        case "cvta", ["to", "shared" | "local", _]:
            return lambda a: a - WINDOW[rest[1]]
        case "cvta", [("shared" | "local") as space, _]:
            return lambda a: a + WINDOW[space]
        case "cvta", _:
            return lambda a: a
        case "mov", [type_]:
            vectors = [slot for slot in operation.slots if slot.count > 1]
            if vectors and vectors[0].kind is Kind.VALUES:
                return lambda *v: pack(v, vectors[0].width)
            if vectors:
                part, count = vectors[0].width, vectors[0].count
                return lambda a: tuple(a >> part * i & ((1 << part) - 1) for i in range(count))
            return lambda a: a
    raise AssertionError(f"no definition of {operation.name}")


WINDOW = {"shared": 0x7F4000000000, "local": 0x7F8000000000}


def expected(operation: Operation, chosen: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    define, modulus = reference(operation), 1 << operation.slots[0].width
    values = [define(*vector) for vector in chosen]
    return [tuple(part % modulus for part in v) if isinstance(v, tuple) else (v % modulus,) for v in values]


def numpy_values(operation: Operation, columns: list[tuple[int, ...]]):
    widths = input_widths(operation)
    types = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
    return [np.array([row[i] for row in columns], dtype=types[width]) for i, width in enumerate(widths)]


@pytest.mark.parametrize("operation", PURE, ids=[f"{row.name}-{len(row.slots)}" for row in PURE])
def test_an_instruction_means_the_same_on_integers_arrays_and_solver_terms(operation):
    assert isinstance(operation.effect, Compute)
    chosen = vectors(operation)
    wanted = expected(operation, chosen)
    found = operation.effect.meaning(NUMPY, *numpy_values(operation, chosen))
    parts = found if isinstance(found, tuple) else (found,)
    got = list(zip(*(np.broadcast_to(part, len(chosen)).tolist() for part in parts), strict=True))
    wrong = [(hex_all(v), hex_all(w), hex_all(g)) for v, w, g in zip(chosen, wanted, got, strict=True) if w != g]
    assert not wrong, f"operands, definition, numpy: {wrong[0]}"
    if is_floating(operation):
        return  # uninterpreted in the solver, see the next test
    for vector, value in list(zip(chosen, wanted, strict=True))[:12]:
        terms = [
            z3.BoolVal(bool(x)) if width == 1 else z3.BitVecVal(x, width)
            for x, width in zip(vector, input_widths(operation), strict=True)
        ]
        symbolic = operation.effect.meaning(Z3, *terms)
        parts = symbolic if isinstance(symbolic, tuple) else (symbolic,)
        assert tuple(int_of(part) for part in parts) == value, hex_all(vector)


def hex_all(values: tuple[int, ...]) -> str:
    return ", ".join(hex(value) for value in values)


def int_of(term: z3.ExprRef) -> int:
    term = z3.simplify(term)
    if z3.is_bool(term):
        return int(z3.is_true(term))
    assert isinstance(term, z3.BitVecNumRef)
    return term.as_long()


def test_every_pure_row_has_an_independent_definition():
    assert len(PURE) > 250
    assert all(reference(operation) for operation in PURE)


def test_the_solver_knows_nothing_about_floating_point_but_that_it_is_a_function():
    (operation,) = table()["add.rn.f32"]
    assert isinstance(operation.effect, Compute)
    a, b, c = z3.BitVecs("a b c", 32)
    term = operation.effect.meaning(Z3, a, b)
    solver = z3.Solver()
    solver.add(b == c, term != operation.effect.meaning(Z3, a, c))
    assert solver.check() == z3.unsat
    solver = z3.Solver()
    solver.add(b == 0, term != a)
    assert solver.check() == z3.sat


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", ["div", "rem"])
def test_division_states_where_its_result_is_unspecified(name, type_):
    (operation,) = table()[f"{name}.{type_}"]
    assert isinstance(operation.effect, Compute)
    assert operation.effect.requires is not None
    width = int(type_[1:])
    lowest, ones = 1 << (width - 1), (1 << width) - 1
    cases = [(7, 0, False), (7, 2, True), (lowest, ones, type_[0] == "u"), (lowest, 1, True)]
    for a, b, allowed in cases:
        terms = [z3.BitVecVal(a, width), z3.BitVecVal(b, width)]
        assert bool(int_of(operation.effect.requires(Z3, *terms))) is allowed
        arrays = [np.array([a]).astype(f"u{width // 8}"), np.array([b], dtype=f"u{width // 8}")]
        assert operation.effect.requires(NUMPY, *arrays).tolist() == [allowed]


def test_a_wrong_meaning_would_be_noticed():
    """The comparison above must be able to fail: a row with a neighbour's meaning disagrees somewhere."""
    twins = [("shr.u32", "shr.s32"), ("mul.hi.u32", "mul.hi.s32"), ("shf.l.wrap.b32", "shf.l.clamp.b32")]
    twins += [("setp.lt.u32", "setp.lt.s32"), ("cvt.u32.u8", "cvt.u32.s8"), ("bfe.u32", "bfe.s32")]
    twins += [("div.s64", "div.u64"), ("prmt.b32", "prmt.b32.ecl"), ("min.u16", "min.s16"), ("add.s32", "sub.s32")]
    for name, twin in twins:
        (operation,), (other,) = table()[name], table()[twin]
        assert isinstance(other.effect, Compute)
        chosen = vectors(operation)
        found = other.effect.meaning(NUMPY, *numpy_values(operation, chosen)).tolist()
        assert found != [value for (value,) in expected(operation, chosen)], (name, twin)
