"""Records of steps and episodes, their files, and the one aggregation of step counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgpo.columns import FloatArray
from hgpo.messages import encodable
from hgpo.policies.base import NO_LOG_PROBS, NO_TOKENS
from hgpo.rollout.keyed_steps import keyed_steps
from hgpo.rollout.state_keys import JSON
from hgpo.steps import StepBatch
from hgpo.storage.schema import UPDATE_KEY
from hgpo.storage.tables import append_rows, write_table


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One observation -> prompt -> response -> action, with all data for training and inspection.

    `group`, `trajectory` and `step` identify it; the order in a list has no meaning. `observation` is the state's key
    (`hgpo.rollout.state_keys`), by default what the environment said, without memory or template. `reward` is what
    training uses (scaled), before the `penalty` for an ill-formed response. `forgotten` counts remembered pairs that
    had to be left out of the prompt to keep to the limit. `next_prompt_ids` is the prompt of the state in which a time
    limit cut the episode, for a critic; it is empty elsewhere and not written to files.
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
    prompt_ids: np.ndarray = field(default_factory=lambda: NO_TOKENS, repr=False)
    token_ids: np.ndarray = field(default_factory=lambda: NO_TOKENS, repr=False)
    log_probs: np.ndarray = field(default_factory=lambda: NO_LOG_PROBS, repr=False)
    next_prompt_ids: np.ndarray = field(default_factory=lambda: NO_TOKENS, repr=False)

    @property
    def response_log_prob(self) -> float:
        """Log-prob of the whole response when it was sampled, at most 0; 0 where its tokens are not known."""
        return float(np.minimum(self.log_probs.sum(dtype=np.float64), 0.0))  # NaN stays NaN, unlike with `min`


def by_trajectory(steps: Sequence[StepRecord]) -> list[list[StepRecord]]:
    """The steps of each trajectory in order of time; trajectories in order of first appearance."""
    found: dict[str, list[StepRecord]] = {}
    for record in steps:
        found.setdefault(record.trajectory, []).append(record)
    return [sorted(trajectory, key=lambda record: record.step) for trajectory in found.values()]


@dataclass(frozen=True, slots=True)
class Values:
    """A critic's estimates for N steps, in units of the reward.

    Attributes:
        value_N: value of the state of each step, float64[N].
        bootstrap_N: value of the state in which a time limit cut the episode, at its last step; else 0, float64[N].
    """

    value_N: FloatArray
    bootstrap_N: FloatArray


def to_step_batch(steps: Sequence[StepRecord], values: Values | None = None, state: str = "observation") -> StepBatch:
    """Convert step records to the input of estimators, rows in the same order.

    Args:
        steps: the steps of whole groups.
        values: a critic's, if there is one.
        state: the key with which they were recorded; "json" leaves out the fields that are new in every rollout.
    """
    batch = StepBatch.from_columns(
        group=[record.group for record in steps],
        trajectory=[record.trajectory for record in steps],
        step=[record.step for record in steps],
        observation=[record.observation for record in steps],
        reward=[record.reward for record in steps],
        action=[record.action for record in steps],
        prompt=[record.prompt for record in steps],
        penalty=[record.penalty for record in steps],
        value=None if values is None else values.value_N,
        bootstrap=None if values is None else values.bootstrap_N,
        next_observation=[record.next_observation for record in steps],
        success=[record.won for record in steps],
        response_log_prob=_known_log_probs(steps),
        truncated=[record.truncated for record in steps],
    )
    return keyed_steps(batch, state)[0] if state == JSON else batch


def _known_log_probs(steps: Sequence[StepRecord]) -> list[float] | None:
    """The log-prob of each response; None if the policy gave none at all, or if one is not finite."""
    found = [step.response_log_prob for step in steps]
    return found if any(len(step.log_probs) for step in steps) and np.isfinite(found).all() else None


# Step records as a file.


_ARROW_TYPES: Mapping[object, pa.DataType] = {
    "str": pa.large_string(),
    "int": pa.int32(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "bool | None": pa.bool_(),
}
"""Annotation of a field of `StepRecord` -> type of its column."""
_ARRAY_TYPES = {
    "prompt_ids": pa.list_(pa.int32()),
    "token_ids": pa.list_(pa.int32()),
    "log_probs": pa.list_(pa.float32()),
}


def write_rollouts(
    path: Path, steps: Sequence[StepRecord], extra: Mapping[str, np.ndarray] | None = None, update: int | None = None
) -> None:
    """Write `steps` (and float columns such as advantages, each [N]) to `path`, whole or not at all.

    `update` is the number of the update that the steps were collected for, if any; parquet files store it.
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
        if column.name == "next_prompt_ids":
            continue
        kind = _ARRAY_TYPES.get(column.name) or _ARROW_TYPES[column.type]
        values = [getattr(step, column.name) for step in steps]
        columns[column.name] = pa.array(map(encodable, values) if column.type == "str" else values, type=kind)
    known = _known_log_probs(steps)
    if known is not None:
        columns["response_log_prob"] = pa.array(known)
    return columns


