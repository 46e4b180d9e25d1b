"""Every real game can be read and is won by its own walkthrough, on its last command."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from hgpo.envs.alfworld import AlfworldEnv, Game, parse_game

GAMES = Path(__file__).parents[3] / "shared" / "alfworld" / "train_valid_seen.tar.xz"


@pytest.mark.skipif(not GAMES.exists(), reason=f"the real games are not here: {GAMES}")
def test_every_real_game_is_won_by_its_walkthrough() -> None:
    played: Counter[str] = Counter()
    with tarfile.open(GAMES, "r|xz") as archive:
        for member in archive:
            if Path(member.name).name == "game.tw-pddl":
                content = archive.extractfile(member)
                assert content is not None
                game = parse_game(content.read(), member.name)
                assert_won_on_last_command(game)
                played[game.goal.task_type] += 1
    assert played == {
        "look_at_obj_in_light": 321,
        "pick_and_place_simple": 825,
        "pick_clean_then_place_in_recep": 677,
        "pick_cool_then_place_in_recep": 558,
        "pick_heat_then_place_in_recep": 475,
        "pick_two_obj_and_place": 837,
    }


def assert_won_on_last_command(game: Game) -> None:
    env = AlfworldEnv(game)
    _, info = env.reset()
    rewards = []
    for command in game.walkthrough:
        assert command in info["admissible_commands"], f"{game.name}: {command!r} is not admissible"
        _, reward, terminated, _, info = env.step(command)
        rewards.append(reward)
    assert terminated, f"{game.name} is not won by its walkthrough"
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
