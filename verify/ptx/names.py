"""Which constants a term is made of."""

from __future__ import annotations

from typing import Any

import z3

__all__ = ["FreeNames"]


class FreeNames:
    """Names of the constants in terms; of a part that terms share, such as a table, they are looked for once.

    >>> x, y = z3.BitVecs("x y", 8)
    >>> sorted(FreeNames()(x + (y ^ x)))
    ['x', 'y']
    """

    def __init__(self) -> None:
        # Terms are kept with their names: the number of a term that is gone would be given to another one.
        self._known: dict[int, tuple[Any, frozenset[str]]] = {}

    def __call__(self, term: Any) -> frozenset[str]:
        """Return the names of the constants in a term."""
        stack = [term]
        while stack:
            node = stack[-1]
            children = node.children()
            missing = [child for child in children if child.get_id() not in self._known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._known[node.get_id()] = (node, self._names(node, children))
        return self._known[term.get_id()][1]

    def _names(self, node: Any, children: list[Any]) -> frozenset[str]:
        if not children:
            is_constant = node.decl().kind() == z3.Z3_OP_UNINTERPRETED
            return frozenset((node.decl().name(),)) if is_constant else frozenset()
        names = max((self._known[child.get_id()][1] for child in children), key=len)
        return names.union(*(self._known[child.get_id()][1] for child in children))
