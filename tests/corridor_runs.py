"""Short runs of the corridor recipe, and what two of them are compared by."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.console import Console

from hgpo.assemble import prepare_start, train, training_suite
from hgpo.config import load_config
from hgpo.runs.folder import RunDirectory, create_run_directory, read_metrics
from hgpo.training import trainer
from hgpo.utils.progress import Reporter
from killed import Killed

RECIPE = Path(__file__).parent / "corridor.toml"
TIMED = ("seconds_collect", "seconds_advantages", "seconds_update", "tokens_per_second", "peak_memory_gib")
# A rate at which the policy's games change within two updates.
OVERRIDES = ("training.updates=3", "training.learning_rate=0.02", "training.checkpoint_every=1", "evaluation.every=1")


def recipe(directory, *overrides):
    return load_config(RECIPE, [f"run.directory={str(directory)!r}", *overrides])


def config(directory, *overrides):
    return recipe(directory, *OVERRIDES, *overrides)


def untimed(run):
    return [{name: value for name, value in row.items() if name not in TIMED} for row in read_metrics(run)]


def quiet():
    return Reporter(Console(quiet=True))


def killed_after(update, settings):
    """A new run whose process dies after the metrics of `update`, before anything is saved of it."""
    real = trainer.append_metrics

    def append(run, row):
        real(run, row)
        if row["update"] == update:
            raise Killed

    with patch.object(trainer, "append_metrics", append), pytest.raises(Killed):
        train(settings, quiet())
    return RunDirectory(settings.run_directory)


def evaluations(run):
    """Every evaluation of the run by name, without what a clock measured."""
    paths = run.evaluation("before").parent.glob("*.json")
    return {path.stem: {**json.loads(path.read_text()), "seconds": None, "latency": None} for path in paths}


def start_folder(directory, *overrides):
    """A model's folder: the recipe's own, after its warm start."""
    settings = recipe(directory, "run.name=start", *overrides)
    run = create_run_directory(settings)
    suite = training_suite(settings.environment, settings.evaluation, settings.warm_start)
    prepare_start(run, settings, suite, quiet())
    return run.start
