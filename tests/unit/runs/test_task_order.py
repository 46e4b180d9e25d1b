import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.rollout.sampling import task_indices


@given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 40), st.integers(0, 30))
def test_draws_are_windows_of_one_endless_order(seed, tasks, start, count):
    whole = task_indices(seed, tasks, 0, start + count)
    assert task_indices(seed, tasks, start, count) == whole[start:]


def test_each_pass_takes_every_task_once_in_a_new_order():
    drawn = task_indices(0, 50, 0, 100)
    assert sorted(drawn[:50]) == sorted(drawn[50:]) == list(range(50))
    assert drawn[:50] != drawn[50:]
    assert drawn != task_indices(1, 50, 0, 100)


def test_no_tasks_is_an_error():
    with pytest.raises(ValueError, match="has no tasks"):
        task_indices(0, 0, 0, 1)
