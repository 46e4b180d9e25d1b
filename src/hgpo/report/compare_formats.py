"""Writes a comparison as text (rich), Markdown, LaTeX and CSV.

The first three show the same tables of rounded values, in one of two layouts: "full", or "paper" with a row per label
and a column per result of ALFWorld and WebShop. CSV is for programs: unrounded fractions, one line per row and section.
Labels, models and types of task come from files: what a format would read as markup or a formula becomes plain text.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log10
from textwrap import wrap

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hgpo.evaluation.statistics import Rate
from hgpo.report.compare_table import (
    TARGET,
    Block,
    Cell,
    Column,
    Comparison,
    Difference,
    Kind,
    Mean,
    Row,
    Section,
)
from hgpo.utils.text import visible

UNKNOWN = "–"
_HEADING_WIDTH = 16
_DECIMALS: dict[Kind, int] = {"score": 3, "length": 1, "count": 0, "whole": 0}
_BLOCKS: tuple[tuple[Block, str], ...] = (
    ("task type", "Success by task type, %"),
    ("trial", "Success by trial, %"),
    ("cost", "Cost of an episode and of a request"),
)
_SHOPS = ("test", "validation", "validation_256", "valid_unseen")  # a section of the first one that there is
_PAPER = (
    ("ALFWorld in-distribution", "alfworld", ("valid_seen",), "success"),
    ("ALFWorld out-of-distribution", "alfworld", ("valid_unseen",), "success"),
    ("WebShop score", "webshop", _SHOPS, "score"),
    ("WebShop success", "webshop", _SHOPS, "success"),
)
_INTERVAL = "In parentheses: 95 % CI over tasks."
_DEVIATION = "±: standard deviation over n training seeds, or n evaluations where a note says so."
_DETECTS = "detects: smallest true difference in points that these tasks or seeds find with 80 % power, at 5 %."
_MARKDOWN = re.compile(r"[\\`*{}\[\]#|~$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_LIST_MARK = re.compile(r"^(\d*)([-+.)])(?=\s)")
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
    "≥": r"$\geq$",
    "±": r"$\pm$",
    "−": "$-$",
    "…": r"\ldots{}",
    "\N{REPLACEMENT CHARACTER}": "?",
}
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under a title; the first row is the heading, `align` has "l" or "r" for each column."""

    title: str
    rows: list[list[str]]
    align: str


def tables_of(comparison: Comparison, layout: str) -> tuple[list[Table], list[str]]:
    """The tables of a layout ("full" or "paper"), and the lines below them."""
    paper = layout == "paper"
    made, notes = [_paper(comparison)] if paper else [], []
    used = [one for one in comparison.sections if not paper or one.environment in ("alfworld", "webshop")]
    for section in used:
        made += [] if paper else _full(section, comparison.reference)
        notes += [_sentence(section, row, comparison.reference) for row in section.rows if paper and row.difference]
        notes += [f"{row.label}: {note}" for row in section.rows for note in (*_resampled(row.difference), *row.notes)]
    kinds = {type(cell) for section in used for row in section.rows for cell in row.cells.values()}
    legend = [text for kind, text in ((Rate, _INTERVAL), (Mean, _DEVIATION)) if kind in kinds]
    if any(row.difference and row.difference.needed for section in used for row in section.rows):
        legend.append(_DETECTS)
    return made, [*(text for text in legend if not paper or text == _DEVIATION), *notes]


def _resampled(found: Difference | None) -> list[str]:
    """The interval of a difference that resamples training seeds and tasks."""
    if found is None or found.bootstrap is None:
        return []
    low, high = found.bootstrap
    limits = f"{100 * low:+z.1f} to {100 * high:+z.1f} points"
    return [f"difference resampled over training seeds and tasks (too narrow with few seeds): {limits}"]


