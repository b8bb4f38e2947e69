"""The table of operations: every opcode that the checker gives a meaning to, each once.

An opcode may have several rows where the ISA gives it several forms (``mov`` of a register, of a variable's address
and of a special register).  What is not here is refused.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from verify.ptx.ops_base import Operation
from verify.ptx.ops_integer import integer_operations
from verify.ptx.ops_memory import memory_operations
from verify.ptx.ops_tmem import tmem_operations

__all__ = ["lookup", "suggestion", "table"]


@cache
def table() -> dict[str, tuple[Operation, ...]]:
    """The rows by opcode.

    >>> [operation.section for operation in table()["prmt.b32"]]
    ['Data Movement and Conversion Instructions: prmt']
    """
    rows: dict[str, tuple[Operation, ...]] = {}
    for part in (integer_operations, memory_operations, tmem_operations):
        for operation in part():
            rows[operation.name] = (*rows.get(operation.name, ()), operation)
    return rows


def lookup(opcode: str) -> tuple[Operation, ...]:
    """The rows of one opcode; empty where the table has none."""
    return table().get(opcode, ())


def suggestion(opcode: str) -> str:
    """The nearest opcodes that the table has, as the end of an error message."""
    near = get_close_matches(opcode[:80], table(), n=3, cutoff=0.75)
    return f"; the table has {', '.join(near)}" if near else ""
