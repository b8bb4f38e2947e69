"""Check a compiled kernel against a claim with solver terms: for every thread, every base address and all data.

One unknown thread is executed symbolically (:mod:`verify.ptx.symexec`).  Then, as obligations:

* **uniform**: every address is one base plus an offset; offsets and conditions depend on thread, block and scalars
  alone; stored bytes are moved, not computed.  So what an execution shows for one placement and for data that tell
  every byte apart holds for all placements and data.
* **bounds**: under its condition every access lies in its memory and is aligned, whatever the base.
* **races**: no two threads touch the same byte, one of them writing, without a barrier between.
* **contents** (kernels of few threads, and those that move one whole tensor): following the bytes through shared
  memory, every output byte is the input byte that the claim's layouts name, and nothing else is written.

For a kernel that moves one whole tensor, bounds, races and contents are proved for all blocks without a solver, by
:mod:`verify.ptx.blocks`; where its blocks have too little in common for that, bounds and races are left to the solver.
"""

from __future__ import annotations

import itertools
from typing import Any

import z3

from layoutalg.claim import Buffer as Pointer
from layoutalg.claim import Claim, Scalar
from layoutalg.errors import LayoutError
from verify.ptx.blocks import Outcome, check_blocks, refusal
from verify.ptx.bytewise import Byte, Choice, Moved, Reader
from verify.ptx.errors import PtxError
from verify.ptx.expect import expectations
from verify.ptx.follow import Origin, Place, RaceError, UndefinedByteError, follow, instances
from verify.ptx.names import FreeNames
from verify.ptx.ops_base import TmemAlloc
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program
from verify.ptx.resolve import load
from verify.ptx.symexec import Access, Thread, execute, linear_index
from verify.ptx.tree import Module
from verify.solve import prove
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["check_symbolically"]

_UNIFORM = "addresses are base plus offset, offsets ignore bases and data, data are only moved"
_BOUNDS = "every access is inside its memory and aligned, for every base address"
_RACES = "no two threads touch one byte without a barrier, unless both read"
_CONTENTS = "every output byte is the input byte that the layouts name, for all data and base addresses"
#: Accesses of all threads that are followed one by one: at once, and where blocks have too little in common.  The cost
#: is linear, about a second for 16,000; the solver's, over pairs of accesses, grows with their square, and a pair costs
#: as much as eight accesses that are followed.
_AT_ONCE, _EVALUATIONS, _MOST_EVALUATIONS, _PER_PAIR = 12_000, 120_000, 1_000_000, 8
_PAIRS_AT_ONCE = 20
_OFFSET_BITS = 64


def check_symbolically(module: Module, claim: Claim, *, max_steps: int = 50_000) -> tuple[Obligation, ...]:
    """Prove what a claim says of a kernel with z3; see the module's text for the obligations.

    Args:
        module: the parsed PTX.
        claim: what the kernel promises.
        max_steps: steps after which a loop counts as too long to follow.
    """
    try:
        program = load(module, claim.entry)
        facts = _Facts(program, claim, max_steps)
    except (PtxError, LayoutError) as error:
        return (Obligation(_UNIFORM, Unknown("the kernel and its claim", str(error))),)
    uniform = facts.uniform()
    if not uniform.ok:
        return (Obligation(_UNIFORM, uniform),)
    outcome = None if facts.is_small(_AT_ONCE) else facts.by_blocks()
    if outcome is not None:
        verdicts = zip((_BOUNDS, _RACES, _CONTENTS), (outcome.bounds, outcome.races, outcome.contents), strict=True)
        return (Obligation(_UNIFORM, uniform), *(Obligation(name, verdict) for name, verdict in verdicts))
    found = [Obligation(_UNIFORM, uniform), Obligation(_BOUNDS, facts.bounds())]
    if not found[-1].verdict.ok:
        return tuple(found)
    found.append(Obligation(_RACES, facts.races()))
    if found[-1].verdict.ok and facts.is_small():
        found.append(Obligation(_CONTENTS, facts.contents()))
    return tuple(found)


