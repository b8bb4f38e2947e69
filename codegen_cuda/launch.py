"""Run a cubin on a GPU, if there is one.

Arguments are device arrays of any library that speaks ``__cuda_array_interface__`` or DLPack (CuPy, PyTorch), NumPy
arrays, which are copied to the device and back, and numbers.  No package is needed beyond NumPy and the driver.

Only addresses pass to the kernel: shapes and strides are the caller's to have checked.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen_cuda._driver import Driver, open_driver, why_no_gpu
from codegen_cuda.build import Cubin
from codegen_cuda.errors import BuildError

__all__ = ["device_architecture", "gpu_available", "launch"]

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DEFAULT_STREAM, _LEGACY_STREAM = 0, 1  # NULL and CU_STREAM_LEGACY
_GRID_LIMIT = (2**31 - 1, 65535, 65535)
_BLOCK_LIMIT = (1024, 1024, 64)
_THREADS_LIMIT = 1024

Extent = int | tuple[int, ...]


def gpu_available() -> bool:
    """Whether :func:`launch` can run something here: a driver that starts and sees at least one GPU."""
    return not why_no_gpu()


def device_architecture(device: int = 0) -> str:
    """Architecture of a GPU of this machine, such as ``sm_90``; its own features want ``sm_90a``.

    Raises:
        BuildError: there is no GPU.
    """
    return _driver().architecture(device)


def launch(
    cubin: Cubin | bytes,
    entry: str,
    *,
    grid: Extent,
    block: Extent,
    args: Sequence[Any],
    shared_bytes: int = 0,
    stream: Any = None,
) -> None:
    """Run a kernel of a cubin on the device that holds its arrays.

    Device arrays are used where they are and the call returns at once, in the order of ``stream``.  With a NumPy
    array among the arguments the call waits, and each writeable one holds the kernel's result when it returns; one
    that is passed twice is one buffer.

    Args:
        cubin: the image, as :func:`codegen_cuda.build.assemble` makes it.
        entry: name of the kernel.
        grid: number of blocks, up to three extents, x first.
        block: number of threads in a block, up to three extents, x first.
        args: one per parameter: device arrays, contiguous NumPy arrays, NumPy scalars, and Python integers, which
            take the width of their parameter.
        shared_bytes: dynamic shared memory, in bytes.
        stream: ``None`` for the default stream, a handle, or a stream of CUDA Python, CuPy or PyTorch.

    Raises:
        BuildError: no GPU, an argument that does not fit its parameter, a shape that no launch can have, or a
            failure that the driver reports.
    """
    extents = (_extent(grid, "grid", _GRID_LIMIT), _extent(block, "block", _BLOCK_LIMIT))
    driver = _driver()
    image = cubin.image if isinstance(cubin, Cubin) else bytes(cubin)
    handle = stream_handle(stream)
    addresses = [device_address(value) for value in args]
    device = _common_device(driver, [address for address in addresses if address is not None])
    with driver.on(device), _device_copies(driver, args, handle) as copies:
        values = [
            copies.get(position, value if address is None else address)
            for position, (value, address) in enumerate(zip(args, addresses, strict=True))
        ]
        kernel = driver.kernel(device, image, entry)
        is_pointer = [address is not None or position in copies for position, address in enumerate(addresses)]
        packed = pack_arguments(values, is_pointer, kernel.parameter_sizes)
        driver.allow_shared(kernel.function, shared_bytes)
        _wait_for_producers(driver, args, handle)
        _launch(driver, kernel.function, extents, packed, shared_bytes=shared_bytes, handle=handle)


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments as the driver wants them: an array of pointers to values that it keeps alive."""

    values: tuple[ctypes.Array[ctypes.c_char], ...]

    def pointers(self) -> ctypes.Array[ctypes.c_void_p]:
        """Addresses of the values, in order; valid while this object lives."""
        return (ctypes.c_void_p * len(self.values))(*(ctypes.addressof(value) for value in self.values))


