"""Trains the corridor on the pretend device, loses the last checkpoint, and continues: `python THIS FOLDER`.

A program and not a function, because autograd counts the devices once, at the first backward pass of a process.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from hgpo.config import load_config
from hgpo.training.progress import Reporter
from hgpo.training.trainer import resume, train
from pretend_device import NAME, pretend_device


def main(folder: str) -> None:
    recipe = Path(__file__).parents[1] / "corridor.toml"
    config = load_config(recipe, [f"run.directory={folder!r}", f"policy.device={NAME}"])
    reporter = Reporter(Console(quiet=True))
    with pretend_device():
        run = train(config, reporter)
        run.summary.unlink()
        run.evaluation("after").unlink()
        shutil.rmtree(run.checkpoints / "4")
        resume(run.path, reporter)


if __name__ == "__main__":
    main(sys.argv[1])
