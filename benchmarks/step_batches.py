"""Batches of agent steps of any size, made from a seed: text observations that repeat as a household game's do.

Shapes: N steps, S distinct situations of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRAJECTORIES = 8
STEPS = 50
PLACES = 16
EVENTS = 3
"""Things that can happen once in a trajectory (something taken, opened, heated), each at one place of the task."""

FURNITURE = ("cabinet", "drawer", "shelf", "fridge", "countertop", "desk", "sidetable", "garbagecan")
OBJECTS = ("apple", "saltshaker", "keychain", "cellphone", "butterknife", "peppershaker", "dishsponge", "soapbottle")
DONE = ("a mug was taken", "the fridge was opened", "a plate was cleaned")


@dataclass(frozen=True, slots=True, eq=False)
class RawBatch:
    """Steps as a rollout hands them over: one Python list per column, a text per observation.

    Attributes:
        group, trajectory: ids, one object per task or trajectory. step, reward: int and float.
        situation_N: int64[N], which text each step shows. parts_S: each distinct text in two halves.

    Example: `RawBatch.make(16)` is the paper's batch: 16 tasks × 8 trajectories × 50 steps = 6,400 steps.
    """

    group: list[str]
    trajectory: list[str]
    step: list[int]
    reward: list[float]
    situation_N: NDArray[np.int64]
    parts_S: list[tuple[str, str]]

    @classmethod
    def make(cls, tasks: int, seed: int = 0, trajectories: int = TRAJECTORIES, steps: int = STEPS) -> RawBatch:
        """`tasks` × `trajectories` × `steps` steps; the last reward of a trajectory is 10 or 0."""
        rng = np.random.default_rng(seed)
        count = tasks * trajectories
        task_M = np.repeat(np.arange(tasks), trajectories)
        key_MT = task_M[:, None] * (PLACES << EVENTS) + _walks(rng, task_M, steps)
        key_S, situation_N = np.unique(key_MT.ravel(), return_inverse=True)
        won_M = rng.random(count) < rng.uniform(0.1, 0.9, tasks)[task_M]
        reward_MT = np.zeros((count, steps))
        reward_MT[won_M, -1] = 10.0

        group_M = [f"task {task}" for task in range(tasks)]
        trajectory_M = [f"{high:016x}-{m:08x}" for m, high in enumerate(rng.integers(0, 2**63, count).tolist())]
        return cls(
            group=[group_M[task] for task in task_M.tolist() for _ in range(steps)],
            trajectory=[name for name in trajectory_M for _ in range(steps)],
            step=list(range(steps)) * count,
            reward=reward_MT.ravel().tolist(),
            situation_N=situation_N,
            parts_S=[_text(*divmod(key, PLACES << EVENTS)) for key in key_S.tolist()],
        )

    def __len__(self) -> int:
        """Return the number of steps N."""
        return len(self.step)

    def observations(self) -> list[str]:
        """One new text per step, as environments make them: no two steps share an object or a cached hash."""
        parts_S = self.parts_S
        return [parts_S[s][0] + parts_S[s][1] for s in self.situation_N.tolist()]

    def columns(self) -> dict[str, Any]:
        """Keywords of `StepBatch.from_columns`, with new observation texts."""
        return {
            "group": self.group,
            "trajectory": self.trajectory,
            "step": self.step,
            "observation": self.observations(),
            "reward": self.reward,
        }


def _walks(rng: np.random.Generator, task_M: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Place and events so far of each step, as one number below `PLACES << EVENTS`.

    From most places most trajectories of a task go on to the same next place; the rest go anywhere.
    """
    tasks, count = int(task_M[-1]) + 1, len(task_M)
    usual_GP = rng.integers(0, PLACES, (tasks, PLACES))
    event_place_GE = rng.integers(0, PLACES, (tasks, EVENTS))
    place_M, events_M = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    key_MT = np.empty((count, steps), dtype=np.int64)
    for step in range(steps):
        key_MT[:, step] = (place_M << EVENTS) | events_M
        for event in range(EVENTS):
            happens_M = (event_place_GE[task_M, event] == place_M) & (rng.random(count) < 0.2)
            events_M |= happens_M.astype(np.int64) << event
        usual_M = rng.random(count) < 0.5
        place_M = np.where(usual_M, usual_GP[task_M, place_M], rng.integers(0, PLACES, count))
    return key_MT


def _text(task: int, state: int) -> tuple[str, str]:
    """About 300 characters for one situation, in two halves that are joined anew for each step."""
    place, events = state >> EVENTS, state & ((1 << EVENTS) - 1)
    name = f"{FURNITURE[place % len(FURNITURE)]} {place // len(FURNITURE) + 1}"
    seen = [
        f"a {OBJECTS[(task * 7 + place * 3 + i * 5) % len(OBJECTS)]} {(task + place + i) % 3 + 1}" for i in range(9)
    ]
    past = [text for event, text in enumerate(DONE) if events >> event & 1]
    head = f"You arrive at {name} in house {task}. On the {name}, you see {', '.join(seen)}, and a lettuce 1. "
    return head, f"So far: {', '.join(past) or 'nothing has changed'}. The {name} is where you stand now."
