"""Time per step, apart from the model, when games are played through a server: milliseconds, with many open games.

    python benchmarks/serving.py                                 both environments, agents direct and react: minutes
    python benchmarks/serving.py --environments alfworld --agents react --at-once 16

The server is a separate process with prepared answers (`known_answers.py`), which are the environment's expert's. Each
round measures in turn

- "played", the path of `hgpo eval --server`: `play_tasks` with a `ServerPolicy`, every game in a log;
- "asked", openai's client alone, which sends the same requests as fast as it can, with as many open at a time.

"added" is their difference: the wall time of environment, agent, policy and log. Exit status 1: it is 5 ms or more.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from rich.console import Console
from rich.table import Table

from hgpo.agents import Agent
from hgpo.assemble import agent_rules, build_agent, build_suite, evaluation_tasks
from hgpo.config import Config
from hgpo.envs.base import Expert, Task
from hgpo.evaluation.eval_log import EvalLog
from hgpo.policies.base import AsyncPolicy, Request, Response
from hgpo.policies.openai import Server, ServerPolicy
from hgpo.rollout.eval_tasks import EvalTask, Player, play_tasks
from hgpo.rollout.prompts import RolloutRules
from hgpo.runs.load_settings import settings_for
from known_answers import completion, serve

DEMANDED = 5.0
"""Limit on "added", in milliseconds of wall time per step."""
SIZES = {"alfworld": "valid_unseen_games", "webshop": "valid_unseen_goals"}
MODEL = "known"
Body = Mapping[str, Any]
"""Keywords of a request, as `ServerPolicy.body` makes them."""


@dataclass(frozen=True, slots=True)
class ServedGames:
    """The games, and the expert's actions in them.

    Attributes:
        games: the games as `hgpo eval` makes them.
        ways: the expert's actions in each game.
        agent: the agent that plays.
        rules: rules of every episode.
    """

    games: list[EvalTask]
    ways: list[list[str]]
    agent: Agent
    rules: RolloutRules

    @classmethod
    def of(cls, environment: str, agent_name: str, count: int) -> ServedGames:
        """The first `count` games of `hgpo eval MODEL --server URL --env ENVIRONMENT --agent AGENT`."""
        config = _settings(environment, agent_name, count)
        suite, seed = build_suite(config.environment, config.evaluation), config.evaluation.seeds[0]
        agent = build_agent(config.agent, config.environment.name)
        expert = suite.expert()
        assert expert is not None, f"{environment} has no expert"
        games = [EvalTask(task, place, seed) for place, task in enumerate(evaluation_tasks(suite, config.evaluation))]
        ways = [_walk(game.task, expert) for game in games]
        return cls(games, ways, agent, agent_rules(config.rollout, agent, config.evaluation.temperature))

    @property
    def steps(self) -> int:
        """Number of steps in all games, which is the number of requests."""
        return sum(map(len, self.ways))

    def play(self, policy: AsyncPolicy, at_once: int) -> float:
        """Play all games and write each to a log, as `hgpo eval -o` does; return the seconds.

        Args:
            policy: answers the requests.
            at_once: number of open games.

        Raises:
            RuntimeError: a game failed or differs from the expert's, so the measurement is not valid.
        """
        player = Player(policy, self.agent, self.rules, max_concurrency=at_once)
        with tempfile.TemporaryDirectory() as folder:
            log = EvalLog(Path(folder) / "games.json", {}, keep_steps=True)
            began = time.perf_counter()
            asyncio.run(play_tasks(self.games, player, lambda result: log.add(result.summary, result.steps)))
            seconds = time.perf_counter() - began
        for game, way in zip(self.games, self.ways, strict=True):
            played = log.episodes[game.id]
            steps = played.counts.steps
            if played.failure or steps != len(way):
                raise RuntimeError(f"{game.id}: {steps} steps of the expert's {len(way)}; {played.failure}")
        return seconds


@dataclass(frozen=True, slots=True)
class Requests:
    """Every request of some games.

    Attributes:
        bodies: the requests in the order of the games.
        answers: seed of a request -> the text of its answer.
    """

    bodies: list[Body] = field(default_factory=list)
    answers: dict[int, str] = field(default_factory=dict)


class KnowingPolicy(ServerPolicy):
    """A `ServerPolicy` that gets the completion from `answer(body)` instead of a server."""

    def __init__(self, answer: Callable[[Body], ChatCompletion]) -> None:
        super().__init__(Server("http://nowhere"), MODEL, max_response_tokens=512)
        self._answer = answer

    async def respond(self, request: Request, *, temperature: float) -> Response:
        body = self.body(request, temperature)
        return self.read(self._answer(body).model_dump(), body, 1, 0.0)


def foresee(games: ServedGames) -> Requests:
    """All requests that the games will make if every answer is the expert's."""
    respond = games.rules.template.respond
    texts = (respond(action) for way in games.ways for action in way)
    requests = Requests()

    def answer(body: Body) -> ChatCompletion:
        text = next(texts)  # one game is played after the other
        requests.bodies.append(body)
        requests.answers[seed_of(body)] = text
        return as_parsed(text)

    games.play(KnowingPolicy(answer), at_once=1)
    if len(requests.answers) != len(requests.bodies):
        raise RuntimeError("two requests have the same seed: choose another number of games")
    return requests


