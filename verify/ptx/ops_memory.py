"""The table of moves, loads, stores, control flow, floating point and thread synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verify.ptx.domain import Bits, Domain
from verify.ptx.ops_base import (
    AsyncCopy,
    AsyncCopyCommit,
    AsyncCopyWait,
    BarrierArrive,
    BarrierInit,
    BarrierTryWait,
    BlockBarrier,
    Branch,
    Compute,
    Elect,
    Exit,
    Kind,
    Load,
    Operation,
    Shuffle,
    Slot,
    Store,
    Trap,
    WarpBarrier,
)

__all__ = ["memory_operations"]

_MOVE = "Data Movement and Conversion Instructions"
_TYPES = (*(f"{letter}{width}" for width in (8, 16, 32, 64) for letter in "bus"), "f32", "f64")
_LOAD_HINTS = ("", "ca", "cg", "cs")
_STORE_HINTS = ("", "wb", "cg", "cs", "wt")


def memory_operations() -> Iterator[Operation]:
    """Every row of this part of the table."""
    yield from _moves()
    yield from _loads()
    yield from _stores()
    yield from _floating()
    yield from _control()
    yield from _synchronisation()
    yield from _asynchronous()


def _moves() -> Iterator[Operation]:
    section = f"{_MOVE}: mov"
    same = Compute(lambda _d, a: a)
    for type_ in (*(f"{letter}{width}" for width in (16, 32, 64) for letter in "bus"), "f32", "f64"):
        width = int(type_[1:])
        result = Slot(Kind.RESULT, width)
        yield Operation(f"mov.{type_}", (result, Slot(Kind.VALUE, width)), same, section)
        if width >= 32 and type_[0] != "f":
            yield Operation(f"mov.{type_}", (result, Slot(Kind.SYMBOL, width)), same, section)
        if width == 32 and type_[0] != "f":
            yield Operation(f"mov.{type_}", (result, Slot(Kind.SPECIAL, width)), same, section)
    yield Operation("mov.pred", (Slot(Kind.PREDICATE_RESULT, 1), Slot(Kind.PREDICATE, 1)), same, section)
    for width, part in ((32, 16), (64, 32), (64, 16)):
        parts = width // part
        vector = Slot(Kind.VALUES, part, count=parts)
        yield Operation(f"mov.b{width}", (Slot(Kind.RESULT, width), vector), Compute(_pack(width)), section)
        vector = Slot(Kind.RESULTS, part, count=parts)
        yield Operation(f"mov.b{width}", (vector, Slot(Kind.VALUE, width)), Compute(_unpack(part, parts)), section)


def _pack(width: int) -> Callable[..., Bits]:
    def meaning(d: Domain, *parts: Bits) -> Bits:
        result = d.zext(parts[0], width)
        for index, part in enumerate(parts[1:], start=1):
            result = d.or_(result, d.shl(d.zext(part, width), d.const(index * d.width(part), width)))
        return result

    return meaning


def _unpack(part: int, count: int) -> Callable[..., Bits]:
    def meaning(d: Domain, a: Bits) -> Bits:
        return tuple(d.trunc(d.lshr(a, d.const(part * index, d.width(a))), part) for index in range(count))

    return meaning


def _vectors(space: str, width: int) -> Iterator[tuple[str, int]]:
    yield "", 1
    for count in (2, 4, 8):
        largest = 256 if space in ("global", "global.nc") and width >= 32 else 128
        if count * width <= largest and (count < 8 or width == 32):
            yield f".v{count}", count


def _loads() -> Iterator[Operation]:
    for type_ in _TYPES:
        width, signed = int(type_[1:]), type_[0] == "s"
        parameter = (Slot(Kind.RESULT, width, wider=True), Slot(Kind.PARAMETER))
        yield Operation(f"ld.param.{type_}", parameter, Load("param", width, 1, signed), f"{_MOVE}: ld")
        for prefix, space in _load_prefixes():
            for vector, count in _vectors(space, width):
                effect = Load(space.removesuffix(".nc"), width, count, signed, space.endswith(".nc"))
                result = Slot(Kind.RESULT if count == 1 else Kind.RESULTS, width, wider=True, count=count)
                address = Slot(Kind.ADDRESS, 32 if space == "shared" else 64)
                section = f"{_MOVE}: ld.global.nc" if effect.read_only else f"{_MOVE}: ld"
                yield Operation(f"{prefix}{vector}.{type_}", (result, address), effect, section)


def _load_prefixes() -> Iterator[tuple[str, str]]:
    for space in ("", "global", "global.nc", "shared", "shared::cta", "local", "const"):
        base = f"ld.{space}" if space else "ld"
        hints = _LOAD_HINTS if space in ("", "global", "global.nc") else ("",)
        plain = "shared" if space == "shared::cta" else space
        for hint in hints:
            yield f"{base}.{hint}" if hint else base, plain
        if space in ("global", "global.nc"):
            yield f"{base}.L1::no_allocate", plain
        if space in ("", "global", "shared", "shared::cta"):
            yield base.replace("ld", "ld.volatile", 1), plain


def _stores() -> Iterator[Operation]:
    for type_ in _TYPES:
        width = int(type_[1:])
        for prefix, space in _store_prefixes():
            for vector, count in _vectors(space, width):
                value = Slot(Kind.VALUE if count == 1 else Kind.VALUES, width, wider=True, count=count)
                address = Slot(Kind.ADDRESS, 32 if space == "shared" else 64)
                effect = Store(space, width, count)
                yield Operation(f"{prefix}{vector}.{type_}", (address, value), effect, f"{_MOVE}: st")


def _store_prefixes() -> Iterator[tuple[str, str]]:
    for space in ("", "global", "shared", "shared::cta", "local"):
        base = f"st.{space}" if space else "st"
        plain = "shared" if space == "shared::cta" else space
        for hint in _STORE_HINTS if space in ("", "global") else ("",):
            yield f"{base}.{hint}" if hint else base, plain
        if space == "global":
            yield f"{base}.L1::no_allocate", plain
        if space != "local":
            yield base.replace("st", "st.volatile", 1), plain


def _floating() -> Iterator[Operation]:
    for type_, section in (
        ("f32", "Floating-Point Instructions"),
        ("f16x2", "Half Precision Floating-Point Instructions"),
    ):
        for name, operands in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            slots = (Slot(Kind.RESULT), *[Slot(Kind.VALUE)] * operands)
            effect = Compute(_floating_meaning(f"{name}.rn.{type_}"))
            yield Operation(f"{name}.rn.{type_}", slots, effect, f"{section}: {name}")
            # Without .rn a product may be fused with a following sum, so that its value is not determined; a sum
            # is, since only unrounded products are fused and the table has none.
            if name in ("add", "sub"):
                yield Operation(f"{name}.{type_}", slots, effect, f"{section}: {name}")


def _floating_meaning(name: str) -> Callable[..., Bits]:
    return lambda d, *operands: d.floating(name, *operands)


def _control() -> Iterator[Operation]:
    section = "Control Flow Instructions"
    for name in ("bra", "bra.uni"):
        yield Operation(name, (Slot(Kind.LABEL),), Branch(), f"{section}: bra")
    yield Operation("ret", (), Exit(), f"{section}: ret")
    yield Operation("exit", (), Exit(), f"{section}: exit")
    yield Operation("trap", (), Trap(), "Miscellaneous Instructions: trap")


def _synchronisation() -> Iterator[Operation]:
    section = "Parallel Synchronization and Communication Instructions"
    yield Operation("bar.sync", (Slot(Kind.CONSTANT),), BlockBarrier(), f"{section}: bar, barrier")
    yield Operation("barrier.sync.aligned", (Slot(Kind.CONSTANT),), BlockBarrier(), f"{section}: bar, barrier")
    yield Operation("bar.warp.sync", (Slot(Kind.VALUE),), WarpBarrier(), f"{section}: bar.warp.sync")
    yield Operation("elect.sync", (Slot(Kind.ELECTED), Slot(Kind.VALUE)), Elect(), f"{section}: elect.sync")
    for mode in ("up", "down", "bfly", "idx"):
        slots = (Slot(Kind.SHUFFLED), *[Slot(Kind.VALUE)] * 4)
        yield Operation(f"shfl.sync.{mode}.b32", slots, Shuffle(mode), f"{_MOVE}: shfl.sync")


def _asynchronous() -> Iterator[Operation]:
    section = f"{_MOVE}: Asynchronous copy"
    for space in ("shared", "shared::cta"):
        for cache, sizes in (("cg", (16,)), ("ca", (4, 8, 16))):
            slots = (Slot(Kind.ADDRESS, 32), Slot(Kind.ADDRESS, 64), Slot(Kind.CONSTANT))
            yield Operation(f"cp.async.{cache}.{space}.global", slots, AsyncCopy(sizes), section)
    yield Operation("cp.async.commit_group", (), AsyncCopyCommit(), section)
    yield Operation("cp.async.wait_group", (Slot(Kind.CONSTANT),), AsyncCopyWait(False), section)
    yield Operation("cp.async.wait_all", (), AsyncCopyWait(True), section)
    section = "Parallel Synchronization and Communication Instructions: mbarrier"
    for space in ("shared", "shared::cta"):
        address = Slot(Kind.ADDRESS, 32)
        yield Operation(f"mbarrier.init.{space}.b64", (address, Slot(Kind.VALUE)), BarrierInit(), section)
        yield Operation(f"mbarrier.arrive.{space}.b64", (Slot(Kind.RESULT, 64), address), BarrierArrive(), section)
        slots = (Slot(Kind.PREDICATE_RESULT, 1), address, Slot(Kind.VALUE))
        yield Operation(f"mbarrier.try_wait.parity.{space}.b64", slots, BarrierTryWait(), section)
