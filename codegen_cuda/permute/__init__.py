"""Permutes: from two layouts to a planned, emitted kernel.

``permute_layout`` is for one warp moving a tile inside shared memory.  The module itself may be called:
``codegen_cuda.permute(x, perm)`` permutes an array's dimensions (:func:`codegen_cuda.tensor.permute`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any

from codegen_cuda.errors import PlanError
from codegen_cuda.kernel import Kernel
from codegen_cuda.permute.emit import claim_of, emit_permute, kernel_name
from codegen_cuda.permute.gf2 import plan_gf2
from codegen_cuda.permute.plan import Candidate, Plan
from codegen_cuda.permute.problem import Layout, Operand, Problem, pose
from codegen_cuda.permute.rotation import plan_rotation
from codegen_cuda.permute.table import plan_table
from codegen_cuda.permute.vector import plan_vector
from codegen_cuda.permute.words import plan_words
from codegen_cuda.permute.xor import plan_xor

__all__ = ["FORMS", "RULES", "Operand", "choose_plan", "permute_layout", "why_not"]

#: The forms a plan can take, in the order of preference at equal cost.
FORMS: Mapping[str, Callable[[Problem], Plan]] = MappingProxyType(
    {
        "xor": plan_xor,
        "rotation": plan_rotation,
        "gf2": plan_gf2,
        "table": plan_table,
        "vector": plan_vector,
        "words": plan_words,
    }
)


#: How the planner may choose among the forms.
RULES = ("auto", "fastest")


def permute_layout(
    src: Layout | Operand,
    dst: Layout | Operand,
    *,
    shape: tuple[int, ...] | None = None,
    region: Any = None,
    dtype: Any = None,
    scope: str = "warp",
    plan: str = "auto",
    in_place: bool = True,
    max_registers: int = 128,
    warps: int | None = None,
) -> Kernel:
    """Plan and emit a permute: every element moves from its place in ``src`` to its place in ``dst``.

    Law (proved per plan by ``verify.prove_plan``): each element is carried by exactly one lane and register, and
    written where ``dst`` puts it.

    Args:
        src: source layout on axis ``m``, in elements; an :class:`Operand` carries its own shape, region and dtype.
        dst: destination layout, likewise.
        shape: logical extents of both layouts; each layout's own extents without one.
        region: box of the shape, such as ``"s,0:1,0:4,0:32"``; a bare name is a stage parameter.
        dtype: element type of both.
        scope: ``"warp"``: one warp moves the region; ``"cta"``: the warps of a block share it.
        plan: a form of :data:`FORMS`; ``"auto"`` for the one with the fewest wavefronts, then the fewest instructions;
            ``"fastest"`` for the one with the least estimated ``Plan.cycles``, which may be another where elements of
            1 or 2 bytes are sorted into words at length.
        in_place: source and destination may be the same memory, so all of a stage is read before any is written.
        max_registers: 32-bit registers per lane that may hold elements.
        warps: with scope ``"cta"``, how many warps share the region; without it, as many as registers ask for.

    Raises:
        PlanError: the request cannot be planned; ``facts["rule"]`` names the rule, the text what would work.

    >>> from layoutalg import S, TileLayout
    >>> rows, columns = TileLayout(S[(4, 32):(32, 1)]), TileLayout(S[(4, 32):(1, 4)])
    >>> kernel = permute_layout(rows, columns, dtype="float32", plan="xor")
    >>> kernel.plan.details["shift"], kernel.plan.read.wavefronts, kernel.plan.write.excess
    (3, 4, 0)
    """
    source, destination = (_operand(side, shape, region, dtype) for side in (src, dst))
    problem = pose(source, destination, scope=scope, in_place=in_place, max_registers=max_registers, warps=warps)
    chosen = choose_plan(problem, plan)
    name = kernel_name(problem, chosen.form)
    return Kernel(
        name=name,
        source=emit_permute(problem, chosen, name),
        claim=claim_of(problem, chosen, name),
        plan=chosen,
        problem=problem,
    )


def why_not(src: Layout | Operand, dst: Layout | Operand, **options: Any) -> PlanError | None:
    """Return why :func:`permute_layout` with these arguments would refuse, or None where it would not.

    >>> from layoutalg import S, TileLayout
    >>> same = TileLayout(S[32:1])
    >>> why_not(same, TileLayout(S[32:0]), dtype="f32").facts["rule"]
    'injective'
    """
    try:
        permute_layout(src, dst, **options)
    except PlanError as error:
        return error
    return None


def _operand(side: Layout | Operand, shape: Any, region: Any, dtype: Any) -> Operand:
    if not isinstance(side, Operand):
        return Operand(side, shape, region, dtype)
    return Operand(
        side.layout,
        side.shape if side.shape is not None else shape,
        side.region if side.region is not None else region,
        side.dtype if side.dtype is not None else dtype,
    )


def choose_plan(problem: Problem, form: str = "auto") -> Plan:
    """Plan a posed request with the named form, or with the cheapest of those that serve it.

    Args:
        problem: what :func:`codegen_cuda.permute.problem.pose` made of a request.
        form: one of :data:`RULES`, or a form of :data:`FORMS`.

    Raises:
        PlanError: the form, or every form, refuses; ``facts["rule"]`` names the rule.
    """
    if form not in RULES:
        if form not in FORMS:
            known = ", ".join((*RULES, *FORMS))
            raise PlanError(f"permute_layout: no plan form {form!r}; forms are {known}", rule="plan", form=form)
        return FORMS[form](problem)
    plans: list[Plan] = []
    candidates: list[Candidate] = []
    refusals: list[PlanError] = []
    for name, make in FORMS.items():
        try:
            plans.append(make(problem))
            candidates.append(plans[-1].candidate())
        except PlanError as error:
            refusals.append(error)
            candidates.append(Candidate(name, str(error).removeprefix("permute_layout: ")))
    if not plans:
        raise refusals[-1]
    chosen = _preferred(plans) if form == "auto" else min(plans, key=lambda plan: plan.cycles)
    return replace(chosen, candidates=tuple(candidates))


def _preferred(plans: Sequence[Plan]) -> Plan:
    """Return the cheapest plan; where operations, which are estimates, differ little, the form that comes first."""
    best = min(plan.cost for plan in plans)
    return next(plan for plan in plans if plan.cost[:2] == best[:2] and plan.operations <= best[2] * 1.25 + 4)


class _Callable(ModuleType):
    """This module, which may be called: a submodule and a function of one name share one attribute."""

    def __call__(self, x: Any, perm: Sequence[int], *, out: Any = None, stream: Any = None) -> Any:
        """Return an array with its dimensions permuted; see :func:`codegen_cuda.tensor.permute`."""
        from codegen_cuda.tensor import permute

        return permute(x, perm, out=out, stream=stream)


sys.modules[__name__].__class__ = _Callable
