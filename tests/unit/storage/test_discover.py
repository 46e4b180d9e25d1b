import json

import pytest

from hgpo.storage.discover import NoRolloutsError, StepFile, find_step_files, number_ranges
from hgpo.storage.schema import StorageError
from house import write_rows


def test_updates_are_the_numbers_in_the_names(tmp_path, rows):
    for name in ("10.jsonl", "9.jsonl", "00002.jsonl"):
        write_rows(tmp_path / "rollouts" / name, rows)
    for path in (tmp_path, tmp_path / "rollouts"):
        assert [file.update for file in find_step_files(path)] == [2, 9, 10]


def test_names_without_numbers_are_counted(tmp_path, rows):
    write_rows(tmp_path / "b.jsonl", rows)
    write_rows(tmp_path / "a.jsonl", rows)
    write_rows(tmp_path / "metrics.jsonl", [])
    assert [(file.update, file.path.name) for file in find_step_files(tmp_path)] == [(1, "a.jsonl"), (2, "b.jsonl")]
    assert find_step_files(str(tmp_path / "b.jsonl")) == [StepFile(1, tmp_path / "b.jsonl", "hgpo", unit="")]


def test_two_files_of_one_number_are_counted(tmp_path, rows):
    for name in ("7-b.jsonl", "7-a.jsonl", "3.jsonl"):
        write_rows(tmp_path / name, rows)
    found = [(file.update, file.path.name) for file in find_step_files(tmp_path)]
    assert found == [(1, "3.jsonl"), (2, "7-a.jsonl"), (3, "7-b.jsonl")]


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.superseded.jsonl"])
@pytest.mark.parametrize("place", ["run", "run/config", "run/rollouts", "file"])
def test_the_metrics_of_a_run_are_no_rollouts(tmp_path, name, place):
    run = tmp_path / "run"
    metrics = write_rows(run / name, [{"update": 1, "success": 0.5}])
    if place == "run/config":
        (run / "config.toml").touch()
        write_rows(run / "advantages.jsonl", [{"group": "what an earlier call wrote"}])
    if place == "run/rollouts":
        (run / "rollouts").mkdir()
    with pytest.raises(NoRolloutsError, match=r"contains no rollouts .* a run stores some after its first update"):
        find_step_files(metrics if place == "file" else run)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "no such file or folder"),
        ("a.csv", r"a\.csv: the name of a rollout file ends in \.parquet or \.jsonl"),
        ("", r"contains no rollouts \(\*\.parquet, \*\.jsonl; \*\.json only if named\)"),
    ],
)
def test_what_is_not_there_or_not_readable_is_said(tmp_path, name, message):
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(StorageError, match=message):
        find_step_files(tmp_path / name)


def test_a_folder_without_dumps_says_how_verl_writes_them(tmp_path):
    (tmp_path / "1.parquet").touch()
    with pytest.raises(NoRolloutsError, match=r"contains no dumps of verl .*set trainer.rollout_data_dir"):
        find_step_files(tmp_path, "verl")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'trl'; known: auto, hgpo, verl"):
        find_step_files(tmp_path, "trl")


OWN = {"group": "g", "trajectory": "t", "step": 0, "observation": "o", "reward": 1.0}
DUMP = {"input": "p", "output": "r", "score": 1.0, "step": 7}


@pytest.mark.parametrize(
    ("lines", "format"),
    [
        ([json.dumps(OWN)], "hgpo"),
        ([json.dumps(OWN | DUMP)], "hgpo"),
        ([json.dumps(DUMP)], "verl"),
        ([json.dumps(DUMP | {"observation": "a key of reward_extra_info"})], "verl"),
        (["", json.dumps(DUMP)], "verl"),
        (["half a line", json.dumps(DUMP)], "verl"),
        (["half a line", json.dumps(OWN)], "hgpo"),
        (["\ufeff" + json.dumps(DUMP)], "verl"),
        (["[" * 100_000], "hgpo"),
        (["not JSON"], "hgpo"),
        ([], "hgpo"),
    ],
)
def test_a_dump_is_told_by_the_keys_of_its_first_readable_row(tmp_path, lines, format):
    file = tmp_path / "x.JSONL"
    file.write_text("\n".join(lines))
    for path in (file, tmp_path):
        assert [found.format for found in find_step_files(path)] == [format]
        assert [found.format for found in find_step_files(path, "verl")] == ["verl"]


def test_updates_that_are_not_there_are_refused_with_those_that_are(tmp_path, rows):
    for name in ("10.jsonl", "9.jsonl", "00002.jsonl"):
        write_rows(tmp_path / "rollouts" / name, rows)
    assert [file.update for file in find_step_files(tmp_path, updates=[10, 2])] == [2, 10]
    with pytest.raises(ValueError, match=r"contains no rollouts of update 3, 99; it contains those of 2, 9 to 10$"):
        find_step_files(tmp_path, updates=[99, 10, 3])


def test_number_ranges():
    assert number_ranges([3, 1, 2, 10, 7]) == "1 to 3, 7, 10"
    assert number_ranges([4]) == "4"


def test_conversations_as_json_text_are_trajectories(tmp_path):
    for indent in (None, 1):
        talk = json.dumps([{"role": "user", "content": "hall"}, {"role": "assistant", "content": "go"}], indent=indent)
        (tmp_path / "a.jsonl").write_text(json.dumps({"group": 1, "reward": 1.0, "messages": talk}) + "\n")
        [file] = find_step_files(tmp_path / "a.jsonl")
        assert file.format == "trajectories"
