"""Running whole-tensor kernels on arrays of CuPy, PyTorch, JAX and NumPy, where they lie.

What an array is, is read here once: its address, shape and strides.  Everything that could make a kernel touch memory
outside its arrays is refused before a launch: wrong shapes, strides and types, buffers that are too small, overlap,
addresses less aligned than the kernel was made for.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen_cuda.errors import BuildError, PlanError
from codegen_cuda.kernel import Kernel
from codegen_cuda.launch import device_architecture, gpu_available, launch
from codegen_cuda.tensor.cache import built
from codegen_cuda.tensor.dlpack import CPU, CUDA, describe
from codegen_cuda.tensor.problem import ALIGN, TensorProblem, layouts_of_permutation, strided_layout
from layoutalg.errors import LayoutError
from layoutalg.hardware.dtypes import dtype

__all__ = ["INTERPRETED_BYTES", "Address", "Array", "array_of", "permute_array", "run_tensor"]

#: Most bytes that the interpreter moves for a NumPy array where there is no GPU.
INTERPRETED_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """What an array is, whichever library made it.

    Args:
        value: the array itself.
        library: ``"numpy"``, ``"torch"``, ``"cupy"``, ``"jax"`` or the name of another module.
        address: of its first element.
        shape: extents.
        strides: in elements.
        dtype: name of the element type.
        width: bytes of one element.
    """

    value: Any
    library: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    width: int

    @property
    def dense(self) -> bool:
        """Whether it is contiguous in row-major order."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """Address after its last byte."""
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return self.address + (reach + 1) * self.width


def array_of(value: Any, what: str = "the array") -> Array:
    """Read an array's address, shape, strides and element type.

    Raises:
        PlanError: an element type that is not in the library's table, or strides that are no whole elements.
        BuildError: not an array, or one that lies neither on a GPU nor in NumPy.

    >>> import numpy as np
    >>> array_of(np.zeros((4, 6), dtype=np.float32)[:, ::2]).strides
    (6, 2)
    """
    library = type(value).__module__.partition(".")[0].removesuffix("lib")
    address: int
    strides: tuple[int, ...] | None
    if isinstance(value, np.ndarray):
        library, address, strides = "numpy", value.ctypes.data, value.strides
    elif library == "torch":
        if not getattr(value, "is_cuda", False):
            raise BuildError(f"{what} is a PyTorch tensor on {value.device}: move it to the GPU, or pass x.numpy()")
        address, strides = value.data_ptr(), tuple(s * value.element_size() for s in value.stride())
    elif hasattr(value, "__cuda_array_interface__"):
        interface = value.__cuda_array_interface__
        address, strides = interface["data"][0], interface.get("strides")
    elif hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_capsule(value, what, library)
    else:
        raise BuildError(f"{what} is a {type(value).__name__}: pass a CuPy, PyTorch, JAX or NumPy array")
    try:
        element = dtype(value.dtype)
        width = element.bytes
    except LayoutError as error:
        raise PlanError(f"permute_tensor: {what}: {error}", rule="dtype", dtype=str(value.dtype)) from error
    shape = tuple(int(extent) for extent in value.shape)
    steps = _dense_strides(shape, width) if strides is None else tuple(int(s) for s in strides)
    if any(s % width for s in steps):
        raise PlanError(f"permute_tensor: {what} has strides of {steps} bytes, no whole {element.name}", rule="stride")
    return Array(value, library, int(address), shape, tuple(s // width for s in steps), element.name, width)


def _of_capsule(value: Any, what: str, library: str) -> Array:
    """An array that offers DLPack alone; one on the host is NumPy's from here on."""
    device = int(value.__dlpack_device__()[0])
    if device == CPU:
        return array_of(np.from_dlpack(value), what)
    if device != CUDA:
        raise BuildError(f"{what} lies on a device of DLPack type {device}; GPUs of type {CUDA} and the host work")
    found = describe(value, what)
    try:
        width = dtype(found.dtype).bytes
    except LayoutError as error:
        raise PlanError(f"permute_tensor: {what}: {error}", rule="dtype", dtype=found.dtype) from error
    strides = tuple(s // width for s in _dense_strides(found.shape, width)) if found.strides is None else found.strides
    return Array(value, library, found.address, found.shape, strides, dtype(found.dtype).name, width)


def _dense_strides(shape: Sequence[int], width: int) -> tuple[int, ...]:
    strides = [width] * len(shape)
    for k in reversed(range(len(shape) - 1)):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)


