"""Plays episodes: many environments side by side, one batched model call per turn, only the live ones.

An environment that has ended costs nothing more: its prompt is no longer built and nothing is generated for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo.agents import Memory, Situation, Template
from hgpo.envs.base import Env, Task
from hgpo.policies.base import Policy, PromptCounter, Response
from hgpo.rollout.records import StepRecord

COMMANDS_FOLLOW = "\nPossible: "
"""Parts an anchor's observation from the commands after it."""


class RolloutError(RuntimeError):
    """An environment or policy broke its contract; the message names the task and the step."""


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """What the collector needs to know besides tasks and policy.

    `state` says what stands for the state when steps are compared: "observation", as published, or
    "observation_and_commands" where one text, such as "Nothing happens.", is seen in many states.

    Example: `RolloutRules(get_template("household-compact"), history_length=2, temperature=1.0)`.
    """

    template: Template
    history_length: int
    temperature: float
    reward: str = "won"  # or "environment"
    reward_scale: float = 1.0
    invalid_action_penalty: float = 0.0
    state: str = "observation"

    def anchor(self, observation: str, info: Mapping[str, Any]) -> str:
        """What steps are compared by: the observation, followed by what can be done where `state` asks for it."""
        if self.state == "observation":
            return observation
        return f"{observation}{COMMANDS_FOLLOW}{', '.join(info.get('admissible_commands') or ())}"

    def training_reward(self, reward: float, *, first_win: bool) -> float:
        """What a step is paid. `first_win`: its episode is won by it, and was not before."""
        return self.reward_scale * (float(first_win) if self.reward == "won" else reward)

    def check_start(self, task_id: str, info: Mapping[str, Any]) -> None:
        """`RolloutError` where `state` asks for commands and the environment lists none."""
        if self.state != "observation" and not info.get("admissible_commands"):
            raise RolloutError(
                f"task {task_id!r}: the environment lists no admissible commands, which rollout.state = {self.state!r} "
                "needs; use 'observation'"
            )


@dataclass(slots=True)
class _Episode:
    """A trajectory under way."""

    task: Task
    group: str
    trajectory: str
    environment: Env
    memory: Memory
    observation: str
    info: Mapping[str, Any]
    step: int = 0
    won: bool = False  # by some step so far

    def situation(self) -> Situation:
        return Situation(
            task=str(self.info.get("task", "")),
            observation=self.observation,
            step=self.step,
            history=self.memory.recent(),
            admissible=tuple(self.info.get("admissible_commands") or ()),
        )


