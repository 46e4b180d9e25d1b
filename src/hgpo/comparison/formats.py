"""Writes a comparison as text (rich), Markdown, LaTeX and CSV.

The first three show the same tables of rounded figures, in one of two layouts: "full", or "paper" with a row per label
and a column per result of ALFWorld and WebShop. CSV is for programs: unrounded fractions, one line per row and section.
Labels, models and types of task come from files: what a format would read as markup or a formula becomes plain text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hgpo.comparison.table import Block, Cell, Column, Comparison, Difference, Kind, Mean, Row, Section
from hgpo.evaluation import Rate
from hgpo.visible import visible

UNKNOWN = "–"
_DECIMALS: dict[Kind, int] = {"score": 3, "length": 1, "count": 0}
_BLOCKS: tuple[tuple[Block, str], ...] = (
    ("task type", "Success by task type, %"),
    ("trial", "Success by trial, %"),
    ("cost", "Cost of an episode and of a request"),
)
_PAPER = (
    ("ALFWorld in-distribution", "alfworld", ("valid_seen",), "success"),
    ("ALFWorld out-of-distribution", "alfworld", ("valid_unseen",), "success"),
    ("WebShop score", "webshop", ("test", "validation", "valid_unseen"), "score"),
    ("WebShop success", "webshop", ("test", "validation", "valid_unseen"), "success"),
)
_INTERVAL = "In parentheses: 95 % CI over tasks."
_DEVIATION = "±: standard deviation over n training seeds."
_MARKDOWN = re.compile(r"[\\`*{}\[\]#|~$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"{{{character}}}" for character in "[]*"},  # else an argument of the previous row's \\
    '"': "''",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": r"\textendash{}",
    "±": r"$\pm$",
    "−": "$-$",
    "…": r"\ldots{}",
    "\N{REPLACEMENT CHARACTER}": "?",
}
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under a title; the first row is the heading, `left` counts the left-aligned columns."""

    title: str
    rows: list[list[str]]
    left: int = 1


def tables_of(comparison: Comparison, layout: str) -> tuple[list[Table], list[str]]:
    """The tables of a layout ("full" or "paper"), and the lines below them."""
    made = [_paper(comparison)] if layout == "paper" else []
    notes = []
    for section in comparison.sections:
        if layout != "paper":
            made += _full(section, comparison.reference)
        elif section.environment in ("alfworld", "webshop"):
            notes += [_sentence(section, row, comparison.reference) for row in section.rows if row.difference]
        notes += section.notes
    cells = [cell for section in comparison.sections for column in section.columns for cell in column.cells]
    legend = [_INTERVAL] if layout != "paper" and any(isinstance(cell, Rate) for cell in cells) else []
    return made, [*legend, *([_DEVIATION] if any(isinstance(cell, Mean) for cell in cells) else []), *notes]


def _full(section: Section, reference: str) -> list[Table]:
    main = [column for column in section.columns if column.block == "main"]
    texts = sum(column.kind == "text" for column in main)
    rows = [
        [row.label, *(cell_text(column.cells[place], column.kind) for column in main[:texts]), str(row.runs)]
        + [cell_text(column.cells[place], column.kind) for column in main[texts:]]
        for place, row in enumerate(section.rows)
    ]
    heading = ["", *(column.heading for column in main[:texts]), "n", *(column.heading for column in main[texts:])]
    made = [Table(section.title, [heading, *rows], 1 + texts)]
    if differences := [[row.label, *_difference(row.difference)] for row in section.rows if row.difference]:
        heading = ["", "points (95 % CI)", "CI over", "remark"]
        made.append(Table(f"Difference in success to {reference}, paired", [heading, *differences], 1))
    for block, title in _BLOCKS:
        columns = [column for column in section.columns if column.block == block]
        lines = [[column.heading, *(cell_text(cell, column.kind) for cell in column.cells)] for column in columns]
        if lines:
            made.append(Table(title, [["", *(row.label for row in section.rows)], *lines]))
    return made


def _paper(comparison: Comparison) -> Table:
    """One row per label: success and score in per cent."""
    rows = []
    for label in comparison.labels:
        cells, runs = [], []
        for _, environment, splits, column in _PAPER:
            sections = [one for one in comparison.sections if one.environment == environment]
            section = next((one for split in splits for one in sections if one.split == split), None)
            cells.append(_percent(section.cell(label, column) if section else None))
            runs += [row.runs for row in section.rows if row.label == label] if section else []
        rows.append([label, "/".join(map(str, dict.fromkeys(runs))) or UNKNOWN, *cells])
    title = "Success and score on held-out tasks, per cent"
    return Table(title, [["", "n", *(heading for heading, *_ in _PAPER)], *rows])


def _percent(cell: Cell) -> str:
    if isinstance(cell, Mean):
        return f"{100 * cell.mean:.1f} ± {100 * cell.deviation:.1f}"
    mean = cell.mean if isinstance(cell, Rate) else cell
    return f"{100 * mean:.1f}" if isinstance(mean, (int, float)) else UNKNOWN


def _sentence(section: Section, row: Row, reference: str) -> str:
    points, over, remark = _difference(row.difference) if row.difference else ("", "", "")
    interval = f" (95 % CI over {over})" if over else ""
    return f"{section.environment}, {section.split}: {row.label} − {reference} {points}{interval}" + (
        f", {remark}" if remark else ""
    )


def _difference(found: Difference) -> tuple[str, str, str]:
    """Points with interval, what the interval is over, and the remark."""
    if found.mean is None:
        return UNKNOWN, UNKNOWN, found.remark
    points = f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return points, found.over, "; ".join(filter(None, ("" if found.significant else "not significant", found.remark)))


