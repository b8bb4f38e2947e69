"""Sizes that are not known yet: sympy expressions in positive integer symbols.

Strides, offsets and extents may be sympy expressions.  Write ``32*q`` to state that a size is a multiple of 32:
divisibility is read off the expression, never guessed.  A question that the assumptions do not settle raises
:class:`~layoutalg.errors.UndecidedError` with the fact that was missing.

The numbers are polynomials with integer coefficients.  Signs are read off the coefficients after writing each positive
symbol as ``1 + s`` with ``s >= 0``: ``n*k - k`` becomes ``n + n*k`` and is never negative.

A refusal (NotExpressibleError) says that no layout serves all values of the symbols.  In a canonical form, extents that
are symbols count as at least 2; at 1 it is still right, only not the shortest.

This module alone imports sympy, and only when a symbolic number occurs.

>>> n = symbol("n")
>>> sym_equal(2 * n, n + n), sym_at_most(1, n), sym_quotient(32 * n, 8)
(True, True, 4*n)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sympy

from layoutalg.algebra.canonical import canonical_shard
from layoutalg.algebra.grouping import Shape, check_shape, group_iters
from layoutalg.axis import Axis
from layoutalg.decide import Number, Term, as_number, at_most
from layoutalg.errors import NotExpressibleError, RangeError, RegionError, UndecidedError
from layoutalg.index import Affine, flatten, split_off
from layoutalg.iters import Iters, Vector

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = [
    "closed_form",
    "is_index",
    "replace",
    "sym_at_most",
    "sym_divmod",
    "sym_equal",
    "sym_joins",
    "sym_number",
    "sym_quotient",
    "symbol",
]


def symbol(name: str) -> Any:
    """Return the positive integer symbol of this name.

    >>> symbol("n").is_positive
    True
    """
    return sympy.Symbol(name, integer=True, positive=True)


def sym_number(value: Any) -> Number:
    """Return a sympy integer expression as a number of the algebra, an int where it is constant.

    Raises:
        RangeError: it is not known to be an integer.

    >>> sym_number(sympy.Integer(4)), sym_number(2 * symbol("n"))
    (4, 2*n)
    """
    if getattr(value, "is_integer", None) is not True:
        raise RangeError(
            f"{value} is not known to be an integer: use symbols with integer=True, such as symbol({str(value)!r})"
        )
    return int(value) if value.is_Integer else value


def _sign(expression: Any) -> tuple[bool, bool, int | None]:
    """Return whether it is known to be >= 0, known to be <= 0, and its constant where it has no symbols.

    The first two speak about the polynomial with every positive symbol s written as 1 + s.
    """
    shifts = {s: s + 1 for s in expression.free_symbols if s.is_positive}
    shifted = sympy.expand(expression.subs(shifts, simultaneous=True))
    if shifted.is_Integer:
        return shifted >= 0, shifted <= 0, int(shifted)
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(shifted)]
    if not all(coefficient.is_Integer and (rest == 1 or rest.is_nonnegative) for coefficient, rest in terms):
        known = sympy.expand(expression)
        return bool(known.is_nonnegative), bool(known.is_nonpositive), None
    return all(c >= 0 for c, _ in terms), all(c <= 0 for c, _ in terms), None


def sym_equal(a: Number, b: Number) -> bool:
    """Decide a == b for all values of the symbols, or raise UndecidedError.

    >>> k = symbol("k")
    >>> sym_equal(2 * k, 1), sym_equal(k + 1, k)
    (False, False)
    """
    difference = sympy.expand(sympy.sympify(a) - b)
    if difference.is_zero:
        return True
    if _sign(difference - 1)[0] or _sign(difference + 1)[1] or not _divides_somewhere(difference):
        return False
    raise UndecidedError(f"it is not known whether {a} == {b}", question=("==", a, b))


def _divides_somewhere(difference: Any) -> bool:
    """Say whether the polynomial's content allows the value 0: the gcd of the coefficients divides the constant."""
    constant, rest = difference.as_coeff_Add()
    coefficients = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(rest)]
    if not (constant.is_Integer and all(c.is_Integer for c in coefficients)):
        return True
    return int(constant) % math.gcd(*(int(c) for c in coefficients)) == 0


