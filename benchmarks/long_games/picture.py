"""The picture of docs/results/games.md: learning curves of the five families, and differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hgpo.utils.plot_style import DASHES, PALETTE, dash, empty_figure, save_figure
from long_games.contenders import REFERENCE, SHIPPED
from long_games.families import FAMILIES
from long_games.tables import ALL, DRAWN

_WIDTH, _HEIGHT = 7.2, 4.6


def draw(summary: dict[str, Any], path: Path) -> None:
    """Write the picture.

    Raises:
        ValueError: matplotlib is missing, or a family has no finished curves.
    """
    curves = {(row["family"], row["estimator"]): row["success"] for row in summary["curves"]}
    missing = [family for family in FAMILIES if not all(curves.get((family, name)) for name in DRAWN)]
    if missing:
        raise ValueError(f"no finished learning curves of {', '.join(missing)}; measure them first")
    with empty_figure(_WIDTH, _HEIGHT) as figure:
        panels = figure.subplots(2, 3).ravel()
        for panel, family in zip(panels, FAMILIES, strict=False):
            for n, name in enumerate(DRAWN):
                success = curves[family, name]
                panel.plot(success, color=PALETTE[n], linestyle=dash(n % len(DASHES)), linewidth=1.1, label=name)
            panel.set_title(family)
            panel.set_xlabel("update")
            panel.set_ylabel("success, %")
        panels[0].legend(fontsize=6.5)
        _lead(panels[5], summary["rows"])
        save_figure(figure, path, path.suffix)
    if path.suffix == ".png":
        _fewer_colours(path)


def _fewer_colours(path: Path) -> None:
    """Lines in a few colours need no more than these; it makes the file a third as large."""
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
