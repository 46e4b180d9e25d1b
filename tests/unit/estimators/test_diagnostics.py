from __future__ import annotations

import doctest
import json
import math
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import reference
from batches import Columns, columns, gammas, hgpo_options
from hgpo.estimators import compute_advantages, diagnostics, names
from hgpo.estimators.base import Advantages, Level
from hgpo.estimators.diagnostics import (
    BatchSummary,
    LevelSummary,
    compared_with,
    starts_note,
    summarise_levels,
)
from hgpo.steps import StepBatch

PAGE = Path(__file__).parents[3] / "docs" / "inspect.md"

# Three trajectories of one task, gamma 0.5. Returns: a .5 1, b 0 0, c .25 .5 1.
KITCHENS = StepBatch.from_columns(
    group=["task"] * 7,
    trajectory=["a", "a", "b", "b", "c", "c", "c"],
    step=[0, 1, 0, 1, 0, 1, 2],
    observation=["hall", "kitchen", "hall", "kitchen", "hall", "garden", "kitchen"],
    prompt=["start", "second", "start", "second", "start", "second", "third"],
    reward=[0, 1, 0, 0, 0, 0, 1],
)


def summary_of(
    batch: StepBatch = KITCHENS, gamma: float = 0.5, estimator: str = "hgpo", **options: Any
) -> BatchSummary:
    return summarise_levels(batch, compute_advantages(batch, estimator, gamma, **options))


def test_kitchens_by_hand() -> None:
    """Level 0: 3 halls, 3 kitchens, 1 garden; level 1: 3 halls, 2 kitchens, 1 garden, 1 kitchen.

    T: returns .5 1 0 0 .25 .5 1 have sum 3.25 and squares 2.5625, so T = 2.5625 - 3.25^2 / 7. W of the halls is 1/8, of
    three kitchens 2/3, of the two that come from the hall 1/2. Mean squared differences: a b (.25 + 1) / 2, a c
    1.125 / 6, b c 1.3125 / 3; half their mean is 5/24, times 7 values less 3 or 4 groups.
    """
    summary = summary_of(history_length=1, mode="mean_norm")
    first, second = summary.levels
    spread = 2.5625 - 3.25**2 / 7
    assert (first.groups, second.groups) == (3, 4)
    assert (first.singleton_share, second.singleton_share) == (1 / 3, 2 / 4)
    assert (first.usable_share, second.usable_share) == pytest.approx((6 / 7, 5 / 7))
    assert (first.alone_share, second.alone_share) == pytest.approx((1 / 7, 2 / 7))
    assert (first.mean_size, second.mean_size) == pytest.approx((19 / 7, 15 / 7))
    assert (first.mean_trajectories, second.mean_trajectories) == pytest.approx((19 / 7, 15 / 7))
    assert (second.size_p10, second.size_p50, second.size_p90, second.size_max) == (1, 2, 3, 3)
    assert (first.mean_weight, second.mean_weight) == pytest.approx((1 / 3 * 6 / 7, 2 / 3 * 5 / 7))
    assert first.variance_explained == pytest.approx(1 - (1 / 8 + 2 / 3) / spread)
    assert first.variance_explained_adjusted == pytest.approx(1 - (1 / 8 + 2 / 3) / (4 * 5 / 24))
    assert second.variance_explained == pytest.approx(1 - (1 / 8 + 1 / 2) / spread)
    assert second.variance_explained_adjusted == pytest.approx(1 - (1 / 8 + 1 / 2) / (3 * 5 / 24), abs=1e-12)
    assert (first.sign_agreement, second.sign_agreement) == (None, 1.0)
    assert (first.prompts_differ_steps, second.prompts_differ_steps) == (3 / 6, 0.0)
    assert (summary.steps, summary.trajectories, summary.tasks) == (7, 3, 1)
    assert summary.episode is None


def test_signs_that_disagree() -> None:
    """At level 0 returns 0 2 1 3 (mean 1.5); after the hall 0 2, after the yard 1 3: the 2 and the 1 change sides."""
    batch = StepBatch.from_columns(
        group=[0] * 8,
        trajectory=[0, 0, 1, 1, 2, 2, 3, 3],
        step=[0, 1] * 4,
        observation=["hall", "x", "hall", "x", "yard", "x", "yard", "x"],
        reward=[0, 0, 0, 2, 0, 1.8, 0, 3],
    )
    first, second = summary_of(batch, 0, history_length=1, mode="mean_norm", length_weight_alpha=0).levels
    assert second.sign_agreement == 3 / 4  # 0, 2, 1.8, 3 around 1.7: only the 1.8, above 1.7 and below 2.4, disagrees
    assert first.sign_agreement_final == 3 / 4  # .1 - .6 < 0
    assert second.sign_agreement_final == 1.0


def test_the_episode_comes_before_level_0() -> None:
    summary = summary_of(estimator="gigpo")
    assert summary.episode is not None
    assert summary.episode.k is None
    assert (summary.episode.groups, summary.episode.mean_trajectories) == (1, 3.0)
    assert summary.episode.variance_explained is None
    assert summary.episode.prompts_differ_steps is None
    # Scores 1 0 1: a and c above, b below. Level 0 puts a's two steps above, b's below, c's last above.
    assert summary.levels[0].sign_agreement == 1.0


