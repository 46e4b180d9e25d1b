"""A run that cannot begin leaves its place to the corrected command."""

from __future__ import annotations

from pathlib import Path

import pytest

from corridor_runs import RECIPE
from hgpo.cli.main import main
from tiny_models import save_tiny_model


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_does_not_block_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_tiny_model(tmp_path / "model", ["go left right open door"], hidden_size=16, layers=1, heads=2)
    words = ["train", str(RECIPE), f"policy.model={str(model)!r}", "warm_start.enabled=false", "training.updates=0"]
    words += [f"run.directory={str(tmp_path)!r}", "--quiet"]
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").unlink()
    assert main(words) == 2
    assert str(model) in capsys.readouterr().err
    assert not (tmp_path / "corridor").exists()
    (model / "model.safetensors").write_bytes(weights)
    assert main(words) == 0


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_model_that_is_not_there_is_said_before_games_are_made(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the environment was asked for its games")

    monkeypatch.setattr("hgpo.assemble.training_suite", never)
    monkeypatch.setattr("hgpo.assemble.build_suite", never)
    words = {
        "train": ["train", str(RECIPE), "policy.model=./none", f"run.directory={str(tmp_path / 'runs')!r}"],
        "eval": ["eval", "./none", "--env", "corridor:CorridorSuite", "-o", str(tmp_path / "none.json")],
    }[command]
    assert main(words) == 2
    assert "policy.model: no such model: ./none is not a folder or .gguf file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
