"""The published rows of recipes/verl, with the overrides that its README.md gives for each choice."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "recipes" / "verl"
EVALUATION = ["verl.evaluate_only=true", "evaluation.seeds=[123,456,789]"]
_CHOICE = re.compile(r"^\| ([^|]+) \| `([^`|]+)` \|$", re.MULTILINE)
_ENVIRONMENTS = {"alfworld": "ALFWorld", "webshop": "WebShop"}
_ESTIMATORS = {"hgpo": "HGPO", "gigpo": "GiGPO", "grpo": "GRPO"}


class Row(NamedTuple):
    """One training of the paper: size "1.5b" or "7b", and K steps of history."""

    environment: str
    size: str
    k: int
    estimator: str

    @property
    def name(self) -> str:
        """Of its run."""
        return f"{self.environment}-{self.size}-k{self.k}-{self.estimator}"

    @property
    def recipe(self) -> Path:
        """The base recipe."""
        return FOLDER / f"{self.environment}.toml"


ROWS = [Row(*chosen) for chosen in itertools.product(_ENVIRONMENTS, ("1.5b", "7b"), (2, 4), _ESTIMATORS)]


def overrides_of(row: Row) -> list[str]:
    """What the page adds to the base recipe; the base is the 1.5B model, K = 2, HGPO."""
    table = {choice: shlex.split(words) for choice, words in _CHOICE.findall(_page())}
    overrides = [f"run.name={row.name}"]
    if row.size == "7b":
        overrides += table["7B"]
        overrides += table["7B on ALFWorld, too"] if row.environment == "alfworld" else []
    if row.k == 4:
        overrides += table["K = 4"]
    if row.estimator != "hgpo":
        overrides += table[f"{_ESTIMATORS[row.estimator]} on {_ENVIRONMENTS[row.environment]}"]
    return overrides


def _page() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")
