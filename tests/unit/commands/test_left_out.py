"""Every command that plays says once per split how many games are left out, and why."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from chat_server import ChatServer, says
from hgpo.cli.main import main
from hgpo.envs.alfworld import generate_games

TINY = """
extends = "alfworld-tiny"
[run]
name = "left-out"
threads = 1
directory = "{folder}/runs"
[environment]
max_steps = 2
options = {{ data_dir = "{folder}/games" }}
[policy.tiny]
hidden_size = 16
layers = 1
attention_heads = 2
[warm_start]
enabled = true
demonstrations = 2
probe_games = 1
max_updates = 1
target_low = 0.0
target_high = 1.0
[rollout]
tasks_per_update = 2
group_size = 2
[training]
updates = 1
[evaluation]
split = "valid_unseen"
games = 2
seeds = [1]
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with games of which two are not marked as solvable, and a recipe."""
    folder = tmp_path_factory.mktemp("left-out")
    generate_games(folder / "games", games={"train": 7, "valid_seen": 0, "valid_unseen": 4})
    for split in ("train", "valid_unseen"):
        file = min((folder / "games" / split).rglob("game.tw-pddl"))
        file.write_text(json.dumps({**json.loads(file.read_text()), "solvable": False}))
    (folder / "recipe.toml").write_text(TINY.format(folder=folder))
    return folder


SAID = {
    "train": "split 'train' has 6 tasks; left out: 1 not marked solvable",
    "valid_unseen": "split 'valid_unseen' has 3 tasks; left out: 1 not marked solvable",
}


def said(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    caplog.clear()
    assert main(list(words)) == 0
    return sorted(message for message in caplog.messages if "left out" in message)


@pytest.mark.slow
def test_every_command_that_plays_says_what_is_left_out(
    trained: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(trained / "runs" / "left-out")
    assert said(caplog, "train", str(trained / "recipe.toml")) == list(SAID.values())
    assert said(caplog, "eval", run, "--games", "1") == [SAID["valid_unseen"]]
    assert said(caplog, "rollout", run, "--games", "1", "-o", str(trained / "steps.jsonl")) == [SAID["train"]]
    assert said(caplog, "play", run) == [SAID["valid_unseen"]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert said(caplog, "play", "alfworld", "--option", f"data_dir={trained}/games") == [SAID["train"]]
    with ChatServer(lambda body: says("Thought: x\nAction: look")) as server:
        words = ["m", "--server", server.url, "--env", "alfworld", "--agent", "react", "-o", f"{trained}/eval.json"]
        settings = [f"environment.options.data_dir={trained}/games", "environment.max_steps=1"]
        assert said(caplog, "eval", *words, *settings) == [SAID["valid_unseen"]]
