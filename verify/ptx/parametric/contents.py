"""Every store puts the element there that the layouts name, and every element is written exactly once.

A store's address, read backwards through the destination layout, is a coordinate x; the element that is stored comes
from a load whose address, read backwards through the source layout, must be the same x.  Where the element went
through shared memory, the table of the block says which thread stored it, and that thread's coordinate counts; where it
was stored in another step of a loop, the coordinate is that of this step.

That all coordinates occur, each once, splits into blocks and threads: x is a multiple of the tile plus what depends
on the thread alone, and the latter must run through the tile, which a table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import z3
from numpy.typing import NDArray

from layoutalg.errors import UndecidedError
from verify.ptx.parametric.events import Access, When
from verify.ptx.parametric.facts import Environment
from verify.ptx.parametric.loops import is_trip
from verify.ptx.parametric.model import Leaf, Model, Piece
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.setting import Places
from verify.ptx.parametric.shared import Source
from verify.ptx.parametric.witness import OTHER, find, instance, primed
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["Contents"]

_STORED: Final = "every store puts the element there that the layouts name, for all sizes"
_WRITTEN: Final = "every element that the layouts name is written, and by one thread only, for all sizes"
_TRIES: Final = 12
Ints = NDArray[np.int64]
Doubt = tuple[int | None, list[Any]]
"""A thread, if it is settled, and conditions under which a store should be looked at."""


class _GapError(Exception):
    """A statement that could not be proved, with numbers under which it should be looked at."""

    def __init__(self, reason: str, doubts: Sequence[Doubt] = ()) -> None:
        self.reason, self.doubts = reason, doubts
        super().__init__(reason)


class Contents:
    """Statements about what a model's stores put where."""

    def __init__(self, model: Model, scope: str) -> None:
        self.model, self.scope, self.facts = model, scope, model.facts
        self.stores = [piece for piece in model.pieces if piece.access.write]

    def obligations(self) -> list[Obligation]:
        """What the stores put where, and whether they reach everything."""
        found = [Obligation(_STORED, self.stored())]
        if found[0].verdict.ok:
            found.append(Obligation(_WRITTEN, self.written()))
        return found

    # --- every store is right ---------------------------------------------------------------------------------

    def stored(self) -> Verdict:
        for piece in self.stores:
            try:
                self._store(piece)
            except _GapError as gap:
                return self._refuted(piece, gap) or Unknown(
                    self.scope, f"line {piece.access.step.line}, {piece.access.step.text}: {gap.reason}"
                )
            finally:
                self.facts.path = ()
        return Proved(f"{len(self.stores)} stored elements of {self.scope}", self.facts.effort)

    def _refuted(self, piece: Piece, gap: _GapError) -> Verdict | None:
        """Look at the doubtful numbers; a mistake that arithmetic confirms is a refutation."""
        conditions = [c.condition for c in piece.access.conditions]
        for thread, doubts in (*gap.doubts, (None, [])):
            environment = find(self.facts, [*conditions, *doubts], thread=thread)
            try:
                wrong = None if environment is None else self.wrong_at(piece, environment)
            except KeyError:  # it depends on data, or on an operation without a meaning here
                continue
            if environment is not None and wrong is not None:
                return Refuted(self.scope, self.model.witness(piece.access, environment, **wrong))
        return None

    def wrong_at(self, piece: Piece, environment: Environment) -> dict[str, Any] | None:
        """What is wrong with a store, for given numbers, by arithmetic alone."""
        model, width = self.model, self.model.family.width
        if not model.happens(piece.access, environment):
            return None
        byte = model.offset_at(piece.access, environment) + piece.at
        room = self.facts.at(model.setting.counts[piece.buffer.name], environment) * width
        if not 0 <= byte <= room - width:
            return {"out of bounds": f"byte {byte} of {piece.buffer.name}, which has {room}"}
        element, rest = divmod(byte, width)
        x = None if rest else piece.places.inverse_at(self.facts, element, environment)
        if x is None:
            return {"output": f"{piece.buffer.name}[{element}]", "expected": "not written", "found": "written"}
        move, source, _ = model.places[piece.buffer.name]
        expected = source.at(self.facts, x, environment)
        origin = model.origin_at(piece.access, piece.at, environment)
        if origin == (move.input, expected * width):
            return None
        found = "no element of an input" if origin is None else f"{origin[0]}[{origin[1] // width}]"
        where = f"{piece.buffer.name}[{element}], the place of {x}"
        return {"output": where, "expected": f"{move.input}[{expected}]", "found": found}

    def _store(self, piece: Piece) -> None:
        self.facts.path = tuple(c.condition for c in piece.access.conditions)
        if piece.coordinate is None:
            raise _GapError("its address is the place of no coordinate that could be found")
        for value, least in piece.places.inside(piece.coordinate):
            if not self.facts.is_at_least(value, least):
                raise _GapError("its coordinate is not proved to be inside", [(None, [self.facts.term(value) < least])])
        for leaf in self.model.leaves(piece.access, piece.at):
            if leaf.load is None:
                if self.facts.prove(z3.Not(_all(leaf.conditions))).ok:
                    continue
                raise _GapError("what is stored is no element that was loaded", [(None, list(leaf.conditions))])
            happens = _all([c.condition for c in leaf.load.conditions])
            if not self.facts.prove(happens, extra=leaf.conditions).ok:
                raise _GapError("it may not have been loaded", [(None, [*leaf.conditions, z3.Not(happens)])])
            if leaf.load.space == "global":
                self._same(piece, self._loaded(leaf), leaf.conditions)
            else:
                self._through_shared(piece, leaf)

    def _loaded(self, leaf: Leaf) -> Piece:
        """The element of a buffer that a leaf is."""
        found = next(p for p in self.model.pieces if p.access is leaf.load and p.at == leaf.at)
        if found.coordinate is None:
            raise _GapError(f"line {found.access.step.line} loads from the place of no coordinate that could be found")
        return found

    def _source(self, piece: Piece, loaded: Piece) -> tuple[Sequence[Poly], Sequence[Poly]]:
        move, _, _ = self.model.places[piece.buffer.name]
        if loaded.buffer.name != move.input:
            raise _GapError(f"it comes from {loaded.buffer.name}, not from {move.input}")
        assert piece.coordinate is not None
        assert loaded.coordinate is not None
        return piece.coordinate, loaded.coordinate

    def _same(self, piece: Piece, loaded: Piece, conditions: Sequence[Any]) -> None:
        """The same thread loads from the coordinate that it stores to."""
        for x, y in zip(*self._source(piece, loaded), strict=True):
            if x != y and not self.facts.prove(self.facts.term(x - y) == 0, (x - y,), extra=conditions).ok:
                doubt = [*conditions, self.facts.term(x - y) != 0]
                raise _GapError(f"it comes from coordinate {y}, not {x}", [(None, doubt)])

    # --- through shared memory --------------------------------------------------------------------------------

    def _through_shared(self, piece: Piece, leaf: Leaf) -> None:
        assert leaf.load is not None
        spot = self.model.shared.spots[leaf.load.number]
        active = self._active(piece, spot.active)
        for source in self.model.shared.sources(leaf.load, leaf.at, self.model.family.width):
            alive = active[source.readers]
            source = replace(source, readers=source.readers[alive], writers=source.writers[alive])
            given = self._given(piece, leaf, source.when)
            if source.readers.size and given is not None:
                self._from_source(piece, source, given)

    def _given(self, piece: Piece, leaf: Leaf, when: When) -> list[Any] | None:
        """What is known where data come from there, or ``None`` if they never do."""
        stage, facts = self.model.run.stage, self.facts
        if stage is None or when in (When.SAME, When.LEFT):
            return list(leaf.conditions)
        (step,) = stage.conditions(when, facts)
        if facts.prove(z3.Not(step), extra=leaf.conditions).ok:
            return None
        formulas = (*piece.access.formulas, *leaf.conditions) if when is When.FIRST else ()
        try:
            there = [facts.substituted(formula, stage.later(when)) for formula in formulas]
        except UndecidedError as error:
            raise _GapError(str(error)) from None
        return [*leaf.conditions, step, *there]

    def _active(self, piece: Piece, active: NDArray[np.bool_]) -> NDArray[np.bool_]:
        for condition in piece.access.conditions:
            if condition.table is not None:
                active = active & condition.table
        return np.asarray(active)

    def _from_source(self, piece: Piece, source: Source, given: list[Any]) -> None:
        """Readers get what their writers stored: the writers' coordinate is theirs, and the writers come there."""
        access, readers = source.store, source.readers
        some = [(int(t), given) for t in readers[:: max(1, len(readers) // _TRIES)]]
        if access is None:
            raise _GapError("it reads shared memory that nobody wrote", some)
        if source.when is When.LEFT:
            raise _GapError("what a loop leaves in shared memory is not followed", some)
        for theirs in self.model.leaves(access, source.byte):
            if theirs.load is None or theirs.load.space != "global" or theirs.conditions:
                raise _GapError("what is stored in shared memory is not simply an element of an input", some)
            try:
                links = self._links(piece, theirs, source, given)
                # Conditions on the thread index alone hold for every writer: the table lists no others.
                needed = [c.condition for c in (*access.conditions, *theirs.load.conditions) if c.table is None]
                needed = [self._moved(condition, source.when) for condition in needed]
            except UndecidedError as error:
                raise _GapError(str(error), some) from None
            goal = _all(primed(self.facts, needed))
            copies = primed(self.facts, self.facts.given)
            if not self.facts.prove(goal, extra=[*links, *copies, *given]).ok:
                reason = f"the thread that should have stored it at line {access.step.line} may not do so"
                raise _GapError(reason, [*self._absent(source, needed, given), *some])

    def _absent(self, source: Source, needed: list[Any], given: list[Any]) -> Iterator[Doubt]:
        """Readers, and that their writer does not come."""
        every = max(1, len(source.readers) // _TRIES)
        for reader, writer in zip(source.readers[::every].tolist(), source.writers[::every].tolist(), strict=True):
            comes = instance(self.facts, needed, writer, OTHER)
            yield reader, [*given, z3.Not(_all(comes))]

    def _links(self, piece: Piece, theirs: Leaf, source: Source, given: list[Any]) -> list[Any]:
        """The writers' coordinate is the readers', as equations between the two threads."""
        stage, facts, links = self.model.run.stage, self.facts, []
        for x, y in zip(*self._source(piece, self._loaded(theirs)), strict=True):
            if stage is not None:
                x = facts.substitute(x, stage.later(source.when))
                y = facts.substitute(y, stage.earlier(source.when))
            self._agree(x, y, (source.readers, source.writers), given)
            (same,) = primed(facts, [facts.term(y)])
            links.append(same == facts.term(x))
        return links

    def _moved(self, condition: Any, when: When) -> Any:
        """A condition on the earlier access, in the step in which it is."""
        stage = self.model.run.stage
        return condition if stage is None else self.facts.substituted(condition, stage.earlier(when))

    def _agree(self, x: Poly, y: Poly, pairs: tuple[Ints, Ints], given: list[Any]) -> None:
        """``x`` for each reader is ``y`` for its writer."""
        (mine, block), (theirs, other) = self.parts(x), self.parts(y)
        readers, writers = pairs
        if block != other:
            raise _GapError(f"coordinates {x} and {y} differ between blocks", [(int(readers[0]), given)])
        wrong = np.flatnonzero(mine[readers] != theirs[writers])
        if wrong.size:
            threads = [int(readers[i]) for i in wrong[:: max(1, len(wrong) // _TRIES)]]
            raise _GapError("another thread's element is stored", [(t, given) for t in threads])

    def parts(self, value: Poly) -> tuple[Ints, Poly]:
        """A coordinate as what depends on the thread alone, for every thread, and the rest, the same for all."""
        alone: dict[tuple[str, ...], int] = {}
        rest: dict[tuple[str, ...], int] = {}
        for monomial, c in value.terms.items():
            table = all(self.facts.atoms[name].table is not None for name in monomial)
            (alone if table else rest)[monomial] = c
        block = Poly(rest, self.facts)
        if not all(self.facts.atoms[name].uniform or is_trip(name) for name in block.atoms):
            # If a number wrapped on the way, the place where it does is worth a look.
            mixed = [self.facts.atoms[n] for n in sorted(value.atoms) if self.facts.atoms[n].definition is not None]
            doubts: list[Doubt] = [
                (None, [z3.Int(atom.name) != 0]) for atom in mixed if not atom.uniform and atom.table is None
            ]
            raise _GapError(f"coordinate {value} mixes what depends on the thread with what does not", doubts)
        numbers = self.facts.table(Poly(alone, self.facts))
        assert numbers is not None
        return np.broadcast_to(numbers, self.model.setting.threads), block

    # --- everything is written --------------------------------------------------------------------------------

    def written(self) -> Verdict:
        for output in sorted(self.model.places):
            pieces = [piece for piece in self.stores if piece.buffer.name == output]
            try:
                verdict = self._covered(output, pieces)
            except _GapError as gap:
                verdict = Unknown(self.scope, gap.reason)
            if not verdict.ok:
                return verdict
        return Proved(self.scope, self.facts.effort)

    def _covered(self, output: str, pieces: list[Piece]) -> Verdict:
        places = self.model.places[output][2]
        if not pieces:
            return Refuted(self.scope, {"output": output, "found": "never written"})
        split = [[self.parts(x) for x in piece.coordinate or ()] for piece in pieces]
        blocks = [block for _, block in split[0]]
        if any([block for _, block in row] != blocks for row in split):
            raise _GapError("stores of one thread go to different tiles")
        points = np.concatenate([np.stack([numbers for numbers, _ in row], axis=1) for row in split])
        owner = np.repeat(np.arange(len(pieces)), self.model.setting.threads)
        alive = np.concatenate([self._active(p, np.ones(self.model.setting.threads, dtype=bool)) for p in pieces])
        thread = np.tile(np.arange(self.model.setting.threads), len(pieces))
        begins = self._begins(blocks, points[alive])
        points = points[alive] - begins
        verdict = self._tile(output, (points, owner[alive], thread[alive]), (pieces, blocks))
        if not verdict.ok and begins.any():
            raise _GapError(f"the tiles of a loop whose first trips store nothing are not those of a box: {verdict}")
        if not verdict.ok:
            return verdict
        self._blocks(places, blocks, [int(n) for n in points.max(axis=0) + 1])
        for piece in pieces:
            self._comes(places, piece)
        return Proved(self.scope)

    def _begins(self, blocks: list[Poly], points: Ints) -> Ints:
        """Where the first trip's tile begins: at zero, or before it, if the first trips store nothing.

        The tile of the trip's bound must not be before zero, too: that it is outside has to mean that it is behind.
        """
        found = np.zeros(len(blocks), dtype=np.int64)
        for dim, block in enumerate(blocks):
            if block.terms and all(map(is_trip, block.atoms)):
                found[dim] = points[:, dim].min(initial=0)
                if self.facts.bounds(block)[1] + int(found[dim]) < 0:
                    raise _GapError(f"the first of all stores along dimension {dim} comes after too many trips")
        return found

    def _tile(self, output: str, table: tuple[Ints, Ints, Ints], stores: tuple[list[Piece], list[Poly]]) -> Verdict:
        """The points of all threads and stores are those of a box, each by one thread (who may store it again)."""
        (points, owner, thread), (pieces, blocks) = table, stores
        if (points < 0).any():
            raise _GapError("a thread's place in its tile is negative")
        tile = points.max(axis=0) + 1
        flat = np.ravel_multi_index(tuple(points.T), tuple(tile))
        pairs, which = np.unique(np.stack([flat, thread], axis=1), axis=0, return_index=True)
        count = np.bincount(pairs[:, 0], minlength=int(np.prod(tile)))
        if (count == 1).all():
            return Proved(self.scope)
        at = int(np.argmax(count != 1))
        x = tuple(int(i) for i in np.unravel_index(at, tuple(tile)))
        if count[at]:
            first, second = which[pairs[:, 0] == at][:2].tolist()
            return self._twice(x, [(pieces[int(owner[i])], int(thread[i])) for i in (first, second)])
        places = self.model.places[output][2]
        self._blocks(places, blocks, [int(n) for n in tile])  # or another block, or another trip, may write it
        large = [self.facts.term(e) > i for e, i in zip(places.shape, x, strict=True)]
        environment = find(self.facts, large)
        if environment is None:
            raise _GapError(f"no thread writes {x} of its tile")
        return Refuted(
            self.scope,
            {
                **self.model.setting.sizes_at(environment),
                "output": f"{output}, the place of {x}",
                "found": "never written",
            },
        )

    def _twice(self, x: tuple[int, ...], writers: list[tuple[Piece, int]]) -> Verdict:
        (first, mine), (second, other) = writers
        environment = find(self.facts, [c.condition for c in first.access.conditions], thread=mine)
        if environment is None or not self._also(second.access, environment, other):
            raise _GapError(f"two stores share {x} of their tile")
        step, index = second.access.step, self.model.setting.thread_index(other)
        text = f"{step.text} (line {step.line}) of thread {index}"
        return Refuted(self.scope, self.model.witness(first.access, environment, **{"written again by": text}))

    def _also(self, access: Access, environment: Environment, thread: int) -> bool:
        """Whether another thread of the block comes to an access."""
        try:
            return self.model.happens(access, self.model.other_thread(environment, thread))
        except KeyError:
            return False

    def _blocks(self, places: Places, blocks: list[Poly], tile: list[int]) -> None:
        """Each coordinate's tile is one index of the block, and the grid has all tiles that the shape needs.

        Or it is the trip of a loop: a coordinate beyond its last trip is outside, since the trip's bound, where
        nothing happens any more, is one of the trips for which it is proved that a store inside happens.
        """
        used: set[str] = set()
        for block, extent, step in zip(blocks, places.shape, tile, strict=True):
            if not block.terms:
                if not self.facts.is_at_least(step - extent, 0):
                    raise _GapError(f"one tile of {step} does not cover the extent {extent}")
                continue
            if self._walked(block, step) and not block.atoms & used:
                used |= block.atoms
                continue
            axes = [name for name in block.atoms if name.startswith("ctaid.")]
            walks = {name for name in block.atoms if name.startswith("ctaid.") or is_trip(name)}
            if len(axes) != 1 or walks & used:
                raise _GapError(f"tiles begin at {block}; supported is {step} times one index of the block")
            used |= walks
            count = self.model.setting.grid["xyz".index(axes[0][-1])]
            if self._strided(block, axes[0], count, step):
                continue
            if block.terms != {(axes[0],): step}:
                raise _GapError(f"tiles begin at {block}; supported is {step} times one index of the block")
            if not self.facts.is_at_least(count * step - extent, 0):
                raise _GapError(f"{count} blocks of {step} along {axes[0][-1]} are not proved to cover {extent}")
        for axis, count in zip("xyz", self.model.setting.grid, strict=True):
            if f"ctaid.{axis}" not in used and not self.facts.is_at_least(1 - count, 0):
                raise _GapError(f"blocks that differ along {axis} write the same elements")

    def _walked(self, block: Poly, step: int) -> bool:
        """Whether tile k is taken in trip k of a loop, by every block."""
        return len(block.atoms) == 1 and all(map(is_trip, block.atoms)) and block.terms == {(*block.atoms,): step}

    def _strided(self, block: Poly, axis: str, count: Poly, step: int) -> bool:
        """Whether tile ``index + count*k`` is taken in trip k of a loop: every tile is, by one block in one trip."""
        trips = [name for name in block.atoms if is_trip(name)]
        if len(trips) != 1:
            return False
        index, trip = (Poly({(name,): 1}, self.facts) for name in (axis, trips[0]))
        return block == (index + count * trip) * step

    def _comes(self, places: Places, piece: Piece) -> None:
        """Whenever its coordinate is inside, the store happens."""
        assert piece.coordinate is not None
        inside = [self.facts.term(value) >= least for value, least in places.inside(piece.coordinate)]
        # Threads that conditions on the index alone leave out were left out of the tile, too.
        inside += [c.condition for c in piece.access.conditions if c.table is not None]
        goal = _all([c.condition for c in piece.access.conditions if c.table is None])
        if not self.facts.prove(goal, piece.coordinate, extra=inside).ok:
            raise _GapError(f"line {piece.access.step.line} is not proved to be reached by every thread inside")


def _all(conditions: Sequence[Any]) -> Any:
    return z3.And(*conditions) if conditions else z3.BoolVal(True)
