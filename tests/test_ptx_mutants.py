"""The checker's worth: every small wrong change to compiled kernels, at every place, is refused.

A mutant that is accepted must be shown to be equivalent by other means: its accesses, thread by thread
(``verify.ptx.trace``), and for the samples the solver, which proves that it makes the same accesses with the same
values under the same conditions as the original.  ``benchmarks/mutate_kernels.py`` does the same for many more kernels.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import z3
from ptx_claims import warp_transpose
from ptx_samples import texts

from codegen_cuda.build import compile_ptx
from verify.mutation import Judgement, accepted, judge_all
from verify.ptx.check import check_executed
from verify.ptx.mutate import OPERATORS, Mutant, mutants
from verify.ptx.parse import parse
from verify.ptx.printer import print_module
from verify.ptx.resolve import load
from verify.ptx.symbolic import check_symbolically
from verify.ptx.symexec import execute
from verify.ptx.trace import Access, Trace, conflict, equivalence, needed
from verify.solve import prove
from verify.verdict import Refuted

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "mutate_kernels.py"
RESULTS = SCRIPT.parent / "results" / "ptx_mutants.json"
#: Findings that are about an address.
OF_MEMORY = (
    "race",
    "misaligned",
    "out-of-bounds",
    "uninitialised-memory",
    "uninitialised-tmem",
    "read-only",
    "tmem-slab",
)


@cache
def suite():
    """The script of the whole mutation suite, as a module."""
    spec = importlib.util.spec_from_file_location("mutate_kernels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def generated(name: str, compiler: str = "nvrtc", arch: str = "sm_90a"):
    """A kernel of the suite: its tree and its claim."""
    (subject,) = (subject for subject in suite().subjects() if subject.name == name)
    kernel = subject.make()
    made = compile_ptx(kernel.source, arch=arch, name=f"{kernel.name}.cu", compiler=compiler)
    return parse(made.text, file=f"{kernel.name}.ptx"), kernel.claim


def lacking(judgement: Judgement) -> str:
    """What the witness of a refusal does not name, although it must: thread, lines, element, address."""
    facts = judgement.witness
    match judgement.check.split(": ")[0]:
        case "safety":
            need = {"thread", "block", "PTX line", "source"}
            need |= {"address"} if judgement.check.partition(": ")[2] in OF_MEMORY else set()
        case "contents":
            need = {"output", "expected", "found", "address", "written by"}
            need |= set() if facts["written by"] == "nobody" else {"PTX line", "instruction", "source"}
        case "banks":
            need = {"promised", "found", "PTX line", "source"}
        case "solver":
            need = {"PTX line", "instruction"}
        case "tensor memory":
            need = {"column"} | ({"warning"} if "warning" in facts else {"output"})
        case _:
            need = {"a check that is known"}
    return ", ".join(sorted(need - set(facts)))


def tally(judgements) -> Counter[str]:
    """Verdicts; every refusal must name its place, and nothing may survive."""
    counts: Counter[str] = Counter()
    for judgement in judgements:
        change = (judgement.mutant.operator, judgement.mutant.line, judgement.mutant.change)
        assert judgement.verdict in ("refused", "equivalent"), change
        if judgement.verdict == "refused":
            assert not lacking(judgement), (change, judgement.check, judgement.witness)
        counts[judgement.verdict] += 1
        counts[judgement.mutant.operator] += 1
    return counts


@pytest.mark.parametrize(
    ("name", "arch", "every"),
    [("gf2 2x4 float32", "sm_90a", 4), ("words 3x5 uint8", "sm_80", 20), ("tmem round trip layout B", "sm_100a", 20)],
)
def test_some_mutants_of_generated_kernels_are_refused_with_witnesses(name, arch, every):
    module, claim = generated(name, arch=arch)
    counts = tally(judge_all(module, claim, every=every, first=1))
    assert counts["refused"] >= 5


SMALL = [
    ("xor 4x32 float32", "nvrtc", "sm_100a"), ("rotation 7x11 uint8", "nvrtc", "sm_90a"),
    ("gf2 2x4 complex128", "nvrtc", "sm_80"), ("table 3x5 float16", "nvrtc", "sm_90a"),
    ("vector 8x8 float64", "nvrtc", "sm_100a"), ("words 3x5 float16", "nvrtc", "sm_90a"),
    ("tmem round trip layout B", "nvrtc", "sm_100a"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compiler", "arch"), SMALL)
def test_every_mutant_of_a_kernel_of_each_form_is_refused_with_a_witness_or_equivalent(name, compiler, arch):
    module, claim = generated(name, compiler, arch)
    assert all(o.verdict.ok for o in accepted(print_module(module), claim))
    counts = tally(judge_all(module, claim))
    assert counts["refused"] > 4 * counts["equivalent"]
    assert {"changed constant", "swapped registers", "shifted base", "repeated write"} <= set(counts)


def test_the_recorded_table_has_every_kernel_of_the_suite_and_no_survivor():
    table = json.loads(RESULTS.read_text())
    rows = {(row["kernel"], row["compiler"].split()[0], row["arch"]): row for row in table["kernels"]}
    wanted = {(subject.name, *target) for subject in suite().subjects() for target in subject.targets}
    assert set(rows) == wanted
    assert {row["unchanged"] for row in rows.values()} == {"accepted"}
    assert table["total"]["survived"] == 0
    for subject in suite().subjects():
        for target in subject.mutated:
            row = rows[(subject.name, *target)]
            assert (row["survived"], row["not understood"]) == (0, 0)
            assert all(other["proof"] for other in row["not refused"])


# --- equivalence ---------------------------------------------------------------------------------------------------


def test_what_the_claim_refutes_is_not_called_equivalent():
    """The comparison of traces must be able to say no: of mutants that leave their element elsewhere it does."""
    module, claim = generated("gf2 2x4 float32")
    original = load(module, claim.entry)
    assert equivalence(original, original, claim).startswith("every thread makes the same accesses")
    refuted = 0
    for mutant in list(mutants(module))[::3]:
        obligations = check_executed(mutant.module, claim)
        if any(isinstance(o.verdict, Refuted) and "output" in o.verdict.counterexample for o in obligations):
            assert equivalence(original, load(mutant.module, claim.entry), claim) == ""
            refuted += 1
    assert refuted >= 3


def access(space="shared", *, write=False, place=0, barriers=(0, 0)) -> Access:
    return Access(space, write, 1, (place,), (0,), barriers)


CONFLICTS = {
    "two readers": ([access()], [access()], False),
    "a writer and a reader": ([access(write=True)], [access()], True),
    "two writers of different bytes": ([access(write=True)], [access(write=True, place=1)], False),
    "a warp barrier between": ([access(write=True)], [access(barriers=(0, 1))], False),
    "a block barrier between": ([access(write=True)], [access(barriers=(1, 0))], False),
    "the same barriers before both": ([access(write=True, barriers=(1, 2))], [access(barriers=(1, 2))], True),
    "one warp in tensor memory": ([access("tmem", write=True)], [access("tmem")], False),
}


@pytest.mark.parametrize(("first", "second", "found"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_two_threads_conflict_where_nothing_orders_them(first, second, found):
    assert (conflict(Trace({0: first, 1: second}, (), (), 64)) is not None) is found
    # Of two warps a warp barrier orders nothing; of two blocks nothing does, and shared memory is not the same.
    across = conflict(Trace({0: first, 32: second}, (), (), 64)) is not None
    assert across is (found or (first[0].write and first[0].barriers[0] == second[0].barriers[0]
        and first[0].places == second[0].places))  # fmt: skip
    assert conflict(Trace({0: first, 64: second}, (), (), 64)) is None
    everywhere = [[access("global", write=row.write, place=row.places[0]) for row in rows] for rows in (first, second)]
    met = conflict(Trace({0: everywhere[0], 64: everywhere[1]}, (), (), 64)) is not None
    assert met is (first[0].write and first[0].places == second[0].places)


def test_waits_and_fences_count_where_there_is_something_to_order():
    store, load_ = access("tmem", write=True), access("tmem")
    wait, before, after = access("wait::st"), access("fence::before"), access("fence::after", barriers=(1, 0))
    later = access("tmem", barriers=(1, 0))
    assert needed([wait, store, wait, wait, load_]) == [store, wait, load_]
    assert needed([before, store, before]) == [store, before]
    assert needed([store, after, later, after]) == [store, after, later]


# --- the samples ---------------------------------------------------------------------------------------------------

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
    passed = []
    for mutant in list(mutants(parse(texts()[name], file=name)))[::every]:
        verdict = verdict_of(mutant, claims)
        counts[verdict] += 1
        if verdict == "accepted":
            passed.append(mutant)
    return counts, passed


CLAIM_A = warp_transpose("warp_transpose_4x32", 2)


def test_a_twentieth_of_the_mutants_of_the_warp_transpose_is_refused():
    counts, passed = survivors("a_warp_transpose.nvrtc135.sm_90a.ptx", [CLAIM_A], every=20)
    assert counts["refused"] > 15
    assert passed == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a_warp_transpose.nvcc130.sm_80.ptx"])
def test_every_mutant_of_the_warp_transpose_is_refused_or_equivalent(name):
    counts, passed = survivors(name, [CLAIM_A])
    assert counts["refused"] > 300
    assert counts["not understood"] < 5
    original = parse(texts()[name], file=name)
    for mutant in passed:
        assert same_accesses(original, mutant.module, CLAIM_A), (mutant.operator, mutant.line, mutant.change)
    assert len(passed) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"a2_warp_transpose_fn.{which}.ptx" for which in ("nvrtc135.sm_100a",)])
def test_every_third_mutant_of_the_looping_transpose_is_refused_or_equivalent(name):
    """One kernel for any number of stages: a mutant must fail for one of five, or make the same accesses."""
    claims = [warp_transpose("warp_transpose_fn", n, block=128, scalar=True) for n in (9, 3, 4, 6, 72)]
    counts, passed = survivors(name, claims, every=3)
    assert counts["refused"] > 130
    original = parse(texts()[name], file=name)
    for mutant in passed:
        for stages in (4, 16):
            claim = warp_transpose("warp_transpose_fn", stages, block=128, scalar=True)
            assert same_accesses(original, mutant.module, claim), (mutant.operator, mutant.line, mutant.change)
    assert len(passed) < 20


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
