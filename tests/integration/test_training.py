"""The whole loop with real parts on a user's own environment: a corridor, a tiny model, real updates."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import pretend_device
from corridor import Corridor
from corridor_runs import RECIPE, quiet, untimed
from corridor_runs import recipe as config
from hgpo.assemble import resume, train
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.evaluation.summary import read_summary
from hgpo.rollout.runner import collect
from hgpo.runs.folder import RunDirectory, RunDirectoryError, read_metrics
from hgpo.storage.step_batches import step_batch_from_table
from hgpo.training import collector as collecting
from metric_keys import OF_A_CRITIC, OF_FULL_MEMORY, OF_RECOMPUTED_LOG_PROBS, OF_VERL_ALONE, explained, general
from stored_rollouts import read_rollouts


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("runs")), quiet())


def test_a_run_writes_everything_it_promises(finished):
    summary = read_summary(finished)
    wanted = {"estimator", "updates", "seconds", "success_before", "success_after", "tasks_evaluated", "split"}
    assert wanted <= summary.keys()
    assert summary["tasks_evaluated"] == 3
    assert [row["update"] for row in read_metrics(finished)] == [1, 2, 3, 4]
    assert len(list(finished.rollouts.glob("*.parquet"))) == 4
    newest = finished.checkpoints / "4"
    assert (newest / "model.safetensors").exists()
    assert (finished.start / "model.safetensors").exists()
    assert load_config(finished.config).run.name == "corridor"


def test_stored_advantages_are_those_of_the_library(finished):
    from hgpo.estimators import compute_advantages

    table = read_rollouts(finished.rollout_file(2))
    again = compute_advantages(step_batch_from_table(table), estimator="hgpo", history_length=2)
    assert table.column("advantage").to_numpy() == pytest.approx(again.values, abs=1e-12)


def test_a_row_has_every_metric_that_is_explained_and_no_other(finished):
    always = explained() - OF_VERL_ALONE - OF_A_CRITIC - OF_FULL_MEMORY - OF_RECOMPUTED_LOG_PROBS
    assert all(general(row) == always for row in read_metrics(finished))


def test_rollouts_that_start_in_different_states_are_warned_about(tmp_path, monkeypatch, capsys):
    numbers = itertools.count()
    reset = Corridor.reset
    monkeypatch.setattr(
        Corridor, "reset", lambda self, seed=None: (f"corridor {next(numbers)} place 0", reset(self)[1])
    )
    run = train(config(tmp_path, "training.updates=1", "evaluation.before=false"), quiet())
    assert read_metrics(run)[0]["unequal_starts"] == 1.0
    assert "Warning: in 100 % of the tasks, trajectories start in different states" in capsys.readouterr().err


@pytest.mark.slow
def test_recomputed_log_probs_add_how_far_the_sampler_is_from_the_trainer(tmp_path):
    run = train(config(tmp_path, "training.recompute_log_probs=true", "training.updates=1"), quiet())
    [row] = read_metrics(run)
    assert general(row) == explained() - OF_VERL_ALONE - OF_A_CRITIC - OF_FULL_MEMORY
    assert row["sampler_gap_max"] < 1e-5


@pytest.mark.slow
def test_a_temperature_that_rises_is_that_of_sampling_and_of_scoring(tmp_path):
    def rows(*overrides):
        overrides = ("training.recompute_log_probs=true", "training.updates=2", *overrides)
        return read_metrics(train(config(tmp_path, *overrides), quiet()))

    steady, rising = rows("run.name=steady"), rows("run.name=rising", "rollout.last_temperature=3")
    assert all(row["sampler_gap_max"] < 1e-5 for row in rising)
    assert rising[0]["entropy"] == steady[0]["entropy"]
    assert rising[1]["entropy"] > steady[1]["entropy"]


def test_without_an_evaluation_before_it_the_training_is_the_same(finished, tmp_path):
    run = train(config(tmp_path, "evaluation.before=false"), quiet())
    assert [path.name for path in run.evaluation("before").parent.glob("*.json")] == ["after.json"]
    assert untimed(run) == untimed(finished)
    summary = read_summary(run)
    assert summary["success_before"] is summary["gain"] is None
    assert summary["success_after"] == read_summary(finished)["success_after"]
    run.summary.unlink()
    resume(run.path, quiet())
    assert not run.evaluation("before").exists()
    assert main(["inspect", str(run.path)]) == 0


@pytest.mark.slow
def test_a_run_is_repeatable(finished, tmp_path):
    assert untimed(train(config(tmp_path), quiet())) == untimed(finished)


@pytest.mark.slow
@pytest.mark.skipif(not pretend_device.AVAILABLE, reason="this PyTorch has no devices written in Python")
def test_a_run_on_another_device_equals_the_one_on_the_cpu(tmp_path):
    """Whatever the trainer touches has to lie where the model lies, also after it was resumed."""
    program = Path(__file__).with_name("run_on_pretend_device.py")
    short = ("training.updates=2", "training.checkpoint_every=1")
    subprocess.run([sys.executable, str(program), str(tmp_path / "elsewhere"), *short], check=True)
    elsewhere, here = RunDirectory(tmp_path / "elsewhere" / "corridor"), train(config(tmp_path, *short), quiet())
    assert read_summary(elsewhere)["success_after"] == read_summary(here)["success_after"]
    for row, expected in zip(untimed(elsewhere), untimed(here), strict=True):
        assert row == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_cut_responses_stay_out_of_the_update_where_asked(tmp_path):
    run = train(config(tmp_path, "training.updates=1", "training.skip_cut_responses=true"), quiet())
    [row] = read_metrics(run)
    finished = sum(read_rollouts(run.rollout_file(1)).column("finished").to_pylist())
    assert row["samples"] == finished < row["steps"]


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match='no device "cuda:99" here'):
        train(config(tmp_path, "policy.device='cuda:99'"), quiet())
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_equals_the_uninterrupted_one(finished, tmp_path):
    """Killed after update 3, with its newest checkpoint at 2, a line half written, and a damaged newer checkpoint."""
    run = RunDirectory(shutil.copytree(finished.path, tmp_path / "corridor"))
    run.summary.unlink()
    run.evaluation("after").unlink()
    run.rollout_file(4).unlink()
    (run.checkpoints / "4").rename(run.checkpoints / "3")
    (run.checkpoints / "3" / "optimizer.safetensors").write_bytes(b"cut")
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join([*lines[:3], lines[3][:20]]))
    resume(run.path, quiet())
    assert untimed(run) == untimed(finished)
    superseded = (run.path / "metrics.superseded.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in superseded] == [3]
    timed = {"seconds": 0}
    assert {**read_summary(run), **timed} == {**read_summary(finished), **timed}


def test_an_existing_run_is_refused_and_left_as_it_is(finished):
    before = finished.metrics.read_bytes()
    with pytest.raises(RunDirectoryError, match=r"exists already. Continue it with `hgpo train --resume"):
        train(config(finished.path.parent), quiet())
    assert finished.metrics.read_bytes() == before


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"is not a run directory: it has no config\.toml"):
        resume(tmp_path, quiet())


def lucky_when_drawn_anew(*arguments, label, **options):
    """Plays on; of each group that was drawn anew, the first rollout then counts as won."""
    return [
        replace(step, won=True, reward=1.0)
        if "." in label and step.trajectory.endswith("#0") and step.truncated
        else step
        for step in collect(*arguments, label=label, **options)
    ]


@pytest.mark.slow
def test_groups_that_are_drawn_anew_do_not_flatter_the_policy(tmp_path, monkeypatch):
    """What is trained on was picked by its outcome, so the figures are those of everything that was played."""
    monkeypatch.setattr(collecting, "collect", lucky_when_drawn_anew)
    run = train(config(tmp_path, "rollout.resample_uniform_groups=2", "training.updates=1"), quiet())
    [row] = read_metrics(run)
    assert (row["resampled_groups"], row["tasks_drawn"], row["episodes"]) == (3, 6, 24)
    assert row["success"] == pytest.approx(3 / 24)
    trained_on = read_rollouts(run.rollout_file(1)).to_pylist()
    assert len({step["trajectory"] for step in trained_on}) == 12
    assert sum(step["won"] for step in trained_on) == 3
    assert row["samples"] == len(trained_on) < row["steps"]
    assert row["tokens"] == sum(len(step["token_ids"]) for step in trained_on) < row["response_tokens"]


@pytest.mark.slow
def test_groups_that_stay_uniform_are_kept_and_counted_with_those_drawn_in_vain(tmp_path):
    run = train(config(tmp_path, "rollout.resample_uniform_groups=2", "training.updates=1"), quiet())
    [row] = read_metrics(run)
    assert (row["resampled_groups"], row["tasks_drawn"], row["episodes"]) == (0, 9, 36)
    assert len(set(read_rollouts(run.rollout_file(1)).column("trajectory").to_pylist())) == 12


@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_figures(finished, tmp_path):
    """The real thing: SIGKILL in the middle, then `hgpo train --resume`."""
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent)}
    command = [sys.executable, "-m", "hgpo", "train"]
    overrides = [f"run.directory={str(tmp_path)!r}", "training.checkpoint_every=1"]
    process = subprocess.Popen([*command, str(RECIPE), *overrides], env=environment, stdout=subprocess.DEVNULL)
    run = RunDirectory(tmp_path / "corridor")
    deadline = time.monotonic() + 120
    while not (run.checkpoints / "2").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not run.complete
    assert main(["train", "--resume", str(run.path), "--quiet"]) == 0
    assert untimed(run) == untimed(finished)
