"""`hgpo audit` of folders with result files: which of them are checkpoints of one evaluation."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audited import episode_rows, task_ids
from compared import write_run
from hgpo.cli.main import main
from hgpo.evaluation.manifests import manifests
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from house import write_rows
from panels import panel

Read = Callable[..., tuple[int, list[dict[str, Any]]]]
TASKS = task_ids(6)


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Read:
    def audits(path: Path, *words: Any) -> tuple[int, list[dict[str, Any]]]:
        status = main(["audit", str(path), "--json", *map(str, words)])
        return status, json.loads(capsys.readouterr().out)["audits"]

    return audits


def result(
    path: Path, won: int, tasks: list[str] = TASKS, model: str | None = None, agent: str | None = None, **figures: Any
) -> None:
    """The file of a policy that wins the first `won` tasks, and the log that `hgpo eval -o` writes beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = {task: float(place < won) for place, task in enumerate(tasks)}
    evaluation = panel({"put": [1.0]}, tasks_won=ends, split="valid_seen", **figures)
    write_evaluation(path, StoredEvaluation(evaluation, model=model, agent=agent))
    write_rows(path.with_suffix(".games.jsonl"), [{"evaluation": {}}])


def test_results_whose_names_have_a_number_are_checkpoints(tmp_path: Path, read: Read) -> None:
    for step, won in ((100, 3), (20, 5), (9, 4)):
        result(tmp_path / f"step_{step}.json", won)
    (tmp_path / "notes.json").write_text('{"author": "a"}')
    status, [report] = read(tmp_path, "--reported", 83.3)
    assert status == 0
    assert [each["checkpoint"] for each in report["passes"]] == [9, 20, 100]
    assert (report["peak"], report["last"], report["mean"]) == (5 / 6, 3 / 6, pytest.approx(4 / 6))
    assert report["reported_is"] == "peak, of checkpoint 20"


def test_agents_of_one_checkpoint_are_different_evaluations(tmp_path: Path, read: Read) -> None:
    for agent, won in (("direct", 5), ("react", 2)):
        result(tmp_path / f"{agent}.json", won, model="one (20)", agent=agent)
    status, reports = read(tmp_path)
    assert status == 0
    assert {report["log"]: report["passes"][0]["success"]["mean"] for report in reports} == {
        f"{tmp_path}: one, {agent}, valid_seen, temperature 0.4, seeds 1": pytest.approx(share)
        for agent, share in (("direct", 5 / 6), ("react", 2 / 6))
    }


def test_results_name_their_run_and_checkpoint(tmp_path: Path, read: Read) -> None:
    for name, model, won in (
        ("a", "one (start)", 2),
        ("b", "one (20)", 4),
        ("c", "one (update-3)", 3),
        ("d", "two (20)", 6),
        ("e", "two (after)", 1),
    ):
        result(tmp_path / f"{name}.json", won, model=model)
    status, reports = read(tmp_path)
    assert status == 0
    assert {
        report["log"].removeprefix(f"{tmp_path}: "): [each["checkpoint"] for each in report["passes"]]
        for report in reports
    } == {
        f"{series}, valid_seen, temperature 0.4, seeds 1": checkpoints
        for series, checkpoints in (("one", [0, 3, 20]), ("two", [20]), ("e", [None]))
    }


def test_a_checkpoint_that_lacks_a_task_is_a_violation(tmp_path: Path, read: Read) -> None:
    result(tmp_path / "step_1.json", 3)
    result(tmp_path / "step_2.json", 3, TASKS[:5])
    status, [report] = read(tmp_path)
    assert status == 1
    assert report["violations"] == [{"kind": "missing", "tasks": {TASKS[5]: "at checkpoint 2"}}]


@pytest.mark.parametrize("name", ["result-seed{}", "seed_{}-final"])
def test_results_whose_names_have_a_seed_are_one_evaluation(name: str, tmp_path: Path, read: Read) -> None:
    for seed in (1, 2, 3):
        result(tmp_path / f"{name.format(seed)}.json", seed, seeds=(seed,))
    status, [report] = read(tmp_path)
    assert (status, report["seeds"], len(report["passes"])) == (0, ["1", "2", "3"], 1)
    assert report["passes"][0]["plays"] == 3
    assert report["passes"][0]["success"]["mean"] == pytest.approx(2 / 6)


def test_other_results_are_logs_of_their_own(tmp_path: Path, read: Read) -> None:
    result(tmp_path / "gpt-4o.json", 3, model="gpt-4o")
    result(tmp_path / "qwen3.json", 5, TASKS[:5], model="qwen3")
    status, reports = read(tmp_path)
    assert status == 0
    assert [(report["tasks"], report["peak"]) for report in reports] == [(6, None), (5, None)]
    assert main(["audit", str(tmp_path), "--tasks", str(tmp_path / "missing.json")]) == 2


def test_a_damaged_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path / "step_1.json", 3)
    whole = json.loads((tmp_path / "step_1.json").read_text())
    (tmp_path / "step_2.json").write_text(json.dumps({"tasks_won": whole["tasks_won"]}))
    assert main(["audit", str(tmp_path)]) == 2
    assert "step_2.json is not an evaluation" in capsys.readouterr().err


