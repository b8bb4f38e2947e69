"""A family of claims as facts: sizes, launch, buffers, and where the layouts put a coordinate.

Places come from ``TileLayout.apply`` itself, run on polynomials: what comes out is a sum ``begin + x0*s0 + x1*s1``
whose strides are polynomials in the sizes.  That distinct coordinates have distinct places, all inside the buffer, is
proved from the strides; it is what lets an address be read backwards into a coordinate.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import z3

from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedSide
from layoutalg.decide import Number
from layoutalg.errors import LayoutError
from layoutalg.sizes import comparisons, evaluate_size
from layoutalg.swizzled import parse_layout
from layoutalg.tile import TileLayout
from verify.ptx.parametric.facts import Environment, Facts
from verify.ptx.parametric.poly import Poly
from verify.ptx.parametric.witness import exact, find
from verify.ptx.parametric.words import Word, Words
from verify.solve import prove
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["Places", "Setting"]

_GRID_LIMITS: Final = ((1 << 31) - 1, 65535, 65535)
_MULTIPLE = re.compile(r"\s*(\w+)\s*%\s*(\d+)\s*==\s*0\s*$")
Coordinate = tuple[Poly, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where one side of a move puts its coordinates.

    Attributes:
        shape: extents.
        unknown: the coordinate that stands for all of them, one atom per dimension.
        place: its place, as the layout's own ``apply`` says.
        strides: coefficient of each coordinate in the place.
        begin: place of coordinate zero.
        order: dimensions by falling stride.
    """

    shape: Coordinate
    unknown: Coordinate
    place: Poly
    strides: Coordinate
    begin: Poly
    order: tuple[int, ...]

    def inside(self, coordinate: Sequence[Poly]) -> list[tuple[Poly, int]]:
        """Statements ``value >= least`` that put a coordinate into the shape."""
        pairs = zip(coordinate, self.shape, strict=True)
        return [item for x, extent in pairs for item in ((x, 0), (extent - x, 1))]

    def inverse(self, place: Poly) -> Coordinate | None:
        """A coordinate with that place, as polynomials; it may lie outside the shape."""
        rest = place - self.begin
        found: dict[int, Poly] = {}
        for dim in self.order:
            ((monomial, coefficient),) = self.strides[dim].terms.items()
            found[dim], rest = rest.split(monomial, coefficient)
        names = [next(iter(x.atoms)) for x in self.unknown]
        back = self.place.substitute({name: found[dim] for dim, name in enumerate(names)})
        return tuple(found[dim] for dim in range(len(names))) if back == place else None

    def inverse_at(self, facts: Facts, place: int, environment: Environment) -> tuple[int, ...] | None:
        """The coordinate inside the shape with that place, for given sizes; ``None`` where there is none."""
        rest = place - facts.at(self.begin, environment)
        found: dict[int, int] = {}
        for dim in self.order:
            found[dim], rest = divmod(rest, facts.at(self.strides[dim], environment))
        coordinate = tuple(found[dim] for dim in range(len(found)))
        extents = (facts.at(extent, environment) for extent in self.shape)
        inside = rest == 0 and all(0 <= x < e for x, e in zip(coordinate, extents, strict=True))
        return coordinate if inside else None

    def at(self, facts: Facts, coordinate: Sequence[int], environment: Environment) -> int:
        """The place of a coordinate, for given sizes."""
        strides = (facts.at(stride, environment) for stride in self.strides)
        return facts.at(self.begin, environment) + sum(x * s for x, s in zip(coordinate, strides, strict=True))


