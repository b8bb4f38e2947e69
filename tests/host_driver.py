"""A CUDA driver over host memory, for tests of what surrounds the real one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np


class HostDriver:
    """The functions of a CUDA driver over host memory; a Python function plays the kernel."""

    def __init__(self, kernel: Callable[..., None], sizes: tuple[int, ...] = (), devices: int = 1) -> None:
        self.kernel, self.sizes, self.devices = kernel, sizes, devices
        self.log: list[str] = []
        self.memory: dict[int, ctypes.Array] = {}
        self.location: dict[int, int] = {}
        self.current = [0]
        self.fail: dict[str, int] = {}
        self.launched: list[tuple] = []
        self.limit = 48 * 1024

    def __getattribute__(self, name: str):
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or name in ("current",):
            return found

        def recorded(*arguments):
            self.log.append(name)
            if name in self.fail:
                return self.fail[name]
            return found(*arguments) or 0

        return recorded

    def cuInit(self, flags):
        pass

    def cuGetErrorName(self, status, out):
        out._obj.value = b"CUDA_ERROR_%d" % status.value

    def cuGetErrorString(self, _status, out):
        out._obj.value = b"said so"

    def cuDeviceGetCount(self, out):
        out._obj.value = self.devices

    def cuDeviceGetAttribute(self, out, attribute, _device):
        out._obj.value = {75: 9, 76: 0}[attribute.value]

    def cuCtxGetCurrent(self, out):
        out._obj.value = self.current[-1] or None

    def cuCtxGetDevice(self, out):
        out._obj.value = self.current[-1] - 100

    def cuPointerGetAttribute(self, out, attribute, pointer):
        assert attribute.value == 9
        out._obj.value = self.location[pointer.value]

    def cuDevicePrimaryCtxRetain(self, out, device):
        out._obj.value = 100 + device.value

    def cuCtxPushCurrent_v2(self, context):
        self.current.append(context.value)

    def cuCtxPopCurrent_v2(self, _out):
        self.current.pop()

    def cuModuleLoadData(self, out, _image):
        out._obj.value = 7

    def cuModuleGetFunction(self, out, module, name):
        assert (module.value, name.value) == (7, b"entry")
        out._obj.value = 8

    def cuFuncGetParamInfo(self, _function, position, _offset, size):
        if position.value >= len(self.sizes):
            return 1
        size._obj.value = self.sizes[position.value]
        return 0

    def cuFuncSetAttribute(self, _function, attribute, value):
        assert attribute.value == 8
        self.limit = value.value

    def cuMemAlloc_v2(self, out, size):
        assert size.value > 0
        block = ctypes.create_string_buffer(b"\xa5" * size.value, size.value)
        address = ctypes.addressof(block)
        self.memory[address] = block
        out._obj.value = address

    def cuMemFree_v2(self, pointer):
        del self.memory[pointer.value]

    def cuMemcpyHtoD_v2(self, to, source, size):
        ctypes.memmove(to.value, source.value, size.value)

    def cuMemcpyDtoH_v2(self, to, source, size):
        ctypes.memmove(to.value, source.value, size.value)

    def cuStreamSynchronize(self, stream):
        self.log[-1] += f"({stream.value or 0})"

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
        assert function.value == 8
        assert self.current[-1] >= 100, "no context is current"
        assert shared.value <= self.limit
        assert not extra.value
        shape = (gx.value, gy.value, gz.value), (bx.value, by.value, bz.value)
        self.launched.append((*shape, shared.value, stream.value or 0))
        self.kernel(*(ctypes.string_at(pointers[k], size) for k, size in enumerate(self.sizes)))

    def place(self, array: np.ndarray, device: int = 0) -> int:
        """Pretend that a host array is memory of a device."""
        self.location[array.ctypes.data] = device
        return array.ctypes.data