def seed_of(body: Body) -> int:
    return int(body["extra_body"]["seed"])


def as_parsed(text: str) -> ChatCompletion:
    """A completion as the client hands it over."""
    return ChatCompletion.model_validate(completion(text))


def _settings(environment: str, agent: str, count: int) -> Config:
    overrides = [f"agent.name={agent!r}", f"environment.options.{SIZES[environment]}={count}"]
    return settings_for(MODEL, environment=environment, server="http://nowhere", overrides=overrides)


def _walk(task: Task, expert: Expert) -> list[str]:
    """The expert's actions from the start to the end of the task."""
    environment, actions, ended = task.make(), [], False
    observation, info = environment.reset(seed=0)
    expert.reset(observation, info)
    while not ended:
        actions.append(expert.act(observation, info))
        observation, _, terminated, truncated, info = environment.step(actions[-1])
        ended = terminated or truncated
    return actions


@dataclass(frozen=True, slots=True)
class Measured:
    """One environment through one agent.

    Attributes:
        steps: number of steps in all games, which is the number of requests.
        played: wall seconds of "played" in each round.
        asked: wall seconds of "asked" in each round.
    """

    steps: int
    played: list[float]
    asked: list[float]

    @property
    def milliseconds(self) -> tuple[float, float, float]:
        """Milliseconds per step of played, asked and added: medians over rounds of values within one round."""
        added = [played - asked for played, asked in zip(self.played, self.asked, strict=True)]
        one, other, difference = (1e3 * statistics.median(way) / self.steps for way in (self.played, self.asked, added))
        return one, other, difference


def main() -> int:
    """Read the command line, measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--agents", nargs="+", default=["direct", "react"], choices=["direct", "react"])
    parser.add_argument("--at-once", type=int, default=64, help="games in flight (default: 64)")
    parser.add_argument("--games", type=int, default=192, help="(default: 192)")
    parser.add_argument("--rounds", type=int, default=5, help="of both ways in turn (default: 5)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    found = {}
    for environment, agent in itertools.product(arguments.environments, arguments.agents):
        games = ServedGames.of(environment, agent, arguments.games)
        found[f"{environment}, {agent}"] = measure(games, arguments.at_once, arguments.rounds)
    if arguments.json:
        figures = {"at_once": arguments.at_once, "found": {name: asdict(one) for name, one in found.items()}}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    title = f"milliseconds a step, {arguments.at_once} games in flight"
    table = Table("", "steps", "played", "asked", "added", title=title, title_justify="left")
    for name, one in found.items():
        table.add_row(name, f"{one.steps:,}", *(f"{value:.2f}" for value in one.milliseconds))
    Console().print(table)
    return 0 if all(one.milliseconds[-1] < DEMANDED for one in found.values()) else 1


def measure(games: ServedGames, at_once: int, rounds: int) -> Measured:
    """Both ways in turn."""
    requests = foresee(games)
    played, asked = [], []
    with serve(requests.answers) as url:
        for _ in range(rounds):
            played.append(games.play(ServerPolicy(Server(url), MODEL, max_response_tokens=512), at_once))
            began = time.perf_counter()
            asyncio.run(ask_all(Server(url), requests.bodies, at_once))
            asked.append(time.perf_counter() - began)
    return Measured(games.steps, played, asked)


async def ask_all(server: Server, bodies: Sequence[Body], at_once: int) -> None:
    """The client alone: the next request goes out as soon as one is answered."""
    left = iter(bodies)

    async def ask_on() -> None:
        for body in left:
            await client.chat.completions.create(**body)

    async with AsyncOpenAI(**server.connection()) as client:
        await asyncio.gather(*(ask_on() for _ in range(at_once)))


if __name__ == "__main__":
    sys.exit(main())
