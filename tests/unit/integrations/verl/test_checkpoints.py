from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hgpo.integrations.verl.checkpoints import (
    TRACKER_FILE,
    delete_old_folders,
    publish_weights,
    repair_tracker,
    require_newest,
)
from hgpo.runs.checkpoints import CheckpointError, newest_complete, read_trainer_state, recover
from killed import killed_at_each_call
from tiny_models import tiny_model


def weights(folder: Path) -> Path:
    policy = tiny_model()
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def test_it_is_a_checkpoint_as_the_built_in_trainer_knows_them(tmp_path: Path) -> None:
    publish_weights(
        weights(tmp_path / "hf"), tmp_path / "checkpoints", 3, {"engine": "verl", "tasks_drawn": 12}, keep=2
    )
    newest = newest_complete(tmp_path / "checkpoints")
    assert newest == tmp_path / "checkpoints" / "3"
    assert read_trainer_state(newest)["state"] == {"engine": "verl", "tasks_drawn": 12}
    assert (newest / "model.safetensors").read_bytes() == (tmp_path / "hf" / "model.safetensors").read_bytes()


def test_the_newest_stay_and_one_of_the_same_number_is_replaced(tmp_path: Path) -> None:
    source = weights(tmp_path / "hf")
    for update in (1, 2, 10, 10):
        publish_weights(source, tmp_path / "checkpoints", update, {}, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["10", "2"]


def test_a_process_killed_at_any_point_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    source, folder = tmp_path / "hf", tmp_path / "checkpoints"
    source.mkdir()
    (source / "model.safetensors").write_text("weights")
    publish_weights(source, folder, 1, {"of": "old"}, keep=1)
    called = []
    for where in killed_at_each_call(lambda: publish_weights(source, folder, 2, {"of": "new"}, keep=1)):
        called.append(where)
        recover(folder)
        newest = newest_complete(folder)
        assert newest is not None, where
        assert read_trainer_state(newest)["state"]["of"] in ("old", "new"), where
        shutil.rmtree(folder)
        publish_weights(source, folder, 1, {"of": "old"}, keep=1)
    for name in ("link", "fsync", "rename", "rmdir"):
        assert any(f"os.{name}(" in where for where in called), name
    assert read_trainer_state(folder / "2")["state"] == {"of": "new"}


def test_verls_old_folders_go_also_those_of_an_earlier_process(tmp_path: Path) -> None:
    for update in (5, 40, 9, 100):
        (tmp_path / f"global_step_{update}" / "actor").mkdir(parents=True)
    delete_old_folders(tmp_path, 100, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_100", "global_step_40"]
    delete_old_folders(tmp_path, 100, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_100"]


def test_a_number_that_a_killed_process_was_writing_is_written_again(tmp_path: Path) -> None:
    repair_tracker(tmp_path)  # nothing is there yet
    for update in (9, 10):
        (tmp_path / f"global_step_{update}").mkdir()
    repair_tracker(tmp_path)  # the first checkpoint is being written, and none is whole
    assert not (tmp_path / TRACKER_FILE).exists()
    for written, expected in (("", "10"), ("9", "9")):
        (tmp_path / TRACKER_FILE).write_text(written)
        repair_tracker(tmp_path)
        assert (tmp_path / TRACKER_FILE).read_text() == expected


def test_a_run_does_not_begin_anew_where_its_newest_checkpoint_is_missing(tmp_path: Path) -> None:
    of_verl, published = tmp_path / "verl", tmp_path / "checkpoints"
    require_newest(of_verl, published, 40)  # a new run
    (of_verl / "global_step_40").mkdir(parents=True)
    require_newest(of_verl, published, 40)  # the first checkpoint is being written
    (of_verl / TRACKER_FILE).write_text("40")
    (published / "40").mkdir(parents=True)
    require_newest(of_verl, published, 40)
    with pytest.raises(CheckpointError, match=r"training\.updates = 20, .* at least 40"):
        require_newest(of_verl, published, 20)
    (of_verl / "global_step_40").rmdir()
    with pytest.raises(CheckpointError, match=r"global_step_40 is missing: .*policy\.model=.*checkpoints/40"):
        require_newest(of_verl, published, 40)
    shutil.rmtree(of_verl)
    with pytest.raises(CheckpointError, match=rf"{TRACKER_FILE} is missing"):
        require_newest(of_verl, published, 40)
