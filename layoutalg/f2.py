"""Linear maps over GF(2) on the bits of addresses and indices.

A map sends each bit of its input to a pattern of output bits (a *column*) and XORs the patterns of the bits that
are set; ``f(x ^ y) == f(x) ^ f(y)``.  Swizzles are such maps, and so is "which bank does index x live in" for any
layout with power-of-two extents and strides that do not carry.  Vectors are ints: bit i is coordinate i.

>>> swap = F2Map((0b10, 0b01))
>>> swap.apply(1), swap.compose(swap) == F2Map.identity(2)
(2, True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from layoutalg.decide import as_number
from layoutalg.errors import LayoutError, NotationError, NotExpressibleError, RangeError, UndecidedError
from layoutalg.subspaces import Span, candidates, complement, contains, rank, reduced
from layoutalg.swizzle import Swizzle

__all__ = ["F2Map", "common_complement", "complement", "contains", "joint_transversal", "rank", "reduced"]

_PATTERN = re.compile(r"\s*F2\s*<((?:\s*\d+\s*(?:,\s*\d+\s*)*)?)>\s*")
_SEARCH_NODES = 20_000


@dataclass(frozen=True, slots=True)
class F2Map:
    """A linear map from ``in_bits`` to ``out_bits`` bits, given by the image of every single bit.

    A square map is also a map of addresses: it acts on the low bits and leaves the others alone.

    Args:
        columns: image of bit 0, bit 1, ...
        out_bits: width of the output; the columns' own width, at least ``in_bits``, when left out.

    Raises:
        RangeError: a negative column, or one wider than ``out_bits``.

    >>> F2Map.from_swizzle(Swizzle(1, 0, 1)).columns
    (1, 3)
    """

    columns: tuple[int, ...]
    out_bits: int = -1

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Iterable) or hasattr(self.columns, "shape"):
            raise RangeError(f"a linear map takes the images of its bits, not {self.columns!r}")
        columns = tuple(_vector(column) for column in self.columns)
        object.__setattr__(self, "columns", columns)
        width = max((column.bit_length() for column in columns), default=0)
        if type(self.out_bits) is not int:
            object.__setattr__(self, "out_bits", _vector(self.out_bits))
        if self.out_bits == -1:
            object.__setattr__(self, "out_bits", max(width, len(columns)))
        elif width > self.out_bits:
            raise RangeError(f"a column of {columns} has {width} bits, more than out_bits={self.out_bits}")

    @property
    def in_bits(self) -> int:
        """How many input bits the map reads."""
        return len(self.columns)

    @property
    def is_square(self) -> bool:
        """Whether input and output have the same width."""
        return self.in_bits == self.out_bits

    @property
    def is_invertible(self) -> bool:
        """Whether the map is a bijection.

        >>> F2Map((1, 1)).is_invertible
        False
        """
        return self.is_square and self.rank == self.in_bits

    @property
    def is_identity(self) -> bool:
        """Whether every bit stays where it is."""
        return self.is_square and all(column == 1 << bit for bit, column in enumerate(self.columns))

    @property
    def rank(self) -> int:
        """Dimension of the image."""
        return rank(self.columns)

    @property
    def period(self) -> int:
        """For a square map of addresses, the length after which it repeats: 2^in_bits."""
        return 1 << self.in_bits

    @classmethod
    def identity(cls, bits: int) -> F2Map:
        """The map of ``bits`` bits that changes nothing.

        >>> F2Map.identity(3).columns
        (1, 2, 4)
        """
        return cls(tuple(1 << bit for bit in range(bits)))

    @classmethod
    def parse(cls, text: str) -> F2Map:
        """Read ``F2<c0,c1,...>``: the columns of a square map, bit 0 first.

        Raises:
            NotationError: anything else.

        >>> F2Map.parse("F2<2,1>").apply(1)
        2
        """
        if not isinstance(text, str):
            raise LayoutError(f"the notation of a linear map is a str, not {text!r}")
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise NotationError("expected a linear map such as F2<2,1>", text=text, position=0)
        return cls(tuple(int(column) for column in match[1].split(",") if column.strip()))

    @classmethod
    def from_swizzle(cls, swizzle: Swizzle, bits: int | None = None) -> F2Map:
        """The linear map of a swizzle, on as many address bits as it touches or on ``bits``.

        Raises:
            RangeError: ``bits`` is less than the swizzle touches.

        >>> F2Map.from_swizzle(Swizzle(2, 0, 2)).columns
        (1, 2, 5, 10)
        """
        needed = swizzle.period.bit_length() - 1
        width = needed if bits is None else bits
        if width < needed:
            raise RangeError(f"{swizzle} touches {needed} address bits, more than {bits}")
        return cls(tuple(swizzle.apply(1 << bit) for bit in range(width)))

    @classmethod
    def from_function(cls, function: Callable[[int], int], bits: int, *, out_bits: int = -1) -> F2Map:
        """The linear map that agrees with a function on every input of ``bits`` bits (all 2^bits are compared).

        Raises:
            NotExpressibleError: the function is not linear; ``index`` is the first input that shows it.

        >>> F2Map.from_function(lambda x: x ^ (x >> 1), 3).columns
        (1, 3, 6)
        """
        linear = cls(tuple(index(function(1 << bit)) for bit in range(bits)), out_bits)
        for x in range(1 << bits):
            if function(x) != linear.apply(x):
                raise NotExpressibleError(
                    f"the function is not linear over GF(2): it maps {x} to {function(x)}, "
                    f"but XORing the images of its bits gives {linear.apply(x)}",
                    index=x,
                )
        return linear

    def to_swizzle(self) -> Swizzle:
        """The swizzle that is this map.

        Raises:
            NotExpressibleError: the map is no single swizzle; ``index`` is the first address bit that shows it.

        >>> F2Map((1, 2, 4 | 1, 8 | 2)).to_swizzle()
        Swizzle(bits=2, base=0, shift=2)
        """
        if not self.is_square:
            raise NotExpressibleError(f"a map of {self.in_bits} to {self.out_bits} bits is no swizzle of addresses")
        moved = [(bit, column ^ 1 << bit) for bit, column in enumerate(self.columns) if column != 1 << bit]
        if not moved:
            return Swizzle(0, 0, 0)
        source, target = moved[0][0], moved[0][1].bit_length() - 1
        shift = source - target
        for step, (bit, extra) in enumerate(moved):
            if bit != source + step or extra != 1 << (target + step) or shift == 0:
                raise NotExpressibleError(
                    f"the map is no swizzle: address bit {bit} becomes {self.columns[bit]:#b}, where a swizzle keeps "
                    f"the bit and adds the one {abs(shift) or 'some'} places away",
                    index=bit,
                )
        return Swizzle(len(moved), min(source, target), shift)

    def apply(self, value: Any) -> Any:
        """Image of an int, of every entry of a numpy array, or of anything else with ``& ^ << >>`` (solver terms).

        Raises:
            RangeError: a negative value, or one with bits beyond ``in_bits`` where the map is not square.

        >>> F2Map((3, 1)).apply(2)
        1
        """
        if isinstance(value, int):
            return self._apply_int(value)
        if hasattr(value, "dtype") and hasattr(value, "astype"):
            return self._apply_array(value)
        return self._apply_int(index(value)) if hasattr(value, "__index__") else self._formula(value)

    def _apply_int(self, value: int) -> int:
        high = value >> self.in_bits
        if value < 0 or (high and not self.is_square):
            raise RangeError(f"{value} is no vector of {self.in_bits} bits")
        image = high << self.in_bits
        for bit, column in enumerate(self.columns):
            if value >> bit & 1:
                image ^= column
        return image

    def _apply_array(self, values: Any) -> Any:
        import numpy as np

        if values.dtype.kind not in "iu":
            raise RangeError(f"vectors of bits must be integers, not {values.dtype}")
        source = values.astype(np.int64)
        if source.size and (source.min() < 0 or (not self.is_square and int(source.max()) >> self.in_bits)):
            raise RangeError(f"an entry is no vector of {self.in_bits} bits")
        return self._formula(source)

    def _formula(self, source: Any) -> Any:
        # A bit that contributes itself costs nothing: only the others are XORed in, those of equal distance at once.
        kept = sum(1 << bit for bit, column in enumerate(self.columns) if column >> bit & 1)
        image = source & (~0 << self.in_bits | kept)
        moves: dict[int, int] = {}
        for bit, column in enumerate(self.columns):
            for target in _bits(column & ~(1 << bit)):
                moves[bit - target] = moves.get(bit - target, 0) | 1 << bit
        for distance, mask in moves.items():
            part = source & mask
            image = image ^ (part >> distance if distance > 0 else part << -distance)
        return image

    def compose(self, inner: F2Map) -> F2Map:
        """The map ``x -> self(inner(x))``.

        Raises:
            RangeError: the inner map's output is wider than this map's input.

        >>> F2Map((2, 1)).compose(F2Map((1, 3))).columns
        (2, 3)
        """
        if not isinstance(inner, F2Map):
            raise LayoutError(f"a linear map is composed with a linear map, not {inner!r}")
        if self.is_square and inner.is_square:
            width = max(self.in_bits, inner.in_bits)
            return F2Map(tuple(self._apply_int(inner._apply_int(1 << bit)) for bit in range(width)), width)
        if inner.out_bits > self.in_bits:
            raise RangeError(f"compose: the inner map gives {inner.out_bits} bits, the outer one reads {self.in_bits}")
        return F2Map(tuple(self._apply_int(column) for column in inner.columns), self.out_bits)

    def inverse(self) -> F2Map:
        """The map that undoes this one.

        Raises:
            NotExpressibleError: the map is not a bijection; ``index`` is an input other than 0 that goes to 0.

        >>> gray = F2Map((1, 3, 6))
        >>> gray.inverse().columns
        (1, 3, 7)
        """
        if not self.is_invertible:
            kernel = self.kernel()
            why = f"{kernel[0]} and 0 both go to 0" if kernel else f"{self.in_bits} bits do not fill {self.out_bits}"
            raise NotExpressibleError(f"the map has no inverse: {why}", index=kernel[0] if kernel else None)
        # Eliminate on (image, preimage) pairs until the images are the single bits.
        pairs = [(column, 1 << bit) for bit, column in enumerate(self.columns)]
        for bit in range(self.in_bits):
            pivot = next(k for k in range(bit, len(pairs)) if pairs[k][0] >> bit & 1)
            pairs[bit], pairs[pivot] = pairs[pivot], pairs[bit]
            image, source = pairs[bit]
            pairs = [(a ^ image, b ^ source) if k != bit and a >> bit & 1 else (a, b) for k, (a, b) in enumerate(pairs)]
        return F2Map(tuple(source for _, source in pairs), self.in_bits)

    def kernel(self) -> tuple[int, ...]:
        """A basis of the inputs that go to 0, reduced.

        >>> F2Map((1, 2, 3)).kernel()
        (7,)
        """
        found: list[int] = []
        images: list[tuple[int, int]] = []
        for bit, column in enumerate(self.columns):
            image, source = column, 1 << bit
            for other, origin in images:
                if image ^ other < image:
                    image, source = image ^ other, source ^ origin
            if image:
                images.append((image, source))
                images.sort(reverse=True)
            else:
                found.append(source)
        return reduced(found)

    def image(self) -> tuple[int, ...]:
        """A basis of the outputs, reduced.

        >>> F2Map((3, 5, 6)).image()
        (3, 5)
        """
        return reduced(self.columns)

    def restrict(self, vectors: Iterable[int]) -> tuple[int, ...]:
        """The images of some vectors.

        >>> F2Map((1, 2, 3)).restrict([4, 7])
        (3, 0)
        """
        return tuple(self._apply_int(vector) for vector in vectors)

    def __str__(self) -> str:
        return "F2<" + ",".join(map(str, self.columns)) + ">"


def _vector(value: Any) -> int:
    try:
        vector = as_number(value, "a vector of bits")
    except RangeError:
        vector = None
    if type(vector) is not int or vector < 0:
        raise RangeError(f"{value!r} is no vector of bits")
    return vector


def _bits(vector: int) -> Iterator[int]:
    while vector:
        low = vector & -vector
        yield low.bit_length() - 1
        vector ^= low


def joint_transversal(maps: Sequence[F2Map], dim: int) -> tuple[int, ...]:
    """Independent vectors on whose span every map keeps as much rank as their number allows.

    With two maps (the banks of a source and of a destination) an answer always exists and the greedy choice never
    backtracks: outside two proper subspaces there is always a vector, a single bit or a sum of two.  The ranks may
    differ.  With three or more maps there may be none; then the search is exhaustive up to a stated number of steps.

    Law: the result is independent, and ``rank(f.restrict(result)) == min(f.rank, dim)`` for every map f.

    Args:
        maps: linear maps with the same number of input bits.
        dim: vectors wanted, for example 5 for the lanes of a warp.

    Raises:
        RangeError: the maps differ in width, or ``dim`` is not between 0 and the number of bits.
        NotExpressibleError: no such subspace exists.
        UndecidedError: the search for three or more maps reached its bound.

    >>> joint_transversal([F2Map((1, 2, 0, 0)), F2Map((0, 0, 1, 2))], 2)
    (5, 10)
    """
    if not maps or len({f.in_bits for f in maps}) != 1:
        raise RangeError("joint_transversal needs maps of one and the same number of input bits")
    bits = maps[0].in_bits
    if not 0 <= dim <= bits:
        raise RangeError(f"dim is {dim}; it must be between 0 and the {bits} input bits")
    return _Search(maps, bits, dim).run()


class _Search:
    """Depth-first choice of vectors; a map with as much rank left as vectors to choose must gain at every step."""

    def __init__(self, maps: Sequence[F2Map], bits: int, dim: int) -> None:
        self.maps, self.bits, self.dim = maps, bits, dim
        self.ranks = [min(f.rank, dim) for f in maps]
        self.weight = bits if len(maps) > 2 else min(bits, 3)
        self.nodes = 0

    def run(self) -> tuple[int, ...]:
        chosen = self._extend((), Span(), [Span() for _ in self.maps], 0)
        if chosen is None:
            raise NotExpressibleError(
                f"no subspace of dimension {self.dim} has ranks {self.ranks} under the {len(self.maps)} maps"
            )
        return chosen

    def _extend(self, chosen: tuple[int, ...], span: Span, images: list[Span], start: int) -> tuple[int, ...] | None:
        if len(chosen) == self.dim:
            return chosen
        left = self.dim - len(chosen)
        # First the vectors with which every map that still lacks rank gains some.
        for wish in (True, False):
            for position, vector in enumerate(candidates(self.bits, self.weight)):
                if position < start and len(self.maps) > 2:
                    continue
                self.nodes += 1
                if self.nodes > _SEARCH_NODES * len(self.maps):
                    raise UndecidedError(
                        f"joint_transversal: no subspace found for {len(self.maps)} maps within {self.nodes} steps"
                    )
                grown = self._step(vector, span, images, left, wish)
                if grown is not None:
                    found = self._extend((*chosen, vector), *grown, position + 1)
                    if found is not None:
                        return found
        return None

    def _step(
        self, vector: int, span: Span, images: list[Span], left: int, wish: bool
    ) -> tuple[Span, list[Span]] | None:
        if span.reduce(vector) == 0:
            return None
        lacking = [len(image.basis) < rank for image, rank in zip(images, self.ranks, strict=True)]
        must = [rank - len(image.basis) == left for image, rank in zip(images, self.ranks, strict=True)]
        moved = [f.apply(vector) for f in self.maps]
        gains = [image.reduce(value) != 0 for image, value in zip(images, moved, strict=True)]
        if wish != all(gain or not lack for lack, gain in zip(lacking, gains, strict=True)):
            return None
        if any(need and not gain for need, gain in zip(must, gains, strict=True)):
            return None
        grown = span.copy()
        grown.add(vector)
        twins = [image.copy() for image in images]
        for twin, value in zip(twins, moved, strict=True):
            twin.add(value)
        return grown, twins


def common_complement(subspaces: Sequence[Iterable[int]], bits: int) -> tuple[int, ...]:
    """A subspace that is a complement of each given subspace: together they span everything, meeting only in 0.

    Two subspaces of equal dimension always have one.  For subspaces of different dimension, ask
    :func:`joint_transversal` of the quotient maps: what it keeps is the rank.

    Args:
        subspaces: spanning vectors of each subspace.
        bits: dimension of the whole space.

    Raises:
        RangeError: the subspaces differ in dimension.
        NotExpressibleError: three or more subspaces without a common complement.
        UndecidedError: three or more subspaces, and the search reached its bound.

    >>> common_complement([[1], [2]], 2)
    (3,)
    """
    quotients = [quotient(vectors, bits) for vectors in subspaces]
    dims = {bits - f.rank for f in quotients}
    if len(dims) != 1:
        raise RangeError(f"subspaces of dimensions {sorted(dims)} have no common complement; equal ones are needed")
    return joint_transversal(quotients, quotients[0].rank)


def quotient(vectors: Iterable[int], bits: int) -> F2Map:
    """A linear map of ``bits`` bits whose kernel is the span of the given vectors.

    >>> quotient([3], 2).kernel()
    (3,)
    """
    span = Span(vectors)
    basis = [*span.basis, *complement(span.basis, bits)]
    # In the basis (span, complement) the map drops the span's coordinates.
    to_basis = F2Map(tuple(basis), bits).inverse()
    kept = len(span.basis)
    return F2Map(tuple(column >> kept for column in to_basis.columns), bits - kept)
