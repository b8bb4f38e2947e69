"""Quotients and remainders in generated C that change nothing, found by running the index arithmetic on samples.

Every definition of an integer and every bracketed expression is evaluated with numpy for sampled threads, blocks and
loop counters; nothing of the generator is used.  An operation is redundant when it gives its operand back, or one
number, at every sample.  What is not understood (loads, pointers, conditions) is left out.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

SAMPLES = 1 << 13
_TYPES = r"(?:const )?(?:u32|u64|int|bool|unsigned int|unsigned short|unsigned char|unsigned|long long)"
_DEFINITION = re.compile(rf"^\s*{_TYPES} (\w+) = (.*);$")
_LOOP = re.compile(r"for \((?:int|u32) (\w+) = (\d+)u?; \1 < (\d+)u?; ")
_STRIDED = re.compile(r"for \((?:int|u32) (\w+) = (\S+); \1 < (\d+)u?; \1 \+= (\d+)u?\)")
_CAST = re.compile(rf"\({_TYPES}\*?\)")
_DIVIDING = (ast.FloorDiv, ast.Mod)
_OPERATORS: dict[type, Any] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.BitAnd: np.bitwise_and,
    ast.BitXor: np.bitwise_xor,
    ast.BitOr: np.bitwise_or,
    ast.LShift: np.left_shift,
    ast.RShift: np.right_shift,
}


class IndexCode:
    """The index arithmetic of one source.

    Args:
        source: CUDA C++.
        threads, blocks: the launch.
        known: ranges of names that are parameters: first value, end.
    """

    def __init__(self, source: str, threads: int, blocks: int = 1, **known: tuple[int, int]) -> None:
        self.random = np.random.default_rng(0)
        self.values = {name: self._sample(*bounds) for name, bounds in known.items()}
        self.values["threadIdx_x"] = self._sample(0, threads)
        self.values["blockIdx_x"] = self._sample(0, blocks)
        #: Spelling of an operation by a constant -> its operand and what it makes of it.
        self.operations: dict[str, tuple[type, Any, Any]] = {}
        for line in source.splitlines():
            self._line(re.sub(r'"[^"]*"', "", line.partition("//")[0]))

    def redundant(self, *kinds: type) -> list[str]:
        """Return the operations of these kinds that change nothing."""
        return [
            text
            for text, (kind, before, after) in self.operations.items()
            if kind in (kinds or _DIVIDING) and (np.array_equal(before, after) or np.all(after == after.flat[0]))
        ]

    def _sample(self, low: int, high: int) -> Any:
        """Random values, both ends among them."""
        return np.concatenate([[low, high - 1], self.random.integers(low, high, SAMPLES - 2)])

    def _line(self, line: str) -> None:
        loop, strided = _LOOP.search(line), _STRIDED.search(line)
        if loop:
            self.values[loop[1]] = self._sample(int(loop[2]), int(loop[3]))
        elif strided:
            begin = self._read(strided[2])
            if begin is not None:
                turns = self._sample(0, max(1, int(strided[3]) // int(strided[4])))
                self.values[strided[1]] = np.minimum(begin + turns * int(strided[4]), int(strided[3]) - 1)
        definition = _DEFINITION.match(line)
        if definition:
            value = self._read(definition[2])
            self.values.pop(definition[1], None)
            if value is not None:
                self.values[definition[1]] = value
        for group in groups(line):
            self._read(group)

    def _read(self, text: str) -> Any:
        """Evaluate C, or None where it is not plain arithmetic of what is known."""
        plain = _CAST.sub("", text).replace("threadIdx.x", "threadIdx_x").replace("blockIdx.x", "blockIdx_x")
        plain = re.sub(r"\b(0x[0-9a-f]+|\d+)(?:u|ull|ll)\b", r"\1", plain, flags=re.IGNORECASE)
        plain = re.sub(r"(?<!/)/(?!/)", "//", plain).strip()
        try:
            node = ast.parse(plain, mode="eval").body
        except SyntaxError:
            return None
        return self._evaluate(node)

    def _evaluate(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return np.asarray(node.value, dtype=np.int64) if isinstance(node.value, int) else None
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._evaluate(node.operand)
            return None if value is None else -value
        if not isinstance(node, ast.BinOp):
            return None
        left, right = self._evaluate(node.left), self._evaluate(node.right)
        if left is None or right is None or type(node.op) not in _OPERATORS:
            return None
        result = _OPERATORS[type(node.op)](left, right)
        if isinstance(node.right, ast.Constant):
            self.operations[ast.unparse(node)] = (type(node.op), np.broadcast_to(left, result.shape), result)
        return result


def groups(line: str) -> list[str]:
    """Return what stands in every pair of brackets or parentheses."""
    found, stack = [], []
    for place, letter in enumerate(line):
        if letter in "([":
            stack.append(place)
        elif letter in ")]" and stack:
            found.append(line[stack.pop() + 1 : place])
    return found
