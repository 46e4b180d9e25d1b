from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from generated_games import generate_game
from hgpo.envs.alfworld import suite as game_folders
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.suite import alfworld_suite, fair_order
from hgpo.envs.alfworld.tw_pddl.reading import GameFileError

PILLOWS = "pick_two_obj_and_place-Pillow-None-Sofa-219"
APPLE = "pick_heat_then_place_in_recep-Apple-None-Fridge-7"


def add(folder: Path, name: str, solvable: bool | None = True) -> None:
    content: dict[str, object] = {"pddl_problem": 'says \\"solvable\\": true', "walkthrough": []}
    if solvable is not None:
        content["solvable"] = solvable
    (folder / name).mkdir(parents=True)
    (folder / name / "game.tw-pddl").write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that were loaded; every file yields some generated game."""
    paths: list[str] = []

    def load(path: str) -> Game:
        paths.append(path)
        return generate_game(np.random.default_rng(0))

    monkeypatch.setattr(game_folders, "load_game", load)
    return paths


@pytest.mark.parametrize("below", ["", "json_2.1.1"])
def test_games_are_found_as_downloaded_and_in_fair_order(tmp_path: Path, below: str) -> None:
    add(tmp_path / below / "valid_seen", f"{PILLOWS}/trial_2")
    add(tmp_path / below / "valid_seen", f"{PILLOWS}/trial_1")
    add(tmp_path / below / "valid_seen", f"{APPLE}/trial_9")
    add(tmp_path / below / "train", f"{APPLE}/trial_3")
    (tmp_path / below / "tests_seen").mkdir()
    suite = alfworld_suite(tmp_path)
    assert suite.splits == ("train", "valid_seen")
    tasks = suite.tasks("valid_seen")
    kinds = {
        f"valid_seen/{APPLE}/trial_9": "pick_heat_then_place_in_recep",
        f"valid_seen/{PILLOWS}/trial_1": "pick_two_obj_and_place",
        f"valid_seen/{PILLOWS}/trial_2": "pick_two_obj_and_place",
    }
    assert {task.id: task.kind for task in tasks} == kinds
    assert [task.id for task in tasks] == [
        f"valid_seen/{name}" for name in fair_order(task_id.removeprefix("valid_seen/") for task_id in kinds)
    ]


def test_the_first_games_are_a_fair_sample_of_all() -> None:
    names = [f"{kind}-{number}/trial" for kind in TASK_TYPES for number in range(300)]
    ordered = fair_order(names)
    assert sorted(ordered) == sorted(names)
    assert fair_order(reversed(names)) == ordered
    first = Counter(name.partition("-")[0] for name in ordered[:180])
    assert all(15 <= first[kind] <= 45 for kind in TASK_TYPES), first  # 30 of each on average, deviation 4.7


def test_the_order_is_fixed_for_good() -> None:
    assert fair_order(["b/1", "a/1", "a/2"]) == ["a/2", "a/1", "b/1"]


def test_only_the_task_types_asked_for(tmp_path: Path) -> None:
    add(tmp_path / "train", f"{APPLE}/trial_1")
    add(tmp_path / "train", f"{PILLOWS}/trial_1")
    suite = alfworld_suite(tmp_path, task_types=["pick_two_obj_and_place"])
    assert [task.id for task in suite.tasks("train")] == [f"train/{PILLOWS}/trial_1"]
    assert suite.skipped("train") == {}


def test_a_game_is_loaded_when_it_is_first_played_and_kept(tmp_path: Path, loaded: list[str]) -> None:
    add(tmp_path / "train", f"{APPLE}/trial_1")
    add(tmp_path / "train", f"{APPLE}/trial_2")
    tasks = alfworld_suite(tmp_path).tasks("train")
    assert loaded == []
    first, second = tasks[1].make(), tasks[1].make()
    assert loaded == [str(tmp_path / "train" / APPLE / "trial_2" / "game.tw-pddl")]
    assert first.reset() == second.reset()


def test_a_damaged_game_is_named_when_it_is_played(tmp_path: Path) -> None:
    add(tmp_path / "train", f"{APPLE}/trial_1")
    with pytest.raises(GameFileError, match=r"trial_1/game\.tw-pddl"):
        alfworld_suite(tmp_path).tasks("train")[0].make()