class _Facts:
    """The kernel's accesses by region, and the statements about them."""

    def __init__(self, program: Program, claim: Claim, max_steps: int) -> None:
        self.program, self.claim = program, claim
        self.bases: dict[str, tuple[Any, int, int]] = {}
        self.params: dict[int, Any] = {}
        self.given: list[Any] = []
        self._parameters()
        self._variables()
        self.thread: Thread = execute(
            program,
            block=claim.block,
            grid=claim.grid,
            params=self.params,
            given=tuple(self.given),
            max_steps=max_steps,
        )
        self.allowed = {*self.thread.indices, *(p.name for p in claim.params if isinstance(p, Scalar))}
        for base in self.thread.tensor_bases:
            self.bases[base.decl().name()] = (base, 0, 1)
        for base, size in self.thread.exchanges:
            self.bases[base.decl().name()] = (base, size, 128)
        self.wrong: dict[str, Any] | None = None
        self.hazards = list(self.thread.hazards)
        self.reader = Reader()
        self.free_names = FreeNames()
        self._decided: dict[int, tuple[Choice, bool]] = {}
        self._followed: dict[tuple[str, int], Origin] | RaceError | UndefinedByteError | None = None
        self.places = [self._place(access) for access in self.thread.accesses]

    def _parameters(self) -> None:
        declared = self.program.params
        sizes = [64 if isinstance(p, Pointer) else p.bits for p in self.claim.params]
        if sizes != [WIDTHS[p.type] if p.count is None else 0 for p in declared]:
            raise PtxError("the kernel's parameters are not those of the claim", file=self.program.file)
        x, y, z = self.claim.block
        most = self.program.maximum_block
        if self.program.required_block not in (None, (x, y, z)) or (most is not None and x * y * z > most):
            raise PtxError(f"the kernel is not made for blocks of {(x, y, z)}", file=self.program.file)
        for index, parameter in enumerate(self.claim.params):
            if isinstance(parameter, Pointer):
                term = z3.BitVec(f"*{parameter.name}", 64)
                self.bases[term.decl().name()] = (term, parameter.count * self.claim.width, parameter.align)
            else:
                term = z3.BitVec(parameter.name, parameter.bits)
                self.given += [term >= parameter.minimum, term <= parameter.maximum]
                if parameter.minimum == parameter.maximum:
                    term = z3.BitVecVal(parameter.minimum, parameter.bits)
            self.params[index] = term

    def _variables(self) -> None:
        for variable in self.program.variables:
            if variable.space == "shared":
                unit = WIDTHS[variable.type] // 8
                count = self.claim.dynamic_shared_bytes if variable.count is None else variable.count * unit
                term = z3.BitVec(f"&{variable.name}", 32)
                self.bases[term.decl().name()] = (term, count, max(variable.align, unit))

    def _place(self, access: Access) -> Place:
        """Take the base off an address; remember the first address that is not a base plus an offset."""
        names = sorted(name for name in self.free_names(access.address) if name[0] in "*&^")
        base, size, align = self.bases.get(names[0], (None, 0, 1)) if len(names) == 1 else (None, 0, 1)
        if base is None or (access.space == "tmem") != (names[0][0] == "^"):
            self._blame(access, f"its address is made of {', '.join(names) or 'no base'}")
            return Place(access, "", access.address, 0, 1)
        if base.size() == 32:
            offset = z3.ZeroExt(32, z3.simplify(z3.Extract(31, 0, access.address) - base))
        else:
            offset = access.address - base
        offset = z3.simplify(offset)
        strange = (self.free_names(offset) | self.free_names(access.guard)) - self.allowed
        if strange:
            self._blame(access, f"its offset or condition depends on {', '.join(sorted(strange))}")
        return Place(access, names[0], offset, size, align)

    def _blame(self, access: Access, reason: str) -> None:
        if self.wrong is None:
            self.wrong = {"PTX line": access.step.line, "instruction": access.step.text, "reason": reason}

    # --- uniform ----------------------------------------------------------------------------------------------

    def uniform(self) -> Verdict:
        scope = f"{len(self.places)} accesses of every thread"
        for place in self.places:
            if place.access.write:
                self._check_moved(place.access)
        for condition, step, words in self.hazards:
            strange = self.free_names(condition) - self.allowed
            if strange and self.wrong is None:
                reason = f"{words} depends on {', '.join(sorted(strange))}"
                self.wrong = {"PTX line": step.line, "instruction": step.text, "reason": reason}
        slots = {place.region for place in self.places if place.access.write and _is_allocation(place.access)}
        for place in self.places:
            if place.region in slots and place.access.write and not _is_allocation(place.access):
                self._blame(place.access, "it overwrites the address of tensor memory")
        if self.wrong is not None:
            return Refuted(scope, self.wrong)
        roles = {f"*{p.name}": p.role for p in self.claim.params if isinstance(p, Pointer)}
        for place in self.places:
            role = roles.get(place.region, "")
            if (role == "input" and place.access.write) or (role == "output" and not place.access.write):
                self._blame(place.access, f"the {role} buffer is {'written' if place.access.write else 'read'}")
                return Refuted(scope, self.wrong or {})
        return Proved(scope)

    def _check_moved(self, access: Access) -> None:
        for value in access.values:
            row = self.reader.row(value)
            for condition in self.reader.conditions(value):
                self.hazards.append((z3.Implies(access.guard, condition), access.step, "a shift by whole bytes"))
            for index, byte in enumerate(row):
                if not self._is_moved(byte):
                    self._blame(access, f"byte {index} of the stored value is computed, not moved")

    def _is_moved(self, byte: Moved) -> bool:
        match byte:
            case None:
                return False
            case int():
                return True
            case Byte(name):
                return name.startswith(("data!", "undefined!", "^"))
            case Choice(condition, yes, no):
                if id(byte) not in self._decided:
                    decided = self.free_names(condition) <= self.allowed
                    self._decided[id(byte)] = (byte, decided and self._is_moved(yes) and self._is_moved(no))
                return self._decided[id(byte)][1]

    # --- bounds -----------------------------------------------------------------------------------------------

    def bounds(self) -> Verdict:
        scope = f"{len(self.places)} accesses, every thread of blocks {self.claim.block} in a grid {self.claim.grid}"
        hazards = [(z3.simplify(condition), step) for condition, step, _ in self.hazards]
        statements = [(self._inside(place), place.access.step) for place in self._addressed()] + hazards
        if not statements:
            return Proved(scope)
        together = self._prove(z3.And(*(statement for statement, _ in statements)), scope)
        if together.ok or len(statements) == 1:
            return together
        for statement, step in statements:
            verdict = self._prove(statement, scope)
            if not verdict.ok:
                return _at_step(verdict, step.line, step.text)
        return together

    def _addressed(self) -> list[Place]:
        """Accesses to global and shared memory; the rules of tensor memory are checked by execution."""
        return [place for place in self.places if place.access.space != "tmem"]

    def _inside(self, place: Place) -> Any:
        size = place.access.size
        if place.align % size and size <= 32:
            # Some base of this alignment makes the access misaligned, whatever the offset.
            return z3.Not(place.access.guard)
        bits = z3.BitVecVal
        inside = z3.ULE(place.offset, bits(place.size - size, _OFFSET_BITS)) if place.size >= size else False
        aligned = place.offset & bits(size - 1, _OFFSET_BITS) == bits(0, _OFFSET_BITS)
        return z3.simplify(z3.Implies(place.access.guard, z3.And(inside, aligned)))

    def _prove(self, statement: Any, scope: str) -> Verdict:
        simple = z3.simplify(statement)
        if z3.is_true(simple):
            return Proved(scope)
        verdict = prove(simple, given=self.thread.given, scope=scope, logic="QF_BV")
        return self._evaluated(simple, verdict, scope) if isinstance(verdict, Unknown) and self.is_small() else verdict

    def _evaluated(self, statement: Any, otherwise: Unknown, scope: str) -> Verdict:
        """Decide what is too hard for the solver thread by thread; where data or bases matter it stays unknown."""
        for block, thread, values in instances(self.thread.indices, self.claim.block, self.claim.grid):
            here = z3.simplify(z3.substitute(statement, *values))
            if z3.is_false(here):
                return Refuted(scope, {"thread": thread, "block": block}, otherwise.effort)
            if not z3.is_true(here):
                return otherwise
        return Proved(f"{scope}; every thread evaluated", otherwise.effort)

    # --- races ------------------------------------------------------------------------------------------------

    def races(self) -> Verdict:
        if self.is_small():
            return self._races_by_enumeration()
        scope = "every pair of threads and every pair of accesses"
        pairs = [
            (first, second)
            for first, second in itertools.combinations_with_replacement(self._addressed(), 2)
            if first.region == second.region and (first.access.write or second.access.write)
        ]
        conditions = [(self._meet(a, b), a, b) for a, b in pairs]
        conditions = [item for item in conditions if not z3.is_false(item[0])]
        effort = 0
        for begin in range(0, len(conditions), _PAIRS_AT_ONCE):
            verdict = self._never(conditions[begin : begin + _PAIRS_AT_ONCE], scope)
            effort += verdict.effort
            if not verdict.ok:
                return verdict
        return Proved(scope, effort)

    def _races_by_enumeration(self) -> Verdict:
        scope = f"every byte that {self.threads()} threads touch, for all data and base addresses"
        found = self.followed()
        if not isinstance(found, RaceError):
            return Proved(scope)
        parties = {}
        for name, event in (("first", found.first), ("second", found.second)):
            parties[name] = f"{_describe(event.access)} by thread {event.thread} of block {event.block}"
        return Refuted(scope, {**parties, "where": found.where})

    def _never(self, part: list[tuple[Any, Place, Place]], scope: str) -> Verdict:
        """None of these pairs of accesses can meet; what is too hard together is tried by halves."""
        verdict = self._prove_pair(z3.Not(z3.Or(*(condition for condition, _, _ in part))), scope)
        if verdict.ok:
            return verdict
        if len(part) == 1:
            _, first, second = part[0]
            if not isinstance(verdict, Refuted):
                return verdict
            lines = {"first": _describe(first.access), "second": _describe(second.access)}
            return Refuted(scope, {**lines, **verdict.counterexample}, verdict.effort)
        effort = verdict.effort
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            verdict = self._never(half, scope)
            effort += verdict.effort
            if not verdict.ok:
                return verdict
        return Proved(scope, effort)

    def _prime(self, term: Any) -> Any:
        """The same term for another thread: ``tid.x`` becomes ``other.tid.x``."""
        pairs = [(index, z3.BitVec(f"other.{name}", index.size())) for name, index in self.thread.indices.items()]
        return z3.substitute(term, *pairs) if pairs else term

    def _prove_pair(self, statement: Any, scope: str) -> Verdict:
        given = [*self.thread.given, *(self._prime(fact) for fact in self.thread.given)]
        simple = z3.simplify(statement)
        if z3.is_true(simple):
            return Proved(scope)
        return prove(simple, given=given, scope=scope, logic="QF_BV")

    def _meet(self, a: Place, b: Place) -> Any:
        """Two different threads, unordered, touch the same byte through these accesses."""
        apart = self._unordered(a, b)
        if z3.is_false(apart):
            return apart
        # Offsets lie below the size (the bounds are proved first), so few bits say everything.
        bits = (a.size + 64).bit_length()
        mine, other = (z3.simplify(z3.Extract(bits - 1, 0, offset)) for offset in (a.offset, self._prime(b.offset)))
        sizes = [z3.BitVecVal(place.access.size, bits) for place in (a, b)]
        overlap = z3.And(z3.ULT(mine, other + sizes[1]), z3.ULT(other, mine + sizes[0]))
        return z3.simplify(z3.And(apart, a.access.guard, self._prime(b.access.guard), overlap))

    def _unordered(self, a: Place, b: Place) -> Any:
        threads = self._differ("tid")
        blocks = self._differ("ctaid")
        if a.access.block_epoch != b.access.block_epoch:
            together: Any = z3.BoolVal(False)
        elif a.access.warp_epoch != b.access.warp_epoch:
            together = self._different_warps()
        else:
            together = threads
        if self._is_shared(a):
            # Shared memory of different blocks is different memory.
            return z3.simplify(z3.And(together, z3.Not(blocks)))
        return z3.simplify(z3.Or(blocks, together))

    def _is_shared(self, place: Place) -> bool:
        return place.access.space == "shared"

    def _differ(self, name: str) -> Any:
        parts = [index for key, index in self.thread.indices.items() if key.startswith(name + ".")]
        return z3.Or(*(index != self._prime(index) for index in parts)) if parts else z3.BoolVal(False)

    def _different_warps(self) -> Any:
        x, y, z = self.claim.block
        if x * y * z <= 32:
            return z3.BoolVal(False)
        specials = {f"%tid.{axis}": self._wide(f"tid.{axis}") for axis in "xyz"}
        warp = linear_index(specials, self.claim.block) >> 5
        return warp != self._prime(warp)

    def _wide(self, name: str) -> Any:
        index = self.thread.indices.get(name)
        return z3.BitVecVal(0, 32) if index is None else z3.ZeroExt(32 - index.size(), index)

    # --- contents ---------------------------------------------------------------------------------------------

    def threads(self) -> int:
        """Threads of the launch."""
        x, y, z = self.claim.block
        p, q, r = self.claim.grid
        return x * y * z * p * q * r

    def is_small(self, limit: int | None = None) -> bool:
        """Whether following every byte of every thread is affordable, or cheaper than pairs of accesses."""
        scalars = any(isinstance(p, Scalar) and p.minimum < p.maximum for p in self.claim.params)
        if limit is None:
            limit = max(_EVALUATIONS, min(_MOST_EVALUATIONS, _PER_PAIR * len(self.places) ** 2 // 2))
        return not scalars and self.threads() * len(self.places) <= limit

    def followed(self) -> dict[tuple[str, int], Origin] | RaceError | UndefinedByteError:
        """The origin of every byte, found once; or what stopped the search."""
        if self._followed is None:
            sources = [[self.reader.row(value) for value in place.access.values] for place in self.places]
            try:
                self._followed = follow(
                    self.places, self.thread.indices, sources, block=self.claim.block, grid=self.claim.grid
                )
            except (RaceError, UndefinedByteError) as error:
                self._followed = error
        return self._followed

    def by_blocks(self) -> Outcome | None:
        """Bounds, races and contents of a kernel that moves one whole tensor, if its blocks have enough in common."""
        if refusal(self.claim, self.places):
            return None
        sources = [[self.reader.row(value) for value in place.access.values] for place in self.places]
        outcome = check_blocks(self.claim, self.places, sources, self.hazards)
        return outcome if outcome.decided else None

    def contents(self) -> Verdict:
        scope = f"{self.threads()} threads, byte by byte"
        found = self.followed()
        if isinstance(found, UndefinedByteError):
            return Refuted(scope, {"PTX line": found.line, "stored": "an undefined byte"})
        if isinstance(found, RaceError):
            return Unknown(scope, "threads race")
        for expectation in expectations(self.claim):
            for at, origin in enumerate(expectation.origin_bytes(self.claim.width).tolist()):
                expected = (f"*{expectation.input}", origin) if origin >= 0 else None
                got = found.get((f"*{expectation.output}", at))
                if got != expected:
                    place = at // self.claim.width + self.claim.buffer(expectation.output).first
                    witness = {"output": f"{expectation.output}[{place}]", "expected": expected, "found": got}
                    return Refuted(scope, witness)
        return Proved(scope)


def _is_allocation(access: Access) -> bool:
    return isinstance(access.step.operation.effect, TmemAlloc)


def _describe(access: Access) -> str:
    return f"{access.step.text} (line {access.step.line})"


def _at_step(verdict: Verdict, line: int, text: str) -> Verdict:
    if isinstance(verdict, Refuted):
        return Refuted(verdict.scope, {"PTX line": line, "instruction": text, **verdict.counterexample}, verdict.effort)
    if isinstance(verdict, Unknown):
        return Unknown(verdict.scope, f"line {line}, {text}: {verdict.reason}", verdict.effort)
    return verdict
