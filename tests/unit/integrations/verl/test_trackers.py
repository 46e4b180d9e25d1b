"""Which trackers a run has, and that they are there; what they are sent is checked where verl is installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl import trackers as module
from hgpo.integrations.verl.mapping import leaves, mapped_settings
from hgpo.integrations.verl.trackers import PACKAGES, VARIABLES, check_trackers, keep_in, trackers


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "find_spec", lambda package: None if package == "swanlab" else package)


def config(to: Any = None) -> Config:
    return Config.model_validate({"run": {"engine": "verl"}, "policy": {"model": "m"}, "tracking": {"to": to}})


def test_a_run_says_which_or_wandb_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers(config()) == ()
    assert trackers(config(["tensorboard", "mlflow"])) == ("tensorboard", "mlflow")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert trackers(config()) == ("wandb",)
    assert trackers(config([])) == ()
    told = dict(leaves(mapped_settings(config(["trackio"]), "m", Path("/runs/one"))))
    assert told["trainer.logger"] == ["console", "trackio"]


def test_one_that_is_unknown_or_not_installed_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="no tracker 'tensorbord'; take wandb, tensorboard"):
        check_trackers(config(["tensorbord"]))
    with pytest.raises(ConfigError, match="pip install swanlab"):
        check_trackers(config(["swanlab"]))
    check_trackers(config(["tensorboard", "trackio", "mlflow", "file"]))


def test_wandb_needs_a_login_unless_it_stays_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run `wandb login`"):
        check_trackers(config(["wandb"]))
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(config(["wandb"]))
    monkeypatch.delenv("WANDB_MODE")
    login = tmp_path / ".netrc"
    login.write_text("machine other.example login user password p\n")
    login.chmod(0o600)
    with pytest.raises(ConfigError, match="not logged in"):
        check_trackers(config(["wandb"]))
    login.write_text("machine api.wandb.ai login user password 0123456789\n")
    check_trackers(config(["wandb"]))


def test_files_of_trackers_are_kept_with_the_run_unless_a_variable_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TENSORBOARD_DIR", "WANDB_DIR", "SWANLAB_LOG_DIR", "MLFLOW_TRACKING_URI", "VERL_FILE_LOGGER_PATH"):
        monkeypatch.setenv(name, "")  # so that it is taken back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    keep_in(tmp_path / "run")
    assert os.environ["TENSORBOARD_DIR"] == str(tmp_path / "run" / "tensorboard")
    assert os.environ["WANDB_DIR"] == "/elsewhere"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_they_are_names_that_verls_logger_takes() -> None:
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl is not installed: pip install 'hgpo[verl]'")
    assert set(PACKAGES) <= set(tracking.Tracking.supported_backend)


def test_what_verls_logger_writes_has_the_names_of_metrics_jsonl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl is not installed: pip install 'hgpo[verl]'")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_DIR", "")
    monkeypatch.delenv("TENSORBOARD_DIR")
    keep_in(tmp_path)
    logger = tracking.Tracking("hgpo", "one", default_backend=["tensorboard"], config={})
    logger.log({"success": 0.5, "level_1_mean_group_size": 3.0, "actor/lr": 1e-6}, step=1)
    logger.finish()
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) == {"success", "level_1_mean_group_size", "actor/lr"}
