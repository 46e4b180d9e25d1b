"""The table as Markdown, LaTeX and CSV: the same figures, each text made harmless where it stands.

Markdown and LaTeX round as the terminal does. CSV is for programs: fractions and figures unrounded, one row per entry.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hgpo.comparison.cells import UNKNOWN, points, shown
from hgpo.comparison.table import Cell, Column, Comparison, Row
from hgpo.evaluation import Rate

Cells = list[list[str]]

_MARKDOWN = re.compile(r"[\\`*{}\[\]#|~$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"{{{character}}}" for character in "[]*"},  # they would be arguments of the line's end before
    '"': "''",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": r"\textendash{}",
    "…": r"\ldots{}",
    "\N{REPLACEMENT CHARACTER}": "?",
}
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Markup:
    """What a format makes of texts, of figures, and of a footnote's number.

    Example: `Markup(markdown_text, markdown_text, "<sup>{}</sup>")`.
    """

    text: Callable[[str], str]
    figure: Callable[[str], str]
    mark: str


def as_markdown(comparison: Comparison) -> str:
    """Two tables and the footnotes."""
    markup = Markup(markdown_text, str, "<sup>{}</sup>")
    lines = [f"{markdown_text(comparison.caption)}.", "", *_markdown_table(*_figures(comparison, markup))]
    if len(comparison.rows) > 1:
        lines += ["", *_markdown_table(*_differences(comparison, markup))]
    for number, note in enumerate(comparison.footnotes, start=1):
        lines += ["", f"{markup.mark.format(number)} {markdown_text(note)}"]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    """Text that stays text in Markdown, inside a table and outside: no markup, no HTML, no link."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\g<0>", escaped)


def _markdown_table(cells: Cells, alignment: str) -> list[str]:
    rule = ["---:" if side == "r" else "---" for side in alignment]
    return [f"| {' | '.join(row)} |" for row in [cells[0], rule, *cells[1:]]]


def as_latex(comparison: Comparison) -> str:
    """A float for the package booktabs: two tables and the footnotes."""
    markup = Markup(latex_text, _latex_figure, r"\textsuperscript{{{}}}")
    lines = ["% needs the package booktabs", r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{latex_text(comparison.caption)}.}}", *_latex_table(*_figures(comparison, markup))]
    if len(comparison.rows) > 1:
        lines += ["", r"\medskip", *_latex_table(*_differences(comparison, markup))]
    for number, note in enumerate(comparison.footnotes, start=1):
        lines += ["", rf"\footnotesize {markup.mark.format(number)} {latex_text(note)}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def latex_text(text: str) -> str:
    """Text that stays text in LaTeX, also at the start of a table's row."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens are two, no dash


def _latex_figure(text: str) -> str:
    return re.sub(r"-(?=\d)", "$-$", text).replace("–", "--")


def _latex_table(cells: Cells, alignment: str) -> list[str]:
    rows = [rf"{' & '.join(row)} \\" for row in cells]
    begin, end = rf"\begin{{tabular}}{{{alignment}}}", r"\end{tabular}"
    return [begin, r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", end]


def _figures(comparison: Comparison, markup: Markup) -> tuple[Cells, str]:
    """Heading and rows of the large table, and how its columns are aligned."""
    columns = comparison.columns
    rows = [
        [_marked(row, markup), *(_cell(column, place, markup) for column in columns)]
        for place, row in enumerate(comparison.rows)
    ]
    alignment = "".join("l" if column.kind == "text" else "r" for column in columns)
    return [["", *(markup.text(column.heading) for column in columns)], *rows], f"l{alignment}"


def _differences(comparison: Comparison, markup: Markup) -> tuple[Cells, str]:
    """Heading and rows of the small table, and how its columns are aligned."""
    heading = [f"difference to {markup.text(comparison.baseline_label)}", "points", "tasks", ""]
    rows = [
        [
            markup.text(row.label),
            markup.figure(points(row.difference.gain) if row.difference.gain else UNKNOWN),
            markup.figure(f"{row.difference.gain.tasks:,}" if row.difference.gain else UNKNOWN),
            markup.text(row.difference.remark),
        ]
        for row in comparison.rows
        if row.difference is not None
    ]
    return [heading, *rows], "lrrl"


def _marked(row: Row, markup: Markup) -> str:
    numbers = ", ".join(map(str, row.notes))
    return f"{markup.text(row.label)} {markup.mark.format(numbers)}" if numbers else markup.text(row.label)


def _cell(column: Column, place: int, markup: Markup) -> str:
    cell = column.cells[place]
    return markup.text(cell) if isinstance(cell, str) else markup.figure(shown(cell, column.kind))


def as_csv(comparison: Comparison) -> str:
    """One line per entry: fractions unrounded, an interval as two columns, what is unknown left empty.

    Texts are in quotes, and those that a spreadsheet would take for a formula begin with an apostrophe.
    """
    text = io.StringIO()
    lines = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    headings = [name for column in comparison.columns for name in _csv_names(column)]
    lines.writerow(map(_csv_value, ["label", *headings, *_CSV_DIFFERENCE, "notes"]))
    for place, row in enumerate(comparison.rows):
        figures = [value for column in comparison.columns for value in _csv_cells(column, place)]
        notes = "; ".join(comparison.footnotes[number - 1] for number in row.notes)
        lines.writerow(map(_csv_value, [row.label, *figures, *_csv_difference(comparison, row), notes]))
    return text.getvalue()


_CSV_DIFFERENCE = ("baseline", "difference", "difference_low", "difference_high", "difference_tasks", "remark")


def _csv_names(column: Column) -> list[str]:
    parts = ("", "_low", "_high", "_tasks") if column.kind == "rate" else ("",)
    return [column.name + part for part in parts]


def _csv_cells(column: Column, place: int) -> Sequence[Cell]:
    cell = column.cells[place]
    if column.kind != "rate":
        return [cell]
    return _csv_rate(cell if isinstance(cell, Rate) else None)


def _csv_rate(rate: Rate | None) -> Sequence[Cell]:
    return [rate.mean, rate.low, rate.high, rate.tasks] if rate is not None else [None] * 4


def _csv_difference(comparison: Comparison, row: Row) -> Sequence[Cell]:
    if row.difference is None:
        return [None, *_csv_rate(None), None]
    return [comparison.baseline_label, *_csv_rate(row.difference.gain), row.difference.remark]


def _csv_value(value: Cell) -> Cell:
    if isinstance(value, str) and value.lstrip().startswith(_FORMULA):
        return f"'{value}"
    return value
