"""`hgpo compare`: runs, evaluations and models side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgpo.comparison.entries import Entry
    from hgpo.comparison.table import Comparison

FORMATS = ("text", "markdown", "csv", "latex")
_FORMAT_OF = {".md": "markdown", ".csv": "csv", ".tex": "latex"}

DESCRIPTION = """\
Compare evaluations in one table: success with 95 % intervals, also by type of task and by trial, what an episode and a
request took, and the difference to a baseline, paired by task. PATH is a run directory, or a JSON file of an
evaluation; RUN:NAME is one evaluation of a run. Of a run alone its newest is taken, `after` once it is complete; the
table says which.

docs/comparing.md explains every column. Nothing is played, and nothing that a run names is imported.

examples:
  hgpo compare runs/quickstart:before runs/quickstart
  hgpo compare grpo=runs/grpo-1 hgpo=runs/hgpo-1 model=gpt.json --baseline grpo
  hgpo compare runs/grpo-* runs/hgpo-* --figure success.pdf --smooth 5
  hgpo compare runs/grpo-1 runs/hgpo-1 -o table.tex
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="run directory, RUN:NAME, or JSON file; after LABEL=, if wanted"
    )
    parser.add_argument("--evaluation", metavar="NAME", help="which one of runs that name none (default: the newest)")
    parser.add_argument("--baseline", metavar="N", help="what differences are to: a label, or 1, 2, … (default: 1)")
    parser.add_argument("--format", choices=FORMATS, help="of the table (default: what FILE ends in, else text)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table here")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw success and learning curves: .svg, .png, .pdf"
    )
    parser.add_argument(
        "--smooth", type=int, default=1, metavar="N", help="a point of a curve is the mean of N updates (default: 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    from hgpo.comparison.entries import read_entries
    from hgpo.comparison.table import baseline_place, compare

    _refuse_mistakes(arguments)
    entries = read_entries(arguments.paths, arguments.evaluation)
    comparison = compare(entries, baseline_place(entries, arguments.baseline))
    if arguments.figure is not None:
        _draw(entries, comparison, arguments)
    _write(comparison, arguments)
    return 0


def _refuse_mistakes(arguments: argparse.Namespace) -> None:
    """What would fail after everything is read, or overwrite something, is refused before."""
    output: Path | None = arguments.output
    if output is not None and output.is_dir():
        raise ValueError(f"--output: {output} is a folder; give the name of a file")
    if output is not None and output.exists() and not arguments.force:
        raise ValueError(f"{output} exists already; choose another name or add --force")
    if arguments.figure is not None:
        from hgpo.comparison.figure import check_figure
        from hgpo.drawing import check_matplotlib

        check_figure(arguments.figure)
        check_matplotlib()


def _write(comparison: Comparison, arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from hgpo.comparison.formats import as_csv, as_latex, as_markdown
    from hgpo.comparison.terminal import as_text, print_comparison
    from hgpo.files import write_text

    output: Path | None = arguments.output
    chosen = arguments.format or (_FORMAT_OF.get(output.suffix.lower(), "text") if output else "text")
    if output is None and chosen == "text" and sys.stdout.isatty():
        print_comparison(Console(), comparison)
        return
    text = {"text": as_text, "markdown": as_markdown, "csv": as_csv, "latex": as_latex}[chosen](comparison)
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
        sys.stdout.write(f"The table is in {output}\n")


def _draw(entries: tuple[Entry, ...], comparison: Comparison, arguments: argparse.Namespace) -> None:
    from hgpo.comparison.curves import learning_curves
    from hgpo.comparison.figure import draw_comparison

    curves = learning_curves(entries, arguments.smooth)
    draw_comparison(comparison, curves, arguments.smooth, arguments.figure)
    sys.stderr.write(f"The figure is in {arguments.figure}\n")  # standard output is the table's