def permute_array(x: Any, perm: Sequence[int], *, out: Any = None, stream: Any = None) -> Any:
    """See :func:`codegen_cuda.tensor.permute`."""
    given = array_of(x, "x")
    order = tuple(perm) if isinstance(perm, Sequence | np.ndarray) else (perm,)
    order = tuple(int(p) if isinstance(p, np.integer) else p for p in order)
    if not all(type(p) is int for p in order) or sorted(order) != list(range(len(given.shape))):
        layouts_of_permutation(tuple(max(extent, 1) for extent in given.shape), order)  # says what is wrong with it
    shape = tuple(given.shape[p] for p in order)
    result = _fresh(given, shape) if out is None else out
    target = array_of(result, "out")
    if target.shape != shape:
        raise BuildError(f"out has shape {target.shape}, but x permuted has {shape}")
    if given.size == 0:
        return result
    written = [0] * len(shape)
    for position, dim in enumerate(order):
        written[dim] = target.strides[position]
    align = (_alignment(given), _alignment(target))
    kernel = _kernel(given.shape, given.strides, tuple(written), given.dtype, align)
    _launch(kernel, given, target, stream)
    return result


@functools.lru_cache(maxsize=1024)
def _kernel(
    shape: tuple[int, ...],
    read: tuple[int, ...],
    written: tuple[int, ...],
    element: str,
    align: tuple[int, int],
) -> Kernel:
    from codegen_cuda.tensor import permute_tensor

    source, destination = strided_layout(shape, read), strided_layout(shape, written)
    return permute_tensor(shape, src=source, dst=destination, dtype=element, align=align)


def run_tensor(kernel: Kernel, source: Any, out: Any = None, *, device: str = "auto", stream: Any = None) -> Any:
    """Run a whole-tensor kernel on arrays; see :meth:`Kernel.run`.

    Args:
        kernel: made by :func:`codegen_cuda.tensor.permute_tensor`.
        source: an array of the kernel's shape with its source strides, or a flat buffer that holds them.
        out: likewise for the destination; a fresh array without it.
        device: ``"gpu"``, ``"cpu"`` or ``"auto"``.
        stream: a CUDA stream; the library's current one without it.

    Raises:
        BuildError: arrays that the kernel was not made for, or no room.
    """
    problem = kernel.problem
    assert isinstance(problem, TensorProblem)
    given = array_of(source, "the source")
    shape, flat = _output_shape(problem)
    result = _fresh(given, flat or shape, zeros=flat is not None) if out is None else out
    target = array_of(result, "out")
    read, written = problem.strides()
    given = _placed(given, problem.shape, read, kernel, side=0)
    target = _placed(target, shape, written, kernel, side=1)
    _launch(kernel, given, target, stream, device=device)
    return result


def _output_shape(problem: TensorProblem) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shape of the destination, and that of a fresh buffer where the destination leaves gaps."""
    if problem.perm is not None:
        return tuple(problem.shape[p] for p in problem.perm), None
    buffer = problem.buffers()[1]
    return problem.shape, (buffer.first + buffer.count,)


def _placed(
    array: Array, shape: tuple[int, ...], strides: tuple[int, ...] | None, kernel: Kernel, *, side: int
) -> Array:
    """The array from the kernel's first element on; refuse what the kernel was not made for."""
    buffer = kernel.claim.params[side]
    first, count = buffer.first, buffer.count  # type: ignore[union-attr]
    what = ("the source", "out")[side]
    if array.width != kernel.claim.width:
        raise BuildError(f"{what} holds {array.dtype}, but {kernel.name} moves {kernel.claim.dtype}")
    used = tuple(s for s, extent in zip(array.strides, array.shape, strict=True) if extent != 1)
    if array.shape == shape and strides is not None:
        wanted = tuple(s for s, extent in zip(strides, shape, strict=True) if extent != 1)
        if used == wanted:
            return array
    if array.dense and len(array.shape) == 1 and array.size >= first + count:
        return replace(array, address=array.address + first * array.width, shape=(count,), strides=(1,))
    raise BuildError(
        f"{what} has shape {array.shape} and strides {array.strides}, but {kernel.name} takes shape {shape} with "
        f"strides {strides}, or a flat buffer of at least {first + count} elements",
        shape=array.shape,
        strides=array.strides,
    )


def _alignment(array: Array) -> int:
    """What is known of an address: up to 16 bytes."""
    return min(array.address & -array.address, ALIGN) if array.address else ALIGN


