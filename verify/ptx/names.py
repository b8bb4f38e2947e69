"""What is known of terms, children first: which constants a term is made of, for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import z3

__all__ = ["FreeNames", "bottom_up"]

T = TypeVar("T")


def bottom_up(term: Any, known: dict[int, tuple[Any, T]], make: Callable[[Any, list[Any]], T]) -> T:
    """Return what ``make(node, children)`` says of a term, asked once of each part, children first.

    Args:
        term: the term.
        known: what was said before, by number.  Terms are kept with it: the number of a term that is gone would be
            given to another one.
        make: what a node is, its children being in ``known``.

    >>> x, known = z3.BitVec("x", 8), {}
    >>> bottom_up((x + 1) * (x + 1), known, lambda node, children: 1 + sum(known[c.get_id()][1] for c in children))
    7
    >>> len(known)
    4
    """
    stack = [term]
    while stack:
        node = stack[-1]
        children = node.children()
        missing = [child for child in children if child.get_id() not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if node.get_id() not in known:
            known[node.get_id()] = (node, make(node, children))
    return known[term.get_id()][1]


class FreeNames:
    """Names of the constants in terms; of a part that terms share, such as a table, they are looked for once.

    >>> x, y = z3.BitVecs("x y", 8)
    >>> sorted(FreeNames()(x + (y ^ x)))
    ['x', 'y']
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, frozenset[str]]] = {}

    def __call__(self, term: Any) -> frozenset[str]:
        """Return the names of the constants in a term."""
        return bottom_up(term, self._known, self._names)

    def _names(self, node: Any, children: list[Any]) -> frozenset[str]:
        if not children:
            is_constant = node.decl().kind() == z3.Z3_OP_UNINTERPRETED
            return frozenset((node.decl().name(),)) if is_constant else frozenset()
        names = max((self._known[child.get_id()][1] for child in children), key=len)
        return names.union(*(self._known[child.get_id()][1] for child in children))
