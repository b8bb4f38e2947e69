"""Small hand-written kernels for tests, and a few words to write them in."""

from __future__ import annotations

import numpy as np

from verify.ptx.concrete import Buffer, Result, run
from verify.ptx.parse import parse

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<200>; .reg .b64 %rd<50>;"
PROLOGUE = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3; shl.b32 %r5, %r1, 2;
"""
"""%r1 thread, %r2 block, %r4 global thread, %rd4 and %rd5 its word of ``a`` and ``b``, %r5 four times the thread."""


def module(body: str, *, before: str = "", limits: str = "", prologue: str = PROLOGUE) -> str:
    """A kernel ``k(a, b)``; ``body`` starts in a line of its own and ``ret`` is added."""
    params = ".param .u64 a, .param .u64 b"
    return f"{HEADER}{before}\n.visible .entry k({params}) {limits} {{ {REGISTERS}\n{prologue}{body}\nret; }}\n"


def launch(body: str, *, grid=1, block=32, a=None, b=None, **options) -> Result:
    """Run a kernel of :func:`module`; ``a`` is read, ``b`` is written."""
    text = module(body, **{k: options.pop(k) for k in ("before", "limits", "prologue") if k in options})
    threads = int(np.prod(grid)) * int(np.prod(block))
    source = np.arange(threads, dtype=np.uint32) + 1000 if a is None else a
    target = np.zeros(threads, dtype=np.uint32) if b is None else b
    params = [p if isinstance(p, Buffer) else Buffer(p, m) for p, m in ((source, "r"), (target, "w"))]
    return run(parse(text, file="k.ptx"), grid=grid, block=block, params=params, **{"check": False, **options})
