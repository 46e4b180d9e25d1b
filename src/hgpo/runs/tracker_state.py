"""Sends the built-in trainer's figures to the run's trackers, and stores in `tracking.json` what each tracker has.

A resumed run continues the tracker's own run, sends nothing twice, and sends a tracker that failed the rows it lacks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgpo.config import Config
from hgpo.config.engines import leaves
from hgpo.evaluation import Evaluation
from hgpo.runs.folder import RunDirectory, RunDirectoryError, check_schema, read_json, read_metrics, write_json
from hgpo.runs.progress import Reporter
from hgpo.runs.tracking import OpenTracker, TrackerRun, open_tracker, tracker_names, wandb_mode, without_secrets
from hgpo.visible import visible


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

    def __init__(self, run: RunDirectory, config: Config, reporter: Reporter) -> None:
        self._run, self._config, self._reporter = run, config, reporter
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

    def evaluation(self, update: int, evaluation: Evaluation) -> None:
        """Send an evaluation of the policy after `update`."""
        for name in list(self._open):
            state = self._states[name]
            if update > state.evaluation and self._send(name, update, evaluation_figures(evaluation)):
                self._states[name] = replace(state, evaluation=update)
        self._write()

    def close(self, *, failed: bool) -> None:
        """End the run in every tracker."""
        for name, tracker in list(self._open.items()):
            self._attempt(name, lambda tracker=tracker: tracker.close(failed))  # type: ignore[misc]

    def _open_one(self, name: str) -> None:
        known = self._states.get(name)
        self._open[name] = tracker = open_tracker(
            name,
            TrackerRun(
                name=self._config.run.name,
                folder=self._run.path.resolve(),
                settings=tracked_settings(self._config),
                mode=wandb_mode(self._config),
                id=known.id if known else None,
                update=known.update if known else 0,
            ),
        )
        self._states[name] = known or TrackerState(tracker.id)
        self._reporter.say(f"Tracking with {name}: {visible(tracker.command)}")

    def _send_row(self, name: str, row: Mapping[str, Any]) -> None:
        if name not in self._open or row["update"] <= self._states[name].update:
            return
        if self._send(name, row["update"], {key: value for key, value in row.items() if key != "update"}):
            self._states[name] = replace(self._states[name], update=row["update"])

    def _send(self, name: str, update: int, figures: Mapping[str, Any]) -> bool:
        finite = {key: float(value) for key, value in figures.items() if _is_finite(value)}
        return self._attempt(name, lambda: self._open[name].log(update, finite))

    def _attempt(self, name: str, call: Callable[[], object]) -> bool:
        """Whether the call succeeds; a tracker that fails is reported once and closed, and training goes on."""
        try:
            call()
        except Exception as error:  # trackers' libraries may raise anything
            self._open.pop(name, None)
            problem = visible(without_secrets(f"{type(error).__name__}: {error}"))
            self._reporter.say(
                f"{name} failed, and the run goes on without it ({problem}). metrics.jsonl has every figure, and "
                "`hgpo train --resume` sends those it lacks"
            )
            return False
        return True

    def _write(self) -> None:
        if self._open:
            write_json(self._run.tracking, {name: asdict(state) for name, state in self._states.items()})


@contextmanager
def open_trackers(run: RunDirectory, config: Config, reporter: Reporter) -> Iterator[Trackers]:
    """The run's trackers, opened; they are closed when the block ends, however it ends.

    Raises:
        RunDirectoryError: `tracking.json` is damaged.
    """
    trackers = Trackers(run, config, reporter)
    for name in tracker_names(config):
        trackers.open(name)
    try:
        yield trackers
    except BaseException:
        trackers.close(failed=True)
        raise
    trackers.close(failed=False)


def evaluation_figures(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation's figures under the names that both engines send.

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


def tracked_settings(config: Config) -> dict[str, bool | int | float | str]:
    """Every setting that has a value, by dotted name, without passwords in addresses; lists and tables as JSON."""
    return {name: _plain(value) for name, value, _ in leaves(config) if value is not None}


def _plain(value: Any) -> bool | int | float | str:
    if isinstance(value, (bool, int, float)):
        return value
    return without_secrets(value if isinstance(value, str) else json.dumps(value, default=str))


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _read(run: RunDirectory) -> dict[str, TrackerState]:
    if not run.tracking.exists():
        return {}
    try:
        return {
            name: check_schema(run.tracking, state, TrackerState) for name, state in read_json(run.tracking).items()
        }
    except (ValueError, TypeError) as error:
        raise RunDirectoryError(f"{error}; delete it, and the trackers begin new runs") from error
