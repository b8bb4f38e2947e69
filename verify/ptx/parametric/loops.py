"""Loops whose number of trips depends on unknowns, by induction on the trip.

A loop is executed once, to see by how much each register grows in a trip.  Then it is executed again for an unknown
trip k, each register being ``first + k*growth``; that the next trip begins with ``first + (k+1)*growth`` is the step of
the induction.  Trip k happens when k is 0 or the loop was continued after trip k-1.  That whoever comes to trip k has
come to all trips before is a second induction: being continued after trip k implies being continued after trip k-1.

Loops with barriers or with shared memory *stage* data.  Their threads must go round together: when such a loop is
entered and when it goes on depends on what all threads of a block know.  Of registers that toggle and of addresses that
take turns several trips are one step of the induction, the fewest after which both repeat (``PERIODS``); everything
above holds of these steps, and the loop may be left after each of their trips.

A loop that goes on while a counter *differs* from its end goes on while it is *before* its end, if it comes nearer by
equal steps that meet the end (``before_the_end``); compilers like to write it the first way.

Whoever begins a trip must come to its end: a loop that some threads leave on another way is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import z3

from layoutalg.errors import UndecidedError
from verify.ptx.ops_base import Branch
from verify.ptx.parametric.events import Conditions
from verify.ptx.parametric.facts import PRODUCT, Facts, constants
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word
from verify.ptx.program import Program, Target

__all__ = [
    "EFFORT",
    "PERIODS",
    "Loop",
    "LoopError",
    "PeriodError",
    "Phase",
    "at_trip",
    "before_the_end",
    "begin_trip",
    "check_step",
    "going_on",
    "headers",
    "is_trip",
    "measure",
    "next_bound",
]

TRIP: Final = "trip."
PERIODS: Final = 8
"""The most trips that are tried as one step."""
EFFORT: Final = 3_000_000
"""What the solver may spend on a loop before it is given up to try more trips as one step."""


class LoopError(Exception):
    """A loop that is not of the supported kind; the message says why."""


class PeriodError(LoopError):
    """A loop that may be of the supported kind if more of its trips are one step."""


class Phase(Enum):
    """What a loop is executed for."""

    MEASURE = "to see by how much its registers grow"
    LEARN = "for an unknown step, to learn when it goes on"
    FINAL = "for an unknown step under the condition that it happens"
    DONE = "no more"


@dataclass(slots=True)
class Loop:
    """What is known of a loop.

    Attributes:
        entry: registers at its first beginning.
        conditions: under which it is entered.
        accesses: how many there were before it.
        epochs: barriers before it.
        waiting: paths that wait elsewhere, by the step at which they do.
        path: conditions of the trip that is executed.
        registers: those at the beginning of a step, as far as they are known.
        growth: per register what a step adds, once that is known.
        trip: the unknown step.
        most: a step that is never reached, which is proved.
        bounds: others to try in its place, up to one above any size.
        staged: it has barriers or uses shared memory.
        period: trips in a step.
        turn: trips of the step that have been executed.
        begins: accesses before each trip of a step.
        guards: when the loop goes on after each trip of a step, as it says so.
        goes_on: the same, as it follows.
        steady: registers that no trip changes.
        effort: what the solver had spent before.
    """

    entry: Mapping[str, Any]
    conditions: Conditions
    accesses: int
    epochs: tuple[int, int]
    waiting: Mapping[int, Any]
    path: Conditions
    registers: dict[str, Any] = field(default_factory=dict)
    growth: dict[str, Poly] = field(default_factory=dict)
    trip: Poly | None = None
    most: int = 0
    bounds: list[int] = field(default_factory=list)
    staged: bool = False
    phase: Phase = Phase.MEASURE
    period: int = 1
    turn: int = 0
    begins: list[int] = field(default_factory=list)
    guards: list[Pred] = field(default_factory=list)
    goes_on: tuple[Pred, ...] = ()
    steady: set[str] = field(default_factory=set)
    effort: int = 0

    def restart(self, period: int) -> None:
        """Forget what was learned, to begin again with other steps."""
        self.phase, self.period, self.turn = Phase.MEASURE, period, 0
        self.registers, self.growth, self.guards, self.goes_on = dict(self.entry), {}, [], ()

    @property
    def under_way(self) -> bool:
        """Whether it has been executed for a trip, and not for the last time."""
        return self.phase is not Phase.DONE and (self.phase is not Phase.MEASURE or self.turn > 0)


def headers(program: Program) -> frozenset[int]:
    """Steps that a branch goes back to."""
    found = set()
    for at, step in enumerate(program.steps):
        if isinstance(step.operation.effect, Branch):
            target = step.operands[0]
            if isinstance(target, Target) and target.step <= at:
                found.add(target.step)
    return frozenset(found)


def is_trip(name: str) -> bool:
    """Whether an atom is the unknown trip or step of a loop."""
    return name.startswith(TRIP)


def measure(loop: Loop, after: Mapping[str, Any], facts: Facts) -> None:
    """Note by how much each register grew in one step; what did not simply grow is forgotten."""
    for name, before in list(loop.registers.items()):
        now = after.get(name)
        if _same(before, now):
            continue
        if isinstance(before, Word) and isinstance(now, Word) and not _is_data(before):
            grown = now.value - before.value
            if any("!" in atom and facts.atoms[atom].table is None for atom in grown.atoms):
                del loop.registers[name]
            else:
                loop.growth[name] = grown
        else:
            del loop.registers[name]
    largest = max((facts.bounds(size)[1] for size in facts.sizes), default=0)
    steps = {abs(grown.constant) for grown in loop.growth.values() if grown.constant}
    loop.bounds = sorted({largest // c + 2 for c in steps if c > 1} | {largest + 1})
    next_bound(loop, facts)


def next_bound(loop: Loop, facts: Facts) -> None:
    """Suppose that there are fewer steps than the next bound; that this is so has to be proved.

    A tighter bound shows that a counter which grows by more than one does not wrap.
    """
    loop.most = loop.bounds.pop(0)
    loop.trip = facts.atom(f"{TRIP}{sum(map(is_trip, facts.atoms))}", 0, loop.most, uniform=loop.staged)


def begin_trip(loop: Loop, trips: Poly) -> dict[str, Any]:
    """The registers at the beginning of a step."""
    found = dict(loop.registers)
    for name, grown in loop.growth.items():
        word = found[name]
        found[name] = Word(word.width, word.value + trips * grown)
    return found


def check_step(loop: Loop, after: Mapping[str, Any]) -> None:
    """The step of the induction: the next one begins where it must.

    Raises:
        PeriodError: it does not.
    """
    assert loop.trip is not None
    for name, wanted in begin_trip(loop, loop.trip + 1).items():
        now = after.get(name)
        if name not in loop.growth:
            if not _same(wanted, now):
                raise PeriodError(f"{name} changes after the first trip")
        elif not isinstance(now, Word) or not _congruent(now, wanted):
            raise PeriodError(f"{name} does not grow by the same amount in every trip")


def at_trip(facts: Facts, loop: Loop, condition: Any, number: Poly) -> Any:
    """A condition on trip k as one on another trip.

    Raises:
        PeriodError: the trip is hidden in something of which nothing is known.
    """
    assert loop.trip is not None
    (trip,) = loop.trip.atoms
    try:
        return facts.substituted(condition, {trip: number})
    except UndecidedError:
        raise PeriodError("whether it goes on depends on more than sums and products") from None


def going_on(loop: Loop, facts: Facts) -> Pred:
    """The condition under which a step happens: it is the first, or the loop went on through all of the one before.

    Raises:
        LoopError: it is not proved that the steps before a step happen, or that the loop ends.
    """
    assert loop.trip is not None
    facts.path = tuple(c.condition for c in loop.conditions)
    loop.goes_on = before_the_end(loop, facts) or tuple(loop.guards)
    trip, whole = facts.term(loop.trip), z3.And(*(guard.condition for guard in loop.goes_on))
    before = at_trip(facts, loop, whole, loop.trip - 1)
    # The last step is one before the bound, so that a coordinate beyond all steps is seen at the bound.
    last = at_trip(facts, loop, whole, facts.number(loop.most - 1))
    names = [tuple(name.split(PRODUCT)) for name in constants(before)]
    products = [fact for parts in names for fact in facts.products(Poly({parts: 1}, facts))]
    if not facts.prove(z3.Implies(z3.And(trip >= 1, whole), before), extra=products).ok:
        raise LoopError("it is not proved that the trips before a trip happen")
    if not facts.prove(z3.Not(last), extra=products).ok:
        raise LoopError("it is not proved that it ends")
    return Pred(z3.Or(trip == 0, before))


def before_the_end(loop: Loop, facts: Facts) -> tuple[Pred, ...] | None:
    """Guards ``d != 0`` as ``d >= 1``, where d falls by u in each trip and is a multiple of u, not negative, at first.

    Law: d is never negative after a trip, by induction: the trip was begun with a positive multiple of u.
    """
    assert loop.trip is not None
    (name,) = loop.trip.atoms
    differences = [guard.differs for guard in loop.guards]
    first = differences[0]
    if first is None:
        return None
    try:
        change = (facts.substitute(first, {name: loop.trip + 1}) - first).constant
        start = facts.substitute(first, {name: facts.number(0)})
    except UndecidedError:
        return None
    if not change or change % loop.period:
        return None
    fall = -change // loop.period
    if any(d is None or (d - first).constant != -fall * turn for turn, d in enumerate(differences)):
        return None
    sign = 1 if fall > 0 else -1
    if not facts.is_at_least(start * sign, 0) or facts.divide(start * sign, facts.number(abs(fall)))[1].constant != 0:
        return None
    return tuple(Pred(facts.term(d * sign) >= 1) for d in differences if d is not None)


def _same(before: Any, now: Any) -> bool:
    """Whether a register is as it was: the same value, or bits that are proved equal."""
    if before is now:
        return True
    if isinstance(before, Pred) and isinstance(now, Pred):
        return bool(before.condition.get_id() == now.condition.get_id())
    return isinstance(before, Word) and isinstance(now, Word) and _congruent(before, now)


def _congruent(a: Word, b: Word) -> bool:
    return a.width == b.width and (a.value - b.value).quotient(1 << a.width) is not None


def _is_data(word: Word) -> bool:
    return word.row is not None and not all(isinstance(byte, int) for byte in word.row)
