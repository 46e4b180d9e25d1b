"""Games played by an agent, each by itself: trials of one game after another, many games at once.

    trial ─▶ won? ─▶ done
      ▲        │ no
      └─ lesson┘

Whatever one game meets stays with it: an answer that does not come ends that game, by name, and no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hgpo.agents import Agent
from hgpo.envs.base import StepResult, Task
from hgpo.envs.env_checker import EnvContractError
from hgpo.policies.base import AsyncPolicy, PromptTooLong, RequestUsage, draw_requests
from hgpo.policies.openai import AnswerFailed
from hgpo.policies.pricing import OverBudget, usage_of
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import RolloutError, RolloutRules, fit_prompts
from hgpo.rollout.records import PlayedGame, StepRecord, TotalUsage, played_game
from hgpo.rollout.runner import play

MAX_LESSON_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Game:
    """One task to be played with one seed.

    Attributes:
        task: what is played.
        place: of the task in its split: which other tasks are played changes nothing.
        seed: of the environment and of everything that is drawn.
    """

    task: Task
    place: int
    seed: int

    @property
    def id(self) -> str:
        """Which game it is; its steps' group has the same name."""
        return game_id(self.seed, self.task.id)


def game_id(seed: int, task: str) -> str:
    """The id of a game. Example: `game_id(123, "valid_unseen/3") == "123/valid_unseen/3"`."""
    return f"{seed}/{task}"


@dataclass(frozen=True, slots=True)
class Played:
    """A game that was played.

    Attributes:
        game: its figures.
        steps: of all trials, in order.
        over_budget: it failed because the money was spent.
    """

    game: PlayedGame
    steps: list[StepRecord]
    over_budget: bool = False


OnPlayed = Callable[[Played], None]


@dataclass(slots=True)
class _UnderWay:
    """What is known of a game so far."""

    trials: list[bool] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    usage: list[RequestUsage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Player:
    """Who plays, and how.

    Attributes:
        policy: answers.
        agent: how it is asked, and how often a game is tried.
        rules: of every episode.
        at_once: most games under way, and so most requests.
        on_step: told of every step as soon as it is done.
    """

    policy: AsyncPolicy
    agent: Agent
    rules: RolloutRules
    at_once: int = 1
    on_step: Callable[[StepRecord], None] = lambda step: None


async def play_games(games: Sequence[Game], player: Player, on_played: OnPlayed) -> bool:
    """Play every game, and hand over each as soon as it has ended.

    Args:
        games: what is played.
        player: see `Player`.
        on_played: told of each game, in the order in which they end.

    Returns:
        Whether all were played; False where the money was spent before. Games that were under way then are handed
        over as failed, since what they took was paid.

    Raises:
        ServerRefused: no request is answered; so do other errors that concern not one game alone.
    """
    free = asyncio.Semaphore(player.at_once)
    over_budget = asyncio.Event()

    async def play_one(game: Game) -> None:
        async with free:
            if over_budget.is_set():
                return
            played = await play_game(game, player)
            if played.over_budget:
                over_budget.set()
            on_played(played)

    try:
        async with asyncio.TaskGroup() as group:
            for game in games:
                group.create_task(play_one(game))
    except ExceptionGroup as failed:  # the others were cancelled; the first says what is wrong
        raise failed.exceptions[0] from failed
    return not over_budget.is_set()


async def play_game(game: Game, player: Player) -> Played:
    """Try one game until it is won, as often as the agent does.

    An answer that does not come, a prompt beyond the model, an environment that breaks its contract and money that is
    spent end the game as failed; its reason says why.

    Raises:
        ServerRefused: see `play_games`.
    """
    rng = np.random.default_rng((game.seed, game.place))
    reset_seed = int(rng.integers(2**31))
    so_far = _UnderWay()
    began = time.perf_counter()
    failure: Exception | None = None
    try:
        while len(so_far.trials) < player.agent.trials and not any(so_far.trials):
            await _try_once(game, player, reset_seed, rng, so_far)
    except (AnswerFailed, PromptTooLong, EnvContractError, RolloutError, OverBudget) as error:
        failure = error
    played = played_game(
        so_far.steps,
        task=game.task.id,
        kind=game.task.kind,
        seed=game.seed,
        trials=so_far.trials,
        spent=_total_usage(so_far.usage),
        seconds=time.perf_counter() - began,
        failure=f"{type(failure).__name__}: {failure}" if failure else "",
    )
    return Played(played, so_far.steps, over_budget=isinstance(failure, OverBudget))


async def _try_once(game: Game, player: Player, reset_seed: int, rng: np.random.Generator, so_far: _UnderWay) -> None:
    """One trial, and where it is lost and another follows, the lesson from it."""
    task = game.task
    environment = task.make()
    ids = EpisodeIds(game.id, f"{game.id}#{len(so_far.trials)}", task.id, task.kind)
    episode = Episode(ids, player.rules, *environment.reset(seed=reset_seed), lessons=tuple(so_far.lessons))

    async def step(action: str) -> StepResult:
        return environment.step(action)

    async for record, response in play(episode, step, player.policy, player.rules, rng):
        so_far.steps.append(record)
        player.on_step(record)
        so_far.usage.append(usage_of(response))
    won = so_far.steps[-1].won
    so_far.trials.append(won)
    if not won and len(so_far.trials) < player.agent.trials:
        so_far.lessons.append(await _lesson(episode, player, rng, so_far))


async def _lesson(episode: Episode, player: Player, rng: np.random.Generator, so_far: _UnderWay) -> str:
    """What the agent makes of a trial that was lost."""
    assert player.agent.reflect is not None, "an agent with several trials reflects"
    [prompt] = fit_prompts([episode.context()], player.policy, player.agent.reflect)
    temperature = player.rules.temperature
    [request] = draw_requests([prompt.text], player.policy, rng, temperature=temperature)
    response = await player.policy.respond(request, temperature=temperature)
    so_far.usage.append(usage_of(response))
    return " ".join(response.text.split())[:MAX_LESSON_CHARACTERS]


def _total_usage(usage: Sequence[RequestUsage]) -> TotalUsage:
    return TotalUsage(
        prompt_tokens=sum(one.prompt_tokens for one in usage),
        response_tokens=sum(one.response_tokens for one in usage),
        requests=sum(one.requests for one in usage),
        latencies=tuple(one.seconds for one in usage if one.seconds),
        cost=sum(one.cost for one in usage),
    )
