"""Freedom from bank conflicts as a theorem: for all lanes, instructions, stages and aligned base addresses.

The rule (BANKS) says that an instruction costs its ideal exactly when no two lanes that are served together touch
different words of one bank.  So the negation has two lanes in it:

    conflict  =  exists i, a < b:  together(i, a, b)  and  unit(a) != unit(b)  and  unit(a) mod N == unit(b) mod N

where a unit is the 4, 8 or 16 bytes that a lane occupies in banks, N = 128 / unit bytes, and lanes are together when
they fall into one group of 32, 16 or 8 (twice that for a load that merges).  Addresses come from the layouts' own
evaluation, run on solver terms; which element a lane touches is a table.  The rule is written here anew, not taken
from the simulator; tests compare the two on thousands of accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from layoutalg.banks.access import WarpAccess
from layoutalg.banks.instructions import Instructions, instructions_of
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.machine import DEFAULT_MACHINE, Machine
from layoutalg.hardware.machine import machine as machine_of
from layoutalg.index import Affine, Param
from layoutalg.iters import vector_at
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.solve import BUDGET, prove
from verify.term import WIDTH, BitTerm, lookup
from verify.verdict import Proved, Refuted, Verdict

__all__ = ["Conflict", "conflict_of", "prove_access_bank_free", "prove_bank_free"]

_LANES = 32
_ROW_BYTES = 128
_ADDRESS_LIMIT = 1 << 24


@dataclass(frozen=True, slots=True)
class Conflict:
    """The statement that two lanes make each other wait, and its unknowns.

    Args:
        formula: true exactly for two lanes of one group with different words on one bank.
        given: the ranges of the unknowns.
        instruction: number of the instruction.
        lanes: the two lanes.
        addresses: their byte addresses.
    """

    formula: z3.BoolRef
    given: tuple[z3.BoolRef, ...]
    instruction: z3.BitVecRef
    lanes: tuple[z3.BitVecRef, z3.BitVecRef]
    addresses: tuple[z3.BitVecRef, z3.BitVecRef]


def prove_bank_free(
    smem_layout: TileLayout | SwizzledLayout,
    fragment_layout: TileLayout,
    dtype: Dtype | str,
    *,
    op: str = "ld.shared",
    vector: int | None = None,
    matrices: int | None = None,
    transpose: bool | None = None,
    align: int | None = None,
    machine: Machine | str = DEFAULT_MACHINE,
    budget: int = BUDGET,
) -> Verdict:
    """Prove that moving a fragment costs no wavefront beyond the ideal, or show two lanes that collide.

    The instructions are those of :func:`layoutalg.banks.shared_report`.  Where the tile's offset has parameters
    (pipeline stages), the proof covers all their values, and that every access stays aligned and contiguous.

    Args:
        smem_layout: flat logical index -> element offset in shared memory, plain or swizzled.
        fragment_layout: flat logical index -> thread axes and slot.
        dtype: element type.
        op: ``ld.shared``, ``st.shared``, ``ldmatrix`` or ``stmatrix``.
        vector, matrices, transpose: as in :func:`layoutalg.banks.shared_report`.
        align: bytes to which base addresses are aligned; the access width, at least 4, when left out.
        machine: the target; one that was not measured adds its assumption to the scope.
        budget: resource limit of the solver.

    Raises:
        LayoutError: no such transfer exists (see ``shared_report``), or ``align`` is below the access width.

    >>> columns = TileLayout.parse("S[(32,32):(1@laneid,1)]")
    >>> print(prove_bank_free(TileLayout.parse("S[(32,32):(33,1)]"), columns, "f32"))
    Proved
    >>> verdict = prove_bank_free(TileLayout.parse("S[32,32]"), columns, "f32", vector=1)
    >>> verdict.counterexample["bank"] == verdict.counterexample["addresses"][0] // 4 % 32
    True
    """
    if op not in ("ld.shared", "st.shared", "ldmatrix", "stmatrix"):
        raise RangeError(f"{op} is no shared-memory access; banks are a matter of shared memory", op=op)
    first = smem_layout.substitute(**{param.name: param.begin for param in smem_layout.params})
    _, found = instructions_of(
        first, fragment_layout, dtype, op=op, vector=vector, matrices=matrices, transpose=transpose
    )
    facts = _Facts(smem_layout, first, found, _alignment(align, found.width))
    scope = facts.scope(machine_of(machine))
    if not len(found):
        return Proved(scope)
    if smem_layout.params:
        legal = facts.legal(scope, budget)
        if not legal.ok:
            return legal
    conflict = conflict_of(found.width, masks=facts.masks, merged=facts.merged, address=facts.address)
    given = [*conflict.given, *facts.given]
    verdict = prove(z3.Not(conflict.formula), given=given, scope=scope, budget=budget, logic="QF_BV")
    return facts.explain(verdict) if isinstance(verdict, Refuted) else verdict


def prove_access_bank_free(
    access: WarpAccess, *, align: int | None = None, machine: Machine | str = DEFAULT_MACHINE, budget: int = BUDGET
) -> Verdict:
    """Prove that one access is free of conflicts at every aligned base that is added to its addresses.

    >>> str(prove_access_bank_free(WarpAccess("ld.shared", 4, addresses=range(0, 128, 4))))
    'Proved'
    """
    base = z3.BitVec("base", WIDTH)
    bytes_aligned = _alignment(align, access.width)
    scope = f"one {access.op} of {access.width} B, {_bases(bytes_aligned)}{_assumption(machine_of(machine))}"
    mask = access.mask & (1 << len(access.addresses)) - 1
    addresses = [access.addresses[lane] if mask >> lane & 1 else 0 for lane in range(_LANES)]
    conflict = conflict_of(
        access.width,
        masks=(mask,),
        merged=(_merges(access.op, access.width, addresses, mask),),
        address=lambda _, lane: base + lookup(addresses, lane),
    )
    given = [*conflict.given, z3.URem(base, bytes_aligned) == 0, z3.ULT(base, _ADDRESS_LIMIT)]
    verdict = prove(z3.Not(conflict.formula), given=given, scope=scope, budget=budget, logic="QF_BV")
    if not isinstance(verdict, Refuted):
        return verdict
    shown = _collision(verdict.counterexample, lambda lane: addresses[lane], width=access.width)
    return Refuted(scope, shown, verdict.effort)


def conflict_of(
    width: int,
    *,
    masks: Sequence[int],
    merged: Sequence[bool],
    address: Callable[[z3.BitVecRef, z3.BitVecRef], z3.BitVecRef],
) -> Conflict:
    """State that some instruction has two lanes which need different words of one bank in one wavefront.

    Args:
        width: bytes per lane or row.
        masks: lane mask per instruction.
        merged: whether the instruction is served in groups of twice the size.
        address: byte address from the number of the instruction and the lane, as terms.
    """
    instruction = z3.BitVec("instruction", WIDTH)
    lanes = z3.BitVec("lane_a", WIDTH), z3.BitVec("lane_b", WIDTH)
    unit = max(width, 4)
    doubled = lookup([int(flag) for flag in merged], instruction)
    shift = ((_ROW_BYTES // unit) - 1).bit_length() + doubled
    mask = lookup(list(masks), instruction)
    places = address(instruction, lanes[0]), address(instruction, lanes[1])
    units = [z3.LShR(place, unit.bit_length() - 1) for place in places]
    banks = _ROW_BYTES // unit - 1
    formula = z3.And(
        z3.LShR(lanes[0], shift) == z3.LShR(lanes[1], shift),
        units[0] != units[1],
        units[0] & banks == units[1] & banks,
    )
    given = [z3.ULT(instruction, len(masks)), z3.ULT(lanes[0], lanes[1]), z3.ULT(lanes[1], _LANES)]
    given += [z3.LShR(mask, lane) & 1 == 1 for lane in lanes]
    return Conflict(formula, tuple(given), instruction, lanes, places)


def _merges(op: str, width: int, addresses: Sequence[int], mask: int) -> bool:
    """Whether lanes that differ in one of their two lowest bits agree in address, in the whole warp."""
    if op != "ld.shared" or width < 8:
        return False
    active = [lane for lane in range(32) if mask >> lane & 1]
    return any(
        all(lane ^ step not in active or addresses[lane] == addresses[lane ^ step] for lane in active)
        for step in (1, 2)
    )


def _alignment(align: int | None, width: int) -> int:
    chosen = max(width, 4) if align is None else align
    if chosen < 1 or chosen % max(width, 4):
        raise RangeError(
            f"align is {chosen}; accesses of {width} bytes need a multiple of {max(width, 4)}", align=chosen
        )
    return chosen


def _bases(align: int) -> str:
    return f"every base address aligned to {align} B"


def _assumption(machine: Machine) -> str:
    return f", assuming that {machine.assumption}" if machine.assumption else ""


def _collision(model: Any, offset: Callable[[int], int], *, width: int, **rest: Any) -> dict[str, Any]:
    """The two lanes of a model with addresses, words and bank; at base 0 if they collide there too."""
    lanes = int(model.get("lane_a", 0)), int(model.get("lane_b", 0))
    unit = max(width, 4)
    for base in (0, int(model.get("base", 0))):
        places = base + offset(lanes[0]), base + offset(lanes[1])
        units = places[0] // unit, places[1] // unit
        if units[0] != units[1] and (units[0] - units[1]) % (_ROW_BYTES // unit) == 0:
            break
    words = places[0] // 4, places[1] // 4
    return {"lanes": lanes, "addresses": places, "words": words, "bank": words[0] % 32, "base": base, **rest}


class _Facts:
    """A transfer on solver terms: which element each lane touches, and where the tile stores it."""

    def __init__(
        self, tile: TileLayout | SwizzledLayout, first: TileLayout | SwizzledLayout, found: Instructions, align: int
    ) -> None:
        self.tile, self.found, self.align = tile, found, align
        self.params: tuple[Param, ...] = tile.params
        self.bits = found.dtype.bits
        offsets = next(iter(first.table().values()), None)
        # Accesses of one address are accesses of one offset, in every stage; any element that has it will do.
        self.owner = {int(offset): n for n, offset in enumerate([0] * first.size if offsets is None else offsets)}
        rows = [row.tolist() for row in found.addresses]
        # A matrix instruction has as many addresses as rows, whatever its mask.
        self.masks = [mask & (1 << len(row)) - 1 for row, mask in zip(rows, found.masks, strict=True)]
        padded = [(row + [0] * _LANES)[:_LANES] for row in rows]
        pairs = list(zip(padded, self.masks, strict=True))
        self.merged = tuple(_merges(found.op, found.width, row, mask) for row, mask in pairs)
        self.starts = [self._start(a, mask >> lane & 1) for row, mask in pairs for lane, a in enumerate(row)]
        self.base = z3.BitVec("base", WIDTH)
        self.stage = {param.name: BitTerm.of(param.name) for param in self.params}
        self.given = [
            z3.URem(self.base, z3.BitVecVal(align, WIDTH)) == 0,
            z3.ULT(self.base, _ADDRESS_LIMIT),
            *(z3.And(self.stage[p.name].expr >= p.begin, self.stage[p.name].expr < p.end) for p in self.params),
        ]

    def _start(self, address: int, active: int) -> int:
        return self.owner[address * 8 // self.bits] if active else 0

    def scope(self, machine: Machine) -> str:
        stages = ", ".join(f"every {p.begin} <= {p.name} < {p.end}" for p in self.params) or "one stage"
        what = f"{len(self.found)} {self.found.op} of {self.found.width} B"
        return f"{what}, all pairs of lanes served together, {stages}, {_bases(self.align)}{_assumption(machine)}"

    def offset(self, element: z3.BitVecRef) -> z3.BitVecRef:
        """The tile's element offset of a symbolic flat index, in the symbolic stage: the layout's own code."""
        inner = self.tile.inner if isinstance(self.tile, SwizzledLayout) else self.tile
        place: Any = BitTerm(z3.BitVecVal(0, WIDTH))
        for value in vector_at(inner.shard, BitTerm(element)).values():
            place = place + value
        for start in inner.offset.values():
            if isinstance(start, Affine):
                place = place + start.const
                for param, coefficient in start.terms:
                    place = place + self.stage[param.name] * coefficient
            else:
                place = place + start
        result: z3.BitVecRef = place.expr
        return self.tile.swizzle.apply(result) if isinstance(self.tile, SwizzledLayout) else result

    def address(self, instruction: z3.BitVecRef, lane: z3.BitVecRef) -> z3.BitVecRef:
        element = lookup(self.starts, instruction * _LANES + lane)
        return self.base + z3.LShR(self.offset(element) * self.bits, 3)

    def legal(self, scope: str, budget: int) -> Verdict:
        """In every stage, the elements of one access lie side by side and start at a multiple of its width."""
        length = 8 * self.found.width // self.bits
        piece, step = z3.BitVec("access", WIDTH), z3.BitVec("element", WIDTH)
        starts = sorted(set(self.starts))
        first_offset = {n: offset for offset, n in self.owner.items()}
        elements = [self.owner.get(first_offset[n] + k, n) for n in starts for k in range(length)]
        begin = self.offset(lookup(starts, piece))
        here = self.offset(lookup(elements, piece * length + step))
        address = self.base + z3.LShR(begin * self.bits, 3)
        fine = z3.And(here == begin + step, address & (self.found.width - 1) == 0)
        given = [*self.given, z3.ULT(piece, len(starts)), z3.ULT(step, length)]
        verdict = prove(fine, given=given, scope=scope, budget=budget, logic="QF_BV")
        if not isinstance(verdict, Refuted):
            return verdict
        model = dict(verdict.counterexample)
        stage = {p.name: int(model.get(p.name, p.begin)) for p in self.params}
        element = starts[int(model.get("access", 0))]
        at = int(model.get("base", 0)) + self._offset_at(element, stage) * self.bits // 8
        fault = f"the access at element {element} is not {self.found.width} aligned neighbouring bytes"
        return Refuted(scope, {"fault": fault, "address": at, "element": element, **stage}, verdict.effort)

    def explain(self, verdict: Refuted) -> Refuted:
        """Turn the solver's values into lanes, addresses, words and a bank."""
        model = verdict.counterexample
        at = int(model.get("instruction", 0))
        stage = {p.name: int(model.get(p.name, p.begin)) for p in self.params}

        def offset(lane: int) -> int:
            return self._offset_at(self.starts[at * _LANES + lane], stage) * self.bits // 8

        rest = {"warp": self.found.warps[at], "registers": self.found.registers[at], **stage}
        shown = _collision(model, offset, width=self.found.width, instruction=at, **rest)
        return Refuted(verdict.scope, shown, verdict.effort)

    def _offset_at(self, element: int, stage: dict[str, int]) -> int:
        return int(next(iter(self.tile.substitute(**stage).apply(element).values()), 0))
