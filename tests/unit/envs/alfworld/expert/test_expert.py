from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generated_games import generate_splits
from hgpo.envs.alfworld.engine import AlfworldEnv
from hgpo.envs.alfworld.expert import Expert, Sightings
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import SIZES, task_instances
from hgpo.envs.alfworld.generation.furnishing import make_game
from hgpo.envs.alfworld.suite import alfworld_suite
from hgpo.envs.alfworld.tw_pddl.reading import load_game

REAL_GAMES = os.environ.get("ALFWORLD_DATA")
KINDS_OF_EXPERT: list[dict[str, Any]] = [
    {},
    {"recall": False},
]
SLOWLY_BOTH = [KINDS_OF_EXPERT[0], pytest.param(KINDS_OF_EXPERT[1], marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def small_games() -> list[Game]:
    made = generate_splits(0, {"train": 240, "valid_seen": 60, "valid_unseen": 60})
    return [game for games in made.values() for game in games]


Seen = tuple[str, tuple[str, ...], str]  # observation, legal commands, command carried out


def play(game: Game, expert: Expert, limit: int = 200, noise: float = 0.0, seed: int = 0) -> list[Seen]:
    """Let the expert win the game; with probability `noise` a random legal command is carried out instead."""
    rng = np.random.default_rng(seed)
    env = AlfworldEnv(game, max_steps=limit)
    observation, info = env.reset()
    expert.reset(observation, info)
    steps: list[Seen] = []
    terminated = truncated = False
    while not (terminated or truncated):
        legal = info["admissible_commands"]
        command = expert.act(observation, info)
        if rng.random() < noise:
            command = legal[int(rng.integers(len(legal)))]
        steps.append((observation, tuple(legal), command))
        observation, _, terminated, truncated, info = env.step(command)
    assert info["won"], f"{game.name} is not won in {limit} steps"
    return steps


def steps_to_win(game: Game, expert: Expert, limit: int = 200) -> int:
    return len(play(game, expert, limit))


@pytest.mark.parametrize("options", KINDS_OF_EXPERT)
def test_it_wins_every_small_game(small_games: list[Game], options: dict[str, Any]) -> None:
    lengths = [steps_to_win(game, Expert(**options)) for game in small_games]
    assert 6 <= np.mean(lengths) <= 10
    assert max(lengths) <= 15


@pytest.mark.parametrize("size", ["medium", pytest.param("full", marks=pytest.mark.slow)])
def test_it_wins_bigger_games_within_fifty_steps(size: str) -> None:
    games = generate_splits(0, {"train": 60, "valid_unseen": 24}, size=size)
    assert all(steps_to_win(game, Expert(), 50) for split in games.values() for game in split)


@pytest.mark.parametrize("options", SLOWLY_BOTH)
def test_it_recovers_from_interference(small_games: list[Game], options: dict[str, Any]) -> None:
    for number, game in enumerate(small_games[:120]):
        play(game, Expert(**options), 300, noise=0.3, seed=number)


def test_it_does_not_look_into_the_game(small_games: list[Game]) -> None:
    """The same texts and commands get the same answers from an expert that only ever saw those."""
    for game in small_games[:30]:
        env, player, reader = AlfworldEnv(game), Expert(), Expert()
        observation, info = env.reset()
        player.reset(observation, info)
        reader.reset(str(observation), {})
        ended = False
        while not ended:
            command = player.act(observation, info)
            assert reader.act(str(observation), {"admissible_commands": list(info["admissible_commands"])}) == command
            observation, _, ended, _, info = env.step(command)


@pytest.mark.parametrize("options", SLOWLY_BOTH)
def test_what_it_has_not_read_yet_makes_no_difference(options: dict[str, Any]) -> None:
    """Two games of one room and one task, furnished differently: until a text differs, every command is the same."""
    compared, parted = 0, 0
    for task_type in TASK_TYPES:
        for instance in task_instances(SIZES["medium"], task_type, False)[::240]:
            games = [make_game(instance, np.random.default_rng(seed), size=SIZES["medium"]) for seed in range(4)]
            first, *others = [game for game in games if game.task == games[0].task]
            played = play(first, Expert(**options))
            for game in others:
                for one, other in zip(played, play(game, Expert(**options)), strict=False):
                    if one[:2] != other[:2]:
                        parted += 1
                        break
                    assert one[2] == other[2]
                    compared += 1
    assert min(compared, parted) > 20


def test_it_can_be_used_for_one_game_after_another(small_games: list[Game]) -> None:
    expert = Expert()
    assert [steps_to_win(game, expert) for game in small_games[:20]] == [
        steps_to_win(game, Expert()) for game in small_games[:20]
    ]


@pytest.fixture(scope="module")
def many_games() -> tuple[Game, ...]:
    """Many games of few task types, so that the same task comes again in other rooms."""
    task_types = ["pick_two_obj_and_place", "look_at_obj_in_light", "pick_heat_then_place_in_recep"]
    return generate_splits(1, {"train": 1500}, task_types=task_types)["train"]


@pytest.mark.slow
def test_without_recall_a_memory_of_two_steps_tells_its_next_command(many_games: tuple[Game, ...]) -> None:
    """Where task, the last two steps, observation and legal commands are equal, so is the command."""
    commands: dict[object, str] = {}
    met_again = 0
    for game in many_games:
        steps = play(game, Expert(recall=False))
        for number, (observation, legal, command) in enumerate(steps):
            memory = tuple((seen, done) for seen, _, done in steps[max(0, number - 2) : number])
            context = (game.task, memory, observation, legal)
            met_again += context in commands
            assert commands.setdefault(context, command) == command
    assert met_again > 500


def test_sightings_follow_what_is_read() -> None:
    seen = Sightings(recall=True)
    seen.read("You are in the middle of a room.", ["go to shelf 10", "go to shelf 2", "go to fridge 1", "look"])
    assert seen.places == ["fridge 1", "shelf 2", "shelf 10"]
    seen.read("You arrive at fridge 1. The fridge 1 is closed.", ["open fridge 1"])
    assert (seen.last_visited, seen.contents) == ("fridge 1", {})
    seen.read("You open the fridge 1. The fridge 1 is open. In it, you see a egg 1, and a egg 2.", [])
    assert seen.contents == {"fridge 1": ["egg 1", "egg 2"]}
    assert seen.where("egg") == ["fridge 1"]
    seen.read("You pick up the egg 2 from the fridge 1.", [])
    assert (seen.held, seen.contents, seen.last_visited) == ("egg 2", {"fridge 1": ["egg 1"]}, None)
    seen.read("You cool the egg 2 using the fridge 1.", [])
    seen.read("You heat the egg 2 using the microwave 1.", [])
    assert seen.treatments == {"egg 2": {"heat"}}
    seen.read("You move the egg 2 to the shelf 2.", [])
    assert (seen.held, seen.count("egg", "shelf 2")) == (None, 1)
    seen.read("On the shelf 2, you see nothing.", [])
    assert seen.contents["shelf 2"] == []


@pytest.mark.slow
@pytest.mark.skipif(not REAL_GAMES, reason="needs the real games: set ALFWORLD_DATA")
@pytest.mark.parametrize("split", ["train", "valid_seen"])
def test_it_wins_all_real_games_in_as_many_steps_as_documented(split: str) -> None:
    games = [
        load_game(Path(REAL_GAMES or "") / task.id / "game.tw-pddl") for task in alfworld_suite(REAL_GAMES).tasks(split)
    ]
    mean = np.mean([steps_to_win(game, Expert(recall=False), 50) for game in games])
    page = (Path(__file__).parents[5] / "docs" / "alfworld.md").read_text(encoding="utf-8")
    documented = dict(zip(("train", "valid_seen"), re.findall(r"(\d\.\d) (?:steps )?in `", page), strict=True))
    assert f"{mean:.1f}" == documented[split]
