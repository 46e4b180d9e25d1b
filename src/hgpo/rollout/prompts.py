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
    limit = counter.max_prompt_tokens
    if limit is None:
        return [Prompt(render(situation), forgotten=0) for situation in situations]
    shortened = [_Shortened(situation) for situation in situations]
    pending = shortened
    while pending:
        texts = [render(one.next) for one in pending]
        for one, text, tokens in zip(pending, texts, counter.count_prompt_tokens(texts), strict=True):
            one.note(text, tokens, limit)
        pending = [one for one in pending if not one.found]
    return [one.prompt for one in shortened]


class _Shortened:
    """Looks for the fewest pairs that a prompt has to forget: none, else 1, 2, 4, … and then between the last two.

    Each pair takes tokens, so that whatever is forgotten beyond enough is enough, too. In a long episode nearly all of
    the history may have to go, at every step: one pair after the other would render it as often.
    """

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._forgotten = 0  # of the text that is counted next
        self._too_few = -1
        self._fitting: Prompt | None = None

    @property
    def next(self) -> Situation:
        """What is to be rendered and counted."""
        return self._situation.forget_oldest(self._forgotten)

    @property
    def found(self) -> bool:
        """Whether nothing is left to be counted."""
        return self._fitting is not None and self._fitting.forgotten == self._too_few + 1

    @property
    def prompt(self) -> Prompt:
        """The longest that fits."""
        assert self._fitting is not None, "nothing was counted that fits"
        return self._fitting

    def note(self, text: Conversation, tokens: int, limit: int) -> None:
        """Take `text`, which is `next` rendered, or the next one from now on."""
        pairs = len(self._situation.history)
        if tokens <= limit:
            self._fitting = Prompt(text, self._forgotten)
        elif self._forgotten == pairs:
            raise RolloutError(
                f"a prompt without any memory takes {tokens} tokens, over policy.max_prompt_tokens = {limit}: "
                "raise the limit or use a shorter template"
            )
        else:
            self._too_few = self._forgotten
        if self._fitting is None:
            self._forgotten = min(2 * self._too_few or 1, pairs)
        else:
            self._forgotten = (self._too_few + self._fitting.forgotten) // 2
