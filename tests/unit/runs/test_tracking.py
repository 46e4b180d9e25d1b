"""Which trackers a run has, and that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgpo.config import ConfigError, TrackingSettings
from hgpo.runs import trackers as tracking
from hgpo.runs.trackers import (
    OF_BOTH,
    check_trackers,
    place,
    tracker_names,
    tracker_variables,
    wandb_mode,
    without_secrets,
)


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in tracker_variables():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking, "find_spec", lambda package: None if package in ("swanlab", "trackio") else package)


def config(to: Any = None, engine: str = "built-in") -> tuple[TrackingSettings, Any]:
    return TrackingSettings(to=to), engine


def test_a_run_says_which_and_with_verl_wandb_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracker_names(*config()) == ()
    assert tracker_names(*config(["tensorboard", "mlflow"])) == ("tensorboard", "mlflow")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert tracker_names(*config()) == ()
    assert tracker_names(*config(engine="verl")) == ("wandb",)
    assert tracker_names(*config([], "verl")) == ()


@pytest.mark.parametrize("engine", ["built-in", "verl"])
def test_one_that_is_unknown_or_not_installed_is_refused_at_once(engine: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^tracking\.to: there is no tracker 'tensorbord'; choose from tensorboard, "
    ):
        check_trackers(*config(["tensorbord"], engine))
    with pytest.raises(ConfigError, match=r"trackio needs a package: pip install 'hgpo\[trackio\]'"):
        check_trackers(*config(["tensorboard", "trackio"], engine))
    check_trackers(*config(["tensorboard", "mlflow"], engine))


def test_the_built_in_trainer_needs_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda package: None if package == "accelerate" else package)
    with pytest.raises(ConfigError, match=r"mlflow needs a package: pip install 'hgpo\[mlflow\]'"):
        check_trackers(*config(["mlflow"]))
    check_trackers(*config(["mlflow"], "verl"))


def test_verls_logger_has_some_of_its_own() -> None:
    with pytest.raises(ConfigError, match="pip install swanlab"):
        check_trackers(*config(["swanlab"], "verl"))
    check_trackers(*config(["file"], "verl"))
    with pytest.raises(ConfigError, match=r"no tracker 'file'; choose from .*, or train with --engine verl"):
        check_trackers(*config(["file"]))


def test_a_tracker_is_named_once() -> None:
    with pytest.raises(ValueError, match="give each value once"):
        config(["wandb", "wandb"])


def test_wandb_is_offline_with_the_built_in_trainer_and_needs_a_login_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_trackers(*config(["wandb"]))
    assert wandb_mode("built-in") == "offline"
    with pytest.raises(ConfigError, match="run `wandb login`"):
        check_trackers(*config(["wandb"], "verl"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(*config(["wandb"], "verl"))
    monkeypatch.setenv("WANDB_MODE", "online")
    login = tmp_path / ".netrc"
    login.write_text("machine other.example login user password p\n")
    login.chmod(0o600)
    with pytest.raises(ConfigError, match="not logged in"):
        check_trackers(*config(["wandb"]))
    login.write_text("machine api.wandb.ai login user password 0123456789\n")
    check_trackers(*config(["wandb"]))


def test_files_are_kept_with_the_run_unless_a_variable_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert place("TENSORBOARD_DIR", tmp_path / "run") == str(tmp_path / "run" / "tensorboard")
    assert place("MLFLOW_TRACKING_URI", tmp_path / "run") == f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    assert place("WANDB_DIR", tmp_path / "run") == "/elsewhere"


def test_no_key_and_no_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abc123")
    monkeypatch.setenv("WANDB_MODE", "offline")
    told = without_secrets("401 for key abc123, offline, at https://me:pass@host/api and https://host/@b")
    assert told == "401 for key ***, offline, at https://***@host/api and https://host/@b"


def test_every_tracker_of_both_engines_has_an_extra_of_its_name() -> None:
    import tomllib

    project = Path(__file__).parents[3] / "pyproject.toml"
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name, package in OF_BOTH.items():
        assert extras[name][0].startswith(f"{package}>=")
        assert extras[name][1].startswith("accelerate>=")
        assert name in extras["trackers"][0]