def test_arrays_of_rows_are_checkpoints(tmp_path: Path, read: Read) -> None:
    for step in (30, 4):
        (tmp_path / f"step_{step}.json").write_text(json.dumps(episode_rows(TASKS, random.Random(step))))
    status, [report] = read(tmp_path)
    assert (status, [each["checkpoint"] for each in report["passes"]]) == (0, [4, 30])


def test_the_evaluations_of_a_run_are_those_of_the_run(tmp_path: Path, read: Read) -> None:
    figures = panel({"put": [1.0]}, tasks_won=dict.fromkeys(TASKS, 1.0), split="valid_seen")
    run = write_run(tmp_path / "run", dict.fromkeys(("before", "update-2", "after"), figures))
    status, [report] = read(run / "evaluations")
    assert (status, [each["checkpoint"] for each in report["passes"]]) == (0, [0, 2, 4])
    assert report == read(run)[1][0]


def test_an_evaluation_of_the_start_is_of_checkpoint_0(tmp_path: Path, read: Read) -> None:
    """As `hgpo eval RUN --checkpoint start` stores it, of a run that did not evaluate its start."""
    won = {"update-2": 2, "after": 1, "valid_seen-start-t0.4-s1": 5}
    ends = {name: {task: float(place < wins) for place, task in enumerate(TASKS)} for name, wins in won.items()}
    found = {name: panel({"put": [1.0]}, tasks_won=each, split="valid_seen") for name, each in ends.items()}
    status, [report] = read(write_run(tmp_path / "run", found))
    assert (status, [each["checkpoint"] for each in report["passes"]]) == (0, [0, 2, 4])
    assert (report["peak"], report["mean"]) == (2 / 6, pytest.approx(1.5 / 6))


@pytest.mark.parametrize("name", ["quickstart-valid_seen-1", "smollm2-valid_seen-1"])
def test_games_are_those_of_the_set_where_sets_share_ids(name: str, tmp_path: Path, read: Read) -> None:
    tasks = manifests()[name].tasks
    other = {task.id: task.game for one in manifests().values() if one.id != name for task in one.tasks}
    rows = [{"task_id": task.id, "won": True, "game_sha256": task.game} for task in tasks]
    status, [report] = read(write_rows(tmp_path / "log.jsonl", rows))
    assert (status, report["evaluation_set"]) == (0, name)
    shared = next(place for place, task in enumerate(tasks) if other.get(task.id, task.game) != task.game)
    rows[shared]["game_sha256"] = other[tasks[shared].id]
    status, [report] = read(write_rows(tmp_path / "log.jsonl", rows))
    assert (status, [one["kind"] for one in report["violations"]]) == (1, ["mixed"])
    assert list(report["violations"][0]["tasks"]) == [tasks[shared].id]


def test_a_finished_run_that_lost_an_evaluation_is_not_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", {"before": panel({"put": [1.0]}), "after": panel({"put": [1.0]})})
    (run / "summary.json").write_text(json.dumps({"evaluations": ["before", "update-1", "after"]}))
    assert main(["audit", str(run)]) == 2
    assert (
        f"{run / 'evaluations' / 'update-1.json'} is missing, but the run's summary.json lists it"
        in capsys.readouterr().err
    )


def test_of_sets_that_share_ids_it_is_the_one_whose_games_were_played(tmp_path: Path, read: Read) -> None:
    """As an evaluation of few tasks has them; the other set is the smaller one."""
    [large, small] = [manifests()[name].by_id() for name in ("quickstart-valid_unseen-1", "smollm2-valid_unseen-1")]
    shared = sorted(large.keys() & small.keys())
    assert shared
    assert len(large) > len(small)
    rows = [{"task_id": task, "won": True, "game_sha256": large[task].game} for task in shared]
    _, [report] = read(write_rows(tmp_path / "log.jsonl", rows))
    assert report["evaluation_set"] == "quickstart-valid_unseen-1"
    assert {one["kind"] for one in report["violations"]} == {"missing"}
    evaluation = panel({"put": [1.0]}, tasks_won=dict.fromkeys(shared, 1.0), split="valid_unseen")
    write_evaluation(tmp_path / "result.json", StoredEvaluation(evaluation, manifest="quickstart-valid_unseen-1"))
    assert read(tmp_path / "result.json")[1][0]["evaluation_set"] == "quickstart-valid_unseen-1"


def test_an_evaluation_of_fewer_games_does_not_replace_the_whole_one(tmp_path: Path, read: Read) -> None:
    """Names are read in alphabetical order: `test-2-…-first1` before `update-2`."""
    whole = panel({"put": [1.0]}, tasks_won=dict.fromkeys(TASKS, 1.0), split="test")
    few = panel({"put": [1.0]}, tasks_won={TASKS[0]: 0.0}, split="test")
    run = write_run(tmp_path / "run", {"before": whole, "test-2-t0.4-s1-first1": few, "update-2": whole})
    status, [report] = read(run)
    assert status == 0
    assert [(one["checkpoint"], one["episodes"]) for one in report["passes"]] == [(0, 6), (2, 6)]
