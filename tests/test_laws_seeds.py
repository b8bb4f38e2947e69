"""The same verdicts under other seeds of the solver.

Every law under every one of ten seeds is a run of its own, ``python -m verify laws --seeds 10 --mutants``, recorded in
docs/trusted_base.md.  Here each law gets one further seed, so that all ten are used.
"""

from __future__ import annotations

import pytest

from verify.laws import all_laws, law_named
from verify.laws.core import Settings
from verify.runner import run_task, tasks_of
from verify.verdict import Proved

SEEDS = range(1, 11)
LAWS = [law for law in all_laws() if law.kind in ("step", "family")]
LIGHT = ("index.nested_division", "canonical.unique_head", "slicing.guard", "packing.pack", "grouping.regroup")


def check(laws, seed):
    for task in tasks_of(laws, Settings(seed=seed), mutants=True):
        verdict, _ = run_task(task)
        assert isinstance(verdict, Proved), (task, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_verdicts_do_not_depend_on_the_seed(seed):
    share = LAWS[seed - 1 :: len(SEEDS)]
    assert len(share) >= 8
    check(share, seed)


@pytest.mark.parametrize("name", LIGHT)
def test_a_law_has_the_same_verdict_under_another_seed(name):
    check([law_named(name)], 10)


def test_the_shares_of_the_seeds_are_all_laws():
    shares = [law.name for seed in SEEDS for law in LAWS[seed - 1 :: len(SEEDS)]]
    assert sorted(shares) == sorted(law.name for law in LAWS)
