"""From a :class:`codegen_cuda.body.Body` to header-free CUDA C++.

What needs the whole kernel is checked first (:mod:`codegen_cuda.checks`).
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cuda.access import c_type
from codegen_cuda.body import Body, For, Function, If, Let, LetPointer, ScalarParam, Statement, While
from codegen_cuda.buffers import Buffer
from codegen_cuda.checks import check, written
from codegen_cuda.spelling import array_length, spell
from codegen_cuda.values import Name

__all__ = ["LAUNCH_SHAPE", "emit", "emit_function"]

# __block_size__ puts the exact block shape into the PTX; compilers have it from compute capability 9.0 on.
LAUNCH_SHAPE = """\
#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
"""
_INDENT = "    "
_LINE = 120


def emit(body: Body) -> str:
    """Return the CUDA source of a kernel.

    Raises:
        PlanError: one of the checks fails.

    >>> from codegen_cuda.body import Store, thread_id
    >>> from codegen_cuda.buffers import match
    >>> A, tx = match("A", (32,), "f32"), thread_id("tx", 32)
    >>> print(emit(Body("twice", [A], [tx, Store(A[tx.var], A[tx.var] * 2)], threads=32)).split("#endif")[1].strip())
    extern "C" __global__ void LAUNCH_SHAPE(32) twice(float* __restrict__ A_ptr) {
        const int tx = threadIdx.x;
        A_ptr[tx] = A_ptr[tx] * 2.0f;
    }
    """
    functions = check(body)
    writes = written(body.statements)
    head = f'extern "C" __global__ void LAUNCH_SHAPE({body.threads})'
    params = [_parameter(p, writes) for p in body.params]
    parts = [
        *(["".join(f"// {line}\n" for line in body.comment)] if body.comment else []),
        *(table.text() for table in body.tables),
        *(emit_function(f) if isinstance(f, Function) else f.rstrip() + "\n" for f in functions),
        LAUNCH_SHAPE + _signature(head, body.name, params),
    ]
    return "\n".join([*parts, *_block(body.statements, 1, writes), "}"]) + "\n"


def _signature(head: str, name: str, params: Sequence[str]) -> str:
    """Spell the first line of a function, or the first few where it is long."""
    listed = f"{name}({', '.join(params)}) {{"
    if len(head) + 1 + len(listed) <= _LINE:
        return f"{head} {listed}"
    if len(listed) > _LINE:
        listed = f"{name}(\n{_INDENT}" + f",\n{_INDENT}".join(params) + ") {"
    return f"{head}\n{listed}"


def _parameter(param: Buffer | ScalarParam, writes: frozenset[str]) -> str:
    if isinstance(param, ScalarParam):
        return f"int {param.name}"
    const = "" if param.data.name in writes else "const "
    return f"{const}{c_type(param.data.dtype)}* __restrict__ {param.data.name}"


def emit_function(function: Function) -> str:
    """Return the CUDA source of a device function."""
    writes = written(function.statements)
    params = [_argument(param, writes) for param in function.params]
    head = _signature("__device__ __forceinline__ void", function.name, params)
    return "\n".join([head, *_block(function.statements, 1, writes), "}"]) + "\n"


def _argument(param: Buffer | ScalarParam | Name, writes: frozenset[str]) -> str:
    """Spell a parameter of a device function; nothing is said of aliases, which callers may want."""
    if isinstance(param, Name):
        return f"{c_type(param.kind)} {param}"
    if isinstance(param, ScalarParam):
        return f"int {param.name}"
    const = "" if param.data.name in writes else "const "
    kind, name = c_type(param.data.dtype), param.data.name
    return f"{const}{kind} (&{name})[{array_length(param)}]" if param.scope == "local" else f"{const}{kind}* {name}"


def _block(statements: Sequence[Statement], depth: int, writes: frozenset[str]) -> list[str]:
    return [line for statement in statements for line in _lines(statement, depth, writes)]


def _decided(statements: Sequence[Statement], depth: int, writes: frozenset[str]) -> list[str]:
    """Spell a branch whose guard is not needed; its names stay its own."""
    if not any(isinstance(statement, Buffer | Let | LetPointer) for statement in statements):
        return _block(statements, depth, writes)
    pad = _INDENT * depth
    return [f"{pad}{{", *_block(statements, depth + 1, writes), f"{pad}}}"]


def _lines(statement: Statement, depth: int, writes: frozenset[str]) -> list[str]:
    pad = _INDENT * depth
    match statement:
        case If(condition, body, orelse):
            decided = condition.decide()
            if decided is not None:
                return _decided(body if decided else orelse, depth, writes)
            tail = [f"{pad}}} else {{", *_block(orelse, depth + 1, writes)] if orelse else []
            return [f"{pad}if ({condition}) {{", *_block(body, depth + 1, writes), *tail, f"{pad}}}"]
        case For(var, extent, body, unroll, begin):
            head = f"for (int {var} = {begin}; {var} < {begin + extent}; ++{var}) {{"
            pragma = f"{pad}#pragma unroll{'' if unroll else ' 1'}"
            return [pragma, f"{pad}{head}", *_block(body, depth + 1, writes), f"{pad}}}"]
        case While(condition, body):
            return [f"{pad}while ({condition}) {{", *_block(body, depth + 1, writes), f"{pad}}}"]
        case _:
            return [pad + spell(statement, writes)]
