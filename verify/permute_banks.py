"""What the phases of a permute plan cost, proved for every stage and every aligned base address.

A phase is a list of instructions; each moves ``width`` bytes per lane from the address of its lane's first element.

* Nothing in excess: Z3 proves that no two lanes that are served together touch different units (words, pairs, quads of
  banks) of one bank, for all lanes, instructions, stages and bases.  The wavefronts are then the groups in use.
* Some in excess, because no schedule avoids it: the simulator counts at one base, and Z3 proves that moving all
  addresses by a multiple of the unit changes no count: equal units stay equal, equal banks stay equal.

Loads of 8 and 16 bytes whose lanes pair up are served in groups of twice the size (``layoutalg.banks``).  Whether they
pair up depends on which lanes are idle or equal, hence on neither base nor stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import z3
from numpy.typing import NDArray

from layoutalg.banks import simulate_many
from layoutalg.errors import LayoutError
from layoutalg.index import Affine, Param
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.solve import BUDGET, prove
from verify.term import WIDTH, lookup
from verify.verdict import Obligation, Proved, Refuted, Verdict

__all__ = ["Instruction", "Layout", "places_at", "prove_phase", "stage_moves", "translation_lemma"]

Ints = NDArray[np.int64]
Layout: TypeAlias = TileLayout | SwizzledLayout

_LANES = 32
_BANK_BYTES = 128
_BATCH = 8
_BASES = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One warp instruction: bytes per lane, and the elements [lane][position] that it covers, -1 for none."""

    width: int
    elements: Ints


def prove_phase(
    phase: str,
    instructions: Sequence[Instruction],
    layout: Layout,
    *,
    width: int,
    align: int,
    cost: tuple[int, int] | None = None,
    exact: bool = True,
) -> Obligation:
    """Prove what one phase costs.

    Args:
        phase: ``read`` or ``write``.
        instructions: in order.
        layout: where the elements are.
        width: bytes of an element.
        align: alignment of the base address in bytes.
        cost: promised wavefronts and excess; without it, only that nothing is in excess.
        exact: whether every stage costs that; else no stage costs more.
    """
    facts = _Phase(phase, instructions, layout, width, align)
    if cost is None:
        return Obligation(f"the {phase} phase is free of bank conflicts", facts.conflict_free())
    wavefronts, excess = cost
    most = "" if exact else "at most "
    name = f"the {phase} phase costs {most}{wavefronts} wavefronts, {excess or 'none'} in excess"
    free = excess == 0 and exact
    return Obligation(name, facts.free(wavefronts) if free else facts.counted(wavefronts, excess, exact=exact))


def translation_lemma(unit: int) -> Verdict:
    """Prove that moving two addresses by a multiple of the unit keeps whether their units and their banks are equal.

    >>> translation_lemma(16).ok
    True
    """
    a, b, k = z3.BitVecs("a b k", WIDTH)
    banks, shift = _BANK_BYTES // unit, unit.bit_length() - 1

    def alike(x: z3.BitVecRef, y: z3.BitVecRef) -> tuple[z3.BoolRef, z3.BoolRef]:
        u, v = z3.LShR(x, shift), z3.LShR(y, shift)
        return u == v, u & (banks - 1) == v & (banks - 1)

    before, after = alike(a, b), alike(a + k * unit, b + k * unit)
    small = [z3.ULT(value, 1 << 28) for value in (a, b)] + [z3.ULT(k, 1 << 24)]
    same = z3.And(before[0] == after[0], before[1] == after[1])
    return prove(same, given=small, scope=f"all addresses, moves by multiples of {unit} bytes", logic="QF_BV")


