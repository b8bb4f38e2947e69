"""Whole-tensor kernels on arrays: what is accepted, what is refused before a launch, the cache, tuning."""

from __future__ import annotations

import json
import multiprocessing

import numpy as np
import pytest

import codegen_cuda
from codegen_cuda import BuildError, PlanError, permute_tensor
from codegen_cuda._driver import Driver
from codegen_cuda.tensor import arrays, cache, permute, tune
from codegen_cuda.tensor.arrays import array_of
from codegen_cuda.tensor.problem import layouts_of_permutation, pose_tensor
from layoutalg import S, Swizzle, SwizzledLayout, TileLayout

KINDS = ("bool", "int8", "float16", "int32", "float64", "complex64", "complex128")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(arrays, "gpu_available", lambda: False)
    return tmp_path / "cache"


def numbers(shape, kind="int32"):
    return (np.arange(np.prod(shape, dtype=int)) % 127).reshape(shape).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_permute_returns_what_numpy_returns(kind):
    x = numbers((5, 33, 18), kind)
    y = codegen_cuda.permute(x, (2, 0, 1))
    assert y.dtype == x.dtype
    assert y.flags.c_contiguous
    assert (y == x.transpose(2, 0, 1)).all()


def test_the_module_and_the_helper_share_a_name():
    import codegen_cuda.permute as module

    assert codegen_cuda.permute is module
    assert (module(numbers((2, 3)), (1, 0)) == numbers((2, 3)).T).all()
    assert callable(module.permute_layout)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, 1:19, ::3],
        lambda x: x[::2],
        lambda x: x.transpose(2, 0, 1),
        lambda x: np.broadcast_to(x[:1], (4, 24, 20)),
        lambda x: x[1:, 3:, 5:],
    ],
    ids=["every third", "every second plane", "transposed", "broadcast", "offset"],
)
def test_strided_views_are_read_where_they_lie(view):
    x = view(numbers((6, 24, 20), "uint16"))
    assert (permute(x, (1, 2, 0)) == x.transpose(1, 2, 0)).all()


def test_scalars_and_empty_arrays_need_no_kernel_of_their_own():
    assert permute(np.array(3.0), ()) == 3.0
    assert permute(np.zeros((0, 3)), (1, 0)).shape == (3, 0)


def test_a_result_may_go_into_a_strided_array_and_leaves_its_gaps_alone():
    x, room = numbers((7, 12), "uint8"), np.full((12, 10), 200, dtype=np.uint8)
    assert permute(x, (1, 0), out=room[:, 1:8]) is not None
    assert (room[:, 1:8] == x.T).all()
    assert (room[:, 0] == 200).all()
    assert (room[:, 8:] == 200).all()


def test_a_kernel_runs_on_arrays_of_its_shape_and_on_flat_buffers():
    kernel, x = permute_tensor((6, 9), (1, 0), "f32"), numbers((6, 9), "float32")
    assert (kernel.run(x) == x.T).all()
    out = np.zeros(54, dtype=np.float32)
    assert kernel.run(x.reshape(-1), out) is out
    assert (out.reshape(9, 6) == x.T).all()


def test_a_kernel_of_layouts_leaves_zeros_in_the_gaps_of_a_fresh_buffer():
    source, destination = TileLayout(S[(4, 6) : (8, 1)]) + 3, TileLayout(S[(4, 6) : (1, 5)])
    kernel = permute_tensor((4, 6), src=source, dst=destination, dtype="f64")
    out = kernel.run(np.arange(64.0))
    assert out.shape == (29,)
    for i in range(4):
        for j in range(6):
            assert out[i + 5 * j] == 3 + 8 * i + j
    assert (out[4::5] == 0).all()


