import pyarrow as pa
import pytest

from hgpo.storage.reading import _check_columns, _renamed, parse_columns
from hgpo.storage.schema import StorageError


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


def test_a_column_that_nobody_reads_is_refused():
    known = "group, trajectory, step, observation, reward, action, prompt, penalty, value, bootstrap"
    with pytest.raises(ValueError, match=f"no column pentaly is read from rollouts; columns: {known}"):
        _check_columns({"pentaly": "cost"}, "hgpo")
    for name in ("final_reward", "response", "valid", "score"):
        with pytest.raises(ValueError, match=rf"no column {name} is read .* add --format verl"):
            _check_columns({name: "cost"}, "hgpo")
        _check_columns({name: "cost"}, "verl")
    with pytest.raises(ValueError, match="no column anchor is read from dumps of verl; columns: group, trajectory"):
        _check_columns({"anchor": "x"}, "verl")


def test_a_reward_is_that_of_each_step_or_of_the_trajectory():
    with pytest.raises(ValueError, match="not both"):
        _check_columns({"reward": "x", "final_reward": "y"}, "verl")


def test_columns_are_taken_from_others(tmp_path):
    table = pa.table({"a": [1], "b": [2]})
    assert _renamed(table, {"a": "b", "c": "a"}, tmp_path).to_pydict() == {"b": [2], "a": [2], "c": [1]}
    with pytest.raises(StorageError, match="no column d for a; the file has a, b: name one of these"):
        _renamed(table, {"a": "d"}, tmp_path)
