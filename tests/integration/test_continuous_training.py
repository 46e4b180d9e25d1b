"""A policy trained on answers of transformers' continuous batching."""

from unittest.mock import patch

import pytest

from corridor_runs import quiet, recipe, untimed
from hgpo.runs.folder import RunDirectory
from hgpo.training import trainer as module
from hgpo.training.collecting import Collector
from hgpo.training.trainer import resume, train
from killed import Killed


def config(directory, *overrides):
    changes = ("policy.backend=continuous", "training.updates=2", "training.checkpoint_every=1")
    return recipe(directory, *changes, *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("runs")), quiet())


def test_it_trains_on_what_it_sampled(finished):
    rows = untimed(finished)
    assert [row["update"] for row in rows] == [1, 2]
    assert all(abs(row["approximate_kl"]) < 0.05 for row in rows)
    assert all(row["gradient_norm"] > 0 for row in rows)
    assert finished.complete


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_figures_it_would_have_had(finished, tmp_path):
    def killed(*arguments):
        raise Killed

    with patch.object(module, "store_steps", killed), pytest.raises(Killed):
        train(config(tmp_path), quiet())
    run = RunDirectory(tmp_path / "corridor")
    assert not run.complete

    resume(run.path, quiet())

    assert untimed(run) == untimed(finished)


@pytest.mark.slow
def test_an_engine_that_fails_leaves_a_run_that_can_be_resumed(finished, tmp_path):
    """The second update's collection fails for want of an answer; the first is on disk."""
    real = Collector.collect

    def failing(self, update, tasks_drawn):
        if update == 2:
            self.policy._engine._module.register_forward_pre_hook(lambda *_: 1 / 0)
        return real(self, update, tasks_drawn)

    with (
        patch.object(Collector, "collect", failing),
        pytest.raises(RuntimeError, match=r"policy backend 'continuous' failed .*ZeroDivisionError"),
    ):
        train(config(tmp_path), quiet())

    run = resume(tmp_path / "corridor", quiet())

    assert untimed(run) == untimed(finished)
