import os

import pytest

from hgpo import files
from hgpo.files import flush, write_text


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


def test_durable_content_is_on_the_disk_before_it_replaces_the_old(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, name=name, real=real: (order.append(name), real(*words)))
    write_text(tmp_path / "file.txt", "new", durable=True)
    write_text(tmp_path / "one of thousands.txt", "new")
    assert order == ["fsync", "replace", "replace"]


def test_folders_are_flushed_only_where_they_can_be_opened(tmp_path, monkeypatch):
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *words: (opened.append(path), real(path, *words))[1])
    flush(tmp_path)
    monkeypatch.setattr(files, "_FOLDERS_CAN_BE_FLUSHED", False)
    flush(tmp_path)
    assert opened == [tmp_path]
