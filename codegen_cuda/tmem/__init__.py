"""Tensor memory: from a pair of layouts to ``tcgen05`` loads and stores, and kernels around them.

:func:`tmem_plan` solves for the instructions, :func:`tmem_copy` and :func:`tmem_roundtrip` wrap plans into kernels,
and :func:`tmem_apply` checks a single named instruction against views that the caller has arranged.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.errors import PlanError
from codegen_cuda.kernel import Kernel
from codegen_cuda.tmem.emit import device_function
from codegen_cuda.tmem.kernels import copy_kernel, roundtrip_kernel
from codegen_cuda.tmem.natural import register_layout_for
from codegen_cuda.tmem.plan import RoundTrip, TmemPlan, Transfer
from codegen_cuda.tmem.problem import TmemProblem, pose_tmem
from codegen_cuda.tmem.solve import enumerate_plans
from codegen_cuda.tmem.views import View, tmem_apply
from layoutalg.tile import TileLayout

__all__ = [
    "RoundTrip",
    "TmemPlan",
    "TmemProblem",
    "Transfer",
    "View",
    "device_function",
    "global_to_tmem",
    "register_layout_for",
    "roundtrip_of",
    "tmem_apply",
    "tmem_copy",
    "tmem_plan",
    "tmem_plans",
    "tmem_roundtrip",
    "tmem_to_global",
]


def tmem_plans(
    tmem_layout: TileLayout,
    register_layout: TileLayout,
    shape: Sequence[int] | None = None,
    dtype: object = None,
    *,
    direction: str = "ld",
    scope: str = "warpgroup",
    warp: int = 0,
    instructions: Sequence[str] | None = None,
    max_repeat: int = 128,
    producer: str | None = None,
    alternatives: bool = True,
) -> tuple[TmemPlan, ...]:
    """Return plans that move every element between its place in tensor memory and its register.

    Law (``verify.tmem.prove_transfers``): executing the instructions puts every element where the destination layout
    has it, each word is moved once, and each warp stays in its slab.

    Args:
        tmem_layout: where elements live, over ``TLane`` and ``TCol`` in elements; replicas are further places.
        register_layout: who holds them, over thread axes and ``m`` in elements.
        shape: logical extents of both; the iters of ``tmem_layout`` without one.
        dtype: element type.
        direction: ``"ld"``, tensor memory to registers, or ``"st"``.
        scope: ``"warp"`` (one warp, statically selected), ``"warpgroup"`` or ``"cta"``.
        warp: the selected warp of scope ``"warp"``.
        instructions: shapes that may be used, such as ``("16x64b",)``.
        max_repeat: largest N of ``.xN``.
        producer: ``"mma"`` or ``"cp"`` if such an instruction wrote what is loaded; adds a warning.
        alternatives: also plans of other shapes and with smaller repeats.

    Returns:
        At least one plan, fewest instructions first.

    Raises:
        NotExpressibleError: an element that no instruction reaches; ``facts["rule"]`` is ``slab``, ``register order``,
            ``column stride``, ``idle``, ``incomplete``, ``alignment``, ``split``, ``twice``, ``taken``, ``aliases``,
            ``bounds``, ``threads`` or ``registers``.
        PlanError: the request makes no sense.
    """
    problem = pose_tmem(
        tmem_layout, register_layout, shape, dtype, direction=direction, scope=scope, warp=warp
    )  # fmt: skip
    return enumerate_plans(
        problem, instructions=instructions, max_repeat=max_repeat, producer=producer, alternatives=alternatives
    )


def tmem_plan(
    tmem_layout: TileLayout,
    register_layout: TileLayout,
    shape: Sequence[int] | None = None,
    dtype: object = None,
    *,
    direction: str = "ld",
    scope: str = "warpgroup",
    warp: int = 0,
    instructions: Sequence[str] | None = None,
    max_repeat: int = 128,
    producer: str | None = None,
) -> TmemPlan:
    """Return the plan with the fewest instructions; arguments as of :func:`tmem_plans`.

    Seven columns take three instructions, since 7 = 4 + 2 + 1:

    >>> tmem, regs = (TileLayout.parse(t) for t in ("S[(128,7):(1@TLane,1@TCol)]", "S[(128,7):(1@tid_in_wg,1)]"))
    >>> plan = tmem_plan(tmem, regs, (128, 7), "f32")
    >>> plan.form, plan.instructions, plan.allocation
    ('32x32b.x4 32x32b.x2 32x32b.x1', 3, 32)
    """
    return tmem_plans(
        tmem_layout,
        register_layout,
        shape,
        dtype,
        direction=direction,
        scope=scope,
        warp=warp,
        instructions=instructions,
        max_repeat=max_repeat,
        producer=producer,
        alternatives=False,
    )[0]


def tmem_copy(
    tmem_layout: TileLayout,
    register_layout: TileLayout,
    shape: Sequence[int] | None = None,
    dtype: object = None,
    *,
    direction: str = "ld",
    scope: str = "warpgroup",
    warp: int = 0,
    instructions: Sequence[str] | None = None,
    max_repeat: int = 128,
    producer: str | None = None,
    global_layout: TileLayout | None = None,
    name: str | None = None,
) -> Kernel:
    """Return a kernel with a device function for the copy and a harness that shows what it does.

    The harness of ``"st"`` fills registers from ``src`` (``global_layout``), stores, and writes a picture of tensor
    memory to ``dst``: element (lane, TCol) at ``lane * pitch + TCol``.  That of ``"ld"`` goes from such a picture to
    ``dst`` in ``global_layout``.  Other arguments as of :func:`tmem_plans`.

    >>> tmem, regs = (TileLayout.parse(t) for t in ("S[(128,4):(1@TLane,1@TCol)]", "S[(128,4):(1@tid_in_wg,1)]"))
    >>> kernel = tmem_copy(tmem, regs, (128, 4), "f32", direction="st")
    >>> kernel.name, kernel.arch, kernel.plan.form
    ('tmem_st_128x4_float32_32x32b', 'sm_100a', '32x32b.x4')
    """
    plan = tmem_plan(
        tmem_layout,
        register_layout,
        shape,
        dtype,
        direction=direction,
        scope=scope,
        warp=warp,
        instructions=instructions,
        max_repeat=max_repeat,
        producer=producer,
    )
    return copy_kernel(plan, global_layout, name)


def tmem_to_global(plan: TmemPlan, *, global_layout: TileLayout | None = None, name: str | None = None) -> Kernel:
    """Return the kernel that loads a picture of tensor memory by a plan and writes the elements to global memory.

    Raises:
        PlanError: the plan stores, or the global layout does not fit.
    """
    return _of(plan, "ld", global_layout, name)


def global_to_tmem(plan: TmemPlan, *, global_layout: TileLayout | None = None, name: str | None = None) -> Kernel:
    """Return the kernel that stores elements from global memory by a plan and writes a picture of tensor memory.

    Raises:
        PlanError: the plan loads, or the global layout does not fit.
    """
    return _of(plan, "st", global_layout, name)


def _of(plan: TmemPlan, direction: str, global_layout: TileLayout | None, name: str | None) -> Kernel:
    if plan.problem.direction != direction:
        raise PlanError(f"tmem: this needs a plan of direction {direction!r}, not {plan.problem.direction!r}")
    return copy_kernel(plan, global_layout, name)


def tmem_roundtrip(
    tmem_layout: TileLayout,
    register_layout: TileLayout,
    shape: Sequence[int] | None = None,
    dtype: object = None,
    *,
    load_register_layout: TileLayout | None = None,
    scope: str = "warpgroup",
    warp: int = 0,
    instructions: Sequence[str] | None = None,
    max_repeat: int = 128,
    source_layout: TileLayout | None = None,
    destination_layout: TileLayout | None = None,
    name: str | None = None,
) -> Kernel:
    """Return a kernel: global memory, registers, tensor memory, registers, global memory.

    Args:
        tmem_layout: where elements live in between.
        register_layout: who holds them for the store.
        shape: logical extents of all layouts.
        dtype: element type.
        load_register_layout: who holds them after the load, the same without it.
        scope: as of :func:`tmem_plans`, as are ``warp``, ``instructions`` and ``max_repeat``.
        source_layout: where the elements are in ``src``, row-major without it.
        destination_layout: where they are in ``dst``, row-major without it.
        name: the kernel's name.

    >>> tmem, regs = (TileLayout.parse(t) for t in ("S[(128,4):(1@TLane,1@TCol)]", "S[(128,4):(1@tid_in_wg,1)]"))
    >>> tmem_roundtrip(tmem, regs, (128, 4), "f32").claim.block
    (128, 1, 1)
    """
    registers = {"st": register_layout, "ld": load_register_layout or register_layout}
    store, load = (
        tmem_plan(
            tmem_layout,
            registers[direction],
            shape,
            dtype,
            direction=direction,
            scope=scope,
            warp=warp,
            instructions=instructions,
            max_repeat=max_repeat,
        )
        for direction in ("st", "ld")
    )
    return roundtrip_of(store, load, source_layout=source_layout, destination_layout=destination_layout, name=name)


def roundtrip_of(
    store: TmemPlan,
    load: TmemPlan,
    *,
    source_layout: TileLayout | None = None,
    destination_layout: TileLayout | None = None,
    name: str | None = None,
) -> Kernel:
    """Return the round-trip kernel of two plans, such as :func:`tmem_apply` returns.

    Raises:
        PlanError: the plans do not store and load the same elements.
    """
    a, b = store.problem, load.problem
    if (a.direction, b.direction) != ("st", "ld") or (a.extents, a.dtype) != (b.extents, b.dtype):
        raise PlanError("tmem_roundtrip: a store and a load of equal shape and dtype are needed", rule="roundtrip")
    return roundtrip_kernel(RoundTrip(store, load), source_layout, destination_layout, name)
