"""Which columns there are, what stands in them, and what rows are told apart by."""

from __future__ import annotations

from pathlib import Path

import pytest

from compared import entry, trained
from hgpo.comparison.entries import Entry
from hgpo.comparison.table import baseline_place, compare
from hgpo.evaluation import rate
from hgpo.runs.evaluation_files import Latency, TokenCount

PLAIN = entry("plain", {"heat": [1, 0], "cool": [1, 1]})
MODEL = entry(
    "model",
    {"heat": [0, 0], "look": [1, 0]},
    model="Qwen\x1b[2J",
    agent="react",
    episodes=50,
    failed=2,
    tokens=TokenCount(900, 100),
    cost=1.5,
    seconds=200.0,
)
TRIED = entry(
    "tried",
    {"heat": [1, 0, 1, 1]},
    agent="reflexion",
    requests=50,
    latency=Latency(mean=0.25, p95=1.5),
    success_by_trial=(0.25, 0.5, 0.75),
)


def test_columns_are_those_in_which_anybody_has_a_figure() -> None:
    plain = compare([PLAIN])
    assert [column.name for column in plain.columns] == [
        *("success", "success/heat", "success/cool", "score", "episode_length", "episodes")
    ]
    both = compare([PLAIN, MODEL])
    assert [column.name for column in both.columns] == [
        *("model", "agent", "success", "success/heat", "success/cool", "success/look", "score", "episode_length"),
        *("episodes", "failed", "tokens_per_episode", "cost_per_episode", "seconds_per_episode"),
    ]
    assert [column.block for column in both.columns].count("task type") == 3
    tried = compare([PLAIN, TRIED])
    assert [column.name for column in tried.columns] == [
        *("agent", "success", "success/heat", "success/cool"),
        *("success_after_trial_1", "success_after_trial_2", "success_after_trial_3"),
        *("score", "episode_length", "episodes", "requests_per_episode", "latency_mean", "latency_p95"),
    ]
    assert [column.block for column in tried.columns].count("trial") == 3


def test_figures_are_those_of_the_evaluations() -> None:
    cells = {column.name: column.cells for column in compare([PLAIN, MODEL]).columns}
    assert cells["model"] == (None, "Qwen�[2J")
    assert cells["success"] == (rate([1, 0, 1, 1]), rate([0, 0, 1, 0]))
    assert cells["success/cool"] == (rate([1, 1]), None)
    assert cells["score"] == (0.75, 0.25)
    assert cells["episodes"] == (4, 50)
    assert cells["failed"] == (None, 2)
    assert cells["tokens_per_episode"] == (None, 20.0)
    assert cells["cost_per_episode"] == (None, 0.03)
    assert cells["seconds_per_episode"] == (None, 4.0)


def test_requests_latency_and_trials_are_those_of_the_file() -> None:
    twice = entry("twice", {"heat": [1]}, success_by_trial=(0.5, 1.0))
    columns = {column.name: column for column in compare([PLAIN, TRIED, twice]).columns}
    assert columns["requests_per_episode"].cells == (None, 12.5, None)
    assert columns["latency_mean"].cells == (None, 0.25, None)
    assert columns["latency_p95"].cells == (None, 1.5, None)
    assert columns["success_after_trial_2"].cells == (None, 0.5, 1.0)
    assert columns["success_after_trial_3"].cells == (None, 0.75, None)
    assert columns["success_after_trial_3"].heading == "success after trial 3"


def test_nothing_played_to_the_end_took_nothing_each() -> None:
    none = entry("none", {"heat": [0]}, episodes=0, cost=1.0)
    assert "cost_per_episode" not in [column.name for column in compare([none]).columns]


def test_it_is_said_which_evaluation_of_a_run_was_taken() -> None:
    run = Entry("run", PLAIN.stored, "update-40", trained(Path("run")))
    column = compare([run, PLAIN]).columns[0]
    assert (column.name, column.cells) == ("evaluation", ("update-40", None))


def test_rows_share_footnotes_and_the_baseline_has_no_difference() -> None:
    here = entry("here", {"heat": [1] * 4}, environment="alfworld")
    there = [entry(label, {"heat": [1] * 4}, environment="webshop") for label in ("b", "c")]
    comparison = compare([*there, here, PLAIN], baseline=2)
    assert comparison.footnotes == ("environment webshop, the baseline's alfworld",)
    assert [row.notes for row in comparison.rows] == [(1,), (1,), (), ()]
    assert [row.difference is None for row in comparison.rows] == [False, False, True, False]
    assert comparison.baseline_label == "here"
    assert comparison.caption == (
        "Success in per cent (95 % interval). Baseline here: 4 tasks of held_out in alfworld, temperature 0.4, seed 1"
    )


def test_a_baseline_is_a_label_or_a_number_from_1() -> None:
    entries = [entry(label, {"heat": [1]}) for label in ("b", "a", "1")]
    places = [baseline_place(entries, wanted) for wanted in (None, "a", "1", "2")]
    assert places == [0, 1, 2, 1]
    for wanted in ("0", "4", "c", "-1", "²"):
        with pytest.raises(ValueError, match=f"--baseline {wanted}: no such entry; take 1 to 3, or one of: b, a, 1"):
            baseline_place(entries, wanted)
