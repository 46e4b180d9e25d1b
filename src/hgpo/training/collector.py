"""At which temperature the rollouts of an update are sampled, and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgpo.assemble import rollout_rules
from hgpo.config import Config
from hgpo.envs.base import Task
from hgpo.evaluation.rollout_monitor import PlayWatch
from hgpo.policies.base import AnyPolicy
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import collect
from hgpo.rollout.sampling import exchange_uniform, task_indices, uniform_groups
from hgpo.utils.progress import Reporter


def sampling_temperature(config: Config, update: int) -> float:
    """The temperature of an update, from 1.

    A policy that is trained grows certain of what it does: all rollouts of a task end alike, nothing is left to
    compare, and learning stops. Sampling it hotter the surer it is keeps them apart:

        T(u) = T_1 + (T_last - T_1) · (u - 1) / (updates - 1)

    with `rollout.temperature` and `rollout.last_temperature`. What is trained is the policy at this temperature; one
    that is right at 1.5 is right, and surer, at 1.

    Example: 1.1 to 1.5 in five updates are 1.1, 1.2, 1.3, 1.4, 1.5.
    """
    first, last = config.rollout.temperature, config.rollout.last_temperature
    if last is None or config.training.updates == 1:
        return first
    return first + (last - first) * (update - 1) / (config.training.updates - 1)


# An update's experience: groups of episodes, those without a difference drawn anew, and what is shown meanwhile.


@dataclass(frozen=True, slots=True)
class Collected:
    """What was played for an update.

    Attributes:
        steps: of its groups.
        replaced: of groups that were drawn and then left out.
        resampled_groups: how many those are.
        tasks_drawn: by the run so far, these included.

    Example: `Collected(steps, replaced=[], resampled_groups=0, tasks_drawn=48)`.
    """

    steps: list[StepRecord]
    replaced: list[StepRecord]
    resampled_groups: int
    tasks_drawn: int


class Collector:
    """Plays the training tasks in the run's order. `note` is told how far it is."""

    def __init__(
        self, config: Config, tasks: Sequence[Task], policy: AnyPolicy, rng: np.random.Generator, reporter: Reporter
    ) -> None:
        self.config, self.tasks, self.policy, self.rng = config, tasks, policy, rng
        self.note: Callable[[str], object] = lambda text: None
        self._watch = PlayWatch(reporter, config)

    def collect(self, update: int, tasks_drawn: int) -> Collected:
        """The groups of one update; groups in which all rollouts scored the same may be drawn anew."""
        settings = self.config.rollout
        temperature = sampling_temperature(self.config, update)
        steps = self._play(f"{update}/", tasks_drawn, settings.tasks_per_update, temperature)
        tasks_drawn += settings.tasks_per_update
        replaced: list[StepRecord] = []
        resampled = 0
        for attempt in range(1, settings.resample_uniform_groups + 1):
            uniform = uniform_groups(steps)
            if not uniform:
                break
            fresh = self._play(f"{update}.{attempt}/", tasks_drawn, len(uniform), temperature)
            tasks_drawn += len(uniform)
            change = exchange_uniform(steps, fresh)
            drawn = [*steps, *fresh]
            steps = [record for record in drawn if record.group not in change.leaving]
            replaced += [record for record in drawn if record.group in change.leaving]
            resampled += change.replaced
        return Collected(steps, replaced, resampled, tasks_drawn)

    def _play(self, label: str, drawn: int, count: int, temperature: float) -> list[StepRecord]:
        """The next `count` tasks after those that were drawn."""
        indices = task_indices(self.config.run.seed, len(self.tasks), drawn, count)
        group_size = self.config.rollout.group_size
        playing = self._watch.begin(
            count * group_size, lambda ended, total, note: self.note(f"playing: {ended} of {total} episodes, {note}")
        )
        steps = collect(
            [self.tasks[index] for index in indices],
            self.policy,
            replace(rollout_rules(self.config), temperature=temperature),
            self.rng,
            group_size=group_size,
            label=label,
            on_progress=playing.progress,
            on_step=playing.step,
        )
        playing.finish()
        return steps
