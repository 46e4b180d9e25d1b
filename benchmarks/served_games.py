"""Games as `hgpo eval --server` plays them, with every request and its answer known beforehand."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletion

from hgpo.agents import Agent
from hgpo.config import Config
from hgpo.envs.base import Expert, Task
from hgpo.policies.base import AsyncPolicy, Request, Response
from hgpo.policies.server import Server, ServerPolicy
from hgpo.rollout.games import Game, OnPlayed, Player, play_games
from hgpo.rollout.rules import RolloutRules
from hgpo.runs.asking import settings_for
from hgpo.runs.assemble import agent_rules, build_agent, build_suite, evaluation_tasks
from hgpo.runs.game_journal import GameJournal
from known_answers import completion

SIZES = {"alfworld": "valid_unseen_games", "webshop": "valid_unseen_goals"}
MODEL = "known"
Body = Mapping[str, Any]
"""Keywords of a request, as `ServerPolicy.body` makes them."""


@dataclass(slots=True)
class Span:
    """Seconds that something took. Example: `Span(wall=1.92, cpu=1.71)`."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def timing() -> Iterator[Span]:
    """How long what stands under it takes: wall time, and CPU time of this process."""
    span, wall, cpu = Span(), time.perf_counter(), time.process_time()
    yield span
    span.wall, span.cpu = time.perf_counter() - wall, time.process_time() - cpu


@dataclass(frozen=True, slots=True)
class ServedGames:
    """What is played, and how the policy is asked.

    Attributes:
        games: as `hgpo eval` makes them.
        ways: the expert's actions in each.
        agent: asks.
        rules: of every episode.

    Example: `ServedGames.of("alfworld", "react", count=192)`.
    """

    games: list[Game]
    ways: list[list[str]]
    agent: Agent
    rules: RolloutRules

    @classmethod
    def of(cls, environment: str, agent_name: str, count: int) -> ServedGames:
        """Those of `hgpo eval MODEL --server URL --env ENVIRONMENT --agent AGENT`, so many of them."""
        config = _settings(environment, agent_name, count)
        suite, agent, seed = build_suite(config), build_agent(config), config.evaluation.seeds[0]
        expert = suite.expert()
        assert expert is not None, f"{environment} has no expert"
        games = [Game(task, place, seed) for place, task in enumerate(evaluation_tasks(suite, config))]
        ways = [_walk(game.task, expert) for game in games]
        return cls(games, ways, agent, agent_rules(config, agent, config.evaluation.temperature))

    @property
    def steps(self) -> int:
        """Of all games together, and so requests."""
        return sum(map(len, self.ways))

    def play(
        self, policy: AsyncPolicy, at_once: int, noting: Callable[[OnPlayed], OnPlayed] = lambda note: note
    ) -> Span:
        """Play all games and keep each in a journal, as `hgpo eval -o` does.

        Args:
            policy: answers.
            at_once: games in flight.
            noting: what is done with the journal's function, such as timing it.

        Raises:
            RuntimeError: a game failed or went another way than the expert's, so that nothing was measured.
        """
        player = Player(policy, self.agent, self.rules, at_once=at_once)
        with tempfile.TemporaryDirectory() as folder:
            journal = GameJournal.open(Path(folder) / "games.json", {})
            with timing() as span:
                asyncio.run(play_games(self.games, player, noting(journal.add)))
        for game, way in zip(self.games, self.ways, strict=True):
            played = journal.games[game.id]
            if played.failure or played.steps != len(way):
                raise RuntimeError(f"{game.id}: {played.steps} steps of the expert's {len(way)}; {played.failure}")
        return span


@dataclass(frozen=True, slots=True)
class Requests:
    """Every request of some games.

    Attributes:
        bodies: in the order of the games, one after the other.
        answers: the text that answers each, by its seed.
    """

    bodies: list[Body] = field(default_factory=list)
    answers: dict[int, str] = field(default_factory=dict)


class KnowingPolicy(ServerPolicy):
    """Says what `answer` makes of a request's body, without client or server; all else is a `ServerPolicy`'s."""

    def __init__(self, answer: Callable[[Body], ChatCompletion]) -> None:
        super().__init__(Server("http://nowhere"), MODEL, max_response_tokens=512)
        self._answer = answer

    async def respond(self, request: Request, *, temperature: float) -> Response:
        return self.read(self._answer(self.body(request, temperature)), 1, 0.0)


def served(url: str) -> ServerPolicy:
    """The policy that asks a server, as `KnowingPolicy` would."""
    return ServerPolicy(Server(url), MODEL, max_response_tokens=512)


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
    """What the expert does from the start to the end."""
    environment, actions, ended = task.make(), [], False
    observation, info = environment.reset(seed=0)
    expert.reset(observation, info)
    while not ended:
        actions.append(expert.act(observation, info))
        observation, _, terminated, truncated, info = environment.step(actions[-1])
        ended = terminated or truncated
    return actions
