"""Telling formats apart is tested with real dumps in verl/test_dumps.py."""

import pytest

from hgpo.integrations.formats import parse_columns


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
