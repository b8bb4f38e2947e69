"""``BufferRegion``: a box of a buffer, ``A[m0 : m0 + BM, 0 : BK]``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import as_index
from layoutalg.errors import RegionError
from layoutalg.index import Param

if TYPE_CHECKING:
    from codegen_cuda.buffers import Buffer

__all__ = ["BufferRegion", "region_of"]


@dataclass(frozen=True, slots=True)
class BufferRegion:
    """A box: begins, which may depend on variables, and extents, which are ints.

    >>> from codegen_cuda.buffers import match
    >>> m0 = Expr.var("m0", 0, 112, step=16)
    >>> box = match("A", (128, 64), "f16")[m0 : m0 + 16, 0:32]
    >>> print(box, box.extents)
    A[m0:m0 + 16, 0:32] (16, 32)
    >>> print(box.view()[1, Expr.var("k", 0, 31)])
    A_ptr[m0 * 64 + k + 64]
    """

    buffer: Buffer
    begins: tuple[Expr, ...]
    extents: tuple[int, ...]

    def __str__(self) -> str:
        bounds = (f"{begin}:{begin + extent}" for begin, extent in zip(self.begins, self.extents, strict=True))
        return f"{self.buffer.name}[{', '.join(bounds)}]"

    def view(self) -> Buffer:
        """Return the box as a buffer of its own, indexed from zero, over the same storage.

        Raises:
            NotExpressibleError: no layout has the addresses of the box.
            PlanError: a begin that is no sum of variables.
        """
        region = [
            (begin, begin + extent) for begin, extent in zip(map(_affine, self.begins), self.extents, strict=True)
        ]
        layout = self.buffer.layout.slice(self.buffer.shape, region)
        return replace(self.buffer, shape=self.extents, layout=layout, owns=False)


def region_of(buffer: Buffer, keys: tuple[Any, ...]) -> BufferRegion:
    """Return the box that an index with slices names; an int or a variable among them is a box of one.

    Raises:
        RegionError: wrong rank, a step, an extent that is no positive int, or a box that may leave the buffer.
    """
    if len(keys) != len(buffer.shape):
        raise RegionError(f"{buffer.name}: {len(keys)} slices for shape {buffer.shape}: give one per dimension")
    begins, extents = [], []
    for dim, (key, extent) in enumerate(zip(keys, buffer.shape, strict=True)):
        begin, length = _interval(buffer, key, dim, extent)
        low, high = begin.bounds()
        if low < 0 or high + length > extent:
            raise RegionError(
                f"{buffer.name}: [{begin}, {begin + length}) of dimension {dim} may leave [0, {extent})", dim=dim
            )
        begins.append(begin)
        extents.append(length)
    return BufferRegion(buffer, tuple(begins), tuple(extents))


def _interval(buffer: Buffer, key: Any, dim: int, extent: int) -> tuple[Expr, int]:
    if not isinstance(key, slice):
        return as_index(key), 1
    if key.step not in (None, 1):
        raise RegionError(f"{buffer.name}: a region has no step; dimension {dim} asks for {key.step}", dim=dim)
    begin = as_index(0 if key.start is None else key.start)
    length = as_index(extent if key.stop is None else key.stop) - begin
    if length.terms or length.const < 1:
        raise RegionError(f"{buffer.name}: dimension {dim} has extent {length}, which is no positive int", dim=dim)
    return begin, length.const


def _affine(begin: Expr) -> Any:
    total: Any = begin.const
    for atom, c in begin.terms:
        if atom.op != "var":
            raise PlanError(f"a view begins at a sum of variables, and {atom.text()} is none: bind it with let")
        total = total + Param(atom.name, atom.low, atom.high + 1) * c
    return total
