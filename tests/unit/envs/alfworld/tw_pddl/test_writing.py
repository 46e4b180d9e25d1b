from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from generated_games import generate_game
from hgpo.envs.alfworld import AlfworldEnv, Game, GameObject, Goal, Receptacle, export_game, parse_game
from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.tw_pddl.problem import parse_expression
from hgpo.envs.alfworld.tw_pddl.writing import trajectory_file
from unit.envs.alfworld.kitchen import kitchen

LAMP = Goal("look_at_obj_in_light", "Apple", "DeskLamp")


@pytest.mark.parametrize("task_type", TASK_TYPES)
@pytest.mark.parametrize("size", ["small", "full"])
def test_a_generated_game_comes_back_as_it_was(task_type: str, size: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        game = generate_game(rng, size=size, task_types=[task_type])
        assert parse_game(export_game(game), game.name) == game


def test_everything_a_real_game_may_state_comes_back() -> None:
    fork = GameObject("Fork_bar_7", "fork 1", "Fork", (), None, ("Plate_bar_1", "Apple_bar_1"))
    unknown = GameObject(
        "Vase_bar_1", "vase 1", "", properties=frozenset({"pickupable", "isSliced", "isOn", "moveable"})
    )
    things = [thing for thing in kitchen().objects if thing.kind != "Fork"]
    fridge = replace(kitchen().receptacles[1], opened=True)
    game = kitchen(
        objects=(fork, unknown, *things),
        receptacles=(fridge, *(place for place in kitchen().receptacles if place.kind != "Fridge")),
        agent_location="loc_bar_1",
        solvable=False,
        walkthrough=("look",),
    )
    assert parse_game(export_game(game), game.name) == game


@pytest.mark.parametrize("goal", [LAMP, Goal("pick_two_obj_and_place", "Apple", "Shelf")])
def test_goals_are_read_back(goal: Goal) -> None:
    assert parse_game(export_game(kitchen(goal)), "x").goal == goal


def test_the_file_has_the_five_entries_and_plain_walkthroughs_win() -> None:
    game = generate_game(np.random.default_rng(3))
    entries = json.loads(export_game(game))
    assert sorted(entries) == ["grammar", "pddl_domain", "pddl_problem", "solvable", "walkthrough"]
    env = AlfworldEnv(parse_game(export_game(game), "x"))
    env.reset()
    assert [env.step(command)[2] for command in entries["walkthrough"]][-1]


def test_rules_and_problem_speak_of_the_same_predicates() -> None:
    """Nothing here runs a planner, so at least no fact is stated that the rules do not declare."""
    entries = json.loads(export_game(kitchen()))
    declared = {section[0]: section[1:] for section in parse_expression(entries["pddl_domain"])[1:]}[":predicates"]
    stated = {section[0]: section[1:] for section in parse_expression(entries["pddl_problem"])[1:]}[":init"]
    assert {fact[0] for fact in stated} <= {predicate[0] for predicate in declared}


def test_the_wording_is_a_grammar_of_json_whose_names_exist() -> None:
    grammar = json.loads(export_game(kitchen()))["grammar"]
    rules = json.loads(grammar.split('"""')[1])
    used = set(re.findall(r"#(\w+)#", grammar))
    assert used <= rules.keys()
    assert rules.keys() <= used | {"intro", "list_empty", "list_separator", "list_last_separator"}
    texts = [rule["rhs"] for alternatives in rules.values() for rule in alternatives]
    assert not [text for text in texts if text != text.lstrip() and text != ", " and text != ", and "]


def test_what_alfworld_reads_beside_the_game() -> None:
    assert json.loads(trajectory_file(kitchen())) == {
        "task_type": "pick_and_place_simple",
        "pddl_params": {
            "object_target": "Apple",
            "parent_target": "Shelf",
            "toggle_target": "",
            "mrecep_target": "",
            "object_sliced": False,
        },
    }
    lamp = json.loads(trajectory_file(kitchen(LAMP)))["pddl_params"]
    assert (lamp["parent_target"], lamp["toggle_target"]) == ("", "DeskLamp")


def one_shelf(**changes: str) -> Game:
    shelf = Receptacle(**{"id": "Shelf_bar_1", "name": "shelf 1", "kind": "Shelf", "location": "spot_1", **changes})
    return kitchen(receptacles=(shelf,), objects=(), locations=("spot_0",), agent_location="spot_0")


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (one_shelf(id="Shelf_bar_1 x"), "'Shelf_bar_1 x' is no PDDL name"),
        (one_shelf(kind="Shelf)"), r"'Shelf\)' is no PDDL name"),
        (one_shelf(location="(spot"), r"'\(spot' is no PDDL name"),
        (one_shelf(name="shelf 4"), "the id 'Shelf_bar_1' means 'shelf 1', not 'shelf 4'"),
        (one_shelf(id="Shelf"), "the id 'Shelf' has no '_bar_'"),
        (kitchen(task="put {1} on shelf."), "the task sentence contains '{'"),
        (kitchen(task='say "x".'), "the task sentence contains '\"'"),
        (kitchen(task="put caf\u00e9 on shelf."), "the task sentence contains 'é'"),
        (kitchen(objects=(replace(kitchen().objects[0], receptacles=("Moon_bar_1",)),)), "in 'Moon_bar_1'"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(game: Game, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        export_game(game)
