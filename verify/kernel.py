"""Check a compiled kernel against its claim: executed for every thread, and symbolically for all data and addresses.

The PTX text and the claim are all there is to it; whoever generated them is not asked.

>>> from layoutalg.claim import Buffer, Claim, Move, Side
>>> side = Side("S[32:1]", (32,), "0:32")
>>> claim = Claim("copy", "uint32", (1, 1, 1), (32, 1, 1), 0,
...     (Buffer("a", "input", "uint32", 0, 32, 16), Buffer("b", "output", "uint32", 0, 32, 16)),
...     (Move("a", side, "b", side),), "untouched")
>>> text = '''.version 9.0
... .target sm_90
... .address_size 64
... .visible .entry copy(.param .u64 a, .param .u64 b) {
...   .reg .b32 %r<3>; .reg .b64 %rd<6>;
...   ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
...   add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3; ld.global.u32 %r2, [%rd4];
...   st.global.u32 [%rd5], %r2; ret; }'''
>>> all(o.verdict.ok for o in check_kernel(text, claim))
True
>>> wrong = text.replace("mul.wide.u32 %rd3, %r1, 4", "mul.wide.u32 %rd3, %r1, 8")
>>> all(o.verdict.ok for o in check_kernel(wrong, claim))
False
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layoutalg.claim import Buffer, Claim, digest
from layoutalg.claim_family import ClaimFamily, read_claim
from layoutalg.errors import LayoutError
from verify.certificate import make_certificate
from verify.ptx.check import check_executed
from verify.ptx.parse import parse
from verify.ptx.tree import Module
from verify.verdict import Obligation, Refuted, Unknown

__all__ = ["certify_files", "check_kernel"]

_CLAIM = "the claim can be met: every element it names lies in its buffer"
_CONTENTS = "every output byte"
_ARRIVES = "every element arrives where the layouts put it"
#: Buffers larger than this are not executed element by element.
MAX_EXECUTED_BYTES = 1 << 26
#: Kernels of buffers larger than this are executed only where the contents are not proved for all blocks at once.
PROVED_FIRST_BYTES = 1 << 22
NO_SYMBOLIC = "all data and base addresses symbolically: the kernel was executed for every thread only"


def check_kernel(
    ptx: str, claim: Claim | ClaimFamily, *, file: str = "<ptx>", symbolic: bool = True
) -> tuple[Obligation, ...]:
    """Return what became of every statement that the claim makes about this PTX.

    Args:
        ptx: the text.
        claim: what it promises, for given sizes or for a family of them.
        file: its name, for messages.
        symbolic: also prove it for all data and base addresses; the execution alone covers every thread, with data that
            tell every byte apart, at several base addresses.

    Raises:
        PtxError: the text is not PTX that this library reads.
    """
    if isinstance(claim, ClaimFamily):
        return _check_family(ptx, claim, file=file, symbolic=symbolic)
    try:
        claim.check_bounds()
    except LayoutError as error:
        return (Obligation(_CLAIM, Refuted("the claim's own layouts", {"reason": str(error)})),)
    module = parse(ptx, file=file)
    size = max(buffer.count * claim.width for buffer in claim.params if isinstance(buffer, Buffer))
    if size > MAX_EXECUTED_BYTES or (symbolic and size > PROVED_FIRST_BYTES and not claim.banks):
        proved = _symbolically(module, claim) if symbolic else ()
        if any(o.name.startswith(_CONTENTS) for o in proved):
            return proved
        if size > MAX_EXECUTED_BYTES:
            reason = f"buffers of {size} bytes are too large to execute every thread; the limit is {MAX_EXECUTED_BYTES}"
            return (*proved, Obligation(_ARRIVES, Unknown("every element", reason)))
    executed = check_executed(module, claim)
    if not symbolic or not all(o.verdict.ok for o in executed):
        return executed
    return (*executed, *_symbolically(module, claim))


def _symbolically(module: Module, claim: Claim) -> tuple[Obligation, ...]:
    from verify.ptx.symbolic import check_symbolically  # needs the solver, which an execution does not

    return check_symbolically(module, claim)


def _check_family(ptx: str, family: ClaimFamily, *, file: str, symbolic: bool) -> tuple[Obligation, ...]:
    """Execute a kernel for some sizes, and prove it for all."""
    from verify.ptx.parametric.check import check_for_all_sizes
    from verify.ptx.parametric.samples import executed_for_sizes

    module = parse(ptx, file=file)
    try:
        executed = tuple(executed_for_sizes(module, family))
    except LayoutError as error:
        return (Obligation(_CLAIM, Refuted("the claim's own layouts", {"reason": str(error)})),)
    if not all(o.verdict.ok for o in executed):
        return executed
    if not symbolic:
        return (*executed, Obligation(_ARRIVES, Unknown("all sizes", "only some sizes were executed")))
    return (*executed, *check_for_all_sizes(module, family))


def certify_files(ptx: Path, claim: Path, *, symbolic: bool = True) -> dict[str, Any]:
    """Check a PTX file against a claim file and return the certificate.

    Raises:
        LayoutError: the claim is none.
        PtxError: the PTX cannot be read.
        OSError: a file cannot be read.
    """
    text = ptx.read_text()
    try:
        promised = read_claim(json.loads(claim.read_text()))
    except json.JSONDecodeError as error:
        raise LayoutError(f"{claim} is not JSON: {error}") from error
    obligations = check_kernel(text, promised, file=str(ptx), symbolic=symbolic)
    return make_certificate(
        promised.entry,
        obligations=obligations,
        hashes={"ptx": digest(text), "claim": digest(promised.to_json())},
        tools={},
        not_checked=() if symbolic else (NO_SYMBOLIC,),
    )
