"""What becomes of a mutant of a compiled kernel: refused with a witness, or shown to be equivalent.

A checker is worth what it refuses.  A mutant goes through the same checks as a kernel that is to be certified, in the
same order: executed for every thread, proved for all data and base addresses, tensor memory executed at other bases.
One that passes them all must be shown to be equivalent by its accesses (:mod:`verify.ptx.trace`), or it has survived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from layoutalg.claim import Claim
from verify.ptx.check import check_executed
from verify.ptx.errors import PtxError
from verify.ptx.mutate import Mutant, mutants
from verify.ptx.parse import parse
from verify.ptx.printer import print_module
from verify.ptx.program import Program
from verify.ptx.resolve import load
from verify.ptx.symbolic import check_symbolically
from verify.ptx.trace import equivalence
from verify.ptx.tree import Module
from verify.tmem import run_claim
from verify.verdict import Obligation, Refuted

__all__ = ["Judgement", "accepted", "judge", "judge_all"]

_MAX_STEPS = 20_000
#: How obligations are called in tables.
_SHORT = {
    "the kernel takes": "interface",
    "no thread leaves": "safety",
    "every element arrives": "contents",
    "shared memory takes": "banks",
    "addresses are base": "uniform",
    "every access is inside": "bounds",
    "no two threads touch": "races",
    "every output byte": "contents",
    "the compiled PTX": "tensor memory",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a mutant.

    Attributes:
        mutant: the changed kernel.
        verdict: ``refused``; ``not understood``, which refuses a certificate, too, but has no witness; ``equivalent``;
            or ``survived``.
        check: what refused it: ``safety: race``, ``contents``, ``banks``, ``solver: bounds`` and so on.
        witness: the counterexample.
        proof: of an equivalent mutant, why.
    """

    mutant: Mutant
    verdict: str
    check: str = ""
    witness: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    proof: str = ""


def judge_all(module: Module, claim: Claim, *, every: int = 1, first: int = 0) -> Iterator[Judgement]:
    """Judge every mutant of a kernel, or every so many.

    Args:
        module: the kernel that the claim is true of.
        claim: what it promises.
        every: take one mutant of so many, beginning with number ``first``.
    """
    program = load(module, claim.entry)
    for number, mutant in enumerate(mutants(module, claim.entry)):
        if number % every == first % every:
            yield judge(mutant, program, claim)


def judge(mutant: Mutant, original: Program, claim: Claim) -> Judgement:
    """Put one mutant through the checks, and compare it with the original if it passes."""
    for prefix, obligations in _checks(mutant.module, claim):
        for obligation in obligations:
            if obligation.verdict.ok:
                continue
            if not isinstance(obligation.verdict, Refuted):
                return Judgement(mutant, "not understood", prefix + _short(obligation))
            witness = obligation.verdict.counterexample
            kind = witness.get("finding") or witness.get("kind")
            check = prefix + _short(obligation) + (f": {kind}" if kind and not prefix else "")
            return Judgement(mutant, "refused", check, witness)
    try:
        proof = equivalence(original, load(mutant.module, claim.entry), claim)
    except PtxError:
        proof = ""
    return Judgement(mutant, "equivalent" if proof else "survived", proof=proof)


def _checks(module: Module, claim: Claim) -> Iterator[tuple[str, tuple[Obligation, ...]]]:
    """Checks in the order of certification, each done only when it is asked for."""
    yield "", check_executed(module, claim, max_steps=_MAX_STEPS)
    yield "solver: ", check_symbolically(module, claim, max_steps=_MAX_STEPS)
    if "tcgen05" in (text := print_module(module)):
        yield "", run_claim(text, claim, columns=(0, 32, 480))


def _short(obligation: Obligation) -> str:
    return next((short for begin, short in _SHORT.items() if obligation.name.startswith(begin)), obligation.name)


def accepted(text: str, claim: Claim, *, file: str = "<ptx>") -> tuple[Obligation, ...]:
    """Every obligation on an unchanged kernel, by the same checks."""
    return tuple(o for _, obligations in _checks(parse(text, file=file), claim) for o in obligations)
