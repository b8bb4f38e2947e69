"""From a generated kernel to a certified one: prove the plan, compile, check the PTX, record what was found."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

from codegen_cuda.errors import BuildError
from codegen_cuda.kernel import Kernel
from codegen_cuda.permute.emit import ALIGN
from verify.certificate import make_certificate
from verify.permute import prove_plan
from verify.verdict import Obligation

__all__ = ["certify", "prove"]

PTX_UNCHECKED = "the compiled PTX: it is hashed here, but its instructions have not been checked against the claim"


def prove(kernel: Kernel) -> tuple[Obligation, ...]:
    """Prove the kernel's plan with z3; nothing needs to be compiled for it.

    Raises:
        BuildError: the kernel has no plan (it was loaded from files).
    """
    plan, problem = kernel.plan, kernel.problem
    if plan is None or problem is None:
        raise BuildError(f"{kernel.name} was loaded from files and has no plan to prove; its certificate says what was")
    return prove_plan(
        plan.slots, problem.source, problem.destination, width=problem.width, align=max(ALIGN, problem.width)
    )


def certify(kernel: Kernel, *, arch: str | None = None) -> Kernel:
    """Compile if needed, prove the plan, and return the kernel with its certificate."""
    built = kernel if kernel.ptx is not None else kernel.compile(**({"arch": arch} if arch else {}))
    assert built.ptx is not None
    certificate = make_certificate(
        built.name,
        obligations=prove(built),
        hashes=built.hashes(),
        tools=_tools(built),
        not_checked=(PTX_UNCHECKED,),
    )
    return replace(built, certificate=certificate)


def _tools(kernel: Kernel) -> dict[str, Any]:
    tools: dict[str, Any] = {"z3": version("z3-solver")}
    if kernel.ptx is not None:
        tools["arch"] = kernel.ptx.arch
        tools["compiler"] = [kernel.ptx.compiler, kernel.ptx.compiler_version]
    if kernel.cubin is not None:
        tools["assembler"] = [kernel.cubin.assembler, kernel.cubin.assembler_version]
    return tools