def _full(section: Section, reference: str) -> list[Table]:
    def block(name: Block) -> list[list[str]]:
        """A line per column: its heading, and its cell in every row."""
        columns = [column for column in section.columns if column.block == name]
        return [[c.heading, *(cell_text(row.cells[c.name], c.kind) for row in section.rows)] for c in columns]

    labels, main = ["", *(row.label for row in section.rows)], block("main")
    texts = sum(column.kind == "text" for column in section.columns)
    main.insert(texts, ["n", *(str(row.runs) for row in section.rows)])
    align = "l" * (1 + texts) + "r" * (len(main) - texts)
    made = [Table(section.title, [list(row) for row in zip(labels, *main, strict=True)], align)]
    if differences := [[row.label, *_difference(row.difference)] for row in section.rows if row.difference]:
        heading = ["", "points (95 % CI)", "CI over", "detects", "remark"]
        made.append(Table(f"Difference in success to {reference}, paired", [heading, *differences], "lrrrl"))
    align = "l" + "r" * len(section.rows)
    return made + [Table(title, [labels, *lines], align) for name, title in _BLOCKS if (lines := block(name))]


def _paper(comparison: Comparison) -> Table:
    """One row per label: success and score in per cent; a cell is "–" where a label has no such evaluation."""
    found = []
    for _, environment, splits, _ in _PAPER:
        sections = {one.split: one for one in comparison.sections if one.environment == environment}
        section = next((sections[split] for split in splits if split in sections), None)
        found.append({row.label: row for row in section.rows} if section else {})
    if not any(found):
        raise ValueError("--layout paper: no evaluation of ALFWorld or WebShop on a split of the paper")
    rows = []
    for label in comparison.labels:
        cells = [
            by_label[label].cells[column] if label in by_label else None
            for by_label, (*_, column) in zip(found, _PAPER, strict=True)
        ]
        texts = [cell_text(cell.mean if isinstance(cell, Rate) else cell, "share") for cell in cells]
        runs = dict.fromkeys(str(by_label[label].runs) for by_label in found if label in by_label)
        rows.append([label, "/".join(runs) or UNKNOWN, *texts])
    headings = ["", "n", *(heading for heading, *_ in _PAPER)]
    return Table("Success and score on held-out tasks, per cent", [headings, *rows], "lrrrrr")


def _sentence(section: Section, row: Row, reference: str) -> str:
    points, over, detects, remark = _difference(row.difference or Difference(None))
    found = f"{section.environment}, {section.split}: {row.label} less {reference}: {points}"
    if over != UNKNOWN:
        found += f" points, 95 % CI over {over}"
    return ", ".join(filter(None, (found, f"detects {detects}" if detects != UNKNOWN else "", remark)))


def _difference(found: Difference) -> tuple[str, str, str, str]:
    """Points with interval, what the interval is over, the detectable difference, and the remark."""
    if found.mean is None:
        return UNKNOWN, UNKNOWN, UNKNOWN, found.remark
    points = f"{100 * found.mean:+z.1f} ({100 * found.low:+z.1f} to {100 * found.high:+z.1f})"
    detects = UNKNOWN
    if found.needed is not None:
        detects = f"≥ {100 * found.detectable:.1f}; {100 * TARGET:g} with {found.needed:,}"
    remark = "; ".join(filter(None, ("" if found.significant else "not significant", found.remark)))
    return points, found.over, detects, remark


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
        printed = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for place, heading in enumerate(table.rows[0]):
            text = Text("\n".join(wrap(heading, _HEADING_WIDTH, break_long_words=False)))
            if table.align[place] == "l":
                printed.add_column(text, overflow="fold")  # narrower where the terminal is
            else:
                printed.add_column(
                    text, justify="right", no_wrap=True, min_width=max(len(row[place]) for row in table.rows[1:])
                )
        for row in table.rows[1:]:
            printed.add_row(*map(Text, row))
        console.print(Text(table.title, style="table.title"))  # a title of the table is folded at its width
        console.print(printed)
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)


