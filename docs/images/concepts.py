"""Draw the pictures of docs/concepts.md; every number in them is computed by the library.

    python docs/images/concepts.py docs/images

The batch is the worked example of docs/algorithms/hgpo.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from hgpo import Advantages, Level, StepBatch, compute_advantages
from hgpo.utils.plot_style import PALETTE

BATCH = StepBatch.from_columns(
    group=["task"] * 7,
    trajectory=["a", "a", "b", "b", "c", "c", "c"],
    step=[0, 1, 0, 1, 0, 1, 2],
    observation=["hall", "kitchen", "hall", "kitchen", "hall", "garden", "kitchen"],
    reward=[0, 1, 0, 0, 0, 0, 1],
)
ACTIONS = ["go to kitchen", "take cup", "go to kitchen", "wait", "go to garden", "go to kitchen", "take cup"]
INK, FAINT, PAPER = "#1b1e23", "#5a6270", "#ffffff"
BLUE, GREEN, RED = PALETTE[0], PALETTE[2], PALETTE[5]
CELL = (170, 84)
CORNER = (120, 54)


def main(folder: Path) -> None:
    """Write every picture."""
    for name, drawn in pictures().items():
        (folder / name).write_text(drawn, encoding="utf-8")


def pictures() -> dict[str, str]:
    """File name -> SVG."""
    advantages = compute_advantages(BATCH, "hgpo", gamma=0.5, history_length=1, mode="mean_norm")
    return {
        "concepts-steps.svg": _picture(
            "One task, three trajectories, seven steps", "".join(_steps(["reward"] * 7, BATCH.reward))
        ),
        "concepts-returns.svg": _picture(
            "The return of each step, discount 0.5", "".join(_steps(["return"] * 7, advantages.returns))
        ),
        "concepts-level-0.svg": _level(advantages, 0),
        "concepts-level-1.svg": _level(advantages, 1),
        "concepts-advantages.svg": _picture("The advantage of each step", "".join(_final(advantages))),
    }


def _level(advantages: Advantages, k: int) -> str:
    level = advantages.levels[k]
    names = [f"A{k} =" if size > 1 else "alone:" for size in level.size]
    return _picture(f"Level {k}: {level.name}", "".join(_steps(names, level.advantage, level)))


def _final(advantages: Advantages) -> Iterator[str]:
    """Bars from zero, upwards where the advantage is positive."""
    for row, value in enumerate(advantages.values):
        x, y = _corner(row)
        middle, height = y + 36, 52 * abs(value)
        colour = BLUE if value >= 0 else RED
        top = middle - height if value >= 0 else middle
        yield f'<rect x="{x + 50}" y="{top:.1f}" width="50" height="{max(height, 1):.1f}" fill="{colour}"/>'
        yield f'<path d="M{x + 10} {middle}h130" stroke="{FAINT}" stroke-width="1"/>'
        yield _text(x + 75, y - 2, f"{BATCH.labels['observation'][BATCH.observation[row]]}", FAINT, 12)
        yield _text(x + 128, middle - 6, _number(value), colour, 15)


def _steps(names: list[str], values: Iterable[float], level: Level | None = None) -> Iterator[str]:
    """One box a step: its observation, its action, and a number; boxes of one group have one colour."""
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        x, y = _corner(row)
        colour = None if level is None else _colour(level, row)
        dashes = ' stroke-dasharray="4 4"' if level is not None and colour is None else ""
        box = f'x="{x}" y="{y}" width="150" height="64" rx="9" stroke="{colour or FAINT}"{dashes}'
        yield f'<rect {box} fill="{colour or "none"}" fill-opacity="0.13" stroke-width="{2.5 if colour else 1.3}"/>'
        yield _text(x + 75, y + 19, str(BATCH.labels["observation"][BATCH.observation[row]]), INK, 15, bold=True)
        yield _text(x + 75, y + 36, f"“{ACTIONS[row]}”", FAINT, 12)
        yield _text(x + 75, y + 55, f"{name} {_number(value)}", colour or INK, 14)
        if BATCH.step[row] > 0:
            yield f'<path d="M{x - 19} {y + 32}h14m-5 -4l6 4l-6 4" fill="none" stroke="{FAINT}" stroke-width="1.6"/>'


def _colour(level: Level, row: int) -> str | None:
    """The colour of a step's group; None for a step that is alone."""
    shared = list(dict.fromkeys(level.group[level.size > 1].tolist()))
    return (BLUE, RED, GREEN)[shared.index(level.group[row])] if level.size[row] > 1 else None


def _number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return text.replace("-", "−") if text != "-0" else "0"


def _corner(row: int) -> tuple[int, int]:
    return CORNER[0] + CELL[0] * int(BATCH.step[row]), CORNER[1] + CELL[1] * int(BATCH.trajectory[row])


def _picture(title: str, inside: str) -> str:
    width, height = CORNER[0] + 3 * CELL[0], CORNER[1] + 3 * CELL[1]
    rows = "".join(
        _text(14, CORNER[1] + CELL[1] * row + 36, f"trajectory {name}", FAINT, 13, anchor="start")
        for row, name in enumerate(BATCH.labels["trajectory"])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
        f"{_text(14, 27, title, INK, 16, anchor='start', bold=True)}{rows}{inside}</svg>\n"
    )


def _text(x: float, y: float, text: str, colour: str, size: int, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="700"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
