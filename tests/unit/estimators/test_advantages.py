from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from batches import Columns, columns, gammas, hgpo_options
from hgpo.estimators import compute_advantages
from hgpo.estimators.base import Unused, distinct_per_run
from hgpo.grouping import Runs
from hgpo.steps import StepBatch

# c visits the hall twice; d is a task of its own. gamma 0: the return is the reward.
HALLS = StepBatch.from_columns(
    group=["one"] * 6 + ["two"],
    trajectory=["a", "a", "b", "c", "c", "c", "d"],
    step=[0, 1, 0, 0, 1, 2, 0],
    observation=["hall", "kitchen", "hall", "hall", "garden", "hall", "hall"],
    reward=[1, 0, 1, 0, 0, 2, 0],
)


def test_trajectories_count_a_trajectory_once() -> None:
    first, second = compute_advantages(HALLS, "hgpo", gamma=0, history_length=1, early="drop").levels
    assert first.size.tolist() == [4, 1, 4, 4, 1, 4, 1]
    assert first.trajectories.tolist() == [3, 1, 3, 3, 1, 3, 1]
    assert second.trajectories.tolist() == [0, 1, 0, 0, 1, 1, 0]


def test_every_reason_by_hand() -> None:
    """Level 0: the halls have returns 1, 1, 0, 2 with mean 1. Scores of task one: a 1, b 1, c 2."""
    result = compute_advantages(HALLS, "hgpo", gamma=0, history_length=1, preset="verl-agent", base_group=True)
    dropped, alone, early, no = Unused.DROPPED, Unused.ALONE, Unused.NO_CONTEXT, Unused.NO
    assert result.levels[0].unused.tolist() == [dropped, alone, dropped, no, alone, no, alone]
    assert result.levels[1].unused.tolist() == [early, alone, early, early, alone, alone, early]
    assert result.episode is not None
    assert result.episode.unused.tolist() == [no] * 6 + [Unused.ONLY_TRAJECTORY]
    assert result.episode.trajectories.tolist() == [3] * 6 + [1]
    assert result.levels[0].unused.dtype == np.int8


def test_a_task_whose_scores_are_equal_is_dropped_and_not_an_only_trajectory() -> None:
    batch = StepBatch.from_columns(group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=[0, 0], reward=[1, 1])
    episode = compute_advantages(batch, "hgpo", missing="drop_zero", base_group=True).episode
    assert episode is not None
    assert episode.unused.tolist() == [Unused.DROPPED] * 2


def test_every_reason_has_its_own_text() -> None:
    assert len({reason.text for reason in Unused}) == len(Unused) == 5


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "dr_grpo", "gigpo"])
def test_other_estimators_know_the_trajectories_too(estimator: str) -> None:
    result = compute_advantages(HALLS, estimator)
    assert result.episode is not None
    assert result.episode.trajectories.tolist() == [3] * 6 + [1]
    assert result.episode.unused.tolist() == [0] * 6 + [Unused.ONLY_TRAJECTORY]
    assert all(level.trajectories.max() == 3 for level in result.levels)


@given(columns(), gammas, hgpo_options)
def test_trajectories_and_reasons_equal_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    _, items = reference.hgpo(batch, gamma, options)
    actual = compute_advantages(StepBatch.from_columns(**batch), "hgpo", gamma, **options)
    levels = ([actual.episode] if actual.episode else []) + list(actual.levels)
    for level, item in zip(levels, items, strict=True):
        trajectories = [{batch["trajectory"][at] for at in members or ()} for members in item.members]
        assert level.trajectories.tolist() == list(map(len, trajectories))
        for row, (members, used) in enumerate(zip(item.members, item.used, strict=True)):
            if used:
                expected = Unused.NO
            elif members is None:
                expected = Unused.NO_CONTEXT
            elif level.k is None and len(trajectories[row]) == 1:
                expected = Unused.ONLY_TRAJECTORY
            else:
                expected = Unused.ALONE if level.k is not None and len(members) == 1 else Unused.DROPPED
            assert level.unused[row] == expected


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=6))
def test_distinct_per_run_equals_sets(groups: list[list[int]]) -> None:
    starts_N = np.array([place == 0 for group in groups for place in range(len(group))])
    key_N = np.array([key for group in groups for key in group])
    assert distinct_per_run(key_N, Runs.from_starts(starts_N)).tolist() == [len(set(group)) for group in groups]
