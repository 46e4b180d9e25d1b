"""What is compared in tests: entries of files, and run directories that nobody trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo.comparison.entries import Entry, TrainedRun
from hgpo.config import dump_config, read_config
from hgpo.evaluation import Evaluation
from hgpo.runs.evaluation_files import StoredEvaluation, write_evaluation
from hgpo.runs.folder import RunDirectory
from panels import panel

RECIPE = Path(__file__).parent / "corridor.toml"


def entry(label: str, won: Mapping[str, Sequence[float]], **further: Any) -> Entry:
    """An entry from a file; `further` are keys of the stored evaluation."""
    return Entry(label, StoredEvaluation(panel(won), **further))


def write_run(
    folder: Path, evaluations: Mapping[str, Evaluation], *overrides: str, success: Sequence[float] = ()
) -> Path:
    """A run directory with these evaluations and, per update, this success in training."""
    run = RunDirectory(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run.config.write_text(dump_config(read_config(RECIPE, overrides)))
    for name, evaluation in evaluations.items():
        write_evaluation(run.evaluation(name), StoredEvaluation(evaluation))
    rows = [{"update": update, "success": share} for update, share in enumerate(success, start=1)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def trained(folder: Path, *overrides: str) -> TrainedRun:
    """A run as an entry has it; nothing is written."""
    return TrainedRun(RunDirectory(folder), read_config(RECIPE, overrides))
