"""Every agent through a served model that knows the way, over the whole path of `hgpo eval --server`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_server import ChatServer
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.envs.registry import make
from hgpo.evaluation.result_files import read_evaluation
from served_experts import Way, answer_from, ways
from stored_rollouts import read_rollouts

pytestmark = pytest.mark.slow

GAMES = 12
OPTIONS = {
    "alfworld": (
        "environment.options.train_games=8",
        "environment.options.valid_seen_games=8",
        f"environment.options.valid_unseen_games={GAMES}",
    ),
    "webshop": ("environment.options.size=small", f"environment.options.valid_unseen_goals={GAMES}"),
}
FORMS = {
    "direct": "<think>The way is known.</think><action>{}</action>",
    "react": "Thought: The way is known.\nAction: {}\nObservation: I dream of more.",
    "reflexion": "**Thought:** The way is known.\n**Action:** `{}`",
}


@pytest.fixture(scope="module", params=["alfworld", "webshop"])
def known(request: pytest.FixtureRequest) -> tuple[str, dict[str, Way]]:
    config = load_config(None, [f"environment.name={request.param!r}", "policy.model=m", *OPTIONS[request.param]])
    suite = make(request.param, **config.environment.options)
    return request.param, ways(suite, "valid_unseen", max_steps=50, count=GAMES, expert=suite.expert())


def evaluate(server: ChatServer, environment: str, output: Path, *more: str) -> int:
    options = [*OPTIONS[environment], "environment.max_steps=50"]
    words = ["eval", "m", "--server", server.url, "--env", environment, "--split", "valid_unseen", "-o", str(output)]
    return main([*words, "--quiet", *options, *more])


@pytest.mark.parametrize("agent", FORMS)
def test_every_agent_wins_what_the_expert_wins(agent: str, known: tuple[str, dict[str, Way]], tmp_path: Path) -> None:
    environment, expert_ways = known
    output = tmp_path / "out.json"
    with ChatServer(answer_from(expert_ways, FORMS[agent])) as server:
        assert evaluate(server, environment, output, "--agent", agent) == 0
    stored = read_evaluation(output)
    expected = {way.game: float(way.won) for way in expert_ways.values()}
    assert {game: stored.evaluation.tasks_won[game] for game in expected} == expected
    assert len(expected) >= GAMES // 2
    assert sum(expected.values()) > 0.9 * len(expected)
    assert read_rollouts(tmp_path / "out.rollouts.jsonl").num_rows >= sum(
        len(way.actions) for way in expert_ways.values()
    )
    assert stored.failed == 0
    assert stored.agent == agent
