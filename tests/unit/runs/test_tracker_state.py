"""What is sent to trackers when, and what becomes of one that fails; real ones: tests/integration."""

from __future__ import annotations

import pytest
from rich.console import Console

from corridor_runs import config, quiet, recipe
from hgpo.assemble import resume
from hgpo.assemble import train as train_run
from hgpo.config.loading import leaves
from hgpo.evaluation.eval_history import evaluation_figures
from hgpo.evaluation.statistics import Evaluation, Rate
from hgpo.runs import trackers as module
from hgpo.runs.folder import RunDirectory, append_metrics, create_run_directory
from hgpo.runs.trackers import open_trackers, tracked_settings
from hgpo.utils.progress import Reporter

KEY = "0123456789abcdef"
ROWS = [{"update": update, "success": update / 4, "kl": float("nan"), "note": None} for update in (1, 2, 3)]


class Recorder:
    """A tracker that can be told to fail in an update."""

    command, id = "nowhere", "run-7"

    def __init__(self, name, folder, settings, known):
        assert name == "mlflow"
        self.known_as = known and known.id
        RECORDERS.append(self)
        self.taken, self.closed = [], None
        if FAILS.get("open"):
            raise ImportError("its library is broken")

    def log(self, update, figures):
        if FAILS.get("log") == update:
            raise ConnectionError(f"https://me:{KEY}@host is gone")
        self.taken.append((update, dict(figures)))

    def close(self, failed):
        self.closed = failed
        if FAILS.get("close"):
            raise OSError("no space")


RECORDERS: list[Recorder] = []
FAILS: dict[str, object] = {}


@pytest.fixture(autouse=True)
def _recorders(monkeypatch):
    RECORDERS.clear()
    FAILS.clear()
    monkeypatch.setattr(module, "open_tracker", Recorder)


@pytest.fixture
def settings():
    return {"run.name": "corridor"}


@pytest.fixture
def run(tmp_path):
    return create_run_directory(recipe(tmp_path, 'tracking.to=["mlflow"]'))


def train(run, settings, rows, reporter=None):
    with open_trackers(run, ["mlflow"], settings, reporter or quiet()) as trackers:
        for row in rows:
            append_metrics(run, row)
            trackers.row(row)
    return RECORDERS[-1]


def evaluation():
    rate = Rate(0.5, 0.25, 0.75, 4)
    return Evaluation("held_out", 0.4, (1,), rate, 0.6, (0.5,), {"a b": rate}, 3.0, 1.0, None, {"x": 0.5})


def test_a_row_is_sent_with_its_finite_figures(run, settings):
    assert train(run, settings, ROWS[:1]).taken == [(1, {"success": 0.25})]


def test_an_evaluation_is_sent_under_the_names_that_verl_has(run, settings):
    with open_trackers(run, ["mlflow"], settings, quiet()) as trackers:
        trackers.evaluation(0, evaluation_figures(evaluation()))
        trackers.evaluation(0, evaluation_figures(evaluation()))
    names = {"val/success": 0.5, "val/success_low": 0.25, "val/success_high": 0.75, "val/score": 0.6}
    assert RECORDERS[-1].taken == [(0, {**names, "val/success/a b": 0.5})]


def test_a_run_that_goes_on_is_the_same_one_there_and_sends_nothing_twice(run, settings):
    assert train(run, settings, ROWS[:2]).known_as is None
    (run.path / "metrics.jsonl").unlink()  # update 2 had no checkpoint, so it is made again
    append_metrics(run, ROWS[0])
    again = train(run, settings, ROWS[1:])
    assert again.known_as == "run-7"
    assert [update for update, _ in again.taken] == [3]


def test_one_that_fails_is_named_once_without_its_password_and_catches_up_later(run, settings, capsys):
    FAILS["log"] = 2
    reporter = Reporter(Console(width=500))
    recorder = train(run, settings, ROWS, reporter)
    said = capsys.readouterr().out
    assert (
        said.count("mlflow failed, and training continues without it (ConnectionError: https://***@host is gone)") == 1
    )
    assert KEY not in said
    assert [update for update, _ in recorder.taken] == [1]
    assert recorder.closed is None
    FAILS.clear()
    assert [update for update, _ in train(run, settings, []).taken] == [2, 3]


def test_one_that_fails_while_it_catches_up_is_sent_nothing_twice(run, settings):
    for row in ROWS:
        append_metrics(run, row)
    FAILS["log"] = 3
    assert [update for update, _ in train(run, settings, []).taken] == [1, 2]
    FAILS.clear()
    assert [update for update, _ in train(run, settings, []).taken] == [3]


@pytest.mark.slow
def test_a_complete_run_is_sent_whole_as_the_message_about_the_failure_says(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda package: package)
    FAILS["log"] = 1
    run = train_run(config(tmp_path, 'tracking.to=["mlflow"]'), Reporter(Console(width=500)))
    assert [update for update, _ in RECORDERS[-1].taken] == [0]
    assert f"of a complete run, first delete {run.summary}" in capsys.readouterr().out
    FAILS.clear()
    run.summary.unlink()
    resume(run.path, quiet())
    sent = [(update, "val/success" in figures) for update, figures in RECORDERS[-1].taken]
    assert sent == [(1, False), (2, False), (3, False), (1, True), (2, True), (3, True)]


@pytest.mark.parametrize("when", ["open", "close"])
def test_no_failure_of_a_tracker_ends_the_training(when, run, settings, capsys):
    FAILS[when] = True
    train(run, settings, ROWS, Reporter(Console(width=500)))
    assert capsys.readouterr().out.count("mlflow failed") == 1


def test_it_is_told_whether_the_run_ended_well(run, settings):
    assert train(run, settings, ROWS).closed is False
    with pytest.raises(KeyboardInterrupt), open_trackers(run, ["mlflow"], settings, quiet()):
        raise KeyboardInterrupt
    assert RECORDERS[-1].closed is True


def test_settings_are_shown_by_their_dotted_names_without_passwords(tmp_path):
    given = recipe(tmp_path, 'policy.options={base_url = "http://me:secret@host/v1"}')
    shown = tracked_settings({name: value for name, value, _ in leaves(given)})
    assert shown["training.updates"] == 4
    assert shown["evaluation.seeds"] == "[1]"
    assert shown["policy.options"] == '{"base_url": "http://***@host/v1"}'
    assert "policy.revision" not in shown


@pytest.mark.parametrize(
    "text", ["{", '{"mlflow": {"update": 2}}', '{"mlflow": {"id": "1", "update": "2"}}', '{"mlflow": 1}']
)
def test_a_damaged_state_is_refused(run, settings, text):
    run.tracking.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"tracking\.json.* delete it; the trackers then start new runs"):
        train(RunDirectory(run.path), settings, [])
