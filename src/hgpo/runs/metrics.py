"""Rows of `metrics.jsonl`, the same for both engines; docs/reference/metrics.md explains every key."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.estimators import Advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.rollout.records import StepCounts, StepRecord, by_trajectory, write_rollouts
from hgpo.runs.folder import RunDirectory, RunDirectoryError, open_run_directory, read_metrics
from hgpo.steps import StepBatch
from hgpo.storage.discover import number_ranges

GIB = 2**30


def update_row(
    *,
    update: int,
    played: Sequence[StepRecord],
    batch: StepBatch,
    advantages: Advantages,
    figures: Mapping[str, float],
    resampled_groups: int,
    tasks_drawn: int,
    seconds_collect: float,
    seconds_advantages: float,
    seconds_update: float,
    peak_memory_gib: float | None = None,
) -> dict[str, Any]:
    """The row of a finished update.

    Args:
        update: Its number, from 1.
        played: The steps of all episodes, including replaced groups, because the kept groups are selected by outcome.
        batch: The kept steps, as passed to the estimator.
        advantages: The advantages of `batch`.
        figures: Figures of the losses, of the optimiser and of the engine, by name.
        resampled_groups: Number of groups that were replaced by new ones.
        tasks_drawn: Tasks used by the run so far.
        seconds_collect: Wall time of the rollouts.
        seconds_advantages: Wall time of the estimator.
        seconds_update: Wall time of the update, a critic's values and training included.
        peak_memory_gib: Peak memory so far, in GiB; None if it was not measured.
    """
    rollout = rollout_metrics(played)
    tokens = rollout["prompt_tokens"] + rollout["response_tokens"]
    row = {
        "update": update,
        **rollout,
        **summarise_levels(batch, advantages).flat(),
        **figures,
        "resampled_groups": resampled_groups,
        "tasks_drawn": tasks_drawn,
        "tokens_per_second": tokens / (seconds_collect + seconds_advantages + seconds_update),
        "seconds_collect": seconds_collect,
        "seconds_advantages": seconds_advantages,
        "seconds_update": seconds_update,
    }
    return row if peak_memory_gib is None else {**row, "peak_memory_gib": peak_memory_gib}


def rollout_metrics(steps: Sequence[StepRecord]) -> dict[str, float]:
    """The metrics of the episodes; docs/reference/metrics.md lists them."""
    played, counts = by_trajectory(steps), StepCounts.of(steps)
    metrics = {
        "success": float(np.mean([trajectory[-1].won for trajectory in played])),
        "score": float(np.mean([trajectory[-1].score for trajectory in played])),
        "reward": float(np.mean([sum(step.reward for step in trajectory) for trajectory in played])),
        "episode_length": float(np.mean([len(trajectory) for trajectory in played])),
        "episodes": len(played),
        "steps": counts.steps,
        "valid_actions": counts.valid_share,
        "cut_responses": counts.cut_share,
        "steps_with_forgotten_memory": sum(record.forgotten > 0 for record in steps),
        "forgotten_pairs": sum(record.forgotten for record in steps),
        "prompt_tokens": sum(len(record.prompt_ids) for record in steps),
        "response_tokens": sum(len(record.token_ids) for record in steps),
    }
    if counts.admissible_share is not None:
        metrics["admissible_actions"] = counts.admissible_share
    return metrics


def store_rollouts(
    run: RunDirectory, update: int, steps: Sequence[StepRecord], batch: StepBatch, advantages: Advantages, every: int
) -> None:
    """Write the steps of every `every`-th update (0: of none) with advantages, returns and the critic's values, if any.

    They go to `rollouts/<update>.parquet`.
    """
    if every and update % every == 0:
        extra = {"advantage": advantages.values, "return": advantages.returns}
        if batch.value is not None:
            extra |= {"value": batch.value, "bootstrap": batch.bootstrap}
        write_rollouts(run.rollout_file(update), steps, extra, update)


def missing_notes(path: Path) -> list[str]:
    """Return a note if the run at `path` lacks stored steps; empty if none are missing or `path` is not a run.

    The expected files follow from its metrics and `rollout.store_every`; if they are unreadable, the note is the error.
    """
    if not (path / "config.toml").is_file():
        return []
    try:
        run, config = open_run_directory(path)
        every = config.rollout.store_every
        stored = [row["update"] for row in read_metrics(run) if every and row["update"] % every == 0]
    except RunDirectoryError as error:
        return [f"cannot check whether steps are missing: {error}"]
    missing = [update for update in stored if not run.rollout_file(update).exists()]
    return [f"{run.rollouts} lacks the steps of update {number_ranges(missing)}"] if missing else []


def peak_resident_gib() -> float:
    """The peak so far of this process's resident memory in GiB; NaN on Windows."""
    if sys.platform == "win32":
        return float("nan")  # the standard library does not report it
    if peak := status_bytes("VmHWM"):  # getrusage would start from the peak of the parent process
        return peak / GIB
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / GIB


def status_bytes(name: str, root: Path = Path("/")) -> int:
    """A field of /proc/self/status such as "VmRSS", in bytes; 0 where there is none."""
    return memory_field(root / "proc/self/status", f"{name}:")


def memory_field(file: Path, name: str) -> int:
    """The bytes in a line such as "MemAvailable:   17340596 kB"; 0 where there is none."""
    with suppress(OSError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0
