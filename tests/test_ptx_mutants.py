"""The checker's worth: every small wrong change to two compiled kernels, at every place, is refused.

A mutant that is accepted must be shown to be equivalent by other means: the solver proves that it makes the same
accesses with the same values under the same conditions as the original, or the reason stands in a list here.
"""

from __future__ import annotations

from collections import Counter

import pytest
import z3
from ptx_claims import warp_transpose
from ptx_samples import ptx_names, texts

from verify.ptx.check import check_executed
from verify.ptx.mutate import OPERATORS, Mutant, mutants
from verify.ptx.parse import parse
from verify.ptx.printer import print_module
from verify.ptx.resolve import load
from verify.ptx.symbolic import check_symbolically
from verify.ptx.symexec import execute
from verify.solve import prove
from verify.verdict import Refuted

KINDS_OF_WITNESS = {"thread", "found", "written by", "block", "required by the kernel"}


def same_accesses(first, second, claim) -> bool:
    """Whether two kernels make the same accesses, proved for all threads: stored values are compared as terms."""
    params = {i: z3.BitVec(f"p{i}", 64) for i in range(2)}
    params |= {2: z3.BitVecVal(claim.params[2].minimum, 32)} if len(claim.params) > 2 else {}
    runs = [execute(load(m), block=claim.block, grid=claim.grid, params=params, given=()) for m in (first, second)]
    if len(runs[0].accesses) != len(runs[1].accesses):
        return False
    for a, b in zip(runs[0].accesses, runs[1].accesses, strict=True):
        if (a.write, a.space, a.size, a.block_epoch, a.warp_epoch) != (
            b.write, b.space, b.size, b.block_epoch, b.warp_epoch,
        ):  # fmt: skip
            return False
        same = z3.And(a.guard == b.guard, z3.Implies(a.guard, a.address == b.address))
        same = z3.And(same, *(z3.Implies(a.guard, x == y) for x, y in zip(a.values, b.values, strict=True)))
        if not prove(same, given=runs[0].given, scope="same access", logic="QF_BV").ok:
            return False
    return True


def verdict_of(mutant: Mutant, claims) -> str:
    """``refused``, with a witness or as not understood, under any of the claims; or ``accepted``."""
    for claim in claims:
        for obligation in check_executed(mutant.module, claim, max_steps=5000):
            if isinstance(obligation.verdict, Refuted):
                assert KINDS_OF_WITNESS & set(obligation.verdict.counterexample), obligation.verdict
                return "refused"
            if not obligation.verdict.ok:
                return "not understood"
    return "accepted"


def survivors(name: str, claims, *, every: int = 1) -> tuple[Counter[str], list[Mutant]]:
    counts: Counter[str] = Counter()
    accepted = []
    for mutant in list(mutants(parse(texts()[name], file=name)))[::every]:
        verdict = verdict_of(mutant, claims)
        counts[verdict] += 1
        if verdict == "accepted":
            accepted.append(mutant)
    return counts, accepted


A = [name for name in ptx_names() if name.startswith("a_warp")]
CLAIM_A = warp_transpose("warp_transpose_4x32", 2)


def test_a_fifth_of_the_mutants_of_the_warp_transpose_is_refused():
    counts, accepted = survivors("a_warp_transpose.nvrtc135.sm_90a.ptx", [CLAIM_A], every=5)
    assert counts["refused"] > 65
    assert accepted == []


@pytest.mark.slow
@pytest.mark.parametrize("name", A)
def test_every_mutant_of_the_warp_transpose_is_refused_or_equivalent(name):
    counts, accepted = survivors(name, [CLAIM_A])
    assert counts["refused"] > 300
    assert counts["not understood"] < 5
    original = parse(texts()[name], file=name)
    for mutant in accepted:
        assert same_accesses(original, mutant.module, CLAIM_A), (mutant.operator, mutant.line, mutant.change)
    assert len(accepted) <= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [f"a2_warp_transpose_fn.{which}.ptx" for which in ("nvcc130.sm_80", "nvrtc135.sm_100a")]
)
def test_every_mutant_of_the_looping_transpose_is_refused_or_equivalent(name):
    """One kernel for any number of stages: a mutant must fail for one of five, or make the same accesses."""
    claims = [warp_transpose("warp_transpose_fn", n, block=128, scalar=True) for n in (9, 3, 4, 6, 72)]
    counts, accepted = survivors(name, claims)
    assert counts["refused"] > 400
    original = parse(texts()[name], file=name)
    for mutant in accepted:
        for stages in (4, 16):
            claim = warp_transpose("warp_transpose_fn", stages, block=128, scalar=True)
            assert same_accesses(original, mutant.module, claim), (mutant.operator, mutant.line, mutant.change)
    assert len(accepted) < 20


@pytest.mark.slow
def test_the_solver_alone_refuses_what_it_covers():
    """A sample of mutants of every operator, judged without execution."""
    name = "a_warp_transpose.nvrtc135.sm_90a.ptx"
    claim = warp_transpose("warp_transpose_4x32", 2)
    by_operator: dict[str, list[Mutant]] = {}
    for mutant in mutants(parse(texts()[name], file=name)):
        by_operator.setdefault(mutant.operator, []).append(mutant)
    checked = 0
    for found in by_operator.values():
        for mutant in found[:: max(1, len(found) // 2)]:
            executed = verdict_of(mutant, [claim])
            solved = all(
                obligation.verdict.ok for obligation in check_symbolically(mutant.module, claim, max_steps=2000)
            )
            if executed == "refused" and solved:
                # Bank costs are not an obligation of the solver here; everything else must agree.
                refuted = [o for o in check_executed(mutant.module, claim, max_steps=5000) if not o.verdict.ok]
                assert [o.name for o in refuted] == ["shared memory takes the promised wavefronts"], mutant.change
            assert executed == "refused" or solved
            checked += 1
    assert checked >= 20


def test_every_operator_applies_somewhere_and_changes_one_thing():
    found = Counter()
    for name in ("a_warp_transpose.nvrtc135.sm_90a.ptx", "a2_warp_transpose_fn.nvrtc135.sm_90a.ptx"):
        original = parse(texts()[name], file=name)
        for mutant in mutants(original):
            found[mutant.operator] += 1
            assert mutant.module != original
            assert mutant.change
    assert set(found) == set(OPERATORS)
    assert parse(print_module(mutant.module)) == mutant.module
