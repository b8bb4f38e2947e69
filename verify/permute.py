"""Proofs about a permute plan: which lane and register carries which element, and what the banks make of it.

The plan enters as data, a table ``[slot][lane] -> element`` (-1 where a lane is idle) or the instructions of both
phases, and the layouts as layouts.  Nothing of the planner is used.  Addresses come from the layouts' own evaluation.

* **carried once**: every element has exactly one (lane, slot), and the lane that writes it is the lane that read it;
* **delivered**: distinct elements have distinct destinations, so that writing register (lane, slot) to the place of its
  element gives every destination place the element that the source layout has there;
* **stages apart**: what one stage writes, no later stage reads or writes;
* **covered** (plans that list instructions): the elements of one access lie one after another, and it is aligned;
* **cost of the read / write phase** (:mod:`verify.permute_banks`): exactly the wavefronts that were promised, for every
  stage and base address with the stated alignment.

A table is finite, so each statement could be decided by evaluating it everywhere.  Z3 decides them up to
:data:`TABLE_LIMIT` entries; larger tables are evaluated, and the scope says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import z3
from numpy.typing import NDArray

from layoutalg.errors import LayoutError
from layoutalg.index import Param
from layoutalg.tile import TileLayout
from verify.permute_banks import Instruction, Layout, places_at, prove_phase, stage_moves
from verify.solve import BUDGET, prove
from verify.term import WIDTH, BitTerm, lookup, memory_address
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["TABLE_LIMIT", "Obligation", "prove_plan"]

#: Entries of a plan up to which Z3 decides; beyond, every entry is evaluated.
TABLE_LIMIT = 2048
_LANES = 32
_CHUNK = 1024

Ints = NDArray[np.int64]


class _Access(Protocol):
    @property
    def width(self) -> int: ...
    @property
    def elements(self) -> tuple[tuple[int, ...], ...]: ...


def prove_plan(
    table: Sequence[Sequence[int]],
    source: Layout,
    destination: Layout,
    *,
    width: int,
    align: int,
    reads: Sequence[_Access] = (),
    writes: Sequence[_Access] = (),
    read_cost: tuple[int, int] | None = None,
    write_cost: tuple[int, int] | None = None,
    exact: bool = True,
    in_place: bool = True,
    warps: int = 1,
) -> tuple[Obligation, ...]:
    """Prove a plan.

    Args:
        table: ``[slot][lane]``, the flat logical index of the element a lane holds in that slot; -1 for idle.
        source: where elements are read, on ``m`` in elements; its offset may hold parameters (stages).
        destination: where they are written.
        width: bytes of an element: 1, 2, 4, 8 or 16.
        align: alignment of both base addresses in bytes, a multiple of ``max(width, 4)``.
        reads: the read phase's instructions (``width`` in bytes, ``elements[lane][position]``) where it does not go
            slot by slot, one element a lane.
        writes: the write phase's instructions, likewise.
        read_cost: promised wavefronts and excess of the read phase; without it, only that nothing is in excess.
        write_cost: the same for the write phase.
        exact: whether every stage costs that; else no stage costs more.
        in_place: whether source and destination are the same memory.
        warps: instruction number i belongs to warp ``i % warps``.

    Returns:
        One obligation per statement of the module's text, in that order.

    >>> from layoutalg import S
    >>> identity = TileLayout(S[32:1])
    >>> [str(o.verdict) for o in prove_plan([list(range(32))], identity, identity, width=4, align=16)]
    ['Proved', 'Proved', 'Proved', 'Proved', 'Proved']
    """
    if width not in (1, 2, 4, 8, 16) or align % max(width, 4):
        raise LayoutError(f"width {width} and alignment {align} do not fit: align is a multiple of max(width, 4)")
    facts = _Facts(table, source, destination, width, reads, writes, warps)
    if (foreign := facts.foreign()) is not None:
        return (Obligation("every element is carried by exactly one lane and register", foreign),)
    obligations = [
        Obligation("every element is carried by exactly one lane and register", facts.carried_once()),
        Obligation("every destination receives the source's element", facts.delivered()),
        Obligation("no stage disturbs a later one", facts.stages_apart(in_place)),
    ]
    if facts.listed:
        obligations.append(Obligation("every access covers consecutive elements and is aligned", facts.covered(align)))
    for phase, layout, instructions, cost in (
        ("read", source, facts.reads, read_cost),
        ("write", destination, facts.writes, write_cost),
    ):
        obligations.append(prove_phase(phase, instructions, layout, width=width, align=align, cost=cost, exact=exact))
    return tuple(obligations)


class _Facts:
    """A plan as numbers, and the statements about it."""

    def __init__(
        self,
        table: Sequence[Sequence[int]],
        source: Layout,
        destination: Layout,
        width: int,
        reads: Sequence[_Access],
        writes: Sequence[_Access],
        warps: int,
    ) -> None:
        self.source, self.destination, self.width, self.warps = source, destination, width, warps
        self.size = int(source.size)
        self.listed = bool(reads) or bool(writes)
        slots = [Instruction(width, np.array(row, dtype=np.int64)[:, None]) for row in table]
        self.reads, self.writes = (
            [Instruction(a.width, np.array(a.elements, dtype=np.int64)) for a in given] if given else slots
            for given in (reads, writes)
        )
        self.params: dict[str, Param] = {p.name: p for p in (*source.params, *destination.params)}

    def foreign(self) -> Verdict | None:
        """Refuse a plan that names elements which do not exist; nothing else can be asked about it."""
        for phase, instructions in (("read", self.reads), ("write", self.writes)):
            for number, one in enumerate(instructions):
                if one.elements.max() >= self.size or one.elements.min() < -1:
                    wrong = int(max(one.elements.max(), -one.elements.min(), key=abs))
                    found = {"phase": phase, "instruction": number, "element": wrong}
                    return Refuted(f"elements 0 to {self.size - 1}", found)
        return None

    # --- carried once -----------------------------------------------------------------------------------------

    def carried_once(self) -> Verdict:
        """Reading is a bijection onto the elements; so is writing, by the same threads."""
        scope = f"{len(self.reads)} + {len(self.writes)} instructions of {_LANES} lanes, {self.size} elements"
        held = [self._flat(instructions) for instructions in (self.reads, self.writes)]
        for (elements, _), phase in zip(held, ("read", "written"), strict=True):
            count = int((elements >= 0).sum())
            if count != self.size:
                return Refuted(scope, {"elements": self.size, phase: count})
        (elements, threads), (written, writers) = held
        verdict = self._once(elements, scope)
        if not verdict.ok or not self.listed:
            return verdict
        effort = getattr(verdict, "effort", 0)
        verdict = self._once(written, scope)
        if not verdict.ok:
            return verdict
        return self._same_thread((elements, threads), (written, writers), scope, effort + getattr(verdict, "effort", 0))

    def _flat(self, instructions: Sequence[Instruction]) -> tuple[Ints, Ints]:
        """Return the element of every register position of every thread, and the thread."""
        elements, threads = [], []
        for number, one in enumerate(instructions):
            lanes = np.arange(_LANES)[:, None] + _LANES * (number % self.warps)
            elements.append(one.elements.reshape(-1))
            threads.append(np.broadcast_to(lanes, one.elements.shape).reshape(-1))
        return np.concatenate(elements), np.concatenate(threads)

    def _once(self, elements: Ints, scope: str) -> Verdict:
        """Every element is held at most once: some function undoes the table."""
        inverse = np.zeros(self.size, dtype=np.int64)
        used = np.flatnonzero(elements >= 0)
        inverse[elements[used]] = used
        if len(elements) > TABLE_LIMIT:
            wrong = used[inverse[elements[used]] != used]
            if len(wrong):
                first = int(wrong[0])
                return Refuted(scope, {"element": int(elements[first]), "position": first})
            return Proved(f"{scope}; every entry evaluated")
        effort = 0
        for start in range(0, len(elements), _CHUNK):
            part = elements[start : start + _CHUNK]
            x = z3.BitVec("position", WIDTH)
            element = lookup(part.tolist(), x)
            verdict = prove(
                z3.And(z3.ULT(element, self.size), lookup(inverse.tolist(), element) == x + start),
                given=[z3.ULT(x, len(part)), element >= 0],
                scope=scope,
                logic="QF_BV",
                budget=4 * BUDGET,
            )
            if not verdict.ok:
                return verdict
            effort += getattr(verdict, "effort", 0)
        return Proved(scope, effort)

    def _same_thread(self, read: tuple[Ints, Ints], write: tuple[Ints, Ints], scope: str, effort: int) -> Verdict:
        (elements, threads), (written, writers) = read, write
        reader = np.zeros(self.size, dtype=np.int64)
        reader[elements[elements >= 0]] = threads[elements >= 0]
        used = written >= 0
        wrong = np.flatnonzero(used & (reader[np.maximum(written, 0)] != writers))
        if len(wrong):
            element = int(written[wrong[0]])
            return Refuted(
                scope, {"element": element, "read by": int(reader[element]), "written by": int(writers[wrong[0]])}
            )
        return Proved(f"{scope}; reader and writer of every element compared", effort)

    # --- delivered, stages ------------------------------------------------------------------------------------

    def delivered(self) -> Verdict:
        scope = f"all pairs of {self.size} elements, {self._stages()}"
        x, y = BitTerm.of("x"), BitTerm.of("y")
        inside = [z3.ULT(x.expr, self.size), z3.ULT(y.expr, self.size)]
        stage, ranges = self._stage("s")
        verdict = prove(
            z3.Implies(self._at(self.destination, x, stage) == self._at(self.destination, y, stage), x.expr == y.expr),
            given=[*inside, *ranges],
            scope=scope,
            logic="QF_BV",
        )
        return self._evaluated_places(scope) if isinstance(verdict, Unknown) else verdict

    def _evaluated_places(self, scope: str) -> Verdict:
        places = places_at(self.destination, {p.name: p.begin for p in self.destination.params})
        order = np.argsort(places, kind="stable")
        same = np.flatnonzero(places[order][1:] == places[order][:-1])
        if len(same):
            return Refuted(scope, {"x": int(order[same[0]]), "y": int(order[same[0] + 1])})
        return Proved(f"{scope}; every place evaluated, stages move all places alike")

    def stages_apart(self, in_place: bool) -> Verdict:
        """What a stage writes, no later one writes, nor reads where both sides are the same memory."""
        if not self.params:
            return Proved("a single stage")
        x, y = BitTerm.of("x"), BitTerm.of("y")
        (first, first_range), (later, later_range) = self._stage("now"), self._stage("later")
        written = self._at(self.destination, x, first)
        sides = (self.source, self.destination) if in_place else (self.destination,)
        apart = z3.And(*(written != self._at(side, y, later) for side in sides))
        order = self._before(first, later)
        inside = [z3.ULT(x.expr, self.size), z3.ULT(y.expr, self.size)]
        given = [*inside, *first_range, *later_range, order]
        scope = f"all pairs, {self._stages()}"
        verdict = prove(apart, given=given, scope=scope, logic="QF_BV")
        return self._evaluated_stages(scope, in_place) if isinstance(verdict, Unknown) else verdict

    def _evaluated_stages(self, scope: str, in_place: bool) -> Verdict:
        """Collect what all stages write, in order, and look what they read and write again."""
        names = sorted(self.params)
        written: Ints = np.zeros(0, dtype=np.int64)
        for values in np.ndindex(*(self.params[n].end - self.params[n].begin for n in names)):
            stage = {n: self.params[n].begin + int(v) for n, v in zip(names, values, strict=True)}
            read, write = (places_at(layout, stage) for layout in (self.source, self.destination))
            lost = np.intersect1d(written, np.concatenate([read, write]) if in_place else write)
            if len(lost):
                return Refuted(scope, {**stage, "place": int(lost[0])})
            written = np.concatenate([written, write])
        return Proved(f"{scope}; every place of every stage evaluated")

    def covered(self, align: int) -> Verdict:
        scope = f"{len(self.reads)} reads and {len(self.writes)} writes, {self._stages()}"
        for phase, layout, instructions in (
            ("read", self.source, self.reads),
            ("write", self.destination, self.writes),
        ):
            steps = [c * self.width for _, c in stage_moves(layout)]
            places = places_at(layout, {p.name: p.begin for p in layout.params})
            for number, one in enumerate(instructions):
                if any(value % one.width for value in (align, *steps)):
                    return Refuted(scope, {"phase": phase, "instruction": number, "bytes": one.width, "align": align})
                needed = one.elements >= 0
                start = np.where(needed, places[np.maximum(one.elements, 0)] - np.arange(one.elements.shape[1]), 0)
                first = np.take_along_axis(start, needed.argmax(axis=1)[:, None], axis=1)
                wrong = needed & ((start != first) | (first * self.width % one.width != 0))
                if wrong.any() or one.elements.shape != (_LANES, one.width // self.width):
                    lane, position = (int(v) for v in np.argwhere(wrong)[0]) if wrong.any() else (0, 0)
                    return Refuted(scope, {"phase": phase, "instruction": number, "lane": lane, "position": position})
        return Proved(f"{scope}; every access evaluated")

    # --- terms ------------------------------------------------------------------------------------------------

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

    def _at(self, layout: Layout, element: BitTerm, stage: dict[str, BitTerm]) -> z3.BitVecRef:
        if isinstance(layout, TileLayout):
            return memory_address(layout, element, stage)
        inside: z3.BitVecRef = memory_address(layout.inner, element, stage)
        moved: z3.BitVecRef = layout.swizzle.apply(inside)
        return moved

    def _stages(self) -> str:
        if not self.params:
            return "one stage"
        return "every stage " + ", ".join(f"{p.begin} <= {p.name} < {p.end}" for p in self.params.values())
