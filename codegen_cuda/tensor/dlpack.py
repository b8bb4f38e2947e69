"""Arrays of any library that offers DLPack alone: address, shape, strides and type, read from its capsule.

The structure is that of the DLPack standard before version 1.0 (``dltensor`` capsules), which producers still give to
a consumer that does not ask for more.  The capsule is left unused, so that its own destructor frees it; the memory
belongs to the array, which the caller holds.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from codegen_cuda.errors import BuildError, PlanError

__all__ = ["CPU", "CUDA", "Described", "describe"]

CPU: Final = 1
CUDA: Final = 2
_KINDS: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Described:
    """What a capsule says; strides in elements, ``None`` for a dense array."""

    device: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str


def describe(value: Any, what: str = "the array") -> Described:
    """Return what an array's DLPack capsule says of it.

    Raises:
        BuildError: the library gives no capsule.
        PlanError: an element type that DLPack has and this library has not.

    >>> import numpy as np
    >>> found = describe(np.zeros((4, 6), dtype=np.float32)[:, ::2])
    >>> found.device, found.shape, found.strides, found.dtype
    (1, (4, 3), (6, 2), 'float32')
    """
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BuildError(f"{what} gives no DLPack capsule: {error}") from error
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    kind = _KINDS.get(tensor.code)
    if kind is None or tensor.lanes != 1:
        raise PlanError(f"permute_tensor: {what} has DLPack type {tensor.code} x {tensor.lanes}", rule="dtype")
    name = kind if kind == "bool" else f"{kind}{tensor.bits}"
    return Described(tensor.device_type, (tensor.data or 0) + tensor.byte_offset, shape, strides, name)
