"""Proofs about a permute plan: which lane and register carries which element, and what the banks make of it.

The plan enters as data, a table ``[slot][lane] -> element`` (-1 where a lane is idle), and the layouts as layouts.
Nothing of the planner is used.  Addresses come from the layouts' own evaluation, run on Z3 terms.

* **carried once**: every element has exactly one (lane, slot);
* **delivered**: distinct elements have distinct destinations, so that writing register (lane, slot) to the place of its
  element gives every destination place the element that the source layout has there;
* **stages apart**: what one stage writes, no later stage reads or writes;
* **bank-free read / write**: no two lanes that one wavefront serves touch different words of one bank, for every slot,
  stage and base address with the stated alignment (the rule of ``layoutalg.banks``, where it is compared point by
  point with the simulator in tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3

from layoutalg.errors import LayoutError
from layoutalg.index import Param
from layoutalg.tile import TileLayout
from verify.solve import prove
from verify.term import WIDTH, BitTerm, lookup, memory_address
from verify.verdict import Obligation, Proved, Refuted, Verdict

__all__ = ["Obligation", "prove_plan"]

_LANES = 32
_BANK_BYTES = 128


def prove_plan(
    table: Sequence[Sequence[int]], source: TileLayout, destination: TileLayout, *, width: int, align: int
) -> tuple[Obligation, ...]:
    """Prove a plan that reads and writes slot by slot, one element a lane.

    Args:
        table: ``[slot][lane]``, the flat logical index of the element a lane holds in that slot; -1 for idle.
        source: where elements are read, on ``m`` in elements; its offset may hold parameters (stages).
        destination: where they are written.
        width: bytes of an element: 1, 2, 4, 8 or 16.
        align: alignment of both base addresses in bytes, a multiple of ``max(width, 4)``.

    Returns:
        One obligation per statement of the module's text, in that order.

    >>> from layoutalg import S
    >>> identity = TileLayout(S[32:1])
    >>> [str(o.verdict) for o in prove_plan([list(range(32))], identity, identity, width=4, align=16)]
    ['Proved', 'Proved', 'Proved', 'Proved', 'Proved']
    """
    if width not in (1, 2, 4, 8, 16) or align % max(width, 4):
        raise LayoutError(f"width {width} and alignment {align} do not fit: align is a multiple of max(width, 4)")
    facts = _Facts(tuple(tuple(map(int, row)) for row in table), source, destination, width, align)
    return (
        Obligation("every element is carried by exactly one lane and register", facts.carried_once()),
        Obligation("every destination receives the source's element", facts.delivered()),
        Obligation("no stage disturbs a later one", facts.stages_apart()),
        Obligation("the read phase is free of bank conflicts", facts.bank_free(source, "read")),
        Obligation("the write phase is free of bank conflicts", facts.bank_free(destination, "write")),
    )


class _Facts:
    """The unknowns of a plan: lanes, slots, stages and bases, and the statements about them."""

    def __init__(
        self, table: tuple[tuple[int, ...], ...], source: TileLayout, destination: TileLayout, width: int, align: int
    ) -> None:
        self.table, self.source, self.destination = table, source, destination
        self.width, self.align = width, align
        self.size = int(source.size)
        self.params: dict[str, Param] = {p.name: p for p in (*source.params, *destination.params)}
        self.flat = [e for row in table for e in row]

    def carried_once(self) -> Verdict:
        scope = f"{len(self.table)} slots of {_LANES} lanes, {self.size} elements"
        held = sum(e >= 0 for e in self.flat)
        if held != self.size:
            return Refuted(scope, {"elements": self.size, "held": held})
        a, b = self._held("a"), self._held("b")
        one = z3.Implies(a.element == b.element, z3.And(a.lane == b.lane, a.slot == b.slot))
        inside = z3.ULT(a.element, self.size)
        return prove(z3.And(one, inside), given=[*a.given, *b.given], scope=scope, logic="QF_BV")

    def delivered(self) -> Verdict:
        scope = f"all pairs of {self.size} elements, {self._stages()}"
        x, y = BitTerm.of("x"), BitTerm.of("y")
        inside = [z3.ULT(x.expr, self.size), z3.ULT(y.expr, self.size)]
        stage, ranges = self._stage("s")
        return prove(
            z3.Implies(self._at(self.destination, x, stage) == self._at(self.destination, y, stage), x.expr == y.expr),
            given=[*inside, *ranges],
            scope=scope,
            logic="QF_BV",
        )

    def stages_apart(self) -> Verdict:
        if not self.params:
            return Proved("a single stage")
        x, y = BitTerm.of("x"), BitTerm.of("y")
        (first, first_range), (later, later_range) = self._stage("now"), self._stage("later")
        written = self._at(self.destination, x, first)
        apart = z3.And(written != self._at(self.source, y, later), written != self._at(self.destination, y, later))
        order = self._before(first, later)
        inside = [z3.ULT(x.expr, self.size), z3.ULT(y.expr, self.size)]
        given = [*inside, *first_range, *later_range, order]
        return prove(apart, given=given, scope=f"all pairs, {self._stages()}", logic="QF_BV")

    def bank_free(self, layout: TileLayout, phase: str) -> Verdict:
        """Two lanes of one group with different words on one bank would cost a second wavefront."""
        a, b = self._held("a"), self._held("b")
        stage, ranges = self._stage("s")
        base = z3.BitVec("base", WIDTH)
        unit = max(self.width, 4)
        group = min(_LANES, _BANK_BYTES // unit)
        words = [
            z3.UDiv(base + self._at(layout, BitTerm(side.element), stage) * self.width, z3.BitVecVal(unit, WIDTH))
            for side in (a, b)
        ]
        shift = group.bit_length() - 1
        together = z3.And(a.slot == b.slot, z3.LShR(a.lane, shift) == z3.LShR(b.lane, shift), z3.ULT(a.lane, b.lane))
        banks = _BANK_BYTES // unit
        clash = z3.And(words[0] != words[1], words[0] & (banks - 1) == words[1] & (banks - 1))
        aligned = [z3.URem(base, z3.BitVecVal(self.align, WIDTH)) == 0, z3.ULT(base, 1 << 24)]
        scope = f"{phase}: all slots, pairs of lanes served together, {self._stages()}, bases aligned to {self.align} B"
        return prove(z3.Not(clash), given=[*a.given, *b.given, *ranges, together, *aligned], scope=scope, logic="QF_BV")

    def _held(self, name: str) -> _Held:
        lane, slot = z3.BitVec(f"lane_{name}", WIDTH), z3.BitVec(f"slot_{name}", WIDTH)
        element = lookup(self.flat, slot * _LANES + lane)
        given = [z3.ULT(lane, _LANES), z3.ULT(slot, len(self.table)), element >= 0]
        return _Held(lane, slot, element, tuple(given))

    def _stage(self, name: str) -> tuple[dict[str, BitTerm], list[z3.BoolRef]]:
        unknowns = {p: BitTerm.of(f"{p}_{name}" if name != "s" else p) for p in sorted(self.params)}
        ranges = [
            z3.And(term.expr >= self.params[p].begin, term.expr < self.params[p].end) for p, term in unknowns.items()
        ]
        return unknowns, ranges

    def _before(self, first: dict[str, BitTerm], later: dict[str, BitTerm]) -> z3.BoolRef:
        """Order stages as nested loops run, parameters by name, outermost first."""
        order: z3.BoolRef = z3.BoolVal(False)
        for name in sorted(self.params, reverse=True):
            a, b = first[name].expr, later[name].expr
            order = z3.Or(a < b, z3.And(a == b, order))
        return order

    def _at(self, layout: TileLayout, element: BitTerm, stage: dict[str, BitTerm]) -> z3.BitVecRef:
        return memory_address(layout, element, stage)

    def _stages(self) -> str:
        if not self.params:
            return "one stage"
        return "every stage " + ", ".join(f"{p.begin} <= {p.name} < {p.end}" for p in self.params.values())


@dataclass(frozen=True, slots=True)
class _Held:
    """A (lane, slot) that is not idle, and the element it holds."""

    lane: z3.BitVecRef
    slot: z3.BitVecRef
    element: z3.BitVecRef
    given: tuple[z3.BoolRef, ...]
