"""Trackers that verl's logger writes to: which, whether they are there, and where they keep their files.

What they are sent are verl's figures and the row of `metrics.jsonl`, under its names. Keys stay in the environment or
the tracker's own login file: no file of the run, no log and no argument that Ray writes down holds one. No verl is
needed here.
"""

from __future__ import annotations

import netrc
import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from hgpo.config import Config, ConfigError

PACKAGES = {
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "swanlab": "swanlab",
    "mlflow": "mlflow",
    "clearml": "clearml",
    "file": None,
}
"""Names that verl's logger takes -> the package that each needs."""

# Handed to the trainer's process alone. Addresses may hold a password.
VARIABLES = (
    "CLEARML_API_ACCESS_KEY",
    "CLEARML_API_HOST",
    "CLEARML_API_SECRET_KEY",
    "HF_TOKEN",
    "MLFLOW_RUN_ID",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "NETRC",
    "SWANLAB_API_KEY",
    "SWANLAB_LOG_DIR",
    "SWANLAB_MODE",
    "TENSORBOARD_DIR",
    "TRACKIO_DIR",
    "WANDB_API_KEY",
    "WANDB_BASE_URL",
    "WANDB_DIR",
    "WANDB_ENTITY",
    "WANDB_MODE",
    "WANDB_RESUME",
    "WANDB_RUN_ID",
)
_WITHOUT_LOGIN = ("offline", "disabled", "dryrun", "shared")


def trackers(config: Config) -> tuple[str, ...]:
    """The run's trackers, by verl's names."""
    if config.tracking.to is not None:
        return config.tracking.to
    return ("wandb",) if os.environ.get("WANDB_API_KEY") else ()


def check_trackers(config: Config) -> None:
    """Refuse a tracker before anything starts that would fail once everything is loaded.

    Raises:
        ConfigError: it is unknown or not installed, or wandb has no login and is to write to its server.
    """
    for name in trackers(config):
        if name not in PACKAGES:
            raise ConfigError(f"tracking.to: there is no tracker {name!r}; take {', '.join(PACKAGES)}", "tracking.to")
        package = PACKAGES[name]
        if package is not None and find_spec(package) is None:
            raise ConfigError(f"tracking.to: {name} needs a package: pip install {package}", "tracking.to")
        if name == "wandb" and not _has_wandb_login():
            raise ConfigError(
                "tracking.to: wandb is not logged in here: run `wandb login`, or set WANDB_API_KEY, or "
                "WANDB_MODE=offline to write to the run's folder alone",
                "tracking.to",
            )


def keep_in(folder: Path) -> None:
    """Have the trackers of this process write their files into a run's folder, unless a variable says where."""
    for name, place in (("TENSORBOARD_DIR", "tensorboard"), ("SWANLAB_LOG_DIR", "swanlog"), ("WANDB_DIR", "")):
        os.environ.setdefault(name, str(folder / place))
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder.parent / 'mlflow.db'}")  # to compare runs in
    os.environ.setdefault("VERL_FILE_LOGGER_PATH", str(folder / "verl-metrics.jsonl"))


def _has_wandb_login() -> bool:
    """Whether wandb finds a login by itself; its own settings file may say anything, and is left to it."""
    if os.environ.get("WANDB_MODE") in _WITHOUT_LOGIN or os.environ.get("WANDB_API_KEY"):
        return True
    if any(path.exists() for path in (Path("wandb/settings"), Path.home() / ".config" / "wandb" / "settings")):
        return True
    files = [Path(os.environ["NETRC"])] if "NETRC" in os.environ else [Path.home() / ".netrc", Path.home() / "_netrc"]
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    return any(_knows(path, host) for path in files)


def _knows(path: Path, host: str) -> bool:
    try:
        return path.is_file() and netrc.netrc(path).authenticators(host) is not None
    except netrc.NetrcParseError:
        return False
