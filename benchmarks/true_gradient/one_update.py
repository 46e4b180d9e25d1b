"""How far one update of the trainer raises the probability to win, with the same divergence for every estimator.

The trainer's own update is carried out on some rollouts of a pool. Its learning rate is chosen so that the policy
diverges by a given amount, because the batch gradient does not determine a step size. The change of the probability to
win is estimated from rollouts of the pool that were not trained on, by importance sampling:

    mean over rollouts i of (w_i - 1) (won_i - mean won of the task's others),  w_i = new over old probability of i

which has no bias, since w_i - 1 has mean 0 and is independent of the others.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.columns import FloatArray
from hgpo.config import TrainingSettings
from hgpo.rollout.records import StepRecord, by_trajectory, to_step_batch
from hgpo.runs.folder import open_run_directory
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs
from hgpo.training.update import Sampling, Trained, make_optimizer, update_policy
from hgpo.utils.files import write_text
from true_gradient.contenders import CONTENDERS
from true_gradient.pools import open_player, read_pool, read_settings

Pair = tuple[str, ...]
"""An estimator and a state key."""
Rollout = list[StepRecord]
"""The steps of one trajectory of a pool, in order of time."""
TOLERANCE = 0.1
"""Accepted relative error of the divergence."""
_LARGEST_ERROR = 0.2
"""The same if no rate gives a smaller error, since the divergence jumps where a sample's clipping starts."""
_TRIES = 12


@dataclass(frozen=True, slots=True)
class Updated:
    """A policy after one update.

    Attributes:
        model: a changed copy of the model.
        learning_rate: the learning rate of the update.
        divergence: of the new policy on the tokens that were trained on, nats per token.
        optimiser_steps: number of optimiser steps.
    """

    model: Any
    learning_rate: float
    divergence: float
    optimiser_steps: int


def update_to(
    model: Any,
    rollouts: Sequence[Rollout],
    advantage_N: FloatArray,
    settings: TrainingSettings,
    sampling: Sampling,
    divergence: float,
    seed: int = 0,
) -> Updated:
    """Train a copy of the model on the rollouts.

    Args:
        model: the model of the policy that played the rollouts.
        rollouts: every step of them is trained on.
        advantage_N: the advantages of their steps.
        settings: settings of the update; its learning rate is tried first.
        sampling: how the rollouts were sampled.
        divergence: mean k3 estimate of the old policy's divergence from the new one, nats per token.
        seed: seed of the order of the samples.

    Raises:
        ValueError: no learning rate gave the divergence, e.g. because all advantages are 0.
    """
    records = list(chain.from_iterable(rollouts))
    samples = [
        Sample(step.prompt_ids, step.token_ids, step.log_probs, float(value))
        for step, value in zip(records, advantage_N, strict=True)
    ]

    def updated_at(rate: float) -> Updated:
        new = copy.deepcopy(model)
        tried = settings.model_copy(update={"learning_rate": rate})
        trained = Trained(new, make_optimizer(new, tried))
        metrics = update_policy(trained, samples, tried, np.random.default_rng(seed), sampling)
        ratio_T = np.concatenate(log_ratios(new, records, sampling))
        return Updated(new, rate, float(np.mean(np.exp(ratio_T) - 1 - ratio_T)), int(metrics["mini_batches"]))

    return search_rate(updated_at, settings.learning_rate, divergence)


def search_rate(updated_at: Callable[[float], Updated], rate: float, divergence: float) -> Updated:
    """The first tried update whose divergence is `divergence` up to `TOLERANCE`, else the nearest one.

    The divergence is modelled as a power of the learning rate: its square at first, then the power that two tries give.

    Args:
        updated_at: learning rate -> the update.
        rate: the first learning rate.
        divergence: the target, nats per token.

    Raises:
        ValueError: no tried learning rate has an error of at most `_LARGEST_ERROR`.
    """
    nearest: Updated | None = None
    tried: list[tuple[float, float]] = []  # logs of the rate and of the divergence
    for _ in range(_TRIES):
        updated = updated_at(rate)
        if nearest is None or abs(updated.divergence - divergence) < abs(nearest.divergence - divergence):
            nearest = updated
        if abs(nearest.divergence / divergence - 1) < TOLERANCE:
            return nearest
        tried.append((log(rate), log(max(updated.divergence, 1e-12))))
        rate *= exp(_next_step(tried, log(divergence)))
    assert nearest is not None, "there were tries"
    if abs(nearest.divergence / divergence - 1) > _LARGEST_ERROR:
        raise ValueError(f"no learning rate gave a divergence of {divergence:g}, the nearest {nearest.divergence:g}")
    return nearest


def _next_step(tried: Sequence[tuple[float, float]], goal: float) -> float:
    """Change of the log of the rate after these tries: on the line through the last try and the nearest one on the
    other side of the goal, or the try before; at most a factor of 10."""
    last, past = tried[-1], tried[:-1]
    across = [one for one in past if (one[1] < goal) != (last[1] < goal)]
    other = min(across, key=lambda one: abs(one[0] - last[0])) if across else (past or [last])[-1]
    slope = (other[1] - last[1]) / (other[0] - last[0]) if other[0] != last[0] else 2.0
    step = (goal - last[1]) / max(slope, 0.1)
    return max(-log(10), min(log(10), step))


