"""Plays the sessions that are recorded; only `generate.py` and the test of the experts need it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from golden.sessions import Session, step_digest

MOST_STEPS = 40
INVALID = ("", "fly to the moon", "take nothing 1 from nowhere 1", "click[nothing]", "search[", "buy now")


def play(session: Session, expert: Any, seed: int) -> list[list[Any]]:
    """[action, digest] of the reset and of at most `MOST_STEPS` steps."""
    random = np.random.RandomState(seed)
    observation, info = session.environment.reset(**session.start)
    expert.reset(observation, info)
    steps = [[None, step_digest(observation, 0.0, False, False, info)]]
    ended = False
    while not ended and len(steps) <= MOST_STEPS:
        action = _choose(session.player, expert.act(observation, info), info, random)
        observation, reward, terminated, truncated, info = session.environment.step(action)
        steps.append([action, step_digest(observation, reward, terminated, truncated, info)])
        ended = terminated or truncated
    return steps


def write(file: Path, sessions: Iterable[Session], expert: Any, as_places: bool = False) -> None:
    """Play sessions and write one line for each; `as_places` stores places in place of commands."""
    lines = []
    for seed, session in enumerate(sessions):
        steps = play(session, expert, seed)
        if as_places:
            steps = _places(session, steps)
        lines.append(json.dumps({"session": session.name, "steps": steps}, ensure_ascii=False))
    file.write_text("\n".join(lines) + "\n")


def _choose(player: str, expert_action: str, info: dict[str, Any], random: np.random.RandomState) -> str:
    if player == "expert":
        return expert_action
    commands = [*info["admissible_commands"]]
    if info.get("available_actions", {}).get("has_search_bar"):
        words = str(info["task"]).split()
        commands += ["search[" + " ".join(words[: random.randint(1, len(words) + 1)]) + "]"] * (len(commands) + 1)
    command = commands[random.randint(len(commands))]
    if player == "random":
        return str(command)
    draw = random.random_sample()
    if draw < 0.5:
        return expert_action
    if draw < 0.8:
        return str(command)
    return [f" {command} ", command.upper(), *INVALID][random.randint(2 + len(INVALID))]


def _places(session: Session, steps: list[list[Any]]) -> list[list[Any]]:
    """The same steps with each action's place among the admissible commands."""
    _, info = session.environment.reset(**session.start)
    placed = [steps[0]]
    for action, recorded in steps[1:]:
        placed.append([info["admissible_commands"].index(action), recorded])
        *_, info = session.environment.step(action)
    return placed