class Setting:
    """Atoms and hypotheses of a family, and the places of its moves.

    Attributes:
        values: polynomial per size.
        grid: blocks in x, y, z.
        counts: elements per buffer.
    """

    def __init__(self, family: ClaimFamily) -> None:
        self.family = family
        self.facts = Facts()
        self.values = self._sizes()
        for condition in family.given:
            self.facts.given += [self.relation(*part) for part in comparisons(condition, self.values)]
        self.grid = tuple(self.poly(extent) for extent in family.grid)
        self.counts = {p.name: self.poly(p.count) for p in family.params if isinstance(p, SizedBuffer)}
        self.threads = family.block[0] * family.block[1] * family.block[2]
        self._used = 0

    # --- sizes ------------------------------------------------------------------------------------------------

    def _sizes(self) -> dict[str, Poly]:
        """An atom per size; of a size that is a multiple of a number, the quotient is the atom."""
        units: dict[str, int] = {}
        for condition in self.family.given:
            found = _MULTIPLE.match(condition)
            if found is not None and int(found[2]) > 0:
                units[found[1]] = max(units.get(found[1], 1), int(found[2]))
        values: dict[str, Poly] = {}
        for size in self.family.unknowns:
            unit = units.get(size.name, 1)
            name = size.name if unit == 1 else f"{size.name}/{unit}"
            atom = self.facts.atom(name, -(-size.minimum // unit), size.maximum // unit, uniform=True)
            self.facts.sizes.append(atom * unit)
            values[size.name] = atom * unit
        return values

    def poly(self, size: Any) -> Poly:
        """A size expression as a polynomial."""
        return self.facts.number(0).lift(evaluate_size(size, self.values))

    def relation(self, left: Any, relation: str, right: Any) -> Any:
        """A comparison as a formula."""
        difference = self.facts.term(self.facts.number(0) + right - left)
        forms = {"<=": difference >= 0, "<": difference >= 1, ">=": difference <= 0, ">": difference <= -1}
        return forms.get(relation, difference == 0)

    def sizes_at(self, environment: Environment) -> dict[str, int]:
        """Values of the family's sizes."""
        return {name: self.facts.at(value, environment) for name, value in self.values.items()}

    def thread_index(self, thread: int) -> tuple[int, int, int]:
        """Coordinates of a thread by its number in the block."""
        x, y, _ = self.family.block
        return thread % x, thread // x % y, thread // (x * y)

    # --- launch -----------------------------------------------------------------------------------------------

    def specials(self, words: Words) -> dict[str, Word]:
        """A word per special register; the block's index is unknown, and below the grid."""
        facts, found = self.facts, dict[str, Word]()
        index = np.arange(self.threads)
        for axis, extent, blocks, limit in zip("xyz", self.family.block, self.grid, _GRID_LIMITS, strict=True):
            table = (index % extent).astype(np.uint32)
            index = index // extent
            value = facts.number(0)
            if extent > 1:
                value = facts.atom(f"tid.{axis}", 0, extent - 1, table=table.astype(np.int64))
            found[f"%tid.{axis}"] = words.word(32, value, table)
            found[f"%ntid.{axis}"] = words.const(extent, 32)
            block = facts.number(0)
            if blocks.constant != 1:
                most = min(facts.bounds(blocks)[1], limit) - 1
                block = facts.atom(f"ctaid.{axis}", 0, most, uniform=True)
                facts.given.append(facts.term(blocks - block) >= 1)
            found[f"%ctaid.{axis}"] = words.word(32, block, words.const(0, 32).table if blocks.constant == 1 else None)
            found[f"%nctaid.{axis}"] = words.word(32, blocks)
        found["%laneid"] = words.of_table((np.arange(self.threads) % 32).astype(np.uint32))
        return found

    def params(self, words: Words) -> dict[int, Word]:
        """A word per parameter: the address of a buffer, or a size."""
        found: dict[int, Word] = {}
        for index, parameter in enumerate(self.family.params):
            if isinstance(parameter, Scalar):
                found[index] = words.word(parameter.bits, self.values[parameter.name])
            else:
                base = self.facts.atom(f"*{parameter.name}", 0, (1 << 64) - 1, uniform=True)
                self.facts.given.append(self.facts.term(base) % parameter.align == 0)
                found[index] = words.word(64, base)
        return found

    # --- layouts ----------------------------------------------------------------------------------------------

    def places(self, side: SizedSide) -> Places:
        """Evaluate a layout at an unknown coordinate of its shape.

        Raises:
            LayoutError: not a plain layout of memory, or its strides do not tell coordinates apart.
        """
        layout = self._layout(side)
        shape = tuple(self.poly(extent) for extent in side.shape)
        unknown = tuple(self._coordinate(extent) for extent in shape)
        place = self.facts.number(0) + layout.apply(*unknown, shape=shape)["m"]
        strides, begin = self._strides(place, unknown, side)
        order = self._order(strides, shape, side)
        return Places(shape, unknown, place, strides, begin, order)

    def _layout(self, side: SizedSide) -> TileLayout:
        parsed = parse_layout(side.layout)
        if not isinstance(parsed, TileLayout) or parsed.replica or any(a.name != "m" for a in parsed.axes):
            raise LayoutError(f"{side.layout}: only plain layouts of memory, without replicas, have symbolic sizes")

        def number(value: Number) -> Poly:
            return self.poly(value if isinstance(value, int) else str(value))

        shard = [(number(it.extent), number(it.stride), it.axis) for it in parsed.shard]
        return TileLayout.from_iters(shard=shard, offset={a: number(v) for a, v in parsed.offset.items()} or None)

    def _coordinate(self, extent: Poly) -> Poly:
        self._used += 1
        x = self.facts.atom(f"x.{self._used}", 0, self.facts.bounds(extent)[1] - 1)
        self.facts.given.append(self.facts.term(extent - x) >= 1)
        return x

    def _strides(self, place: Poly, unknown: Coordinate, side: SizedSide) -> tuple[Coordinate, Poly]:
        rest, strides = place, []
        for x in unknown:
            (name,) = x.atoms
            stride, rest = rest.split((name,), 1)
            strides.append(stride)
        names = {name for x in unknown for name in x.atoms}
        for part in (*strides, rest):
            if part.atoms & names:
                raise LayoutError(f"{side.layout}: a place is no sum of coordinates times strides")
        if any(len(stride.terms) != 1 for stride in strides):
            raise LayoutError(f"{side.layout}: a stride is a sum; only products of sizes and numbers are supported")
        return tuple(strides), rest

    def _order(self, strides: Coordinate, shape: Coordinate, side: SizedSide) -> tuple[int, ...]:
        """Dimensions by falling stride, each stride above the span of the later ones (the lemma on digits)."""
        for order in itertools.permutations(range(len(shape))):
            span = self.facts.number(0)
            for dim in reversed(order):
                if not self.facts.is_at_least(strides[dim] - span, 1):
                    break
                span = span + (shape[dim] - 1) * strides[dim]
            else:
                return order
        raise LayoutError(f"{side.layout}: it is not proved that distinct coordinates have distinct places")

    # --- the claim itself -------------------------------------------------------------------------------------

    def claim(self) -> list[Obligation]:
        """The conditions can be met, and every element the layouts name lies in its buffer, for all sizes."""
        scope = f"all sizes of {', '.join(map(_show, self.family.unknowns)) or 'the claim'}"
        return [
            Obligation("the claim's conditions can be met", self._satisfiable(scope)),
            Obligation("every element that the claim names lies in its buffer, for all sizes", self._inside(scope)),
            Obligation("the grid is one that can be launched, for all sizes", self._launchable(scope)),
        ]

    def _satisfiable(self, scope: str) -> Verdict:
        names = sorted({name for value in self.values.values() for name in value.atoms})
        ranges = [fact for name in names for fact in self.facts.range_of(name)]
        found = prove(z3.BoolVal(False), given=exact([*self.facts.given, *ranges]), scope=scope)
        if isinstance(found, Refuted):
            return Proved(scope, found.effort)
        reason = "no sizes meet all of them" if found.ok else str(found)
        return Refuted(scope, {"conditions": reason}) if found.ok else Unknown(scope, reason)

    def _inside(self, scope: str) -> Verdict:
        for move in self.family.moves:
            for name, side in ((move.input, move.source), (move.output, move.destination)):
                places = self.places(side)
                last = places.begin + sum(
                    ((e - 1) * s for e, s in zip(places.shape, places.strides, strict=True)), start=0
                )
                for value in (places.begin, self.counts[name] - 1 - last):
                    if not self.facts.is_at_least(value, 0):
                        return self._outside(scope, name, value)
        return Proved(scope)

    def _outside(self, scope: str, name: str, value: Poly) -> Verdict:
        environment = find(self.facts, [self.facts.term(value) < 0])
        if environment is None:
            return Unknown(scope, f"not proved that the places of {name} stay below {self.counts[name]}")
        return Refuted(scope, {"buffer": name, **self.sizes_at(environment)})

    def _launchable(self, scope: str) -> Verdict:
        for axis, blocks, limit in zip("xyz", self.grid, _GRID_LIMITS, strict=True):
            for value in (blocks - 1, limit - blocks):
                if not self.facts.is_at_least(value, 0):
                    environment = find(self.facts, [self.facts.term(value) < 0])
                    if environment is None:
                        return Unknown(scope, f"the grid along {axis} is not proved to lie in [1, {limit}]")
                    return Refuted(scope, {"axis": axis, **self.sizes_at(environment)})
        return Proved(scope)


def _show(size: Scalar) -> str:
    return f"{size.minimum} <= {size.name} <= {size.maximum}"
