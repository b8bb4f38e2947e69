"""A kernel together with a family of claims: its accesses as elements of buffers, and where these come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove
from layoutalg.errors import LayoutError
from verify.ptx.bytewise import Byte, Choice, Moved
from verify.ptx.errors import PtxError
from verify.ptx.parametric.events import Access, Run
from verify.ptx.parametric.execute import execute
from verify.ptx.parametric.facts import Environment
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.setting import Coordinate, Places, Setting
from verify.ptx.parametric.shared import SharedMemory
from verify.ptx.parametric.words import Words
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program
from verify.ptx.resolve import load
from verify.ptx.tree import Module

__all__ = ["Leaf", "Model", "Piece", "where"]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One element of a global access.

    Attributes:
        at: its first byte in the access.
        offset: its first byte in the buffer.
        coordinate: the layout's coordinate with that place, or ``None`` if none was found; it may lie outside.
        places: where the layout of the buffer's move puts things.
    """

    access: Access
    at: int
    buffer: SizedBuffer
    offset: Poly
    coordinate: Coordinate | None
    places: Places


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """Where an element comes from under some conditions: bytes of a load, or ``None`` for anything else.

    Attributes:
        known: it is known to be something else, such as a constant or parts of several elements.
    """

    conditions: tuple[Any, ...]
    load: Access | None
    at: int
    known: bool = True


