"""Makes the pictures of the README and of the site; a test compares what is kept with what it makes.

python docs/make_pictures.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from layoutalg import SwizzledLayout, TileLayout
from layoutalg.banks import shared_report, simulate, warp_access
from layoutalg.draw import compare, draw

HERE = Path(__file__).resolve().parent / "pictures"
FRAGMENT = "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid"


def fragment() -> str:
    """Two warps that hold an accumulator."""
    return draw(TileLayout.parse(FRAGMENT), (8, 16)).svg


def swizzle() -> str:
    """Addresses before and after a swizzle, coloured by the row of the element."""
    tile = TileLayout.parse("S[8,16]")
    return compare(tile, SwizzledLayout.parse(f"Sw<2,2,2> o {tile}"), (8, 16), view="places", arrow="swizzle").svg


def banks() -> str:
    """Lines of shared memory by bank, before and after a swizzle: a column of the tile in one bank, then in eight."""
    tile = TileLayout.parse("S[8,32]")
    after = SwizzledLayout.parse(f"Sw<3,2,3> o {tile}")
    return compare(tile, after, (8, 32), view="banks", by="column", dtype="f32", arrow="swizzle").svg


def transpose() -> str:
    """A transpose permutes dimensions and leaves addresses alone."""
    tile = TileLayout.parse("S[4,8]")
    return compare(tile, tile.permute(1, 0), (4, 8), after_shape=(8, 4), arrow="permute").svg


def replicas() -> str:
    """Sixteen elements, each in two lanes."""
    return draw(TileLayout.parse("S[(4,4):(4@laneid,1@laneid)] + R[2:16@laneid]"), (4, 4), view="both").svg


def conflict() -> str:
    """Thirty-two lanes at a stride of two words: two wavefronts."""
    return str(simulate(warp_access(TileLayout.parse("S[32:2]"), "f32"))._repr_svg_())


def tensor_memory() -> str:
    """An accumulator in tensor memory, summarised."""
    return draw(TileLayout.parse("S[(128,64):(1@TLane,1@TCol)]"), (128, 64), limit=64).svg


def instructions() -> str:
    """A fragment of half-precision rows, read from a swizzled tile: nothing collides."""
    rows = TileLayout.parse("S[(32,64):(1@laneid,1)]")
    return str(shared_report(SwizzledLayout.parse("Sw<3,3,3> o S[32,64]"), rows, "f16")._repr_svg_())


PICTURES: dict[str, Callable[[], str]] = {
    "fragment": fragment,
    "swizzle": swizzle,
    "banks": banks,
    "transpose": transpose,
    "replicas": replicas,
    "conflict": conflict,
    "tensor_memory": tensor_memory,
    "instructions": instructions,
}


def main() -> None:
    """Write every picture."""
    HERE.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        (HERE / f"{name}.svg").write_text(make() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
