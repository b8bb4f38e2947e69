"""Operands on which every pure instruction is tried: edge values of its widths, and random ones."""

from __future__ import annotations

import random

from verify.ptx.ops import table
from verify.ptx.ops_base import Compute, Kind, Operation

SEED = 20

PURE = [row for rows in table().values() for row in rows if isinstance(row.effect, Compute)]
PURE = [row for row in PURE if not {Kind.SYMBOL, Kind.SPECIAL} & {slot.kind for slot in row.slots}]


def input_widths(operation: Operation) -> list[int]:
    return [slot.width for slot in operation.slots[1:] for _ in range(slot.count)]


def edges(width: int, rng: random.Random) -> list[int]:
    if width == 1:
        return [0, 1]
    values = {0, 1, 2, 3, 4, 31, 32, 33, 255, width - 1, width, width + 1, (1 << width) - 1, 1 << (width - 1)}
    values |= {(1 << (width - 1)) - 1, (1 << (width - 1)) + 1, 0x1F1F, 0x7FC00000, 0x7F800000, 0x3F800000, 0x5410}
    values |= {rng.getrandbits(width) for _ in range(6)}
    return sorted(value for value in values if value < 1 << width)


def float_edges(rng: random.Random) -> list[int]:
    words = [0, 1, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 0xBF800000, 0x00800000, 0x007FFFFF]
    words += [0x7F7FFFFF, 0x33800000, 0x3F800001, 0x7BFF7BFF, 0x00010001, 0x3C013C01, 0xFC007C00, 0x04000400]
    return words + [rng.getrandbits(32) for _ in range(8)]


def is_floating(operation: Operation) -> bool:
    return operation.name.split(".")[-1] in ("f32", "f16x2") and operation.name[:3] in ("add", "sub", "mul", "fma")


def vectors(operation: Operation) -> list[tuple[int, ...]]:
    """Operands that matter: all pairs of edge values (sampled when there are many) and random ones."""
    rng = random.Random(f"{SEED}{operation.name}")
    is_float = is_floating(operation)
    pools = [float_edges(rng) if is_float else edges(width, rng) for width in input_widths(operation)]
    chosen = [tuple(rng.choice(pool) for pool in pools) for _ in range(400)]
    if is_float:  # near-cancellation and halfway cases
        chosen += [(a, a ^ 0x80000000, *[rng.choice(pools[0])] * (len(pools) - 2)) for a in pools[0]]
        chosen += [(a, rng.choice((0x3F800000, 0x3C003C00)), *(a ^ 0x80008001 for _ in pools[2:])) for a in pools[0]]
    return [vector for vector in chosen if defined(operation, vector)]


def defined(operation: Operation, vector: tuple[int, ...]) -> bool:
    if operation.name[:3] in ("bfi", "bfe"):
        return vector[-2] < 256 and vector[-1] < 256
    if operation.name[:3] not in ("div", "rem"):
        return True
    width = operation.slots[0].width
    overflow = operation.name[4] == "s" and vector == (1 << (width - 1), (1 << width) - 1)
    return vector[1] != 0 and not overflow
