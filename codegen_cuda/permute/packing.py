"""Elements that travel in company: planning on the wider elements that they make up.

Where ``count`` neighbours in the source are neighbours in the destination, in the same order and aligned on both sides,
they are one element of ``count`` times the width.  The wide request is planned like any other, and its plan is spelled
out in the narrow elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.permute.address import stage_terms
from codegen_cuda.permute.plan import LANES, Moves, Plan, list_plan
from codegen_cuda.permute.problem import Layout, Problem
from codegen_cuda.permute.task import Ints, Task
from layoutalg.algebra.recognise import recognise_values
from layoutalg.axis import m
from layoutalg.errors import LayoutError
from layoutalg.hardware.dtypes import dtype
from layoutalg.index import Affine
from layoutalg.tile import TileLayout

__all__ = ["expand", "pack_problem", "plan_packed", "wide_plan"]

#: Element types that stand for so many bytes.
_STANDS = {2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}


def pack_problem(problem: Problem, task: Task, count: int) -> tuple[Problem, Ints] | None:
    """Return the request in wide elements, and their members [wide][position]; None where elements part company.

    Swizzled sides whose packed places are no plain layout are left as they are (None).
    """
    found = task.packed(count)
    if found is None:
        return None
    wide, members = found
    try:
        source = _layout(problem.source, wide.source // wide.width, count, problem)
        destination = _layout(problem.destination, wide.destination // wide.width, count, problem)
    except LayoutError:
        return None
    kind = dtype(_STANDS[wide.width])
    return replace(problem, source=source, destination=destination, dtype=kind), members


def _layout(side: Layout, places: Ints, count: int, problem: Problem) -> Layout:
    """Read a layout off places, with the stages of the side it comes from."""
    iters, offset = recognise_values({m: places})
    start = int(offset.get(m, 0))
    move = stage_terms(side)
    first = {p.name: p.begin for p in problem.params}
    start -= move.evaluate(first.__getitem__) // count
    value: int | Affine = start
    for param in side.params:
        coefficient = sum(c for atom, c in move.terms if atom.name == param.name)
        value = value + param * (coefficient // count)
    triples = [(it.extent, it.stride, "m") for it in iters]
    return TileLayout.from_iters(shard=triples, offset={"m": value} if value != 0 else {})


def wide_plan(problem: Problem) -> Plan | None:
    """Plan a packed request with the cheapest form that goes slot by slot, None where none serves."""
    from codegen_cuda.permute.gf2 import plan_gf2
    from codegen_cuda.permute.rotation import plan_rotation
    from codegen_cuda.permute.table import plan_table
    from codegen_cuda.permute.xor import plan_xor

    plans: list[Plan] = []
    for make in (plan_xor, plan_rotation, plan_gf2, plan_table):
        try:
            plans.append(make(problem))
        except PlanError:
            continue
    return min(plans, key=lambda plan: plan.cost) if plans else None


def plan_packed(form: str, problem: Problem, task: Task, count: int) -> Plan | None:
    """Plan on elements ``count`` times as wide; None where elements part company."""
    packed = pack_problem(problem, task, count)
    if packed is None:
        return None
    plan = wide_plan(packed[0])
    return None if plan is None else expand(form, problem, task, plan, packed[1], packed[0].width)


def expand(form: str, problem: Problem, task: Task, plan: Plan, members: Ints, width: int) -> Plan:
    """Spell out a plan on wide elements in narrow ones."""

    def spell(listed: Sequence[Moves]) -> list[Moves]:
        return [(w, _spell(table, members)) for w, table in listed]

    if plan.reads:
        moves = [[(a.width, np.array([a.elements])) for a in phase] for phase in (plan.reads, plan.writes)]
        reads, writes = (spell(phase) for phase in moves)
    else:
        # Whole rounds of the warps, so that instruction i belongs to warp ``i % warps`` here as well.
        idle = np.full((-len(plan.slots) % plan.warps, LANES), -1, dtype=np.int64)
        reads = writes = spell([(width, np.concatenate([plan.table(), idle])[:, :, None])])
    details = {"pack": members.shape[1], "as": plan.form, **plan.details}
    return list_plan(
        form, reads, writes, problem, details, task=task, operations=plan.operations, registers=plan.registers
    )


def _spell(table: Ints, members: Ints) -> Ints:
    spelled = np.where(table[..., None] >= 0, members[np.maximum(table, 0)], -1)
    return spelled.reshape(*table.shape[:2], -1)
