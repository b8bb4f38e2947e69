"""The few calls of the CUDA driver that a launch needs, by ctypes, with their failures as errors.

Every argument is passed as an explicit ctypes value, so that any object with these functions can stand in for the
library: the tests hand in one that executes "kernels" on host memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from codegen_cuda.errors import BuildError

__all__ = ["Driver", "LoadedKernel", "load_library", "open_driver", "why_no_gpu"]

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
_POINTER_DEVICE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_DYNAMIC_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DYNAMIC_SHARED_DEFAULT = 48 * 1024
_INVALID_VALUE, _NO_BINARY, _NOT_FOUND = 1, 209, 500  # CUresult


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel and the bytes of each of its parameters: ``None`` from a driver before CUDA 12.4, which cannot tell."""

    function: ctypes.c_void_p
    parameter_sizes: tuple[int, ...] | None


class Driver:
    """An initialised driver; a device's primary context is used, which is the one that CuPy and PyTorch use."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._kernels: dict[tuple[int, bytes, str], LoadedKernel] = {}
        self._lock = threading.Lock()
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Call one function and raise what it reports."""
        if status := int(getattr(self._library, name)(*arguments)):
            raise BuildError(f"{name} failed: {self._describe(status)}", call=name, status=status)

    def device_count(self) -> int:
        """Number of GPUs that this process may use."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def architecture(self, device: int) -> str:
        """Architecture of a device, such as ``sm_90``."""
        values = [ctypes.c_int(), ctypes.c_int()]
        for value, attribute in zip(values, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
            self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(device))
        return f"sm_{values[0].value}{values[1].value}"

    def current_device(self) -> int:
        """Device of the calling thread's context, or device 0 where it has none."""
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        if context:
            self.call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    def device_of(self, pointer: int) -> int:
        """Device that holds an address."""
        device = ctypes.c_int()
        arguments = (ctypes.byref(device), ctypes.c_int(_POINTER_DEVICE), ctypes.c_uint64(pointer))
        self.call("cuPointerGetAttribute", *arguments)
        return device.value

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make the device's primary context current inside the block, and the previous one again after it."""
        with self._lock:
            if device not in self._contexts:
                context = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
                self._contexts[device] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def kernel(self, device: int, image: bytes, entry: str) -> LoadedKernel:
        """Load an image once a process and device and find a kernel in it; images stay loaded."""
        key = (device, image, entry)
        with self._lock:
            if key not in self._kernels:
                module, function = ctypes.c_void_p(), ctypes.c_void_p()
                self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
                self.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(entry.encode()))
                self._kernels[key] = LoadedKernel(function, self._parameter_sizes(function))
            return self._kernels[key]

    def _parameter_sizes(self, function: ctypes.c_void_p) -> tuple[int, ...] | None:
        if not hasattr(self._library, "cuFuncGetParamInfo"):
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while True:
            position = ctypes.c_size_t(len(sizes))
            status = self._library.cuFuncGetParamInfo(function, position, ctypes.byref(offset), ctypes.byref(size))
            if int(status) == _INVALID_VALUE:  # one past the last parameter
                return tuple(sizes)
            if status:
                raise BuildError(f"cuFuncGetParamInfo failed: {self._describe(int(status))}", status=int(status))
            sizes.append(size.value)

    def allow_shared(self, function: ctypes.c_void_p, size_bytes: int) -> None:
        """Raise a kernel's limit of dynamic shared memory where the default does not reach."""
        if size_bytes > _DYNAMIC_SHARED_DEFAULT:
            limit = (ctypes.c_int(_DYNAMIC_SHARED_LIMIT), ctypes.c_int(size_bytes))
            self.call("cuFuncSetAttribute", function, *limit)

    def _describe(self, status: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(name))
        self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        words = " ".join((value.value or b"").decode() for value in (name, text)).strip() or f"status {status}"
        return words + _ADVICE.get(status, "")


_ADVICE = {
    _NO_BINARY: "; the cubin is for another architecture: compile with arch=device_architecture()",
    _NOT_FOUND: '; the cubin has no kernel of that name: extern "C" keeps a kernel\'s name as it is written',
}


def load_library() -> Any:
    """The driver library of this machine.

    Raises:
        OSError: there is none.
    """
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def open_driver() -> Driver:
    """The driver of this machine, initialised once.

    Raises:
        BuildError: no driver, or one that cannot start.
    """
    try:
        library = load_library()
    except OSError as error:
        raise BuildError(f"there is no NVIDIA driver on this machine ({error})") from error
    return Driver(library)


def why_no_gpu() -> str:
    """Why nothing can be launched here, ``""`` if something can."""
    try:
        return "" if open_driver().device_count() else "the NVIDIA driver sees no GPU"
    except BuildError as error:
        return str(error)
