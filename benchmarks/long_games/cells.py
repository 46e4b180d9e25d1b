"""Finished cells, one line each in a file from which an interrupted run continues.

The first line of the file has the settings of all its cells; cells of other settings are rejected.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hgpo.utils.files import write_text
from long_games.contenders import GAMMA
from long_games.families import generator, instance
from long_games.measures import UPDATES, cosines, curve
from long_games.play import ROLLOUTS
from long_games.updates import PpoAdam

MEASURES = ("kl", "cosine", "adam")
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
