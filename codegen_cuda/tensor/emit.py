"""From a plan for a whole tensor to header-free CUDA C++ and the claim that states what it does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from codegen_cuda.tensor.boxes import emit_boxes
from codegen_cuda.tensor.plan import TensorPlan
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.rows import emit_rows
from codegen_cuda.tensor.shifts import SHIFT_TOGETHER, last_vector
from codegen_cuda.tensor.thin import emit_thin
from codegen_cuda.tensor.tile_shape import shape_of
from codegen_cuda.tensor.tiles import emit_tiles
from layoutalg.claim import Claim

__all__ = ["claim_of", "emit_tensor", "kernel_name"]

_STATIC_LIMIT = 48 * 1024
_BODIES: Mapping[str, Callable[[TensorProblem, TensorPlan], list[str]]] = MappingProxyType(
    {"rows": emit_rows, "tiles": emit_tiles, "thin": emit_thin, "boxes": emit_boxes}
)

_PRELUDE = """\
typedef unsigned int u32;
typedef unsigned long long u64;
"""


def kernel_name(problem: TensorProblem, plan: TensorPlan) -> str:
    """Return a readable identifier, with a hash of the layouts where no permutation says it all."""
    shape = "x".join(map(str, problem.shape)) or "1"
    if problem.perm is not None:
        how = "".join(map(str, problem.perm)) or "0"
    else:
        how = hashlib.sha256(f"{problem.source} {problem.destination}".encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_]", "_", f"tensor_{shape}_{how}_{problem.dtype.name}_{plan.strategy}")


def claim_of(problem: TensorProblem, plan: TensorPlan, name: str) -> Claim:
    """Return what the kernel promises: every element moved, nothing else written."""
    return Claim(
        entry=name,
        dtype=problem.dtype.name,
        grid=(plan.grid, 1, 1),
        block=(plan.threads, 1, 1),
        dynamic_shared_bytes=plan.shared_bytes if plan.shared_bytes > _STATIC_LIMIT else 0,
        params=problem.buffers(),
        moves=(problem.move(),),
        frame="untouched",
    )


def emit_tensor(problem: TensorProblem, units: TensorProblem, plan: TensorPlan, name: str) -> str:
    """Return the CUDA source.

    Args:
        problem: the request, for the comment block.
        units: the same request in the units that the plan moves.
        plan: what each block does.
        name: name of the kernel.
    """
    shape = shape_of(plan) if plan.strategy == "tiles" else None
    helper = SHIFT_TOGETHER if shape is not None and (shape.shifted or shape.edge) else ""
    helper += last_vector(units) if shape is not None and shape.shifted else ""
    body = _BODIES[plan.strategy](units, plan)
    # A block's exact shape belongs into the PTX, but __block_size__ would make every block a cluster of its own.
    lines = [
        f'extern "C" __global__ void __launch_bounds__({plan.threads})',
        f"{name}(const unsigned char* __restrict__ src, unsigned char* __restrict__ dst) {{",
        *_shared(plan),
        *("    " + line for line in body),
        "}",
    ]
    return "\n".join([_header(problem, units, plan), _PRELUDE + helper, *lines]) + "\n"


def _shared(plan: TensorPlan) -> list[str]:
    if plan.shared_bytes == 0:
        return []
    if plan.shared_bytes > _STATIC_LIMIT:
        return ["    extern __shared__ __align__(16) unsigned char tile[];"]
    return [f"    __shared__ __align__(16) unsigned char tile[{plan.shared_bytes}];"]


def _header(problem: TensorProblem, units: TensorProblem, plan: TensorPlan) -> str:
    loops = " ".join(f"{d.extent}:{d.src}->{d.dst}" for d in units.dims) or "one element"
    lines = [
        f"source       {problem.source}",
        f"destination  {problem.destination}",
        f"{problem.size} elements of {problem.dtype.name}; {problem.bytes_moved} bytes read and written",
        f"loops        {loops} (extent:source step->destination step, in units of {units.width} bytes)",
        f"plan         {plan.describe()}",
    ]
    return "\n".join("// " + line for line in lines)
