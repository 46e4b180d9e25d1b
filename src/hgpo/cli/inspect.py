"""`hgpo inspect`: the groups of each step, and how its advantage is computed from them."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.cli import add_estimator_argument, add_file_arguments, add_option_argument, check_output, parse_given

if TYPE_CHECKING:
    from hgpo.report.estimator_comparison import Training
    from hgpo.report.report import Report

DESCRIPTION = """\
Write an HTML report of the groups and advantages of stored steps (one file, works offline), and print a summary. PATH
is a run directory, rollouts of this project (a parquet or JSONL file, or a folder of them), files with one trajectory
or conversation per line, or a folder of verl's rollout dumps (JSONL). Each file is one update. Of a damaged file, the
readable trajectories are used, and the report lists what is missing.

The report shows at most 20,000 steps and has at most 5 MB; beyond that, whole tasks are sampled uniformly, and its
figures count all steps. docs/inspect.md explains a report.

examples:
  hgpo inspect runs/quickstart
  hgpo inspect runs/quickstart --update 40 -o update-40.html
  hgpo inspect rollouts.parquet --estimator hgpo --option history_length=4 --gamma 0.95 -o report.html
  hgpo inspect conversations.jsonl --trajectories --state tool_call -o report.html
  hgpo inspect verl_rollouts/ --column observation=input --column final_reward=score -o report.html
  hgpo inspect runs/quickstart --figures out/
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("path", type=Path, metavar="PATH", help="run directory, file, or folder of files")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the report (default: report.html in a folder; NAME.report.html beside a file)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE even if it is not a report")
    parser.add_argument("--update", type=int, nargs="+", metavar="N", help="only these updates")
    parser.add_argument("--max-steps", type=int, metavar="N", help="steps to show (default: 20000)")
    add_estimator_argument(parser, "the estimator whose advantages are explained (default: the run's, else hgpo)")
    add_option_argument(parser, "estimator")
    parser.add_argument("--gamma", type=float, help="discount of the step return (default: the run's, else 0.95)")
    add_file_arguments(parser)
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="write figures (PDF, PNG) here instead of the report"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from rich.console import Console

    from hgpo.report.rendering import fitting_page
    from hgpo.report.summary import print_report
    from hgpo.utils.text import counted, visible_lines

    if arguments.max_steps is not None and arguments.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {arguments.max_steps}")
    width = None if sys.stdout.isatty() else 100
    console = Console(quiet=arguments.quiet, width=width, markup=False, highlight=False)
    path: Path = arguments.path
    output = arguments.output or (path / "report.html" if path.is_dir() else path.with_suffix(".report.html"))
    write_page = arguments.figures is None or arguments.output is not None
    if arguments.figures is not None:
        arguments.figures.mkdir(parents=True, exist_ok=True)  # before the computation
    if write_page and path.exists():  # no folders are made for a mistyped path
        check_output(output, overwrite=arguments.force or _is_report(output))
    report = report_of(arguments)
    print_report(console, report)
    if arguments.figures is not None:
        from hgpo.report.charts import write_charts

        written = write_charts(report, arguments.figures)
        console.print(visible_lines(f"\n{counted(len(written), 'figure')} in {arguments.figures}"), soft_wrap=True)
    if write_page:
        from hgpo.utils.files import write_text

        page, report = fitting_page(report)
        write_text(output, page)
        size = f"({len(page.encode()) / 1e6:.1f} MB)"
        console.print(visible_lines(f"\n{_shown(report)}{output} {size}"), soft_wrap=True)
    return 0


def report_of(arguments: argparse.Namespace) -> Report:
    """Read and analyse the steps that the arguments select."""
    from hgpo.report.report import MAX_STEPS, build_report
    from hgpo.runs.folder import RunDirectoryError, state_key_of_run
    from hgpo.storage.reading import parse_columns
    from hgpo.storage.schema import Notice

    training, notices = training_of(arguments)
    state = arguments.state
    with suppress(RunDirectoryError, OSError):  # a notice of `training_of` names it
        state = state or state_key_of_run(arguments.path)
    return build_report(
        arguments.path,
        training,
        max_steps=arguments.max_steps or MAX_STEPS,
        updates=arguments.update,
        notices=[Notice(text) for text in notices],
        format=arguments.format,
        columns=parse_columns(arguments.column),
        state=state,
    )


def training_of(arguments: argparse.Namespace) -> tuple[Training, list[str]]:
    """The estimator to explain, and what is known of the training.

    Settings or metrics that cannot be read become notices, because the rollouts may still be readable.
    """
    from hgpo.estimators import ESTIMATORS, parse_options
    from hgpo.report.estimator_comparison import NO_TRAINING, Training
    from hgpo.report.run_facts import run_facts
    from hgpo.returns import check_gamma
    from hgpo.runs.folder import RunDirectoryError, open_run_directory, read_metrics
    from hgpo.runs.metrics import missing_notes

    options = parse_given(arguments.option)
    estimator, gamma = arguments.estimator, arguments.gamma
    if estimator is not None:
        ESTIMATORS.get(estimator)  # before files are read
    metrics: list[dict[str, Any]] = []
    facts: dict[str, Any] | None = None
    notices: list[str] = []
    trained = False
    if (arguments.path / "config.toml").exists():
        try:
            run_directory, config = open_run_directory(arguments.path)
        except (RunDirectoryError, OSError) as error:
            states = "" if arguments.state else ", and states are compared by the stored observation"
            notices.append(f"the run's settings cannot be read, so the defaults are assumed{states}: {error}")
        else:
            if estimator is None and ESTIMATORS.loaded(config.advantage.estimator) is None:
                notices.append(
                    f"the run was trained with {config.advantage.estimator!r}; reading a run does not import it, "
                    "so the report uses HGPO instead; --estimator with that name imports it"
                )
            elif estimator in (None, config.advantage.estimator):
                trained = not options and gamma is None
                estimator, options = config.advantage.estimator, {**config.estimator_options, **options}
            gamma = config.advantage.gamma if gamma is None else gamma
            try:
                metrics = read_metrics(run_directory)
            except RunDirectoryError as error:
                notices.append(f"the run's metrics are left out: {error}")
            facts, problems = run_facts(run_directory, config)
            notices += problems
    elif (arguments.path / "rollouts").is_dir():
        notices.append(f"{arguments.path / 'config.toml'} is missing, so the defaults are assumed")
    if arguments.update is None:
        notices += missing_notes(arguments.path)
    gamma = check_gamma(NO_TRAINING.gamma if gamma is None else gamma)
    estimator = estimator or NO_TRAINING.estimator
    parse_options(estimator, **options)
    return Training(estimator, options, gamma, tuple(metrics), facts, trained), notices


def _is_report(path: Path) -> bool:
    from hgpo.report.rendering import MARKER

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MARKER)) == MARKER.encode()


def _shown(report: Report) -> str:
    if report.sampled_steps == report.steps:
        return "The report with all steps is "
    return (
        f"The report with {report.sampled_steps:,} of {report.steps:,} steps, {len(report.samples):,} whole tasks of "
        f"{report.tasks:,}{' (--update N shows all of one update)' if report.unit == 'update' else ''}, is "
    )
