"""Evaluations of a run, kept on disk so that none is played twice."""

from __future__ import annotations

from collections.abc import Sequence

from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation, write_evaluation
from hgpo.evaluation.statistics import Evaluation
from hgpo.runs.folder import RunDirectory, RunDirectoryError
from hgpo.utils.progress import Reporter


def store_evaluation(run: RunDirectory, name: str, evaluation: Evaluation, reporter: Reporter) -> None:
    """Write `evaluations/<name>.json` and say what came out."""
    write_evaluation(run.evaluation(name), StoredEvaluation(evaluation))
    reporter.say(f"Evaluation ({name}): {describe(evaluation)}")


def stored_evaluation(run: RunDirectory, name: str) -> Evaluation | None:
    """The evaluation called `name`, if the run has made it."""
    if not run.evaluation(name).exists():
        return None
    try:
        return run_evaluation(run, name).evaluation
    except ValueError as error:
        raise RunDirectoryError(f"{error}; delete it and resume to play it again") from error


def run_evaluation(run: RunDirectory, name: str) -> StoredEvaluation:
    """The evaluation called `name`, which the run has.

    Raises:
        ValueError: It is damaged.
    """
    return read_evaluation(run.evaluation(name))


def describe(evaluation: Evaluation) -> str:
    """Success with interval in one line."""
    success = evaluation.success
    interval = f"{percent(success.low)} to {percent(success.high)}"
    return f"success {percent(success.mean)} [95 % {interval}] on {panel_text(evaluation)}"


def panel_text(evaluation: Evaluation) -> str:
    """What was played: `256 games of valid_unseen, temperature 0.4, seed 123`."""
    return (
        f"{evaluation.success.tasks} games of {evaluation.split}, temperature {evaluation.temperature:g}, "
        f"{seeds_text(evaluation.seeds)}"
    )


def percent(fraction: float) -> str:
    """`0.4375` as `43.8 %`."""
    return f"{100 * fraction:.1f} %"


def seeds_text(seeds: Sequence[int]) -> str:
    """`seed 123` or `seeds 123, 456`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
