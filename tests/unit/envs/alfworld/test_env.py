from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.envs.alfworld import AlfworldEnv, GameFileError
from unit.envs.alfworld.kitchen import game_file, kitchen

WINNING = ["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 1"]


def test_reset_and_step_give_the_same_keys() -> None:
    env = AlfworldEnv(kitchen())
    observation, info = env.reset(seed=5)
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\n")
    assert set(info) == {"admissible_commands", "won", "task", "task_type"}
    assert info["task"] == "put some apple on shelf."
    assert info["task_type"] == "pick_and_place_simple"
    assert set(env.step("look")[4]) == set(info)


def test_one_reward_on_the_winning_step() -> None:
    env = AlfworldEnv(kitchen())
    env.reset()
    results = [env.step(command)[1:4] for command in WINNING]
    assert results == [(0.0, False, False), (0.0, False, False), (1.0, True, False)]


def test_no_step_limit_unless_one_is_given() -> None:
    env = AlfworldEnv(kitchen())
    env.reset()
    assert not any(env.step("look")[3] for _ in range(500))


def test_step_limit_truncates_and_a_win_on_the_last_step_counts() -> None:
    env = AlfworldEnv(kitchen(), max_steps=3)
    env.reset()
    assert [env.step("nonsense")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset()
    assert [env.step(command)[2:4] for command in WINNING][-1] == (True, False)


def test_no_step_outside_an_episode() -> None:
    env = AlfworldEnv(kitchen(), max_steps=1)
    with pytest.raises(RuntimeError, match=r"kitchen: no episode is running; call reset\(\)"):
        env.step("look")
    env.reset()
    env.step("look")
    with pytest.raises(RuntimeError, match="no episode is running"):
        env.step("look")


def test_seeds_do_not_matter_and_resets_are_equal() -> None:
    env = AlfworldEnv(kitchen())
    first = env.reset(seed=1)
    env.step("go to countertop 1")
    assert env.reset(seed=2) == first == AlfworldEnv(kitchen()).reset()


def test_the_list_of_commands_is_the_callers_own() -> None:
    env = AlfworldEnv(kitchen())
    _, info = env.reset()
    info["admissible_commands"].clear()
    assert "look" in env.step("look")[4]["admissible_commands"]


def test_a_game_file_is_played(tmp_path: Path) -> None:
    file = tmp_path / "game.tw-pddl"
    file.write_text(game_file(), encoding="utf-8")
    for path in (file, str(file)):
        env = AlfworldEnv(path)
        env.reset()
        assert [env.step(command)[2] for command in env.game.walkthrough] == [False, False, True]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_steps is 0; give a positive number, or None for no limit"):
        AlfworldEnv(kitchen(), max_steps=0)
    with pytest.raises(GameFileError, match="nowhere"):
        AlfworldEnv(tmp_path / "nowhere")
