"""Where verl's logger is told to write; what it is sent is checked where verl is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hgpo.config import Config
from hgpo.integrations.verl.config import leaves, mapped_settings
from hgpo.integrations.verl.metrics import set_tracker_folders
from hgpo.runs.trackers import OF_VERL


@pytest.fixture(autouse=True)
def _variables_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ("TENSORBOARD_DIR", "WANDB_DIR", "SWANLAB_LOG_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI")
    for name in (*variables, "VERL_FILE_LOGGER_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_verls_logger_is_told_what_the_recipe_says() -> None:
    settings = {"run": {"engine": "verl"}, "policy": {"model": "m"}, "tracking": {"to": ["trackio"]}}
    told = dict(leaves(mapped_settings(Config.model_validate(settings), "m", Path("/runs/one"))))
    assert told["trainer.logger"] == ["console", "trackio"]


def test_files_of_trackers_are_kept_with_the_run_unless_a_variable_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    set_tracker_folders(tmp_path / "run")
    assert os.environ["TENSORBOARD_DIR"] == str(tmp_path / "run" / "tensorboard")
    assert os.environ["WANDB_DIR"] == "/elsewhere"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_they_are_names_that_verls_logger_takes() -> None:
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl is not installed: pip install 'hgpo[verl]'")
    assert set(OF_VERL) <= set(tracking.Tracking.supported_backend)


def test_what_verls_logger_writes_has_the_names_of_metrics_jsonl(tmp_path: Path) -> None:
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl is not installed: pip install 'hgpo[verl]'")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    set_tracker_folders(tmp_path)
    logger = tracking.Tracking("hgpo", "one", default_backend=["tensorboard"], config={})
    logger.log({"success": 0.5, "level_1_mean_group_size": 3.0, "actor/lr": 1e-6}, step=1)
    logger.finish()
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) == {"success", "level_1_mean_group_size", "actor/lr"}
