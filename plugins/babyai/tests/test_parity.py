"""60 sessions through the environment and through minigrid itself, step for step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hgpo.envs.base import Task

suites = pytest.importorskip("hgpo_babyai.suite", reason="minigrid is not installed; run `make babyai-test`")
env = pytest.importorskip("hgpo_babyai.env")
gymnasium = pytest.importorskip("gymnasium")

SESSIONS = 30
COLOURS = {"red": 0, "green": 1, "blue": 2, "purple": 3, "yellow": 4, "grey": 5}
KINDS = {"door": 4, "key": 5, "ball": 6, "box": 7}
STATES = {"open": 0, "closed": 1, "locked": 2}
ACTIONS = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "drop": 4, "toggle": 5, "sing": 6}


def tasks() -> list[Task]:
    suite = suites.babyai_suite(train_games=SESSIONS, valid_seen_games=0, valid_unseen_games=SESSIONS)
    return [task for split in suite.splits for task in suite.tasks(split)]


def image_of(text: str, theirs_XY3: Any) -> Any:
    """The image that a text describes; free floor, unseen cells and walls are as in `theirs_XY3`."""
    seen, carried = text.removeprefix("You see ").removesuffix(".").split(". You carry ")
    image = np.where(np.isin(theirs_XY3[:, :, :1], list(KINDS.values())), 0, theirs_XY3)
    for part in [] if seen == "nothing" else seen.split(", "):
        words = part.split()
        steps = {way: int(count) for count, way in pairwise(words) if count.isdecimal()}
        place = (3 + steps.get("right", 0) - steps.get("left", 0), 6 - steps.get("ahead", 0))
        if "wall" in words:
            assert theirs_XY3[place][0] == 2, part
        else:
            image[place] = cell_of(words)
    if carried != "nothing":
        image[3, 6] = cell_of(carried.split())
    return image


def cell_of(words: list[str]) -> tuple[int, int, int]:
    [kind] = [code for name, code in KINDS.items() if name in words]
    [colour] = [code for name, code in COLOURS.items() if name in words]
    return kind, colour, next((code for name, code in STATES.items() if name in words), 0)


def test_sixty_sessions_are_the_same_step_for_step() -> None:
    """The bot's commands with a third of others: texts, missions, rewards, ends and states."""
    rng = np.random.default_rng(0)
    ends, used = [], set()
    for task in tasks():
        environment, expert = task.make(), suites.BabyAIExpert()
        reference = gymnasium.make(f"BabyAI-{task.id.split('-')[1]}-v0")
        observation, info = environment.reset(seed=0)
        theirs, _ = reference.reset(seed=info["session"]["seed"])
        expert.reset(observation, info)
        ended = False
        while not ended:
            assert info["task"] == theirs["mission"]
            np.testing.assert_array_equal(image_of(observation, theirs["image"]), theirs["image"], observation)
            inner = reference.unwrapped
            assert f"agent at {inner.agent_pos[0]},{inner.agent_pos[1]} facing {theirs['direction']}" in (
                environment.state_key()
            )
            command = str(rng.choice(list(ACTIONS))) if rng.random() < 1 / 3 else expert.act(observation, info)
            used.add(command)
            observation, *mine, info = environment.step(command)
            theirs, *others, _ = reference.step(ACTIONS[command])
            assert mine == others, task.id
            assert info["won"] == (others[0] > 0)
            ended = mine[1] or mine[2]
        ends.append(info["won"])
    assert len(ends) == 60
    assert used == set(ACTIONS)
    assert sum(ends) > 0
