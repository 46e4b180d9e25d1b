"""The tables of docs/choosing.md, written from the stored summary.

A table stands between `<!-- multistep FIGURE: ESTIMATOR; ESTIMATOR; … -->` and the next blank line.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from long_games.contenders import REFERENCE
from long_games.families import FAMILIES
from long_games.tables import ALL

STORED = Path(__file__).parents[1] / "multistep.json"
PAGE = Path(__file__).parents[2] / "docs" / "choosing.md"
MARKED = re.compile(r"<!-- multistep (?P<figure>[a-z ]+): (?P<names>.+?) -->\n(?:\|.*\n)*")


def figure_and_lead(row: dict[str, Any], digits: int) -> str:
    """The reference's own figure, or what another one is ahead of it with its 95 % interval: "+1.20 ± 0.40"."""
    if row["estimator"] == REFERENCE:
        return f"{row['mean']:.{digits}f}"
    return f"{row['difference']:+.{digits}f} ± {row['high'] - row['difference']:.{digits}f}"


def table(stored: dict[str, Any], figure: str, names: list[str]) -> str:
    """Rows of curves: leads over the reference, with intervals; of cosines: the figures themselves."""
    cells = {(row["family"], row["estimator"]): row for row in stored["rows"] if row["figure"] == figure}
    families = (*FAMILIES, ALL)
    lines = ["| estimator | " + " | ".join(families) + " |", "|---" * (len(families) + 1) + "|"]
    for name in names:
        here = [cells[family, name] for family in families]
        shown = [f"{row['mean']:.3f}" if figure.startswith("cosine") else figure_and_lead(row, 1) for row in here]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def rewritten(text: str, stored: dict[str, Any]) -> str:
    """The page with every marked table made anew."""

    def anew(match: re.Match[str]) -> str:
        names = [name.strip() for name in match["names"].split(";")]
        return match.group(0).partition("\n")[0] + "\n" + table(stored, match["figure"], names)

    return MARKED.sub(anew, text)


def write(check: bool) -> str | int:
    """Rewrite the page, or say in words that it would change (0: it would not)."""
    text = PAGE.read_text(encoding="utf-8")
    made = rewritten(text, json.loads(STORED.read_text(encoding="utf-8")))
    if check:
        return 0 if made == text else f"{PAGE.name} does not show the stored figures"
    PAGE.write_text(made, encoding="utf-8")
    return 0
