"""Code that moves register words between global memory and registers: addresses as layouts of the thread.

For one register word the global address is a table over threads.  Read off as a layout (the recogniser), it becomes an
expression of the thread's index, so the addresses in the emitted code come from the same layouts as the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.tmem.problem import Ints
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import m
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import vector_at

__all__ = ["Access", "emit_reads", "emit_writes", "pointer_type"]

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


def pointer_type(bits: int) -> str:
    """C type of one unit.

    >>> pointer_type(16)
    'unsigned short'
    """
    names = {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}
    if bits not in names:
        raise PlanError(
            f"tmem: no C type of {bits} bits; arrange the layouts so that whole 32-bit words are contiguous in memory",
            rule="width",
        )
    return names[bits]


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


def emit_reads(accesses: Sequence[Access], warps: Sequence[int], bits: int, pointer: str, array: str) -> list[str]:
    """Return lines that fill ``array`` from ``pointer``; every word of every thread is complete."""
    accesses, unit = widen(accesses, bits)

    def line(word: int, addresses: list[str]) -> str:
        parts = [
            f"in[{address}]" if unit == 32 else f"(unsigned)in[{address}]" + (f" << {unit * i}" if i else "")
            for i, address in enumerate(addresses)
        ]
        return f"{array}[{word}] = {' | '.join(parts)};"

    head = f"const {pointer_type(unit)}* in = reinterpret_cast<const {pointer_type(unit)}*>({pointer});"
    return [head, *_by_warp(accesses, warps, lambda access, texts: [line(access.word, texts)])]


def emit_writes(accesses: Sequence[Access], warps: Sequence[int], bits: int, pointer: str, array: str) -> list[str]:
    """Return lines that write the active parts of ``array`` to ``pointer``."""
    accesses, unit = widen(accesses, bits)
    kind = pointer_type(unit)

    def lines(access: Access, texts: list[str]) -> list[str]:
        found = []
        for part, text in enumerate(texts):
            if not access.active[..., part].any():
                continue
            shifted = f"{array}[{access.word}]" + (f" >> {unit * part}" if part else "")
            value = shifted if unit == 32 else f"({kind})({shifted})"
            found.append(f"{_guard(access.active[..., part])}out[{text}] = {value};")
        return found

    head = f"{kind}* out = reinterpret_cast<{kind}*>({pointer});"
    return [head, *_by_warp(accesses, warps, lines)]


def _guard(active: Bools) -> str:
    """Condition on the lane, equal in all warps."""
    if active.all():
        return ""
    mask = sum(1 << lane for lane in range(32) if active[0, lane])
    return f"if ({mask:#010x}u >> lane & 1u) "


def _by_warp(accesses: Sequence[Access], warps: Sequence[int], make: object) -> list[str]:
    """Straight code over the thread index where all warps agree on it, else one branch per warp."""
    assert callable(make)
    uniform = all((a.active == a.active[:1]).all() for a in accesses)
    if uniform and tuple(warps) == tuple(range(len(warps))):
        try:
            return _lines(accesses, "thread", 32 * len(warps), make)
        except NotExpressibleError:
            pass
    if len(warps) == 1:
        return _lines(accesses, "lane", 32, make)
    lines: list[str] = []
    for index, warp in enumerate(warps):
        own = [Access(a.word, a.address[index : index + 1], a.active[index : index + 1]) for a in accesses]
        own = [a for a in own if a.active.any()]
        if own:
            lines += [f"if (warp == {warp}) {{", *("    " + line for line in _lines(own, "lane", 32, make)), "}"]
    return lines


def _lines(accesses: Sequence[Access], variable: str, count: int, make: object) -> list[str]:
    assert callable(make)
    index = Expr.var(variable, 0, count - 1)
    names: dict[bytes, str] = {}
    heads: list[str] = []
    body: list[str] = []
    for access in accesses:
        texts = []
        for part in range(access.address.shape[-1]):
            column = access.address[..., part].reshape(-1)
            active = access.active[..., part].reshape(-1)
            start = int(column[np.argmax(active)]) if active.any() else 0
            relative = column - start
            key = relative.tobytes()
            if key not in names:
                names[key] = f"place{len(names)}"
                heads.append(f"const int {names[key]} = {_expression(relative, index)};")
            texts.append(names[key] + (f" {'+' if start > 0 else '-'} {abs(start)}" if start else ""))
        body += make(access, texts)
    return [*heads, *body]


def _expression(table: Ints, index: Expr) -> str:
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
    return str(total)
