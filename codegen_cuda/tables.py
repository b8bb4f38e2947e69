"""``Table``: numbers that come with a kernel, such as a schedule that its lanes look up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from codegen_cuda.access import Pointer, c_type
from codegen_cuda.buffers import Buffer, declare
from codegen_cuda.errors import PlanError
from layoutalg.hardware.dtypes import Dtype, dtype

__all__ = ["Table"]

_PER_LINE = 32  # a warp's worth


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers that come with the kernel, in global memory.

    Args:
        buffer: made by :meth:`of`.
        rows: the numbers of each element, in storage order.
        comment: what they are.
    """

    buffer: Buffer
    rows: tuple[tuple[int, ...], ...]
    comment: str = ""

    @classmethod
    def of(cls, name: str, shape: Sequence[int], kind: str | Dtype, rows: Any, *, comment: str = "") -> Table:
        """Make a table from the numbers of each element, one or several words.

        >>> table = Table.of("t", (2, 2), "u32", [[1], [2], [3], [4]])
        >>> print(table.buffer[1, 0])
        t[2]
        """
        element = dtype(kind)
        pointer = Pointer(name, element, "global", element.bytes, math.prod(shape) * element.bytes)
        listed = tuple(tuple(int(x) for x in row) for row in rows)
        if len(listed) != math.prod(shape):
            raise PlanError(f"{name}: {len(listed)} elements for shape {tuple(shape)}")
        return cls(declare(name, shape, element, data=pointer), listed, comment)

    def text(self) -> str:
        """Return the definition in C, a line for every 32 elements."""
        words = [str(row[0]) if len(row) == 1 else "{" + ", ".join(map(str, row)) + "}" for row in self.rows]
        lines = [", ".join(words[k : k + _PER_LINE]) for k in range(0, len(words), _PER_LINE)]
        listed = ",\n".join("    " + line for line in lines)
        head = f"__device__ const {c_type(self.buffer.dtype)} {self.buffer.data.name}[{len(words)}]"
        return (f"// {self.comment}\n" if self.comment else "") + f"{head} = {{\n{listed}\n}};\n"
