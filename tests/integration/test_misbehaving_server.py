"""`hgpo eval --server` beside a server that fails in every way: each game ends in the table or is named as failed."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chat_server import ChatServer, Reply, fails, says
from hgpo.cli.main import main
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

GAMES = 60
ALL = {f"held_out/{goal}" for goal in range(2, 2 * GAMES + 1, 2)}
_GOAL = re.compile(r"at place (\d+)\s.*at place (-?\d+)\D*$", re.DOTALL)


def right(body: dict[str, Any]) -> Reply:
    """What the corridor's expert does; doors beyond place 8 are out of reach."""
    goal, place = map(int, _GOAL.search(body["messages"][-1]["content"]).groups())  # type: ignore[union-attr]
    return says("open door" if place == goal else "go right")


def words(url: str, output: Path, *more: str) -> list[str]:
    return [
        *("eval", "m", "--server", url, "--env", "corridor:CorridorSuite", "--split", "held_out", "-o", str(output)),
        *("agent.template=compact", "environment.train_split=train", "environment.max_steps=9"),
        *(f"environment.options.longest={2 * GAMES}", "policy.options.timeout=60", *more),
    ]


def evaluate(server: ChatServer, output: Path, *more: str) -> StoredEvaluation:
    assert main([*words(server.url, output, *more), "--quiet"]) == 0
    return read_evaluation(output)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> StoredEvaluation:
    with ChatServer(right) as server:
        return evaluate(server, tmp_path_factory.mktemp("evaluation") / "out.json")


def same_games(found: StoredEvaluation, expected: StoredEvaluation) -> bool:
    return found.evaluation == expected.evaluation and found.episodes == expected.episodes


def test_the_expert_wins_what_is_within_its_reach(undisturbed: StoredEvaluation) -> None:
    assert undisturbed.episodes == GAMES
    won = {game for game, success in undisturbed.evaluation.tasks_won.items() if success}
    assert won == {"held_out/2", "held_out/4", "held_out/6", "held_out/8"}
    assert undisturbed.tokens is not None
    assert undisturbed.tokens.prompt == 100 * undisturbed.requests  # type: ignore[operator]


