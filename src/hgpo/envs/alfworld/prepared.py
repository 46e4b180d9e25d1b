"""What all players of one game share, worked out once and kept while anybody plays it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from hgpo.envs.alfworld.game import Game
from hgpo.envs.alfworld.goal import GoalTest, goal_test
from hgpo.envs.alfworld.layout import Layout
from hgpo.envs.alfworld.legal import LegalActions


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PreparedGame:
    """The parts of a game that play never changes. Eight rollouts of one game hold one of these."""

    game: Game
    layout: Layout
    legal: LegalActions
    containers: frozenset[int]
    """Objects that can hold others."""
    goal_reached: GoalTest


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
            goal_reached=goal_test(game, layout),
        )
    return prepared
