"""What a kernel promises for every size: a family of claims, one per admissible value of its sizes.

A kernel with parameters M and N that transposes any (M, N) matrix makes one promise per pair.  A
:class:`ClaimFamily` writes them down at once: numbers of elements, extents, strides and the grid are expressions in
named sizes, which range over an interval each and obey the conditions ``given``.  Its whole meaning is
:meth:`ClaimFamily.at`: the kernel keeps the :class:`~layoutalg.claim.Claim` ``family.at(values)`` for all admissible
values.  Sizes that the kernel receives are :class:`~layoutalg.claim.Scalar` parameters; others, such as a grid that is
only known to be large enough, stand in ``sizes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from layoutalg.claim import Buffer, Claim, Move, Scalar, Side, fields_of
from layoutalg.errors import LayoutError, RangeError
from layoutalg.hardware.dtypes import dtype
from layoutalg.sizes import Size, comparisons, evaluate_size, holds, names_of
from layoutalg.swizzled import parse_layout

__all__ = ["ClaimFamily", "SizedBuffer", "SizedMove", "SizedSide", "read_claim"]

FORMAT: Final = 2
"""Version of the JSON form; format 1 is a single claim."""

Dim3 = tuple[Size, Size, Size]


@dataclass(frozen=True, slots=True)
class SizedBuffer:
    """A pointer parameter over ``count`` elements, a number or an expression; the first has coordinate 0.

    Args:
        name: the parameter's name in the kernel.
        role: ``"input"`` or ``"output"``.
        dtype: element type.
        count: number of elements.
        align: alignment of the pointer in bytes that the caller guarantees.
    """

    name: str
    role: str
    dtype: str
    count: Size
    align: int


@dataclass(frozen=True, slots=True)
class SizedSide:
    """One side of a move: a layout as text, whose extents and strides may name sizes, and the shape that indexes it."""

    layout: str
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class SizedMove:
    """``output[destination(x)] = input[source(x)]`` for every x of the shape."""

    input: str
    source: SizedSide
    output: str
    destination: SizedSide


@dataclass(frozen=True, slots=True)
class ClaimFamily:
    """The promises of a kernel for all sizes; see the module's text.

    Args:
        entry: name of the ``.entry``.
        dtype: element type moved.
        grid: blocks in x, y, z, numbers or expressions.
        block: threads in x, y, z.
        dynamic_shared_bytes: dynamic shared memory of the launch.
        params: the kernel's parameters in order.
        moves: what must be where afterwards; nothing else is written.
        sizes: unknowns that are no parameters.
        given: conditions on the unknowns, which the caller guarantees.

    >>> matrix = ClaimFamily(
    ...     "t", "f32", ("(N + 31)//32", "(M + 31)//32", 1), (32, 8, 1), 0,
    ...     (SizedBuffer("a", "input", "f32", "M*N", 4), SizedBuffer("b", "output", "f32", "M*N", 4),
    ...      Scalar("M", 32, 1, 1 << 15), Scalar("N", 32, 1, 1 << 15)),
    ...     (SizedMove("a", SizedSide("S[(M,N):(N,1)]", ("M", "N")), "b", SizedSide("S[(M,N):(1,M)]", ("M", "N"))),),
    ... )
    >>> claim = matrix.at(M=31, N=65)
    >>> claim.grid, claim.params[0].count, claim.moves[0].destination.layout
    ((3, 1, 1), 2015, 'S[(31,65):(1,31)]')
    >>> ClaimFamily.from_json(matrix.to_json()) == matrix
    True
    """

    entry: str
    dtype: str
    grid: Dim3
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    params: tuple[SizedBuffer | Scalar, ...]
    moves: tuple[SizedMove, ...]
    sizes: tuple[Scalar, ...] = ()
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [p.name for p in (*self.params, *self.sizes)]
        if len(set(names)) != len(names):
            raise LayoutError("the parameters and sizes of a family have distinct names")
        for unknown in self.unknowns:
            if not unknown.name.isidentifier() or unknown.minimum > unknown.maximum:
                raise RangeError(f"size {unknown.name!r} in [{unknown.minimum}, {unknown.maximum}] has no values")
        for scalar in self.params:
            if (
                isinstance(scalar, Scalar)
                and not -(1 << scalar.bits - 1) <= scalar.minimum <= scalar.maximum < 1 << scalar.bits
            ):
                raise RangeError(f"{scalar.name} has values that {scalar.bits} bits do not hold", name=scalar.name)
        known = {unknown.name: 1 for unknown in self.unknowns}
        for size in self._expressions():
            strange = names_of(size) - known.keys()
            if strange:
                raise LayoutError(f"{size!r} names {', '.join(sorted(strange))}, which the family does not have")
        for condition in self.given:
            comparisons(condition, known)
        roles = {p.name: p.role for p in self.params if isinstance(p, SizedBuffer)}
        for move in self.moves:
            for name, role in ((move.input, "input"), (move.output, "output")):
                if roles.get(name) != role:
                    raise LayoutError(f"the family moves through {name!r}, which is no {role} buffer of it", name=name)

    def _expressions(self) -> list[Size]:
        counts = [p.count for p in self.params if isinstance(p, SizedBuffer)]
        shapes = [e for move in self.moves for side in (move.source, move.destination) for e in side.shape]
        return [*self.grid, *counts, *shapes]

    @property
    def unknowns(self) -> tuple[Scalar, ...]:
        """Every size, parameters first."""
        return (*(p for p in self.params if isinstance(p, Scalar)), *self.sizes)

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return dtype(self.dtype).bytes

    def buffer(self, name: str) -> SizedBuffer:
        """Return the buffer parameter of this name."""
        return next(p for p in self.params if isinstance(p, SizedBuffer) and p.name == name)

    def admits(self, values: Mapping[str, int]) -> bool:
        """Say whether these are values of all sizes, in range, that meet the conditions."""
        return all(u.name in values and u.minimum <= values[u.name] <= u.maximum for u in self.unknowns) and all(
            holds(condition, values) for condition in self.given
        )

    def at(self, **values: int) -> Claim:
        """Return the claim for these sizes.

        Raises:
            RangeError: a size is missing, out of range, or a condition does not hold.
        """
        for unknown in self.unknowns:
            if unknown.name not in values:
                raise RangeError(f"{self.entry} needs a value for {unknown.name}")
            if not unknown.minimum <= values[unknown.name] <= unknown.maximum:
                raise RangeError(
                    f"{unknown.name} = {values[unknown.name]} lies outside [{unknown.minimum}, {unknown.maximum}]"
                )
        for condition in self.given:
            if not holds(condition, values):
                raise RangeError(f"{', '.join(f'{k} = {v}' for k, v in values.items())} do not meet {condition!r}")
        x, y, z = (int(evaluate_size(extent, values)) for extent in self.grid)
        return Claim(
            entry=self.entry,
            dtype=self.dtype,
            grid=(x, y, z),
            block=self.block,
            dynamic_shared_bytes=self.dynamic_shared_bytes,
            params=tuple(_param(p, values) for p in self.params),
            moves=tuple(
                Move(m.input, _side(m.source, values), m.output, _side(m.destination, values)) for m in self.moves
            ),
            frame="untouched",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "format": FORMAT,
            "entry": self.entry,
            "dtype": self.dtype,
            "launch": {
                "grid": list(self.grid),
                "block": list(self.block),
                "dynamic_shared_bytes": self.dynamic_shared_bytes,
            },
            "params": [{"kind": "scalar" if isinstance(p, Scalar) else "buffer", **fields_of(p)} for p in self.params],
            "sizes": [fields_of(size) for size in self.sizes],
            "given": list(self.given),
            "moves": [fields_of(move) for move in self.moves],
        }

    @classmethod
    def from_json(cls, value: Any) -> ClaimFamily:
        """Read the JSON form.

        Raises:
            LayoutError: not this form, or another version of it.
        """
        try:
            if value["format"] != FORMAT:
                raise LayoutError(f"a family of claims has format {FORMAT}, not {value['format']!r}")
            kinds = {"buffer": SizedBuffer, "scalar": Scalar}
            launch = value["launch"]
            gx, gy, gz = launch["grid"]
            bx, by, bz = launch["block"]
            return cls(
                entry=value["entry"],
                dtype=value["dtype"],
                grid=(gx, gy, gz),
                block=(int(bx), int(by), int(bz)),
                dynamic_shared_bytes=launch["dynamic_shared_bytes"],
                params=tuple(kinds[p["kind"]](**{k: v for k, v in p.items() if k != "kind"}) for p in value["params"]),
                moves=tuple(
                    SizedMove(m["input"], _read_side(m["source"]), m["output"], _read_side(m["destination"]))
                    for m in value["moves"]
                ),
                sizes=tuple(Scalar(**size) for size in value["sizes"]),
                given=tuple(value["given"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(f"this is no family of claims: {type(error).__name__} {error}") from error


def read_claim(value: Any) -> Claim | ClaimFamily:
    """Read a claim or a family of claims, by the version of the JSON form.

    Raises:
        LayoutError: neither.
    """
    if isinstance(value, Mapping) and value.get("format") == FORMAT:
        return ClaimFamily.from_json(value)
    return Claim.from_json(value)


def _param(param: SizedBuffer | Scalar, values: Mapping[str, int]) -> Buffer | Scalar:
    if isinstance(param, Scalar):
        return replace(param, minimum=values[param.name], maximum=values[param.name])
    return Buffer(param.name, param.role, param.dtype, 0, int(evaluate_size(param.count, values)), param.align)


def _side(side: SizedSide, values: Mapping[str, int]) -> Side:
    shape = tuple(int(evaluate_size(extent, values)) for extent in side.shape)
    layout = parse_layout(side.layout).substitute(**values)
    return Side(str(layout), shape, ",".join(f"0:{extent}" for extent in shape))


def _read_side(value: Mapping[str, Any]) -> SizedSide:
    return SizedSide(value["layout"], tuple(value["shape"]))
