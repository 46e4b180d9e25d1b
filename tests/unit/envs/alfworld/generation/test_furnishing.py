from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from generated_games import generate_game
from hgpo.envs.alfworld.engine import AlfworldEnv
from hgpo.envs.alfworld.expert import parse_task
from hgpo.envs.alfworld.game import Game, GameObject, Receptacle
from hgpo.envs.alfworld.generation.floor_plans import Size, floor_plans
from hgpo.envs.alfworld.generation.household import APPLIANCES
from hgpo.envs.alfworld.text import names_from_ids


def games(count: int, size: str, seed: int = 0) -> list[Game]:
    rng = np.random.default_rng(seed)
    return [generate_game(rng, size=size, unseen=number % 4 == 0) for number in range(count)]


def is_won_by_walkthrough(game: Game) -> bool:
    env = AlfworldEnv(game)
    env.reset()
    for number, command in enumerate(game.walkthrough, start=1):
        _, _, won, _, _ = env.step(command)
        assert won == (number == len(game.walkthrough)), f"{game.name}: won is {won} after {command!r}"
    return won


@pytest.mark.parametrize(("size", "count"), [("small", 600), ("medium", 60), ("full", 60)])
def test_every_walkthrough_wins_with_its_last_command(size: str, count: int) -> None:
    assert all(is_won_by_walkthrough(game) for game in games(count, size))


def test_small_games_are_small() -> None:
    for game in games(300, "small"):
        carried = [thing for thing in game.objects if "pickupable" in thing.properties]
        assert 4 <= len(game.receptacles) <= 6
        assert 1 <= len(carried) <= 3
        assert 3 <= len(game.walkthrough) <= 12


def test_full_games_are_as_big_as_real_ones() -> None:
    for game in games(40, "full"):
        assert 20 <= len(game.receptacles) <= 35
        assert len(game.objects) >= 15


def test_a_size_of_ones_own() -> None:
    game = generate_game(np.random.default_rng(0), size={"receptacles": [8, 8], "objects": [4, 4]})
    assert len(game.receptacles) == 8
    assert sum("pickupable" in thing.properties for thing in game.objects) == 4


def test_the_generator_alone_decides() -> None:
    assert games(30, "small", seed=3) == games(30, "small", seed=3)
    assert games(30, "small", seed=3) != games(30, "small", seed=4)


def test_names_are_those_that_the_simulator_would_give() -> None:
    for game in games(30, "small") + games(10, "full"):
        things: list[Receptacle | GameObject] = [*game.receptacles, *game.objects]
        assert names_from_ids(thing.id for thing in things) == {thing.id: thing.name for thing in things}


def test_what_can_be_opened_is_closed_at_first() -> None:
    game = games(1, "full")[0]
    openable = {receptacle.kind for receptacle in game.receptacles if receptacle.openable}
    assert openable <= {"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"}
    assert openable
    assert not any(receptacle.opened for receptacle in game.receptacles)


def test_can_contain_covers_where_things_are_and_where_they_should_go() -> None:
    for game in games(200, "small"):
        kind_of = {receptacle.id: receptacle.kind for receptacle in game.receptacles}
        for thing in game.objects:
            if "pickupable" in thing.properties:
                assert (kind_of[thing.receptacles[0]], thing.kind) in game.can_contain
        if game.goal.task_type != "look_at_obj_in_light":
            assert (game.goal.target_kind, game.goal.object_kind) in game.can_contain


def test_nothing_is_done_from_the_start() -> None:
    for game in games(300, "small"):
        kind_of = {receptacle.id: receptacle.kind for receptacle in game.receptacles}
        wanted = [thing for thing in game.objects if thing.kind == game.goal.object_kind]
        assert len(wanted) >= (2 if game.goal.task_type == "pick_two_obj_and_place" else 1)
        if game.goal.task_type in APPLIANCES:
            assert all(APPLIANCES[game.goal.task_type][1] in thing.properties for thing in wanted)
        else:
            assert all(kind_of[thing.receptacles[0]] != game.goal.target_kind for thing in wanted)


def test_sentences_state_the_goal_in_both_wordings() -> None:
    wordings: Counter[tuple[str, str]] = Counter()
    for game in games(300, "small"):
        task = parse_task(game.task)
        goal = game.goal
        assert task.task_type == goal.task_type
        assert (task.object_kind, task.target_kind) == (goal.object_kind.lower(), goal.target_kind.lower())
        wordings[goal.task_type, game.task.partition(" ")[0] + str(len(game.task.split()))] += 1
    assert len(wordings) >= 11


def test_the_smallest_rooms_have_games() -> None:
    size = Size(receptacles=(3, 3), objects=(1, 1), copies=1)
    assert floor_plans(size)
    assert generate_game(np.random.default_rng(0), size=size).receptacles
