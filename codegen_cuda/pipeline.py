"""From a generated kernel to a certified one: prove the plan, compile, check the PTX, record what was found."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

from codegen_cuda.errors import BuildError
from codegen_cuda.kernel import Kernel
from codegen_cuda.permute.emit import ALIGN
from codegen_cuda.permute.plan import Plan
from codegen_cuda.tmem.plan import RoundTrip, TmemPlan
from verify.certificate import make_certificate
from verify.kernel import NO_SYMBOLIC, check_kernel
from verify.permute import prove_plan
from verify.tmem import prove_transfers, run_claim
from verify.verdict import Obligation

__all__ = ["certify", "prove"]


def prove(kernel: Kernel) -> tuple[Obligation, ...]:
    """Prove the kernel's plan; nothing needs to be compiled for it.

    A permute's plan is proved with z3, a tensor-memory plan exhaustively on a model of the memory.  A whole-tensor plan
    only chooses a strategy: what it does is proved on the compiled kernel.

    Raises:
        BuildError: the kernel has no plan (it was loaded from files).
    """
    plan, problem = kernel.plan, kernel.problem
    if plan is None:
        raise BuildError(f"{kernel.name} was loaded from files and has no plan to prove; its certificate says what was")
    if isinstance(plan, Plan):
        return prove_plan(
            plan.slots,
            problem.source,
            problem.destination,
            width=problem.width,
            align=max(ALIGN, problem.width),
            reads=plan.reads,
            writes=plan.writes,
            read_cost=(plan.read.wavefronts, plan.read.excess),
            write_cost=(plan.write.wavefronts, plan.write.excess),
            exact=plan.read.uniform and plan.write.uniform,
            in_place=problem.in_place,
            warps=plan.warps,
        )
    if isinstance(plan, TmemPlan | RoundTrip):
        return tuple(o for statement in plan.statements() for o in prove_transfers(**statement))
    return ()


def certify(kernel: Kernel, *, symbolic: bool = True) -> Kernel:
    """Compile if needed, prove the plan, check the PTX against the claim, and return the kernel with its certificate.

    Args:
        kernel: a generated kernel, or one loaded from files (whose plan is not there to be proved again).
        symbolic: also prove the PTX for all data and base addresses, not only execute it for every thread.  Tensor
            memory is also executed at every base column that its allocation can get.
    """
    built = kernel if kernel.ptx is not None else kernel.compile()
    assert built.ptx is not None
    text = built.ptx.text
    obligations = list(prove(built)) if built.plan is not None else []
    obligations += check_kernel(text, built.claim, file=f"{built.name}.ptx", symbolic=symbolic)
    if "tcgen05" in text:
        obligations += run_claim(text, built.claim)
    not_checked = [] if symbolic else [NO_SYMBOLIC]
    if built.plan is None:
        not_checked.append("the plan: the kernel was loaded from files, which hold none")
    certificate = make_certificate(
        built.name,
        obligations=obligations,
        hashes=built.hashes(),
        tools=_tools(built),
        not_checked=not_checked,
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
