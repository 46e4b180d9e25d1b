import numpy as np

from hgpo import compute_advantages
from hgpo.report.analysis import analyse
from hgpo.report.estimator_comparison import NO_TRAINING, report_estimators
from hgpo.report.sampled import sample_tasks
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch


def test_tasks_are_sampled_whole_and_in_time(folder, rows):
    update = analyse(read_batch(find_step_files(folder)[0]), report_estimators(NO_TRAINING), gamma=0.5)
    first, second = sample_tasks(update, [0, 1])
    assert [(task.id, task.type, len(task)) for task in (first, second)] == [("1/a", "walk", 7), ("1/b", "walk", 4)]
    assert first.trajectory_ids == ("1/a#0", "1/a#1", "1/a#2")
    assert first.columns["step"].tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert first.columns["trajectory"].tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert first.texts["observation"][:2] == ("hall", "kitchen")
    assert first.texts["response"] + second.texts["response"] == tuple(row["response"] for row in rows)
    assert [task.success_M.tolist() for task in (first, second)] == [[1, 0, 1], [1, 0]]
    paper = compute_advantages(update.steps.batch, gamma=0.5)
    np.testing.assert_array_equal(second.advantages["paper"], paper.values[7:])
    np.testing.assert_array_equal(second.levels["paper"][1].columns["unused"], paper.levels[1].unused[7:])

    names = first.node_observation
    assert set(names[:-2]) == {"hall", "garden", "kitchen"}
    assert names[-2:] == (None, False)  # the end of those that won, and of the others
    led_to = [names[node] for node in first.columns["target"]]
    assert led_to == ["kitchen", None, "kitchen", False, "garden", "kitchen", None]
