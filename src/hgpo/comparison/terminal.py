"""The table in the terminal: figures, success by task type, differences to the baseline, footnotes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from hgpo.comparison.cells import UNKNOWN, points, shown
from hgpo.comparison.table import Block, Column, Comparison, Row
from hgpo.visible import visible

_WIDE_ENOUGH = 100_000  # nothing is folded where nobody's screen is too narrow
_FILE_WIDTH = 100  # so that a file can be read on any screen, and two runs of a command give the same bytes
_HEADING_WIDTH = 12
_DIFFERENCE_SIDES: tuple[JustifyMethod, ...] = ("left", "right", "right")
_LEAST_REMARK = 30
_MARGINS, _GAP = 3, 2  # what a table takes in width beside its label column, and each further column beside its text
_TITLES: dict[Block, str | None] = {
    "panel": None,
    "task type": "Success by task type",
    "trial": "Success by trial",
    "effort": "What an episode and a request took",
}


def as_text(comparison: Comparison) -> str:
    """What `print_comparison` prints, for a file: no wider than 100 columns if it can be, without colours."""
    text = io.StringIO()
    print_comparison(Console(file=text, width=_WIDE_ENOUGH, color_system=None), comparison, _FILE_WIDTH)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def print_comparison(console: Console, comparison: Comparison, room: int | None = None) -> None:
    """The tables one below the other, then what the figures are.

    Args:
        console: Where they go.
        comparison: What stands in them.
        room: Columns of the screen that a table may take; what is wider is broken into several. None: all.
    """
    room = console.width if room is None else room
    for block, title in _TITLES.items():
        columns = [column for column in comparison.columns if column.block == block]
        for number, part in enumerate(_parts(comparison, columns, room)):
            console.print(_figures(comparison, part, f"{title}, continued" if title and number else title))
    if len(comparison.rows) > 1:
        console.print(_differences(comparison, room))
    for line in [f"{comparison.caption}.", *(f"[{n}] {note}" for n, note in enumerate(comparison.footnotes, start=1))]:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _parts(comparison: Comparison, columns: Sequence[Column], room: int) -> list[list[Column]]:
    """Columns that have room side by side, each group with the labels before it."""
    widths = [_width(_texts(column)) + _GAP for column in columns]
    groups = even_groups(widths, room - _MARGINS - _width(_labels(comparison)))
    return [[columns[place] for place in group] for group in groups]


def even_groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """Places of neighbours that fit into `room` together: as few groups as can be, and those as even as can be.

    What is wider than the room stands alone.

    Example: `even_groups([3, 3, 3, 3], room=10)` is [[0, 1], [2, 3]].
    """
    fewest = len(_full_groups(widths, room))
    narrower = (_full_groups(widths, narrow) for narrow in range(1, room))
    return next((groups for groups in narrower if len(groups) == fewest), _full_groups(widths, room))


def _full_groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """Each group as full as it can be before the next begins."""
    groups: list[list[int]] = []
    left = 0
    for place, width in enumerate(widths):
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(place)
        left -= width
    return groups


def _figures(comparison: Comparison, columns: Sequence[Column], title: str | None) -> Table:
    table = _table(title)
    table.add_column("", overflow="fold")
    for column in columns:
        justify: JustifyMethod = "left" if column.kind == "text" else "right"
        table.add_column(_heading(column.heading), justify=justify, overflow="fold")  # a figure is never cut
    for texts in zip(_labels(comparison), *map(_cells, columns), strict=True):
        table.add_row(*texts)
    return table


def _labels(comparison: Comparison) -> list[Text]:
    return [
        Text(f"{row.label} [{', '.join(map(str, row.notes))}]" if row.notes else row.label) for row in comparison.rows
    ]


def _cells(column: Column) -> list[Text]:
    return [Text(shown(cell, column.kind)) for cell in column.cells]


def _texts(column: Column) -> list[Text]:
    return [_heading(column.heading), *_cells(column)]


def _width(texts: Iterable[Text]) -> int:
    """Of the longest line."""
    return max(cell_len(line) for text in texts for line in text.plain.split("\n"))


def _differences(comparison: Comparison, room: int) -> Table:
    """The table of differences; a long remark takes several lines."""
    rows = [_difference_texts(row) for row in comparison.rows if row.difference is not None]
    headings = [Text(""), Text(f"to {comparison.baseline_label}"), Text("tasks"), Text("")]
    *figures, _ = zip(headings, *rows, strict=True)
    table = _table("Difference in success, points")
    for heading, justify in zip(headings[:-1], _DIFFERENCE_SIDES, strict=True):
        table.add_column(heading, justify=justify, overflow="fold")
    left = room - _MARGINS - sum(_width(texts) + _GAP for texts in figures)
    table.add_column(headings[-1], overflow="fold", max_width=max(_LEAST_REMARK, left))
    for row in rows:
        table.add_row(*row)
    return table


def _difference_texts(row: Row) -> list[Text]:
    """Label, gain, tasks and remark of a row that has a difference."""
    gain, remark = (row.difference.gain, row.difference.remark) if row.difference else (None, "")
    figures = (points(gain), f"{gain.tasks:,}") if gain else (UNKNOWN, UNKNOWN)
    return [Text(row.label), *map(Text, figures), Text(remark)]


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
