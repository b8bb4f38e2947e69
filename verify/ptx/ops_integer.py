"""The table of integer, logic, comparison and conversion instructions, with their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verify.ptx.domain import Bits, Bool, Domain
from verify.ptx.ops_base import Compute, Kind, Operation, Slot

__all__ = ["integer_operations"]

_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def _width(type_: str) -> int:
    return int(type_[1:])


def _pure(
    name: str, section: str, meaning: Callable[..., Bits | Bool], result: int, *operands: int, signed: bool = False
) -> Operation:
    """A row whose operands are all registers or constants; width 1 means a predicate."""
    out = Slot(Kind.RESULT if result > 1 else Kind.PREDICATE_RESULT, result)
    inputs = (Slot(Kind.VALUE if width > 1 else Kind.PREDICATE, width) for width in operands)
    return Operation(name, (out, *inputs), Compute(meaning, signed=signed), section)


def integer_operations() -> Iterator[Operation]:
    """Every row of this part of the table."""
    yield from _arithmetic()
    yield from _multiplication()
    yield from _division()
    yield from _order()
    yield from _logic()
    yield from _shifts()
    yield from _fields()
    yield from _selection()
    yield from _conversions()


def _arithmetic() -> Iterator[Operation]:
    section = "Integer Arithmetic Instructions"
    for type_ in _INTEGERS:
        width = _width(type_)
        yield _pure(f"add.{type_}", f"{section}: add", lambda d, a, b: d.add(a, b), width, width, width)
        yield _pure(f"sub.{type_}", f"{section}: sub", lambda d, a, b: d.sub(a, b), width, width, width)
        if type_[0] == "s":
            yield _pure(f"neg.{type_}", f"{section}: neg", _neg, width, width)
            yield _pure(f"abs.{type_}", f"{section}: abs", _abs, width, width)


def _neg(d: Domain, a: Bits) -> Bits:
    return d.sub(d.const(0, d.width(a)), a)


def _abs(d: Domain, a: Bits) -> Bits:
    return d.ite(d.slt(a, d.const(0, d.width(a))), _neg(d, a), a)


def _multiplication() -> Iterator[Operation]:
    section = "Integer Arithmetic Instructions"
    for type_ in _INTEGERS:
        width = _width(type_)
        high = _signed_high if type_[0] == "s" else _unsigned_high
        wide = _signed_wide if type_[0] == "s" else _unsigned_wide
        yield _pure(f"mul.lo.{type_}", f"{section}: mul", lambda d, a, b: d.mul(a, b), width, width, width)
        yield _pure(f"mul.hi.{type_}", f"{section}: mul", high, width, width, width)
        yield _pure(f"mad.lo.{type_}", f"{section}: mad", _mad_low, width, width, width, width)
        if width < 64:
            yield _pure(f"mul.wide.{type_}", f"{section}: mul", wide, 2 * width, width, width)
            mad = _signed_mad_wide if type_[0] == "s" else _unsigned_mad_wide
            yield _pure(f"mad.wide.{type_}", f"{section}: mad", mad, 2 * width, width, width, 2 * width)
    # Compilers form sums of small products with these, in index arithmetic.
    yield _pure("dp4a.u32.u32", f"{section}: dp4a", _dot_product_of_bytes, 32, 32, 32, 32)
    for half in ("lo", "hi"):
        yield _pure(f"dp2a.{half}.u32.u32", f"{section}: dp2a", _dot_product(16 * (half == "hi")), 32, 32, 32, 32)


def _dot_product_of_bytes(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
    """The four bytes of ``a``, each times that of ``b``, added to ``c``."""
    total = c
    for shift in (0, 8, 16, 24):
        left, right = (_byte(d, d.lshr(word, d.const(shift, 32)), 32) for word in (a, b))
        total = d.add(total, d.mul(left, right))
    return total


def _dot_product(first: int) -> Callable[..., Bits]:
    """Both 16-bit halves of ``a``, each times one of two bytes of ``b``, added to ``c``."""

    def meaning(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
        halves = (d.and_(a, d.const(0xFFFF, 32)), d.lshr(a, d.const(16, 32)))
        bytes_ = (_byte(d, d.lshr(b, d.const(first + shift, 32)), 32) for shift in (0, 8))
        low, high = (d.mul(half, byte) for half, byte in zip(halves, bytes_, strict=True))
        return d.add(c, d.add(low, high))

    return meaning


def _unsigned_high(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.mul_high(a, b)


def _signed_high(d: Domain, a: Bits, b: Bits) -> Bits:
    # Reading a negative number as unsigned adds 2**width to it, hence the other factor to the upper half.
    zero = d.const(0, d.width(a))
    excess = d.add(d.ite(d.slt(a, zero), b, zero), d.ite(d.slt(b, zero), a, zero))
    return d.sub(d.mul_high(a, b), excess)


def _signed_wide(d: Domain, a: Bits, b: Bits) -> Bits:
    width = 2 * d.width(a)
    return d.mul(d.sext(a, width), d.sext(b, width))


def _unsigned_wide(d: Domain, a: Bits, b: Bits) -> Bits:
    width = 2 * d.width(a)
    return d.mul(d.zext(a, width), d.zext(b, width))


def _mad_low(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
    return d.add(d.mul(a, b), c)


def _signed_mad_wide(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
    return d.add(_signed_wide(d, a, b), c)


def _unsigned_mad_wide(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
    return d.add(_unsigned_wide(d, a, b), c)


def _division() -> Iterator[Operation]:
    section = "Integer Arithmetic Instructions"
    for type_ in _INTEGERS:
        width, signed = _width(type_), type_[0] == "s"
        slots = (Slot(Kind.RESULT, width), Slot(Kind.VALUE, width), Slot(Kind.VALUE, width))
        quotient = (lambda d, a, b: d.sdiv(a, b)) if signed else (lambda d, a, b: d.udiv(a, b))
        rest = (lambda d, a, b: d.srem(a, b)) if signed else (lambda d, a, b: d.urem(a, b))
        requires = _signed_divisible if signed else _divisible
        hazard = "division by zero" + (" or overflow" if signed else "")
        yield Operation(f"div.{type_}", slots, Compute(quotient, False, requires, hazard), f"{section}: div")
        yield Operation(f"rem.{type_}", slots, Compute(rest, False, requires, hazard), f"{section}: rem")


def _divisible(d: Domain, _a: Bits, b: Bits) -> Bool:
    return d.bool_not(d.eq(b, d.const(0, d.width(b))))


def _signed_divisible(d: Domain, a: Bits, b: Bits) -> Bool:
    width = d.width(a)
    overflow = d.bool_and(d.eq(a, d.const(1 << (width - 1), width)), d.eq(b, d.const(-1, width)))
    return d.bool_and(_divisible(d, a, b), d.bool_not(overflow))


def _order() -> Iterator[Operation]:
    section = "Integer Arithmetic Instructions"
    for type_ in _INTEGERS:
        width, signed = _width(type_), type_[0] == "s"
        low = _signed_min if signed else _unsigned_min
        high = _signed_max if signed else _unsigned_max
        yield _pure(f"min.{type_}", f"{section}: min", low, width, width, width)
        yield _pure(f"max.{type_}", f"{section}: max", high, width, width, width)


def _signed_min(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.ite(d.slt(a, b), a, b)


def _unsigned_min(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.ite(d.ult(a, b), a, b)


def _signed_max(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.ite(d.slt(a, b), b, a)


def _unsigned_max(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.ite(d.ult(a, b), b, a)


def _logic() -> Iterator[Operation]:
    section = "Logic and Shift Instructions"
    for width in (16, 32, 64):
        yield _pure(f"and.b{width}", f"{section}: and", lambda d, a, b: d.and_(a, b), width, width, width)
        yield _pure(f"or.b{width}", f"{section}: or", lambda d, a, b: d.or_(a, b), width, width, width)
        yield _pure(f"xor.b{width}", f"{section}: xor", lambda d, a, b: d.xor(a, b), width, width, width)
        yield _pure(f"not.b{width}", f"{section}: not", lambda d, a: d.not_(a), width, width)
    yield _pure("and.pred", f"{section}: and", lambda d, p, q: d.bool_and(p, q), 1, 1, 1)
    yield _pure("or.pred", f"{section}: or", lambda d, p, q: d.bool_or(p, q), 1, 1, 1)
    yield _pure("xor.pred", f"{section}: xor", lambda d, p, q: d.bool_xor(p, q), 1, 1, 1)
    yield _pure("not.pred", f"{section}: not", lambda d, p: d.bool_not(p), 1, 1)
    table = Slot(Kind.CONSTANT, 8)
    three = (Slot(Kind.VALUE),) * 3
    yield Operation("lop3.b32", (Slot(Kind.RESULT), *three, table), Compute(_any_logic_of_three), f"{section}: lop3")


def _any_logic_of_three(d: Domain, a: Bits, b: Bits, c: Bits, table: Bits) -> Bits:
    """Bit ``4*a + 2*b + c`` of the table, for every bit position."""
    result = d.const(0, 32)
    wide = d.zext(table, 32)
    for row in range(8):
        chosen = d.sub(d.const(0, 32), d.and_(d.lshr(wide, d.const(row, 32)), d.const(1, 32)))
        for operand, weight in ((a, 4), (b, 2), (c, 1)):
            chosen = d.and_(chosen, operand if row & weight else d.not_(operand))
        result = d.or_(result, chosen)
    return result


def _amount(d: Domain, amount: Bits, width: int) -> Bits:
    """A 32-bit shift amount in the width of the shifted value, large amounts staying large."""
    if width >= 32:
        return d.zext(amount, width)
    return d.trunc(_unsigned_min(d, amount, d.const(width, 32)), width)


def _shifts() -> Iterator[Operation]:
    section = "Logic and Shift Instructions"
    for width in (16, 32, 64):
        yield _pure(f"shl.b{width}", f"{section}: shl", _shl, width, width, 32)
        for letter in "bus":
            meaning = _ashr if letter == "s" else _lshr
            yield _pure(f"shr.{letter}{width}", f"{section}: shr", meaning, width, width, 32)
    for mode, limit in (("wrap", _wrapped), ("clamp", _clamped)):
        yield _pure(f"shf.l.{mode}.b32", f"{section}: shf", _funnel_left(limit), 32, 32, 32, 32)
        yield _pure(f"shf.r.{mode}.b32", f"{section}: shf", _funnel_right(limit), 32, 32, 32, 32)


def _shl(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.shl(a, _amount(d, b, d.width(a)))


def _lshr(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.lshr(a, _amount(d, b, d.width(a)))


def _ashr(d: Domain, a: Bits, b: Bits) -> Bits:
    return d.ashr(a, _amount(d, b, d.width(a)))


def _wrapped(d: Domain, amount: Bits) -> Bits:
    return d.and_(amount, d.const(31, 32))


def _clamped(d: Domain, amount: Bits) -> Bits:
    return _unsigned_min(d, amount, d.const(32, 32))


def _join(d: Domain, high: Bits, low: Bits) -> Bits:
    return d.or_(d.shl(d.zext(high, 64), d.const(32, 64)), d.zext(low, 64))


def _funnel_left(limit: Callable[[Domain, Bits], Bits]) -> Callable[..., Bits]:
    def meaning(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
        shifted = d.shl(_join(d, b, a), d.zext(limit(d, c), 64))
        return d.trunc(d.lshr(shifted, d.const(32, 64)), 32)

    return meaning


def _funnel_right(limit: Callable[[Domain, Bits], Bits]) -> Callable[..., Bits]:
    def meaning(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
        return d.trunc(d.lshr(_join(d, b, a), d.zext(limit(d, c), 64)), 32)

    return meaning


def _fields() -> Iterator[Operation]:
    section = "Integer Arithmetic Instructions"
    for width in (32, 64):
        value, byte = Slot(Kind.VALUE, width), Slot(Kind.VALUE, 32)
        result = Slot(Kind.RESULT, width)
        fields: tuple[tuple[str, Callable[..., Bits], tuple[Slot, ...]], ...] = (
            (f"bfi.b{width}", _insert_field, (result, value, value, byte, byte)),
            (f"bfe.u{width}", _extract_unsigned, (result, value, byte, byte)),
            (f"bfe.s{width}", _extract_signed, (result, value, byte, byte)),
        )
        for name, meaning, slots in fields:
            effect = Compute(meaning, False, _is_field, "a field position or length above 255")
            yield Operation(name, slots, effect, f"{section}: {name[:3]}")
        yield _pure(f"popc.b{width}", f"{section}: popc", _population, 32, width)
        yield _pure(f"clz.b{width}", f"{section}: clz", _leading_zeros, 32, width)
        yield _pure(f"brev.b{width}", f"{section}: brev", _reverse, width, width)
    for mode, meaning in (("", _permute), *_PERMUTE_MODES.items()):
        name = f"prmt.b32.{mode}" if mode else "prmt.b32"
        yield _pure(name, "Data Movement and Conversion Instructions: prmt", meaning, 32, 32, 32, 32)


def _is_field(d: Domain, *operands: Bits) -> Bool:
    """Position and length are limited to 255: beyond, the 64-bit forms of an H200 differ from the ISA's pseudo-code."""
    position, length = operands[-2:]
    return d.bool_and(d.ule(position, d.const(255, 32)), d.ule(length, d.const(255, 32)))


