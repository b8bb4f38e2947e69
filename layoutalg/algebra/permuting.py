"""Reordering: transpose the logical dimensions, the iters, or groups of iters of a layout.

Reordering the digits of a layout reorders its dimensions and nothing else: with ``(4:8, 8:1)`` as a (4, 8) tensor,
``(8:1, 4:8)`` is the (8, 4) tensor whose element (j, i) lives where (i, j) did.

A dimension may have several digits.  They move together, in their own order: ``(2:32, 4:1, 8:4)`` as a (2, 32) tensor
has the groups (2:32) and (4:1, 8:4), and transposed it is ``(4:1, 8:4, 2:32)``, a (32, 2) tensor.  So to permute
dimensions is to group by the shape first (:mod:`layoutalg.algebra.grouping`) and then to reorder the groups.  No place
changes, so replicas and offset stay, and every permutation of the dimensions is expressible once the shape groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layoutalg.decide import as_number
from layoutalg.errors import RangeError
from layoutalg.iters import Iters

__all__ = ["check_permutation", "permute_groups"]


def check_permutation(dims: object, rank: int, what: str) -> tuple[int, ...]:
    """Return dims as a tuple of ints, each of 0..rank-1 once; negative ones count from the end.

    Raises:
        RangeError: not a permutation, with what is missing or repeated.

    >>> check_permutation((1, -2), 2, "dimensions")
    (1, 0)
    """
    if isinstance(dims, str) or not isinstance(dims, Iterable) or getattr(dims, "shape", None) == ():
        raise RangeError(f"permute: {dims!r} is no list of {what}", dims=dims, rank=rank)
    order = []
    for dim in dims:
        value = as_number(dim, "a dimension")
        if type(value) is not int or not -rank <= value < rank:
            raise RangeError(f"permute: {dim!r} is no dimension of {rank} {what}", dims=tuple(dims), rank=rank)
        order.append(value % rank)
    missing = sorted(set(range(rank)) - set(order))
    if missing or len(order) != rank:
        raise RangeError(
            f"permute: {tuple(dims)} is no permutation of {rank} {what}: "
            + (f"{', '.join(map(str, missing))} missing" if missing else "some dimension is repeated"),
            dims=tuple(dims),
            rank=rank,
        )
    return tuple(order)


def permute_groups(iters: Iters, seps: Sequence[int], order: Sequence[int]) -> Iters:
    """Return the groups ``iters[seps[d]:seps[d+1]]`` in the given order.

    Law (verify.laws.permuting): the result at (x[order[0]], x[order[1]], ...) is the layout at x.

    >>> from layoutalg.iters import make_iter
    >>> permute_groups((make_iter(4, 8), make_iter(2, 4), make_iter(4, 1)), (0, 1, 3), (1, 0))
    (2:4, 4:1, 4:8)
    """
    return tuple(it for dim in order for it in iters[seps[dim] : seps[dim + 1]])
