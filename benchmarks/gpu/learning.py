"""Trainings with a time limit, all from one start, and the success of what they came to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu.phase import Figures
from hgpo.evaluation import Rate, gain
from hgpo.runs.checkpoints import newest_complete
from hgpo.runs.evaluation_files import read_evaluation
from hgpo.runs.folder import RunDirectory, read_metrics
from runs import train

CURVE = ("success", "steps", "seconds_collect", "seconds_update")


@dataclass(frozen=True, slots=True)
class Panel:
    """What success is measured on. Example: `Panel("valid_seen", 140)`."""

    split: str
    games: int


def make_start(
    folder: Path, recipe: Path, options: list[str], panel: Panel, seconds: float
) -> tuple[RunDirectory, Figures]:
    """A run of no updates: its warm start, played on the panel."""
    run = train(folder, "start", recipe, [*options, "training.updates=0", "evaluation.games=1"], seconds=seconds)
    if not run.complete:
        raise TimeoutError(f"the warm start took more than {seconds:.0f} s: lower warm_start.max_updates")
    report = json.loads((run.start / "warm_start.json").read_text(encoding="utf-8"))
    return run, {"warm_start": report, "success": _written(evaluate(run, "start", panel))}


def learn(
    start: RunDirectory, name: str, recipe: Path, options: list[str], panel: Panel, *, seconds: float, updates: int
) -> Figures:
    """Train from a start for at most so many seconds and updates, and play the panel with the newest checkpoint.

    Args:
        start: what `make_start` gave.
        name: of the run, beside the start.
        recipe, options: its settings.
        panel: see `Panel`.
        seconds: after which the run is killed.
        updates: at which it ends by itself.

    Raises:
        RuntimeError: there is no such start.
        TimeoutError: not a single checkpoint was there by then.
    """
    if not start.complete:
        raise RuntimeError(f"{start.path} is not complete: the part before this one makes it")
    settings = [
        *options,
        f"policy.model={start.start}",
        "warm_start.enabled=false",
        f"training.updates={updates}",
        "evaluation.games=1",  # the panel is played below; before and after would be played by every run
    ]
    run = train(start.path.parent, name, recipe, settings, seconds=seconds)
    newest = newest_complete(run.checkpoints)
    if newest is None:
        raise TimeoutError(f"{name} had no checkpoint after {seconds:.0f} s: raise the limit or make updates smaller")
    before, after = (
        read_evaluation(path).evaluation
        for path in (evaluate(start, "start", panel), evaluate(run, newest.name, panel))
    )
    change = gain(before, after)
    rows = [row for row in read_metrics(run) if row["update"] <= int(newest.name)]
    return {
        "updates": int(newest.name),
        "success": _interval(after.success),
        "gain": _interval(change),
        "curve": {key: [round(row[key], 4) for row in rows] for key in CURVE},
        "peak_memory_gib": round(max(row["peak_memory_gib"] for row in rows), 2),
    }


def evaluate(run: RunDirectory, checkpoint: str, panel: Panel) -> Path:
    """Play the panel with `hgpo eval`, unless that was done; the evaluation's file."""
    pattern = f"{panel.split}-{checkpoint}-*-first{panel.games}.json"
    if not (found := _there(run, pattern)):
        command = [sys.executable, "-W", "ignore", "-m", "hgpo.cli", "eval", str(run.path), "--checkpoint", checkpoint]
        command += ["--split", panel.split, "--games", str(panel.games), "--quiet"]
        subprocess.run(command, check=True)
        found = _there(run, pattern)
    [path] = found
    return path


def _there(run: RunDirectory, pattern: str) -> list[Path]:
    return sorted(run.evaluation("before").parent.glob(pattern))


def _written(path: Path) -> Figures:
    return _interval(read_evaluation(path).evaluation.success)


def _interval(rate: Rate) -> Figures:
    return {"mean": rate.mean, "low": rate.low, "high": rate.high, "games": rate.tasks}
