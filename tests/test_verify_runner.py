"""The runner of laws: exit codes that tell outcomes apart, seeds, mutants, and a Dask cluster for processes."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
from typer.testing import CliRunner

from layoutalg import LayoutError
from verify import Proved, Refuted, Unknown, cli, runner
from verify.cli import app
from verify.laws import all_laws, law_named
from verify.laws.core import Settings
from verify.runner import Task, combined, run_laws, run_task, tasks_of


def run(*arguments):
    return CliRunner().invoke(app, ["laws", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture
def spoil(monkeypatch):
    """Put a law with another check, or with other mutants, in the place of the right one."""

    def spoilt(name, **changes):
        law = dataclasses.replace(law_named(name), **changes)
        monkeypatch.setattr("verify.laws.all_laws", lambda: (law,))
        monkeypatch.setattr(runner, "law_named", lambda _: law)
        return law

    return spoilt


def test_a_wrong_law_exits_with_1_and_shows_its_counterexample(spoil, tmp_path):
    wrong = law_named("index.lemma_range").mutants[0]
    spoil("index.lemma_range", check=wrong.check)
    result = run("--jobs", 1, "--json", tmp_path / "laws.json")
    assert result.exit_code == 1
    assert "1 Refuted" in result.stdout
    (row,) = json.loads((tmp_path / "laws.json").read_text())
    assert row["verdict"] == "Refuted"
    found = {name: int(value) for name, value in row["counterexample"].items()}
    assert wrong.replay(found)[0] != wrong.replay(found)[1]


def test_json_is_printed_or_written_to_the_file_that_is_named(tmp_path):
    printed = run("--only", "index.lemma_range", "--jobs", 1, "--json")
    assert [row["name"] for row in json.loads(printed.stdout)["laws"]] == ["index.lemma_range"]
    written = run("--only", "index.lemma_range", "--jobs", 1, "--json", tmp_path / "laws.json")
    assert json.loads((tmp_path / "laws.json").read_text())[0]["name"] == "index.lemma_range"
    assert "1 Proved" in written.stdout


def test_a_law_named_without_an_option_is_explained():
    result = run("slicing")
    assert isinstance(result.exception, LayoutError)
    assert "--only slicing" in str(result.exception)


def test_a_law_beyond_its_budget_exits_with_3(spoil):
    right = law_named("canonical.concatenate")
    spoil("canonical.concatenate", check=lambda _: right.check(Settings(budget=10)))
    result = run("--jobs", 1)
    assert result.exit_code == 3
    assert "1 Unknown" in result.stdout


def test_a_refuted_law_outweighs_an_unknown_one(spoil):
    spoil("index.lemma_range", check=lambda s: Refuted("all", {"n": 1}) if s.seed else Unknown("all", "too hard"))
    assert run("--jobs", 1, "--seeds", 2).exit_code == 1


def test_a_mutant_that_the_law_lets_pass_exits_with_1(spoil):
    law = law_named("index.lemma_range")
    weak = dataclasses.replace(law.mutants[0], check=law.check)
    spoil("index.lemma_range", mutants=(weak,))
    assert run("--jobs", 1).exit_code == 0
    result = run("--jobs", 1, "--mutants")
    assert result.exit_code == 1
    assert "passes" in result.stdout


def test_a_counterexample_that_does_not_repeat_is_no_refutation():
    law = law_named("index.lemma_range")
    deaf = dataclasses.replace(law.mutants[0], replay=lambda _: (1, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "law_named", lambda _: dataclasses.replace(law, mutants=(deaf,)))
        verdict, _ = run_task(Task(law.name, deaf.name))
    assert isinstance(verdict, Refuted)
    assert verdict.counterexample["repeats"] == "no"


def test_every_seed_must_give_the_verdict():
    tasks = tasks_of([law_named("index.lemma_range")], Settings(seed=3), seeds=3)
    assert [task.settings.seed for task in tasks] == [3, 4, 5]
    good = [(task, Proved("all", 5)) for task in tasks]
    assert combined(good) == Proved("all", 5)
    lost = combined([*good[:2], (tasks[2], Unknown("all", "out of budget", 7))])
    assert isinstance(lost, Unknown)
    assert lost.effort == 7
    assert "seed 5" in lost.reason


def test_seeds_are_not_repeated_where_no_solver_is_asked():
    chosen = [law for law in all_laws() if law.kind in ("exhaustive", "answers")]
    assert len(tasks_of(chosen, Settings(), seeds=10)) == len(chosen)


@pytest.mark.slow
def test_several_processes_give_what_one_gives():
    chosen = [law for law in all_laws() if law.group == "packing" and law.kind == "step"]
    alone, shared = (run_laws(chosen, Settings(), jobs=jobs, mutants=True) for jobs in (1, 2))
    assert [(x.law.name, x.verdict) for x in alone] == [(x.law.name, x.verdict) for x in shared]


def test_a_dask_cluster_gives_what_this_process_gives():
    distributed = pytest.importorskip("distributed")
    chosen = [law for law in all_laws() if law.group == "index"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="inproc"
    ) as cluster:
        far = run_laws(chosen, Settings(), dask=cluster.scheduler_address, mutants=True)
    near = run_laws(chosen, Settings(), mutants=True)
    assert [(x.law.name, x.verdict) for x in far] == [(x.law.name, x.verdict) for x in near]


@pytest.mark.slow
def test_a_dask_cluster_of_processes_is_reached_from_the_command_line(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        result = run("--only", "index.", "--dask", address, "--json", tmp_path / "laws.json")
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "laws.json").read_text())
    assert {row["name"] for row in rows} == {law.name for law in all_laws() if "index." in law.name}
    assert {row["verdict"] for row in rows} == {"Proved"}


def test_a_cluster_without_dask_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr(sys, "argv", ["verify", "laws", "--only", "index.", "--dask", "tcp://127.0.0.1:1"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2
    assert "layoutalg[cluster]" in capsys.readouterr().err


def test_a_scheduler_that_does_not_answer_is_one_message_and_exit_code_2(monkeypatch, capsys):
    pytest.importorskip("distributed")
    import dask

    monkeypatch.setattr(sys, "argv", ["verify", "laws", "--only", "index.", "--dask", "tcp://127.0.0.1:9"])
    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}), pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2
    assert "127.0.0.1:9" in capsys.readouterr().err
