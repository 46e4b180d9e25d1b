"""Collects the episodes of an update: groups of rollouts. Groups with equal total rewards can be replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgpo.config import RolloutSettings
from hgpo.envs.base import Task
from hgpo.policies.base import AnyPolicy
from hgpo.rollout.monitor import RolloutMonitor
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import collect
from hgpo.rollout.sampling import equal_reward_groups, replace_equal_reward_groups, task_indices


def sampling_temperature(settings: RolloutSettings, update: int, updates: int) -> float:
    """The sampling temperature of one of the updates 1, …, `updates`.

    The entropy of a policy falls during training, until all rollouts of a task have the same result, advantages are 0,
    and learning stops. A rising temperature keeps the rollouts different:

        T(u) = T_1 + (T_last - T_1) · (u - 1) / (updates - 1)

    T_1 is `rollout.temperature`, T_last `rollout.last_temperature`. The update computes log-probs at this temperature.

    Example: 1.1 to 1.5 in five updates: 1.1, 1.2, 1.3, 1.4, 1.5.
    """
    first, last = settings.temperature, settings.last_temperature
    if last is None or updates == 1:
        return first
    return first + (last - first) * (update - 1) / (updates - 1)


@dataclass(frozen=True, slots=True)
class Collected:
    """The steps of an update's episodes.

    Attributes:
        steps: steps of the groups that are trained on.
        replaced: steps of the groups left out: replaced ones, and new ones that had equal total rewards, too.
        resampled_groups: number of groups that were replaced by a new one.
        tasks_drawn: number of draws from the order of tasks since the run began, this update included.
        temperature: the sampling temperature.
    """

    steps: list[StepRecord]
    replaced: list[StepRecord]
    resampled_groups: int
    tasks_drawn: int
    temperature: float


@dataclass(kw_only=True)
class Collector:
    """Plays the training tasks in the run's order.

    Attributes:
        tasks: tasks of the training split.
        policy: plays the tasks.
        rules: rules of the episodes; each update sets its own temperature.
        rng: all randomness of the rollouts.
        settings: group size, tasks per update, dynamic sampling.
        updates: number of updates of the run, which the temperature depends on.
        seed: seed of the order of tasks.
        monitor: reports progress and problems of the episodes.
        note: callback for text about the progress.
    """

    tasks: Sequence[Task]
    policy: AnyPolicy
    rules: RolloutRules
    rng: np.random.Generator
    settings: RolloutSettings
    updates: int
    seed: int
    monitor: RolloutMonitor
    note: Callable[[str], object] = lambda text: None

    def collect(self, update: int, tasks_drawn: int) -> Collected:
        """Play one update's groups; replace groups of equal total rewards, at most `resample_uniform_groups` times."""
        settings = self.settings
        temperature = sampling_temperature(settings, update, self.updates)
        steps = self._play(f"{update}/", tasks_drawn, settings.tasks_per_update, temperature)
        tasks_drawn += settings.tasks_per_update
        replaced: list[StepRecord] = []
        resampled = 0
        for attempt in range(1, settings.resample_uniform_groups + 1):
            uniform = equal_reward_groups(steps)
            if not uniform:
                break
            fresh = self._play(f"{update}.{attempt}/", tasks_drawn, len(uniform), temperature)
            tasks_drawn += len(uniform)
            leaving, count = replace_equal_reward_groups(steps, fresh)
            drawn = [*steps, *fresh]
            steps = [record for record in drawn if record.group not in leaving]
            replaced += [record for record in drawn if record.group in leaving]
            resampled += count
        return Collected(steps, replaced, resampled, tasks_drawn, temperature)

    def _play(self, label: str, drawn: int, count: int, temperature: float) -> list[StepRecord]:
        """Play `count` tasks of the run's order of tasks, after the first `drawn`."""
        indices = task_indices(self.seed, len(self.tasks), drawn, count)
        group_size = self.settings.group_size
        batch = self.monitor.begin(
            count * group_size, lambda ended, total, note: self.note(f"playing: {ended} of {total} episodes, {note}")
        )
        steps = collect(
            [self.tasks[index] for index in indices],
            self.policy,
            replace(self.rules, temperature=temperature),
            self.rng,
            group_size=group_size,
            label=label,
            on_progress=batch.progress,
            on_step=batch.step,
        )
        batch.finish()
        return steps
