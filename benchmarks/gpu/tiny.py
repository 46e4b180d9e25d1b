"""A tiny model that a rehearsal takes in place of SmolLM2."""

from __future__ import annotations

from pathlib import Path

from gpu.phase import RECIPES, Phase
from hgpo.runs.folder import RunDirectory
from runs import train

QUICKSTART = RECIPES / "quickstart" / "hgpo.toml"
SMALL = ["environment.options.train_games=200", "warm_start.demonstrations=40", "warm_start.probe_games=8"]
"""Of the quickstart: no more games than a warm start of a few updates needs."""


def tiny_start(phase: Phase) -> Path:
    """A folder in Hugging Face format, made once: the quickstart's model after a moment of imitation."""
    run = RunDirectory(phase.work / "tiny")
    if not run.complete:
        options = [*SMALL, *phase.settings, "warm_start.max_updates=10", "warm_start.evaluate_every=10"]
        run = train(phase.work, "tiny", QUICKSTART, [*options, "training.updates=0", "evaluation.games=1"])
    return run.start