def sym_joins(stride: Number, inner_extent: Number, inner_stride: Number, extent: Number) -> bool:
    """Decide stride == inner_extent * inner_stride, bare symbols among the extents counting as at least 2.

    >>> n, k = symbol("n"), symbol("k")
    >>> sym_joins(1, n, k, k)  # column-major (k, n) does not merge: at n = k = 1 there is nothing to merge
    False
    """
    bare = {x: x + 1 for x in (inner_extent, extent) if getattr(x, "is_Symbol", False)}
    question = [sympy.sympify(x) for x in (stride, inner_extent * inner_stride)]
    try:
        return sym_equal(*(x.subs(bare, simultaneous=True) for x in question))
    except UndecidedError:
        raise UndecidedError(
            f"it is not known whether {question[0]} == {question[1]}", question=("==", *question)
        ) from None


def sym_at_most(a: Number, b: Number) -> bool:
    """Decide a <= b for all values of the symbols, or raise UndecidedError.

    >>> n = symbol("n")
    >>> sym_at_most(n, n * symbol("k")), sym_at_most(n + 1, n)
    (True, False)
    """
    difference = sympy.expand(sympy.sympify(b) - a)
    if _sign(difference)[0]:
        return True
    if _sign(difference + 1)[1]:
        return False
    raise UndecidedError(f"it is not known whether {a} <= {b}", question=("<=", a, b))


def sym_quotient(a: Number, b: Number) -> Number | None:
    """Return a / b when that is an integer for all values of the symbols; None when it is for none.

    Raises:
        UndecidedError: the quotient is an integer for some values only; the message states what was missing.

    >>> q = symbol("q")
    >>> sym_quotient(32 * q, 16 * q), sym_quotient(4, 32 * q), sym_quotient(4 * q + 2, 4)
    (2, None, None)
    """
    numerator, denominator = sympy.fraction(sympy.together(sympy.cancel(sympy.sympify(a) / b)))
    if denominator == 1:
        return sym_number(numerator)
    missing = UndecidedError(
        f"it is not known whether {b} divides {a}; state divisibility by writing a size as a multiple, such as 32*q",
        question=("divides", b, a),
    )
    if denominator.is_Integer:
        if not _divides_somewhere(numerator + denominator * sympy.Dummy()):
            return None
        raise missing
    if _sign(sympy.expand(numerator - 1))[0] and _sign(sympy.expand(denominator - numerator - 1))[0]:
        return None  # 0 < a < b
    raise missing


def sym_divmod(value: Number, divisor: Number) -> tuple[Number, Number]:
    """Return quotient and remainder of a polynomial by an extent, where the terms decide them.

    Raises:
        UndecidedError: some term is no known multiple of the divisor, nor known to be a remainder.

    >>> i = symbol("i")
    >>> sym_divmod(64 * i + 13, 8)
    (8*i + 1, 5)
    """
    quotient: Number = 0
    rest: Number = 0
    for term in sympy.Add.make_args(sympy.expand(sympy.sympify(value))):
        try:
            part = sym_quotient(term, divisor)
        except UndecidedError:
            part = None
        quotient, rest = (quotient, rest + term) if part is None else (quotient + part, rest)
    rest = sym_number(sympy.sympify(rest))
    if type(rest) is int and type(divisor) is int:
        carry, rest = divmod(rest, divisor)
        return sym_number(sympy.sympify(quotient + carry)), rest
    try:
        inside = sym_at_most(0, rest) and sym_at_most(rest + 1, divisor)
    except UndecidedError:
        inside = False
    if not inside:
        raise UndecidedError(
            f"{value} modulo {divisor} is not known; write the parts that are multiples of {divisor} as such",
            question=("mod", value, divisor),
        )
    return sym_number(sympy.sympify(quotient)), rest


def is_index(value: Number, sizes: Sequence[Number]) -> bool:
    """Say whether a symbolic begin has a symbol that no size has: an index, which is inside by assumption.

    >>> is_index(16 * symbol("i"), (symbol("n"), 64)), is_index(symbol("n"), (symbol("n"), 64))
    (True, False)
    """
    known = set().union(*(getattr(size, "free_symbols", set()) for size in sizes))
    return bool(getattr(value, "free_symbols", set()) - known)


