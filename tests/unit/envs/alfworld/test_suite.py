from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from hgpo.envs import registry
from hgpo.envs.alfworld import suite as suite_module
from hgpo.envs.alfworld.suite import alfworld_suite, generate_games
from hgpo.envs.base import Env

FEW = {"train": 24, "valid_seen": 12, "valid_unseen": 6}


@pytest.fixture(autouse=True)
def no_real_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


def first_text(env: Env) -> str:
    return env.reset()[0]


def test_splits_and_numbers_of_tasks() -> None:
    suite = alfworld_suite(games=FEW)
    assert suite.splits == ("train", "valid_seen", "valid_unseen")
    assert {split: len(suite.tasks(split)) for split in suite.splits} == FEW
    ids = [task.id for split in suite.splits for task in suite.tasks(split)]
    assert len(set(ids)) == sum(FEW.values())
    assert suite.tasks("train")[0].id.startswith("train/0000-pick_and_place_simple-")
    assert suite.tasks("train")[0].kind == "pick_and_place_simple"


def test_tasks_are_made_once_and_in_a_fixed_order() -> None:
    suite, again = alfworld_suite(games=FEW), alfworld_suite(games=FEW)
    assert suite.tasks("train") is suite.tasks("train")
    assert [task.id for task in again.tasks("train")] == [task.id for task in suite.tasks("train")]


def test_each_make_is_a_fresh_game_from_the_same_start() -> None:
    task = alfworld_suite(games=FEW).tasks("train")[0]
    one, other = task.make(), task.make()
    assert first_text(one) == first_text(other)
    one.step(one.reset()[1]["admissible_commands"][0])
    assert first_text(other) == first_text(task.make())


def test_tasks_can_be_sent_to_other_processes() -> None:
    task = alfworld_suite(games=FEW).tasks("valid_unseen")[0]
    assert first_text(pickle.loads(pickle.dumps(task)).make()) == first_text(task.make())  # noqa: S301


def test_single_counts_go_before_the_table_and_zero_leaves_a_split_out() -> None:
    suite = alfworld_suite(games=FEW, train_games=7, valid_seen_games=0)
    assert suite.splits == ("train", "valid_unseen")
    assert len(suite.tasks("train")) == 7


def test_options_reach_the_games() -> None:
    suite = alfworld_suite(size="medium", train_games=4, task_types=["pick_two_obj_and_place"], seed=3, max_steps=2)
    task = suite.tasks("train")[3]
    assert task.kind == "pick_two_obj_and_place"
    env = task.make()
    env.reset()
    assert [env.step("look")[3] for _ in range(2)] == [False, True]


def test_the_registry_takes_its_options() -> None:
    registry.check_options("alfworld", alfworld_suite, {"size": "small", "train_games": 5})
    with pytest.raises(ValueError, match="no option colour"):
        registry.check_options("alfworld", alfworld_suite, {"colour": "red"})


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(ValueError, match="unknown split 'test'; this suite has train, valid_seen, valid_unseen"):
        alfworld_suite(games=FEW).tasks("test")


def test_bad_counts_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        alfworld_suite(games={"dev": 4})
    with pytest.raises(ValueError, match="unknown size 'huge'"):
        alfworld_suite(size="huge")


def test_written_games_are_the_generated_ones(tmp_path: Path) -> None:
    files = generate_games(tmp_path / "games", games=FEW, seed=2)
    assert {split: path.name for split, path in files.items()} == {split: f"{split}.jsonl" for split in FEW}
    on_disk, generated = alfworld_suite(tmp_path / "games"), alfworld_suite(games=FEW, seed=2)
    assert on_disk.splits == generated.splits
    for split in FEW:
        assert [task.id for task in on_disk.tasks(split)] == [task.id for task in generated.tasks(split)]
        assert first_text(on_disk.tasks(split)[-1].make()) == first_text(generated.tasks(split)[-1].make())
    made_from = json.loads((tmp_path / "games" / "generated.json").read_text(encoding="utf-8"))
    assert (made_from["seed"], made_from["games"]) == (2, FEW)


def test_task_types_filter_games_on_disk(tmp_path: Path) -> None:
    generate_games(tmp_path / "games", games=FEW)
    tasks = alfworld_suite(tmp_path / "games", task_types=["look_at_obj_in_light"]).tasks("train")
    assert {task.kind for task in tasks} == {"look_at_obj_in_light"}
    assert len(tasks) == 4


def test_games_are_not_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "games"
    generate_games(out, games=FEW)
    with pytest.raises(FileExistsError, match="games exists; choose another folder"):
        generate_games(out, games=FEW, seed=1)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    generate_games(out, games={"train": 5, "valid_seen": 0, "valid_unseen": 0}, seed=1, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["generated.json", "notes.txt", "train.jsonl"]
    assert len(alfworld_suite(out).tasks("train")) == 5


def test_an_empty_folder_may_be_filled_and_nothing_else_stays(tmp_path: Path) -> None:
    out = tmp_path / "new" / "games"
    out.mkdir(parents=True)
    generate_games(out, games={"train": 3, "valid_seen": 0, "valid_unseen": 0})
    assert [path.name for path in out.parent.iterdir()] == ["games"]


def test_a_failed_generation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(suite_module, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        generate_games(tmp_path / "games", games=FEW)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_games_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no games here; looked for train, .*alfworld-download"):
        alfworld_suite(tmp_path)


def test_options_for_generated_games_do_not_go_with_games_on_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size, seed: only for generated games"):
        alfworld_suite(tmp_path, size="small", seed=1)


def test_the_environment_variable_counts_only_if_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_games(tmp_path / "games", games={"train": 3, "valid_seen": 0, "valid_unseen": 0})
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "games"))
    assert len(alfworld_suite().tasks("train")) == 3
    assert len(alfworld_suite(size="small", train_games=8).tasks("train")) == 8
