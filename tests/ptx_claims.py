"""Claims for the compiled samples, written by hand from what their CUDA sources say."""

from __future__ import annotations

from layoutalg.claim import BankPromise, Buffer, Claim, Move, Scalar, Side


def warp_transpose(entry: str, stages: int, *, block: int = 32, scalar: bool = False) -> Claim:
    """Stages of 4 x 32 floats, each transposed in place: sample a (two stages, one warp) and a2 (any, four warps)."""
    shape, region = (stages, 4, 32), f"s[0:{stages}],0:4,0:32"
    source = Side(f"S[({stages},4,32):(128,32,1)]", shape, region)
    destination = Side(f"S[({stages},4,32):(128,1,4)]", shape, region)
    buffers = tuple(Buffer(n, r, "float32", 0, 128 * stages, 16) for n, r in (("A", "input"), ("B", "output")))
    return Claim(
        entry,
        "float32",
        (1, 1, 1),
        (block, 1, 1),
        512 * stages if scalar else 0,
        buffers + ((Scalar("stages", 32, stages, stages),) if scalar else ()),
        (Move("A", source, "B", destination),),
        "carried",
        (BankPromise("read", "ld.shared", 4, 0), BankPromise("write", "st.shared", 4, 0)),
    )


def transpose(entry: str, rows: int, columns: int, dtype: str, *, grid: tuple[int, int, int], block) -> Claim:
    """A matrix transposed as a whole, its extents passed as scalars: samples b and b2."""
    shape, region = (rows, columns), f"0:{rows},0:{columns}"
    source = Side(f"S[({rows},{columns}):({columns},1)]", shape, region)
    destination = Side(f"S[({rows},{columns}):(1,{rows})]", shape, region)
    buffers = tuple(Buffer(n, r, dtype, 0, rows * columns, 16) for n, r in (("in", "input"), ("out", "output")))
    scalars = (Scalar("M", 32, rows, rows), Scalar("N", 32, columns, columns))
    move = Move("in", source, "out", destination)
    return Claim(entry, dtype, grid, block, 0, buffers + scalars, (move,), "untouched")


def bytes_transpose() -> Claim:
    """32 x 32 bytes: the kernel u8_permute of sample d."""
    side = Side("S[(32,32):(32,1)]", (32, 32), "0:32,0:32")
    other = Side("S[(32,32):(1,32)]", (32, 32), "0:32,0:32")
    buffers = tuple(Buffer(n, r, "uint8", 0, 1024, 1) for n, r in (("A", "input"), ("B", "output")))
    return Claim("u8_permute", "uint8", (1, 1, 1), (32, 1, 1), 0, buffers, (Move("A", side, "B", other),), "untouched")
