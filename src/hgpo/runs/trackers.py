"""Sends the built-in trainer's figures to the run's trackers, and stores in `tracking.json` what each tracker has.

A resumed run continues the tracker's own run, sends nothing twice, and sends a tracker that failed the rows it lacks.
TensorBoard, wandb, trackio and MLflow are opened through accelerate's trackers, and imported only then. Keys stay in
the environment or in the tracker's own login file: no file of the run, no printed line and no argument of another
program holds one.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from hgpo.config import ConfigError, TrackingSettings
from hgpo.config.settings import Engine
from hgpo.runs.folder import RunDirectory, RunDirectoryError, check_schema, read_json, read_metrics, write_json
from hgpo.utils.progress import Reporter
from hgpo.utils.text import visible

TrackedSettings: TypeAlias = Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class TrackerState:
    """What one tracker has.

    Attributes:
        id: The tracker's id of the run.
        update: The last update whose row it has; 0: none.
        evaluation: The update of the last evaluation that it has; -1: none.
    """

    id: str
    update: int = 0
    evaluation: int = -1


class Trackers:
    """The trackers of a run that have not failed."""

    def __init__(self, run: RunDirectory, settings: TrackedSettings, reporter: Reporter) -> None:
        self._run, self._settings, self._reporter = run, settings, reporter
        self._states = _read(run)
        self._open: dict[str, OpenTracker] = {}

    def open(self, name: str) -> None:
        """Begin or continue the run in one tracker, and send the rows that it lacks."""
        self._attempt(name, lambda: self._open_one(name))
        if name in self._open:
            self._write()  # its id, before anything is sent under it
            for row in read_metrics(self._run):
                self._send_row(name, row)
            self._write()

    def row(self, row: Mapping[str, Any]) -> None:
        """Send an update's row of `metrics.jsonl`."""
        for name in list(self._open):
            self._send_row(name, row)
        self._write()

    def evaluation(self, update: int, figures: Mapping[str, float]) -> None:
        """Send the figures of an evaluation of the policy after `update`."""
        for name in list(self._open):
            state = self._states[name]
            if update > state.evaluation and self._send(name, update, figures):
                self._states[name] = replace(state, evaluation=update)
        self._write()

    def close(self, *, failed: bool) -> None:
        """End the run in every tracker."""
        for name, tracker in list(self._open.items()):
            self._attempt(name, lambda tracker=tracker: tracker.close(failed))  # type: ignore[misc]

    def _open_one(self, name: str) -> None:
        known = self._states.get(name)
        self._open[name] = tracker = open_tracker(name, self._run.path.resolve(), self._settings, known)
        self._states[name] = known or TrackerState(tracker.id)
        self._reporter.say(f"Tracking with {name}: {visible(tracker.command)}")

    def _send_row(self, name: str, row: Mapping[str, Any]) -> None:
        if name not in self._open or row["update"] <= self._states[name].update:
            return
        if self._send(name, row["update"], {key: value for key, value in row.items() if key != "update"}):
            self._states[name] = replace(self._states[name], update=row["update"])

    def _send(self, name: str, update: int, figures: Mapping[str, Any]) -> bool:
        numbers = {key: float(value) for key, value in figures.items() if isinstance(value, (int, float))}
        finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
        return self._attempt(name, lambda: self._open[name].log(update, finite))

    def _attempt(self, name: str, call: Callable[[], object]) -> bool:
        """Whether the call succeeds; a tracker that fails is reported once and closed, and training continues."""
        try:
            call()
        except Exception as error:  # trackers' libraries may raise anything
            self._open.pop(name, None)
            problem = visible(without_secrets(f"{type(error).__name__}: {error}"))
            self._reporter.say(
                f"{name} failed, and training continues without it ({problem}). metrics.jsonl has all metrics, and "
                "`hgpo train --resume` sends the missing ones; of a complete run, first delete "
                f"{self._run.summary}"
            )
            return False
        return True

    def _write(self) -> None:
        if self._states:  # also of trackers that have failed: they have what was sent before
            write_json(self._run.tracking, {name: asdict(state) for name, state in self._states.items()})


@contextmanager
def open_trackers(
    run: RunDirectory, names: Sequence[str], settings: TrackedSettings, reporter: Reporter
) -> Iterator[Trackers]:
    """The run's trackers, opened; they are closed when the block ends, however it ends.

    Args:
        run: The run.
        names: Names of the trackers; see `tracker_names`.
        settings: Settings of the run, by dotted name; see `tracked_settings`.
        reporter: Prints how to look at the run, and failures.

    Raises:
        RunDirectoryError: `tracking.json` is damaged.
    """
    trackers = Trackers(run, settings, reporter)
    try:
        for name in names:
            trackers.open(name)
        yield trackers
    except BaseException:
        trackers.close(failed=True)
        raise
    trackers.close(failed=False)


