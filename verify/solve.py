"""One way to ask Z3: hermetic, bounded by work, deterministic.

Every query is printed to SMT-LIB and solved in a context of its own, so that verdict, effort and counterexample do
not depend on what was asked before.  Effort is bounded by the solver's resource count with a fixed seed, so a verdict
does not depend on the machine's speed; a clock guards against hangs only and gives Unknown.

>>> import z3
>>> x = z3.Int("x")
>>> prove(x * x >= 0, scope="all integers").ok
True
>>> prove(x * 2 != 6, scope="all integers").counterexample
{'x': 3}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import z3

from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["BUDGET", "is_satisfiable", "prove"]

#: Default resource limit of one query, in Z3's units (some million a second).
BUDGET: Final = 5_000_000
#: A query that runs this long is hung: the resource count does not bound seconds.
WATCHDOG_MS: Final = 60_000
_SEED: Final = 0


def prove(
    statement: z3.BoolRef,
    *,
    given: Iterable[z3.BoolRef] = (),
    scope: str,
    budget: int = BUDGET,
    logic: str | None = None,
    seed: int = _SEED,
) -> Verdict:
    """Prove that ``given`` implies ``statement`` for all values of their constants.

    Args:
        statement: the goal.
        given: hypotheses; their conjunction must be satisfiable for the proof to mean anything
            (:func:`is_satisfiable`).
        scope: the statement in words, kept in the verdict.
        budget: resource limit.
        logic: an SMT-LIB logic such as ``"QF_BV"`` to choose the solver; the plain core without.
        seed: the solver's random seed.
    """
    goal = z3.Solver()
    goal.add(*given, z3.Not(statement))
    outcome, solver, effort = _check(goal.to_smt2(), budget, logic, seed)
    if outcome == z3.unsat:
        return Proved(scope, effort)
    if outcome == z3.sat:
        return Refuted(scope, _values(solver.model()), effort)
    return Unknown(scope, _reason(solver.reason_unknown(), effort, budget), effort)


def _reason(told: str, effort: int, budget: int) -> str:
    """Say which limit ended a query: Z3 calls either "canceled", and only one of them depends on the machine."""
    if told not in ("canceled", "timeout") and "resource" not in told:
        return told or "no reason given"
    if effort >= budget:
        return f"the resource limit of {budget:,} is reached"
    return f"stopped by the clock after {WATCHDOG_MS // 1000} s, at {effort:,} of {budget:,}: hung, or a slow machine"


def is_satisfiable(formulas: Iterable[z3.BoolRef], *, budget: int = BUDGET, logic: str | None = None) -> bool:
    """Say whether some values satisfy all formulas; an undecided question counts as no."""
    goal = z3.Solver()
    goal.add(*formulas)
    return bool(_check(goal.to_smt2(), budget, logic, _SEED)[0] == z3.sat)


def _check(text: str, budget: int, logic: str | None, seed: int) -> tuple[Any, Any, int]:
    context = z3.Context()
    solver = z3.SolverFor(logic, ctx=context) if logic else z3.SimpleSolver(ctx=context)
    solver.set("random_seed", seed)
    solver.set("rlimit", budget)
    solver.set("timeout", WATCHDOG_MS)
    solver.from_string(text)
    outcome = solver.check()
    statistics = solver.statistics()
    effort = statistics.get_key_value("rlimit count") if "rlimit count" in statistics.keys() else 0  # noqa: SIM118
    return outcome, solver, int(effort)


def _values(model: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for declaration in sorted(model.decls(), key=lambda d: d.name()):
        if declaration.name() in ("div0", "mod0"):  # Z3's choice for division by zero, which no statement uses
            continue
        value = model[declaration]
        if z3.is_int_value(value) or z3.is_bv_value(value):
            values[declaration.name()] = value.as_long()
        elif z3.is_true(value) or z3.is_false(value):
            values[declaration.name()] = z3.is_true(value)
        else:
            values[declaration.name()] = str(value)
    return values
