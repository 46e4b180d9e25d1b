"""The real games: every one is found once, can be read and is won by its own walkthrough on its last command."""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import hgpo.envs
from hgpo.envs.alfworld import AlfworldEnv, AlfworldSuite

GAMES = Path(__file__).parents[3] / "shared" / "alfworld" / "train_valid_seen.tar.xz"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GAMES.exists(), reason=f"the real games are not here: {GAMES}")]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> AlfworldSuite:
    """The published games as a user has them: unpacked, in a folder."""
    folder = tmp_path_factory.mktemp("games")
    with tarfile.open(GAMES, "r|xz") as archive:
        archive.extractall(folder, filter="data")
    found = hgpo.envs.make("alfworld", data_dir=next(folder.rglob("game.tw-pddl")).parents[3])
    assert isinstance(found, AlfworldSuite)
    return found


def test_all_of_them_are_found_once_and_in_order(suite: AlfworldSuite) -> None:
    assert suite.splits == ("train", "valid_seen")
    assert {split: len(suite.tasks(split)) for split in suite.splits} == {"train": 3553, "valid_seen": 140}
    for split in suite.splits:
        names = [task.id.removeprefix(f"{split}/") for task in suite.tasks(split)]
        assert len(set(names)) == len(names)
        assert names == sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        assert suite.skipped(split) == {}


def test_every_one_is_won_by_its_walkthrough(suite: AlfworldSuite) -> None:
    played: Counter[str] = Counter()
    for split in suite.splits:
        for task in suite.tasks(split):
            env = task.make()
            assert isinstance(env, AlfworldEnv)
            assert env.game.goal.task_type == task.kind
            assert_won_on_last_command(env)
            played[task.kind] += 1
    assert played == {
        "look_at_obj_in_light": 321,
        "pick_and_place_simple": 825,
        "pick_clean_then_place_in_recep": 677,
        "pick_cool_then_place_in_recep": 558,
        "pick_heat_then_place_in_recep": 475,
        "pick_two_obj_and_place": 837,
    }


def assert_won_on_last_command(env: AlfworldEnv) -> None:
    _, info = env.reset()
    rewards = []
    for command in env.game.walkthrough:
        assert command in info["admissible_commands"], f"{env.game.name}: {command!r} is not admissible"
        _, reward, terminated, _, info = env.step(command)
        rewards.append(reward)
    assert terminated, f"{env.game.name} is not won by its walkthrough"
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
