"""Launching: arguments reach the kernel at the widths of its parameters, and arrays come back.

A driver of our own executes "kernels" written in Python on host memory, which is enough to check everything except the
driver itself; the last tests run on a GPU where there is one.
"""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from host_driver import HostDriver

from codegen_cuda import _driver
from codegen_cuda import launch as launch_module
from codegen_cuda._driver import Driver
from codegen_cuda.build import assemble, compile_ptx
from codegen_cuda.errors import BuildError
from codegen_cuda.launch import device_architecture, gpu_available, launch, pack_arguments, stream_handle

GPU = gpu_available()
needs_gpu = pytest.mark.skipif(not GPU, reason="there is no GPU")


@pytest.fixture
def on(monkeypatch):
    """Put a host driver in the place of the machine's."""

    def install(host: HostDriver) -> HostDriver:
        driver = Driver(host)
        monkeypatch.setattr(_driver, "open_driver", lambda: driver)
        monkeypatch.setattr(launch_module, "open_driver", lambda: driver)
        return host

    return install


def reverse(out: bytes, source: bytes, count: bytes) -> None:
    """A kernel: ``out[i] = source[count - 1 - i]`` over 32-bit words."""
    (to,), (start,), (words,) = (struct.unpack("<Q", out), struct.unpack("<Q", source), struct.unpack("<i", count))
    values = list((ctypes.c_uint32 * words).from_address(start))
    (ctypes.c_uint32 * words).from_address(to)[:] = values[::-1]


class CudaArray:
    def __init__(self, address: int, **interface) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "version": 3, **interface}


class TorchLike:
    is_cuda = True

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("requires grad")


class DLPackOnly:
    """A host array whose DLPack says that it is on a GPU."""

    def __init__(self, array: np.ndarray, kind: int = 2) -> None:
        self.array, self.kind = array, kind

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self):
        return self.array.__dlpack__()


