from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.estimators.diagnostics import prompts_differ, size_percentiles, variance_explained
from hgpo.grouping import Runs


def runs(*sizes: int) -> Runs:
    return Runs.from_starts(np.array([place == 0 for size in sizes for place in range(size)]))


def explained(
    returns: list[float], groups: Runs, tasks: list[int] | None = None, trajectories: list[int] | None = None
) -> tuple[float | None, float | None]:
    """Each return in its own trajectory, unless said otherwise."""
    return_P = np.array(returns, dtype=np.float64)
    task_P = np.zeros(len(returns), dtype=np.int64) if tasks is None else np.array(tasks)
    trajectory_P = np.arange(len(returns)) if trajectories is None else np.array(trajectories)
    return variance_explained(return_P, trajectory_P, task_P, groups)


def test_two_groups_by_hand() -> None:
    """Mean 1.5, T = 2.25 + .25 + .25 + 2.25 = 5; W = .5 + .5; E[W] = 5 (4 - 2) / (4 - 1)."""
    assert explained([0, 1, 2, 3], runs(2, 2)) == pytest.approx((0.8, 0.7), rel=1e-12)


def test_two_tasks_by_hand() -> None:
    """Task 0: returns 0 2 | 4, T 8, W 2, E 8 (3 - 2) / 2 = 4. Task 1: 10 10 in one group, T = W = 0."""
    assert explained([0, 2, 4, 10, 10], runs(2, 1, 2), [0, 0, 0, 1, 1]) == pytest.approx((6 / 8, 2 / 4), rel=1e-12)


def test_the_whole_task_as_one_group_explains_nothing() -> None:
    assert explained([0.1, 0.7, 0.4], runs(3)) == pytest.approx((0, 0), abs=1e-15)


def test_singletons_explain_everything_and_prove_nothing() -> None:
    assert explained([1, 2, 3], runs(1, 1, 1)) == (1.0, None)


def test_without_variance_there_is_nothing_to_explain() -> None:
    assert explained([0.1] * 4, runs(2, 2)) == (None, None)
    assert explained([5.0, 6.0], runs(1, 1), [0, 1]) == (None, None)


def test_equal_returns_in_every_group_are_all_explained() -> None:
    assert explained([1, 1, 4, 4, 4], runs(2, 3)) == (1.0, 1.0)


@given(
    st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=6), st.data(), st.integers(0, 2), st.integers(0, 10**6)
)
@pytest.mark.slow
def test_chance_explains_nothing_once_adjusted(
    returns: list[float], data: st.DataObject, extra: int, start: int
) -> None:
    """E[W] is the mean of W over all ways to deal the returns of a task out, whatever its groups are."""
    cut = data.draw(st.integers(1, len(returns) - 1))
    groups = runs(cut, *[1] * (len(returns) - cut - 1), 1) if extra == 0 else runs(cut, len(returns) - cut)
    if len(set(returns)) == 1 or len(groups.start_G) == len(returns):
        return
    both = [explained(list(dealt), groups) for dealt in permutations(returns)]
    assert math.fsum(adjusted for _, adjusted in both if adjusted is not None) / len(both) == pytest.approx(0, abs=1e-9)
    assert all(share is not None and 0 <= share <= 1 for share, _ in both)


def test_one_task_gives_the_adjusted_r_squared() -> None:
    returns, groups = [0.3, 1.1, -2.0, 0.5, 0.4, 0.9, 3.0], runs(3, 2, 2)
    share, adjusted = explained(returns, groups)
    assert share is not None
    assert adjusted == pytest.approx(1 - (1 - share) * (7 - 1) / (7 - 3), rel=1e-12)


def test_visits_of_one_trajectory_count_once() -> None:
    """Group 0: trajectory 0 with returns 0 and 2, mean 1, and trajectory 1 with 3; group 1: trajectory 0 with 1.

    Values 1 3 | 1, mean 5 / 3: T = 4 / 9 + 16 / 9 + 4 / 9, W = 2. Trajectory 0 has 1 twice, so S^2 = (3 - 1)^2 / 2 = 2,
    and E[W] = 2 (3 - 2).
    """
    found = explained([0, 2, 3, 1], runs(3, 1), trajectories=[0, 0, 1, 0])
    assert found == pytest.approx((1 - 2 / (24 / 9), 0), abs=1e-12)
    assert explained([1, 3, 1], runs(2, 1), trajectories=[0, 1, 0]) == pytest.approx(found, abs=1e-12)


def test_a_group_may_come_before_one_of_an_earlier_task() -> None:
    one = explained([0, 2, 4, 10, 12, 11], runs(2, 1, 2, 1), [1, 1, 1, 0, 0, 0])
    assert one == pytest.approx(explained([10, 12, 11, 0, 2, 4], runs(2, 1, 2, 1), [0, 0, 0, 1, 1, 1]), rel=1e-12)


@given(st.data())
@pytest.mark.slow
def test_exchanged_outcomes_explain_nothing(data: st.DataObject) -> None:
    """For any visits of the trajectories, the mean over all exchanges of their returns is 0."""
    outcomes = data.draw(st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=5))
    members = st.lists(st.integers(0, len(outcomes) - 1), min_size=1, max_size=6)
    groups = data.draw(st.lists(members, min_size=1, max_size=4))
    visiting = [trajectory for group in groups for trajectory in group]
    if len({(at, trajectory) for at, group in enumerate(groups) for trajectory in group}) == len(groups):
        return  # nothing is compared
    if len(set(visiting)) < len(outcomes) or len(set(outcomes)) == 1:
        return
    sizes = runs(*map(len, groups))
    found = [explained([dealt[at] for at in visiting], sizes, None, visiting)[1] for dealt in permutations(outcomes)]
    assert math.fsum(share for share in found if share is not None) / len(found) == pytest.approx(0, abs=1e-9)


def test_prompts_by_hand() -> None:
    assert prompts_differ(np.array([0, 0, 0, 1, 1, 2]), runs(2, 3, 1)) == 3 / 5
    assert prompts_differ(np.array([4, 3]), runs(1, 1)) is None


def test_sizes_seen_by_hand() -> None:
    assert size_percentiles(np.array([1, 4, 4, 4, 4, 1]), (10, 33, 34, 50, 100)) == [1, 1, 4, 4, 4]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 100))
def test_sizes_seen_equals_the_loop(sizes: list[int], percent: int) -> None:
    of_steps = sorted(size for size in sizes for _ in range(size))
    expected = next(s for s in of_steps if 100 * sum(t <= s for t in of_steps) >= percent * len(of_steps))
    assert size_percentiles(np.repeat(sizes, sizes), (percent,)) == [expected]
