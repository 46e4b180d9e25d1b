import numpy as np
import pytest

from hgpo import compute_advantages
from hgpo.report.analysis import analyse
from hgpo.report.estimator_comparison import shown_estimators
from hgpo.report.shown import shown_steps
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch


@pytest.fixture
def update(folder):
    return analyse(read_batch(find_step_files(folder)[0]), shown_estimators(None), gamma=0.5)


def test_shown_steps_are_ranges_of_tasks_in_time(update, rows):
    shown = shown_steps(update, [0, 1])
    assert len(shown) == len(rows)
    assert shown.task_S.tolist() == [0] * 7 + [1] * 4
    assert shown.step_S.tolist() == [0, 1, 0, 1, 0, 1, 2, 0, 1, 0, 1]
    assert shown.texts["observation"][:2] == ("hall", "kitchen")
    assert shown.texts["response"] == tuple(row["response"] for row in rows)
    assert shown.success_M.tolist() == [True, False, True, True, False]
    paper = compute_advantages(update.batch, gamma=0.5)
    (columns,) = [estimator for estimator in shown.estimators if estimator.key == "paper"]
    np.testing.assert_array_equal(columns.advantage_S, paper.values)
    np.testing.assert_array_equal(columns.levels[1].unused_S, paper.levels[1].unused)


def test_nodes_of_a_task_end_with_what_was_won_and_what_was_not(update):
    shown = shown_steps(update, [0, 1])
    assert set(shown.node_observation[0][:-2]) == {"hall", "garden", "kitchen"}
    assert shown.node_observation[0][-2:] == (None, False)
    names = shown.node_observation[0]
    assert [names[node] for node in shown.target_S[:7]] == [
        "kitchen",
        None,
        "kitchen",
        False,
        "garden",
        "kitchen",
        None,
    ]


def test_fewer_tasks_are_the_same_as_choosing_fewer(update):
    fewer, chosen = shown_steps(update, [0, 1]).with_tasks([1]), shown_steps(update, [1])
    assert fewer.task_ids == chosen.task_ids == ("1/b",)
    assert fewer.trajectory_ids == chosen.trajectory_ids
    assert fewer.texts == chosen.texts
    for name in ("task_S", "trajectory_S", "step_S", "return_S", "source_S", "target_S", "success_M"):
        np.testing.assert_array_equal(getattr(fewer, name), getattr(chosen, name))
    assert len(fewer) == len(chosen) == 4
