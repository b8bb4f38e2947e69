"""What a law is: a named theorem, its scope in words, an obligation, and wrong implementations that it must refute.

Two kinds.  A *step* holds for all extents and all integers: the inductive step of an algorithm, from which the whole
follows by induction on the rank.  A *family* runs the library's own code on unknown strides, for every member of a
finite list of extents, shapes and regions; every path that the code can take is checked, refusals too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from verify.solve import BUDGET
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["Check", "Law", "Mutant", "Replay", "Settings", "conjunction"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard to try: the solver's resource limit per query, and its seed."""

    budget: int = BUDGET
    seed: int = 0


Check: TypeAlias = Callable[[Settings], Verdict]
#: Counterexample -> (what the library answers there, what the wrong implementation answers); the two must differ.
Replay: TypeAlias = Callable[[Mapping[str, Any]], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A plausible wrong implementation.

    Args:
        name: short, unique within the law.
        check: the law's obligation with the mistake in it; must be refuted.
        replay: repeats the counterexample on the library.
    """

    name: str
    check: Check
    replay: Replay


@dataclass(frozen=True, slots=True)
class Law:
    """A theorem of the library.

    Args:
        name: ``file.law``, as in ``slicing.two_halves``.
        statement: what holds, in words and formulas.
        scope: for which values it is proved.
        kind: ``"step"``, ``"family"`` or ``"answers"``.
        check: the proof.
        mutants: what the same obligation refutes.
        evaluate: the statement on small members without a solver; Proved with the number of members in its scope.
            For a family ``thorough=True`` leaves no choice of small strides out.
        mutant_of: makes a mutant of a name and replacements of the library's functions, where the law runs those.
    """

    name: str
    statement: str
    scope: str
    kind: str
    check: Check
    mutants: tuple[Mutant, ...]
    evaluate: Callable[..., Verdict]
    mutant_of: Callable[[str, Sequence[Any]], Mutant] | None = None

    @property
    def group(self) -> str:
        """The file of the law, the part of the name before the first dot."""
        return self.name.partition(".")[0]


def conjunction(scope: str, verdicts: Sequence[Verdict]) -> Verdict:
    """Return Proved when every part is, else the first part that is not; efforts add up.

    >>> print(conjunction("both", [Proved("one", 2), Unknown("two", "too hard", 3)]))
    Unknown: too hard
    """
    effort = sum(verdict.effort for verdict in verdicts)
    refuted = next((v for v in verdicts if isinstance(v, Refuted)), None)
    if refuted is not None:
        return Refuted(refuted.scope, refuted.counterexample, effort)
    unknown = next((v for v in verdicts if isinstance(v, Unknown)), None)
    if unknown is not None:
        return Unknown(unknown.scope, unknown.reason, effort)
    return Proved(scope, effort)
