"""The one reader and writer of evaluations: what round trips, what is optional, what is refused with which words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.evaluation.result_files import (
    Failure,
    Latency,
    StoredEvaluation,
    TokenCount,
    read_evaluation,
    stored_evaluation,
    write_evaluation,
)
from hgpo.runs.folder import RunDirectory, RunDirectoryError
from panels import panel

STORED = Path(__file__).parents[2] / "data" / "run" / "evaluations" / "before.json"
FULL = StoredEvaluation(
    panel({"heat": [1, 0], "cool": [1]}),
    model="Qwen2.5-7B-Instruct",
    agent="reflexion",
    environment="alfworld",
    episodes=2,
    failed=1,
    failures=(Failure("cool/0", 1, "the server is gone"),),
    tokens=TokenCount(prompt=900, response=100),
    requests=20,
    cost=0.25,
    seconds=12.5,
    latency=Latency(mean=0.5, p95=1.5),
    success_by_trial=(0.5, 2 / 3),
    manifest="alfworld-valid_seen-1",
    manifest_differs=("valid_seen/a",),
)


def test_every_key_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "model.json", FULL)
    assert read_evaluation(tmp_path / "model.json") == FULL
    assert FULL.episodes_played == 2
    keys = json.loads((tmp_path / "model.json").read_text())
    assert keys["tokens"] == {"prompt": 900, "response": 100}
    assert keys["failures"] == [{"task": "cool/0", "seed": 1, "reason": "the server is gone"}]
    assert "evaluation" not in keys


def test_what_is_not_known_is_null_beside_what_is(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "model.json", StoredEvaluation(FULL.evaluation, model="m"))
    keys = json.loads((tmp_path / "model.json").read_text())
    assert (keys["model"], keys["tokens"], keys["cost"], keys["failures"]) == ("m", None, None, [])
    assert read_evaluation(tmp_path / "model.json") == StoredEvaluation(FULL.evaluation, model="m")


@given(st.text())
def test_any_reason_of_a_failure_can_be_read_back(tmp_path_factory: pytest.TempPathFactory, reason: str) -> None:
    path = tmp_path_factory.getbasetemp() / "reason.json"
    write_evaluation(path, StoredEvaluation(FULL.evaluation, failed=1, failures=(Failure("a", 1, reason),)))
    assert read_evaluation(path).failures[0].reason == reason.encode(errors="replace").decode()


def test_half_a_surrogate_pair_is_a_question_mark(changed: Any) -> None:
    assert read_evaluation(changed(model="a\ud800b")).model == "a?b"


@pytest.fixture
def changed(tmp_path: Path) -> Any:
    """Writes a whole evaluation with some keys changed; a value of `...` takes the key away."""

    def write(**keys: object) -> Path:
        path = tmp_path / "changed.json"
        whole = {**json.loads(json.dumps(FULL.as_dict())), **keys}
        path.write_text(json.dumps({key: value for key, value in whole.items() if value is not ...}))
        return path

    return write


def test_nulls_and_keys_of_later_versions_are_passed_over(changed: Any) -> None:
    further = ("model", "agent", "environment", "episodes", "failed", "failures", "tokens", "requests", "cost")
    further += ("manifest", "manifest_differs")
    path = changed(**dict.fromkeys((*further, "seconds", "latency", "success_by_trial")), colour={"of": "the sky"})
    assert read_evaluation(path) == StoredEvaluation(FULL.evaluation)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"split": ..., "score": ...}, "is not an evaluation: it has no 'split', 'score'"),
        (
            {"success": {"mean": "0.5", "low": 0, "high": 1, "tasks": 3}},
            "'success.mean': Input should be a valid number",
        ),
        ({"success": {"mean": 0.5, "low": 0, "high": 1}}, "'success.tasks': Field required"),
        (
            {"success": {"mean": 1.5, "low": 0, "high": 1, "tasks": 3}},
            "'success.mean': Input should be less than or equal to 1",
        ),
        (
            {"by_task_type": {"heat": {"mean": 0, "low": 0, "high": 0, "tasks": 0}}},
            "'by_task_type.heat.tasks': Input should be",
        ),
        ({"by_task_type": {"\x1b[2J": None}}, r"'by_task_type.\x1b[2J': Input should be"),
        ({"tasks_won": {"a": -0.5}}, "'tasks_won.a': Input should be greater than or equal to 0"),
        ({"tasks_won": {}}, "'tasks_won': Dictionary should have at least 1 item"),
        ({"seeds": []}, "'seeds': Tuple should have at least 1 item"),
        ({"seeds": [True]}, "'seeds.0': Input should be a valid integer"),
        ({"tokens": {"prompt": 1}}, "'tokens.response': Field required"),
        ({"failed": -1}, "'failed': Input should be greater than or equal to 0"),
        ({"episodes": 1.5}, "'episodes': Input should be a valid integer"),
        ({"model": 7}, "'model': Input should be a valid string"),
        ({"latency": [1, 2]}, "'latency': Input should be"),
        ({"latency": {"mean": 1.0, "p95": -2.0}}, "'latency.p95': Input should be greater than or equal to 0"),
        ({"success_by_trial": [0.5, 1.5]}, "'success_by_trial.1': Input should be less"),
        ({"cost": 10**400}, "'cost': Input should be a finite number"),
        ({"requests": 2**63}, "'requests': Input should be less than"),
        ({"score": float("inf")}, "'score': Input should be a finite number"),
        ({"cost": float("nan")}, "'cost': Input should be a finite number"),
    ],
)
def test_damage_is_named_by_its_place(changed: Any, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r"changed\.json is") as error:
        read_evaluation(changed(**keys))
    assert message in str(error.value)
    assert "\x1b" not in str(error.value)


def test_rows_are_no_evaluation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"steps\.jsonl has a row per step .*`hgpo advantages`"):
        read_evaluation(tmp_path / "steps.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (STORED.read_bytes()[:-40], "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * (10 * sys.getrecursionlimit()), "is not JSON"),
        (b"[]", "holds no object"),
        (b"null", "holds no object"),
        (b"{}", "is not an evaluation: it has no 'split'"),
        (b'{"update": 1}', "is not an evaluation"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_evaluation(path)


def test_a_run_reads_its_evaluations_the_same_way(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert stored_evaluation(run, "after") is None
    write_evaluation(run.evaluation("after"), FULL)
    assert stored_evaluation(run, "after") == FULL.evaluation
    run.evaluation("after").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"after\.json is not JSON.*; delete it and resume to repeat"):
        stored_evaluation(run, "after")
    run.summary.write_text("{}")  # a complete run is not resumed
    with pytest.raises(RunDirectoryError, match=r"; delete it and .*summary\.json and resume to repeat"):
        stored_evaluation(run, "after")


def test_a_file_that_an_editor_gave_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a.json", FULL)
    text = (tmp_path / "a.json").read_text(encoding="utf-8").replace("\n", "\r\n")
    (tmp_path / "a.json").write_bytes(text.encode("utf-8-sig"))
    assert read_evaluation(tmp_path / "a.json") == FULL