def as_text(comparison: Comparison, layout: str = "full") -> str:
    """The output of `print_comparison` for a file, without colours and folded lines."""
    text = io.StringIO()
    print_comparison(Console(file=text, width=100_000, color_system=None), comparison, layout)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def as_markdown(comparison: Comparison, layout: str = "full") -> str:
    """Pipe tables with their titles, and the lines below them as a list."""
    tables, notes = tables_of(comparison, layout)
    lines = []
    for table in tables:
        rule = ["---" if side == "l" else "---:" for side in table.align]
        rows = [[markdown_text(cell) for cell in row] for row in table.rows]
        lines += [f"{markdown_text(table.title)}.", ""]
        lines += [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])] + [""]
    return "\n".join([*lines, *(f"- {markdown_text(note)}" for note in notes)]).rstrip("\n") + "\n"


def markdown_text(text: str) -> str:
    """Text that stays text in Markdown, inside a table and outside: no markup, no HTML, no link."""
    return _LIST_MARK.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\g<0>", html.escape(text, quote=False)))


def as_latex(comparison: Comparison, layout: str = "full") -> str:
    """One float for the package booktabs; the first title is its caption."""
    tables, notes = tables_of(comparison, layout)
    lines = ["% needs the package booktabs", r"\begin{table}", r"\centering"]
    for number, table in enumerate(tables):
        head, *others = table.rows
        rows = [[latex_text(label) for label in head]]
        rows += ([_latex_cell(*cell) for cell in zip(row, table.align, strict=True)] for row in others)
        title = latex_text(table.title)
        lines += ["", r"\medskip", rf"{title}\\"] if number else [rf"\caption{{{title}.}}"]
        lines += [rf"\begin{{tabular}}{{{table.align}}}", r"\toprule"]
        body = [rf"{' & '.join(row)} \\" for row in rows]
        lines += [body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"\n\\footnotesize {latex_text(note)}" for note in notes), r"\end{table}"]) + "\n"


def latex_text(text: str) -> str:
    """Text that stays text in LaTeX, also at the start of a table's row."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens would become a dash


def _latex_cell(cell: str, side: str) -> str:
    """A cell; in a right-aligned column, of numbers, a hyphen before a digit is a minus sign."""
    return re.sub(r"-(?=\d)", "$-$", latex_text(cell)) if side == "r" else latex_text(cell)


def as_csv(comparison: Comparison) -> str:
    """One line per row and section: fractions unrounded, unknown values empty.

    Texts are quoted; one that a spreadsheet would evaluate as a formula begins with an apostrophe.
    """
    columns = {column.name: column for section in comparison.sections for column in section.columns}
    rows = [
        _csv_row(section, row, columns, comparison.reference) for section in comparison.sections for row in section.rows
    ]
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: _csv_value(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_row(section: Section, row: Row, columns: Mapping[str, Column], reference: str) -> dict[str, Cell]:
    """All values of a row by the name of their CSV column."""
    values: dict[str, Cell] = {"label": row.label, "environment": visible(section.environment or "")}
    values |= {"split": visible(section.split), "n": row.runs}
    for name, column in columns.items():
        cell = row.cells.get(name)
        values[name] = cell.mean if isinstance(cell, (Mean, Rate)) else cell
        if column.kind not in ("text", "count"):
            values[f"{name}_sd"] = cell.deviation if isinstance(cell, Mean) else None
        if column.kind == "rate":
            for part in ("low", "high", "tasks"):
                values[f"{name}_{part}"] = getattr(cell, part) if isinstance(cell, Rate) else None
    found = row.difference or Difference(None)
    given = found.mean is not None
    low, high = found.bootstrap or (None, None)
    return values | {
        "reference": reference if row.difference else None,
        "difference": found.mean,
        "difference_low": found.low if given else None,
        "difference_high": found.high if given else None,
        "difference_over": found.over,
        "detectable": found.detectable if found.needed is not None else None,
        "needed_for_5_points": found.needed,
        "bootstrap_low": low,
        "bootstrap_high": high,
        "remark": _difference(found)[3],
        "notes": "; ".join(row.notes),
    }


def _csv_value(value: Cell) -> Cell:
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(_FORMULA) else value