class _Phase:
    """The addresses of one phase, and the statements about them."""

    def __init__(self, phase: str, instructions: Sequence[Instruction], layout: Layout, width: int, align: int) -> None:
        self.phase, self.width, self.align = phase, width, align
        self.op = "ld.shared" if phase == "read" else "st.shared"
        self.params = {p.name: p for p in layout.params}
        self.moves = stage_moves(layout)
        places = places_at(layout, {p.name: p.begin for p in layout.params}) * width
        self.low = int(places.min()) // _BANK_BYTES * _BANK_BYTES
        self.widths = np.array([one.width for one in instructions])
        self.addresses = np.stack([_addresses(one.elements, places - self.low, width) for one in instructions])

    # --- nothing in excess ------------------------------------------------------------------------------------

    def conflict_free(self) -> Verdict:
        """Two lanes of one group with different units on one bank would cost a second wavefront."""
        scope = self._scope("all instructions, pairs of lanes served together")
        effort = 0
        for numbers, width, merged in self._batches():
            verdict = self._apart(numbers, width, merged, scope)
            if not verdict.ok:
                return verdict
            effort += getattr(verdict, "effort", 0)
        return Proved(scope, effort)

    def free(self, wavefronts: int) -> Verdict:
        """As :meth:`conflict_free`, and there are as many groups in use as wavefronts were promised."""
        groups = 0
        for numbers, width, merged in self._batches():
            lanes = _group(width, merged)
            used = (self.addresses[numbers] >= 0).reshape(len(numbers), -1, lanes).any(axis=2)
            groups += int(used.sum())
        verdict = self.conflict_free()
        if verdict.ok and groups != wavefronts:
            return Refuted(verdict.scope, {"promised": wavefronts, "groups in use": groups})
        return verdict

    def _apart(self, numbers: Sequence[int], width: int, merged: bool, scope: str) -> Verdict:
        flat = self.addresses[list(numbers)].reshape(-1).tolist()
        unit = max(width, 4)
        banks, shift, size = _BANK_BYTES // unit, unit.bit_length() - 1, _group(width, merged).bit_length() - 1
        base = z3.BitVec("base", WIDTH)
        move, ranges = self._stage()
        sides = []
        for name in ("a", "b"):
            lane, row = z3.BitVec(f"lane_{name}", WIDTH), z3.BitVec(f"row_{name}", WIDTH)
            # The slot is named too, for the counterexample.
            slot = z3.BitVec(f"slot_{name}", WIDTH)
            ranges += [z3.ULT(lane, _LANES), z3.ULT(row, len(numbers)), slot == lookup(list(numbers), row)]
            sides.append((lane, row, lookup(flat, row * _LANES + lane)))
        (lane_a, row_a, a), (lane_b, row_b, b) = sides
        words = [z3.LShR(base + address + move + self.low, shift) for address in (a, b)]
        clash = z3.And(words[0] != words[1], words[0] & (banks - 1) == words[1] & (banks - 1))
        together = [row_a == row_b, z3.LShR(lane_a, size) == z3.LShR(lane_b, size), z3.ULT(lane_a, lane_b)]
        aligned = [z3.URem(base, z3.BitVecVal(self.align, WIDTH)) == 0, z3.ULT(base, _BASES), base + self.low >= 0]
        given = [*ranges, *together, *aligned, a >= 0, b >= 0]
        return prove(z3.Not(clash), given=given, scope=scope, logic="QF_BV", budget=2 * BUDGET)

    def _batches(self) -> Iterator[tuple[list[int], int, bool]]:
        """Yield instructions that are served alike, a few at a time."""
        kinds: dict[tuple[int, bool], list[int]] = {}
        for number, width in enumerate(self.widths.tolist()):
            kinds.setdefault((width, self._merges(number)), []).append(number)
        for (width, merged), numbers in kinds.items():
            for start in range(0, len(numbers), _BATCH):
                yield numbers[start : start + _BATCH], width, merged

    def _merges(self, number: int) -> bool:
        """Whether a load's lanes pair up, so that twice as many are served together."""
        if self.op != "ld.shared" or self.widths[number] < 8:
            return False
        address = self.addresses[number]
        lanes = np.arange(_LANES)
        other = address[lanes[None, :] ^ np.array([[1], [2]])]
        pairs = (address < 0) | (other < 0) | (other == address)
        return bool(pairs.all(axis=1).any())

    # --- some in excess ---------------------------------------------------------------------------------------

    def counted(self, wavefronts: int, excess: int, *, exact: bool = True) -> Verdict:
        """Count at one base per stage that is not a mere translation, and prove the rest by translation."""
        unit = max(4, int(self.widths.max()))
        scope = self._scope(f"counted at one base, moved by multiples of {unit} bytes")
        if self.align % unit:
            return Refuted(scope, {"align": self.align, "unit": unit})
        effort = 0
        for size in sorted({max(4, width) for width in self.widths.tolist()}):
            lemma = translation_lemma(size)
            if not lemma.ok:
                return lemma
            effort += getattr(lemma, "effort", 0)
        for stage, move in self._stages():
            found = self._count(move % unit)
            if found != (wavefronts, excess) if exact else found > (wavefronts, excess):
                promised = f"{wavefronts} wavefronts, {excess} in excess"
                return Refuted(
                    scope, {"promised": promised, "counted": f"{found[0]} wavefronts, {found[1]} in excess", **stage}
                )
        return Proved(scope, effort)

    def _count(self, move: int) -> tuple[int, int]:
        wavefronts = excess = 0
        for width in sorted(set(self.widths.tolist())):
            rows = self.addresses[self.widths == width]
            masks = ((rows >= 0).astype(np.int64) << np.arange(_LANES)).sum(axis=1)
            report = simulate_many(self.op, width, addresses=np.where(rows >= 0, rows + move, 0), masks=masks)
            wavefronts, excess = wavefronts + int(report.wavefronts.sum()), excess + int(report.excess.sum())
        return wavefronts, excess

    # --- stages -----------------------------------------------------------------------------------------------

    def _stage(self) -> tuple[z3.BitVecRef, list[z3.BoolRef]]:
        move, ranges = z3.BitVecVal(0, WIDTH), []
        for param, coefficient in self.moves:
            value = z3.BitVec(param.name, WIDTH)
            ranges.append(z3.And(value >= param.begin, value < param.end))
            move = move + (value - param.begin) * (coefficient * self.width)
        return move, ranges

    def _stages(self) -> Iterator[tuple[dict[str, int], int]]:
        """Yield every stage and by how many bytes it moves the first."""
        for values in np.ndindex(*(param.end - param.begin for param, _ in self.moves)):
            move = sum(int(v) * c * self.width for v, (_, c) in zip(values, self.moves, strict=True))
            yield {p.name: p.begin + int(v) for v, (p, _) in zip(values, self.moves, strict=True)}, move

    def _scope(self, what: str) -> str:
        stages = ", ".join(f"{p.begin} <= {p.name} < {p.end}" for p in self.params.values())
        return f"{self.phase}: {what}, every stage {stages or '(one)'}, bases aligned to {self.align} B"


