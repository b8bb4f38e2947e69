"""Execute a kernel of unknown sizes for a handful of sizes: a second opinion that shares nothing with the proofs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from layoutalg.claim import Buffer
from layoutalg.claim_family import ClaimFamily
from verify.ptx.check import check_executed
from verify.ptx.parametric.setting import Setting
from verify.ptx.parametric.witness import find
from verify.ptx.tree import Module
from verify.verdict import Obligation, Proved, Refuted

__all__ = ["executed_for_sizes", "sample_sizes"]

#: Values that the sizes take in turn: degenerate, just below and above a tile, a tile, several tiles.
PATTERNS: Final = ((1,), (31, 33), (32,), (65, 1), (3, 70))
_MOST_ELEMENTS: Final = 1 << 16


def sample_sizes(family: ClaimFamily) -> list[dict[str, int]]:
    """Admissible sizes near the patterns; sizes that are no parameters are chosen to fit.

    >>> from layoutalg.claim import Scalar
    >>> family = ClaimFamily("k", "f32", ("B", 1, 1), (32, 1, 1), 0, (Scalar("N", 32, 1, 40),), (),
    ...     sizes=(Scalar("B", 32, 1, 9),), given=("32*B >= N",))
    >>> sample_sizes(family)
    [{'N': 1, 'B': 1}, {'N': 31, 'B': 1}, {'N': 32, 'B': 1}, {'N': 40, 'B': 2}, {'N': 3, 'B': 1}]
    """
    found: list[dict[str, int]] = []
    for wanted in _wanted(family):
        setting = Setting(family)
        equal = [setting.relation(setting.values[name], "==", value) for name, value in wanted.items()]
        environment = find(setting.facts, equal)
        sizes = None if environment is None else setting.sizes_at(environment)
        if sizes is not None and sizes not in found and family.admits(sizes) and _affordable(family, sizes):
            found.append(sizes)
    return found


def _wanted(family: ClaimFamily) -> Iterator[dict[str, int]]:
    names = {p.name for p in family.params}
    parameters = [u for u in family.unknowns if u.name in names]
    setting = Setting(family)
    for pattern in (*PATTERNS, None):
        wanted: dict[str, int] = {}
        for index, size in enumerate(parameters):
            (unit,) = setting.values[size.name].terms.values() if size.name in setting.values else (1,)
            value = size.minimum if pattern is None else pattern[index % len(pattern)]
            value = min(max(value, size.minimum), size.maximum)
            wanted[size.name] = min(-(-value // unit) * unit, size.maximum // unit * unit)
        yield wanted


def _affordable(family: ClaimFamily, sizes: dict[str, int]) -> bool:
    counts = [p.count for p in family.at(**sizes).params if isinstance(p, Buffer)]
    return sum(counts) <= _MOST_ELEMENTS


def executed_for_sizes(module: Module, family: ClaimFamily) -> list[Obligation]:
    """Execute every thread for each of the sample sizes and compare with the claim; stops at the first mistake."""
    found: list[Obligation] = []
    for sizes in sample_sizes(family):
        words = ", ".join(f"{name} = {value}" for name, value in sizes.items())
        results = check_executed(module, family.at(**sizes))
        bad = [o for o in results if not o.verdict.ok]
        if not bad:
            found.append(Obligation(f"executed for {words}", Proved(results[-2].verdict.scope)))
            continue
        verdict = bad[0].verdict
        if isinstance(verdict, Refuted):
            verdict = Refuted(verdict.scope, {**sizes, **verdict.counterexample}, verdict.effort)
        found.append(Obligation(f"executed for {words}: {bad[0].name}", verdict))
        break
    return found
