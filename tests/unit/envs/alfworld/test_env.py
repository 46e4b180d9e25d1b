from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path

import pytest

from generated_games import numbers
from hgpo.envs.alfworld import AlfworldEnv, GameFileError, alfworld_suite
from unit.envs.alfworld.kitchen import game_file, kitchen

FEW_GAMES = {"train": 6, "valid_seen": 0, "valid_unseen": 0}
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
    with pytest.raises(RuntimeError, match=r"^no episode is running; call reset\(\)"):
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


def played_by(env: AlfworldEnv, commands: tuple[str, ...]) -> list[str]:
    return [env.reset()[0], *(env.step(command)[0] for command in commands)]


def test_games_played_in_turn_answer_as_one_by_one() -> None:
    tasks = alfworld_suite(**numbers(FEW_GAMES)).tasks("train")
    games = [task.make().game for task in tasks]  # type: ignore[attr-defined]
    alone = [played_by(AlfworldEnv(game), game.walkthrough) for game in games]
    side_by_side = [AlfworldEnv(game) for game in games]
    answers = [[env.reset()[0]] for env in side_by_side]
    for step in range(max(len(game.walkthrough) for game in games)):
        for env, game, told in zip(side_by_side, games, answers, strict=True):
            if step < len(game.walkthrough):
                told.append(env.step(game.walkthrough[step])[0])
    assert answers == alone


def test_an_environment_is_pickled_in_the_middle_of_a_game() -> None:
    env = AlfworldEnv(kitchen())
    env.reset()
    env.step(WINNING[0])
    copy = pickle.loads(pickle.dumps(env))  # noqa: S301
    assert [copy.step(command) for command in WINNING[1:]] == [env.step(command) for command in WINNING[1:]]


@pytest.mark.slow
def test_a_live_game_takes_little_memory() -> None:
    tasks = alfworld_suite(size="full", **numbers({**FEW_GAMES, "train": 48})).tasks("train")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    environments = [task.make() for task in tasks for _ in range(2)]
    for env in environments:
        env.step(env.reset()[1]["admissible_commands"][-1])
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / len(environments) < 1e6  # bytes
