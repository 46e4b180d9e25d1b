"""The built-in trainer's figures on their way to trackers.

`tracking.json` in the run's folder says under which id each tracker knows the run and what it was sent. So a resumed
run goes on in the tracker's own run, nothing is sent twice, and a tracker that failed gets the rows it lacks at the
next start.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from hgpo.config import Config
from hgpo.config.engines import leaves
from hgpo.evaluation import Evaluation
from hgpo.runs.folder import RunDirectory, RunDirectoryError, read_json, read_metrics, write_json
from hgpo.runs.progress import Reporter
from hgpo.runs.tracking.base import Settings, Shown, Tracker
from hgpo.runs.tracking.known import trackers, wandb_mode, without_secrets
from hgpo.visible import visible

_CLASSES = {"tensorboard": "TensorBoard", "wandb": "Wandb", "trackio": "Trackio", "mlflow": "Mlflow"}


@dataclass(frozen=True, slots=True)
class Sent:
    """What one tracker has. Example: `Sent("3f9c", update=12, evaluation=10)`.

    Attributes:
        id: Under which it knows the run.
        update: The last update whose row it has; 0: none.
        evaluation: The update whose policy the last evaluation is of; -1: there is none.
    """

    id: str
    update: int = 0
    evaluation: int = -1


class Tracked:
    """The trackers of a run that have not failed."""

    def __init__(self, run: RunDirectory, reporter: Reporter) -> None:
        self._run, self._reporter = run, reporter
        self._sent = _read(run)
        self._open: dict[str, Tracker] = {}

    def open(self, name: str, config: Config) -> None:
        """Begin, or go on, with one tracker; it gets the rows that it lacks."""
        known = self._sent.get(name)

        def begin() -> None:
            module = import_module(f"hgpo.runs.tracking.{name}")
            tracker: Tracker = getattr(module, _CLASSES[name])(_shown(self._run, config, known))
            self._open[name] = tracker
            self._sent[name] = known or Sent(tracker.id)
            self._reporter.say(f"Tracking with {name}: {visible(tracker.look)}")

        self._attempt(name, begin)
        if name in self._open:
            self._write()  # its id, before anything is sent under it
            for row in read_metrics(self._run):
                self._send_row(name, row)
            self._write()

    def row(self, row: Mapping[str, Any]) -> None:
        """Send the row of `metrics.jsonl` that an update left."""
        for name in list(self._open):
            self._send_row(name, row)
        self._write()

    def evaluation(self, update: int, evaluation: Evaluation) -> None:
        """Send an evaluation of the policy after `update`."""
        for name in list(self._open):
            if update > self._sent[name].evaluation:
                self._send(name, update, evaluation_figures(evaluation))
            if name in self._open:
                self._sent[name] = replace(self._sent[name], evaluation=max(update, self._sent[name].evaluation))
        self._write()

    def close(self, *, failed: bool) -> None:
        """End every tracker's run."""
        for name, tracker in list(self._open.items()):
            self._attempt(name, partial(tracker.close, failed=failed))

    def _send_row(self, name: str, row: Mapping[str, Any]) -> None:
        update = row["update"]
        if name not in self._open or update <= self._sent[name].update:
            return
        self._send(name, update, {key: value for key, value in row.items() if key != "update"})
        if name in self._open:
            self._sent[name] = replace(self._sent[name], update=update)

    def _send(self, name: str, update: int, figures: Mapping[str, Any]) -> None:
        told = {key: float(value) for key, value in figures.items() if _is_figure(value)}
        self._attempt(name, lambda: self._open[name].log(update, told))

    def _attempt(self, name: str, call: Callable[[], None]) -> None:
        """A tracker that fails is named once and left alone: training is what costs."""
        try:
            call()
        except Exception as error:  # of a library that may raise anything
            self._open.pop(name, None)
            why = visible(without_secrets(f"{type(error).__name__}: {error}"))
            self._reporter.say(
                f"{name} failed, and the run goes on without it ({why}). metrics.jsonl has every figure, and "
                "`hgpo train --resume` sends those it lacks"
            )

    def _write(self) -> None:
        if self._open:
            write_json(self._run.tracking, {name: asdict(sent) for name, sent in self._sent.items()})


@contextmanager
def tracked(run: RunDirectory, config: Config, reporter: Reporter) -> Iterator[Tracked]:
    """The run's trackers, opened; they are closed when the block ends, however it ends.

    Raises:
        RunDirectoryError: `tracking.json` is damaged.
    """
    tracking = Tracked(run, reporter)
    for name in trackers(config):
        tracking.open(name, config)
    try:
        yield tracking
    except BaseException:
        tracking.close(failed=True)
        raise
    tracking.close(failed=False)


def evaluation_figures(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation's figures by the names that both engines send them under.

    Example: `{"val/success": 0.5, "val/success_low": 0.4, "val/success_high": 0.6, "val/score": 0.5}`, and
    `val/success/<task type>` for each type.
    """
    success = evaluation.success
    return {
        "val/success": success.mean,
        "val/success_low": success.low,
        "val/success_high": success.high,
        "val/score": evaluation.score,
        **{f"val/success/{kind}": rate.mean for kind, rate in evaluation.by_task_type.items()},
    }


def _shown(run: RunDirectory, config: Config, known: Sent | None) -> Shown:
    return Shown(
        name=config.run.name,
        folder=run.path.resolve(),
        settings=shown_settings(config),
        mode=wandb_mode(config),
        id=known.id if known else None,
        sent=known.update if known else 0,
    )


def shown_settings(config: Config) -> Settings:
    """Every setting that has a value, by its dotted name, without passwords in addresses."""
    return {name: _plain(value) for name, value, _ in leaves(config) if value is not None}


def _plain(value: Any) -> bool | int | float | str:
    if isinstance(value, (bool, int, float)):
        return value
    return without_secrets(value if isinstance(value, str) else json.dumps(value, default=str))


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _read(run: RunDirectory) -> dict[str, Sent]:
    if not run.tracking.exists():
        return {}
    try:
        return {name: Sent(**facts) for name, facts in read_json(run.tracking).items()}
    except (ValueError, TypeError) as error:
        raise RunDirectoryError(
            f"{run.tracking}: {error}; delete it, and the trackers begin runs of their own"
        ) from error
