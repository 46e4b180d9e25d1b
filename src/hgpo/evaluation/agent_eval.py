"""Evaluations of any model through any agent, kept on disk game by game."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.agents import Agent
from hgpo.config import Config, ConfigError
from hgpo.envs.base import Task
from hgpo.evaluation.eval_log import GameJournal
from hgpo.evaluation.result_files import Failure, Latency, StoredEvaluation, TokenCount, write_evaluation
from hgpo.evaluation.statistics import summarise_games
from hgpo.policies.base import AsyncPolicy
from hgpo.policies.pricing import FREE, PricedPolicy, Prices
from hgpo.rollout.games import Game, Played, Player, play_games
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import PlayedGame
from hgpo.utils.progress import Reporter


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a policy is asked.

    Attributes:
        prices: Of its tokens.
        max_cost: Nothing more is asked once that is spent; None: no limit.
        at_once: Most games under way, and so most requests.
    """

    prices: Prices = FREE
    max_cost: float | None = None
    at_once: int = 64


def evaluate_prompted(
    output: Path,
    policy: AsyncPolicy,
    tasks: Sequence[Task],
    agent: Agent,
    rules: RolloutRules,
    config: Config,
    reporter: Reporter,
    *,
    model: str,
    terms: Terms = Terms(),
) -> StoredEvaluation | None:
    """Play the panel with `policy` through the settings' agent, and write what came out to `output`.

    What was played before into the same files is not played again; what failed is.

    Args:
        output: a .json file; games and steps are kept beside it.
        policy: answers.
        tasks: the panel's.
        agent: asks the policy.
        rules: of the episodes.
        config: `environment`, `agent`, `evaluation` and `policy` decide what is played.
        reporter: shows how far it is.
        model: what the policy is called.
        terms: see `Terms`.

    Returns:
        The figures; None where the money was spent before all games were played.

    Raises:
        JournalError: the files beside `output` are of another evaluation.
        ConfigError: no game could be played to its end.
    """
    journal = GameJournal.open(output, describe_panel(config, model))
    settings = config.evaluation
    panel = [Game(task, place, seed) for seed in settings.seeds for place, task in enumerate(tasks)]
    missing = [game for game in panel if not journal.finished(game.id)]
    if len(missing) < len(panel):
        reporter.say(f"{len(panel) - len(missing)} of {len(panel)} games were played before; {len(missing)} are left")
    priced = PricedPolicy(policy, terms.prices, limit=terms.max_cost, cost=journal.cost)
    player = Player(priced, agent, rules, terms.at_once)
    began = time.perf_counter()
    all_played = _play(missing, player, journal, reporter, done=len(panel) - len(missing))
    seconds = time.perf_counter() - began
    if not all_played:
        played = sum(journal.finished(game.id) for game in panel)
        reporter.say(
            f"{priced.cost:.4f} were spent, the limit is {terms.max_cost:g}: {played} of {len(panel)} games are played"
        )
        return None
    stored = replace(
        _stored([journal.games[game.id] for game in panel], config),
        model=model,
        cost=journal.cost if terms.prices != FREE else None,
        seconds=seconds if len(missing) == len(panel) else None,  # else nobody knows how long the others took
    )
    write_evaluation(output, stored)
    return stored


def describe_panel(config: Config, model: str) -> dict[str, Any]:
    """Everything that decides what is played, in plain values."""
    policy = config.policy
    return {
        "model": model,
        "revision": policy.revision,
        "environment": config.environment.model_dump(mode="json"),
        "agent": config.agent.model_dump(mode="json"),
        "split": config.evaluation.split,
        "games": config.evaluation.games,
        "seeds": list(config.evaluation.seeds),
        "temperature": config.evaluation.temperature,
        "system_prompt": policy.system_prompt,
        "max_prompt_tokens": policy.max_prompt_tokens,
        "max_response_tokens": policy.max_response_tokens,
    }


def _play(games: Sequence[Game], player: Player, journal: GameJournal, reporter: Reporter, *, done: int) -> bool:
    total = done + len(games)
    outcomes: Counter[str] = Counter()
    with reporter.counting("playing") as count:

        def note(played: Played) -> None:
            journal.add(played)
            outcomes["failed" if played.game.failure else "won" if played.game.won else "lost"] += 1
            failed = f", {outcomes['failed']} failed" if outcomes["failed"] else ""
            count(done + outcomes.total(), total, f"{outcomes['won']} won{failed}")

        return asyncio.run(play_games(games, player, note))


def _stored(games: Sequence[PlayedGame], config: Config) -> StoredEvaluation:
    ended = [game for game in games if not game.failure]
    failed = [game for game in games if game.failure]
    if not ended:
        raise ConfigError(f"not one of {len(games)} games could be played to its end: {failed[0].failure}")
    settings = config.evaluation
    spent = [game.spent for game in games if game.spent]  # what failed was paid, too
    latencies = [second for one in spent for second in one.latencies]
    trials = max(len(game.trials) for game in ended)
    return StoredEvaluation(
        summarise_games(ended, split=settings.split, seeds=settings.seeds, temperature=settings.temperature),
        agent=config.agent.name,
        environment=config.environment.name,
        episodes=len(ended),
        failed=len(failed),
        failures=tuple(Failure(game.task, game.seed, game.failure) for game in failed),
        tokens=TokenCount(sum(one.prompt_tokens for one in spent), sum(one.response_tokens for one in spent)),
        requests=sum(one.requests for one in spent),
        latency=Latency(float(np.mean(latencies)), float(np.quantile(latencies, 0.95))) if latencies else None,
        success_by_trial=tuple(
            float(np.mean([any(game.trials[: trial + 1]) for game in ended])) for trial in range(trials)
        )
        if trials > 1
        else None,
    )
