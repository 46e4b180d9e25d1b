"""Which trackers a run has, whether they are there, where they keep their files, and which variables are secret.

Keys stay in the environment or the tracker's own login file: no file of the run, no line on the screen and no argument
that another program writes down holds one. Nothing is imported here.
"""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from hgpo.config import Config, ConfigError

PROJECT = "hgpo"
"""What trackers file the runs under."""

OF_BOTH: Mapping[str, str | None] = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
"""Names that both engines take -> the package that each needs; the extra of this package is called the same."""

OF_VERL: Mapping[str, str | None] = {**OF_BOTH, "swanlab": "swanlab", "clearml": "clearml", "file": None}
"""The same of verl's logger; a tracker without a package is verl's own."""

# What trackers read. Addresses may hold a password.
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
    "TRACKIO_SERVER_URL",
    "TRACKIO_SPACE_ID",
    "TRACKIO_WRITE_TOKEN",
    "WANDB_API_KEY",
    "WANDB_BASE_URL",
    "WANDB_DIR",
    "WANDB_ENTITY",
    "WANDB_MODE",
    "WANDB_RESUME",
    "WANDB_RUN_ID",
)
_SECRET = ("KEY", "TOKEN", "PASSWORD", "SERVER_URL")  # the last may hold a token
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_WITHOUT_LOGIN = ("offline", "disabled", "dryrun", "shared")


def trackers(config: Config) -> tuple[str, ...]:
    """The run's trackers. verl's logger takes wandb along where `WANDB_API_KEY` is set, unless the recipe says."""
    if config.tracking.to is not None:
        return config.tracking.to
    return ("wandb",) if config.run.engine == "verl" and os.environ.get("WANDB_API_KEY") else ()


def check_trackers(config: Config) -> None:
    """Refuse a tracker before anything is made that would fail once everything is loaded.

    Raises:
        ConfigError: it is unknown or not installed, or wandb has no login and is to write to its server.
    """
    known = OF_VERL if config.run.engine == "verl" else OF_BOTH
    for name in trackers(config):
        if name not in known:
            whose = ", or train with --engine verl" if name in OF_VERL else ""
            raise ConfigError(
                f"tracking.to: there is no tracker {name!r}; take {', '.join(known)}{whose}", "tracking.to"
            )
        package = known[name]
        if package is not None and find_spec(package) is None:
            install = f"'hgpo[{name}]'" if name in OF_BOTH else package
            raise ConfigError(f"tracking.to: {name} needs a package: pip install {install}", "tracking.to")
        if name == "wandb" and wandb_mode(config) not in _WITHOUT_LOGIN and not _has_wandb_login():
            raise ConfigError(
                "tracking.to: wandb is not logged in here: run `wandb login`, or set WANDB_API_KEY, or "
                "WANDB_MODE=offline to write to the run's folder alone",
                "tracking.to",
            )


def wandb_mode(config: Config) -> str:
    """`WANDB_MODE`, else "offline"; verl's logger goes online by itself."""
    return os.environ.get("WANDB_MODE") or ("online" if config.run.engine == "verl" else "offline")


def place(variable: str, folder: Path) -> str:
    """Where a tracker keeps its files: what its variable says, else in the run's folder.

    Databases that compare runs lie beside them.

    Args:
        variable: one of those below.
        folder: the run's.
    """
    places = {
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "SWANLAB_LOG_DIR": str(folder / "swanlog"),
        "WANDB_DIR": str(folder),
        "TRACKIO_DIR": str(folder.parent / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder.parent / 'mlflow.db'}",
    }
    return os.environ.get(variable) or places[variable]


def without_secrets(text: str) -> str:
    """The text without the keys that this process's environment holds, and without names and passwords in addresses.

    Example: `without_secrets("http://me:secret@host/")` is "http://***@host/".
    """
    for name in VARIABLES:
        value = os.environ.get(name, "")
        if value and any(word in name for word in _SECRET):
            text = text.replace(value, "***")
    return _PASSWORD_IN_ADDRESS.sub("***@", text)


def _has_wandb_login() -> bool:
    """Whether wandb finds a login by itself; its own settings file may say anything, and is left to it."""
    if os.environ.get("WANDB_API_KEY"):
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
