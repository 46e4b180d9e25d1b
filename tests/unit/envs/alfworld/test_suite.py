from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from generated_games import numbers
from hgpo.envs import registry
from hgpo.envs.alfworld import alfworld_suite, generate_games
from hgpo.envs.base import Env

FEW = {"train": 24, "valid_seen": 12, "valid_unseen": 6}


@pytest.fixture(autouse=True)
def no_real_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


def first_text(env: Env) -> str:
    return env.reset()[0]


def test_splits_and_numbers_of_tasks() -> None:
    suite = alfworld_suite(**numbers(FEW))
    assert suite.splits == ("train", "valid_seen", "valid_unseen")
    assert {split: len(suite.tasks(split)) for split in suite.splits} == FEW
    ids = [task.id for split in suite.splits for task in suite.tasks(split)]
    assert len(set(ids)) == sum(FEW.values())
    assert suite.tasks("train")[0].id.startswith("train/0000-pick_and_place_simple-")
    assert suite.tasks("train")[0].kind == "pick_and_place_simple"


def test_tasks_are_made_once_and_in_a_fixed_order() -> None:
    suite, again = alfworld_suite(**numbers(FEW)), alfworld_suite(**numbers(FEW))
    assert suite.tasks("train") is suite.tasks("train")
    assert [task.id for task in again.tasks("train")] == [task.id for task in suite.tasks("train")]


def test_each_make_is_a_fresh_game_from_the_same_start() -> None:
    task = alfworld_suite(**numbers(FEW)).tasks("train")[0]
    one, other = task.make(), task.make()
    assert first_text(one) == first_text(other)
    one.step(one.reset()[1]["admissible_commands"][0])
    assert first_text(other) == first_text(task.make())


def test_tasks_can_be_sent_to_other_processes() -> None:
    task = alfworld_suite(**numbers(FEW)).tasks("valid_unseen")[0]
    assert first_text(pickle.loads(pickle.dumps(task)).make()) == first_text(task.make())  # noqa: S301


def test_zero_leaves_a_split_out() -> None:
    suite = alfworld_suite(train_games=7, valid_seen_games=0)
    assert suite.splits == ("train", "valid_unseen")
    assert len(suite.tasks("train")) == 7


def test_options_reach_the_games() -> None:
    suite = alfworld_suite(size="medium", train_games=4, task_types=["pick_two_obj_and_place"], seed=3)
    assert {task.kind for task in suite.tasks("train")} == {"pick_two_obj_and_place"}
    assert 9 <= first_text(suite.tasks("train")[3].make()).count(" a ") - 1 <= 14  # receptacles of a medium game


def test_the_step_limit_is_set_in_one_place_only() -> None:
    """environment.max_steps in a recipe; an option of the suite beside it would be a second one."""
    with pytest.raises(ValueError, match="no option max_steps"):
        registry.make("alfworld", max_steps=5)
    env = alfworld_suite(**numbers(FEW)).tasks("train")[0].make()
    env.reset()
    assert not any(env.step("look")[3] for _ in range(200))


def test_bad_counts_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="games in train = -1; give a whole number"):
        alfworld_suite(train_games=-1)
    with pytest.raises(ValueError, match="unknown size 'huge'"):
        alfworld_suite(size="huge")
    with pytest.raises(ValueError, match=r"pick_and_throw.*give one or more of"):
        alfworld_suite(task_types=["pick_and_throw"])


def test_a_folder_without_games_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no games here; looked for train, .*alfworld-download"):
        alfworld_suite(tmp_path)


def test_options_for_generated_games_do_not_go_with_games_on_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size, seed: only for generated games"):
        alfworld_suite(tmp_path, size="small", seed=1)


def test_folders_are_named_by_variables_and_the_usual_one_counts_only_if_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"\$ALFWORLD_DATA.*not set; export it"):
        alfworld_suite("$ALFWORLD_DATA")
    generate_games(tmp_path / "games", games={"train": 3, "valid_seen": 0, "valid_unseen": 0})
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "games"))
    for suite in (alfworld_suite(), alfworld_suite("$ALFWORLD_DATA")):
        assert len(suite.tasks("train")) == 3
    assert len(alfworld_suite(size="small", train_games=8).tasks("train")) == 8