# Counts of steps, and the summary of an episode that an evaluation keeps.


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts of steps; they can be added.

    Attributes:
        steps: All steps.
        valid: Steps whose response had the required form.
        listed: Steps at which the environment listed admissible commands.
        admissible: Listed steps whose action was among the admissible commands.
        cut: Steps whose response was cut at the response limit.
    """

    steps: int = 0
    valid: int = 0
    listed: int = 0
    admissible: int = 0
    cut: int = 0

    @classmethod
    def of(cls, steps: Sequence[StepRecord]) -> StepCounts:
        """The counts of step records."""
        return cls(
            steps=len(steps),
            valid=sum(step.valid for step in steps),
            listed=sum(step.admissible is not None for step in steps),
            admissible=sum(bool(step.admissible) for step in steps),
            cut=sum(not step.finished for step in steps),
        )

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(StepCounts)))

    @property
    def valid_share(self) -> float:
        """Share of valid steps, 0-1."""
        return self.valid / self.steps

    @property
    def cut_share(self) -> float:
        """Share of steps with a cut response, 0-1."""
        return self.cut / self.steps

    @property
    def admissible_share(self) -> float | None:
        """Share of the listed steps whose action was admissible, 0-1; None if the environment lists no commands."""
        return self.admissible / self.listed if self.listed else None


@dataclass(frozen=True, slots=True)
class TotalUsage:
    """Tokens, requests, time and cost of all responses of an episode, reflections and repeated requests included.

    Attributes:
        prompt_tokens, response_tokens: As counted by the policy or its server.
        requests: Number of requests sent.
        latencies: Seconds until each response; empty where the policy does not report it.
        cost: Cost of the tokens.
        estimated: Number of responses with estimated tokens, since the server reports none.
        parameters: Sampling parameters as they were sent to a server; None: left out, since the model rejects it.
    """

    prompt_tokens: int
    response_tokens: int
    requests: int
    latencies: tuple[float, ...] = ()
    cost: float = 0.0
    estimated: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One task played with one seed, all trials of it.

    Attributes:
        task: Id of the task.
        kind: Type of the task.
        seed: Seed of the evaluation.
        trials: Whether each trial was won, an unfinished one included; the first success ends them.
        score: The environment's grade at the end, 0-1.
        counts: Steps of all trials.
        usage: Usage of all responses.
        seconds: Wall time, including waiting for other episodes.
        failure: Why the task could not be played to its end; "" if it was.
        context_full: Why a prompt did not fit into the context, which counts as a loss; "" if all fit.
    """

    task: str
    kind: str
    seed: int
    trials: tuple[bool, ...]
    score: float
    counts: StepCounts
    usage: TotalUsage
    seconds: float = 0.0
    failure: str = ""
    context_full: str = ""

    @property
    def won(self) -> bool:
        """Whether a trial was won."""
        return any(self.trials)


def summarise_trajectories(steps: Sequence[StepRecord], seed: int) -> list[EpisodeSummary]:
    """Each trajectory of `steps` as an episode of one trial, in order of first appearance."""
    summaries = []
    for trajectory in by_trajectory(steps):
        end = trajectory[-1]
        usage = TotalUsage(
            prompt_tokens=sum(len(step.prompt_ids) for step in trajectory),
            response_tokens=sum(len(step.token_ids) for step in trajectory),
            requests=len(trajectory),
        )
        trials, counts = (end.won,), StepCounts.of(trajectory)
        summaries.append(EpisodeSummary(end.task_id, end.task_type, seed, trials, end.score, counts, usage))
    return summaries
