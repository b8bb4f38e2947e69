"""Code that moves register words between global memory and registers: addresses as layouts of the thread.

For one register word the global address is a table over threads.  Read off as a layout (the recogniser), it becomes an
expression of the thread's index, so the addresses in the emitted code come from the same layouts as the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.body import If, Let, LetPointer, Statement, Store, compare, let, let_pointer
from codegen_cuda.buffers import Buffer, declare
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.tmem.problem import Ints
from codegen_cuda.values import Literal, Value
from codegen_cuda.words import cast
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import m
from layoutalg.errors import NotExpressibleError
from layoutalg.hardware.dtypes import dtype
from layoutalg.iters import vector_at

__all__ = ["Access", "Group", "emit_reads", "emit_writes"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One register word and the global elements behind its parts.

    Args:
        word: index into the register array.
        address: per warp, lane and part, in units of ``bits``; anything where not ``active``.
        active: which of them take part.  Addresses of the others do not matter.
    """

    word: int
    address: Ints
    active: Bools


@dataclass(frozen=True, slots=True)
class Group:
    """Who moves: the warps, and the variables that name a thread of theirs."""

    warps: tuple[int, ...]
    thread: Expr
    lane: Expr
    warp: Expr


def widen(accesses: Sequence[Access], bits: int) -> tuple[list[Access], int]:
    """Access 32-bit words instead of their parts where every word is contiguous and aligned."""
    per = 32 // bits
    if per == 1:
        return list(accesses), 32
    for access in accesses:
        first = access.address[..., :1]
        whole = (access.active == access.active[..., :1]).all()
        runs = (access.address == first + np.arange(per)) & (first % per == 0)
        if not (whole and (runs | ~access.active).all()):
            return list(accesses), bits
    return [Access(a.word, a.address[..., :1] // per, a.active[..., :1]) for a in accesses], 32


def emit_reads(accesses: Sequence[Access], group: Group, bits: int, source: Buffer, array: Buffer) -> list[Statement]:
    """Return statements that fill ``array`` from ``source``; every word of every thread is complete."""
    accesses, unit = widen(accesses, bits)
    pointer, view = _words("in", source, unit)

    def fill(access: Access, places: list[Expr]) -> list[Statement]:
        word = cast("uint32", view[places[0]])
        for i, place in enumerate(places[1:], start=1):
            word = word | cast("uint32", view[place]) << unit * i
        return [Store(array[access.word], word)]

    return [pointer, *_by_warp(accesses, group, fill)]


def emit_writes(accesses: Sequence[Access], group: Group, bits: int, target: Buffer, array: Buffer) -> list[Statement]:
    """Return statements that write the active parts of ``array`` to ``target``."""
    accesses, unit = widen(accesses, bits)
    pointer, view = _words("out", target, unit)

    def empty(access: Access, places: list[Expr]) -> list[Statement]:
        found = []
        for part, place in enumerate(places):
            if access.active[..., part].any():
                word: Value = array[access.word] >> unit * part if part else array[access.word]
                store = Store(view[place], cast(view.dtype, word))
                found.append(_guarded(access.active[..., part], group.lane, store))
        return found

    return [pointer, *_by_warp(accesses, group, empty)]


def _words(name: str, buffer: Buffer, unit: int) -> tuple[LetPointer, Buffer]:
    """Bind a pointer to units of so many bits, and return a flat view through it."""
    if unit not in (8, 16, 32):
        raise PlanError(
            f"tmem: no C type of {unit} bits; arrange the layouts so that whole 32-bit words are contiguous in memory",
            rule="width",
        )
    kind = dtype(f"uint{unit}")
    binding = let_pointer(name, kind, buffer.data)
    count = -(-buffer.span * buffer.dtype.bits // unit)
    return binding, declare(name, (count,), kind, data=binding.pointer)


def _guarded(active: Bools, lane: Expr, store: Store) -> Statement:
    """Put a store under a condition on the lane, equal in all warps; none where all lanes are active."""
    if active.all():
        return store
    mask = sum(1 << lane for lane in range(32) if active[0, lane])
    return If(compare((Literal(mask, dtype("uint32")) >> lane) & 1, "!=", 0), (store,))


_Make: TypeAlias = Callable[[Access, list[Expr]], list[Statement]]


def _by_warp(accesses: Sequence[Access], group: Group, make: _Make) -> list[Statement]:
    """Straight code over the thread index where all warps agree on it, else one branch per warp."""
    warps = group.warps
    uniform = all((a.active == a.active[:1]).all() for a in accesses)
    if uniform and warps == tuple(range(len(warps))):
        try:
            return _statements(accesses, group.thread.within(0, 32 * len(warps) - 1), make)
        except NotExpressibleError:
            pass
    if len(warps) == 1:
        return _statements(accesses, group.lane, make)
    statements: list[Statement] = []
    for index, warp in enumerate(warps):
        own = [Access(a.word, a.address[index : index + 1], a.active[index : index + 1]) for a in accesses]
        own = [a for a in own if a.active.any()]
        if own:
            statements.append(If(compare(group.warp, "==", warp), tuple(_statements(own, group.lane, make))))
    return statements


def _statements(accesses: Sequence[Access], index: Expr, make: _Make) -> list[Statement]:
    """Return the accesses, with addresses that differ by constants computed once."""
    places: dict[bytes, Let] = {}
    body: list[Statement] = []
    for access in accesses:
        found: list[Expr] = []
        for part in range(access.address.shape[-1]):
            column = access.address[..., part].reshape(-1)
            active = access.active[..., part].reshape(-1)
            start = int(column[np.argmax(active)]) if active.any() else 0
            relative = column - start
            key = relative.tobytes()
            if key not in places:
                places[key] = let(f"place{len(places)}", _expression(relative, index))
            found.append(places[key].var + start)
        body += make(access, found)
    return [*places.values(), *body]


def _expression(table: Ints, index: Expr) -> Expr:
    try:
        iters, offset = recognise_values({m: table})
    except NotExpressibleError as error:
        if index.bounds()[1] > 31:
            raise
        raise PlanError(
            f"tmem: the global addresses of one register are no layout of the lane (at lane {error.index}); choose a "
            "global layout in which every lane digit has one stride, such as row-major",
            rule="global",
        ) from error
    total = Expr.of(int(offset.get(m, 0)))
    for value in vector_at(iters, index).values():
        total = total + value
    return total
