"""What the execution of an unknown thread leaves behind: accesses, barriers, and the loop that stages data, if any.

Events stand in an order that every thread follows, each thread meeting those whose conditions hold for it.  Of a loop
that stages data there is one *step*, for an unknown number q of it: so many trips that the registers and the addresses
in shared memory repeat.  What holds of all steps is said of this one; what one step does to the next is said of it and
of itself with q - 1 in the place of q.

What lies between two accesses of different threads, the earlier one written first, is one of three things (``When``):

* nothing but the events between them (``SAME``): both before the loop, both in one step, both behind it, or in any step
  and behind it, or before it and in any step where the loop does not disturb what was there;
* the first step alone (``FIRST``): before the loop, and in step 0, since a later step has a whole step before it;
* the end of one step and the beginning of the next (``PREVIOUS``): in step q - 1 and in step q.

A step passes a barrier whenever another one follows (``Stage.firm``), so what is further apart is ordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from verify.ptx.parametric.facts import Facts, Values
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word
from verify.ptx.program import Step

__all__ = ["Access", "Conditions", "Run", "Stage", "When"]

Conditions = tuple[Pred, ...]


class When(Enum):
    """In which steps of a loop two accesses are, the earlier one named first."""

    SAME = "with no step of the loop between"
    FIRST = "before the loop and in its first step"
    PREVIOUS = "in one step and in the next"
    LEFT = "in the loop and behind it"


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store of the thread.

    Attributes:
        number: position in the list of all accesses.
        conditions: when it happens; all of them hold.
        address: a number that the address equals modulo ``2**width``.
        size: bytes.
        values: the words that are stored, or those that stand for what is loaded.
        block_epoch, warp_epoch: barriers before it.
    """

    number: int
    step: Step
    write: bool
    space: str
    conditions: Conditions
    address: Poly
    width: int
    size: int
    values: tuple[Word, ...]
    block_epoch: int
    warp_epoch: int

    @property
    def formulas(self) -> list[Any]:
        """The conditions as formulas."""
        return [condition.condition for condition in self.conditions]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A loop that stages data through shared memory: one step of it.

    Attributes:
        accesses: number of its first access, and of the first behind it.
        barriers: the same of its barriers.
        number: the unknown number of the step.
        trips: number of the first access of each trip of a step.
        firm: barriers that every thread passes in a step that another one follows.
        again: when another one follows.
    """

    accesses: tuple[int, int]
    barriers: tuple[int, int]
    number: Poly
    trips: tuple[int, ...]
    firm: frozenset[int]
    again: Any

    @property
    def name(self) -> str:
        """The atom that numbers the steps."""
        (name,) = self.number.atoms
        return name

    def trip(self, access: Access, number: int) -> int:
        """The trip of the loop in which an access of it is made, in a step with this number."""
        return number * len(self.trips) + sum(first <= access.number for first in self.trips) - 1

    def conditions(self, when: When, facts: Facts) -> list[Any]:
        """What is known of the number of the later access's step."""
        number = facts.term(self.number)
        return {When.FIRST: [number == 0], When.PREVIOUS: [number >= 1]}.get(when, [])

    def earlier(self, when: When) -> Values:
        """What to put in the place of atoms in formulas about the earlier access."""
        return {self.name: self.number - 1} if when is When.PREVIOUS else {}

    def later(self, when: When) -> Values:
        """The same for the later one."""
        return {self.name: self.number.lift(0)} if when is When.FIRST else {}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An execution.

    Attributes:
        barriers: conditions per barrier of the block; the one with number e ends epoch e.
        stage: the loop that stages data.
    """

    accesses: tuple[Access, ...]
    barriers: tuple[Conditions, ...]
    stage: Stage | None = None

    def zone(self, access: Access) -> int:
        """0 before the loop that stages data, 1 in it, 2 behind it; 0 where there is none."""
        if self.stage is None:
            return 0
        first, end = self.stage.accesses
        return int(access.number >= first) + int(access.number >= end)

    def when(self, first: Access, second: Access) -> When:
        """How two accesses in the order of the list are apart where no step that passes a barrier lies between them."""
        steps_order = self.stage is not None and bool(self.stage.firm)
        return When.FIRST if steps_order and (self.zone(first), self.zone(second)) == (0, 1) else When.SAME
