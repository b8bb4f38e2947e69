"""Values of generated C: what a statement stores, compares or passes on.

A value knows its element type and how it is spelt.  Python operators build sums and products of equal types; nothing
is converted silently.  Integers that index buffers are :class:`codegen_cuda.expr.Expr`, which know their ranges; an
integer read from memory becomes one that knows only its type.

>>> a = Name("a", dtype("f32"))
>>> print((a + 1) * 2, (-a).text(), sep=" | ")
(a + 1.0f) * 2.0f | -a
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Atom, Expr
from layoutalg.hardware.dtypes import Dtype, dtype

__all__ = [
    "Combination",
    "Condition",
    "Index",
    "Literal",
    "Name",
    "Op",
    "Value",
    "all_of",
    "any_of",
    "as_index",
    "as_value",
    "compare",
    "read",
]

_ARITHMETIC = ("int", "uint")
_FLOATS = ("float32", "float64")
_PRECEDENCE = {"|": 0, "^": 1, "&": 2, "<<": 3, ">>": 3, "+": 4, "-": 4, "*": 5}
_BITWISE = ("|", "^", "&", "<<", ">>")
_PRIMARY = 6
_INT32 = (-(1 << 31), (1 << 31) - 1)


class Value:
    """Base of everything that has an element type and a spelling."""

    __slots__ = ()
    #: How tightly the spelling binds; what is no :class:`Op` needs no parentheses.
    precedence: ClassVar[int] = _PRIMARY

    @property
    def type(self) -> Dtype:
        """The element type."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the spelling in C."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()

    def __add__(self, other: Any) -> Value:
        return _op("+", self, other)

    def __radd__(self, other: Any) -> Value:
        return _op("+", as_value(other, self.type), self)

    def __sub__(self, other: Any) -> Value:
        return _op("-", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _op("-", as_value(other, self.type), self)

    def __mul__(self, other: Any) -> Value:
        return _op("*", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _op("*", as_value(other, self.type), self)

    def __neg__(self) -> Value:
        return _op("-", None, self)

    def __and__(self, other: Any) -> Value:
        return _bits("&", self, other)

    def __or__(self, other: Any) -> Value:
        return _bits("|", self, other)

    def __xor__(self, other: Any) -> Value:
        return _bits("^", self, other)

    def __lshift__(self, distance: Any) -> Value:
        return _bits("<<", self, distance)

    def __rshift__(self, distance: Any) -> Value:
        return _bits(">>", self, distance)


@dataclass(frozen=True, slots=True)
class Literal(Value):
    """A number of an element type, in so many hexadecimal ``digits`` where it stands for bits."""

    number: int | float
    kind: Dtype
    digits: int = 0

    @property
    def type(self) -> Dtype:
        return self.kind

    def text(self) -> str:
        if self.kind.kind == "float":
            return repr(float(self.number)) + ("f" if self.kind.bits == 32 else "")
        suffix = ("u" if self.kind.kind == "uint" else "") + ("LL" if self.kind.bits == 64 else "")
        shown = f"{self.number:#0{self.digits + 2}x}" if self.digits else str(self.number)
        return f"{shown}{suffix}" if self.number >= 0 else f"({shown}{suffix})"


@dataclass(frozen=True, slots=True)
class Name(Value):
    """A C variable that is bound once, or any other primary expression."""

    spelling: str
    kind: Dtype

    @property
    def type(self) -> Dtype:
        return self.kind

    def text(self) -> str:
        return self.spelling


@dataclass(frozen=True, slots=True)
class Index(Value):
    """An index expression as an ``int``."""

    expr: Expr

    @property
    def type(self) -> Dtype:
        return dtype("int32")

    def text(self) -> str:
        return checked_text(self.expr, nested=bool(self.expr.terms) or self.expr.const < 0)


@dataclass(frozen=True, slots=True)
class Op(Value):
    """A sum, difference, product or operation on bits; ``left`` is ``None`` for a negation.

    >>> x = Name("x", dtype("u32"))
    >>> print((x & 255) << 8 | x >> 8, (x + 1) & 7, sep=" | ")
    ((x & 255u) << 8) | (x >> 8) | (x + 1u) & 7u
    """

    symbol: str
    left: Value | None
    right: Value

    @property
    def type(self) -> Dtype:
        return self.right.type if self.left is None else self.left.type

    @property
    def level(self) -> int:
        """How tightly it binds."""
        return _PRECEDENCE[self.symbol] if self.left is not None else _PRECEDENCE["*"]

    def text(self) -> str:
        if self.left is None:
            return f"-{_nested(self.right, _PRIMARY)}"
        if self.symbol in _BITWISE:  # few people know how tightly these bind
            chained = isinstance(self.left, Op) and self.left.symbol == self.symbol in "|^&"
            left = self.left.text() if chained else _nested(self.left, _PRIMARY)
            return f"{left} {self.symbol} {_nested(self.right, _PRIMARY)}"
        right = _nested(self.right, self.level + 1)  # no reassociation: sums of floats are not associative
        return f"{_nested(self.left, self.level)} {self.symbol} {right}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison; :meth:`decide` answers where the ranges, divisibility and types of both sides do."""

    left: Expr | Value
    symbol: str
    right: Expr | Value

    def decide(self) -> bool | None:
        """Return whether it always or never holds, ``None`` where that depends.

        >>> tx = Expr.var("tx", 0, 127)
        >>> compare(tx, "<", 128).decide(), compare(tx, "<", 64).decide(), compare(tx * 4, "==", 3).decide()
        (True, None, False)
        """
        if isinstance(self.left, Value) or isinstance(self.right, Value):
            return None
        difference = self.left - self.right
        low, high = difference.bounds()
        if self.symbol == "<":
            return True if high < 0 else False if low >= 0 else None
        modulus, residue = difference.congruence()
        apart = low > 0 or high < 0 or (residue % modulus != 0 if modulus else residue != 0)
        same = low == high == 0
        answer = False if apart else True if same else None
        return answer if self.symbol == "==" or answer is None else not answer

    def sides(self) -> tuple[Expr | Value, ...]:
        """Return what is compared."""
        return self.left, self.right

    def text(self) -> str:
        """Return the spelling in C."""
        return f"{_side(self.left)} {self.symbol} {_side(self.right)}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, slots=True)
class Combination:
    """Several conditions, joined by ``&&`` or ``||``; those that the ranges decide are not spelt."""

    symbol: str
    parts: tuple[Condition, ...]

    def decide(self) -> bool | None:
        """Return whether it always or never holds, ``None`` where that depends."""
        answers = [part.decide() for part in self.parts]
        absorbing = self.symbol == "||"
        if absorbing in answers:
            return absorbing
        return None if None in answers else not absorbing

    def sides(self) -> tuple[Expr | Value, ...]:
        """Return everything that is compared."""
        return tuple(side for part in self.parts for side in part.sides())

    def text(self) -> str:
        """Return the spelling in C."""
        decided = self.decide()
        if decided is not None:
            return "true" if decided else "false"
        return f" {self.symbol} ".join(part.text() for part in self.parts if part.decide() is None)

    def __str__(self) -> str:
        return self.text()


def any_of(*conditions: Condition) -> Combination:
    """Join conditions of which one is enough.

    >>> warp = Expr.var("warp", 0, 3)
    >>> print(any_of(compare(warp, "==", 0), compare(warp, "==", 2), compare(warp, "<", 0)))
    warp == 0 || warp == 2
    """
    return Combination("||", conditions)


def all_of(*conditions: Condition) -> Combination:
    """Join conditions that must all hold.

    >>> x = Expr.var("x", 0, 9)
    >>> all_of().decide(), all_of(compare(x, "<", 10)).decide(), all_of(compare(x, "<", 9)).decide()
    (True, True, None)
    """
    return Combination("&&", conditions)


def compare(left: Any, symbol: str, right: Any) -> Condition:
    """Compare two values or index expressions by ``<``, ``==`` or ``!=``.

    Raises:
        PlanError: another relation, or two types.
    """
    if symbol not in ("<", "==", "!="):
        raise PlanError(f"comparisons are '<', '==' and '!=', not {symbol!r}: swap the sides or negate", symbol=symbol)
    left, right = read(left), read(right)
    sides: list[Expr | Value] = []
    for side, other in ((left, right), (right, left)):
        integral = not isinstance(side, Value) or side.type.kind in _ARITHMETIC
        if integral and not (isinstance(other, Value) and other.type.kind not in _ARITHMETIC):
            sides.append(as_index(side))
        else:
            sides.append(as_value(side, other.type if isinstance(other, Value) else side.type))
    return Condition(sides[0], symbol, sides[1])


def read(x: Any) -> Any:
    """Return what a scalar that is used by name stands for, its element; anything else passes through."""
    return getattr(x, "element", x)


def as_index(x: Any) -> Expr:
    """Return an index expression: an int, an :class:`Expr`, or an integer value, of which only the type is known.

    Raises:
        PlanError: not an integer.

    >>> as_index(Name("phase_ptr[0]", dtype("i32"))).bounds()
    (-2147483648, 2147483647)
    """
    x = read(x)
    if isinstance(x, Expr):
        return x
    if type(x) is int:
        return Expr.of(x)
    if isinstance(x, Index):
        return x.expr
    if isinstance(x, Value) and x.type.kind in _ARITHMETIC and x.type.bits <= 32:
        bits, signed = x.type.bits, x.type.kind == "int"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        spelling = f"({x})" if isinstance(x, Op) else x.text()
        return Expr(0, ((Atom("load", spelling, None, 0, low, high), 1),))
    raise PlanError(f"an index is an int, an Expr or an integer value of up to 32 bits, not {x!r}", value=x)


def as_value(x: Any, wanted: Dtype) -> Value:
    """Return a value of the type that is wanted; Python numbers take it on, nothing else is converted.

    Raises:
        PlanError: a value of another type, or a number that the type does not have.
    """
    x = read(x)
    if isinstance(x, Expr):
        x = Index(x)
    if isinstance(x, Value):
        if x.type != wanted:
            raise PlanError(f"{x} is {x.type}, where {wanted} is wanted; nothing is converted silently", value=str(x))
        return x
    if type(x) is int and wanted.kind in _ARITHMETIC and wanted.carrier:
        signed = wanted.kind == "int"
        low = -(1 << (wanted.bits - 1)) if signed else 0
        if low <= x < low + (1 << wanted.bits):
            return Literal(x, wanted)
    if isinstance(x, int | float) and not isinstance(x, bool) and wanted.name in _FLOATS:
        return Literal(float(x), wanted)
    raise PlanError(f"{x!r} is no value of {wanted}", value=x)


def checked_text(expr: Expr, *, nested: bool = False, bare: bool = False) -> str:
    """Return the spelling of an index that C computes in ``int``.

    Args:
        nested: in parentheses, unless a single atom; it stands beside an operator.
        bare: without parentheses even then; it stands alone.

    Raises:
        PlanError: it may leave 32 bits.
    """
    if not any(atom.op == "load" for atom, _ in expr.terms):
        low, high = expr.bounds()
        if low < _INT32[0] or high > _INT32[1]:
            raise PlanError(f"index {expr} reaches [{low}, {high}], beyond int; split the buffer", low=low, high=high)
    return expr.bare() if bare else expr.text(nested=nested)


def _op(symbol: str, left: Value | None, right: Any) -> Value:
    kind = left.type if left is not None else right.type
    second = as_value(right, kind)
    if not ((kind.kind in _ARITHMETIC and kind.carrier) or kind.name in _FLOATS):
        raise PlanError(
            f"{kind} has no arithmetic in header-free C: its carrier moves bits; convert in a device function of yours",
            dtype=kind.name,
        )
    return Op(symbol, left, second)


def _bits(symbol: str, left: Value, right: Any) -> Value:
    """Join bits; those of signed numbers and of floats are no business of a kernel's."""
    if left.type.kind != "uint" or not left.type.carrier:
        raise PlanError(f"{left} {symbol} ...: bits are taken of unsigned integers, not of {left.type}; cast it")
    if symbol in ("<<", ">>"):
        if type(right) is int and not 0 <= right < left.type.bits:
            raise PlanError(f"{left} {symbol} {right}: a shift of {left.type} is by 0 to {left.type.bits - 1}")
        distance = read(right)
        return Op(symbol, left, distance if isinstance(distance, Value) else Index(as_index(distance)))
    return Op(symbol, left, as_value(right, left.type))


def _nested(value: Value, level: int) -> str:
    tight = value.level if isinstance(value, Op) else value.precedence
    return f"({value.text()})" if tight < level else value.text()


def _side(side: Expr | Value) -> str:
    if isinstance(side, Value):
        return side.text()
    if not side.terms and _INT32[1] < side.const < 1 << 32:  # compared with unsigned numbers
        return f"{side.const:#x}u"
    return checked_text(side)
