"""Learning curves: success in training per update; runs that differ in the seed only are one curve.

update    1    2    3            mean   .3   .4   .6
seed 1   .2   .4   .6     ->     low    .2   .4   .6
seed 2   .4   .4   .6            high   .4   .4   .6
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from hgpo.comparison.entries import Entry, TrainedRun
from hgpo.config import as_tree
from hgpo.runs.folder import read_metrics

Success = Mapping[int, float]
"""Update -> success of the episodes it played, 0-1."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of the figure, and the band around it where it is of several runs.

    Example: `Curve("hgpo", (0, 2), 2, (1, 2, 3), (0.3, 0.4, 0.6), (0.2, 0.4, 0.6), (0.4, 0.4, 0.6))`.

    Attributes:
        label: Of the run, or of its runs together.
        entries: Places of the entries that are of its runs, from 0.
        runs: How many runs it is the mean of.
        updates: Those that all of its runs have made.
        mean: Success after smoothing, averaged over the runs, 0-1.
        low: The lowest of the runs.
        high: The highest of the runs.
    """

    label: str
    entries: tuple[int, ...]
    runs: int
    updates: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def learning_curves(entries: Sequence[Entry], smooth: int = 1) -> list[Curve]:
    """Curves of all runs among the entries; what is a file, or has no metrics, has none.

    Args:
        entries: What is compared.
        smooth: Each point is the mean of so many updates, itself and those before it; 1: as measured.

    Raises:
        ValueError: `smooth` is below 1, or a run's metrics are damaged.
    """
    if smooth < 1:
        raise ValueError(f"--smooth {smooth}: a mean is of at least 1 update")
    runs = [entry.run for entry in entries]
    folders = [run and run.directory.path.resolve() for run in runs]
    curves = []
    for places in runs_alike(runs):
        measured = [smoothed(_success(run), smooth) for place in places if (run := runs[place]) is not None]
        label = common_label([entries[place].label for place in places])
        whose = {folders[place] for place in places}
        curve = curve_of(label, tuple(place for place, folder in enumerate(folders) if folder in whose), measured)
        if curve.updates:
            curves.append(curve)
    return curves


def runs_alike(runs: Sequence[TrainedRun | None]) -> list[tuple[int, ...]]:
    """Places of runs, those together that differ in `run.seed`, `run.name` and `run.directory` only.

    Of a run that is there more than once, the first place stands for all. Two runs with one seed are no two draws, so
    they stay apart.
    """
    groups: list[tuple[dict[str, Any], dict[int, int]]] = []  # settings; seed -> place
    seen = set()
    for place, run in enumerate(runs):
        if run is None or (folder := run.directory.path.resolve()) in seen:
            continue
        seen.add(folder)
        settings, seed = as_tree(run.config), run.config.run.seed
        settings["run"] = {key: value for key, value in settings["run"].items() if key not in _OF_ONE_RUN}
        alike = next((seeds for other, seeds in groups if other == settings and seed not in seeds), None)
        if alike is None:
            groups.append((settings, {seed: place}))
        else:
            alike[seed] = place
    return [tuple(seeds.values()) for _, seeds in groups]


_OF_ONE_RUN = ("seed", "name", "directory")


def _success(run: TrainedRun) -> Success:
    return success_by_update(read_metrics(run.directory))


def success_by_update(rows: Sequence[object]) -> Success:
    """Success per update from the rows of `metrics.jsonl`; a row without is passed over."""
    found = {}
    for row in rows:
        if isinstance(row, dict):
            update, success = row.get("update"), row.get("success")
            if isinstance(update, int) and isinstance(success, (int, float)) and isfinite(success):
                found[update] = float(success)
    return dict(sorted(found.items()))


def smoothed(success: Success, window: int) -> Success:
    """The mean of the last `window` updates at each of them; the first ones have fewer before them."""
    values = list(success.values())
    return {
        update: float(np.mean(values[max(0, place + 1 - window) : place + 1])) for place, update in enumerate(success)
    }


def curve_of(label: str, entries: tuple[int, ...], measured: Sequence[Success]) -> Curve:
    """One curve of runs whose success is given, over the updates that all of them have."""
    updates = tuple(update for update in measured[0] if all(update in success for success in measured))
    values_RU = np.array([[success[update] for update in updates] for success in measured])  # runs x updates
    mean, low, high = (tuple(map(float, f(values_RU, axis=0))) for f in (np.mean, np.min, np.max))
    return Curve(label, entries, len(measured), updates, mean, low, high)


def common_label(labels: Sequence[str]) -> str:
    """What labels that end in a number are called together, such as "hgpo" for "hgpo-1" and "hgpo-12"."""
    stems = {re.sub(r"[\W_]*\d+$", "", label) for label in labels}
    if len(labels) == 1 or len(stems) > 1 or stems == {""}:
        return labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"
    return stems.pop()
