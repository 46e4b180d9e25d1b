"""State keys of recorded steps, by any key: the environment is played again with the recorded actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hgpo.envs.base import Env, Task
from hgpo.rollout.records import StepRecord, by_trajectory
from hgpo.rollout.state_keys import Visit, make_key

KEYS = ("observation", "observation_and_commands", "published_g2po", "simulator")
KeyedSteps = dict[str, list[StepRecord]]
"""State key -> the same steps, with this key's values as observations."""


def replayed(steps: Sequence[StepRecord], tasks: Mapping[str, Task], keys: Sequence[str], recorded: str) -> KeyedSteps:
    """The records as if they had been collected with each state key, trajectory by trajectory in order of time.

    Args:
        steps: whole trajectories, in any order.
        tasks: by id; their environments start alike for every seed.
        keys: values of `rollout.state`.
        recorded: the key with which the steps were collected.

    Raises:
        ValueError: the environment's answers differ from the records.
    """
    found: KeyedSteps = {key: [] for key in keys}
    for trajectory in by_trajectory(steps):
        seen = _states(trajectory, tasks[trajectory[0].task_id].make(), {*keys, recorded})
        if [step.observation for step in trajectory] + [trajectory[-1].next_observation] != seen[recorded]:
            raise ValueError(f"{trajectory[0].trajectory} was recorded in another environment than it is replayed in")
        for key, records in found.items():
            for step, before, after in zip(trajectory, seen[key][:-1], seen[key][1:], strict=True):
                records.append(replace(step, observation=before, next_observation=after))
    return found


def _states(trajectory: Sequence[StepRecord], environment: Env, keys: Collection[str]) -> dict[str, list[str]]:
    """The keys of all states of one trajectory, one more than it has steps."""
    makers = {key: make_key(key) for key in keys}
    observation, info = environment.reset(seed=0)
    found = {key: [make(Visit(observation, None, info))] for key, make in makers.items()}
    for step in trajectory:
        observation, _, _, _, info = environment.step(step.action)
        for key, make in makers.items():
            found[key].append(make(Visit(observation, step.action, info)))
    return found
