"""`hgpo compare`: runs and evaluations in one table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hgpo.cli import check_output

if TYPE_CHECKING:
    from hgpo.report.compare_table import Comparison

FORMATS = ("text", "markdown", "csv", "latex")
LAYOUTS = ("full", "paper")
_FORMAT_OF = {".md": "markdown", ".csv": "csv", ".tex": "latex"}

DESCRIPTION = """\
Compare evaluations by environment and split: success, score, length and cost, and the difference in success to a
reference, paired, with its 95 % CI. PATH is a run directory, the JSON file of an evaluation, or a pattern for several;
RUN:NAME is one evaluation of a run.

Arguments with the same label make one row: mean ± standard deviation over training seeds. A label is written before the
path, or --by takes it from a setting of the runs.

docs/evaluation.md explains the table. Nothing is played, and nothing that a run names is imported.

examples:
  hgpo compare start=runs/quickstart:before runs/quickstart
  hgpo compare 'grpo=runs/grpo-*' 'hgpo=runs/hgpo-*' --figure curves.pdf --smooth 5
  hgpo compare runs/* --by advantage.estimator --reference grpo
  hgpo compare runs/* --by advantage.estimator --layout paper -o table.tex
  hgpo compare hgpo=runs/hgpo-1 gpt.json -o table.md
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="[LABEL=]PATH or [LABEL=]RUN:NAME: run directory or JSON file"
    )
    parser.add_argument(
        "--by", action="append", default=[], metavar="SETTING", help="label runs by this setting's value; repeatable"
    )
    parser.add_argument("--reference", metavar="LABEL", help="reference row of the differences (default: the first)")
    parser.add_argument("--evaluation", metavar="NAME", help="evaluation to take of each run (default: the newest)")
    parser.add_argument(
        "--layout", choices=LAYOUTS, default="full", help="paper: a row per label, ALFWorld and WebShop as columns"
    )
    parser.add_argument("--format", choices=FORMATS, help="format of the table (default: by FILE's ending, else text)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table here")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw learning curves: .svg, .png, .pdf")
    parser.add_argument(
        "--smooth",
        type=int,
        default=1,
        metavar="N",
        help="points of curves are means over the last N updates (default: 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    from hgpo.report.compare_entries import read_entries
    from hgpo.report.compare_table import compare

    _check_arguments(arguments)
    entries = read_entries(arguments.paths, arguments.evaluation, arguments.by)
    comparison = compare(entries, arguments.reference)
    if arguments.figure is not None:
        from hgpo.report.compare_figure import draw_curves

        draw_curves(entries, arguments.smooth, arguments.figure)
        sys.stderr.write(f"The figure is in {arguments.figure}\n")  # standard output is for the table
    _write(comparison, arguments)
    return 0


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Reject, before anything is read, what would fail later or overwrite a file."""
    if arguments.output is not None:
        check_output(arguments.output, overwrite=arguments.force)
    if _format(arguments) == "csv" and arguments.layout != "full":
        raise ValueError("--layout paper is for text, Markdown and LaTeX; CSV has every figure in one layout")
    if arguments.figure is not None:
        from hgpo.report.compare_figure import check_figure
        from hgpo.utils.plot_style import check_matplotlib

        check_figure(arguments.figure)
        check_matplotlib()


def _format(arguments: argparse.Namespace) -> str:
    output: Path | None = arguments.output
    return arguments.format or (_FORMAT_OF.get(output.suffix.lower(), "text") if output else "text")


def _write(comparison: Comparison, arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from hgpo.report.compare_formats import as_csv, as_latex, as_markdown, as_text, print_comparison
    from hgpo.utils.files import write_text

    output, chosen = arguments.output, _format(arguments)
    if output is None and chosen == "text" and sys.stdout.isatty():
        print_comparison(Console(), comparison, arguments.layout)
        return
    if chosen == "csv":
        text = as_csv(comparison)
    else:
        text = {"text": as_text, "markdown": as_markdown, "latex": as_latex}[chosen](comparison, arguments.layout)
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
        sys.stdout.write(f"The table is in {output}\n")
