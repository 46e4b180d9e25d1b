"""A run that trains through a server, and what it is when the server dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("websockets", reason="pip install 'hgpo[openenv]' to train on a server")

from environment_servers import OPTIONS, environment_server, served
from hgpo.cli.main import main
from hgpo.runs.folder import open_run_directory

GAMES: dict[str, Any] = {**OPTIONS, "train_games": 12, "valid_seen_games": 1, "valid_unseen_games": 4}
SETTINGS = [
    "environment.max_steps=3",
    "agent.template=household-compact",
    "policy.model=tiny",
    "policy.tiny.hidden_size=16",
    "policy.tiny.layers=1",
    "policy.tiny.attention_heads=2",
    "policy.max_prompt_tokens=200",
    "policy.max_response_tokens=12",
    "policy.options.max_batch_tokens=2048",
    "warm_start.enabled=true",
    "warm_start.demonstrations=8",
    "warm_start.probe_games=2",
    "warm_start.max_updates=1",
    "rollout.tasks_per_update=2",
    "rollout.group_size=2",
    "training.updates=2",
    "training.checkpoint_every=1",
    "evaluation.split=valid_unseen",
    "evaluation.seeds=[1]",
    "run.threads=1",
]


@pytest.mark.slow
def test_a_run_is_trained_on_what_a_server_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with environment_server(served("alfworld", **GAMES)) as address:
        words = [f"environment.name=openenv:{address}", "environment.options.expert=alfworld", *SETTINGS]
        assert main(["train", *words, "run.name=served", "--quiet"]) == 0
    run, _ = open_run_directory(Path("runs/served"))
    assert run.complete
    assert main(["train", "--resume", "runs/served", "--quiet"]) == 0  # shows a complete run, asks nobody


@pytest.mark.slow
def test_a_server_that_is_gone_ends_a_run_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with environment_server(served("alfworld", **GAMES)) as address:
        pass
    assert main(["train", f"environment.name=openenv:{address}", *SETTINGS, "run.name=gone", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "cannot be reached" in error
    assert "hgpo serve-env" in error
    assert error.count("\n") == 1
