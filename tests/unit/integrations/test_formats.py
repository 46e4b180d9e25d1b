"""Telling formats apart is tested with real dumps in verl/test_dumps.py."""

import json

import pytest

from hgpo.integrations.formats import detect_format, parse_columns, read_rollouts, row_places
from hgpo.storage.tables import StorageError


@pytest.fixture
def rollouts(tmp_path):
    rows = [
        {"group": "g", "trajectory": t, "step": 0, "observation": "s", "reward": 1.0, "cost": cost}
        for t, cost in (("a", 0.5), ("b", 0.0))
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_columns_are_read_from_assignments():
    assert parse_columns(["observation=room", "reward=a=b"]) == {"observation": "room", "reward": "a=b"}
    assert parse_columns([]) == {}


@pytest.mark.parametrize("wrong", ["observation", "=room", "observation=", ""])
def test_an_assignment_needs_both_sides(wrong):
    with pytest.raises(ValueError, match="expected NAME=KEY"):
        parse_columns([wrong])


def test_a_column_is_given_once():
    with pytest.raises(ValueError, match="column group is given twice: a and b"):
        parse_columns(["group=a", "group=b"])


def test_a_column_that_nobody_reads_is_refused(rollouts):
    known = "group, trajectory, step, observation, reward, action, prompt, penalty, value, next_observation, success"
    with pytest.raises(ValueError, match=f"no column pentaly is read from rollouts; columns: {known}"):
        read_rollouts(rollouts, columns={"pentaly": "cost"})
    for name in ("final_reward", "response", "update", "valid", "score"):
        with pytest.raises(ValueError, match=f"no column {name} is read .* add --format verl"):
            read_rollouts(rollouts, columns={name: "reward"})
    assert read_rollouts(rollouts, columns={"penalty": "cost"})["penalty"].to_pylist() == [0.5, 0.0]


def test_the_places_of_rollouts_are_files_and_lines(rollouts):
    assert row_places(rollouts, read_rollouts(rollouts))(1) == f"{rollouts} line 2"
    with pytest.raises(ValueError, match="unknown format 'trl'"):
        row_places(rollouts, read_rollouts(rollouts), "trl")


def test_the_places_of_a_dump_are_those_before_padding_was_left_out(tmp_path):
    keys = {"input": "p", "output": "a", "step": 1, "traj_uid": "t", "anchor_obs": "s", "rewards": 0}
    lines = [keys | {"uid": uid, "step_index": at} for uid, at in (("pad" + "0" * 32 + "_0_0", 0), ("g", 0), ("g", 1))]
    (tmp_path / "1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for path in (tmp_path, tmp_path / "1.jsonl"):
        place = row_places(path, read_rollouts(path))
        assert [place(0), place(1)] == [f"{tmp_path / '1.jsonl'} line 2", f"{tmp_path / '1.jsonl'} line 3"]


@pytest.mark.parametrize("text", ["", "[" * 100_000, "not JSON"])
def test_what_is_no_dump_is_read_as_rollouts(tmp_path, text):
    (tmp_path / "x.JSONL").write_text(text)
    assert detect_format(tmp_path / "x.JSONL") == "hgpo"


def test_a_dump_is_told_by_its_keys_whatever_the_case_of_its_suffix(tmp_path):
    (tmp_path / "1.JSONL").write_text('{"input": "", "output": ""}')
    assert detect_format(tmp_path) == "verl"
    with pytest.raises(StorageError, match=r"1\.JSONL line 1: no update"):
        read_rollouts(tmp_path)
