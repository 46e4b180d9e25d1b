"""Rows over training seeds, sections by environment and split, paired differences and notes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compared import entry, run_entry
from hgpo.evaluation.statistics import Rate, gain
from hgpo.report.compare_entries import Entry
from hgpo.report.compare_table import Difference, Mean, compare, difference
from panels import panel

TEN_LOST, TEN_WON = entry("lost", {"walk": [0] * 10}), entry("won", {"walk": [1] * 10})


def won(share: int) -> dict[str, list[float]]:
    """Ten tasks, of which the first `share` are won."""
    return {"walk": [1.0] * share + [0.0] * (10 - share)}


def on_split(one: Entry, split: str) -> Entry:
    return replace(one, stored=replace(one.stored, evaluation=replace(one.evaluation, split=split)))


def test_runs_of_one_label_are_mean_and_deviation_over_training_seeds() -> None:
    entries = [run_entry("hgpo", seed, won(share)) for seed, share in ((1, 4), (2, 6), (3, 8))]
    (section,) = compare([*entries, entry("model", won(5))]).sections
    hgpo, model = section.rows
    assert (hgpo.runs, model.runs) == (3, 1)
    success = hgpo.cells["success"]
    assert isinstance(success, Mean)
    assert (success.mean, success.deviation) == (pytest.approx(0.6), pytest.approx(0.2))
    assert hgpo.cells["episodes"] == 30
    assert model.cells["success"] == entry("", won(5)).evaluation.success
    assert hgpo.notes == ()


def test_rows_with_the_same_seeds_are_compared_by_seed() -> None:
    """Differences .2, .4, .0: mean .2, standard deviation .2, t of 2 degrees of freedom 4.303."""
    first = [run_entry("grpo", seed, won(share)) for seed, share in ((1, 2), (2, 2), (3, 4))]
    second = [run_entry("hgpo", seed, won(share)) for seed, share in ((3, 4), (2, 6), (1, 4))]
    found = difference(first, second)
    half = 4.303 * 0.2 / np.sqrt(3)
    assert [found.mean, found.low, found.high] == pytest.approx([0.2, 0.2 - half, 0.2 + half], abs=1e-3)
    assert (found.over, found.remark, found.significant) == ("3 training seeds", "", False)
    assert found.detectable == pytest.approx(5.653 * 0.2 / np.sqrt(3), abs=1e-3)
    assert found.needed == 128  # (1.96 + .8416)^2 (.2 / .05)^2 = 125.6, and Student's t is wider
    low, high = found.bootstrap
    assert low < 0.2 < high


def test_equal_differences_give_no_interval_over_seeds() -> None:
    rows = [[run_entry(label, seed, won(share)) for seed in (1, 2)] for label, share in (("grpo", 2), ("hgpo", 4))]
    assert difference(*rows).over == "10 tasks"


def test_rows_with_other_seeds_are_compared_by_task() -> None:
    found = difference([run_entry("grpo", seed, won(0)) for seed in (1, 2)], [run_entry("hgpo", 1, won(10))])
    assert (found.mean, found.over, found.significant) == (1.0, "10 tasks", True)


def test_unknown_seeds_are_not_the_same_seed() -> None:
    rows = [[run_entry(label, 1, won(2)), entry(label, won(share))] for label, share in (("grpo", 2), ("hgpo", 6))]
    assert difference(*rows).over == "10 tasks"


def test_one_evaluation_each_gives_the_paired_gain() -> None:
    found = difference([TEN_LOST], [TEN_WON])
    expected = gain(TEN_LOST.evaluation, TEN_WON.evaluation)
    assert (found.mean, found.low, found.high, found.over) == (expected.mean, expected.low, expected.high, "10 tasks")
    assert found.bootstrap is None
    assert found.needed is not None
    assert found.needed > 10
    assert difference([TEN_WON], [TEN_LOST]).mean == -1.0


def test_other_task_lists_are_compared_on_the_common_tasks() -> None:
    found = difference([TEN_WON], [entry("more", {"walk": [0] * 10, "run": [1] * 30})])
    same = difference([TEN_WON], [TEN_LOST])
    assert found == replace(same, remark="on the 10 tasks in common, of 10 of the reference and 40 of this row")


def test_a_row_of_runs_with_different_tasks_says_on_how_many_it_is_compared() -> None:
    long, short = {"walk": [1] * 20}, {"walk": [1] * 12}
    rows = [[run_entry(label, 1, long), run_entry(label, 2, short)] for label in ("grpo", "hgpo")]
    assert difference(*rows).remark == "on the 12 tasks in common, of 20 of the reference and 20 of this row"


@pytest.mark.parametrize(
    ("first", "second", "remark"),
    [
        ({"walk": [1] * 20}, {"run": [1] * 20}, "0 tasks in common, of 20 of the reference and 20 of this row"),
        ({"walk": [1] * 20}, {"walk": [1] * 9}, "9 tasks in common, of 20 of the reference and 9 of this row"),
        (
            {"walk": [1] * 30},
            {"walk": [1] * 10, "run": [1] * 11},
            "10 tasks in common, of 30 of the reference and 21 of this row",
        ),
    ],
)
def test_too_few_common_tasks_give_no_difference(
    first: dict[str, list[float]], second: dict[str, list[float]], remark: str
) -> None:
    assert difference([entry("a", first)], [entry("b", second)]) == Difference(None, remark=remark)


def test_environments_and_splits_are_sections_of_their_own() -> None:
    shop = entry("hgpo", won(5), environment="webshop")
    home = entry("hgpo", won(6), environment="alfworld")
    found = compare([home, shop, on_split(home, "seen"), entry("file", won(4)), on_split(entry("other", won(4)), "x")])
    assert [(section.environment, section.split) for section in found.sections] == [
        ("alfworld", "held_out"),
        ("webshop", "held_out"),
        ("alfworld", "seen"),
        (None, "held_out"),  # two environments have this split
        (None, "x"),
    ]
    (only,) = compare([home, entry("file", won(4))]).sections  # one environment has it
    assert [row.label for row in only.rows] == ["hgpo", "file"]


def test_the_reference_is_the_first_row_or_the_named_one() -> None:
    entries = [TEN_LOST, TEN_WON]
    assert [row.difference is None for row in compare(entries).sections[0].rows] == [True, False]
    assert [row.difference is None for row in compare(entries, "won").sections[0].rows] == [False, True]
    with pytest.raises(ValueError, match="--reference x: no such row; choose one of: lost, won"):
        compare(entries, "x")


def test_notes_name_other_conditions_other_settings_and_failures() -> None:
    first = run_entry("grpo", 1, won(5))
    warm = replace(entry("warm", won(5), failed=2).stored, evaluation=panel(won(5), temperature=1.0, seeds=(2,)))
    rows = (
        compare(
            [
                first,
                run_entry("long", 1, won(5), "environment.max_steps=9"),
                run_entry("wide", 1, won(5), "environment.options.longest=4"),
                replace(entry("warm", won(5)), stored=warm),
                run_entry("mixed", 1, won(5)),
                run_entry("mixed", 1, won(5), "training.learning_rate=0.5"),
            ]
        )
        .sections[0]
        .rows
    )
    notes = {row.label: row.notes for row in rows}
    assert notes["grpo"] == ()
    assert notes["long"] == ("step limit 9 (grpo: 8)",)
    assert notes["wide"] == ("other environment.options than grpo",)
    assert notes["warm"] == (
        "temperature 1 (grpo: 0.4)",
        "evaluation seeds 2 (grpo: 1)",
        "2 of 12 episodes failed and are not counted in success",
    )
    assert notes["mixed"] == (
        "n counts evaluations, of training seeds 1, 1",
        "its runs also differ in training.learning_rate",
    )


def test_notes_name_the_first_row_where_the_reference_has_none() -> None:
    warm = entry("warm", won(5))
    warm = replace(warm, stored=replace(warm.stored, evaluation=replace(warm.evaluation, temperature=1.0)))
    entries = [entry("reference", won(5)), *(on_split(one, "other") for one in (entry("first", won(5)), warm))]
    assert [row.notes for row in compare(entries).sections[1].rows] == [(), ("temperature 1 (first: 0.4)",)]


def test_totals_are_per_episode_that_ended() -> None:
    (section,) = compare([entry("a", won(5), requests=40, cost=3.0, episodes=8, failed=2)]).sections
    cells = section.rows[0].cells
    assert (cells["requests_per_episode"], cells["cost_per_episode"]) == (5.0, 0.375)
    assert "tokens_per_episode" not in {column.name for column in section.columns}


def test_types_of_task_and_trials_are_those_that_any_row_has() -> None:
    entries = [entry("a", {"walk": [1, 0]}, success_by_trial=(0.25, 0.5)), entry("b", {"run": [1]})]
    (section,) = compare(entries).sections
    first, second = (row.cells for row in section.rows)
    assert isinstance(first["success/walk"], Rate)
    assert (second["success/walk"], first["success/run"]) == (None, None)
    assert (first["success_after_trial_2"], second["success_after_trial_2"]) == (0.5, None)


def test_other_games_under_the_same_ids_are_named() -> None:
    """Manifests tell apart generated games that recipes number alike."""
    entries = [
        entry("a", won(5), manifest="quickstart-valid_unseen-1"),
        entry("b", won(6), manifest="smollm2-valid_unseen-1", manifest_differs=("walk/1",)),
        entry("c", won(6)),
    ]
    (section,) = compare(entries).sections
    assert [row.notes for row in section.rows] == [
        (),
        (
            "manifest smollm2-valid_unseen-1 (a: quickstart-valid_unseen-1)",
            "tasks that differ from the manifest: 1",
        ),
        (),
    ]


def test_no_difference_above_100_points_is_called_detectable() -> None:
    found = difference([entry("a", {"walk": [0] * 3})], [entry("b", {"walk": [0] * 3})])
    assert found.detectable == 1.0
