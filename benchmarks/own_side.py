"""Where a step's time goes on the own side of a server: by part, and by function.

Answers are there at once, parsed as the client would, and one game is played after the other: CPU time alone counts.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hgpo.agents import Template
from hgpo.envs.base import Task
from served_games import KnowingPolicy, ServedGames, as_parsed, seed_of


class Stopwatch:
    """Seconds of functions, by the name of their part; of CPU time unless it is given another clock."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.spent: Counter[str] = Counter()

    def on(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[part] += self._clock() - began

        return timed


class TimedEnv:
    """An environment under the stopwatch, its making included."""

    def __init__(self, task: Task, watch: Stopwatch) -> None:
        environment = watch.on("environment", task.make)()
        self.reset = watch.on("environment", environment.reset)
        self.step = watch.on("environment", environment.step)


class TimedTemplate:
    """A template under the stopwatch."""

    def __init__(self, template: Template, watch: Stopwatch) -> None:
        self.render = watch.on("prompt", template.render)
        self.parse = watch.on("reading", template.parse)
        self.respond = template.respond


@dataclass(frozen=True, slots=True)
class Function:
    """What a function takes of a step.

    Attributes:
        name: with file and line.
        calls: a step.
        itself: CPU milliseconds a step, without what it calls.
        together: with what it calls.
    """

    name: str
    calls: float
    itself: float
    together: float


def parts(games: ServedGames, answers: Mapping[int, str]) -> dict[str, float]:
    """CPU milliseconds a step by part, "rest" included.

    "environment" makes, resets and steps; "prompt" is the agent's; "request" and "reading" make the body and read the
    answer and its action; "journal" writes the game. The rest is the episode's bookkeeping and the event loop.
    """
    watch, policy = Stopwatch(), answering_at_once(answers)
    for part, method in {"request": "body", "reading": "read"}.items():
        setattr(policy, method, watch.on(part, getattr(policy, method)))
    timed = [replace(game, task=replace(game.task, make=partial(TimedEnv, game.task, watch))) for game in games.games]
    rules = replace(games.rules, template=TimedTemplate(games.rules.template, watch))
    span = replace(games, games=timed, rules=rules).play(policy, 1, noting=partial(watch.on, "journal"))
    seconds = {**watch.spent, "rest": span.cpu - watch.spent.total()}
    return {part: 1e3 * spent / games.steps for part, spent in seconds.items()}


def functions(games: ServedGames, answers: Mapping[int, str]) -> list[Function]:
    """The functions by what they take themselves, the most first. The profiler makes all of them slower."""
    policy, profile = answering_at_once(answers), cProfile.Profile(time.process_time)
    profile.enable()
    games.play(policy, at_once=1)
    profile.disable()
    entries: Mapping[Any, Any] = pstats.Stats(profile).strip_dirs().stats  # type: ignore[attr-defined]
    found = [
        Function(
            f"{file}:{line} {name}" if line else name,
            calls / games.steps,
            1e3 * itself / games.steps,
            1e3 * together / games.steps,
        )
        for (file, line, name), (_, calls, itself, together, _) in entries.items()
    ]
    return sorted(found, key=lambda function: -function.itself)


def answering_at_once(answers: Mapping[int, str]) -> KnowingPolicy:
    """A policy whose answers need nothing but to be looked up."""
    ready = {seed: as_parsed(text) for seed, text in answers.items()}
    return KnowingPolicy(lambda body: ready[seed_of(body)])