def pack_arguments(values: Sequence[Any], is_pointer: Sequence[bool], sizes: Sequence[int] | None) -> Packed:
    """Encode arguments at the widths of the kernel's parameters.

    Args:
        values: addresses, NumPy scalars and Python integers.
        is_pointer: which of them are addresses.
        sizes: bytes of each parameter, or ``None`` if unknown: then Python integers are refused, because half of a
            64-bit parameter would be left to chance.

    Raises:
        BuildError: the number of arguments, a width or a value does not fit.

    >>> [bytes(value) for value in pack_arguments([4096, 7], [True, False], (8, 2)).values]
    [b'\\x00\\x10\\x00\\x00\\x00\\x00\\x00\\x00', b'\\x07\\x00']
    """
    if sizes is not None and len(sizes) != len(values):
        raise BuildError(f"the kernel has {len(sizes)} parameters but got {len(values)} arguments", sizes=tuple(sizes))
    packed = []
    for position, (value, pointer) in enumerate(zip(values, is_pointer, strict=True)):
        size = sizes[position] if sizes is not None else None
        data = _encode(value, 8 if pointer else size, position)
        if size is not None and len(data) != size:
            raise BuildError(
                f"argument {position} has {len(data)} bytes but its parameter has {size}", position=position, size=size
            )
        packed.append(ctypes.create_string_buffer(data, len(data)))
    return Packed(tuple(packed))


def _encode(value: Any, size: int | None, position: int) -> bytes:
    if isinstance(value, np.generic):
        return value.tobytes()
    if not isinstance(value, int) or isinstance(value, bool):
        raise BuildError(
            f"argument {position} is a {type(value).__name__}: pass a device array, a NumPy array, a NumPy scalar "
            "such as np.float32(x), or an int",
            position=position,
        )
    if size is None:
        raise BuildError(
            f"argument {position} is an int whose width this driver cannot tell: pass np.int32({value}) or "
            f"np.int64({value})",
            position=position,
        )
    if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise BuildError(f"argument {position} = {value} does not fit its parameter of {size} bytes", position=position)
    return (value % (1 << (8 * size))).to_bytes(size, "little")


