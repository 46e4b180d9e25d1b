"""Runs that were killed at an awkward moment, or that two processes want at once."""

import json
import shutil
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from corridor_runs import RECIPE, config, evaluations, quiet, untimed
from hgpo.assemble import resume, train
from hgpo.cli.main import main
from hgpo.config import ConfigError
from hgpo.evaluation.eval_log import EvalLog
from hgpo.evaluation.evaluator import Evaluator
from hgpo.evaluation.summary import read_summary
from hgpo.runs.folder import RunDirectory, RunDirectoryError, RunInUseError, exclusive
from killed import Killed


def train_until(name, directory):
    """The path of a new run whose process died while it played the evaluation `name`."""
    real = Evaluator.evaluate

    def evaluate(self, policy, output, **options):
        if output.stem == name:
            raise Killed
        return real(self, policy, output, **options)

    with patch.object(Evaluator, "evaluate", evaluate), pytest.raises(Killed):
        train(config(directory), quiet())
    return directory / "corridor"


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    return cache(lambda name: train_until(name, tmp_path_factory.mktemp("killed")))


@pytest.fixture
def killed_in_evaluation(killed_once, tmp_path):
    """Makes a copy of the run that was killed in an evaluation."""
    return lambda name: RunDirectory(shutil.copytree(killed_once(name), tmp_path / "corridor"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("runs")), quiet())


@pytest.mark.slow
def test_the_start_is_evaluated_with_the_policy_of_the_start_also_late(finished, killed_in_evaluation):
    """What the message about a damaged evaluation advises: delete it and resume."""
    expected = evaluations(finished)
    assert expected["before"] != expected["after"]
    run = killed_in_evaluation("after")
    run.evaluation("before").write_text("[]")
    with pytest.raises(RunDirectoryError, match=r"before\.json holds no object; delete it and resume"):
        resume(run.path, quiet())
    run.evaluation("before").unlink()
    between = run.evaluation("update-1").read_text()
    run.evaluation("update-1").write_text(between[:-20])
    with pytest.raises(RunDirectoryError, match=r"update-1\.json is not JSON.*resume to continue without it"):
        resume(run.path, quiet())
    run.evaluation("update-1").write_text(between)
    resume(run.path, quiet())
    assert evaluations(run) == expected
    timed = {"seconds": 0}
    assert {**read_summary(run), **timed} == {**read_summary(finished), **timed}


@pytest.mark.slow
def test_an_evaluation_that_was_cut_off_is_played_when_the_run_is_resumed(finished, killed_in_evaluation):
    run = killed_in_evaluation("update-2")
    assert set(evaluations(run)) == {"before", "update-1"}
    resume(run.path, quiet())
    assert evaluations(run) == evaluations(finished)


@pytest.mark.slow
def test_a_run_that_is_being_trained_is_left_alone(killed_in_evaluation):
    run = killed_in_evaluation("update-2")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with exclusive(run.path), pytest.raises(RunInUseError, match=r"corridor is being trained by process \d+ on"):
        resume(run.path, quiet())
    before.pop(run.path / ".lock")
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.slow
def test_a_process_that_trains_holds_its_run(tmp_path, monkeypatch):
    real = Evaluator.evaluate

    def try_to_resume(self, policy, output, **options):
        with pytest.raises(RunInUseError, match="is being trained"):
            resume(output.parents[1], quiet())
        return real(self, policy, output, **options)

    monkeypatch.setattr(Evaluator, "evaluate", try_to_resume)
    assert train(config(tmp_path, "training.updates=1"), quiet()).complete


@pytest.mark.slow
def test_a_resumed_run_clears_away_what_was_half_written(killed_in_evaluation):
    run = killed_in_evaluation("update-2")
    (run.checkpoints / ".3.partial").mkdir()
    (run.rollouts / ".00003.parquet.99.partial").write_text("half")
    resume(run.path, quiet())
    assert not list(run.path.rglob("*.partial"))


@pytest.mark.slow
def test_evaluations_of_updates_that_are_made_again_are_moved_aside_and_come_out_the_same(
    finished, killed_in_evaluation
):
    """Its process died in the last evaluation, and its checkpoints were deleted by hand."""
    run = killed_in_evaluation("after")
    shutil.rmtree(run.checkpoints)
    wrong = {**evaluations(run)["update-2"], "score": -1.0}  # of a policy that is no more
    run.evaluation("update-2").write_text(json.dumps(wrong))
    resume(run.path, quiet())
    assert evaluations(run) == evaluations(finished)
    aside = run.path / "evaluations.superseded"
    assert sorted(path.name for path in aside.iterdir()) == ["update-1.1.json", "update-2.1.json"]
    assert json.loads((aside / "update-2.1.json").read_text()) == wrong
    assert untimed(run) == untimed(finished)


@pytest.mark.slow
def test_an_evaluation_that_is_gone_is_missed_by_name_also_in_quiet(killed_in_evaluation, capsys):
    run = killed_in_evaluation("after")
    run.evaluation("update-1").unlink()
    resume(run.path, quiet())
    assert f"{run.evaluation('update-1')} is missing" in capsys.readouterr().err
    assert run.complete


def test_the_same_command_continues_a_run_and_another_does_not(tmp_path, capsys):
    short = ["training.updates=1", "warm_start.max_updates=1", "warm_start.evaluate_every=1"]
    words = ["train", str(RECIPE), f"run.directory={tmp_path}", *short, "--quiet", "--continue"]
    assert main(words) == 0
    rows = (tmp_path / "corridor" / "metrics.jsonl").read_bytes()
    assert main(words) == 0
    assert (tmp_path / "corridor" / "metrics.jsonl").read_bytes() == rows
    assert main([*words, "training.updates=2"]) == 2
    assert "was made with other settings (training.updates); choose" in capsys.readouterr().err


@pytest.mark.slow
def test_an_evaluation_that_was_interrupted_continues_from_inside_the_run(finished, tmp_path, monkeypatch):
    real = EvalLog.add

    def add(self, summary, steps):
        real(self, summary, steps)
        if self.path.name == "after.games.jsonl":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(EvalLog, "add", add)
        with pytest.raises(Killed):
            train(config(tmp_path), quiet())
    run = RunDirectory(tmp_path / "corridor")
    monkeypatch.chdir(run.path)
    resume(Path(), quiet())
    assert evaluations(run) == evaluations(finished)


@pytest.mark.slow
def test_fewer_updates_than_were_made_are_refused_before_anything_is_written(finished, tmp_path):
    run = RunDirectory(shutil.copytree(finished.path, tmp_path / "corridor"))
    run.summary.unlink()
    run.config.write_text(run.config.read_text().replace("updates = 3\n", "updates = 1\n"))
    with pytest.raises(
        RunDirectoryError, match=r"training\.updates = 1, and .*checkpoints/3 is of update 3: set it to"
    ):
        resume(run.path, quiet())
    assert not run.summary.exists()
    assert untimed(run) == untimed(finished)


@pytest.mark.slow
def test_an_adapter_in_the_settings_alone_is_refused(finished, tmp_path):
    """The whole weights were trained on, and the settings and the model card named an adapter."""
    run = RunDirectory(shutil.copytree(finished.path, tmp_path / "corridor"))
    run.summary.unlink()
    run.config.write_text(run.config.read_text().replace("rank = 0\n", "rank = 8\n"))
    with pytest.raises(ConfigError, match=r"rank = 8, .* no adapter: set it to 0 in .*config.toml"):
        resume(run.path, quiet())
