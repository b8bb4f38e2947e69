"""XOR swizzles of addresses, and layouts whose memory addresses a swizzle permutes.

``Swizzle(bits=B, base=M, shift=S)`` takes the B address bits from M+S upward and XORs them onto the B bits from M
upward (for S < 0, the bits from M onto those from M+|S|).  It acts on *element* offsets.  Since the bits it reads
are not the bits it writes when |S| >= B, doing it twice does nothing, and it repeats every 2^(M+|S|+B) elements.

A 64-column half tile has its rows of eight 16-byte chunks permuted by the row's number modulo 8:

>>> fold = Swizzle(bits=3, base=3, shift=3)
>>> [fold.apply(64 * row) // 8 for row in range(9)]
[0, 9, 18, 27, 36, 45, 54, 63, 64]
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, overload

from layoutalg.decide import as_number
from layoutalg.errors import LayoutError, NotationError, NotExpressibleError, RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.dtypes import dtype as dtype_of

if TYPE_CHECKING:
    from layoutalg.swizzled import SwizzledLayout as SwizzledLayout

__all__ = ["Swizzle", "SwizzledLayout", "row_xor", "straddlers"]

_PATTERN = re.compile(r"\s*(?:Sw|Swizzle)\s*<\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*>")
_ADDRESS_BITS = 62
#: Chunks that a refused row XOR looks at to say what goes wrong.
_COUNTED = 1 << 18


def __getattr__(name: str) -> Any:
    # The layout of a swizzle builds on the tile, which builds on nothing here; loading it late keeps both ways open.
    if name == "SwizzledLayout":
        from layoutalg.swizzled import SwizzledLayout

        return SwizzledLayout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, slots=True, init=False)
class Swizzle:
    """CuTe's ``Swizzle<B,M,S>``: an XOR of address bits onto lower (or, for S < 0, higher) ones.

    Args:
        bits: how many bits are XORed (B).
        base: how many low bits stay untouched (M): 2^M neighbours stay neighbours.
        shift: distance from the bits written to the bits read (S); negative swaps the roles.
        per_element: TIRx's name of ``base``.
        swizzle_len: TIRx's name of ``bits``.
        atom_len: TIRx's name of ``|shift|``.
        swizzle_inner: TIRx's sign of ``shift``; True writes the low bits.

    Raises:
        RangeError: a negative bits or base, a shift of 0 with bits > 0 (it would map addresses onto each other),
            or more than 62 address bits.

    >>> Swizzle(3, 4, 3)
    Swizzle(bits=3, base=4, shift=3)
    >>> Swizzle(per_element=3, swizzle_len=3, atom_len=3, swizzle_inner=True) == Swizzle(3, 3, 3)
    True
    """

    bits: int
    base: int
    shift: int

    def __init__(
        self,
        bits: int | None = None,
        base: int | None = None,
        shift: int | None = None,
        *,
        per_element: int | None = None,
        swizzle_len: int | None = None,
        atom_len: int | None = None,
        swizzle_inner: bool | None = None,
    ) -> None:
        if per_element is None and swizzle_len is None and atom_len is None and swizzle_inner is None:
            given: tuple[Any, ...] = (bits, base, shift)
        elif bits is None and base is None and shift is None:
            sign = -1 if swizzle_inner is False else 1
            given = (swizzle_len, per_element, None if atom_len is None else sign * _integer("atom_len", atom_len))
            if atom_len is not None and atom_len < 0:
                raise RangeError(f"atom_len is {atom_len}; swizzle_inner=False gives the other direction")
        else:
            raise RangeError(
                "a swizzle is spelt either bits, base, shift or per_element, swizzle_len, atom_len, not both"
            )
        if any(value is None for value in given):
            raise RangeError("a swizzle needs bits, base and shift (or per_element, swizzle_len and atom_len)")
        b, m, s = (_integer(name, value) for name, value in zip(("bits", "base", "shift"), given, strict=True))
        if b < 0 or m < 0:
            raise RangeError(f"Swizzle<{b},{m},{s}>: bits and base count address bits and cannot be negative")
        if s == 0 and b > 0:
            raise RangeError(f"Swizzle<{b},{m},{s}>: with shift 0 every bit cancels itself, so addresses would collide")
        if m + abs(s) + b > _ADDRESS_BITS:
            raise RangeError(f"Swizzle<{b},{m},{s}> needs {m + abs(s) + b} address bits; at most {_ADDRESS_BITS}")
        for name, value in (("bits", b), ("base", m), ("shift", s)):
            object.__setattr__(self, name, value)

    @property
    def per_element(self) -> int:
        """TIRx's name of :attr:`base`."""
        return self.base

    @property
    def swizzle_len(self) -> int:
        """TIRx's name of :attr:`bits`."""
        return self.bits

    @property
    def atom_len(self) -> int:
        """TIRx's name of the absolute :attr:`shift`."""
        return abs(self.shift)

    @property
    def swizzle_inner(self) -> bool:
        """Whether the low bits are the ones written (shift >= 0)."""
        return self.shift >= 0

    @property
    def is_identity(self) -> bool:
        """Whether no address moves."""
        return self.bits == 0

    @property
    def is_involution(self) -> bool:
        """Whether the swizzle undoes itself: |shift| >= bits."""
        return abs(self.shift) >= self.bits

    @property
    def period(self) -> int:
        """The elements after which the pattern repeats: ``apply(x + k*period) == apply(x) + k*period``.

        >>> Swizzle(3, 3, 3).period, Swizzle(0, 4, 3).period
        (512, 1)
        """
        return 1 << (self.base + abs(self.shift) + self.bits) if self.bits else 1

    @overload
    def apply(self, address: int) -> int: ...
    @overload
    def apply(self, address: Any, *, out: Any = None) -> Any: ...
    def apply(self, address: Any, *, out: Any = None) -> Any:
        """Where an element offset goes.

        Law: ``apply(x) == x ^ ((x >> S) & (2^B - 1) * 2^M)`` for S > 0, and the mirror image for S < 0.

        Args:
            address: an offset in elements, or a numpy array of them; anything else with ``^ & << >>`` (solver
                bit-vectors, expressions) is passed through the same formula.
            out: an int64 array that receives the result; ``address`` itself works in place.

        Raises:
            RangeError: a negative offset.

        >>> Swizzle(2, 0, 3).apply(8), Swizzle(2, 0, -3).apply(1)
        (9, 9)
        """
        if isinstance(address, int):
            if address < 0 or isinstance(address, bool):
                raise RangeError(
                    f"{self}: address {address!r} is no offset; swizzled addresses start at 0", address=address
                )
            return self._formula(address)
        if hasattr(address, "dtype") and hasattr(address, "astype"):
            return self._apply_array(address, out)
        return self._formula(index(address) if hasattr(address, "__index__") else address)

    def _formula(self, address: Any) -> Any:
        if not self.bits:
            return address
        low = ((1 << self.bits) - 1) << self.base
        if self.shift > 0:
            return address ^ ((address >> self.shift) & low)
        return address ^ ((address & low) << -self.shift)

    def _apply_array(self, address: Any, out: Any) -> Any:
        import numpy as np

        if address.dtype.kind not in "iu":
            raise RangeError(f"{self}: addresses must be integers, not {address.dtype}")
        if address.dtype.kind == "i" and address.size and address.min() < 0:
            raise RangeError(f"{self}: address {int(address.min())} is negative; swizzled addresses start at 0")
        if out is None:
            out = address.astype(np.int64)
        elif out is not address:
            out[...] = address
        return self.xor_in_place(out)

    def xor_in_place(self, offsets: Any) -> Any:
        """Swizzle an int64 array of offsets that are known not to be negative, in place.

        >>> import numpy as np
        >>> Swizzle(1, 0, 1).xor_in_place(np.arange(4)).tolist()
        [0, 1, 3, 2]
        """
        if not self.bits:
            return offsets
        low = ((1 << self.bits) - 1) << self.base
        moved = offsets & (low << max(self.shift, 0))
        if self.shift > 0:
            moved >>= self.shift
        else:
            moved <<= -self.shift
        offsets ^= moved
        return offsets

    def inverse(self) -> Swizzle:
        """The swizzle that undoes this one; the swizzle itself where |shift| >= bits.

        Raises:
            NotExpressibleError: |shift| < bits; the inverse is a linear map of address bits but no swizzle, and
                ``F2Map.from_swizzle(...).inverse()`` gives it.

        >>> Swizzle(3, 3, 3).inverse()
        Swizzle(bits=3, base=3, shift=3)
        """
        if self.is_involution:
            return self
        raise NotExpressibleError(
            f"inverse of {self}: bits it reads are bits it writes (|shift| < bits), so the inverse is no swizzle; "
            "layoutalg.f2.F2Map.from_swizzle(...).inverse() is the linear map",
            swizzle=str(self),
        )

    def recast(self, from_bits: int, to_bits: int) -> Swizzle:
        """The same permutation of memory, acting on offsets of elements of another width.

        Law: with q = to_bits / from_bits, ``recast.apply(x) * q == apply(x * q)``.

        Args:
            from_bits: bits of the elements whose offsets this swizzle permutes.
            to_bits: bits of the elements whose offsets the result permutes.

        Raises:
            NotExpressibleError: the widths differ by no power of two (elements straddle the pieces that move), or
                the wider elements would be torn apart.

        The 128-byte mode of the hardware permutes 16-byte chunks, eight halves each:

        >>> Swizzle(3, 4, 3).recast(8, 16)
        Swizzle(bits=3, base=3, shift=3)
        """
        from_bits, to_bits = _integer("from_bits", from_bits), _integer("to_bits", to_bits)
        for name, width in (("from_bits", from_bits), ("to_bits", to_bits)):
            if width < 1:
                raise RangeError(f"recast: {name} is {width}; an element has at least one bit")
        if self.is_identity or from_bits == to_bits:
            return self
        large, small = max(from_bits, to_bits), min(from_bits, to_bits)
        ratio = large // small
        if large % small or ratio & (ratio - 1):
            raise NotExpressibleError(
                f"recast of {self} from {from_bits}- to {to_bits}-bit elements: the widths differ by no power of two, "
                f"so elements straddle the pieces of {from_bits << self.base} bits that the swizzle moves",
                from_bits=from_bits,
                to_bits=to_bits,
            )
        step = ratio.bit_length() - 1
        base = self.base + step if from_bits > to_bits else self.base - step
        if base < 0:
            raise NotExpressibleError(
                f"recast of {self} from {from_bits}- to {to_bits}-bit elements: it moves pieces of "
                f"{from_bits << self.base} bits, which would tear an element of {to_bits} bits apart",
                index=1 << self.base,
                from_bits=from_bits,
                to_bits=to_bits,
            )
        return Swizzle(self.bits, base, self.shift)

    def base_alignment(self, dtype: Dtype | str) -> int:
        """Bytes to which the base address must be aligned so that swizzling offsets equals swizzling addresses.

        Law: ``base % (base_alignment // itemsize) == 0`` implies ``apply(base + x) == base + apply(x)``, in elements.

        >>> Swizzle(3, 3, 3).base_alignment("float16")
        1024
        """
        bits = dtype_of(dtype).bits
        return math.lcm(self.period * bits, 8) // 8

    @classmethod
    def parse(cls, text: str) -> Swizzle:
        """Read ``Sw<B,M,S>`` or ``Swizzle<B,M,S>``.

        Raises:
            NotationError: anything else.
            RangeError: the numbers make no swizzle.

        >>> Swizzle.parse("Sw<2,4,-3>")
        Swizzle(bits=2, base=4, shift=-3)
        """
        if not isinstance(text, str):
            raise LayoutError(f"the notation of a swizzle is a str, not {text!r}")
        match = _PATTERN.match(text)
        if match is None:
            raise NotationError("expected a swizzle such as Sw<3,3,3>", text=text, position=0)
        if text[match.end() :].strip():
            raise NotationError("unexpected text after the swizzle", text=text, position=match.end())
        bits, base, shift = map(int, match.groups())
        return cls(bits, base, shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"

    def __repr__(self) -> str:
        return f"Swizzle(bits={self.bits}, base={self.base}, shift={self.shift})"


def _integer(name: str, value: Any) -> int:
    found = as_number(value, name)
    if type(found) is not int:
        raise RangeError(f"{name} must be a number, not the symbolic {value!r}")
    return found


def row_xor(rows: int, chunks: int, *, chunk_elements: int = 1) -> Swizzle:
    """The swizzle that stores chunk c of row r at chunk ``c ^ (r mod period)`` of the same row.

    Args:
        rows: rows of the tile.
        chunks: chunks per row, a power of two.
        chunk_elements: elements per chunk, a power of two; the swizzle acts on element offsets.

    Raises:
        NotExpressibleError: ``chunks`` is no power of two, so some chunk leaves its row; ``facts`` count the chunks
            ``out_of_row`` and ``out_of_tile`` and the ``distinct`` targets (of up to 2^18 chunks), and name the
            ``first`` fault.
        RangeError: a size below 1, or ``chunk_elements`` no power of two.

    >>> print(row_xor(64, 8, chunk_elements=8))
    Sw<3,3,3>
    """
    sizes = (("rows", rows), ("chunks", chunks), ("chunk_elements", chunk_elements))
    rows, chunks, chunk_elements = (_integer(name, value) for name, value in sizes)
    for name, value in sizes:
        if value < 1:
            raise RangeError(f"row_xor: {name} is {value}; it must be at least 1")
    if chunk_elements & (chunk_elements - 1):
        raise RangeError(f"row_xor: chunk_elements is {chunk_elements}, no power of two")
    if rows == 1:
        return Swizzle(0, chunk_elements.bit_length() - 1, 0)
    if chunks & (chunks - 1):
        raise _row_fault(rows, chunks)
    width = chunks.bit_length() - 1
    return Swizzle(min(width, (rows - 1).bit_length()), chunk_elements.bit_length() - 1, width)


def _row_fault(rows: int, chunks: int) -> NotExpressibleError:
    """Say what XORing row and chunk numbers does to rows whose length is no power of two."""
    # Rows repeat the pattern of the first `period` ones; the tile's last rows matter for what leaves the tile.
    period = min(1 << (rows - 1).bit_length(), 1 << (chunks.bit_length() - 1))
    where = ((row, chunk, chunk ^ (row % period)) for row in range(rows) for chunk in range(chunks))
    whole = rows * chunks <= _COUNTED
    out_of_row = out_of_tile = 0
    owner: dict[int, tuple[int, int]] = {}
    first = ""
    for row, chunk, target in islice(where, _COUNTED):
        place = row * chunks + target
        if target >= chunks:
            out_of_row += 1
            out_of_tile += place >= rows * chunks
            first = first or f"chunk {chunk} of row {row} goes to chunk {target} of a row of {chunks}"
        elif place in owner:
            first = first or f"chunk {chunk} of row {row} lands on chunk {owner[place][1]} of row {owner[place][0]}"
        owner.setdefault(place, (row, chunk))
    silent = "no chunk leaves its row, but the row's number is no bit of the offset, which is all a swizzle sees"
    why = first or (silent if whole else f"the row's number is no bit of the offset (chunks looked at: {_COUNTED})")
    counts = {"out_of_row": out_of_row, "out_of_tile": out_of_tile, "distinct": len(owner)} if whole else {}
    return NotExpressibleError(
        f"row_xor: rows of {chunks} chunks are no power of two long: {why}. "
        f"Pad rows to {1 << (chunks - 1).bit_length()} chunks, or swizzle parts of {chunks & -chunks} chunks",
        rows=rows,
        chunks=chunks,
        period=period,
        first=first,
        **counts,
    )


def straddlers(dtype: Dtype | str, *, chunk_bytes: int, region_bytes: int) -> tuple[int, ...]:
    """Densely packed elements of a region that lie across a boundary of the chunks a byte swizzle moves.

    Such elements are torn apart by the swizzle, so no swizzle of element offsets equals it.

    Args:
        dtype: the element type.
        chunk_bytes: bytes that stay together (2^M of a swizzle on bytes).
        region_bytes: bytes of the region; elements that do not fit whole are not counted.

    >>> straddlers("float6_e2m3fn", chunk_bytes=16, region_bytes=128)
    (21, 42, 85, 106, 149)
    """
    bits = dtype_of(dtype).bits
    chunk = 8 * chunk_bytes
    whole = 8 * region_bytes // bits
    edges = range(chunk, 8 * region_bytes, chunk)
    return tuple(edge // bits for edge in edges if edge % bits and edge // bits < whole)
