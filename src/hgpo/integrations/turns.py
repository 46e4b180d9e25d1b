"""One advantage for each step of attempts at tasks: the common part of all integrations.

An integration converts a trainer's data to `Turn`s and writes the advantages where the trainer reads them. This module
needs neither a trainer nor torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.estimators import compute_advantages, parse_options
from hgpo.keys import comparison_key
from hgpo.returns import check_gamma
from hgpo.steps import StepBatch
from hgpo.storage.conversations import steps_of_conversation
from hgpo.utils.text import counted


class ComparisonWarning(UserWarning):
    """Some states cannot be compared between attempts."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of an attempt: observation, action, reward.

    Attributes:
        observation: Compared between attempts: text, a tuple of tokens, or any value that `hgpo.keys.comparison_key`
            accepts, without memory and template; stored as its key.
        action: The agent's response, of the same kinds of values; only some estimators compare it, and they reject
            attempts in which no turn has one.
        reward: The environment's reward of this step.
    """

    observation: Hashable
    action: Hashable | None = None
    reward: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation", comparison_key(self.observation))
        object.__setattr__(self, "action", comparison_key(self.action))


@dataclass(frozen=True, slots=True)
class StepAdvantages:
    """An estimator with its options, applied to attempts.

    Example: two attempts at one task, which differ after the hall; HGPO's levels have the weights of the paper.

    >>> attempts = [[Turn("hall"), Turn("kitchen", reward=1.0)], [Turn("hall"), Turn("cellar")]]
    >>> estimate = StepAdvantages("hgpo", options={"mode": "mean_norm"})
    >>> [advantage_T.round(3).tolist() for advantage_T in estimate(attempts, groups=["task", "task"])]
    [[0.475, 0.0], [-0.475, 0.0]]

    Attributes:
        estimator: A name that `hgpo.estimators.names()` lists.
        gamma: Discount of the step returns.
        options: Options of the estimator, e.g. history_length.

    Raises:
        ValueError: an unknown estimator or option, or a value out of range.
    """

    estimator: str = "hgpo"
    gamma: float = 0.95
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_options(self.estimator, **self.options)  # now: the first call comes after the first rollouts
        check_gamma(self.gamma)

    def __call__(
        self, attempts: Sequence[Sequence[Turn]], groups: Sequence[Hashable]
    ) -> list[NDArray[np.floating[Any]]]:
        """For each attempt an array with one advantage for each turn; attempts without turns are in no group.

        Args:
            attempts: The turns of each attempt, in order.
            groups: The task of each attempt; attempts at one task begin in the same state.

        Raises:
            ValueError: `groups` and `attempts` differ in length, or the estimator rejects the steps.
        """
        if len(groups) != len(attempts):
            raise ValueError(
                f"{counted(len(attempts), 'attempt')}, but {counted(len(groups), 'group')}: name each attempt's task"
            )
        lengths = [len(turns) for turns in attempts]
        if not sum(lengths):
            return [np.zeros(0) for _ in attempts]
        turns_N = [turn for turns in attempts for turn in turns]
        batch = StepBatch.from_columns(
            group=[group for group, length in zip(groups, lengths, strict=True) for _ in range(length)],
            trajectory=[place for place, length in enumerate(lengths) for _ in range(length)],
            step=[step for length in lengths for step in range(length)],
            observation=[turn.observation for turn in turns_N],
            action=None if all(turn.action is None for turn in turns_N) else [turn.action for turn in turns_N],
            reward=[float(turn.reward) for turn in turns_N],
        )
        values_N = compute_advantages(batch, estimator=self.estimator, gamma=self.gamma, **self.options).values
        return np.split(values_N, np.cumsum(lengths)[:-1])


def turns_of_conversation(messages: Sequence[Mapping[str, Any]], reward: float = 0.0) -> list[Turn]:
    """The assistant's turns of a conversation; the messages of users and tools before a turn are its observation.

    Args:
        messages: Objects with `role` and `content`, in the format of docs/own-data.md.
        reward: Reward of the whole conversation; added to the last turn, in addition to rewards of single messages.

    Raises:
        ValueError, TypeError: a message is not in that format; the error names it.
    """
    steps = steps_of_conversation(list(messages))
    turns = [Turn(step["observation"], step["action"], step.get("reward", 0.0)) for step in steps]
    return with_final_reward(turns, reward)


def with_final_reward(turns: Sequence[Turn], reward: float) -> list[Turn]:
    """The turns, with the reward of the whole attempt added to the last turn's reward."""
    if not turns:
        return []
    last = turns[-1]
    return [*turns[:-1], Turn(last.observation, last.action, last.reward + float(reward))]


def new_part(
    before: Sequence[Hashable], response: Sequence[Hashable], prompt: Sequence[Hashable]
) -> tuple[Hashable, ...]:
    """The new tokens of a prompt: those that the environment added after the response to the prompt before it.

    A chat template may leave the thoughts of earlier turns out of later prompts. Then the prompt continues `before`
    with the end of the response.

    Returns:
        The new tokens. The whole prompt with a `ComparisonWarning` if it does not continue `before`; such prompts
        contain the history, so they differ between attempts and their steps are compared with no other.

    Example:

    >>> new_part([1, 2], [70, 8], [1, 2, 70, 8, 3]), new_part([1, 2], [70, 8], [1, 2, 8, 3])
    ((3,), (3,))
    """
    known, prompt = tuple(before), tuple(prompt)
    rest = prompt[len(known) :]
    if prompt[: len(known)] == known:
        said = tuple(response)
        for length in range(min(len(said), len(rest)), 0, -1):
            if rest[length - 1] == said[-1] and rest[:length] == said[-length:]:  # the first test is much cheaper
                return rest[length:]
        if not said:
            return rest
    warnings.warn(
        "a prompt does not extend the previous prompt, so its new observation cannot be separated from the history, "
        "and this step is compared with no other; pass the observations with `observe`",
        ComparisonWarning,
        stacklevel=2,
    )
    return prompt
