"""Measuring the candidate plans of one request on this machine's GPU, once, and remembering the fastest by shape."""

from __future__ import annotations

import contextlib
import ctypes
import statistics
from collections.abc import Iterator
from typing import Any

from codegen_cuda._driver import Driver, open_driver, why_no_gpu
from codegen_cuda.build import Cubin
from codegen_cuda.errors import BuildError
from codegen_cuda.kernel import Kernel
from codegen_cuda.launch import device_architecture, launch
from codegen_cuda.tensor.arrays import Address
from codegen_cuda.tensor.cache import built, read_entry, write_entry
from codegen_cuda.tensor.choose import candidates, widen
from codegen_cuda.tensor.plan import TensorPlan
from codegen_cuda.tensor.problem import TensorProblem
from layoutalg.claim import digest

__all__ = ["best_plan"]

_MOST_CANDIDATES = 8
_WARM_UP = 3
_REPETITIONS = 11

_remembered: dict[str, str] = {}


def best_plan(problem: TensorProblem) -> TensorPlan:
    """Return the fastest candidate for a request; it is measured on the first call for a shape and GPU.

    Raises:
        BuildError: there is no GPU, or no room on it for source and destination.
    """
    if reason := why_no_gpu():
        raise BuildError(f"autotune measures on a GPU, and {reason}; without autotune, heuristics choose the plan")
    units = widen(problem)
    plans = {plan.describe(): plan for plan in list(candidates(units))[:_MOST_CANDIDATES]}
    arch = device_architecture()
    key = digest({"kind": "tuning", "arch": arch, "dims": repr(units.dims), "plans": sorted(plans)})
    known = _remembered.get(key) or (read_entry(key) or {}).get("plan")
    if known not in plans:
        times = _measure(problem, plans, arch)
        known = min(times, key=lambda name: times[name])
        write_entry(key, {"plan": known, "milliseconds": times})
    _remembered[key] = known
    return plans[known]


def _measure(problem: TensorProblem, plans: dict[str, TensorPlan], arch: str) -> dict[str, float]:
    """Median milliseconds of each plan's kernel."""
    from codegen_cuda.tensor import kernel_of

    driver = open_driver()
    times = {}
    with driver.on(driver.current_device()), contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(_memory(driver, problem.span(side) * problem.width)) for side in ("src", "dst")
        )
        events = [stack.enter_context(_event(driver)) for _ in range(2)]
        for name, plan in plans.items():
            kernel = kernel_of(problem, plan)
            _, cubin = built(kernel.source, kernel.name, arch)
            runs = [_once(driver, kernel, cubin, (source, target), events) for _ in range(_WARM_UP + _REPETITIONS)]
            times[name] = statistics.median(runs[_WARM_UP:])
    return times


def _once(
    driver: Driver, kernel: Kernel, cubin: Cubin, buffers: tuple[int, int], events: list[ctypes.c_void_p]
) -> float:
    claim = kernel.claim
    stream = ctypes.c_void_p(0)
    driver.call("cuEventRecord", events[0], stream)
    launch(
        cubin,
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        args=[Address(address) for address in buffers],
        shared_bytes=claim.dynamic_shared_bytes,
    )
    driver.call("cuEventRecord", events[1], stream)
    driver.call("cuEventSynchronize", events[1])
    elapsed = ctypes.c_float()
    driver.call("cuEventElapsedTime", ctypes.byref(elapsed), *events)
    return float(elapsed.value)


@contextlib.contextmanager
def _memory(driver: Driver, size: int) -> Iterator[int]:
    pointer = ctypes.c_uint64()
    driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    try:
        driver.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0xA5), ctypes.c_size_t(size))
        yield pointer.value
    finally:
        driver.call("cuMemFree_v2", pointer)


@contextlib.contextmanager
def _event(driver: Driver) -> Iterator[Any]:
    event = ctypes.c_void_p()
    driver.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
    try:
        yield event
    finally:
        driver.call("cuEventDestroy_v2", event)
