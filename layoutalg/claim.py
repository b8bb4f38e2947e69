"""What a generated kernel promises, in terms of layouts: the contract between generator and checker.

A claim says which buffers a kernel takes, how it is launched, and for pairs of layouts what must be where afterwards.
It names no plan and no address: whoever checks it derives every expected address from the layouts themselves, so that
planner and kernel cannot be wrong together.  Its JSON form travels beside the kernel's PTX.

The meaning of a :class:`Move`: for every value of its parameters and every coordinate x of its region,

    output[destination(begin_d + x)] == input[source(begin_s + x)]        (values before the launch)

and of ``frame``: places of the output that no move writes hold what the *same place of the input* held
(``"carried"``, for kernels that work in place on a staged copy), or are not written at all (``"untouched"``).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from layoutalg.algebra.grouping import check_shape
from layoutalg.algebra.slicing import Interval, check_region
from layoutalg.errors import LayoutError
from layoutalg.hardware.dtypes import dtype
from layoutalg.index import Param, substitute
from layoutalg.notation import parse_region
from layoutalg.swizzled import SwizzledLayout, parse_layout
from layoutalg.tile import TileLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BankPromise", "Buffer", "Claim", "Move", "Scalar", "Side", "digest", "fields_of"]

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer parameter over ``count`` elements whose coordinates are ``[first, first + count)``.

    Args:
        name: the parameter's name in the kernel.
        role: ``"input"`` (only read) or ``"output"``.
        dtype: element type.
        first: coordinate of the element that the pointer points at.
        count: number of elements.
        align: alignment of the pointer in bytes that the caller guarantees.
    """

    name: str
    role: str
    dtype: str
    first: int
    count: int
    align: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer parameter of 32 or 64 bits, ``minimum <= value <= maximum``."""

    name: str
    bits: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a move: a layout (as text), the shape it is indexed with, and a region of that shape (as text)."""

    layout: str
    shape: tuple[int, ...]
    region: str

    def parts(self) -> tuple[TileLayout | SwizzledLayout, tuple[Interval, ...]]:
        """Return the layout and the checked region."""
        layout = parse_layout(self.layout)
        extents = check_shape(self.shape, layout.size)
        return layout, check_region(parse_region(self.region, extents), extents)


