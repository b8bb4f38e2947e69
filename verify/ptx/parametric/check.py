"""Prove what a family of claims says of a kernel: for all admissible sizes, all blocks, threads, data and addresses."""

from __future__ import annotations

from typing import Any, Final

import z3

from layoutalg.claim_family import ClaimFamily
from layoutalg.errors import LayoutError, UndecidedError
from verify.ptx.errors import PtxError
from verify.ptx.parametric.contents import Contents
from verify.ptx.parametric.events import Access, When
from verify.ptx.parametric.facts import Environment, lemmas
from verify.ptx.parametric.model import Model, Piece
from verify.ptx.parametric.setting import Setting
from verify.ptx.parametric.shared import Meeting
from verify.ptx.parametric.witness import OTHER, find, instance
from verify.ptx.tree import Module
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["check_for_all_sizes"]

_READ: Final = "the kernel is understood for unknown sizes"
_GLOBAL: Final = "every access to a buffer is inside it and aligned, for all sizes"
_SHARED: Final = "every access to shared memory is inside its variable and aligned"
_RACES: Final = "no two threads touch one byte without a barrier, unless both read, for all sizes"
_CANDIDATES: Final = 32


def check_for_all_sizes(module: Module, family: ClaimFamily, *, max_steps: int = 50_000) -> tuple[Obligation, ...]:
    """Prove a family of claims; each obligation is Proved, Refuted with numbers that show it, or Unknown.

    Args:
        module: the parsed PTX.
        family: what the kernel promises, for every admissible value of its sizes.
        max_steps: steps after which a loop counts as too long to follow.
    """
    scope = "every thread, block, size, all data and base addresses"
    try:
        claim = Setting(family).claim()
        if not all(o.verdict.ok for o in claim):
            return tuple(claim)
        model = Model(module, family, max_steps)
    except (PtxError, LayoutError) as error:
        return (Obligation(_READ, Unknown(scope, str(error))),)
    checks = _Checks(model, scope)
    found = [*lemmas(), *claim, *checks.no_wraps(), Obligation(_GLOBAL, checks.buffers())]
    for name, verdict in ((_SHARED, checks.shared), (_RACES, checks.races)):
        if not any(isinstance(o.verdict, Refuted) for o in found):
            found.append(Obligation(name, verdict()))
    if not any(isinstance(o.verdict, Refuted) for o in found):
        found += Contents(model, scope).obligations()
    return tuple(found)


