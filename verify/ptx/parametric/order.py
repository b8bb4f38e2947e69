"""Which accesses of different threads the barriers of a block order.

A barrier that stands under conditions orders two accesses only if it comes.  Its conditions are the same for all
threads of the block, so that it comes when one of the two threads meets it: its conditions are among those of an
access, or follow from them.
"""

from __future__ import annotations

from typing import Any

import z3

from layoutalg.errors import UndecidedError
from verify.ptx.parametric.events import Access, Conditions, Run, When
from verify.ptx.parametric.facts import Facts, Values
from verify.ptx.parametric.witness import primed

__all__ = ["Order"]


class Order:
    """The barriers of a run."""

    def __init__(self, facts: Facts, run: Run) -> None:
        self.facts, self.run = facts, run
        self._known: dict[tuple[int, int], bool] = {}

    def between(self, first: Access, second: Access) -> tuple[Any, ...] | None:
        """``None`` if a barrier orders two accesses of one step, otherwise conditions of barriers between that may."""
        numbers = range(first.block_epoch, second.block_epoch)
        stage = self.run.stage
        if stage is not None and self._zones(first, second) == (0, 2):
            # Of the loop between them the first step is certain.
            values: Values = {stage.name: stage.number.lift(0)}
            barriers = tuple(c for number in numbers for c in self._there(number, values))
            return None if any(self._follows(barrier, second) for barrier in barriers) else barriers
        if any(self.comes(number, access) for number in numbers for access in (first, second)):
            return None
        return tuple(_all(self.run.barriers[number]) for number in numbers)

    def _there(self, number: int, values: Values) -> list[Any]:
        """When a barrier comes in another step; nothing if that is not known, since it then orders nothing."""
        try:
            return [self.facts.substituted(_all(self.run.barriers[number]), values)]
        except UndecidedError:
            return []

    def _follows(self, formula: Any, access: Access) -> bool:
        """Whether a formula holds whenever an access happens."""
        path, self.facts.path = self.facts.path, tuple(access.formulas)
        sure = self.facts.prove(formula).ok
        self.facts.path = path
        return sure

    def carried(self, before: Access, after: Access) -> tuple[Any, ...] | None:
        """The same for an access in one step of a loop and one in the next; conditions are those of the next."""
        stage = self.run.stage
        assert stage is not None
        begin, end = stage.barriers
        head, tail = range(begin, after.block_epoch), range(before.block_epoch, end)
        if any(number in stage.firm for number in tail) or any(self.comes(number, after) for number in head):
            return None
        earlier: Values = {stage.name: stage.number - 1}
        ended = [condition for number in tail for condition in self._there(number, earlier)]
        return (*ended, *(_all(self.run.barriers[number]) for number in head))

    def together(
        self, first: Access, second: Access, when: When, barriers: tuple[Any, ...]
    ) -> tuple[list[Any], list[Any]]:
        """When two accesses of different threads meet with no barrier between: formulas about the one and the other.

        Raises:
            UndecidedError: it is not known what the formulas say in another step.
        """
        stage, mine = self.run.stage, first.formulas
        if stage is not None:
            mine = [self.facts.substituted(formula, stage.earlier(when)) for formula in mine]
            mine += stage.conditions(when, self.facts)
            if stage.firm and self._zones(first, second) == (1, 2):
                mine.append(self._late(first))
        return [*mine, *(z3.Not(barrier) for barrier in barriers)], second.formulas

    def _late(self, access: Access) -> Any:
        """When no whole step that passes a barrier lies between an access in a loop and what is behind it.

        The step is the last one; or it is the last but one, the barriers that come in a step which another one follows
        are before the access, and those of the last step do not come.
        """
        stage = self.run.stage
        assert stage is not None
        begin, end = stage.barriers
        last = z3.Not(stage.again)
        if any(number in stage.firm for number in range(access.block_epoch, end)):
            return last
        after: Values = {stage.name: stage.number + 1}
        coming = [self.facts.substituted(_all(self.run.barriers[n]), after) for n in range(begin, end)]
        return z3.Or(last, z3.And(*(z3.Not(barrier) for barrier in coming)))

    def adjacent(self, first: Access, second: Access, when: When) -> list[Any]:
        """When no step of the loop lies between two accesses, whose barriers might order them.

        Raises:
            UndecidedError: it is not known when.
        """
        stage, zones = self.run.stage, self._zones(first, second)
        if stage is None or when is not When.SAME or zones[0] == zones[1]:
            return []
        if zones == (0, 1):
            return [self.facts.term(stage.number) == 0]
        values: Values = {stage.name: stage.number.lift(0)} if zones == (0, 2) else {}
        return [z3.Not(self.facts.substituted(stage.again, values))]

    def _zones(self, first: Access, second: Access) -> tuple[int, int]:
        return self.run.zone(first), self.run.zone(second)

    def apart(self, first: Access, second: Access, when: When, barriers: tuple[Any, ...]) -> bool:
        """Whether any two threads are proved never to meet there."""
        try:
            mine, its = self.together(first, second, when, barriers)
        except UndecidedError:
            return False
        goal = z3.Not(z3.And(*mine)) if mine else z3.BoolVal(False)
        return self.facts.prove(goal, extra=primed(self.facts, [*self.facts.given, *its])).ok

    def comes(self, number: int, access: Access) -> bool:
        """Whether a barrier comes whenever an access in the same step happens."""
        key = (number, access.number)
        if key not in self._known:
            wanted = [c for c in self.run.barriers[number] if not any(c is known for known in access.conditions)]
            self._known[key] = not wanted or self._follows(_all(tuple(wanted)), access)
        return self._known[key]


def _all(conditions: Conditions) -> Any:
    formulas = [condition.condition for condition in conditions]
    return z3.And(*formulas) if formulas else z3.BoolVal(True)
