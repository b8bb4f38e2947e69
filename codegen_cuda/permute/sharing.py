"""Parts that several indices have in common, computed once under a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from codegen_cuda.body import Let, let
from codegen_cuda.expr import Atom, Expr

__all__ = ["share"]


def share(indices: Sequence[Expr]) -> tuple[list[Let], list[Expr]]:
    """Name what occurs in more than one place: quotients, remainders and bit operations.

    Returns:
        The bindings of ``i0``, ``i1`` and so on, in order, and the indices in terms of them.

    >>> lane = Expr.var("lane", 0, 31)
    >>> bound, indices = share([lane // 3 * 5, (lane // 3 + 1) % 7 + lane])
    >>> bound[0].name, str(bound[0].value), [str(index) for index in indices]
    ('i0', '(lane / 3)', ['i0 * 5', '((i0 + 1) % 7) + lane'])
    """
    parts = _Parts(indices)
    renamed = [parts.rename(index) for index in indices]
    return parts.bound, renamed


class _Parts:
    """Operations by how often they are used, and the names of those used more than once."""

    def __init__(self, indices: Sequence[Expr]) -> None:
        self.uses: Counter[Atom] = Counter()
        self.bound: list[Let] = []
        self.known: dict[Atom, Atom] = {}
        for index in indices:
            self._count(index)

    def _count(self, index: Expr) -> None:
        for atom, _ in index.terms:
            if atom.operand is None:
                continue
            self.uses[atom] += 1
            # What is inside is computed once, however often the whole is used.
            if self.uses[atom] == 1:
                self._count(atom.operand)
                if atom.other is not None:
                    self._count(atom.other)

    def rename(self, index: Expr) -> Expr:
        """Return the same value in terms of names."""
        return Expr(index.const, tuple((self._renamed(atom), c) for atom, c in index.terms))

    def _renamed(self, atom: Atom) -> Atom:
        if atom.operand is None:
            return atom
        if atom not in self.known:
            other = None if atom.other is None else self.rename(atom.other)
            found = replace(atom, operand=self.rename(atom.operand), other=other)
            if self.uses[atom] > 1:
                self.bound.append(let(f"i{len(self.bound)}", Expr(0, ((found, 1),))))
                ((found, _),) = self.bound[-1].var.terms
            self.known[atom] = found
        return self.known[atom]