@dataclass(frozen=True, slots=True)
class Move:
    """``output[destination(x)] = input[source(x)]`` for every x of the region and every parameter value."""

    input: str
    source: Side
    output: str
    destination: Side

    def params(self) -> tuple[Param, ...]:
        """Return the region's parameters, by name."""
        found: dict[str, Param] = {}
        for side in (self.source, self.destination):
            for interval in side.parts()[1]:
                for param, _ in getattr(interval.begin, "terms", ()):
                    if found.setdefault(param.name, param) != param:
                        raise LayoutError(f"parameter {param.name} has two ranges in one move", param=param.name)
        return tuple(found[name] for name in sorted(found))

    def assignments(self) -> Iterator[dict[str, int]]:
        """Yield every value of the parameters, as name -> value."""
        params = self.params()
        for values in itertools.product(*(range(p.begin, p.end) for p in params)):
            yield {p.name: value for p, value in zip(params, values, strict=True)}

    def coordinates(self, values: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return source and destination memory coordinates of every x, in row-major order of the region.

        >>> side = Side("S[(2,4):(4,1)]", (2, 4), "s[0:2],0:4")
        >>> move = Move("a", side, "b", Side("S[(2,4):(1,2)]", (2, 4), "s[0:2],0:4"))
        >>> [c.tolist() for c in move.coordinates({"s": 1})]
        [[4, 5, 6, 7], [1, 3, 5, 7]]
        """
        return _coordinates(self.source, values), _coordinates(self.destination, values)


def _coordinates(side: Side, values: Mapping[str, int]) -> NDArray[np.int64]:
    import numpy as np

    layout, region = side.parts()
    index: Any = np.zeros((), dtype=np.int64)
    for extent, interval in zip(side.shape, region, strict=True):
        begin = substitute(interval.begin, values)
        index = index[..., None] * extent + np.arange(begin, begin + interval.length)
    return layout.evaluate(index.reshape(-1))["m"]


def _reach(side: Side, values: Mapping[str, int]) -> tuple[int, int]:
    """Return the least and the greatest memory coordinate of a side; a whole layout's digits tell without a list."""
    layout, region = side.parts()
    whole = all(i.begin == 0 and i.length == e for i, e in zip(region, side.shape, strict=True))
    if not whole or not isinstance(layout, TileLayout):
        coordinates = _coordinates(side, values)
        return int(coordinates.min()), int(coordinates.max())
    low = high = substitute(layout.offset.get("m", 0), values)
    for extent, stride, axis in layout.shard:
        if axis.name == "m":
            low, high = low + min(0, (extent - 1) * stride), high + max(0, (extent - 1) * stride)
    return low, high


@dataclass(frozen=True, slots=True)
class BankPromise:
    """How many shared-memory wavefronts one phase costs for each parameter value, and how many are in excess.

    Args:
        phase: name of the phase, for messages.
        op: the operation, such as ``ld.shared``.
        wavefronts: of the warps that share the phase, together.
        excess: how many of them the accesses' ideal does without: bank conflicts.
        warps: how many warps share the phase.
    """

    phase: str
    op: str
    wavefronts: int
    excess: int
    warps: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """The contract of one kernel; see the module's text for its meaning.

    Args:
        entry: name of the ``.entry``.
        dtype: element type moved.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        dynamic_shared_bytes: dynamic shared memory of the launch.
        params: the kernel's parameters in order.
        moves: what must be where afterwards.
        frame: ``"carried"`` or ``"untouched"``.
        banks: promises per phase.
    """

    entry: str
    dtype: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    params: tuple[Buffer | Scalar, ...]
    moves: tuple[Move, ...]
    frame: str
    banks: tuple[BankPromise, ...] = ()

    def __post_init__(self) -> None:
        buffers = {p.name: p for p in self.params if isinstance(p, Buffer)}
        if len({p.name for p in self.params}) != len(self.params):
            raise LayoutError("a claim's parameters have distinct names")
        if self.frame not in ("carried", "untouched"):
            raise LayoutError(f"a claim's frame is 'carried' or 'untouched', not {self.frame!r}")
        for move in self.moves:
            for name, role in ((move.input, "input"), (move.output, "output")):
                if name not in buffers or buffers[name].role != role:
                    raise LayoutError(f"the claim moves through {name!r}, which is no {role} buffer of it", name=name)

    def buffer(self, name: str) -> Buffer:
        """Return the buffer parameter of this name."""
        return next(p for p in self.params if isinstance(p, Buffer) and p.name == name)

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return dtype(self.dtype).bytes

    def check_bounds(self) -> None:
        """Check that every coordinate of every move lies in its buffer, from the layouts alone.

        Raises:
            LayoutError: names the buffer and the coordinate that leaves it.
        """
        for move in self.moves:
            for values in move.assignments():
                for name, side in ((move.input, move.source), (move.output, move.destination)):
                    buffer = self.buffer(name)
                    low, high = _reach(side, values)
                    if low < buffer.first or high >= buffer.first + buffer.count:
                        raise LayoutError(
                            f"the claim puts elements at {low}..{high} of {name}, "
                            f"which spans [{buffer.first}, {buffer.first + buffer.count})",
                            buffer=name,
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
            "params": [{"kind": type(p).__name__.lower(), **fields_of(p)} for p in self.params],
            "moves": [fields_of(move) for move in self.moves],
            "frame": self.frame,
            "banks": [fields_of(promise) for promise in self.banks],
        }

    @classmethod
    def from_json(cls, value: Any) -> Claim:
        """Read the JSON form.

        Raises:
            LayoutError: not this form, or another version of it.
        """
        try:
            if value["format"] != FORMAT:
                raise LayoutError(f"claim format {value['format']!r} is not supported; this library reads {FORMAT}")
            kinds = {"buffer": Buffer, "scalar": Scalar}
            params = tuple(kinds[p["kind"]](**{k: v for k, v in p.items() if k != "kind"}) for p in value["params"])
            moves = tuple(
                Move(m["input"], _side(m["source"]), m["output"], _side(m["destination"])) for m in value["moves"]
            )
            launch = value["launch"]
            return cls(
                entry=value["entry"],
                dtype=value["dtype"],
                grid=_triple(launch["grid"]),
                block=_triple(launch["block"]),
                dynamic_shared_bytes=launch["dynamic_shared_bytes"],
                params=params,
                moves=moves,
                frame=value["frame"],
                banks=tuple(BankPromise(**promise) for promise in value["banks"]),
            )
        except (KeyError, TypeError) as error:
            raise LayoutError(f"this is no claim: {type(error).__name__} {error}") from error


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a part of a claim as JSON has them, its own parts alike.

    >>> fields_of(Side("S[8:1]", (8,), "0:8"))
    {'layout': 'S[8:1]', 'shape': [8], 'region': '0:8'}
    """
    return {name: _plain(getattr(value, name)) for name in type(value).__dataclass_fields__}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return fields_of(value)
    return list(value) if isinstance(value, tuple) else value


def _side(value: Mapping[str, Any]) -> Side:
    return Side(value["layout"], tuple(value["shape"]), value["region"])


def _triple(value: Any) -> tuple[int, int, int]:
    x, y, z = value
    return int(x), int(y), int(z)


def show_intervals(region: tuple[Interval, ...]) -> str:
    """Spell a region as :func:`layoutalg.notation.parse_region` reads it.

    >>> show_intervals((Interval(Param("s", 0, 2), 1), Interval(0, 4)))
    's[0:2]:s[0:2] + 1,0:4'
    """
    return ",".join(f"{i.begin}:{i.begin + i.length}" for i in region)


def digest(data: bytes | str | Mapping[str, Any]) -> str:
    """Return the SHA-256 of bytes, of text as UTF-8, or of a JSON value in canonical spelling.

    >>> digest("")[:8], digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    ('e3b0c442', True)
    """
    if isinstance(data, Mapping):
        data = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
