"""Sessions of household games and shops: which are played, how a step becomes a digest, and how they are replayed.

A recorded session has its actions, so that replaying it needs neither random numbers nor an expert. Generated games and
shops are made anew from their seeds. Of real games nothing but digests is stored; an action is there its place in
the list of admissible commands.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hgpo.envs
from golden.internals import catalog_of
from hgpo.cli.main import main
from hgpo.envs.alfworld import AlfworldEnv
from hgpo.envs.webshop import WebShopEnv

DATA = Path(__file__).parent / "data"
ALFWORLD_SESSIONS = DATA / "alfworld_sessions.jsonl"
REAL_ALFWORLD_SESSIONS = DATA / "real_alfworld_sessions.jsonl"
WEBSHOP_SESSIONS = DATA / "webshop_sessions.jsonl"
GENERATED = DATA / "generated.json"

PLAYERS = ("expert", "random", "mixed")
"""Who chose the recorded actions: the expert, an admissible command at random, or both of them and invalid commands."""

ALFWORLD_SUITES: tuple[dict[str, Any], ...] = (
    {"size": "small", "seed": 0},
    {"size": "small", "seed": 1},
    {"size": "medium", "seed": 2},
    {"size": "full", "seed": 3},
)
GAMES = {"train_games": 6, "valid_seen_games": 6, "valid_unseen_games": 6}
WEBSHOP_SUITES: tuple[dict[str, Any], ...] = (
    {"size": "small", "seed": 0},
    {"size": "medium", "seed": 1, "observation_mode": "text", "max_steps": 12},
    {"size": "large", "seed": 2, "observation_mode": "text"},
    {"size": "small", "seed": 3, "observation_mode": "text_rich"},
    {"size": "medium", "seed": 4, "observation_mode": "brief"},
)
GOALS = {"train_goals": 8, "valid_seen_goals": 4, "valid_unseen_goals": 4}
SPLITS = ("train", "valid_seen", "valid_unseen")

REAL_GAMES = "shared/alfworld/train_valid_seen.tar.xz"
REAL_GAME_PLACES = (0, 60, 120, 180, 240, 300)
"""Places of the real games that are played, in the order of the archive."""


@dataclass(frozen=True)
class Session:
    """One session to play.

    Attributes:
        name: of the session, also of its line in the file.
        player: one of `PLAYERS`.
        environment: the environment to reset.
        start: keywords of `reset`.
    """

    name: str
    player: str
    environment: Any
    start: dict[str, Any]


def alfworld_sessions(folder: Path) -> Iterator[Session]:
    """24 sessions of `hgpo.envs.make` and 6 of game files that `hgpo generate-games` writes to `folder`."""
    for suite_number, options in enumerate(ALFWORLD_SUITES):
        suite = hgpo.envs.make("alfworld", **options, **GAMES)
        for number in range(6):
            split = SPLITS[number % 3]
            task = suite.tasks(split)[(suite_number + number) % 6]
            player = PLAYERS[(suite_number + number) // 2 % 3]
            yield Session(
                f"{options['size']} {options['seed']} {task.id} {player}", player, task.make(), {"seed": number}
            )
    generate_games(folder)
    for number, file in enumerate(sorted(folder.rglob("game.tw-pddl"))[:6]):
        player, most = PLAYERS[number % 3], (None, 10)[number % 2]
        name = f"{file.relative_to(folder).parent} {player} max_steps={most}"
        yield Session(name, player, AlfworldEnv(file, max_steps=most), {})


def real_alfworld_sessions(folder: Path) -> Iterator[Session]:
    """6 sessions of real games, unpacked to `folder`."""
    archive_path = real_games()
    assert archive_path is not None
    place = -1
    with tarfile.open(archive_path, "r|xz") as archive:
        for member in archive:
            if not member.name.endswith("game.tw-pddl"):
                continue
            place += 1
            if place in REAL_GAME_PLACES:
                archive.extract(member, folder, filter="data")
                player = PLAYERS[REAL_GAME_PLACES.index(place) % 2]  # no invalid commands: actions are stored as places
                yield Session(f"game {place} {player}", player, AlfworldEnv(folder / member.name), {})
            if place == REAL_GAME_PLACES[-1]:
                return


def webshop_sessions() -> Iterator[Session]:
    """20 sessions in generated shops, the last of each suite with an environment built from a catalogue."""
    for suite_number, options in enumerate(WEBSHOP_SUITES):
        suite = hgpo.envs.make("webshop", **options, **GOALS)
        for number in range(4):
            split, player = SPLITS[number % 3], PLAYERS[(suite_number + number) % 3]
            task = suite.tasks(split)[suite_number % 4]
            environment, start = task.make(), {"seed": number}
            if number == 3:
                mode = ("text", "text_rich", "brief")[suite_number % 3]
                environment = WebShopEnv(catalog_of(environment), observation_mode=mode)
                start = {"goal": suite_number * 7}
            name = f"{options['size']} {options['seed']} {task.id} {player}" + (" by goal" if number == 3 else "")
            yield Session(name, player, environment, start)


def generated_games(folder: Path) -> dict[str, str]:
    """Digest of every game file that `hgpo generate-games` writes."""
    generate_games(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "generated.json")
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def generated_goals() -> dict[str, str]:
    """Digest of the goals of each generated catalogue: instruction, product, options and price limit, in order."""
    digests = {}
    for options in WEBSHOP_SUITES:
        suite = hgpo.envs.make("webshop", **options, **GOALS)
        for split in ("train", "valid_unseen"):
            goals = catalog_of(suite.tasks(split)[0].make()).goals
            facts = [[goal.instruction, goal.asin, goal.options, goal.price_upper] for goal in goals]
            digests[f"{options['size']} {options['seed']} {split}"] = digest(facts)
    return digests


def generate_games(folder: Path) -> None:
    """Run `hgpo generate-games`."""
    counts = ["--train", "6", "--valid-seen", "2", "--valid-unseen", "2"]
    with redirect_stdout(io.StringIO()):
        assert main(["generate-games", str(folder), *counts, "--seed", "5"]) == 0


@cache
def real_games() -> Path | None:
    """The archive of real games in a folder beside the repository or above, if it is there."""
    found = (folder / REAL_GAMES for folder in Path(__file__).parents)
    return next((path for path in found if path.is_file()), None)


def choices(info: dict[str, Any]) -> list[str] | dict[str, Any]:
    """What the player may do, as the environment says it: WebShop's available actions, ALFWorld's commands."""
    found: list[str] | dict[str, Any] = info.get("available_actions") or info["admissible_commands"]
    return found


def digest(value: Any) -> str:
    """64 bits of the SHA-256 of a value's JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:16]


def step_digest(observation: str, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> str:
    """Digest of all that a step returns and that is compared."""
    return digest([observation, float(reward), bool(terminated), bool(truncated), choices(info)])


def replay(session: Session, steps: list[list[Any]]) -> str:
    """Play the recorded actions; say what differs first, or nothing.

    Args:
        session: the session.
        steps: [action, digest] of the reset (whose action is None) and of every step. An integer stands for the command
            at that place of the admissible ones.
    """
    info: dict[str, Any] = {}
    for number, (action, recorded) in enumerate(steps):
        if action is None:
            observation, info = session.environment.reset(**session.start)
            outcome: tuple[Any, ...] = (0.0, False, False)
        else:
            action = info["admissible_commands"][action] if isinstance(action, int) else action
            observation, *rest, info = session.environment.step(action)
            outcome = tuple(rest)
        if step_digest(observation, *outcome, info) != recorded:
            return f"{session.name}: step {number}, {action!r} gave {observation!r}, {outcome}, {choices(info)}"
    return ""


def read(file: Path) -> dict[str, list[list[Any]]]:
    """The recorded steps of every session, by name."""
    lines = map(json.loads, file.read_text().splitlines())
    return {line["session"]: line["steps"] for line in lines}
