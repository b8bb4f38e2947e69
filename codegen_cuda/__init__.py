"""CUDA kernels from layouts, with claims that their compiled PTX is checked against.

>>> from layoutalg import S, TileLayout
>>> from codegen_cuda import permute_layout
>>> permute_layout(TileLayout(S[4, 32]), TileLayout(S[(4, 32):(1, 4)]), dtype="f32", plan="xor").name
'permute_4x32_float32_xor'
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["BuildError", "Kernel", "Operand", "PlanError", "permute_layout", "why_not"]

_HOME = {
    "BuildError": "codegen_cuda.errors",
    "Kernel": "codegen_cuda.kernel",
    "Operand": "codegen_cuda.permute",
    "PlanError": "codegen_cuda.errors",
    "permute_layout": "codegen_cuda.permute",
    "why_not": "codegen_cuda.permute",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'codegen_cuda' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
