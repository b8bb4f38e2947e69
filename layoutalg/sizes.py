"""Integer expressions in named sizes, as text: ``"M*N"``, ``"(N + 31)//32"``, ``"M*N <= 2**31"``.

They are read with Python's own grammar and evaluated by walking the tree, over whatever numbers the caller gives:
ints, terms of the algebra, solver terms.  Nothing but ``+ - * // %``, comparisons, names and integers is accepted.

>>> evaluate_size("(N + 31)//32", {"N": 33}), holds("1 <= M*N <= 2**31", {"M": 5, "N": 7})
(2, True)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from layoutalg.errors import LayoutError

__all__ = ["Size", "comparisons", "evaluate_size", "holds", "names_of"]

#: A number, or an expression in sizes.
Size: TypeAlias = int | str

_LONGEST: Final = 400
_BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARE: Final[dict[type, str]] = {ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">", ast.Eq: "=="}
_TEST: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": lambda a, b: bool(a <= b),
    "<": lambda a, b: bool(a < b),
    ">=": lambda a, b: bool(a >= b),
    ">": lambda a, b: bool(a > b),
    "==": lambda a, b: bool(a == b),
}


@cache
def _tree(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise LayoutError(f"a size expression of {len(text)} characters; the limit is {_LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise LayoutError(f"{text!r} is no expression in sizes: {error}") from None


def names_of(size: Size) -> frozenset[str]:
    """Return the names in an expression.

    >>> sorted(names_of("(N + 31)//32 * M"))
    ['M', 'N']
    """
    if isinstance(size, int):
        return frozenset()
    return frozenset(node.id for node in ast.walk(_tree(size)) if isinstance(node, ast.Name))


def evaluate_size(size: Size, values: Mapping[str, Any]) -> Any:
    """Return the value of a size, in the numbers that ``values`` holds.

    Raises:
        LayoutError: an unknown name, or something that is no integer expression.

    >>> evaluate_size("M % 4 + 2**3", {"M": 7})
    11
    """
    return size if isinstance(size, int) else _value(_tree(size), values, size)


def _value(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in values:
                raise LayoutError(f"{text!r} names {name}, which is no size; there are {', '.join(values) or 'none'}")
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= 64:
            base, result = _value(left, values, text), 1
            for _ in range(power):
                result = base * result
            return result
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left, values, text), _value(right, values, text)
            if isinstance(op, ast.FloorDiv | ast.Mod) and isinstance(b, int) and b < 1:
                raise LayoutError(f"{text!r} divides by {b}; divisors are at least 1")
            return _BINARY[type(op)](a, b)
    raise LayoutError(f"{text!r} is no expression in sizes: only + - * // %, names and integers are")


def comparisons(text: str, values: Mapping[str, Any]) -> tuple[tuple[Any, str, Any], ...]:
    """Return the comparisons that a condition consists of, as ``(left, relation, right)``.

    >>> comparisons("1 <= M < 9", {"M": 5})
    ((1, '<=', 5), (5, '<', 9))
    """
    tree = _tree(text)
    if not isinstance(tree, ast.Compare) or any(type(op) not in _COMPARE for op in tree.ops):
        raise LayoutError(f"{text!r} is no condition on sizes: write a comparison with <=, <, >=, > or ==")
    sides = [_value(node, values, text) for node in (tree.left, *tree.comparators)]
    return tuple((sides[i], _COMPARE[type(op)], sides[i + 1]) for i, op in enumerate(tree.ops))


def holds(text: str, values: Mapping[str, int]) -> bool:
    """Say whether a condition holds for these numbers.

    >>> holds("M*N <= 100", {"M": 11, "N": 10})
    False
    """
    return all(_TEST[relation](a, b) for a, relation, b in comparisons(text, values))