def _fresh(given: Array, shape: tuple[int, ...], *, zeros: bool = False) -> Any:
    """A new array of the same kind, with zeros where a kernel leaves gaps."""
    try:
        if given.library == "torch":
            return given.value.new_zeros(shape) if zeros else given.value.new_empty(shape)
        module = importlib.import_module("jax.numpy" if given.library == "jax" else given.library)
        return (module.zeros if zeros else module.empty)(shape, dtype=given.value.dtype)
    except (MemoryError, RuntimeError) as error:  # PyTorch and JAX report it through RuntimeError
        size = math.prod(shape) * given.width
        raise BuildError(f"there is no room for a result of {size} bytes: {error}", bytes=size) from error
    except (ImportError, AttributeError) as error:
        raise BuildError(f"{given.library} makes no empty arrays that this library knows of; pass out=") from error


def _launch(kernel: Kernel, given: Array, target: Array, stream: Any, *, device: str = "auto") -> None:
    """Check what every launch needs, and launch."""
    if given.width != target.width or (given.library == "numpy") != (target.library == "numpy"):
        raise BuildError(f"x holds {given.dtype} of {given.library}, out {target.dtype} of {target.library}")
    if given.address < target.end and target.address < given.end:
        raise BuildError("source and out overlap; a whole tensor is permuted out of place")
    if isinstance(target.value, np.ndarray) and not target.value.flags.writeable:
        raise BuildError("out is read-only; pass an array that may be written")
    for array, buffer in zip((given, target), kernel.claim.params, strict=True):
        if array.address % buffer.align:  # type: ignore[union-attr]
            raise BuildError(
                f"{buffer.name} lies at {array.address:#x}, but {kernel.name} was made for addresses aligned to "
                f"{buffer.align} bytes; permute_tensor(..., align=) makes another",  # type: ignore[union-attr]
                address=array.address,
            )
    if device not in ("auto", "cpu", "gpu"):
        raise BuildError(f"device {device!r}: choose 'auto', 'cpu' (the PTX interpreter) or 'gpu'")
    on_gpu = given.library != "numpy" or device == "gpu" or (device == "auto" and gpu_available())
    if on_gpu and device == "cpu":
        raise BuildError(f"the interpreter runs on NumPy arrays, not on those of {given.library}")
    (_on_gpu if on_gpu else _on_cpu)(kernel, given, target, stream)


def _span(array: Array) -> Any:
    """A NumPy array's memory from its first to its last element, as one flat array."""
    count = (array.end - array.address) // array.width
    view = array.value.reshape(-1)[:1] if array.value.ndim == 0 else array.value[(slice(0, 1),) * array.value.ndim]
    skip = (array.address - array.value.ctypes.data) // array.width
    whole = np.lib.stride_tricks.as_strided(view.reshape(-1), (skip + count,), (array.width,))
    return whole[skip:]


@dataclass(frozen=True, slots=True)
class Address:
    """A device address that the launcher takes for an array."""

    address: int
    stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "stream": self.stream}


def _on_gpu(kernel: Kernel, given: Array, target: Array, stream: Any) -> None:
    # What was compiled, and perhaps certified, is what runs.
    cubin = kernel.cubin or built(kernel.source, kernel.name, device_architecture())[1]
    arrays = [_span(a) if a.library == "numpy" else _device_array(a) for a in (given, target)]
    claim = kernel.claim
    launch(
        cubin,
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        args=arrays,
        shared_bytes=claim.dynamic_shared_bytes,
        stream=_current_stream(given) if stream is None else stream,
    )


def _device_array(array: Array) -> Address:
    if not hasattr(array.value, "__cuda_array_interface__") or array.library == "torch":
        return Address(array.address)
    return Address(array.address, array.value.__cuda_array_interface__.get("stream"))


def _current_stream(array: Array) -> Any:
    """The stream on which the array's library works now."""
    if array.library == "torch":
        return importlib.import_module("torch").cuda.current_stream(array.value.device)
    if array.library == "cupy":
        return importlib.import_module("cupy").cuda.get_current_stream()
    return None


def _on_cpu(kernel: Kernel, given: Array, target: Array, _stream: Any) -> None:
    from codegen_cuda.run import interpret

    moved = kernel.claim.width * given.size
    if moved > INTERPRETED_BYTES:
        raise BuildError(
            f"there is no GPU, and the interpreter moves at most {INTERPRETED_BYTES} bytes, not {moved}; "
            "numpy.transpose(x, perm).copy() moves any number"
        )
    ready = kernel if kernel.ptx else replace(kernel, ptx=built(kernel.source, kernel.name, kernel.arch)[0])
    interpret(ready, _span(given), _span(target))
