"""Numbers that show a mistake: sizes, a block and a thread for which a condition holds, found by the solver.

Proofs treat products of unknowns as unknown; here they are multiplied.  What the solver finds is evaluated once more
before anybody relies on it.  Small sizes are tried first, since people read these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import z3

from verify.ptx.parametric.facts import PRODUCT, Environment, Facts, constants
from verify.solve import prove
from verify.verdict import Refuted

__all__ = ["OTHER", "exact", "find", "instance", "primed"]

OTHER: Final = "~"
"""What is added to an atom's name for another thread of the same block."""
_BUDGET: Final = 2_000_000
_SMALL: Final = (40, 300, None)


def exact(formulas: Sequence[Any]) -> list[Any]:
    """The formulas with products multiplied out."""
    return [_renamed(formula, _multiplied) for formula in formulas]


def _renamed(formula: Any, rename: Any) -> Any:
    pairs = [(z3.Int(name), rename(name)) for name in constants(formula)]
    return z3.substitute(formula, *pairs) if pairs else formula


def _multiplied(name: str) -> Any:
    product: Any = None
    for part in name.split(PRODUCT):
        product = z3.Int(part) if product is None else product * z3.Int(part)
    return product


def instance(facts: Facts, formulas: Sequence[Any], thread: int, mark: str = "") -> list[Any]:
    """The formulas for one thread of a block: what the thread's index decides becomes a number.

    Atoms that other threads see differently get ``mark`` added to their names.
    """

    def rename(name: str) -> Any:
        product: Any = z3.IntVal(1)
        for part in name.split(PRODUCT):
            atom = facts.atoms[part]
            if atom.table is not None:
                factor: Any = z3.IntVal(int(atom.table[thread % len(atom.table)]))
            else:
                factor = z3.Int(part if atom.uniform else part + mark)
            product = factor * product
        return product

    return [_renamed(formula, rename) for formula in formulas]


def primed(facts: Facts, formulas: Sequence[Any]) -> list[Any]:
    """The formulas for another thread of the same block: a second copy of every atom that is not the same for all."""

    def other(name: str) -> str:
        atom = facts.atoms[name]
        if atom.uniform:
            return name
        if name + OTHER not in facts.atoms:
            facts.atom(name + OTHER, atom.low, atom.high)
        return name + OTHER

    def rename(name: str) -> Any:
        return z3.Int(PRODUCT.join(sorted(other(part) for part in name.split(PRODUCT))))

    return [_renamed(formula, rename) for formula in formulas]


def find(
    facts: Facts, formulas: Sequence[Any], *, thread: int | None = None, others: Sequence[Any] = ()
) -> Environment | None:
    """Numbers under which all formulas hold, or ``None`` if the solver finds none.

    Args:
        formulas: about one thread.
        thread: which one, if that is settled.
        others: formulas about sizes and other threads' atoms, already instantiated.
    """
    everything = [*facts.given, *formulas]
    names = {part for f in (*everything, *others) for name in constants(f) for part in name.split(PRODUCT)}
    names |= {name for size in facts.sizes for name in size.atoms}
    free = [*exact(everything), *_threads(facts, names)] if thread is None else []
    settled = free or instance(facts, everything, thread or 0)
    ranges = [
        z3.And(z3.Int(n) >= facts.atoms[n].low, z3.Int(n) <= facts.atoms[n].high) for n in names if n in facts.atoms
    ]
    settled += [*exact(others), *ranges]
    for limit in _SMALL:
        small = [] if limit is None else [facts.term(size) <= limit for size in facts.sizes]
        found = prove(z3.BoolVal(False), given=[*settled, *small], scope="", budget=_BUDGET)
        facts.effort += found.effort
        if isinstance(found, Refuted):
            return _environment(facts, found.counterexample, formulas, thread)
        if found.ok and limit is None:
            return None
    return None


def _threads(facts: Facts, names: set[str]) -> list[Any]:
    """Tie the atoms that depend on the thread index to the number of one thread."""
    tables = [(name, facts.atoms[name].table) for name in sorted(names) if name in facts.atoms]
    count = max((len(table) for _, table in tables if table is not None), default=1)
    thread = z3.Int("thread")
    found = [thread >= 0, thread < count]
    for name, table in tables:
        if table is None:
            continue
        value: Any = z3.IntVal(int(table[0]))
        for number in range(1, len(table)):
            value = z3.If(thread == number, z3.IntVal(int(table[number])), value)
        found.append(z3.Int(name) == value)
    return found


def _environment(facts: Facts, model: Any, formulas: Sequence[Any], thread: int | None) -> Environment | None:
    """The model as numbers for the atoms that are not derived, if the formulas hold under it.

    Atoms of which nothing is known (data, operations without a meaning here) get no number: what depends on them is no
    witness, since nobody could say that they take that value.
    """
    environment: Environment = {"thread": int(model.get("thread", 0)) if thread is None else thread}
    for name, atom in facts.atoms.items():
        if atom.table is None and atom.definition is None and "!" not in name:
            environment[name] = int(model.get(name, atom.low))
    base = dict(environment)
    known = [_holds(facts, fact, environment) for fact in facts.given]
    wanted = [_holds(facts, formula, environment) for formula in formulas]
    return base if all(wanted) and False not in known else None


def _holds(facts: Facts, formula: Any, environment: Environment) -> bool | None:
    """Whether a formula holds; ``None`` where it depends on something unknown."""
    try:
        return facts.holds(formula, environment)
    except KeyError:
        return None