def device_address(value: Any) -> int | None:
    """Address of a device array, ``None`` for anything that is not one.

    Raises:
        BuildError: an array that lives on neither the GPU nor in NumPy.
    """
    if isinstance(value, np.ndarray | np.generic | int | float):
        return None
    if getattr(value, "is_cuda", False) and callable(getattr(value, "data_ptr", None)):
        return int(value.data_ptr())  # PyTorch, whose other protocols refuse some types and tensors with gradients
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    if not hasattr(value, "__dlpack_device__"):
        return None
    kind, _ = value.__dlpack_device__()
    if int(kind) not in _DLPACK_CUDA:
        raise BuildError(f"a {type(value).__name__} on the host: pass numpy.asarray(x), or move it to the GPU")
    return _dlpack_address(value.__dlpack__())


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def _dlpack_address(capsule: Any) -> int:
    """First byte of a DLPack capsule, which stays its producer's: it is not consumed."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    return int(tensor.data or 0) + int(tensor.byte_offset)


def stream_handle(stream: Any) -> int:
    """Handle of a stream; 0 is the default stream.

    Raises:
        BuildError: not a stream.

    >>> stream_handle(None), stream_handle(7)
    (0, 7)
    """
    if stream is None or isinstance(stream, int):
        return stream or 0
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):  # PyTorch, CuPy, older CUDA Python
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise BuildError(f"stream is a {type(stream).__name__}: pass None, a handle, or a CUDA stream object")


def _driver() -> Driver:
    if reason := why_no_gpu():
        raise BuildError(f"nothing can be launched here: {reason}; the PTX interpreter (verify.ptx) needs no GPU")
    return open_driver()


def _extent(value: Extent, name: str, limits: Sequence[int]) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else tuple(value)
    full = (*given, *(1,) * (3 - len(given)))
    fits = len(full) == 3 and all(1 <= extent <= limit for extent, limit in zip(full, limits, strict=True))
    threads = full[0] * full[1] * full[2] if fits else 0
    if not fits or (name == "block" and threads > _THREADS_LIMIT):
        most = f" and {_THREADS_LIMIT} threads" if name == "block" else ""
        raise BuildError(f"{name} = {given} must be one to three extents from 1 to {tuple(limits)}{most}", given=given)
    return full[0], full[1], full[2]


def _common_device(driver: Driver, addresses: Sequence[int]) -> int:
    devices = {driver.device_of(address) for address in addresses if address}
    if len(devices) > 1:
        raise BuildError(f"the arrays lie on devices {sorted(devices)}; one launch runs on one", devices=devices)
    return devices.pop() if devices else driver.current_device()


@contextlib.contextmanager
def _device_copies(driver: Driver, args: Sequence[Any], handle: int) -> Iterator[dict[int, int]]:
    """Device addresses of the NumPy arguments by position; results come back when the block ends without an error."""
    hosts = {position: value for position, value in enumerate(args) if isinstance(value, np.ndarray)}
    spans = _distinct_spans(hosts)
    buffers: dict[int, int] = {}
    try:
        for start, array in spans.items():
            buffer = ctypes.c_uint64()
            driver.call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(max(array.nbytes, 1)))
            buffers[start] = buffer.value
            size = ctypes.c_size_t(array.nbytes)
            driver.call("cuMemcpyHtoD_v2", buffer, ctypes.c_void_p(start), size)
        if spans:  # the copy may return before its last bytes arrive, and another stream does not wait for them
            driver.call("cuStreamSynchronize", ctypes.c_void_p(_DEFAULT_STREAM))
        yield {position: buffers[array.ctypes.data] for position, array in hosts.items()}
        if spans:
            driver.call("cuStreamSynchronize", ctypes.c_void_p(handle))
        for start, array in spans.items():
            if array.flags.writeable:
                size = ctypes.c_size_t(array.nbytes)
                driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(start), ctypes.c_uint64(buffers[start]), size)
    finally:
        for address in buffers.values():
            driver.call("cuMemFree_v2", ctypes.c_uint64(address))


def _distinct_spans(hosts: dict[int, Any]) -> dict[int, Any]:
    """The arrays by first address, each memory once.

    Raises:
        BuildError: an array has gaps, or two overlap without being the same memory.
    """
    spans: dict[int, Any] = {}
    for position, array in hosts.items():
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise BuildError(
                f"argument {position} is a strided view: pass numpy.ascontiguousarray(x)", position=position
            )
        start = array.ctypes.data
        for other, known in spans.items():
            same = (start, array.nbytes) == (other, known.nbytes)
            if not same and start < other + known.nbytes and other < start + array.nbytes:
                raise BuildError(
                    f"argument {position} overlaps another in part; pass one array, or copies", start=start
                )
        if start not in spans or array.flags.writeable:
            spans[start] = array
    return spans


def _wait_for_producers(driver: Driver, args: Sequence[Any], handle: int) -> None:
    """Wait for the streams on which ``__cuda_array_interface__`` says that arrays are still being made."""
    for value in args:
        interface = None if isinstance(value, np.ndarray | np.generic | int) else _interface(value)
        producer = (interface or {}).get("stream")
        if producer is not None and _named(int(producer)) != _named(handle):
            driver.call("cuStreamSynchronize", ctypes.c_void_p(int(producer)))


def _named(handle: int) -> int:
    """The default stream has two names."""
    return _DEFAULT_STREAM if handle == _LEGACY_STREAM else handle


def _interface(value: Any) -> Any:
    return None if getattr(value, "is_cuda", False) else getattr(value, "__cuda_array_interface__", None)


def _launch(
    driver: Driver,
    function: ctypes.c_void_p,
    extents: tuple[tuple[int, int, int], tuple[int, int, int]],
    packed: Packed,
    *,
    shared_bytes: int,
    handle: int,
) -> None:
    shape = [ctypes.c_uint(extent) for triple in extents for extent in triple]
    tail = (ctypes.c_uint(shared_bytes), ctypes.c_void_p(handle), packed.pointers(), ctypes.c_void_p())
    driver.call("cuLaunchKernel", function, *shape, *tail)
