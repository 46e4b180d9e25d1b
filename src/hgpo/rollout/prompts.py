"""From situations to prompts that a policy takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hgpo.agents import Situation
from hgpo.conversation import Conversation
from hgpo.policies.base import PromptCounter
from hgpo.rollout.rules import RolloutError


@dataclass(frozen=True, slots=True)
class Prompt:
    """A situation as it is told to the model.

    Attributes:
        text: the user message, or the turns of a conversation.
        forgotten: remembered pairs that had to be left out to keep to the limit.

    Example: `Prompt("task : open the door at place 3 now : you are at place 0", forgotten=0)`.
    """

    text: Conversation
    forgotten: int


def fit_prompts(
    situations: Sequence[Situation], counter: PromptCounter, render: Callable[[Situation], Conversation]
) -> list[Prompt]:
    """Render all prompts; one over the counter's limit forgets its oldest pairs until it fits.

    Args:
        situations: what is told.
        counter: knows the limit; a policy does, and so does a `PromptEncoder`.
        render: how it is told, such as a template's `render`.

    Raises:
        RolloutError: a prompt is too long even without memory: nothing is ever cut silently.
    """
    texts = [render(situation) for situation in situations]
    forgotten = [0] * len(texts)
    limit = counter.max_prompt_tokens
    pending = [] if limit is None else list(range(len(texts)))
    remaining = list(situations)
    while pending and limit is not None:
        counts = counter.count_prompt_tokens([texts[index] for index in pending])
        over = [(index, count) for index, count in zip(pending, counts, strict=True) if count > limit]
        for index, count in over:
            if not remaining[index].history:
                raise RolloutError(
                    f"a prompt without any memory takes {count} tokens, over policy.max_prompt_tokens = {limit}: "
                    "raise the limit or use a shorter template"
                )
            remaining[index] = remaining[index].forget_oldest()
            texts[index] = render(remaining[index])
            forgotten[index] += 1
        pending = [index for index, _ in over]
    return [Prompt(text, count) for text, count in zip(texts, forgotten, strict=True)]
