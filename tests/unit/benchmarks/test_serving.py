"""The cost of playing through a server: what is compared is the same, the parts are all there, the tables say it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from openai import NotFoundError
from rich.console import Console

import serving
from hgpo.policies.server import Server
from known_answers import serve
from own_side import Function, functions, parts
from served_games import KnowingPolicy, Requests, ServedGames, Span, as_parsed, foresee, seed_of
from serving import DEMANDED, Measured, ask_all, measure, show, show_functions

PARTS = {"environment", "prompt", "request", "reading", "journal", "rest"}


@pytest.fixture(scope="module", params=[("alfworld", "react"), ("webshop", "direct")], ids="-".join)
def games(request: pytest.FixtureRequest) -> ServedGames:
    return ServedGames.of(*request.param, count=5)


@pytest.fixture(scope="module")
def requests(games: ServedGames) -> Requests:
    return foresee(games)


def test_every_step_is_a_request_that_is_foreseen(games: ServedGames, requests: Requests) -> None:
    assert games.steps == len(requests.bodies) == len(requests.answers)
    assert len(games.games) == 5
    assert games.steps > 20
    first = games.games[0]
    assert str(first.task.make().reset()[1]["task"]) in requests.bodies[0]["messages"][0]["content"]


def test_games_through_the_server_make_the_same_requests(games: ServedGames, requests: Requests) -> None:
    asked = []

    def answer(body):
        asked.append(body)
        return as_parsed(requests.answers[seed_of(body)])

    games.play(KnowingPolicy(answer), at_once=3)
    assert sorted(asked, key=seed_of) == sorted(requests.bodies, key=seed_of)


def test_both_ways_and_all_parts_are_measured(games: ServedGames) -> None:
    found = measure(games, at_once=3, rounds=2)
    assert found.steps == games.steps
    assert len(found.played) == len(found.asked) == 2
    assert all(span.wall > 0 and span.cpu > 0 for span in (*found.played, *found.asked))
    assert all(0 < journal < span.wall for journal, span in zip(found.journal, found.played, strict=True))
    assert set(found.parts) == PARTS


def test_the_own_side_takes_far_less_processor_time_than_is_demanded(games: ServedGames, requests: Requests) -> None:
    spent = parts(games, requests.answers)
    assert set(spent) == PARTS
    assert all(part > 0 for part in spent.values())
    assert sum(spent.values()) < DEMANDED


def test_a_game_that_goes_another_way_is_not_measured(games: ServedGames) -> None:
    with pytest.raises(RuntimeError, match=r"steps of the expert's \d+"):
        games.play(KnowingPolicy(lambda body: as_parsed("Action: look")), at_once=5)


def test_the_server_answers_nothing_that_was_not_foreseen() -> None:
    body = {"model": "known", "messages": [{"role": "user", "content": "?"}]}
    with serve({7: "look"}) as url:
        asyncio.run(ask_all(Server(url), [{**body, "extra_body": {"seed": 7}}], at_once=2))
        with pytest.raises(NotFoundError, match="nobody has foreseen"):
            asyncio.run(ask_all(Server(url), [{**body, "extra_body": {"seed": 8}}], at_once=2))


def test_the_functions_of_the_own_side_are_listed(games: ServedGames, requests: Requests) -> None:
    found = functions(games, requests.answers)
    assert [one.itself for one in found] == sorted((one.itself for one in found), reverse=True)
    [asked] = [one for one in found if one.name.startswith("play.py") and one.name.endswith(" play")]
    assert asked.calls >= 1
    assert asked.together > asked.itself


def test_the_tables() -> None:
    played, asked = [Span(4.0, 3.0), Span(9.0, 3.2), Span(5.0, 3.1)], [Span(2.0, 2.0), Span(6.0, 2.1), Span(4.0, 2.0)]
    one = Measured(1000, played, asked, [0.4, 0.2, 0.3], {"environment": 0.25, "rest": 0.5})
    assert one.milliseconds("played") == pytest.approx(5.0)
    assert one.added() == pytest.approx(2.0)  # of 2, 3 and 1: not the difference of the medians, which is 1
    assert one.added("cpu") == pytest.approx(1.1)
    assert one.ratio() == pytest.approx(1.5)
    console = Console(record=True, width=140)
    show({"alfworld, react": one}, 64, console)
    show_functions("alfworld, react", [Function("play.py:17 play", 1.0, 0.25, 0.5)], console)
    text = console.export_text()
    row = next(line for line in text.splitlines() if "1,000" in line)
    assert row.replace("│", " ").split()[2:] == [
        "1,000",
        "5.00",
        "4.00",
        "2.00",
        "0.30",
        "1.50",
        "3.10",
        "2.00",
        "1.10",
        "yes",
    ]
    assert "0.750" in text
    assert "play.py:17 play" in text


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