def log_ratios(model: Any, records: Sequence[StepRecord], sampling: Sampling) -> list[Any]:
    """Log of the new over the old probability of each response token, one array per step."""
    samples = [Sample(step.prompt_ids, step.token_ids, step.log_probs, 0.0) for step in records]
    new = response_log_probs(model, samples, temperature=sampling.temperature, precision=sampling.precision)
    return [of_new - step.log_probs for of_new, step in zip(new, records, strict=True)]


def change_of_success(model: Any, by_task: Mapping[str, Sequence[Rollout]], sampling: Sampling) -> float:
    """How much the probability to win rises from the rollouts' policy to the model's, as a mean over tasks, 0-1.

    Args:
        model: the new policy.
        by_task: at least two rollouts of each task; none that was trained on.
        sampling: how the rollouts were sampled.
    """
    rollouts = [rollout for of_task in by_task.values() for rollout in of_task]
    ratios = iter(log_ratios(model, list(chain.from_iterable(rollouts)), sampling))
    changes = []
    for of_task in by_task.values():
        weight_R = np.array([np.exp(sum(float(next(ratios).sum()) for _ in one)) for one in of_task])
        won_R = np.array([one[-1].won for one in of_task], dtype=np.float64)
        others_R = (won_R.sum() - won_R) / (len(won_R) - 1)
        changes.append(np.mean((weight_R - 1) * (won_R - others_R)))
    return float(np.mean(changes))


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """How an update is made, and how its effect is estimated.

    Attributes:
        tasks, size: number of tasks of a batch, and of rollouts of each.
        divergence: see `update_to`.
        evaluated: number of rollouts of each task from which the effect is estimated.
        seed: seed of the batches.
    """

    tasks: int
    size: int
    divergence: float
    evaluated: int
    seed: int


@dataclass(frozen=True, slots=True)
class Updater:
    """Updates the model of a pool; `by_key` has the rollouts by state key, which is their observation, and by task."""

    model: Any
    by_key: Mapping[str, Mapping[str, list[Rollout]]]
    training: TrainingSettings
    sampling: Sampling
    plan: UpdatePlan

    @classmethod
    def of_pool(cls, pool: Path, keys: Sequence[str], plan: UpdatePlan) -> Updater:
        """Read the pool."""
        settings = read_settings(pool)
        player = open_player(settings)
        _, config = open_run_directory(Path(settings.run))
        by_key: dict[str, dict[str, list[Rollout]]] = {key: {} for key in keys}
        for part in read_pool(pool, player, keys):
            for key in keys:
                for steps in by_trajectory(part.steps[key]):
                    by_key[key].setdefault(steps[0].task_id, []).append(steps)
        sampling = Sampling(player.rules.temperature, config.policy.max_response_tokens)
        training = config.training.model_copy(update={"skip_zero_advantage": True, "kl_coefficient": 0.0})
        return cls(player.language_model.model, by_key, training, sampling, plan)

    def change(self, number: int, contender: str, key: str) -> dict[str, float]:
        """The row of one batch: the change of success on its tasks and on all others, and figures of the update."""
        plan, of_key = self.plan, self.by_key[key]
        names = sorted(of_key)
        rng = np.random.default_rng((plan.seed, number))
        chosen = {names[place] for place in rng.choice(len(names), size=plan.tasks, replace=False)}
        batch = [rollout for name in sorted(chosen) for rollout in of_key[name][: plan.size]]
        advantage_N = CONTENDERS[contender](to_step_batch(list(chain.from_iterable(batch))))
        updated = update_to(self.model, batch, advantage_N, self.training, self.sampling, plan.divergence, number)
        judges = {name: rollouts[plan.size :][: plan.evaluated] for name, rollouts in of_key.items()}
        same = {name: judges[name] for name in names if name in chosen}
        other = {name: judges[name] for name in names if name not in chosen}
        return {
            "same": change_of_success(updated.model, same, self.sampling),
            "other": change_of_success(updated.model, other, self.sampling),
            "learning_rate": updated.learning_rate,
            "divergence": updated.divergence,
            "optimiser_steps": updated.optimiser_steps,
        }


class UpdateRows:
    """The rows of all updates of a pool: a file with a line of JSON for each."""

    def __init__(self, path: Path, plan: UpdatePlan) -> None:
        self._path, self._plan = path, asdict(plan)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._all: list[dict[str, Any]] = [json.loads(line) for line in lines]

    @property
    def _rows(self) -> dict[tuple[int, Pair], dict[str, Any]]:
        """Those of this plan."""
        return {(row["batch"], (row["estimator"], row["key"])): row for row in self._all if row["plan"] == self._plan}

    def has(self, number: int, pair: Pair) -> bool:
        """Whether the row of this batch and pair is stored."""
        return (number, pair) in self._rows

    def add(self, number: int, pair: Pair, change: Mapping[str, float]) -> None:
        """Store a row."""
        self._all.append({"batch": number, "estimator": pair[0], "key": pair[1], **change, "plan": self._plan})
        write_text(self._path, "".join(json.dumps(row) + "\n" for row in self._all))

    def changes(self, pair: Pair, batches: int) -> FloatArray:
        """Points of success on the same and on other tasks, float64[B, 2]."""
        found = self._rows
        rows = [found[number, pair] for number in range(batches)]
        return 100 * np.array([[row["same"], row["other"]] for row in rows])
