"""Addresses as C expressions: a layout's own evaluation, run on :class:`codegen_cuda.expr.Expr`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Atom, Expr
from codegen_cuda.permute.problem import Layout, Problem, inner
from layoutalg.index import Affine
from layoutalg.iters import vector_at
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout

__all__ = [
    "address",
    "constant_offset",
    "count_operations",
    "lane_variable",
    "require_plain",
    "slot_variable",
    "stage_terms",
    "warp_variable",
]


def lane_variable() -> Expr:
    """Return the lane as an expression."""
    return Expr.var("lane", 0, 31)


def warp_variable(problem: Problem) -> Expr:
    """Return the warp as an expression; 0 where there is only one."""
    return Expr.of(0) if problem.warps == 1 else Expr.var("warp", 0, problem.warps - 1)


def slot_variable(problem: Problem, register: int) -> Expr:
    """Return the slot that a register stands for: itself, or one per warp."""
    return warp_variable(problem) + register * problem.warps


def require_plain(problem: Problem, form: str) -> None:
    """Refuse swizzles that have no C formula over index arithmetic.

    Raises:
        PlanError: rule ``form``.
    """
    for layout in (problem.source, problem.destination):
        if not isinstance(layout, SwizzledLayout):
            continue
        # Bits are taken of sums, which C only does for numbers that are known not to be negative.
        downwards = any(it.stride < 0 for it in layout.inner.shard)
        if downwards or not isinstance(layout.swizzle, Swizzle):
            raise PlanError(
                f"permute_layout: the {form} form spells addresses with index arithmetic, which does not express "
                f"{layout}; gf2 and table do (plan='auto')",
                rule="form",
                form=form,
            )


def address(layout: Layout, element: Expr) -> Expr:
    """Return the coordinate of an element, stages included.

    >>> from layoutalg import TileLayout
    >>> print(address(TileLayout.parse("S[(4,32):(1,4)] + 128*s[0:2]"), lane_variable() + 32))
    s * 128 + lane * 4 + 1
    """
    if isinstance(layout, SwizzledLayout):
        # Stages move a swizzled layout by whole periods, which pass through the swizzle.
        tile, period = _tile(layout, element), layout.swizzle.period
        whole = constant_offset(layout)
        start = whole % period
        start += max(0, -(-(-tile.bounds()[0] - start) // period)) * period
        assert isinstance(layout.swizzle, Swizzle)  # require_plain refuses others
        return stage_terms(layout) + _swizzled(layout.swizzle, tile + start) + (whole - start)
    return stage_terms(layout) + _tile(layout, element) + constant_offset(layout)


def _swizzled(swizzle: Swizzle, x: Expr) -> Expr:
    """Return ``x ^ ((x >> S) & mask)`` or its mirror image, with the mask simplified by the bits that x may have."""
    low = ((1 << swizzle.bits) - 1) << swizzle.base
    if not swizzle.bits:
        return x
    moved = (x >> swizzle.shift).masked(low) if swizzle.shift > 0 else x.masked(low) << -swizzle.shift
    return x ^ moved


def _tile(layout: Layout, element: Expr) -> Expr:
    total = Expr.of(0)
    for value in vector_at(inner(layout).shard, element).values():
        total = total + value
    return total


def constant_offset(layout: Layout) -> int:
    """Return the part of a layout's offset that does not depend on the stage."""
    offset = inner(layout).offset.get("m", 0)
    return int(offset.const if isinstance(offset, Affine) else offset)


def stage_terms(layout: Layout) -> Expr:
    """Return what the stage parameters add to every coordinate."""
    offset = inner(layout).offset.get("m", 0)
    total = Expr.of(0)
    for param, c in offset.terms if isinstance(offset, Affine) else ():
        total = total + Expr.var(param.name, param.begin, param.end - 1) * c
    return total


def count_operations(addresses: Callable[[int], Iterable[Expr]], registers: int) -> int:
    """Estimate the instructions that compute the addresses of all registers, common parts once.

    Constants come with the access.  A few registers are counted, the rest is taken to be like them.

    >>> lane = lane_variable()
    >>> count_operations(lambda r: [lane * 4 + r, (lane // 8) * 32 + lane], 2)
    4
    """
    texts = [list(addresses(r)) for r in range(max(0, registers - 2), registers)]
    last, both = _count(texts[-1]), _count(e for text in texts for e in text)
    return both + max(0, registers - 2) * (both - last)


def _count(addresses: Iterable[Expr]) -> int:
    forms = {address.terms for address in addresses}
    products: set[tuple[Atom, int]] = set()
    atoms: set[Atom] = set()
    total = 0
    stack = list(forms)
    seen = set(forms)
    while stack:
        terms = stack.pop()
        total += max(0, len(terms) - 1)
        for atom, c in terms:
            if c not in (1, -1):
                products.add((atom, abs(c)))
            atoms.add(atom)
            for part in (atom.operand, atom.other):
                if part is not None and part.terms not in seen:
                    seen.add(part.terms)
                    stack.append(part.terms)
    work = sum(4 if a.op in "/%" and a.constant & (a.constant - 1) else 1 for a in atoms if a.operand is not None)
    return total + len(products) + work