def test_estimators_without_levels() -> None:
    summary = summary_of(estimator="reinforce")
    assert (summary.levels, summary.episode) == ((), None)
    assert summary.flat() == {
        "advantage_mean": pytest.approx(0),
        "advantage_deviation": pytest.approx((2.5625 / 7 - (3.25 / 7) ** 2) ** 0.5),
        "advantage_zero_share": 0.0,
        "unequal_starts": 0.0,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"early": "drop"},
        {"match_by": "embedding", "match_threshold": 0.5, "match_kernel": "epanechnikov"},
        {"match_by": "embedding", "match_threshold": 0.5, "match_own_trajectory": False},
    ],
)
def test_the_steps_that_a_step_is_compared_with(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    trajectory, step = np.repeat(np.arange(8), 5), np.tile(np.arange(5), 8)
    place = rng.integers(0, 12, 40)
    batch = StepBatch.from_columns(
        group=trajectory // 4, trajectory=trajectory, step=step, observation=place, reward=rng.random(40),
        embedding=place[:, None] / 2.0,
    )  # fmt: skip
    advantages = compute_advantages(batch, "hgpo", history_length=1, **options)
    for level in advantages.levels:
        for row in range(40):
            rows, weights = compared_with(level, row)
            assert len(rows) == level.size[row]
            assert rows.tolist() == sorted(rows)
            assert len(rows) == 0 or row in rows
            if len(rows):
                assert np.average(advantages.returns[rows], weights=weights) == pytest.approx(level.mean[row])
            np.testing.assert_array_equal(compared_with(level, row - 40), (rows, weights))
        with pytest.raises(IndexError):
            compared_with(level, 40)


def test_tasks_are_counted_whose_trajectories_start_in_different_states() -> None:
    batch = StepBatch.from_columns(
        group=[0, 0, 0, 1, 1], trajectory=list("aabcd"), step=[1, 0, 0, 0, 0], observation=list("xyyzy"), reward=[0] * 5
    )
    summary = summary_of(batch)
    assert (summary.unequal_starts, summary.flat()["unequal_starts"]) == (1, 0.5)
    assert starts_note(0.5).startswith("in 50 % of the tasks, trajectories start in different states")
    assert starts_note(1 / 500).startswith("in 0.2 % of the tasks")
    assert starts_note(0.0) == ""


@pytest.mark.parametrize("estimator", names())
def test_every_estimator_can_be_summarised(estimator: str) -> None:
    batch = StepBatch.from_columns(
        group=[0] * 6, trajectory=[0, 0, 1, 1, 2, 2], step=[0, 1] * 3, observation=list("abacab"),
        action=list("xyxyxx"), reward=[0, 1, 0, 0, 0, 2], value=[0.5] * 6, prompt=list("abacab"),
        next_observation=list("b.c.b."), success=[False, True, False, False, False, True],
        response_log_prob=[-0.5] * 6,
    )  # fmt: skip
    advantages = compute_advantages(batch, estimator)
    summary = summarise_levels(batch, advantages)
    assert summary.advantage_max == advantages.values.max()
    assert [level.k for level in summary.levels] == [level.k for level in advantages.levels]
    for figure, level in zip(summary.levels, advantages.levels, strict=True):
        assert figure.usable_share == np.mean(level.used)
        assert figure.mean_size == pytest.approx(level.size.mean())
        assert figure.mean_trajectories == pytest.approx(level.trajectories.mean())


def test_a_level_that_no_step_reaches() -> None:
    batch = StepBatch.from_columns(group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=[0, 0], reward=[0, 1])
    level = summary_of(batch, history_length=1, early="drop").levels[1]
    assert (level.no_context_share, level.groups, level.mean_size, level.size_max) == (1.0, 0, 0.0, None)
    assert level.variance_explained is None


def test_another_batch_is_an_error() -> None:
    other = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[0])
    with pytest.raises(ValueError, match="the batch has 1 steps and the advantages 7"):
        summarise_levels(other, compute_advantages(KITCHENS))


def test_to_dict_is_json_and_flat_has_no_gaps() -> None:
    summary = summary_of(history_length=1)
    restored = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert restored["levels"][1]["k"] == 1
    assert restored["levels"][0]["sign_agreement"] is None
    flat = summary.flat()
    assert "level_sign_agreement_0" not in flat
    assert flat["level_sign_agreement_1"] == 1.0
    assert all(isinstance(value, float) for value in flat.values())


def share(marks: list[bool]) -> float | None:
    return sum(marks) / len(marks) if marks else None


def squares(values: list[float]) -> float:
    """Sum of squared deviations from the mean, rounding counted as 0."""
    _, std = reference.mean_and_std(values, [1.0] * len(values), 0)
    return std**2 * len(values)


