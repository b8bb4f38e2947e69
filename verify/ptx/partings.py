"""Where paths part and meet again: the condition of paths that meet is that of the one that parted, not a sum of cases.

Every path carries marks.  A path that parts under a condition gives each side a fresh mark; where both sides have come
together again, with whatever else is there, their marks are those of the path that parted.  So conditions stay as
short as the program's nesting is deep, and no solver is asked whether ``p and c or p and not c`` is ``p``.
"""

from __future__ import annotations

from typing import Any, Final

import z3

__all__ = ["START", "Marks", "Partings"]

Marks = frozenset[int]

#: The marks of the path on which every thread starts.
START: Final[Marks] = frozenset((0,))


class Partings:
    """The partings of one execution.

    >>> p, c, d = z3.Bools("p c d")
    >>> partings = Partings()
    >>> (left, one), (right, two) = partings.part(START, p, c)
    >>> (inner, three), (outer, four) = partings.part(left, one, d)
    >>> left, one = partings.join((outer, four), (right, two))
    >>> partings.join((inner, three), (left, one))[1]
    p
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, Marks, Any]] = {}

    def part(self, marks: Marks, condition: Any, guard: Any) -> tuple[tuple[Marks, Any], tuple[Marks, Any]]:
        """Return marks and condition of either side of a path that parts under a guard."""
        yes = len(self._before) + 1
        self._before[yes] = (yes + 1, marks, condition)
        self._before[yes + 1] = (yes, marks, condition)
        sides = (guard, z3.Not(guard))
        taken, other = (z3.simplify(z3.And(condition, side)) for side in sides)
        return (frozenset((yes,)), taken), (frozenset((yes + 1,)), other)

    def join(self, one: tuple[Marks, Any], two: tuple[Marks, Any]) -> tuple[Marks, Any]:
        """Return marks and condition of two paths that meet."""
        marks = one[0] | two[0]
        whole: tuple[Marks, Any] | None = None
        while (mark := self._complete(marks)) is not None:
            sibling, before, condition = self._before[mark]
            marks = marks - {mark, sibling} | before
            whole = (before, condition)
        if whole is not None and whole[0] == marks:
            return whole
        return marks, z3.simplify(z3.Or(one[1], two[1]))

    def _complete(self, marks: Marks) -> int | None:
        """A mark whose other side is there, too."""
        return next((m for m in marks if m in self._before and self._before[m][0] in marks), None)
