"""Checkpoints as folders. What is in them beside the trainer's state is of no interest here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgpo.runs.checkpoints import (
    CheckpointError,
    check_bytes,
    newest_complete,
    numbered,
    read_trainer_state,
    recover,
    unusable,
    whole_checkpoint,
)
from killed import killed_at_each_call


def save(folder: Path, update: int, *, keep: int | None = None, **state: Any) -> None:
    with whole_checkpoint(folder, update, state, keep) as partial:
        (partial / "deep").mkdir()
        for name in ("weights", "deep/more"):
            (partial / name).write_text(f"{name} of {state}")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def whole(folder: Path) -> list[dict[str, Any]]:
    """The states of all that is there in full, hidden or not."""
    found = []
    for path in folder.iterdir():
        try:
            found.append(read_trainer_state(path)["state"])
        except CheckpointError:
            continue
    return found


def test_it_says_what_is_in_it(tmp_path: Path) -> None:
    save(tmp_path, 3, note="ü")
    document = read_trainer_state(tmp_path / "3")
    more, weights = "deep/more of {'note': 'ü'}".encode(), "weights of {'note': 'ü'}".encode()
    assert document == {
        "format_version": 2,
        "update": 3,
        "files": {
            "deep/more": {"bytes": len(more), "sha256": hashlib.sha256(more).hexdigest()},
            "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
        },
        "state": {"note": "ü"},
    }
    assert names(tmp_path) == ["3"]


def test_the_newest_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    assert newest_complete(tmp_path / "absent") is None
    assert newest_complete(tmp_path) is None
    for update in (9, 10):
        save(tmp_path, update)
    (tmp_path / ".11.partial").mkdir()
    (tmp_path / "notes").mkdir()
    assert newest_complete(tmp_path) == tmp_path / "10"
    assert [path.name for path in numbered(tmp_path)] == ["9", "10"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: (path / "weights").unlink(), "weights: missing"),
        (lambda path: (path / "deep" / "more").write_text("cut"), "more: 3 bytes instead of"),
        (lambda path: (path / "trainer_state.json").write_text("[" * 100_000), "trainer_state.json: "),
        (
            lambda path: change(path / "trainer_state.json", '"update": 2', '"update": 3'),
            "changed since it was",
        ),
        (lambda path: (path / "trainer_state.json").write_text("{"), "trainer_state.json: Expecting"),
        (lambda path: (path / "trainer_state.json").write_text("[]"), "not a list of files of format_version 2"),
        (
            lambda path: (path / "trainer_state.json").write_text(json.dumps({"format_version": 99})),
            "not a list of files of format_version 2",
        ),
        (
            lambda path: (path / "trainer_state.json").write_text(json.dumps({"format_version": 2, "update": 2})),
            "changed since it was",
        ),
    ],
)
def test_a_damaged_one_is_named_and_skipped(
    tmp_path: Path, damage: Callable[[Path], object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "2")
    assert newest_complete(tmp_path) == tmp_path / "1"
    assert said in caplog.text
    with pytest.raises(CheckpointError, match=rf"Delete the checkpoint folder {tmp_path / '2'} to"):
        read_trainer_state(tmp_path / "2")


@pytest.mark.parametrize("name", ["weights", "deep/more"])
def test_bytes_that_changed_in_place_are_found_by_whoever_loads_them(tmp_path: Path, name: str) -> None:
    save(tmp_path, 2)
    path = tmp_path / "2" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert newest_complete(tmp_path) == tmp_path / "2"  # a listing reads no weights
    with pytest.raises(
        CheckpointError, match=f"{path}: its bytes are not.* Delete the checkpoint folder {tmp_path}/2 "
    ):
        check_bytes(tmp_path / "2")
    check_bytes(tmp_path / "2", leave_out=[name])


def test_one_that_is_gone_is_no_reason_to_delete_anything(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"2 no longer exists: .*(?!Delete)"):
        read_trainer_state(tmp_path / "checkpoints" / "2")
    assert "Delete" not in str(unusable(tmp_path / "checkpoints" / "2", "no weights", "model.safetensors"))


def test_saving_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 1, count=1)
    save(tmp_path, 1, count=2)
    assert read_trainer_state(tmp_path / "1")["state"] == {"count": 2}
    assert names(tmp_path) == ["1"]


def test_the_highest_numbers_stay(tmp_path: Path) -> None:
    for update in (8, 9, 10, 11):
        save(tmp_path, update, keep=2)
    assert names(tmp_path) == ["10", "11"]


def test_of_a_checkpoint_on_another_disk_the_link_is_deleted(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "disk"
    save(folder, 1)
    (folder / "1").rename(elsewhere)
    (folder / "1").symlink_to(elsewhere)
    save(folder, 2, keep=1)
    assert names(folder) == ["2"]
    assert (elsewhere / "weights").exists()
    (folder / ".1.deleted").symlink_to(elsewhere)  # by a process that died then
    recover(folder)
    assert names(folder) == ["2"]
    assert (elsewhere / "weights").exists()


def test_a_folder_that_is_no_checkpoint_stays(tmp_path: Path) -> None:
    """`checkpoints` may be a link to a folder with other content."""
    (tmp_path / "2019").mkdir()
    save(tmp_path, 1)
    save(tmp_path, 2, keep=1)
    assert names(tmp_path) == ["2", "2019"]


def test_the_one_just_written_stays_whatever_its_number(tmp_path: Path) -> None:
    save(tmp_path, 11)
    save(tmp_path, 3, keep=1)
    assert names(tmp_path) == ["3"]


@pytest.mark.parametrize("state", [{"x": float("nan")}, {"x": object()}])
def test_state_that_is_not_json_is_refused_before_writing(tmp_path: Path, state: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        save(tmp_path, 1, **state)
    assert names(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("incomplete", [False, True])
def test_a_process_killed_at_any_point_leaves_a_whole_checkpoint(tmp_path: Path, incomplete: bool) -> None:
    """While checkpoint 2 is written, either as a new one or instead of an incomplete one of the same number."""
    folder = tmp_path / "checkpoints"

    def before() -> None:
        save(folder, 1, of="old")
        if incomplete:
            save(folder, 2, of="old")
            (folder / "2" / "weights").unlink()

    before()
    points = 0
    for where in killed_at_each_call(lambda: save(folder, 2, keep=1, of="new")):
        assert whole(folder), where
        copy = Path(shutil.copytree(folder, tmp_path / "copy"))
        recover(copy)
        assert newest_complete(copy) is not None, where
        assert all(name.isdecimal() for name in names(copy)), where
        for again in (copy, folder):  # with what a resumed run does first, and without it
            save(again, 2, keep=1, of="new")
            assert newest_complete(again) == again / "2", where
            assert [name for name in names(again) if not name.endswith(".deleted")] == ["2"], where
        shutil.rmtree(copy)
        shutil.rmtree(folder)
        before()
        points += 1
    assert points > 12
    assert names(folder) == ["2"]


@pytest.mark.slow
def test_recovering_can_be_cut_off_too(tmp_path: Path) -> None:
    def left_by_a_killed_process() -> None:
        shutil.rmtree(tmp_path)
        for update in (4, 6):
            save(tmp_path, update)
        (tmp_path / "6").rename(tmp_path / ".6.deleted")
        shutil.copytree(tmp_path / "4", tmp_path / ".8.partial")

    left_by_a_killed_process()
    for where in killed_at_each_call(lambda: recover(tmp_path)):
        recover(tmp_path)
        assert names(tmp_path) == ["4"], where
        assert len(whole(tmp_path)) == 1, where
        left_by_a_killed_process()
    assert names(tmp_path) == ["4"]


def test_the_warning_about_a_damaged_checkpoint_cannot_act_on_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    with whole_checkpoint(tmp_path, 2, {}) as partial:
        (partial / "\x1b[31mweights").write_text("")
    (tmp_path / "2" / "\x1b[31mweights").unlink()
    assert newest_complete(tmp_path) == tmp_path / "1"
    assert "[31mweights: missing" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("name", ["trainer_state.json", "weights"])
def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "2" / name).chmod(0)
    with pytest.raises(PermissionError, match=name):
        check_bytes(newest_complete(tmp_path) or tmp_path)