def _byte(d: Domain, value: Bits, width: int) -> Bits:
    return d.zext(d.and_(value, d.const(0xFF, 32)), width)


def _ones(d: Domain, length: Bits, width: int) -> Bits:
    """``length`` ones at the bottom; all ones from ``width`` on."""
    return d.sub(d.shl(d.const(1, width), length), d.const(1, width))


def _insert_field(d: Domain, a: Bits, b: Bits, position: Bits, length: Bits) -> Bits:
    width = d.width(a)
    at = _byte(d, position, width)
    mask = d.shl(_ones(d, _byte(d, length, width), width), at)
    return d.or_(d.and_(b, d.not_(mask)), d.and_(d.shl(a, at), mask))


def _extract_unsigned(d: Domain, a: Bits, position: Bits, length: Bits) -> Bits:
    width = d.width(a)
    return d.and_(d.lshr(a, _byte(d, position, width)), _ones(d, _byte(d, length, width), width))


def _extract_signed(d: Domain, a: Bits, position: Bits, length: Bits) -> Bits:
    width = d.width(a)
    at, size = _byte(d, position, width), _byte(d, length, width)
    top = _unsigned_min(d, d.sub(d.add(at, size), d.const(1, width)), d.const(width - 1, width))
    sign = d.and_(d.lshr(a, top), d.const(1, width))
    empty = d.eq(size, d.const(0, width))
    mask = _ones(d, size, width)
    inside = d.and_(d.lshr(a, at), mask)
    # Bits of the field that lie above the register are copies of the sign, too.
    present = d.and_(mask, d.lshr(d.const(-1, width), at))
    filled = d.or_(inside, d.and_(d.sub(d.const(0, width), sign), d.not_(present)))
    return d.ite(empty, d.const(0, width), filled)


