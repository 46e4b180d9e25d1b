"""Trains the corridor on the pretend device, loses the last checkpoint, and continues: `python THIS FOLDER SETTING…`.

A program and not a function, because autograd counts the devices once, at the first backward pass of a process.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from hgpo.assemble import resume, train
from hgpo.config import load_config
from hgpo.policies.language_model import LanguageModel
from hgpo.training.warm_start import WarmStart
from hgpo.utils.progress import Reporter
from pretend_device import NAME, pretend_device


class OnTheDevice(WarmStart):
    """Nothing fails where a model was left on the CPU: it is only slow."""

    def __init__(self, language_model: LanguageModel, *rest: Any) -> None:
        assert language_model.model.device.type == NAME
        super().__init__(language_model, *rest)


def main(folder: str, *overrides: str) -> None:
    recipe = Path(__file__).parents[1] / "corridor.toml"
    config = load_config(recipe, [f"run.directory={folder!r}", f"policy.device={NAME}", *overrides])
    reporter = Reporter(Console(quiet=True))
    with pretend_device(), patch("hgpo.training.start_policy.WarmStart", OnTheDevice):
        run = train(config, reporter)
        run.summary.unlink()
        run.evaluation("after").unlink()
        shutil.rmtree(run.checkpoints / str(config.training.updates))
        resume(run.path, reporter)


if __name__ == "__main__":
    main(*sys.argv[1:])
