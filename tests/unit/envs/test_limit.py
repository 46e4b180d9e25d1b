import pytest

from corridor import Corridor
from hgpo.envs.limit import LimitedEnv, LimitedSuite


def test_the_limit_truncates_on_the_last_step_and_a_reset_counts_anew():
    environment = LimitedEnv(Corridor(goal=5), 2)
    for _ in range(2):
        environment.reset()
        assert [environment.step("go right")[3] for _ in range(2)] == [False, True]


def test_winning_on_the_last_step_is_termination():
    environment = LimitedEnv(Corridor(goal=1), 2)
    environment.reset()
    environment.step("go right")
    assert environment.step("open door")[1:4] == (1.0, True, False)


def test_a_suite_is_limited_lazily_and_can_be_sliced(corridor_suite):
    tasks = LimitedSuite(corridor_suite, 3).tasks("train")
    assert [task.id for task in tasks] == ["train/1", "train/3", "train/5"]
    assert [task.id for task in tasks[:2]] == ["train/1", "train/3"]
    assert isinstance(tasks[0].make(), LimitedEnv)


def test_no_room_for_a_step_is_refused():
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        LimitedEnv(Corridor(1), 0)