def tracked_settings(settings: Mapping[str, Any]) -> TrackedSettings:
    """Settings by dotted name: those that have a value, without passwords in addresses; lists and tables as JSON."""
    return {name: _plain(value) for name, value in settings.items() if value is not None}


def _plain(value: Any) -> bool | int | float | str:
    if isinstance(value, (bool, int, float)):
        return value
    return without_secrets(value if isinstance(value, str) else json.dumps(value, default=str))


def _read(run: RunDirectory) -> dict[str, TrackerState]:
    if not run.tracking.exists():
        return {}
    try:
        return {
            name: check_schema(run.tracking, state, TrackerState) for name, state in read_json(run.tracking).items()
        }
    except (ValueError, TypeError) as error:
        raise RunDirectoryError(f"{error}; delete it; the trackers then start new runs") from error


PROJECT = "hgpo"
"""The project, or experiment, that the runs belong to."""
OF_BOTH: Mapping[str, str | None] = {name: name for name in ("tensorboard", "wandb", "trackio", "mlflow")}
"""Trackers of both engines -> the package that each needs; the extra of this package has the same name."""
OF_VERL: Mapping[str, str | None] = {**OF_BOTH, "swanlab": "swanlab", "clearml": "clearml", "file": None}
"""Trackers of verl's logger -> the package that each needs; None: no package."""

_VARIABLES = re.compile(r"(CLEARML|MLFLOW|SWANLAB|TENSORBOARD|TRACKIO|WANDB)_\w+|HF_TOKEN|NETRC")
_SECRET = re.compile(r"KEY|TOKEN|PASSWORD|SERVER_URL")  # trackio's server URL may hold a token
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_WITHOUT_LOGIN = ("offline", "disabled", "dryrun", "shared")
_NOT_IN_MLFLOW_NAMES = re.compile(r"[^\w\-. :/]")
_MLFLOW_PARAMETER = 6000  # characters
# Else MLflow records the user, the script and its commit.
_MLFLOW_TAGS = dict.fromkeys(("mlflow.user", "mlflow.source.name", "mlflow.source.git.commit"), "")


@dataclass(frozen=True, slots=True)
class OpenTracker:
    """An opened tracker.

    Attributes:
        id: The tracker's id of the run.
        command: A command or address that shows the run.
        log: Takes (update, figures by name); the metrics of an evaluation come in a separate call.
        close: Takes whether the run failed, writes what is buffered, and ends the run.
    """

    id: str
    command: str
    log: Callable[[int, Mapping[str, float]], object]
    close: Callable[[bool], object]


def tracker_names(tracking: TrackingSettings, engine: Engine) -> tuple[str, ...]:
    """The run's trackers; verl's logger adds wandb where `WANDB_API_KEY` is set and `tracking.to` is not."""
    if tracking.to is not None:
        return tracking.to
    return ("wandb",) if engine == "verl" and os.environ.get("WANDB_API_KEY") else ()


def check_trackers(tracking: TrackingSettings, engine: Engine) -> None:
    """Reject trackers that would fail later, before anything is written.

    Raises:
        ConfigError: A tracker is unknown or not installed, or wandb is to write to its server and has no login.
    """
    verl = engine == "verl"
    known = OF_VERL if verl else OF_BOTH
    for name in tracker_names(tracking, engine):
        if name not in known:
            remedy = ", or train with --engine verl" if name in OF_VERL else ""
            raise ConfigError(f"tracking.to: there is no tracker {name!r}; choose from {', '.join(known)}{remedy}")
        packages = [package for package in (known[name], None if verl else "accelerate") if package]
        if not all(map(find_spec, packages)):
            install = f"'hgpo[{name}]'" if name in OF_BOTH else name
            raise ConfigError(f"tracking.to: {name} needs a package: pip install {install}")
        if name == "wandb" and wandb_mode(engine) not in _WITHOUT_LOGIN and not _has_wandb_login():
            raise ConfigError(
                "tracking.to: wandb is not logged in here: run `wandb login`, or set WANDB_API_KEY, or "
                "WANDB_MODE=offline to write only to the run's folder",
            )


def tracker_variables() -> dict[str, str]:
    """The environment variables of this process that trackers read; some are secret."""
    return {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}


def wandb_mode(engine: Engine) -> str:
    """`WANDB_MODE`, else "offline"; verl's logger is online by default."""
    return os.environ.get("WANDB_MODE") or ("online" if engine == "verl" else "offline")


def place(variable: str, folder: Path) -> str:
    """The folder a tracker writes to: its environment variable, else the run's `folder` or that folder's parent."""
    places = {
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "SWANLAB_LOG_DIR": str(folder / "swanlog"),
        "WANDB_DIR": str(folder),
        "TRACKIO_DIR": str(folder.parent / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder.parent / 'mlflow.db'}",
    }
    return os.environ.get(variable) or places[variable]


def without_secrets(text: str) -> str:
    """The text without the trackers' keys and without names and passwords in addresses.

    Example: `without_secrets("http://me:secret@host/")` is "http://***@host/".
    """
    for name, value in tracker_variables().items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return _PASSWORD_IN_ADDRESS.sub("***@", text)


