import os
import shutil
from pathlib import Path

import pytest

from hgpo.utils import files
from hgpo.utils.files import (
    check_writable,
    exclusive_path,
    flush,
    flush_tree,
    naming,
    scratch_folder,
    write_text,
)


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half of the new \ud800")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_the_new_content_replaces_the_old(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    write_text(path, "neü")
    assert path.read_text(encoding="utf-8") == "neü"


def test_durable_content_is_on_the_disk_before_it_replaces_the_old_and_the_name_after_it(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, name=name, real=real: (order.append(name), real(*words)))
    write_text(tmp_path / "file.txt", "new", durable=True)
    write_text(tmp_path / "one of thousands.txt", "new")
    assert order == ["fsync", "replace", "fsync", "fsync", "replace"]


def test_folders_are_flushed_only_where_they_can_be_opened(tmp_path, monkeypatch):
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *words: (opened.append(path), real(path, *words))[1])
    flush(tmp_path)
    monkeypatch.setattr(files, "_POSIX", False)
    flush(tmp_path)
    assert opened == [tmp_path]


def test_a_tree_is_flushed_file_by_file_and_every_folder_after_what_it_holds(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "deep.txt").write_text("1")
    (tmp_path / "a" / "flat.txt").write_text("2")
    flushed = []
    monkeypatch.setattr(files, "flush", flushed.append)
    flush_tree(tmp_path / "a")
    assert flushed == [tmp_path / "a" / name for name in ("b/deep.txt", "b", "flat.txt", ".")]


def test_what_a_process_left_that_is_gone_is_removed_by_the_next(tmp_path):
    for name in (".file.txt.1.partial", ".file.txt.2.partial"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".file.txt.3.partial").mkdir()
    (tmp_path / ".other.txt.1.partial").write_text("somebody else's")
    with (tmp_path / ".file.txt.2.partial").open() as held:  # as by a process that is still at work on it
        assert files.try_lock(held.fileno())
        write_text(tmp_path / "file.txt", "new")
        assert {path.name for path in tmp_path.iterdir()} == {
            *("file.txt", ".file.txt.2.partial", ".other.txt.1.partial"),
        }
    write_text(tmp_path / "file.txt", "newer")
    assert {path.name for path in tmp_path.iterdir()} == {"file.txt", ".other.txt.1.partial"}


def test_a_scratch_folder_goes_with_what_is_in_it(tmp_path):
    (tmp_path / ".games.1.partial").mkdir()

    def fail() -> None:
        with scratch_folder(tmp_path / "games") as scratch:
            assert [path.name for path in tmp_path.iterdir()] == [scratch.name]
            (scratch / "deep").mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["there", "new/result.json"])
def test_a_path_is_held_by_one_at_a_time(name, tmp_path):
    path = tmp_path / name
    (tmp_path / "there").mkdir()
    for _ in range(2):
        with exclusive_path(path), pytest.raises(FileExistsError, match="is writing to"), exclusive_path(path):
            pass
    assert not list(tmp_path.rglob(".*"))


def test_a_lock_file_that_was_deleted_meanwhile_reserves_nothing(tmp_path, monkeypatch):
    claim = files._claim

    def late(descriptor):
        (tmp_path / ".result.json.lock").unlink()  # as by the process that had it
        return claim(descriptor)

    monkeypatch.setattr(files, "_claim", late)
    with pytest.raises(FileExistsError, match="is writing to"), exclusive_path(tmp_path / "result.json"):
        pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "No space left on device: 'steps.jsonl'"),
        (OSError(28, "No space left on device", "other.txt"), "'other.txt'"),
        (shutil.Error([("a", "b", "no room"), ("c", "d", "no room")]), "steps.jsonl: no room"),
        (OSError("of no number"), "of no number"),
    ],
)
def test_a_failed_write_names_its_file(error, said):
    with pytest.raises(OSError, match=said), naming(Path("steps.jsonl")):
        raise error


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    check_writable(tmp_path / "deep" / "steps.jsonl")
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file" / "steps.jsonl")
