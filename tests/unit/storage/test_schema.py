from pathlib import Path

import pytest

from hgpo.storage.schema import StorageError, check_output, suffix_of


def test_the_case_of_a_suffix_means_nothing_and_others_are_refused():
    assert (suffix_of(Path("a.JSONL")), suffix_of(Path("b.Parquet"))) == (".jsonl", ".parquet")
    for name in ("c.csv", "none"):
        with pytest.raises(StorageError, match=rf"{name}: the name of a rollout file ends in \.parquet or \.jsonl"):
            suffix_of(Path(name))


def test_an_output_takes_the_place_of_nothing_by_itself(tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "file.parquet").touch()
    check_output(tmp_path / "new.jsonl", overwrite=False)
    check_output(tmp_path / "file.parquet", overwrite=True)
    with pytest.raises(StorageError, match=r"file\.parquet exists already; .* add --force"):
        check_output(tmp_path / "file.parquet", overwrite=False)
    with pytest.raises(StorageError, match=r"folder\.parquet is a folder"):
        check_output(tmp_path / "folder.parquet", overwrite=True)
