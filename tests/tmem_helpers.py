"""Shared by the tensor-memory tests: layouts, compiled kernels, and the two checks of :mod:`verify.tmem`."""

from __future__ import annotations

import functools
from dataclasses import astuple, replace
from typing import Any

from codegen_cuda.build import assemble, compile_ptx
from codegen_cuda.kernel import Kernel
from codegen_cuda.tmem import TmemPlan
from layoutalg.tile import TileLayout
from verify.tmem import prove_transfers, run_claim

L = TileLayout.parse
ARCHS = ("sm_100a", "sm_103a")


def layout_b() -> tuple[TileLayout, TileLayout]:
    """The documented example: Layout B of (64, 128) and its register layout."""
    return (
        L("S[(64,2,64):(1@TLane,64@TLane,1@TCol)]"),
        L("S[(64,2,64):(1@tid_in_wg,64@tid_in_wg,1)]"),
    )


@functools.lru_cache(maxsize=32)
def compiled(source: str, name: str, arch: str) -> str:
    return compile_ptx(source, arch=arch, name=f"{name}.cu").text


def ptx_of(kernel: Kernel, arch: str = "sm_100a") -> str:
    return compiled(kernel.source, kernel.name, arch)


def build(kernel: Kernel) -> None:
    """Compile for both targets and assemble both."""
    for arch in ARCHS:
        text = ptx_of(kernel, arch)
        assert f".target {arch}" in text
        assert assemble(text, arch=arch).image[:4] == b"\x7fELF"


def proof(plan: TmemPlan, transfers: Any = None) -> tuple[Any, ...]:
    """The model's verdict on a plan, or on other transfers in its place."""
    (statement,) = plan.statements()
    if transfers is not None:
        (statement,) = replace(plan, transfers=tuple(transfers)).statements()
    return prove_transfers(**statement)


def assert_proved(plan: TmemPlan) -> None:
    rows = proof(plan)
    assert len(rows) == 3
    assert [str(row.verdict) for row in rows] == ["Proved"] * 3, [astuple(row) for row in rows]


def assert_runs(kernel: Kernel, *, columns: tuple[int, ...] = (0,), ptx: str | None = None) -> None:
    (row,) = run_claim(ptx or ptx_of(kernel), kernel.claim, columns=columns)
    assert row.verdict.ok, str(row.verdict)


def refusal(kernel: Kernel, ptx: str, *, columns: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """The witness against a kernel that must be refused."""
    (row,) = run_claim(ptx, kernel.claim, columns=columns)
    assert not row.verdict.ok, "the mutant passes"
    return dict(row.verdict.counterexample)


def bases(columns: int) -> tuple[int, ...]:
    """First columns that an allocation of this many may get: the lowest, the next, and the highest."""
    return tuple(sorted({0, min(32, 512 - columns), 512 - columns}))