def _population(d: Domain, a: Bits) -> Bits:
    width = d.width(a)
    total = d.const(0, width)
    for bit in range(width):
        total = d.add(total, d.and_(d.lshr(a, d.const(bit, width)), d.const(1, width)))
    return d.trunc(total, 32)


def _leading_zeros(d: Domain, a: Bits) -> Bits:
    width = d.width(a)
    step = 1
    while step < width:
        a = d.or_(a, d.lshr(a, d.const(step, width)))
        step *= 2
    return _population(d, d.not_(a))


def _reverse(d: Domain, a: Bits) -> Bits:
    width = d.width(a)
    step = 1
    while step < width:
        mask = sum(((1 << step) - 1) << at for at in range(0, width, 2 * step))
        low = d.and_(a, d.const(mask, width))
        high = d.and_(d.lshr(a, d.const(step, width)), d.const(mask, width))
        a = d.or_(d.shl(low, d.const(step, width)), high)
        step *= 2
    return a


def _pick(d: Domain, pool: Bits, selector: Bits) -> Bits:
    """Byte ``selector mod 8`` of eight bytes, at the bottom of a 64-bit value."""
    amount = d.shl(d.and_(selector, d.const(7, 64)), d.const(3, 64))
    return d.and_(d.lshr(pool, amount), d.const(0xFF, 64))


