"""Inverses: from an address back to an index, on either side.

A right inverse R lists, for the addresses 0, 1, 2, ..., an index that reaches each: ``A(R(i)) = i``.  A left inverse L
takes the address of any element back to its index: ``L(A(i)) = i``; it exists only if no two elements share a place.

*By digits.*  Sort A's iters by stride.  While the next stride is the number N of addresses reached so far, that iter's
place value is R's next digit; when all further strides exceed N, address N is not reached and R ends.  For L the
strides must divide one another: the digit between s_k and s_{k+1} of an address is A's digit k, worth its place value.

    A = S[(6,4,2):(8,1,4)]: strides 1, 4, 8 have place values 2, 1, 8, so R = S[(6,2,4):(8,1,2)].

*By search.*  Otherwise a right inverse grows digit by digit: a layout of the first N addresses and an index that
reaches N give the next stride, and as many steps as A allows.  A left inverse is a list of place values for some
system of digits; systems of prime digits suffice, and each gives linear equations over the integers, which are solved
exactly.  Both searches are exhaustive, so "there is none" is a proof; a search beyond its budget is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.addresses import check_concrete, cosize, memory_axis, start_of
from layoutalg.algebra.canonical import canonical_shard
from layoutalg.axis import Axis
from layoutalg.errors import NotExpressibleError, RangeError, UndecidedError
from layoutalg.iters import Iter, Iters, size_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from layoutalg.tile import TileLayout

__all__ = ["left_inverse", "right_inverse"]

#: Layouts that no digit rule inverts are tabulated up to this many elements.
MAX_TABLE = 1 << 20
#: Steps after which a search gives up.
MAX_NODES = 20_000


def right_inverse(a: TileLayout) -> TileLayout:
    """Return the largest layout R with ``A(R(i)) = i`` for every i.

    Raises:
        AxisError: A lives on several axes or on a thread axis.
        RangeError: A has replicas.
        NotExpressibleError: no element lies at address 0.
        UndecidedError: symbols, or a layout too large for the search.

    >>> from layoutalg.tile import TileLayout
    >>> print(right_inverse(TileLayout.parse("S[(6,4,2):(8,1,4)]")))
    S[(6,2,4):(8,1,2)]
    """
    iters, start, axis = _operand(a, "right_inverse")
    found = _right_by_digits(iters, axis) if start == 0 else None
    if found is not None:
        return _layout(found, axis, 0)
    if size_of(iters) > MAX_TABLE:
        raise UndecidedError(f"right_inverse: {a} does not nest; such layouts are decided up to {MAX_TABLE} elements")
    values = _table(iters, start, axis)
    return _RightSearch(values, a, axis).best()


def _operand(a: TileLayout, what: str) -> tuple[Iters, int, Axis]:
    """Return canonical shard, start and axis of a layout without replicas."""
    check_concrete(a, what)
    axis = memory_axis(a, what)
    if any(it.extent > 1 and it.stride for it in a.replica):
        raise RangeError(f"{what}: {a} has replicas, so an address does not name one index")
    return canonical_shard(a.shard), start_of(a, axis, what), axis


def _layout(iters: Iters, axis: Axis, start: int) -> TileLayout:
    from layoutalg.tile import _make

    return _make(canonical_shard(iters), (), {axis: start} if start else {})


def _table(iters: Iters, start: int, axis: Axis) -> NDArray[np.int64]:
    from layoutalg.algebra.evaluate import table_of_iters

    return table_of_iters(iters, {axis: start}, (axis,))[axis]


def _placed(iters: Iters) -> list[tuple[int, int, int]]:
    """Return (stride, extent, place value) of the iters that move, in increasing stride."""
    placed = [(it.stride, it.extent, int(size_of(iters[k + 1 :]))) for k, it in enumerate(iters) if it.stride]
    return sorted(placed)


def _right_by_digits(iters: Iters, axis: Axis) -> Iters | None:
    reached = 1
    digits: list[Iter] = []
    for stride, extent, place in _placed(iters):
        if stride < reached:
            return None
        if stride > reached:
            break
        digits.append(Iter(extent, place, axis))
        reached *= extent
    return tuple(reversed(digits))


class _RightSearch:
    """Grow right inverses digit by digit, innermost first, over every choice of preimages."""

    def __init__(self, values: NDArray[np.int64], a: TileLayout, axis: Axis) -> None:
        self.values, self.a, self.axis = values, a, axis
        self.budget = MAX_NODES
        self.found: tuple[int, list[Iter], int] = (0, [], 0)
        self.preimages: dict[int, list[int]] = {}
        for index, value in enumerate(values.tolist()):
            self.preimages.setdefault(value, []).append(index)
        self.bound = next(n for n in range(len(values) + 1) if n not in self.preimages)

    def best(self) -> TileLayout:
        import numpy as np

        if not self.bound:
            raise NotExpressibleError(
                f"right_inverse: no element of {self.a} lies at address 0, so not even [0, 1) can be inverted", index=0
            )
        for start in self.preimages[0]:
            self.grow(np.array([start]), [], start)
        _, digits, start = self.found
        return _layout(tuple(reversed(digits)), self.axis, start)

    def grow(self, inverse: NDArray[np.int64], digits: list[Iter], start: int) -> None:
        """Extend a right inverse of the first len(inverse) addresses by every possible next digit."""
        import numpy as np

        reached = len(inverse)
        if reached > self.found[0]:
            self.found = (reached, digits, start)
        if self.found[0] == self.bound:
            return
        self.budget -= 1
        if self.budget < 0:
            raise UndecidedError(f"right_inverse: the search for {self.a} took over {MAX_NODES} steps")
        for index in self.preimages.get(reached, []):
            stride = index - start
            blocks = [inverse]
            while self._reaches(blocks[-1] + stride, len(blocks) * reached):
                blocks.append(blocks[-1] + stride)
            # With one preimage each, a shorter digit could only be continued by its own stride.
            shortest = 2 if any(len(x) > 1 for x in self.preimages.values()) else len(blocks)
            for extent in range(len(blocks), max(1, shortest - 1), -1):
                self.grow(np.concatenate(blocks[:extent]), [*digits, Iter(extent, stride, self.axis)], start)

    def _reaches(self, indices: NDArray[np.int64], first: int) -> bool:
        """Say whether these indices lie inside and reach the addresses from ``first`` on."""
        import numpy as np

        if int(indices.min()) < 0 or int(indices.max()) >= len(self.values):
            return False
        return bool((self.values[indices] == np.arange(first, first + len(indices))).all())


def left_inverse(a: TileLayout) -> TileLayout:
    """Return a layout L with ``L(A(i)) = i`` for every i; addresses that A does not reach go anywhere.

    Raises:
        AxisError: A lives on several axes or on a thread axis.
        RangeError: A has replicas, or reaches below 0.
        NotExpressibleError: two elements share an address, or no layout inverts A.
        UndecidedError: symbols, or a layout too large for the search.

    >>> from layoutalg.tile import TileLayout
    >>> print(left_inverse(TileLayout.parse("S[(160,128):(1,65536)]")))
    S[(128,65536):(1,128)]
    """
    from layoutalg.algebra.image import first_collision

    iters, start, axis = _operand(a, "left_inverse")
    shared = first_collision(a)
    if shared is not None:
        raise NotExpressibleError(
            f"left_inverse: indices {shared[0]} and {shared[1]} of {a} share a place", index=shared[1], other=shared[0]
        )
    low = start + sum(min(0, (it.extent - 1) * it.stride) for it in iters)
    if low < 0:
        raise RangeError(f"left_inverse: {a} reaches address {low}; addresses start at 0", lowest=low)
    found = _left_by_digits(iters, axis) if start == 0 else None
    if found is not None:
        return _layout(found, axis, 0)
    if size_of(iters) > MAX_TABLE:
        raise UndecidedError(f"left_inverse: {a} does not nest; such layouts are decided up to {MAX_TABLE} elements")
    search = _LeftSearch(_table(iters, start, axis).tolist(), cosize(a), a)
    extents, values = search.solve()
    digits = tuple(Iter(e, v, axis) for e, v in zip(extents, values, strict=False))
    return _layout(tuple(reversed(digits)), axis, values[-1])


def _left_by_digits(iters: Iters, axis: Axis) -> Iters | None:
    placed = _placed(iters)
    if any(stride < 0 for stride, _, _ in placed):
        return None
    if any(wide % narrow or narrow * extent > wide for (narrow, extent, _), (wide, _, _) in pairwise(placed)):
        return None
    digits: list[Iter] = []
    below, worth = 1, 0  # the place value so far, and what one step of the digit at it is worth
    for stride, _, place in placed:
        digits.append(Iter(stride // below, worth, axis))
        below, worth = stride, place
    digits.append(Iter(placed[-1][1] if placed else 1, worth, axis))
    return tuple(reversed(digits))


class _Lattice:
    """The integer solutions of linear equations: a point plus all integer combinations of a basis."""

    def __init__(self, point: list[int], basis: list[list[int]]) -> None:
        self.point, self.basis = point, basis

    def meet(self, row: Sequence[int], value: int) -> bool:
        """Keep the solutions with ``row . x == value``; say whether any are left."""

        def dot(x: Sequence[int]) -> int:
            return sum(r * y for r, y in zip(row, x, strict=True))

        rest = value - dot(self.point)
        images = [dot(b) for b in self.basis]
        moving = [k for k, image in enumerate(images) if image]
        while len(moving) > 1:  # Euclid on the basis: all but one vector end up inside the equation
            pivot = min(moving, key=lambda k: abs(images[k]))
            for k in moving:
                if k != pivot:
                    times = images[k] // images[pivot]
                    self.basis[k] = [x - times * y for x, y in zip(self.basis[k], self.basis[pivot], strict=True)]
                    images[k] -= times * images[pivot]
            moving = [k for k in moving if images[k]]
        if not moving:
            return rest == 0
        times, uneven = divmod(rest, images[moving[0]])
        along = self.basis.pop(moving[0])
        self.point = [x + times * y for x, y in zip(self.point, along, strict=True)]
        return uneven == 0


class _LeftSearch:
    """Look for a system of prime digits in which index is a linear function of the digits of the address."""

    def __init__(self, addresses: list[int], end: int, a: TileLayout) -> None:
        self.pairs = sorted(zip(addresses, range(len(addresses)), strict=True))
        self.end, self.a = end, a
        self.budget = MAX_NODES

    def solve(self) -> tuple[list[int], list[int]]:
        """Return digit extents, innermost first, and their worths followed by the offset."""
        found = self.extend([], 1)
        if found is None:
            raise NotExpressibleError(f"left_inverse: no layout takes the addresses of {self.a} back to their indices")
        return found

    def extend(self, extents: list[int], below: int) -> tuple[list[int], list[int]] | None:
        """Add digits to a system whose digits below ``below`` are chosen; the last digit has no end."""
        self.budget -= 1
        if self.budget < 0:
            raise UndecidedError(f"left_inverse: the search for {self.a} took over {MAX_NODES} steps")
        closed = 2 * below >= self.end
        solution = self._worths(extents, below, closed=closed)
        if solution is None:
            return None
        if closed:
            return [*extents, max(1, -(-self.end // below))], solution
        for extent in _primes(self.end):
            if below * extent >= self.end:
                break
            found = self.extend([*extents, extent], below * extent)
            if found is not None:
                return found
        return None

    def _worths(self, extents: list[int], below: int, *, closed: bool) -> list[int] | None:
        """Solve for the worths: within one value of the digits above, or of everything once the system is closed."""
        count = len(extents) + 2  # the last digit and the offset
        lattice = _Lattice([0] * count, [[int(k == j) for k in range(count)] for j in range(count)])
        before: tuple[int, list[int], int] | None = None
        for address, index in self.pairs:
            row = [*self._digits(address, extents), 0, 1]
            above = address // below
            if closed:
                row[-2] = above
                if not lattice.meet(row, index):
                    return None
            elif before is not None and before[0] == above:
                difference = [x - y for x, y in zip(row, before[1], strict=True)]
                if not lattice.meet(difference, index - before[2]):
                    return None
            before = (above, row, index)
        return lattice.point

    def _digits(self, address: int, extents: list[int]) -> list[int]:
        digits = []
        for extent in extents:
            address, digit = divmod(address, extent)
            digits.append(digit)
        return digits


def _primes(end: int) -> Any:
    """Yield the primes below an end."""
    return (p for p in range(2, end) if all(p % q for q in range(2, int(p**0.5) + 1)))
