import os

import pytest

from hgpo import files
from hgpo.files import flush, flush_tree, write_text


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
    monkeypatch.setattr(files, "_FOLDERS_CAN_BE_FLUSHED", False)
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
