"""The real games: every one is found once, starts as in the reference engine and is won by its own walkthrough.

The first texts and commands were recorded by tests/parity/alfworld_record.py.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import hgpo.envs
from hgpo.envs.alfworld import AlfworldEnv
from hgpo.envs.alfworld.tw_pddl.reading import GameFileError, load_game
from hgpo.envs.base import TaskSplits
from parity.alfworld_player import Player
from parity.alfworld_traces import digest, game_key
from torture.damage import DAMAGES, remove

STARTS = Path(__file__).parents[1] / "parity" / "data" / "alfworld_starts.txt"
GAMES = Path(__file__).parents[3] / "shared" / "alfworld" / "train_valid_seen.tar.xz"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GAMES.exists(), reason=f"the real games are not here: {GAMES}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published games as a user has them: unpacked, in a folder."""
    unpacked = tmp_path_factory.mktemp("games")
    with tarfile.open(GAMES, "r|xz") as archive:
        archive.extractall(unpacked, filter="data")
    return unpacked


@pytest.fixture(scope="module")
def suite(folder: Path) -> TaskSplits:
    found = hgpo.envs.make("alfworld", data_dir=next(folder.rglob("game.tw-pddl")).parents[3])
    assert isinstance(found, TaskSplits)
    return found


def test_all_of_them_are_found_once_and_in_order(suite: TaskSplits) -> None:
    assert suite.splits == ("train", "valid_seen")
    assert {split: len(suite.tasks(split)) for split in suite.splits} == {"train": 3553, "valid_seen": 140}
    for split in suite.splits:
        names = [task.id.removeprefix(f"{split}/") for task in suite.tasks(split)]
        assert len(set(names)) == len(names)
        assert names == sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        assert suite.skipped(split) == {}


def test_every_one_starts_as_recorded_and_is_won_by_its_walkthrough(suite: TaskSplits) -> None:
    recorded = dict(line.split() for line in STARTS.read_text(encoding="utf-8").splitlines())
    differing: list[str] = []
    played: Counter[str] = Counter()
    for split in suite.splits:
        for task in suite.tasks(split):
            env = task.make()
            assert isinstance(env, AlfworldEnv)
            assert env.game.goal.task_type == task.kind
            if digest(Player(env.game).first) != recorded.pop(game_key(task.id)):
                differing.append(task.id)
            assert_won_on_last_command(env)
            played[task.kind] += 1
    assert not differing, f"{len(differing)} games start differently; first: {differing[0]}"
    assert not recorded
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


def test_damaged_ones_are_played_or_refused_by_name(folder: Path, tmp_path: Path) -> None:
    rng = Random(0)
    path = tmp_path / "damaged" / "game.tw-pddl"
    path.parent.mkdir()
    ends: Counter[str] = Counter()
    for file in sorted(folder.rglob("game.tw-pddl")):
        path.write_bytes(file.read_bytes())
        how = rng.choice([damage for damage in DAMAGES if damage is not remove])(path, rng)
        ends[played_or_refused(path, f"{file.parent.name}, {how}", rng)] += 1
    assert ends.total() > 3_000
    assert min(ends["played"], ends["refused"]) > 150


def played_or_refused(path: Path, case: str, rng: Random) -> str:
    try:
        environment = AlfworldEnv(load_game(path))
    except GameFileError as error:
        return "refused" if str(path) in str(error) else pytest.fail(f"{case}: no file is named in {error}")
    _, info = environment.reset()
    for _ in range(3):
        _, _, ended, _, info = environment.step(rng.choice(info["admissible_commands"]))
        if ended:
            break
    return "played"