def _permute(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
    pool, selectors = _join(d, b, a), d.zext(c, 64)
    result = d.const(0, 64)
    for position in range(4):
        selector = d.lshr(selectors, d.const(4 * position, 64))
        byte = _pick(d, pool, selector)
        negative = d.eq(d.and_(byte, d.const(0x80, 64)), d.const(0x80, 64))
        replicated = d.ite(negative, d.const(0xFF, 64), d.const(0, 64))
        replicate = d.eq(d.and_(selector, d.const(8, 64)), d.const(8, 64))
        byte = d.ite(replicate, replicated, byte)
        result = d.or_(result, d.shl(byte, d.const(8 * position, 64)))
    return d.trunc(result, 32)


def _permute_mode(rows: tuple[str, str, str, str]) -> Callable[..., Bits]:
    """A mode by its table: per value of ``c mod 4`` the source bytes, most significant first."""

    def meaning(d: Domain, a: Bits, b: Bits, c: Bits) -> Bits:
        chosen = d.and_(c, d.const(3, 32))
        selector = d.const(int(rows[3], 16), 32)
        for value in (2, 1, 0):
            selector = d.ite(d.eq(chosen, d.const(value, 32)), d.const(int(rows[value], 16), 32), selector)
        return _permute(d, a, b, selector)

    return meaning


_PERMUTE_MODES = {
    "f4e": _permute_mode(("3210", "4321", "5432", "6543")),
    "b4e": _permute_mode(("5670", "6701", "7012", "0123")),
    "rc8": _permute_mode(("0000", "1111", "2222", "3333")),
    "ecl": _permute_mode(("3210", "3211", "3222", "3333")),
    "ecr": _permute_mode(("0000", "1110", "2210", "3210")),
    "rc16": _permute_mode(("1010", "3232", "1010", "3232")),
}


def _selection() -> Iterator[Operation]:
    section = "Comparison and Selection Instructions"
    for width in (16, 32, 64):
        for letter in "bus":
            yield _pure(f"selp.{letter}{width}", f"{section}: selp", _select, width, width, width, 1)
            for name, meaning in _comparisons(letter):
                yield _pure(f"setp.{name}.{letter}{width}", f"{section}: setp", meaning, 1, width, width)
    yield _pure("selp.f32", f"{section}: selp", _select, 32, 32, 32, 1)
    yield _pure("selp.f64", f"{section}: selp", _select, 64, 64, 64, 1)


def _select(d: Domain, a: Bits, b: Bits, p: Bool) -> Bits:
    return d.ite(p, a, b)


def _comparisons(letter: str) -> Iterator[tuple[str, Callable[..., Bool]]]:
    yield "eq", lambda d, a, b: d.eq(a, b)
    yield "ne", lambda d, a, b: d.bool_not(d.eq(a, b))
    if letter == "s":
        yield "lt", lambda d, a, b: d.slt(a, b)
        yield "le", lambda d, a, b: d.sle(a, b)
        yield "gt", lambda d, a, b: d.slt(b, a)
        yield "ge", lambda d, a, b: d.sle(b, a)
    if letter == "u":
        for below, at_most, above, at_least in (("lt", "le", "gt", "ge"), ("lo", "ls", "hi", "hs")):
            yield below, lambda d, a, b: d.ult(a, b)
            yield at_most, lambda d, a, b: d.ule(a, b)
            yield above, lambda d, a, b: d.ult(b, a)
            yield at_least, lambda d, a, b: d.ule(b, a)


def _conversions() -> Iterator[Operation]:
    section = "Data Movement and Conversion Instructions"
    types = tuple(f"{letter}{width}" for width in (8, 16, 32, 64) for letter in "us")
    for source in types:
        for target in types:
            slots = (Slot(Kind.RESULT, _width(target), wider=True), Slot(Kind.VALUE, _width(source), wider=True))
            meaning = _convert(_width(target), source[0] == "s")
            effect = Compute(meaning, signed=target[0] == "s")
            yield Operation(f"cvt.{target}.{source}", slots, effect, f"{section}: cvt")
    for space in ("global", "shared", "local", "const"):
        effect = Compute(_to_space(space))
        slots = (Slot(Kind.RESULT, 64), Slot(Kind.VALUE, 64))
        yield Operation(f"cvta.to.{space}.u64", slots, effect, f"{section}: cvta")
        effect = Compute(_from_space(space))
        for slot in (Slot(Kind.VALUE, 64), Slot(Kind.SYMBOL, 64)):
            yield Operation(f"cvta.{space}.u64", (slots[0], slot), effect, f"{section}: cvta")


def _convert(width: int, signed: bool) -> Callable[..., Bits]:
    def meaning(d: Domain, a: Bits) -> Bits:
        if width <= d.width(a):
            return d.trunc(a, width)
        return d.sext(a, width) if signed else d.zext(a, width)

    return meaning


WINDOWS = {"global": 0, "const": 0, "shared": 0x0000_7F40_0000_0000, "local": 0x0000_7F80_0000_0000}
"""Where a state space lies in the generic address space.

Any value that keeps the windows apart will do: a program may only convert addresses back and forth.  Each window is
4 GiB long (shared) or 256 GiB (local).
"""


def _to_space(space: str) -> Callable[..., Bits]:
    return lambda d, a: d.sub(a, d.const(WINDOWS[space], 64)) if WINDOWS[space] else a


def _from_space(space: str) -> Callable[..., Bits]:
    return lambda d, a: d.add(a, d.const(WINDOWS[space], 64)) if WINDOWS[space] else a