def arrays(count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(count, np.uint32), np.arange(count, dtype=np.uint32)


def test_numpy_arrays_go_to_the_device_and_the_result_comes_back(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    out, source = arrays()
    launch(b"image", "entry", grid=2, block=(4, 2), args=(out, source, 8))
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert source.tolist() == list(range(8))
    assert host.launched == [((2, 1, 1), (4, 2, 1), 0, 0)]
    assert host.memory == {}
    assert host.current == [0]
    order = [name for name in host.log if name.startswith(("cuMemcpy", "cuStream", "cuLaunch"))]
    assert order == [
        *["cuMemcpyHtoD_v2"] * 2,
        "cuStreamSynchronize(0)",
        "cuLaunchKernel",
        "cuStreamSynchronize(0)",
        *["cuMemcpyDtoH_v2"] * 2,
    ]


@pytest.mark.parametrize("wrap", [CudaArray, TorchLike], ids=["interface", "pytorch"])
def test_device_arrays_are_used_where_they_are(on, wrap):
    host = on(HostDriver(reverse, (8, 8, 4)))
    out, source = arrays()
    launch(b"image", "entry", grid=1, block=32, args=(wrap(host.place(out)), wrap(host.place(source)), np.int32(8)))
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert not [name for name in host.log if "Mem" in name or "Synchronize" in name]


def test_dlpack_gives_the_first_byte_of_the_array_and_not_of_its_buffer(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    out, source = np.zeros(8, np.uint32), np.arange(12, dtype=np.uint32)[4:]
    host.place(out), host.place(source)
    launch(b"image", "entry", grid=1, block=32, args=(DLPackOnly(out), DLPackOnly(source), 8))
    assert out.tolist() == [11, 10, 9, 8, 7, 6, 5, 4]


def test_an_array_of_another_library_on_the_host_is_refused(on):
    on(HostDriver(reverse, (8, 8, 4)))
    with pytest.raises(BuildError, match="move it to the GPU"):
        launch(b"image", "entry", grid=1, block=32, args=(DLPackOnly(np.zeros(8), kind=1), 0, 8))


def test_an_array_that_is_passed_twice_is_one_buffer_so_that_in_place_stays_in_place(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    _, both = arrays()
    launch(b"image", "entry", grid=1, block=32, args=(both, both, 8))
    assert both.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert host.log.count("cuMemAlloc_v2") == 1


def test_a_read_only_array_is_not_written_back(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    out, source = arrays()
    source.flags.writeable = False
    launch(b"image", "entry", grid=1, block=32, args=(out, source, 8))
    assert host.log.count("cuMemcpyDtoH_v2") == 1


def test_a_read_only_view_of_an_output_does_not_hide_the_output(on):
    on(HostDriver(reverse, (8, 8, 4)))
    _, both = arrays()
    view = both.view()
    view.flags.writeable = False
    launch(b"image", "entry", grid=1, block=32, args=(both, view, 8))
    assert both.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_arrays_that_overlap_in_part_or_have_gaps_are_refused(on):
    on(HostDriver(reverse, (8, 8, 4)))
    whole = np.arange(16, dtype=np.uint32)
    with pytest.raises(BuildError, match="overlaps"):
        launch(b"image", "entry", grid=1, block=32, args=(whole[:8], whole[4:12], 8))
    with pytest.raises(BuildError, match="strided view"):
        launch(b"image", "entry", grid=1, block=32, args=(whole[::2], whole[:8], 8))


def test_an_empty_array_has_an_address_as_well(on):
    on(HostDriver(reverse, (8, 8, 4)))
    launch(b"image", "entry", grid=1, block=32, args=(np.zeros(0, np.uint32), np.zeros(0, np.uint32), 0))


def test_an_image_is_loaded_once(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    for _ in range(3):
        launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8))
    assert host.log.count("cuModuleLoadData") == 1
    assert host.log.count("cuDevicePrimaryCtxRetain") == 1
    assert len(host.launched) == 3


def test_more_than_the_default_of_dynamic_shared_memory_is_asked_for(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8), shared_bytes=48 * 1024)
    assert "cuFuncSetAttribute" not in host.log
    launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8), shared_bytes=227 * 1024)
    assert host.limit == 227 * 1024


def test_the_device_is_the_one_that_holds_the_arrays(on):
    host = on(HostDriver(reverse, (8, 8, 4), devices=2))
    out, source = arrays()
    first, second = CudaArray(host.place(out, device=1)), CudaArray(host.place(source, device=1))
    seen = []
    host.kernel = lambda *_: seen.append(host.current[-1])
    launch(b"image", "entry", grid=1, block=32, args=(first, second, 8))
    assert seen == [101]
    host.location[source.ctypes.data] = 0
    with pytest.raises(BuildError, match=r"devices \[0, 1\]"):
        launch(b"image", "entry", grid=1, block=32, args=(first, second, 8))


def test_without_device_arrays_the_current_device_serves(on):
    host = on(HostDriver(lambda *_: None, (8, 8, 4), devices=4))
    host.current.append(103)
    seen = []
    host.kernel = lambda *_: seen.append(host.current[-1])
    launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8))
    assert seen == [103]
    assert host.current == [0, 103]


@pytest.mark.parametrize(("producer", "waits"), [(None, []), (1, []), (55, ["cuStreamSynchronize(55)"])])
def test_an_array_that_is_still_being_made_on_another_stream_is_waited_for(on, producer, waits):
    host = on(HostDriver(reverse, (8, 8, 4)))
    out, source = arrays()
    args = (CudaArray(host.place(out)), CudaArray(host.place(source), stream=producer), 8)
    launch(b"image", "entry", grid=1, block=32, args=args)
    assert [name for name in host.log if name.startswith("cuStream")] == waits


