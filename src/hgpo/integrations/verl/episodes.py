"""Plays one episode with tokens in and tokens out: environment, memory, prompt, response, action, record.

The same walk as `hgpo.rollout.collect`, for engines that answer each prompt in its own time: there a turn of all live
environments is one batch, here every episode runs by itself and the engine batches whatever is waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from hgpo.agents import Memory, ParsedAction, Situation
from hgpo.envs.base import Info, StepResult
from hgpo.integrations.verl.environments import EnvironmentPool, EpisodeLost
from hgpo.policies.encoding import PromptEncoder
from hgpo.policies.padding import TokenIds
from hgpo.rollout.collect import RolloutRules, fit_prompts
from hgpo.rollout.records import StepRecord

_ARRAYS = ("prompt_ids", "token_ids", "log_probs")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which episode is to be played, with every id said outright.

    Example: `Assignment(group="3/17/train/17", trajectory="3/17/train/17#5", task_id="train/17",
    task_type="pick_two_obj_and_place", split="train", index=17, seed=812)`.
    """

    group: str
    trajectory: str
    task_id: str
    task_type: str
    split: str
    index: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine wrote after a prompt; `details` are the engine's own and are handed on."""

    token_ids: TokenIds
    log_probs: np.ndarray
    details: Mapping[str, Any]


Generate = Callable[[TokenIds], Awaitable[Answer]]


async def play(
    assignment: Assignment,
    pool: EnvironmentPool,
    generate: Generate,
    encoder: PromptEncoder,
    rules: RolloutRules,
    *,
    max_response_tokens: int,
) -> tuple[list[StepRecord], list[Answer]]:
    """All steps of the episode, and the engine's answer of each.

    Raises `EpisodeLost` when the environment is gone or the engine answers nothing; no step of such an episode is of
    use, since the return of every step depends on those after it.
    """
    episode = await pool.start(assignment.split, assignment.index, seed=assignment.seed)
    memory = Memory(rules.history_length)
    observation, info = episode.observation, cast(Info, episode.info)
    records: list[StepRecord] = []
    answers: list[Answer] = []
    try:
        rules.check_start(assignment.task_id, info)
        while not records or not (records[-1].terminated or records[-1].truncated):
            situation = Situation(
                task=str(info.get("task", "")),
                observation=observation,
                step=len(records),
                history=memory.recent(),
                admissible=tuple(info.get("admissible_commands") or ()),
            )
            told = _tell(situation, encoder, rules)
            answer = await generate(told.prompt_ids)
            if not len(answer.token_ids):
                raise EpisodeLost("the engine answered no token")
            [text] = encoder.decode([answer.token_ids])
            parsed = rules.template.parse(text)
            result = await episode.step(parsed.action)
            finished = len(answer.token_ids) < max_response_tokens or encoder.ends(answer.token_ids)
            anchor = rules.anchor(observation, info)
            first_win = bool(result[4].get("won", False)) and not any(record.won for record in records)
            reward = rules.training_reward(result[1], first_win=first_win)
            records.append(
                _record(assignment, situation, anchor, told, answer, text, parsed, result, reward, rules, finished)
            )
            answers.append(answer)
            memory.remember(observation, parsed.action)
            observation, info = result[0], result[4]
    finally:
        await episode.close()
    return records, answers


@dataclass(frozen=True, slots=True)
class _Told:
    """A situation as it was told to the model; `forgotten` pairs had to be left out."""

    prompt: str
    prompt_ids: TokenIds
    forgotten: int


def _tell(situation: Situation, encoder: PromptEncoder, rules: RolloutRules) -> _Told:
    [prompt], [forgotten] = fit_prompts([situation], encoder, rules.template)
    [prompt_ids] = encoder.encode_prompts([prompt])
    return _Told(prompt, prompt_ids, forgotten)


def _record(
    assignment: Assignment,
    situation: Situation,
    anchor: str,
    told: _Told,
    answer: Answer,
    text: str,
    parsed: ParsedAction,
    result: StepResult,
    reward: float,
    rules: RolloutRules,
    finished: bool,
) -> StepRecord:
    next_observation, _, terminated, truncated, info = result
    won = bool(info.get("won", False))
    return StepRecord(
        group=assignment.group,
        trajectory=assignment.trajectory,
        step=situation.step,
        task_id=assignment.task_id,
        task_type=assignment.task_type,
        observation=anchor,
        prompt=told.prompt,
        response=text,
        action=parsed.action,
        valid=parsed.valid,
        fault=parsed.fault,
        admissible=parsed.action in situation.admissible if situation.admissible else None,
        reward=reward,
        penalty=0.0 if parsed.valid else rules.invalid_action_penalty,
        won=won,
        score=float(info.get("score", won)),
        terminated=terminated,
        truncated=truncated,
        finished=finished,
        forgotten=told.forgotten,
        next_observation=rules.anchor(next_observation, info),
        prompt_ids=told.prompt_ids,
        token_ids=answer.token_ids,
        log_probs=answer.log_probs,
    )


def plain_fields(record: StepRecord) -> dict[str, Any]:
    """Everything of a record but its arrays, which an engine stores as tensors of its own."""
    return {item.name: getattr(record, item.name) for item in fields(StepRecord) if item.name not in _ARRAYS}


def record_from(plain: Mapping[str, Any], prompt_ids: TokenIds, token_ids: TokenIds, log_probs: Any) -> StepRecord:
    """The inverse of `plain_fields`. Unknown and missing fields are a `TypeError`."""
    return StepRecord(**plain, prompt_ids=prompt_ids, token_ids=token_ids, log_probs=log_probs)
