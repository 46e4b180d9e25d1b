"""Options of the wrong type, as recipes and the command line can give them: named at once, with what is allowed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hgpo.cli.main import main
from hgpo.envs import make
from hgpo.envs.base import check_whole_number


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], None, -1, 8])
def test_what_is_not_whole_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^games = {re.escape(repr(value))}; give a whole number from 0 to 7$"):
        check_whole_number("games", value, most=7)
    check_whole_number("games", np.int64(3))


def test_a_list_serves_where_a_tuple_is_declared() -> None:
    suite = make("corridor:CorridorSuite", splits=["train"])
    assert suite.splits == ("train",)


WRONG = [
    ("alfworld", {"train_games": "abc"}, "train_games = 'abc': Input should be a valid integer"),
    ("alfworld", {"valid_seen_games": -3}, "valid_seen_games = -3: Input should be greater than or equal to 0"),
    ("alfworld", {"train_games": 10**26}, f"train_games = {10**26}: Input should be less than or equal to 1000000000"),
    ("alfworld", {"seed": -1}, "seed = -1: Input should be greater than or equal to 0"),
    ("alfworld", {"size": 3}, "size = 3: Input should be a valid string; or"),
    (
        "alfworld",
        {"size": {"receptacles": ["a", "b"], "objects": [1, 2]}},
        "receptacles.0: Input should be",
    ),
    ("alfworld", {"task_types": "foo"}, "task_types = 'foo': Input should be a valid list"),
    ("alfworld", {"task_types": [3]}, "task_types = [3]: Input should be a valid string"),
    ("alfworld", {"data_dir": 3}, "data_dir = 3: Input should be a valid string; or Input is not a valid path"),
    ("webshop", {"seed": "abc"}, "seed = 'abc': Input should be a valid integer"),
    ("webshop", {"size": {"products": "x"}}, "products: Input should be a valid integer"),
    ("webshop", {"max_steps": 0}, "max_steps = 0: Input should be greater than or equal to 1"),
    ("webshop", {"nouns": 3}, "nouns = 3: Input should be a valid string"),
    ("webshop", {"human_goals": 3}, "human_goals = 3: Input should be a valid boolean"),
    ("corridor:CorridorSuite", {"longest": "far"}, "longest = 'far': Input should be a valid integer"),
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