def cell_text(cell: Cell, kind: Kind) -> str:
    """A cell for people; `Rate(0.523, 0.462, 0.584, 256)` becomes "52.3 (46.2–58.4)", None a dash."""
    if cell is None or isinstance(cell, str):
        return cell or UNKNOWN
    if isinstance(cell, Rate):
        return f"{100 * cell.mean:.1f} ({100 * cell.low:.1f}–{100 * cell.high:.1f})"
    if isinstance(cell, Mean):
        return f"{_number(cell.mean, kind)} ± {_number(cell.deviation, kind)}"
    return _number(cell, kind)


def _number(value: float, kind: Kind) -> str:
    if kind in ("rate", "share"):
        return f"{100 * value:.1f}"
    digits = _DECIMALS[kind] if kind in _DECIMALS else max(0, 2 - floor(log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def print_comparison(console: Console, comparison: Comparison, layout: str = "full") -> None:
    """Print the tables and the lines below them."""
    tables, lines = tables_of(comparison, layout)
    for table in tables:
        shown = RichTable(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for place, heading in enumerate(table.rows[0]):
            shown.add_column(Text(heading), justify="left" if place < table.left or heading == "remark" else "right")
        for row in table.rows[1:]:
            shown.add_row(*map(Text, row))
        console.print(shown)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def as_text(comparison: Comparison, layout: str = "full") -> str:
    """What `print_comparison` prints, for a file: without colours, no line is folded."""
    text = io.StringIO()
    print_comparison(Console(file=text, width=100_000, color_system=None), comparison, layout)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def as_markdown(comparison: Comparison, layout: str = "full") -> str:
    """Pipe tables with their titles, and the lines below them as a list."""
    tables, notes = tables_of(comparison, layout)
    lines = []
    for table in tables:
        rule = ["---" if _is_text(table, place) else "---:" for place in range(len(table.rows[0]))]
        rows = [[markdown_text(cell) for cell in row] for row in table.rows]
        lines += [f"{markdown_text(table.title)}.", ""]
        lines += [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])] + [""]
    return "\n".join([*lines, *(f"- {markdown_text(note)}" for note in notes)]).rstrip("\n") + "\n"


def markdown_text(text: str) -> str:
    """Text that stays text in Markdown, inside a table and outside: no markup, no HTML, no link."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\g<0>", escaped)


def as_latex(comparison: Comparison, layout: str = "full") -> str:
    """One float for the package booktabs; the first title is its caption."""
    tables, notes = tables_of(comparison, layout)
    lines = ["% needs the package booktabs", r"\begin{table}", r"\centering"]
    for number, table in enumerate(tables):
        alignment = "".join("l" if _is_text(table, place) else "r" for place in range(len(table.rows[0])))
        rows = [[_latex_cell(cell, _is_text(table, place)) for place, cell in enumerate(row)] for row in table.rows]
        title = latex_text(table.title)
        lines += ["", r"\medskip", rf"{title}\\"] if number else [rf"\caption{{{title}.}}"]
        lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
        body = [rf"{' & '.join(row)} \\" for row in rows]
        lines += [body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"\n\\footnotesize {latex_text(note)}" for note in notes), r"\end{table}"]) + "\n"


def latex_text(text: str) -> str:
    """Text that stays text in LaTeX, also at the start of a table's row."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens would become a dash


def _latex_cell(cell: str, is_text: bool) -> str:
    return latex_text(cell) if is_text else re.sub(r"-(?=\d)", "$-$", latex_text(cell))


def _is_text(table: Table, place: int) -> bool:
    return place < table.left or table.rows[0][place] == "remark"


def as_csv(comparison: Comparison) -> str:
    """One line per row and section: fractions unrounded, unknown values empty.

    Texts are quoted; one that a spreadsheet would evaluate as a formula begins with an apostrophe.
    """
    columns = {column.name: column for section in comparison.sections for column in section.columns}
    text = io.StringIO()
    lines = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    headings = [name + part for name, column in columns.items() for part in _csv_parts(column)]
    lines.writerow(map(_csv_value, ["label", "environment", "split", "n", *headings, *_CSV_DIFFERENCE, "notes"]))
    for section in comparison.sections:
        for row in section.rows:
            figures = [
                value for name, column in columns.items() for value in _csv_cells(section.cell(row.label, name), column)
            ]
            notes = "; ".join(note for note in section.notes if note.startswith(f"{row.label}: "))
            first = [row.label, section.environment and visible(section.environment), visible(section.split), row.runs]
            lines.writerow(map(_csv_value, [*first, *figures, *_csv_difference(row, comparison.reference), notes]))
    return text.getvalue()


_CSV_DIFFERENCE = ("reference", "difference", "difference_low", "difference_high", "difference_over", "remark")


def _csv_parts(column: Column) -> Sequence[str]:
    """Suffixes of a column's CSV columns."""
    if column.kind == "text" or column.name in ("episodes", "failed"):
        return ("",)
    return ("", "_sd", "_low", "_high", "_tasks") if column.kind == "rate" else ("", "_sd")


def _csv_cells(cell: Cell, column: Column) -> Sequence[Cell]:
    mean = cell.mean if isinstance(cell, (Mean, Rate)) else cell
    values = [mean, cell.deviation if isinstance(cell, Mean) else None]
    values += [cell.low, cell.high, cell.tasks] if isinstance(cell, Rate) else [None] * 3
    return values[: len(_csv_parts(column))]


def _csv_difference(row: Row, reference: str) -> Sequence[Cell]:
    found = row.difference
    if found is None or found.mean is None:
        return [reference if found else None, None, None, None, None, found.remark if found else None]
    return [reference, found.mean, found.low, found.high, found.over, _difference(found)[2]]


def _csv_value(value: Cell) -> Cell:
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(_FORMULA) else value
