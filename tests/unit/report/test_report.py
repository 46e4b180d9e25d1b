import pytest

from hgpo.report.estimator_comparison import Training
from hgpo.report.report import TaskSampler, build_report


def test_everything_is_counted_and_shown(folder, rows):
    report = build_report(folder)
    assert (report.steps, report.tasks, report.sampled_steps, len(report.samples)) == (
        2 * len(rows),
        4,
        2 * len(rows),
        4,
    )
    assert [figures.update for figures in report.updates] == [1, 2]


def test_of_many_steps_whole_tasks_are_shown_and_all_are_counted(folder, rows):
    report = build_report(folder, max_steps=11)
    assert report.steps == 2 * len(rows)
    assert 0 < report.sampled_steps <= 11
    assert all(len(task) in (4, 7) for task in report.samples)
    assert len(build_report(folder).thinned(0.01).samples) == 1
    assert len(build_report(folder, max_steps=1).samples) == 1


def test_some_updates_alone(folder):
    assert [figures.update for figures in build_report(folder, updates=[2]).updates] == [2]
    with pytest.raises(ValueError, match="contains no rollouts of update 9"):
        build_report(folder, updates=[9])


def test_a_damaged_file_does_not_hide_the_others(folder):
    (folder / "00001.jsonl").write_text("{")
    report = build_report(folder)
    assert [figures.update for figures in report.updates] == [2]
    assert str(report.notices[0]).startswith("00001.jsonl line 1: not JSON")


def test_where_nothing_can_be_read_every_file_is_named(folder):
    (folder / "00001.jsonl").write_text("{")
    (folder / "00002.jsonl").write_text("")
    with pytest.raises(ValueError, match="nothing can be reported") as error:
        build_report(folder)
    assert "00001.jsonl line 1: not JSON" in str(error.value)
    assert "00002.jsonl: no rows" in str(error.value)


def test_metrics_alone_give_figures_and_no_steps(tmp_path):
    metrics = ({"update": 1, "success": 0.5, "reward": 5.0, "episode_length": 3.0},)
    report = build_report(tmp_path, Training(metrics=metrics))
    assert report.sampled_steps == 0
    assert "contains no rollouts" in str(report.notices[0])
    with pytest.raises(ValueError, match="contains no rollouts"):
        build_report(tmp_path)


def test_every_task_is_equally_likely_and_a_remainder_is_carried_to_the_next_update():
    assert TaskSampler(1.0).take(10) == list(range(10))
    sampler = TaskSampler(0.25)
    assert [len(sampler.take(2)) for _ in range(8)] == [0, 1] * 4
    sampler = TaskSampler(0.5)
    taken = [task for _ in range(1000) for task in sampler.take(2)]
    assert taken.count(0) / len(taken) == pytest.approx(0.5, abs=0.05)
