"""Whole-tensor permutes: any rank up to 8, any strides and sizes, elements of 1 to 16 bytes, out of place.

>>> from codegen_cuda.tensor import permute_tensor
>>> kernel = permute_tensor((64, 96), (1, 0), "float32")
>>> kernel.plan.strategy, kernel.claim.frame
('tiles', 'untouched')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen_cuda.errors import PlanError
from codegen_cuda.kernel import Kernel
from codegen_cuda.tensor.choose import choose, widen
from codegen_cuda.tensor.emit import claim_of, emit_tensor, kernel_name
from codegen_cuda.tensor.plan import TensorPlan
from codegen_cuda.tensor.problem import ALIGN, TensorProblem, layouts_of_permutation, pose_tensor
from layoutalg.tile import TileLayout

__all__ = ["TensorPlan", "TensorProblem", "kernel_of", "permute", "permute_tensor"]


def permute_tensor(
    shape: Sequence[int],
    perm: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    src: TileLayout | None = None,
    dst: TileLayout | None = None,
    strategy: str = "auto",
    autotune: bool = False,
    align: tuple[int, int] = (ALIGN, ALIGN),
) -> Kernel:
    """Plan and emit a permute of a whole tensor in global memory, out of place.

    Law (checked on the compiled PTX): ``out[dst(x)] == in[src(x)]`` for every index x of the shape, and nothing else
    is written.  In the form with ``perm``, both are dense and ``out == numpy.transpose(x, perm)``.

    Args:
        shape: logical extents.
        perm: output dimension k is input dimension ``perm[k]``.
        dtype: element type.
        src: source layout over ``shape`` on axis ``m``, in elements, in place of ``perm``; strides may leave gaps.
        dst: destination layout, likewise; no two elements at one place.
        strategy: ``"auto"``, ``"rows"``, ``"thin"``, ``"tiles"`` or ``"boxes"``.
        autotune: measure the candidates on this machine's GPU once, and remember the best by shape.
        align: alignment in bytes of coordinate 0 of the source and of the destination.

    Raises:
        PlanError: the request is wrong; ``facts["rule"]`` names the rule.
        BuildError: ``autotune`` without a GPU.

    >>> permute_tensor((8, 3, 5), (2, 0, 1), "u8").claim.moves[0].destination.layout
    'S[(8,3,5):(3,1,24)]'
    """
    if (perm is None) == (src is None and dst is None) or (src is None) != (dst is None):
        raise PlanError("permute_tensor: give either perm, or both src= and dst=", rule="form")
    if dtype is None:
        raise PlanError("permute_tensor: dtype is missing", rule="dtype")
    if perm is not None:
        src, dst = layouts_of_permutation(shape, perm)
    assert src is not None
    assert dst is not None
    order = tuple(perm) if perm is not None else None
    problem = pose_tensor(src, dst, shape=shape, dtype_name=dtype, perm=order, align=align)
    if autotune:
        from codegen_cuda.tensor.tune import best_plan

        return kernel_of(problem, best_plan(problem))
    return kernel_of(problem, choose(widen(problem), strategy))


def kernel_of(problem: TensorProblem, plan: TensorPlan) -> Kernel:
    """Emit the kernel of a plan for the widened problem."""
    name = kernel_name(problem, plan)
    source = emit_tensor(problem, widen(problem), plan, name)
    return Kernel(name=name, source=source, claim=claim_of(problem, plan, name), plan=plan, problem=problem)


def permute(x: Any, perm: Sequence[int], *, out: Any = None, stream: Any = None) -> Any:
    """Return the array with its dimensions permuted, as a fresh contiguous array of the same kind.

    Args:
        x: a CuPy, PyTorch, JAX or NumPy array, or one that offers DLPack; a strided view is read where it lies.  An
            array on the host that offers DLPack alone gives a NumPy array.
        perm: output dimension k is input dimension ``perm[k]``.
        out: where to put the result: an array of the permuted shape; a fresh one without it.
        stream: a CUDA stream; the library's current one without it.

    Raises:
        PlanError: not a permutation, an unsupported dtype, a negative stride.
        BuildError: arrays that do not fit together, or no room for the result.

    >>> import numpy as np
    >>> permute(np.arange(6, dtype=np.int32).reshape(2, 3), (1, 0)).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    from codegen_cuda.tensor.arrays import permute_array

    return permute_array(x, perm, out=out, stream=stream)
