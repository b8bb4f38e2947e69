"""Random encodings of Triton with shapes, and what Triton itself makes of them.

``python tests/triton_cases.py`` (with Triton installed) records its answers in ``data/triton_encodings.json.gz``.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layoutalg.interop.encoding_text import write_encoding
from layoutalg.interop.encodings import (
    Blocked,
    DotOperand,
    Encoding,
    Linear,
    NvidiaMma,
    NvmmaShared,
    Slice,
    SwizzledShared,
)

RECORD = Path(__file__).parent / "data" / "triton_encodings.json.gz"
NAMES = {"reg_bases": "register", "lane_bases": "lane", "warp_bases": "warp", "offset_bases": "offset"}


def cases(count: int, seed: int) -> Iterator[tuple[Encoding, tuple[int, ...]]]:
    """Encodings of every kind; shapes that Triton accepts (it aborts the process on others)."""
    rng = random.Random(seed)

    def power(low: int, high: int) -> int:
        return 1 << rng.randint(low, high)

    def split(bits: int, rank: int) -> tuple[int, ...]:
        parts = [1] * rank
        for _ in range(bits):
            parts[rng.randrange(rank)] *= 2
        return tuple(parts)

    def order(rank: int) -> tuple[int, ...]:
        return tuple(rng.sample(range(rank), rank))

    for _ in range(count):
        rank = rng.choice((1, 2, 2, 2, 3))
        parts = (split(rng.randint(0, 3), rank), split(5, rank), split(rng.randint(0, 3), rank))
        blocked = Blocked(*parts, order(rank))
        yield blocked, tuple(power(0, 7) for _ in range(rank))
        if rank > 1:
            yield Slice(rng.randrange(rank), blocked), tuple(power(0, 7) for _ in range(rank - 1))
        mma = NvidiaMma(2, split(rng.randint(0, 3), 2), (16, 8))
        wgmma = NvidiaMma(3, (4 * power(0, 1), power(0, 1)), (16, power(3, 7), 16))
        yield mma, (power(2, 7), power(1, 8))
        yield wgmma, (power(4, 8), power(3, 8))
        yield Slice(rng.randrange(2), rng.choice((mma, wgmma))), (power(3, 8),)
        width = power(0, 2)
        yield DotOperand(0, rng.choice((mma, wgmma)), width), (power(6, 8), power(5, 7))
        yield DotOperand(1, mma, width), (power(5, 7), power(4, 7))
        yield SwizzledShared(power(0, 3), power(0, 2), power(0, 3), order(2)), (power(4, 7), power(4, 7))
        yield SwizzledShared(power(0, 3), power(0, 2), power(0, 3), order(3)), tuple(power(1, 5) for _ in range(3))
        swizzle, bits = rng.choice((0, 32, 64, 128)), rng.choice((8, 16, 32))
        least = (max(swizzle, 16) * 8 // bits).bit_length() - 1
        rows, columns = power(3, 10), power(least, least + 4)
        yield NvmmaShared(swizzle, bits), (rows, columns)
        yield NvmmaShared(swizzle, bits, True), (columns, rows)
        yield NvmmaShared(swizzle, bits), (power(0, 3), power(3, 7), power(least, least + 3))


def triton_bases(encoding: Encoding, shape: tuple[int, ...]) -> dict[str, list[tuple[int, ...]]]:
    """What ``to_linear_layout`` of Triton returns, without compiling a kernel."""
    builder = _builder()
    found = builder.to_linear_layout(as_gluon(encoding, len(shape))._to_ir(builder), list(shape))
    return {name: [tuple(b) for b in getattr(found, slot)] for slot, name in NAMES.items() if hasattr(found, slot)}


_BUILDERS: list[Any] = []


def _builder() -> Any:
    from triton._C.libtriton import gluon_ir, ir

    if not _BUILDERS:
        context = ir.context()
        ir.load_dialects(context)
        _BUILDERS.extend((gluon_ir.GluonOpBuilder(context), context))
    return _BUILDERS[0]


def as_gluon(encoding: Encoding, rank: int) -> Any:
    """The same encoding as an object of Gluon."""
    import triton.experimental.gluon.language as gl

    if isinstance(encoding, Blocked):
        parts = encoding.size_per_thread, encoding.threads_per_warp, encoding.warps_per_cta, encoding.order
        return gl.BlockedLayout(*map(list, parts))
    if isinstance(encoding, Slice):
        return gl.SliceLayout(encoding.dim, as_gluon(encoding.parent, rank + 1))
    if isinstance(encoding, NvidiaMma):
        return gl.NVMMADistributedLayout(
            [encoding.version, 0], list(encoding.warps_per_cta), list(encoding.instr_shape)
        )
    if isinstance(encoding, DotOperand):
        return gl.DotOperandLayout(encoding.operand, as_gluon(encoding.parent, rank), encoding.k_width)
    if isinstance(encoding, SwizzledShared):
        return gl.SwizzledSharedLayout(encoding.vec, encoding.per_phase, encoding.max_phase, list(encoding.order))
    assert not isinstance(encoding, Linear)
    return gl.NVMMASharedLayout(encoding.swizzle_bytes, encoding.element_bits, rank, encoding.transposed)


def main() -> None:
    """Write the record."""
    rows = [[write_encoding(e), shape, triton_bases(e, shape)] for e, shape in cases(60, seed=1)]
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    RECORD.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
