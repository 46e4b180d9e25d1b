"""The five families by name, and their instances by seed.

Instances for choosing settings and for reporting have different seeds: numbers below and from `FIRST_REPORTED` on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from long_games.families.household import household
from long_games.families.loops import loops
from long_games.families.policy_only import policy_only
from long_games.families.search import search
from long_games.families.traps import traps
from long_games.memory import Game, game
from long_games.rules import Floats, Rules
from long_games.start import NoSuchStart, start_logits

FAMILIES: dict[str, Callable[[np.random.Generator], Rules]] = {
    "traps": traps,
    "search": search,
    "policy only": policy_only,
    "loops": loops,
    "household": household,
}
FIRST_REPORTED = 1000
_TRIES = 50


def generator(family: str, instance: int, *purpose: int) -> np.random.Generator:
    """Random numbers for one purpose of one instance, independent of other instances and purposes."""
    return np.random.default_rng((list(FAMILIES).index(family), instance, *purpose))


def instance(family: str, number: int) -> tuple[Game, Floats]:
    """The game and its start logits; draws that no start policy fits (`NoSuchStart`) are drawn again.

    Raises:
        ValueError: an unknown family, or no start after 50 draws.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; there are {', '.join(FAMILIES)}")
    draw = partial(generator, family, number)
    for attempt in range(_TRIES):
        drawn = game(FAMILIES[family](draw(0, attempt)))
        try:
            return drawn, start_logits(drawn, draw(1, attempt))
        except NoSuchStart:
            continue
    raise ValueError(f"no start policy wins three games in ten in {_TRIES} draws of {family}, instance {number}")