def test_a_failure_frees_the_copies_and_restores_the_context(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    host.fail = {"cuLaunchKernel": 719}
    out, source = arrays()
    with pytest.raises(BuildError, match="cuLaunchKernel failed: CUDA_ERROR_719 said so"):
        launch(b"image", "entry", grid=1, block=32, args=(out, source, 8))
    assert (host.memory, host.current, out.any()) == ({}, [0], False)


@pytest.mark.parametrize(
    ("call", "status", "advice"),
    [("cuModuleLoadData", 209, "another architecture"), ("cuModuleGetFunction", 500, 'extern "C"')],
)
def test_a_failure_that_has_a_usual_cause_names_it(on, call, status, advice):
    host = on(HostDriver(reverse, (8, 8, 4)))
    host.fail = {call: status}
    with pytest.raises(BuildError, match=advice):
        launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8))


@pytest.mark.parametrize(
    "shape",
    [
        {"grid": 0, "block": 32},
        {"grid": (1, 65536), "block": 32},
        {"grid": 1, "block": 1025},
        {"grid": 1, "block": (32, 33)},
        {"grid": 1, "block": (1, 1, 65)},
        {"grid": (1, 1, 1, 1), "block": 32},
    ],
)
def test_a_shape_that_no_launch_can_have_is_refused_before_anything_happens(on, shape):
    host = on(HostDriver(reverse, (8, 8, 4)))
    with pytest.raises(BuildError, match="must be one to three extents"):
        launch(b"image", "entry", args=(*arrays(), 8), **shape)
    assert host.launched == []


def packed(values, is_pointer, sizes) -> list[bytes]:
    """What the driver would read through the pointers."""
    held = pack_arguments(values, is_pointer, sizes)
    return [ctypes.string_at(pointer, len(value)) for pointer, value in zip(held.pointers(), held.values, strict=True)]


def test_an_int_takes_the_width_of_its_parameter():
    for size, code in ((1, "<b"), (2, "<h"), (4, "<i"), (8, "<q")):
        for value in (-1, 5, -(1 << (8 * size - 1))):
            assert packed([value], [False], [size]) == [struct.pack(code, value)]
        top = (1 << (8 * size)) - 1
        assert packed([top], [False], [size]) == [b"\xff" * size]
        for value in (top + 1, -(1 << (8 * size - 1)) - 1):
            with pytest.raises(BuildError, match="does not fit"):
                pack_arguments([value], [False], [size])


def test_a_numpy_scalar_keeps_its_own_width_and_must_match():
    assert packed([np.float32(1.5), np.int64(-2)], [False] * 2, [4, 8]) == [
        struct.pack("<f", 1.5),
        struct.pack("<q", -2),
    ]
    assert packed([np.float16(1.5)], [False], None) == [struct.pack("<e", 1.5)]
    with pytest.raises(BuildError, match="argument 0 has 8 bytes but its parameter has 4"):
        pack_arguments([np.float64(1.5)], [False], [4])


def test_an_address_fits_a_64_bit_parameter_alone():
    assert packed([2**47], [True], [8]) == [struct.pack("<Q", 2**47)]
    with pytest.raises(BuildError, match="argument 0 has 8 bytes but its parameter has 4"):
        pack_arguments([4096], [True], [4])


def test_the_number_of_arguments_is_that_of_the_parameters():
    with pytest.raises(BuildError, match="3 parameters but got 2"):
        pack_arguments([1, 2], [False] * 2, [4, 4, 4])


@pytest.mark.parametrize("value", [1.5, True, "x", None, [1, 2]])
def test_a_value_without_a_width_is_refused(value):
    with pytest.raises(BuildError, match=r"np\.float32"):
        pack_arguments([value], [False], [4])


def test_a_driver_that_cannot_tell_widths_gets_no_bare_int(on):
    class Old(HostDriver):
        def __getattribute__(self, name: str):
            if name == "cuFuncGetParamInfo":
                raise AttributeError(name)
            return super().__getattribute__(name)

    on(Old(reverse, (8, 8, 4)))
    out, source = arrays()
    with pytest.raises(BuildError, match=r"np\.int32\(8\) or np\.int64\(8\)"):
        launch(b"image", "entry", grid=1, block=32, args=(out, source, 8))
    launch(b"image", "entry", grid=1, block=32, args=(out, source, np.int32(8)))
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_streams_of_every_library_give_their_handle():
    class Protocol:
        def __cuda_stream__(self):
            return 0, 11

    cupy, torch = type("C", (), {"ptr": 12})(), type("T", (), {"cuda_stream": 13})()
    assert [stream_handle(stream) for stream in (None, 0, 10, Protocol(), cupy, torch)] == [0, 0, 10, 11, 12, 13]
    with pytest.raises(BuildError, match="stream is a str"):
        stream_handle("default")


