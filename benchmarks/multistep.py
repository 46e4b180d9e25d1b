"""Measure every estimator on games of many steps whose true policy gradient is known.

    python benchmarks/multistep.py choose --cells runs/choosing.jsonl              # instances 0, 1, …: choose settings
    python benchmarks/multistep.py report --cells runs/reporting.jsonl --workers 2 --json benchmarks/multistep.json
    python benchmarks/multistep.py report --read benchmarks/multistep.json --picture docs/images/multistep.png

A cell is one estimator on one instance. Finished cells are stored in the file and not measured again, so a run that was
killed can be continued. `report` uses other instances than `choose`. docs/results/games.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from hgpo.utils.plot_style import DASHES, PALETTE, dash, empty_figure, save_figure
from long_games.cells import MEASURES, Cell, CellFile, Settings, measured
from long_games.contenders import CONTENDERS, REFERENCE, SHIPPED
from long_games.families import FAMILIES, FIRST_REPORTED
from long_games.tables import ALL, DRAWN, as_markdown, summary
from stored_rows import json_document

DEFAULT_INSTANCES = {"choose": 3, "report": 30}


def wanted(first: int, options: argparse.Namespace) -> list[Cell]:
    """All cells, by measure, instance, family, estimator: in this order the finished cells always form a table."""
    return [
        Cell(measure, family, number, estimator)
        for measure in options.measures
        for number in range(first, first + options.instances)
        for family in options.families
        for estimator in options.estimators
    ]


def _cell(cell: Cell, settings: Settings) -> tuple[Cell, dict[str, Any]]:
    return cell, measured(cell, settings)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure the requested cells that are missing in the file, and summarise all its cells of the estimators."""
    settings = Settings(
        options.verb, kl=options.kl, rate=options.rate, batches=options.batches, updates=options.updates
    )
    cells = wanted(0 if options.verb == "choose" else FIRST_REPORTED, options)
    file = CellFile(options.cells, settings)
    missing = [cell for cell in cells if cell not in file.done]
    console.print(f"{len(cells)} cells, {len(missing)} to measure")
    started = time.perf_counter()
    with get_context("spawn").Pool(options.workers) as pool:
        for n, (cell, result) in enumerate(pool.imap_unordered(partial(_cell, settings=settings), missing), 1):
            file.append(cell, result)
            if n % 100 == 0:
                each = (time.perf_counter() - started) / n
                console.print(f"{n} measured, {each:.2f} s each, {each * (len(missing) - n) / 60:.0f} minutes to go")
    return summary(file.done, asdict(settings), options.estimators)


def show(found: dict[str, Any], console: Console) -> None:
    """Print one table per figure."""
    for figure in dict.fromkeys(row["figure"] for row in found["rows"]):
        names = list(dict.fromkeys(row["estimator"] for row in found["rows"]))
        console.print(f"{figure}\n\n{as_markdown(found, figure, names)}", markup=False)


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the picture of docs/results/games.md: learning curves of the five families, and differences.

    Raises:
        ValueError: matplotlib is missing, or a family has no finished curves.
    """
    curves = {(row["family"], row["estimator"]): row["success"] for row in found["curves"]}
    missing = [family for family in FAMILIES if not all(curves.get((family, name)) for name in DRAWN)]
    if missing:
        raise ValueError(f"no finished learning curves of {', '.join(missing)}; measure them first")
    with empty_figure(7.2, 4.6) as figure:
        panels = figure.subplots(2, 3).ravel()
        for panel, family in zip(panels, FAMILIES, strict=False):
            for n, name in enumerate(DRAWN):
                success = curves[family, name]
                panel.plot(success, color=PALETTE[n], linestyle=dash(n % len(DASHES)), linewidth=1.1, label=name)
            panel.set_title(family)
            panel.set_xlabel("update")
            panel.set_ylabel("success, %")
        panels[0].legend(fontsize=6.5)
        _lead(panels[5], found["rows"])
        save_figure(figure, path, path.suffix)
    if path.suffix == ".png":
        _fewer_colours(path)


def _fewer_colours(path: Path) -> None:
    """Reduce the picture to 64 colours, enough for lines; the file becomes a third as large."""
    from PIL import Image  # matplotlib needs it

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _lead(panel: Any, rows: list[dict[str, Any]]) -> None:
    """Mean difference to the reference over all families, a line for each estimator, best on top."""
    found = [row for row in rows if (row["figure"], row["family"]) == ("kl", ALL)]
    shown = [row for row in found if row["estimator"] in SHIPPED]
    shown.sort(key=lambda row: row["difference"])
    for place, row in enumerate(shown):
        color = PALETTE[0] if row["estimator"] == REFERENCE else PALETTE[1]
        panel.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.5)
        panel.plot(row["difference"], place, "o", color=color, markersize=3)
    panel.axvline(0.0, color="0.6", linewidth=0.6)
    panel.set_yticks(range(len(shown)), [row["estimator"] for row in shown], fontsize=6)
    panel.set_xlabel(f"points, minus {REFERENCE}")
    panel.set_title("mean of all families")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = top.add_subparsers(dest="verb", required=True)
    usual = Settings("choose")
    for verb, says in (("choose", "instances for choosing settings"), ("report", "instances for reporting")):
        made = verbs.add_parser(verb, help=says)
        made.add_argument("--cells", type=Path, metavar="FILE.jsonl", help="where finished cells are kept")
        made.add_argument("--read", type=Path, metavar="FILE.json", help="measure nothing: show a stored summary")
        made.add_argument("--json", type=Path, metavar="FILE.json", help="write the summary")
        made.add_argument("--picture", type=Path, metavar="FILE.png", help="draw it (needs matplotlib: hgpo[report])")
        made.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
        made.add_argument(
            "--instances",
            type=int,
            default=DEFAULT_INSTANCES[verb],
            help="of each family; 0: only summarise what there is",
        )
        made.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
        made.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="NAME")
        made.add_argument("--estimators", nargs="+", choices=CONTENDERS, default=CONTENDERS, metavar="NAME")
        made.add_argument("--kl", type=float, default=usual.kl, help="divergence of an update")
        made.add_argument("--rate", type=float, default=usual.rate, help="of Adam, in logits")
        made.add_argument("--batches", type=int, default=usual.batches, help="for the cosines")
        made.add_argument("--updates", type=int, default=usual.updates, help="of a learning curve")
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show and save."""
    top = parser()
    options = top.parse_args(arguments)
    if (options.cells is None) == (options.read is None):
        top.error("give --cells FILE.jsonl to measure, or --read FILE.json to show a stored summary")
    if REFERENCE not in options.estimators:
        top.error(f"--estimators must have {REFERENCE}: differences are against it")
    console = Console(width=170)
    found = json.loads(options.read.read_text(encoding="utf-8")) if options.read else run(options, console)
    show(found, console)
    if options.json:
        options.json.write_text(json_document(**found), encoding="utf-8")
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
