"""One kernel per pure instruction, and four for shuffles: what an H200 computed with them is in ``tests/data/ptx``.

Thread ``t`` reads its operands as 64-bit words from row ``t`` of the input, executes the instruction once, and writes
the result registers, zero-extended, to row ``t`` of the output.  ``python tests/ptx_silicon.py FILE.npz`` measures
anew, on a machine with a GPU of compute capability 9.0.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

import numpy as np
from ptx_vectors import PURE, input_widths, vectors

from verify.ptx.ops_base import Kind, Operation

VECTORS = 96
HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
LUTS = (0x00, 0x17, 0x96, 0xCA, 0xE8, 0xFF)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel with its input, rows of operands, and the number of its results."""

    entry: str
    text: str
    operands: np.ndarray
    results: int


def cases() -> list[Case]:
    """Every pure row that does not convert addresses, and every shuffle."""
    found = []
    for row in PURE:
        if row.name.startswith("cvta"):
            continue
        constants = [slot for slot in row.slots if slot.kind is Kind.CONSTANT]
        for constant in LUTS if constants else (None,):
            suffix = "" if constant is None else f"_{constant:02x}"
            parts = "_".join(f"{slot.width}x{slot.count}" for slot in row.slots)
            name = f"{row.name}_{parts}".replace(".", "_")
            found.append(_pure(row, f"{name}{suffix}", constant))
    return found + [_shuffle(mode) for mode in ("up", "down", "bfly", "idx")]


def module(entries: list[Case]) -> str:
    """All kernels in one module."""
    return HEADER + "\n".join(case.text for case in entries)


def _pure(row: Operation, entry: str, constant: int | None) -> Case:
    operands = vectors(row)[:VECTORS]
    widths = input_widths(row)
    inputs = [slot for slot in row.slots[1:] for _ in range(slot.count)]
    body, names = [], []
    for index, width in enumerate(widths):
        if inputs[index].kind is Kind.CONSTANT:
            names.append(str(constant))
            continue
        body.append(f"ld.global.u64 %rd9, [%rd5+{8 * index}];")
        body.append(_from_word(width, index))
        names.append(_register(width, index))
    out = row.slots[0]
    results = [_register(out.width, 20 + i) for i in range(out.count)]
    joined = "{" + ", ".join(results) + "}" if out.count > 1 else results[0]
    sources = ["{" + ", ".join(names) + "}"] if any(slot.count > 1 for slot in row.slots[1:]) else names
    body.append(f"{row.name} {joined}, {', '.join(sources)};")
    for index, register in enumerate(results):
        body.append(_to_word(out.width, register))
        body.append(f"st.global.u64 [%rd6+{8 * index}], %rd9;")
    table = np.array(operands, dtype=np.uint64)
    return Case(entry, _kernel(entry, body, len(widths), out.count), table, out.count)


def _shuffle(mode: str) -> Case:
    rng = random.Random(mode)
    rows = []
    for warp in range(32):
        amount, width = rng.randrange(32), rng.choice((2, 4, 8, 16, 32))
        clamp = (32 - width) << 8 | (0 if mode == "up" else 31 if warp % 3 else rng.randrange(32))
        each = warp % 4 == 3  # every lane its own amount
        rows += [(rng.getrandbits(32), rng.randrange(32) if each else amount, clamp) for _ in range(32)]
    body = [f"ld.global.u64 %rd9, [%rd5+{8 * i}]; cvt.u32.u64 %r{i}, %rd9;" for i in range(3)]
    body.append(f"shfl.sync.{mode}.b32 %r20|%p1, %r0, %r1, %r2, -1;")
    body.append("cvt.u64.u32 %rd9, %r20; st.global.u64 [%rd6], %rd9;")
    body.append("selp.b64 %rd9, 1, 0, %p1; st.global.u64 [%rd6+8], %rd9;")
    entry = f"shfl_{mode}"
    return Case(entry, _kernel(entry, body, 3, 2), np.array(rows, dtype=np.uint64), 2)


def _kernel(entry: str, body: list[str], inputs: int, outputs: int) -> str:
    start = f"""ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r90, %tid.x; mov.u32 %r91, %ctaid.x;
mov.u32 %r92, %ntid.x; mad.lo.s32 %r93, %r91, %r92, %r90; mul.wide.u32 %rd3, %r93, {8 * inputs};
mul.wide.u32 %rd4, %r93, {8 * outputs}; add.s64 %rd5, %rd1, %rd3; add.s64 %rd6, %rd2, %rd4;"""
    registers = ".reg .pred %p<40>; .reg .b16 %rs<40>; .reg .b32 %r<99>; .reg .b64 %rd<50>;"
    lines = "\n".join(body)
    return f".visible .entry {entry}(.param .u64 a, .param .u64 b) {{\n{registers}\n{start}\n{lines}\nret; }}\n"


def _register(width: int, index: int) -> str:
    if width == 64:
        return f"%rd{10 + index}"
    return {1: "%p", 8: "%rs", 16: "%rs", 32: "%r"}[width] + str(index)


def _from_word(width: int, index: int) -> str:
    register = _register(width, index)
    match width:
        case 1:
            return f"setp.ne.u64 {register}, %rd9, 0;"
        case 64:
            return f"mov.b64 {register}, %rd9;"
        case 32:
            return f"cvt.u32.u64 {register}, %rd9;"
        case _:
            return f"cvt.u16.u64 {register}, %rd9;"


def _to_word(width: int, register: str) -> str:
    match width:
        case 1:
            return f"selp.b64 %rd9, 1, 0, {register};"
        case 64:
            return f"mov.b64 %rd9, {register};"
        case 32:
            return f"cvt.u64.u32 %rd9, {register};"
        case _:
            return f"cvt.u64.u16 %rd9, {register};"


def measure(path: str) -> None:
    """Run every case on the GPU of this machine and write text, operands and results."""
    from codegen_cuda.build import assemble
    from codegen_cuda.launch import launch

    entries = cases()
    text = module(entries)
    image = assemble(text, arch="sm_90")
    results = []
    for case in entries:
        out = np.zeros((len(case.operands), case.results), dtype=np.uint64)
        launch(image, case.entry, grid=len(case.operands) // 32, block=32, args=[case.operands, out])
        results.append(out)
    np.savez_compressed(
        path,
        text=np.frombuffer(text.encode(), dtype=np.uint8),
        names=np.array([case.entry for case in entries]),
        index=np.array([[*case.operands.shape, case.results] for case in entries]),
        operands=np.concatenate([case.operands.ravel() for case in entries]),
        results=np.concatenate([out.ravel() for out in results]),
    )


if __name__ == "__main__":
    measure(sys.argv[1])