def collect(
    tasks: Sequence[Task],
    policy: Policy,
    rules: RolloutRules,
    rng: np.random.Generator,
    *,
    group_size: int = 1,
    label: str = "",
    on_turn: Callable[[int, int], None] | None = None,
) -> list[StepRecord]:
    """Play every task `group_size` times from the same start, to the end.

    `label` is put before group names, which keeps them unique across updates. `on_turn(turn, live)` is called
    after each turn. All randomness comes from `rng`; a group's environments are reset with one common seed.
    Raises `RolloutError` for a reward or score that is not a finite number or an observation that is not text.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size}")
    live = list(_start(tasks, rules, rng, group_size, label))
    steps: list[StepRecord] = []
    turn = 0
    while live:
        situations = [episode.situation() for episode in live]
        prompts, forgotten = fit_prompts(situations, policy, rules.template)
        responses = policy.generate(prompts, temperature=rules.temperature, rng=rng)
        records = [
            _advance(episode, situation, prompt, response, lost, rules)
            for episode, situation, prompt, response, lost in zip(
                live, situations, prompts, responses, forgotten, strict=True
            )
        ]
        steps += records
        live = [episode for episode, record in zip(live, records, strict=True) if not _ended(record)]
        turn += 1
        if on_turn is not None:
            on_turn(turn, len(live))
    return steps


def fit_prompts(
    situations: Sequence[Situation], counter: PromptCounter, template: Template
) -> tuple[list[str], list[int]]:
    """Render all prompts; one over the counter's limit forgets its oldest pairs until it fits.

    A policy is a counter, and so is a `PromptEncoder`. Returns the prompts and how many pairs each had to forget. A
    prompt that is too long even without memory is a `RolloutError`: nothing is ever cut silently.
    """
    prompts = [template.render(situation) for situation in situations]
    forgotten = [0] * len(prompts)
    limit = counter.max_prompt_tokens
    if limit is None:
        return prompts, forgotten
    pending = list(range(len(prompts)))
    remaining = list(situations)
    while pending:
        counts = counter.count_prompt_tokens([prompts[index] for index in pending])
        over = [(index, count) for index, count in zip(pending, counts, strict=True) if count > limit]
        for index, count in over:
            if not remaining[index].history:
                raise RolloutError(
                    f"a prompt without any memory takes {count} tokens, over policy.max_prompt_tokens = {limit}: "
                    "raise the limit or use a shorter template"
                )
            remaining[index] = remaining[index].forget_oldest()
            prompts[index] = template.render(remaining[index])
            forgotten[index] += 1
        pending = [index for index, _ in over]
    return prompts, forgotten


def _start(
    tasks: Sequence[Task], rules: RolloutRules, rng: np.random.Generator, group_size: int, label: str
) -> Iterator[_Episode]:
    for position, task in enumerate(tasks):  # the position keeps apart two draws of one task
        seed = int(rng.integers(2**31))
        group = f"{label}{position}/{task.id}"
        for member in range(group_size):
            environment = task.make()
            observation, info = environment.reset(seed=seed)
            _check_text(observation, task, 0)
            rules.check_start(task.id, info)
            yield _Episode(
                task, group, f"{group}#{member}", environment, Memory(rules.history_length), observation, info
            )


def _advance(
    episode: _Episode, situation: Situation, prompt: str, response: Response, forgotten: int, rules: RolloutRules
) -> StepRecord:
    """Send the response's action to the environment, write the record, move the episode on."""
    parsed = rules.template.parse(response.text)
    observation, reward, terminated, truncated, info = episode.environment.step(parsed.action)
    _check_text(observation, episode.task, episode.step + 1)
    reward = _finite(reward, "reward", episode)
    won = bool(info.get("won", False))
    record = StepRecord(
        group=episode.group,
        trajectory=episode.trajectory,
        step=episode.step,
        task_id=episode.task.id,
        task_type=episode.task.kind,
        observation=rules.anchor(episode.observation, episode.info),
        prompt=prompt,
        response=response.text,
        action=parsed.action,
        valid=parsed.valid,
        fault=parsed.fault,
        admissible=parsed.action in situation.admissible if situation.admissible else None,
        reward=rules.training_reward(reward, first_win=won and not episode.won),
        penalty=0.0 if parsed.valid else rules.invalid_action_penalty,
        won=won,
        score=_finite(info.get("score", won), "info['score']", episode),
        terminated=bool(terminated),
        truncated=bool(truncated),
        finished=response.finished,
        forgotten=forgotten,
        next_observation=rules.anchor(observation, info),
        prompt_ids=response.prompt_ids,
        token_ids=response.token_ids,
        log_probs=response.log_probs,
    )
    episode.memory.remember(episode.observation, parsed.action)
    episode.observation, episode.info = observation, info
    episode.step += 1
    episode.won = episode.won or won
    return record


def _finite(given: Any, what: str, episode: _Episode) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise RolloutError(
            f"task {episode.task.id!r}: the environment gave {what} {given!r} at step {episode.step}; "
            "it must be a finite number"
        )
    return value


def _check_text(observation: object, task: Task, step: int) -> None:
    if not isinstance(observation, str):
        raise RolloutError(f"task {task.id!r}: the observation at step {step} is {type(observation).__name__}, not str")


def _ended(record: StepRecord) -> bool:
    return record.terminated or record.truncated
