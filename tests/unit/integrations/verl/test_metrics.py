"""verl's metrics under this project's names, and the folders of its trackers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hgpo.config import TrainingSettings
from hgpo.integrations.verl.metrics import reported_peak_gib, set_tracker_folders, update_metrics
from hgpo.runs.trackers import OF_VERL

GAP = {"sampler_gap_mean": 0.01, "sampler_gap_max": 0.3, "sampler_effective_sample_size": 0.99}


@pytest.mark.parametrize(
    ("of_verl", "expected"),
    [
        (
            {
                "actor/pg_loss": 0.5,
                "actor/kl_loss": 0.2,
                "actor/entropy_loss": 1.5,
                "actor/grad_norm": 3,
                "perf/mfu": 1.0,
            },
            {"policy_loss": 0.5, "kl": 0.2, "entropy": 1.5, "gradient_norm": 3.0, "loss": 0.5 + 0.02 - 0.015},
        ),
        (
            {"critic/vf_loss": 0.5, "critic/vf_clipfrac": 0.1, "critic/grad_norm": 2.0, "critic/values/mean": 3.0},
            {"critic_loss": 0.5, "critic_clip_fraction": 0.1, "critic_gradient_norm": 2.0},
        ),
        ({"actor/entropy": 0.7}, {"entropy": 0.7}),
        ({"actor/entropy": 0.7, "actor/entropy_loss": 0.6}, {"entropy": 0.6}),
        ({**GAP, "explained_variance": 0.25, "rollout_corr/kl": 0.1}, {**GAP, "explained_variance": 0.25}),
    ],
)
def test_metrics_have_the_built_in_trainers_names(of_verl: dict[str, Any], expected: dict[str, float]) -> None:
    """The loss is the sum of its terms; a metric that verl does not report is absent."""
    settings = TrainingSettings(kl_coefficient=0.1, entropy_coefficient=0.01)
    assert update_metrics(of_verl, settings) == pytest.approx(expected)


def test_memory_that_verl_did_not_look_at_is_not_reported() -> None:
    key = "actor/perf/max_memory_allocated_gb"
    assert reported_peak_gib({key: 0.0}) is None
    assert reported_peak_gib({}) is None
    assert reported_peak_gib({key: 2.5}) == 2.5
    assert reported_peak_gib({key: 2.5, "critic/perf/max_memory_allocated_gb": 3.5}) == 3.5


# ---- trackers ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _variables_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ("TENSORBOARD_DIR", "WANDB_DIR", "SWANLAB_LOG_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI")
    for name in (*variables, "VERL_FILE_LOGGER_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


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
