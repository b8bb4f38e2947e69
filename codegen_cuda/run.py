"""Running a kernel: on a GPU where there is one, otherwise its PTX in the interpreter on the CPU.

Both run the same compiled code: the cubin is assembled from the very PTX that the interpreter executes.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.errors import BuildError
from codegen_cuda.kernel import Kernel
from codegen_cuda.launch import gpu_available, launch
from codegen_cuda.tensor.problem import TensorProblem
from layoutalg.claim import Buffer, Claim
from layoutalg.hardware.dtypes import dtype
from verify.certificate import is_proved

__all__ = ["expected_output", "interpret", "require_certified", "run_kernel"]


def run_kernel(
    kernel: Kernel,
    source: Any,
    out: Any = None,
    *,
    device: str = "auto",
    stream: Any = None,
    uncertified: bool = False,
) -> Any:
    """Run a kernel on its input buffer and return the output buffer; see :meth:`Kernel.run`.

    Raises:
        BuildError: an array that does not fit, no such device, or a kernel that is not certified.
    """
    if device not in ("auto", "cpu", "gpu"):
        raise BuildError(f"device {device!r}: choose 'auto', 'cpu' (the PTX interpreter) or 'gpu'")
    if isinstance(kernel.problem, TensorProblem):
        from codegen_cuda.tensor.arrays import run_tensor

        return run_tensor(kernel, source, out, device=device, stream=stream)
    ready = kernel if kernel.ptx is not None else kernel.compile()
    if not uncertified:
        ready = ready if ready.certificate is not None else ready.certify()
        require_certified(ready)
    given, result = (_buffer(ready.claim, role) for role in ("input", "output"))
    _check_array(source, given)
    out = _empty_like(source) if out is None else out
    _check_array(out, result)
    on_gpu = gpu_available() if device == "auto" else device == "gpu"
    if on_gpu:
        _on_gpu(ready, source, out, stream)
    else:
        interpret(ready, source, out)
    return out


def require_certified(kernel: Kernel) -> None:
    """Refuse a kernel whose certificate is missing, is about other bytes, or proves not everything.

    Raises:
        BuildError: says which.
    """
    record = kernel.certificate
    if record is None:
        raise BuildError(f"{kernel.name} has no certificate: call certify(), or run(..., uncertified=True)")
    for what, hashed in kernel.hashes().items():
        if record["sha256"].get(what) != hashed:
            raise BuildError(f"the certificate of {kernel.name} is about another {what} than this one")
    if not is_proved(record):
        failed = [row["name"] for row in record["obligations"] if row["verdict"] != "Proved"]
        raise BuildError(f"{kernel.name} is not proved: {'; '.join(failed)}. run(..., uncertified=True) runs it anyway")


def expected_output(claim: Claim, source: NDArray[Any]) -> NDArray[Any]:
    """Compute with numpy, from the claim's layouts alone, what the kernel must return.

    >>> from codegen_cuda import permute_layout
    >>> from layoutalg import S, TileLayout
    >>> claim = permute_layout(TileLayout(S[(2, 32)]), TileLayout(S[(2, 32):(1, 2)]), dtype="f32", plan="xor").claim
    >>> expected_output(claim, np.arange(64))[:4].tolist()
    [0, 32, 1, 33]
    """
    given, result = _buffer(claim, "input"), _buffer(claim, "output")
    out = source.copy() if claim.frame == "carried" else np.zeros(result.count, dtype=source.dtype)
    for move in claim.moves:
        for values in move.assignments():
            read, write = move.coordinates(values)
            out[write - result.first] = source[read - given.first]
    return out


def _buffer(claim: Claim, role: str) -> Buffer:
    found = [p for p in claim.params if isinstance(p, Buffer) and p.role == role]
    if len(found) != 1:
        raise BuildError(f"{claim.entry} has {len(found)} {role} buffers; run() takes kernels with one")
    return found[0]


def _check_array(array: Any, buffer: Buffer) -> None:
    size = int(np.prod(array.shape, dtype=np.int64)) if hasattr(array, "shape") else -1
    width = getattr(array, "itemsize", None)
    if callable(width):
        width = width()
    want = dtype(buffer.dtype).bytes
    if size != buffer.count or width != want:
        raise BuildError(
            f"{buffer.name} must hold {buffer.count} elements of {want} bytes, "
            f"not {size if size >= 0 else type(array).__name__} of {width}"
        )


def _empty_like(array: Any) -> Any:
    module = importlib.import_module(type(array).__module__.partition(".")[0])
    return module.empty_like(array)


def _on_gpu(kernel: Kernel, source: Any, out: Any, stream: Any) -> None:
    claim = kernel.claim
    if kernel.cubin is None:
        raise BuildError(f"{kernel.name} has no cubin: compile() it")
    launch(
        kernel.cubin,
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        args=[source, out],
        shared_bytes=claim.dynamic_shared_bytes,
        stream=stream,
    )


def interpret(kernel: Kernel, source: Any, out: Any) -> None:
    """Execute a compiled kernel's PTX on NumPy arrays; bytes of ``out`` that it does not write stay as they are.

    Raises:
        BuildError: arrays of another kind.
        PtxError: an instruction without a meaning, or a defect that the execution shows.
    """
    from verify.ptx.concrete import Buffer as Memory
    from verify.ptx.concrete import run
    from verify.ptx.parse import parse

    if not isinstance(source, np.ndarray) or not isinstance(out, np.ndarray):
        raise BuildError(f"the interpreter runs on numpy arrays, not {type(source).__name__}")
    if not out.flags.c_contiguous:
        raise BuildError("the interpreter writes to contiguous arrays; out is a strided view")
    assert kernel.ptx is not None
    claim = kernel.claim
    flat = np.ascontiguousarray(source).reshape(-1)
    result = run(
        parse(kernel.ptx.text, file=f"{kernel.name}.ptx"),
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        params=[Memory(flat.view(np.uint8)), Memory(np.zeros(out.nbytes, dtype=np.uint8), mode="w")],
        dynamic_shared=claim.dynamic_shared_bytes,
    )
    out.reshape(-1).view(np.uint8)[result.written[1]] = result.buffers[1][result.written[1]]
