"""Differences to a baseline: on all tasks, on common ones, or not at all; and what else was not the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compared import entry, trained
from hgpo.comparison.differences import Difference, difference, on_tasks, unlike
from hgpo.comparison.entries import Entry
from panels import panel

TEN_LOST, TEN_WON = entry("lost", {"walk": [0] * 10}), entry("won", {"walk": [1] * 10})


def test_on_the_same_tasks_it_is_the_gain() -> None:
    found = difference(TEN_LOST, TEN_WON)
    assert found.gain is not None
    # no correlation: both sides are those of 0 of 10 (Wilson: 0 to .2775)
    assert (found.gain.mean, found.gain.high, found.gain.tasks) == (1.0, 1.0, 10)
    assert found.gain.low == pytest.approx(1 - 0.2775 * 2**0.5, abs=1e-4)
    assert found.remark == ""
    backwards = difference(TEN_WON, TEN_LOST)
    assert backwards.gain is not None
    assert (backwards.gain.mean, backwards.gain.high) == (-1.0, pytest.approx(-found.gain.low))


def test_on_other_panels_it_is_that_of_the_common_tasks() -> None:
    more = entry("more", {"walk": [0] * 10, "run": [1] * 30})
    found = difference(TEN_WON, more)
    same = difference(TEN_WON, TEN_LOST)
    assert found == Difference(same.gain, "on the 10 tasks in common, of 10 of the baseline's and 40 of its own")


@pytest.mark.parametrize(
    ("won", "remark"),
    [
        ({"run": [1] * 20}, "other tasks: none in common, of 20 of the baseline's and 20 of its own"),
        ({"walk": [1] * 9}, "other tasks: 9 in common, of 20 of the baseline's and 9 of its own"),
        ({"walk": [1] * 10, "run": [1] * 11}, "on 10"),
    ],
)
def test_too_few_common_tasks_give_none(won: dict[str, list[float]], remark: str) -> None:
    found = difference(entry("a", {"walk": [1] * 20}), entry("b", won))
    if remark.startswith("on"):
        assert found.remark == "on the 10 tasks in common, of 20 of the baseline's and 21 of its own"
        assert found.gain is not None
    else:
        assert found == Difference(None, remark)


def test_less_than_half_of_the_smaller_panel_is_too_few() -> None:
    found = difference(entry("a", {"walk": [1] * 30}), entry("b", {"walk": [1] * 10, "run": [1] * 11}))
    assert found == Difference(None, "other tasks: 10 in common, of 30 of the baseline's and 21 of its own")


def test_tasks_of_another_environment_are_others_whatever_they_are_called() -> None:
    elsewhere = entry("b", {"walk": [1] * 10}, environment="webshop")
    here = entry("a", {"walk": [1] * 10}, environment="alfworld")
    assert difference(here, elsewhere) == Difference(None, "played in another environment")
    assert unlike(here, elsewhere) == ["environment webshop, the baseline's alfworld"]
    assert difference(here, TEN_WON).gain is not None  # nobody said where the other was played


def test_a_panel_of_some_tasks_has_their_success_and_interval() -> None:
    whole = panel({"walk": [1] * 8 + [0] * 12})
    part = on_tasks(whole, [f"walk/{place}" for place in range(10)])
    assert (part.success.mean, part.success.tasks) == (0.8, 10)
    assert (part.success.low, part.success.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert list(part.tasks_won.values()) == [1.0] * 8 + [0.0] * 2


def test_another_split_and_temperature_are_said() -> None:
    assert unlike(TEN_LOST, TEN_WON) == []
    panel = replace(TEN_WON.panel, split="seen\x1b[2J", temperature=0.0)
    other = replace(TEN_WON, stored=replace(TEN_WON.stored, evaluation=panel))
    assert unlike(TEN_LOST, other) == ["split seen�[2J, the baseline's held_out", "temperature 0, the baseline's 0.4"]


def test_another_step_limit_and_other_options_are_said_of_runs() -> None:
    runs = [
        trained(Path("a")),
        trained(Path("b"), "environment.max_steps=9"),
        trained(Path("c"), "environment.options.longest=4"),
    ]
    first, second, third = (Entry(run.directory.path.name, TEN_WON.stored, "after", run) for run in runs)
    assert unlike(first, second) == ["step limit 9, the baseline's 8"]
    assert unlike(first, third) == ["options of the environment unlike the baseline's"]
    assert unlike(first, TEN_WON) == []  # a file does not know
