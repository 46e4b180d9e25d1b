"""Options of the wrong type, as recipes and the command line can give them: named at once, with what is allowed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hgpo.cli.main import main
from hgpo.envs import make
from hgpo.envs.base import check_counts, check_path, check_type, check_whole_number


def test_what_is_whole_passes_and_what_is_left_out() -> None:
    for value in (None, 0, 7, np.int64(3)):
        check_whole_number("games", value)
    check_whole_number("seed", -1, None)
    check_counts("games", {"train": 3}, "")
    check_path("folder", None)
    check_type("size", "small", (str,), "text")


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], -1])
def test_what_is_not_whole_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^games = {re.escape(repr(value))}; give a whole number, 0 or more$"):
        check_whole_number("games", value)


WRONG = [
    ("alfworld", {"train_games": "abc"}, "train_games = 'abc'; give a whole number, 0 or more"),
    ("alfworld", {"valid_seen_games": -3}, "valid_seen_games = -3; give a whole number, 0 or more"),
    ("alfworld", {"train_games": 10**26}, f"train_games = {10**26}; give a whole number of at most 1000000000"),
    ("alfworld", {"seed": "abc"}, "seed = 'abc'; give a whole number, 0 or more"),
    ("alfworld", {"seed": -1}, "seed = -1; give a whole number, 0 or more"),
    ("alfworld", {"games": 5}, "games = 5; give a table, e.g. { train = 100"),
    ("alfworld", {"games": {"train": 1.5}}, "games.train = 1.5; give a whole number"),
    ("alfworld", {"size": 3}, "size = 3; give one of small, medium, full, or numbers as in"),
    ("alfworld", {"size": {"receptacles": ["a", "b"], "objects": [1, 2]}}, "'a'; give a whole number, 0 or more"),
    ("alfworld", {"size": {"receptacles": [4, 5, 6], "objects": [1, 2]}}, "give numbers as in"),
    ("alfworld", {"task_types": "foo"}, "task_types = 'foo'; give a list of some of pick_and_place_simple"),
    ("alfworld", {"task_types": [3]}, "task_types = [3]; give a list of some of"),
    ("alfworld", {"data_dir": 3}, "data_dir = 3; give a path"),
    ("webshop", {"train_goals": "abc"}, "train_goals = 'abc'; give a whole number, 0 or more"),
    ("webshop", {"goals": {"train": -1}}, "goals.train = -1; give a whole number, 0 or more"),
    ("webshop", {"seed": "abc"}, "seed = 'abc'; give a whole number"),
    ("webshop", {"size": 3}, "size = 3; give one of small, medium, large, or numbers as in { products = 40"),
    ("webshop", {"size": {"products": "x"}}, "shop size: products = 'x'; give a whole number"),
    ("webshop", {"max_steps": "x"}, "max_steps = 'x'; give a whole number, 1 or more"),
    ("webshop", {"nouns": 3}, "nouns = 3; give text"),
    ("webshop", {"split_scheme": ["official"]}, "split_scheme = ['official']; give text"),
    ("webshop", {"keep_in": 3}, "keep_in = 3; give a path"),
    ("webshop", {"human_goals": 3}, "human_goals = 3; give true, false or a file"),
]


@pytest.mark.parametrize(("environment", "options", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_suites_refuse_options_of_the_wrong_type(environment: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make(environment, **options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alfworld", "--option", "seed=abc"], "seed = 'abc'"),
        (["alfworld", "--option", "task_types=foo"], "task_types = 'foo'"),
        (["webshop", "--option", "size=3"], "size = 3"),
        (["webshop", "--option", "seed=abc"], "seed = 'abc'"),
    ],
)
def test_the_command_says_it_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