class Model:
    """The kernel's accesses under the family.

    Raises:
        PtxError: an operation or an address that has no meaning here.
        LayoutError: a claim that is not supported.
    """

    def __init__(self, module: Module, family: ClaimFamily, max_steps: int) -> None:
        self.program: Program = load(module, family.entry)
        self.family, self.setting = family, Setting(family)
        self.facts = self.setting.facts
        self.check_parameters()
        self.words = Words(self.facts)
        for variable in self.program.variables:
            base = self.facts.atom(f"&{variable.name}", 0, (1 << 32) - 1, uniform=True)
            self.facts.given.append(self.facts.term(base) % max(variable.align, 1) == 0)
        self.run: Run = execute(
            self.program,
            self.words,
            specials=self.setting.specials(self.words),
            params=self.setting.params(self.words),
            max_steps=max_steps,
        )
        self.accesses = self.run.accesses
        self.facts.path = ()
        self.shared = SharedMemory(
            self.program,
            self.facts,
            self.run,
            threads=self.setting.threads,
            dynamic=family.dynamic_shared_bytes,
            width=family.width,
        )
        self.places = {
            m.output: (m, self.setting.places(m.source), self.setting.places(m.destination)) for m in self.moves()
        }
        self.pieces = [piece for access in self.accesses if access.space == "global" for piece in self.cut(access)]

    def check_parameters(self) -> None:
        """Parameters by number, order and size, and the block."""
        sizes = [p.bits if isinstance(p, Scalar) else 64 for p in self.family.params]
        found = [WIDTHS[p.type] if p.count is None else 0 for p in self.program.params]
        if sizes != found:
            raise PtxError(f"the kernel's parameters have {found} bits, those of the claim {sizes}")
        if self.program.required_block not in (None, self.family.block):
            raise PtxError(f"the kernel requires blocks of {self.program.required_block}, not {self.family.block}")
        if self.program.maximum_block is not None and self.setting.threads > self.program.maximum_block:
            raise PtxError(f"the kernel allows {self.program.maximum_block} threads, not {self.setting.threads}")

    def moves(self) -> tuple[SizedMove, ...]:
        """The moves, one per output buffer."""
        outputs = [p.name for p in self.family.params if isinstance(p, SizedBuffer) and p.role == "output"]
        inputs = [p.name for p in self.family.params if isinstance(p, SizedBuffer) and p.role == "input"]
        if sorted(move.output for move in self.family.moves) != sorted(outputs):
            raise LayoutError("for unknown sizes, each output buffer is filled by exactly one move")
        if sorted(move.input for move in self.family.moves) != sorted(inputs):
            raise LayoutError("for unknown sizes, each input buffer is read by exactly one move")
        return self.family.moves

    def cut(self, access: Access) -> Iterator[Piece]:
        """The elements of a global access."""
        names = sorted(name for name in access.address.atoms if name[0] in "*&")
        if len(names) != 1 or names[0][0] != "*" or access.address.terms.get((names[0],)) != 1:
            raise self.fail(f"its address is made of {', '.join(names) or 'no buffer'}", access)
        buffer = self.family.buffer(names[0][1:])
        if (buffer.role == "output") != access.write:
            raise self.fail(f"the {buffer.role} buffer is {'written' if access.write else 'read'}", access)
        if access.size % self.family.width:
            raise self.fail("part of an element is moved", access)
        places = next(
            p for move, s, d in self.places.values() for n, p in ((move.input, s), (move.output, d)) if n == buffer.name
        )
        offset = access.address - Poly({(names[0],): 1}, self.facts)
        for at in range(0, access.size, self.family.width):
            element = (offset + at).quotient(self.family.width)
            coordinate = None if element is None else places.inverse(element)
            yield Piece(access, at, buffer, offset + at, coordinate, places)

    def fail(self, reason: str, access: Access) -> PtxError:
        return PtxError(f"{reason}: {access.step.text}", file=self.program.file, line=access.step.line)

    # --- where a stored element comes from --------------------------------------------------------------------

    def leaves(self, store: Access, at: int) -> list[Leaf]:
        """The loads that an element of a store comes from, by condition."""
        row = [byte for value in store.values for byte in value.row or (None,) * (value.width // 8)]
        element = tuple(row[at : at + self.family.width])
        for condition in store.formulas:  # what is chosen by the store's own guard is chosen already
            element = tuple(_decided(byte, condition, branch=True) for byte in element)
        return list(self._leaves(element, ()))

    def _leaves(self, row: tuple[Moved, ...], conditions: tuple[Any, ...]) -> Iterator[Leaf]:
        for byte in row:
            if isinstance(byte, Choice):
                for branch, condition in ((True, byte.condition), (False, z3.Not(byte.condition))):
                    chosen = tuple(_decided(b, byte.condition, branch=branch) for b in row)
                    yield from self._leaves(chosen, (*conditions, condition))
                return
        first = row[0]
        whole = (
            len(row) == self.family.width
            and isinstance(first, Byte)
            and all(
                isinstance(b, Byte) and b.name == first.name and b.index == first.index + i for i, b in enumerate(row)
            )
        )
        if whole and isinstance(first, Byte) and first.name.startswith("data!"):
            access = self.accesses[int(first.name.removeprefix("data!"))]
            if first.index % self.family.width == 0 and access.size % self.family.width == 0:
                yield Leaf(conditions, access, first.index)
                return
        computed = any(b is None or (isinstance(b, Byte) and b.name.startswith("undefined!")) for b in row)
        yield Leaf(conditions, None, 0, known=not computed)

    # --- arithmetic with numbers ------------------------------------------------------------------------------

    def happens(self, access: Access, environment: Environment) -> bool:
        """Whether an access happens, for given numbers."""
        return all(self.facts.holds(c.condition, environment) for c in access.conditions)

    def offset_at(self, access: Access, environment: Environment) -> int:
        """First byte in the buffer; addresses wrap at 64 bits, so it may be negative."""
        offset = self.facts.at(access.address, environment)
        return (offset + (1 << 63)) % (1 << 64) - (1 << 63)

    def witness(self, access: Access, environment: Environment, **more: Any) -> dict[str, Any]:
        """A counterexample: sizes, block, thread, instruction, and what is wrong."""
        block = tuple(environment.get(f"ctaid.{axis}", 0) for axis in "xyz")
        thread = self.setting.thread_index(environment["thread"])
        sizes, stage = self.setting.sizes_at(environment), self.run.stage
        if stage is not None and self.run.zone(access) == 1:
            more = {"trip": stage.trip(access, environment[stage.name]), **more}
        return {**sizes, "block": block, "thread": thread, **where(access), **more}

    def other_thread(self, environment: Environment, thread: int, *, back: int = 0) -> Environment:
        """The same sizes and block, another thread; what only that thread knows is left open.

        Args:
            back: steps of the loop that stages data to go back.
        """
        atoms = self.facts.atoms
        kept = {n: v for n, v in environment.items() if n in atoms and atoms[n].uniform and atoms[n].anew is None}
        if back and self.run.stage is not None:
            kept[self.run.stage.name] -= back
        return {**kept, "thread": thread}

    def origin_at(self, store: Access, at: int, environment: Environment) -> tuple[str, int] | None:
        """Buffer and byte that an element of a store comes from, for given numbers; ``None`` for anything else.

        Raises:
            KeyError: it is computed, or depends on what is not followed.
        """
        for leaf in self.leaves(store, at):
            if all(self.facts.holds(condition, environment) for condition in leaf.conditions):
                if not leaf.known:
                    raise KeyError("a value that is computed")
                if leaf.load is None or not self.happens(leaf.load, environment):
                    return None
                return self._read_at(leaf.load, leaf.at, environment)
        return None

    def _read_at(self, access: Access, at: int, environment: Environment) -> tuple[str, int] | None:
        if access.space == "global":
            piece = next(p for p in self.pieces if p.access is access and p.at == at)
            return piece.buffer.name, self.offset_at(access, environment) + at
        stage, width = self.run.stage, self.family.width
        steps = 0 if stage is None else environment[stage.name]
        for store, writer, byte, back in self.shared.history(access, at, width, (environment["thread"], steps)):
            there = self.other_thread(environment, writer, back=back)
            if self.happens(store, there):
                return self.origin_at(store, byte, there)
        return None


def where(access: Access) -> dict[str, Any]:
    """An access in a counterexample."""
    found: dict[str, Any] = {"PTX line": access.step.line, "instruction": access.step.text}
    if access.step.source is not None:
        found["source"] = access.step.source
    return found


def _decided(byte: Moved, condition: Any, *, branch: bool) -> Moved:
    if isinstance(byte, Choice) and byte.condition.get_id() == condition.get_id():
        return byte.yes if branch else byte.no
    return byte
