"""Generated household games for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import SIZES, Size, task_instances
from hgpo.envs.alfworld.generation.furnishing import make_game
from hgpo.envs.alfworld.generation.splits import GeneratedGames
from hgpo.envs.base import SPLITS, named_size


def numbers(counts: Mapping[str, int], of: str = "games") -> dict[str, int]:
    """Options of a suite for numbers of games or goals: `{"train": 6}` as `{"train_games": 6}`."""
    return {f"{split}_{of}": count for split, count in counts.items()}


def generate_splits(
    seed: int,
    counts: Mapping[str, int],
    *,
    size: str | Size | Mapping[str, Any] = "small",
    task_types: Sequence[str] = TASK_TYPES,
) -> dict[str, tuple[Game, ...]]:
    """The games of each split; a split that `counts` lacks has none."""
    made = GeneratedGames(seed, counts, named_size(size, SIZES), task_types)
    return {split: made.of(split) for split in SPLITS}


def generate_game(
    rng: np.random.Generator,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    task_types: Sequence[str] = TASK_TYPES,
    unseen: bool = False,
) -> Game:
    """One random game."""
    size = named_size(size, SIZES)
    task_type = task_types[int(rng.integers(len(task_types)))]
    instances = task_instances(size, task_type, unseen)
    return make_game(instances[int(rng.integers(len(instances)))], rng, size=size)
