"""The three outcomes of a proof attempt.

>>> Proved("all positions", effort=12).ok, Unknown("all positions", "out of budget").ok
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Obligation", "Proved", "Refuted", "Unknown", "Verdict", "verdict_json"]


@dataclass(frozen=True, slots=True)
class Proved:
    """The statement holds within ``scope``.

    Args:
        scope: what it was proved for, in words.
        effort: the solver's resource count (0 where an exhaustive evaluation decided).
    """

    scope: str
    effort: int = 0

    @property
    def ok(self) -> bool:
        """True: only this outcome is success."""
        return True

    def __str__(self) -> str:
        return "Proved"


@dataclass(frozen=True, slots=True)
class Refuted:
    """The statement is wrong; ``counterexample`` names the values that show it.

    Args:
        scope: what was claimed, in words.
        counterexample: name -> value, replayable.
        effort: the solver's resource count.
    """

    scope: str
    counterexample: Mapping[str, Any] = field(default_factory=dict)
    effort: int = 0

    @property
    def ok(self) -> bool:
        """False."""
        return False

    def __str__(self) -> str:
        return "Refuted: " + ", ".join(f"{name} = {value}" for name, value in self.counterexample.items())


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither proved nor refuted within the budget; never success.

    Args:
        scope: what was claimed, in words.
        reason: why the attempt ended.
    """

    scope: str
    reason: str
    effort: int = 0

    @property
    def ok(self) -> bool:
        """False."""
        return False

    def __str__(self) -> str:
        return f"Unknown: {self.reason}"


Verdict: TypeAlias = Proved | Refuted | Unknown


@dataclass(frozen=True, slots=True)
class Obligation:
    """A named statement and what became of it."""

    name: str
    verdict: Verdict


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the JSON form of a verdict.

    >>> verdict_json(Proved("lanes", effort=3))
    {'verdict': 'Proved', 'scope': 'lanes', 'effort': 3}
    """
    value: dict[str, Any] = {"verdict": type(verdict).__name__, "scope": verdict.scope, "effort": verdict.effort}
    if isinstance(verdict, Refuted):
        value["counterexample"] = {name: str(v) for name, v in verdict.counterexample.items()}
    if isinstance(verdict, Unknown):
        value["reason"] = verdict.reason
    return value
