"""Single generated household games for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import Size, named_size, task_instances
from hgpo.envs.alfworld.generation.furnishing import make_game


def numbers(counts: Mapping[str, int], of: str = "games") -> dict[str, int]:
    """Options of a suite for numbers of games or goals: `{"train": 6}` as `{"train_games": 6}`."""
    return {f"{split}_{of}": count for split, count in counts.items()}


def generate_game(
    rng: np.random.Generator,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    task_types: Sequence[str] = TASK_TYPES,
    unseen: bool = False,
) -> Game:
    """One random game."""
    size = named_size(size)
    task_type = task_types[int(rng.integers(len(task_types)))]
    instances = task_instances(size, task_type, unseen)
    return make_game(instances[int(rng.integers(len(instances)))], rng, size=size)
