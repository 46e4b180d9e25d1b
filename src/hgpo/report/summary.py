"""A report in the terminal: how many steps were read, metrics per level, disagreement between estimators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich import box
from rich.console import Console
from rich.table import Table

from hgpo.estimators.diagnostics import LEVEL_HEADINGS, SHARES
from hgpo.report.analysis import UpdateMetrics
from hgpo.report.charts import level_names
from hgpo.report.estimator_comparison import paper_settings, whose_levels
from hgpo.report.report import Report
from hgpo.utils.text import counted, visible

_MOST_NOTICES = 10
_COLUMNS = (
    "usable_share",
    "size_p50",
    "variance_explained_adjusted",
    "sign_agreement",
    "mean_weight",
    "prompts_differ_steps",
)


def print_report(console: Console, report: Report) -> None:
    """Print the whole summary; control characters in texts of the input are replaced."""
    say = partial(console.print, markup=False, highlight=False)
    of = f" in {counted(len(report.updates), report.unit)}" if report.unit else ""
    say(f"{visible(report.source)}: {counted(report.steps, 'step')} of {counted(report.tasks, 'task')}{of}")
    for notice in report.notices[:_MOST_NOTICES]:
        say(f"  ! {visible(str(notice), 400)}", soft_wrap=True)
    if (rest := len(report.notices) - _MOST_NOTICES) > 0:
        say(f"  ! and {rest} more; the report lists all")
    for line in filter(None, (report.won_rule, *report.matching)):
        say(visible(line, 400))
    if not report.updates:
        return
    console.print(_levels(report, report.updates[0], report.updates[-1]))
    names = "; ".join(f"{level}, {name}" for level, name in level_names(report).items())
    for line in [f"levels: {names}", *_consistency(report), *_disagreements(report)]:
        say(line)


def level_table(title: str, names: Sequence[str], heading: str = "\nlevel") -> Table:
    """A table without rows for figures of levels, which have the keys `names` of `LEVEL_HEADINGS`."""
    table = Table(heading, title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        first_line, _, last_line = LEVEL_HEADINGS[name].rpartition(" ")
        table.add_column(f"{first_line}\n{last_line}", justify="right", no_wrap=True)
    return table


def figure_text(name: str, figure: float | None, decimals: int = 1) -> str:
    """The figure `name` of a level as text, a percentage with `decimals`."""
    if figure is None:
        return "–"
    if name in SHARES:
        return f"{100 * figure:z.{decimals}f} %"  # z: no minus zero
    if name == "mean_weight":
        return f"{figure:.3f}"
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:.2f}"


def _levels(report: Report, first: UpdateMetrics, last: UpdateMetrics) -> Table:
    whose = whose_levels(report.estimators)
    title = f"{whose[0].upper()}{whose[1:]}{f', {report.unit} {first.update}' if report.unit else ''}"
    table = level_table(title if first is last else f"{title} → {last.update}", _COLUMNS)
    ends = [{level.label: level for level in update.summary.terms} for update in (first, last)]
    for label in level_names(report):
        levels = [levels.get(label) for levels in ends]
        table.add_row(label, *(_change(name, [getattr(level, name, None) for level in levels]) for name in _COLUMNS))
    return table


def _change(name: str, values: Sequence[float | None]) -> str:
    texts = [figure_text(name, value, decimals=0) for value in values]
    return texts[0] if len(set(texts)) == 1 else " → ".join(texts)


def _consistency(report: Report) -> list[str]:
    """How often grouped steps had different prompts, one line per level of HGPO, for any training estimator."""
    lines, paper = [], paper_settings(report.estimators)
    for k in range(max((len(update.consistency) for update in report.updates), default=0)):
        levels = [update.consistency[k] for update in report.updates if len(update.consistency) > k]
        grouped, steps = sum(level.grouped_steps for level in levels), sum(level.steps for level in levels)
        alone, flipped = sum(level.alone for level in levels), sum(level.flipped for level in levels)
        compared = sum(level.compared for level in levels)
        if not grouped:
            continue
        line = (
            f"{paper.label}, level {k}: of the steps in groups of two or more, {_share(steps, grouped)} are in a "
            "group with different prompts"
        )
        if steps:
            line += f"; compared by equal prompts only, {_share(alone, steps)} of these would be alone"
        if compared:
            line += f"; of the others with nonzero advantages, {_share(flipped, compared)} would change sign"
        lines.append(line)
    return lines


def _disagreements(report: Report) -> list[str]:
    """How often the signs of each estimator's and the first estimator's advantages are opposite, in one line."""
    first = report.estimators[0]
    shares = []
    for other in report.estimators[1:]:
        pair = f"{first.key} {other.key}"
        counts = [update.disagreement[pair] for update in report.updates if pair in update.disagreement]
        if sum(n for n, _ in counts):
            shares.append(f"{other.label} {_share(sum(d for _, d in counts), sum(n for n, _ in counts))}")
    return [f"signs opposite to {first.label}: {', '.join(shares)}"] if shares else []


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
