import numpy as np
import pytest

from hgpo.report.sampling import TaskSampler


def test_all_or_so_many_whole_tasks():
    group_N = np.repeat(np.arange(10), 5)
    assert TaskSampler(1.0, np.random.default_rng(0)).take(group_N) == list(range(10))
    assert len(TaskSampler(0.5, np.random.default_rng(0)).take(group_N)) == 5


def test_what_is_left_over_is_carried_to_the_next_update():
    sampler = TaskSampler(0.25, np.random.default_rng(0))
    taken = [len(sampler.take(np.zeros(8, dtype=np.int64))) for _ in range(8)]
    assert taken == [0, 0, 0, 1, 0, 0, 0, 1]


def test_long_tasks_are_as_likely_as_short_ones():
    group_N = np.repeat([0, 1], [1, 9])
    sampler = TaskSampler(0.5, np.random.default_rng(0))
    taken = [task for _ in range(1000) for task in sampler.take(group_N)]
    assert taken.count(0) / len(taken) == pytest.approx(0.5, abs=0.05)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="share must be above 0"):
        TaskSampler(0.0, np.random.default_rng(0))
