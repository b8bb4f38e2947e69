"""CUDA kernels from layouts, with claims that their compiled PTX is checked against.

>>> from layoutalg import S, TileLayout
>>> from codegen_cuda import permute_layout
>>> permute_layout(TileLayout(S[4, 32]), TileLayout(S[(4, 32):(1, 4)]), dtype="f32", plan="xor").name
'permute_4x32_float32_xor'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen_cuda.body import Body
    from codegen_cuda.buffers import Buffer, alloc, alloc_local, alloc_shared, declare, match
    from codegen_cuda.errors import BuildError, PlanError
    from codegen_cuda.kernel import Kernel
    from codegen_cuda.permute import Operand, permute_layout, why_not
    from codegen_cuda.pools import SharedPool, TmemPool
    from codegen_cuda.tensor import permute_tensor
    from codegen_cuda.tmem import (
        View,
        global_to_tmem,
        register_layout_for,
        tmem_apply,
        tmem_copy,
        tmem_plan,
        tmem_plans,
        tmem_roundtrip,
        tmem_to_global,
    )

__all__ = [
    "Body",
    "Buffer",
    "BuildError",
    "Kernel",
    "Operand",
    "PlanError",
    "SharedPool",
    "TmemPool",
    "View",
    "alloc",
    "alloc_local",
    "alloc_shared",
    "declare",
    "global_to_tmem",
    "match",
    "permute",
    "permute_layout",
    "permute_tensor",
    "register_layout_for",
    "tmem_apply",
    "tmem_copy",
    "tmem_plan",
    "tmem_plans",
    "tmem_roundtrip",
    "tmem_to_global",
    "why_not",
]

_HOME = {
    "Body": "codegen_cuda.body",
    "Buffer": "codegen_cuda.buffers",
    "BuildError": "codegen_cuda.errors",
    "Kernel": "codegen_cuda.kernel",
    "Operand": "codegen_cuda.permute",
    "PlanError": "codegen_cuda.errors",
    "SharedPool": "codegen_cuda.pools",
    "TmemPool": "codegen_cuda.pools",
    "View": "codegen_cuda.tmem",
    "alloc": "codegen_cuda.buffers",
    "alloc_local": "codegen_cuda.buffers",
    "alloc_shared": "codegen_cuda.buffers",
    "declare": "codegen_cuda.buffers",
    "global_to_tmem": "codegen_cuda.tmem",
    "match": "codegen_cuda.buffers",
    "permute_layout": "codegen_cuda.permute",
    "permute_tensor": "codegen_cuda.tensor",
    "register_layout_for": "codegen_cuda.tmem",
    "tmem_apply": "codegen_cuda.tmem",
    "tmem_copy": "codegen_cuda.tmem",
    "tmem_plan": "codegen_cuda.tmem",
    "tmem_plans": "codegen_cuda.tmem",
    "tmem_roundtrip": "codegen_cuda.tmem",
    "tmem_to_global": "codegen_cuda.tmem",
    "why_not": "codegen_cuda.permute",
}


def __getattr__(name: str) -> Any:
    if name == "permute":  # a package that may be called
        return importlib.import_module("codegen_cuda.permute")
    if name not in _HOME:
        raise AttributeError(f"module 'codegen_cuda' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
