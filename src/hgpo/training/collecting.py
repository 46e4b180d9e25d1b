"""An update's experience: groups of episodes, those without a difference drawn anew, and what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgpo.config import Config
from hgpo.envs.base import Task
from hgpo.policies.base import AnyPolicy
from hgpo.rollout.collect import collect
from hgpo.rollout.records import StepRecord
from hgpo.runs.assemble import rollout_rules
from hgpo.runs.playing import PlayWatch
from hgpo.runs.progress import Reporter
from hgpo.runs.resampling import exchange_uniform, uniform_groups
from hgpo.runs.task_order import task_indices
from hgpo.training.temperature import sampling_temperature


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
