"""Episodes, splits and the template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from environment_packages import EnvironmentPackage, solved
from hgpo.agents.prompts import TEMPLATES, AgentContext
from hgpo.config import load_config
from hgpo.config.recipes import recipe_named
from hgpo.envs import make
from hgpo_sokoban import SokobanEnv, sokoban_suite
from hgpo_sokoban.solver import solve

COUNTS = {"train": 40, "valid_seen": 16, "valid_unseen": 16}
BOARDS: dict[str, Any] = {f"{split}_boards": count for split, count in COUNTS.items()}


@pytest.mark.parametrize("split", COUNTS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_expert_solves_every_board_also_from_where_others_walked(split: str, noise: float) -> None:
    def moves(commands: Sequence[str]) -> list[str]:
        return [command for command in commands if command.startswith("move")]

    assert solved(sokoban_suite(**BOARDS), split, 60, noise, moves) == COUNTS[split]


def starts(split: str, **options: Any) -> list[str]:
    return [task.make().reset()[0] for task in sokoban_suite(**BOARDS, **options).tasks(split)]


@pytest.mark.parametrize("split", COUNTS)
def test_a_seed_gives_the_same_boards_and_another_gives_others(split: str) -> None:
    assert starts(split) == starts(split)
    assert not set(starts(split)) & set(starts(split, seed=1))


def turned(state: str) -> set[str]:
    """The floor, boxes and goals of a map, turned and mirrored in all eight ways."""
    grid = np.array([list(row) for row in state.replace("@", "-").replace("+", ".").split("\n")])
    views = [np.rot90(one, times) for one in (grid, grid.T) for times in range(4)]
    return {"\n".join(map("".join, view)) for view in views}


def test_no_board_of_training_is_in_another_split_turned_or_mirrored() -> None:
    size = {"rows": 3, "columns": 3, "boxes": 1, "walls": 0, "pulls": 4}  # few boards: some are drawn again
    suite = sokoban_suite(**size, **BOARDS)
    boards = {
        split: set().union(*(turned(task.make().state_key()) for task in suite.tasks(split))) for split in suite.splits
    }
    assert len({task.make().state_key() for task in suite.tasks("train")}) < COUNTS["train"]
    assert not boards["train"] & boards["valid_seen"]
    assert not (boards["train"] | boards["valid_seen"]) & boards["valid_unseen"]


def test_unseen_boards_have_other_sizes_or_one_box_more() -> None:
    suite = sokoban_suite(**BOARDS)
    kinds = {split: {task.kind for task in suite.tasks(split)} for split in suite.splits}
    assert kinds == {
        "train": {"4x4, 2 boxes"},
        "valid_seen": {"4x4, 2 boxes"},
        "valid_unseen": {"5x5, 2 boxes", "4x4, 3 boxes"},
    }
    ids = [task.id for split in suite.splits for task in suite.tasks(split)]
    assert len(ids) == len(set(ids)) == sum(COUNTS.values())


@pytest.mark.parametrize("recipe", ["sokoban-tiny", "sokoban-language-model"])
def test_every_board_that_a_recipe_evaluates_can_be_won_within_its_limit(recipe: str) -> None:
    config = load_config(recipe_named(recipe))
    environment = config.environment
    tasks = make("sokoban", **environment.options).tasks(config.evaluation.split)
    lengths = [len(solve(task.make().state_key()) or ()) for task in tasks]
    assert 0 < min(lengths) <= max(lengths) <= environment.max_steps


def test_the_largest_boards_have_no_larger_ones() -> None:
    suite = sokoban_suite(rows=20, columns=20, train_boards=1, valid_unseen_boards=0)
    assert suite.tasks("train")[0].make().state_key().count("\n") == 21
    with pytest.raises(ValueError, match=r"set valid_unseen_boards=0 .*rows=21, columns=21.*400 cells"):
        sokoban_suite(rows=20, columns=20)


def test_the_observation_names_what_is_next_to_the_player() -> None:
    environment = SokobanEnv("#####\n#.*-#\n#-@$#\n#####")
    observation, info = environment.reset()
    assert observation == "#####\n#.*-#\n#-@$#\n#####\nBeside you: up box on a goal, down wall, left floor, right box."
    assert info["admissible_commands"] == ["move left"]
    assert environment.state_key() == "#####\n#.*-#\n#-@$#\n#####"
    observation, *_, info = environment.step("push right")
    assert environment.state_key() == "#####\n#.*-#\n#-@$#\n#####"
    assert not info["won"]


def test_the_identity_is_that_of_the_start() -> None:
    first, second = (task.make() for task in sokoban_suite(**BOARDS).tasks("train")[:2])
    first.reset()
    known = first.identity()
    first.step(first.solution[0])
    assert first.identity() == known != second.identity()


def test_an_episode_ends_once() -> None:
    environment = SokobanEnv("######\n#@$.-#\n######")
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("push right")
    environment.reset()
    assert environment.step("push right")[1:4] == (1.0, True, False)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("push right")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boxes": 0}, "a box or more"),
        ({"rows": 30, "columns": 30}, "400 cells"),
        ({"height": 3}, "no option height"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_options_are_rejected_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("sokoban", **options)


def test_a_prompt_has_places_as_seen_from_the_player() -> None:
    template = TEMPLATES.get("sokoban-compact")
    context = AgentContext(
        task="push",
        observation="#####\n#.-$#\n#-@-#\n#####\nBeside you: up floor, down wall, left floor, right floor.",
        step=1,
        history=(("a map", "move up"), ("another map", "move down")),
        admissible=("move up", "move left"),
    )
    assert template.render(context) == (
        "past : move up ; move down now : box up 1 right 1 goal up 1 left 1 ##### #.-$# #-@-# ##### "
        "can : move up ; move left"
    )
    assert template.render(AgentContext(task="", observation="no  map", step=0, admissible=("go",))) == (
        "now : no map can : go"
    )


class TestPackage(EnvironmentPackage):
    name = "sokoban"
    settings = ("rollout.state=simulator",)
