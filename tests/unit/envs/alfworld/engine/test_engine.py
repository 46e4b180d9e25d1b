from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.alfworld import text
from hgpo.envs.alfworld.engine import Engine
from unit.envs.alfworld.kitchen import kitchen


@pytest.fixture
def engine() -> Engine:
    return Engine(kitchen())


def play(engine: Engine, *commands: str) -> str:
    """The answer to the last of some legal commands."""
    answer = ""
    for command in commands:
        assert command in engine.commands
        answer = engine.act(command)
    return answer


def test_first_text_names_every_receptacle_and_the_task(engine: Engine) -> None:
    assert engine.start() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a countertop 1, a fridge 1, "
        "a microwave 1, a shelf 1, and a sinkbasin 1.\n\n"
        "Your task is to: put some apple on shelf."
    )


def test_a_start_in_front_of_a_receptacle() -> None:
    engine = Engine(kitchen(agent_location="loc_bar_3"))
    assert "You are facing the microwave 1. Next to it, you see nothing." in engine.start()


def test_commands_at_the_start(engine: Engine) -> None:
    assert engine.commands == [
        "go to countertop 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to shelf 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
    ]


def test_commands_with_empty_hands_between_two_receptacles(engine: Engine) -> None:
    assert play(engine, "go to shelf 1") == "You arrive at shelf 1. On the shelf 1, you see a desklamp 1."
    assert engine.commands == [
        "examine countertop 1",
        "examine shelf 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
        "take apple 2 from countertop 1",
        "take knife 1 from countertop 1",
        "use desklamp 1",
    ]


