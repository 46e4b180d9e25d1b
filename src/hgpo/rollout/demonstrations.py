"""Noisy expert demonstrations: what the agent would have been told at each step, and what was done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgpo.agents import Memory, Situation
from hgpo.envs.base import Expert, Task
from hgpo.rollout.collect import RolloutRules


def demonstrate(
    tasks: Sequence[Task], expert: Expert, rules: RolloutRules, rng: np.random.Generator, *, noise: float
) -> list[tuple[Situation, str]]:
    """Play each task once; every step gives one pair of situation and command.

    With probability `noise` a random admissible command is carried out, and shown, instead of the expert's: the
    imitator meets states off the expert's path, and what it learns leaves room to improve.
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
    observation, info = environment.reset(seed=int(rng.integers(2**31)))
    expert.reset(observation, info)
    memory = Memory(rules.history_length)
    pairs: list[tuple[Situation, str]] = []
    ended = False
    while not ended:
        admissible = tuple(info.get("admissible_commands") or ())
        command = expert.act(observation, info)
        if admissible and rng.random() < noise:
            command = admissible[int(rng.integers(len(admissible)))]
        situation = Situation(str(info.get("task", "")), observation, len(pairs), memory.recent(), admissible)
        pairs.append((situation, command))
        memory.remember(observation, command)
        observation, _, terminated, truncated, info = environment.step(command)
        ended = terminated or truncated
    return pairs
