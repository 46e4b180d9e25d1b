"""When a game is won: one condition per goal template, built once per game and asked after every legal command."""

from __future__ import annotations

from collections.abc import Callable

from hgpo.envs.alfworld.engine.layout import Layout
from hgpo.envs.alfworld.engine.world import World
from hgpo.envs.alfworld.game import TASK_TYPES, Game

WinCondition = Callable[[World], bool]

TREATMENTS = {
    "pick_clean_then_place_in_recep": ("cleanable", "clean"),
    "pick_heat_then_place_in_recep": ("heatable", "hot"),
    "pick_cool_then_place_in_recep": ("coolable", "cool"),
}


def win_condition(game: Game, layout: Layout) -> WinCondition:
    """The condition that a game's goal sets. `ValueError` names an unknown task type."""
    goal = game.goal
    if goal.task_type not in TASK_TYPES:
        raise ValueError(f"{game.name}: unknown task type {goal.task_type!r}; known are {', '.join(TASK_TYPES)}")
    wanted = layout.objects_of({goal.object_kind})
    if goal.task_type == "look_at_obj_in_light":
        lamps = layout.objects_of({goal.target_kind}) & layout.with_property("toggleable")
        return _held_under_light(wanted, lamps, layout.receptacles_at)
    targets = tuple(sorted(layout.receptacles_of({goal.target_kind})))
    if goal.task_type in TREATMENTS:
        ability, state = TREATMENTS[goal.task_type]
        return _treated_object_placed(wanted & layout.with_property(ability), state, targets)
    return _objects_placed(wanted, targets, 2 if goal.task_type == "pick_two_obj_and_place" else 1)


def _objects_placed(wanted: frozenset[int], targets: tuple[int, ...], count: int) -> WinCondition:
    """`count` wanted objects in one and the same target."""

    def reached(world: World) -> bool:
        return any(len(wanted & world.contents[target]) >= count for target in targets)

    return reached


def _treated_object_placed(wanted: frozenset[int], treatment: str, targets: tuple[int, ...]) -> WinCondition:
    """A wanted object that is clean, hot or cool in a target."""

    def reached(world: World) -> bool:
        treated = wanted & world.states[treatment]
        return bool(treated) and any(not treated.isdisjoint(world.contents[target]) for target in targets)

    return reached


def _held_under_light(
    wanted: frozenset[int], lamps: frozenset[int], receptacles_at: dict[str, tuple[int, ...]]
) -> WinCondition:
    """A wanted object in hand, where a lamp that was used stands within reach."""

    def reached(world: World) -> bool:
        if world.held not in wanted:
            return False
        lit = lamps & world.states["toggled"]
        here = receptacles_at.get(world.location, ())
        return bool(lit) and any(not lit.isdisjoint(world.contents[place]) for place in here)

    return reached