def replace(value: Number, values: Mapping[str, int]) -> Number:
    """Replace symbols by name.

    Raises:
        RangeError: a positive symbol by a number below 1.

    >>> replace(32 * symbol("q"), {"q": 3})
    96
    """
    if not isinstance(value, sympy.Basic):
        return value
    chosen = {s: as_number(values[s.name], s.name) for s in value.free_symbols if s.name in values}
    for s, number in chosen.items():
        if s.is_positive and not at_most(1, number):
            raise RangeError(f"{s} = {number} is below 1; symbols stand for positive integers", value=number)
    return sym_number(sympy.sympify(value.subs(chosen, simultaneous=True)))


def closed_form(layout: TileLayout, coord: Sequence[Any], shape: Sequence[Any] | None) -> dict[str, Any]:
    """Return the base place as a simplified expression per axis, coordinates given as symbols, names or numbers.

    Where the layout follows the shape, each coordinate splits into the digits of its own iters, so that a digit which
    is the whole coordinate is printed as such; elsewhere the flat index is split.

    >>> from layoutalg.tile import TileLayout
    >>> closed_form(TileLayout.parse("S[n,k]"), ("i", "j"), (symbol("n"), symbol("k")))
    {'m': i*k + j}
    """
    given = coord[0] if len(coord) == 1 and isinstance(coord[0], (tuple, list)) else coord
    x = [_coordinate(c, dim) for dim, c in enumerate(given)]
    extents = check_shape(shape, layout.size) if shape is not None else None
    if extents is None:
        extents = (layout.size,) if len(x) == 1 else tuple(it.extent for it in layout.shard)
    if len(x) != len(extents):
        raise RegionError(f"{len(x)} coordinates {tuple(x)} for {len(extents)} extents {extents}", coord=tuple(x))
    total: Vector = {axis: 0 for axis in layout.axes}
    total |= {Axis.get(name): value for name, value in layout.offset.items()}
    for c, iters in zip(*_by_dimension(layout, x, extents), strict=True):
        for axis, value in _digits_of(c, iters):
            total[axis] = total[axis] + value
    return {axis.name: _tidy(value) for axis, value in total.items()}


def _coordinate(value: Any, dim: int) -> Any:
    """Return a coordinate as a sympy expression: a name is a symbol from 0 up; refuse what is no number."""
    if isinstance(value, str) and value.isidentifier():
        return sympy.Symbol(value, integer=True, nonnegative=True)
    found = as_number(value, f"coordinate {dim}")
    if isinstance(found, Term):
        raise RangeError(f"coordinate {dim} is the parameter {found}; closed forms take names, numbers and expressions")
    return found


def _digits_of(x: Any, iters: Iters) -> Iterator[tuple[Axis, Any]]:
    """Yield what each iter adds to its axis: ``floor(x / place value) mod extent`` times its stride."""
    place: Number = 1
    for position in range(len(iters) - 1, -1, -1):
        extent, stride, axis = iters[position]
        digit = split_off(sympy.sympify(x), place)[0]
        yield axis, stride * (digit if position == 0 else split_off(digit, extent)[1])
        place = place * extent


def _by_dimension(layout: TileLayout, x: Sequence[Any], extents: Shape) -> tuple[Sequence[Any], list[Iters]]:
    """Return coordinates with the iters of each, or the flat index with all iters where the shape does not group."""
    iters = canonical_shard(layout.shard)
    try:
        grouped, seps = group_iters(iters, extents)
    except (NotExpressibleError, UndecidedError):
        return [flatten(x, extents)], [iters]
    return x, [canonical_shard(grouped[a:b]) for a, b in pairwise(seps)]


def _tidy(value: Number) -> Any:
    if isinstance(value, Affine):  # parameters are printed as symbols
        value = value.const + sum(c * sympy.Symbol(p.name, integer=True) for p, c in value.terms)
    return sympy.expand(sympy.sympify(value))
