"""Plays a task with an expert, and adds an explanation to each action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hgpo.agents.worked_examples import WorkedExample, WorkedTurn
from hgpo.envs.base import Expert, Info, Task


class NoWords(Exception):
    """No rule has a true reason for an action; the game becomes no example."""


class Narrator(Protocol):
    """Explains an expert's actions from the task and the observations so far only."""

    def reset(self, info: Info) -> None:
        """Start a game."""
        ...

    def explain(self, observation: str, info: Info, action: str) -> str:
        """The thought before `action`, which answers `observation`. `NoWords` if no rule has a reason."""
        ...


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """A worked example and the task it was played in."""

    task: Task
    example: WorkedExample


def play(task: Task, expert: Expert, narrator: Narrator, most_turns: int) -> PlayedGame | None:
    """One game, or None where it is not won within `most_turns` or an action cannot be explained."""
    environment = task.make()
    observation, info = environment.reset()
    expert.reset(observation, info)
    narrator.reset(info)
    sentence = str(info["task"])
    turns: list[WorkedTurn] = []
    while not info["won"]:
        if len(turns) == most_turns:
            return None
        action = expert.act(observation, info)
        try:
            thought = narrator.explain(observation, info, action)
        except NoWords:
            return None
        shown = observation if turns else without_frame(observation, sentence)
        turns.append(WorkedTurn(shown, thought, action))
        observation, _, terminated, _, info = environment.step(action)
        if terminated and not info["won"]:
            return None
    return PlayedGame(task, WorkedExample(task.kind, sentence, tuple(turns)))


def without_frame(first: str, task: str) -> str:
    """The first observation without the household engine's banner and repetition of the task."""
    if not first.startswith("-= "):
        return first
    return first.partition("\n\n")[2].removesuffix(f"\n\nYour task is to: {task}")
