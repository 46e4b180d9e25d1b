"""Weights & Biases, offline unless `WANDB_MODE` says otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import wandb

from hgpo.runs.tracking.base import Shown
from hgpo.runs.tracking.known import PROJECT, place


class Wandb:
    """A run of wandb. Its axis is the figure `update`: wandb's own steps only count what was logged."""

    def __init__(self, shown: Shown) -> None:
        folder = place("WANDB_DIR", shown.folder)
        Path(folder).mkdir(parents=True, exist_ok=True)  # wandb would fall back to a temporary folder
        self._run = wandb.init(
            project=PROJECT,
            name=shown.name,
            id=shown.id,
            resume=None if shown.id is None else "allow",
            mode=shown.mode,
            dir=folder,
            config=dict(shown.settings),
            settings=wandb.Settings(
                silent=True,
                console="off",  # what is printed stays here
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")
        self.id = self._run.id
        offline = f"wandb sync {shlex.quote(str(Path(self._run.dir).parent))}"
        self.look = offline if shown.mode == "offline" else str(self._run.url)

    def log(self, update: int, figures: Mapping[str, float]) -> None:
        """One row of the run's history."""
        self._run.log({**figures, "update": update}, commit=True)

    def close(self, *, failed: bool) -> None:
        """End wandb's run; it waits until everything is written, and sent where it is online."""
        self._run.finish(exit_code=1 if failed else 0)
