"""OpenEnv's own client plays our server.

It comes with a hundred packages, so it may live in an environment of its own: `make openenv-test` makes it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("websockets", reason="pip install 'hgpo[openenv]' to serve")

from environment_servers import environment_server, served
from hgpo.envs import make

TESTS = Path(__file__).parents[1]
EXAMPLES = {
    "alfworld": {"train_games": 4, "valid_seen_games": 0, "valid_unseen_games": 0},
    "webshop": {"train_goals": 4, "valid_seen_goals": 0, "valid_unseen_goals": 0},
}


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with the package openenv-core."""
    own = TESTS.parent / ".venv-openenv" / "bin" / "python"
    if importlib.util.find_spec("openenv") is not None:
        return sys.executable
    if own.is_file():
        return str(own)
    pytest.skip("no openenv-core here, and no .venv-openenv: `make openenv-test` makes one")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_sessions_at_once_are_told_what_is_told_here(name: str, python: str) -> None:
    suite = make(name, **EXAMPLES[name])
    scripts, expected = [], []
    for task in suite.tasks("train"):
        environment, expert = task.make(), suite.expert()
        observation, info = environment.reset()
        expert.reset(observation, info)
        commands, texts = [], [observation]
        while len(commands) < 30 and not info["won"]:
            commands.append(expert.act(observation, info))
            observation, reward, ended, _, info = environment.step(commands[-1])
            texts.append(observation)
            if ended:
                break
        scripts.append(commands)
        expected.append((texts, reward, ended))
    with environment_server(served(name, max_steps=50, **EXAMPLES[name])) as address:
        played = subprocess.run(
            [python, str(TESTS / "openenv_player.py"), address],
            input=json.dumps(scripts),
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        )
    assert played.returncode == 0, played.stderr
    told = json.loads(played.stdout)
    assert [(one["texts"], one["rewards"][-1], one["done"]) for one in told] == expected
    assert [one["state"]["step_count"] for one in told] == [len(commands) for commands in scripts]
    assert any(one["done"] for one in told)
    assert all("reset first" in one["refusal"] for one in told if one["done"])
