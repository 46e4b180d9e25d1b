"""What a rollout leaves behind: one record per step, one per episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hgpo.steps import StepBatch

_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_LOG_PROBS = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One observation -> prompt -> response -> action, with everything needed to train on it or to look at it.

    `group`, `trajectory` and `step` identify it; order in a list means nothing. `observation` is the anchor
    (`state_keys`): what the environment said, without memory or template. `reward` is what training uses
    (scaled), before the `penalty` for an ill-formed response. `forgotten` counts remembered pairs that had to be
    left out of the prompt to keep to the limit.
    """

    group: str
    trajectory: str
    step: int
    task_id: str
    task_type: str
    observation: str
    prompt: str
    response: str
    action: str
    valid: bool
    fault: str
    admissible: bool | None  # None where the environment lists no admissible commands
    reward: float
    penalty: float
    won: bool
    score: float
    terminated: bool
    truncated: bool
    finished: bool
    forgotten: int
    next_observation: str
    prompt_ids: np.ndarray = field(default_factory=lambda: _NO_TOKENS, repr=False)
    token_ids: np.ndarray = field(default_factory=lambda: _NO_TOKENS, repr=False)
    log_probs: np.ndarray = field(default_factory=lambda: _NO_LOG_PROBS, repr=False)


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """One finished trajectory in brief. `score` is the environment's grade in 0-1 (1 or 0 where it gives none)."""

    group: str
    trajectory: str
    task_id: str
    task_type: str
    won: bool
    score: float
    total_reward: float
    length: int


def outcomes(steps: Sequence[StepRecord]) -> list[EpisodeOutcome]:
    """The episodes that `steps` make up, in order of first appearance."""
    total: dict[str, float] = {}
    length: dict[str, int] = {}
    last: dict[str, StepRecord] = {}
    for record in steps:
        key = record.trajectory
        total[key] = total.get(key, 0.0) + record.reward
        length[key] = length.get(key, 0) + 1
        if key not in last or record.step > last[key].step:
            last[key] = record
    return [
        EpisodeOutcome(end.group, key, end.task_id, end.task_type, end.won, end.score, total[key], length[key])
        for key, end in last.items()
    ]


def to_step_batch(steps: Sequence[StepRecord]) -> StepBatch:
    """The columns that estimators need, rows in the order of `steps`."""
    return StepBatch.from_columns(
        group=[record.group for record in steps],
        trajectory=[record.trajectory for record in steps],
        step=[record.step for record in steps],
        observation=[record.observation for record in steps],
        reward=[record.reward for record in steps],
        action=[record.action for record in steps],
        prompt=[record.prompt for record in steps],
        penalty=[record.penalty for record in steps],
        next_observation=[record.next_observation for record in steps],
        success=[record.won for record in steps],
    )
