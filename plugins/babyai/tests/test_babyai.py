"""Episodes, splits, expert and template. The tests need minigrid: `make babyai-test`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from environment_packages import EnvironmentPackage, solved
from hgpo.agents.prompts import AgentContext
from hgpo.config import load_config
from hgpo.config.recipes import recipe_named
from hgpo.envs import make
from hgpo.envs.base import Task

suites = pytest.importorskip("hgpo_babyai.suite", reason="minigrid is not installed; run `make babyai-test`")
env = pytest.importorskip("hgpo_babyai.env")
template = pytest.importorskip("hgpo_babyai.template")

COUNTS = {"train": 25, "valid_seen": 15, "valid_unseen": 15}
GAMES: dict[str, Any] = {f"{split}_games": count for split, count in COUNTS.items()}
UNSEEN, EMPTY, WALL, DOOR, KEY, BALL = 0, 1, 2, 4, 5, 6
RED, GREEN, BLUE = 0, 1, 2


@pytest.mark.parametrize("split", COUNTS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_expert_fulfils_every_mission_also_after_commands_of_others(split: str, noise: float) -> None:
    def others(commands: Sequence[str]) -> list[str]:
        return ["turn left", "turn right", "go forward", "look around"]

    assert solved(suites.babyai_suite(**GAMES), split, 120, noise, others) == COUNTS[split]


def test_the_expert_keeps_on_after_its_bot_gave_up() -> None:
    environment, expert = env.BabyAIEnv("GoToLocalS8N5", 1_000_000_000), suites.BabyAIExpert()
    for seed in range(100):
        environment.seed = seed
        observation, info = environment.reset()
        expert.reset(observation, info)
        for _ in range(40):
            wanted = "toggle" if "toggle" in info["admissible_commands"] else expert.act(observation, info)
            observation, _, terminated, truncated, info = environment.step(wanted)
            if terminated or truncated:
                break
            if wanted == "toggle":
                assert expert.act(observation, info) == info["admissible_commands"][0] == "turn left"
                return
    pytest.fail("no box was opened in 100 games")


def starts(split: str, **options: Any) -> list[tuple[str, str]]:
    made = [task.make() for task in suites.babyai_suite(**GAMES, **options).tasks(split)]
    return [(one.reset(seed=number)[0], one.identity()["game"]) for number, one in enumerate(made)]


@pytest.mark.parametrize("split", COUNTS)
def test_a_seed_gives_the_same_games_and_another_gives_others(split: str) -> None:
    games = starts(split)
    assert starts(split) == games
    assert not {game for _, game in games} & {game for _, game in starts(split, seed=1)}


def test_splits_share_no_game_and_unseen_levels_are_others() -> None:
    suite = suites.babyai_suite(**GAMES)
    games = [game for split in suite.splits for _, game in starts(split)]
    assert len(set(games)) == len(games) == sum(COUNTS.values())
    levels = {split: {task.id.split("-")[1] for task in suite.tasks(split)} for split in suite.splits}
    assert levels["train"] == levels["valid_seen"]
    assert not levels["train"] & levels["valid_unseen"]
    assert {task.kind for task in suite.tasks("valid_unseen")} == set(suites.LEVELS)


def test_admissible_commands_are_those_that_change_something() -> None:
    """Tried in all states of random episodes: commands that are not offered, then one that is."""
    rng = np.random.default_rng(0)
    tried = set()
    for task in suites.babyai_suite(train_games=40, valid_seen_games=0, valid_unseen_games=0).tasks("train"):
        environment = task.make()
        _, info = environment.reset()
        ended = False
        for _ in range(30):
            before = environment.state_key()
            for command in [*env.COMMANDS, "sing"]:
                if command not in info["admissible_commands"] and not ended:
                    *_, ended, _ = environment.step(command)
                    assert environment.state_key() == before, command
            if ended:
                break
            command = str(rng.choice(info["admissible_commands"]))
            tried.add(command)
            _, _, won, cut, info = environment.step(command)
            assert environment.state_key() != before, command
            ended = won or cut
            if ended:
                break
    assert tried == set(env.COMMANDS)


def image(cells: dict[tuple[int, int], tuple[int, int, int]]) -> np.ndarray:
    seen = np.zeros((7, 7, 3), dtype=np.uint8)
    seen[:, :, 0] = EMPTY
    for place, cell in cells.items():
        seen[place] = cell
    return seen


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({}, "You see nothing. You carry nothing."),
        (
            {(3, 4): (BALL, RED, 0), (2, 4): (KEY, BLUE, 0), (3, 6): (KEY, RED, 0)},
            "You see a red ball 2 ahead, a blue key 2 ahead and 1 left. You carry a red key.",
        ),
        (
            {(3, 1): (DOOR, GREEN, 0), (4, 6): (DOOR, GREEN, 1), (0, 0): (DOOR, RED, 2)},
            "You see a closed green door 1 right, an open green door 5 ahead, a locked red door 6 ahead and 3 left. "
            "You carry nothing.",
        ),
        (
            {
                (3, 3): (WALL, 5, 0),
                (3, 2): (WALL, 5, 0),
                (1, 6): (WALL, 5, 0),
                (0, 6): (WALL, 5, 0),
                (6, 0): (WALL, 5, 0),
            },
            "You see a wall 2 left, a wall 3 ahead. You carry nothing.",
        ),
        ({(5, 5): (UNSEEN, 0, 0)}, "You see nothing. You carry nothing."),
    ],
)
def test_a_view_is_described(cells: dict[tuple[int, int], tuple[int, int, int]], text: str) -> None:
    assert env.view_text(image(cells)) == text


def test_the_expert_survives_a_door_that_another_policy_closed_behind_it() -> None:
    environment, expert = env.BabyAIEnv("OpenDoorColor", 56), suites.BabyAIExpert()
    seen = environment.reset()
    expert.reset(*seen)
    names = {"l": "turn left", "r": "turn right", "f": "go forward", "t": "toggle"}
    for letter in "lfrrrfffffrtfffllft":
        expert.act(*seen)
        observation, _, terminated, truncated, info = environment.step(names[letter])
        seen = observation, info
        assert not terminated
        assert not truncated
    assert expert.act(*seen) in env.COMMANDS


def test_an_episode_ends_once_and_its_info_is_plain_data() -> None:
    environment = env.BabyAIEnv("GoToLocalS6N3", 7)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("turn left")
    _, info = environment.reset()
    assert json.loads(json.dumps(info["session"])) == {"level": "GoToLocalS6N3", "seed": 7, "commands": []}
    for step in range(36):
        *_, truncated, info = environment.step("wait")
        assert truncated == (step == 35)
    assert not info["won"]
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("turn left")


def test_rejected_drafts_of_a_level_are_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "hgpo_babyai.env"):
        for seed in range(20):
            env.BabyAIEnv("PutNextLocalS5N3", seed).reset()
    assert "Sampling rejected" in caplog.text
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_types": ["go_to", "sing"]}, "give one or more of go_to"),
        ({"task_types": []}, "give one or more of go_to"),
        ({"level": "GoTo"}, "no option level"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_options_are_rejected_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("babyai", **options)


def test_a_prompt_leaves_out_what_every_observation_repeats() -> None:
    context = AgentContext(
        task="open the red door",
        observation="You see a red ball 2 ahead and 1 left, an open red door 3 ahead. You carry nothing.",
        step=1,
        history=(("You see nothing. You carry a blue key.", "drop"),),
        admissible=("turn left", "go forward"),
    )
    assert template.BABYAI_COMPACT.render(context) == (
        "task : open the red door past : carry blue key > drop now : red ball 2 ahead 1 left , open red door 3 ahead "
        "carry can : turn left ; go forward"
    )


class TestPackage(EnvironmentPackage):
    name = "babyai"
    settings = ("rollout.state=simulator",)


@pytest.mark.slow
def test_the_readme_counts_the_games_that_the_recipes_evaluation_shares_with_its_training() -> None:
    def game(task: Task) -> tuple[Any, ...]:
        environment = task.make()
        environment.reset()
        world = environment.world.unwrapped  # type: ignore[attr-defined]
        return world.mission, world.grid.encode().tobytes(), tuple(world.agent_pos), world.agent_dir

    suite = make("babyai", **load_config(recipe_named("babyai-tiny")).environment.options)
    train, held_out = (set(map(game, suite.tasks(split))) for split in ("train", "valid_seen"))
    assert (len(held_out), len(train & held_out)) == (256, 1)
