import pytest

from hgpo.files import write_text


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
