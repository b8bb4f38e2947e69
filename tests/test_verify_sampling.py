"""The library's own answers and refusals, certified: what ``python -m verify results`` does."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from layoutalg import NotExpressibleError, TileLayout, UndecidedError
from verify import Proved
from verify import cli as command
from verify.sampling import Request, certify_request, requests


def certified(count, seed):
    found = Counter()
    for request in requests(count, seed=seed):
        answer, verdict = certify_request(request)
        assert verdict is None or isinstance(verdict, Proved), (request, str(answer), verdict)
        found[request.op, isinstance(answer, Exception)] += verdict is not None
    return found


def test_answers_and_refusals_to_random_requests_are_proved():
    found = certified(150, seed=7)
    assert sum(found.values()) > 140
    assert len({op for op, _ in found}) >= 14
    assert sum(number for (_, refused), number in found.items() if refused) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_random_requests_of_every_operation_are_proved(seed):
    found = certified(1000, seed=100 + seed)
    assert {op for op, refused in found if refused} >= {"slice", "group", "regroup", "pack", "fuse_axes", "compose"}


def test_requests_are_the_same_for_one_seed_and_reach_large_sizes():
    assert list(requests(50, seed=3)) == list(requests(50, seed=3))
    assert list(requests(50, seed=3)) != list(requests(50, seed=4))
    assert max(request.inputs[0].size for request in requests(300, seed=3)) > 1 << 30


def test_what_the_library_does_not_decide_has_no_verdict():
    layout = TileLayout.parse("S[(53692006500000032769,16385,1638400000000000):(1638400000589824,36,1)]")
    shape, region = (26845184000000000000, 32769, 1638500000000001), ((0, 32768), (0, 32768), (1, 2))
    request = Request("slice", (layout, shape, region))
    answer, verdict = certify_request(request)
    assert isinstance(answer, UndecidedError)
    assert verdict is None


def test_the_command_counts_verdicts_and_exits_with_0(tmp_path):
    result = CliRunner().invoke(command.app, ["results", "--count", "25", "--out", str(tmp_path / "r.json")])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "r.json").read_text())
    assert len(rows) == 25
    assert {row["verdict"] for row in rows} == {"Proved"}


def test_the_command_shows_a_wrong_answer_and_exits_with_1(monkeypatch):
    monkeypatch.setattr(Request, "ask", lambda _self: TileLayout.parse("S[3:7@TLane]"))
    result = CliRunner().invoke(command.app, ["results", "--count", "5"])
    assert result.exit_code == 1
    assert "Refuted" in result.output


def test_the_command_shows_a_wrong_refusal(monkeypatch):
    monkeypatch.setattr(
        "verify.sampling.requests", lambda _count, **_: [Request("group", (TileLayout.parse("S[4:1]"), (2, 2)))]
    )
    monkeypatch.setattr(Request, "ask", lambda _self: NotExpressibleError("there is none"))
    result = CliRunner().invoke(command.app, ["results"])
    assert result.exit_code == 1
    assert "S[(2,2):(2,1)]" in result.output
