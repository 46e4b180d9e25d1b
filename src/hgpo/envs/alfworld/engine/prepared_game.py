"""What all players of one game share, worked out once and kept while anybody plays it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from hgpo.envs.alfworld.engine.layout import Layout
from hgpo.envs.alfworld.engine.legal_actions import LegalActions
from hgpo.envs.alfworld.engine.win_condition import WinCondition, win_condition
from hgpo.envs.alfworld.game import Game


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PreparedGame:
    """The parts of a game that play never changes, shared by all rollouts of the game.

    Attributes:
        game: the game itself.
        layout: its objects and receptacles by number.
        legal: which actions a state allows.
        containers: numbers of the objects that can hold others.
        is_won: whether a state fulfils the goal.
    """

    game: Game
    layout: Layout
    legal: LegalActions
    containers: frozenset[int]
    is_won: WinCondition


_in_use: WeakValueDictionary[int, PreparedGame] = WeakValueDictionary()


def prepare(game: Game) -> PreparedGame:
    """The shared parts of a game; equal games that are different objects share nothing.

    `ValueError` names an id that does not exist, a name or id that stands for two things or an unknown task type.
    """
    prepared = _in_use.get(id(game))  # comparing whole games would take longer than preparing one
    if prepared is None or prepared.game is not game:
        layout = Layout.of(game)
        prepared = _in_use[id(game)] = PreparedGame(
            game=game,
            layout=layout,
            legal=LegalActions(layout, game.can_contain),
            containers=layout.with_property("isReceptacleObject"),
            is_won=win_condition(game, layout),
        )
    return prepared