def _group(width: int, merged: bool) -> int:
    lanes = min(_LANES, _BANK_BYTES // max(width, 4))
    return 2 * lanes if merged else lanes


def stage_moves(layout: Layout) -> tuple[tuple[Param, int], ...]:
    """Return by how many elements each parameter moves a layout, if it does; a swizzle lets whole periods through."""
    tile = layout.inner if isinstance(layout, SwizzledLayout) else layout
    offset = tile.offset.get("m", 0)
    terms = tuple((p, c) for p, c in offset.terms if p.end - p.begin > 1) if isinstance(offset, Affine) else ()
    if isinstance(layout, SwizzledLayout) and any(c % layout.swizzle.period for _, c in terms):
        raise LayoutError(f"the stages of {layout} are no multiples of the swizzle's period {layout.swizzle.period}")
    return terms


def places_at(layout: Layout, stage: Mapping[str, int]) -> Ints:
    """Return the place in memory of every element, with these values of the parameters."""
    table = layout.substitute(**{p.name: stage[p.name] for p in layout.params}).table()
    return table["m"] if "m" in table else np.zeros(layout.size, dtype=np.int64)


def _addresses(elements: Ints, places: Ints, width: int) -> Ints:
    """Return the address of every lane of one instruction, -1 where idle."""
    needed = elements >= 0
    position = needed.argmax(axis=1)
    first = elements[np.arange(len(elements)), position]
    addresses: Ints = np.where(first >= 0, places[np.maximum(first, 0)] - position * width, -1)
    return addresses