def open_tracker(name: str, folder: Path, settings: TrackedSettings, known: TrackerState | None) -> OpenTracker:
    """Start the run in the tracker `name`, or continue it if it is `known`. Errors of the library are not caught."""
    from accelerate import PartialState

    PartialState(cpu=True)  # accelerate's loggers need one; `cpu`: no device is initialised
    return _OPEN[name](folder, settings, known)


def _tensorboard(run: Path, settings: TrackedSettings, known: TrackerState | None) -> OpenTracker:
    from accelerate.tracking import TensorBoardTracker

    folder = place("TENSORBOARD_DIR", run)
    # From the purged step on, TensorBoard ignores what an earlier process wrote.
    tracker = TensorBoardTracker("", folder, purge_step=known and known.update + 1)
    tracker.start()
    if known is None:
        tracker.store_init_configuration(dict(settings))
    command = f"tensorboard --logdir {shlex.quote(folder)}"
    return OpenTracker(str(settings["run.name"]), command, partial(_log, tracker), lambda failed: tracker.finish())


def _wandb(run: Path, settings: TrackedSettings, known: TrackerState | None) -> OpenTracker:
    import wandb
    from accelerate.tracking import WandBTracker

    folder, mode = place("WANDB_DIR", run), wandb_mode("built-in")
    Path(folder).mkdir(parents=True, exist_ok=True)  # else wandb writes to a temporary folder
    quiet = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
    own = wandb.Settings(**quiet, x_disable_meta=True, x_disable_stats=True)
    resume = {} if known is None else {"id": known.id, "resume": "allow"}
    options = {"name": settings["run.name"], "mode": mode, "dir": folder, "config": dict(settings), "settings": own}
    tracker = WandBTracker(PROJECT, **options, **resume)
    tracker.start()
    opened = tracker.tracker
    opened.define_metric("update")  # the axis: wandb's own step counts the calls
    opened.define_metric("*", step_metric="update")
    sync = f"wandb sync {shlex.quote(str(Path(opened.dir).parent))}"
    return OpenTracker(
        opened.id,
        sync if mode == "offline" else str(opened.url),
        lambda update, figures: tracker.log({**figures, "update": update}),
        lambda failed: opened.finish(exit_code=int(failed)),
    )


def _trackio(run: Path, settings: TrackedSettings, known: TrackerState | None) -> OpenTracker:
    folder = os.environ["TRACKIO_DIR"] = place("TRACKIO_DIR", run)  # read when trackio is imported
    from accelerate.tracking import TrackioTracker

    name, resume = (known.id, "allow") if known else (settings["run.name"], "never")
    options = {"name": name, "resume": resume, "config": dict(settings)}
    tracker = TrackioTracker(PROJECT, **options, embed=False, auto_log_cpu=False, auto_log_gpu=False)
    _silently(tracker.start)
    command = f"TRACKIO_DIR={shlex.quote(folder)} trackio show --project {PROJECT}"
    return OpenTracker(
        str(tracker.tracker.name), command, partial(_log, tracker), lambda failed: _silently(tracker.finish)
    )


def _mlflow(run: Path, settings: TrackedSettings, known: TrackerState | None) -> OpenTracker:
    import mlflow
    from accelerate.tracking import MLflowTracker

    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs every table that it makes
    address = place("MLFLOW_TRACKING_URI", run)
    mlflow.set_tracking_uri(address)
    tracker = MLflowTracker(PROJECT, run_id=known and known.id, run_name=settings["run.name"], tags=_MLFLOW_TAGS)
    tracker.start()
    if known is None:
        tracker.store_init_configuration({key: str(value)[:_MLFLOW_PARAMETER] for key, value in settings.items()})
    return OpenTracker(
        tracker.tracker.info.run_id,
        f"mlflow ui --backend-store-uri {shlex.quote(without_secrets(address))}",
        lambda update, figures: _log(
            tracker, update, {_NOT_IN_MLFLOW_NAMES.sub("_", key): value for key, value in figures.items()}
        ),
        lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED"),
    )


_OPEN = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio, "mlflow": _mlflow}


def _log(tracker: object, update: int, figures: Mapping[str, float]) -> None:
    tracker.log(dict(figures), step=update)  # type: ignore[attr-defined]


def _silently(call: Callable[[], object]) -> None:
    """Call a function of trackio without the lines that it prints."""
    with redirect_stdout(io.StringIO()):
        call()


def _has_wandb_login() -> bool:
    """Whether wandb finds a key in its variable or settings, or its host in a file of logins; no key is read."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    if any(path.exists() for path in (Path("wandb/settings"), Path.home() / ".config" / "wandb" / "settings")):
        return True
    files = [Path(os.environ["NETRC"])] if "NETRC" in os.environ else [Path.home() / ".netrc", Path.home() / "_netrc"]
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    return any(path.is_file() and host in path.read_text(errors="replace").split() for path in files)