def test_closed_receptacles_hide_what_is_in_them(engine: Engine) -> None:
    assert play(engine, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
    assert not [command for command in engine.commands if command.startswith("take")]
    opened = "The fridge 1 is open. In it, you see a apple 1, a fork 1, and a plate 1."
    assert play(engine, "open fridge 1") == f"You open the fridge 1. {opened}"
    assert play(engine, "examine fridge 1") == opened
    assert play(engine, "take plate 1 from fridge 1", "close fridge 1") == "You close the fridge 1."
    assert "move plate 1 to fridge 1" not in engine.commands
    assert "move plate 1 to fridge 1" in (play(engine, "open fridge 1"), *engine.commands)


def test_what_is_held(engine: Engine) -> None:
    assert play(engine, "inventory") == "You are not carrying anything."
    answer = play(engine, "go to countertop 1", "take apple 2 from countertop 1")
    assert answer == "You pick up the apple 2 from the countertop 1."
    assert play(engine, "inventory") == "You are carrying: a apple 2."
    assert not [command for command in engine.commands if command.startswith("take")]
    assert play(engine, "move apple 2 to countertop 1") == "You move the apple 2 to the countertop 1."
    assert play(engine, "inventory") == "You are not carrying anything."


def test_only_fitting_kinds_can_be_put_somewhere(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1", "open microwave 1")
    assert "move knife 1 to microwave 1" not in engine.commands
    assert "heat knife 1 with microwave 1" not in engine.commands


def test_appliances_work_while_closed_and_change_what_examining_says(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take apple 2 from countertop 1")
    assert play(engine, "examine apple 2") == "There's nothing special about apple 2."
    heated = play(engine, "go to microwave 1", "heat apple 2 with microwave 1")
    assert heated == "You heat the apple 2 using the microwave 1."
    assert play(engine, "examine apple 2") == "This is a hot apple 2."
    cooled = play(engine, "go to fridge 1", "cool apple 2 with fridge 1")
    assert cooled == "You cool the apple 2 using the fridge 1."
    assert play(engine, "examine apple 2") == "This is a cold apple 2."
    cleaned = play(engine, "go to sinkbasin 1", "clean apple 2 with sinkbasin 1")
    assert cleaned == "You clean the apple 2 using the sinkbasin 1."
    assert play(engine, "examine apple 2") == "This is a cool and clean apple 2."


def test_slicing_needs_a_knife_in_hand_where_the_object_is(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert play(engine, "slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
    play(engine, "go to fridge 1")
    assert "slice apple 1 with knife 1" in engine.commands, "the closed door does not matter"
    assert "slice apple 2 with knife 1" not in engine.commands
    play(engine, "go to countertop 1", "move knife 1 to shelf 1", "take apple 2 from countertop 1")
    assert play(engine, "examine apple 2") == "This is a sliced apple 2."


def test_sinks_clean_and_butter_knives_slice() -> None:
    game = kitchen()
    kinds = {"SinkBasin": "Sink", "Knife": "ButterKnife"}
    engine = Engine(
        replace(
            game,
            receptacles=tuple(replace(place, kind=kinds.get(place.kind, place.kind)) for place in game.receptacles),
            objects=tuple(replace(item, kind=kinds.get(item.kind, item.kind)) for item in game.objects),
            can_contain=game.can_contain | {("CounterTop", "ButterKnife")},
        )
    )
    play(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert play(engine, "slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
    play(engine, "move knife 1 to countertop 1", "take apple 2 from countertop 1", "go to sinkbasin 1")
    assert play(engine, "clean apple 2 with sinkbasin 1") == "You clean the apple 2 using the sinkbasin 1."


def test_a_receptacle_may_be_open_at_the_start() -> None:
    game = kitchen()
    fridge = replace(game.receptacles[1], opened=True)
    engine = Engine(replace(game, receptacles=(game.receptacles[0], fridge, *game.receptacles[2:])))
    assert play(engine, "go to fridge 1").endswith(
        "The fridge 1 is open. In it, you see a apple 1, a fork 1, and a plate 1."
    )
    assert play(engine, "close fridge 1") == "You close the fridge 1."
    assert engine.state_key() == "at fridge 1 ; closed fridge 1"


def test_a_lamp_is_only_ever_turned_on(engine: Engine) -> None:
    assert play(engine, "go to shelf 1", "use desklamp 1") == "You turn on the desklamp 1."
    assert play(engine, "use desklamp 1") == "You turn on the desklamp 1."


def test_a_lamp_can_be_used_through_a_closed_door() -> None:
    game = kitchen()
    lamp = replace(game.objects[2], receptacles=("Fridge_bar_1",))
    engine = Engine(replace(game, objects=(lamp,)))
    assert play(engine, "go to fridge 1", "use desklamp 1") == "You turn on the desklamp 1."


def test_an_object_in_two_containers_is_named_by_both() -> None:
    game = kitchen()
    bowl = replace(game.objects[5], id="Bowl_bar_1", name="bowl 1", kind="Bowl")
    fork = replace(game.objects[3], inside=(*game.objects[3].inside, "Bowl_bar_1"))
    engine = Engine(replace(game, objects=(bowl, fork, game.objects[5])))
    answer = play(engine, "go to fridge 1", "open fridge 1", "take bowl 1 from fridge 1", "examine bowl 1")
    assert answer == "This is a normal bowl 1. In it, you see a fork 1."


def test_a_container_names_what_it_contains_even_when_that_was_taken_out(engine: Engine) -> None:
    play(engine, "go to fridge 1", "open fridge 1", "take plate 1 from fridge 1")
    assert play(engine, "examine plate 1") == "This is a normal plate 1. In it, you see a fork 1."


def test_an_object_in_two_receptacles_stays_in_the_other() -> None:
    game = kitchen()
    apple = replace(game.objects[0], receptacles=("CounterTop_bar_1", "Shelf_bar_1"))
    engine = Engine(replace(game, objects=(apple, *game.objects[1:])))
    play(engine, "go to shelf 1", "take apple 2 from shelf 1")
    assert play(engine, "examine countertop 1") == "On the countertop 1, you see a apple 2, and a knife 1."


def test_look_names_what_was_moved_from_one_neighbour_to_the_other(engine: Engine) -> None:
    assert play(engine, "look") == "You are in the middle of a room. Looking quickly around you, you see nothing."
    facing = "You are facing the countertop 1, and shelf 1. Next to it, you see"
    assert play(engine, "go to shelf 1", "look") == f"{facing} nothing."
    play(engine, "take apple 2 from countertop 1", "move apple 2 to shelf 1")
    assert play(engine, "look") == f"{facing} a apple 2."
    play(engine, "take apple 2 from shelf 1", "move apple 2 to countertop 1")
    assert play(engine, "look") == f"{facing} a apple 2.", "now the shelf is where it was taken from"


def test_look_names_an_object_once_for_each_neighbour_it_was_taken_from() -> None:
    game = kitchen()
    apple = replace(game.objects[0], receptacles=("CounterTop_bar_1", "Shelf_bar_1"))
    stove = replace(game.receptacles[3], id="StoveBurner_bar_1", name="stoveburner 1")
    engine = Engine(replace(game, objects=(apple,), receptacles=(*game.receptacles, stove)))
    play(engine, "go to shelf 1", "take apple 2 from countertop 1", "move apple 2 to stoveburner 1")
    play(engine, "take apple 2 from shelf 1")
    assert play(engine, "look").endswith("Next to it, you see nothing."), "what is held lies nowhere"
    play(engine, "move apple 2 to stoveburner 1")
    assert play(engine, "look").endswith("Next to it, you see a apple 2, and a apple 2.")


def test_help_and_surrounding_blanks(engine: Engine) -> None:
    assert play(engine, "help") == text.HELP
    assert engine.act("  look\n") == engine.act("look")


@pytest.mark.parametrize(
    "command", ["", "LOOK", "take", "go to moon 1", "take apple 2 from countertop 1", "go  to fridge 1"]
)
def test_anything_else_changes_nothing(engine: Engine, command: str) -> None:
    before = engine.commands.copy()
    assert engine.act(command) == "Nothing happens."
    assert engine.commands == before


def test_start_undoes_everything(engine: Engine) -> None:
    fresh = [engine.start(), *engine.commands]
    play(engine, "go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 1", "use desklamp 1")
    assert engine.won
    assert [engine.start(), *engine.commands] == fresh
    assert not engine.won


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_any_play_keeps_the_rules(choices: list[int]) -> None:
    engine, twin = Engine(kitchen()), Engine(kitchen())
    for choice in choices:
        command = engine.commands[choice % len(engine.commands)]
        assert engine.act("nonsense") == text.NOTHING_HAPPENS
        answer = engine.act(command)
        assert answer == twin.act(command), "a refused command must leave no trace"
        assert answer != text.NOTHING_HAPPENS
        assert engine.commands == sorted(set(engine.commands)) == twin.commands
        assert {"help", "inventory", "look"} <= set(engine.commands)
        if choice % 3 == 0:
            twin._legal_at.clear()  # what is legal must not depend on what was remembered
