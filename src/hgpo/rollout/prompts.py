"""Rules of episodes: prompts, memory and rewards."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgpo.agents import AgentContext, Template
from hgpo.messages import Conversation
from hgpo.policies.base import ContextFull, PromptCounter
from hgpo.policies.chat import PromptEncoder
from hgpo.policies.wrappers import Batched
from hgpo.rollout.state_keys import INFO_OF, TOOL_CALL


class RolloutError(RuntimeError):
    """An episode cannot be played; the message has the reason."""


class PromptWithoutMemoryTooLong(ContextFull, RolloutError):
    """A prompt exceeds `policy.max_prompt_tokens` without any memory."""


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """What turns an episode into training data.

    Attributes:
        template: makes the prompt and parses the response.
        history_length: K, remembered steps; None: all of them.
        temperature: of the sampling.
        reward: "won": 1 on the first winning step; "environment": the environment's reward.
        reward_scale: factor on the reward.
        invalid_action_penalty: penalty of each ill-formed response.
        state: the key by which states are compared, see `hgpo.rollout.state_keys`.
        cut_encoder: encodes the prompt of the state in which a time limit cuts an episode, for a critic; None: it is
            not needed.
    """

    template: Template
    history_length: int | None
    temperature: float
    reward: str = "won"
    reward_scale: float = 1.0
    invalid_action_penalty: float = 0.0
    state: str = "observation"
    cut_encoder: PromptEncoder | None = None

    def check_start(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Raise `RolloutError` if `info` lacks what the state key needs."""
        needed = INFO_OF.get(self.state)
        given = info.get(needed) if needed else None
        if needed and (given is None or (self.state == TOOL_CALL and not given)):  # no command may be possible at first
            raise RolloutError(
                f"task {task_id!r}: the environment gives no {needed.replace('_', ' ')}, which rollout.state = "
                f"{self.state!r} needs; set rollout.state = 'observation'"
            )


# From contexts to prompts that a policy takes.


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a context.

    Attributes:
        text: the user message, or the turns of a conversation.
        forgotten: remembered pairs that had to be left out to keep to the limit.
    """

    text: Conversation
    forgotten: int


def fit_prompts(
    contexts: Sequence[AgentContext], counter: PromptCounter, render: Callable[[AgentContext], Conversation]
) -> list[Prompt]:
    """Render all prompts; one over the counter's limit forgets its oldest pairs until it fits.

    Args:
        contexts: inputs of the prompts.
        counter: counts tokens and has the limit, e.g. a policy or a `PromptEncoder`.
        render: makes a prompt from a context, e.g. a template's `render`.

    Raises:
        RolloutError: a prompt is too long even without memory: nothing is ever cut silently.
    """
    prompts = []
    for prompt in _fitted(contexts, counter, render):
        if isinstance(prompt, RolloutError):
            raise prompt
        prompts.append(prompt)
    return prompts


class PromptBatcher(Batched[AgentContext, Prompt]):
    """`fit_prompts` for concurrent episodes: one call counts the tokens of all pending prompts."""

    def __init__(self, counter: PromptCounter, render: Callable[[AgentContext], Conversation]) -> None:
        super().__init__(lambda contexts: _fitted(contexts, counter, render))


def _fitted(
    contexts: Sequence[AgentContext], counter: PromptCounter, render: Callable[[AgentContext], Conversation]
) -> list[Prompt | RolloutError]:
    """The prompt of each context, or the error if it is too long even without memory."""
    texts, limit = [render(context) for context in contexts], counter.max_prompt_tokens
    if limit is None:
        return [Prompt(text, forgotten=0) for text in texts]
    counts = counter.count_prompt_tokens(texts)
    return [
        Prompt(text, forgotten=0) if tokens <= limit else _shortened(context, counter, render, limit)
        for context, text, tokens in zip(contexts, texts, counts, strict=True)
    ]


def _shortened(
    context: AgentContext, counter: PromptCounter, render: Callable[[AgentContext], Conversation], limit: int
) -> Prompt | RolloutError:
    """The prompt with the fewest pairs removed; each pair takes tokens, so bisection finds their number."""

    def tokens(forgotten: int) -> int:
        [count] = counter.count_prompt_tokens([render(context.forget_oldest(forgotten))])
        return count

    pairs = len(context.history)
    if (least := tokens(pairs)) > limit:
        return PromptWithoutMemoryTooLong(
            f"a prompt without any memory takes {least} tokens, over policy.max_prompt_tokens = {limit}: "
            "raise the limit or use a shorter template"
        )
    forgotten = bisect_left(range(pairs), True, lo=1, key=lambda number: tokens(number) <= limit)
    return Prompt(render(context.forget_oldest(forgotten)), forgotten)
