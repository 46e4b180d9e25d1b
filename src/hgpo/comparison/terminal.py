"""The table in the terminal: figures, success by task type, differences to the baseline, footnotes."""

from __future__ import annotations

import io
import re

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from hgpo.comparison.cells import UNKNOWN, points, shown
from hgpo.comparison.table import Column, Comparison
from hgpo.visible import visible

_WIDE_ENOUGH = 100_000  # nothing is folded where nobody's screen is too narrow
_HEADING_WIDTH = 12


def as_text(comparison: Comparison) -> str:
    """What `print_comparison` prints, for a file: as wide as it needs to be, without colours."""
    text = io.StringIO()
    print_comparison(Console(file=text, width=_WIDE_ENOUGH, color_system=None), comparison)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def print_comparison(console: Console, comparison: Comparison) -> None:
    """The tables one below the other, then what the figures are."""
    columns = comparison.columns
    console.print(_figures(comparison, [column for column in columns if not column.of_task_type]))
    if types := [column for column in columns if column.of_task_type]:
        console.print(_figures(comparison, types, "Success by task type"))
    if len(comparison.rows) > 1:
        console.print(_differences(comparison))
    for line in [f"{comparison.caption}.", *(f"[{n}] {note}" for n, note in enumerate(comparison.footnotes, start=1))]:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _figures(comparison: Comparison, columns: list[Column], title: str | None = None) -> Table:
    table = _table(title)
    table.add_column("", overflow="fold")
    for column in columns:
        justify: JustifyMethod = "left" if column.kind == "text" else "right"
        table.add_column(_heading(column.heading), justify=justify, overflow="fold")  # a figure is never cut
    for place, row in enumerate(comparison.rows):
        label = f"{row.label} [{', '.join(map(str, row.notes))}]" if row.notes else row.label
        table.add_row(Text(label), *(Text(shown(column.cells[place], column.kind)) for column in columns))
    return table


def _differences(comparison: Comparison) -> Table:
    table = _table("Difference in success, points")
    table.add_column("", overflow="fold")
    for heading in (f"to {comparison.baseline_label}", "tasks"):
        table.add_column(Text(heading), justify="right", overflow="fold")
    table.add_column("", overflow="fold")
    for row in comparison.rows:
        if row.difference is not None:
            gain = row.difference.gain
            figures = (points(gain), f"{gain.tasks:,}") if gain else (UNKNOWN, UNKNOWN)
            table.add_row(*map(Text, (row.label, *figures, row.difference.remark)))
    return table


def _table(title: str | None) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _heading(text: str) -> Text:
    """A heading on as many lines as it takes to be narrow, broken behind underscores and at spaces."""
    lines = [""]
    for part in re.findall(r"[^ _]*[ _]?", visible(text)):
        if lines[-1] and len(lines[-1]) + len(part) > _HEADING_WIDTH:
            lines.append("")
        lines[-1] += part
    return Text("\n".join(line.rstrip() for line in lines))