def test_a_stream_is_where_the_kernel_runs(on):
    host = on(HostDriver(reverse, (8, 8, 4)))
    launch(b"image", "entry", grid=1, block=32, args=(*arrays(), 8), stream=42)
    assert host.launched[0][-1] == 42
    assert host.log.count("cuStreamSynchronize(42)") == 1


def no_library():
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (no_library, "no NVIDIA driver"),
        (lambda: HostDriver(reverse, devices=0), "sees no GPU"),
    ],
)
def test_without_a_gpu_a_launch_says_what_is_missing(monkeypatch, library, why):
    monkeypatch.setattr(_driver, "load_library", library)
    _driver.open_driver.cache_clear()
    try:
        assert not gpu_available()
        with pytest.raises(BuildError, match=why):
            launch(b"image", "entry", grid=1, block=32, args=())
        with pytest.raises(BuildError, match=why):
            device_architecture()
    finally:
        _driver.open_driver.cache_clear()


def test_the_architecture_is_named_as_the_compiler_wants_it(on):
    on(HostDriver(reverse))
    assert device_architecture() == "sm_90"


REVERSE = """\
extern "C" __global__ void reverse(float* out, const float* in, int n, long long shift) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x] + shift;
}
"""


@needs_gpu
@pytest.mark.parametrize("shared_bytes", [1024, 64 * 1024])
def test_on_a_gpu_numpy_arrays_come_back_as_the_kernel_left_them(shared_bytes):
    cubin = assemble(compile_ptx(REVERSE, arch=device_architecture()))
    out, source = np.zeros(256, np.float32), np.arange(256, dtype=np.float32)
    launch(cubin, "reverse", grid=1, block=256, args=(out, source, 256, -3), shared_bytes=shared_bytes)
    np.testing.assert_array_equal(out, source[::-1] - 3)


@needs_gpu
def test_on_a_gpu_wrong_arguments_and_wrong_names_are_errors():
    cubin = assemble(compile_ptx(REVERSE, arch=device_architecture()))
    out, source = np.zeros(256, np.float32), np.arange(256, dtype=np.float32)
    with pytest.raises(BuildError, match="4 parameters but got 3"):
        launch(cubin, "reverse", grid=1, block=256, args=(out, source, 256), shared_bytes=1024)
    with pytest.raises(BuildError, match="its parameter has 4"):
        launch(cubin, "reverse", grid=1, block=256, args=(out, source, np.int64(256), 0), shared_bytes=1024)
    with pytest.raises(BuildError, match="no kernel of that name"):
        launch(cubin, "converse", grid=1, block=256, args=(), shared_bytes=1024)
    with pytest.raises(BuildError, match="another architecture"):
        launch(assemble(compile_ptx(REVERSE, arch="sm_121a")), "reverse", grid=1, block=256, args=())


@needs_gpu
@pytest.mark.parametrize("package", ["torch", "cupy"])
def test_on_a_gpu_device_arrays_of_other_libraries_are_written_in_place(package):
    library = pytest.importorskip(package)
    cubin = assemble(compile_ptx(REVERSE, arch=device_architecture()))
    if package == "torch":
        source = library.arange(256, dtype=library.float32, device="cuda", requires_grad=True)
        out, stream = library.zeros(256, device="cuda"), library.cuda.Stream()
        library.cuda.synchronize()
    else:
        source, out = library.arange(256, dtype=library.float32), library.zeros(256, library.float32)
        stream = library.cuda.Stream(non_blocking=True)
    launch(cubin, "reverse", grid=1, block=256, args=(out, source, 256, 5), shared_bytes=1024, stream=stream)
    stream.synchronize()
    assert out.tolist() == [255 - k + 5 for k in range(256)]
