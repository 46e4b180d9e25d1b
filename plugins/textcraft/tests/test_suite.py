"""Generated worlds: the same for a seed, solvable, and apart where splits have to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environment_packages import solved
from hgpo.envs import make
from hgpo_textcraft.suite import textcraft_suite
from hgpo_textcraft.worlds import WorldSize, generate_world

COUNTS = {"train": 24, "valid_seen": 8, "valid_unseen": 8}
GOALS: dict[str, Any] = {f"{split}_goals": count for split, count in COUNTS.items()}


@pytest.mark.parametrize("size", ["small", "medium", {"layers": 3, "groups": 2, "ingredients": 3, "most": 2}])
@pytest.mark.parametrize("mode", ["text", pytest.param("inventory", marks=pytest.mark.slow)])
def test_the_expert_solves_every_generated_task(size: Any, mode: str) -> None:
    suite = textcraft_suite(size=size, **GOALS, observation_mode=mode)
    assert {split: solved(suite, split, 300) for split in suite.splits} == COUNTS


def test_the_expert_recovers_from_commands_of_others() -> None:
    assert solved(textcraft_suite(**GOALS), "train", 300, noise=0.3) == COUNTS["train"]


def test_a_seed_gives_the_same_tasks_and_another_gives_others() -> None:
    def texts(seed: int) -> list[str]:
        suite = textcraft_suite(**GOALS, seed=seed)
        return [task.make().reset()[0] for split in suite.splits for task in suite.tasks(split)]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_no_recipe_takes_one_ingredient_twice() -> None:
    size = WorldSize(raw=3, groups=4, ingredients=3, words=2, vocabulary=3)  # groups with equal names
    for number in range(20):
        for recipe in generate_world(size, 0, number).book.recipes:
            assert len({part.id for part in recipe.ingredients}) == len(recipe.ingredients)


def test_splits_share_no_goal_and_unseen_worlds_are_others() -> None:
    suite = textcraft_suite(**GOALS)
    worlds = {split: {task.id.split("-")[1] for task in suite.tasks(split)} for split in suite.splits}
    texts = {split: {task.make().reset()[0] for task in suite.tasks(split)} for split in suite.splits}
    assert worlds["valid_seen"] <= worlds["train"]
    assert not worlds["valid_unseen"] & worlds["train"]
    assert not texts["valid_seen"] & texts["train"]


def test_admissible_commands_are_possible_and_the_expert_keeps_to_them() -> None:
    suite = textcraft_suite(train_goals=6, valid_seen_goals=0, valid_unseen_goals=0, size="medium")
    for task in suite.tasks("train"):
        environment, expert = task.make(), suite.expert()
        observation, info = environment.reset()
        expert.reset(observation, info)
        while not info["won"]:
            command = expert.act(observation, info)
            assert command in info["admissible_commands"]
            observation, *_, info = environment.step(command)
            assert observation.startswith(("Got ", "Crafted "))


def test_minecraft_recipes_hold_out_one_goal_in_five(tmp_path: Path) -> None:
    for number in range(40):
        for made, used in ((f"part{number}", "log"), (f"thing{number}", f"part{number}")):
            recipe = {
                "type": "minecraft:crafting_shapeless",
                "ingredients": [{"item": f"minecraft:{used}"}],
                "result": f"minecraft:{made}",
            }
            (tmp_path / f"{made}.json").write_text(json.dumps(recipe), encoding="utf-8")
    suite = textcraft_suite(tmp_path)
    goals = {split: {task.id.split("-")[1] for task in suite.tasks(split)} for split in suite.splits}
    assert goals["train"] == goals["valid_seen"]
    assert not goals["train"] & goals["valid_unseen"]
    assert len(goals["train"] | goals["valid_unseen"]) == 40
    assert solved(suite, "valid_unseen", 300) == len(goals["valid_unseen"]) > 0
    first = [suite.tasks(split)[0].make().reset()[0] for split in ("train", "valid_seen")]
    assert first[0] != first[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "unknown size 'huge'"),
        ({"size": {"raw": 0}}, "raw: Input should be greater than or equal to 1"),
        ({"size": {"rows": 3}}, "rows: Unexpected keyword"),
        ({"size": {"layers": 8, "width": 40}}, "320 crafted items, but there are 44 and 123 names"),
        ({"size": {"width": 1, "layers": 2}}, "only one goal"),
        ({"train_goals": 3, "valid_seen_goals": 100}, "reserve only"),
        (
            {"train_goals": 3_000_001},
            "train: 3000001 goals requested; give at most 3000000: later worlds belong",
        ),
        ({"observation_mode": "brief"}, "choose one of text, inventory"),
        ({"seed": -1}, "seed = -1"),
        ({"data_dir": "somewhere", "size": "small"}, "only for generated worlds"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("textcraft", **options)


def test_an_episode_ends_once() -> None:
    [task] = textcraft_suite(train_goals=1, valid_seen_goals=0, valid_unseen_goals=0).tasks("train")
    environment = task.make()
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("inventory")
