"""Loops whose number of trips depends on unknowns, by induction on the trip.

A loop is executed once, to see by how much each register grows in a trip.  Then it is executed again for an unknown
trip k, each register being ``first + k*growth``; that the next trip begins with ``first + (k+1)*growth`` is the step of
the induction.  Trip k happens when k is 0 or the loop was continued after trip k-1.  That whoever comes to trip k has
come to all trips before is a second induction: being continued after trip k implies being continued after trip k-1.

Loops with barriers, with shared memory, or with several ways out are not summarised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import z3

from verify.ptx.ops_base import Branch
from verify.ptx.parametric.facts import PRODUCT, Facts, constants
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.words import Pred, Word
from verify.ptx.program import Program, Target

__all__ = ["Loop", "LoopError", "at_trip", "begin_trip", "check_step", "headers", "is_trip", "measure"]

TRIP: Final = "trip."


class LoopError(Exception):
    """A loop that is not of the supported kind; the message says why."""


@dataclass(slots=True)
class Loop:
    """What is known of a loop.

    Attributes:
        registers: at its first beginning.
        conditions: under which it is entered.
        accesses: how many there were before it.
        epochs: barriers before it.
        waiting: steps at which other paths wait.
        growth: per register what a trip adds, once that is known.
        trip: the unknown trip.
        most: a trip that is never reached, which is proved: more than any size.
        again: when the loop is continued after it.
    """

    registers: dict[str, Any]
    conditions: tuple[Pred, ...]
    accesses: int
    epochs: tuple[int, int]
    waiting: frozenset[int]
    growth: dict[str, Poly] = field(default_factory=dict)
    trip: Poly | None = None
    most: int = 0
    again: Any = None


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
    """Whether an atom is the unknown trip of a loop."""
    return name.startswith(TRIP)


def measure(loop: Loop, after: Mapping[str, Any], facts: Facts) -> None:
    """Note by how much each register grew in one trip; what did not simply grow is forgotten.

    Raises:
        LoopError: a register grows by something that is not the same in every trip.
    """
    for name, before in list(loop.registers.items()):
        now = after.get(name)
        if now is before:
            continue
        if isinstance(before, Word) and isinstance(now, Word) and not _is_data(before):
            grown = now.value - before.value
            if any("!" in atom and facts.atoms[atom].table is None for atom in grown.atoms):
                del loop.registers[name]
            else:
                loop.growth[name] = grown
        else:
            del loop.registers[name]
    loop.most = 1 + max((facts.bounds(size)[1] for size in facts.sizes), default=0)
    loop.trip = facts.atom(f"{TRIP}{sum(map(is_trip, facts.atoms))}", 0, loop.most)


def begin_trip(loop: Loop, trips: Poly) -> dict[str, Any]:
    """The registers at the beginning of a trip."""
    found = dict(loop.registers)
    for name, grown in loop.growth.items():
        word = found[name]
        found[name] = Word(word.width, word.value + trips * grown)
    return found


def check_step(loop: Loop, after: Mapping[str, Any]) -> None:
    """The step of the induction: the next trip begins where it must.

    Raises:
        LoopError: it does not.
    """
    assert loop.trip is not None
    for name, wanted in begin_trip(loop, loop.trip + 1).items():
        now = after.get(name)
        if name not in loop.growth:
            if now is not wanted:
                raise LoopError(f"{name} changes after the first trip")
        elif not isinstance(now, Word) or (now.value - wanted.value).quotient(1 << wanted.width) is None:
            raise LoopError(f"{name} does not grow by the same amount in every trip")


def at_trip(facts: Facts, loop: Loop, condition: Any, number: Poly) -> Any:
    """A condition on trip k as one on another trip.

    Raises:
        LoopError: the trip is hidden in something derived.
    """
    assert loop.trip is not None
    (trip,) = loop.trip.atoms
    pairs = []
    for name in constants(condition):
        parts = tuple(name.split(PRODUCT))
        if trip in parts:
            other = Poly({parts: 1}, facts).substitute({trip: number})
            pairs.append((z3.Int(name), facts.term(other)))
        elif not all(is_plain(facts, part) for part in parts):
            raise LoopError("whether it goes on depends on more than sums and products")
    return z3.substitute(condition, *pairs) if pairs else condition


def is_plain(facts: Facts, name: str) -> bool:
    """Whether an atom cannot hide a trip: it is given, or the same in all threads, or a table."""
    atom = facts.atoms[name]
    return "!" not in name or atom.uniform or atom.table is not None


def _is_data(word: Word) -> bool:
    return word.row is not None and not all(isinstance(byte, int) for byte in word.row)
