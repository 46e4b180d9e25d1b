"""Where the trackers that verl's logger writes to keep their files; which there are, `hgpo.runs.tracking` says.

What they are sent are verl's figures and the row of `metrics.jsonl`, under its names. No verl is needed here.
"""

from __future__ import annotations

import os
from pathlib import Path

from hgpo.runs.tracking import place


def keep_in(folder: Path) -> None:
    """Have the trackers of this process write where `place` says, unless a variable says where."""
    for name in ("TENSORBOARD_DIR", "SWANLAB_LOG_DIR", "WANDB_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"):
        os.environ[name] = place(name, folder)
    os.environ.setdefault("VERL_FILE_LOGGER_PATH", str(folder / "verl-metrics.jsonl"))
