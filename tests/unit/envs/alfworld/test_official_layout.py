"""A folder as `alfworld-download` leaves it, filled with generated games: what the suite promises about it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import hgpo.envs
from hgpo.envs.alfworld import AlfworldEnv, AlfworldSuite, generate_games
from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.suite import fair_order

COUNTS = {"train": 18, "valid_seen": 6, "valid_unseen": 12}


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second game of each split is marked unsolvable; a split that is none lies beside them."""
    data_dir = tmp_path_factory.mktemp("alfworld")
    generate_games(data_dir / "json_2.1.1", games=COUNTS)
    for split in COUNTS:
        file = game_files(data_dir, split)[1]
        file.write_text(
            json.dumps({**json.loads(file.read_text(encoding="utf-8")), "solvable": False}), encoding="utf-8"
        )
    (data_dir / "json_2.1.1" / "train").rename(data_dir / "json_2.1.1" / "elsewhere")
    (data_dir / "json_2.1.1" / "train").mkdir()
    for folder in sorted((data_dir / "json_2.1.1" / "elsewhere").iterdir(), reverse=True):
        folder.rename(data_dir / "json_2.1.1" / "train" / folder.name)  # so that no order on the disk is the right one
    (data_dir / "json_2.1.1" / "tests_seen").mkdir()
    return data_dir


def game_files(data_dir: Path, split: str) -> list[Path]:
    return sorted((data_dir / "json_2.1.1" / split).glob("*/*/game.tw-pddl"))


@pytest.fixture
def suite(download: Path) -> AlfworldSuite:
    made = hgpo.envs.make("alfworld", data_dir=download)
    assert isinstance(made, AlfworldSuite)
    return made


def ids(suite: hgpo.envs.TaskSuite) -> dict[str, list[str]]:
    return {split: [task.id for task in suite.tasks(split)] for split in suite.splits}


def test_it_is_found_by_folder_and_by_variable(
    suite: AlfworldSuite, download: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    assert ids(hgpo.envs.make("alfworld")) == ids(suite)
    assert ids(hgpo.envs.make("alfworld", data_dir="$ALFWORLD_DATA")) == ids(suite)
    assert ids(hgpo.envs.make("alfworld", data_dir=str(download / "json_2.1.1"))) == ids(suite)


def test_splits_have_their_official_names(suite: AlfworldSuite) -> None:
    assert suite.splits == ("train", "valid_seen", "valid_unseen")


def test_every_solvable_game_is_there_once_in_fair_order(suite: AlfworldSuite, download: Path) -> None:
    for split, found in ids(suite).items():
        solvable = [file for number, file in enumerate(game_files(download, split)) if number != 1]
        names = [f"{file.parent.parent.name}/{file.parent.name}" for file in solvable]
        assert found == [f"{split}/{name}" for name in fair_order(names)]


def test_unsolvable_games_are_left_out_and_counted(suite: AlfworldSuite) -> None:
    assert {split: len(found) for split, found in ids(suite).items()} == {
        split: count - 1 for split, count in COUNTS.items()
    }
    assert {split: suite.skipped(split) for split in suite.splits} == {
        split: {"not marked solvable": 1} for split in COUNTS
    }


def test_a_tasks_kind_is_that_of_its_goal(suite: AlfworldSuite) -> None:
    kinds: Counter[str] = Counter()
    for task in suite.tasks("train"):
        env = task.make()
        assert isinstance(env, AlfworldEnv)
        assert env.game.goal.task_type == task.kind
        kinds[task.kind] += 1
    assert kinds.keys() == set(TASK_TYPES)


def test_every_game_is_won_by_its_walkthrough(suite: AlfworldSuite) -> None:
    for split in suite.splits:
        for task in suite.tasks(split):
            env = task.make()
            assert isinstance(env, AlfworldEnv)
            env.reset()
            assert [env.step(command)[2] for command in env.game.walkthrough][-1]


def test_a_file_that_is_no_game_by_its_size_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train" / "pick_and_place_simple-Mug-None-Desk-1" / "trial_1" / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b" " * 2_000_000)
    with pytest.raises(ValueError, match=r"trial_1/game\.tw-pddl: more than 524,288 bytes"):
        hgpo.envs.make("alfworld", data_dir=tmp_path).tasks("train")
