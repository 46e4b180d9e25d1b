"""Evaluations and run directories that the tests of `hgpo compare` read; nobody trained the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgpo.config import dump_config, read_config
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from hgpo.evaluation.statistics import Evaluation
from hgpo.report.compare_entries import Entry
from hgpo.runs.folder import RunDirectory
from house import write_rows
from panels import panel

RECIPE = Path(__file__).parent / "corridor.toml"


def entry(label: str, won: Mapping[str, Sequence[float]], **further: Any) -> Entry:
    """An entry from a file; `further` are keys of the stored evaluation."""
    return Entry(label, Path(label), StoredEvaluation(panel(won), **further))


def run_entry(label: str, seed: int, won: Mapping[str, Sequence[float]], *overrides: str) -> Entry:
    """An entry of a run with this training seed; nothing is written."""
    config = read_config(RECIPE, [f"run.seed={seed}", *overrides])
    return replace(entry(label, won), path=Path(f"{label}-{seed}"), name="after", config=config)


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
    write_rows(run.metrics, rows)
    return folder
