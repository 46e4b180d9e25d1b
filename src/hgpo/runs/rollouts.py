"""The steps of an update as a run keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgpo.config import Config
from hgpo.estimators import Advantages
from hgpo.rollout.records import StepRecord
from hgpo.rollout.writing import write_rollouts
from hgpo.runs.folder import RunDirectory, RunDirectoryError, open_run_directory, read_metrics
from hgpo.storage.discover import number_ranges


def store_steps(
    run: RunDirectory, config: Config, update: int, steps: Sequence[StepRecord], advantages: Advantages
) -> None:
    """Write `rollouts/<update>.parquet`, every step with its advantage and return, if `rollout.store_every` asks."""
    every = config.rollout.store_every
    if every and update % every == 0:
        extra = {"advantage": advantages.values, "return": advantages.returns}
        write_rollouts(run.rollout_file(update), steps, extra, update)


def missing_notes(path: Path) -> list[str]:
    """What has to be said where `path` is a run and lacks steps that it has stored; nothing of any other path.

    Which they are is told by its metrics and `rollout.store_every`; where those cannot be read, that is said.
    """
    if not (path / "config.toml").is_file():
        return []
    try:
        run, config = open_run_directory(path)
        every = config.rollout.store_every
        stored = [row["update"] for row in read_metrics(run) if every and row["update"] % every == 0]
    except RunDirectoryError as error:
        return [f"whether steps are missing cannot be told: {error}"]
    missing = [update for update in stored if not run.rollout_file(update).exists()]
    return [f"{run.rollouts} lacks the steps of update {number_ranges(missing)}"] if missing else []
