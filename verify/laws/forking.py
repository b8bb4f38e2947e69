"""Steps whose code branches: the shipping code on unknown extents *and* strides, along every path.

The worlds of :mod:`verify.laws.step` with one thing more: a question about unknowns gets each answer that is possible,
on a path of its own (by running the code again).  Such questions are products of unknowns, which the solver may not
decide; an answer counts as possible unless it is shown to be impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import z3

from verify.laws.core import Law, Mutant, Replay, Settings, conjunction
from verify.laws.family import Patch, patched
from verify.laws.step import Model, Num, Proof
from verify.solve import prove
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["forking_step"]

_FEASIBILITY_BUDGET: Final = 200_000
_MAX_PATHS: Final = 500


class _Paths:
    """The answers along the current path, and those still to be tried."""

    def __init__(self) -> None:
        self.trail: list[tuple[bool, bool]] = []  # (answer, the other one is still to be run)
        self.position = 0

    def answer(self, condition: Any, given: list[Any]) -> bool:
        if self.position == len(self.trail):
            yes, no = (
                not isinstance(prove(z3.Not(case), given=given, scope="", budget=_FEASIBILITY_BUDGET), Proved)
                for case in (condition, z3.Not(condition))
            )
            self.trail.append((yes, yes and no))
        answer = self.trail[self.position][0]
        self.position += 1
        given.append(condition if answer else z3.Not(condition))
        return answer

    def back(self) -> bool:
        while self.trail:
            answer, other = self.trail.pop()
            if other:
                self.trail.append((not answer, False))
                break
        self.position = 0
        return bool(self.trail)


class _Asking(Num):
    """A number whose comparisons are questions, so that no branch of the code escapes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __ne__(self, other: object) -> bool:
        return not self.equals(other)

    def __lt__(self, other: Any) -> bool:
        return self.world.decide(self.expr < _expr(other))

    def __le__(self, other: Any) -> bool:
        return self.world.decide(self.expr <= _expr(other))

    def __gt__(self, other: Any) -> bool:
        return self.world.decide(self.expr > _expr(other))

    def __ge__(self, other: Any) -> bool:
        return self.world.decide(self.expr >= _expr(other))

    __hash__ = None


def _expr(value: Any) -> Any:
    return value.expr if isinstance(value, Num) else value


class _Forks:
    """What the two worlds have in common; conclusions are built from expressions, as comparing would ask."""

    paths: _Paths
    given: list[Any]

    def number(self, expr: Any) -> Num:
        world: Any = self
        return _Asking(expr, world)

    def decide(self, condition: Any) -> bool:
        return self.paths.answer(condition, self.given)

    def same(self, a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
        return z3.And(*(z3.IntVal(0) + _expr(x) == _expr(y) for x, y in zip(a, b, strict=True)))


class _ForkingProof(_Forks, Proof):
    def __init__(self, paths: _Paths) -> None:
        super().__init__()
        self.paths = paths


class _ForkingModel(_Forks, Model):
    def __init__(self, paths: _Paths, largest: int) -> None:
        super().__init__("", largest)
        self.paths = paths


@dataclass(frozen=True, slots=True)
class _Forking:
    function: Callable[..., Any]
    cases: tuple[Mapping[str, Any], ...]

    def check(self, settings: Settings, scope: str) -> Verdict:
        found: list[Verdict] = []
        for case in self.cases:
            found += self._run(lambda paths: _ForkingProof(paths), case, settings, scope)
        return conjunction(scope, found)

    def refute(self, settings: Settings, patches: tuple[Patch, ...]) -> Verdict:
        """Small extents and real quotients, so that the counterexample can be read."""
        scope = "extents up to 3"
        with patched(patches):
            for case in self.cases:
                found = self._run(lambda paths: _ForkingModel(paths, 3), case, settings, scope)
                wrong = next((v for v in found if isinstance(v, Refuted)), None)
                if wrong is not None:
                    return Refuted(scope, {**wrong.counterexample, **case}, wrong.effort)
        return Unknown(scope, "no counterexample")

    def _run(
        self, world_of: Callable[[_Paths], Any], case: Mapping[str, Any], settings: Settings, scope: str
    ) -> list[Verdict]:
        paths, found = _Paths(), list[Verdict]()
        while True:
            world = world_of(paths)
            goal = self.function(world, **case)
            found.append(prove(goal, given=world.given, scope=scope, budget=settings.budget, seed=settings.seed))
            if isinstance(found[-1], Refuted) or not paths.back():
                return found
            if len(found) > _MAX_PATHS:
                return [*found, Unknown(scope, f"over {_MAX_PATHS} paths")]


def forking_step(
    name: str,
    statement: str,
    *,
    scope: str,
    function: Callable[..., Any],
    cases: tuple[Mapping[str, Any], ...],
    mutants: Mapping[str, tuple[tuple[Patch, ...], Replay]],
    evaluate: Callable[[], Verdict],
) -> Law:
    """Return the law that ``function(world, **case)`` holds on every path, for all extents and strides.

    Args:
        name: ``file.law``.
        statement: what holds.
        scope: for which values.
        function: runs the shipping code on numbers of the world and returns the conclusion.
        cases: its keyword arguments, such as the rank.
        mutants: name -> (replacements of functions of the library, replay).
        evaluate: the statement on small members.
    """
    written = _Forking(function, cases)
    return Law(
        name=name,
        statement=statement,
        scope=scope,
        kind="step",
        check=lambda settings: written.check(settings, scope),
        mutants=tuple(
            Mutant(wrong, lambda settings, patches=patches: written.refute(settings, patches), replay)  # type: ignore[misc]
            for wrong, (patches, replay) in mutants.items()
        ),
        evaluate=evaluate,
    )
