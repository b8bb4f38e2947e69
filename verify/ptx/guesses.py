"""Conditions that need no bit-vector solver: some thread fulfils them, or their connectives contradict one another.

A solver translates all arithmetic of a condition before it looks.  Most questions of symbolic execution are easier:
a guard that some threads pass and some do not is shown by trying a few threads, and where paths meet again their
conditions join to ``p and c or p and not c``, which is ``p`` whatever ``c`` means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import z3

from verify.ptx.arrays import UnsupportedTermError, Valuation

__all__ = ["Guesses", "is_contradiction"]

Dim = tuple[int, int, int]

_COUNT = 1 << 13
_CONNECTIVES = frozenset(
    {
        z3.Z3_OP_TRUE,
        z3.Z3_OP_FALSE,
        z3.Z3_OP_AND,
        z3.Z3_OP_OR,
        z3.Z3_OP_NOT,
        z3.Z3_OP_XOR,
        z3.Z3_OP_IMPLIES,
    }
)


class Guesses:
    """A few threads of a launch, the same ones every time, those at the ends of blocks and of the grid among them.

    >>> guesses = Guesses((64, 1, 1), (100, 1, 1))
    >>> thread, block = z3.BitVec("tid.x", 6), z3.BitVec("ctaid.x", 7)
    >>> guesses.fulfil(z3.And(thread == 63, block == 99)), guesses.fulfil(block == 100)
    (True, False)
    """

    def __init__(self, block: Dim, grid: Dim) -> None:
        draw = np.random.default_rng(0)
        unknowns = {}
        threads = np.arange(_COUNT) % (block[0] * block[1] * block[2])
        tid = (threads % block[0], threads // block[0] % block[1], threads // (block[0] * block[1]))
        for axis, values, extent in zip("xyz", tid, grid, strict=True):
            unknowns[f"tid.{axis}"] = values.astype(np.uint64)
            blocks = draw.integers(0, extent, _COUNT)
            # Every thread of the first and of the last block, then of blocks at an end along some axis, or at none.
            ends = draw.integers(0, 4, _COUNT)
            ends[:1024], ends[1024:2048] = 0, 1
            blocks = np.where(ends == 0, 0, np.where(ends == 1, extent - 1, blocks))
            unknowns[f"ctaid.{axis}"] = blocks.astype(np.uint64)
        self._valuation = Valuation(unknowns)

    def fulfil(self, condition: Any) -> bool:
        """Say whether one of these threads fulfils a condition; False says nothing."""
        try:
            return bool(self._valuation.value(condition).any())
        except UnsupportedTermError:
            return False


def is_contradiction(condition: Any) -> bool:
    """Say whether no truth values of the comparisons satisfy a condition; then no values of their unknowns do.

    >>> x, y = z3.BitVecs("x y", 64)
    >>> hard = z3.ULT(x * y, z3.URem(y, x))
    >>> is_contradiction(z3.And(hard, z3.Not(hard))), is_contradiction(z3.And(hard, x != x))
    (True, False)
    """
    solver = z3.SolverFor("QF_FD")
    solver.add(_abstract(condition, {}))
    return bool(solver.check() == z3.unsat)


def _abstract(term: Any, known: dict[int, Any]) -> Any:
    """The term with its comparisons replaced by constants, equal ones by the same."""
    key = int(term.get_id())
    if key not in known:
        if term.decl().kind() in _CONNECTIVES or (z3.is_eq(term) and z3.is_bool(term.arg(0))):
            children = [_abstract(child, known) for child in term.children()]
            known[key] = term.decl()(*children) if children else term
        else:
            known[key] = z3.Bool(f"comparison {key}")
    return known[key]
