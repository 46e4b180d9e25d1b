import numpy as np
import pytest

from hgpo import compute_advantages
from hgpo.report.analysis import analyse
from hgpo.report.estimator_comparison import report_estimators
from hgpo.report.sampled import sample_steps
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch


@pytest.fixture
def update(folder):
    return analyse(read_batch(find_step_files(folder)[0]), report_estimators(None), gamma=0.5)


def test_sampled_steps_are_ranges_of_tasks_in_time(update, rows):
    sampled = sample_steps(update, [0, 1])
    assert len(sampled) == len(rows)
    assert sampled.columns["task"].tolist() == [0] * 7 + [1] * 4
    assert sampled.columns["step"].tolist() == [0, 1, 0, 1, 0, 1, 2, 0, 1, 0, 1]
    assert sampled.texts["observation"][:2] == ("hall", "kitchen")
    assert sampled.texts["response"] == tuple(row["response"] for row in rows)
    assert sampled.success_M.tolist() == [True, False, True, True, False]
    paper = compute_advantages(update.batch, gamma=0.5)
    np.testing.assert_array_equal(sampled.advantages["paper"], paper.values)
    np.testing.assert_array_equal(sampled.levels["paper"][1].columns["unused"], paper.levels[1].unused)


def test_nodes_of_a_task_end_with_what_was_won_and_what_was_not(update):
    sampled = sample_steps(update, [0, 1])
    assert set(sampled.node_observation[0][:-2]) == {"hall", "garden", "kitchen"}
    assert sampled.node_observation[0][-2:] == (None, False)
    names = sampled.node_observation[0]
    assert [names[node] for node in sampled.columns["target"][:7]] == [
        "kitchen",
        None,
        "kitchen",
        False,
        "garden",
        "kitchen",
        None,
    ]


def test_fewer_tasks_are_the_same_as_choosing_fewer(update):
    fewer, chosen = sample_steps(update, [0, 1]).with_tasks([1]), sample_steps(update, [1])
    assert fewer.task_ids == chosen.task_ids == ("1/b",)
    assert fewer.trajectory_ids == chosen.trajectory_ids
    assert fewer.texts == chosen.texts
    for name in ("task", "trajectory", "step", "return", "source", "target"):
        np.testing.assert_array_equal(fewer.columns[name], chosen.columns[name])
    np.testing.assert_array_equal(fewer.success_M, chosen.success_M)
    assert len(fewer) == len(chosen) == 4
