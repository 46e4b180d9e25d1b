"""The cost of playing through a server: both ways send the same requests, and medians are of differences."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from openai import NotFoundError

import serving
from hgpo.policies.openai import Server
from known_answers import serve
from serving import KnowingPolicy, Measured, Requests, ServedGames, as_parsed, ask_all, foresee, measure, seed_of


@pytest.fixture(scope="module", params=[("alfworld", "react"), ("webshop", "direct")], ids="-".join)
def games(request: pytest.FixtureRequest) -> ServedGames:
    return ServedGames.of(*request.param, count=5)


@pytest.fixture(scope="module")
def requests(games: ServedGames) -> Requests:
    return foresee(games)


@pytest.mark.slow
def test_every_step_is_a_request_that_is_foreseen(games: ServedGames, requests: Requests) -> None:
    assert games.steps == len(requests.bodies) == len(requests.answers)
    assert len(games.games) == 5
    assert games.steps > 20
    first = games.games[0]
    assert str(first.task.make().reset()[1]["task"]) in requests.bodies[0]["messages"][0]["content"]


@pytest.mark.slow
def test_games_through_the_server_make_the_same_requests(games: ServedGames, requests: Requests) -> None:
    asked = []

    def answer(body):
        asked.append(body)
        return as_parsed(requests.answers[seed_of(body)])

    games.play(KnowingPolicy(answer), at_once=3)
    assert sorted(asked, key=seed_of) == sorted(requests.bodies, key=seed_of)


@pytest.mark.slow
def test_both_ways_are_measured(games: ServedGames) -> None:
    found = measure(games, at_once=3, rounds=2)
    assert found.steps == games.steps
    assert len(found.played) == len(found.asked) == 2
    assert all(seconds > 0 for seconds in (*found.played, *found.asked))


@pytest.mark.slow
def test_a_game_that_goes_another_way_is_not_measured(games: ServedGames) -> None:
    with pytest.raises(RuntimeError, match=r"steps of the expert's \d+"):
        games.play(KnowingPolicy(lambda body: as_parsed("Action: look")), at_once=5)


@pytest.mark.slow
def test_the_server_answers_nothing_that_was_not_foreseen() -> None:
    body = {"model": "known", "messages": [{"role": "user", "content": "?"}]}
    with serve({7: "look"}) as url:
        asyncio.run(ask_all(Server(url), [{**body, "extra_body": {"seed": 7}}], at_once=2))
        with pytest.raises(NotFoundError, match="nobody has foreseen"):
            asyncio.run(ask_all(Server(url), [{**body, "extra_body": {"seed": 8}}], at_once=2))


def test_what_is_added_is_the_median_of_the_differences_within_rounds() -> None:
    """Of 2, 3 and 1 ms; the difference of the medians would be 1."""
    one = Measured(1000, [4.0, 9.0, 5.0], [2.0, 6.0, 4.0])
    assert one.milliseconds == pytest.approx((5.0, 4.0, 2.0))


@pytest.mark.slow
def test_the_status_says_whether_the_demand_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures.json"
    words = ["--environments", "alfworld", "--agents", "direct", "--games", "2", "--rounds", "1", "--json", str(output)]
    monkeypatch.setattr("sys.argv", ["serving.py", *words])
    for demanded, status in ((1e6, 0), (-1e6, 1)):
        monkeypatch.setattr(serving, "DEMANDED", demanded)
        assert serving.main() == status
    assert "milliseconds a step, 64 games in flight" in capsys.readouterr().out
    assert json.loads(output.read_text())["found"]["alfworld, direct"]["steps"] > 4
