"""A policy trained on answers of vLLM, killed, failed and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from corridor_runs import RECIPE, quiet, recipe, untimed
from hgpo.assemble import resume, train
from hgpo.config import Config
from hgpo.runs.folder import RunDirectory
from hgpo.training.collector import Collected, Collector

# On CPUs, vLLM's attention takes heads of 32 dimensions and more.
OVERRIDES = (
    "policy.backend=vllm",
    "policy.tiny.hidden_size=32",
    "policy.tiny.attention_heads=1",
    "training.updates=2",
    "training.checkpoint_every=1",
)


def config(directory: Path) -> Config:
    return recipe(directory, *OVERRIDES)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(config(tmp_path_factory.mktemp("runs")), quiet())


def test_it_trains_on_what_vllm_wrote(finished: RunDirectory) -> None:
    rows = untimed(finished)
    assert [row["update"] for row in rows] == [1, 2]
    assert all(abs(row["approximate_kl"]) < 0.05 for row in rows)
    assert finished.complete


def test_an_engine_that_dies_leaves_a_run_that_ends_with_the_figures_it_would_have_had(
    finished: RunDirectory, tmp_path: Path
) -> None:
    """The second update's collection fails for want of an answer; the first is on disk."""
    real = Collector.collect

    def die(model: Any) -> None:
        model.register_forward_pre_hook(lambda *_: 1 / 0)

    def failing(self: Collector, update: int, tasks_drawn: int) -> Collected:
        if update == 2:
            self.policy._engine._engine.apply_model(die)
        return real(self, update, tasks_drawn)

    with (
        patch.object(Collector, "collect", failing),
        pytest.raises(RuntimeError, match=r"policy backend 'vllm' failed .*ZeroDivisionError"),
    ):
        train(config(tmp_path), quiet())

    run = resume(tmp_path / "corridor", quiet())

    assert untimed(run) == untimed(finished)


def test_the_command_evaluates_with_it_and_writes_nothing_between_its_own_lines(finished: RunDirectory) -> None:
    command = [sys.executable, "-m", "hgpo", "eval", str(finished.path), "--games", "1"]
    done = subprocess.run(command, cwd=RECIPE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Stored in" in done.stdout
    assert "vllm" not in done.stdout
