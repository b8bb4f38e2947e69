"""``Table``: numbers that come with a kernel, such as a schedule that its lanes look up.

>>> from layoutalg.hardware.dtypes import dtype
>>> table = Table("t", dtype("uint32"), (2, 2), ((1,), (2,), (3,), (4,)), "one to four")
>>> print(table.text(), table[1, Expr.var("lane", 0, 1)], sep="")
// one to four
__device__ const unsigned int t[2][2] = {
    {1, 2},
    {3, 4}
};
t[1][lane]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from codegen_cuda.access import Pointer, c_type
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Value, as_index, checked_text
from layoutalg.errors import RegionError
from layoutalg.hardware.dtypes import Dtype

__all__ = ["Lookup", "Table"]

_LINE = 116


@dataclass(frozen=True, slots=True)
class Lookup(Value):
    """An element of a table."""

    data: Pointer
    indices: tuple[Expr, ...]

    @property
    def type(self) -> Dtype:
        return self.data.dtype

    def text(self) -> str:
        return self.data.name + "".join(f"[{checked_text(index, bare=True)}]" for index in self.indices)


@dataclass(frozen=True, slots=True)
class Table:
    """An array of constants in global memory.

    Args:
        name: its C identifier.
        kind: element type; vectors of words for elements of several words.
        shape: extents, as C has them.
        rows: the words of each element, row-major.
        comment: what they are.
        digits: hexadecimal digits of each word, where words stand for bits; 0 for decimal numbers.

    Raises:
        PlanError: not as many elements as the shape has, or not as many words as an element has.
    """

    name: str
    kind: Dtype
    shape: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    comment: str = ""
    digits: int = 0

    def __post_init__(self) -> None:
        words = max(1, self.kind.bits // 32)
        if len(self.rows) != math.prod(self.shape) or any(len(row) != words for row in self.rows):
            raise PlanError(f"{self.name}: {len(self.rows)} elements of {self.kind} for shape {self.shape}")

    def __getitem__(self, key: Any) -> Lookup:
        """Return an element.

        Raises:
            RegionError: wrong rank, or an index that may leave its extent.
        """
        indices = tuple(map(as_index, key if isinstance(key, tuple) else (key,)))
        bounds = [index.bounds() for index in indices]
        if len(indices) != len(self.shape) or any(
            low < 0 or high >= extent for (low, high), extent in zip(bounds, self.shape, strict=True)
        ):
            raise RegionError(f"{self.name}: {tuple(map(str, indices))} may leave the shape {self.shape}")
        return Lookup(Pointer(self.name, self.kind, "global", self.kind.bytes), indices)

    def text(self) -> str:
        """Return the definition in C."""
        spelled = [[f"{word:#0{self.digits + 2}x}" if self.digits else str(word) for word in row] for row in self.rows]
        words = [row[0] if len(row) == 1 else "{" + ", ".join(row) + "}" for row in spelled]
        extents = "".join(f"[{extent}]" for extent in self.shape)
        head = f"__device__ const {c_type(self.kind)} {self.name}{extents} = "
        return (f"// {self.comment}\n" if self.comment else "") + head + _braces(words, self.shape, 0) + ";\n"


def _braces(words: list[str], shape: tuple[int, ...], depth: int) -> str:
    """Spell nested braces, the innermost filled line by line."""
    pad = "    " * (depth + 1)
    if len(shape) > 1:
        size = len(words) // shape[0]
        parts = [_braces(words[k : k + size], shape[1:], depth + 1) for k in range(0, len(words), size)]
        return "{\n" + ",\n".join(pad + part for part in parts) + "\n" + "    " * depth + "}"
    lines = [""]
    for word in words:
        if lines[-1] and len(pad) + len(lines[-1]) + len(word) > _LINE:
            lines.append("")
        lines[-1] += f", {word}" if lines[-1] else word
    if len(lines) == 1:
        return f"{{{lines[0]}}}"
    return "{\n" + ",\n".join(pad + line for line in lines) + "\n" + "    " * depth + "}"
