"""Laws decided by trying everything: for code that needs numbers, such as the recogniser, and for sets of places.

Every member of a finite list is run and judged by brute force; nothing is sampled.  A mutant is the same with a
function of the library replaced, as for families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from verify.laws.core import Law, Mutant
from verify.laws.family import Patch, mistaken, patched, show
from verify.verdict import Proved, Refuted, Verdict

__all__ = ["exhaustive"]


@dataclass(frozen=True, slots=True)
class _Exhaustive:
    run: Callable[[Any], Any]
    judge: Callable[[Any, Any], bool]
    members: Callable[[], Iterable[Any]]
    scope: str

    def check(self, patches: Sequence[Patch] = ()) -> Verdict:
        count = 0
        with patched(patches):
            for member in self.members():
                count += 1
                try:
                    answer, right = self.run(member), True
                except AssertionError as fault:
                    answer, right = fault, False
                if not right or not self.judge(member, answer):
                    return Refuted(self.scope, {"member": member, "answer": show(answer)})
        return Proved(f"{self.scope}; {count} members evaluated")

    def evaluate(self) -> Verdict:
        verdict = self.check()
        return Proved(verdict.scope.rpartition("; ")[2]) if isinstance(verdict, Proved) else verdict

    def replay(self, counterexample: Mapping[str, Any], patches: Sequence[Patch]) -> tuple[str, str]:
        member = counterexample["member"]  # a layout remembers its canonical form, so each run has a copy of its own
        right = self.run(deepcopy(member))
        fault, wrong = mistaken(lambda: self.run(deepcopy(member)), patches)
        if not self.judge(member, right) or (fault is None and self.judge(member, wrong)):
            raise AssertionError(f"the counterexample does not repeat: {show(right)} and {show(wrong)}")
        return show(right), show(fault or wrong)


def exhaustive(
    name: str,
    statement: str,
    *,
    scope: str,
    members: Callable[[], Iterable[Any]],
    run: Callable[[Any], Any],
    judge: Callable[[Any, Any], bool],
    mutants: Mapping[str, Sequence[Patch]],
) -> Law:
    """Return the law that ``judge(member, run(member))`` holds for every member; arguments as for a family."""
    written = _Exhaustive(run, judge, members, scope)

    def mutant_of(wrong: str, patches: Sequence[Patch]) -> Mutant:
        return Mutant(
            wrong,
            lambda _settings: written.check(patches),
            lambda counterexample: written.replay(counterexample, patches),
        )

    return Law(
        name=name,
        statement=statement,
        scope=scope,
        kind="exhaustive",
        check=lambda _settings: written.check(),
        mutants=tuple(starmap(mutant_of, mutants.items())),
        evaluate=written.evaluate,
        mutant_of=mutant_of,
    )
