"""Advantages of single steps compared with those from rollouts that start there: bias, variance and squared error.

For a recorded step, new rollouts start from its state, with its history, before and after its action. Their mean
discounted returns are V and Q, and Q - V is what an advantage estimates. An estimator's advantage of the step is
computed several times, each time with another future of the step and with other rollouts of the task beside it.

Shapes: S steps, R estimates of a step, N steps of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.envs.base import Task
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.records import StepRecord, to_step_batch
from hgpo.rollout.runner import LiveEpisode, play_to_end
from hgpo.steps import StepBatch
from true_gradient.alignment import Interval, interval, task_weights
from true_gradient.contenders import GAMMA
from true_gradient.pools import Player

Floats = NDArray[np.float64]
Estimate = Callable[[StepBatch], Mapping[str, tuple[Floats, NDArray[np.int64]]]]
"""A batch -> {name: (the advantage of every step, the number of trajectories that it was compared with)}."""
REPETITIONS = 8


@dataclass(frozen=True, slots=True)
class Branches:
    """What follows a recorded step.

    Attributes:
        step: the step. prefix: the steps of its trajectory before it.
        futures: the steps of trajectories after its action; empty where the action ended the episode.
        before, after: discounted returns from its state, without its action (V) and with it (Q).
    """

    step: StepRecord
    prefix: list[StepRecord]
    futures: list[list[StepRecord]]
    before: Floats
    after: Floats

    @property
    def advantage(self) -> float:
        """Q - V."""
        return float(self.after.mean() - self.before.mean())

    @property
    def variance(self) -> float:
        """Variance of `advantage`."""
        return float(self.after.var(ddof=1) / len(self.after) + self.before.var(ddof=1) / len(self.before))


def branch(
    player: Player, trajectories: Sequence[Sequence[StepRecord]], branches: int, rng: np.random.Generator
) -> list[Branches]:
    """Play rollouts from the state of the last step of each list of steps, before and after its action.

    Args:
        player: the policy that made the records; its rules have their state key.
        trajectories: beginnings of trajectories, in order of time.
        branches: number of rollouts before the action, and after it; in addition, `REPETITIONS` futures are played.
        rng: random numbers of the rollouts.
    """
    live: list[LiveEpisode] = []
    for number, steps in enumerate(trajectories):
        task = player.tasks[steps[-1].task_id]
        live += [_begun(player, task, steps[:-1], f"{number}/before/{copy}") for copy in range(branches)]
        live += [_begun(player, task, steps, f"{number}/after/{copy}") for copy in range(branches + REPETITIONS)]
    played: defaultdict[str, list[StepRecord]] = defaultdict(list)
    for record in play_to_end([one for one in live if not one.episode.ended], player.policy, player.rules, rng):
        played[record.trajectory].append(record)
    found = []
    for number, steps in enumerate(trajectories):
        *prefix, step = steps
        before = [_value(played[f"{number}/before/{copy}"]) for copy in range(branches)]
        futures = [played[f"{number}/after/{copy}"] for copy in range(branches + REPETITIONS)]
        after = [_value([step, *future]) for future in futures[:branches]]
        found.append(Branches(step, prefix, futures[branches:], np.array(before), np.array(after)))
    return found


def _begun(player: Player, task: Task, steps: Sequence[StepRecord], trajectory: str) -> LiveEpisode:
    """A new episode of the task in which the actions of the steps were carried out."""
    environment = task.make()
    ids = EpisodeIds(trajectory, trajectory, task.id, task.kind)
    episode = Episode(ids, player.rules, *environment.reset(seed=0))
    for step in steps:
        episode.advance(step.action, environment.step(step.action), step.response)
    return LiveEpisode(episode, environment)


def _value(steps: Sequence[StepRecord]) -> float:
    """The discounted return of the first step, less its penalty."""
    ordered = sorted(steps, key=lambda step: step.step)
    return sum(GAMMA**time * step.reward for time, step in enumerate(ordered)) - ordered[0].penalty


def repetitions(pool_rollouts: int, size: int) -> int:
    """How many estimates of a step share no rollout, where a batch has `size` rollouts of each task."""
    return min(REPETITIONS, (pool_rollouts - 1) // (size - 1))


def repeated(
    branched: Sequence[Branches],
    others: Mapping[str, Sequence[Sequence[StepRecord]]],
    size: int,
    estimate: Estimate,
) -> dict[str, tuple[Floats, NDArray[np.int64]]]:
    """Estimates of every branched step, each with another future of it and other rollouts of its task.

    Args:
        branched: S steps.
        others: by task, the trajectories of the pool.
        size: number of rollouts of the task in a batch, the step's own included.
        estimate: the estimator.

    Returns:
        {name: (the step's advantages, float64[S, R], the numbers of trajectories compared, int64[S, R])}.
    """
    records: list[StepRecord] = []
    places: list[int] = []
    for number, one in enumerate(branched):
        beside = [steps for steps in others[one.step.task_id] if steps[0].trajectory != one.step.trajectory]
        for repetition in range(repetitions(len(beside) + 1, size)):
            group = f"{number}/{repetition}"
            own = [*one.prefix, one.step, *one.futures[repetition]]
            places.append(len(records) + len(one.prefix))
            rollouts = [own, *beside[repetition * (size - 1) : (repetition + 1) * (size - 1)]]
            for member, steps in enumerate(rollouts):
                records += [replace(step, group=group, trajectory=f"{group}/{member}") for step in steps]
    found = estimate(to_step_batch(records))
    shape = len(branched), -1
    return {
        name: (value[places].reshape(shape), size_N[places].reshape(shape)) for name, (value, size_N) in found.items()
    }


def measured_steps(
    branched: Sequence[Branches], estimates: Mapping[str, tuple[Floats, NDArray[np.int64]]]
) -> dict[str, Any]:
    """Advantages of steps from branched rollouts, beside estimates of them (`repeated`), as arrays that can be stored.

    Returns:
        "advantage": of the branches, float64[S]; "noise": its variance, float64[S].
        "estimate NAME": the advantages, float64[S, R]; "size NAME": the numbers of trajectories compared, int64[S, R].
    """
    arrays = {
        "advantage": np.array([one.advantage for one in branched]),
        "noise": np.array([one.variance for one in branched]),
    }
    for name, (estimate_SR, size_SR) in estimates.items():
        arrays |= {f"estimate {name}": estimate_SR, f"size {name}": size_SR}
    return arrays


def squared_bias(measured: Mapping[str, Any], name: str) -> Floats:
    """Squared bias of an estimator's advantage of each step, float64[S]; an estimate without bias, so it can be < 0."""
    estimate_SR = measured[f"estimate {name}"]
    within_S = estimate_SR.var(axis=1, ddof=1) / estimate_SR.shape[1]
    squared_S: Floats = (estimate_SR.mean(axis=1) - measured["advantage"]) ** 2 - within_S - measured["noise"]
    return squared_S


def mean_over_steps(value_S: Floats, task_S: NDArray[np.int64], seed: int) -> Interval:
    """Mean of a figure of each step, with its interval over tasks, which are numbered from 0 without gaps."""
    sum_T, count_T = np.bincount(task_S, weights=value_S), np.bincount(task_S)
    weight_XT = task_weights(len(sum_T), seed)
    return interval((weight_XT @ sum_T) / (weight_XT @ count_T))


def errors(measured: Mapping[str, Any], name: str, chosen_S: NDArray[np.bool_]) -> dict[str, float]:
    """The errors of an estimator's advantages over the chosen `measured_steps`: means, in units of the squared return.

    Returns:
        "steps": their number.
        "bias": mean of (expected estimate - advantage), in units of the return.
        "squared_bias": mean of its square, without the noise of both.
        "variance": of one estimate.
        "signal": mean squared advantage, without its noise.
        "correlation": of the expected estimate with the advantage over the steps, not centred, without their noise.
        "squared_error": of one estimate.
    """
    advantage_S, noise_S = measured["advantage"][chosen_S], measured["noise"][chosen_S]
    estimate_SR = measured[f"estimate {name}"][chosen_S]
    mean_S, variance_S = estimate_SR.mean(axis=1), estimate_SR.var(axis=1, ddof=1)
    within_S = variance_S / estimate_SR.shape[1]
    squared, variance = float(squared_bias(measured, name)[chosen_S].mean()), float(variance_S.mean())
    signal = float(np.mean(advantage_S**2 - noise_S))
    spread = np.mean(mean_S**2 - within_S) * signal
    return {
        "steps": len(advantage_S),
        "bias": float((mean_S - advantage_S).mean()),
        "squared_bias": squared,
        "variance": variance,
        "signal": signal,
        "correlation": float(np.mean(mean_S * advantage_S) / np.sqrt(spread)) if spread > 0 else float("nan"),
        "squared_error": squared + variance,
    }
