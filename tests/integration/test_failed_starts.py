"""A run that cannot begin leaves its place to the corrected command."""

from __future__ import annotations

from pathlib import Path

import pytest

from corridor_runs import RECIPE
from hgpo.cli import main
from hgpo.policies.tiny import save_tiny_model


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
