"""The steps of an update as a run keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from hgpo.config import Config
from hgpo.estimators import Advantages
from hgpo.rollout.records import StepRecord
from hgpo.rollout.writing import write_rollouts
from hgpo.runs.folder import RunDirectory


def store_steps(
    run: RunDirectory, config: Config, update: int, steps: Sequence[StepRecord], advantages: Advantages
) -> None:
    """Write `rollouts/<update>.parquet`, every step with its advantage and return, if `rollout.store_every` asks."""
    every = config.rollout.store_every
    if every and update % every == 0:
        extra = {"advantage": advantages.values, "return": advantages.returns}
        write_rollouts(run.rollout_file(update), steps, extra)
