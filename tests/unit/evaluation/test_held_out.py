from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hgpo.evaluation.eval_history import held_out_results
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation, write_evaluation
from hgpo.runs.folder import RunDirectory, write_json

STORED = Path(__file__).parents[2] / "data" / "comparison" / "runs" / "quickstart" / "evaluations"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that holds the evaluations of the quickstart, and no more."""
    shutil.copytree(STORED, tmp_path / "run" / "evaluations")
    return RunDirectory(tmp_path / "run")


def test_before_after_and_what_lies_between_in_the_order_of_updates(run: RunDirectory) -> None:
    write_evaluation(run.evaluation("update-9"), read_evaluation(run.evaluation("before")))
    write_evaluation(run.evaluation("update-40"), read_evaluation(run.evaluation("before")))
    write_evaluation(run.evaluation("update-70"), read_evaluation(run.evaluation("before")))  # of a longer training
    write_evaluation(run.evaluation("valid_seen-123"), read_evaluation(run.evaluation("before")))
    found = held_out_results(run, updates=70)
    assert [(point.name, point.update) for point in found.points] == [
        ("before", 0),
        ("update-9", 9),
        ("update-40", 40),
        ("update-70", 70),
        ("after", 70),
    ]
    assert [round(100 * point.success.mean, 1) for point in found.points] == [32.0, 32.0, 32.0, 32.0, 60.9]
    assert found.points[0].evaluation_set == "256 tasks of valid_unseen, temperature 0.4, seed 123"
    assert found.gain is not None
    assert round(100 * found.gain.mean, 1) == 28.9  # as docs/evaluation.md has it
    assert found.problems == ()


def test_one_that_is_damaged_is_named_and_the_rest_is_read(run: RunDirectory) -> None:
    run.evaluation("after").write_text("{", encoding="utf-8")
    found = held_out_results(run, updates=70)
    assert [point.name for point in found.points] == ["before"]
    assert found.gain is None
    assert len(found.problems) == 1
    assert "after.json" in found.problems[0]


def test_one_that_is_gone_is_missed_where_the_run_was_finished_with_it(run: RunDirectory) -> None:
    run.evaluation("after").unlink()
    assert held_out_results(run, updates=70).problems == ()  # nothing says that it ever was
    write_json(run.summary, {"evaluations": ["after", "before"]})
    (problem,) = held_out_results(run, updates=70).problems
    assert f"{run.evaluation('after')} is missing" in problem
    run.summary.write_text("{", encoding="utf-8")
    assert any("summary.json" in problem for problem in held_out_results(run, updates=70).problems)


def test_a_run_that_was_not_evaluated_before_training_has_no_gain(run: RunDirectory) -> None:
    run.evaluation("before").rename(run.evaluation("update-9"))
    found = held_out_results(run, updates=70)
    assert [point.update for point in found.points] == [9, 70]
    assert found.gain is None


def test_other_tasks_make_no_gain(run: RunDirectory) -> None:
    stored = read_evaluation(run.evaluation("after")).evaluation
    write_evaluation(run.evaluation("after"), StoredEvaluation(replace(stored, seeds=(5,))))
    assert held_out_results(run, updates=70).gain is None


def test_evaluations_of_different_sets_are_described_as_such(run: RunDirectory) -> None:
    assert held_out_results(run, updates=70).evaluation_set == "256 tasks of valid_unseen, temperature 0.4, seed 123"
    after = read_evaluation(run.evaluation("after"))
    write_evaluation(run.evaluation("after"), replace(after, evaluation=replace(after.evaluation, temperature=1.0)))
    found = held_out_results(run, updates=70)
    assert found.gain is None
    assert found.evaluation_set == (
        "before: 256 tasks of valid_unseen, temperature 0.4, seed 123; "
        "after: 256 tasks of valid_unseen, temperature 1, seed 123. Tasks or conditions differ, so there is no gain"
    )