def agreement(level: Level, other: list[float]) -> float | None:
    pairs = zip(level.used.tolist(), level.advantage.tolist(), other, strict=True)
    return share([(mine > 0) == (theirs > 0) for used, mine, theirs in pairs if used and mine and theirs])


def check_level(
    summary: LevelSummary, batch: Columns, level: Level, members: list[frozenset[int] | None], advantages: Advantages
) -> None:
    count = len(members)
    rows = [row for row in range(count) if members[row]]
    groups = {group for group in members if group}
    returns = advantages.returns.tolist()
    assert summary.groups == len(groups)
    assert summary.usable_share == pytest.approx(sum(level.used) / count)
    reasons = (summary.no_context_share, summary.alone_share, summary.dropped_share, summary.only_trajectory_share)
    assert reasons == pytest.approx([sum(level.unused == code) / count for code in (1, 2, 3, 4)])
    assert summary.usable_share + sum(reasons) == pytest.approx(1)
    assert summary.singleton_share == share([len(group) == 1 for group in groups])
    assert summary.mean_size == pytest.approx(sum(len(members[row] or ()) for row in rows) / count)
    distinct = [len({batch["trajectory"][at] for at in members[row] or ()}) for row in rows]
    assert summary.mean_trajectories == pytest.approx(sum(distinct) / count)
    assert summary.size_max == max(map(len, groups), default=None)
    weights = [weight for weight, used in zip(level.weight, level.used, strict=True) if used]
    assert summary.mean_weight == pytest.approx(math.fsum(weights) / count)
    assert summary.sign_agreement_final == agreement(level, advantages.values.tolist())
    if level.k is None:
        return
    shared = [group for group in groups if len(group) > 1]
    differ = [len({batch["prompt"][at] for at in group}) > 1 for group in shared]
    by_steps = [mark for group, mark in zip(shared, differ, strict=True) for _ in group]
    assert summary.prompts_differ_steps == pytest.approx(share(by_steps))
    check_variance(summary, batch, groups, [returns[row] for row in range(count)], rows)


def check_variance(
    summary: LevelSummary, batch: Columns, groups: set[frozenset[int]], returns: list[float], rows: list[int]
) -> None:
    """By loops over groups, trajectories and pairs of trajectories."""
    values: dict[tuple[frozenset[int], Any], float] = {}
    for group in groups:
        for trajectory in {batch["trajectory"][row] for row in group}:
            visits = [returns[row] for row in group if batch["trajectory"][row] == trajectory]
            values[group, trajectory] = math.fsum(visits) / len(visits)
    within = math.fsum(squares([value for (at, _), value in values.items() if at == group]) for group in groups)
    total = expected = 0.0
    for task in {batch["group"][row] for row in rows}:
        here = {key: value for key, value in values.items() if batch["group"][min(key[0])] == task}
        total += squares([*here.values()])
        own_groups = len({group for group, _ in here})
        expected += (len(here) - own_groups) * half_mean_difference(here)
    assert summary.variance_explained == (pytest.approx(1 - within / total, abs=1e-9) if total > 1e-20 else None)
    if expected > 1e-20:
        assert summary.variance_explained_adjusted == pytest.approx(1 - within / expected, abs=1e-9)
    else:
        assert summary.variance_explained_adjusted is None


def half_mean_difference(values: dict[tuple[frozenset[int], Any], float]) -> float:
    """Half the mean squared difference between values of two trajectories."""
    of: dict[Any, list[float]] = {}
    for (_, trajectory), value in values.items():
        of.setdefault(trajectory, []).append(value)
    means = [
        math.fsum((x - y) ** 2 for x in one for y in other) / (len(one) * len(other))
        for one, other in permutations(of.values(), 2)
    ]
    return math.fsum(means) / len(means) / 2 if means else 0.0


@given(columns(), gammas, hgpo_options)
def test_the_summary_equals_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    _, items = reference.hgpo(batch, gamma, options)
    steps = StepBatch.from_columns(**batch)
    advantages = compute_advantages(steps, "hgpo", gamma, **options)
    summary = summarise_levels(steps, advantages)
    levels = ([advantages.episode] if advantages.episode else []) + list(advantages.levels)
    figures = ([summary.episode] if summary.episode else []) + list(summary.levels)
    for level, figure, item in zip(levels, figures, items, strict=True):
        check_level(figure, batch, level, item.members, advantages)
    assert figures[0].sign_agreement is None
    for before, level, figure in zip(levels, levels[1:], figures[1:], strict=False):
        others = [a if used else 0.0 for a, used in zip(before.advantage.tolist(), before.used.tolist(), strict=True)]
        assert figure.sign_agreement == agreement(level, others)


def test_the_numbers_on_the_page_and_in_the_docstrings() -> None:
    for result in (doctest.testfile(str(PAGE), module_relative=False), doctest.testmod(diagnostics)):
        assert result.attempted > 0
        assert result.failed == 0


def test_the_page_names_every_figure() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name in LevelSummary.__slots__ if name != "k" and f"`{name}`" not in page]
    assert not missing
