from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from generated_games import numbers
from hgpo.envs.alfworld import alfworld_suite, generate_games
from hgpo.envs.alfworld.game import Game
from hgpo.envs.alfworld.suite import fair_order
from hgpo.envs.alfworld.tw_pddl import writing
from hgpo.envs.base import Task
from hgpo.utils.files import exclusive_path

FEW = {"train": 24, "valid_seen": 12, "valid_unseen": 6}
TRAIN_ONLY = {"train": 3, "valid_seen": 0, "valid_unseen": 0}


def first_texts(tasks: list[Task]) -> list[str]:
    return sorted(task.make().reset()[0] for task in tasks)


def test_one_folder_per_game_as_published(tmp_path: Path) -> None:
    folders = generate_games(tmp_path / "games", games=FEW, seed=2)
    assert folders == {split: tmp_path / "games" / split for split in FEW}
    for split, count in FEW.items():
        games = sorted(folders[split].glob("*/trial_*/game.tw-pddl"))
        assert len(games) == count
        assert all((file.parent / "traj_data.json").is_file() for file in games)
        names = [f"{file.parent.parent.name}/{file.parent.name}" for file in games]
        for task, name in zip(alfworld_suite(tmp_path / "games").tasks(split), fair_order(names), strict=True):
            assert task.id == f"{split}/{name}"
            assert task.kind == name.partition("-")[0]


def test_written_games_are_the_generated_ones(tmp_path: Path) -> None:
    generate_games(tmp_path / "games", games=FEW, seed=2)
    on_disk, generated = alfworld_suite(tmp_path / "games"), alfworld_suite(**numbers(FEW), seed=2)
    assert on_disk.splits == generated.splits
    for split in FEW:
        assert first_texts(list(on_disk.tasks(split))) == first_texts(list(generated.tasks(split)))
    made_from = json.loads((tmp_path / "games" / "generated.json").read_text(encoding="utf-8"))
    assert (made_from["seed"], made_from["games"]) == (2, FEW)


def test_games_are_not_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "games"
    generate_games(out, games=FEW)
    with pytest.raises(FileExistsError, match="games exists and is not empty; choose another folder"):
        generate_games(out, games=FEW, seed=1)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    generate_games(out, games=TRAIN_ONLY, seed=1, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["generated.json", "notes.txt", "train"]
    assert len(alfworld_suite(out).tasks("train")) == 3


@pytest.mark.parametrize("generated", [False, True], ids=["alone", "next to generated games"])
def test_downloaded_games_are_never_replaced(tmp_path: Path, generated: bool) -> None:
    if generated:
        generate_games(tmp_path, games=TRAIN_ONLY)
    downloaded = tmp_path / "valid_seen" / "pick_and_place_simple-Mug-None-Desk-1" / "trial_1" / "game.tw-pddl"
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text("{}", encoding="utf-8")
    with pytest.raises(FileExistsError, match="valid_seen was not written by generate_games"):
        generate_games(tmp_path, games=TRAIN_ONLY, overwrite=True)
    assert downloaded.read_text(encoding="utf-8") == "{}"


def test_a_process_that_dies_while_it_deletes_a_split_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = generate_games(tmp_path / "games", games={**TRAIN_ONLY, "train": 20})["train"].parent

    whole = shutil.rmtree

    def killed(folder: Path, **options: Any) -> None:
        if "train" not in folder.name:
            return whole(folder, **options)
        for game in sorted(folder.iterdir())[:5]:
            whole(game)
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(SystemExit):
            generate_games(out, games=TRAIN_ONLY, seed=1, overwrite=True)
    assert not (out / "train").exists()
    generate_games(out, games=TRAIN_ONLY, seed=1, overwrite=True)
    assert len(alfworld_suite(out).tasks("train")) == 3


def test_the_current_folder_may_be_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert generate_games(".", games=TRAIN_ONLY) == {"train": Path("train")}
    assert len(alfworld_suite(tmp_path).tasks("train")) == 3


def test_an_empty_folder_may_be_filled_and_nothing_else_stays(tmp_path: Path) -> None:
    out = tmp_path / "new" / "games"
    out.mkdir(parents=True)
    generate_games(out, games=TRAIN_ONLY)
    assert [path.name for path in out.parent.iterdir()] == ["games"]


def test_a_failed_generation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(writing, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        generate_games(tmp_path / "games", games=FEW)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_cannot_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, counts = tmp_path / "games", {"train": 1, "valid_seen": 0, "valid_unseen": 0}
    folder.mkdir()
    with exclusive_path(folder), pytest.raises(FileExistsError, match="another process is writing to"):
        generate_games(folder, games=counts)
    real = writing._write_split

    def overtaken(path: Path, games: Iterable[Game]) -> None:
        real(path, games)
        (folder / "notes.txt").write_text("of a process that was faster")

    monkeypatch.setattr(writing, "_write_split", overtaken)
    with pytest.raises(FileExistsError, match="is not empty"):
        generate_games(folder, games=counts)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["games"]
