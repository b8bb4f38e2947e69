"""The table of tensor-memory instructions (PTX ISA 9.7.16, tcgen05)."""

from __future__ import annotations

from collections.abc import Iterator

from verify.ptx.ops_base import (
    Kind,
    Operation,
    Slot,
    TmemAlloc,
    TmemDealloc,
    TmemFence,
    TmemLoad,
    TmemRelinquish,
    TmemStore,
    TmemWait,
)

__all__ = ["REPEATS", "WORDS", "tmem_operations"]

WORDS = {"32x32b": 1, "16x64b": 1, "16x32bx2": 1, "16x128b": 2, "16x256b": 4}
"""Registers per thread of the ``.x1`` form (ISA tables of 9.7.16.8)."""

REPEATS = {shape: tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * words <= 128) for shape, words in WORDS.items()}
"""Admissible ``.num``: as many as keep the vector within 128 registers."""


def tmem_operations() -> Iterator[Operation]:
    """Every row of this part of the table."""
    group = "tcgen05.alloc.cta_group::1.sync.aligned"
    slots = (Slot(Kind.ADDRESS, 32), Slot(Kind.VALUE))
    for space in ("shared::cta", "shared"):
        yield Operation(f"{group}.{space}.b32", slots, TmemAlloc(), "9.7.16.7.1")
    dealloc = (Slot(Kind.VALUE), Slot(Kind.VALUE))
    yield Operation("tcgen05.dealloc.cta_group::1.sync.aligned.b32", dealloc, TmemDealloc(), "9.7.16.7.1")
    relinquish = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned"
    yield Operation(relinquish, (), TmemRelinquish(), "9.7.16.7.1")
    yield from _transfers()
    for which in ("ld", "st"):
        yield Operation(f"tcgen05.wait::{which}.sync.aligned", (), TmemWait(which == "st"), "9.7.16.8.5")
    for which in ("before", "after"):
        yield Operation(f"tcgen05.fence::{which}_thread_sync", (), TmemFence(which == "before"), "9.7.16.11")


def _transfers() -> Iterator[Operation]:
    for shape, words in WORDS.items():
        offset = (Slot(Kind.CONSTANT),) if shape == "16x32bx2" else ()
        for repeat in REPEATS[shape]:
            name, count, address = f"{shape}.x{repeat}", words * repeat, Slot(Kind.ADDRESS, 32)
            for packed in (False, True):
                loaded = Slot(Kind.RESULTS, 32, count=count)
                stored = Slot(Kind.VALUES, 32, count=count)
                pack, unpack = (".pack::16b", ".unpack::16b") if packed else ("", "")
                yield Operation(
                    f"tcgen05.ld.sync.aligned.{name}{pack}.b32",
                    (loaded, address, *offset),
                    TmemLoad(shape, repeat, packed),
                    "9.7.16.8.3",
                )
                yield Operation(
                    f"tcgen05.st.sync.aligned.{name}{unpack}.b32",
                    (address, *offset, stored),
                    TmemStore(shape, repeat, packed),
                    "9.7.16.8.4",
                )
