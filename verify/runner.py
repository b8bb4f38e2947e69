"""Run laws: in the processes of this machine, or on a Dask cluster; the same tasks, so the same verdicts.

A task proves one law under one seed, or has it refute one of its mutants.  Tasks share nothing, and every query is
bounded by the solver's resource count, so neither their order nor the machine's speed decides a verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

from layoutalg.errors import LayoutError
from verify.console import progress_bar
from verify.laws import law_named
from verify.laws.core import Law, Settings
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["Outcome", "Task", "combined", "run_laws", "run_task", "tasks_of"]

#: Mutants replace functions of the library in place, and Z3's terms live in one context, so a process runs one task
#: at a time; a Dask worker of several threads would run more.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Task:
    """A law by name, the mutant to refute (none: prove the law), and how hard to try."""

    law: str
    mutant: str = ""
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a law: its verdict under every seed asked for, and the processor time of the longest of them."""

    law: Law
    verdict: Verdict
    seconds: float


def tasks_of(chosen: Sequence[Law], settings: Settings, *, seeds: int = 1, mutants: bool = False) -> list[Task]:
    """Return the tasks for some laws, those of one law together.

    Seeds beyond the first matter only where a solver is asked: to steps and families.

    >>> from verify.laws import law_named
    >>> [task.settings.seed for task in tasks_of([law_named("index.lemma_range")], Settings(seed=4), seeds=2)]
    [4, 5]
    """
    tasks: list[Task] = []
    for law in chosen:
        count = seeds if law.kind in ("step", "family") else 1
        for seed in range(settings.seed, settings.seed + count):
            names = ["", *(mutant.name for mutant in law.mutants)] if mutants else [""]
            tasks += [Task(law.name, name, replace(settings, seed=seed)) for name in names]
    return tasks


def run_task(task: Task) -> tuple[Verdict, float]:
    """Return the verdict, and the processor time that it took; a mutant that is refuted as it should be is Proved."""
    with _ONE_AT_A_TIME:
        started = time.process_time()
        law = law_named(task.law)
        verdict = _refuted(law, task) if task.mutant else law.check(task.settings)
        return verdict, time.process_time() - started


def _refuted(law: Law, task: Task) -> Verdict:
    mutant = next(mutant for mutant in law.mutants if mutant.name == task.mutant)
    scope = f"{law.scope}; mutant: {mutant.name}"
    found = mutant.check(task.settings)
    if isinstance(found, Unknown):
        return Unknown(scope, found.reason, found.effort)
    if not isinstance(found, Refuted):
        return Refuted(scope, {"mutant": mutant.name, "passes": law.name}, found.effort)
    right, wrong = mutant.replay(found.counterexample)
    if right == wrong:
        return Refuted(scope, {"mutant": mutant.name, "repeats": "no", **found.counterexample}, found.effort)
    return Proved(scope, found.effort)


def combined(found: Sequence[tuple[Task, Verdict]]) -> Verdict:
    """Return one verdict for all tasks of a law: Refuted, else Unknown, where any task is; the effort is the largest.

    >>> tasks = tasks_of([law_named("index.lemma_range")], Settings(), seeds=2)
    >>> print(combined([(tasks[0], Proved("all", 3)), (tasks[1], Unknown("all", "out of budget", 9))]))
    Unknown: seed 1: out of budget
    """
    effort = max(verdict.effort for _, verdict in found)
    worst = max(found, key=lambda pair: (isinstance(pair[1], Refuted), isinstance(pair[1], Unknown)))
    task, verdict = worst
    if isinstance(verdict, Proved):
        first = next(v for _, v in found if isinstance(v, Proved))
        return replace(first, effort=effort)
    several = len({(t.settings.seed, t.mutant) for t, _ in found}) > 1
    where = f"seed {task.settings.seed}" + (f", {task.mutant}" if task.mutant else "")
    if isinstance(verdict, Unknown):
        return Unknown(verdict.scope, f"{where}: {verdict.reason}" if several else verdict.reason, effort)
    more = {"seed": task.settings.seed} if several else {}
    return Refuted(verdict.scope, {**verdict.counterexample, **more}, effort)


def run_laws(
    chosen: Sequence[Law],
    settings: Settings,
    *,
    jobs: int = 1,
    dask: str = "",
    seeds: int = 1,
    mutants: bool = False,
) -> list[Outcome]:
    """Prove laws with a progress bar on the error stream; results in the order given.

    Args:
        chosen: laws of :func:`verify.laws.all_laws`.
        settings: budget and first seed.
        jobs: processes of this machine; 1 stays in this one.
        dask: address of a Dask scheduler such as ``tcp://10.0.0.1:8786``, which runs the tasks instead.
        seeds: how many seeds, counted up from the first, must give the verdict.
        mutants: also have every mutant refuted, and its counterexample replayed.

    Raises:
        LayoutError: Dask is asked for and not installed.
        OSError: no scheduler answers at the address.
    """
    tasks = tasks_of(chosen, settings, seeds=seeds, mutants=mutants)
    found: dict[Task, tuple[Verdict, float]] = {}
    with _progress(len(tasks)) as advance:
        for task, result in _on_dask(tasks, dask) if dask else _in_processes(tasks, jobs):
            found[task] = result
            advance(task.law)
    outcomes: list[Outcome] = []
    for law in chosen:
        mine = [task for task in tasks if task.law == law.name]
        verdict = combined([(task, found[task][0]) for task in mine])
        outcomes.append(Outcome(law, verdict, max(found[task][1] for task in mine)))
    return outcomes


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    with progress_bar() as bar:
        line = bar.add_task("proving", total=total)
        yield lambda name: bar.update(line, advance=1, description=name)


def _in_processes(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, tuple[Verdict, float]]]:
    if jobs == 1:
        yield from ((task, run_task(task)) for task in tasks)
        return
    # The progress bar has a thread of its own, so forking would be unsafe.
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_task, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _on_dask(tasks: Sequence[Task], address: str) -> Iterator[tuple[Task, tuple[Verdict, float]]]:
    try:
        from distributed import Client
        from distributed import as_completed as dask_completed
    except ImportError as error:
        raise LayoutError(
            'laws on a cluster need Dask: pip install "layoutalg[cluster]", here and on the workers', missing="dask"
        ) from error
    with Client(address) as client:
        futures = {client.submit(run_task, task, pure=False): task for task in tasks}
        for future, result in dask_completed(list(futures), with_results=True):
            yield futures[future], result
