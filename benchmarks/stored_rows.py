"""Rows of figures as JSON, one line each, and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def json_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON array with one row per line, so that files of figures can be compared line by line."""
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def json_document(settings: Mapping[str, Any], **rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON object of settings and named arrays of rows."""
    parts = [f'"settings": {json.dumps(settings)}', *(f'"{name}": {json_rows(found)}' for name, found in rows.items())]
    return "{" + ",\n".join(parts) + "}\n"


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table with a line for each row.

    >>> print(markdown_table(["", "b"], [["1", "2"]]), end="")
    | | b |
    |---|---|
    | 1 | 2 |
    """
    first = "|".join(f" {head} " if head else " " for head in heads)
    lines = [f"|{first}|", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