class HostArray:
    """An array that offers DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class GpuArray(HostArray):
    """The same with a device that it does not have: launches are only recorded."""

    def __dlpack__(self, **options):
        assert not options
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.parametrize("kind", ["float16", "complex128"])
def test_arrays_that_offer_dlpack_alone_are_read_where_they_lie(kind):
    x = numbers((6, 24, 20), kind)[:, 1:19, ::3]
    assert (permute(HostArray(x), (1, 2, 0)) == x.transpose(1, 2, 0)).all()
    found = array_of(GpuArray(x))
    assert (found.address, found.shape, found.dtype) == (x.ctypes.data, x.shape, kind)
    assert found.strides == tuple(s // x.itemsize for s in x.strides)


REFUSED = {
    "a permutation of fractions": lambda x: permute(x, (1.0, 0)),
    "a permutation of names": lambda x: permute(x, "10"),
    "an alignment for one side": lambda _: permute_tensor((4, 6), (1, 0), "i32", align=16),
    "layouts as text": lambda _: permute_tensor((24,), src="S[24:1]", dst="S[24:1]", dtype="i32"),
    "a swizzled layout": lambda _: permute_tensor((64,), src=SWIZZLED, dst=SWIZZLED, dtype="i32"),
    "a layout that runs backwards": lambda _: permute_tensor(
        (24,), src=TileLayout(S[(4, 6) : (-6, 1)]) + 18, dst=TileLayout(S[24:1]), dtype="i32"
    ),
    "more ranks than eight": lambda x: permute(x.reshape((1,) * 7 + (4, 6)), tuple(range(9))),
    "records": lambda _: permute(np.zeros((4, 6), dtype=[("a", "i4"), ("b", "f4")]), (1, 0)),
    "long doubles": lambda x: permute(x.astype(np.longdouble), (1, 0)),
    "an output that is not aligned": lambda x: permute(x, (1, 0), out=shifted_by_a_byte((6, 4), x.dtype)),
    "an output that overlaps in part": lambda x: permute(x[:2], (1, 0), out=x.reshape(-1)[8:20].reshape(6, 2)),
    "an array on a strange device": lambda x: permute(FarArray(x), (1, 0)),
    "a device array of a library without empty arrays": lambda x: permute(GpuArray(x), (1, 0)),
    "not a permutation": lambda x: permute(x, (0, 0)),
    "too few dimensions": lambda x: permute(x, (0,)),
    "a negative stride": lambda x: permute(x[::-1], (1, 0)),
    "objects": lambda x: permute(x.astype(object), (1, 0)),
    "dates": lambda x: permute(x.astype("datetime64[s]"), (1, 0)),
    "a list": lambda x: permute(x.tolist(), (1, 0)),
    "an output of another shape": lambda x: permute(x, (1, 0), out=np.zeros_like(x)),
    "an output of another width": lambda x: permute(x, (1, 0), out=np.zeros(x.T.shape, dtype="f8")),
    "an output that overlaps": lambda x: permute(x, (1, 0), out=x.reshape(-1)[:24].reshape(6, 4)),
    "an output that repeats places": lambda x: permute(x, (1, 0), out=np.broadcast_to(np.zeros(4, x.dtype), (6, 4))),
    "a read-only output": lambda x: permute(x, (1, 0), out=frozen((6, 4), x.dtype)),
    "no output that fits": lambda x: permute_tensor((4, 6), (1, 0), "i32").run(x, np.zeros(23, dtype=x.dtype)),
    "a source of another shape": lambda x: permute_tensor((4, 6), (1, 0), "i32").run(x.reshape(6, 4)),
    "a source of another width": lambda x: permute_tensor((4, 6), (1, 0), "f64").run(x),
    "a strange device": lambda x: permute_tensor((4, 6), (1, 0), "i32").run(x, device="tpu"),
    "tuning without a GPU": lambda x: permute_tensor(x.shape, (1, 0), x.dtype, autotune=True),
}


SWIZZLED = SwizzledLayout(Swizzle(1, 1, 2), TileLayout(S[8, 8]))


class FarArray(HostArray):
    def __dlpack_device__(self):
        return (7, 0)


def shifted_by_a_byte(shape, kind):
    count = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.zeros(count + 1, dtype=np.uint8)[1:].view(kind).reshape(shape)


def frozen(shape, kind):
    array = np.zeros(shape, dtype=kind)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_before_a_launch(name, monkeypatch):
    monkeypatch.setattr(tune, "why_no_gpu", lambda: "there is none")
    monkeypatch.setattr(arrays, "_on_cpu", lambda *_: pytest.fail("launched"))
    with pytest.raises((PlanError, BuildError)) as caught:
        REFUSED[name](numbers((4, 6)))
    assert len(str(caught.value)) > 20


def test_no_room_for_the_result_is_an_error_with_its_size(monkeypatch):
    def full(shape, dtype):
        raise MemoryError(f"cannot hold {shape} of {dtype}")

    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(BuildError) as caught:
        permute(numbers((4, 6)), (1, 0))
    assert caught.value.facts["bytes"] == 96


def test_large_numpy_arrays_are_not_left_to_the_interpreter():
    with pytest.raises(BuildError, match="at most"):
        permute(np.zeros((2048, 2049), dtype=np.uint8), (1, 0))


def test_numpy_integers_permute_as_python_ones_do():
    x = numbers((3, 4, 5))
    assert (permute(x, np.array([2, 0, 1])) == x.transpose(2, 0, 1)).all()


def test_eight_dimensions_most_of_them_one():
    x = numbers((1, 2, 1, 3, 1, 1, 4, 1), "uint8")
    order = (7, 6, 5, 4, 3, 2, 1, 0)
    assert (permute(x, order) == x.transpose(order)).all()


# -- device arrays, with a launcher that only records --------------------------------------------------------------


class DeviceArray:
    """An array with a CUDA array interface, at an address of our choice."""

    __module__ = "cupyish.core"

    def __init__(self, shape, dtype, *, address=1 << 20, strides=None, stream=None):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.__cuda_array_interface__ = {"data": (address, False), "strides": strides, "stream": stream, "shape": shape}


@pytest.fixture
def launched(monkeypatch):
    calls = []
    monkeypatch.setattr(arrays, "launch", lambda *args, **options: calls.append((args, options)))
    monkeypatch.setattr(arrays, "device_architecture", lambda: "sm_90")
    monkeypatch.setattr(arrays, "built", lambda _source, name, arch: (None, (name, arch)))
    return calls


def test_device_arrays_are_launched_at_their_addresses_on_the_stream_given(launched):
    x, out = DeviceArray((64, 48), "f4", stream=9), DeviceArray((48, 64), "f4", address=1 << 30)
    assert permute(x, (1, 0), out=out, stream=5) is out
    (cubin, _), options = launched[0]
    assert cubin[1] == "sm_90"
    assert [a.__cuda_array_interface__["data"][0] for a in options["args"]] == [1 << 20, 1 << 30]
    assert options["args"][0].__cuda_array_interface__["stream"] == 9
    assert options["stream"] == 5


def test_a_compiled_kernel_runs_the_code_that_it_holds(launched, monkeypatch):
    kernel = permute_tensor((64, 48), (1, 0), "f32").compile()
    kernel.run(DeviceArray((64, 48), "f4"), DeviceArray((48, 64), "f4", address=1 << 30))
    assert launched[0][0][0] is kernel.cubin
    monkeypatch.setattr(arrays, "built", lambda *_: pytest.fail("compiled again"))
    x = numbers((64, 48), "float32")
    assert (kernel.run(x, device="cpu") == x.T).all()


def test_addresses_that_are_little_aligned_get_a_kernel_that_suits_them(launched):
    permute(
        DeviceArray((64, 48), "f4", address=(1 << 20) + 4), (1, 0), out=DeviceArray((48, 64), "f4", address=1 << 30)
    )
    permute(DeviceArray((64, 48), "f4"), (1, 0), out=DeviceArray((48, 64), "f4", address=1 << 30))
    assert len(launched) == 2
    kernel = permute_tensor((64, 48), (1, 0), "f32")
    with pytest.raises(BuildError, match="aligned"):
        kernel.run(DeviceArray((64, 48), "f4", address=(1 << 20) + 4), DeviceArray((48, 64), "f4", address=1 << 30))
    with pytest.raises(PlanError) as caught:
        permute(DeviceArray((64, 48), "f4", address=(1 << 20) + 2), (1, 0), out=DeviceArray((48, 64), "f4"))
    assert caught.value.facts["rule"] == "alignment"


def test_device_arrays_that_overlap_or_mix_with_host_arrays_are_refused(launched):
    x = DeviceArray((64, 48), "f4")
    with pytest.raises(BuildError, match="overlap"):
        permute(x, (1, 0), out=DeviceArray((48, 64), "f4", address=(1 << 20) + 64 * 48 * 4 - 16))
    with pytest.raises(BuildError, match="out"):
        permute(x, (1, 0), out=np.zeros((48, 64), dtype=np.float32))
    with pytest.raises(BuildError, match="interpreter"):
        permute_tensor((64, 48), (1, 0), "f32").run(x, DeviceArray((48, 64), "f4", address=1 << 30), device="cpu")
    assert launched == []


def test_arrays_that_offer_dlpack_alone_are_launched_at_their_addresses(launched):
    x, out = numbers((64, 48), "float32"), np.zeros((48, 64), dtype=np.float32)
    permute(GpuArray(x), (1, 0), out=GpuArray(out), stream=3)
    ((_, options),) = launched
    assert [a.__cuda_array_interface__["data"][0] for a in options["args"]] == [x.ctypes.data, out.ctypes.data]
    assert options["stream"] == 3


def test_strides_that_are_no_whole_elements_are_refused():
    with pytest.raises(PlanError) as caught:
        permute(DeviceArray((4, 6), "f4", strides=(26, 4)), (1, 0))
    assert caught.value.facts["rule"] == "stride"


# -- the cache -----------------------------------------------------------------------------------------------------


def test_a_compiled_kernel_is_found_on_disk_by_the_next_process(own_cache, monkeypatch):
    kernel = permute_tensor((16, 16), (1, 0), "f32")
    made = cache.built(kernel.source, kernel.name, "sm_90")
    cache._built.cache_clear()
    monkeypatch.setattr(cache, "compile_ptx", lambda *_, **__: pytest.fail("compiled twice"))
    assert cache.built(kernel.source, kernel.name, "sm_90") == made
    assert len(list(own_cache.rglob("*.json"))) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[]",
        lambda text: text.replace("sm_90", "sm_80"),
        lambda text: json.dumps({**json.loads(text), "format": 0}),
    ],
    ids=["cut off", "empty", "another value", "edited", "another format"],
)
def test_a_damaged_entry_counts_as_none(own_cache, damage):
    kernel = permute_tensor((16, 16), (1, 0), "f32")
    made = cache.built(kernel.source, kernel.name, "sm_90")
    (entry,) = own_cache.rglob("*.json")
    entry.write_text(damage(entry.read_text()))
    cache._built.cache_clear()
    assert cache.read_entry(entry.stem) is None
    assert cache.built(kernel.source, kernel.name, "sm_90") == made
    assert cache.read_entry(entry.stem) is not None


def _write_many(root: str) -> None:
    import os

    os.environ[cache.DIRECTORY_VARIABLE] = root
    for turn in range(40):
        cache.write_entry("k" * 64, {"turn": turn, "filling": "x" * 20_000})
        found = cache.read_entry("k" * 64)
        assert found is not None
        assert len(found["filling"]) == 20_000


def test_many_processes_may_write_one_entry_at_once(own_cache):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(own_cache),)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [p.name for p in (own_cache / "kk").iterdir()] == [f"{'k' * 64}.json"]


def test_where_nothing_can_be_written_nothing_is_cached(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for place in (str(blocked / "cache"), "off"):
        monkeypatch.setenv(cache.DIRECTORY_VARIABLE, place)
        cache.write_entry("a" * 64, {"x": 1})
        assert cache.read_entry("a" * 64) is None
        assert (permute(numbers((3, 4)), (1, 0)) == numbers((3, 4)).T).all()


# -- tuning --------------------------------------------------------------------------------------------------------


def test_tuning_measures_once_and_remembers_by_shape(monkeypatch):
    measured = []

    def measure(_problem, plans, _arch):
        measured.append(sorted(plans))
        return {name: float(len(plans) - k) for k, name in enumerate(plans)}

    monkeypatch.setattr(tune, "why_no_gpu", lambda: "")
    monkeypatch.setattr(tune, "device_architecture", lambda: "sm_90")
    monkeypatch.setattr(tune, "_measure", measure)
    monkeypatch.setattr(tune, "_remembered", {})
    kernels = [permute_tensor((512, 640), (1, 0), "f32", autotune=True) for _ in range(2)]
    assert len(measured) == 1
    assert len(measured[0]) > 1
    assert kernels[0].source == kernels[1].source
    tune._remembered.clear()
    assert permute_tensor((512, 640), (1, 0), "f32", autotune=True).source == kernels[0].source
    permute_tensor((512, 1024), (1, 0), "f32", autotune=True)
    assert len(measured) == 2


class TimedDriver:
    """The driver calls of a measurement; memory may run out."""

    def __init__(self, *, room: int):
        self.room, self.held, self.log = room, {}, []

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.log.append(name)
            return getattr(self, f"_{name}", lambda *_: 0)(*arguments)

        return call

    def _cuMemAlloc_v2(self, out, size):
        if sum(self.held.values()) + size.value > self.room:
            return 2
        out._obj.value = 4096 * (1 + len(self.log))
        self.held[out._obj.value] = size.value
        return 0

    def _cuMemFree_v2(self, pointer):
        del self.held[pointer.value]
        return 0

    def _cuEventElapsedTime(self, out, _start, _stop):
        out._obj.value = 1.5
        return 0

    def _cuGetErrorName(self, _status, out):
        out._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
        return 0

    def _cuGetErrorString(self, _status, out):
        out._obj.value = b"out of memory"
        return 0


@pytest.mark.parametrize("room", [1 << 30, 1 << 20], ids=["room for both", "room for one"])
def test_a_measurement_gives_back_what_it_takes(room, monkeypatch):
    library = TimedDriver(room=room)
    driver = Driver(library)
    monkeypatch.setattr(tune, "open_driver", lambda: driver)
    monkeypatch.setattr(tune, "built", lambda *_: (None, None))
    monkeypatch.setattr(tune, "launch", lambda *_, **__: None)
    shape = (512, 512)
    problem = pose_tensor(*layouts_of_permutation(shape, (1, 0)), shape=shape, dtype_name="f32", perm=(1, 0))
    plans = {"only": next(iter(tune.candidates(problem)))}
    if room > 1 << 20:
        assert tune._measure(problem, plans, "sm_90") == {"only": 1.5}
    else:
        with pytest.raises(BuildError, match="memory"):
            tune._measure(problem, plans, "sm_90")
    assert library.held == {}
