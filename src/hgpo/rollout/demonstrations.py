"""Noisy expert demonstrations: what the agent would have been told at each step, and what was done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgpo.agents import Situation
from hgpo.envs.base import Expert, Task
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.rules import RolloutRules


def demonstrate(
    tasks: Sequence[Task], expert: Expert, rules: RolloutRules, rng: np.random.Generator, *, noise: float
) -> list[tuple[Situation, str]]:
    """Play each task once; every step gives one pair of situation and command.

    With probability `noise` a random admissible command is carried out, and shown, instead of the expert's: the
    imitator meets states off the expert's path, and what it learns leaves room to improve.

    Raises:
        EnvironmentFault: an environment or the expert breaks its contract.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"noise must lie in 0 to 1, not {noise}")
    pairs: list[tuple[Situation, str]] = []
    for task in tasks:
        pairs += _demonstrate_one(task, expert, rules, rng, noise)
    return pairs


def _demonstrate_one(
    task: Task, expert: Expert, rules: RolloutRules, rng: np.random.Generator, noise: float
) -> list[tuple[Situation, str]]:
    environment = task.make()
    ids = EpisodeIds(task.id, f"{task.id}#expert", task.id, task.kind)
    episode = Episode(ids, rules, *environment.reset(seed=int(rng.integers(2**31))))
    expert.reset(episode.observation, episode.info)
    pairs: list[tuple[Situation, str]] = []
    while not episode.ended:
        situation = episode.situation()
        command = expert.act(episode.observation, episode.info)
        if situation.admissible and rng.random() < noise:
            command = situation.admissible[int(rng.integers(len(situation.admissible)))]
        pairs.append((situation, command))
        episode.advance(command, environment.step(command))
    return pairs
