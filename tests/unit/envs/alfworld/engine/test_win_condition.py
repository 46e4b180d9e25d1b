from __future__ import annotations

from dataclasses import replace

import pytest

from hgpo.envs.alfworld import Goal
from hgpo.envs.alfworld.engine import Engine
from unit.envs.alfworld.kitchen import kitchen

APPLE_TO_SHELF = ["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 1"]
TAKE_APPLE = APPLE_TO_SHELF[:2]
APPLE_BACK = ["go to shelf 1", "move apple 2 to shelf 1"]
CLEAN = ["go to sinkbasin 1", "clean apple 2 with sinkbasin 1"]
HEAT = ["go to microwave 1", "heat apple 2 with microwave 1"]
COOL = ["go to fridge 1", "cool apple 2 with fridge 1"]
TAKE_OTHER = ["go to fridge 1", "open fridge 1", "take apple 1 from fridge 1"]
OTHER_APPLE = [*TAKE_OTHER, "go to shelf 1", "move apple 1 to shelf 1"]


@pytest.mark.parametrize(
    ("task_type", "target", "commands"),
    [
        ("pick_and_place_simple", "Shelf", APPLE_TO_SHELF),
        ("pick_clean_then_place_in_recep", "Shelf", [*TAKE_APPLE, *CLEAN, *APPLE_BACK]),
        ("pick_heat_then_place_in_recep", "Shelf", [*TAKE_APPLE, *HEAT, *APPLE_BACK]),
        ("pick_cool_then_place_in_recep", "Shelf", [*TAKE_APPLE, *COOL, *APPLE_BACK]),
        ("pick_two_obj_and_place", "Shelf", [*APPLE_TO_SHELF, *OTHER_APPLE]),
        ("look_at_obj_in_light", "DeskLamp", ["go to shelf 1", "use desklamp 1", "take apple 2 from countertop 1"]),
        ("look_at_obj_in_light", "DeskLamp", [*TAKE_APPLE, "use desklamp 1"]),
    ],
)
def test_won_by_the_last_command_and_not_before(task_type: str, target: str, commands: list[str]) -> None:
    engine = Engine(kitchen(Goal(task_type, "Apple", target)))
    won = [engine.won]
    for command in commands:
        assert command in engine.commands
        engine.act(command)
        won.append(engine.won)
    assert won == [False] * len(commands) + [True]


@pytest.mark.parametrize(
    ("task_type", "first", "second"), [("cool", COOL, HEAT), ("heat", HEAT, COOL)], ids=["cool, heat", "heat, cool"]
)
def test_heat_and_cold_undo_each_other(task_type: str, first: list[str], second: list[str]) -> None:
    engine = Engine(kitchen(Goal(f"pick_{task_type}_then_place_in_recep", "Apple", "Shelf")))
    for command in [*TAKE_APPLE, *first, *second, *APPLE_BACK]:
        assert command in engine.commands
        engine.act(command)
    assert not engine.won


@pytest.mark.parametrize(
    ("goal", "commands"),
    [
        (Goal("look_at_obj_in_light", "Apple", "DeskLamp"), ["use desklamp 1", "take knife 1 from countertop 1"]),
        (Goal("look_at_obj_in_light", "Apple", "DeskLamp"), ["use desklamp 1", *TAKE_OTHER]),  # far from the lamp
        (
            Goal("pick_clean_then_place_in_recep", "Knife", "Shelf"),
            ["take knife 1 from countertop 1", "move knife 1 to shelf 1"],
        ),
    ],
)
def test_another_object_or_another_place_does_not_count(goal: Goal, commands: list[str]) -> None:
    """The knife is clean from the start but cannot be cleaned, which the published goal asks for, too."""
    game = kitchen(goal)
    knife = replace(game.objects[4], properties=frozenset({"pickupable", "isClean"}))
    engine = Engine(replace(game, objects=(*game.objects[:4], knife, *game.objects[5:])))
    for command in ["go to shelf 1", *commands]:
        assert command in engine.commands
        engine.act(command)
    assert not engine.won


def test_a_game_may_be_won_at_the_start() -> None:
    game = kitchen(Goal("pick_and_place_simple", "Apple", "Fridge"))
    assert Engine(game).won  # an apple is in the fridge


def test_two_objects_in_two_receptacles_of_the_same_kind_do_not_count() -> None:
    game = kitchen(Goal("pick_two_obj_and_place", "Apple", "Shelf"))
    counter = replace(game.receptacles[0], kind="Shelf")
    engine = Engine(replace(game, receptacles=(counter, *game.receptacles[1:])))
    for command in OTHER_APPLE:
        engine.act(command)
    assert not engine.won


def test_unknown_task_types_are_named() -> None:
    with pytest.raises(ValueError, match="kitchen: unknown task type 'juggle'; known are pick_and_place_simple"):
        Engine(kitchen(Goal("juggle", "Apple", "Shelf")))
