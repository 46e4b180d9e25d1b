from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.evaluation.eval_history import (
    evaluated_update,
    evaluation_due,
    evaluation_name,
    evaluation_names,
    name_by_command,
    newest_evaluation,
    rewind_evaluations,
    update_of,
)
from hgpo.runs.folder import RunDirectory, write_json

UPDATES = 160


def stored(run: RunDirectory, *names: str) -> None:
    for name in names:
        write_json(run.evaluation(name), {"of": name})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_each_has_its_name() -> None:
    assert [evaluation_name(update, UPDATES) for update in (0, 40, 160)] == ["before", "update-40", "after"]


@pytest.mark.parametrize("games", [None, 5])
@pytest.mark.parametrize("checkpoint", ["start", "40"])
@pytest.mark.parametrize(
    ("split", "temperature", "seeds"), [("a", 0.4, (123,)), ("a-20-t1-s1", 1e-5, (1, 2)), ("start-t1-s1", 0.0, (0,))]
)
def test_a_name_of_an_evaluation_by_command_says_its_update(
    split: str, temperature: float, seeds: tuple[int, ...], checkpoint: str, games: int | None
) -> None:
    name = name_by_command(split, checkpoint, temperature, seeds, games)
    assert evaluated_update(name, UPDATES) == (0 if checkpoint == "start" else 40)
    assert update_of(name, UPDATES) is None  # training did not make it


def test_other_names_say_the_update_of_training() -> None:
    names = ("before", "update-40", "after", "mine-20", "valid_unseen-123", "40")
    assert [evaluated_update(name, UPDATES) for name in names] == [0, 40, 160, None, None, None]


@pytest.mark.parametrize(
    ("update", "every", "due"),
    [(0, 5, True), (0, 0, True), (40, 5, True), (41, 5, False), (40, 0, False), (160, 7, True), (160, 0, True)],
)
def test_when_one_is_due(update: int, every: int, due: bool) -> None:
    assert evaluation_due(update, UPDATES, every) is due


def test_those_of_updates_that_are_made_again_are_moved_aside(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    stored(run, "before", "update-35", "update-40", "update-45", "after", "valid_unseen-120-t0.4-s123")
    rewind_evaluations(run, 40, UPDATES)
    left = ["before.json", "update-35.json", "update-40.json", "valid_unseen-120-t0.4-s123.json"]
    assert names_in(tmp_path / "evaluations") == left
    assert names_in(tmp_path / "evaluations.superseded") == ["after.1.json", "update-45.1.json"]


def test_nothing_is_lost_when_it_happens_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for _ in range(2):
        stored(run, "before", "update-5")
        rewind_evaluations(run, 0, UPDATES)
    assert names_in(tmp_path / "evaluations") == ["before.json"]
    assert names_in(tmp_path / "evaluations.superseded") == ["update-5.1.json", "update-5.2.json"]


def test_logs_of_stored_and_of_later_evaluations_are_deleted(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    stored(run, "before", "valid_unseen-120-t0.4-s123")
    folder = tmp_path / "evaluations"
    for name in ("before", "update-40", "update-80", "valid_unseen-120-t0.4-s123"):
        (folder / f"{name}.games.jsonl").touch()
    rewind_evaluations(run, 40, UPDATES)
    assert names_in(folder) == [
        "before.json",
        "update-40.games.jsonl",
        "valid_unseen-120-t0.4-s123.games.jsonl",
        "valid_unseen-120-t0.4-s123.json",
    ]


def test_a_run_at_its_end_keeps_all(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    rewind_evaluations(run, 0, UPDATES)  # none yet
    stored(run, "before", "update-40", "after")
    rewind_evaluations(run, UPDATES, UPDATES)
    assert names_in(tmp_path) == ["evaluations"]
    assert len(names_in(tmp_path / "evaluations")) == 3


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["before", "after", "update-9"], "after"),
        (["before", "update-9", "update-10", "valid_unseen-20-t0.4-s1"], "update-10"),
        (["before", "z"], "before"),
        (["valid_unseen-20-t0.4-s1"], None),
        ([], None),
    ],
)
def test_the_newest_is_the_latest_that_training_made(tmp_path: Path, names: list[str], newest: str | None) -> None:
    run = RunDirectory(tmp_path)
    stored(run, *names)
    assert evaluation_names(run) == sorted(names)
    assert newest_evaluation(run) == newest


def test_of_a_finished_run_no_other_is_taken_for_its_last(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    stored(run, "before", "update-9")
    run.summary.write_text("{}")
    assert newest_evaluation(run) == "after"
