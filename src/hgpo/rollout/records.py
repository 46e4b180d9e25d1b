"""What a rollout leaves behind: one record per step, one per episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgpo.steps import StepBatch
from hgpo.storage.schema import UPDATE_KEY
from hgpo.storage.tables import append_rows, write_table

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


# Step records as a file.


_ARROW_TYPES: dict[str, pa.DataType] = {
    "step": pa.int32(),
    "valid": pa.bool_(),
    "admissible": pa.bool_(),
    "reward": pa.float64(),
    "penalty": pa.float64(),
    "won": pa.bool_(),
    "score": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "finished": pa.bool_(),
    "forgotten": pa.int32(),
    "prompt_ids": pa.list_(pa.int32()),
    "token_ids": pa.list_(pa.int32()),
    "log_probs": pa.list_(pa.float32()),
}


def write_rollouts(
    path: Path, steps: Sequence[StepRecord], extra: Mapping[str, np.ndarray] | None = None, update: int | None = None
) -> None:
    """Write `steps` (and float columns such as advantages, each [N]) to `path`, whole or not at all.

    `update` is the one that they were collected for, if any; parquet keeps it.
    """
    columns = _columns(steps)
    for name, values in (extra or {}).items():
        columns[name] = pa.array(values)
    metadata = None if update is None else {UPDATE_KEY: str(update)}
    write_table(path, pa.table(columns).replace_schema_metadata(metadata))


def append_rollouts(path: Path, steps: Sequence[StepRecord]) -> None:
    """Add `steps` to a JSONL file."""
    append_rows(path, pa.table(_columns(steps)))


def _columns(steps: Sequence[StepRecord]) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for column in fields(StepRecord):
        kind = _ARROW_TYPES.get(column.name, pa.large_string())
        columns[column.name] = pa.array([_plain(getattr(step, column.name)) for step in steps], type=kind)
    return columns


def _plain(value: Any) -> Any:
    return value if not isinstance(value, str) else value.encode("utf-8", "replace").decode()


# A game that was played, in figures: what an evaluation is made of, and what is kept of it on disk.


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """One task played with one seed, all trials of it.

    Attributes:
        task, kind, seed: which game.
        trials: whether each was won; the first that was ended them.
        score: the environment's grade at the end, 0-1.
        steps: of all trials; so are the figures below.
        valid: steps whose response had the right form.
        listed: steps at which the environment listed what can be done.
        admissible: those of them whose action was on the list.
        spent: what the answers took; None where nobody counted.
        seconds: wall time, waiting for others included.
        failure: why it could not be played to its end; empty: it was.
    """

    task: str
    kind: str
    seed: int
    trials: tuple[bool, ...]
    score: float
    steps: int
    valid: int
    listed: int
    admissible: int
    spent: TotalUsage | None = None
    seconds: float = 0.0
    failure: str = ""

    @property
    def won(self) -> bool:
        """Whether a trial was won."""
        return any(self.trials)


@dataclass(frozen=True, slots=True)
class TotalUsage:
    """Tokens, requests, time and cost of all responses of a game, reflections and repeated requests included.

    Attributes:
        prompt_tokens, response_tokens: as counted by whoever answered.
        requests: that were sent.
        latencies: seconds that each answer took; empty where the policy does not say.
        cost: of the tokens.
    """

    prompt_tokens: int
    response_tokens: int
    requests: int
    latencies: tuple[float, ...]
    cost: float


def played_game(
    steps: Sequence[StepRecord],
    *,
    task: str,
    kind: str,
    seed: int,
    trials: Sequence[bool],
    spent: TotalUsage | None = None,
    seconds: float = 0.0,
    failure: str = "",
) -> PlayedGame:
    """A game's figures from its steps, which are in order."""
    listed = [step.admissible for step in steps if step.admissible is not None]
    return PlayedGame(
        task=task,
        kind=kind,
        seed=seed,
        trials=tuple(trials),
        score=steps[-1].score if steps else 0.0,
        steps=len(steps),
        valid=sum(step.valid for step in steps),
        listed=len(listed),
        admissible=sum(listed),
        spent=spent,
        seconds=seconds,
        failure=failure,
    )


def played_episodes(steps: Sequence[StepRecord], seed: int) -> list[PlayedGame]:
    """Each trajectory of `steps` as a game of one trial, in order of first appearance."""
    by_trajectory: dict[str, list[StepRecord]] = {}
    for step in steps:
        by_trajectory.setdefault(step.trajectory, []).append(step)
    games = []
    for trajectory in by_trajectory.values():
        trajectory.sort(key=lambda step: step.step)
        end = trajectory[-1]
        games.append(played_game(trajectory, task=end.task_id, kind=end.task_type, seed=seed, trials=[end.won]))
    return games
