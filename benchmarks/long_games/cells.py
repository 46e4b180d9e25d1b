"""Cells: the measures of an estimator on an instance, and the file of the finished ones.

The measures are the cosine of its gradient with the exact one at the start policy, and learning curves. The file has a
line for each cell, and an interrupted run continues from it. Its first line has the settings of all its cells; cells of
other settings are rejected.

Shapes: K keys, A actions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.utils.files import write_text
from long_games.contenders import GAMMA, advantages
from long_games.exact import action_shares, gradient, success, values
from long_games.families import generator, instance
from long_games.memory import Game
from long_games.play import ROLLOUTS, play
from long_games.rules import Floats
from long_games.updates import PpoAdam, batch_gradient, equal_divergence

MEASURES = ("kl", "cosine", "adam")
UPDATES = 40
_CURVE_NUMBERS, _COSINE_NUMBERS = 2, 3
"""Seeds of a measure's random numbers, equal for all estimators; 0 and 1 draw the instance."""

_instance = lru_cache(maxsize=2)(instance)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all cells of a file share.

    Attributes:
        purpose: "choose" or "report", which instances they are from.
        kl: divergence of an update of the measure "kl". rate: of Adam, for "adam". batches: for "cosine".
        updates: of a learning curve. rollouts: of each task in a batch. gamma: the estimators' discount.
    """

    purpose: str
    kl: float = 0.01
    rate: float = 0.03
    batches: int = 50
    updates: int = UPDATES
    rollouts: int = ROLLOUTS
    gamma: float = GAMMA


@dataclass(frozen=True, slots=True)
class Cell:
    """One estimator on one instance.

    Attributes:
        measure: "kl", "adam" (learning curves) or "cosine". family, instance: which game. estimator: a contender.
    """

    measure: str
    family: str
    instance: int
    estimator: str


def measured(cell: Cell, settings: Settings) -> dict[str, Any]:
    """The result of a cell: {"success": [...]} of a curve, or the two cosines."""
    game, logit_KA = _instance(cell.family, cell.instance)
    if cell.measure == "cosine":
        number = generator(cell.family, cell.instance, _COSINE_NUMBERS)
        found = cosines(game, logit_KA, cell.estimator, number, settings.batches)
        return {name: round(value, 6) for name, value in found.items()}
    number = generator(cell.family, cell.instance, _CURVE_NUMBERS)
    step = PpoAdam(settings.rate) if cell.measure == "adam" else settings.kl
    success = curve(game, logit_KA, cell.estimator, step, number, settings.updates)
    return {"success": [round(value, 6) for value in success]}


def cosines(
    game: Game, logit_KA: Floats, contender: str, number: np.random.Generator, batches: int
) -> dict[str, float]:
    """The mean cosine of one batch's gradient with the exact one, "batch", and the cosine of the mean gradient, "mean".

    Noise adds to the length of the mean of finitely many batches, but not to the products of *different* batches, so
    |E g|^2 is estimated by the mean of these; the cosine of the mean can then be slightly above 1.

    Raises:
        ValueError: fewer than two batches.
    """
    if batches < 2:
        raise ValueError(f"the mean gradient needs at least 2 batches, got {batches}")
    share_KA = action_shares(logit_KA)
    value_TN = values(game, share_KA)
    true = gradient(game, share_KA, value_TN).ravel()
    true /= np.linalg.norm(true)
    total, squares, along, cosine = np.zeros_like(true), 0.0, 0.0, 0.0
    for _ in range(batches):
        played = play(game, share_KA, number)
        advantage_N = advantages(contender, game, played, share_KA, value_TN)
        found = batch_gradient(played, advantage_N, share_KA).ravel()
        length = float(np.linalg.norm(found))
        total += found
        squares += length**2
        along += float(found @ true)
        cosine += float(found @ true) / length if length else 0.0
    length_of_mean = (float(total @ total) - squares) / (batches * (batches - 1))
    return {"batch": cosine / batches, "mean": along / batches / max(length_of_mean, 1e-30) ** 0.5}


def curve(
    game: Game,
    logit_KA: Floats,
    contender: str,
    step: float | PpoAdam,
    number: np.random.Generator,
    updates: int = UPDATES,
) -> list[float]:
    """Success before the first update and after each of them, 1 + updates numbers.

    Args:
        game: the game. logit_KA: the start policy.
        contender: the estimator of the advantages.
        step: the divergence of each update (`equal_divergence`), or an optimiser.
        number: random numbers of the rollouts and of the optimiser's mini-batches.
        updates: number of updates, each with `play.ROLLOUTS` new rollouts of each task.
    """
    found, own = [], number.spawn(1)[0]
    for update in range(updates + 1):
        share_KA = action_shares(logit_KA)
        value_TN = values(game, share_KA)
        found.append(success(game, value_TN))
        if update < updates:
            played = play(game, share_KA, number)
            advantage_N = advantages(contender, game, played, share_KA, value_TN)
            if isinstance(step, PpoAdam):
                logit_KA = step.update(logit_KA, played, advantage_N, own)
            else:
                direction_KA = batch_gradient(played, advantage_N, share_KA)
                logit_KA = equal_divergence(logit_KA, direction_KA, played.key, step)
    return found


class CellFile:
    """The file of finished cells, for one process at a time; `done` are its cells.

    Raises:
        ValueError: it was written with other settings, or is no file of cells.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self.done = path, dict[Cell, dict[str, Any]]()
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a killed run leaves half a line at most
        if whole != text:
            write_text(path, whole)
        if not whole:
            self._write({"settings": asdict(settings)})
            return
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            written = rows[0]["settings"]
            self.done = {Cell(*(row.pop(name) for name in Cell.__slots__)): row for row in rows[1:]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a file of cells ({error!r}); name another one") from error
        if written != asdict(settings):
            raise ValueError(f"{path}: measured with {written}, asked for {asdict(settings)}; name another file")

    def append(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write a finished cell, at once."""
        self._write({**asdict(cell), **result})
        self.done[cell] = result

    def _write(self, row: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
