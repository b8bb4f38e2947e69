"""Proofs about layouts, plans and compiled kernels.

A verdict has three values: :class:`~verify.verdict.Proved`, :class:`~verify.verdict.Refuted` with a counterexample,
and :class:`~verify.verdict.Unknown`, which is never success.  This package imports ``layoutalg`` and z3, never the
generator: a checker that borrows the generator's formulas proves nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "Proved",
    "PtxError",
    "Refuted",
    "Unknown",
    "Verdict",
    "certify",
    "certify_slice",
    "prove_bank_free",
    "prove_bijective",
    "prove_equivalent",
    "prove_injective",
    "prove_plan",
]

_LAZY = {
    "Proved": "verify.verdict",
    "PtxError": "verify.ptx.errors",
    "Refuted": "verify.verdict",
    "Unknown": "verify.verdict",
    "Verdict": "verify.verdict",
    "certify": "verify.results",
    "certify_slice": "verify.results",
    "prove_bank_free": "verify.banks",
    "prove_bijective": "verify.images",
    "prove_equivalent": "verify.results",
    "prove_injective": "verify.images",
    "prove_plan": "verify.permute",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'verify' has no attribute {name!r}")