def test_what_a_request_meets_is_repeated_until_there_is_an_answer(
    undisturbed: StoredEvaluation, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    soon = {"retry-after-ms": "10"}
    met: dict[str, int] = {}

    def badly(body: dict[str, Any]) -> Reply:
        kinds: dict[str, Reply] = {
            "429": fails(429, **{"retry-after": "0.02"}),
            "500": fails(500, **soon),
            "503 without a hint": fails(503),
            "408": fails(408, **soon),
            "dropped": Reply(drop=True),
            "silence": Reply(wait=1.5, drop=True),
            "half a JSON": Reply(right(body).body[:40]),
            "no JSON": Reply(b"<html>busy</html>", headers={"content-type": "text/html"}),
            "no choices": Reply(json.dumps({**json.loads(right(body).body), "choices": []}).encode()),
            "no object": Reply(b"[1, 2]"),
        }
        kind = rng.choice(["well", *kinds], p=[0.75, *[0.25 / len(kinds)] * len(kinds)])
        met[kind] = met.get(kind, 0) + 1
        return kinds.get(kind) or right(body)

    with ChatServer(badly) as server:
        found = evaluate(server, tmp_path / "out.json", "policy.options.timeout=1")

    assert len(met) == 11
    assert found.failed == 0
    assert same_games(found, undisturbed)
    assert found.requests is not None
    assert undisturbed.requests is not None
    assert found.requests > undisturbed.requests


def test_empty_and_endless_texts_are_ill_formed_steps(tmp_path: Path) -> None:
    texts = itertools.cycle([None, "", "x" * 10_000_000])
    with ChatServer(lambda body: says(next(texts))) as server:
        found = evaluate(server, tmp_path / "out.json", "--games", "3")
    assert found.evaluation.valid_actions == 0
    assert found.episodes == 3
    assert (tmp_path / "out.rollouts.jsonl").stat().st_size < 5_000_000


def test_games_that_fail_are_named_and_played_again_by_the_same_command(
    undisturbed: StoredEvaluation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [True]

    def too_long(body: dict[str, Any]) -> Reply:
        at_fault = broken[0] and "at place 8 " in body["messages"][-1]["content"]
        return fails(400) if at_fault else right(body)

    with ChatServer(too_long) as server:
        assert main(words(server.url, tmp_path / "out.json")) == 0
        said = capsys.readouterr().out
        found = read_evaluation(tmp_path / "out.json")
        assert [failure.task for failure in found.failures] == ["held_out/8"]
        assert "this is status 400" in found.failures[0].reason
        assert "failed: held_out/8" in said
        assert (found.episodes, found.failed) == (GAMES - 1, 1)
        asked, broken[0] = len(server.asked), False
        again = evaluate(server, tmp_path / "out.json")
        assert len(server.asked) - asked == 9
    assert same_games(again, undisturbed)
    assert again.failed == 0


def test_a_server_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("http://127.0.0.1:9/v1", tmp_path / "out.json", "policy.options.retries=0")) == 2
    assert "http://127.0.0.1:9/v1 cannot be reached" in capsys.readouterr().err


def test_a_server_that_dies_and_comes_back_costs_nothing(undisturbed: StoredEvaluation, tmp_path: Path) -> None:
    count = [0]
    dead = threading.Event()

    def counted(body: dict[str, Any]) -> Reply:
        count[0] += 1
        if count[0] == 150:
            dead.set()
        return right(body)

    with ChatServer(counted) as server:

        def kill_it_for_a_second() -> None:
            dead.wait(60)
            server.stop()
            time.sleep(1)
            server.start()

        thread = threading.Thread(target=kill_it_for_a_second)
        thread.start()
        found = evaluate(server, tmp_path / "out.json")
        thread.join()
    assert dead.is_set()
    assert same_games(found, undisturbed)


def test_a_killed_evaluation_goes_on_to_the_same_figures(undisturbed: StoredEvaluation, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    games = tmp_path / "out.games.jsonl"

    def slowly(body: dict[str, Any]) -> Reply:
        reply = right(body)
        return Reply(reply.body, wait=0.02)

    with ChatServer(slowly) as server:
        for played in (5, 20, 40):
            command = [sys.executable, "-m", "hgpo", *words(server.url, output, "--at-once", "4", "--quiet")]
            process = subprocess.Popen(command, cwd=TESTS)
            while not games.exists() or len(games.read_text().splitlines()) < played:
                assert process.poll() is None
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        with games.open("a") as lines:
            lines.write('{"task": "held_out/120", "kind": "corr')  # killed in the middle of a line
        before = len(server.asked)
        found = evaluate(server, output)
        assert len(server.asked) - before < GAMES * 9 - 40 * 6
    assert same_games(found, undisturbed)
    assert found.requests == undisturbed.requests
    rows = [json.loads(line) for line in (tmp_path / "out.rollouts.jsonl").read_text().splitlines()]
    assert len({(row["trajectory"], row["step"]) for row in rows}) == len(rows)
    assert {row["task_id"] for row in rows} == ALL


def test_money_that_is_spent_ends_it_cleanly_and_more_goes_on(undisturbed: StoredEvaluation, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    with ChatServer(right) as server:
        prices = ("--prices", "1000", "10000", "--at-once", "2")  # a request costs 0.2
        assert main([*words(server.url, output, *prices, "--max-cost", "20"), "--quiet"]) == 1
        assert 100 <= len(server.asked) <= 102
        assert not output.exists()
        found = evaluate(server, output, *prices, "--max-cost", "1000")
    assert same_games(found, undisturbed)
    assert found.cost == pytest.approx(0.2 * undisturbed.requests, abs=0.2 * 18)  # type: ignore[operator]


def test_other_settings_do_not_go_on_with_anothers_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ChatServer(right) as server:
        evaluate(server, tmp_path / "out.json", "--games", "2")
        assert main(words(server.url, tmp_path / "out.json", "--games", "2", "--temperature", "1")) == 2
        assert "belongs to an evaluation with other settings (temperature)" in capsys.readouterr().err
        effort = 'policy.options.extra={reasoning_effort="high"}'
        assert main(words(server.url, tmp_path / "out.json", "--games", "2", effort)) == 2
    assert "other settings (policy.options.extra)" in capsys.readouterr().err


def test_requests_are_under_way_together_and_the_key_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")

    def slowly(body: dict[str, Any]) -> Reply:
        return Reply(right(body).body, wait=0.2)

    with ChatServer(slowly) as server:
        evaluate(server, tmp_path / "out.json", "--at-once", "50")
        assert server.most_at_once == 50
        assert set(server.keys) == {"bearer sk-very-secret"}
    assert all("sk-very" not in path.read_text() for path in tmp_path.iterdir())
