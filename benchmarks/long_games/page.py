"""The tables of docs/results/games.md, from the stored summary; tools/results_pages.py writes the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from long_games.contenders import REFERENCE
from long_games.families import FAMILIES
from long_games.tables import ALL

STORED = Path(__file__).parents[1] / "multistep.json"


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