class _Checks:
    """Safety: nothing wraps unseen, nothing leaves its memory, nobody races."""

    def __init__(self, model: Model, scope: str) -> None:
        self.model, self.scope = model, scope
        self.facts = model.facts

    def no_wraps(self) -> list[Obligation]:
        """A lemma per place where bits are read as the number that was computed; others were reduced explicitly."""
        lines: dict[tuple[int, str], list[str]] = {}
        for lemma in self.model.words.lemmas.values():
            if lemma.proved:
                kind = f"{'signed' if lemma.signed else 'unsigned'} {lemma.width}-bit number"
                lines.setdefault((lemma.line, lemma.text), []).append(kind)
        return [
            Obligation(f"what line {line} reads did not wrap", Proved(f"{text}: {', '.join(sorted(set(kinds)))}"))
            for (line, text), kinds in sorted(lines.items())
        ]

    # --- buffers ----------------------------------------------------------------------------------------------

    def buffers(self) -> Verdict:
        for piece in self.model.pieces:
            self.facts.path = tuple(c.condition for c in piece.access.conditions)
            verdict = self._in_buffer(piece)
            self.facts.path = ()
            if not verdict.ok:
                return verdict
        return Proved(f"{len(self.model.pieces)} elements of {self.scope}", self.facts.effort)

    def _in_buffer(self, piece: Piece) -> Verdict:
        facts, model = self.facts, self.model
        size = piece.access.size
        rest = facts.divide(piece.offset - piece.at, facts.number(size))[1]
        if piece.buffer.align % size:
            return self._misaligned(piece)
        if rest.constant != 0 and not facts.prove(facts.term(rest) == 0, (rest,)).ok:
            return self._judged(piece, facts.term(rest) != 0, "its alignment is not proved")
        if piece.coordinate is not None:
            statements = piece.places.inside(piece.coordinate)
            if all(facts.is_at_least(value, least) for value, least in statements):
                return Proved(self.scope)
        last = model.setting.counts[piece.buffer.name] * model.family.width - model.family.width
        for value, least in ((piece.offset, 0), (last - piece.offset, 0)):
            if not facts.is_at_least(value, least):
                return self._judged(piece, facts.term(value) < least, "it is not proved to lie in its buffer")
        return Proved(self.scope)

    def _misaligned(self, piece: Piece) -> Verdict:
        """Some base makes an access misaligned, if it happens at all."""
        if self.facts.prove(z3.BoolVal(False)).ok:
            return Proved(self.scope)
        environment = find(self.facts, piece.access.formulas)
        if environment is None:
            return Unknown(self.scope, f"{_described(piece.access)} may be misaligned")
        facts = {"aligned to": piece.buffer.align, "needs": piece.access.size}
        return Refuted(self.scope, self.model.witness(piece.access, environment, **facts))

    def _judged(self, piece: Piece, doubt: Any, reason: str) -> Verdict:
        """Look for numbers under which an access goes wrong, and check them by arithmetic."""
        conditions = [c.condition for c in piece.access.conditions]
        environment = find(self.facts, [*conditions, doubt])
        if environment is None:
            environment = find(self.facts, conditions)
        try:
            fault = None if environment is None else self._fault(piece, environment)
        except KeyError:  # it depends on data, or on an operation without a meaning here
            fault = None
        if environment is not None and fault is not None:
            return Refuted(self.scope, self.model.witness(piece.access, environment, **fault))
        return Unknown(self.scope, f"line {piece.access.step.line}, {piece.access.step.text}: {reason}")

    def _fault(self, piece: Piece, environment: Environment) -> dict[str, Any] | None:
        """What is wrong with an access, by arithmetic."""
        model = self.model
        if not model.happens(piece.access, environment):
            return None
        at = model.offset_at(piece.access, environment)
        room = self.facts.at(model.setting.counts[piece.buffer.name], environment) * model.family.width
        if at % piece.access.size:
            return {"misaligned": f"{piece.access.size} bytes at byte {at} of {piece.buffer.name}"}
        if at < 0 or at + piece.access.size > room:
            return {
                "out of bounds": f"bytes {at}..{at + piece.access.size - 1} of {piece.buffer.name}, which has {room}"
            }
        return Contents(model, self.scope).wrong_at(piece, environment) if piece.access.write else None

    # --- shared memory ----------------------------------------------------------------------------------------

    def shared(self) -> Verdict:
        doubtful: str | None = None
        for count, (access, thread, fact) in enumerate(self.model.shared.outside()):
            environment = find(self.facts, [c.condition for c in access.conditions], thread=thread)
            if environment is not None:
                return Refuted(self.scope, self.model.witness(access, environment, **{"shared memory": fact}))
            doubtful = f"line {access.step.line}, {access.step.text}: {fact}, if thread {thread} comes here"
            if count >= _CANDIDATES:
                break
        if doubtful is not None:
            return Unknown(self.scope, doubtful)
        return Proved(f"{len(self.model.shared.spots)} accesses of {self.model.setting.threads} threads, evaluated")

    def races(self) -> Verdict:
        """Shared memory by looking; in buffers, elements that are written are told apart with the contents."""
        for excluded, meeting in enumerate(self.model.shared.meetings()):
            try:
                verdict = self._met(meeting)
            except UndecidedError as error:
                verdict = Unknown(self.scope, f"{_described(meeting.first)}: {error}")
            if verdict is not None:
                return verdict
            if excluded >= _CANDIDATES:
                return Unknown(self.scope, "too many accesses whose conditions must exclude one another")
        stage = self.model.run.stage
        if stage is not None and not stage.firm:
            stores = [a for a in self.model.accesses if self.model.run.zone(a) == 1 and a.space == "shared" and a.write]
            if stores:
                reason = f"{_described(stores[0])} is in a loop that does not pass a barrier in every trip"
                return Unknown(self.scope, f"{reason}, so that accesses many trips apart are not ordered")
        return Proved(f"{len(self.model.shared.spots)} shared accesses, every pair of threads of a block")

    def _met(self, meeting: Meeting) -> Verdict | None:
        """A meeting that can be, or cannot be excluded; ``None`` if it never is."""
        facts, first, second = self.facts, meeting.first, meeting.second
        mine, its = self.model.shared.order.together(first, second, meeting.when, meeting.barriers)
        others = instance(facts, [*facts.given, *its], meeting.second_thread, OTHER)
        alone = [*mine, *self.model.shared.order.adjacent(first, second, meeting.when)]
        environment = find(facts, alone, thread=meeting.first_thread, others=others)
        if environment is not None and not meeting.warps and self._comes(second, environment, meeting.second_thread):
            other = self.model.setting.thread_index(meeting.second_thread)
            more = {"meets": f"{second.step.text} (line {second.step.line}) of thread {other}"}
            if self.model.run.stage is not None:
                more["when"] = meeting.when.value
            there = self.model.other_thread(environment, meeting.first_thread, back=meeting.when is When.PREVIOUS)
            return Refuted(self.scope, self.model.witness(first, there, **more, byte=meeting.byte))
        if self.model.shared.order.apart(first, second, meeting.when, meeting.barriers):
            return None
        return Unknown(
            self.scope,
            f"{_described(first)} and {_described(second)} are not proved to be apart in threads "
            f"{meeting.first_thread} and {meeting.second_thread}",
        )

    def _comes(self, access: Access, environment: Environment, thread: int) -> bool:
        """Whether another thread makes an access, as far as that is known."""
        try:
            return self.model.happens(access, self.model.other_thread(environment, thread))
        except KeyError:
            return False


def _described(access: Access) -> str:
    return f"{access.step.text} (line {access.step.line})"
